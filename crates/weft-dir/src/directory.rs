//! The directory as a whole, and what all its operations start with.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::fs::OFlags;
use weft_remote::{Entry, Event, FileId, FileKind, Lease, Name, RemoteError, Result, Sameness, Space, Version};

use crate::aside::Aside;
use crate::error::{DirectoryError, failed};
use crate::facts::{Facts, facts};
use crate::hear::Listener;
use crate::news::News;
use crate::options::DirectoryOptions;
use crate::place::{below, parted};
use crate::top::Top;
use crate::watches::Watches;

/// A directory of this machine as a remote. When it is dropped, its events end and nothing is watched any more.
///
/// The directory is the one that is at its path: when that has gone, and another is there, that one is opened.
#[derive(Debug)]
pub struct Directory {
    place: Arc<Place>,
}

/// Where the directory is, and what is open of it.
#[derive(Debug)]
struct Place {
    options: DirectoryOptions,
    news: Arc<News>,
    /// Guards what is open; held for a look or a change.
    open: RwLock<Open>,
    /// When what has gone was last looked for. Held by the one who looks; nobody waits for it.
    looked: Mutex<Instant>,
}

#[derive(Debug)]
struct Open {
    shared: Arc<Shared>,
    /// Hears of changes for as long as it is open.
    _listener: Option<Listener>,
}

/// What calls under way keep.
#[derive(Debug)]
pub(crate) struct Shared {
    pub top: Arc<Top>,
    pub watches: Arc<Watches>,
    pub aside: Aside,
    /// Guards when the figures for `df` were last taken, and what they were.
    space: Mutex<Option<(Instant, Option<Space>)>>,
}

impl Directory {
    /// Opens the directory and begins to listen for changes.
    ///
    /// # Errors
    /// [`DirectoryError`] says what to do about it.
    pub fn open(options: DirectoryOptions) -> std::result::Result<Arc<Directory>, DirectoryError> {
        let news = Arc::new(News::new(options.events_max));
        let open = RwLock::new(Open::begin(&options, &news)?);
        let looked = Mutex::new(Instant::now());
        Ok(Arc::new(Directory { place: Arc::new(Place { options, news, open, looked }) }))
    }

    /// What is open now.
    pub(crate) fn now(&self) -> Arc<Shared> {
        self.place.open.read().shared.clone()
    }

    /// The same; where that has gone, what is there instead.
    pub(crate) async fn ready(&self) -> Arc<Shared> {
        let shared = self.now();
        if shared.watches.table.lock().gone.is_none() {
            return shared;
        }
        let place = self.place.clone();
        // A panic in there has been reported by the panic hook.
        tokio::task::spawn_blocking(move || place.again()).await.unwrap_or(shared)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.place.news.close();
    }
}

impl Place {
    /// Opens what is at the path now, in place of what has gone.
    fn again(&self) -> Arc<Shared> {
        let shared = || self.open.read().shared.clone();
        let Some(mut looked) = self.looked.try_lock() else { return shared() };
        let has_gone = shared().watches.table.lock().gone.is_some();
        if has_gone && looked.elapsed() >= TRY_AGAIN {
            *looked = Instant::now();
            if let Ok(next) = Open::begin(&self.options, &self.news) {
                tracing::info!(path = %self.options.path.display(), "a directory is there again");
                let former = std::mem::replace(&mut *self.open.write(), next);
                drop(former);
                self.news.tell(vec![Event::AllBroken]);
            }
        }
        shared()
    }
}

impl Open {
    fn begin(options: &DirectoryOptions, news: &Arc<News>) -> std::result::Result<Open, DirectoryError> {
        let top = Arc::new(Top::open(&options.path)?);
        let path = options.path.clone();
        if let Some(why) = top.blind {
            tracing::info!(path = %path.display(), why, "leases are short");
        }
        let watches = Arc::new(Watches::new(top.clone(), options.clone(), news.clone()));
        // From now on it is told when the top itself goes.
        watches.watch(b"");
        let listener = Listener::start(watches.clone()).map_err(|source| DirectoryError::Thread { path, source })?;
        let shared = Arc::new(Shared { top, watches, aside: Aside::new(), space: Mutex::new(None) });
        Ok(Open { shared, _listener: listener })
    }
}

