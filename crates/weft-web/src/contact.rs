//! Whether a host is talked to: Arla's three states, for one host.
//!
//! *Connected*: calls go to the host. *Disconnected*: it was silent and nothing else came from it meanwhile; calls fail
//! at once with the error of that time, while a probe beside them finds out when it is back. Without a connection that
//! is certain. A host that took the connection and gave no answer in time, or closed it before one, is *suspected*
//! first, for it may be that one page alone: the probe asks it at once, and calls wait for that verdict. *Fetch-only*: for a while it has answered nothing but "not now" (429, 5xx);
//! what is held is not checked with it, what is missing is asked for, and the first good answer ends it.
//!
//! No I/O here: times are arguments, the caller runs the probe. `may_ask` before a call; `answered`, `refused` or
//! `silent` after it; when `silent` says so, one probe is started, which follows `next_probe` and reports `back` or
//! `still_silent`.

use std::time::{Duration, Instant, SystemTime};

use weft_remote::{RemoteError, SourceState};

/// One host's state.
pub(crate) struct Contact {
    /// First pause between attempts; zero: calls always go to the host.
    pause: Duration,
    state: SourceState,
    since: SystemTime,
    last_answer: Option<(Instant, SystemTime)>,
    last_error: Option<(SystemTime, String)>,
    silence: Option<Silence>,
    refusals: Option<Refusals>,
    /// Number of the last probe.
    probes: u64,
}

/// What is known while a host is silent.
struct Silence {
    error: RemoteError,
    /// It took the connection: only an answer shows that it is back.
    deaf: bool,
    /// The probe has not confirmed it yet.
    suspected: bool,
    /// Attempts of the probe that failed.
    attempts: u32,
    /// When somebody last asked about the host.
    asked: Instant,
    hold: Hold,
}

/// What keeps calls from a silent host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// The probe of this number is looking out for it.
    Probe(u64),
    /// The time; then a call finds out by itself.
    Until(Instant),
    /// Nothing.
    None,
}

/// Answers that were all "not now".
struct Refusals {
    since: Instant,
    count: u32,
    /// When what is held was last left unchecked on this account.
    fetch_only_since: Option<Instant>,
}

/// What a call does.
#[derive(Debug)]
pub(crate) enum Leave {
    /// It goes to the host.
    Granted,
    /// It waits for the verdict of the probe.
    Wait,
    /// It fails with this, which is `Unreachable`, at once.
    Refused(RemoteError),
}

/// What a probe does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Tries after this pause; `deaf`: a connection alone proves nothing.
    TryAfter { pause: Duration, deaf: bool },
    /// Ends.
    End,
}

/// What the host took from us before it fell silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// No connection.
    Nothing,
    /// A connection, and gave no answer.
    Connection,
}

impl Contact {
    pub fn new(pause: Duration, now: SystemTime) -> Contact {
        let state = SourceState::Connected;
        Contact {
            pause,
            state,
            since: now,
            last_answer: None,
            last_error: None,
            silence: None,
            refusals: None,
            probes: 0,
        }
    }

    /// The state at this moment.
    pub fn state(&self, now: Instant) -> SourceState {
        match (&self.silence, &self.refusals) {
            (Some(silence), _) if !silence.suspected => SourceState::Disconnected,
            (_, Some(Refusals { fetch_only_since: Some(since), .. })) if now < *since + FETCH_ONLY_TIME => {
                SourceState::FetchOnly
            }
            _ => SourceState::Connected,
        }
    }

    pub fn since(&self) -> SystemTime {
        self.since
    }

    pub fn last_answer(&self) -> Option<SystemTime> {
        self.last_answer.map(|(_, at)| at)
    }

    pub fn last_error(&self) -> Option<&(SystemTime, String)> {
        self.last_error.as_ref()
    }

    /// Whether a call may go to the host.
    pub fn may_ask(&mut self, now: Instant) -> Leave {
        let Some(silence) = &mut self.silence else { return Leave::Granted };
        silence.asked = now;
        match silence.hold {
            Hold::Until(end) if now >= end => Leave::Granted,
            Hold::None => Leave::Granted,
            Hold::Probe(_) if silence.suspected => Leave::Wait,
            Hold::Probe(_) | Hold::Until(_) => {
                let after = cause(&silence.error);
                let detail = format!("not asked again yet (`weft online` tries now) after {after}");
                Leave::Refused(RemoteError::Unreachable { detail })
            }
        }
    }

