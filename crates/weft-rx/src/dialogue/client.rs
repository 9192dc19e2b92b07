//! What is said in calls of ours.

use super::*;
use crate::CallError;

#[test]
fn the_request_says_who_where_and_how_much() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 3000);
    let said = dialogue.said();
    let sizes: Vec<(u32, usize)> = said.iter().map(|said| (said.header.seq, said.payload.len())).collect();
    assert_eq!(sizes, [(1, 1412), (2, 1412), (3, 176)]);
    for (index, packet) in said.iter().enumerate() {
        let header = packet.header;
        assert_eq!(header.epoch >> 30, 0b10, "bit 31 set, bit 30 clear");
        assert_eq!((header.call, header.channel(), header.service, header.security), (1, 0, 1, 0));
        assert_eq!(header.serial, index as u32 + 1);
        assert!(packet.has(flag::CLIENT_INITIATED));
        assert_eq!(packet.has(flag::LAST_PACKET), index == 2);
        // The reply will acknowledge the last one.
        assert!(!packet.has(flag::REQUEST_ACK));
    }
}

#[test]
fn a_message_of_whole_packets_ends_with_a_full_one_and_an_empty_message_with_an_empty_one() {
    for (bytes, sizes) in [(0, vec![0]), (1412, vec![1412]), (2824, vec![1412, 1412])] {
        let mut dialogue = Dialogue::new();
        dialogue.call(Security::None, bytes);
        let said = dialogue.said();
        assert_eq!(said.iter().map(|said| said.payload.len()).collect::<Vec<_>>(), sizes);
        assert_eq!(said.iter().filter(|said| said.has(flag::LAST_PACKET)).count(), 1);
    }
}

#[test]
fn a_ping_is_answered_at_once_before_the_reply_begins() {
    // A file server does this before it runs the first call of a client, and runs it only when it is answered.
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    dialogue.hear_ack(request, flag::REQUEST_ACK | flag::SLOW_START_OK, &ack(1, 1, Reason::Ping, &[true]));
    let answer = dialogue.says();
    assert_eq!(answer.ack(), (1, Reason::PingResponse as u8, vec![]));
    let acked = Acked::decode(&answer.payload).expect("whole");
    assert_eq!((acked.serial, acked.window), (dialogue.serial, 255));
    assert_eq!(answer.payload[answer.payload.len() - 4..], 1_u32.to_be_bytes(), "no jumbograms");
    assert_eq!((answer.header.call, answer.header.seq, answer.header.cid), (1, 0, request.cid));
    assert_eq!(answer.header.flags, flag::CLIENT_INITIATED | flag::SLOW_START_OK);
}

#[test]
fn a_silent_server_is_asked_again_ever_more_rarely_and_is_dead_in_the_end() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let first = dialogue.says().header;
    let (mut waits, mut serial, mut pings) = (Vec::new(), first.serial, 0);
    let begin = dialogue.now;
    let mut sent_at = begin;
    while dialogue.endpoint.poll_timeout().is_some() {
        dialogue.wait();
        for packet in dialogue.said() {
            assert!(packet.header.serial > serial, "every packet has a number of its own");
            serial = packet.header.serial;
            assert!(packet.has(flag::REQUEST_ACK));
            if packet.kind() == PacketType::Ack {
                pings += 1;
                assert_eq!(packet.ack().1, Reason::Ping as u8);
                continue;
            }
            assert_eq!((packet.header.seq, packet.has(flag::LAST_PACKET)), (1, true));
            waits.push((dialogue.now - sent_at).as_millis());
            sent_at = dialogue.now;
        }
    }
    // 400 ms more for a last packet, whose acknowledgement may be delayed.
    assert_eq!(waits, [1400, 2400, 4400, 8400, 10_400, 10_400, 10_400]);
    assert_eq!(pings, 21, "one after a sixth of the time, then one every two seconds");
    assert_eq!(dialogue.now - begin, Duration::from_secs(50));
    assert_eq!(dialogue.events(), [Event::Ended(call, Err(CallError::Dead))]);
    assert_eq!(dialogue.endpoint.read(dialogue.now, call, 1), Err(CallError::Closed));
    // A late reply is told that nobody waits.
    dialogue.hear(reply(first, PacketType::Data, 1, LAST), b"late");
    assert_eq!(dialogue.says().code(), -1);
}

