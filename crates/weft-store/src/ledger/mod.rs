//! Who uses how much of the disk, and which bound that meets.
//!
//! The ledger has one line per committed object: what it counts towards (its *account*), its bytes on disk, who brought
//! it and when it was last used. Beside the lines it keeps sums, so that a bound is compared in constant time. What is
//! on its way here is *reserved*: it counts towards the bounds before it is written, and no two bodies can take the
//! same room. The ledger lives in memory alone; after a start its lines are entered again from the object records,
//! which are sound after a crash, and so are the sums.
//!
//! An object's line and its record change together, under the shelf's lock of changes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound as End;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::NodeId;

/// What may happen to content without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// It is never evicted, and only removed when that is said twice.
    Pinned,
    /// It is never evicted; the user removes it.
    #[default]
    Kept,
    /// It is evicted when room is needed, the longest unused first.
    Scratch,
}

/// What an object counts towards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// The top-level tree that it lies in.
    pub tree: NodeId,
    /// The bounded rules that it falls under: bit n is [`Bounds::rules`]`[n]`.
    pub rules: u64,
    /// What may happen to it.
    pub class: Class,
}

/// How many bytes may be held; `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// In all.
    pub all: Option<u64>,
    /// Of class scratch.
    pub scratch: Option<u64>,
    /// In each top-level tree.
    pub tree: Option<u64>,
    /// Under each rule; at most [`Bounds::RULES_MAX`].
    pub rules: Vec<u64>,
}

impl Bounds {
    /// Most rules with a bound of their own.
    pub const RULES_MAX: usize = 64;
}

/// The bound that keeps something from being stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// On everything.
    All,
    /// On class scratch.
    Scratch,
    /// On this top-level tree.
    Tree(NodeId),
    /// On this rule.
    Rule(usize),
}

/// One object that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Whose object it is.
    pub node: NodeId,
    /// When it was last used, in microseconds since 1970, as the ledger knows it.
    pub used_us: u64,
    /// Bytes that it takes on disk.
    pub bytes: u64,
}

/// What a part of the ledger comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Objects.
    pub files: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// The longest unused one's last use, in microseconds since 1970; 0 without objects.
    pub oldest_us: u64,
    /// The latest use.
    pub newest_us: u64,
}

/// One line, as it is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) account: Account,
    pub(crate) bytes: u64,
    pub(crate) owner_uid: u32,
    pub(crate) used_us: u64,
}

/// The ledger of one store. The lock guards the lines and sums, is held for no I/O, and is taken last.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    bounds: Bounds,
    lines: HashMap<NodeId, Line>,
    /// The lines of class scratch, the longest unused first.
    order: BTreeSet<(u64, NodeId)>,
    all: Purse,
    scratch: Purse,
    trees: HashMap<NodeId, Purse>,
    rules: HashMap<usize, Purse>,
}

/// What counts towards one bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Purse {
    /// Held and reserved.
    filled: u64,
    /// Held of class scratch, which can make room.
    evictable: u64,
}

/// Room that is taken for bytes on their way; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    ledger: Arc<Ledger>,
    account: Account,
    bytes: u64,
}

impl Ledger {
    /// Sets the bounds that hold from now on.
    pub(crate) fn bind(&self, bounds: Bounds) {
        self.0.lock().bounds = bounds;
    }

    /// Takes room, unless that would pass a bound.
    pub(crate) fn reserve(self: &Arc<Self>, account: Account, bytes: u64) -> Result<Reservation, Bound> {
        let mut books = self.0.lock();
        if let Some(bound) = books.passed(&account, bytes, |purse| purse.filled) {
            return Err(bound);
        }
        books.fill(&account, bytes);
        Ok(Reservation { ledger: Arc::clone(self), account, bytes })
    }

    /// The bound that this many bytes would pass even when all that may be evicted were.
    pub(crate) fn never_fits(&self, account: &Account, bytes: u64) -> Option<Bound> {
        self.0.lock().passed(account, bytes, |purse| purse.filled.saturating_sub(purse.evictable))
    }

