//! One piece of work: a path to be found, a directory to be listed, a file to be fetched.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use weft_remote::{Call, Crawl, FileKind, Leave, Name, RemoteError, Rules, SourceState};
use weft_store::NodeId;

use super::bring::Brought;
use super::lanes::Lanes;
use super::{Came, Phase, Warm, WarmEvent, WarmRequest, text};
use crate::inode::Inode;
use crate::reach::{first_of, may_lead_on};
use crate::{Result, VfsError};

/// What is to be done.
pub(super) enum Work {
    /// This one of the paths that were asked for.
    Root { root: usize },
    /// A directory, so many levels below such a path.
    Directory { node: NodeId, below: Vec<u8>, level: u32 },
    /// A file. One that is not wanted is looked at because it may turn out to be a directory.
    File { node: NodeId, below: Vec<u8>, level: u32, wanted: bool },
}

/// What came of it.
#[derive(Default)]
struct Outcome {
    found: Vec<Work>,
    /// How many of its lane may be under way.
    limit: Option<usize>,
    /// Nothing else of its lane need be tried.
    stop: Option<Stop>,
}

struct Stop {
    path: Vec<Name>,
    why: String,
    error: Option<VfsError>,
}

/// Whether something may be asked for.
enum May {
    Ask(Crawl),
    /// It was told that it may not be.
    Not,
}

