//! Where files were found: the names that each identity had when it was last seen.
//!
//! A name belongs to a directory, which has a place itself, up to the top; so the path of everything below a directory
//! changes with that directory's one entry. A file with several names has those that were seen. What is told here is
//! where to look: a name may lead elsewhere by now, and whoever opens it compares what is there.
//!
//! Whoever enters a name may have seen it before a rename and come after that was entered: renames are counted, ours and those
//! that the kernel tells of, and what was seen before the last one does not replace what is known.
//!
//! Nothing here lasts: after a start no place is known, and each comes back when its name is looked up. The table is
//! bounded: files and directories are each held in two generations, the older of which goes when the younger is full.
//! Directories on the way to what is used count as used.

use std::collections::HashMap;

use parking_lot::{Mutex, RwLock};
use weft_remote::Name;

use crate::identity::{Identity, Key};
use crate::place::PATH_BYTES_MAX;

/// The table of places.
#[derive(Debug)]
pub(crate) struct Places {
    /// Guards all of the table; held for a look or a change.
    table: Mutex<Table>,
    /// Held shared over a rename and the change of the table that goes with it; whoever does not find a file waits here
    /// until no rename is under way, and looks again. Nobody who finds what he looks for waits.
    pub renames: RwLock<()>,
}

#[derive(Debug)]
struct Table {
    files: Generations,
    dirs: Generations,
    /// Counts our own renames.
    moves: u64,
    /// Counts those, and what the kernel has told of others'.
    turns: u64,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Key, Place>,
    old: HashMap<Key, Place>,
    /// Names in `young`.
    names: usize,
    young_max: usize,
}

/// What is known of one file's names. Kept small, for there is one of each file.
#[derive(Debug)]
struct Place {
    newest: Spot,
    /// Of a file that has several names: the others that were seen, newest last.
    #[expect(clippy::box_collection, reason = "almost no file has several names, and each file has such a field")]
    others: Option<Box<Vec<Spot>>>,
}

/// One name.
#[derive(Debug, PartialEq, Eq)]
struct Spot {
    dir: Key,
    name: Box<[u8]>,
}

/// A name under which a file was seen, as a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Below the top.
    pub path: Vec<u8>,
    /// The directory that has the name.
    pub dir: Key,
}

/// What became of a name that was to be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// Nothing: it was seen before a rename.
    Late,
    /// It is entered.
    Entered,
    /// It is entered, beside others that the file was seen under: by whoever relied on hearing through those of all that
    /// becomes of the file, that was not so.
    Beside,
}

/// How many names a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// One, for it is a directory.
    Directory,
    /// One, so any other is over.
    One,
    /// Several, not all of which may have been seen.
    Several,
}

impl Places {
    /// A table of about `names_max` names of files, and a quarter of that of directories.
    pub fn new(names_max: usize) -> Places {
        let files = Generations { young_max: (names_max / 2).max(1), ..Generations::default() };
        let dirs = Generations { young_max: (names_max / 8).max(DIRECTORIES_MIN), ..Generations::default() };
        Places { table: Mutex::new(Table { files, dirs, moves: 0, turns: 0 }), renames: RwLock::default() }
    }

    /// How many renames of ours there were.
    pub fn moves(&self) -> u64 {
        self.table.lock().moves
    }

    /// How many renames are entered, of anybody.
    pub fn turns(&self) -> u64 {
        self.table.lock().turns
    }

    /// Enters a name under which a file was seen after so many `turns`.
    pub fn learn(&self, file: Identity, names: Names, (dir, name): (Key, &Name), turns: u64) -> Learnt {
        let mut table = self.table.lock();
        let is_late = table.turns != turns;
        table.learn(file, names, (dir, name), is_late)
    }

    /// The same of one of which the kernel tells that it has come; nothing of a file that is not known, or is a directory.
    pub fn learn_come(&self, file: Identity, names: Names, (dir, name): (Key, &Name), turns: u64) {
        let mut table = self.table.lock();
        let is_late = table.turns != turns;
        if table.files.used(file.key()).is_some() && table.learn(file, names, (dir, name), is_late) != Learnt::Late {
            table.turns += 1;
        }
    }

    /// Whether a file may have a name: it was seen under it, or not all of its names are known.
    pub fn may_be_named(&self, file: Identity, (dir, name): (Key, &Name)) -> bool {
        let mut table = self.table.lock();
        let is_it = |spot: &Spot| spot.dir == dir && *spot.name == *name.as_bytes();
        table.files.used(file.key()).is_none_or(|place| {
            let others = place.others.as_deref().map_or(&[][..], Vec::as_slice);
            is_it(&place.newest) || others.len() >= OTHER_NAMES_MAX || others.iter().any(is_it)
        })
    }

