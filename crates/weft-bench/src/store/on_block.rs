//! Pages on a disk that turns: the store, the file systems that people have, and foyer, each on the same block device.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use weft_segment::device::{Aligned, FileDevice};
use weft_segment::{Class, Hints, Options, Shape, Volume};

use super::Scale;
use super::disk::Disk;
use super::foyer::{Home, Item};
use super::pages::source;
use crate::block::{BlockDisk, Mounted, Pace};
use crate::book::Book;
use crate::process;
use crate::random::Random;
use crate::report::{Bound, Section, Unit};
use crate::workload::{Shape as SiteShape, Site};

/// Who keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    Weft,
    Ext4Tree,
    Ext4Hashed,
    Xfs,
    Btrfs,
    Foyer,
}

/// In which order the objects came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// Page by page: the best that file systems can have.
    ByPage,
    /// As clients bring them who look at pages at the same time.
    Mixed,
}

/// What is written down of the reads: rate, reads for each object, and times of the opening and of pages.
struct Words {
    open: &'static str,
    rate: &'static str,
    reads: &'static str,
    p50: &'static str,
    p95: &'static str,
}

impl Came {
    fn words(self) -> Words {
        match self {
            Came::ByPage => Words { open: "open", rate: "rate", reads: "reads", p50: "p50", p95: "p95" },
            Came::Mixed => Words {
                open: "mixed open",
                rate: "mixed rate",
                reads: "mixed reads",
                p50: "mixed p50",
                p95: "mixed p95",
            },
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Came::ByPage => "came page by page",
            Came::Mixed => "came mixed",
        }
    }
}

const KEEPERS: [Keeper; 6] =
    [Keeper::Weft, Keeper::Ext4Tree, Keeper::Ext4Hashed, Keeper::Xfs, Keeper::Btrfs, Keeper::Foyer];

impl Keeper {
    fn name(self) -> &'static str {
        match self {
            Keeper::Weft => "weft",
            Keeper::Ext4Tree => "ext4 tree",
            Keeper::Ext4Hashed => "ext4 hashed",
            Keeper::Xfs => "xfs tree",
            Keeper::Btrfs => "btrfs tree",
            Keeper::Foyer => "foyer",
        }
    }

    /// The type of file system, and how it is made: without leaving work for later.
    fn file_system(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Keeper::Weft | Keeper::Foyer => None,
            Keeper::Ext4Tree | Keeper::Ext4Hashed => {
                Some(("ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]))
            }
            Keeper::Xfs => Some(("xfs", &["-q", "-f", "-K"])),
            Keeper::Btrfs => Some(("btrfs", &["-q", "-f", "-K"])),
        }
    }
}

/// What is read, and where from.
struct Pages {
    site: Site,
    source: Bytes,
    place: PathBuf,
    disk: BlockDisk,
    foyer: Option<Home>,
}

/// What a round has found.
struct Reading {
    /// What each page took, in seconds.
    times: Vec<f64>,
    objects: usize,
    /// Reads of the disk.
    reads: u64,
    /// What the opening took, in seconds, where there is one.
    open_s: Option<f64>,
}

/// Measures the table; `None` where the disk cannot be made, with the reason told.
pub fn measure(dir: &Path, foyer: Option<&Path>, scale: Scale) -> Result<Option<Section>> {
    if let Some(why) = BlockDisk::missing() {
        eprintln!("skipped: a disk that turns as a block device: {why}");
        return Ok(None);
    }
    let own = dir.join("block");
    let place = own.join("mounted");
    std::fs::create_dir_all(&place)?;
    let site = Site::new(SiteShape { pages: scale.pages, seed: 17 });
    let disk = BlockDisk::new(&own, BLOCK_DISK_BYTES, BLOCK_DISK_BYTES)?;
    let source = source();
    let bytes: u64 = site.lengths.iter().map(|length| u64::from(*length)).sum();
    let foyer = foyer.map(|program| Home::new(program, disk.device.clone(), &source, bytes));
    let mut pages = Pages { site, source, place, disk, foyer };
    let mut book = Book::default();
    pages.one_read(&mut book)?;
    let mut missing = Vec::new();
    let both = [Came::ByPage, Came::Mixed].into_iter().flat_map(|came| KEEPERS.map(|keeper| (keeper, came)));
    // A hash leaves nothing of the order.
    for (keeper, came) in both.filter(|(keeper, came)| *keeper != Keeper::Ext4Hashed || *came == Came::Mixed) {
        eprintln!("measuring: {} on the disk, {}", keeper.name(), came.shown());
        if let Some(why) = pages.make(keeper) {
            eprintln!("skipped: {}: {why}", keeper.name());
            if came == Came::Mixed {
                missing.push(format!("{} is left out: {why}.", keeper.name()));
            }
            continue;
        }
        pages.fill(keeper, came)?;
        for round in 0..scale.rounds_on_block {
            pages.read((keeper, came), round as u64, scale.pages_on_block, &mut book)?;
        }
    }
    let mut notes = vec![pages.note(scale)];
    notes.extend(pages.foyer.as_ref().map(|home| {
        format!(
            "foyer lies on the first {} MB of the device itself, written once before, with {} MiB of memory and direct I/O.",
            home.capacity_bytes() / 1_000_000,
            BUFFER_BYTES >> 20,
        )
    }));
    notes.extend(missing);
    Ok(Some(Section { title: "On a disk that turns, as a block device".to_owned(), rows: rows(&book), notes }))
}

