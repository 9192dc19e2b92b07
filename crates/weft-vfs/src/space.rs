//! What may be held, and what happens when that is met.
//!
//! Each file has a class by the policy of its tree, or is pinned. Before bytes are stored, room is reserved for them;
//! where that would pass a bound, scratch content that counts towards the same bound is evicted, the longest unused
//! first, and where that is not enough, the file is served through without being stored.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use weft_remote::{Name, Notes};
use weft_store::{Account, Bound, Bounds, Class, NodeId, Object};

use crate::journal::Journal;
use crate::pins::Pins;
use crate::place::Place;
use crate::room::Promises;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What may be held, and where.
#[derive(Clone, Debug, Default)]
pub struct SpaceOptions {
    /// The class of what no rule names.
    pub class: Class,
    /// Rules for trees; for the class the longest path wins, every bound holds.
    pub rules: Vec<SpaceRule>,
    /// Most bytes in all.
    pub max: Option<u64>,
    /// Most bytes of class scratch.
    pub scratch_max: Option<u64>,
    /// Most bytes of each top-level tree (for the web: of a host).
    pub tree_max: Option<u64>,
    /// Bytes of the disk that are left free; 4 MiB unless said.
    pub keep_free: Option<u64>,
}

/// What holds for a tree.
#[derive(Clone, Debug)]
pub struct SpaceRule {
    /// The tree, below the mount's root.
    pub path: Vec<Name>,
    /// Its class, if it has one of its own.
    pub class: Option<Class>,
    /// Most bytes in it; of the first [`SpaceOptions::BOUNDED_RULES_MAX`] rules that have this.
    pub max: Option<u64>,
}

impl SpaceOptions {
    /// Most rules with a bound.
    pub const BOUNDED_RULES_MAX: usize = Bounds::RULES_MAX;

    /// Bytes of the disk that content is not to take.
    pub(crate) fn keep_free(&self) -> u64 {
        self.keep_free.unwrap_or(INDEX_ROOM_BYTES)
    }

    fn bounded(&self) -> impl Iterator<Item = (&SpaceRule, u64)> {
        self.rules.iter().filter_map(|rule| Some((rule, rule.max?))).take(SpaceOptions::BOUNDED_RULES_MAX)
    }

    fn bounds(&self) -> Bounds {
        let rules = self.bounded().map(|(_, max)| max).collect();
        Bounds { all: self.max, scratch: self.scratch_max, tree: self.tree_max, rules }
    }

    /// What content at a place counts towards. What this mount does not show is not its own to evict.
    pub(crate) fn account(&self, place: &Place, pinned: bool) -> Account {
        let tree = place.tree();
        let Some(path) = &place.path else {
            let class = if pinned { Class::Pinned } else { Class::Kept };
            return Account { tree, rules: 0, class };
        };
        let class = if pinned { Class::Pinned } else { self.class_at(path) };
        let rules = self.bounded().enumerate().filter(|(_, (rule, _))| path.starts_with(&rule.path));
        Account { tree, rules: rules.fold(0, |rules, (nth, _)| rules | 1 << nth), class }
    }

    /// The class that the policy gives a path.
    pub(crate) fn class_at(&self, path: &[Name]) -> Class {
        let matching = self.rules.iter().filter(|rule| path.starts_with(&rule.path));
        let classes = matching.filter_map(|rule| Some((rule.path.len(), rule.class?)));
        // Of two rules for one path the first wins.
        classes.reduce(|best, next| if next.0 > best.0 { next } else { best }).map_or(self.class, |(_, class)| class)
    }

    /// A bound as the configuration writes it.
    pub(crate) fn key(&self, limit: Limit) -> String {
        match limit {
            Limit::Of(Bound::All) => "[cache] max".to_string(),
            Limit::Of(Bound::Scratch) => "[cache] scratch_max".to_string(),
            Limit::Of(Bound::Tree(_)) => "[cache] max_per_host".to_string(),
            Limit::Of(Bound::Rule(nth)) => {
                let path = self.bounded().nth(nth).map(|(rule, _)| rule.path.iter().map(Name::to_string));
                let path = path.map(|names| names.collect::<Vec<_>>().join("/")).unwrap_or_default();
                format!("max of [[tree]] {path}")
            }
            Limit::KeepFree => "[cache] keep_free".to_string(),
        }
    }
}

/// What keeps something from being stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    Of(Bound),
    KeepFree,
}

/// There is no room for a file although the disk has some.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct NoRoom {
    tree: NodeId,
    limit: Limit,
    sentence: String,
}

/// The state of space in one mount.
pub(crate) struct Space {
    pub(crate) options: SpaceOptions,
    pub(crate) pins: Pins,
    pub(crate) journal: Journal,
    /// Whether all objects of earlier lives have been entered into the accounts.
    pub(crate) counted: AtomicBool,
    /// Wakes the keeper.
    pub(crate) wanted: Arc<tokio::sync::Notify>,
    /// Which bound was told of which tree; held for one look.
    told: Mutex<HashSet<(NodeId, Limit)>>,
    /// Bytes evicted of late, whose files may not have gone yet; held for one look.
    pub(crate) leaving: Mutex<crate::keeper::Leaving>,
    /// What is on its way to the disk.
    pub(crate) promises: Promises,
}

impl Space {
    pub(crate) fn new(store: &weft_store::Store, notes: Arc<dyn Notes>, options: SpaceOptions) -> Space {
        store.bind(options.bounds());
        Space {
            pins: Pins::noted(notes),
            journal: Journal::in_folder(store.dir()),
            options,
            counted: AtomicBool::new(false),
            wanted: Arc::default(),
            told: Mutex::default(),
            leaving: Mutex::default(),
            promises: Promises::default(),
        }
    }

