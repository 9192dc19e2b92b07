//! How many bodies of one file are under way for a sequential reader.
//!
//! One is enough where the network is near. Where a body cannot come faster because its source waits for
//! acknowledgements (the bandwidth-delay product is above what one connection has in flight), further ranges are
//! fetched beside it; they stay as long as they make the whole faster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_remote::{Call, Version};
use weft_store::{Object, PIECE_BYTES};

use crate::Result;
use crate::arrival::Arrival;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::vfs::Vfs;

/// How one handle's reading goes, measured over stretches of [`EPOCH_BYTES`].
#[derive(Debug)]
pub(crate) struct Lanes {
    /// Bodies that may be under way.
    allowed: usize,
    /// Byte up to which ranges were asked for.
    planned_to: u64,
    /// Bytes of one range: many times what is in flight, so that asking for it costs little beside it.
    length: u64,
    /// Ranges that are being asked for.
    asking: usize,
    since: Option<Instant>,
    bytes: u64,
    waited: Duration,
    /// The rate, in bytes per second, with half as many; measured again once the change has worked.
    former: Option<f64>,
    changed: bool,
    settled: bool,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            allowed: 1,
            planned_to: 0,
            length: LANE_BYTES_MIN,
            asking: 0,
            since: None,
            bytes: 0,
            waited: Duration::ZERO,
            former: None,
            changed: false,
            settled: false,
        }
    }
}

impl Lanes {
    /// Notes bytes that were read one after the other, how long they were waited for, and how long the source takes to
    /// begin an answer; returns how many bodies may be under way.
    fn note(&mut self, bytes: u64, waited: Duration, latency: Duration, now: Instant) -> usize {
        let since = *self.since.get_or_insert(now);
        self.bytes += bytes;
        self.waited += waited;
        if self.bytes < EPOCH_BYTES {
            return self.allowed;
        }
        let elapsed = now.duration_since(since);
        let rate = self.bytes as f64 / elapsed.as_secs_f64().max(1e-9);
        let starved = self.waited * 2 > elapsed;
        let in_flight = rate * latency.as_secs_f64();
        self.length = ((in_flight * LANE_ROUND_TRIPS) as u64).clamp(LANE_BYTES_MIN, LANE_BYTES_MAX);
        (self.since, self.bytes, self.waited) = (Some(now), 0, Duration::ZERO);
        if std::mem::take(&mut self.changed) || self.settled {
            return self.allowed;
        }
        let paid = self.former.is_none_or(|former| rate > former * GAIN_MIN);
        if !paid {
            self.allowed /= 2;
            self.settled = true;
        } else if starved && self.allowed < LANES_MAX && asks_for_more(rate, latency) {
            self.former = Some(rate);
            self.allowed *= 2;
            self.changed = true;
        } else {
            self.former = None;
        }
        self.allowed
    }

    /// A reader that went far back has nothing planned ahead of it.
    fn follow(&mut self, end: u64) {
        if self.planned_to > end.saturating_add(LANE_BYTES_MAX * (LANES_MAX as u64 + 2)) {
            self.planned_to = 0;
        }
    }

    /// Where the next range begins and how long it is, if one may be asked for: not before `from`. A single one goes to
    /// the end of the file, as far as it is read.
    fn plan(&mut self, from: u64, under_way: usize) -> Option<(u64, Option<u64>)> {
        if under_way + self.asking >= self.allowed {
            return None;
        }
        let start = self.planned_to.max(from);
        let length = (self.allowed > 1).then(|| self.length.next_multiple_of(PIECE_BYTES));
        self.planned_to = start + length.unwrap_or(0);
        self.asking += 1;
        Some((start, length))
    }
}

/// Whether what is in flight at this rate is more than one connection can be counted on to have, and not so much that
/// this one evidently has all it wants.
fn asks_for_more(rate: f64, latency: Duration) -> bool {
    let in_flight = rate * latency.as_secs_f64();
    latency >= LATENCY_MIN && (IN_FLIGHT_MIN..IN_FLIGHT_PLENTY).contains(&in_flight)
}

impl Vfs {
    /// Has what a sequential reader will want next fetched beside what is coming already.
    pub(crate) fn keep_ahead(
        self: &Arc<Self>,
        call: &Call,
        handle: &Arc<Handle>,
        object: &Arc<Object>,
        end: u64,
        read: (u64, Duration),
    ) {
        let Some(length) = object.length().filter(|length| end < *length) else { return };
        let sequential = handle.pace.lock().sequential_bytes >= SEQUENTIAL_BYTES_MIN;
        if !sequential || *object.version() == Version::None || object.is_complete() {
            return;
        }
        let inode = &handle.inode;
        let (under_way, latency) = {
            let content = inode.content.lock();
            let ours = |arrival: &&Arc<Arrival>| arrival.is_running() && Arc::ptr_eq(&arrival.object, object);
            let running: Vec<Arc<Arrival>> = content.arrivals.iter().filter(ours).cloned().collect();
            (running, content.latency)
        };
        if let Some(arrival) = under_way.iter().find(|arrival| arrival.covers(end)) {
            // It keeps its distance ahead also of a reader that never has to wait.
            arrival.want(end);
        }
        let (bytes, waited) = read;
        let mut lanes = handle.lanes.lock();
        lanes.follow(end);
        let allowed = lanes.note(bytes, waited, latency, Instant::now());
        if allowed > 1 {
            make_room(inode, &under_way, end, lanes.length);
        }
        let horizon = end.saturating_add(lanes.length * (allowed as u64 + 1)).min(length);
        let mut from = end + object.available(end);
        while let Some(arrival) = under_way.iter().find(|arrival| arrival.covers(from)) {
            from = arrival.until();
            if from >= length {
                return;
            }
            from += object.available(from);
        }
        from = from.next_multiple_of(PIECE_BYTES).max(lanes.planned_to.min(horizon));
        if from >= horizon {
            return;
        }
        if let Some((start, length)) = lanes.plan(from, under_way.len()) {
            drop(lanes);
            let (vfs, call) = (self.clone(), self.call(call.caller));
            let (handle, object) = (handle.clone(), object.clone());
            self.runtime.spawn(async move {
                if let Err(error) = vfs.open_lane(&call, &handle, &object, start, length).await {
                    tracing::debug!(%error, "nothing is fetched ahead of a reader");
                }
                handle.lanes.lock().asking -= 1;
            });
        }
    }

