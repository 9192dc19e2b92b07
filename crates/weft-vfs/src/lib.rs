//! The file system without kernel or network.
//!
//! The namespace, inodes, leases and reads live here. A request comes in from the kernel side (or from a verb), is
//! answered from the store while a lease lasts, and otherwise goes to the remote of its binding; whatever the remote
//! says is learnt by the store on the way back. This room knows no kind and no kernel.
#![forbid(unsafe_code)]
// A request's future is moved several times before it first runs: what is seldom needed of it is boxed.
#![deny(clippy::large_futures)]

mod absences;
mod admit;
mod agree;
mod arrival;
mod ask;
mod asking;
mod attempt;
mod breaks;
mod bygones;
mod catch_up;
mod changes;
mod content;
mod data;
mod directory;
mod draft;
mod ended;
mod ending;
mod error;
mod extended;
mod faces;
mod figures;
mod freshness;
mod going_on;
mod gone;
mod groups;
mod half_sent;
mod handle;
mod inode;
mod journal;
mod keeper;
mod kernel_open;
mod known;
mod lanes;
mod learn;
mod link;
mod listed;
mod listing;
mod lists_ahead;
mod lock;
mod lookup;
mod make;
mod nameless;
mod namespace;
mod notice;
mod offline;
mod open;
mod orphans;
mod overtaken;
mod pins;
mod place;
mod policies;
mod prefetch;
mod reach;
mod read;
mod reload;
mod remove;
mod reopen;
mod retire;
mod retry;
mod room;
mod same_use;
mod seek;
mod send;
mod send_again;
mod sent;
mod set;
mod space;
mod stale;
mod stat;

mod through;
mod told_length;
mod told_to;
mod touched;
mod trouble;
mod unasked;
mod unheard;
mod unopened;
mod unsent;
mod usage;
mod validate;
mod vfs;
mod walk;
mod warm;
mod why;
mod write;

pub use ask::{Allocate, NewNode, OpenFor, Removal, SetStat, SetTime, Write};
pub use changes::{Change, ChangeKind, Watched, Watching};
pub use data::Data;
pub use directory::{AsOf, DirectoryName, Snapshot};
pub use error::VfsError;
pub use extended::OWN_ATTRIBUTES;
pub use faces::file_of;
pub use figures::FiguresSnapshot;
pub use freshness::Freshness;
pub use going_on::{ToItsEnd, go_on};
pub use groups::Grouped;
pub use handle::HandleId;
pub use journal::Eviction;
pub use known::{Cached, NameInfo};
pub use lookup::Looked;
pub use notice::{Notice, NoticeReceivers, Notices};
pub use offline::Mode;
pub use open::Opened;
pub use pins::Covered;
pub use policies::{OpenFiles, Policies, Policy};
pub use reload::Reloaded;
pub use remove::{OfPinned, Removed};
pub use reopen::{OnTurned, OpenRecord, ReadBy};
pub use space::{NoRoom, SpaceOptions, SpaceRule};
pub use stat::{Stat, StatFs};
pub use trouble::Trouble;
pub use unsent::{Over, Unsent, UnsentError};
pub use usage::{CacheUsage, TreeUsage, UserUsage};
pub use vfs::{Binding, Vfs, VfsOptions};
pub use warm::{Came, Choice, Everything, Forecast, Progress, WarmEvent, WarmRequest, Warming};
pub use weft_store::{Affinity, Class, NodeId, Object, StoreError, Stretch, Sum};
pub use why::Why;

/// What every operation returns.
pub type Result<T> = std::result::Result<T, VfsError>;
