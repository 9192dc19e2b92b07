//! What is known of a host: the scheme it speaks, whether it answers.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weft_remote::{Notes, RemoteError, Source};

use crate::authority::Authority;
use crate::budget::Budget;
use crate::contact::{Contact, Leave, Next, Took};
use crate::identity::Identity;
use crate::lister::Lists;
use crate::options::Connector;
use crate::pool::Pool;
use crate::traffic::Counts;

/// How a host is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    /// HTTP over TLS.
    Https,
    /// Plain HTTP.
    Http,
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Https => "https",
            Scheme::Http => "http",
        }
    }

    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Https => 443,
            Scheme::Http => 80,
        }
    }
}

/// One host and port that is, or was, talked to.
pub(crate) struct Host {
    pub authority: Authority,
    /// Set for hosts that live inside this process.
    pub builtin: Option<Connector>,
    pub counts: Arc<Counts>,
    https: Arc<Pool>,
    http: Arc<Pool>,
    /// Connections under https that a user's certificate made, by its number: never lent for anything else. The one
    /// used last is at the end.
    identified: Mutex<Vec<(u64, Arc<Pool>)>>,
    connections_max: usize,
    /// Memory for what comes from any host.
    pub budget: Arc<Budget>,
    /// Held while the first connection finds out which scheme the host speaks.
    pub deciding: tokio::sync::Mutex<()>,
    /// Who lists its directories.
    pub lists: Lists,
    state: Mutex<State>,
    /// Wakes the calls that wait for a probe's verdict.
    verdicts: tokio::sync::watch::Sender<()>,
}

/// Guarded by `Host::state`, which is never held over any wait.
struct State {
    memory: Option<Memory>,
    /// Whether `memory` is in the notes.
    noted: bool,
    contact: Contact,
    /// A 206 was seen.
    ranges: bool,
    /// It answers as S3 does.
    s3: bool,
    /// Several servers stand behind its name, each with tags of its own for the same content.
    tags_each: bool,
    /// The proxy that the last connection went through.
    via: Option<String>,
    /// Somebody's login was sent.
    logins: bool,
    /// Until when the scheme that it is not known by is not tried again, and why.
    aside: Option<(Instant, RemoteError)>,
    /// How it gives headers alone if not by HEAD, and until when that counts.
    headers_by: Option<(Instant, HeadersBy)>,
}

/// What a host answers with the headers of a file and none, or hardly any, of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadersBy {
    Head,
    /// A GET of the first byte.
    Part,
    /// Neither.
    Nothing,
}

/// What is noted of a host, as JSON under `host/<authority>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub scheme: Scheme,
    /// Once true, plain http is never used again.
    pub https_seen: bool,
    /// Why it is this scheme, for people.
    pub why: String,
}

