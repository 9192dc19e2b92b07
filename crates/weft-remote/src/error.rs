//! What can go wrong at a remote, in words that every kind shares.

use std::time::Duration;

/// Why a remote could not do what it was asked. `detail` names the thing (a URL, a server), the cause and, where
/// there is something to do, what to do next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The source says that there is no such thing (any more).
    #[error("{detail}: not found at the source")]
    NotFound {
        /// What, and who said so.
        detail: String,
    },
    /// The source refuses this caller.
    #[error("{detail}: permission denied")]
    Denied {
        /// What, and who said so.
        detail: String,
    },
    /// It is not for this caller to do, whoever may use the thing: its owner cannot be set, a link of its sort cannot be made.
    #[error("{detail}: not permitted")]
    NotPermitted {
        /// What, and why.
        detail: String,
    },
    /// A directory was needed.
    #[error("{detail}: not a directory")]
    NotADirectory {
        /// What.
        detail: String,
    },
    /// A file was needed.
    #[error("{detail}: is a directory")]
    IsADirectory {
        /// What.
        detail: String,
    },
    /// The name cannot exist at this source.
    #[error("{detail}: not a name that this source can have")]
    BadName {
        /// Which name and why.
        detail: String,
    },
    /// The content is no longer the expected version.
    #[error("{detail}: changed at the source")]
    VersionChanged {
        /// What.
        detail: String,
    },
    /// The new name is taken already.
    #[error("{detail}: exists already")]
    Exists {
        /// Which name, and where.
        detail: String,
    },
    /// A directory that shall go still has names in it.
    #[error("{detail}: the directory is not empty")]
    NotEmpty {
        /// Which directory.
        detail: String,
    },
    /// The source has no room for what shall be written.
    #[error("{detail}: no space left at the source")]
    NoSpace {
        /// What, and which limit.
        detail: String,
    },
    /// Whoever asks, or the part of the source that it is about, has used all that was granted.
    #[error("{detail}: the quota is used up")]
    OverQuota {
        /// What, and whose quota.
        detail: String,
    },
    /// The two places of a change are in parts of the source that do not go together: what is moved has to be copied.
    #[error("{detail}: in another tree of the source")]
    OtherTree {
        /// What.
        detail: String,
    },
    /// A limit of the source is passed: of names of one file, of a file's length.
    #[error("{detail}: more than the source can have")]
    TooMuch {
        /// Which limit, and of what.
        detail: String,
    },
    /// The change makes no sense: a directory moved into itself.
    #[error("{detail}: this cannot be")]
    Invalid {
        /// What, and why.
        detail: String,
    },
    /// The kind knows the identity but not (any more) where the file is; when its name is looked up again, it will.
    #[error("{detail}: its place is not known; look its name up again")]
    Unplaced {
        /// What.
        detail: String,
    },
    /// This kind, or this tree, takes no changes.
    #[error("{detail}: read-only")]
    ReadOnly {
        /// What.
        detail: String,
    },
    /// This kind cannot do that.
    #[error("{detail}: not supported by this kind of tree")]
    Unsupported {
        /// What.
        detail: String,
    },
    /// The source sends us in circles.
    #[error("{detail}: too many redirects")]
    Loop {
        /// The chain.
        detail: String,
    },
    /// The source cannot be reached (no route, refused, reset before an answer).
    #[error("{detail}: cannot be reached")]
    Unreachable {
        /// Which host and the system's words.
        detail: String,
    },
    /// The source has not answered within the deadline.
    #[error("{detail}: no answer in time")]
    TimedOut {
        /// What was waited for.
        detail: String,
    },
    /// The source asks to come back later.
    #[error("{detail}: the source is busy")]
    Busy {
        /// What, and the source's words.
        detail: String,
        /// When, if the source said.
        retry_after: Option<Duration>,
    },
    /// This machine lets weft open no more files than it has open.
    #[error(
        "{detail}: weft has as many files open as it may (raise its limit: `ulimit -n`, `LimitNOFILE=` of systemd)"
    )]
    TooManyOpen {
        /// What was to be opened.
        detail: String,
    },
    /// A body ended before its end; what came of it is right as far as anybody knows.
    #[error("{detail}: the answer ended too early")]
    CutShort {
        /// What, and how far it came.
        detail: String,
    },
    /// A body made room for others before its end; what came of it is right, and the rest can be asked for at once.
    #[error("{detail}: the answer made room for others")]
    GaveWay {
        /// What, and how far it came.
        detail: String,
    },
    /// The source answered something that cannot be right: other bytes than announced, a wrong range, broken protocol.
    #[error("{detail}: the answer is damaged")]
    Damaged {
        /// What is wrong with it.
        detail: String,
    },
    /// The source failed in some other way.
    #[error("{detail}: the source failed")]
    Failed {
        /// Its words.
        detail: String,
    },
}

impl RemoteError {
    /// Whether asking again later may help.
    pub fn may_pass(&self) -> bool {
        match self {
            RemoteError::Unreachable { .. }
            | RemoteError::TimedOut { .. }
            | RemoteError::Busy { .. }
            | RemoteError::TooManyOpen { .. }
            | RemoteError::CutShort { .. }
            | RemoteError::GaveWay { .. }
            | RemoteError::Damaged { .. }
            | RemoteError::NoSpace { .. }
            | RemoteError::OverQuota { .. }
            | RemoteError::Failed { .. } => true,
            RemoteError::NotFound { .. }
            | RemoteError::Denied { .. }
            | RemoteError::NotPermitted { .. }
            | RemoteError::NotADirectory { .. }
            | RemoteError::IsADirectory { .. }
            | RemoteError::BadName { .. }
            | RemoteError::VersionChanged { .. }
            | RemoteError::Exists { .. }
            | RemoteError::NotEmpty { .. }
            | RemoteError::OtherTree { .. }
            | RemoteError::TooMuch { .. }
            | RemoteError::Invalid { .. }
            | RemoteError::Unplaced { .. }
            | RemoteError::ReadOnly { .. }
            | RemoteError::Unsupported { .. }
            | RemoteError::Loop { .. } => false,
        }
    }

    /// Whether the source could not be talked to at all, so that what the store holds is the best there is.
    pub fn is_silence(&self) -> bool {
        matches!(self, RemoteError::Unreachable { .. } | RemoteError::TimedOut { .. })
    }
}
