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

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, WatchFlags};
use tokio::sync::watch;
use weft_remote::{Event, Name, News};

use crate::facts::{Facts, facts, facts_of};
use crate::hands::Hands;
use crate::identity::{Identity, Key};
use crate::options::DirectoryOptions;
use crate::place::{parted, way};
use crate::places::Places;
use crate::top::{Top, held};

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
    pub(crate) table: Mutex<Table>,
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

/// What is watched and promised.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By path.
    watches: BTreeMap<Arc<[u8]>, Watch>,
    /// The kernel's numbers.
    numbers: HashMap<i32, Arc<[u8]>>,
    /// Least recently used first.
    uses: BTreeMap<u64, Arc<[u8]>>,
    /// Watches taken back, of which the kernel has not yet said so.
    taken_back: HashSet<i32>,
    /// Counts uses and promises; no two have the same number.
    stamp: u64,
    /// Counts what may mean that a path leads elsewhere now.
    pub(crate) moves: u64,
    /// Names promised in all.
    promises: usize,
    /// Why nothing can be reached any more.
    pub(crate) gone: Option<&'static str>,
}

#[derive(Debug)]
struct Watch {
    number: i32,
    /// Which directory it is of.
    id: Identity,
    used: u64,
    /// The promise about the directory itself: its listing and its attributes.
    itself: Option<u64>,
    /// Promises about names in it, absent ones too.
    names: HashMap<Box<[u8]>, Promised>,
    /// What names stand for by our own doing, and under which promise that was told.
    echoes: HashMap<Box<[u8]>, (u64, Facts)>,
}

/// What is promised of a name.
#[derive(Clone, Copy, Debug)]
struct Promised {
    stamp: u64,
    /// The file that was told of by itself under it, and not by the name.
    of: Option<Identity>,
}

/// Why a directory was not watched.
enum Refused {
    /// Something moved meanwhile: try again.
    Moved,
    /// It cannot be.
    Impossible,
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
            table: Mutex::new(Table::default()),
            hands: Hands::default(),
            warned: AtomicBool::new(false),
            hearing: AtomicBool::new(false),
            taken_in: watch::Sender::new(0),
            taking: (Mutex::new(()), Condvar::new()),
        }
    }

    /// Whether this directory is watched now.
    pub fn is_watched(&self, dir: &[u8]) -> bool {
        self.table.lock().watches.contains_key(dir)
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
                if table.watches.contains_key(dir) {
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
            if table.watches.contains_key(path) {
                return Ok(());
            }
            table.moves
        };
        let open = self.top.reach(path, OFlags::PATH | OFlags::DIRECTORY);
        let dir = open.map_err(|_| Refused::Impossible)?;
        let id = facts(dir.as_fd()).map_err(|_| Refused::Impossible)?.0.identity(&self.top.facts);
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
        if outcome.is_err() && !table.numbers.contains_key(&number) {
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
        if table.watches.get(dir).is_none_or(|watch| watch.id.key() != key) {
            return None;
        }
        // The directory itself needs no room, and what is promised already has it.
        let more = usize::from(name.is_some() && table.standing(dir, name).is_none());
        let entered = match self.make_room(&mut table, dir, more, &mut broken) {
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
        let promised = table.watches.get_mut(dir).and_then(|watch| watch.names.get_mut(name));
        let former = promised.and_then(|promised| promised.of.replace(file));
        // Of which nothing will be told any more.
        let former = former.filter(|former| *former != file);
        self.news.tell(former.map(|former| Event::Broken(former.file_id())).into_iter().collect());
    }

    /// Whether a promise stands.
    pub(crate) fn stands(&self, dir: &[u8], name: Option<&[u8]>, stamp: u64) -> bool {
        self.table.lock().standing(dir, name) == Some(stamp)
    }

    /// Promises every name of a listing that was read under the promise `stamp`, if that stands still; `None` when it
    /// was broken, `Some(false)` when there is no room.
    pub(crate) fn promise_names(&self, dir: &[u8], stamp: u64, names: &[&[u8]]) -> Option<bool> {
        let mut broken = Vec::new();
        let mut table = self.table.lock();
        if table.standing(dir, None) != Some(stamp) {
            return None;
        }
        let more = names.iter().filter(|name| table.standing(dir, Some(name)).is_none()).count();
        let room = self.make_room(&mut table, dir, more, &mut broken);
        let all = room && names.iter().all(|name| table.promise(dir, Some(name)).is_some());
        self.news.tell(broken);
        Some(all)
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
            Some((dir, name)) => {
                table.break_promise(dir, name);
            }
            None => table.break_itself(path, &mut Vec::new()),
        }
    }

    /// The same of what a name stands for, where that was changed by way of another: whoever knows it by this one is told,
    /// and looks it up again.
    pub fn changed_by_another_name(&self, path: &[u8]) {
        let Some((dir, name)) = parted(path) else { return };
        let mut table = self.table.lock();
        let promised = table.break_promise(dir, name);
        let broken = table.watches.get(dir).and_then(|watch| watch.name_broken(name, promised));
        self.news.tell(broken.into_iter().collect());
    }

    /// Notes what a name stands for by our own doing, where changes of it are promised to be told: what the kernel says of
    /// that change is no news. What somebody else changes after it must show in what the file is then.
    pub fn note_echo(&self, path: &[u8], facts: &Facts) {
        let Some((dir, name)) = parted(path) else { return };
        let mut table = self.table.lock();
        let Some(stamp) = table.standing(dir, Some(name)) else { return };
        if let Some(watch) = table.watches.get_mut(dir) {
            if watch.echoes.len() >= ECHOES_MAX {
                watch.echoes.clear();
            }
            watch.echoes.insert(Box::from(name), (stamp, *facts));
        }
    }

    /// Whether a name still stands for what we made of it ourselves.
    pub(crate) fn is_echo(&self, dir: &[u8], name: &[u8], was: &Facts) -> bool {
        let Ok(name) = std::ffi::CString::new(name) else { return false };
        let Ok(dir) = self.top.reach(dir, OFlags::PATH) else { return false };
        facts_of(dir.as_fd(), &name).is_ok_and(|(facts, _)| facts.is_told_alike(was))
    }

    /// Nothing can be reached any more.
    pub fn end(&self, why: &'static str) {
        self.table.lock().gone = Some(why);
        self.break_all();
    }

    /// Ends every lease, and every watch: what the kernel tells was lost.
    pub fn break_all(&self) {
        let mut table = self.table.lock();
        table.moves += 1;
        table.forget(self.inotify.as_ref(), b"", None, &mut Vec::new());
        table.taken_back.clear();
        self.news.tell(vec![Event::AllBroken]);
    }

    /// Has others than `dir` and those above it give way until `more` names can be promised.
    fn make_room(&self, table: &mut Table, dir: &[u8], more: usize, broken: &mut Vec<Event>) -> bool {
        let here = table.watches.get(dir).map_or(0, |watch| watch.names.len());
        if here.saturating_add(more) > self.options.promises_max {
            // Nobody has to give way to what has no room at all.
            return false;
        }
        while table.promises.saturating_add(more) > self.options.promises_max {
            let Some(victim) = table.least_used_beside(dir) else { return false };
            table.forget(self.inotify.as_ref(), &victim, None, broken);
        }
        true
    }
}