    /// Enters what a rename has done to a file: the name that it got, and the one that it lost.
    pub fn renamed(&self, file: Identity, names: Names, got: (Key, &Name), lost: (Key, &Name)) {
        let mut table = self.table.lock();
        table.moves += 1;
        table.turns += 1;
        table.learn(file, names, got, false);
        table.forget(file, lost);
    }

    /// Takes out a name that a file has no more.
    pub fn forget(&self, file: Identity, dir: Key, name: &Name) {
        self.table.lock().forget(file, (dir, name));
    }

    /// The names under which a file was seen, the newest first; none when its place, or that of a directory above it, is
    /// not known.
    pub fn seen(&self, file: Identity) -> Vec<Seen> {
        if file == Identity::TOP {
            return vec![Seen { path: Vec::new(), dir: Key::TOP }];
        }
        let mut table = self.table.lock();
        let Table { files, dirs, .. } = &mut *table;
        for is_file in [true, false] {
            let place = if is_file { files.used(file.key()) } else { dirs.used(file.key()) };
            let Some(place) = place else { continue };
            let others = place.others.iter().flat_map(|others| others.iter().rev());
            let spots: Vec<(Key, Box<[u8]>)> =
                std::iter::once(&place.newest).chain(others).map(|spot| (spot.dir, spot.name.clone())).collect();
            let path = |(dir, name): (Key, Box<[u8]>)| Some(Seen { path: dirs.path(dir, name)?, dir });
            return spots.into_iter().filter_map(path).collect();
        }
        Vec::new()
    }

    /// The directories on the way to a file by its newest name, and the file itself when it is one; from below.
    pub fn way_to(&self, file: Identity) -> Vec<Key> {
        let mut table = self.table.lock();
        let Table { files, dirs, .. } = &mut *table;
        let mut at = files.used(file.key()).map_or(file.key(), |place| place.newest.dir);
        let mut keys = Vec::new();
        while at != Key::TOP && keys.len() < WAY_MAX {
            keys.push(at);
            let Some(place) = dirs.used(at) else { break };
            at = place.newest.dir;
        }
        keys
    }

    /// Whether a file may have names that were not seen.
    pub fn may_have_others(&self, file: Identity) -> bool {
        let mut table = self.table.lock();
        table.files.used(file.key()).is_some_and(|place| place.others.is_some())
    }

    /// Names held of files and of directories.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.files.count(), table.dirs.count())
    }
}

impl Table {
    fn learn(&mut self, file: Identity, names: Names, (dir, name): (Key, &Name), is_late: bool) -> Learnt {
        if file == Identity::TOP {
            return Learnt::Entered;
        }
        let Table { files, dirs, .. } = self;
        let (generations, other) = if names == Names::Directory { (dirs, files) } else { (files, dirs) };
        let spot = Spot { dir, name: Box::from(name.as_bytes()) };
        let several = names == Names::Several;
        match generations.used(file.key()) {
            Some(_) if is_late => return Learnt::Late,
            Some(place) => {
                let more = place.learn(spot, several);
                generations.names += more;
                if more > 0 {
                    return Learnt::Beside;
                }
            }
            None => {
                // A directory may have the number of a file that has gone, and the other way round, where births are not known.
                other.forget_all(file.key());
                generations.keep(file.key(), Place { newest: spot, others: several.then(Box::default) });
            }
        }
        Learnt::Entered
    }

    fn forget(&mut self, file: Identity, (dir, name): (Key, &Name)) {
        let spot = Spot { dir, name: Box::from(name.as_bytes()) };
        for generations in [&mut self.files, &mut self.dirs] {
            generations.forget(file.key(), &spot);
        }
    }
}

impl Place {
    /// Makes a name the newest; how many more there are than before.
    fn learn(&mut self, spot: Spot, several: bool) -> usize {
        if !several {
            self.newest = spot;
            self.others = None;
            return 0;
        }
        let others = self.others.get_or_insert_default();
        if self.newest == spot {
            return 0;
        }
        let before = others.len();
        others.retain(|other| *other != spot);
        others.push(std::mem::replace(&mut self.newest, spot));
        if others.len() > OTHER_NAMES_MAX {
            others.remove(0);
        }
        others.len().saturating_sub(before)
    }
}

