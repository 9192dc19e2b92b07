//! Counting what is exchanged with a host.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Counters of one host, since it was first talked to.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    since: OnceLock<SystemTime>,
    answered: AtomicU64,
    failed: AtomicU64,
    received_bytes: AtomicU64,
    waited_ns: AtomicU64,
}

impl Counts {
    pub fn answered(&self, waited: Duration) {
        self.since.get_or_init(SystemTime::now);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn failed(&self) {
        self.since.get_or_init(SystemTime::now);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Requests sent, and bytes received.
    pub fn exchanged(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.answered) + read(&self.failed), read(&self.received_bytes))
    }

    /// The counters so far; `None` when the host was never talked to.
    pub fn traffic(&self, source: String) -> Option<weft_remote::Traffic> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(weft_remote::Traffic {
            source,
            since: *self.since.get()?,
            answered: read(&self.answered),
            failed: read(&self.failed),
            received_bytes: read(&self.received_bytes),
            waited: Duration::from_nanos(read(&self.waited_ns)),
        })
    }
}

/// A URL as it goes into the log: without its query, which may be a secret (a signed link).
pub(crate) fn shown(url: &str) -> String {
    match url.split_once('?') {
        Some((before, _)) => format!("{before}?..."),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_never_talked_to_has_no_traffic() {
        let counts = Counts::default();
        assert_eq!(counts.traffic("a".to_owned()), None);
        counts.answered(Duration::from_millis(3));
        counts.received(7);
        counts.failed();
        let traffic = counts.traffic("a".to_owned()).expect("talked to");
        assert_eq!((traffic.answered, traffic.failed, traffic.received_bytes), (1, 1, 7));
        assert_eq!(traffic.waited, Duration::from_millis(3));
        assert_eq!(shown("https://a/b?token=x"), "https://a/b?...");
        assert_eq!(shown("https://a/b"), "https://a/b");
    }
}
