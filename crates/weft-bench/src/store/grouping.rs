//! What grouping is worth: the first half of a sequence of requests tells what belongs together, the second half is
//! replayed.
//!
//! All sides have the same memory, and the same objects in the order in which they were first asked for. *weft* is told
//! what the first half teaches; *append order* is the same store, told nothing; *a file at a time* reads each object
//! that its memory does not have with one read, with two kinds of memory: one from which the object goes that was not
//! used for longest, and the store's own buffer. The disk is the model of one that turns, by its own clock.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use weft_log::{Act, Log, Request, Sessions, Trace};
use weft_segment::device::{Device, MemoryDevice, Rotating};
use weft_segment::{Affinity, Class, Hints, Options, Packer, Shape, Volume};

use super::alone::{Alone, OldestGoes};
use super::pages::source;
use crate::report::{Against, Bound, Row, Section, Unit};
use crate::workload::{Clients, Shape as SiteShape, Site, views};

/// Measures a site that is made up, for each exponent of its pages' popularity.
pub fn made_up(pages: usize) -> Result<Vec<Section>> {
    let site = Site::new(SiteShape { pages, seed: 9 });
    let of = |exponent: f64| {
        let clients = Clients { count: 16, exponent, replaced: 0.01, seed: 9 };
        let trace = views(&site, clients, pages * REQUESTS_OF_A_PAGE);
        let mut section = section(&format!("Grouping: a site that is made up, Zipf {exponent}"), &trace)?;
        section.notes.push(format!(
            "{pages} pages, {} clients whose views are interleaved, one request in a hundred replaces an object; what is \
             replaced is packed sixteen at a time.",
            clients.count
        ));
        Ok(section)
    };
    EXPONENTS.into_iter().map(of).collect()
}

/// Measures a log.
pub fn of_log(log: &Log) -> Result<Section> {
    let mut section = section("Grouping: a log of a web site", &log.trace)?;
    section.notes.push(format!(
        "{} lines or records, of which {} make no sense and {} read nothing{}.",
        log.lines,
        log.bad,
        log.others,
        if log.is_cut { "; the log goes on" } else { "" }
    ));
    Ok(section)
}

fn section(title: &str, trace: &Trace) -> Result<Section> {
    let replayed = Replayed::new(trace);
    let mut rows = Vec::new();
    for percent in MEMORY_PERCENT {
        let outcome = replayed.replay(replayed.bytes / 100 * percent)?;
        rows.extend(outcome.rows(percent));
    }
    let notes = vec![format!(
        "The first half of the requests stores {} objects of {} MB and tells what belongs together (who referred to \
         what, what a client opened in one session, the folder); the second reads {} times. {} of its requests are for \
         objects that the first did not have, or that are longer than 64 KiB: left out on all sides. Memory: percent of \
         the bytes of all objects. A file at a time: one read for each object that an equally large memory does not \
         have, from which the one goes that was not used for longest; below it the same with the store's own buffer. \
         The disk is the model of one that turns.",
        replayed.objects,
        replayed.bytes / 1_000_000,
        replayed.reads(),
        replayed.left_out
    )];
    Ok(Section { title: title.to_owned(), rows, notes })
}

/// A sequence of requests in two halves.
struct Replayed<'t> {
    trace: &'t Trace,
    /// Of each object when it comes, where it is known and not too long for a segment.
    lengths: Vec<Option<usize>>,
    past: &'t [Request],
    /// What is replayed: requests for objects that the first half had as well.
    future: Vec<Request>,
    /// Requests of the second half that are not.
    left_out: usize,
    /// Objects that are stored.
    objects: usize,
    /// Their bytes.
    bytes: usize,
}

/// What a replay took.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// Of the disk.
    reads: f64,
    /// Objects that memory answered, as a share of all.
    from_memory: f64,
    /// By the model's clock.
    disk: Duration,
}

/// What each side took.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Told what belongs together.
    told: Took,
    /// Told nothing.
    append: Took,
    /// An object at a time, with the store's buffer.
    alone: Took,
    /// Reads of a file at a time, with the memory from which the oldest goes.
    oldest_goes_reads: f64,
}