fn rows(book: &Book) -> Vec<crate::report::Row> {
    let mut rows = Vec::new();
    rows.extend(book.alone("one read of 4 KiB anywhere", Unit::Seconds, "one read", None));
    for (came, against) in [
        (Came::ByPage, &[(Keeper::Ext4Tree, 3.0), (Keeper::Xfs, 0.0), (Keeper::Btrfs, 0.0), (Keeper::Foyer, 0.0)][..]),
        (
            Came::Mixed,
            &[
                (Keeper::Ext4Tree, 0.0),
                (Keeper::Ext4Hashed, 10.0),
                (Keeper::Xfs, 0.0),
                (Keeper::Btrfs, 0.0),
                (Keeper::Foyer, 0.0),
            ],
        ),
    ] {
        let (words, shown) = (came.words(), came.shown());
        for (keeper, target) in against {
            let who = keeper.name();
            let has_target = *target > 0.0;
            let (rate, page) = (Bound::AtLeast(*target), Bound::AtMost(0.35));
            let mut add = |what: &str, unit, word, bound: Option<Bound>| {
                let bound = bound.filter(|_| has_target);
                rows.extend(book.compare(&format!("{what}; {shown}"), unit, word, (who, word), bound));
            };
            add("objects of pages", Unit::PerSecond, words.rate, Some(rate));
            add("time of a page, median", Unit::Seconds, words.p50, Some(page));
            add("time of a page, 95 %", Unit::Seconds, words.p95, None);
            add("reads of the disk for each object", Unit::Each, words.reads, None);
            add("opened after a clean end", Unit::Seconds, words.open, None);
        }
    }
    rows
}

impl Pages {
    fn note(&self, scale: Scale) -> String {
        let bytes: u64 = self.site.lengths.iter().map(|length| u64::from(*length)).sum();
        format!(
            "{} objects, {} MB, in {} pages, 2 to 4 of the objects of each shared with others; {} pages are read in no order, \
             all objects of one in turn, by one reader, in {} rounds. The disk: {} GiB, a file served over \
             FUSE that answers when the model of a disk of 7200 turns a minute says, one request at a time, below a \
             loop device with direct I/O. Caches are dropped and file systems mounted anew before each round. Page by page: the objects \
             came in the order of the pages, the best that a tree of folders can have; mixed: as {VISITORS} clients \
             bring them at the same time (hashed: in no order). weft lies on the device itself, with segments of {} KiB, its links told with each page, \
             with {} MiB of memory; the file systems have all memory that the system gives. Reads are those of the disk, \
             with what the file systems read of their own.",
            self.site.names.len(),
            bytes / 1_000_000,
            self.site.pages.len(),
            scale.pages_on_block,
            scale.rounds_on_block,
            BLOCK_DISK_BYTES >> 30,
            SEGMENT_BYTES >> 10,
            BUFFER_BYTES >> 20,
        )
    }

