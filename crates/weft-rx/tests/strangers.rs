//! What anybody can send to an endpoint that runs: it must not break, nor keep more than it was told to.
#![allow(clippy::disallowed_methods, reason = "some time has to be the first")]

#[path = "world/chance.rs"]
mod chance;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weft_rx::{Config, Endpoint, Event, Load, Security};

use chance::Chance;

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 7000);

fn config() -> Config {
    Config { services: [1].into(), incoming_calls_max: 8, incoming_connections_max: 20, ..Config::default() }
}

/// An endpoint with a call under way, and the datagrams that it has sent.
fn busy() -> (Instant, Endpoint, Vec<Vec<u8>>) {
    let now = Instant::now();
    let mut endpoint = Endpoint::new(config(), [7; 32]);
    let route = endpoint.route(SERVER.into(), 52, Security::None);
    let call = endpoint.call(now, route);
    assert_eq!(endpoint.write(now, call, &[1; 5000]), Ok(5000));
    let sent = std::iter::from_fn(|| endpoint.poll_transmit(now)).map(|transmit| transmit.payload).collect();
    (now, endpoint, sent)
}

/// What no stranger may pass.
fn check(load: Load) {
    assert!(load.incoming_calls <= 8, "{load:?}");
    assert!(load.incoming_connections <= 20, "{load:?}");
    assert!(load.control_packets <= 256, "{load:?}");
    // A call tells of its beginning, of what can be read, of room, and of its end.
    assert!(load.events <= 4 * load.calls, "{load:?}");
    assert!(load.received_bytes <= load.calls * 400_000, "{load:?}");
}

/// A packet of Rx, most often one that is about something.
fn packet(chance: &mut Chance, ours: &[u8]) -> (SocketAddr, Vec<u8>) {
    let few = |chance: &mut Chance| [0, 1, 1, 2, 3, 31, 33, 1 << 31][chance.between(0, 7) as usize];
    let mut datagram = Vec::new();
    if chance.percent(50) {
        datagram.extend_from_slice(&ours[..8]);
    } else {
        datagram.extend_from_slice(&(chance.between(0, 30) as u32).to_be_bytes());
        datagram.extend_from_slice(&(chance.between(0, 60) as u32).to_be_bytes());
    }
    for _ in 0..3 {
        datagram.extend_from_slice(&u32::to_be_bytes(few(chance)));
    }
    let kind = [1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 13][chance.between(0, 10) as usize];
    datagram.extend_from_slice(&[kind, chance.next() as u8 & 0x2f, 0, u8::from(chance.percent(5)) * 2, 0, 0, 0]);
    datagram.push([1, 52][usize::from(chance.percent(30))]);
    let length = if chance.percent(5) { chance.between(0, 20_000) } else { chance.between(0, 60) };
    datagram.extend((0..length).map(|_| chance.next() as u8));
    let known = chance.percent(50);
    let from = ([10, 0, 0, if known { 2 } else { chance.next() as u8 }], if known { 7000 } else { 7001 });
    (from.into(), datagram)
}

#[test]
fn packets_of_strangers_are_borne_without_being_polled_for() {
    // Method: packets that look right come in a flood; nobody looks at what they cause, then somebody does, now and
    // then.
    for seed in 0..30 {
        let mut chance = Chance::new(seed);
        let (mut now, mut endpoint, sent) = busy();
        for round in 0..3000 {
            let (from, datagram) = packet(&mut chance, &sent[0]);
            endpoint.handle_datagram(now, from, &datagram);
            check(endpoint.load());
            if round % 1000 > 900 {
                now += Duration::from_millis(chance.between(0, 3000));
                endpoint.handle_timeout(now);
                while let Some(transmit) = endpoint.poll_transmit(now) {
                    assert!(transmit.payload.len() <= 1440);
                }
                while endpoint.poll_event().is_some() {}
                check(endpoint.load());
            }
        }
        now += Duration::from_secs(60);
        endpoint.handle_timeout(now);
        while endpoint.poll_event().is_some() {}
        let load = endpoint.load();
        assert_eq!(
            (load.calls, load.incoming_calls, load.received_bytes),
            (0, 0, 0),
            "seed {seed}: none outlives silence"
        );
        endpoint.handle_timeout(now + Duration::from_secs(701));
        assert_eq!(endpoint.load().incoming_connections, 0);
    }
}

