//! Which directories are watched, and what is promised of names in them: the table behind [`Watches`].
//!
//! [`Watches`]: crate::watches::Watches

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::inotify;
use weft_remote::{Event, Name};

use crate::facts::Facts;
use crate::gone::Gone;
use crate::identity::Identity;
use crate::place::parted;
use crate::rows::HeldRows;

/// What is watched and promised.
#[derive(Debug, Default)]
pub(crate) struct Watched {
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
    /// Rows held in all.
    rows: usize,
    /// Why nothing can be reached any more.
    pub(crate) gone: Option<(Gone, SystemTime)>,
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
    /// What its listing told last.
    rows: Option<Arc<HeldRows>>,
}

/// What is promised of a name.
#[derive(Clone, Copy, Debug)]
struct Promised {
    stamp: u64,
    /// The file that was told of by itself under it, and not by the name.
    of: Option<Identity>,
}

/// Why a directory was not watched.
pub(crate) enum Refused {
    /// Something moved meanwhile: try again.
    Moved,
    /// It cannot be.
    Impossible,
}

impl Watch {
    /// What is told of a name in the directory, of which that was promised.
    fn name_broken(&self, name: &[u8], promised: Option<Promised>) -> Option<Event> {
        let file = promised.and_then(|promised| promised.of).map(Identity::file_id);
        Some(Event::NameBroken { dir: self.id.file_id(), name: Name::new(name).ok()?, file })
    }
}

impl Watched {
    pub(crate) fn is_watched(&self, dir: &[u8]) -> bool {
        self.watches.contains_key(dir)
    }

    /// Which directory is watched under a path.
    pub(crate) fn identity_of(&self, dir: &[u8]) -> Option<Identity> {
        self.watches.get(dir).map(|watch| watch.id)
    }

    /// Notes which file is told of by itself under the promise of a name; the one before it.
    pub(crate) fn note_told_of(&mut self, dir: &[u8], name: &[u8], file: Identity) -> Option<Identity> {
        self.watches.get_mut(dir)?.names.get_mut(name)?.of.replace(file)
    }

    /// Notes what a name stands for by our own doing, where it is promised.
    pub(crate) fn note_echo(&mut self, dir: &[u8], name: &[u8], facts: Facts) {
        let Some(stamp) = self.standing(dir, Some(name)) else { return };
        if let Some(watch) = self.watches.get_mut(dir) {
            if watch.echoes.len() >= ECHOES_MAX {
                watch.echoes.clear();
            }
            watch.echoes.insert(Box::from(name), (stamp, facts));
        }
    }

    /// What the kernel was to tell is lost, also of which watches it let go.
    pub(crate) fn forget_taken_back(&mut self) {
        self.taken_back.clear();
    }

    /// Breaks what is promised of `name` in `dir`; what is told of that, where it is.
    pub(crate) fn break_quietly(&mut self, dir: &[u8], name: &[u8]) -> Option<Event> {
        let promised = self.break_promise(dir, name);
        self.watches.get(dir)?.name_broken(name, promised)
    }

    fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Counts a directory, and after it those above it, as used now.
    pub(crate) fn touch(&mut self, dir: &[u8]) {
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
    pub(crate) fn enter(
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
        let (names, echoes) = (HashMap::new(), HashMap::new());
        self.watches.insert(key, Watch { number, id, used, itself: None, names, echoes, rows: None });
        self.touch(path);
        Ok(())
    }

    /// Has others than `dir` and those above it give way until `more` names can be promised.
    pub(crate) fn make_room(
        &mut self,
        inotify: Option<&OwnedFd>,
        promises_max: usize,
        (dir, more): (&[u8], usize),
        broken: &mut Vec<Event>,
    ) -> bool {
        let here = self.watches.get(dir).map_or(0, |watch| watch.names.len());
        if here.saturating_add(more) > promises_max {
            // Nobody has to give way to what has no room at all.
            return false;
        }
        while self.promises.saturating_add(more) > promises_max {
            let Some(victim) = self.least_used_beside(dir) else { return false };
            self.forget(inotify, &victim, None, broken);
        }
        true
    }

    /// The least recently used directory that is neither `path` nor above it.
    fn least_used_beside(&self, path: &[u8]) -> Option<Arc<[u8]>> {
        self.uses.values().find(|used| !is_at_or_below(path, used)).cloned()
    }

    pub(crate) fn promise(&mut self, dir: &[u8], name: Option<&[u8]>) -> Option<u64> {
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

    pub(crate) fn standing(&self, dir: &[u8], name: Option<&[u8]>) -> Option<u64> {
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

    /// The number of the promise that was made last.
    pub(crate) fn last_stamp(&self) -> u64 {
        self.stamp
    }

    /// What the listing of a directory told last, as far as it is held.
    pub(crate) fn rows_of(&self, dir: &[u8]) -> Option<Arc<HeldRows>> {
        self.watches.get(dir)?.rows.clone()
    }

    /// Holds what the listing of a watched directory has told, `rows_max` of all at most: those of the least recently used
    /// directories give way. Returns those.
    pub(crate) fn hold_rows(&mut self, dir: &[u8], rows: HeldRows, rows_max: usize) -> Vec<Arc<HeldRows>> {
        let mut gave_way = Vec::new();
        let Some((key, watch)) = self.watches.get_key_value(dir).map(|(key, watch)| (key.clone(), watch)) else {
            return gave_way;
        };
        let before = watch.rows.as_ref().map_or(0, |rows| rows.count());
        self.rows = self.rows - before + rows.count();
        gave_way.extend(self.watches.get_mut(&key).and_then(|watch| watch.rows.replace(Arc::new(rows))));
        let mut in_turn = self.uses.values();
        while self.rows > rows_max
            && let Some(victim) = in_turn.next()
        {
            if *victim == key {
                continue;
            }
            if let Some(rows) = self.watches.get_mut(victim).and_then(|watch| watch.rows.take()) {
                self.rows -= rows.count();
                gave_way.push(rows);
            }
        }
        gave_way
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
            self.rows -= watch.rows.as_ref().map_or(0, |rows| rows.count());
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
