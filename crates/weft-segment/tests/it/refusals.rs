//! What is refused, and in which words.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use weft_segment::device::{Device, MemoryDevice, Prepare};
use weft_segment::{Class, Options, Packer, SegmentError, Shape, Volume};

use crate::sample::{SHAPE, content, formatted, get, options, put};

#[test]
fn a_volume_in_a_file_is_one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.segments");
    let first = Volume::create(&path, 6 << 20, Prepare::Written, &SHAPE, options()).unwrap();
    put(&first, 1, content(1, 3000), Class::Durable);
    let refused = Volume::open(&path, options()).unwrap_err();
    assert!(matches!(refused, SegmentError::InUse { .. }));
    let said = refused.to_string();
    assert!(said.starts_with(path.to_str().unwrap()) && said.contains("in use by another process; end"), "{said}");
    drop(first);
    let again = Volume::open(&path, options()).unwrap();
    assert_eq!(get(&again, 1), Some(content(1, 3000)));
    assert!(Volume::create(&path, 6 << 20, Prepare::Allocated, &SHAPE, options()).is_err(), "it exists");
    assert!(path.exists());
}

#[test]
fn a_shape_that_cannot_be_leaves_no_file_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.segments");
    let refused = Volume::create(&path, 100_000, Prepare::Allocated, &SHAPE, options()).unwrap_err();
    assert!(matches!(refused, SegmentError::BadShape { .. }), "{refused}");
    assert!(!path.exists());
}

#[test]
fn another_volume_than_the_expected_one_is_named() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::of(formatted()));
    let refused = Volume::open_on(device, Options { uuid: Some(8), ..options() }).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("holds volume 00000000000000000000000000000007, expected 0000000000000000000000000000000"));
    assert!(said.contains("put the right one there"), "{said}");
}

#[test]
fn what_is_no_volume_is_left_as_it_is() {
    let device = Arc::new(MemoryDevice::of(vec![3; 6 << 20]));
    let refused = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap_err();
    assert!(refused.to_string().contains("not a volume of segments"), "{refused}");
    assert!(device.image().iter().all(|byte| *byte == 3));
    let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new(0));
    assert!(matches!(Volume::open_on(empty, options()), Err(SegmentError::NotAVolume { .. })));
}

/// A device that refuses writes from some number on.
#[derive(Debug)]
struct Failing {
    inner: MemoryDevice,
    writes_left: AtomicI64,
    /// Writes of the thread that segments are written by while others are put together.
    by_writer: AtomicU64,
}

impl Failing {
    fn after(writes: i64, inner: MemoryDevice) -> Arc<Failing> {
        Arc::new(Failing { inner, writes_left: writes.into(), by_writer: 0.into() })
    }
}

impl Device for Failing {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let is_writer = std::thread::current().name() == Some("segment-writer");
        self.by_writer.fetch_add(is_writer.into(), Ordering::Relaxed);
        if self.writes_left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(std::io::Error::other("the disk is broken"));
        }
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.inner.sync()
    }

    fn length(&self) -> std::io::Result<u64> {
        self.inner.length()
    }

    fn name(&self) -> String {
        "/dev/broken".to_owned()
    }
}

/// A device that does not read some places.
#[derive(Debug)]
struct Unreadable {
    inner: MemoryDevice,
    places: std::ops::Range<u64>,
}

impl Device for Unreadable {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let end = offset + buffer.len() as u64;
        if offset < self.places.end && end > self.places.start {
            return Err(std::io::Error::other("a bad sector"));
        }
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn length(&self) -> std::io::Result<u64> {
        self.inner.length()
    }

    fn name(&self) -> String {
        "/dev/worn".to_owned()
    }
}

/// The body of the latest checkpoint cannot be read: the segments tell what there is.
#[test]
fn a_checkpoint_that_cannot_be_read_is_as_good_as_void() {
    let (device, volume) = crate::sample::new_volume(options());
    (0..30).for_each(|number| put(&volume, number, content(number, 3000), Class::Cache));
    drop(volume);
    let image = device.image();
    let is_head = |at: &usize| image[*at..].starts_with(b"weftchk\n");
    let heads: Vec<u64> = (0..image.len()).step_by(4096).filter(is_head).map(|at| at as u64).collect();
    for head in heads {
        let inner = MemoryDevice::of(image.clone());
        let worn = Arc::new(Unreadable { inner, places: head + 4096..head + 8192 });
        let volume = crate::sample::open(&worn, options());
        volume.wait_for_scan();
        (0..30).for_each(|number| assert_eq!(get(&volume, number), Some(content(number, 3000))));
    }
}