impl Warm {
    /// Does what waits, and what is found by that, until nothing is left but files in a walk.
    pub(super) async fn drain(&self, mut lanes: Lanes, phase: Phase) -> Result<Lanes> {
        let jobs = self.request.jobs.clamp(1, WarmRequest::JOBS_MAX);
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < jobs
                && let Some((lane, work)) = lanes.take(phase)
            {
                under_way.push(async move { (lane, Box::pin(self.one(work)).await) });
            }
            let Some((lane, outcome)) = under_way.next().await else { return Ok(lanes) };
            let outcome: Outcome = outcome;
            lanes.done(lane, outcome.limit);
            for work in outcome.found {
                if self.run.files.load(Ordering::Relaxed) >= FILES_MAX {
                    if !self.run.overflowed.swap(true, Ordering::Relaxed) {
                        let note = format!("there are more than {FILES_MAX} files; the rest is left out");
                        self.tell(WarmEvent::Note(note)).await;
                    }
                } else if lanes.found(lane, work) {
                    self.run.files.fetch_add(1, Ordering::Relaxed);
                }
            }
            if let Some(Stop { path, why, error }) = outcome.stop {
                self.missed(path, why, error, lanes.give_up(lane)).await;
            }
        }
    }

    /// Does one piece of work. What goes wrong with it is told.
    async fn one(&self, work: Work) -> Outcome {
        let mut outcome = Outcome::default();
        let (node, done) = match work {
            Work::Root { root } => {
                let path = &self.request.paths[root];
                if let Err(error) = self.root(path, &mut outcome).await {
                    let node = self.vfs.find(&path[..path.len().min(2)]).ok();
                    self.tell_failure(path.clone(), node, error, &mut outcome).await;
                }
                return outcome;
            }
            Work::Directory { node, below, level } => (node, self.directory(node, &below, level, &mut outcome).await),
            Work::File { node, below, level, wanted } => {
                (node, Box::pin(self.file(node, below, level, wanted, &mut outcome)).await)
            }
        };
        if let Err(error) = done {
            let path = self.vfs.path_of(node).unwrap_or_default();
            self.tell_failure(path, Some(node), error, &mut outcome).await;
        }
        outcome
    }

    /// Tells a failure; one that all the others of its lane would meet ends the lane.
    async fn tell_failure(&self, path: Vec<Name>, node: Option<NodeId>, error: VfsError, outcome: &mut Outcome) {
        if error.is_full() {
            let why = format!("no space left: {error}");
            outcome.stop = Some(Stop { path, why, error: Some(error) });
        } else if error.is_silence() && node.is_some_and(|node| self.is_away(node)) {
            let why = error.to_string();
            outcome.stop = Some(Stop { path, why, error: Some(error) });
        } else {
            self.failed(path, error, 0).await;
        }
    }

    fn is_away(&self, node: NodeId) -> bool {
        let Ok(inode) = self.vfs.inode(node) else { return false };
        let record = inode.record();
        let source = self.vfs.remote(record.binding).ok().and_then(|remote| remote.source(&record.file));
        source.is_some_and(|source| source.state == SourceState::Disconnected)
    }

    async fn root(&self, path: &[Name], outcome: &mut Outcome) -> Result<()> {
        let node = match self.vfs.find(path) {
            Err(VfsError::NotFound) => match self.look_up(path, outcome).await? {
                Some(node) => node,
                None => return Ok(()),
            },
            found => found?,
        };
        if self.vfs.namespace.is_own(node) {
            self.forbidden(path.to_vec(), "the whole mount is not gone through; name a directory in it".into()).await;
            return Ok(());
        }
        let inode = self.vfs.inode(node)?;
        if inode.kind() == FileKind::Directory {
            outcome.found.push(Work::Directory { node: inode.id, below: Vec::new(), level: 0 });
            return Ok(());
        }
        let below = path.last().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        if self.request.choice.takes(&below) {
            outcome.found.push(Work::File { node: inode.id, below: Vec::new(), level: 0, wanted: true });
        }
        Ok(())
    }

    /// Finds a path that is not known, name by name; none where its last name may not be asked for.
    async fn look_up(&self, path: &[Name], outcome: &mut Outcome) -> Result<Option<NodeId>> {
        let mut node = NodeId::ROOT;
        for (depth, name) in path.iter().enumerate() {
            match self.vfs.find(&path[..=depth]) {
                Err(VfsError::NotFound) => {}
                Ok(page) if depth + 1 < path.len() && self.is_file(page)? => {}
                found => {
                    node = found?;
                    continue;
                }
            }
            if self.vfs.namespace.is_own(node) {
                return Err(VfsError::NotFound);
            }
            let dir = self.vfs.inode(node)?;
            // What leads to a path is asked for as by whoever reads that path.
            let rules = if depth + 1 == path.len() { self.request.rules } else { Rules::Ignored };
            let names = &path[depth..];
            let May::Ask(crawl) = self.may(&dir, &names[..1], rules, path).await? else { return Ok(None) };
            outcome.limit = Some(crawl.at_once).filter(|_| !crawl.source.is_empty());
            let look = || self.vfs.clone().lookup(self.call(), node, name.as_bytes().to_vec());
            node = match first_of(self.asking(&dir, &crawl, look).await, names) {
                Err(refusal) if may_lead_on(&refusal, names) => {
                    // Now the path itself is asked for.
                    let May::Ask(crawl) = self.may(&dir, names, self.request.rules, path).await? else {
                        return Ok(None);
                    };
                    let reach = || self.vfs.reach(node, names, self.call());
                    self.asking(&dir, &crawl, reach).await?.ok_or(refusal)?
                }
                outcome => outcome?,
            };
        }
        Ok(Some(node))
    }

    fn is_file(&self, node: NodeId) -> Result<bool> {
        Ok(!self.vfs.namespace.is_own(node) && self.vfs.inode(node)?.kind() == FileKind::File)
    }

    async fn directory(&self, node: NodeId, below: &[u8], level: u32, outcome: &mut Outcome) -> Result<()> {
        let inode = self.vfs.inode(node)?;
        let call = self.call();
        let list = || async {
            self.vfs.clone().open_directory(self.call(), node).await?;
            self.vfs.directory_names(node, &self.caller)
        };
        let names = if self.vfs.admits(&inode, &call) && self.vfs.listing_holds(&inode, &self.caller)? {
            list().await?
        } else {
            let path = self.vfs.path_of(node)?;
            *self.run.current.lock() = text(&path);
            let May::Ask(crawl) = self.may(&inode, &[], self.request.rules, &path).await? else { return Ok(()) };
            outcome.limit = Some(crawl.at_once);
            self.asking(&inode, &crawl, list).await?
        };
        self.run.directories.fetch_add(1, Ordering::Relaxed);
        let (choice, deeper) = (&self.request.choice, self.request.depth.is_none_or(|depth| level < depth));
        for name in (0..names.len()).filter_map(|nth| names.get(nth)) {
            let below = if below.is_empty() { name.name.to_vec() } else { [below, b"/", name.name].concat() };
            let node = name.node;
            match name.kind {
                FileKind::Directory if deeper && choice.enters(&below) => {
                    outcome.found.push(Work::Directory { node, below, level: level + 1 });
                }
                FileKind::File if choice.takes(&below) => {
                    outcome.found.push(Work::File { node, below: Vec::new(), level, wanted: true });
                }
                FileKind::Unknown => {
                    let wanted = choice.takes(&below);
                    if wanted || (deeper && choice.enters(&below)) {
                        outcome.found.push(Work::File { node, below, level, wanted });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn file(&self, node: NodeId, below: Vec<u8>, level: u32, wanted: bool, outcome: &mut Outcome) -> Result<()> {
        let inode = self.vfs.inode(node)?;
        let path = self.vfs.path_of(node)?;
        if wanted && self.vfs.is_here(&self.call(), &inode)? {
            self.came(path, Came::Held, 0).await;
            return Ok(());
        }
        if let Some(max) = self.request.max
            && self.run.bytes_done.load(Ordering::Relaxed) >= max
        {
            let why = format!("`--max` allows {max} bytes, and they have come");
            outcome.stop = Some(Stop { path, why, error: None });
            return Ok(());
        }
        *self.run.current.lock() = text(&path);
        let May::Ask(crawl) = self.may(&inode, &[], self.request.rules, &path).await? else { return Ok(()) };
        outcome.limit = Some(crawl.at_once);
        let elsewhere = if wanted {
            let bring = || self.bring(&inode);
            match self.asking(&inode, &crawl, bring).await? {
                Brought::Whole(bytes) => {
                    self.run.fetched.fetch_add(1, Ordering::Relaxed);
                    self.came(path, Came::Fetched, bytes).await;
                    return Ok(());
                }
                Brought::Confirmed => {
                    self.came(path, Came::Confirmed, 0).await;
                    return Ok(());
                }
                Brought::Elsewhere(elsewhere) => {
                    // It was no file.
                    self.run.files.fetch_sub(1, Ordering::Relaxed);
                    self.vfs.inode(elsewhere)?
                }
            }
        } else {
            let call = self.call();
            self.asking(&inode, &crawl, || self.vfs.settle(&call, inode.clone())).await?
        };
        let node = elsewhere.id;
        let deeper = self.request.depth.is_none_or(|depth| level < depth);
        match elsewhere.kind() {
            FileKind::Directory if deeper && self.request.choice.enters(&below) => {
                outcome.found.push(Work::Directory { node, below, level: level + 1 });
            }
            FileKind::File | FileKind::Unknown if wanted => {
                outcome.found.push(Work::File { node, below, level, wanted });
            }
            _ => {}
        }
        Ok(())
    }

    /// Brings a file; one that changes meanwhile, or cannot be taken up again, from its beginning.
    async fn bring(&self, inode: &Arc<Inode>) -> Result<Brought> {
        let mut tries_left = CHANGES_MAX;
        loop {
            tries_left -= 1;
            match self.vfs.bring_whole(self.caller, inode, &self.run.bytes_done).await {
                Err(VfsError::Changed) if tries_left > 0 => {}
                outcome => return outcome,
            }
        }
    }

    async fn came(&self, path: Vec<Name>, came: Came, bytes: u64) {
        self.run.files_done.fetch_add(1, Ordering::Relaxed);
        self.tell(WarmEvent::File { path, came, bytes }).await;
    }

    fn call(&self) -> Call {
        self.vfs.call(self.caller).ahead()
    }

    /// Whether something may be asked for; what may not be is told.
    async fn may(&self, inode: &Inode, below: &[Name], rules: Rules, path: &[Name]) -> Result<May> {
        let remote = self.vfs.remote_of(inode)?.clone();
        let file = inode.record.read().file.clone();
        let mut tries_left = BUSY_TRIES;
        let crawl = loop {
            let call = self.call();
            match self.vfs.ask_for(&call, remote.may_crawl(&call, &file, below, rules)).await {
                Err(error) => match wait_of(&error, BUSY_TRIES - tries_left).filter(|_| tries_left > 0) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => return Err(error),
                },
                Ok(crawl) => break crawl,
            }
            tries_left -= 1;
        };
        if let Some(note) = crawl.note.clone()
            && self.noted.lock().insert(crawl.source.clone())
        {
            self.tell(WarmEvent::Note(note)).await;
        }
        match crawl.leave {
            Leave::Granted => Ok(May::Ask(crawl)),
            Leave::Refused { why } => {
                self.forbidden(path.to_vec(), why).await;
                Ok(May::Not)
            }
        }
    }

    /// Asks at the source's pace, and again when it says to come back later.
    async fn asking<T, Q: Future<Output = Result<T>>>(
        &self,
        inode: &Arc<Inode>,
        crawl: &Crawl,
        question: impl Fn() -> Q,
    ) -> Result<T> {
        let binding = inode.record.read().binding;
        let pace = self.vfs.warms.paces.of(binding, crawl);
        let mut tries = 0;
        loop {
            let _seat = pace.turn(crawl.pause).await;
            self.pace.pause(self.request.pause).await;
            match question().await {
                Err(error) if tries < BUSY_TRIES => match wait_of(&error, tries) {
                    Some(wait) => pace.hold_off(wait),
                    None => return Err(error),
                },
                outcome => return outcome,
            }
            tries += 1;
        }
    }
}

/// How long a source that is busy is left alone: as it says, or longer each time; none when that is too long.
fn wait_of(error: &VfsError, tries: u32) -> Option<Duration> {
    let VfsError::Remote(RemoteError::Busy { retry_after, .. }) = error else { return None };
    let wait = retry_after.unwrap_or(BUSY_PAUSE * 2_u32.saturating_pow(tries));
    (wait <= BUSY_PAUSE_MAX).then_some(wait)
}

/// Most files of one warming.
const FILES_MAX: u64 = 1_000_000;
/// How often a file that changes is begun.
const CHANGES_MAX: u32 = 3;
/// How often a source that is busy is asked again.
const BUSY_TRIES: u32 = 5;
/// First pause before that when it does not say how long.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause that it may ask for.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(600);
