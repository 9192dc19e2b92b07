//! Rows of listings that were told, held for as long as each is promised: the next listing of a directory looks only at what
//! has changed since.
//!
//! A row stands while the promise of its name does that was made by the end of that listing. It is no older than the lease
//! that was told with it: what the kernel does not tell of (writes into mapped pages) is seen when that ends.

use std::sync::Arc;
use std::time::Instant;

use weft_remote::{Attributes, Entry, Name};
use xxhash_rust::xxh3::Xxh3;

use crate::identity::Identity;
use crate::place::below;
use crate::places::Names;
use crate::watches::Watches;

/// A row, and what else is known of what its name stands for.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub id: Identity,
    pub names: Names,
    pub entry: Arc<Entry>,
    /// Of all that it tells.
    pub hash: u128,
    /// Whether it is one of a listing before, and stands.
    pub stands: bool,
}

impl Row {
    pub fn new(id: Identity, names: Names, entry: Entry) -> Row {
        Row { id, names, hash: hash_of(&entry), entry: Arc::new(entry), stands: false }
    }

    /// Whether changes of all that it tells are promised to be told: not where that has other names, and not where it could not
    /// be looked at.
    fn can_stand(&self) -> bool {
        self.names != Names::Several && self.entry.attributes.mode.is_some()
    }
}

/// The rows of one listing.
#[derive(Debug)]
pub(crate) struct HeldRows {
    /// In the order of their names.
    rows: Vec<Row>,
    /// The last promise by the end of the listing.
    until: u64,
    /// From before the oldest of them was looked at.
    since: Instant,
}

/// Those of them that stand.
#[derive(Debug, Default)]
pub(crate) struct StandingRows(Option<Standing>);

#[derive(Debug)]
struct Standing {
    held: Arc<HeldRows>,
    /// Which rows do.
    stand: Vec<bool>,
    /// How many renames were entered before that was looked at.
    turns: u64,
}

impl HeldRows {
    pub fn new(rows: Vec<Row>, until: u64, since: Instant) -> HeldRows {
        HeldRows { rows, until, since }
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }
}

impl StandingRows {
    /// The row of a name, and after how many renames it was seen to stand.
    pub fn row(&self, name: &Name) -> Option<(&Row, u64)> {
        let Standing { held, stand, turns } = self.0.as_ref()?;
        let at = held.rows.binary_search_by(|row| row.entry.name.cmp(name)).ok()?;
        stand[at].then(|| (&held.rows[at], *turns))
    }

    /// From before the oldest of them was looked at, where there are any.
    pub fn since(&self) -> Option<Instant> {
        self.0.as_ref().map(|standing| standing.held.since)
    }
}

impl Watches {
    /// The rows of a directory that stand when all is taken in that the kernel had to tell by now. None where that takes too
    /// long, or where they have been held for most of their lease.
    pub fn standing_rows(&self, dir: &[u8]) -> StandingRows {
        let is_fresh = |held: &Arc<HeldRows>| held.since.elapsed() < self.options.lease / 2;
        let held = || self.table.lock().rows_of(dir).filter(is_fresh);
        if held().is_none() || !self.wait_taken_in() {
            return StandingRows::default();
        }
        let turns = self.places.turns();
        let table = self.table.lock();
        let Some(held) = table.rows_of(dir).filter(is_fresh) else { return StandingRows::default() };
        let stands = |row: &Row| {
            let name = row.entry.name.as_bytes();
            let is_promised = table.standing(dir, Some(name)).is_some_and(|stamp| stamp <= held.until);
            // What is told of what we are changing has to wait.
            is_promised && below(dir, name).is_some_and(|path| !self.hands.is_held(&path))
        };
        let stand = held.rows.iter().map(stands).collect();
        StandingRows(Some(Standing { held, stand, turns }))
    }

    /// Holds the rows of a listing that was promised as a whole, from before the oldest of them was looked at.
    pub fn hold_rows(&self, dir: &[u8], until: u64, rows: &[Row], since: Instant) {
        if (ROWS_MIN..=ROWS_MAX).contains(&rows.len()) {
            let rows = rows.iter().filter(|row| row.can_stand()).cloned().collect();
            let gave_way = self.table.lock().hold_rows(dir, HeldRows::new(rows, until, since), ROWS_MAX);
            drop(gave_way);
        }
    }
}

/// A hash of all that a row tells, and of which file it is.
fn hash_of(Entry { name, id, attributes, version }: &Entry) -> u128 {
    let mut hash = Xxh3::new();
    for part in [name.as_bytes(), id.as_bytes(), version.token().unwrap_or_default()] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let Attributes { kind, mode, owner, has_access_list, .. } = attributes;
    let owner = owner.map(|owner| (owner.uid, owner.gid));
    hash.update(format!("{kind:?} {mode:?} {owner:?} {has_access_list:?}").as_bytes());
    hash.digest128()
}

/// Directories with fewer names are looked at anew.
const ROWS_MIN: usize = 64;
/// Most rows that are held; each takes about 400 bytes.
const ROWS_MAX: usize = 1 << 17;
