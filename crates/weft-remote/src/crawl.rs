//! What a program that goes through a tree by itself may ask for, and at what pace.

use std::time::Duration;

/// Whether the rules that a source has for such programs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// They are asked for and kept.
    Kept,
    /// The user says that the source is the user's own: nobody is asked.
    Ignored,
}

/// Whether something may be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// It may.
    #[default]
    Granted,
    /// It may not.
    Refused {
        /// By what, for people.
        why: String,
    },
}

/// What a source asks of a program that goes through its tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crawl {
    /// Whether this file may be asked for.
    pub leave: Leave,
    /// The source whose pace it counts towards (a host); empty where the tree is one source.
    pub source: String,
    /// Most requests under way at that source; 0 for no limit but the asker's.
    pub at_once: usize,
    /// Least time from one request's beginning to the next one's.
    pub pause: Duration,
    /// Something that people are told once per source.
    pub note: Option<String>,
}
