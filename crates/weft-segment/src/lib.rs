//! Small objects in segments on one preallocated volume.
//!
//! A file for each small object costs a file system two to five reads when it is cold, and its creation several
//! writes. Here objects that are used together lie together, with their names, attributes and checksums, in *segments*
//! of 64 to 256 KiB that are written at once; where each lies is known in memory, 18 to 20 bytes an object. A read
//! takes one I/O, or brings its neighbours along when they are likely to be wanted next.
//!
//! What is promised:
//!
//! * Never a wrong byte: every object is checked, with its full key, whenever it is read from the disk. One that is
//!   damaged is not held any more.
//! * What was put or removed with [`Class::Durable`], or before a [`Volume::flush`] that succeeded, is there after
//!   any crash. What was not yet durable is there as it is or as it was before.
//! * A start reads a checkpoint and the log behind it. Where both checkpoints are lost, objects are found again one by
//!   one while the volume is in use; one that was removed long before may then be there again, so keys had better
//!   name the version of what they stand for.
//! * Memory is bounded: the buffer and the group buffer by [`Options`], the index by the number of objects that the
//!   volume was made for.
//!
//! The format on disk is drawn in `docs/formats/segments.md`. Calls block; a caller with other things to do makes
//! them from a thread.

mod affinity;
mod buffer;
mod checkpoint;
mod core;
mod cost;
pub mod device;
mod error;
mod fields;
mod frame;
mod group;
mod index;
mod inspect;
mod lifting;
mod log;
mod marks;
mod options;
mod packer;
mod packing;
mod reading;
mod record;
mod recovery;
mod segment;
mod side_by_side;
mod space;
mod superblock;
mod table;
mod volume;
mod writing;

pub use affinity::Affinity;
pub use error::SegmentError;
pub use inspect::Findings;
pub use options::{Class, Options, Packer, Policy, Stats};
pub use superblock::Shape;
pub use volume::{Held, Hints, Volume};

/// What every call of a volume returns.
pub type Result<T, E = SegmentError> = std::result::Result<T, E>;
