//! The FUSE kernel protocol over `/dev/fuse`, as of version 7.45 (Linux 6.18), for servers that speak it themselves.
//!
//! [`mount()`] gives a descriptor, [`Session::begin`] agrees with the kernel on what both can do, and
//! [`Session::serve`] reads requests and hands them to a [`Serve`], each with the [`Reply`] that answers it: now, or
//! later from another thread. Interrupts are passed on, for which [`Waiting`] keeps the books. A connection can be taken
//! over by another process ([`Session::take_over`]).
//!
//! Nothing here knows a runtime, a file system or a cache. Bytes from the kernel are checked like any others.

mod abi;
mod attributes;
mod backing;
mod classic;
mod decode;
mod device;
mod flags;
#[cfg(test)]
mod fuzz;
mod init;
mod mount;
mod names;
mod notify;
mod reply;
mod request;
mod ring;
mod serve;
mod session;
mod splice;
mod sys;
mod transport;
mod vigil;
mod waiting;

pub use attributes::{Attributes, Entry, Space, Stamp, Statx};
pub use backing::{Backing, Backings};
pub use classic::has_relief;
pub use device::Counts;
pub use flags::InitFlags;
pub use init::{InitError, Negotiated, Wanted};
pub use mount::{MountOptions, mount, unmount};
pub use names::{Entries, Kind, Name, Names};
pub use notify::{Notifier, Told, send_for};
pub use reply::{Body, Delivery, Filling, Opened, Reply, Room, Sink, Unread};
pub use request::{Changes, Header, Lock, LockFamily, LockRange, Moment, Operation, Read, Request};
pub use ring::{OrdinaryThread, RingLimits};
pub use serve::{Interrupted, Serve};
pub use session::{End, Serving, Session, Watch};
pub use transport::{RingError, Transport};
pub use waiting::{Entered, Waiting};