impl Outcome {
    fn rows(&self, percent: usize) -> Vec<Row> {
        let row = |what: &str, unit, ours: f64, against: Option<(&str, f64)>, bound| Row {
            title: format!("{what}, memory of {percent} %"),
            unit,
            ours: vec![ours],
            against: against.map(|(name, value)| Against { name: name.to_owned(), values: vec![value] }),
            bound,
        };
        let (told, alone) = (self.told, self.alone);
        let reads = |against, bound| row("reads of the disk", Unit::Count, told.reads, Some(against), bound);
        let (ours, theirs) = (told.disk.as_secs_f64(), alone.disk.as_secs_f64());
        vec![
            reads(("a file at a time", self.oldest_goes_reads), Some(Bound::AtMost(0.7))),
            reads(("the store's buffer, an object at a time", alone.reads), None),
            reads(("append order", self.append.reads), Some(Bound::AtMost(1.0))),
            row("time of the disk", Unit::Seconds, ours, Some(("an object at a time", theirs)), None),
            row("share of the reads that memory answered", Unit::Each, told.from_memory, None, None),
        ]
    }
}

impl<'t> Replayed<'t> {
    /// Cuts a trace into two halves.
    fn new(trace: &'t Trace) -> Replayed<'t> {
        let (past, rest) = trace.requests.split_at(trace.requests.len() / 2);
        let lengths = trace.lengths().into_iter();
        let lengths = lengths.map(|length| length.map(|length| length as usize).filter(|length| *length <= LENGTH_MAX));
        let lengths: Vec<Option<usize>> = lengths.collect();
        let stored: HashSet<u32> =
            past.iter().map(|request| request.object).filter(|object| lengths[*object as usize].is_some()).collect();
        let future: Vec<Request> = rest.iter().filter(|request| stored.contains(&request.object)).copied().collect();
        let bytes = stored.iter().filter_map(|object| lengths[*object as usize]).sum();
        let (left_out, objects) = (rest.len() - future.len(), stored.len());
        Replayed { trace, lengths, past, future, left_out, objects, bytes }
    }

    /// Reads that are replayed.
    fn reads(&self) -> usize {
        self.future.iter().filter(|request| request.act == Act::Read).count()
    }

    /// Replays with so much memory on each side.
    fn replay(&self, memory_bytes: usize) -> Result<Outcome> {
        let hints = Sessions::learn(self.past);
        let (told, append) = (self.stored(Some(&hints))?, self.stored(None)?);
        let turning = |image: &MemoryDevice| Rotating::new(MemoryDevice::of(image.image()), DISK_BYTES);
        let replay = |disk: Arc<dyn Device>, real: &Rotating<MemoryDevice>| self.on_disk(disk, real, memory_bytes);
        let (with, without) = (Arc::new(turning(&told)), Arc::new(turning(&append)));
        let alone = Arc::new(Alone::new(turning(&append)));
        Ok(Outcome {
            told: replay(Arc::clone(&with) as Arc<dyn Device>, &with)?,
            append: replay(Arc::clone(&without) as Arc<dyn Device>, &without)?,
            alone: replay(Arc::clone(&alone) as Arc<dyn Device>, alone.inner())?,
            oldest_goes_reads: self.oldest_goes(memory_bytes),
        })
    }

    /// A volume as the first half leaves it.
    fn stored(&self, hints: Option<&Sessions>) -> Result<Arc<MemoryDevice>> {
        let device = Arc::new(MemoryDevice::new((self.bytes * 2 + (64 << 20)).next_multiple_of(1 << 20)));
        Volume::format(&*device, &Shape::default())?;
        let options = Options { packer: Packer::Caller, ..Options::default() };
        let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options)?;
        let all = hints.iter().flat_map(|hints| {
            let pages = hints.pages.iter().map(|hint| (Affinity::Linked, hint));
            pages.chain(hints.visits.iter().map(|hint| (Affinity::Told, hint)))
        });
        for (affinity, hint) in all {
            let keys: Vec<&[u8]> = hint.objects.iter().map(|object| self.key(*object)).collect();
            volume.hint(affinity, &keys);
        }
        let source = source();
        let mut stored = HashSet::new();
        for request in self.past {
            let Some(length) = self.lengths[request.object as usize] else { continue };
            if stored.insert(request.object) || request.act == Act::Replace {
                let length = self.length_of(request, length);
                let directory = hints.map_or(0, |_| self.directory(request.object));
                let hints = Hints { directory, links: &[] };
                volume.put(self.key(request.object), b"", content(&source, length), hints, Class::Cache)?;
            }
        }
        drop(volume);
        Ok(device)
    }

