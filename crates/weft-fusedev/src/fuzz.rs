//! Requests that are wrong in every way that can be made from right ones, decoded, handed on and answered.
//!
//! A run has a fixed length. `WEFT_FUZZ_SECONDS` makes it last so long, from a seed that nobody had before; what fails
//! is printed with its seed, and `WEFT_FUZZ_SEED` begins there again.

pub(crate) mod chance;
pub(crate) mod requests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use zerocopy::FromBytes;

use crate::abi::{self, opcode};
use crate::attributes::{Attributes, Entry, Space};
use crate::decode::{Incoming, decode};
use crate::device::Device;
use crate::names::{Kind, Name};
use crate::reply::{Body, Delivery, Opened, Reply, Room, Sink, Source};
use crate::request::{Operation, Request};
use crate::serve::{Interrupted, Serve, dispatch};

use chance::Chance;

/// How much is tried.
pub(crate) struct Budget {
    pub(crate) seed: u64,
    rounds: u64,
    until: Option<Instant>,
}

impl Budget {
    /// So many rounds, or what the environment says.
    pub(crate) fn new(rounds: u64) -> Budget {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let until = number("WEFT_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let seed = number("WEFT_FUZZ_SEED").unwrap_or(if until.is_some() { now } else { 1 });
        Budget { seed, rounds, until }
    }

    /// Whether there is more to try after so many rounds.
    pub(crate) fn lasts(&self, done: u64) -> bool {
        match self.until {
            Some(until) => !done.is_multiple_of(LOOK_EVERY) || Instant::now() < until,
            None => done < self.rounds,
        }
    }
}

/// A file system that looks at all that it is given and answers each request, with what the request itself says.
pub(crate) struct Curious;

impl Serve for Curious {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.node;
        let attributes = Attributes { node, size: node, mode: 0o100_644, links: 1, ..Attributes::default() };
        let entry = Entry { node, generation: 1, name_ttl: Duration::MAX, attributes_ttl: Duration::ZERO, attributes };
        let seen =
            |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        let name = Name { node, next: 1, kind: Kind::Unknown, name: b"some name" };
        match request.operation {
            Operation::Lookup(name) | Operation::Unlink(name) | Operation::Rmdir(name) => {
                reply.absent(Duration::from_nanos(seen(name) % 2))
            }
            Operation::Symlink { name, target } => reply.error((seen(name) ^ seen(target)) as i32),
            Operation::Rename { name, new_name, .. } => reply.error((seen(name) ^ seen(new_name)) as i32),
            Operation::Setxattr { name, value, .. } => reply.error((seen(name) ^ seen(value)) as i32),
            Operation::Mknod { name, .. } | Operation::Mkdir { name, .. } | Operation::Link { name, .. } => {
                let entry = Entry { generation: seen(name), ..entry };
                reply.entry(&entry)
            }
            Operation::Create { name, .. } => reply.created(&entry, Opened { handle: seen(name), ..Opened::default() }),
            Operation::Getxattr { name, size } => reply.extended(name, size),
            Operation::Listxattr { size } => reply.extended(b"user.a\0", size),
            Operation::Write { data, .. } => reply.written((data.len() as u64 ^ seen(data)) as u32),
            Operation::Read(read) => {
                let mut filling = reply.begin(read.size);
                while filling.add(&[&[1; 511], &[2; 3]]) == Room::Added && read.size < READ_BYTES_MAX {}
                filling.send()
            }
            Operation::Readdir(read) => {
                let mut names = reply.names(read.size);
                while names.add(&name) == Room::Added && read.size < READ_BYTES_MAX {}
                names.send()
            }
            Operation::Readdirplus(read) => {
                let mut entries = reply.entries(read.size);
                while entries.add(&name, Some(&entry)) == Room::Added && read.size < READ_BYTES_MAX {}
                entries.send()
            }
            Operation::Setattr(changes) => {
                reply.attributes(&attributes, Duration::from_secs(changes.size.unwrap_or(0)))
            }
            Operation::Getlk(lock) => reply.lock(lock.range),
            Operation::CopyFileRange { length, .. } => reply.copied(length),
            Operation::Lseek { offset, .. } => reply.offset(offset),
            Operation::Statfs => reply.space(&Space::default()),
            Operation::Open { flags, .. } => reply.opened(Opened { handle: flags.into(), ..Opened::default() }),
            // Dropped without an answer, which is one.
            Operation::Access { .. } => return,
            _ => reply.done(),
        };
    }

