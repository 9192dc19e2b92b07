//! A directory of this machine as a remote.
//!
//! What is promised, and how:
//!
//! * **Nothing leads out.** Every name is reached from one descriptor of the top with `openat2`, beneath it, through no
//!   link and into no mount (`top.rs`). What is mounted below the top is absent. Fifos, sockets and devices are names with
//!   attributes, and never opened.
//! * **An identity is one file**, whatever its names are and wherever its directory is moved (`identity.rs`). Where it was
//!   seen is remembered (`places.rs`), not kept over a start, and compared with what is there (`resolve.rs`): where the kernel
//!   tells that somebody else has moved it, that is its place from then on (`hear.rs`); a file whose place is not known is
//!   `Unplaced` until it is looked up. Where the file system does not keep when a file was born, the
//!   one that gets a removed file's inode is taken for it.
//! * **A body is one version, never a mix.** A version is device, inode, length and the times of change. A copy begins
//!   when the last change is older than the clock's grain and no write is under way, and compares after every piece
//!   (`copy.rs`). What cannot be seen: bytes written through a shared mapping after its first write to a page (no time
//!   moves until the kernel writes that page back), and direct writes that are under way when the copy begins.
//! * **A change breaks the lease at once.** Before an answer is read, what it tells of is promised: the directory is
//!   watched with inotify, and so is each directory above it (`watches.rs`). An answer whose promise was broken while
//!   it was read is good for its one request. Where changes are not told (network file systems, too many watches, files
//!   with several names), leases are short. What inotify does not tell: a file that gets a second name elsewhere while
//!   it is leased and is changed through that; changes made beneath this file system (an overlay's upper directory); a
//!   mount that covers something. They are found out when the lease ends. A directory's own time in the listing above it
//!   is that of the listing: what happens in it breaks its own lease, where somebody asked about it, and none above.
//!
//! All system calls run on the blocking pool (`aside.rs`), a bounded number at a time, with the call's deadline.
//! Permissions are those of the daemon; modes, owners and POSIX access lists are told, so that the kernel can hold callers to
//! them (`extended.rs`, `access.rs`).
#![forbid(unsafe_code)]

mod access;
mod apply;
mod aside;
mod copy;
mod create;
mod cut_off;
mod directory;
mod error;
mod extended;
mod facts;
mod gone;
mod hands;
mod hear;
mod identity;
mod listing;
mod mount_note;
mod mounts;
mod moved;
mod newborn;
mod options;
mod ours;
mod owned;
mod place;
mod places;
mod promise;
mod remote;
mod resolve;
mod rows;
mod set;
mod taken_in;
mod top;
mod watched;
mod watches;
mod write;

pub use cut_off::CutOff;
pub use directory::Directory;
pub use error::DirectoryError;
pub use mount_note::MountNote;
pub use options::DirectoryOptions;
