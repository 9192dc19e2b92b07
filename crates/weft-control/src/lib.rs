//! The control socket: how the verbs talk to the daemon behind a mount.
//!
//! Each daemon listens on one Unix socket named by its process id in the user's socket folder ([`socket_dir()`]). A
//! request is one line of JSON, an answer one line or several. The server half works against the trait [`Daemon`]
//! and knows no other room; the client half is synchronous, so that a verb needs no runtime.
#![forbid(unsafe_code)]

mod changes;
mod check;
mod client;
mod daemon;
mod error;
mod find;
mod measures;
mod path_bytes;
mod protocol;
mod server;
mod socket_dir;
mod space;
mod stream;
mod unsent;
mod warm;

pub use changes::{Change, ChangeKind, Watched};
pub use check::{CheckProgress, Checked};
pub use client::{Checking, Client, Ending, Streamed, Warmth, Watching};
pub use daemon::Daemon;
pub use error::ControlError;
pub use find::{Located, MountFlags, Mounts, daemons, find_for_path, resolve_without_entering};
pub use measures::{Family, FamilyKind, Measures, Sample, Spread, Value};
pub use path_bytes::PathBytes;
pub use protocol::{
    BindingStatus, Cached, Code, Depth, Fact, Figures, Grouped, Hello, LINE_BYTES_MAX, NameInfo, NameKind,
    PROTOCOL_VERSION, Refusal, Reloaded, Removed, SourceStatus, Status, Trouble, Why,
};
pub use server::{Access, Server};
pub use socket_dir::socket_dir;
pub use space::{CacheReport, Covered, Eviction, Held, OfPinned, TreeReport, UserReport};
pub use stream::Lines;
pub use unsent::{Copied, Copying, Decision, UnsentFile, UnsentReport};
pub use warm::{WarmCame, WarmForecast, WarmOrder, WarmProgress, WarmStatus, Warmed};
