//! Which objects go into which segment: friends together, the rest wherever it fits best.
//!
//! From the first object that has no place, its friends are added, the closest first: by the sum of the weights of the
//! groups that they share with what is there already, divided by the root of how many groups they are in, so that what
//! belongs to many pages is not dragged along with one. What belongs to very many (a logo) lies with its like alone: it
//! is wanted at all times, and would bring along parts of a page that nobody wants. It waits until there is a segment of
//! it, and what turns out to be so after it was packed is packed anew (lifting.rs). A directory in common counts as a
//! weak group.
//!
//! Such a *unit* that fills a segment becomes one. A smaller one goes as a whole to the fullest of four open segments
//! that has room, so that objects without friends lie in the order of their first use. When none has, one is filled up
//! with some of it and done, and the rest begins another segment, which is written right after it where that can be: a
//! disk that turns reads on for little. So does a unit that is longer than a segment. Where each begins is told, so that
//! a read brings the one that is wanted and not those beside it. The same input always gives the same segments.

use std::collections::{BTreeMap, HashMap};

use crate::affinity::Groups;

/// An object that needs a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) hash: u64,
    /// What it takes of a segment's room.
    pub(crate) cost: usize,
    /// The directory that it lies in, as the caller numbers them; 0 for none.
    pub(crate) directory: u64,
    /// What groups call it.
    pub(crate) name: u64,
}

/// What goes into one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// In the order of the segment.
    pub(crate) hashes: Vec<u64>,
    pub(crate) used: usize,
    /// Where among `hashes` a unit of friends begins, or what follows one.
    begins: Vec<usize>,
    /// Bytes of those that lie with friends.
    befriended: usize,
    /// Whether the last of it is a unit of friends.
    ends_with_friends: bool,
    /// How many of `hashes` are popular: the first ones.
    popular: usize,
}

impl Plan {
    /// Whether most of it lies with friends.
    pub(crate) fn is_of_friends(&self) -> bool {
        self.befriended * 2 > self.used
    }

    /// How many of some of the objects, in the order of the segment, lie there as popular ones: the first ones.
    pub(crate) fn popular_of(&self, hashes: impl Iterator<Item = u64>) -> usize {
        let mut all = self.hashes[..self.popular].iter();
        hashes.take_while(|hash| all.any(|other| other == hash)).count()
    }

    /// Of some of the objects, in the order of the segment, whether each is not to be read with the one before.
    pub(crate) fn begins_of(&self, hashes: impl Iterator<Item = u64>) -> Vec<bool> {
        let (mut all, mut former) = (self.hashes.iter().enumerate(), 0);
        let begins = hashes.map(|hash| {
            let at = all.find(|(_, other)| **other == hash).map_or(self.hashes.len(), |(at, _)| at);
            let begun = self.begins.partition_point(|begin| *begin <= at);
            std::mem::replace(&mut former, begun) != begun
        });
        begins.collect()
    }

    /// With a unit in it.
    fn of(unit: Plan) -> Plan {
        let mut plan = Plan::default();
        plan.take(unit);
        plan
    }

    fn take(&mut self, unit: Plan) {
        self.begin(unit.is_of_friends());
        self.hashes.extend(unit.hashes);
        self.used += unit.used;
        self.befriended += unit.befriended;
    }

    /// What comes next are friends, or others.
    fn begin(&mut self, friends: bool) {
        if friends || self.ends_with_friends {
            self.begins.push(self.hashes.len());
        }
        self.ends_with_friends = friends;
    }
}

/// Packs items, given in the order of their first use, into segments with this much room. Each item fits into one.
/// What would fill less than `least` of one waits for others.
pub(crate) fn plan(items: &[Item], groups: &Groups, room: usize, least: usize) -> Vec<Plan> {
    let mut packing = Packing::new(items, groups, room);
    let (mut full, mut open) = (Full::default(), Vec::<Plan>::new());
    let (popular, others): (Vec<usize>, Vec<usize>) =
        (0..items.len()).partition(|at| groups.is_popular(items[*at].name));
    // What is popular waits for its like; where all is to go, it is filled up as others are.
    packing.put_all(&popular, (&mut open, POPULAR_OPEN_MAX), &mut full);
    open.retain(|plan| plan.used >= least);
    full.plans.iter_mut().chain(&mut open).for_each(|plan| plan.popular = plan.hashes.len());
    packing.put_all(&others, (&mut open, OPEN_MAX), &mut full);
    full.plans.extend(open.into_iter().filter(|plan| plan.used >= least));
    chained(full)
}

