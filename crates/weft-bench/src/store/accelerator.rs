//! A web server on a disk that turns, with little memory: nginx on ext4, and nginx on weft's mount of the same tree,
//! whose cache lies on the same ext4 on the same disk.
//!
//! The tree is written page by page, the best that ext4 can have. weft is told the log of earlier views (`weft group`),
//! and reads each file once in the order of these; that is all before the first round. In a round each side begins with
//! nothing in memory, in a memory group of its own with nginx and, where it takes part, weft's daemon, and sees the same
//! views.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use weft_log::Trace;

use super::Scale;
use super::disk::Disk;
use super::pages::source;
use crate::block::{BlockDisk, Mounted as FileSystem, Pace};
use crate::book::Book;
use crate::contender::Mounted;
use crate::memory_group::MemoryGroup;
use crate::page_server::PageServer;
use crate::process;
use crate::report::{Bound, Row, Section, Unit};
use crate::server;
use crate::viewers::{Asked, Seen, look, page_views};
use crate::workload::{Clients, Shape as SiteShape, Site, views};

/// What nginx reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tree {
    /// The tree itself.
    Ext4,
    /// weft's mount.
    Weft,
    /// weft's mount with `no_open`.
    Unopened,
}

/// What is in memory when the clock starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: everybody has just started. weft has to look at the tree before it trusts what it holds of a file.
    Started,
    /// What fits of what earlier views left. weft has looked at each file of the tree since it started.
    Running,
}

/// What is written down of a tree in a state.
struct Words {
    rate: &'static str,
    p50: &'static str,
    p95: &'static str,
    reads: &'static str,
    index: &'static str,
    writes: &'static str,
    daemon: &'static str,
}

impl Tree {
    fn who(self) -> &'static str {
        if self == Tree::Ext4 { ON_EXT4 } else { "weft" }
    }

    fn options(self) -> &'static [&'static str] {
        if self == Tree::Unopened { &["-o", "no_open"] } else { &[] }
    }

    fn shown(self) -> &'static str {
        match self {
            Tree::Ext4 => "nginx on ext4",
            Tree::Weft => "nginx on weft",
            Tree::Unopened => "nginx on weft with `no_open`",
        }
    }

    fn words(self, state: State) -> Words {
        // In the words of the book the state comes first.
        let [rate, p50, p95, reads, index, writes, daemon] = match (state, self) {
            (State::Started, Tree::Ext4 | Tree::Weft) => ["rate", "p50", "p95", "reads", "index", "writes", "daemon"],
            (State::Started, Tree::Unopened) => {
                ["n rate", "n p50", "n p95", "n reads", "n index", "n writes", "n daemon"]
            }
            (State::Running, Tree::Ext4 | Tree::Weft) => {
                ["r", "r p50", "r p95", "r reads", "r index", "r writes", "r daemon"]
            }
            (State::Running, Tree::Unopened) => {
                ["rn", "rn p50", "rn p95", "rn reads", "rn index", "rn writes", "rn daemon"]
            }
        };
        Words { rate, p50, p95, reads, index, writes, daemon }
    }
}

impl State {
    fn shown(self) -> &'static str {
        match self {
            State::Started => "all just started",
            State::Running => "running for a while",
        }
    }
}

/// Where it is measured.
struct Stand {
    weft: PathBuf,
    own: PathBuf,
    site: Site,
    source: Bytes,
    disk: BlockDisk,
    memory_bytes: u64,
    /// Length of the index of weft's cache.
    index_bytes: u64,
}

/// Measures the table; `None` where something that it takes is not there, with the reason told.
pub fn measure(dir: &Path, weft: Option<&Path>, scale: Scale) -> Result<Option<Section>> {
    if let Some(why) = missing(weft) {
        eprintln!("skipped: nginx on a disk that turns: {why}");
        return Ok(None);
    }
    let weft = weft.context("a program")?.canonicalize()?;
    let own = dir.join("accelerator");
    ["disk", "ext4", "mount", "nginx"].iter().try_for_each(|name| std::fs::create_dir_all(own.join(name)))?;
    let own = own.canonicalize()?;
    let site = Site::new(SiteShape { pages: scale.pages_served, seed: 23 });
    let bytes: u64 = site.lengths.iter().map(|length| u64::from(*length)).sum();
    let disk = BlockDisk::new(&own.join("disk"), DISK_BYTES, DISK_BYTES)?;
    let mut stand =
        Stand { weft, own, site, source: source(), disk, memory_bytes: bytes / MEMORY_PART, index_bytes: 0 };
    stand.fill()?;
    let mut book = Book::default();
    for round in 0..scale.rounds_served {
        let (before, measured) = stand.views_of(scale, round);
        let mut order = [Tree::Ext4, Tree::Unopened, Tree::Weft];
        order.rotate_left(round % 3);
        for state in [State::Started, State::Running] {
            for tree in order {
                eprintln!("measuring: {}, {}, round {}", tree.shown(), state.shown(), round + 1);
                stand.serve(tree, state, (&before, &measured), &mut book)?;
            }
        }
    }
    let notes = stand.notes(scale, bytes);
    Ok(Some(Section { title: TITLE.to_owned(), rows: rows(&book), notes }))
}

