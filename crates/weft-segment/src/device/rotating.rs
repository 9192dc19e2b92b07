//! A disk that turns 7200 times in a minute, by its own clock.
//!
//! A request waits for the head to reach the track, `1 + 12.1 * sqrt(stroke)` milliseconds where the stroke is the
//! share of the disk that the head crosses; then until the sector passes below it, which follows from the clock; then
//! for the bytes, at 150 MB/s. What lies up to 512 KiB ahead of where the head is needs no move: the disk has read
//! on. The clock goes forward by what each request takes and by nothing else, so the same requests always take the
//! same time.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;

use super::Device;

/// Another device, as slow as a rotating disk.
#[derive(Debug)]
pub struct Rotating<D> {
    inner: D,
    /// Guards the clock and the head; held for one computation.
    state: Mutex<State>,
}

/// The head of such a disk, for whoever has a clock.
#[derive(Debug)]
pub struct Head {
    /// The byte after the last request.
    at: u64,
    /// How large a disk the requests are taken to be on, in bytes.
    disk_bytes: u64,
}

#[derive(Debug)]
struct State {
    now_ns: u64,
    head: Head,
    requests: u64,
}

impl Head {
    /// At the beginning of a disk of so many bytes.
    pub fn new(disk_bytes: u64) -> Head {
        Head { at: 0, disk_bytes: disk_bytes.max(1) }
    }

    /// Moves it for a request that begins at `now`; how long the request takes.
    pub fn pass(&mut self, now: Duration, offset: u64, length: usize) -> Duration {
        let ahead = offset.checked_sub(self.at);
        let mut took_ns = length as u64 * NS_PER_SECOND / BYTES_PER_SECOND;
        match ahead {
            // The bytes between pass below the head all the same.
            Some(ahead) if ahead <= READ_ON_BYTES => took_ns += ahead * NS_PER_SECOND / BYTES_PER_SECOND,
            _ => {
                let stroke = offset.abs_diff(self.at) as f64 / self.disk_bytes as f64;
                let seek_ns = ((1.0 + 12.1 * stroke.min(1.0).sqrt()) * 1e6) as u64;
                let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2);
                let wanted = (offset % TRACK_BYTES) * TURN_NS / TRACK_BYTES;
                let turn_ns = (wanted + TURN_NS - (now_ns + seek_ns) % TURN_NS) % TURN_NS;
                took_ns += seek_ns + turn_ns;
            }
        }
        self.at = offset + length as u64;
        Duration::from_nanos(took_ns)
    }

    /// What it takes until all that was written is on the platter.
    pub fn settle() -> Duration {
        Duration::from_nanos(TURN_NS / 2)
    }
}

impl<D: Device> Rotating<D> {
    /// `inner` as the first part of a disk of `disk_bytes`.
    pub fn new(inner: D, disk_bytes: u64) -> Rotating<D> {
        let state = State { now_ns: 0, head: Head::new(disk_bytes), requests: 0 };
        Rotating { inner, state: Mutex::new(state) }
    }

    /// Reads and writes so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    fn pass(&self, offset: u64, length: usize) {
        let mut state = self.state.lock();
        let now = Duration::from_nanos(state.now_ns);
        let took = state.head.pass(now, offset, length);
        state.now_ns += u64::try_from(took.as_nanos()).expect("seconds at most");
        state.requests += 1;
    }
}

impl<D: Device> Device for Rotating<D> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)?;
        self.pass(offset, buffer.len());
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)?;
        self.pass(offset, bytes.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()?;
        self.state.lock().now_ns += u64::try_from(Head::settle().as_nanos()).expect("milliseconds");
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn clock(&self) -> Duration {
        Duration::from_nanos(self.state.lock().now_ns)
    }
}

const NS_PER_SECOND: u64 = 1_000_000_000;
const BYTES_PER_SECOND: u64 = 150_000_000;
const TURN_NS: u64 = NS_PER_SECOND * 60 / 7200;
const TRACK_BYTES: u64 = BYTES_PER_SECOND * 60 / 7200;
const READ_ON_BYTES: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    fn mean_ms(step: u64, requests: u64) -> f64 {
        let disk = Rotating::new(MemoryDevice::new(64 << 20), 64 << 20);
        let mut block = vec![0; 16 << 10];
        for number in 0..requests {
            disk.read_at(&mut block, (number * step) % (63 << 20) / 4096 * 4096).unwrap();
        }
        disk.clock().as_secs_f64() * 1e3 / requests as f64
    }

    #[test]
    fn far_reads_cost_what_such_disks_are_said_to_take() {
        // The published mean of such disks lies about 12 ms.
        let far = mean_ms(37 << 20, 500);
        assert!((9.0..15.0).contains(&far), "{far}");
    }

    #[test]
    fn reads_in_a_row_cost_the_transfer_alone() {
        let near = mean_ms(16 << 10, 500);
        assert!(near < 0.2, "{near}");
    }
}