#[test]
fn an_answer_to_a_stranger_is_no_longer_than_what_it_answers() {
    for seed in 0..20 {
        let mut chance = Chance::new(seed);
        let now = Instant::now();
        let mut endpoint = Endpoint::new(Config { services: [].into(), ..config() }, [7; 32]);
        for _ in 0..500 {
            let (from, datagram) = packet(&mut chance, &[0; 8]);
            endpoint.handle_datagram(now, from, &datagram);
            let answers: Vec<usize> =
                std::iter::from_fn(|| endpoint.poll_transmit(now)).map(|transmit| transmit.payload.len()).collect();
            assert!(answers.iter().sum::<usize>() <= datagram.len().max(32), "{answers:?} to {}", datagram.len());
        }
        assert_eq!(endpoint.load(), Load::default());
    }
}

#[test]
fn a_datagram_cut_at_any_byte_is_borne() {
    // Method: both sides' datagrams of a call, each cut at each byte, given to a host before the whole one.
    let now = Instant::now();
    let client_address = SocketAddr::from(([10, 0, 0, 1], 7001));
    let mut client = Endpoint::new(config(), [1; 32]);
    let mut server = Endpoint::new(config(), [2; 32]);
    let route = client.route(SERVER.into(), 1, Security::None);
    let call = client.call(now, route);
    assert_eq!(client.write(now, call, &[1; 3000]), Ok(3000));
    client.finish(now, call);
    let (mut datagrams, mut ended) = (0, false);
    while !ended {
        let mut quiet = true;
        while let Some(transmit) = client.poll_transmit(now) {
            quiet = false;
            datagrams += 1;
            for length in 0..=transmit.payload.len() {
                server.handle_datagram(now, client_address, &transmit.payload[..length]);
            }
        }
        while let Some(transmit) = server.poll_transmit(now) {
            quiet = false;
            datagrams += 1;
            for length in 0..=transmit.payload.len() {
                client.handle_datagram(now, SERVER.into(), &transmit.payload[..length]);
            }
        }
        while let Some(event) = server.poll_event() {
            if let Event::Incoming { call, .. } = event {
                server.write(now, call, &[2; 100]).expect("it runs");
                server.finish(now, call);
            }
        }
        while let Some(event) = client.poll_event() {
            match event {
                Event::Readable(call) => while matches!(client.read(now, call, 1000), Ok(weft_rx::Read::Bytes(_))) {},
                Event::Ended(..) => ended = true,
                _ => {}
            }
        }
        assert!(!quiet || ended, "the call comes to its end");
    }
    assert!(datagrams >= 4);
}

proptest! {
    #[test]
    fn any_bytes_are_borne(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..50)) {
        let (now, mut endpoint, _) = busy();
        for datagram in datagrams {
            endpoint.handle_datagram(now, SERVER.into(), &datagram);
            check(endpoint.load());
        }
    }

    #[test]
    fn any_acknowledgement_of_a_running_call_is_borne(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..20), flags: u8, small: bool,
    ) {
        let (mut now, mut endpoint, sent) = busy();
        for mut payload in payloads {
            let mut datagram = sent[0][..28].to_vec();
            (datagram[20], datagram[21]) = (2, flags & !1);
            if small && payload.len() > 17 {
                payload[4..7].fill(0);
                payload[7] %= 6;
                payload[17] %= 10;
            }
            datagram.extend_from_slice(&payload);
            endpoint.handle_datagram(now, SERVER.into(), &datagram);
            while let Some(transmit) = endpoint.poll_transmit(now) {
                prop_assert!(transmit.payload.len() <= 1440);
            }
            now = endpoint.poll_timeout().unwrap_or(now).max(now);
            endpoint.handle_timeout(now);
        }
        check(endpoint.load());
    }
}