fn missing(weft: Option<&Path>) -> Option<String> {
    if let Some(why) = BlockDisk::missing().or_else(MemoryGroup::missing) {
        return Some(why);
    }
    match (weft, server::nginx()) {
        (None, _) => Some("name the program with --weft".to_owned()),
        (_, Err(error)) => Some(error.to_string()),
        _ => None,
    }
}

fn rows(book: &Book) -> Vec<Row> {
    let mut rows = Vec::new();
    for state in [State::Running, State::Started] {
        for tree in [Tree::Weft, Tree::Unopened] {
            let (ours, theirs) = (tree.words(state), Tree::Ext4.words(state));
            let how = match tree {
                Tree::Unopened => ", `no_open`",
                _ => "",
            };
            let title = |what: &str| format!("{what}; {}{how}", state.shown());
            let mut add = |what: &str, unit, ours, theirs, bound| {
                rows.extend(book.compare(&title(what), unit, ours, (ON_EXT4, theirs), bound));
            };
            add("URLs", Unit::PerSecond, ours.rate, theirs.rate, Some(Bound::AtLeast(RATE_TARGET)));
            add("time of a page, median", Unit::Seconds, ours.p50, theirs.p50, None);
            add("time of a page, 95 %", Unit::Seconds, ours.p95, theirs.p95, None);
            add("reads of the disk for each URL", Unit::Each, ours.reads, theirs.reads, None);
            rows.extend(book.alone(&title("writes of the disk for each URL"), Unit::Each, ours.writes, None));
            rows.extend(book.alone(&title("reads of the index for each URL"), Unit::Each, ours.index, None));
            rows.extend(book.alone(&title("memory of weft's daemon"), Unit::Megabytes, ours.daemon, None));
        }
    }
    rows
}

impl Stand {
    fn notes(&self, scale: Scale, bytes: u64) -> Vec<String> {
        let about = format!(
            "{} objects, {} MB, in {} pages; {CLIENTS} clients look at pages whose popularity follows Zipf {EXPONENT}, \
             a connection for each view, {} URLs in each of {} rounds. The disk: {} GiB, a model of one that turns, as where it is a block device; on it one \
             ext4 with the tree, written page by page, and weft's cache. weft was told a log of {} earlier requests \
             (`weft group`) and read each file once in the order of that log. nginx: two processes, sendfile, \
             no threads, no cache of open files.",
            self.site.names.len(),
            bytes / 1_000_000,
            self.site.pages.len(),
            scale.urls_served,
            scale.rounds_served,
            DISK_BYTES >> 30,
            scale.pages_served * LOGGED_OF_A_PAGE,
        );
        let memory = format!(
            "Memory: a cgroup of {} MB, a part in {MEMORY_PART} of the bytes of the site, for nginx and for weft's \
             daemon, where there is one, together, with all that the system keeps of files for them; the disk's own \
             process is outside.",
            self.memory_bytes / 1_000_000
        );
        let states = format!(
            "All just started: caches dropped, then a new daemon, whose leases of the tree ended with the one before: it \
             looks at each file of the tree, on the same disk, when that is opened first, and reads ahead the index of \
             its cache meanwhile. Running for a while: after that a process in the group opens each file, and {} other \
             URLs are asked for before the clock starts, so that memory is full; on ext4 as well.",
            self.urls_before()
        );
        let index = format!(
            "weft's cache has an index (index.redb: what is known of each file) of {} MB, read in pieces of 4 KiB, \
             where what is known of a directory's files stands together; at a start it is read in one sweep.",
            self.index_bytes / 1_000_000
        );
        let paper = "The paper (a proxy's cache, simulated disk of 2003): up to 2.6 times.".to_owned();
        vec![about, memory, states, index, paper]
    }

