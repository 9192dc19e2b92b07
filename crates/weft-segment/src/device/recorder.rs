//! A device that remembers every write and sync, to make what a crash at any moment would leave.

use std::io;

use parking_lot::Mutex;

use super::{Device, MemoryDevice};

/// Memory with its history.
#[derive(Debug)]
pub struct Recorder {
    /// What it held when the recording began.
    base: Vec<u8>,
    now: MemoryDevice,
    /// Held for one change.
    events: Mutex<Vec<Event>>,
}

#[derive(Clone, Debug)]
enum Event {
    Write { offset: usize, bytes: Vec<u8> },
    Sync,
}

/// What becomes of the writes that no sync had confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// All of them are there.
    KeepAll,
    /// None is.
    DropAll,
    /// All but the last.
    DropLast,
    /// Only the last: the disk wrote in another order.
    KeepLast,
    /// Every second one.
    KeepEverySecond,
    /// Of the last only the first half.
    LastFirstHalf,
    /// Of the last only the second half.
    LastSecondHalf,
    /// Of the last every second sector of 512 bytes.
    LastEverySecondSector,
    /// Of each only the first sector of 512 bytes.
    EachFirstSector,
    /// Of each all but the last sector of 512 bytes.
    EachWithoutLastSector,
}

impl Tear {
    /// All kinds.
    pub const ALL: [Tear; 10] = [
        Tear::KeepAll,
        Tear::DropAll,
        Tear::DropLast,
        Tear::KeepLast,
        Tear::KeepEverySecond,
        Tear::LastFirstHalf,
        Tear::LastSecondHalf,
        Tear::LastEverySecondSector,
        Tear::EachFirstSector,
        Tear::EachWithoutLastSector,
    ];
}

impl Recorder {
    /// Records from this content on.
    pub fn of(base: Vec<u8>) -> Recorder {
        Recorder { now: MemoryDevice::of(base.clone()), base, events: Mutex::default() }
    }

    /// How many writes and syncs there were.
    pub fn events(&self) -> usize {
        self.events.lock().len()
    }

    /// What a crash after the first `count` events would leave.
    pub fn after_crash(&self, count: usize, tear: Tear) -> Vec<u8> {
        let events = self.events.lock();
        let before = &events[..count.min(events.len())];
        let synced = before.iter().rposition(|event| matches!(event, Event::Sync)).unwrap_or(0);
        let mut image = self.base.clone();
        let (certain, open) = before.split_at(synced);
        for event in certain {
            apply(&mut image, event, Part::All);
        }
        let writes: Vec<&Event> = open.iter().filter(|event| matches!(event, Event::Write { .. })).collect();
        for (number, event) in writes.iter().enumerate() {
            let part = tear.part(number, number + 1 == writes.len());
            apply(&mut image, event, part);
        }
        image
    }
}

#[derive(Clone, Copy)]
enum Part {
    All,
    None,
    FirstHalf,
    SecondHalf,
    EverySecondSector,
    FirstSector,
    WithoutLastSector,
}

impl Tear {
    fn part(self, number: usize, is_last: bool) -> Part {
        let of_last = |part| if is_last { part } else { Part::All };
        match self {
            Tear::KeepAll => Part::All,
            Tear::DropAll => Part::None,
            Tear::DropLast => of_last(Part::None),
            Tear::KeepLast if is_last => Part::All,
            Tear::KeepLast => Part::None,
            Tear::KeepEverySecond if number % 2 == 1 => Part::All,
            Tear::KeepEverySecond => Part::None,
            Tear::LastFirstHalf => of_last(Part::FirstHalf),
            Tear::LastSecondHalf => of_last(Part::SecondHalf),
            Tear::LastEverySecondSector => of_last(Part::EverySecondSector),
            Tear::EachFirstSector => Part::FirstSector,
            Tear::EachWithoutLastSector => Part::WithoutLastSector,
        }
    }
}

fn apply(image: &mut [u8], event: &Event, part: Part) {
    let Event::Write { offset, bytes } = event else { return };
    let sectors = bytes.len().div_ceil(SECTOR_BYTES);
    for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
        let kept = match part {
            Part::All => true,
            Part::None => false,
            Part::FirstHalf => number < sectors / 2,
            Part::SecondHalf => number >= sectors / 2,
            Part::EverySecondSector => number % 2 == 0,
            Part::FirstSector => number == 0,
            Part::WithoutLastSector => number + 1 < sectors,
        };
        if kept {
            let start = offset + number * SECTOR_BYTES;
            image[start..start + sector.len()].copy_from_slice(sector);
        }
    }
}

impl Device for Recorder {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.now.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // The order of the events is the order of the writes.
        let mut events = self.events.lock();
        self.now.write_at(bytes, offset)?;
        let offset = usize::try_from(offset).expect("it was written there");
        events.push(Event::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.events.lock().push(Event::Sync);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.now.length()
    }

    fn name(&self) -> String {
        "recorder".to_owned()
    }
}

const SECTOR_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_stays_whatever_is_torn() {
        let recorder = Recorder::of(vec![0; 4096 * 3]);
        recorder.write_at(&[1; 4096], 0).unwrap();
        recorder.sync().unwrap();
        recorder.write_at(&[2; 4096], 4096).unwrap();
        recorder.write_at(&[3; 4096], 8192).unwrap();
        assert_eq!(recorder.events(), 4);
        for tear in Tear::ALL {
            let image = recorder.after_crash(4, tear);
            assert_eq!(image[..4096], [1; 4096], "{tear:?}");
        }
        let at = |tear, byte: usize| recorder.after_crash(4, tear)[byte];
        assert_eq!((at(Tear::KeepAll, 4096), at(Tear::KeepAll, 8192)), (2, 3));
        assert_eq!((at(Tear::DropAll, 4096), at(Tear::DropAll, 8192)), (0, 0));
        assert_eq!((at(Tear::KeepLast, 4096), at(Tear::KeepLast, 8192)), (0, 3));
        assert_eq!((at(Tear::LastFirstHalf, 8192), at(Tear::LastFirstHalf, 8192 + 2048)), (3, 0));
        assert_eq!((at(Tear::LastSecondHalf, 8192), at(Tear::LastSecondHalf, 8192 + 2048)), (0, 3));
        assert_eq!((at(Tear::EachFirstSector, 4096), at(Tear::EachFirstSector, 4096 + 512)), (2, 0));
        // Before the sync the first write is as open as any.
        assert_eq!(recorder.after_crash(1, Tear::DropAll)[0], 0);
        assert_eq!(recorder.after_crash(2, Tear::DropAll)[0], 1);
    }
}