    /// The host answered something; says whether it had been silent.
    pub fn answered(&mut self, now: Instant, at: SystemTime) -> bool {
        self.last_answer = Some((now, at));
        let was_silent = self.silence.take().is_some();
        self.settle(now, at);
        was_silent
    }

    /// Something went wrong, whatever it was.
    pub fn failed(&mut self, error: &RemoteError, at: SystemTime) {
        self.last_error = Some((at, error.to_string()));
    }

    /// What the host answered was good.
    pub fn served(&mut self, now: Instant, at: SystemTime) {
        self.refusals = None;
        self.settle(now, at);
    }

    /// What the host answered was "not now".
    pub fn refused(&mut self, now: Instant, at: SystemTime, error: String) {
        self.last_error = Some((at, error));
        let refusals = self.refusals.get_or_insert(Refusals { since: now, count: 0, fetch_only_since: None });
        refusals.count = refusals.count.saturating_add(1);
        if refusals.count >= REFUSALS_MIN && now.duration_since(refusals.since) >= REFUSALS_TIME {
            refusals.fetch_only_since = Some(now);
        }
        self.settle(now, at);
    }

    /// The host was silent to a call that began at `began`. Gives the number of a probe that is to be started.
    pub fn silent(
        &mut self,
        began: Instant,
        now: Instant,
        at: SystemTime,
        error: &RemoteError,
        took: Took,
    ) -> Option<u64> {
        self.failed(error, at);
        // It has answered others since: one slow or broken page is not a silent host.
        if took == Took::Connection && self.last_answer.is_some_and(|(answer, _)| answer >= began) {
            return None;
        }
        let before = self.silence.as_ref().map_or(Hold::None, |silence| silence.hold);
        let attempts = self.silence.as_ref().map_or(0, |silence| silence.attempts);
        let (hold, start) = match before {
            Hold::Probe(_) => (before, None),
            _ if self.pause.is_zero() => (Hold::None, None),
            _ => {
                self.probes += 1;
                (Hold::Probe(self.probes), Some(self.probes))
            }
        };
        let deaf = took == Took::Connection;
        // What was confirmed once is not in doubt again.
        let suspected =
            deaf && self.silence.as_ref().is_none_or(|silence| silence.suspected) && matches!(hold, Hold::Probe(_));
        self.silence = Some(Silence { error: error.clone(), deaf, suspected, attempts, asked: now, hold });
        self.settle(now, at);
        start
    }

    /// No probe can be had: calls find out by themselves, not too often.
    pub fn unprobed(&mut self, now: Instant) {
        let until = now + self.pause;
        if let Some(silence) = &mut self.silence {
            silence.hold = Hold::Until(until);
            silence.suspected = false;
        }
    }

    /// What the probe does now.
    pub fn next_probe(&mut self, number: u64, now: Instant) -> Next {
        let Some(silence) = &mut self.silence else { return Next::End };
        if silence.hold != Hold::Probe(number) {
            return Next::End;
        }
        if now.duration_since(silence.asked) >= INTEREST_TIME {
            // Whoever comes back to it finds out by asking, as on a first visit.
            silence.hold = Hold::None;
            silence.attempts = 0;
            return Next::End;
        }
        if silence.suspected {
            return Next::TryAfter { pause: Duration::ZERO, deaf: silence.deaf };
        }
        let pause = self.pause.saturating_mul(1 << silence.attempts.min(DOUBLINGS_MAX)).min(PAUSE_MAX.max(self.pause));
        Next::TryAfter { pause, deaf: silence.deaf }
    }

    /// The probe found the host silent still; says whether that was the verdict on a suspicion.
    pub fn still_silent(&mut self, now: Instant, at: SystemTime, error: &RemoteError, took: Took) -> bool {
        self.failed(error, at);
        let Some(silence) = &mut self.silence else { return false };
        let verdict = std::mem::take(&mut silence.suspected);
        if !verdict {
            silence.attempts = silence.attempts.saturating_add(1);
        }
        silence.error = error.clone();
        silence.deaf |= took == Took::Connection;
        self.settle(now, at);
        verdict
    }

