//! Memory for each object, and how long a start takes, with many objects. The starts are made by a process of their own,
//! so that its memory is that of the volume, after the system's caches were dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use weft_segment::device::{Device, FileDevice, Prepare};
use weft_segment::{Class, Hints, Options, Shape, Volume};

use super::Scale;
use super::disk::Disk;
use crate::book::Book;
use crate::process;
use crate::report::{Bound, Section, Unit};

/// What `store-open` takes.
#[derive(clap::Args, Debug)]
pub struct OpenArgs {
    /// The volume
    #[arg(long)]
    volume: PathBuf,
    /// The number of an object that has to be there
    #[arg(long)]
    object: u64,
}

/// A volume that takes no more writes from some moment on, as if the power were cut.
#[derive(Debug)]
struct Cut {
    inner: FileDevice,
    is_cut: AtomicBool,
}

impl Device for Cut {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_cut.load(Ordering::Relaxed) { Ok(()) } else { self.inner.write_at(bytes, offset) }
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

/// What a start took.
struct Start {
    open_s: f64,
    first_s: f64,
    /// Memory that the process has more than before.
    memory_bytes: f64,
    objects: u64,
}

/// Opens a volume and prints `open_ns first_ns memory_bytes objects`.
pub fn open_and_tell(args: &OpenArgs) -> Result<()> {
    let own = std::process::id();
    let before = process::memory_bytes(own)?;
    let start = Instant::now();
    let volume = Volume::open(&args.volume, options())?;
    let open = start.elapsed();
    let start = Instant::now();
    ensure!(volume.get(&key(args.object))?.is_some(), "object {} is missing", args.object);
    let first = start.elapsed();
    let grown = process::memory_bytes(own)?.saturating_sub(before);
    let stats = volume.stats();
    println!("{} {} {grown} {}", open.as_nanos(), first.as_nanos(), stats.objects + stats.waiting);
    Ok(())
}

fn start(volume: &Path, object: u64, disk: &Disk) -> Result<Start> {
    disk.forget()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("store-open").arg("--volume").arg(volume).args(["--object", &object.to_string()]);
    let text = process::output(&mut command)?;
    let mut values = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || values.next().context("four numbers")?.context("a number");
    let (open, first, memory, objects) = (next()?, next()?, next()?, next()?);
    Ok(Start { open_s: open as f64 / 1e9, first_s: first as f64 / 1e9, memory_bytes: memory as f64, objects })
}

/// Measures the table.
pub fn measure(dir: &Path, scale: Scale) -> Result<Section> {
    let disk = Disk::below(dir)?;
    let path = dir.join("many");
    let length = (scale.held * BYTES_OF_ONE + (256 << 20)).next_multiple_of(4096);
    let shape = Shape { segment_bytes: 256 << 10, objects_max: Some(scale.held * 5 / 4), uuid: None };
    let mut book = Book::default();
    let volume = Volume::create(&path, length, Prepare::Allocated, &shape, options())?;
    let begun = Instant::now();
    (0..scale.held).try_for_each(|number| put(&volume, number))?;
    volume.flush()?;
    book.note("weft", "fill", scale.held as f64 / begun.elapsed().as_secs_f64());
    book.note("weft", "index", volume.stats().index_bytes as f64 / scale.held as f64);
    drop(volume);
    for _ in 0..scale.rounds {
        let clean = start(&path, scale.held / 2, &disk)?;
        ensure!(clean.objects == scale.held, "{} objects instead of {}", clean.objects, scale.held);
        book.note("weft", "clean start", clean.open_s);
        book.note("weft", "first answer", clean.first_s);
        book.note("weft", "memory", clean.memory_bytes / scale.held as f64);
        book.note("weft", "memory of all", clean.memory_bytes / 1e6);
    }
    // What comes after the checkpoint has to be replayed.
    let more = scale.held / 20;
    let device = Arc::new(Cut { inner: FileDevice::open(&path)?, is_cut: AtomicBool::new(false) });
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options())?;
    (scale.held..scale.held + more).try_for_each(|number| put(&volume, number))?;
    volume.flush()?;
    device.is_cut.store(true, Ordering::Relaxed);
    drop(volume);
    drop(device);
    let crashed = start(&path, scale.held + more - 1, &disk)?;
    ensure!(crashed.objects == scale.held + more, "{} objects instead of {}", crashed.objects, scale.held + more);
    book.note("weft", "start after a crash", crashed.open_s);
    let rows = [
        book.alone("memory of the index for each object", Unit::BytesEach, "index", Some(Bound::AtMost(22.0))),
        book.alone("memory of the process for each object", Unit::BytesEach, "memory", Some(Bound::AtMost(22.0))),
        book.alone("memory of the process in all", Unit::Megabytes, "memory of all", None),
        book.alone("clean start", Unit::Seconds, "clean start", Some(Bound::AtMost(1.5))),
        book.alone("first answer after it", Unit::Seconds, "first answer", None),
        book.alone("start after a crash", Unit::Seconds, "start after a crash", Some(Bound::AtMost(5.0))),
        book.alone("stored", Unit::PerSecond, "fill", None),
    ];
    let notes = vec![format!(
        "{} objects of {CONTENT_BYTES} bytes, short, so that many fit on this disk; segments of 256 KiB. Each start is \
         a process of its own. The crash came when {more} more had been flushed since the last checkpoint. The bounds \
         are meant for 10,000,000 objects.",
        scale.held
    )];
    Ok(Section { title: "Memory and starts".to_owned(), rows: rows.into_iter().flatten().collect(), notes })
}

/// The buffer takes no memory, so that what is measured is the index.
fn options() -> Options {
    Options { buffer_bytes: 0, ..Options::default() }
}

fn put(volume: &Volume, number: u64) -> Result<()> {
    static CONTENT: [u8; CONTENT_BYTES] = [7; CONTENT_BYTES];
    Ok(volume.put(&key(number), b"", Bytes::from_static(&CONTENT), Hints::default(), Class::Cache)?)
}

fn key(number: u64) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

const CONTENT_BYTES: usize = 16;
/// A row of 40 bytes, a frame of 64, and room to spare for checkpoints and log.
const BYTES_OF_ONE: u64 = 180;
