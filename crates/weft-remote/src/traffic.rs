//! What was exchanged with the sources of a tree, in figures.

use std::time::{Duration, SystemTime};

/// What was exchanged with one source (a host) since the tree was bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The source, in its kind's terms (`example.org:8080`). Never holds a login or a path.
    pub source: String,
    /// When it was first talked to.
    pub since: SystemTime,
    /// Requests sent that were answered, whatever the answer.
    pub answered: u64,
    /// Requests that got no answer, and connections that could not be made.
    pub failed: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
    /// How long the answers were waited for, all together: from the request to the first word of the answer.
    pub waited: Duration,
}
