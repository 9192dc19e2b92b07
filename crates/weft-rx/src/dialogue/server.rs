//! What is said in calls of clients.

use super::*;
use crate::CallError;

/// A client's packet of a request.
fn request(call: u32, channel: u32, seq: u32, flags: u8) -> Header {
    Header {
        epoch: 0x8000_0007,
        cid: 0x100 | channel,
        call,
        seq,
        serial: 0,
        kind: PacketType::Data,
        flags: flags | flag::CLIENT_INITIATED,
        user_status: 0,
        security: 0,
        checksum: 0,
        service: 1,
    }
}

/// A dialogue in which a client has made a call, with its request in one packet.
fn called() -> (Dialogue, CallId) {
    let mut dialogue = Dialogue::new();
    dialogue.hear(request(1, 0, 1, REQUEST_LAST), b"request");
    let events = dialogue.events();
    let [Event::Incoming { call, from, service: 1 }, Event::Readable(_)] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(from, SocketAddr::from(THERE));
    (dialogue, call)
}

#[test]
fn a_request_is_read_and_answered() {
    let (mut dialogue, call) = called();
    assert_eq!(dialogue.read(call), (b"request".to_vec(), Read::End));
    assert_eq!(dialogue.endpoint.write(dialogue.now, call, b"reply"), Ok(5));
    dialogue.endpoint.finish(dialogue.now, call);
    let said = dialogue.says();
    assert_eq!(said.payload, b"reply");
    let wanted = Header { flags: LAST, serial: 1, ..request(1, 0, 1, 0) };
    assert_eq!(said.header, wanted, "the names are the client's, and nothing says that it is one");
    assert_eq!(dialogue.events(), []);
    dialogue.hear_ack(request(1, 0, 0, 0), flag::CLIENT_INITIATED, &ack(2, 1, Reason::Delay, &[]));
    assert_eq!(dialogue.events(), [Event::Ended(call, Ok(()))]);
    // The request comes again, late.
    dialogue.hear(request(1, 0, 1, REQUEST_LAST), b"request");
    assert_eq!(dialogue.says().ack(), (2, Reason::Duplicate as u8, vec![]));
    assert_eq!(dialogue.events(), []);
}

#[test]
fn a_reply_ends_with_an_acknowledgement_of_any_kind() {
    let all = [PacketType::AckAll, PacketType::Data, PacketType::Ack];
    for kind in all {
        let (mut dialogue, call) = called();
        dialogue.endpoint.finish(dialogue.now, call);
        assert_eq!(dialogue.says().payload, b"", "an empty reply is an empty packet");
        match kind {
            PacketType::Data => dialogue.hear(request(2, 0, 1, REQUEST_LAST), b"the next call"),
            // It came, even if nobody has read it.
            PacketType::Ack => {
                dialogue.hear_ack(request(1, 0, 0, 0), flag::CLIENT_INITIATED, &ack(1, 1, Reason::Idle, &[true]));
            }
            kind => dialogue.hear(Header { kind, ..request(1, 0, 0, 0) }, &[]),
        }
        assert_eq!(dialogue.events()[0], Event::Ended(call, Ok(())), "{kind:?}");
    }
}

#[test]
fn a_reply_goes_again_until_it_is_acknowledged() {
    let (mut dialogue, call) = called();
    dialogue.endpoint.finish(dialogue.now, call);
    assert_eq!(dialogue.said().len(), 1);
    assert_eq!(dialogue.wait(), Duration::from_millis(1400));
    let again = dialogue.says();
    assert!(again.kind() == PacketType::Data && again.has(flag::REQUEST_ACK) && again.has(flag::LAST_PACKET));
}

#[test]
fn a_client_that_pings_while_its_call_runs_is_answered() {
    let (mut dialogue, _) = called();
    dialogue.hear_ack(request(1, 0, 0, 0), flag::CLIENT_INITIATED | flag::REQUEST_ACK, &ack(1, 0, Reason::Ping, &[]));
    let answer = dialogue.says();
    assert_eq!(answer.ack(), (1, Reason::PingResponse as u8, vec![true]));
    assert!(!answer.has(flag::CLIENT_INITIATED));
}

#[test]
fn a_newer_call_of_the_channel_ends_the_older_one() {
    let (mut dialogue, call) = called();
    dialogue.hear(request(5, 0, 1, REQUEST_LAST), b"newer");
    let events = dialogue.events();
    let [Event::Ended(ended, Err(CallError::Closed)), Event::Incoming { call: newer, .. }, Event::Readable(_)] =
        events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(ended, call);
    // What is left of the older one is nobody's.
    dialogue.hear(request(1, 0, 2, 0), b"older");
    dialogue.hear(request(4, 0, 1, 0), b"older");
    assert_eq!(dialogue.read(newer), (b"newer".to_vec(), Read::End));
    assert!(dialogue.events().is_empty());
}