#[test]
fn a_packet_is_lost_when_three_that_were_sent_after_it_arrived() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 8 * 1412);
    let request = dialogue.said()[0].header;
    let mut received = vec![true; 4];
    received[1] = false;
    dialogue.hear_ack(request, 0, &ack(1, 4, Reason::OutOfSequence, &received));
    assert!(dialogue.said().is_empty(), "two may have been overtaken");
    received.push(true);
    dialogue.hear_ack(request, 0, &ack(1, 5, Reason::OutOfSequence, &received));
    let again = dialogue.says();
    assert_eq!((again.header.seq, again.has(flag::REQUEST_ACK)), (2, true));
    dialogue.hear_ack(request, 0, &ack(1, 6, Reason::OutOfSequence, &[true, false, true, true, true, true]));
    assert!(dialogue.said().is_empty(), "once is enough until it is lost again");
}

#[test]
fn on_a_way_where_packets_overtake_each_other_more_of_that_is_borne() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 30 * 1412);
    let request = dialogue.said()[0].header;
    dialogue.hear_ack(request, 0, &ack(1, 4, Reason::OutOfSequence, &[false, true, true, true]));
    let seqs = |said: Vec<Said>| said.iter().map(|said| said.header.seq).collect::<Vec<_>>();
    assert_eq!(seqs(dialogue.said()), [1], "lost, as it seems, and the window is half of what it was");
    dialogue.hear_ack(request, 0, &ack(1, 4, Reason::Duplicate, &[true, true, true, true]));
    assert_eq!(seqs(dialogue.said()), [11, 12, 13, 14, 15, 16, 17], "it was not, and the window is whole");
    let mut received = [true; 10];
    received[4..7].fill(false);
    dialogue.hear_ack(request, 0, &ack(1, 10, Reason::OutOfSequence, &received));
    assert!(!seqs(dialogue.said()).contains(&5), "five later ones are not enough any more");
}

#[test]
fn the_window_of_the_server_is_kept_and_asked_for_when_it_stays_shut() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 20 * 1412);
    let said = dialogue.said();
    assert_eq!(said.len(), 10, "as many as may be under way at first");
    assert!(said[9].has(flag::REQUEST_ACK), "the last of a burst asks");
    let request = said[0].header;
    let mut shut = ack(1, 10, Reason::Requested, &[true; 10]);
    shut.window = 10;
    dialogue.hear_ack(request, 0, &shut);
    assert!(dialogue.said().is_empty());
    assert_eq!(dialogue.wait(), Duration::from_secs(1));
    assert_eq!(dialogue.says().ack().1, Reason::Ping as u8, "the server may have opened it, and the packet be lost");
    let mut open = ack(3, 10, Reason::PingResponse, &[true; 8]);
    open.window = 10;
    dialogue.hear_ack(request, 0, &open);
    assert_eq!(dialogue.said().iter().map(|said| said.header.seq).collect::<Vec<_>>(), [11, 12]);
}

#[test]
fn a_server_that_says_that_it_is_busy_is_tried_at_short_intervals_for_long() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    let begin = dialogue.now;
    let mut tries = 0;
    while dialogue.now - begin < Duration::from_secs(300) {
        dialogue.wait();
        for packet in dialogue.said() {
            if packet.kind() == PacketType::Data {
                tries += 1;
                dialogue.hear(reply(request, PacketType::Busy, 0, 0), &[]);
            }
        }
        assert!(dialogue.events().is_empty(), "who says that it is busy is not dead");
    }
    // Four times a second, and the delay of a last packet.
    assert!((300 / 9..=300 / 4).contains(&tries), "{tries}");
}

