//! The directory as a whole, and what all its operations start with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use weft_remote::{Event, News, RemoteError, Result, Sameness, Source, SourceState, Space, Version};

use crate::aside::Aside;
use crate::cut_off::CutOff;
use crate::error::DirectoryError;
use crate::facts::facts;
use crate::gone::Gone;
use crate::hear::Listener;
use crate::mount_note::MountNote;
use crate::moved::HeldOpen;
use crate::newborn::Newborn;
use crate::options::DirectoryOptions;
use crate::ours::Ours;
use crate::places::Places;
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
    _listener: Listener,
}

/// What calls under way keep.
#[derive(Debug)]
pub(crate) struct Shared {
    pub top: Arc<Top>,
    pub watches: Arc<Watches>,
    pub places: Arc<Places>,
    pub held_open: HeldOpen,
    pub newborn: Newborn,
    pub ours: Ours,
    /// Held by whoever has a file's mode let us in for a moment: of two at once, one would take that mode for its own.
    pub letting_in: Mutex<()>,
    /// Where the times of files are of this machine's clock.
    pub cut_off: Option<Arc<CutOff>>,
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
        Directory::begin(Top::open(&options.path)?, options)
    }

    /// The same of one that may be away: where it cannot be opened now, it is when it can be, and until then nothing in it is
    /// reached (`Unreachable`). So it is where something was mounted there ([`MountNote`]), and is not now.
    ///
    /// # Errors
    /// [`DirectoryError`] says what to do about it.
    pub fn open_or_await(options: DirectoryOptions) -> std::result::Result<Arc<Directory>, DirectoryError> {
        let was_mounted = options.mount_note.as_ref().is_some_and(MountNote::was_mounted);
        match Top::open(&options.path) {
            Err(error @ DirectoryError::Open { .. }) => tracing::warn!("{error}; it is waited for"),
            Ok(top) if was_mounted && !top.is_mounted => {
                tracing::warn!("{}: what was mounted there is not; it is waited for", options.path.display());
            }
            top => return Directory::begin(top?, options),
        }
        let directory = Directory::begin(Top::absent(&options.path, was_mounted)?, options)?;
        directory.now().watches.end(Gone::Absent);
        Ok(directory)
    }

    fn begin(top: Top, options: DirectoryOptions) -> std::result::Result<Arc<Directory>, DirectoryError> {
        let news = Arc::new(News::new(options.events_max));
        let open = RwLock::new(Open::begin(top, &options, &news)?);
        let looked = Mutex::new(Instant::now());
        Ok(Arc::new(Directory { place: Arc::new(Place { options, news, open, looked }) }))
    }

    /// Whether it is shown as what nobody changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.place.options.read_only
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
    /// Opens what is at the path now, in place of what has gone. Of a file system that was unmounted only the directory that
    /// it was mounted on may be there, and that is not what is shown.
    fn again(&self) -> Arc<Shared> {
        let shared = || self.open.read().shared.clone();
        let Some(mut looked) = self.looked.try_lock() else { return shared() };
        let has_gone = shared().watches.table.lock().gone.is_some();
        if has_gone && looked.elapsed() >= TRY_AGAIN {
            *looked = Instant::now();
            let was_mounted = shared().top.is_mounted;
            let top = Top::open(&self.options.path).ok().filter(|top| top.is_mounted || !was_mounted);
            if let Some(Ok(next)) = top.map(|top| Open::begin(top, &self.options, &self.news)) {
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
    fn begin(top: Top, options: &DirectoryOptions, news: &Arc<News>) -> std::result::Result<Open, DirectoryError> {
        let (top, path) = (Arc::new(top), options.path.clone());
        if let Some(why) = top.blind {
            tracing::info!(path = %path.display(), why, "leases are short");
        }
        let places = Arc::new(Places::new(options.places_max));
        let watches = Arc::new(Watches::new(top.clone(), options.clone(), news.clone(), places.clone()));
        if let Some(note) = &options.mount_note {
            note.put(top.is_mounted);
        }
        // From now on it is told when the top itself goes.
        watches.watch(b"");
        let listener = Listener::start(watches.clone()).map_err(|source| DirectoryError::Thread { path, source })?;
        let aside = Aside::new(top.is_near);
        let cut_off = options.cut_off.clone().filter(|_| top.blind.is_none());
        let shared = Arc::new(Shared {
            top,
            watches,
            places,
            held_open: HeldOpen::default(),
            newborn: Newborn::new(),
            letting_in: Mutex::new(()),
            ours: Ours::default(),
            cut_off,
            aside,
            space: Mutex::new(None),
        });
        Ok(Open { shared, _listener: listener })
    }
}

impl Shared {
    /// # Errors
    /// `Failed` or `Unreachable` when the top has gone. That it was moved is told; that it was deleted is seen, for the
    /// kernel tells that of a directory only when nobody holds it any more.
    pub fn usable(&self) -> Result<()> {
        let gone = || self.watches.table.lock().gone;
        // Some file systems of others count no names at all, and asking those could take long.
        let counted = self.top.blind.is_none() && self.top.facts.links > 0;
        if counted && gone().is_none() && facts(self.top.fd()).is_ok_and(|(top, _)| top.links == 0) {
            self.watches.end(Gone::Left);
        }
        match gone() {
            Some((gone, _)) => Err(gone.error(&self.top.shown(b""))),
            None => Ok(()),
        }
    }

    /// What is to be told of it while it has gone, or answers nothing.
    pub fn away(&self) -> Option<Source> {
        let (name, gone) = (self.top.shown(b""), self.watches.table.lock().gone);
        let (since, last_contact, why) = match gone {
            Some((gone, since)) => (since, (gone != Gone::Absent).then_some(since), gone.error(&name)),
            None => {
                let since = self.aside.silent_since()?;
                let detail = format!("{name}: what it is on answers nothing; it is found when it does");
                (since, Some(since), RemoteError::Unreachable { detail })
            }
        };
        Some(Source {
            state: SourceState::Disconnected,
            since,
            last_contact,
            last_error: Some((since, why.to_string())),
            name,
            requests: 0,
            received_bytes: 0,
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
        let space = rustix::fs::fstatvfs(self.top.fd()).ok().map(|told| {
            let bytes = |blocks: u64| blocks.min(told.f_blocks).saturating_mul(told.f_frsize);
            Space {
                total: bytes(told.f_blocks),
                free: bytes(told.f_bfree),
                available: bytes(told.f_bavail),
                files: told.f_files,
                files_free: told.f_ffree.min(told.f_files),
            }
        });
        *last = Some((Instant::now(), space));
        space
    }
}

/// How long to wait before what has gone is looked for again.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// How old the figures for `df` may be.
const SPACE_AGE_MAX: Duration = Duration::from_secs(1);
