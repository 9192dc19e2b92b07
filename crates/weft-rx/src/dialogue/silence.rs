//! What is said where the other side falls silent in the middle of something.

use super::*;

/// How long a packet is waited for on a way of 10 ms, with its variation.
const WAY: Duration = Duration::from_millis(20);

/// Goal: what came of a reply is told again a few times where nothing follows, with growing pauses, and anew after each packet;
/// of a whole reply it is not. A file server believes the third word of a gap (`rx_nackThreshold` of OpenAFS `src/rx/rx.c`).
#[test]
fn what_came_is_told_again_where_nothing_follows() {
    let mut dialogue = Dialogue::new();
    let call = dialogue.call(Security::None, 10);
    let request = dialogue.says().header;
    let data = |seq, flags| reply(request, PacketType::Data, seq, flags);
    dialogue.now += Duration::from_millis(10);
    dialogue.hear(data(1, 0), b"a");
    for (seq, came) in [(3, vec![true, false, true]), (5, vec![true, false, true, false, true])] {
        dialogue.hear(data(seq, 0), b"x");
        assert_eq!(dialogue.says().ack(), (1, Reason::OutOfSequence as u8, came.clone()));
        for pause in [WAY, WAY, WAY * 2] {
            assert_eq!(dialogue.wait(), pause);
            assert_eq!(dialogue.says().ack(), (1, Reason::Delay as u8, came.clone()));
        }
        let next = dialogue.endpoint.poll_timeout().expect("the server is asked whether it lives");
        assert!(next - dialogue.now > Duration::from_secs(1));
    }
    dialogue.hear(data(2, 0), b"b");
    dialogue.said();
    dialogue.hear(data(4, 0), b"d");
    dialogue.hear(data(6, LAST), b"f");
    dialogue.said();
    assert_eq!(dialogue.read(call), (b"abxdxf".to_vec(), Read::End));
    dialogue.wait();
    assert_eq!(dialogue.says().ack().0, 7);
    assert_eq!(dialogue.endpoint.poll_timeout(), None);
}

/// Goal: of packets that nothing is heard of one goes again before all of them are taken for lost; what is said of it tells which of
/// them are.
#[test]
fn one_packet_goes_again_before_all_do() {
    let mut dialogue = Dialogue::new();
    dialogue.call(Security::None, 1412 * 6);
    let sent = dialogue.said();
    let request = sent[0].header;
    assert_eq!(sent.len(), 6);
    dialogue.now += Duration::from_millis(5);
    dialogue.hear_ack(request, 0, &Ack { serial: sent[0].header.serial, ..ack(2, 1, Reason::Requested, &[]) });
    assert!(dialogue.said().is_empty());
    assert_eq!(dialogue.wait(), WAY * 2);
    let probe = dialogue.says().header;
    assert_eq!((probe.seq, probe.flags & flag::REQUEST_ACK), (2, flag::REQUEST_ACK));
    // That one has come, and the last one: those that went three before it are lost.
    let told = Ack { serial: probe.serial, ..ack(3, 6, Reason::Requested, &[false, false, false, true]) };
    dialogue.hear_ack(request, 0, &told);
    let again: Vec<u32> = dialogue.said().iter().map(|said| said.header.seq).collect();
    assert_eq!(again, [3, 4]);
    // A probe is one packet: without a word all of them go in their time.
    assert_eq!(dialogue.wait(), WAY * 2);
    assert_eq!(dialogue.says().header.seq, 3);
    assert_eq!(dialogue.wait(), Duration::from_millis(200) - WAY);
    assert_eq!(dialogue.says().header.seq, 3, "one by one");
}
