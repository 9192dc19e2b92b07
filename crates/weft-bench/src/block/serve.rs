//! A file that takes as long as a disk that turns: served over FUSE by a process of its own.
//!
//! `weft-bench turning-disk` mounts a folder with one file, `disk`, whose bytes lie in another file, and says `ready`.
//! Then it obeys the words that come on its standard input, a line each, and answers each with a line: `slow` and
//! `fast` switch the model on and off, `requests` tells the reads and writes since the last time, and how many of the reads
//! began in a part of the disk that `watch START LENGTH`, in bytes, has named. When its standard input ends it ends, whatever state the mount is in: whoever started it cannot leave it behind.
//!
//! Requests are served one at a time, in the order in which they come, each until the end that the model tells. The
//! model's clock is that of the machine.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::ClockId;
use rustix::time::Timespec;
use weft_fusedev::{
    Attributes, Entry, InitFlags, Interrupted, MountOptions, Opened, Operation, Reply, Request, Serve, Session, Wanted,
    mount, unmount,
};
use weft_segment::device::Head;

/// What `turning-disk` takes.
#[derive(clap::Args, Debug)]
pub struct ServeArgs {
    /// Where the bytes lie; made, with holes
    #[arg(long)]
    file: PathBuf,
    /// Where the file `disk` appears
    #[arg(long)]
    at: PathBuf,
    /// Length of the file in bytes
    #[arg(long)]
    bytes: u64,
    /// Length of the disk that it is the first part of, in bytes
    #[arg(long)]
    disk_bytes: u64,
}

struct Disk {
    file: File,
    bytes: u64,
    /// Guards the head, and so that a request waits for the one before it.
    head: Mutex<Head>,
    slow: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Reads that began in one of these parts.
    watched_reads: AtomicU64,
    watched: Mutex<Vec<Range<u64>>>,
}

impl Disk {
    /// Waits until a request that begins now is done.
    fn pass(&self, counter: &AtomicU64, offset: u64, length: usize) {
        counter.fetch_add(1, Ordering::Relaxed);
        let mut head = self.head.lock().expect("nobody panics with it");
        let now = now();
        let took = head.pass(now, offset, length);
        if self.slow.load(Ordering::Relaxed) {
            wait_until(now + took);
        }
    }

    fn count_watched(&self, offset: u64) {
        let watched = self.watched.lock().expect("nobody panics with it");
        let is_watched = watched.iter().any(|part| part.contains(&offset));
        self.watched_reads.fetch_add(u64::from(is_watched), Ordering::Relaxed);
    }

    fn watch(&self, part: &str) -> Result<()> {
        let (start, length) = part.split_once(' ').context("two numbers")?;
        let (start, length): (u64, u64) = (start.parse()?, length.parse()?);
        self.watched.lock().expect("nobody panics with it").push(start..start.saturating_add(length));
        Ok(())
    }

    fn attributes(&self, node: u64) -> Attributes {
        let (mode, size) = if node == ROOT { (0o040_700, 0) } else { (0o100_600, self.bytes) };
        Attributes { node, mode, links: 1, size, blocks: size / 512, block_bytes: 4096, ..Attributes::default() }
    }

    fn read(&self, offset: u64, size: u32) -> std::io::Result<Vec<u8>> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; left.min(size as usize)];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        let is_inside = offset.checked_add(data.len() as u64).is_some_and(|end| end <= self.bytes);
        if is_inside { self.file.write_all_at(data, offset) } else { Err(std::io::ErrorKind::StorageFull.into()) }
    }
}

impl Serve for Disk {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.node;
        let failed = |error: std::io::Error| error.raw_os_error().unwrap_or(EIO);
        match request.operation {
            Operation::Lookup(NAME) => reply.entry(&Entry {
                node: FILE,
                generation: 0,
                name_ttl: LONG,
                attributes_ttl: LONG,
                attributes: self.attributes(FILE),
            }),
            Operation::Lookup(_) => reply.absent(LONG),
            Operation::Getattr { .. } => reply.attributes(&self.attributes(node), LONG),
            Operation::Open { .. } => reply.opened(Opened { handle: 0, flags: OPENED, backing_id: 0 }),
            Operation::Read(read) => match self.read(read.offset, read.size) {
                Ok(bytes) => {
                    self.count_watched(read.offset);
                    self.pass(&self.reads, read.offset, bytes.len());
                    reply.data(&bytes)
                }
                Err(error) => reply.error(failed(error)),
            },
            Operation::Write { offset, data, .. } => match self.write(offset, data) {
                Ok(()) => {
                    self.pass(&self.writes, offset, data.len());
                    reply.written(u32::try_from(data.len()).expect("the kernel asks no more"))
                }
                Err(error) => reply.error(failed(error)),
            },
            Operation::Fsync { .. } => {
                if self.slow.load(Ordering::Relaxed) {
                    wait_until(now() + Head::settle());
                }
                reply.done()
            }
            Operation::Flush { .. } | Operation::Release { .. } => reply.done(),
            _ => reply.error(ENOSYS),
        };
    }

    fn interrupt(&self, _: u64) -> Interrupted {
        // A request is soon done anyway.
        Interrupted::Taken
    }
}

