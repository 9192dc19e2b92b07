//! What callback promises cost: a measure, run by `make bench-afs`.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures_util::{FutureExt, StreamExt};
use weft_remote::{Event, Lease, News};

use crate::cell::CellName;
use crate::fid::{Fid, VolumeId};
use crate::identity::{Identity, Spot};
use crate::options::AfsOptions;
use crate::promises::Promises;
use crate::servers::ServerId;
use crate::uuid::Uuid;
use crate::wire::status::Promise;

/// Goal: as many promises as an ordinary tree remembers are held at once, each of those that are broken is told of, and no
/// other ends; what that costs is printed. How: the table alone, with files of a hundred volumes.
#[test]
#[ignore = "a measure, for `make bench-afs`"]
fn a_million_promises() {
    let options = AfsOptions::default();
    assert_eq!(options.promises_max, PROMISES as usize);
    let news = Arc::new(News::new(EVENTS_MAX));
    let mut stream = news.stream();
    assert_eq!(stream.next().now_or_never(), Some(Some(Event::AllBroken)));
    let cell = CellName::new(b"example.org").expect("a name");
    let way = Identity::Cell { cell: cell.clone(), writable: false }.way_in();
    // Even vnodes: files.
    let fid = |number: u32| Fid { volume: VolumeId(1 + number % VOLUMES), vnode: 2 + 2 * number, unique: number };
    let promises = Promises::new(options.promises_max, news);

    let before = resident_bytes();
    let start = Instant::now();
    for number in 0..PROMISES {
        let spot = Spot { cell: cell.clone(), fid: fid(number), way };
        let lease = promises.enter(promises.ticket(), SERVER, &spot, PROMISE);
        assert!(matches!(lease, Lease::UntilBroken(ends) if ends > SystemTime::now()), "{number}");
    }
    let entered_in = start.elapsed();
    let memory = resident_bytes() - before;
    assert_eq!(promises.count(), PROMISES as usize);

    let start = Instant::now();
    let mut told = 0;
    let broken: Vec<u32> = (0..BREAKS).map(|number| number * (PROMISES / BREAKS)).collect();
    for call in broken.chunks(FIDS_OF_A_CALL) {
        let fids: Vec<Fid> = call.iter().map(|number| fid(*number)).collect();
        promises.broken(SERVER, &cell, &fids);
        while let Some(Some(event)) = stream.next().now_or_never() {
            assert!(matches!(event, Event::Broken(_)), "{event:?}");
            told += 1;
        }
    }
    let broken_in = start.elapsed();
    // As a file, and as the mount point that a link may be.
    assert_eq!(told, 2 * BREAKS);
    assert_eq!(promises.count(), (PROMISES - BREAKS) as usize);
    assert_eq!(promises.lease(&cell, fid(0)), None);
    assert!(promises.lease(&cell, fid(1)).is_some());

    println!("\nmemory_bytes {memory}");
    println!("breaks_per_second {:.0}", f64::from(BREAKS) / broken_in.as_secs_f64());
    println!("entered_per_second {:.0}", f64::from(PROMISES) / entered_in.as_secs_f64());
}

/// What this process has in memory now.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("proc_pid_status(5)");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

const PROMISES: u32 = 1_000_000;
const BREAKS: u32 = 200_000;
const VOLUMES: u32 = 100;
/// Most that a call may name (OpenAFS `src/fsint/common.xg`, `AFSCBMAX`).
const FIDS_OF_A_CALL: usize = 50;
/// Events that nobody has taken yet.
const EVENTS_MAX: usize = 10_000;
const SERVER: ServerId = ServerId::Uuid(Uuid([1; 16]));
const PROMISE: Promise = Promise { version: 1, expires_s: 3600, kind: 2 };
