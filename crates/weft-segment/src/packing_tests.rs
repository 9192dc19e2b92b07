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
        assert!(at[1..].iter().all(|at| plans[*at].hashes[0] / 100 == page && plans[*at].begins[0] == 0), "{plans:?}");
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
