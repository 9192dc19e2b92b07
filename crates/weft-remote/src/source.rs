//! How the sources behind a remote are: its hosts, its servers.

use std::time::SystemTime;

/// Whether a source is talked to: Arla's three states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// It is asked whenever a lease has ended.
    #[default]
    Connected,
    /// It answers, but nothing of use: what is held is used as if leases lasted, only what is missing is fetched.
    FetchOnly,
    /// It does not answer: calls fail at once until it is found to be back.
    Disconnected,
}

/// A source at one moment, for people and for the decision whether to ask it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in the mount (`example.org:8080`).
    pub name: String,
    /// How it is.
    pub state: SourceState,
    /// Since when; the time at which it was first used while it never changed.
    pub since: SystemTime,
    /// When it last answered, while this process lives.
    pub last_contact: Option<SystemTime>,
    /// What last went wrong, and when.
    pub last_error: Option<(SystemTime, String)>,
    /// Requests sent to it.
    pub requests: u64,
    /// Bytes of content received from it.
    pub received_bytes: u64,
}

impl SourceState {
    /// A fixed word, the same in every output.
    pub fn as_str(self) -> &'static str {
        match self {
            SourceState::Connected => "connected",
            SourceState::FetchOnly => "fetch-only",
            SourceState::Disconnected => "disconnected",
        }
    }
}
