//! A crash at every single write and sync of a script, with every kind of tear: what was durable is there, and
//! nothing is there that never was.
//!
//! Method: the script runs once on a device that records every write and sync. For each number of events the image
//! that a crash would have left is opened, and every key is compared with the states that it may be in: the last one
//! that was confirmed before the crash, or any later one that had been begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_segment::device::{MemoryDevice, Recorder, Tear};
use weft_segment::{Affinity, Class, Options, Policy, Volume};

use crate::sample::{content, formatted, get, key, open, options, put};

/// One state that a key was given.
struct Given {
    /// Events before it was begun.
    begun: usize,
    /// Events when it was confirmed.
    durable: Option<usize>,
    state: Option<Bytes>,
}

/// All states of all keys.
#[derive(Default)]
struct History(BTreeMap<u64, Vec<Given>>);

impl History {
    fn note(&mut self, number: u64, begun: usize, durable: Option<usize>, state: Option<Bytes>) {
        self.0.entry(number).or_default().push(Given { begun, durable, state });
    }

    /// Everything so far is confirmed.
    fn all_durable(&mut self, events: usize) {
        for given in self.0.values_mut().flatten() {
            given.durable.get_or_insert(events);
        }
    }

    /// Whether a key may be in that state after a crash that left so many events.
    fn allows(&self, number: u64, events: usize, found: Option<&Bytes>) -> bool {
        let states = &self.0[&number];
        let confirmed = states.iter().rposition(|given| given.durable.is_some_and(|at| at <= events));
        let later = states.iter().skip(confirmed.map_or(0, |at| at + 1)).filter(|given| given.begun <= events);
        let is_confirmed = match confirmed {
            Some(at) => states[at].state.as_ref() == found,
            None => found.is_none(),
        };
        is_confirmed || later.into_iter().any(|given| given.state.as_ref() == found)
    }
}

/// 200 operations of every kind, from a fixed sequence.
fn run_script(recorder: &Arc<Recorder>, options: Options) -> History {
    let volume = open(recorder, options);
    let mut history = History::default();
    let mut state = 88_172_645_463_325_252u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for step in 0..200u64 {
        let number = random(30);
        let begun = recorder.events();
        match random(20) {
            what @ 0..=11 => {
                let class = if what < 3 { Class::Durable } else { Class::Cache };
                let bytes = content(step + 1, 200 + random(20_000) as usize);
                put(&volume, number, bytes.clone(), class);
                let durable = (class == Class::Durable).then(|| recorder.events());
                history.note(number, begun, durable, Some(bytes));
            }
            what @ 12..=14 => {
                let class = if what == 12 { Class::Durable } else { Class::Cache };
                volume.remove(&key(number), class).unwrap();
                // One that was not there needed no record.
                let durable = (class == Class::Durable).then(|| recorder.events());
                history.note(number, begun, durable, None);
            }
            15 => {
                let keys = [key(number), key((number + 1) % 30), key((number + 2) % 30)];
                volume.hint(Affinity::Told, &keys.each_ref().map(Vec::as_slice));
            }
            16 => {
                volume.pin(&key(number), random(2) == 0).unwrap();
            }
            17 | 18 => {
                volume.flush().unwrap();
                history.all_durable(recorder.events());
            }
            _ => {
                volume.checkpoint().unwrap();
                history.all_durable(recorder.events());
            }
        }
    }
    drop(volume);
    history.all_durable(recorder.events());
    history
}

fn verify(volume: &Volume, history: &History, events: usize, told: &str) {
    for number in history.0.keys() {
        let found = get(volume, *number);
        let allowed = history.allows(*number, events, found.as_ref());
        let length = found.as_ref().map(Bytes::len);
        assert!(allowed, "{told}, {events} events: key {number} has a state that it may not have ({length:?} bytes)");
    }
}

fn crash_everywhere(tears: &[Tear]) {
    let recorder = Arc::new(Recorder::of(formatted()));
    let history = run_script(&recorder, options());
    let events = recorder.events();
    assert!(events > 150, "the script writes: {events}");
    for tear in tears {
        for at in 0..=events {
            let device = Arc::new(MemoryDevice::of(recorder.after_crash(at, *tear)));
            let volume = open(&device, options());
            assert!(!volume.stats().scanning, "{tear:?}, {at}: a crash alone never loses both checkpoints");
            verify(&volume, &history, at, &format!("{tear:?}"));
            if at % 16 == 0 {
                // It goes on from there, and what it found stays.
                let found: Vec<_> = (0..30).map(|number| get(&volume, number)).collect();
                put(&volume, 1000, content(1, 5000), Class::Durable);
                drop(volume);
                let volume = open(&device, options());
                assert!(volume.check().unwrap().is_sound(), "{tear:?}, {at}");
                assert_eq!((0..30).map(|number| get(&volume, number)).collect::<Vec<_>>(), found);
                assert_eq!(get(&volume, 1000), Some(content(1, 5000)));
            }
        }
    }
}

// Two halves, so that both cores have one.
#[test]
fn nothing_durable_is_lost_at_any_event_first_half_of_the_tears() {
    crash_everywhere(&Tear::ALL[..5]);
}

#[test]
fn nothing_durable_is_lost_at_any_event_second_half_of_the_tears() {
    crash_everywhere(&Tear::ALL[5..]);
}

/// A volume that is short of room evicts while it crashes: what is there is right, whatever is missing.
#[test]
fn nothing_wrong_is_served_when_a_volume_crashes_that_evicts() {
    for policy in [Policy::Fifo, Policy::Clock, Policy::Sieve] {
        let options = Options { policy, ..options() };
        let recorder = Arc::new(Recorder::of(formatted()));
        let volume = open(&recorder, options);
        let mut history = History::default();
        for step in 0..400u64 {
            let (number, begun) = (step * 7 % 150, recorder.events());
            let bytes = content(step + 1, 20_000);
            put(&volume, number, bytes.clone(), Class::Cache);
            history.note(number, begun, None, Some(bytes));
            let _ = get(&volume, step % 13);
        }
        assert!(volume.stats().evicted > 50, "{:?}", volume.stats());
        drop(volume);
        for tear in Tear::ALL {
            for at in (0..=recorder.events()).step_by(17) {
                let device = Arc::new(MemoryDevice::of(recorder.after_crash(at, tear)));
                let volume = open(&device, options);
                for number in history.0.keys() {
                    let found = get(&volume, *number);
                    let allowed = found.is_none() || history.allows(*number, at, found.as_ref());
                    assert!(allowed, "{policy:?}, {tear:?}, {at} events: key {number}");
                }
            }
        }
    }
}