#[test]
fn what_is_not_offered_is_refused_and_what_begins_nothing_is_dropped() {
    let mut dialogue = Dialogue::new();
    for wrong in [Header { service: 2, ..request(1, 0, 1, 0) }, Header { security: 2, ..request(1, 0, 1, 0) }] {
        dialogue.hear(wrong, b"");
        let abort = dialogue.says();
        assert_eq!((abort.code(), abort.header.call, abort.header.flags), (-2, 1, 0));
    }
    for nothing in [
        Header { kind: PacketType::Abort, ..request(1, 0, 0, 0) },
        Header { kind: PacketType::Ack, ..request(1, 0, 0, flag::REQUEST_ACK) },
        Header { kind: PacketType::Version, ..request(0, 0, 0, 0) },
        Header { kind: PacketType::Debug, ..request(0, 0, 0, 0) },
        Header { kind: PacketType::Challenge, ..request(0, 0, 0, 0) },
        request(0, 0, 1, 0),
    ] {
        dialogue.hear(nothing, &[0; 16]);
        assert!(dialogue.said().is_empty(), "{nothing:?}");
    }
    // The rest of a call from before a start.
    dialogue.hear(request(1, 0, 33, 0), b"");
    assert!(dialogue.said().is_empty() && dialogue.events().is_empty());
    assert_eq!(dialogue.endpoint.load().calls, 0);
}

#[test]
fn who_comes_when_too_many_are_served_is_told_to_wait() {
    let mut dialogue = Dialogue::new();
    dialogue.endpoint.config.incoming_calls_max = 2;
    for channel in 0..3 {
        dialogue.hear(request(1, channel, 1, REQUEST_LAST), b"");
    }
    let busy = dialogue.says();
    assert_eq!((busy.kind(), busy.header.call, busy.header.channel()), (PacketType::Busy, 1, 2));
    let Event::Incoming { call, .. } = dialogue.events()[0] else { panic!("a call") };
    dialogue.endpoint.abort(dialogue.now, call, 5);
    assert_eq!(dialogue.says().code(), 5);
    dialogue.hear(request(1, 2, 1, REQUEST_LAST), b"");
    assert!(matches!(dialogue.events()[..], [Event::Incoming { .. }, Event::Readable(_)]), "it comes again");
}

#[test]
fn the_same_names_from_another_address_are_another_client() {
    let (mut dialogue, call) = called();
    let stranger = SocketAddr::from(([10, 0, 0, 9], 7000));
    let abort = Header { kind: PacketType::Abort, ..request(1, 0, 0, 0) };
    dialogue.endpoint.handle_datagram(dialogue.now, stranger, &abort.packet(&[0; 4]));
    assert!(dialogue.events().is_empty());
    let data = request(2, 0, 1, REQUEST_LAST);
    dialogue.endpoint.handle_datagram(dialogue.now, stranger, &data.packet(b"lies"));
    assert!(matches!(dialogue.events()[0], Event::Incoming { from, .. } if from == stranger));
    assert_eq!(dialogue.read(call), (b"request".to_vec(), Read::End));
}

#[test]
fn a_client_that_falls_silent_is_dead_and_its_idle_connection_is_forgotten() {
    let (mut dialogue, call) = called();
    let mut ended = Vec::new();
    while dialogue.endpoint.poll_timeout().is_some() {
        dialogue.wait();
        dialogue.said();
        ended.extend(dialogue.events());
    }
    assert_eq!(ended, [Event::Ended(call, Err(CallError::Dead))]);
    assert_eq!(dialogue.endpoint.load(), crate::Load::default());
}

#[test]
fn what_is_too_much_to_keep_is_refused_but_for_what_can_be_read() {
    let mut dialogue = Dialogue::new();
    let large = vec![1; 16_000];
    for seq in 2..=4 {
        dialogue.hear(request(1, 0, seq, 0), &large);
    }
    assert_eq!(dialogue.says().ack(), (1, Reason::NoSpace as u8, vec![false, true, true]));
    assert_eq!(
        dialogue.endpoint.load().received_bytes,
        32_000,
        "32 packets of the usual size are more, 48,000 are not"
    );
    dialogue.hear(request(1, 0, 1, 0), &large);
    let Some(Event::Readable(call)) = dialogue.events().pop() else { panic!("there is something to read") };
    assert_eq!(dialogue.read(call), (vec![1; 48_000], Read::Blocked));
}

#[test]
fn no_more_answers_to_strangers_wait_than_there_may() {
    let mut dialogue = Dialogue::new();
    for call in 1..=300 {
        dialogue.hear(Header { service: 9, ..request(call, 0, 1, 0) }, b"");
    }
    assert_eq!(dialogue.endpoint.load().control_packets, 256);
    assert_eq!(dialogue.endpoint.counts().control_dropped, 44);
    assert_eq!(dialogue.said().len(), 256);
}
