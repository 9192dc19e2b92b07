//! What is known of a host: the scheme it speaks, whether it answers.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weft_remote::{Notes, RemoteError};

use crate::authority::Authority;
use crate::lister::Lists;
use crate::options::Connector;
use crate::pool::Pool;

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
    pub https: Arc<Pool>,
    pub http: Arc<Pool>,
    /// Held while the first connection finds out which scheme the host speaks.
    pub deciding: tokio::sync::Mutex<()>,
    /// Who lists its directories.
    pub lists: Lists,
    state: Mutex<State>,
}

/// Guarded by `Host::state`, which is never held over any wait.
#[derive(Default)]
struct State {
    memory: Option<Memory>,
    /// Whether `memory` is in the notes.
    noted: bool,
    last_contact: Option<SystemTime>,
    last_error: Option<(SystemTime, String)>,
    down: Option<(Instant, RemoteError)>,
    /// A 206 was seen.
    ranges: bool,
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
    pub fn new(authority: Authority, builtin: Option<Connector>, connections_max: usize, notes: &dyn Notes) -> Host {
        let pool = || Arc::new(Pool::new(connections_max));
        let noted = match notes.get(&note_key(&authority.text())) {
            Ok(noted) => noted.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok()),
            Err(e) => {
                tracing::warn!("{}: {e}", authority.text());
                None
            }
        };
        let mut state = State { noted: noted.is_some(), memory: noted, ..State::default() };
        if builtin.is_some() {
            let why = "served by weft itself".to_owned();
            state.memory = Some(Memory { scheme: Scheme::Http, https_seen: false, why });
        }
        let (https, http) = (pool(), pool());
        let lists = Lists::load(&authority.text(), notes);
        let deciding = tokio::sync::Mutex::new(());
        Host { authority, builtin, https, http, deciding, lists, state: Mutex::new(state) }
    }

    pub fn pool(&self, scheme: Scheme) -> &Arc<Pool> {
        match scheme {
            Scheme::Https => &self.https,
            Scheme::Http => &self.http,
        }
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
    /// the list of hosts.
    pub fn answered(&self, visited: bool, notes: &dyn Notes) {
        let unnoted = {
            let mut state = self.state.lock();
            state.last_contact = Some(SystemTime::now());
            state.down = None;
            let due = visited && !state.noted && self.builtin.is_none();
            state.noted |= due;
            if due { state.memory.clone() } else { None }
        };
        let Some(memory) = unnoted else { return };
        let value = serde_json::to_vec(&memory).expect("a scheme, a flag and a text are always JSON");
        if let Err(e) = notes.put(&note_key(&self.authority.text()), Some(&value)) {
            tracing::warn!("{}: {e}", self.authority.text());
            self.state.lock().noted = false;
        }
    }

    /// Something went wrong with the host.
    pub fn failed(&self, error: &RemoteError) {
        self.state.lock().last_error = Some((SystemTime::now(), error.to_string()));
    }

    /// No connection can be made; nobody tries again before `until`.
    pub fn down(&self, until: Instant, error: &RemoteError) {
        self.state.lock().down = Some((until, error.clone()));
    }

    /// The error to answer with at once, while the host counts as down.
    pub fn is_down(&self) -> Option<RemoteError> {
        let mut state = self.state.lock();
        match &state.down {
            Some((until, error)) if Instant::now() < *until => Some(error.clone()),
            Some(_) => {
                state.down = None;
                None
            }
            None => None,
        }
    }

    pub fn saw_ranges(&self) {
        self.state.lock().ranges = true;
    }

    pub fn has_ranges(&self) -> bool {
        self.state.lock().ranges
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
        facts.push(("last contact".to_owned(), state.last_contact.map_or("none by this process".to_owned(), time)));
        if let Some((at, error)) = &state.last_error {
            facts.push(("last error of the host".to_owned(), format!("{}: {error}", time(*at))));
        }
        facts
    }
}

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
        Host::new(Authority::parse("example.org").unwrap(), None, 4, notes)
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