#[test]
fn a_reply_that_begins_before_the_end_of_the_request_stops_it() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    let call = dialogue.endpoint.call(dialogue.now, route);
    let taken = dialogue.endpoint.write(dialogue.now, call, &[7; 200_000]).expect("it runs");
    assert!(taken < 200_000);
    let request = dialogue.said()[0].header;
    dialogue.hear(reply(request, PacketType::Data, 1, flag::REQUEST_ACK), b"enough");
    assert_eq!(dialogue.says().kind(), PacketType::Ack, "no more of the request");
    assert_eq!(
        dialogue.events(),
        [Event::Readable(call), Event::Writable(call)],
        "who waits for room is not left alone"
    );
    assert_eq!(dialogue.endpoint.write(dialogue.now, call, &[7; 200_000]), Ok(200_000));
    dialogue.endpoint.finish(dialogue.now, call);
    assert!(dialogue.said().is_empty());
    assert_eq!(dialogue.read(call), (b"enough".to_vec(), Read::Blocked));
}

#[test]
fn a_server_that_has_not_read_what_it_replies_to_is_not_dead_while_it_answers() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 3000);
    let request = dialogue.said()[0].header;
    dialogue.hear(reply(request, PacketType::Data, 1, 0), b"a beginning");
    let begin = dialogue.now;
    assert_eq!(dialogue.events().len(), 1);
    while dialogue.now - begin < Duration::from_secs(200) {
        dialogue.wait();
        for packet in dialogue.said() {
            if packet.has(flag::REQUEST_ACK) {
                dialogue.hear_ack(request, 0, &ack(1, 3, Reason::PingResponse, &[true; 3]));
            }
        }
        assert!(dialogue.events().is_empty(), "it answers");
    }
}

#[test]
fn an_older_acknowledgement_and_one_of_what_was_not_sent_are_not_believed() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 12 * 1412);
    let request = dialogue.said()[0].header;
    dialogue.hear_ack(request, 0, &ack(3, 6, Reason::Idle, &[true, true, true, true]));
    assert_eq!(dialogue.said().len(), 2);
    for stale in [ack(2, 9, Reason::Idle, &[true; 8]), ack(3, 5, Reason::Idle, &[]), ack(14, 13, Reason::Idle, &[])] {
        dialogue.hear_ack(request, 0, &stale);
        assert!(dialogue.said().is_empty(), "{stale:?}");
    }
    // Were any of them believed, this one would be older than it.
    dialogue.hear_ack(
        request,
        0,
        &ack(3, 12, Reason::Idle, &[false, false, true, true, true, true, true, true, true, true]),
    );
    assert_eq!(dialogue.said().iter().map(|said| said.header.seq).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn a_reply_acknowledges_the_request_and_the_next_call_the_reply() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    let call = dialogue.endpoint.call(dialogue.now, route);
    dialogue.endpoint.finish(dialogue.now, call);
    let request = dialogue.says().header;
    dialogue.hear(reply(request, PacketType::Data, 1, LAST), b"reply");
    assert_eq!(dialogue.events(), [Event::Readable(call)]);
    assert_eq!(dialogue.read(call), (b"reply".to_vec(), Read::End));
    assert_eq!(dialogue.events(), [Event::Ended(call, Ok(()))]);
    assert!(dialogue.said().is_empty(), "the acknowledgement may wait");
    let next = dialogue.endpoint.call(dialogue.now, route);
    dialogue.endpoint.finish(dialogue.now, next);
    let second = dialogue.says().header;
    assert_eq!((second.cid, second.call), (request.cid, 2), "the same channel says it");
    // A packet of the first call comes again: it belongs to nothing any more.
    dialogue.hear(reply(request, PacketType::Data, 1, LAST), b"reply");
    assert!(dialogue.said().is_empty());
    // Without a further call the acknowledgement comes by itself, and again for what comes again.
    dialogue.hear(reply(second, PacketType::Data, 1, LAST), b"");
    assert_eq!(dialogue.read(next), (vec![], Read::End));
    assert_eq!(dialogue.wait(), Duration::from_millis(200));
    assert_eq!(dialogue.says().ack().0, 2);
    dialogue.hear(reply(second, PacketType::Data, 1, LAST), b"");
    assert_eq!(dialogue.says().ack(), (2, Reason::Duplicate as u8, vec![]));
    assert_eq!(dialogue.endpoint.poll_timeout(), None);
}