    /// The views before those that are measured, and these.
    fn views_of(&self, scale: Scale, round: usize) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
        // Pages are as popular as they were in the log: the same seed says which, so one trace is cut.
        let logged = self.site.pages.len() * LOGGED_OF_A_PAGE;
        let before = self.urls_before();
        let start = logged + round * (before + scale.urls_served);
        let mut trace = views(&self.site, LOOKING, start + before + scale.urls_served);
        trace.requests.drain(..start);
        let measured = Trace { names: Vec::new(), requests: trace.requests.split_off(before) };
        (page_views(&trace), page_views(&measured))
    }

    /// Asked for before the clock starts: more bytes than there is memory.
    fn urls_before(&self) -> usize {
        self.site.pages.len() * BEFORE_OF_A_PAGE
    }

    fn top(&self) -> PathBuf {
        // Below a folder: those at the top are spread over the disk on purpose (Documentation/filesystems/ext4).
        self.own.join("ext4/site")
    }

    fn cache(&self) -> PathBuf {
        self.own.join("ext4/cache")
    }

    fn index(&self) -> PathBuf {
        self.cache().join("index.redb")
    }

    fn mount_disk(&self) -> Result<FileSystem> {
        FileSystem::new("ext4", &self.disk.device, &self.own.join("ext4"))
    }

    /// Where it is is written down: whoever has to clean up after this program was killed ends who is in it.
    fn group(&self, bytes: u64) -> Result<MemoryGroup> {
        let group = MemoryGroup::new(bytes)?;
        let mut list = File::options().create(true).append(true).open(self.own.join("groups"))?;
        writeln!(list, "{}", group.dir().display())?;
        Ok(group)
    }

    fn mount(&self, group: &MemoryGroup, tree: Tree) -> Result<Mounted> {
        let (top, place, cache) = (self.top(), self.own.join("mount"), self.cache());
        Mounted::of_directory_in(group, &self.weft, [&top, &place, &cache], tree.options())
    }

    /// Writes the tree, and has weft read it.
    fn fill(&mut self) -> Result<()> {
        eprintln!("measuring: filling the disk");
        let mut command = Command::new("mkfs.ext4");
        command.args(["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]);
        process::output(command.arg(&self.disk.device))?;
        let disk = self.mount_disk()?;
        for object in self.site.pages.iter().flatten() {
            let path = self.top().join(&self.site.names[*object as usize][1..]);
            if !path.exists() {
                std::fs::create_dir_all(path.parent().context("files lie in folders")?)?;
                std::fs::write(&path, &self.source[..self.site.lengths[*object as usize] as usize])?;
            }
        }
        let logged = self.site.pages.len() * LOGGED_OF_A_PAGE;
        let trace = views(&self.site, LOOKING, logged);
        let log = self.own.join("access.log");
        std::fs::write(&log, self.as_log(&trace)?)?;
        let group = self.group(UNLIMITED)?;
        let mounted = self.mount(&group, Tree::Weft)?;
        self.open_all(&mounted.root)?;
        let said = process::output(Command::new(&self.weft).arg("group").arg("--from").arg(&log).arg(&mounted.root))?;
        eprintln!("{}", said.trim());
        let mut seen = HashSet::new();
        let asked = trace.requests.iter().map(|request| request.object);
        let rest = self.site.pages.iter().flatten().copied();
        for object in asked.chain(rest).filter(|object| seen.insert(*object)) {
            let content = std::fs::read(self.path(&mounted.root, object))?;
            let length = self.site.lengths[object as usize] as usize;
            ensure!(content == self.source[..length], "object {object}: not the bytes that it has");
        }
        mounted.unmount()?;
        group.end()?;
        self.index_bytes = std::fs::metadata(self.index())?.len();
        self.disk.watch(&self.index())?;
        disk.end()
    }

    fn path(&self, root: &Path, object: u32) -> PathBuf {
        root.join(&self.site.names[object as usize][1..])
    }

    /// Opens each file and reads nothing.
    fn open_all(&self, root: &Path) -> Result<()> {
        let all = 0..self.site.names.len();
        // Of the shared objects some are on no page.
        let mut paths = all.map(|object| root.join(&self.site.names[object][1..])).filter(|path| path.exists());
        paths.try_for_each(|path| File::open(&path).map(drop).with_context(|| path.display().to_string()))
    }

    /// The trace as a web server would have it in its log.
    fn as_log(&self, trace: &Trace) -> Result<String> {
        let mut text = String::new();
        for request in &trace.requests {
            let (hour, minute, second) = (request.time_s / 3600 % 24, request.time_s / 60 % 60, request.time_s % 60);
            let name = &self.site.names[request.object as usize];
            let referer = request.referer.map_or_else(
                || "-".to_owned(),
                |page| format!("http://site.example{}", self.site.names[page as usize]),
            );
            writeln!(
                text,
                "client-{} - - [01/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET {name} HTTP/1.1\" 200 {} \
                 \"{referer}\" \"-\"",
                request.client,
                request.bytes.unwrap_or(0)
            )?;
        }
        Ok(text)
    }

    /// One side's turn.
    fn serve(
        &mut self,
        tree: Tree,
        state: State,
        (before, measured): (&[Vec<u32>], &[Vec<u32>]),
        book: &mut Book,
    ) -> Result<()> {
        let disk = self.mount_disk()?;
        let group = self.group(self.memory_bytes)?;
        Disk::below(&self.own)?.forget()?;
        // A daemon measures the disk when it starts, and reads ahead what it will need.
        self.disk.set_pace(Pace::Turning)?;
        let mounted = match tree {
            Tree::Ext4 => None,
            Tree::Weft | Tree::Unopened => Some(self.mount(&group, tree)?),
        };
        let root = mounted.as_ref().map_or_else(|| self.top(), |mounted| mounted.root.clone());
        if state == State::Running {
            self.disk.set_pace(Pace::Free)?;
            open_all_in(&group, &root)?;
        }
        let server = PageServer::start(&group, &self.own.join("nginx"), &root)?;
        let before = if state == State::Running { before } else { &[] };
        let seen = self.look(&server.authority, before, measured)?;
        let requests = self.disk.requests()?;
        self.disk.set_pace(Pace::Free)?;
        server.end()?;
        let (words, who, urls) = (tree.words(state), tree.who(), seen.urls as f64);
        if let Some(mounted) = mounted {
            book.note(who, words.daemon, process::memory_bytes(mounted.pid)? as f64 / 1e6);
            book.note(who, words.index, requests.watched_reads as f64 / urls);
            mounted.unmount()?;
        }
        group.end()?;
        disk.end()?;
        book.note(who, words.rate, urls / seen.took_s);
        book.note(who, words.reads, requests.reads as f64 / urls);
        book.note(who, words.p50, seen.pages_s[seen.pages_s.len() / 2]);
        book.note(who, words.p95, seen.pages_s[seen.pages_s.len() * 95 / 100]);
        book.note(who, words.writes, requests.writes as f64 / urls);
        eprintln!(
            "  {:.0} URLs/s, {:.2} reads and {:.2} writes for each",
            urls / seen.took_s,
            requests.reads as f64 / urls,
            requests.writes as f64 / urls
        );
        Ok(())
    }

    /// What is looked at before is no part of the figures; the last of it is at the pace of the others, for weft
    /// measures what reads cost.
    fn look(&mut self, authority: &str, before: &[Vec<u32>], measured: &[Vec<u32>]) -> Result<Seen> {
        let asked = Asked { authority, site: &self.site, source: &self.source };
        let (fast, slow) = before.split_at(before.len().saturating_sub(VIEWS_AT_PACE));
        look(asked, fast, CLIENTS as usize)?;
        self.disk.set_pace(Pace::Turning)?;
        look(asked, slow, CLIENTS as usize)?;
        self.disk.requests()?;
        look(asked, measured, CLIENTS as usize)
    }
}

/// Has a process in a group open each file, and read nothing.
fn open_all_in(group: &MemoryGroup, root: &Path) -> Result<()> {
    let mut command = group.command(Path::new("sh"));
    command.args(["-c", "find \"$0\" -type f -print0 | xargs -0 -n 500 head -q -c 0"]).arg(root);
    process::output(&mut command).map(drop)
}

const TITLE: &str = "nginx on a disk that turns, with little memory";
const ON_EXT4: &str = "ext4";
/// The project's; the paper has up to 2.6.
const RATE_TARGET: f64 = 1.6;
/// As good as no limit.
const UNLIMITED: u64 = 1 << 40;
const DISK_BYTES: u64 = 4 << 30;
/// Memory is this part of the bytes of the site.
const MEMORY_PART: u64 = 4;
const CLIENTS: u32 = 8;
/// In the middle of what was found of the web.
const EXPONENT: f64 = 0.8;
/// How many requests of the log there are for each page.
const LOGGED_OF_A_PAGE: usize = 60;
/// How many requests there are for each page before the clock starts, where there are any.
const BEFORE_OF_A_PAGE: usize = 4;
/// The last views of these.
const VIEWS_AT_PACE: usize = 30;
const LOOKING: Clients = Clients { count: CLIENTS, exponent: EXPONENT, replaced: 0.0, seed: 23 };
