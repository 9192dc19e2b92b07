//! Watches on directories, and the promises that rest on them.
//!
//! A promise says: when this name changes, [`Event::NameBroken`] comes; when this directory's listing and times change,
//! [`Event::Broken`]. Whoever was promised a listing is told of the name with which it ends too. A promise is entered
//! before what it tells of is read, and looked at again when it has been read (`promise.rs`). What the kernel tells is
//! matched with the promises (`hear.rs`): each is broken once and then forgotten, so that a file which is written all the
//! time is told of once for each time somebody asked.
//!
//! A watch belongs to an inode, a promise to a path. Both stay together because a directory is watched only together
//! with every directory above it: whatever is moved or deleted on the way is told, and takes the watches below it along.
//! A watch knows which directory it is of, so that what is told is told of that one; a promise is made for a directory
//! and not on the watch of another that is at its path.
//!
//! The kernel may tell so between the moment a directory is opened and the moment its watch is on the table: `moves`
//! counts what could mean that, and the watch is then made anew.
//!
//! The least recently used directory gives way when there are too many; directories above count as used after those
//! below them, so they go last.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, WatchFlags};
use tokio::sync::watch;
use weft_remote::{Event, News};

use crate::facts::{Facts, facts, facts_of};
use crate::gone::Gone;
use crate::hands::Hands;
use crate::identity::{Identity, Key};
use crate::options::DirectoryOptions;
use crate::place::{parted, way};
use crate::places::Places;
use crate::top::{Top, held};
use crate::watched::{Refused, Watched};

/// All watches of one directory tree.
#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) top: Arc<Top>,
    pub(crate) options: DirectoryOptions,
    pub(crate) news: Arc<News>,
    pub(crate) places: Arc<Places>,
    /// `None` where nothing is watched.
    pub(crate) inotify: Option<OwnedFd>,
    /// Guards all of the table. Held for a look or a change and for making watches and taking them back, which does not
    /// wait; the lock of the news is taken under it.
    pub(crate) table: Mutex<Watched>,
    /// Names and files that we are changing: what the kernel tells of them waits until the outcome is promised and noted.
    pub(crate) hands: Hands,
    warned: AtomicBool,
    /// Whether something that the kernel has told is being taken in: from before it is read until it is told.
    pub(crate) hearing: AtomicBool,
    /// Counts how often that ended.
    pub(crate) taken_in: watch::Sender<u64>,
    /// For those who wait for that and are no tasks. Guards nothing.
    pub(crate) taking: (Mutex<()>, Condvar),
}

impl Watches {
    /// Watches that there are none of yet.
    pub fn new(top: Arc<Top>, options: DirectoryOptions, news: Arc<News>, places: Arc<Places>) -> Watches {
        let wanted = top.blind.is_none() && options.watches_max > 0;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let inotify = wanted.then(|| inotify::init(flags)).and_then(|made| {
            made.inspect_err(|error| tracing::warn!(%error, "changes are not heard of, leases are short")).ok()
        });
        Watches {
            top,
            options,
            news,
            places,
            inotify,
            table: Mutex::new(Watched::default()),
            hands: Hands::default(),
            warned: AtomicBool::new(false),
            hearing: AtomicBool::new(false),
            taken_in: watch::Sender::new(0),
            taking: (Mutex::new(()), Condvar::new()),
        }
    }

    /// Whether this directory is watched now.
    pub fn is_watched(&self, dir: &[u8]) -> bool {
        self.table.lock().is_watched(dir)
    }

