//! Two endpoints that call each other through a network with faults, under simulated time.
//!
//! Method: one seed decides about everything; each call knows what has to come back. `WEFT_RX_SEEDS` says how many
//! seeds are tried.
#![allow(clippy::disallowed_methods, reason = "some time has to be the first, and the number of seeds is told")]

mod world;

use std::time::Duration;

use weft_rx::{CallError, Config, Security};

use world::{Chance, Faults, SERVICES, Wish, World};

const GOOD: Faults =
    Faults { lost_percent: 0, doubled_percent: 0, delay_ms_min: 5, delay_ms_max: 5, changed_percent: 0 };

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let told = std::env::var("WEFT_RX_SEEDS").ok();
    0..told.map_or(usual, |text| text.parse().expect("a number of seeds"))
}

/// Bytes of a message: mostly a few, at times many, and often where packets end.
fn size(chance: &mut Chance) -> usize {
    let size = match chance.between(0, 9) {
        0..=4 => chance.between(0, 200),
        5..=6 => 1412 * chance.between(1, 4) - chance.between(6, 10),
        7..=8 => chance.between(0, 20_000),
        _ => chance.between(0, 200_000),
    };
    size as usize
}

/// Makes calls from all hosts on several routes. Tells how many.
fn populate(world: &mut World, calls: u64, abort_percent: u64) -> usize {
    (0..world.hosts.len()).map(|from| populate_from(world, from, calls, abort_percent)).sum()
}

/// Makes calls from one host on several routes. Tells how many.
fn populate_from(world: &mut World, from: usize, calls: u64, abort_percent: u64) -> usize {
    let to = world.hosts[1 - from].address;
    let (now, chance) = (world.now, &mut world.chance);
    let host = &mut world.hosts[from];
    let routes = SERVICES.map(|service| host.endpoint.route(to, service, Security::None));
    for _ in 0..calls {
        let aborts = chance.percent(abort_percent);
        let gives_up = chance.percent(abort_percent);
        let wish = Wish {
            route: routes[chance.between(0, 1) as usize],
            request_bytes: size(chance),
            reply_bytes: size(chance),
            server_aborts: if aborts { chance.between(1, 1000) as i32 } else { 0 },
            given_up_at: gives_up.then(|| now + Duration::from_millis(chance.between(0, 3000))),
        };
        host.application.wish(now, &mut host.endpoint, &wish);
    }
    calls as usize
}

#[test]
fn every_call_ends_with_what_it_asked_for_whatever_the_network_does() {
    for seed in seeds(150) {
        let mut chance = Chance::new(!seed);
        let delay_ms_min = chance.between(0, 50);
        let faults = Faults {
            lost_percent: chance.between(0, 20),
            doubled_percent: chance.between(0, 10),
            delay_ms_min,
            delay_ms_max: delay_ms_min + chance.between(0, 100),
            ..GOOD
        };
        let config = Config {
            connections_per_route_max: chance.between(1, 3) as usize,
            incoming_calls_max: chance.between(2, 30) as usize,
            ..Config::default()
        };
        let mut world = World::new(seed, faults, &config);
        let number = chance.between(1, 12);
        let calls = populate(&mut world, number, 10);
        world.run(seed);
        let ended: Vec<_> = world.hosts.iter().flat_map(|host| &host.application.outcomes).collect();
        let given_up: usize = world.hosts.iter().map(|host| host.application.given_up).sum();
        assert_eq!(ended.len() + given_up, calls, "seed {seed}: each call ended once");
        for (call, outcome) in ended {
            assert!(matches!(outcome, Ok(()) | Err(CallError::Aborted(_))), "seed {seed}: {call:?}: {outcome:?}");
        }
        for host in &world.hosts {
            assert_eq!(host.application.open(), 0, "seed {seed}: nothing is left");
            let load = host.endpoint.load();
            assert_eq!((load.calls, load.incoming_calls, load.incoming_connections), (0, 0, 0), "seed {seed}");
            let counts = host.endpoint.counts();
            assert_eq!((counts.datagrams_unknown, counts.packets_forged), (0, 0), "seed {seed}");
        }
    }
}

#[test]
fn calls_to_a_server_that_falls_silent_end_as_dead() {
    for seed in seeds(40) {
        let faults = Faults { lost_percent: seed % 10, doubled_percent: 2, delay_ms_min: 1, delay_ms_max: 30, ..GOOD };
        let config = Config { connections_per_route_max: 1, ..Config::default() };
        let mut world = World::new(seed, faults, &config);
        let calls = populate(&mut world, 20, 0);
        let at = world.start + Duration::from_millis(seed * 10);
        world.silent_from = Some((at, (seed % 2) as usize));
        world.run(seed);
        let hosts = world.hosts.iter();
        let ended: Vec<_> = hosts.flat_map(|host| &host.application.outcomes).map(|(_, outcome)| outcome).collect();
        assert_eq!(ended.len(), calls, "seed {seed}: each call ended");
        assert!(ended.iter().all(|outcome| matches!(outcome, Ok(()) | Err(CallError::Dead))), "seed {seed}: {ended:?}");
        if seed == 0 {
            assert!(ended.iter().any(|outcome| outcome.is_err()), "silence is seen");
        }
        let left: usize = world.hosts.iter().map(|host| host.application.open()).sum();
        assert_eq!(left, 0, "seed {seed}");
    }
}

