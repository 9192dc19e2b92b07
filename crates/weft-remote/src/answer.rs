//! An answer of a remote: a value with its version, its lease and its audience.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::{Caller, Lease, Version, clock};

/// Who may be served this answer from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Audience {
    /// The source gives this to anybody.
    Everyone,
    /// Fetched with one user's rights: for that user alone until the source says otherwise.
    Only {
        /// The user's id.
        uid: u32,
    },
}

impl Audience {
    /// Whether `caller` may be shown what came with this audience.
    pub fn includes(&self, caller: &Caller) -> bool {
        match self {
            Audience::Everyone => true,
            Audience::Only { uid } => *uid == caller.uid,
        }
    }
}

/// Where an answer came from, for people (`weft why`) and never for decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What was asked, in the source's terms (a URL).
    pub source: String,
    /// How the answer was made, in a few words (`nginx index page`, `links of the page`).
    pub how: String,
    /// Where the source sent us on the way, in order.
    pub redirects: Vec<String>,
}

/// A value, what it is, how long it may be trusted and who may see it.
#[derive(Debug)]
pub struct Answer<T> {
    /// What was asked for.
    pub value: T,
    /// Which content this is.
    pub version: Version,
    /// How long it may be used without asking again.
    pub lease: Lease,
    /// Who may be served it from the cache.
    pub audience: Audience,
    /// Where it came from.
    pub origin: Option<Origin>,
    /// When it was asked for: it may not have what changed later. Whoever asks sets it; a kind leaves it as
    /// [`Answer::new`] made it.
    pub asked: SystemTime,
}

impl<T> Answer<T> {
    /// An answer for everyone without an origin.
    pub fn new(value: T, version: Version, lease: Lease) -> Answer<T> {
        Answer { value, version, lease, audience: Audience::Everyone, origin: None, asked: clock::now() }
    }

    /// The same answer around another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            value: change(self.value),
            version: self.version,
            lease: self.lease,
            audience: self.audience,
            origin: self.origin,
            asked: self.asked,
        }
    }
}
