//! Objects that turn out to belong to many pages after they were packed with one.

use std::sync::Arc;

use weft_segment::device::{MemoryDevice, Rotating};
use weft_segment::{Affinity, Class, Options, Packer, Volume};

use crate::sample::{content, formatted, get, key, new_volume, open, options, put};

const LOGOS: [u64; 4] = [9001, 9002, 9003, 9004];
const LENGTH: usize = 5000;

/// Puts a page, of which so many objects are its own.
fn put_page(volume: &Volume, page: u64, own: u64, shared: &[u64]) {
    let numbers: Vec<u64> = (0..own).map(|object| page * 10 + object).chain(shared.iter().copied()).collect();
    let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    volume.hint(Affinity::Linked, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for number in numbers {
        if number < LOGOS[0] || !volume.knows(&key(number)) {
            put(volume, number, content(number, LENGTH), Class::Cache);
        }
    }
}

/// Pages of which the first few bring a logo each; then `pages` that have them all.
fn put_pages(volume: &Volume, pages: u64) {
    for (page, logo) in (0..).zip(LOGOS) {
        put_page(volume, page * 10, 10, &[logo]);
        // Each is packed before the next one is known.
        (1..10).for_each(|beside| put_page(volume, page * 10 + beside, 10, &[]));
        volume.flush().unwrap();
    }
    (0..pages).for_each(|page| put_page(volume, 100 + page, 2, &LOGOS));
}

/// Goal: what becomes popular after it was packed lies with its like from then on, so that the first read of one brings all.
#[test]
fn what_becomes_popular_is_packed_with_its_like() {
    let reads = |pages| {
        let (device, volume) = new_volume(options());
        put_pages(&volume, pages);
        drop(volume);
        let disk = Arc::new(Rotating::new(MemoryDevice::of(device.image()), 250 << 30));
        let volume = open(&disk, Options { buffer_bytes: 1 << 20, ..options() });
        LOGOS.iter().for_each(|logo| assert_eq!(get(&volume, *logo), Some(content(*logo, LENGTH))));
        let stats = volume.stats();
        assert!(volume.check().unwrap().is_sound());
        stats.neighbour_reads + stats.object_reads
    };
    assert_eq!(reads(2), 4, "each lies with the page that it came with");
    assert_eq!(reads(60), 1);
}

/// Goal: an object that waits to be packed anew is still replaced, removed and pinned as any other.
#[test]
fn what_is_packed_anew_stays_what_it_is() {
    let device = Arc::new(MemoryDevice::of(formatted()));
    let volume = open(&device, options());
    put_pages(&volume, 20);
    for page in 0..40 {
        match page {
            10 => put(&volume, LOGOS[0], content(1, 700), Class::Cache),
            11 => assert!(volume.remove(&key(LOGOS[1]), Class::Durable).unwrap()),
            12 => assert!(volume.pin(&key(LOGOS[2]), true).unwrap()),
            _ => {}
        }
        // Those that were removed are not put again.
        put_page(&volume, 200 + page, 2, &[LOGOS[0], LOGOS[2], LOGOS[3]]);
    }
    let check = |volume: &Volume| {
        assert_eq!(get(volume, LOGOS[0]), Some(content(1, 700)));
        assert_eq!(get(volume, LOGOS[1]), None);
        assert_eq!(get(volume, LOGOS[2]), Some(content(LOGOS[2], LENGTH)));
        assert_eq!(get(volume, LOGOS[3]), Some(content(LOGOS[3], LENGTH)));
        assert!(volume.check().unwrap().is_sound());
    };
    check(&volume);
    drop(volume);
    check(&open(&device, options()));
}

/// Goal: who puts, who tells and who packs do not wait for each other for ever.
#[test]
fn many_tell_what_is_popular_while_it_is_packed() {
    let (device, volume) = new_volume(Options { packer: Packer::Thread, ..options() });
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let volume = &volume;
            scope.spawn(move || (0..40).for_each(|page| put_page(volume, writer * 100 + page, 3, &LOGOS)));
        }
    });
    let all = (0..4).flat_map(|writer| (0..40).map(move |page| writer * 100 + page));
    let own = all.flat_map(|page| (0..3).map(move |object| page * 10 + object));
    let numbers: Vec<u64> = own.chain(LOGOS).collect();
    let check = |volume: &Volume| {
        numbers.iter().for_each(|number| assert_eq!(get(volume, *number), Some(content(*number, LENGTH))));
        assert!(volume.check().unwrap().is_sound());
    };
    check(&volume);
    drop(volume);
    check(&open(&device, options()));
}