/// Orders segments so that the two parts of a split unit follow each other, as far as one has one neighbour.
fn chained(full: Full) -> Vec<Plan> {
    let Full { plans, splits } = full;
    let hashes = plans.iter().enumerate().flat_map(|(at, plan)| plan.hashes.iter().map(move |hash| (*hash, at)));
    let place: HashMap<u64, usize> = hashes.collect();
    let (mut next, mut has_former) = (vec![None; plans.len()], vec![false; plans.len()]);
    for (first, rest) in splits {
        let (Some(first), Some(rest)) = (place.get(&first), place.get(&rest)) else { continue };
        // The rest is done later than what it is the rest of: there is no circle.
        if first < rest && next[*first].is_none() && !has_former[*rest] {
            next[*first] = Some(*rest);
            has_former[*rest] = true;
        }
    }
    let mut plans: Vec<Option<Plan>> = plans.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(plans.len());
    for begin in (0..plans.len()).filter(|at| !has_former[*at]) {
        let mut at = Some(begin);
        while let Some(here) = at {
            ordered.extend(plans[here].take());
            at = next[here];
        }
    }
    ordered
}

/// The fullest that has no more than that in it; of two that are as full the one that was begun first.
fn fullest(open: &[Plan], most: usize) -> Option<usize> {
    let fitting = (0..open.len()).filter(|at| open[*at].used <= most);
    fitting.max_by_key(|at| (open[*at].used, std::cmp::Reverse(*at)))
}

/// How much of a segment has to be used for it to count as full.
pub(crate) fn full_at(room: usize) -> usize {
    room / FULL_OF * FULL
}

/// Segments to be written.
#[derive(Debug, Default)]
struct Full {
    plans: Vec<Plan>,
    /// Of each unit that was split, one of the objects of each part.
    splits: Vec<(u64, u64)>,
}

impl Full {
    /// One that was filled up with some of a unit, of which the rest goes elsewhere.
    fn add(&mut self, sealed: Plan, rest: &Plan, is_split: bool) {
        if is_split {
            self.splits.extend(sealed.hashes.last().copied().zip(rest.hashes.first().copied()));
        }
        self.plans.push(sealed);
    }
}

/// Some of a unit's objects, and what they take of a segment.
struct Taken {
    objects: Vec<usize>,
    /// How many of them are the closest ones.
    closest: usize,
    used: usize,
}

struct Packing<'i> {
    items: &'i [Item],
    groups: &'i Groups,
    room: usize,
    placed: Vec<bool>,
    at: HashMap<u64, usize>,
    named: HashMap<u64, usize>,
    directories: HashMap<u64, Vec<usize>>,
}

