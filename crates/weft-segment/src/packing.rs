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
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::affinity::{Affinity, POPULAR};

    const ROOM: usize = 128 << 10;

    fn item(hash: u64, cost: usize) -> Item {
        Item { hash, cost, directory: 0, name: hash }
    }

    /// Pages of 16 objects of 8 KiB, their objects coming interleaved.
    fn pages() -> (Vec<Item>, Groups) {
        let mut groups = Groups::default();
        for page in 0..8u64 {
            let members: Vec<u64> = (0..16).map(|object| page * 100 + object).collect();
            groups.add(Affinity::Told, &members);
        }
        let items = (0..16).flat_map(|object| (0..8u64).map(move |page| item(page * 100 + object, 8 << 10))).collect();
        (items, groups)
    }

    #[test]
    fn the_objects_of_a_page_lie_together_however_they_came() {
        let (items, groups) = pages();
        let plans = plan(&items, &groups, ROOM, 0);
        assert_eq!(plans.len(), 8);
        for plan in plans {
            let pages: HashSet<u64> = plan.hashes.iter().map(|hash| hash / 100).collect();
            assert_eq!(pages.len(), 1, "{plan:?}");
            assert!(plan.is_of_friends());
        }
    }

    #[test]
    fn what_belongs_to_many_is_not_dragged_along_with_one() {
        let mut groups = Groups::default();
        for page in 0..9u64 {
            groups.add(Affinity::Told, &[page * 10 + 1, 7777, page * 10 + 2]);
        }
        // The popular one came first of its friends, but there is room for two objects.
        let items = [item(1, ROOM / 2), item(7777, ROOM / 2), item(2, ROOM / 2)];
        assert_eq!(plan(&items, &groups, ROOM, 0)[0].hashes, [1, 2]);
    }

    #[test]
    fn what_belongs_to_very_many_lies_with_its_like() {
        let mut groups = Groups::default();
        let logos = [9001, 9002, 9003, 9004];
        let pages = POPULAR as u64;
        for page in 0..pages {
            groups.add(Affinity::Told, &[&[page * 10, page * 10 + 1], &logos[..]].concat());
        }
        let own = (0..pages).flat_map(|page| [page * 10, page * 10 + 1]);
        let items: Vec<Item> = own.chain(logos).map(|hash| item(hash, ROOM / 4)).collect();
        let plans = plan(&items, &groups, ROOM, 0);
        let together = plans.iter().find(|plan| plan.hashes.contains(&logos[0])).unwrap();
        assert!(logos.iter().all(|logo| together.hashes.contains(logo)), "{together:?}");
        for page in 0..pages {
            let of_page = |plan: &&Plan| plan.hashes.iter().any(|hash| *hash / 10 == page);
            assert_eq!(plans.iter().filter(of_page).count(), 1, "page {page}");
        }
    }

    #[test]
    fn the_parts_of_a_page_that_does_not_fit_follow_each_other() {
        let mut groups = Groups::default();
        // Five pages of ten objects, each three fourths of a segment, and one that is longer than a segment.
        let counts = [10, 10, 10, 10, 10, 18u64];
        let mut items = Vec::new();
        for (page, count) in (0u64..).zip(counts) {
            let members: Vec<u64> = (0..count).map(|object| page * 100 + object).collect();
            groups.add(Affinity::Linked, &members);
            items.extend(members.iter().map(|hash| item(*hash, ROOM * 3 / 40)));
        }
        let plans = plan(&items, &groups, ROOM, 0);
        for page in 0..6 {
            let of_page = |plan: &Plan| plan.hashes.iter().any(|hash| hash / 100 == page);
            let at: Vec<usize> = (0..plans.len()).filter(|at| of_page(&plans[*at])).collect();
            assert!(at.windows(2).all(|two| two[0] + 1 == two[1]) && at.len() <= 3, "{page} in {at:?} of {plans:?}");
            let first = &plans[at[0]];
            let begin = first.hashes.iter().position(|hash| *hash == page * 100).expect("the page itself comes first");
            assert!(first.begins.contains(&begin), "{page} in {first:?}");
            // What does not fit begins the next one.
            assert!(
                at[1..].iter().all(|at| plans[*at].hashes[0] / 100 == page && plans[*at].begins[0] == 0),
                "{plans:?}"
            );
        }
        let all: usize = plans.iter().map(|plan| plan.hashes.len()).sum();
        assert_eq!(all, 68);
    }

    #[test]
    fn without_friends_the_order_of_first_use_counts() {
        let items: Vec<Item> = (1..=100).map(|hash| item(hash, 10 << 10)).collect();
        let plans = plan(&items, &Groups::default(), ROOM, ROOM / 2);
        let order: Vec<u64> = plans.iter().flat_map(|plan| plan.hashes.clone()).collect();
        assert!(order.is_sorted(), "{order:?}");
        assert!(plans.iter().all(|plan| !plan.is_of_friends() && plan.hashes.len() == 12));
        assert_eq!(plans.len(), 8, "the last four wait for others");
    }

    #[test]
    fn a_directory_makes_weak_friends() {
        let items: Vec<Item> = (0..32u64)
            .map(|number| Item { hash: number, cost: 8 << 10, directory: 1 + number % 2, name: number })
            .collect();
        let plans = plan(&items, &Groups::default(), ROOM, 0);
        assert!(plans.iter().all(|plan| plan.hashes.iter().all(|hash| hash % 2 == plan.hashes[0] % 2)), "{plans:?}");
    }

    #[test]
    fn little_is_wasted_with_lengths_as_the_web_has_them() {
        // Lengths of a heavy-tailed kind from a fixed sequence, at most half a segment.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let items: Vec<Item> = (0..5000)
            .map(|hash| {
                let normal = (0..12).map(|_| next()).sum::<f64>() - 6.0;
                let length = 7168.0 * (1.3 * normal).exp();
                item(hash, (length as usize).clamp(100, ROOM / 2))
            })
            .collect();
        let plans = plan(&items, &Groups::default(), ROOM, full_at(ROOM));
        let used: usize = plans.iter().map(|plan| plan.used).sum();
        let waste = 1.0 - used as f64 / (plans.len() * ROOM) as f64;
        assert!(waste < 0.02, "{waste}");
        // The same as pages of sixteen, whose units fill no segment exactly.
        let mut groups = Groups::default();
        for page in items.chunks(16) {
            groups.add(Affinity::Told, &page.iter().map(|item| item.hash).collect::<Vec<_>>());
        }
        let plans = plan(&items, &groups, ROOM, full_at(ROOM));
        let used: usize = plans.iter().map(|plan| plan.used).sum();
        let waste = 1.0 - used as f64 / (plans.len() * ROOM) as f64;
        assert!(waste < 0.02, "{waste} with friends");
    }

    proptest! {
        #[test]
        fn each_has_one_place_and_the_same_input_gives_the_same(
            costs in proptest::collection::vec(100usize..ROOM / 2 + 100, 0..80),
            groups in proptest::collection::vec(proptest::collection::vec(0u64..80, 2..10), 0..12),
        ) {
            let items: Vec<Item> = costs
                .iter()
                .zip(0u64..)
                .map(|(cost, hash)| Item { hash, cost: *cost, directory: hash % 5, name: hash })
                .collect();
            let known = || {
                let mut known = Groups::default();
                groups.iter().for_each(|group| known.add(Affinity::Linked, group));
                known
            };
            let plans = plan(&items, &known(), ROOM, 0);
            prop_assert_eq!(&plans, &plan(&items, &known(), ROOM, 0));
            let mut all: Vec<u64> = plans.iter().flat_map(|plan| plan.hashes.clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..items.len() as u64).collect::<Vec<_>>());
            for plan in &plans {
                let used: usize = plan.hashes.iter().map(|hash| items[*hash as usize].cost).sum();
                prop_assert!(used == plan.used && used <= ROOM);
            }
        }
    }
}