    /// Makes sure that a directory and those above it are watched; says whether they are.
    pub(crate) fn watch(&self, dir: &[u8]) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        for _ in 0..TRIES_MAX {
            {
                let mut table = self.table.lock();
                if table.gone.is_some() {
                    return false;
                }
                if table.is_watched(dir) {
                    table.touch(dir);
                    return true;
                }
            }
            match way(dir).try_for_each(|path| self.add(inotify, path)) {
                Ok(()) | Err(Refused::Moved) => {}
                Err(Refused::Impossible) => return false,
            }
        }
        false
    }

    fn add(&self, inotify: &OwnedFd, path: &[u8]) -> Result<(), Refused> {
        let moves = {
            let table = self.table.lock();
            if table.is_watched(path) {
                return Ok(());
            }
            table.moves
        };
        let open = self.top.reach(path, OFlags::PATH | OFlags::DIRECTORY);
        let dir = open.map_err(|_| Refused::Impossible)?;
        let id = self.top.identity(&facts(dir.as_fd()).map_err(|_| Refused::Impossible)?.0);
        let mut broken = Vec::new();
        let mut table = self.table.lock();
        // Under the lock: a watch that there is already, of this directory elsewhere, may be about to be taken back, and then
        // its number means nothing.
        let number = inotify::add_watch(inotify, held(&dir), EVENTS).map_err(|error| {
            // Once is enough: the leases say the rest.
            if !self.warned.swap(true, Ordering::Relaxed) {
                let path = self.top.shown(path);
                tracing::warn!(%error, path, "cannot be watched, leases are short (fs.inotify.max_user_watches?)");
            }
            Refused::Impossible
        })?;
        let outcome = table.enter(inotify, path, (number, id), moves, self.options.watches_max, &mut broken);
        if outcome.is_err() && table.path_of(number).is_none() {
            // Not entered among those taken back: somebody may be about to enter it, and must hear that it went.
            let _ = inotify::remove_watch(inotify, number);
        }
        self.news.tell(broken);
        outcome
    }

    /// Enters a promise; its number, unless the directory is not watched, it is another, or there is no room.
    pub(crate) fn enter_promise(&self, dir: &[u8], key: Key, name: Option<&[u8]>) -> Option<u64> {
        if !self.watch(dir) {
            return None;
        }
        let mut broken = Vec::new();
        let mut table = self.table.lock();
        if table.identity_of(dir).is_none_or(|id| id.key() != key) {
            return None;
        }
        // The directory itself needs no room, and what is promised already has it.
        let more = usize::from(name.is_some() && table.standing(dir, name).is_none());
        let entered = match table.make_room(self.inotify.as_ref(), self.options.promises_max, (dir, more), &mut broken)
        {
            true => table.promise(dir, name),
            false => None,
        };
        self.news.tell(broken);
        entered
    }

    /// Notes that a file is told of by itself under the promise of a name, if that stands: whoever knows it is told of it, also
    /// when the name is not known to lead to it.
    pub(crate) fn note_told_of(&self, dir: &[u8], name: &[u8], file: Identity) {
        let mut table = self.table.lock();
        let former = table.note_told_of(dir, name, file);
        // Of which nothing will be told any more.
        let former = former.filter(|former| *former != file);
        self.news.tell(former.map(|former| Event::Broken(former.file_id())).into_iter().collect());
    }

    /// Whether a promise stands.
    pub(crate) fn stands(&self, dir: &[u8], name: Option<&[u8]>, stamp: u64) -> bool {
        self.table.lock().standing(dir, name) == Some(stamp)
    }

    /// Promises every name of a listing that was read under the promise `stamp`, if that stands still: the last promise by
    /// then. `None` when it was broken, `Some(None)` when there is no room.
    pub(crate) fn promise_names(&self, dir: &[u8], stamp: u64, names: &[&[u8]]) -> Option<Option<u64>> {
        let mut broken = Vec::new();
        let mut table = self.table.lock();
        if table.standing(dir, None) != Some(stamp) {
            return None;
        }
        let more = names.iter().filter(|name| table.standing(dir, Some(name)).is_none()).count();
        let room = table.make_room(self.inotify.as_ref(), self.options.promises_max, (dir, more), &mut broken);
        let all = room && names.iter().all(|name| table.promise(dir, Some(name)).is_some());
        self.news.tell(broken);
        Some(all.then(|| table.last_stamp()))
    }

    /// Ends what is promised of a name and of its directory, because we have changed it ourselves; with `tree`, what was
    /// at the name has gone with all below it. Whoever had it changed knows of the name and the directory, and is told of
    /// the rest alone.
    pub fn changed(&self, path: &[u8], tree: bool) {
        let mut broken = Vec::new();
        let mut table = self.table.lock();
        table.break_at(path, &mut Vec::new());
        if tree {
            table.moves += 1;
            table.forget(self.inotify.as_ref(), path, None, &mut broken);
        }
        self.news.tell(broken);
    }

    /// The same of what a file is, where its names stay: the directory and its other names are what they were.
    pub fn changed_file(&self, path: &[u8]) {
        let mut table = self.table.lock();
        match parted(path) {
            Some((dir, name)) => drop(table.break_quietly(dir, name)),
            None => table.break_itself(path, &mut Vec::new()),
        }
    }

    /// The same of what a name stands for, where that was changed by way of another: whoever knows it by this one is told,
    /// and looks it up again.
    pub fn changed_by_another_name(&self, path: &[u8]) {
        let Some((dir, name)) = parted(path) else { return };
        let mut table = self.table.lock();
        let broken = table.break_quietly(dir, name);
        self.news.tell(broken.into_iter().collect());
    }

    /// Notes what a name stands for by our own doing, where changes of it are promised to be told: what the kernel says of
    /// that change is no news. What somebody else changes after it must show in what the file is then.
    pub fn note_echo(&self, path: &[u8], facts: &Facts) {
        let Some((dir, name)) = parted(path) else { return };
        self.table.lock().note_echo(dir, name, *facts);
    }

    /// Whether a name still stands for what we made of it ourselves.
    pub(crate) fn is_echo(&self, dir: &[u8], name: &[u8], was: &Facts) -> bool {
        let Ok(name) = std::ffi::CString::new(name) else { return false };
        let Ok(dir) = self.top.reach(dir, OFlags::PATH) else { return false };
        facts_of(dir.as_fd(), &name).is_ok_and(|(facts, _)| facts.is_told_alike(was))
    }

    /// Nothing can be reached any more.
    pub fn end(&self, why: Gone) {
        self.table.lock().gone = Some((why, SystemTime::now()));
        self.break_all();
    }

    /// Ends every lease, and every watch: what the kernel tells was lost.
    pub fn break_all(&self) {
        let mut table = self.table.lock();
        table.moves += 1;
        table.forget(self.inotify.as_ref(), b"", None, &mut Vec::new());
        table.forget_taken_back();
        self.news.tell(vec![Event::AllBroken]);
    }
}

/// How often a watch is made anew when something moves meanwhile.
const TRIES_MAX: usize = 8;
/// What changes names, attributes or content.
const EVENTS: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);
