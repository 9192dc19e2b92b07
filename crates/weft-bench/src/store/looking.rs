//! Looking at every segment: when a volume is checked, and when both of its checkpoints are lost.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use weft_segment::device::{FileDevice, Prepare};
use weft_segment::{Class, Hints, Options, Shape, Volume};

use super::Scale;
use super::disk::Disk;
use super::pages::source;
use crate::book::Book;
use crate::report::{Bound, Section, Unit};

/// How the disk is asked.
#[derive(Clone, Copy, Debug)]
enum Asked {
    AtOnce,
    OneByOne,
}

impl Asked {
    fn name(self) -> &'static str {
        match self {
            Asked::AtOnce => "weft",
            Asked::OneByOne => "a read at a time",
        }
    }
}

/// Measures the table.
pub fn measure(dir: &Path, scale: Scale) -> Result<Section> {
    let disk = Disk::below(dir)?;
    let path = dir.join("looked-at");
    let objects = scale.pages as u64 * OBJECTS_FOR_EACH_PAGE;
    fill(&path, objects)?;
    let mut book = Book::default();
    for round in 0..scale.rounds {
        let mut order = [Asked::AtOnce, Asked::OneByOne];
        order.rotate_left(round % 2);
        for asked in order {
            disk.forget()?;
            let checked = check(&path, asked, objects)?;
            book.note(asked.name(), "check", bytes_of(objects) / checked.as_secs_f64());
            lose_checkpoints(&path)?;
            disk.forget()?;
            let found = find_again(&path, asked, objects)?;
            book.note(asked.name(), "found", bytes_of(objects) / found.as_secs_f64());
        }
    }
    std::fs::remove_file(&path)?;
    let beside = Asked::OneByOne.name();
    let bound = || Some(Bound::AtLeast(1.0));
    let rows = [
        book.compare("every segment checked", Unit::MibPerSecond, "check", (beside, "check"), bound()),
        book.compare("found again without a checkpoint", Unit::MibPerSecond, "found", (beside, "found"), bound()),
    ];
    let notes = vec![format!(
        "{objects} objects of {} KiB in segments of 256 KiB, past the system's caches. Beside: the same with every read \
         made by itself, as where the system has no io_uring. Found again: both checkpoints are void, so every segment is \
         read, in the background of a volume that is in use.",
        OBJECT_BYTES >> 10
    )];
    Ok(Section { title: "Looking at everything".to_owned(), rows: rows.into_iter().flatten().collect(), notes })
}

fn bytes_of(objects: u64) -> f64 {
    (objects * OBJECT_BYTES as u64) as f64 / f64::from(1 << 20)
}

fn fill(path: &Path, objects: u64) -> Result<()> {
    let length = (objects * OBJECT_BYTES as u64 * 5 / 4 + (64 << 20)).next_multiple_of(1 << 20);
    let shape = Shape { segment_bytes: 256 << 10, ..Shape::default() };
    let volume = Volume::create(path, length, Prepare::Written, &shape, Options::default())?;
    let content: Bytes = source().slice(..OBJECT_BYTES);
    (0..objects).try_for_each(|number| {
        volume.put(&number.to_be_bytes(), b"", content.clone(), Hints::default(), Class::Cache)
    })?;
    Ok(volume.flush()?)
}

fn open(path: &Path, asked: Asked) -> Result<Volume> {
    let device = FileDevice::open(path)?;
    let device = match asked {
        Asked::AtOnce => device,
        Asked::OneByOne => device.without_ring(),
    };
    Ok(Volume::open_on(Arc::new(device), Options::default())?)
}

fn check(path: &Path, asked: Asked, objects: u64) -> Result<Duration> {
    let volume = open(path, asked)?;
    let start = Instant::now();
    let findings = volume.check()?;
    let took = start.elapsed();
    ensure!(findings.is_sound() && findings.objects == objects, "{findings:?}");
    Ok(took)
}

/// Spoils the head of each checkpoint: both begin at a block (docs/formats/segments.md).
fn lose_checkpoints(path: &Path) -> Result<()> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    let (mut block, mut at, mut lost) = ([0; 4096], 0, 0);
    let mut reader = std::io::BufReader::with_capacity(1 << 20, &file);
    while lost < 2 && reader.read_exact(&mut block).is_ok() {
        if block.starts_with(CHECKPOINT_MAGIC) {
            file.write_all_at(&[!block[24]], at + 24)?;
            lost += 1;
        }
        at += block.len() as u64;
    }
    file.sync_all()?;
    ensure!(lost == 2, "{lost} checkpoints were found");
    Ok(())
}

fn find_again(path: &Path, asked: Asked, objects: u64) -> Result<Duration> {
    let start = Instant::now();
    let volume = open(path, asked)?;
    ensure!(volume.stats().scanning, "both checkpoints were void");
    volume.wait_for_scan();
    let took = start.elapsed();
    ensure!(volume.stats().objects == objects, "{:?}", volume.stats());
    Ok(took)
}

const CHECKPOINT_MAGIC: &[u8] = b"weftchk\n";
const OBJECT_BYTES: usize = 16 << 10;
/// About as many bytes as the other tables have.
const OBJECTS_FOR_EACH_PAGE: u64 = 20;
