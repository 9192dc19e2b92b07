//! Storing: many objects at once, and objects that have to survive a power cut.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use weft_segment::device::Prepare;
use weft_segment::{Affinity, Class, Hints, Options, Shape, Volume};

use super::Scale;
use super::disk::Disk;
use super::foyer::{Home, Item};
use super::pages::{Object, pages, source};
use crate::book::Book;
use crate::random::Random;
use crate::report::{Bound, Section, Unit};

/// What lies on the disk after the last round.
#[derive(Debug)]
pub struct Filled {
    /// All pages.
    pub pages: Vec<Vec<Object>>,
    /// Where the contents are cut from.
    pub source: Bytes,
    /// The store's volume.
    pub volume: PathBuf,
    /// ext4 with a folder for each page.
    pub tree: PathBuf,
    /// ext4 with folders named by a hash.
    pub hashed: PathBuf,
    /// foyer's file, where there is foyer.
    pub foyer: Option<Home>,
    /// The disk.
    pub disk: Disk,
}

impl Filled {
    /// Where the tree has an object of a page.
    pub fn in_tree(&self, page: usize, object: Object) -> PathBuf {
        in_tree(&self.tree, page, object)
    }

    /// Where the hashed folders have an object.
    pub fn in_hashed(&self, object: Object) -> PathBuf {
        in_hashed(&self.hashed, object)
    }
}

/// Measures, and leaves the last round's files for reading.
pub fn measure(dir: &Path, foyer: Option<&Path>, scale: Scale) -> Result<(Section, Filled)> {
    let (pages, source) = (pages(scale.pages), source());
    let objects: usize = pages.iter().map(Vec::len).sum();
    let bytes: usize = pages.iter().flatten().map(|object| object.length).sum();
    let mut filled = Filled {
        foyer: foyer.map(|program| Home::new(program, dir.join("foyer"), &source, bytes as u64)),
        pages,
        source,
        volume: PathBuf::new(),
        tree: PathBuf::new(),
        hashed: PathBuf::new(),
        disk: Disk::below(dir)?,
    };
    let mut book = Book::default();
    for round in 0..scale.rounds {
        filled.volume = dir.join(format!("volume-{round}"));
        filled.tree = dir.join(format!("tree-{round}"));
        filled.hashed = dir.join(format!("hashed-{round}"));
        let mut order: Vec<fn(&Filled, &mut Book) -> Result<()>> = vec![fill_store, fill_tree, fill_hashed];
        order.extend(filled.foyer.is_some().then_some(fill_foyer as fn(&Filled, &mut Book) -> Result<()>));
        let first = round % order.len();
        order.rotate_left(first);
        for fill in order {
            filled.disk.settle()?;
            fill(&filled, &mut book)?;
        }
        durable(dir, round, scale, &filled, &mut book)?;
    }
    let rate = Unit::PerSecond;
    let rows = [
        book.compare("stored, then synced", rate, "bulk", ("ext4 tree", "bulk"), Some(Bound::AtLeast(2.2))),
        book.compare("stored, then synced", rate, "bulk", ("ext4 hashed", "bulk"), None),
        book.compare("stored, then synced", rate, "bulk", ("foyer", "bulk"), None),
        book.compare(
            "durable, 16 and a flush",
            rate,
            "durable",
            ("ext4, fsync each", "durable"),
            Some(Bound::AtLeast(8.0)),
        ),
        book.compare("durable, 8 threads, each put", rate, "durable, threads", ("ext4, fsync each", "durable"), None),
        book.compare("durable, one thread, each put", rate, "durable, each", ("ext4, fsync each", "durable"), None),
        book.alone("room taken beyond the contents, percent", Unit::Each, "overhead", Some(Bound::AtMost(3.0))),
    ];
    let mut notes = vec![format!(
        "{objects} objects, {} MB, in {} pages; contents of at most 64 KiB. The volume is preallocated and written once \
         before; ext4 tree: a folder for each page, in order; hashed: two levels of folders named by a hash, in no order.",
        bytes / 1_000_000,
        filled.pages.len(),
    )];
    notes.extend(filled.foyer.as_ref().map(|home| note_of_foyer(home, &book)));
    let rows = rows.into_iter().flatten().collect();
    Ok((Section { title: "Storing".to_owned(), rows, notes }, filled))
}

/// A volume with room for so many bytes.
fn volume(path: &Path, bytes: usize) -> Result<Volume> {
    let length = (bytes as u64 * 5 / 4 + (64 << 20)).next_multiple_of(1 << 20);
    Ok(Volume::create(path, length, Prepare::Written, &Shape::default(), Options::default())?)
}

