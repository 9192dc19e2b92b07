//! Reading what no memory holds: pages, and single objects.

use std::time::Instant;

use anyhow::{Result, ensure};
use weft_segment::{Options, Volume};

use super::Scale;
use super::fill::{BUFFER_BYTES, Filled};
use super::foyer::{self, Home, Item};
use super::pages::Object;
use crate::book::Book;
use crate::random::Random;
use crate::report::{Bound, Section, Unit};

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Weft,
    Tree,
    Hashed,
    Foyer,
}

impl Reader {
    fn name(self) -> &'static str {
        match self {
            Reader::Weft => "weft",
            Reader::Tree => "ext4 tree",
            Reader::Hashed => "ext4 hashed",
            Reader::Foyer => "foyer",
        }
    }
}

/// What is read in one go: object and its page.
type List = Vec<(usize, Object)>;

/// Measures the table.
pub fn measure(filled: &Filled, scale: Scale) -> Result<Section> {
    let mut book = Book::default();
    for round in 0..scale.rounds {
        let mut random = Random::new(100 + round as u64);
        let mut order = vec![Reader::Weft, Reader::Tree, Reader::Hashed];
        order.extend(filled.foyer.is_some().then_some(Reader::Foyer));
        let first = round % order.len();
        order.rotate_left(first);
        let (pages, singles) = (by_page(filled, scale, &mut random), singly(filled, scale, &mut random));
        for reader in order {
            read(filled, reader, &pages, ("pages", "pages, reads"), &mut book)?;
            read(filled, reader, &singles, ("singles", "singles, reads"), &mut book)?;
        }
    }
    let rate = Unit::PerSecond;
    let (tree, hashed, foyer) = ("ext4 tree", "ext4 hashed", "foyer");
    let reads = |title: &str, who: &'static str, what: &'static str| {
        let values = book.values(who, what);
        let row =
            crate::report::Row { title: title.to_owned(), unit: Unit::Each, ours: values, against: None, bound: None };
        (!row.ours.is_empty()).then_some(row)
    };
    let rows = [
        book.compare("objects of pages", rate, "pages", (tree, "pages"), Some(Bound::AtLeast(1.5))),
        book.compare("objects of pages", rate, "pages", (hashed, "pages"), Some(Bound::AtLeast(2.2))),
        book.compare("objects of pages", rate, "pages", (foyer, "pages"), None),
        book.alone("reads for each", Unit::Each, "pages, reads", Some(Bound::AtMost(0.3))),
        reads("reads of the disk for each, ext4 tree", tree, "pages, reads"),
        reads("reads of the disk for each, ext4 hashed", hashed, "pages, reads"),
        reads("reads of the disk for each, foyer", foyer, "pages, reads"),
        book.compare("single objects", rate, "singles", (tree, "singles"), Some(Bound::AtLeast(0.95))),
        book.compare("single objects", rate, "singles", (hashed, "singles"), Some(Bound::AtLeast(0.95))),
        book.compare("single objects", rate, "singles", (foyer, "singles"), None),
        book.alone("reads for each", Unit::Each, "singles, reads", Some(Bound::AtMost(1.05))),
        reads("reads of the disk for each, ext4 tree", tree, "singles, reads"),
        reads("reads of the disk for each, ext4 hashed", hashed, "singles, reads"),
        reads("reads of the disk for each, foyer", foyer, "singles, reads"),
        book.compare("opened after a clean end", Unit::Seconds, "open", (foyer, "open"), None),
    ];
    let notes = vec![format!(
        "{} pages in no order, all objects of one in turn; {} single objects in no order; one reader, the system's \
         caches dropped before each, volumes opened after that and before the clock starts. weft's reads are counted \
         by itself, ext4's and foyer's by the disk, which serves others too.",
        scale.pages_read, scale.objects_read
    )];
    Ok(Section { title: "Cold reads".to_owned(), rows: rows.into_iter().flatten().collect(), notes })
}