impl Host {
    /// A host that is talked to over at most `connections_max` connections and, once it was silent, tried again after
    /// `pause` first.
    pub fn new(
        authority: Authority,
        builtin: Option<Connector>,
        connections_max: usize,
        budget: Arc<Budget>,
        pause: Duration,
        notes: &dyn Notes,
    ) -> Host {
        let pool = || Arc::new(Pool::new(connections_max, budget.clone()));
        let noted = match notes.get(&note_key(&authority.text())) {
            Ok(noted) => noted.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok()),
            Err(e) => {
                tracing::warn!("{}: {e}", authority.text());
                None
            }
        };
        let mut state = State {
            noted: noted.is_some(),
            memory: noted,
            contact: Contact::new(pause, SystemTime::now()),
            ranges: false,
            s3: false,
            tags_each: false,
            via: None,
            logins: false,
            aside: None,
            headers_by: None,
        };
        if builtin.is_some() {
            let why = "served by weft itself".to_owned();
            state.memory = Some(Memory { scheme: Scheme::Http, https_seen: false, why });
        }
        let (https, http) = (pool(), pool());
        let lists = Lists::load(&authority.text(), notes);
        Host {
            authority,
            builtin,
            https,
            http,
            lists,
            counts: Arc::default(),
            identified: Mutex::default(),
            connections_max,
            budget,
            deciding: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
            verdicts: tokio::sync::watch::Sender::new(()),
        }
    }

    /// The connections for requests under this scheme by this identity.
    pub fn pool(&self, scheme: Scheme, identity: Option<&Identity>) -> Arc<Pool> {
        let number = match (scheme, identity) {
            (Scheme::Http, _) => return self.http.clone(),
            (Scheme::Https, None) => return self.https.clone(),
            (Scheme::Https, Some(identity)) => identity.number,
        };
        let mut identified = self.identified.lock();
        let pool = match identified.iter().position(|(known, _)| *known == number) {
            Some(at) => identified.remove(at).1,
            None => Arc::new(Pool::new(self.connections_max, self.budget.clone())),
        };
        if identified.len() >= IDENTITIES_MAX {
            identified.remove(0);
        }
        identified.push((number, pool.clone()));
        pool
    }

    /// Whether some of its connections were made with a certificate.
    pub fn has_identities(&self) -> bool {
        !self.identified.lock().is_empty()
    }

    pub fn port(&self, scheme: Scheme) -> u16 {
        self.authority.port.unwrap_or(scheme.default_port())
    }

    pub fn memory(&self) -> Option<Memory> {
        self.state.lock().memory.clone()
    }

    /// Remembers which scheme the host speaks. Never goes from https back to http.
    pub fn learn(&self, scheme: Scheme, why: &str) {
        let mut state = self.state.lock();
        let https_seen = scheme == Scheme::Https || state.memory.as_ref().is_some_and(|m| m.https_seen);
        if https_seen && scheme == Scheme::Http {
            return;
        }
        let memory = Memory { scheme, https_seen, why: why.to_owned() };
        let news = state.memory.as_ref().is_none_or(|old| old.scheme != scheme || !old.https_seen && https_seen);
        if news {
            state.memory = Some(memory);
            state.noted = false;
        }
    }

    /// The host answered something. `visited` says that it was asked for under its own name, which puts it on
    /// the list of hosts. Says whether it had been silent.
    pub fn answered(&self, visited: bool, notes: &dyn Notes) -> bool {
        let (unnoted, was_silent) = {
            let mut state = self.state.lock();
            let was_silent = state.contact.answered(Instant::now(), SystemTime::now());
            let due = visited && !state.noted && self.builtin.is_none();
            state.noted |= due;
            (if due { state.memory.clone() } else { None }, was_silent)
        };
        if was_silent {
            self.verdicts.send_modify(|_| ());
        }
        let Some(memory) = unnoted else { return was_silent };
        let value = serde_json::to_vec(&memory).expect("a scheme, a flag and a text are always JSON");
        if let Err(e) = notes.put(&note_key(&self.authority.text()), Some(&value)) {
            tracing::warn!("{}: {e}", self.authority.text());
            self.state.lock().noted = false;
        }
        was_silent
    }

    /// Something went wrong with the host.
    pub fn failed(&self, error: &RemoteError) {
        self.contact(|contact, _, at| contact.failed(error, at));
    }

    /// The host was silent to a call that began then. Gives the number of a probe that is to be started.
    pub fn silent(&self, began: Instant, error: &RemoteError, took: Took) -> Option<u64> {
        // What lives in this process cannot be away.
        if self.builtin.is_some() {
            self.failed(error);
            return None;
        }
        self.contact(|contact, now, at| contact.silent(began, now, at, error, took))
    }

    /// Waits for leave to send it a call: at once, but for a host that is suspected to be away, whose probe is waited
    /// for.
    ///
    /// # Errors
    /// `Unreachable` while it counts as away.
    pub async fn may_ask(&self) -> std::result::Result<(), RemoteError> {
        let mut verdicts = self.verdicts.subscribe();
        loop {
            verdicts.borrow_and_update();
            match self.contact(|contact, now, _| contact.may_ask(now)) {
                Leave::Granted => return Ok(()),
                Leave::Refused(error) => return Err(error),
                // The host holds the sender, so this ends with a verdict or with the call.
                Leave::Wait => {
                    let _ = verdicts.changed().await;
                }
            }
        }
    }

    /// The host gave an answer of use, or one that says "not now" (with that said).
    pub fn judged(&self, refusal: Option<String>) {
        self.contact(|contact, now, at| match refusal {
            None => contact.served(now, at),
            Some(error) => contact.refused(now, at, error),
        });
    }

    /// What the probe of this number does next.
    pub fn next_probe(&self, number: u64) -> Next {
        self.contact(|contact, now, _| contact.next_probe(number, now))
    }

    /// No probe can be had.
    pub fn unprobed(&self) {
        self.contact(|contact, now, _| contact.unprobed(now));
        self.verdicts.send_modify(|_| ());
    }

    /// Whether it counts as away for certain.
    pub fn is_away(&self) -> bool {
        self.contact(|contact, _, _| contact.is_away())
    }

    /// The probe found it back; says whether it had been silent.
    pub fn back(&self) -> bool {
        let was_away = self.contact(|contact, now, at| contact.back(now, at));
        self.verdicts.send_modify(|_| ());
        was_away
    }

    /// The probe found it silent still; says whether that is news.
    pub fn still_silent(&self, error: &RemoteError, took: Took) -> bool {
        let news = self.contact(|contact, now, at| contact.still_silent(now, at, error, took));
        self.verdicts.send_modify(|_| ());
        news
    }

    /// A redirect led to the scheme that it is not known by, and nothing takes a connection there.
    pub fn silent_aside(&self, error: &RemoteError) {
        self.state.lock().aside = Some((Instant::now() + ASIDE_PAUSE, error.clone()));
    }

    /// Whether a connection under the scheme that it is not known by may be tried.
    ///
    /// # Errors
    /// What became of the last attempt, for a while after it.
    pub fn may_ask_aside(&self) -> std::result::Result<(), RemoteError> {
        match &self.state.lock().aside {
            Some((until, error)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Lets the next calls through; says whether anything was in their way.
    pub fn release(&self) -> bool {
        self.state.lock().aside = None;
        let released = self.contact(|contact, now, at| contact.release(now, at));
        self.verdicts.send_modify(|_| ());
        released
    }

    /// How it is now.
    pub fn source(&self) -> Source {
        let (requests, received_bytes) = self.counts.exchanged();
        self.contact(|contact, now, _| Source {
            name: self.authority.text(),
            state: contact.state(now),
            since: contact.since(),
            last_contact: contact.last_answer(),
            last_error: contact.last_error().cloned(),
            requests,
            received_bytes,
        })
    }

    fn contact<T>(&self, change: impl FnOnce(&mut Contact, Instant, SystemTime) -> T) -> T {
        change(&mut self.state.lock().contact, Instant::now(), SystemTime::now())
    }

    /// A connection was made, through a proxy or not.
    pub fn came_by(&self, via: Option<String>) {
        self.state.lock().via = via;
    }

    /// A login was sent to it.
    pub fn saw_login(&self) {
        self.state.lock().logins = true;
    }

    /// Whether one was.
    pub fn has_logins(&self) -> bool {
        self.state.lock().logins
    }

    pub fn saw_ranges(&self) {
        self.state.lock().ranges = true;
    }

    pub fn has_ranges(&self) -> bool {
        self.state.lock().ranges
    }

    /// What it is asked by for headers alone.
    pub fn headers_by(&self) -> HeadersBy {
        let found = self.state.lock().headers_by;
        found.filter(|(until, _)| Instant::now() < *until).map_or(HeadersBy::Head, |(_, by)| by)
    }

    /// It has answered this way what it did not by HEAD.
    pub fn gives_headers_by(&self, by: HeadersBy) {
        self.state.lock().headers_by = Some((Instant::now() + HEADERS_BY_TIME, by));
    }

    /// Notes that it has answered as S3 does.
    pub fn saw_s3(&self) {
        self.state.lock().s3 = true;
    }

    /// Whether this path is the key of an object to it.
    pub fn takes_for_key(&self, path: &str) -> bool {
        self.state.lock().s3 || self.lists.bucket_of(path).is_some()
    }

    /// A version that one answer denied was there in the next.
    pub fn saw_tags_each(&self) {
        self.state.lock().tags_each = true;
    }

    pub fn has_tags_each(&self) -> bool {
        self.state.lock().tags_each
    }

    /// Facts for people.
    pub fn about(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        let mut facts = Vec::new();
        match &state.memory {
            Some(memory) => {
                facts.push(("scheme".to_owned(), memory.scheme.as_str().to_owned()));
                facts.push(("scheme because".to_owned(), memory.why.clone()));
            }
            None => facts.push(("scheme".to_owned(), "not known yet".to_owned())),
        }
        facts.extend(self.lists.about());
        let time = |at: SystemTime| httpdate::fmt_http_date(at);
        facts.push((
            "last contact".to_owned(),
            state.contact.last_answer().map_or("none by this process".to_owned(), time),
        ));
        if let Some(via) = &state.via {
            facts.push(("served through".to_owned(), via.clone()));
        }
        if let Some((at, error)) = state.contact.last_error() {
            facts.push(("last error of the host".to_owned(), format!("{}: {error}", time(*at))));
        }
        facts
    }
}

/// How long a redirect to a scheme that nobody speaks fails at once: an attempt may take as long as a connection may.
const ASIDE_PAUSE: Duration = Duration::from_secs(10);

/// How long a host is not asked by HEAD that has not answered it: that may have been one of several servers, or of its files.
const HEADERS_BY_TIME: Duration = Duration::from_secs(600);

/// Certificates of users whose connections to one host are kept.
const IDENTITIES_MAX: usize = 32;

/// Where a host is noted.
pub(crate) fn note_key(authority: &str) -> Vec<u8> {
    [NOTE_PREFIX, authority.as_bytes()].concat()
}

/// Every visited host has a note that starts so.
pub(crate) const NOTE_PREFIX: &[u8] = b"host/";

#[cfg(test)]
mod tests {
    use super::*;
    use weft_remote::MemoryNotes;

    fn host(notes: &MemoryNotes) -> Host {
        Host::new(Authority::parse("example.org").unwrap(), None, 4, Budget::new(0), Duration::ZERO, notes)
    }

    #[test]
    fn another_scheme_is_left_alone_for_a_while_and_tried_when_the_user_says_so() {
        let host = host(&MemoryNotes::default());
        assert!(host.may_ask_aside().is_ok());
        host.silent_aside(&RemoteError::Unreachable { detail: "refused".to_owned() });
        assert!(host.may_ask_aside().is_err());
        assert!(!host.is_away(), "of the host itself it says nothing");
        host.release();
        assert!(host.may_ask_aside().is_ok());
    }

    #[test]
    fn https_once_seen_stays_and_is_noted_when_the_host_answered() {
        let notes = MemoryNotes::default();
        let first = host(&notes);
        first.learn(Scheme::Http, "refused");
        first.learn(Scheme::Https, "redirect");
        first.learn(Scheme::Http, "refused");
        assert_eq!(first.memory().unwrap().scheme, Scheme::Https);
        assert!(notes.list(NOTE_PREFIX).unwrap().is_empty());
        first.answered(false, &notes);
        assert!(notes.list(NOTE_PREFIX).unwrap().is_empty());
        first.answered(true, &notes);
        let again = host(&notes).memory().unwrap();
        assert!(again.https_seen && again.scheme == Scheme::Https && again.why == "redirect");
    }
}