fn fill_store(filled: &Filled, book: &mut Book) -> Result<()> {
    let bytes: usize = filled.pages.iter().flatten().map(|object| object.length).sum();
    let volume = volume(&filled.volume, bytes)?;
    filled.disk.settle()?;
    let start = Instant::now();
    let mut objects = 0usize;
    for page in &filled.pages {
        let keys: Vec<[u8; 16]> = page.iter().map(|object| object.key()).collect();
        volume.hint(Affinity::Told, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
        for (object, key) in page.iter().zip(&keys) {
            volume.put(key, b"", object.content(&filled.source), Hints::default(), Class::Cache)?;
            objects += 1;
        }
    }
    volume.flush()?;
    book.note("weft", "bulk", objects as f64 / start.elapsed().as_secs_f64());
    volume.checkpoint()?;
    let stats = volume.stats();
    let taken = u64::from(stats.segments - stats.free_segments) * u64::from(stats.segment_bytes);
    book.note("weft", "overhead", (taken as f64 / bytes as f64 - 1.0) * 100.0);
    Ok(())
}

fn fill_tree(filled: &Filled, book: &mut Book) -> Result<()> {
    let start = Instant::now();
    let mut objects = 0usize;
    for (page, of_page) in filled.pages.iter().enumerate() {
        std::fs::create_dir_all(filled.tree.join(folder(page)))?;
        for object in of_page {
            std::fs::write(filled.in_tree(page, *object), object.content(&filled.source))?;
            objects += 1;
        }
    }
    filled.disk.settle()?;
    book.note("ext4 tree", "bulk", objects as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

fn fill_hashed(filled: &Filled, book: &mut Book) -> Result<()> {
    let mut objects: Vec<Object> = filled.pages.iter().flatten().copied().collect();
    Random::new(11).shuffle(&mut objects);
    let start = Instant::now();
    for object in &objects {
        let path = filled.in_hashed(*object);
        match File::create(&path) {
            Ok(mut file) => file.write_all(&object.content(&filled.source))?,
            Err(_) => {
                std::fs::create_dir_all(path.parent().expect("files lie in folders"))?;
                std::fs::write(&path, object.content(&filled.source))?;
            }
        }
    }
    filled.disk.settle()?;
    book.note("ext4 hashed", "bulk", objects.len() as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

fn fill_foyer(filled: &Filled, book: &mut Book) -> Result<()> {
    let Some(home) = &filled.foyer else { return Ok(()) };
    home.empty()?;
    filled.disk.settle()?;
    let items: Vec<Item> = filled.pages.iter().flatten().map(|object| Item::from(*object)).collect();
    let mut foyer = home.open(BUFFER_BYTES)?;
    let took = foyer.put(&items)?;
    foyer.close()?;
    // Looked for by another process, which knows only what is on the disk.
    let mut foyer = home.open(BUFFER_BYTES)?;
    let missing = foyer.missing(&items)?;
    foyer.close()?;
    book.note("foyer", "bulk", (items.len() - missing) as f64 / took.as_secs_f64());
    book.note("foyer", "missing", missing as f64);
    Ok(())
}

fn note_of_foyer(home: &Home, book: &Book) -> String {
    let missing: f64 = book.values("foyer", "missing").iter().sum();
    format!(
        "foyer: its hybrid cache (0.22) in one file of {} MB, written once before; told to write on insertion, with direct \
         I/O, and to have {} MiB of memory for objects, all else as it comes: pread and pwrite in threads (its engine of \
         io_uring keeps a processor busy for as long as it is open), blocks of 16 MiB. It forgets what comes faster than \
         it can be written: so no more than 8 MiB wait at any time. It never syncs: that is done for it at the end. Then it \
         is opened anew, and all objects are compared: {missing} were missing in all rounds together.",
        home.capacity_bytes() / 1_000_000,
        BUFFER_BYTES >> 20,
    )
}

fn durable(dir: &Path, round: usize, scale: Scale, filled: &Filled, book: &mut Book) -> Result<()> {
    let objects: Vec<Object> = filled.pages.iter().flatten().copied().take(scale.durable).collect();
    let bytes: usize = objects.iter().map(|object| object.length).sum();
    let rate = |took: Duration| objects.len() as f64 / took.as_secs_f64();
    let place = dir.join(format!("durable-{round}"));
    std::fs::create_dir_all(place.join("files"))?;

    let volume_of = |what: &str| volume(&place.join(what), 4 * bytes + DURABLE_BYTES);
    let put = |volume: &Volume, object: Object, class| {
        volume.put(&object.key(), b"", object.content(&filled.source), Hints::default(), class)
    };
    let grouped = volume_of("grouped")?;
    let (threads, each) = (volume_of("threads")?, volume_of("each")?);
    filled.disk.settle()?;
    let start = Instant::now();
    for group in objects.chunks(GROUP) {
        group.iter().try_for_each(|object| put(&grouped, *object, Class::Cache))?;
        grouped.flush()?;
    }
    book.note("weft", "durable", rate(start.elapsed()));

    let start = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let mine = |thread| objects.iter().skip(thread).step_by(THREADS);
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let threads = &threads;
                scope.spawn(move || mine(thread).try_for_each(|object| put(threads, *object, Class::Durable)))
            })
            .collect();
        workers.into_iter().try_for_each(|worker| Ok(worker.join().expect("it does not panic")?))
    })?;
    book.note("weft", "durable, threads", rate(start.elapsed()));

    let start = Instant::now();
    objects.iter().try_for_each(|object| put(&each, *object, Class::Durable))?;
    book.note("weft", "durable, each", rate(start.elapsed()));

    let start = Instant::now();
    for object in &objects {
        let mut file = File::create(place.join("files").join(object.number.to_string()))?;
        file.write_all(&object.content(&filled.source))?;
        file.sync_all()?;
    }
    book.note("ext4, fsync each", "durable", rate(start.elapsed()));
    Ok(())
}

fn folder(page: usize) -> String {
    format!("{:02}/{page}", page % 64)
}

fn in_tree(tree: &Path, page: usize, object: Object) -> PathBuf {
    tree.join(folder(page)).join(object.number.to_string())
}

fn in_hashed(hashed: &Path, object: Object) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    object.number.hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    hashed.join(&name[15..]).join(&name[13..15]).join(name)
}

/// Memory for objects that are read, in foyer and when the store is read again.
pub const BUFFER_BYTES: usize = 16 << 20;
/// The log is a part of the volume: one of a common length.
const DURABLE_BYTES: usize = 512 << 20;
const GROUP: usize = 16;
const THREADS: usize = 8;
