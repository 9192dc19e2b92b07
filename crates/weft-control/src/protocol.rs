//! Requests and answers, one line of JSON each.
//!
//! A request is `{"v":1,"verb":"why","path":"web/example.org"}`, an answer `{"v":1,"ok":{...}}` or
//! `{"v":1,"error":{"code":"not_found","sentence":"..."}}`. Names come in several lines, each but the last with
//! `"more":true`. A stream (`watch`) is lines until `"ok":"end"` or an error, with `"ok":"beat"` between them (see
//! `stream.rs`). Paths are relative to the mount's root; the empty path is the root.

use serde::{Deserialize, Serialize};

use crate::{
    CacheReport, Checked, Copied, Covered, Decision, Eviction, Measures, OfPinned, PathBytes, UnsentReport, WarmOrder,
    WarmStatus, Warmed, Watched,
};

/// The version of this protocol. Another version is refused with a sentence, never guessed at.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest line in bytes, either way.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// One request with the version it is made in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) v: u32,
    #[serde(flatten)]
    pub(crate) verb: Verb,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub(crate) enum Verb {
    Hello,
    Status,
    Names {
        path: PathBytes,
    },
    Remove {
        path: PathBytes,
        depth: Depth,
        #[serde(default)]
        of_pinned: OfPinned,
    },
    Reload {
        path: PathBytes,
        depth: Depth,
    },
    Why {
        path: PathBytes,
    },
    Offline {
        path: PathBytes,
        #[serde(default)]
        fetch_only: bool,
    },
    Online {
        path: PathBytes,
    },
    Pin {
        path: PathBytes,
    },
    Unpin {
        path: PathBytes,
    },
    Cache {
        path: PathBytes,
    },
    Evictions {
        limit: usize,
    },
    Unmount {
        lazy: bool,
    },
    Replace,
    Watch {
        path: PathBytes,
        validate_every_ms: Option<u64>,
    },
    Stats,
    /// Paths of an order that follows: a line holds only so many.
    Paths {
        paths: Vec<PathBytes>,
    },
    Warm(WarmOrder),
    Check {
        repair: bool,
    },
    Group {
        groups: Vec<Vec<PathBytes>>,
        linked: bool,
    },
    Unsent {
        path: PathBytes,
    },
    Decide {
        path: PathBytes,
        decision: Decision,
    },
    CopyUnsent {
        path: PathBytes,
    },
    CopySource {
        path: PathBytes,
    },
}

impl Verb {
    /// Whether it changes nothing, so that other users may ask it of a mount that is open to them.
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Verb::Hello | Verb::Status | Verb::Names { .. } | Verb::Why { .. } | Verb::Stats => true,
            // To validate is to ask remotes, again and again.
            Verb::Watch { validate_every_ms, .. } => validate_every_ms.is_none(),
            Verb::Remove { .. }
            | Verb::Reload { .. }
            | Verb::Offline { .. }
            | Verb::Online { .. }
            | Verb::Pin { .. }
            | Verb::Unpin { .. }
            | Verb::Paths { .. }
            | Verb::Warm(_)
            // These tell what each user read.
            | Verb::Cache { .. }
            | Verb::Evictions { .. }
            | Verb::Check { .. }
            | Verb::Group { .. }
            | Verb::Unsent { .. }
            | Verb::Decide { .. }
            | Verb::CopyUnsent { .. }
            | Verb::CopySource { .. }
            | Verb::Unmount { .. }
            | Verb::Replace => false,
        }
    }
}

/// One answer with the version it is made in.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Response {
    pub(crate) v: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok(Reply),
    Error(Refusal),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Hello(Hello),
    Status(Box<Status>),
    Names {
        names: Vec<NameInfo>,
        more: bool,
    },
    Removed(Removed),
    Reloaded(Reloaded),
    Why(Why),
    Offline,
    Online,
    Pinned(Covered),
    Unpinned(Covered),
    Cache(Box<CacheReport>),
    Evictions(Vec<Eviction>),
    Unmounted,
    Replaced,
    Watched(Watched),
    Stats(Box<Measures>),
    /// Paths are kept for the order that follows.
    Taken,
    Warmed(Warmed),
    Checked(Checked),
    Grouped(Grouped),
    Unsent(UnsentReport),
    Decided {
        bytes: u64,
    },
    Copied(Copied),
    /// In a stream: nothing to tell, but alive. The first line of every stream is one.
    Beat,
    /// The end of a stream.
    End,
}

/// What came of groups of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grouped {
    /// Groups of at least two files that are known.
    pub groups: u64,
    /// Files in them.
    pub files: u64,
    /// Paths that nothing is known of.
    pub unknown: u64,
}

/// Whether a directory is meant alone or with everything below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Only what the path names.
    This,
    /// And everything below it.
    Below,
}

/// Who a daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The program's version.
    pub version: String,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// Absolute, canonical path of the mount's root.
    pub mountpoint: PathBytes,
    /// The user who mounted.
    pub uid: u32,
    /// The kernel's number of its connection, by which its mount is told from others at the same place; `None` where it
    /// is not known.
    #[serde(default)]
    pub connection: Option<u32>,
    /// Whether its mount has gone: it sends what is left, and ends. The number may be another mount's by then.
    #[serde(default)]
    pub is_ending: bool,
}