    /// What one read takes, past all caches: whether the disk is what it should be.
    fn one_read(&mut self, book: &mut Book) -> Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a flag of open(2)");
        let device = options.read(true).custom_flags(direct).open(&self.disk.device)?;
        let (mut random, mut block) = (Random::new(3), Aligned::zeroed(4096));
        self.disk.set_pace(Pace::Turning)?;
        let start = Instant::now();
        for _ in 0..READS_OF_PROBE {
            device.read_exact_at(&mut block, random.below(BLOCK_DISK_BYTES / 4096) * 4096)?;
        }
        book.note("weft", "one read", start.elapsed().as_secs_f64() / f64::from(READS_OF_PROBE));
        self.disk.set_pace(Pace::Free)
    }

    /// Makes an empty home on the disk; why there can be none.
    fn make(&mut self, keeper: Keeper) -> Option<String> {
        if keeper == Keeper::Foyer {
            let Some(home) = &self.foyer else { return Some("its program was not built".to_owned()) };
            return home.empty().err().map(|error| format!("{error:#}"));
        }
        let made = match keeper.file_system() {
            None => FileDevice::open(&self.disk.device)
                .map_err(anyhow::Error::from)
                .and_then(|device| Ok(Volume::format(&device, &shape())?)),
            Some((kind, options)) => {
                let mut command = Command::new(format!("mkfs.{kind}"));
                process::output(command.args(options).arg(&self.disk.device)).map(drop)
            }
        };
        made.err().map(|error| format!("{error:#}").replace('\n', " "))
    }

    fn fill(&mut self, keeper: Keeper, came: Came) -> Result<()> {
        if let (Keeper::Foyer, Some(home)) = (keeper, &self.foyer) {
            return self.fill_foyer(home, came);
        }
        let Some((kind, _)) = keeper.file_system() else { return self.fill_store(came) };
        let mounted = Mounted::new(kind, &self.disk.device, &self.place)?;
        let mut order: Vec<u32> = self.in_order(came);
        if keeper == Keeper::Ext4Hashed {
            Random::new(11).shuffle(&mut order);
        }
        for object in order {
            let path = self.path(keeper, object);
            std::fs::create_dir_all(path.parent().expect("files lie in folders"))?;
            std::fs::write(&path, self.content(object))?;
        }
        mounted.end()
    }

    fn fill_store(&self, came: Came) -> Result<()> {
        let volume = Volume::open(&self.disk.device, Options::default())?;
        let pages: HashMap<u32, &Vec<u32>> = self.site.pages.iter().map(|page| (page[0], page)).collect();
        for object in self.in_order(came) {
            // A page comes with what it refers to.
            let links = pages.get(&object).map_or(&[][..], |page| &page[1..]);
            let links: Vec<&[u8]> = links.iter().map(|object| self.key(*object)).collect();
            let hints = Hints { directory: 0, links: &links };
            volume.put(self.key(object), b"", self.content(object), hints, Class::Cache)?;
        }
        Ok(volume.checkpoint()?)
    }

    fn fill_foyer(&self, home: &Home, came: Came) -> Result<()> {
        let items: Vec<Item> = self.in_order(came).into_iter().map(|object| self.item(object)).collect();
        let mut foyer = home.open(BUFFER_BYTES)?;
        foyer.put(&items)?;
        foyer.close()?;
        let mut foyer = home.open(BUFFER_BYTES)?;
        let missing = foyer.missing(&items)?;
        ensure!(missing == 0, "foyer: {missing} of {} objects are missing", items.len());
        foyer.close()
    }

    /// Each object once, in the order in which they come.
    fn in_order(&self, came: Came) -> Vec<u32> {
        let visitors = if came == Came::ByPage { 1 } else { VISITORS };
        let mut seen = HashSet::new();
        let mut order = Vec::with_capacity(self.site.names.len());
        for pages in self.site.pages.chunks(visitors) {
            let longest = pages.iter().map(Vec::len).max().unwrap_or(0);
            let mixed = (0..longest).flat_map(|at| pages.iter().filter_map(move |page| page.get(at)));
            order.extend(mixed.filter(|object| seen.insert(**object)));
        }
        order
    }

    /// Reads pages that nothing holds.
    fn read(&mut self, (keeper, came): (Keeper, Came), round: u64, count: usize, book: &mut Book) -> Result<()> {
        let mut order: Vec<usize> = (0..self.site.pages.len()).collect();
        Random::new(40 + round).shuffle(&mut order);
        order.truncate(count);
        Disk::below(self.place.parent().context("a folder")?)?.forget()?;
        self.disk.set_pace(Pace::Turning)?;
        let found = match (keeper, self.foyer.clone()) {
            (Keeper::Foyer, Some(home)) => self.read_foyer(&home, &order)?,
            _ => self.read_here(keeper, &order)?,
        };
        let Reading { mut times, objects, reads, open_s } = found;
        times.sort_by(f64::total_cmp);
        let words = came.words();
        book.note(keeper.name(), words.rate, objects as f64 / times.iter().sum::<f64>());
        book.note(keeper.name(), words.reads, reads as f64 / objects as f64);
        book.note(keeper.name(), words.p50, times[times.len() / 2]);
        book.note(keeper.name(), words.p95, times[times.len() * 95 / 100]);
        if let Some(open_s) = open_s {
            book.note(keeper.name(), words.open, open_s);
        }
        Ok(())
    }

    fn read_here(&mut self, keeper: Keeper, order: &[usize]) -> Result<Reading> {
        let start = Instant::now();
        let (mounted, volume) = match keeper.file_system() {
            Some((kind, _)) => (Some(Mounted::new(kind, &self.disk.device, &self.place)?), None),
            None => {
                let options = Options { buffer_bytes: BUFFER_BYTES, ..Options::default() };
                (None, Some(Volume::open(&self.disk.device, options)?))
            }
        };
        let open_s = volume.is_some().then(|| start.elapsed().as_secs_f64());
        self.disk.requests()?;
        let (mut times, mut objects) = (Vec::with_capacity(order.len()), 0usize);
        for page in order {
            let start = Instant::now();
            for object in &self.site.pages[*page] {
                let found = match &volume {
                    Some(volume) => volume.get(self.key(*object))?.map_or(0, |held| held.content.len()),
                    None => std::fs::read(self.path(keeper, *object))?.len(),
                };
                let expected = self.site.lengths[*object as usize] as usize;
                ensure!(found == expected, "{}: {found} bytes instead of {expected}", keeper.name());
                objects += 1;
            }
            times.push(start.elapsed().as_secs_f64());
        }
        let reads = self.disk.requests()?.reads;
        self.disk.set_pace(Pace::Free)?;
        drop(volume);
        mounted.map_or(Ok(()), Mounted::end)?;
        Ok(Reading { times, objects, reads, open_s })
    }

    fn read_foyer(&mut self, home: &Home, order: &[usize]) -> Result<Reading> {
        let pages: Vec<&Vec<u32>> = order.iter().map(|page| &self.site.pages[*page]).collect();
        let items: Vec<Item> = pages.iter().copied().flatten().map(|object| self.item(*object)).collect();
        let mut foyer = home.open(BUFFER_BYTES)?;
        let open_s = Some(foyer.opened.as_secs_f64());
        self.disk.requests()?;
        let times = foyer.get(&items)?;
        let reads = self.disk.requests()?.reads;
        self.disk.set_pace(Pace::Free)?;
        foyer.close()?;
        let mut times = times.into_iter();
        let of_page = |page: &&Vec<u32>| times.by_ref().take(page.len()).sum::<Option<Duration>>();
        let of_pages: Option<Vec<Duration>> = pages.iter().map(of_page).collect();
        let times = of_pages.context("foyer: objects are missing")?.iter().map(Duration::as_secs_f64).collect();
        Ok(Reading { times, objects: items.len(), reads, open_s })
    }

    fn item(&self, object: u32) -> Item {
        Item { key: self.key(object).to_vec(), start: 0, length: self.site.lengths[object as usize] as usize }
    }

    fn key(&self, object: u32) -> &[u8] {
        self.site.names[object as usize].as_bytes()
    }

    fn content(&self, object: u32) -> Bytes {
        self.source.slice(..self.site.lengths[object as usize] as usize)
    }

    fn path(&self, keeper: Keeper, object: u32) -> PathBuf {
        let name = &self.site.names[object as usize];
        if keeper != Keeper::Ext4Hashed {
            // Below a folder: those at the top are spread over the disk on purpose (Documentation/filesystems/ext4).
            return self.place.join("site").join(&name[1..]);
        }
        let hash = format!("{:016x}", BuildHasherDefault::<DefaultHasher>::default().hash_one(name));
        self.place.join(&hash[15..]).join(&hash[13..15]).join(hash)
    }
}

fn shape() -> Shape {
    Shape { segment_bytes: SEGMENT_BYTES, ..Shape::default() }
}

/// Several times what lies on it, as it would be. It is all of the disk: 80 to 90 reads a second anywhere on it, as such
/// disks are said to do.
const BLOCK_DISK_BYTES: u64 = 4 << 30;
/// The longest: most pages fit into one, and to read on costs less than to go elsewhere.
const SEGMENT_BYTES: u32 = 256 << 10;
const BUFFER_BYTES: usize = 16 << 20;
const READS_OF_PROBE: u32 = 100;
const VISITORS: usize = 16;