impl<'i> Packing<'i> {
    fn new(items: &'i [Item], groups: &'i Groups, room: usize) -> Packing<'i> {
        let at = items.iter().enumerate().map(|(at, item)| (item.hash, at)).collect();
        let named = items.iter().enumerate().map(|(at, item)| (item.name, at)).collect();
        let mut directories: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, item) in items.iter().enumerate().filter(|(_, item)| item.directory != 0) {
            directories.entry(item.directory).or_default().push(at);
        }
        Packing { items, groups, room, placed: vec![false; items.len()], at, named, directories }
    }

    /// Puts these objects and their friends, with at most so many segments open.
    fn put_all(&mut self, seeds: &[usize], (open, open_max): (&mut Vec<Plan>, usize), full: &mut Full) {
        for seed in seeds {
            if !self.placed[*seed] {
                let unit = self.unit(*seed);
                self.put((open, open_max), unit, full);
            }
        }
    }

    /// The object `seed` and as many of its friends as fit; of those who are friends of all, as many as fit into two.
    fn unit(&mut self, seed: usize) -> Plan {
        let mut unit = Plan::default();
        // Ordered, so that nothing depends on the order of a hash table.
        let mut closeness: BTreeMap<usize, Closeness> = BTreeMap::new();
        let mut next = Some(seed);
        while let Some(item) = next {
            self.placed[item] = true;
            closeness.remove(&item);
            unit.hashes.push(self.items[item].hash);
            unit.used += self.items[item].cost;
            self.befriend(item, &mut closeness);
            let fits = |other: usize, by: &Closeness| {
                let used = unit.used + self.items[other].cost;
                let is_of_all = by.friends >= unit.hashes.len();
                used <= if is_of_all { self.room * UNIT_SEGMENTS_MAX } else { self.room }
            };
            let fitting = closeness.iter().filter(|(other, by)| fits(**other, by));
            // The nearer one where two are as close.
            next =
                fitting.max_by_key(|(other, by)| (by.sum, usize::MAX - other.abs_diff(item))).map(|(other, _)| *other);
            if next.and_then(|next| closeness.get(&next)).is_some_and(|by| by.friends > 0) {
                let seed_too = if unit.befriended == 0 { unit.used } else { 0 };
                let cost = next.map_or(0, |next| self.items[next].cost);
                unit.befriended += cost + seed_too;
            }
        }
        unit
    }

    /// Puts a unit where there is room for it, or what fits of it there and the rest at the beginning of the next segment.
    fn put(&self, (open, open_max): (&mut Vec<Plan>, usize), mut unit: Plan, full: &mut Full) {
        let is_short = unit.used <= self.room;
        if is_short && unit.used >= full_at(self.room) {
            full.plans.push(Plan::of(unit));
            return;
        }
        if let Some(at) = is_short.then(|| fullest(open, self.room - unit.used)).flatten() {
            open[at].take(unit);
            return;
        }
        if open.len() >= open_max {
            // Better a few friends apart than a hole in a segment: the one that can be filled best is done.
            let sealed = open.remove(self.best_filled(open, &unit));
            unit = self.split(sealed, unit, full);
        }
        while unit.used > self.room {
            unit = self.split(Plan::default(), unit, full);
        }
        // Nothing of another is before it: so it can follow what it is the rest of.
        if !unit.hashes.is_empty() {
            open.push(Plan::of(unit));
        }
    }

    /// Fills a segment up with a unit, and tells the rest.
    fn split(&self, sealed: Plan, unit: Plan, full: &mut Full) -> Plan {
        let count = unit.hashes.len();
        // It is asked for from its first object on: a part that lay before that would be read by itself.
        let fits = sealed.used + self.cost(unit.hashes[0]) <= self.room;
        let (sealed, rest) = if fits { self.topped_up(sealed, unit) } else { (sealed, unit) };
        full.add(sealed, &rest, rest.hashes.len() < count);
        rest
    }

    /// Which of the open segments has the least room left when it is filled up with objects of a unit, the first one
    /// among them if that can be.
    fn best_filled(&self, open: &[Plan], unit: &Plan) -> usize {
        let left = |plan: &Plan| {
            let room = self.room - plan.used;
            let fits = self.cost(unit.hashes[0]) <= room;
            (!fits, if fits { room - self.chosen(unit, room).used } else { room })
        };
        (0..open.len()).min_by_key(|at| (left(&open[*at]), *at)).expect("some are open")
    }

    fn cost(&self, hash: u64) -> usize {
        self.items[self.at[&hash]].cost
    }

    /// Fills a segment with objects of a unit, and tells the rest.
    fn topped_up(&self, mut plan: Plan, mut unit: Plan) -> (Plan, Plan) {
        plan.begin(unit.is_of_friends());
        let taken = self.chosen(&unit, self.room - plan.used);
        plan.hashes.extend(taken.objects.iter().map(|at| unit.hashes[*at]));
        plan.used += taken.used;
        let befriended = unit.befriended.min(taken.used);
        plan.befriended += befriended;
        unit.befriended -= befriended;
        unit.used -= taken.used;
        let mut is_left = vec![true; unit.hashes.len()];
        taken.objects.iter().for_each(|at| is_left[*at] = false);
        let mut is_left = is_left.into_iter();
        unit.hashes.retain(|_| is_left.next() == Some(true));
        (plan, unit)
    }

    /// Which of a unit's objects fill so much room: the closest as far as they fit, then the large ones, for the small ones
    /// fit into what is left. Fewer of the closest where that leaves less of a hole.
    fn chosen(&self, unit: &Plan, room: usize) -> Taken {
        let hole = self.room - full_at(self.room);
        let mut taken = self.fitting(unit, unit.hashes.len(), room);
        let mut closest = taken.closest;
        while room - taken.used > hole && closest > 1 {
            closest -= closest.div_ceil(FEWER_PART);
            let other = self.fitting(unit, closest, room);
            if other.used > taken.used {
                taken = other;
            }
        }
        taken
    }

    /// Those of a unit's objects that fit: so many of the closest, as far as they do, then the large ones first.
    fn fitting(&self, unit: &Plan, closest: usize, room: usize) -> Taken {
        let mut taken = Taken { objects: Vec::new(), closest: 0, used: 0 };
        for (at, hash) in unit.hashes.iter().enumerate().take(closest) {
            if taken.used + self.cost(*hash) > room {
                break;
            }
            taken.objects.push(at);
            taken.used += self.cost(*hash);
        }
        taken.closest = taken.objects.len();
        let mut others: Vec<usize> = (taken.closest..unit.hashes.len()).collect();
        others.sort_by_key(|at| std::cmp::Reverse(self.cost(unit.hashes[*at])));
        for at in others {
            let cost = self.cost(unit.hashes[at]);
            if taken.used + cost <= room {
                taken.objects.push(at);
                taken.used += cost;
            }
        }
        taken
    }

    /// Adds what an item's friends gain by its being in the unit.
    fn befriend(&self, item: usize, closeness: &mut BTreeMap<usize, Closeness>) {
        let is_popular = |item: usize| self.groups.is_popular(self.items[item].name);
        let popular = is_popular(item);
        let mut gain = |other: usize, weight: u64, is_of_groups: bool| {
            if !self.placed[other] && is_popular(other) == popular {
                let popularity = self.groups.popularity(self.items[other].name).max(1);
                let by = closeness.entry(other).or_default();
                by.sum += weight * SCALE / (popularity * SCALE * SCALE).isqrt();
                by.friends += usize::from(is_of_groups);
            }
        };
        self.groups.friends(self.items[item].name, |name, weight| {
            if let Some(other) = self.named.get(&name) {
                gain(*other, weight * SCALE, true);
            }
        });
        let Some(siblings) = self.directories.get(&self.items[item].directory) else { return };
        let here = siblings.partition_point(|sibling| *sibling < item);
        for sibling in &siblings[here.saturating_sub(SIBLINGS)..siblings.len().min(here + SIBLINGS)] {
            gain(*sibling, DIRECTORY_WEIGHT * SCALE, false);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Closeness {
    sum: u64,
    /// How often a group tells of one of the unit and it.
    friends: usize,
}

/// The part of the closest objects that is given up at a time to fill a hole.
const FEWER_PART: usize = 4;
/// How far a unit of friends may go. What belongs to a page is read in a row, however long that is; of a long list (what
/// somebody has looked at in a day) parts are wanted.
const UNIT_SEGMENTS_MAX: usize = 2;
/// Segments that are being filled.
const OPEN_MAX: usize = 4;
/// The same of what is popular. So much of it waits in memory until there is enough for a segment.
const POPULAR_OPEN_MAX: usize = 2;
/// A segment with a hole of a thirty-second part is full.
const FULL: usize = 31;
const FULL_OF: usize = 32;
const DIRECTORY_WEIGHT: u64 = 1;
/// How far in the order of first use a directory makes friends.
const SIBLINGS: usize = 32;
/// Weights are whole numbers: in parts of that.
const SCALE: u64 = 1 << 10;

#[cfg(test)]
#[path = "packing_tests.rs"]
mod tests;