#[test]
fn what_comes_is_acknowledged_as_it_has_to_be() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    let data = |seq, flags| reply(request, PacketType::Data, seq, flags);
    dialogue.now += Duration::from_millis(50);
    dialogue.hear(data(1, 0), b"a");
    assert!(dialogue.said().is_empty());
    assert_eq!(dialogue.wait(), Duration::from_millis(100));
    assert_eq!(dialogue.says().ack(), (1, Reason::Delay as u8, vec![true]));
    dialogue.hear(data(2, flag::REQUEST_ACK), b"b");
    assert_eq!(dialogue.says().ack(), (1, Reason::Requested as u8, vec![true, true]));
    dialogue.hear(data(4, 0), b"d");
    assert_eq!(dialogue.says().ack(), (1, Reason::OutOfSequence as u8, vec![true, true, false, true]));
    dialogue.hear(data(2, 0), b"b");
    assert_eq!(dialogue.says().ack().1, Reason::Duplicate as u8);
    dialogue.hear(data(256, 0), b"z");
    assert_eq!(dialogue.says().ack().1, Reason::ExceedsWindow as u8);
    assert_eq!(dialogue.read(call), (b"ab".to_vec(), Read::Blocked));
    assert!(dialogue.said().is_empty(), "there is room enough");
    assert_eq!(dialogue.wait(), Duration::from_millis(100));
    assert_eq!(dialogue.says().ack(), (3, Reason::Delay as u8, vec![false, true]));
    dialogue.hear(data(3, 0), b"c");
    dialogue.hear(data(5, 0), b"e");
    assert_eq!(dialogue.says().ack(), (3, Reason::Idle as u8, vec![true, true, true]));
    dialogue.hear(data(6, LAST), b"f");
    // Nothing is after the last one, and it stays the last one.
    dialogue.hear(data(7, 0), b"g");
    dialogue.hear(data(8, LAST), b"h");
    assert_eq!(dialogue.read(call), (b"cdef".to_vec(), Read::End));
}

/// Goal: who has taken a part of the window tells it at once, for the sender may wait for it; less is told with what comes.
#[test]
fn room_in_the_window_is_told() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    let mut first = 1;
    for (count, is_told) in [(14, false), (16, true), (254, true)] {
        (first..first + count).for_each(|seq| dialogue.hear(reply(request, PacketType::Data, seq, 0), b"x"));
        dialogue.said();
        assert_eq!(dialogue.read(call).0.len(), count as usize);
        let told: Vec<u32> = dialogue.said().iter().map(|said| said.ack().0).collect();
        assert_eq!(told, if is_told { vec![first + count] } else { vec![] }, "{count}");
        first += count;
    }
}

#[test]
fn an_abort_ends_the_call_and_one_of_the_connection_all_of_its_calls() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    let calls: Vec<CallId> = (0..5).map(|_| dialogue.endpoint.call(dialogue.now, route)).collect();
    calls.iter().for_each(|call| dialogue.endpoint.finish(dialogue.now, *call));
    let said = dialogue.said();
    assert_eq!(said.iter().map(|said| said.header.channel()).collect::<Vec<_>>(), [0, 1, 2, 3], "the fifth waits");
    let old = said[0].header;
    dialogue.hear(reply(said[2].header, PacketType::Abort, 0, 0), &19_i32.to_be_bytes());
    assert_eq!(dialogue.events(), [Event::Ended(calls[2], Err(CallError::Aborted(19)))]);
    let fifth = dialogue.says().header;
    assert_eq!((fifth.channel(), fifth.call), (2, 2), "its channel is free");
    dialogue
        .hear(Header { call: 0, cid: old.cid, ..reply(old, PacketType::Abort, 0, 0) }, &19_270_409_i32.to_be_bytes());
    let expired = Err(CallError::Aborted(19_270_409));
    assert_eq!(dialogue.events(), [0, 1, 4, 3].map(|index| Event::Ended(calls[index], expired)));
    let again = dialogue.endpoint.call(dialogue.now, route);
    dialogue.endpoint.finish(dialogue.now, again);
    assert_ne!(dialogue.says().header.cid & !3, old.cid & !3, "the next call has a new connection");
}