    fn interrupt(&self, _unique: u64) -> Interrupted {
        Interrupted::Taken
    }
}

/// Where answers go that nobody sends: number, errno, length.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<(u64, i32, usize)>>>);

struct Noting {
    answers: Answers,
    room: Vec<u8>,
}

impl Sink for Noting {
    fn room(&mut self) -> Option<&mut [u8]> {
        (!self.room.is_empty()).then_some(&mut self.room)
    }

    fn send(self: Box<Self>, unique: u64, errno: i32, body: Body<'_>) -> Delivery {
        let length = match body {
            Body::Pieces(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Body::InPlace(length) => length,
        };
        self.answers.0.lock().expect("nobody panics in here").push((unique, errno, length));
        Delivery::Delivered
    }
}

/// What requests are tried on.
pub(crate) struct Bench {
    pub(crate) device: Arc<Device>,
    answers: Answers,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("a device for nothing");
        Bench { device: Arc::new(Device::new(null.into())), answers: Answers::default() }
    }

    /// Takes one message the way of all messages: it gets one answer if it is to have one, and otherwise none.
    fn bear(&self, bytes: &[u8]) {
        let decoded = decode(bytes);
        if let Ok(incoming) = &decoded {
            assert!(bytes_in(incoming) <= bytes.len(), "it refers to more than came");
        }
        let room = vec![0; if bytes.len().is_multiple_of(2) { 4096 } else { 0 }];
        dispatch(&Curious, &self.device, decoded, || {
            Source::Sink(Box::new(Noting { answers: self.answers.clone(), room }))
        });
        let answers = std::mem::take(&mut *self.answers.0.lock().expect("nobody panics in here"));
        let header = abi::InHeader::read_from_prefix(bytes).map(|(header, _)| header);
        let wanted = header.ok().filter(|header| header.unique != 0 && !SILENT.contains(&header.opcode));
        let given: Vec<u64> = answers.iter().map(|(unique, _, _)| *unique).collect();
        assert_eq!(given, wanted.map(|header| header.unique).into_iter().collect::<Vec<_>>(), "one answer, its own");
        assert!(answers.iter().all(|(_, _, length)| *length < 2 * READ_BYTES_MAX as usize), "{answers:?}");
        assert_eq!(self.device.counters.panics.load(Ordering::Relaxed), 0, "a handler that panics");
    }

    /// The same, and says which bytes they were when it fails.
    fn try_on(&self, bytes: &[u8], whence: &str) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.bear(bytes)));
        assert!(outcome.is_ok(), "{whence}: {bytes:02x?}");
    }
}

/// How many bytes a decoded message refers to.
fn bytes_in(incoming: &Incoming<'_>) -> usize {
    match incoming {
        Incoming::Forget(forgets) => {
            let mut forgotten = 0;
            forgets.each(|_, _| forgotten += size_of::<abi::ForgetIn>());
            forgotten
        }
        Incoming::Request(request) => match request.operation {
            Operation::Lookup(name) | Operation::Unlink(name) | Operation::Removexattr(name) => name.len(),
            Operation::Symlink { name, target } => name.len() + target.len(),
            Operation::Rename { name, new_name, .. } => name.len() + new_name.len(),
            Operation::Setxattr { name, value, .. } => name.len() + value.len(),
            Operation::Write { data, .. } => data.len(),
            _ => 0,
        },
        _ => 0,
    }
}

