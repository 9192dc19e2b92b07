//! Measures what the store costs: processor time of small objects and names, memory with many names.
//!
//! `cargo run --release -p weft-store --example measure [names] [objects]`; prints figures and judges nothing.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{Place, bytes_of, listed, new_object};
use weft_store::NodeId;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("numbers"));
    let names: u64 = arguments.next().unwrap_or(100_000);
    let objects: u64 = arguments.next().unwrap_or(500);
    let place = Place::new();
    let store = place.open();
    println!("empty store: {} KiB resident", resident_kib());

    let before = (Instant::now(), cpu_ns());
    let dir = NodeId(4096);
    for start in (0..names).step_by(1000) {
        let records = (start..names.min(start + 1000)).flat_map(|number| listed(&store, dir, number)).collect();
        store.apply(records).unwrap();
    }
    store.flush().unwrap();
    report("names applied and flushed", names, before);
    println!("  {} KiB resident, at most {} KiB", resident_kib(), peak_kib());

    let before = (Instant::now(), cpu_ns());
    let mut after = None;
    let mut seen = 0;
    loop {
        let page = store.dentries(dir, after.as_ref(), 512).unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        seen += page.len() as u64;
    }
    report("names listed", seen, before);

    let before = (Instant::now(), cpu_ns());
    for number in 0..names {
        std::hint::black_box(listed(&store, dir, number));
    }
    report("nodes identified (and encoded for the test)", names, before);
    println!("  {} KiB resident, at most {} KiB", resident_kib(), peak_kib());

    let content = bytes_of(4000);
    for round in 0..3 {
        let before = (Instant::now(), cpu_ns());
        for number in 0..objects {
            let object = store.create(NodeId(1_000_000 + number + round * objects), new_object(Some(4000))).unwrap();
            let mut writer = object.writer(0).unwrap();
            writer.append(&content).unwrap();
            writer.finish().unwrap();
            object.commit().unwrap();
        }
        store.flush().unwrap();
        report("objects of 4,000 bytes created, committed and flushed", objects, before);
    }
    let killed = Place::new();
    std::fs::create_dir(killed.dir()).unwrap();
    std::fs::copy(place.index(), killed.index()).unwrap();
    let before = (Instant::now(), cpu_ns());
    drop(killed.open());
    report("store opened and closed, as after a kill", 1, before);
    drop(store);
    let before = (Instant::now(), cpu_ns());
    let store = place.open();
    report("store opened", 1, before);
    let before = (Instant::now(), cpu_ns());
    for number in 0..objects {
        let object = store.object(NodeId(1_000_000 + number)).unwrap().expect("it was committed");
        assert_eq!(object.read(0, 1 << 16).unwrap(), content);
    }
    report("objects opened, checked and read", objects, before);

    let object = store.create(NodeId(7), new_object(None)).unwrap();
    let before = (Instant::now(), cpu_ns());
    let mut writer = object.writer(0).unwrap();
    let chunk = bytes_of(16 << 10);
    for _ in 0..(16 << 10) {
        writer.append(&chunk).unwrap();
    }
    writer.finish().unwrap();
    object.commit().unwrap();
    report("MiB written in chunks of 16 KiB", 256, before);
    let before = (Instant::now(), cpu_ns());
    for at in 0..(2 << 10) {
        object.read(at << 17, 128 << 10).unwrap();
    }
    report("MiB read in chunks of 128 KiB", 256, before);
    println!("  {} KiB resident, at most {} KiB; {:?}", resident_kib(), peak_kib(), store.usage());
}

fn report(what: &str, count: u64, (wall, cpu): (Instant, u64)) {
    let cpu_us = cpu_ns().saturating_sub(cpu) as f64 / 1e3 / count as f64;
    let wall_us = wall.elapsed().as_nanos() as f64 / 1e3 / count as f64;
    println!("{count} {what}: {cpu_us:.2} us of processor and {wall_us:.2} us of time each");
}

/// Processor time of all threads that are alive; a thread that ended takes its share away.
fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end while it is looked at.
    let times = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    times.filter_map(|time| time.split(' ').next()?.parse::<u64>().ok()).sum()
}

fn resident_kib() -> u64 {
    status("VmRSS:")
}

fn peak_kib() -> u64 {
    status("VmHWM:")
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