/// What a daemon says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// Absolute, canonical path of the mount's root.
    pub mountpoint: PathBytes,
    /// What is mounted (`web:example.org/docs`); empty for everything.
    pub source: String,
    /// Where the cache lies.
    pub cache_dir: PathBytes,
    /// Seconds since the mount.
    pub uptime_s: u64,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// How the kernel's requests come: `classic` or `io_uring`.
    #[serde(default)]
    pub transport: String,
    /// The directories of the mount that show a remote.
    pub bindings: Vec<BindingStatus>,
    /// The paths that the user has taken off the network.
    #[serde(default)]
    pub offline: Vec<PathBytes>,
    /// The paths below which only what is missing is fetched.
    #[serde(default)]
    pub fetch_only: Vec<PathBytes>,
    /// The sources (hosts) used so far; at most [`Status::SOURCES_MAX`], those that are not connected first.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
    /// The paths that the user has pinned, as they were given, for people.
    #[serde(default)]
    pub pinned: Vec<String>,
    /// Trees that are being fetched ahead.
    #[serde(default)]
    pub warms: Vec<WarmStatus>,
    /// What was written and could not be sent; at most [`Status::UNSENT_MAX`].
    #[serde(default)]
    pub unsent: UnsentReport,
    /// Counters and sizes.
    pub figures: Figures,
    /// Where metrics are served over HTTP (`127.0.0.1:9469`), or why they are not; nothing where nobody asked for it.
    #[serde(default)]
    pub metrics: Option<String>,
    /// The latest troubles, newest first; at most [`Status::TROUBLES_MAX`].
    pub troubles: Vec<Trouble>,
}

impl Status {
    /// Most sources that a status carries.
    pub const SOURCES_MAX: usize = 200;

    /// Most unsent files that a status carries.
    pub const UNSENT_MAX: usize = 10;

    /// Most troubles that a status carries.
    pub const TROUBLES_MAX: usize = 100;
}

/// A source behind a binding: a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name in the mount.
    pub name: String,
    /// `connected`, `fetch-only` or `disconnected`.
    pub state: String,
    /// Since when, in seconds since 1970.
    pub since_unix_s: u64,
    /// When it last answered this daemon.
    pub last_contact_unix_s: Option<u64>,
    /// What last went wrong with it.
    pub last_error: Option<String>,
    /// When that was.
    pub last_error_unix_s: Option<u64>,
    /// Requests sent to it.
    pub requests: u64,
    /// Bytes of content received from it.
    pub received_bytes: u64,
}

/// A directory of the mount that shows a remote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingStatus {
    /// The directory, relative to the mount's root; empty when the whole mount is this remote.
    pub path: PathBytes,
    /// The kind (`web`).
    pub kind: String,
    /// How the remote is, in a few words (`reachable`, `unreachable since ...`).
    pub state: String,
}

/// Counters since the mount, and sizes now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Names known, cached or not.
    pub names: u64,
    /// Cached objects.
    pub objects: u64,
    /// Bytes of cached content.
    pub object_bytes: u64,
    /// Requests sent to remotes.
    pub requests: u64,
    /// Bytes of content received from remotes.
    pub received_bytes: u64,
    /// Lookups and reads answered from this machine.
    pub hits: u64,
    /// Lookups and reads that had to ask a remote.
    pub misses: u64,
}

/// Something that went wrong, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When, in seconds since 1970.
    pub at_unix_s: u64,
    /// What, in one sentence.
    pub sentence: String,
}

/// A name that is known to exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameInfo {
    /// The name.
    pub name: PathBytes,
    /// What it is.
    pub kind: NameKind,
    /// How much of it is on this machine.
    pub cached: Cached,
    /// Length in bytes, as well as it is known.
    pub size: Option<u64>,
    /// Last modification in seconds since 1970, as well as it is known.
    pub modified_unix_s: Option<i64>,
    /// When its source last spoke of it, in seconds since 1970; `None` when it is to be asked again in any case.
    pub learnt_unix_s: Option<i64>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A fifo, a socket or a device.
    Special,
    /// Not asked yet.
    Unknown,
}

/// How much of something is on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cached {
    /// All of it; of a directory, its listing.
    Whole,
    /// Some of it.
    Part,
    /// Nothing.
    No,
}

/// What a removal from the cache came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Objects removed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a reload came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Files and directories that the source was asked about.
    pub checked: u64,
    /// Of those, changed.
    pub changed: u64,
    /// Of those, not answered for.
    pub failed: u64,
}

/// Why a file is as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Facts in an order that reads well.
    pub facts: Vec<Fact>,
}

/// One fact about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Which (`source`, `version`, `lease`).
    pub name: String,
    /// What it is.
    pub value: String,
}

/// Why a daemon does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{sentence}")]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people: what, why, and what to do where there is something.
    pub sentence: String,
}

impl Refusal {
    /// A refusal with its reason.
    pub fn new(code: Code, sentence: impl Into<String>) -> Refusal {
        Refusal { code, sentence: sentence.into() }
    }
}

/// The sorts of refusal; they decide the exit code of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// There is no such thing.
    NotFound,
    /// Not for this user.
    Denied,
    /// The remote cannot be reached.
    Unreachable,
    /// In use; later perhaps.
    Busy,
    /// The request makes no sense.
    Invalid,
    /// Anything else.
    Failed,
}