impl Watch {
    /// What is told of a name in the directory, of which that was promised.
    fn name_broken(&self, name: &[u8], promised: Option<Promised>) -> Option<Event> {
        let file = promised.and_then(|promised| promised.of).map(Identity::file_id);
        Some(Event::NameBroken { dir: self.id.file_id(), name: Name::new(name).ok()?, file })
    }
}

impl Table {
    fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Counts a directory, and after it those above it, as used now.
    fn touch(&mut self, dir: &[u8]) {
        let mut at = Some(dir);
        while let Some(path) = at {
            let stamp = self.next_stamp();
            if let Some((key, watch)) = self.watches.get_key_value(path).map(|(key, watch)| (key.clone(), watch.used)) {
                self.uses.remove(&watch);
                self.uses.insert(stamp, key);
            }
            if let Some(watch) = self.watches.get_mut(path) {
                watch.used = stamp;
            }
            at = parted(path).map(|(above, _)| above);
        }
    }

    /// Puts a new watch on the table.
    fn enter(
        &mut self,
        inotify: &OwnedFd,
        path: &[u8],
        (number, id): (i32, Identity),
        moves: u64,
        watches_max: usize,
        broken: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        let above = parted(path).is_none_or(|(above, _)| self.watches.contains_key(above));
        if self.moves != moves || !above || self.gone.is_some() {
            return Err(Refused::Moved);
        }
        match self.numbers.get(&number).cloned() {
            Some(same) if *same == *path => return Ok(()),
            // The inode was moved here, which is about to be told: what it was called before is over.
            Some(other) => self.forget(Some(inotify), &other, Some(number), broken),
            None => {}
        }
        // Another inode under this path: it has gone from here.
        self.forget(Some(inotify), path, None, broken);
        while self.watches.len() >= watches_max {
            let victim = self.least_used_beside(path).ok_or(Refused::Impossible)?;
            self.forget(Some(inotify), &victim, None, broken);
        }
        if parted(path).is_some_and(|(above, _)| !self.watches.contains_key(above)) {
            return Err(Refused::Moved);
        }
        let key: Arc<[u8]> = Arc::from(path);
        let used = self.next_stamp();
        self.uses.insert(used, key.clone());
        self.numbers.insert(number, key.clone());
        self.watches
            .insert(key, Watch { number, id, used, itself: None, names: HashMap::new(), echoes: HashMap::new() });
        self.touch(path);
        Ok(())
    }

    /// The least recently used directory that is neither `path` nor above it.
    fn least_used_beside(&self, path: &[u8]) -> Option<Arc<[u8]>> {
        self.uses.values().find(|used| !is_at_or_below(path, used)).cloned()
    }

