use super::*;
use crate::decode::decode;
use crate::fuzz::chance::Chance;
use crate::fuzz::requests::{self, Sample};
use crate::fuzz::{Bench, Budget, Curious};

/// A request as the kernel puts it into an entry.
fn head_of(sample: &Sample) -> Head {
    let mut head = Head {
        in_out: [0; 128],
        argument: [0; 128],
        flags: 0,
        commit_id: requests::UNIQUE,
        payload_bytes: sample.rest.len() as u32,
        padding: 0,
        reserved: 0,
    };
    head.in_out[..size_of::<abi::InHeader>()].copy_from_slice(sample.header().as_bytes());
    head.argument[..sample.argument.len()].copy_from_slice(&sample.argument);
    head
}

fn header_in(head: &Head) -> abi::InHeader {
    abi::InHeader::read_from_prefix(&head.in_out).expect("there is room for one").0
}

/// Goal: a request in an entry means what it means on the device, and no length in its head reaches out of the entry.
/// Method: each right request with its lengths at their extremes.
#[test]
fn lengths_in_an_entry_are_held_against_its_room() {
    for sample in requests::all() {
        let (right, whole) = (head_of(&sample), sample.message());
        let mut payload = vec![0xff; 8192];
        payload[..sample.rest.len()].copy_from_slice(&sample.rest);
        assert_eq!(message(header_in(&right), &right, &payload), decode(&whole), "{sample:?}");
        let lengths = (0..200).chain([8191, 8192, 8193, 1 << 31, u32::MAX - 40, u32::MAX - 39, u32::MAX]);
        for payload_bytes in lengths.clone() {
            let head = Head { payload_bytes, ..right };
            for len in lengths.clone() {
                for total_extlen in [0, 1, 1024, u16::MAX] {
                    let header = abi::InHeader { len, total_extlen, ..header_in(&right) };
                    let read = message(header, &head, &payload);
                    let arguments = u64::from(len).checked_sub(40 + u64::from(payload_bytes));
                    let fits = payload_bytes <= 8192 && arguments.is_some_and(|length| length <= 128);
                    assert!(fits || read.is_err(), "{len} octets, {payload_bytes} of them payload: {read:?}");
                }
            }
        }
    }
}

/// Goal: whatever stands in an entry, it is given back once, so that none is lost and none is given twice. Method: a
/// device that takes every entry and gives it back at once (`/dev/null` does so with commands of io_uring); each time
/// the entry then has another request, with many things wrong, and now and then answers come that are nobody's.
#[test]
fn entries_with_many_things_wrong_come_back() {
    let ring = match Ring::new(0, ENTRIES) {
        Ok(ring) => ring,
        Err(why) => return println!("skipped: no ring can be made here: {why}"),
    };
    let (bench, budget) = (Bench::new(), Budget::new(ROUNDS));
    let mailbox = Arc::new(Mailbox::new().expect("an eventfd"));
    let mut queue = Queue::new(0, ring, mailbox.clone(), PAYLOAD_BYTES);
    mailbox.begin();
    queue.ring.enable(bench.device.as_fd()).expect("a ring of this thread");
    queue.register(Slot::map(0, ENTRIES, PAYLOAD_BYTES).expect("memory")).expect("registered");

    let samples = requests::all();
    let heads: Vec<Vec<u8>> = samples.iter().map(|sample| head_of(sample).as_bytes().to_vec()).collect();
    let (mut chance, mut done) = (Chance::new(budget.seed), 0);
    while budget.lasts(done) {
        queue.ring.submit_and_wait(0).expect("submitted");
        let (mut completed, mut numbers) = (Vec::new(), Vec::new());
        queue.ring.completed(&mut completed);
        let back = completed.iter().filter(|completed| matches!(completed, Completed::Entry(..))).count();
        assert_eq!((back, queue.ring.outstanding()), (ENTRIES, 0), "round {done} from seed {}", budget.seed);
        for completed in completed {
            let Completed::Entry(mut slot, _) = completed else { continue };
            let nth = chance.below(samples.len());
            let mut head = heads[nth].clone();
            for _ in 0..chance.below(4) {
                chance.spoil(&mut head, &heads);
            }
            head.resize(size_of::<Head>(), 0);
            *slot.head_mut() = Head::read_from_bytes(&head).expect("as long as one");
            slot.payload_mut()[..samples[nth].rest.len()].copy_from_slice(&samples[nth].rest);
            numbers.push(slot.number());
            queue.request(&bench.device, &Curious, slot).expect("the ring takes it");
        }
        for number in [0, ENTRIES, usize::MAX] {
            mailbox.put(Answer::Staged { number, unique: chance.number(), errno: 0, body: vec![1; 8] });
        }
        queue.commit_all().expect("the ring takes them");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..ENTRIES).collect::<Vec<_>>(), "each entry once");
        done += 1;
    }
    let counts = bench.device.counters.read();
    assert!(counts.malformed > 0 && counts.panics == 0, "{counts:?}");
    println!("{done} rounds of {ENTRIES} entries from seed {}: {counts:?}", budget.seed);
}

const ENTRIES: usize = 4;
const PAYLOAD_BYTES: usize = 8192;
const ROUNDS: u64 = 30_000;