    async fn open_lane(
        self: &Arc<Self>,
        call: &Call,
        handle: &Handle,
        object: &Arc<Object>,
        start: u64,
        length: Option<u64>,
    ) -> Result<()> {
        let _gate = handle.inode.gate.lock().await;
        self.refuse_spoilt(handle, object)?;
        if object.available(start) > 0 {
            return Ok(());
        }
        self.fetch_range(call, handle, object, start, length).await?;
        Ok(())
    }
}

/// Has a body that would bring all the rest end after a while, so that others can go on from there.
fn make_room(inode: &Inode, under_way: &[Arc<Arrival>], end: u64, length: u64) {
    for arrival in under_way {
        let cut = arrival.reached().max(end).saturating_add(length).next_multiple_of(PIECE_BYTES);
        if arrival.until() > cut.saturating_add(length) {
            tracing::debug!(inode = inode.id.0, cut, "further ranges are fetched beside this body");
            arrival.end_at(cut);
        }
    }
}

/// Bytes of one range, at least.
const LANE_BYTES_MIN: u64 = 8 << 20;
/// And at most: so much may come for a reader that has lost interest.
const LANE_BYTES_MAX: u64 = 32 << 20;
/// How many times what is in flight a range has.
const LANE_ROUND_TRIPS: f64 = 8.0;
/// Most bodies of one file at a time.
const LANES_MAX: usize = 4;
/// Bytes over which a rate is measured.
const EPOCH_BYTES: u64 = 16 << 20;
/// How much faster twice as many must be.
const GAIN_MIN: f64 = 1.2;
/// A source that begins its answers sooner is near.
const LATENCY_MIN: Duration = Duration::from_millis(5);
/// Bytes in flight that any connection has.
const IN_FLIGHT_MIN: f64 = 65_536.0;
/// Bytes in flight of a connection that nothing holds back: Linux gives a receiver's window no more by itself
/// (`net.ipv4.tcp_rmem`).
const IN_FLIGHT_PLENTY: f64 = 6_291_456.0;
/// Bytes read one after the other that make a sequential reader.
const SEQUENTIAL_BYTES_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies allowed after each epoch, when each takes as long as `takes` says for that many.
    fn course(latency: Duration, takes: impl Fn(usize) -> Duration) -> Vec<usize> {
        let mut lanes = Lanes::default();
        let mut now = Instant::now();
        lanes.note(0, Duration::ZERO, latency, now);
        let epochs = (0..8).map(|_| {
            let time = takes(lanes.allowed);
            now += time;
            lanes.note(EPOCH_BYTES, time, latency, now)
        });
        epochs.collect()
    }

    #[test]
    fn more_bodies_stay_only_while_they_pay() {
        let far = Duration::from_millis(20);
        let second = Duration::from_secs(1);
        // Each connection has its own limit.
        assert_eq!(course(far, |lanes| second / lanes as u32), [2, 2, 4, 4, 4, 4, 4, 4]);
        // The link is what is slow.
        assert_eq!(course(far, |_| second), [2, 2, 1, 1, 1, 1, 1, 1]);
        // Two fill it.
        assert_eq!(course(far, |lanes| second / lanes.min(2) as u32), [2, 2, 4, 4, 2, 2, 2, 2]);
    }

    #[test]
    fn a_near_source_and_a_slow_reader_have_one() {
        let second = Duration::from_secs(1);
        assert_eq!(course(Duration::from_millis(1), |_| second), [1; 8]);
        let mut lanes = Lanes::default();
        let now = Instant::now();
        lanes.note(0, Duration::ZERO, second, now);
        assert_eq!(lanes.note(EPOCH_BYTES, second / 4, Duration::from_millis(20), now + second), 1);
    }

    #[test]
    fn ranges_are_planned_one_after_the_other_and_no_more_than_allowed() {
        let mut lanes = Lanes { allowed: 2, ..Lanes::default() };
        let length = Some(8 << 20);
        assert_eq!(lanes.plan(5 << 20, 0), Some((5 << 20, length)));
        assert_eq!(lanes.plan(5 << 20, 0), Some((13 << 20, length)));
        assert_eq!(lanes.plan(5 << 20, 0), None);
        lanes.asking = 0;
        assert_eq!(lanes.plan(40 << 20, 1), Some((40 << 20, length)));
        assert_eq!(lanes.plan(40 << 20, 1), None);
        // A single one goes on to the end.
        assert_eq!(Lanes::default().plan(1 << 20, 0), Some((1 << 20, None)));
    }
}
