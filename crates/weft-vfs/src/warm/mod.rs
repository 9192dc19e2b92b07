//! Fetching trees ahead, for `weft warm`: first a walk that lists and fetches nothing, then a forecast, then the files.
//!
//! All of it is on behalf of the user who asked, by the ways that a user's own reads take: versions, checks, logins,
//! classes and bounds hold. Unlike a user's own reads it keeps the rules that a source has for programs which go through
//! it, and its pace. One future does the work; dropping it ends the work, and what is complete stays.

mod bring;
mod forecast;
mod lanes;
mod pace;
mod work;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use weft_remote::{Caller, Name, Rules};

pub use self::forecast::Forecast;
use self::lanes::Lanes;
use self::pace::{Pace, Paces};
use self::work::Work;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// Which files of a tree are wanted. Paths are relative to the path that was asked for, with `/` between names.
pub trait Choice: Send + Sync {
    /// Whether this file is.
    fn takes(&self, below: &[u8]) -> bool;

    /// Whether there may be such files below this directory.
    fn enters(&self, below: &[u8]) -> bool;
}

/// All files.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl Choice for Everything {
    fn takes(&self, _below: &[u8]) -> bool {
        true
    }

    fn enters(&self, _below: &[u8]) -> bool {
        true
    }
}

/// What is to be fetched ahead, and how.
#[derive(Clone)]
pub struct WarmRequest {
    /// Files, and directories with what is below them.
    pub paths: Vec<Vec<Name>>,
    /// Levels of directories below those; all where nothing is said.
    pub depth: Option<u32>,
    /// Which files.
    pub choice: Arc<dyn Choice>,
    /// Most bytes.
    pub max: Option<u64>,
    /// Pins the paths as well.
    pub pin: bool,
    /// Ends with the forecast.
    pub dry_run: bool,
    /// Begins although it does not fit, and goes on as far as it does.
    pub force: bool,
    /// Whether the sources' rules count.
    pub rules: Rules,
    /// Files and listings under way at a time, at most [`WarmRequest::JOBS_MAX`].
    pub jobs: usize,
    /// Least time between two requests, of all sources together.
    pub pause: Duration,
}

impl WarmRequest {
    /// Most warmings of one mount at a time.
    pub const COUNT_MAX: usize = 8;

    /// Most jobs.
    pub const JOBS_MAX: usize = 64;
}

/// What happens while a tree is fetched ahead.
#[derive(Clone, Debug)]
pub enum WarmEvent {
    /// Listing; so many directories and files so far.
    Walking {
        /// Directories.
        directories: u64,
        /// Files.
        files: u64,
    },
    /// Something about a source.
    Note(String),
    /// The source's rules do not allow it.
    Forbidden {
        /// What.
        path: Vec<Name>,
        /// Which rule.
        why: String,
    },
    /// It did not come.
    Failed {
        /// What.
        path: Vec<Name>,
        /// Why.
        why: String,
        /// What that was, where it was an error.
        error: Option<VfsError>,
        /// So many others are not tried for the same cause.
        others: u64,
    },
    /// What it would bring. The end of a dry run, and where it does not fit.
    Forecast(Forecast),
    /// A file is here.
    File {
        /// Which.
        path: Vec<Name>,
        /// How.
        came: Came,
        /// Bytes that came for it.
        bytes: u64,
    },
    /// How far it is.
    Progress(Progress),
    /// The last one.
    Done(Progress),
}

/// How a file came to be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was here, and is trusted.
    Held,
    /// It was here, and its source was asked.
    Confirmed,
    /// It was fetched, or what was missing of it.
    Fetched,
}

/// How far a warming is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that are to be here.
    pub files: u64,
    /// Files that are.
    pub files_done: u64,
    /// Of those, files that had to be fetched.
    pub fetched: u64,
    /// Bytes that were missing, as far as known.
    pub bytes: u64,
    /// Bytes that came.
    pub bytes_done: u64,
    /// Paths that failed.
    pub failed: u64,
    /// Paths that the sources' rules do not allow.
    pub forbidden: u64,
    /// The path that was begun last.
    pub current: String,
}

/// A warming under way, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warming {
    /// For whom.
    pub uid: u32,
    /// The first path that was asked for, and how many others.
    pub path: String,
    /// Other paths.
    pub others: usize,
    /// How far it is.
    pub progress: Progress,
}

/// All warmings of a mount.
#[derive(Default)]
pub(crate) struct Warms {
    paces: Paces,
    /// Held for one look or one change.
    running: Mutex<Vec<Arc<Run>>>,
}

/// The counters of one.
#[derive(Default)]
struct Run {
    uid: u32,
    path: String,
    others: usize,
    directories: AtomicU64,
    files: AtomicU64,
    files_done: AtomicU64,
    fetched: AtomicU64,
    bytes: AtomicU64,
    bytes_done: AtomicU64,
    failed: AtomicU64,
    forbidden: AtomicU64,
    /// Whether the walk before the forecast is over.
    walked: AtomicBool,
    /// Whether it was told that there are too many files.
    overflowed: AtomicBool,
    /// Held for one look.
    current: Mutex<String>,
}

impl Run {
    fn progress(&self) -> Progress {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress {
            files: value(&self.files),
            files_done: value(&self.files_done),
            fetched: value(&self.fetched),
            bytes: value(&self.bytes),
            bytes_done: value(&self.bytes_done),
            failed: value(&self.failed),
            forbidden: value(&self.forbidden),
            current: self.current.lock().clone(),
        }
    }
}