    fn on_disk(&self, device: Arc<dyn Device>, real: &Rotating<MemoryDevice>, memory_bytes: usize) -> Result<Took> {
        let options = Options { buffer_bytes: memory_bytes, packer: Packer::Caller, ..Options::default() };
        let volume = Volume::open_on(device, options)?;
        let source = source();
        let (mut clock, mut replaced) = (Duration::ZERO, 0);
        for request in &self.future {
            let key = self.key(request.object);
            if request.act == Act::Replace {
                let length = self.length_of(request, 0);
                volume.put(key, b"", content(&source, length), Hints::default(), Class::Cache)?;
                replaced += 1;
                // What waits to be packed is memory that the others do not have.
                if replaced % REPLACED_AT_ONCE == 0 {
                    volume.checkpoint()?;
                }
                continue;
            }
            let before = real.clock();
            volume.get(key)?.with_context(|| format!("{} is missing", String::from_utf8_lossy(key)))?;
            clock += real.clock() - before;
        }
        let stats = volume.stats();
        ensure!(stats.misses == 0 && stats.damaged == 0, "objects were lost");
        let reads = stats.object_reads + stats.neighbour_reads;
        Ok(Took {
            reads: reads as f64,
            from_memory: stats.memory_reads as f64 / (stats.memory_reads + reads) as f64,
            disk: clock,
        })
    }

    fn oldest_goes(&self, memory_bytes: usize) -> f64 {
        let mut memory = OldestGoes::new(memory_bytes);
        let mut lengths = self.lengths.clone();
        self.past.iter().filter(|request| request.act == Act::Replace).for_each(|request| {
            let length = &mut lengths[request.object as usize];
            *length = length.map(|length| self.length_of(request, length));
        });
        let mut reads = 0;
        for request in &self.future {
            let length = lengths[request.object as usize].expect("it was stored");
            let length = if request.act == Act::Replace { self.length_of(request, length) } else { length };
            lengths[request.object as usize] = Some(length);
            let held = memory.use_one(request.object, length + self.key(request.object).len() + ENTRY_BYTES);
            reads += u32::from(!held && request.act == Act::Read);
        }
        f64::from(reads)
    }

    fn key(&self, object: u32) -> &[u8] {
        self.trace.names[object as usize].as_bytes()
    }

    /// A number for the folder, not 0.
    fn directory(&self, object: u32) -> u64 {
        let folder = self.trace.folder(object);
        folder.bytes().fold(1469, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)) | 1
    }

    /// The length that an object has when it is put.
    fn length_of(&self, request: &Request, known: usize) -> usize {
        let told = request.bytes.filter(|_| request.act == Act::Replace).map(|bytes| bytes as usize);
        told.unwrap_or(known).min(LENGTH_MAX)
    }
}

fn content(source: &Bytes, length: usize) -> Bytes {
    source.slice(..length)
}

/// Longer objects are files of their own: half a segment.
const LENGTH_MAX: usize = 64 << 10;
const DISK_BYTES: u64 = 250_000_000_000;
const MEMORY_PERCENT: [usize; 3] = [5, 10, 20];
/// Around what was found of the web.
const EXPONENTS: [f64; 3] = [0.6, 0.8, 1.0];
/// How many requests there are for each page of a site.
const REQUESTS_OF_A_PAGE: usize = 60;
const REPLACED_AT_ONCE: u32 = 16;
/// What the store's buffer counts for an object besides its bytes.
const ENTRY_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is told of pages saves reads, and nobody reads what the second half does not ask for. Method: a small
    /// site; all is counted by the model, so nothing depends on luck.
    #[test]
    fn what_is_told_saves_reads() {
        let site = Site::new(SiteShape { pages: 60, seed: 1 });
        let clients = Clients { count: 4, exponent: 0.8, replaced: 0.01, seed: 1 };
        let trace = views(&site, clients, 6000);
        let replayed = Replayed::new(&trace);
        let outcome = replayed.replay(replayed.bytes / 5).unwrap();
        assert!(outcome.told.reads < outcome.append.reads, "{outcome:?}");
        assert!(outcome.told.reads < 0.7 * outcome.oldest_goes_reads, "{outcome:?}");
        assert!(outcome.oldest_goes_reads <= replayed.reads() as f64);
        assert!((0.0..1.0).contains(&outcome.told.from_memory));
    }

    #[test]
    fn nothing_is_read_when_memory_holds_all_but_once() {
        let site = Site::new(SiteShape { pages: 20, seed: 1 });
        let trace = views(&site, Clients { count: 4, exponent: 0.8, replaced: 0.0, seed: 1 }, 3000);
        let replayed = Replayed::new(&trace);
        let wanted: HashSet<u32> = replayed.future.iter().map(|request| request.object).collect();
        let outcome = replayed.replay(64 << 20).unwrap();
        assert_eq!(outcome.oldest_goes_reads, wanted.len() as f64);
        assert!(outcome.alone.reads <= wanted.len() as f64 && outcome.told.reads < wanted.len() as f64 / 4.0);
    }
}
