//! The ledger against a plain map.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put { node: u64, tree: u64, rules: u64, class: Class, bytes: u64, used: u64 },
    Remove { node: u64 },
    Use { node: u64, used: u64 },
    Transfer { node: u64, tree: u64, class: Class },
    Reserve { tree: u64, class: Class, bytes: u64 },
    Release,
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Pinned), Just(Class::Kept), Just(Class::Scratch)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..8, 0u64..3, 0u64..4, class(), 0u64..50, 0u64..9)
            .prop_map(|(node, tree, rules, class, bytes, used)| Step::Put { node, tree, rules, class, bytes, used }),
        (0u64..8).prop_map(|node| Step::Remove { node }),
        (0u64..8, 0u64..20).prop_map(|(node, used)| Step::Use { node, used }),
        (0u64..8, 0u64..3, class()).prop_map(|(node, tree, class)| Step::Transfer { node, tree, class }),
        (0u64..3, class(), 0u64..60).prop_map(|(tree, class, bytes)| Step::Reserve { tree, class, bytes }),
        Just(Step::Release),
    ]
}

fn bounds() -> Bounds {
    Bounds { all: Some(150), scratch: Some(90), tree: Some(80), rules: vec![60, 70] }
}

fn account(tree: u64, rules: u64, class: Class) -> Account {
    Account { tree: NodeId(tree), rules, class }
}

type Model = HashMap<NodeId, Line>;

/// What counts towards a bound by adding it all up, and the bound.
fn count(model: &Model, reserved: &[(Account, u64)], bound: Bound) -> (u64, Option<u64>) {
    let counts = |account: &Account| match bound {
        Bound::All => true,
        Bound::Scratch => account.class == Class::Scratch,
        Bound::Tree(tree) => account.tree == tree,
        Bound::Rule(rule) => account.rules >> rule & 1 == 1,
    };
    let held = model.values().map(|line| (line.account, line.bytes));
    let sum = held.chain(reserved.iter().copied()).filter(|(account, _)| counts(account)).map(|(_, bytes)| bytes);
    let bounds = bounds();
    let max = match bound {
        Bound::All => bounds.all,
        Bound::Scratch => bounds.scratch,
        Bound::Tree(_) => bounds.tree,
        Bound::Rule(rule) => bounds.rules.get(rule).copied(),
    };
    (sum.sum(), max)
}

proptest! {
    /// Goal: the sums are right whatever happens. Method: random steps against a plain map that is added up anew.
    #[test]
    fn the_sums_are_those_of_a_plain_map(steps in proptest::collection::vec(step(), 0..60)) {
        let ledger = Arc::new(Ledger::default());
        ledger.bind(bounds());
        let mut model = Model::new();
        let mut held: Vec<Reservation> = Vec::new();
        for step in steps {
            let reserved: Vec<_> = held.iter().map(|held| (held.account, held.bytes)).collect();
            match step {
                Step::Put { node, tree, rules, class, bytes, used } => {
                    let account = account(tree, rules, class);
                    let line = Line { account, bytes, owner_uid: 1, used_us: used };
                    ledger.put(NodeId(node), Some(line), held.pop());
                    model.insert(NodeId(node), line);
                }
                Step::Remove { node } => {
                    ledger.put(NodeId(node), None, None);
                    model.remove(&NodeId(node));
                }
                Step::Use { node, used } => {
                    ledger.used(NodeId(node), used);
                    model.entry(NodeId(node)).and_modify(|line| line.used_us = line.used_us.max(used));
                }
                Step::Transfer { node, tree, class } => {
                    let account = account(tree, 1, class);
                    ledger.transfer(NodeId(node), account);
                    model.entry(NodeId(node)).and_modify(|line| line.account = account);
                }
                Step::Reserve { tree, class, bytes } => {
                    let account = account(tree, 2, class);
                    let mut touched = vec![Bound::All, Bound::Tree(NodeId(tree)), Bound::Rule(1)];
                    touched.extend((class == Class::Scratch).then_some(Bound::Scratch));
                    let fits = touched.into_iter().all(|bound| {
                        let (sum, max) = count(&model, &reserved, bound);
                        max.is_none_or(|max| sum + bytes <= max)
                    });
                    match ledger.reserve(account, bytes) {
                        Ok(reservation) => {
                            prop_assert!(fits);
                            held.push(reservation);
                        }
                        Err(bound) => {
                            prop_assert!(!fits);
                            let (sum, max) = count(&model, &reserved, bound);
                            prop_assert!(sum + bytes > max.unwrap());
                        }
                    }
                }
                Step::Release => drop(held.pop()),
            }
            let reserved: Vec<_> = held.iter().map(|held| (held.account, held.bytes)).collect();
            let bounds = [Bound::All, Bound::Scratch, Bound::Rule(0), Bound::Rule(1)];
            for bound in bounds.into_iter().chain((0..3).map(|tree| Bound::Tree(NodeId(tree)))) {
                prop_assert_eq!(ledger.filled(bound), count(&model, &reserved, bound), "{:?}", bound);
                let mut expected: Vec<_> = model.iter().filter(|(_, line)| line.account.class == Class::Scratch)
                    .filter(|(node, line)| count(&Model::from([(**node, **line)]), &[], bound).0 == line.bytes
                        && (line.bytes > 0 || matches!(bound, Bound::All | Bound::Scratch)))
                    .map(|(node, line)| (line.used_us, *node)).collect();
                expected.sort();
                let (found, next) = ledger.oldest(bound, None, 100);
                let found: Vec<_> = found.iter().filter(|c| c.bytes > 0 || matches!(bound, Bound::All | Bound::Scratch))
                    .map(|c| (c.used_us, c.node)).collect();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(next, None);
            }
        }
    }
}

#[test]
fn what_could_be_evicted_makes_room_only_in_thought() {
    let ledger = Arc::new(Ledger::default());
    ledger.bind(Bounds { all: Some(100), ..Bounds::default() });
    let line = |class, bytes| Line { account: account(1, 0, class), bytes, owner_uid: 0, used_us: 1 };
    ledger.put(NodeId(1), Some(line(Class::Scratch, 60)), None);
    ledger.put(NodeId(2), Some(line(Class::Kept, 30)), None);
    let wanted = account(2, 0, Class::Kept);
    assert_eq!(ledger.reserve(wanted, 50).err(), Some(Bound::All));
    assert_eq!(ledger.never_fits(&wanted, 70), None);
    assert_eq!(ledger.never_fits(&wanted, 71), Some(Bound::All));
    ledger.put(NodeId(1), None, None);
    let mut reservation = ledger.reserve(wanted, 50).expect("there is room now");
    assert_eq!(reservation.grow(21), Err(Bound::All));
    assert_eq!(reservation.grow(20), Ok(()));
    assert_eq!(ledger.filled(Bound::All), (100, Some(100)));
    drop(reservation);
    assert_eq!(ledger.filled(Bound::All), (30, Some(100)));
}