    fn promise(&mut self, dir: &[u8], name: Option<&[u8]>) -> Option<u64> {
        let stamp = self.next_stamp();
        let watch = self.watches.get_mut(dir)?;
        let Some(name) = name else { return Some(*watch.itself.get_or_insert(stamp)) };
        if let Some(known) = watch.names.get(name) {
            return Some(known.stamp);
        }
        watch.names.insert(Box::from(name), Promised { stamp, of: None });
        self.promises += 1;
        Some(stamp)
    }

    fn standing(&self, dir: &[u8], name: Option<&[u8]>) -> Option<u64> {
        let watch = self.watches.get(dir)?;
        match name {
            Some(name) => watch.names.get(name).map(|promised| promised.stamp),
            None => watch.itself,
        }
    }

    /// What a name stands for by our own doing, if the promise under which that was told stands.
    pub(crate) fn echo(&self, dir: &[u8], name: &[u8]) -> Option<Facts> {
        let watch = self.watches.get(dir)?;
        let (stamp, facts) = watch.echoes.get(name)?;
        watch.names.get(name).is_some_and(|promised| promised.stamp == *stamp).then_some(*facts)
    }

    /// It is not, any more.
    pub(crate) fn forget_echo(&mut self, dir: &[u8], name: &[u8]) {
        if let Some(watch) = self.watches.get_mut(dir) {
            watch.echoes.remove(name);
        }
    }

    /// The path that a watch of the kernel stands for.
    pub(crate) fn path_of(&self, number: i32) -> Option<Arc<[u8]>> {
        self.numbers.get(&number).cloned()
    }

    /// The kernel has let a watch go: whether we had asked for that.
    pub(crate) fn was_taken_back(&mut self, number: i32) -> bool {
        self.taken_back.remove(&number)
    }

    /// Breaks what is promised of `name` in `dir`, and of `dir` itself. A name that `leads_elsewhere` is told of to those
    /// who know the listing as well.
    pub(crate) fn break_name(&mut self, dir: &[u8], name: &[u8], leads_elsewhere: bool, broken: &mut Vec<Event>) {
        let promised = self.break_promise(dir, name);
        let Some(watch) = self.watches.get_mut(dir) else { return };
        if promised.is_some() || (leads_elsewhere && watch.itself.is_some()) {
            broken.extend(watch.name_broken(name, promised));
        }
        self.break_itself(dir, broken);
    }

    /// Breaks what is promised of `name` in `dir`, and says what that was.
    fn break_promise(&mut self, dir: &[u8], name: &[u8]) -> Option<Promised> {
        let watch = self.watches.get_mut(dir)?;
        watch.echoes.remove(name);
        let promised = watch.names.remove(name);
        self.promises -= usize::from(promised.is_some());
        promised
    }

    /// Breaks what is promised of a directory itself.
    pub(crate) fn break_itself(&mut self, dir: &[u8], broken: &mut Vec<Event>) {
        if let Some(watch) = self.watches.get_mut(dir)
            && watch.itself.take().is_some()
        {
            broken.push(Event::Broken(watch.id.file_id()));
        }
    }

    /// Breaks what is promised of a path: as a name, and as a directory.
    pub(crate) fn break_at(&mut self, path: &[u8], broken: &mut Vec<Event>) {
        if let Some((dir, name)) = parted(path) {
            self.break_name(dir, name, true, broken);
        }
        self.break_itself(path, broken);
    }

    /// Breaks all promises on a directory and on those below it, and takes their watches back, except for `keep`.
    pub(crate) fn forget(
        &mut self,
        inotify: Option<&OwnedFd>,
        path: &[u8],
        keep: Option<i32>,
        broken: &mut Vec<Event>,
    ) {
        for path in self.at_or_below(path) {
            let Some(watch) = self.watches.remove(&path) else { continue };
            self.numbers.remove(&watch.number);
            self.uses.remove(&watch.used);
            self.promises -= watch.names.len();
            if watch.itself.is_some() {
                broken.push(Event::Broken(watch.id.file_id()));
            }
            broken.extend(watch.names.iter().filter_map(|(name, promised)| watch.name_broken(name, Some(*promised))));
            if keep != Some(watch.number)
                && inotify.is_some_and(|inotify| inotify::remove_watch(inotify, watch.number).is_ok())
            {
                self.taken_back.insert(watch.number);
            }
        }
    }

    fn at_or_below(&self, path: &[u8]) -> Vec<Arc<[u8]>> {
        if path.is_empty() {
            return self.watches.keys().cloned().collect();
        }
        // '0' is the byte after '/'.
        let (from, to): (Arc<[u8]>, Arc<[u8]>) = ([path, b"/"].concat().into(), [path, b"0"].concat().into());
        let itself = self.watches.get_key_value(path).map(|(key, _)| key.clone());
        itself.into_iter().chain(self.watches.range(from..to).map(|(key, _)| key.clone())).collect()
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        (self.watches.len(), self.numbers.len(), self.uses.len(), self.promises)
    }
}

/// Whether `path` is `dir` or below it.
fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    match path.strip_prefix(dir) {
        Some(rest) => dir.is_empty() || rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// Names in one directory of which is known what we made of them.
const ECHOES_MAX: usize = 4096;
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