    /// Whether the accounts are complete.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::SeqCst)
    }
}

impl Vfs {
    /// Refuses what would never fit, whatever were evicted for it.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn refuse_too_large(&self, node: NodeId, account: &Account, length: Option<u64>) -> Result<()> {
        match length.and_then(|length| self.store.never_fits(account, on_disk(length))) {
            Some(bound) => Err(self.no_room(node, account.tree, Limit::Of(bound))),
            None => Ok(()),
        }
    }

    /// Reserves room for more bytes of an object, which lie on the disk already or are promised it; evicts what may be evicted
    /// where there is none.
    ///
    /// # Errors
    /// `NoRoom`.
    pub(crate) fn make_room(&self, object: &Object, more: u64) -> Result<()> {
        let tree = || self.store.account(object.node()).map_or(NodeId::ROOT, |(account, ..)| account.tree);
        let is_reserved = object.length().is_some_and(|length| self.store.is_reserved(length));
        if !is_reserved && !self.keeps_free() {
            return Err(self.no_room(object.node(), tree(), Limit::KeepFree));
        }
        let mut bound = None;
        for _ in 0..BOUNDS_MAX {
            match object.reserve(more) {
                Ok(()) => return Ok(()),
                Err(passed) => {
                    bound = Some(passed);
                    let (filled, max) = self.store.filled(passed);
                    let wanted = filled.saturating_add(more).saturating_sub(max.unwrap_or(u64::MAX));
                    let reason = self.space.options.key(Limit::Of(passed));
                    if self.evict_oldest(passed, wanted, &reason) < wanted {
                        break;
                    }
                }
            }
        }
        let bound = bound.expect("a reservation was refused");
        let tree = if let Bound::Tree(tree) = bound { tree } else { tree() };
        Err(self.no_room(object.node(), tree, Limit::Of(bound)))
    }

    /// Whether bytes that nobody has asked for yet find room: without an eviction, and with something left of each bound
    /// for what is asked for.
    pub(crate) fn has_room_to_spare(&self, node: NodeId, bytes: u64) -> bool {
        let Ok(account) = self.account_of(node) else { return false };
        let rules = (0..Bounds::RULES_MAX).filter(|rule| account.rules >> rule & 1 == 1).map(Bound::Rule);
        let scratch = (account.class == Class::Scratch).then_some(Bound::Scratch);
        let mut bounds = rules.chain(scratch).chain([Bound::Tree(account.tree), Bound::All]);
        let spare = |bound: Bound| match self.store.filled(bound) {
            (filled, Some(max)) => filled.saturating_add(on_disk(bytes)) <= max - max / SPARE_PART,
            (_, None) => true,
        };
        let keep_free = self.space.options.keep_free();
        let wanted = keep_free.saturating_add(keep_free / SPARE_PART).saturating_add(on_disk(bytes));
        self.store.usage().free_bytes >= wanted.saturating_add(self.space.promises.bytes()) && bounds.all(spare)
    }

    /// Tells that a file is served without being stored: for a bound, once per tree.
    pub(crate) fn tell_unstored(&self, node: NodeId, error: &VfsError) {
        let VfsError::NoRoom(why) = error else {
            self.troubles.tell(self.path_text(node), format!("{error}; served without storing it"));
            return;
        };
        let first = {
            let mut told = self.space.told.lock();
            told.len() < TOLD_MAX && told.insert((why.tree, why.limit))
        };
        if first {
            self.troubles.tell(self.path_text(node), error.to_string());
        }
    }

    fn no_room(&self, node: NodeId, tree: NodeId, limit: Limit) -> VfsError {
        let place = self.place_of(node).ok();
        let tree = place.as_ref().map_or(tree, Place::tree);
        let about = self.place_of(tree).map(|place| place.text()).unwrap_or_default();
        let key = self.space.options.key(limit);
        let met = match limit {
            Limit::Of(bound) => {
                let (filled, max) = self.store.filled(bound);
                let max = max.unwrap_or_default();
                format!("`{key}` ({max} bytes, {filled} of them taken) leaves no room for it, nor would eviction")
            }
            Limit::KeepFree if self.space.options.keep_free.is_none() => {
                format!(
                    "the disk of the cache has no more space than the {INDEX_ROOM_BYTES} bytes that are left to its index"
                )
            }
            Limit::KeepFree => format!("`{key}` is met: the disk of the cache has no more to give"),
        };
        let hint = "raise the bound, make more of the cache class scratch, or free some with `weft rm -w`";
        let sentence = format!("{about}: {met}; served without storing it, as is what follows: {hint}");
        VfsError::NoRoom(Arc::new(NoRoom { tree, limit, sentence }))
    }
}

/// What so many bytes take on disk, in whole blocks.
pub(crate) fn on_disk(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX)
}

/// What file systems commonly allocate at least.
const BLOCK_BYTES: u64 = 4096;
/// How many bounds one piece of content may meet one after the other.
const BOUNDS_MAX: usize = 8;
/// What content leaves of the disk without a word of the user's: the index grows by the names that are learnt, and when it cannot
/// be written it may not be opened again, and read, before there is room.
const INDEX_ROOM_BYTES: u64 = 4 << 20;
/// The part of each bound that is left to what is asked for.
const SPARE_PART: u64 = 8;
/// Most trees and bounds that are remembered as told.
const TOLD_MAX: usize = 1024;
