//! Random operations against a plain map, with reopening and crashes among them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use weft_segment::device::{Recorder, Tear};
use weft_segment::{Affinity, Class, Options};

use crate::sample::{content, formatted, get, key, open, options, put};

#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize, bool),
    Remove(u64, bool),
    Get(u64),
    /// These are used together: who is in many groups is packed anew.
    Hint([u64; 4]),
    Flush,
    Checkpoint,
    Reopen,
    /// After so many of the events since the volume was opened, in permille.
    Crash(Tear, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u64..25, 0usize..32_769, any::<bool>()).prop_map(|(key, length, durable)| Step::Put(key, length, durable)),
        4 => (0u64..25, any::<bool>()).prop_map(|(key, durable)| Step::Remove(key, durable)),
        6 => (0u64..25).prop_map(Step::Get),
        4 => proptest::array::uniform4(0u64..25).prop_map(Step::Hint),
        2 => Just(Step::Flush),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        2 => (0..Tear::ALL.len(), 0usize..=1000).prop_map(|(tear, at)| Step::Crash(Tear::ALL[tear], at)),
    ];
    proptest::collection::vec(step, 1..150)
}

/// The states that a key may be in; the last is the one that it is in while nothing crashes.
type Model = BTreeMap<u64, Vec<(usize, Option<usize>, Option<Bytes>)>>;

fn class(durable: bool) -> Class {
    if durable { Class::Durable } else { Class::Cache }
}

fn settle(model: &mut Model, events: usize) {
    for states in model.values_mut().flatten() {
        states.1.get_or_insert(events);
    }
}

fn run(steps: Vec<Step>, options: Options) {
    let mut recorder = Arc::new(Recorder::of(formatted()));
    let mut volume = Some(open(&recorder, options));
    let mut model = Model::new();
    for (number, step) in steps.into_iter().enumerate() {
        let open_volume = volume.as_ref().expect("it is open");
        let begun = recorder.events();
        match step {
            Step::Put(key, length, durable) => {
                let bytes = content(number as u64, length);
                put(open_volume, key, bytes.clone(), class(durable));
                let confirmed = durable.then(|| recorder.events());
                model.entry(key).or_default().push((begun, confirmed, Some(bytes)));
            }
            Step::Remove(number, durable) => {
                open_volume.remove(&key(number), class(durable)).unwrap();
                let confirmed = durable.then(|| recorder.events());
                model.entry(number).or_default().push((begun, confirmed, None));
            }
            Step::Get(number) => {
                let expected = model.get(&number).and_then(|states| states.last()).and_then(|state| state.2.clone());
                assert_eq!(get(open_volume, number), expected, "key {number}");
            }
            Step::Hint(numbers) => {
                let keys = numbers.map(key);
                open_volume.hint(Affinity::Linked, &keys.each_ref().map(Vec::as_slice));
            }
            Step::Flush => {
                open_volume.flush().unwrap();
                settle(&mut model, recorder.events());
            }
            Step::Checkpoint => {
                open_volume.checkpoint().unwrap();
                settle(&mut model, recorder.events());
            }
            Step::Reopen => {
                drop(volume.take());
                settle(&mut model, recorder.events());
                volume = Some(open(&recorder, options));
            }
            Step::Crash(tear, permille) => {
                let at = recorder.events() * permille / 1000;
                let image = recorder.after_crash(at, tear);
                drop(volume.take());
                recorder = Arc::new(Recorder::of(image));
                let after = open(&recorder, options);
                let mut found = Model::new();
                for (number, states) in &model {
                    let now = get(&after, *number);
                    let confirmed = states.iter().rposition(|state| state.1.is_some_and(|confirmed| confirmed <= at));
                    let mut allowed: Vec<Option<Bytes>> = vec![confirmed.and_then(|last| states[last].2.clone())];
                    let later = states.iter().skip(confirmed.map_or(0, |last| last + 1));
                    allowed.extend(later.filter(|state| state.0 <= at).map(|state| state.2.clone()));
                    assert!(allowed.contains(&now), "key {number} after {tear:?} at {at}");
                    // What was found is durable: the start has synced it.
                    found.insert(*number, vec![(0, Some(0), now)]);
                }
                model = found;
                volume = Some(after);
            }
        }
    }
    let volume = volume.expect("it is open");
    assert!(volume.check().unwrap().is_sound());
    for (number, states) in &model {
        assert_eq!(get(&volume, *number), states.last().and_then(|state| state.2.clone()), "key {number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn it_is_a_map_that_survives_crashes(steps in steps()) {
        run(steps, options());
    }

    #[test]
    fn it_is_a_map_with_a_buffer_too(steps in steps()) {
        run(steps, Options { buffer_bytes: 300_000, ..options() });
    }
}
