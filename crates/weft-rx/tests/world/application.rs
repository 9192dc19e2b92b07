//! What runs over an endpoint: callers that know what has to come back, and a server that makes it.
//!
//! A request begins with what the server is to do and how long the reply is; a reply is made of the request's bytes, so
//! that each side sees whether every byte came, in its place and once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weft_rx::{CallError, CallId, Drained, Endpoint, Event, Read, RouteId};

use super::Chance;

/// The services that hosts offer.
pub const SERVICES: [u16; 2] = [1, 52];

/// The longest reply: a request may have been changed on its way.
const REPLY_BYTES_MAX: u32 = 20_000_000;

/// Bytes of a request before those that are anything.
const HEAD_BYTES: usize = 8;

/// How a call ended.
pub type Outcome = Result<(), CallError>;

/// A call that somebody wants to make.
#[derive(Clone, Debug)]
pub struct Wish {
    pub route: RouteId,
    pub request_bytes: usize,
    pub reply_bytes: usize,
    /// The server is to abort with this code, if it is not 0.
    pub server_aborts: i32,
    /// When the caller gives up.
    pub given_up_at: Option<Instant>,
}

/// One host's callers and server.
pub struct Application {
    chance: Chance,
    calls: BTreeMap<CallId, Talk>,
    /// When somebody who put off reading reads.
    reads: BTreeSet<(Instant, CallId)>,
    gives_up: BTreeSet<(Instant, CallId)>,
    /// When the server has its answer.
    answers: BTreeSet<(Instant, CallId)>,
    /// How long that takes.
    pub think: Duration,
    /// How calls from here ended.
    pub outcomes: Vec<(CallId, Outcome)>,
    pub given_up: usize,
    /// How calls to here ended.
    pub served: Vec<Outcome>,
    /// In percent: how often a reader puts off reading.
    pub lazy_percent: u64,
    /// Whether what comes is what was sent.
    pub honest_network: bool,
}

struct Talk {
    caller: bool,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// What has to come.
    wanted: Vec<u8>,
    aborted_with: i32,
}

impl Application {
    pub fn new(seed: u64) -> Application {
        Application {
            chance: Chance::new(seed),
            calls: BTreeMap::new(),
            reads: BTreeSet::new(),
            gives_up: BTreeSet::new(),
            answers: BTreeSet::new(),
            think: Duration::ZERO,
            outcomes: Vec::new(),
            given_up: 0,
            served: Vec::new(),
            lazy_percent: 20,
            honest_network: true,
        }
    }

    /// Begins a call.
    pub fn wish(&mut self, now: Instant, endpoint: &mut Endpoint, wish: &Wish) -> CallId {
        let mut request = Vec::with_capacity(HEAD_BYTES + wish.request_bytes);
        request.extend_from_slice(&wish.server_aborts.to_be_bytes());
        request.extend_from_slice(&u32::try_from(wish.reply_bytes).expect("a small reply").to_be_bytes());
        request.extend((0..wish.request_bytes).map(|_| self.chance.next() as u8));
        let call = endpoint.call(now, wish.route);
        let wanted = reply(&request);
        let aborted_with = wish.server_aborts;
        self.calls
            .insert(call, Talk { caller: true, output: request, written: 0, input: Vec::new(), wanted, aborted_with });
        self.gives_up.extend(wish.given_up_at.map(|at| (at, call)));
        self.write(now, endpoint, call);
        call
    }

    /// When there is something to do without an event.
    pub fn wake(&self) -> Option<Instant> {
        [self.reads.first(), self.gives_up.first(), self.answers.first()].into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Calls from here that have not ended.
    pub fn open(&self) -> usize {
        self.calls.len()
    }

    pub fn run(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((_, call)) = self.gives_up.first().copied().filter(|(at, _)| *at <= now) {
            self.gives_up.pop_first();
            if self.calls.remove(&call).is_some() {
                endpoint.abort(now, call, -6);
                self.given_up += 1;
            }
        }
        while let Some((_, call)) = self.reads.first().copied().filter(|(at, _)| *at <= now) {
            self.reads.pop_first();
            self.read(now, endpoint, call);
        }
        while let Some((_, call)) = self.answers.first().copied().filter(|(at, _)| *at <= now) {
            self.answers.pop_first();
            self.answer(now, endpoint, call);
        }
        while let Some(event) = endpoint.poll_event() {
            self.hear(now, endpoint, event);
        }
    }

    fn hear(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Incoming { call, service, .. } => {
                assert!(SERVICES.contains(&service));
                let (output, input, wanted) = (Vec::new(), Vec::new(), Vec::new());
                let talk = Talk { caller: false, output, written: 0, input, wanted, aborted_with: 0 };
                assert!(self.calls.insert(call, talk).is_none(), "a call comes once");
            }
            Event::Readable(call) if self.chance.percent(self.lazy_percent) => {
                let delay = Duration::from_millis(self.chance.between(1, 300));
                self.reads.insert((now + delay, call));
            }
            Event::Readable(call) => self.read(now, endpoint, call),
            Event::Writable(call) => self.write(now, endpoint, call),
            Event::Ended(call, outcome) => {
                let Some(talk) = self.calls.remove(&call) else {
                    panic!("{call:?} ends twice, or after it was given up: {outcome:?}");
                };
                self.check(call, &talk, outcome);
            }
        }
    }

