//! Servers that do not answer: who asks one that has not answered anybody for a while is told so at once, and does not wait
//! for it as long as everybody before. Such a server is asked for something small every few seconds until it answers.
//!
//! One that is slow is not silent, nor is one that has no hands left: that is heard from all the same (Rx answers pings by
//! itself). It is given up when nothing at all was heard of it for as long as makes a call dead ([`weft_rx::Config`]), be it
//! a call of somebody's, or that small one, which does not end when somebody has no more time; and when somebody's time is
//! over before that, who has waited for a while ([`crate::rpc`]).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Weak;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Call, Caller};

use crate::afs::Shared;
use crate::wire::{fileserver, vl};

/// Addresses that did not answer a call lately.
#[derive(Debug, Default)]
pub(crate) struct Silences(Mutex<HashMap<SocketAddr, Silence>>);

#[derive(Debug)]
struct Silence {
    since: SystemTime,
    why: String,
    /// Nothing was heard of it for so long that nobody waits for it.
    is_given_up: bool,
    /// When it is probed next; `None` while it is.
    next_probe: Option<Instant>,
    /// When somebody wanted something of it last.
    wanted: Instant,
}

impl Silences {
    /// Why nobody needs to wait for this one.
    pub fn given_up(&self, at: SocketAddr) -> Option<String> {
        let mut known = self.0.lock();
        let silence = known.get_mut(&at).filter(|silence| silence.is_given_up)?;
        silence.wanted = Instant::now();
        Some(silence.why.clone())
    }

    /// Whether one is not asked.
    pub fn is_given_up(&self, at: SocketAddr) -> bool {
        self.0.lock().get(&at).is_some_and(|silence| silence.is_given_up)
    }

    /// Since when one is silent that was given up, and why, for people.
    pub fn shown(&self, at: SocketAddr) -> Option<(SystemTime, String)> {
        let known = self.0.lock();
        let silence = known.get(&at).filter(|silence| silence.is_given_up)?;
        Some((silence.since, silence.why.clone()))
    }

    /// A call is not answered for a while: it is found out by a probe what that means.
    pub fn suspect(&self, at: SocketAddr, why: &str) {
        self.note(at, why, |_| {});
    }

    /// Nothing was heard of it for as long as makes a call dead.
    pub fn silent(&self, at: SocketAddr, why: &str) {
        self.note(at, why, |silence| {
            silence.is_given_up = true;
            silence.next_probe = silence.next_probe.map(|_| Instant::now() + PAUSE);
        });
    }

    fn note(&self, at: SocketAddr, why: &str, change: impl FnOnce(&mut Silence)) {
        // What else there is has nothing small to be asked for.
        if ![fileserver::PORT, vl::PORT].contains(&at.port()) {
            return;
        }
        let (mut known, now) = (self.0.lock(), Instant::now());
        if known.len() >= SILENT_MAX && !known.contains_key(&at) {
            return;
        }
        let (since, why) = (SystemTime::now(), why.to_owned());
        let new = Silence { since, why, is_given_up: false, next_probe: Some(now), wanted: now };
        change(known.entry(at).or_insert(new));
    }

    /// It has said something.
    pub fn answered(&self, at: SocketAddr) {
        self.0.lock().remove(&at);
    }

    /// Forgets that any was silent; says whether one was.
    pub fn forget(&self) -> bool {
        let mut known = self.0.lock();
        let any = !known.is_empty();
        known.clear();
        any
    }

    /// Those to be probed now, which counts as begun. Of whom nobody wants anything any more, nothing is remembered.
    fn due(&self) -> Vec<SocketAddr> {
        let (mut known, now) = (self.0.lock(), Instant::now());
        known.retain(|_, silence| now.duration_since(silence.wanted) < WANTED_TIME);
        let due = known.iter_mut().filter(|(_, silence)| silence.next_probe.is_some_and(|at| at <= now));
        due.map(|(at, silence)| {
            silence.next_probe = None;
            *at
        })
        .collect()
    }

    /// A probe has ended. If the server did not answer it, the next one comes in a while.
    pub fn probed(&self, at: SocketAddr) {
        if let Some(silence) = self.0.lock().get_mut(&at) {
            silence.next_probe = Some(Instant::now() + PAUSE);
        }
    }
}

/// Probes silent servers for as long as there is a tree.
pub(crate) async fn keep(tree: Weak<Shared>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        let Some(shared) = tree.upgrade() else { return };
        for at in shared.files.rpc.silences.due() {
            let shared = shared.clone();
            tokio::spawn(async move {
                let patience = shared.options.dead_after + PATIENCE;
                shared.files.rpc.probe(&Call::within(Caller::DAEMON, patience), at).await;
            });
        }
    }
}

/// How often it is looked for servers to probe.
const PERIOD: Duration = Duration::from_secs(1);
/// How much longer a probe may take than makes it dead.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a server is left alone after one.
const PAUSE: Duration = Duration::from_secs(3);
/// How long a server is probed of which nobody wants anything.
const WANTED_TIME: Duration = Duration::from_secs(300);
/// Addresses that are remembered.
const SILENT_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_given_up_until_it_says_something() {
        let (silences, at) = (Silences::default(), SocketAddr::from(([192, 0, 2, 1], fileserver::PORT)));
        let other = SocketAddr::from(([192, 0, 2, 1], 9));
        silences.suspect(at, "silent");
        silences.suspect(other, "silent");
        assert!(silences.given_up(at).is_none(), "it may be slow with that one call");
        assert_eq!(silences.due(), [at]);
        assert!(silences.due().is_empty(), "the probe is under way");
        silences.probed(at);
        assert!(silences.due().is_empty(), "it is left alone for a while");
        assert!(silences.given_up(at).is_none(), "it may have no hands left");
        silences.silent(at, "silent again");
        assert_eq!(silences.given_up(at).as_deref(), Some("silent"));
        assert!(silences.is_given_up(at) && !silences.is_given_up(other));
        assert!(silences.shown(at).is_some_and(|(_, why)| why == "silent"));
        assert!(silences.given_up(other).is_none());
        silences.answered(at);
        assert!(silences.given_up(at).is_none() && !silences.forget());
        silences.silent(at, "silent");
        assert!(silences.due().is_empty(), "what was heard of it is known without a probe");
        assert!(silences.forget() && silences.given_up(at).is_none());
        silences.probed(at);
        assert!(silences.given_up(at).is_none(), "a probe of before");
    }

    #[test]
    fn a_server_that_nobody_wants_is_forgotten() {
        let (silences, at) = (Silences::default(), SocketAddr::from(([192, 0, 2, 1], vl::PORT)));
        silences.silent(at, "silent");
        silences.0.lock().values_mut().for_each(|silence| silence.wanted -= WANTED_TIME);
        assert!(silences.due().is_empty() && silences.given_up(at).is_none());
    }
}