#[test]
fn who_gives_up_says_so_and_to_late_packets_says_it_again() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    // There is something to be told, which nobody wants to hear any more.
    dialogue.hear(reply(request, PacketType::Data, 1, 0), b"a beginning");
    dialogue.endpoint.abort(dialogue.now, call, 1234);
    let abort = dialogue.says();
    assert_eq!((abort.code(), abort.header.call, abort.header.cid), (1234, 1, request.cid));
    dialogue.hear(reply(request, PacketType::Data, 1, LAST), b"late");
    assert_eq!(dialogue.says().code(), 1234);
    dialogue.hear(reply(request, PacketType::Abort, 0, 0), &[0; 4]);
    assert!(dialogue.said().is_empty(), "never an abort for an abort");
    assert!(dialogue.events().is_empty());
}

#[test]
fn packets_of_others_are_not_believed() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    let abort = reply(request, PacketType::Abort, 0, 0);
    let wrong = [
        Header { epoch: abort.epoch ^ 1, ..abort },
        Header { cid: abort.cid ^ 4, ..abort },
        Header { security: 2, ..abort },
        Header { call: 2, ..abort },
        Header { cid: abort.cid ^ 1, ..abort },
    ];
    for header in wrong {
        dialogue.hear(header, &[0; 4]);
    }
    let other_port = SocketAddr::from((THERE.0, 7001));
    dialogue.endpoint.handle_datagram(dialogue.now, other_port, &abort.packet(&[0; 4]));
    assert_eq!(dialogue.endpoint.counts().packets_stray, 6);
    assert!(dialogue.events().is_empty() && dialogue.said().is_empty());
    // A server may answer from another address.
    let other_address = SocketAddr::from(([10, 0, 0, 3], 7000));
    dialogue.endpoint.handle_datagram(dialogue.now, other_address, &abort.packet(&[0; 4]));
    assert_eq!(dialogue.events(), [Event::Ended(call, Err(CallError::Aborted(0)))]);
}

/// Goal: a server that goes on with a call of whoever had this port before, or of a connection that was given up, hears that
/// nobody waits for it; who says anything else, or aborts, hears nothing.
#[test]
fn a_call_that_nobody_knows_is_aborted() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    let former = Header { epoch: request.epoch ^ 2, security: 2, flags: 0, call: 7, ..request };
    let ping = ack(3, 2, Reason::Ping, &[]).encode();
    for (kind, payload) in [(PacketType::Ack, &ping[..]), (PacketType::Data, b"a reply")] {
        dialogue.hear(reply(former, kind, 1, 0), payload);
        let said = dialogue.says();
        assert_eq!(
            (said.code(), said.header.epoch, said.header.cid, said.header.call),
            (-6, former.epoch, former.cid, 7)
        );
        assert!(said.has(flag::CLIENT_INITIATED) && said.header.security == 2);
    }
    for kind in [PacketType::Abort, PacketType::Busy, PacketType::AckAll, PacketType::Challenge] {
        dialogue.hear(reply(former, kind, 1, 0), &ping);
    }
    dialogue.hear(reply(Header { call: 0, ..former }, PacketType::Ack, 1, 0), &ping);
    assert!(dialogue.said().is_empty() && dialogue.events().is_empty());
}

/// Goal: what an endpoint keeps of its connections is enough for another one to end them at their server.
#[test]
fn connections_of_a_former_endpoint_are_ended() {
    let mut former = Dialogue::new();
    assert!(!former.endpoint.have_names_changed());
    let call = former.call(Security::None, 10);
    let request = former.says().header;
    assert!(former.endpoint.have_names_changed() && !former.endpoint.have_names_changed());
    let names: Vec<String> = former.endpoint.connection_names().map(|name| name.to_string()).collect();
    assert_eq!(names.len(), 1);
    let mut next = Dialogue::new();
    next.endpoint.end_former(&names[0].parse().expect("a name"));
    let said = next.says();
    assert_eq!((said.code(), said.header.call, said.header.epoch), (-6, 0, request.epoch));
    assert_eq!((said.header.cid, said.header.service, said.header.security), (request.cid, request.service, 0));
    assert!(said.has(flag::CLIENT_INITIATED));
    former.hear(reply(Header { call: 0, ..request }, PacketType::Abort, 0, 0), &[0; 4]);
    assert!(former.endpoint.have_names_changed() && former.endpoint.connection_names().next().is_none());
    assert_eq!(former.events(), [Event::Ended(call, Err(CallError::Aborted(0)))]);
}
