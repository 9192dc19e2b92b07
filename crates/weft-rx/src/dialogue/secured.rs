//! What is said in calls that rxkad secures. The server's half is the client's: both seal and open alike.

use super::*;
use crate::security::Guard;
use crate::{CallError, Level, Rxkad, SecurityError};

const CHALLENGE: [u32; 4] = [2, 7, 0, 0];

fn token(level: Level) -> Security {
    Security::Rxkad(Rxkad::new(18, &[9; 32], &[5; 400], level).expect("a good key"))
}

fn bytes(words: [u32; 4]) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// The connection's challenge, whose header is that of a packet of it.
fn challenge(of: Header) -> Header {
    Header { call: 0, cid: of.cid & !3, checksum: 0, ..reply(of, PacketType::Challenge, 0, 0) }
}

#[test]
fn a_call_is_sealed_proven_and_answered() {
    for level in [Level::Clear, Level::Auth, Level::Crypt] {
        let mut dialogue = Dialogue::new();
        let call = dialogue.call(token(level), 3000);
        let said = dialogue.said();
        let first = said[0].header;
        let guard = Guard::new(&token(level), first.epoch, first.cid);
        let mut request = Vec::new();
        for packet in &said {
            assert_eq!(packet.header.security, 2);
            assert!(packet.payload.len() <= 1412);
            request.extend_from_slice(&guard.open(&packet.header, &packet.payload).expect("sealed"));
        }
        assert_eq!(request, [7; 3000]);
        dialogue.hear(challenge(first), &bytes(CHALLENGE));
        let response = dialogue.says();
        assert_eq!((response.kind(), response.header.call), (PacketType::Response, 0));
        assert_eq!(response.payload.len(), 56 + 400);
        assert_eq!(Ok(response.payload), guard.respond(&bytes(CHALLENGE), [1, 0, 0, 0]));
        let sealed = guard.seal(reply(first, PacketType::Data, 1, LAST), b"reply");
        let mut changed = sealed.clone();
        changed[24] ^= 1;
        dialogue.endpoint.handle_datagram(dialogue.now, THERE.into(), &changed);
        assert_eq!((dialogue.events().len(), dialogue.endpoint.counts().packets_forged), (0, 1), "{level:?}");
        dialogue.endpoint.handle_datagram(dialogue.now, THERE.into(), &sealed);
        assert_eq!(dialogue.read(call), (b"reply".to_vec(), Read::End), "{level:?}");
    }
}

#[test]
fn a_server_that_wants_more_is_refused() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(token(Level::Clear), 10);
    let first = dialogue.says().header;
    dialogue.hear(challenge(first), &bytes([2, 7, 2, 0]));
    let abort = dialogue.says();
    assert_eq!((abort.code(), abort.header.call), (19_270_402, 0));
    let refused = CallError::Security(SecurityError::LevelRefused);
    assert_eq!(dialogue.events(), [Event::Ended(call, Err(refused))]);
}

#[test]
fn nothing_is_proven_to_who_asks_while_nothing_is_called() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(token(Level::Crypt), 10);
    let first = dialogue.says().header;
    dialogue.endpoint.abort(dialogue.now, call, 1);
    assert_eq!(dialogue.says().code(), 1);
    dialogue.hear(challenge(first), &bytes(CHALLENGE));
    assert!(dialogue.said().is_empty());
}

#[test]
fn a_call_without_security_that_is_asked_for_a_proof_ends() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let first = dialogue.says().header;
    dialogue.hear(challenge(first), &bytes(CHALLENGE));
    assert_eq!(dialogue.says().code(), -2);
    let unexpected = CallError::Security(SecurityError::Unexpected);
    assert_eq!(dialogue.events(), [Event::Ended(call, Err(unexpected))]);
}

/// Whether a packet arrives, nine times in ten.
fn arrives(state: &mut u64) -> bool {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    !(*state >> 33).is_multiple_of(10)
}

#[test]
fn what_is_sealed_comes_through_a_network_that_loses_a_tenth() {
    // Method: a server without security, before which somebody opens what comes and seals what goes.
    for (seed, level) in [(1, Level::Clear), (2, Level::Auth), (3, Level::Crypt)] {
        let (mut dialogue, mut server, mut state) = (Dialogue::new(), Dialogue::new().endpoint, seed);
        let call = dialogue.call(token(level), 80_000);
        let (mut guard, mut request, mut got) = (None, Vec::new(), Vec::new());
        while dialogue.endpoint.load().calls > 0 {
            let mut busy = true;
            while std::mem::take(&mut busy) {
                for Said { header, payload } in dialogue.said() {
                    busy = true;
                    let guard = guard.get_or_insert_with(|| Guard::new(&token(level), header.epoch, header.cid & !3));
                    let data = if header.kind == PacketType::Data { guard.open(&header, &payload) } else { None };
                    let plain = Header { security: 0, checksum: 0, ..header }.packet(&data.unwrap_or(payload.into()));
                    if arrives(&mut state) {
                        server.handle_datagram(dialogue.now, THERE.into(), &plain);
                    }
                }
                while let Some(transmit) = server.poll_transmit(dialogue.now) {
                    busy = true;
                    let (header, payload) = Header::decode(&transmit.payload).expect("a packet");
                    let header = Header { security: 2, ..header };
                    let sealed = match (header.kind, &guard) {
                        (PacketType::Data, Some(guard)) => guard.seal(header, payload),
                        _ => header.packet(payload),
                    };
                    if arrives(&mut state) {
                        dialogue.endpoint.handle_datagram(dialogue.now, THERE.into(), &sealed);
                    }
                }
                while let Some(event) = server.poll_event() {
                    let Event::Readable(call) = event else { continue };
                    while let Ok(Read::Bytes(bytes)) = server.read(dialogue.now, call, 5000) {
                        request.extend_from_slice(&bytes);
                    }
                    if request.len() == 80_000 {
                        assert_eq!(server.write(dialogue.now, call, &[9; 50_000]), Ok(50_000));
                        server.finish(dialogue.now, call);
                    }
                }
                for event in dialogue.events() {
                    match event {
                        Event::Readable(_) => got.extend(dialogue.read(call).0),
                        event => assert_eq!(event, Event::Ended(call, Ok(())), "{level:?}"),
                    }
                }
            }
            let next = [dialogue.endpoint.poll_timeout(), server.poll_timeout()].into_iter().flatten().min();
            dialogue.now = next.expect("the call goes on");
            dialogue.endpoint.handle_timeout(dialogue.now);
            server.handle_timeout(dialogue.now);
        }
        assert!(request == [7; 80_000] && got == [9; 50_000], "{level:?}: {} and {}", request.len(), got.len());
    }
}