fn set_length(bytes: &mut [u8]) {
    let length = (bytes.len() as u32).to_ne_bytes();
    bytes.iter_mut().zip(length).for_each(|(byte, new)| *byte = new);
}

/// Goal: there is a right request of each kind that the decoder knows, and it is read as one.
#[test]
fn requests_of_all_kinds_are_tried() {
    let samples = requests::all();
    for sample in &samples {
        let message = sample.message();
        let read = decode(&message).unwrap_or_else(|error| panic!("{sample:?}: {error}"));
        let refused = [opcode::IOCTL, opcode::POLL].contains(&sample.opcode) || sample.opcode > 1000;
        assert_eq!(matches!(read, Incoming::Unknown(_)), refused, "{sample:?}");
    }
    for code in 0..5000 {
        let blank = requests::Sample { opcode: code, argument: vec![0; 256], rest: Vec::new() }.message();
        let known = !matches!(decode(&blank), Ok(Incoming::Unknown(_)));
        assert!(!known || samples.iter().any(|sample| sample.opcode == code), "no sample of kind {code}");
    }
}

/// Goal: no end, length, number or count makes the decoder or an answer go wrong. Method: each right request cut at
/// each octet, longer by each number of octets, and with each octet and word of it at its extremes.
#[test]
fn right_requests_with_one_thing_wrong_are_borne() {
    let bench = Bench::new();
    for (nth, sample) in requests::all().iter().enumerate() {
        let whole = sample.message();
        let both_lengths = |bytes: &[u8], what: &str| {
            bench.try_on(bytes, &format!("sample {nth}, {what}"));
            let mut bytes = bytes.to_vec();
            set_length(&mut bytes);
            bench.try_on(&bytes, &format!("sample {nth}, {what}, and its length told"));
        };
        for cut in 0..=whole.len() {
            both_lengths(&whole[..cut], "cut");
        }
        for more in 1..=72 {
            both_lengths(&[whole.as_slice(), &vec![0xff; more]].concat(), "longer");
        }
        for at in 0..whole.len() {
            for extreme in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = extreme;
                both_lengths(&bytes, "an octet changed");
            }
            for width in [2, 4, 8] {
                let near = whole.len() as u64;
                for extreme in [0, 1, near - 40, near - 39, near, 1 << 15, 1 << 31, 1 << 63, u64::MAX >> 1, u64::MAX] {
                    let mut bytes = whole.clone();
                    let word = extreme.to_ne_bytes();
                    bytes[at..].iter_mut().zip(&word[..width]).for_each(|(byte, new)| *byte = *new);
                    both_lengths(&bytes, "a word changed");
                }
            }
        }
    }
}

/// Goal: as above, of requests with several things wrong, parts of others among them.
#[test]
fn requests_with_many_things_wrong_are_borne() {
    let (bench, budget) = (Bench::new(), Budget::new(ROUNDS));
    let whole: Vec<Vec<u8>> = requests::all().iter().map(requests::Sample::message).collect();
    let (mut chance, mut done) = (Chance::new(budget.seed), 0);
    while budget.lasts(done) {
        let mut bytes = chance.one_of(&whole).clone();
        for _ in 0..=chance.below(4) {
            chance.spoil(&mut bytes, &whole);
        }
        if chance.below(8) > 0 {
            set_length(&mut bytes);
        }
        bench.try_on(&bytes, &format!("round {done} from seed {}", budget.seed));
        done += 1;
    }
    let counts = bench.device.counters.read();
    assert!(counts.malformed > done / 100 && counts.malformed < done, "some are wrong, and not all: {counts:?}");
    println!("{done} requests from seed {}: {counts:?}", budget.seed);
}

/// What is never answered.
const SILENT: [u32; 4] = [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT, opcode::NOTIFY_REPLY];
const ROUNDS: u64 = 300_000;
/// How often the clock is looked at.
const LOOK_EVERY: u64 = 256;
/// Reads of more are answered with one piece.
const READ_BYTES_MAX: u32 = 1 << 17;