/// At whichever write the device fails: the writer is told, nothing hangs, what was confirmed is there afterwards.
#[test]
fn a_device_that_fails_is_told_to_the_writer_and_reads_go_on() {
    for writes in 2..60 {
        let device = Failing::after(writes, MemoryDevice::of(formatted()));
        let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
        let (mut confirmed, mut failed) = (Vec::new(), None);
        for number in 0..100 {
            let bytes = content(number, 9000);
            let key = crate::sample::key(number);
            match volume.put(&key, &number.to_le_bytes(), bytes, Default::default(), Class::Durable) {
                Ok(()) => confirmed.push(number),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let failed = failed.expect("some write fails").to_string();
        assert!(failed.starts_with("/dev/broken: takes no more changes since the device failed (the disk is broken)"));
        assert!(volume.flush().is_err());
        confirmed.iter().for_each(|number| assert_eq!(get(&volume, *number), Some(content(*number, 9000))));
        drop(volume);
        let after = Arc::new(MemoryDevice::of(device.inner.image()));
        let volume = crate::sample::open(&after, options());
        confirmed.iter().for_each(|number| assert_eq!(get(&volume, *number), Some(content(*number, 9000))));
    }
}

/// Goal: what is written while more is put together is what was put, and a device that fails meanwhile is told. Method: more
/// than memory holds, with the packing thread; the device fails at one write or another, or never.
#[test]
fn many_segments_are_written_beside_the_packing() {
    let options = || Options { packer: Packer::Thread, group_bytes: 4 << 20, ..options() };
    for writes in [i64::MAX, 3, 5, 9, 14, 27] {
        let inner = MemoryDevice::new(32 << 20);
        Volume::format(&inner, &SHAPE).unwrap();
        let device = Failing::after(writes, inner);
        let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
        let put = |number: u64| {
            let bytes = content(number, 20_000);
            volume.put(&crate::sample::key(number), &number.to_le_bytes(), bytes, Default::default(), Class::Cache)
        };
        let outcome = (0..600).try_for_each(put).and_then(|()| volume.flush());
        assert!(device.by_writer.load(Ordering::Relaxed) > 0);
        match writes {
            i64::MAX => outcome.unwrap(),
            _ => assert!(outcome.unwrap_err().to_string().contains("(the disk is broken)")),
        }
        drop(volume);
        let after = crate::sample::open(&Arc::new(MemoryDevice::of(device.inner.image())), options());
        assert!(after.check().unwrap().is_sound());
        for number in 0..600 {
            let found = get(&after, number);
            assert!(found.is_none_or(|found| found == content(number, 20_000)), "{number} after {writes} writes");
            assert!(writes < i64::MAX || get(&after, number).is_some());
        }
    }
}

/// Goal: of an object that is put anew or removed while a former state of it is on its way to the disk, that state is
/// never found again. Method: two writers with keys of their own put them again and again, more than packing begins at
/// and less than memory has room for, with now and then one removed; in the end, and after a start, each has its last
/// state.
#[test]
fn what_changes_while_it_is_being_written_has_its_last_state() {
    const KEYS: u64 = 170;
    let options = || Options { packer: Packer::Thread, group_bytes: 4 << 20, ..options() };
    let device = Arc::new(MemoryDevice::new(256 << 20));
    Volume::format(&*device, &SHAPE).unwrap();
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options()).unwrap();
    let write = |writer: u64| {
        let mut last = vec![None; KEYS as usize];
        for round in 0..60 {
            for number in (writer * KEYS..).take(KEYS as usize) {
                let (key, at) = (crate::sample::key(number), (number % KEYS) as usize);
                last[at] = ((number + round) % 9 != 0).then(|| content(number + round * 100_000, 9_000));
                match &last[at] {
                    Some(bytes) => {
                        let (attributes, bytes) = (number.to_le_bytes(), bytes.clone());
                        volume.put(&key, &attributes, bytes, Default::default(), Class::Cache).unwrap();
                    }
                    None => drop(volume.remove(&key, Class::Cache).unwrap()),
                }
            }
        }
        last
    };
    let last = std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        writers.map(|writer| writer.join().unwrap()).concat()
    });
    let compare = |volume: &Volume, when: &str| {
        (0..).zip(&last).for_each(|(number, last)| assert_eq!(&get(volume, number), last, "{number} {when}"));
    };
    compare(&volume, "while some wait");
    volume.flush().unwrap();
    compare(&volume, "written");
    volume.checkpoint().unwrap();
    drop(volume);
    let after = crate::sample::open(&Arc::new(MemoryDevice::of(device.image())), options());
    assert!(after.check().unwrap().is_sound());
    compare(&after, "after a start");
}

#[test]
fn every_segment_length_works() {
    for segment_bytes in [64 << 10, 128 << 10, 256 << 10] {
        let device = Arc::new(MemoryDevice::new(32 << 20));
        Volume::format(&*device, &Shape { segment_bytes, ..Shape::default() }).unwrap();
        let volume = crate::sample::open(&device, options());
        let most = volume.content_bytes_max();
        (0..20).for_each(|number| put(&volume, number, content(number, most), Class::Cache));
        volume.checkpoint().unwrap();
        (0..20).for_each(|number| assert_eq!(get(&volume, number), Some(content(number, most))));
    }
}