#[test]
fn a_call_to_nobody_is_dead_after_the_time_and_with_it_those_that_wait() {
    let mut world = World::new(1, GOOD, &Config { connections_per_route_max: 1, ..Config::default() });
    populate_from(&mut world, 0, 30, 0);
    world.silent_from = Some((world.start, 1));
    world.run(1);
    let outcomes = &world.hosts[0].application.outcomes;
    assert_eq!(outcomes.len(), 30);
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Err(CallError::Dead)), "{outcomes:?}");
    assert_eq!(world.passed(), Config::default().dead_after);
}

#[test]
fn datagrams_that_are_changed_on_their_way_upset_nobody() {
    // Goal: whatever is believed of what came, nothing breaks, and nothing stays. What calls end with is not asked, for
    // without security who changes datagrams decides about that.
    for seed in seeds(100) {
        let changed_percent = 1 + seed % 60;
        let faults = Faults { lost_percent: seed % 5, doubled_percent: 2, delay_ms_max: 20, changed_percent, ..GOOD };
        let config = Config { incoming_calls_max: 20, incoming_connections_max: 10, ..Config::default() };
        let mut world = World::new(seed, faults, &config);
        world.hosts.iter_mut().for_each(|host| host.application.honest_network = false);
        let calls = populate(&mut world, 5, 10);
        world.run(seed);
        let hosts = world.hosts.iter().map(|host| &host.application);
        let ended: usize = hosts.map(|application| application.outcomes.len() + application.given_up).sum();
        assert_eq!(ended, calls, "seed {seed}: each call ended once");
        for host in &world.hosts {
            let load = host.endpoint.load();
            assert_eq!((load.calls, load.incoming_calls, load.incoming_connections), (0, 0, 0), "seed {seed}");
        }
    }
}

#[test]
fn a_server_may_think_for_longer_than_it_may_be_silent() {
    for seed in seeds(10) {
        let mut world = World::new(seed, Faults { lost_percent: 10, ..GOOD }, &Config::default());
        world.hosts.iter_mut().for_each(|host| host.application.think = 4 * Config::default().dead_after);
        let calls = populate(&mut world, 3, 0);
        world.run(seed);
        let outcomes: Vec<_> = world.hosts.iter().flat_map(|host| &host.application.outcomes).collect();
        assert_eq!(outcomes.len(), calls, "seed {seed}");
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "seed {seed}: {outcomes:?}");
    }
}

#[test]
fn a_small_call_takes_few_packets() {
    // A request, a reply, and the acknowledgement of the last reply: the others are said by the calls that follow.
    let mut world = World::new(1, GOOD, &Config::default());
    world.hosts.iter_mut().for_each(|host| host.application.lazy_percent = 0);
    let to = world.hosts[1].address;
    let host = &mut world.hosts[0];
    let route = host.endpoint.route(to, 1, Security::None);
    let wish = Wish { route, request_bytes: 100, reply_bytes: 100, server_aborts: 0, given_up_at: None };
    host.application.wish(world.now, &mut host.endpoint, &wish);
    world.run(1);
    assert_eq!(world.hosts[0].application.outcomes.len(), 1);
    assert_eq!(world.datagrams, 3);
}

#[test]
fn a_long_reply_fills_the_way() {
    // 10 MB over a way of 20 ms there and back: the window of 255 packets allows 18 MB in a second, after a slow start.
    let mut world = World::new(1, Faults { delay_ms_min: 10, delay_ms_max: 10, ..GOOD }, &Config::default());
    world.hosts.iter_mut().for_each(|host| host.application.lazy_percent = 0);
    let to = world.hosts[1].address;
    let host = &mut world.hosts[0];
    let route = host.endpoint.route(to, 1, Security::None);
    let wish = Wish { route, request_bytes: 10, reply_bytes: 10_000_000, server_aborts: 0, given_up_at: None };
    host.application.wish(world.now, &mut host.endpoint, &wish);
    let ends = Duration::from_secs(2);
    world.run(1);
    assert_eq!(world.hosts[0].application.outcomes.len(), 1);
    let busy = world.passed().saturating_sub(Duration::from_secs(700));
    assert!(busy < ends, "{busy:?}");
}