    /// Whether it counts as away for certain.
    pub fn is_away(&self) -> bool {
        self.silence.as_ref().is_some_and(|silence| !silence.suspected)
    }

    /// The probe found the host back; says whether it had been silent.
    pub fn back(&mut self, now: Instant, at: SystemTime) -> bool {
        let was_silent = self.silence.take().is_some();
        self.settle(now, at);
        was_silent
    }

    /// Lets the next calls through; says whether there was anything in their way.
    pub fn release(&mut self, now: Instant, at: SystemTime) -> bool {
        let refused = self.refusals.take().is_some_and(|refusals| refusals.fetch_only_since.is_some());
        let held = match &mut self.silence {
            Some(silence) => std::mem::replace(&mut silence.hold, Hold::None) != Hold::None,
            None => false,
        };
        self.settle(now, at);
        refused || held
    }

    /// Notes when the state changed.
    fn settle(&mut self, now: Instant, at: SystemTime) {
        let state = self.state(now);
        if state != self.state {
            self.state = state;
            self.since = at;
        }
    }
}

/// What went wrong, for a sentence that says itself that the host cannot be reached.
pub(crate) fn cause(error: &RemoteError) -> String {
    match error {
        RemoteError::Unreachable { detail } => detail.clone(),
        other => other.to_string(),
    }
}