/// Serves until standard input ends.
pub fn run(args: &ServeArgs) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&args.file)?;
    file.set_len(args.bytes)?;
    let options = MountOptions {
        mountpoint: args.at.clone(),
        source: "turning-disk".to_owned(),
        subtype: "turning-disk".to_owned(),
        allow_other: false,
        check_permissions: false,
        read_only: false,
        exec: false,
        atime: false,
        sync: false,
    };
    let disk = Arc::new(Disk {
        file,
        bytes: args.bytes,
        head: Mutex::new(Head::new(args.disk_bytes)),
        slow: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        watched_reads: AtomicU64::new(0),
        watched: Mutex::new(Vec::new()),
    });
    let wanted = Wanted { flags: InitFlags::BIG_WRITES | InitFlags::ASYNC_DIO, ..Wanted::default() };
    let session = Session::begin(mount(&options)?, &wanted).context("the kernel's first request")?;
    // One thread that reads requests: one request at a time.
    let _serving = session.serve(Arc::clone(&disk), 1, "disk")?;
    let obeyed = obey(&disk);
    // It is gone already when all went well.
    let _ = unmount(&args.at, true);
    obeyed
}

fn obey(disk: &Disk) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let mut say = |text: &str| writeln!(output, "{text}").and_then(|()| output.flush());
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            word @ ("slow" | "fast") => {
                disk.slow.store(word == "slow", Ordering::Relaxed);
                say("done")?;
            }
            "requests" => {
                let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
                say(&format!("{} {} {}", take(&disk.reads), take(&disk.writes), take(&disk.watched_reads)))?;
            }
            word => {
                disk.watch(word.strip_prefix("watch ").with_context(|| format!("unknown word: {word}"))?)?;
                say("done")?;
            }
        }
    }
    Ok(())
}

fn now() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Sleeps, and the last piece, which a sleep may miss, stays awake.
fn wait_until(end: Duration) {
    let wake = end.checked_sub(AWAKE).filter(|wake| *wake > now());
    if let Some(Ok(wake)) = wake.map(Timespec::try_from) {
        // Woken too early it stays awake longer.
        let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &wake);
    }
    while now() < end {
        std::hint::spin_loop();
    }
}

const ROOT: u64 = 1;
const FILE: u64 = 2;
const NAME: &[u8] = b"disk";
const OPENED: u32 = Opened::DIRECT_IO | Opened::NOFLUSH;
const LONG: Duration = Duration::from_secs(3600);
/// Timers are late by 50 us by default.
const AWAKE: Duration = Duration::from_micros(100);
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(bytes: u64) -> (tempfile::TempDir, Disk) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(dir.path().join("bytes")).unwrap();
        file.set_len(bytes).unwrap();
        let (head, slow) = (Mutex::new(Head::new(bytes)), AtomicBool::new(false));
        (
            dir,
            Disk {
                file,
                bytes,
                head,
                slow,
                reads: AtomicU64::new(0),
                writes: AtomicU64::new(0),
                watched_reads: AtomicU64::new(0),
                watched: Mutex::new(Vec::new()),
            },
        )
    }

    #[test]
    fn bytes_come_back_and_the_file_does_not_grow() {
        let (_dir, disk) = disk(8192);
        disk.write(4000, b"abc").unwrap();
        assert_eq!(disk.read(4000, 3).unwrap(), b"abc");
        assert_eq!(disk.read(8000, 4096).unwrap().len(), 192);
        assert!(disk.read(9000, 10).unwrap().is_empty());
        assert!(disk.write(8190, b"abc").is_err() && disk.write(u64::MAX, b"abc").is_err());
        assert_eq!(disk.file.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn a_slow_request_is_not_done_before_the_model_says() {
        let (_dir, disk) = disk(1 << 30);
        disk.slow.store(true, Ordering::Relaxed);
        let before = now();
        disk.pass(&disk.reads, 900 << 20, 4096);
        // The seek alone; how much longer it takes depends on the platter and on who else runs here.
        assert!(now() - before > Duration::from_millis(10));
        assert_eq!(disk.reads.load(Ordering::Relaxed), 1);
    }
}