fn by_page(filled: &Filled, scale: Scale, random: &mut Random) -> List {
    let mut order: Vec<usize> = (0..filled.pages.len()).collect();
    random.shuffle(&mut order);
    let chosen = order.into_iter().take(scale.pages_read);
    chosen.flat_map(|page| filled.pages[page].iter().map(move |object| (page, *object))).collect()
}

fn singly(filled: &Filled, scale: Scale, random: &mut Random) -> List {
    let all = filled.pages.iter().enumerate();
    let mut all: List = all.flat_map(|(page, objects)| objects.iter().map(move |object| (page, *object))).collect();
    random.shuffle(&mut all);
    all.truncate(scale.objects_read);
    all
}

fn read(
    filled: &Filled,
    reader: Reader,
    list: &List,
    what: (&'static str, &'static str),
    book: &mut Book,
) -> Result<()> {
    filled.disk.forget()?;
    let store = match (reader, &filled.foyer) {
        (Reader::Foyer, Some(home)) => return read_foyer(filled, home, list, what, book),
        (Reader::Weft, _) => {
            // A buffer that holds a part of what is read, as it would on a machine in use.
            let options = Options { buffer_bytes: BUFFER_BYTES, ..Options::default() };
            let start = Instant::now();
            let volume = Volume::open(&filled.volume, options)?;
            book.note("weft", "open", start.elapsed().as_secs_f64());
            Some(volume)
        }
        _ => None,
    };
    let before = filled.disk.reads();
    let start = Instant::now();
    let mut bytes = 0;
    for (page, object) in list {
        bytes += match (&store, reader) {
            (Some(store), _) => store.get(&object.key())?.map_or(0, |held| held.content.len()),
            (None, Reader::Tree) => std::fs::read(filled.in_tree(*page, *object))?.len(),
            (None, _) => std::fs::read(filled.in_hashed(*object))?.len(),
        };
    }
    let took = start.elapsed().as_secs_f64();
    let expected: usize = list.iter().map(|(_, object)| object.length).sum();
    ensure!(bytes == expected, "{}: {bytes} bytes instead of {expected}", reader.name());
    book.note(reader.name(), what.0, list.len() as f64 / took);
    let reads = match &store {
        Some(store) => Some((store.stats().object_reads + store.stats().neighbour_reads) as f64),
        None => filled.disk.reads().zip(before).map(|(after, before)| after - before),
    };
    if let Some(reads) = reads {
        book.note(reader.name(), what.1, reads / list.len() as f64);
    }
    // Compared outside of the time.
    if let Some(store) = &store {
        for (_, object) in list.iter().take(COMPARED) {
            let held = store.get(&object.key())?.map(|held| held.content);
            ensure!(held == Some(object.content(&filled.source)), "object {} differs", object.number);
        }
    }
    Ok(())
}

fn read_foyer(
    filled: &Filled,
    home: &Home,
    list: &List,
    what: (&'static str, &'static str),
    book: &mut Book,
) -> Result<()> {
    let items: Vec<Item> = list.iter().map(|(_, object)| Item::from(*object)).collect();
    let mut opened = home.open(BUFFER_BYTES)?;
    book.note("foyer", "open", opened.opened.as_secs_f64());
    let before = filled.disk.reads();
    let times = opened.get(&items)?;
    let after = filled.disk.reads();
    opened.close()?;
    let Some(took) = foyer::together(&times) else {
        let missing = times.iter().filter(|time| time.is_none()).count();
        eprintln!("left out: foyer: {missing} of {} objects are missing", times.len());
        return Ok(());
    };
    book.note("foyer", what.0, items.len() as f64 / took.as_secs_f64());
    if let Some(reads) = after.zip(before).map(|(after, before)| after - before) {
        book.note("foyer", what.1, reads / items.len() as f64);
    }
    Ok(())
}

const COMPARED: usize = 100;