    fn check(&mut self, call: CallId, talk: &Talk, outcome: Outcome) {
        if !talk.caller {
            self.served.push(outcome);
            return;
        }
        match outcome {
            _ if !self.honest_network => {}
            Ok(()) => {
                assert_eq!(talk.aborted_with, 0, "{call:?} went well");
                assert!(talk.input == talk.wanted, "{call:?}: {} bytes for {}", talk.input.len(), talk.wanted.len());
            }
            Err(CallError::Aborted(code)) => assert_eq!(code, talk.aborted_with, "{call:?}"),
            Err(_) => {}
        }
        self.outcomes.push((call, outcome));
    }

    fn write(&mut self, now: Instant, endpoint: &mut Endpoint, call: CallId) {
        let Some(talk) = self.calls.get_mut(&call) else {
            return;
        };
        while talk.written < talk.output.len() {
            let rest = &talk.output[talk.written..];
            let piece = &rest[..rest.len().min(self.chance.between(1, 20_000) as usize)];
            let Ok(taken) = endpoint.write(now, call, piece) else {
                return;
            };
            let all = taken == piece.len();
            talk.written += taken;
            if !all {
                // An event will tell when there is room.
                return;
            }
        }
        endpoint.finish(now, call);
    }

    fn read(&mut self, now: Instant, endpoint: &mut Endpoint, call: CallId) {
        loop {
            let Some(talk) = self.calls.get_mut(&call) else {
                return;
            };
            let max = self.chance.between(1, 3000) as usize;
            let read = match self.chance.percent(30) {
                true => drain(now, endpoint, call, 3 * max, &mut talk.input),
                false => endpoint.read(now, call, max),
            };
            match read {
                Ok(Read::Bytes(bytes)) => {
                    assert!((1..=max).contains(&bytes.len()));
                    talk.input.extend_from_slice(&bytes);
                }
                Ok(Read::Blocked) | Err(_) => return,
                Ok(Read::End) if talk.caller => return,
                Ok(Read::End) => {
                    self.answers.insert((now + self.think, call));
                    return;
                }
            }
        }
    }

    fn answer(&mut self, now: Instant, endpoint: &mut Endpoint, call: CallId) {
        let Some(talk) = self.calls.get_mut(&call) else {
            return;
        };
        let code = if talk.input.len() < HEAD_BYTES { -453 } else { word(&talk.input) };
        if code != 0 {
            endpoint.abort(now, call, code);
            self.calls.remove(&call);
            return;
        }
        talk.output = reply(&talk.input);
        self.write(now, endpoint, call);
    }
}

/// Reads much at once; in the words of a read that gives nothing more, or the end. Goes on where there is more than room.
fn drain(
    now: Instant,
    endpoint: &mut Endpoint,
    call: CallId,
    max: usize,
    into: &mut Vec<u8>,
) -> Result<Read, CallError> {
    loop {
        let before = into.len();
        let drained = endpoint.drain(now, call, max, |bytes| {
            assert!(!bytes.is_empty());
            into.extend_from_slice(bytes);
        })?;
        let came = into.len() - before;
        assert!(came <= max && (drained != Drained::Full || came == max), "{drained:?}: {came} bytes of {max}");
        match drained {
            Drained::Blocked => return Ok(Read::Blocked),
            Drained::End => return Ok(Read::End),
            Drained::Full => {}
        }
    }
}

fn word(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(*bytes.first_chunk().expect("four bytes"))
}

/// What a request is answered with.
fn reply(request: &[u8]) -> Vec<u8> {
    let length = word(&request[4..]).unsigned_abs().min(REPLY_BYTES_MAX);
    let mut sum = request.iter().fold(7_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let next = |_| {
        sum = sum.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (sum >> 56) as u8
    };
    (0..length).map(next).collect()
}