/// One warming at work.
struct Warm {
    vfs: Arc<Vfs>,
    caller: Caller,
    request: WarmRequest,
    run: Arc<Run>,
    tell: mpsc::Sender<WarmEvent>,
    /// The pace of all sources together.
    pace: Pace,
    /// The sources of which people were told something; held for one look.
    noted: Mutex<HashSet<String>>,
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.vfs.warms.running.lock().retain(|run| !Arc::ptr_eq(run, &self.run));
    }
}

impl Vfs {
    /// The warmings under way.
    pub fn warmings(&self) -> Vec<Warming> {
        let running = self.warms.running.lock();
        let warming = |run: &Arc<Run>| Warming {
            uid: run.uid,
            path: run.path.clone(),
            others: run.others,
            progress: run.progress(),
        };
        running.iter().map(warming).collect()
    }

    /// Fetches trees ahead on behalf of a user, and tells what happens. What is told first is not lost while nobody
    /// takes it: the work waits.
    ///
    /// # Errors
    /// When there are [`WarmRequest::COUNT_MAX`] already, or the store cannot be read. What goes wrong with single paths is told.
    ///
    /// # Cancel safety
    /// Dropping the future ends the work; a body on its way stops within a few MiB, and what came of it stays where it
    /// can be taken up again.
    pub async fn warm(
        self: Arc<Self>,
        request: WarmRequest,
        caller: Caller,
        tell: mpsc::Sender<WarmEvent>,
    ) -> Result<()> {
        let path = request.paths.first().map(|path| text(path)).unwrap_or_default();
        let others = request.paths.len().saturating_sub(1);
        let run = Arc::new(Run { uid: caller.uid, path, others, ..Run::default() });
        {
            let mut running = self.warms.running.lock();
            if running.len() >= WarmRequest::COUNT_MAX {
                let detail = format!("{} warmings are under way; wait for one or end it", WarmRequest::COUNT_MAX);
                return Err(weft_remote::RemoteError::Busy { detail, retry_after: None }.into());
            }
            running.push(run.clone());
        }
        let warm = Warm { vfs: self, caller, request, run, tell, pace: Pace::new(0), noted: Mutex::default() };
        let mut ticks = tokio::time::interval(TICK);
        let mut work = std::pin::pin!(warm.go());
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return outcome,
                _ = ticks.tick() => {
                    // A reader that is slow has enough to read.
                    let walking = !warm.run.walked.load(Ordering::Relaxed);
                    let _ = warm.tell.try_send(if walking { warm.walking() } else { WarmEvent::Progress(warm.run.progress()) });
                }
            }
        }
    }
}

impl Warm {
    async fn go(&self) -> Result<()> {
        let mut lanes = Lanes::default();
        for (root, path) in self.request.paths.iter().enumerate() {
            lanes.push(lane_of(path), Work::Root { root });
        }
        let lanes = self.drain(lanes, Phase::Walk).await?;
        let pin = self.request.pin;
        let forecast = self.vfs.forecast(lanes.files(), self.caller, pin, self.request.max).await?;
        let forecast = Forecast { directories: self.run.directories.load(Ordering::Relaxed), ..forecast };
        self.run.files.store(forecast.files, Ordering::Relaxed);
        self.run.bytes.store(forecast.bytes, Ordering::Relaxed);
        self.run.walked.store(true, Ordering::Relaxed);
        let fits = forecast.misfits.is_empty();
        self.tell(WarmEvent::Forecast(forecast)).await;
        if !self.request.dry_run && (fits || self.request.force) {
            if pin {
                self.pin().await;
            }
            self.drain(lanes, Phase::Fetch).await?;
        }
        self.tell(WarmEvent::Done(self.run.progress())).await;
        Ok(())
    }

    async fn pin(&self) {
        for path in &self.request.paths {
            match self.vfs.pin(path) {
                // What could not be found was told already.
                Ok(_) | Err(VfsError::NotFound) => {}
                Err(error) => self.failed(path.clone(), error, 0).await,
            }
        }
    }

    fn walking(&self) -> WarmEvent {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WarmEvent::Walking { directories: value(&self.run.directories), files: value(&self.run.files) }
    }

    async fn tell(&self, event: WarmEvent) {
        // Nobody hears it: then this future is about to be dropped.
        let _ = self.tell.send(event).await;
    }

    async fn failed(&self, path: Vec<Name>, error: VfsError, others: u64) {
        let why = error.to_string();
        self.missed(path, why, Some(error), others).await;
    }

    async fn missed(&self, path: Vec<Name>, why: String, error: Option<VfsError>, others: u64) {
        self.run.failed.fetch_add(1 + others, Ordering::Relaxed);
        self.tell(WarmEvent::Failed { path, why, error, others }).await;
    }

    async fn forbidden(&self, path: Vec<Name>, why: String) {
        self.run.forbidden.fetch_add(1, Ordering::Relaxed);
        self.tell(WarmEvent::Forbidden { path, why }).await;
    }
}

/// What is done with files that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// They are remembered.
    Walk,
    /// They are fetched.
    Fetch,
}

/// Paths that begin so share a source, as far as can be told before anybody is asked.
fn lane_of(path: &[Name]) -> Vec<Name> {
    path.iter().take(2).cloned().collect()
}

fn text(path: &[Name]) -> String {
    path.iter().map(Name::to_string).collect::<Vec<_>>().join("/")
}

/// How often progress is told.
const TICK: Duration = Duration::from_millis(500);
