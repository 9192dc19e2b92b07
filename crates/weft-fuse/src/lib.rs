//! The kernel side: FUSE requests in, answers of the file system out.
//!
//! Nothing is decided here. A request is decoded by the door, handed to a [`Handler`] as a future, polled once on
//! the thread that read it, and given to the runtime only when it has to wait. The one errno table of the house and
//! the notices to the kernel's caches live here as well.
#![forbid(unsafe_code)]
// A request's future is moved several times before it first runs: what is seldom needed of it is boxed.
#![deny(clippy::large_futures)]

mod attributes;
mod backed;
mod backing;
mod bridge;
mod changes;
mod connection;
mod directory;
mod door;
mod drive;
mod errno;
mod handler;
mod kept_names;
mod life;
mod lock_table;
mod lock_waits;
mod locks;
mod meter;
mod mount;
mod notify;
mod pages;
mod reads;
mod roll;
mod signals;

pub use bridge::Bridge;
pub use changes::Changes;
pub use errno::Errno;
pub use handler::{Attributes, EntryReply, Handler, OpenReply, SourceLocks};
pub use life::{Entrust, Life};
pub use meter::{Meter, Operation, Requests};
pub use mount::{MountError, MountOptions, Mounted, mount, unmount};
pub use roll::RollError;
pub use weft_fusedev::{OrdinaryThread, RingError, Transport, send_for as send_notices_for};
