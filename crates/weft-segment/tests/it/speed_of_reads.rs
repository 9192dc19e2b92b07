//! What reads cost, in requests and by the clock of a disk that turns: no time of this machine is looked at.

use std::sync::Arc;

use weft_segment::device::{Device, MemoryDevice, Rotating};
use weft_segment::{Affinity, Class, Options, Shape, Volume};

use crate::sample::{content, get, key, new_volume, open, options, put};

const PAGES: u64 = 60;
const OBJECTS: u64 = 14;

fn length(number: u64) -> usize {
    2000 + (number * 7919 % 14_000) as usize
}

/// Pages whose objects came in turns, told of or not.
fn filled(told: bool) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    Volume::format(&*device, &Shape::default()).unwrap();
    let volume = open(&device, Options { group_bytes: 8 << 20, ..options() });
    for page in (0..PAGES).filter(|_| told) {
        let keys: Vec<Vec<u8>> = (0..OBJECTS).map(|object| key(page * 100 + object)).collect();
        volume.hint(Affinity::Told, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    for object in 0..OBJECTS {
        for page in 0..PAGES {
            let number = page * 100 + object;
            put(&volume, number, content(number, length(number)), Class::Cache);
        }
    }
    drop(volume);
    device.image()
}

/// Reads all pages, in an order that is no order; time on the disk in seconds, and requests.
fn read_pages(image: Vec<u8>, buffer_bytes: usize) -> (f64, u64) {
    let disk = Arc::new(Rotating::new(MemoryDevice::of(image), 250 << 30));
    let volume = open(&disk, Options { buffer_bytes, ..options() });
    let (before, requests) = (disk.clock(), disk.requests());
    for page in (0..PAGES).map(|page| page * 37 % PAGES) {
        for number in (0..OBJECTS).map(|object| page * 100 + object) {
            assert_eq!(get(&volume, number), Some(content(number, length(number))));
        }
    }
    ((disk.clock() - before).as_secs_f64(), disk.requests() - requests)
}

#[test]
fn pages_that_were_told_of_take_few_requests_and_little_time_on_a_disk_that_turns() {
    let objects = (PAGES * OBJECTS) as f64;
    let (alone, requests_alone) = read_pages(filled(false), 0);
    let (together, requests) = read_pages(filled(true), 8 << 20);
    assert!(requests as f64 / objects <= 0.3, "{requests} requests for {objects} objects");
    assert!(requests_alone as f64 / objects <= 1.05, "{requests_alone} requests for {objects} objects");
    assert!(alone / together > 3.0, "{alone} s alone, {together} s together");
}

/// Objects without any locality, read once each: neighbours are a loss there, and are given up soon.
#[test]
fn without_locality_each_object_takes_one_read() {
    let image = filled(false);
    let device = Arc::new(MemoryDevice::of(image));
    let volume = open(&device, Options { buffer_bytes: 400_000, ..options() });
    let all = PAGES * OBJECTS;
    for step in 0..all {
        let at = step * 541 % all;
        let number = at / OBJECTS * 100 + at % OBJECTS;
        assert_eq!(get(&volume, number), Some(content(number, length(number))));
    }
    let stats = volume.stats();
    let requests = stats.object_reads + stats.neighbour_reads;
    assert!(requests as f64 <= 1.05 * all as f64, "{stats:?}");
}

/// Three pages of four objects that lie in one segment.
fn three_pages(ended: bool) -> MemoryDevice {
    let (device, volume) = new_volume(options());
    for page in 0..3u64 {
        let keys: Vec<Vec<u8>> = (0..4).map(|object| key(page * 10 + object)).collect();
        volume.hint(Affinity::Linked, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    for number in (0..4).flat_map(|object| (0..3u64).map(move |page| page * 10 + object)) {
        put(&volume, number, content(number, 4500), Class::Cache);
    }
    volume.flush().unwrap();
    assert_eq!(volume.stats().segments_written, 1);
    let crashed = device.image();
    drop(volume);
    MemoryDevice::of(if ended { device.image() } else { crashed })
}

/// The reads that it takes to get the middle page of three, and then the others; and what is in memory after the first.
fn read_three_pages(device: MemoryDevice) -> (u64, u64) {
    let disk = Arc::new(Rotating::new(device, 250 << 30));
    let volume = open(&disk, Options { buffer_bytes: 1 << 20, ..options() });
    volume.wait_for_scan();
    let page = |page: u64| {
        for number in (0..4).map(|object| page * 10 + object) {
            assert_eq!(get(&volume, number), Some(content(number, 4500)));
        }
    };
    page(1);
    let held = volume.stats().buffer_bytes;
    (0..3).for_each(page);
    assert_eq!(volume.stats().neighbours_used, 9);
    (held, volume.stats().neighbour_reads + volume.stats().object_reads)
}

#[test]
fn one_of_many_pages_in_a_segment_comes_alone_after_any_start() {
    let mut void = three_pages(true);
    let heads = void.image().chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"weftchk\n")).count();
    assert_eq!(heads, 2, "both checkpoints are there");
    for (at, _) in void.image().chunks(4096).enumerate().filter(|(_, block)| block.starts_with(b"weftchk\n")) {
        void = MemoryDevice::of(void.image());
        void.flip((at as u64 * 4096 + 24) * 8);
    }
    for (device, start) in
        [(three_pages(true), "a clean end"), (three_pages(false), "a crash"), (void, "the loss of both checkpoints")]
    {
        let (held, reads) = read_three_pages(device);
        assert_eq!(reads, 3, "after {start}");
        // A page, and what of the others lies in the same sixteenths of the segment.
        assert!((4 * 4500..7 * 4500).contains(&held), "{held} bytes in memory after {start}");
    }
}

/// What is stored may be a segment itself, of this very volume: its frames are taken for content.
#[test]
fn objects_that_look_like_frames_are_no_neighbours() {
    let image = three_pages(true).image();
    let segment = image.chunks(4096).position(|block| block.starts_with(b"weftseg\n")).unwrap() * 4096;
    let copy = bytes::Bytes::copy_from_slice(&image[segment..segment + 30_000]);
    let device = Arc::new(MemoryDevice::of(image));
    let volume = open(&device, options());
    volume.hint(Affinity::Linked, &[&key(500), &key(501), &key(502)]);
    for number in 500..503 {
        // Shifted, so that frames do and do not lie where frames may.
        let bytes = copy.slice((number as usize - 500) * 32..);
        put(&volume, number, if number == 502 { content(number, 900) } else { bytes }, Class::Cache);
    }
    drop(volume);
    let disk = Arc::new(Rotating::new(MemoryDevice::of(device.image()), 250 << 30));
    let volume = open(&disk, Options { buffer_bytes: 1 << 20, ..options() });
    for number in [502, 500, 501] {
        let expected = if number == 502 { content(number, 900) } else { copy.slice((number as usize - 500) * 32..) };
        assert_eq!(get(&volume, number), Some(expected));
    }
    for number in (0..3u64).flat_map(|page| (0..4).map(move |object| page * 10 + object)) {
        assert_eq!(get(&volume, number), Some(content(number, 4500)));
    }
}

/// Damage may make the beginning of a segment look like a frame that is as long as the segment: longer than any can be.
#[test]
fn a_segment_that_looks_like_one_frame_is_none() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Volume::format(&*device, &Shape { segment_bytes: 256 << 10, ..Shape::default() }).unwrap();
    let volume = open(&device, options());
    (0..4).for_each(|number| put(&volume, number, content(number, 30_000), Class::Cache));
    drop(volume);
    let mut image = device.image();
    let segment = image.chunks(4096).position(|block| block.starts_with(b"weftseg\n")).unwrap() * 4096;
    let sequence = image[segment + 16..segment + 24].to_vec();
    // The key of an object that is there, after a checksum of nothing.
    let lengths = [&((256u32 << 10) - 64).to_le_bytes()[..], &[5, 0, 0, 0, 0, 0, 0, 0]].concat();
    let head = [&b"wfrm"[..], &lengths, &sequence, &[0; 8], &key(0)].concat();
    image[segment..segment + head.len()].copy_from_slice(&head);
    let disk = Arc::new(Rotating::new(MemoryDevice::of(image), 250 << 30));
    let volume = open(&disk, Options { buffer_bytes: 1 << 20, ..options() });
    (0..4).for_each(|number| assert_eq!(get(&volume, number), Some(content(number, 30_000))));
    assert!(volume.stats().neighbour_reads > 0, "the segment was read from its beginning: {:?}", volume.stats());
}