    /// Puts a node's line in place of the one before, and gives back what was reserved for it, in one step.
    pub(crate) fn put(&self, node: NodeId, line: Option<Line>, reserved: Option<Reservation>) {
        {
            let mut books = self.0.lock();
            if let Some(mut reserved) = reserved {
                books.drain(&reserved.account, std::mem::take(&mut reserved.bytes));
            }
            books.put(node, line);
        }
    }

    /// Forgets all lines: the records behind them are lost. What is reserved stays so.
    pub(crate) fn clear(&self) {
        let mut books = self.0.lock();
        let nodes: Vec<NodeId> = books.lines.keys().copied().collect();
        nodes.into_iter().for_each(|node| books.put(node, None));
    }

    /// A node's line.
    pub(crate) fn line(&self, node: NodeId) -> Option<Line> {
        self.0.lock().lines.get(&node).copied()
    }

    /// Notes a use; an older one than is known changes nothing.
    pub(crate) fn used(&self, node: NodeId, used_us: u64) {
        let mut books = self.0.lock();
        if let Some(line) = books.lines.get(&node).copied().filter(|line| line.used_us < used_us) {
            books.put(node, Some(Line { used_us, ..line }));
        }
    }

    /// Changes what a node's object counts towards; nothing happens when there is no line.
    pub(crate) fn transfer(&self, node: NodeId, account: Account) {
        let mut books = self.0.lock();
        if let Some(line) = books.lines.get(&node).copied() {
            books.put(node, Some(Line { account, ..line }));
        }
    }

    /// The longest unused objects that count towards `bound` and may be evicted, after the place `after`. Looks at a
    /// bounded number of lines; the second value is the place to go on from, `None` at the end.
    pub(crate) fn oldest(
        &self,
        bound: Bound,
        after: Option<(u64, NodeId)>,
        limit: usize,
    ) -> (Vec<Candidate>, Option<(u64, NodeId)>) {
        let books = self.0.lock();
        let from = after.map_or(End::Unbounded, End::Excluded);
        let mut found = Vec::new();
        let mut last = None;
        for (looked, place) in books.order.range((from, End::Unbounded)).enumerate() {
            if found.len() == limit || looked == LOOKED_MAX {
                return (found, last);
            }
            last = Some(*place);
            let line = &books.lines[&place.1];
            let counts = match bound {
                Bound::All | Bound::Scratch => true,
                Bound::Tree(tree) => line.account.tree == tree,
                Bound::Rule(rule) => line.account.rules >> rule & 1 == 1,
            };
            if counts {
                found.push(Candidate { node: place.1, used_us: place.0, bytes: line.bytes });
            }
        }
        (found, None)
    }

    /// What is held, by tree, class and owner. Walks all lines: for people who ask, not for the way of a read.
    pub(crate) fn sums(&self) -> HashMap<(NodeId, Class, u32), Sum> {
        let books = self.0.lock();
        let mut sums: HashMap<_, Sum> = HashMap::new();
        for line in books.lines.values() {
            let sum = sums.entry((line.account.tree, line.account.class, line.owner_uid)).or_default();
            sum.add(line.bytes, line.used_us);
        }
        sums
    }

    /// How much counts towards a bound, reserved bytes included, and the bound itself.
    pub(crate) fn filled(&self, bound: Bound) -> (u64, Option<u64>) {
        let (filled, _, max) = self.standing(bound);
        (filled, max)
    }

    /// How much counts towards a bound, how much of that may be evicted, and the bound.
    pub(crate) fn standing(&self, bound: Bound) -> (u64, u64, Option<u64>) {
        let books = self.0.lock();
        let (purse, max) = match bound {
            Bound::All => (Some(&books.all), books.bounds.all),
            Bound::Scratch => (Some(&books.scratch), books.bounds.scratch),
            Bound::Tree(tree) => (books.trees.get(&tree), books.bounds.tree),
            Bound::Rule(rule) => (books.rules.get(&rule), books.bounds.rules.get(rule).copied()),
        };
        let (filled, evictable) = purse.map_or((0, 0), |purse| (purse.filled, purse.evictable));
        (filled, evictable, max)
    }
}

