//! What becomes of calls of a route that are many, or whose route is forgotten.

use super::*;
use crate::CallError;
use crate::config::WAITING_CALLS_MAX;

#[test]
fn calls_that_wait_begin_as_channels_become_free_in_their_order() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    let calls: Vec<CallId> = (0..8).map(|_| dialogue.endpoint.call(dialogue.now, route)).collect();
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(dialogue.endpoint.write(dialogue.now, *call, &[index as u8]), Ok(1));
        dialogue.endpoint.finish(dialogue.now, *call);
    }
    let mut open = dialogue.said();
    let mut began: Vec<u8> = open.iter().map(|said| said.payload[0]).collect();
    while !open.is_empty() {
        let header = open.remove(0).header;
        dialogue.hear(reply(header, PacketType::Data, 1, LAST), b"");
        let Some(Event::Readable(call)) = dialogue.events().pop() else { panic!("a reply") };
        assert_eq!(dialogue.read(call), (vec![], Read::End));
        let said = dialogue.said();
        began.extend(said.iter().map(|said| said.payload[0]));
        open.extend(said);
    }
    assert_eq!(began, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_forgotten_route_lets_running_calls_end_and_waiting_ones_not_begin() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    let calls: Vec<CallId> = (0..5).map(|_| dialogue.endpoint.call(dialogue.now, route)).collect();
    calls.iter().for_each(|call| dialogue.endpoint.finish(dialogue.now, *call));
    let said = dialogue.said();
    dialogue.endpoint.forget_route(dialogue.now, route);
    assert_eq!(dialogue.events(), [Event::Ended(calls[4], Err(CallError::Closed))]);
    let late = dialogue.endpoint.call(dialogue.now, route);
    assert_eq!(dialogue.events(), [Event::Ended(late, Err(CallError::Closed))]);
    for (said, call) in said.iter().zip(&calls) {
        assert_eq!(dialogue.endpoint.load().connections, 1);
        dialogue.hear(reply(said.header, PacketType::Data, 1, LAST), b"reply");
        assert_eq!(dialogue.read(*call), (b"reply".to_vec(), Read::End));
    }
    while dialogue.endpoint.poll_timeout().is_some() {
        dialogue.wait();
        dialogue.said();
    }
    dialogue.events();
    assert_eq!(dialogue.endpoint.load(), crate::Load::default());
    assert!(dialogue.endpoint.routes.is_empty() && dialogue.endpoint.outgoing.is_empty());
}

#[test]
fn too_many_calls_are_refused_at_once() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    (0..4 + WAITING_CALLS_MAX).for_each(|_| _ = dialogue.endpoint.call(dialogue.now, route));
    assert!(dialogue.events().is_empty());
    let call = dialogue.endpoint.call(dialogue.now, route);
    assert_eq!(dialogue.events(), [Event::Ended(call, Err(CallError::TooMany))]);
    assert_eq!(dialogue.endpoint.counts().calls_refused, 1);
}

#[test]
fn more_than_there_is_room_for_is_not_taken_until_there_is_room() {
    let mut dialogue = Dialogue::new();
    let route = dialogue.endpoint.route(THERE.into(), 1, Security::None);
    let call = dialogue.endpoint.call(dialogue.now, route);
    let taken = dialogue.endpoint.write(dialogue.now, call, &[7; 1_000_000]).expect("it runs");
    assert_eq!(taken, 65 * 1412, "64 packets, and the one being filled");
    assert_eq!(dialogue.endpoint.write(dialogue.now, call, &[7; 10]), Ok(0));
    let mut sent: Vec<Header> = Vec::new();
    while dialogue.events().is_empty() {
        sent.extend(dialogue.said().iter().map(|said| said.header));
        let arrived = sent.last().expect("something goes").seq;
        dialogue.hear_ack(sent[0], 0, &ack(arrived + 1, arrived, Reason::Idle, &[]));
        assert!(arrived <= 64, "room is told of before all is gone");
    }
    assert!(dialogue.endpoint.write(dialogue.now, call, &[7; 1_000_000]).is_ok_and(|taken| taken > 30 * 1412));
}