impl Shared {
    /// # Errors
    /// `Failed` when the top has gone. That it was moved is told; that it was deleted is seen, for the kernel tells that
    /// of a directory only when nobody holds it any more.
    pub fn usable(&self) -> Result<()> {
        let gone = || self.watches.table.lock().gone;
        // Some file systems of others count no names at all, and asking those could take long.
        let counted = self.top.blind.is_none() && self.top.facts.links > 0;
        if counted && gone().is_none() && facts(self.top.fd()).is_ok_and(|(top, _)| top.links == 0) {
            self.watches.end(TOP_GONE);
        }
        match gone() {
            Some(why) => Err(RemoteError::Failed { detail: format!("{}: {why}", self.top.shown(b"")) }),
            None => Ok(()),
        }
    }

    /// Opens what is at `path` without using it, and says what it is.
    ///
    /// # Errors
    /// `NotFound` for what is not shown too.
    pub fn open(&self, path: &[u8]) -> Result<(OwnedFd, Facts)> {
        let fd = self.top.reach(path, OFlags::PATH).map_err(|errno| self.top.lost(path, errno))?;
        let told = self.facts(path, &fd)?;
        match told.kind {
            Some(_) => Ok((fd, told)),
            None => Err(RemoteError::NotFound {
                detail: format!(
                    "{}: neither file, directory nor link; such things are not shown",
                    self.top.shown(path)
                ),
            }),
        }
    }

    /// What an open file is.
    pub fn facts(&self, path: &[u8], fd: &OwnedFd) -> Result<Facts> {
        match facts(fd.as_fd()) {
            Ok((facts, mount)) if mount == self.top.mount => Ok(facts),
            Ok(_) => Err(self.top.lost(path, rustix::io::Errno::XDEV)),
            Err(errno) => Err(failed(&self.top.shown(path), "statx", errno)),
        }
    }

    /// What is at `path`, and how long that may be trusted.
    pub fn look(&self, path: &[u8]) -> Result<(Entry, Lease)> {
        self.usable()?;
        let promise = self.watches.promise(path);
        let (fd, mut facts) = self.open(path)?;
        let lease = if facts.kind == Some(FileKind::Directory) {
            // Its times are those of its own changes, which its own watch tells.
            let itself = self.watches.promise_directory(path);
            facts = self.facts(path, &fd)?;
            self.watches.lease(&[&promise, &itself])
        } else {
            self.limited(&facts, self.watches.lease(&[&promise]))
        };
        let name = parted(path).map_or(&b"top"[..], |(_, name)| name);
        let name = Name::new(name).map_err(|error| RemoteError::BadName { detail: error.to_string() })?;
        let attributes = facts.attributes().ok_or_else(|| self.top.lost(path, rustix::io::Errno::NOENT))?;
        Ok((Entry { name, id: FileId::new(path), attributes, version: facts.version() }, lease))
    }

    /// The lease of a file by what it is: changes through another of its names are not told.
    pub fn limited(&self, facts: &Facts, lease: Lease) -> Lease {
        match lease {
            Lease::UntilBroken(_) if facts.kind != Some(FileKind::Directory) && facts.links > 1 => {
                self.watches.short_lease()
            }
            lease => lease,
        }
    }

    /// The path of a name in a directory.
    ///
    /// # Errors
    /// `BadName` when it is too long to be an identity.
    pub fn below(&self, dir: &[u8], name: &Name) -> Result<Vec<u8>> {
        below(dir, name.as_bytes()).ok_or_else(|| RemoteError::BadName {
            detail: format!("{name:?} in {}: the path would be longer than {}", self.top.shown(dir), FileId::BYTES_MAX),
        })
    }

    /// # Errors
    /// `VersionChanged` when `now` is not what was expected.
    pub fn expect(&self, path: &[u8], now: &Version, expected: &Version) -> Result<()> {
        match now.compare(expected) {
            Sameness::Different => Err(RemoteError::VersionChanged { detail: self.top.shown(path) }),
            _ => Ok(()),
        }
    }

    /// Figures for `df`, at most a second old; none where asking could wait for a network.
    pub fn space(&self) -> Option<Space> {
        if self.top.blind.is_some() {
            return None;
        }
        let mut last = self.space.lock();
        if let Some((taken, space)) = *last
            && taken.elapsed() < SPACE_AGE_MAX
        {
            return space;
        }
        let space = rustix::fs::fstatvfs(self.top.fd()).ok().map(|told| Space {
            total: told.f_blocks.saturating_mul(told.f_frsize),
            free: told.f_bavail.min(told.f_blocks).saturating_mul(told.f_frsize),
        });
        *last = Some((Instant::now(), space));
        space
    }
}

/// Why nothing can be reached any more.
pub(crate) const TOP_GONE: &str =
    "it was moved, deleted or unmounted while it was in use; put it back, or another in its place";
/// How long to wait before what has gone is looked for again.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// How old the figures for `df` may be.
const SPACE_AGE_MAX: Duration = Duration::from_secs(1);