/// Longest pause between two attempts of a probe.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Doublings of the pause that are counted.
const DOUBLINGS_MAX: u32 = 16;
/// How long after anybody last asked about a host it is probed.
const INTEREST_TIME: Duration = Duration::from_secs(300);
/// So many answers in a row, over at least [`REFUSALS_TIME`], must be "not now" for a host to be fetch-only.
const REFUSALS_MIN: u32 = 5;
const REFUSALS_TIME: Duration = Duration::from_secs(10);
/// After this time what is held is checked with the host again; its next "not now" begins the time anew.
const FETCH_ONLY_TIME: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(2);

    fn error() -> RemoteError {
        RemoteError::Unreachable { detail: "x".to_owned() }
    }

    fn granted(contact: &mut Contact, now: Instant) -> bool {
        matches!(contact.may_ask(now), Leave::Granted)
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn silent(contact: &mut Contact, now: Instant, took: Took) -> Option<u64> {
        contact.silent(now, now, SystemTime::now(), &error(), took)
    }

    /// Goal: a silent host costs one attempt; then calls fail at once until the probe, ever more rarely, finds it.
    #[test]
    fn a_silent_host_is_left_to_one_probe() {
        let (t, at) = (Instant::now(), SystemTime::now());
        let mut contact = Contact::new(PAUSE, at);
        assert!(granted(&mut contact, t));
        assert_eq!(silent(&mut contact, t, Took::Nothing), Some(1), "a probe is wanted");
        assert_eq!(silent(&mut contact, t, Took::Nothing), None, "one probe, not two");
        assert_eq!(contact.state(t), SourceState::Disconnected);
        let mut pauses = Vec::new();
        let mut now = t;
        for _ in 0..8 {
            assert!(!granted(&mut contact, now), "held back");
            let Next::TryAfter { pause, deaf: false } = contact.next_probe(1, now) else {
                panic!("somebody is asking")
            };
            pauses.push(pause.as_secs());
            now += pause;
            assert!(!contact.still_silent(now, at, &error(), Took::Nothing), "no news");
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(contact.back(now, at));
        assert!(granted(&mut contact, now));
        assert_eq!((contact.state(now), contact.next_probe(1, now)), (SourceState::Connected, Next::End));
    }

    #[test]
    fn a_probe_ends_when_nobody_asks_and_the_next_call_finds_out_by_itself() {
        let t = Instant::now();
        let mut contact = Contact::new(PAUSE, SystemTime::now());
        silent(&mut contact, t, Took::Nothing);
        assert_eq!(contact.next_probe(1, after(t, 300)), Next::End);
        assert!(granted(&mut contact, after(t, 301)));
        assert_eq!(silent(&mut contact, after(t, 301), Took::Nothing), Some(2), "and starts a new probe");
    }

    #[test]
    fn one_slow_page_is_not_a_silent_host() {
        let (t, at) = (Instant::now(), SystemTime::now());
        let mut contact = Contact::new(PAUSE, at);
        contact.answered(after(t, 5), at);
        assert_eq!(contact.silent(t, after(t, 30), at, &error(), Took::Connection), None);
        assert!(granted(&mut contact, after(t, 30)));
        assert!(contact.silent(after(t, 31), after(t, 60), at, &error(), Took::Connection).is_some());
        let Next::TryAfter { deaf, .. } = contact.next_probe(1, after(t, 60)) else { panic!("probed") };
        assert!(deaf, "that it takes connections shows nothing");
        assert!(matches!(contact.may_ask(after(t, 60)), Leave::Wait));
        assert_eq!(contact.state(after(t, 60)), SourceState::Connected, "suspected alone");
        assert!(contact.still_silent(after(t, 60), at, &error(), Took::Connection), "the verdict");
        assert!(matches!(contact.may_ask(after(t, 60)), Leave::Refused(_)));
        assert_eq!(contact.state(after(t, 60)), SourceState::Disconnected);
        assert!(contact.answered(after(t, 61), at));
        assert!(granted(&mut contact, after(t, 61)));
    }

    #[test]
    fn the_user_gets_through_at_once_and_without_a_pause_everybody_does() {
        let (t, at) = (Instant::now(), SystemTime::now());
        let mut contact = Contact::new(PAUSE, at);
        assert!(!contact.release(t, at));
        silent(&mut contact, t, Took::Nothing);
        assert!(contact.release(t, at));
        assert!(granted(&mut contact, t));
        assert_eq!(contact.next_probe(1, t), Next::End, "the call does the probe's work");
        assert_eq!(silent(&mut contact, t, Took::Nothing), Some(2));
        assert_eq!(contact.next_probe(1, t), Next::End, "the old probe does not live on in the new one");
        let mut eager = Contact::new(Duration::ZERO, at);
        assert_eq!(silent(&mut eager, t, Took::Nothing), None);
        assert!(granted(&mut eager, t));
        let mut crowded = Contact::new(PAUSE, at);
        silent(&mut crowded, t, Took::Nothing);
        crowded.unprobed(t);
        assert!(!granted(&mut crowded, after(t, 1)));
        assert!(granted(&mut crowded, after(t, 2)));
    }

    #[test]
    fn who_is_turned_away_is_told_once_that_the_host_cannot_be_reached() {
        let t = Instant::now();
        let mut contact = Contact::new(PAUSE, SystemTime::now());
        silent(&mut contact, t, Took::Nothing);
        let Leave::Refused(refusal) = contact.may_ask(t) else { panic!("refused") };
        let said = refusal.to_string();
        assert!(said.ends_with(&error().to_string()), "{said}");
        assert_eq!(said.matches("cannot be reached").count(), 1, "{said}");
    }

    #[test]
    fn a_host_that_refuses_for_a_while_is_asked_only_for_what_is_missing() {
        let (t, at) = (Instant::now(), SystemTime::now());
        let mut contact = Contact::new(PAUSE, at);
        for second in 0..20 {
            contact.refused(after(t, second), at, "503".to_owned());
            let wanted = if second < 10 { SourceState::Connected } else { SourceState::FetchOnly };
            assert_eq!(contact.state(after(t, second)), wanted, "{second}");
        }
        assert_eq!(contact.state(after(t, 79)), SourceState::Connected, "bounded");
        contact.refused(after(t, 80), at, "503".to_owned());
        assert_eq!(contact.state(after(t, 80)), SourceState::FetchOnly, "and begun anew at once");
        contact.served(after(t, 81), at);
        assert_eq!(contact.state(after(t, 81)), SourceState::Connected);
        for second in 100..105 {
            contact.refused(after(t, second), at, "503".to_owned());
        }
        assert_eq!(contact.state(after(t, 105)), SourceState::Connected, "many at once are no while");
    }
}