impl Generations {
    /// What is known of a file, which counts as used now.
    fn used(&mut self, key: Key) -> Option<&mut Place> {
        if !self.young.contains_key(&key)
            && let Some(place) = self.old.remove(&key)
        {
            self.keep(key, place);
        }
        self.young.get_mut(&key)
    }

    fn keep(&mut self, key: Key, place: Place) {
        if self.names >= self.young_max {
            self.old = std::mem::take(&mut self.young);
            self.names = 0;
        }
        self.names += 1 + place.others.as_ref().map_or(0, |others| others.len());
        self.young.insert(key, place);
    }

    fn forget(&mut self, key: Key, spot: &Spot) {
        let Some(place) = self.used(key) else { return };
        if let Some(others) = &mut place.others {
            others.retain(|other| other != spot);
        }
        if place.newest != *spot {
            return;
        }
        match place.others.as_mut().and_then(|others| others.pop()) {
            Some(next) => place.newest = next,
            None => drop(self.young.remove(&key)),
        }
    }

    fn forget_all(&mut self, key: Key) {
        self.young.remove(&key);
        self.old.remove(&key);
    }

    /// The path of a name in a directory.
    fn path(&mut self, dir: Key, name: Box<[u8]>) -> Option<Vec<u8>> {
        let (mut at, mut length, mut names) = (dir, name.len(), vec![name]);
        while at != Key::TOP {
            let place = self.used(at)?;
            at = place.newest.dir;
            let name = place.newest.name.clone();
            length += 1 + name.len();
            // This ends a circle too: of moves that were seen in another order than they were made.
            if length > PATH_BYTES_MAX {
                return None;
            }
            names.push(name);
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        let held = self.young.values().chain(self.old.values());
        held.map(|place| 1 + place.others.as_ref().map_or(0, |others| others.len())).sum()
    }
}

/// Most names held of one file beside the newest.
const OTHER_NAMES_MAX: usize = 15;
/// Most directories on the way to a file that are looked at.
const WAY_MAX: usize = PATH_BYTES_MAX / 2;
/// Directories held at least, so that those on the way to a file are held with it.
const DIRECTORIES_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> Identity {
        Identity::new(number, 1, 0)
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn learn(places: &Places, file: Identity, names: Names, dir: Key, name: &Name) {
        assert_ne!(places.learn(file, names, (dir, name), places.turns()), Learnt::Late);
    }

    fn paths(places: &Places, of: Identity) -> Vec<String> {
        places.seen(of).into_iter().map(|seen| String::from_utf8(seen.path).unwrap()).collect()
    }

    #[test]
    fn a_directory_that_moves_takes_the_paths_below_it_along() {
        let places = Places::new(100);
        learn(&places, file(1), Names::Directory, Key::TOP, &name("a"));
        learn(&places, file(2), Names::Directory, file(1).key(), &name("b"));
        learn(&places, file(3), Names::One, file(2).key(), &name("c"));
        assert_eq!(paths(&places, file(3)), ["a/b/c"]);
        learn(&places, file(1), Names::Directory, Key::TOP, &name("z"));
        assert_eq!((paths(&places, file(3)), paths(&places, file(2))), (vec!["z/b/c".into()], vec!["z/b".into()]));
        assert_eq!(paths(&places, Identity::TOP), [""]);
        places.forget(file(2), file(1).key(), &name("b"));
        assert!(places.seen(file(3)).is_empty() && places.seen(file(9)).is_empty());
        // Moves seen in the wrong order make a circle: nothing is reached in it, and it is left again.
        learn(&places, file(2), Names::Directory, file(1).key(), &name("b"));
        learn(&places, file(1), Names::Directory, file(2).key(), &name("a"));
        assert!(places.seen(file(3)).is_empty());
    }

    /// Goal: a directory is found that has the number of a file which has gone, and a file that of a directory: where births are
    /// not known (overlayfs, file systems in user space) they are of one identity.
    #[test]
    fn what_has_the_number_of_something_of_another_kind_has_its_own_names() {
        let places = Places::new(100);
        learn(&places, file(1), Names::Directory, Key::TOP, &name("dir"));
        for (names, text) in [(Names::One, "file"), (Names::Directory, "again"), (Names::Several, "last")] {
            learn(&places, file(1), names, Key::TOP, &name(text));
            assert_eq!(paths(&places, file(1)), [text]);
            assert_eq!(places.counts(), if names == Names::Directory { (0, 1) } else { (1, 0) });
        }
    }

    #[test]
    fn a_file_has_the_names_that_were_seen() {
        let places = Places::new(100);
        let top = Key::TOP;
        let several = [Learnt::Entered, Learnt::Beside, Learnt::Entered, Learnt::Beside];
        for (text, learnt) in ["one", "two", "one", "three"].into_iter().zip(several) {
            assert_eq!(places.learn(file(1), Names::Several, (top, &name(text)), places.turns()), learnt);
        }
        assert_eq!(paths(&places, file(1)), ["three", "one", "two"]);
        places.forget(file(1), top, &name("three"));
        places.forget(file(1), top, &name("two"));
        assert_eq!(paths(&places, file(1)), ["one"]);
        assert!(places.may_have_others(file(1)));
        learn(&places, file(1), Names::One, top, &name("last"));
        assert_eq!(paths(&places, file(1)), ["last"]);
        assert!(!places.may_have_others(file(1)));
        places.forget(file(1), top, &name("last"));
        assert!(places.seen(file(1)).is_empty());
        (0..100).for_each(|at| learn(&places, file(2), Names::Several, top, &name(&at.to_string())));
        assert_eq!(paths(&places, file(2)).len(), 1 + OTHER_NAMES_MAX);
    }

    /// Goal: a file has a name no more when others were seen since, unless it may have more than are remembered.
    #[test]
    fn a_file_that_was_seen_elsewhere_has_its_former_name_no_more() {
        let places = Places::new(100);
        let may_be = |of: Identity, text: &str| places.may_be_named(of, (Key::TOP, &name(text)));
        assert!(may_be(file(1), "one"), "nothing is known of it");
        learn(&places, file(1), Names::One, Key::TOP, &name("one"));
        learn(&places, file(1), Names::One, Key::TOP, &name("two"));
        assert!(!may_be(file(1), "one") && may_be(file(1), "two"));
        for at in 0..1 + OTHER_NAMES_MAX {
            assert!(!may_be(file(2), "unseen") || at == 0);
            learn(&places, file(2), Names::Several, Key::TOP, &name(&at.to_string()));
            assert!(may_be(file(2), "0") && may_be(file(2), &at.to_string()));
        }
        assert!(may_be(file(2), "unseen"));
    }

    #[test]
    fn what_was_seen_before_a_rename_does_not_replace_what_the_rename_has_done() {
        let places = Places::new(100);
        learn(&places, file(1), Names::One, Key::TOP, &name("old"));
        let before = places.turns();
        places.renamed(file(1), Names::One, (Key::TOP, &name("new")), (Key::TOP, &name("old")));
        assert_eq!(places.learn(file(1), Names::One, (Key::TOP, &name("old")), before), Learnt::Late);
        assert_eq!(paths(&places, file(1)), ["new"]);
        let other = places.learn(file(2), Names::One, (Key::TOP, &name("other")), before);
        assert_eq!(other, Learnt::Entered, "there is nothing to replace");
        learn(&places, file(1), Names::One, Key::TOP, &name("newer"));
        assert_eq!(paths(&places, file(1)), ["newer"]);
    }

    #[test]
    fn what_was_seen_before_a_file_was_moved_beside_us_does_not_replace_where_it_is() {
        let places = Places::new(100);
        learn(&places, file(1), Names::One, Key::TOP, &name("old"));
        let before = places.turns();
        places.learn_come(file(2), Names::One, (Key::TOP, &name("other")), before);
        assert_eq!((paths(&places, file(2)), places.turns()), (vec![], before), "nobody looks for it");
        places.learn_come(file(1), Names::One, (Key::TOP, &name("new")), before);
        assert_eq!(places.learn(file(1), Names::One, (Key::TOP, &name("old")), before), Learnt::Late);
        assert_eq!((paths(&places, file(1)), places.moves()), (vec!["new".into()], 0));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_is_used() {
        let places = Places::new(100);
        learn(&places, file(1), Names::Directory, Key::TOP, &name("d"));
        learn(&places, file(2), Names::One, file(1).key(), &name("used"));
        for number in 10..20_000 {
            learn(&places, file(number), Names::Several, file(1).key(), &name("f"));
            learn(&places, file(number), Names::Several, file(1).key(), &name("g"));
            learn(&places, file(number + 100_000), Names::Directory, file(1).key(), &name("dir"));
            assert_eq!(paths(&places, file(2)), ["d/used"]);
        }
        let (files, dirs) = places.counts();
        assert!(files <= 102 && dirs <= 2 * DIRECTORIES_MIN, "{files} {dirs}");
        assert!(places.seen(file(10)).is_empty());
    }

    /// 24 bytes for the name itself, 8 for the others, 8 for the key; and the bytes of the name.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(std::mem::size_of::<(Key, Place)>(), 40);
    }
}