impl Sum {
    /// Counts one object.
    pub fn add(&mut self, bytes: u64, used_us: u64) {
        self.oldest_us = if self.files == 0 { used_us } else { self.oldest_us.min(used_us) };
        self.newest_us = self.newest_us.max(used_us);
        self.files += 1;
        self.bytes += bytes;
    }

    /// Counts another sum.
    pub fn join(&mut self, other: &Sum) {
        if other.files > 0 {
            self.oldest_us = if self.files == 0 { other.oldest_us } else { self.oldest_us.min(other.oldest_us) };
        }
        self.newest_us = self.newest_us.max(other.newest_us);
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

impl Reservation {
    /// Takes more room for the same object.
    pub(crate) fn grow(&mut self, more: u64) -> Result<(), Bound> {
        let mut further = self.ledger.reserve(self.account, more)?;
        self.bytes += std::mem::take(&mut further.bytes);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.ledger.0.lock().drain(&self.account, self.bytes);
        }
    }
}

impl Books {
    fn put(&mut self, node: NodeId, line: Option<Line>) {
        let former = match line {
            Some(line) => self.lines.insert(node, line),
            None => self.lines.remove(&node),
        };
        if let Some(former) = former {
            self.drain(&former.account, former.bytes);
            if former.account.class == Class::Scratch {
                self.order.remove(&(former.used_us, node));
                self.each(&former.account, |purse| purse.evictable = purse.evictable.saturating_sub(former.bytes));
            }
        }
        if let Some(line) = line {
            self.fill(&line.account, line.bytes);
            if line.account.class == Class::Scratch {
                self.order.insert((line.used_us, node));
                self.each(&line.account, |purse| purse.evictable += line.bytes);
            }
        }
        if let Some(former) = former {
            self.tidy(former.account.tree);
        }
    }

    fn fill(&mut self, account: &Account, bytes: u64) {
        self.each(account, |purse| purse.filled = purse.filled.saturating_add(bytes));
    }

    fn drain(&mut self, account: &Account, bytes: u64) {
        self.each(account, |purse| purse.filled = purse.filled.saturating_sub(bytes));
        self.tidy(account.tree);
    }

    /// Trees without content take no memory.
    fn tidy(&mut self, tree: NodeId) {
        if self.trees.get(&tree).is_some_and(|purse| *purse == Purse::default()) {
            self.trees.remove(&tree);
        }
    }

    fn each(&mut self, account: &Account, mut change: impl FnMut(&mut Purse)) {
        change(&mut self.all);
        if account.class == Class::Scratch {
            change(&mut self.scratch);
        }
        change(self.trees.entry(account.tree).or_default());
        for rule in rules_of(account) {
            change(self.rules.entry(rule).or_default());
        }
    }

    fn passed(&self, account: &Account, bytes: u64, filled: impl Fn(&Purse) -> u64) -> Option<Bound> {
        let over = |purse: Option<&Purse>, max: Option<u64>| {
            max.is_some_and(|max| purse.map_or(0, &filled).saturating_add(bytes) > max)
        };
        if let Some(rule) =
            rules_of(account).find(|rule| over(self.rules.get(rule), self.bounds.rules.get(*rule).copied()))
        {
            return Some(Bound::Rule(rule));
        }
        if over(self.trees.get(&account.tree), self.bounds.tree) {
            return Some(Bound::Tree(account.tree));
        }
        if account.class == Class::Scratch && over(Some(&self.scratch), self.bounds.scratch) {
            return Some(Bound::Scratch);
        }
        over(Some(&self.all), self.bounds.all).then_some(Bound::All)
    }
}

fn rules_of(account: &Account) -> impl Iterator<Item = usize> + use<> {
    let rules = account.rules;
    (0..Bounds::RULES_MAX).filter(move |rule| rules >> rule & 1 == 1)
}

/// Most lines that one search for candidates looks at.
const LOOKED_MAX: usize = 10_000;

#[cfg(test)]
mod tests;
