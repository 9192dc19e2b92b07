//! Small objects in segments.
#![forbid(unsafe_code)]
// The parts come first; the volume that uses them follows.
#![allow(dead_code)]

mod checkpoint;
pub mod device;
mod error;
mod fields;
mod frame;
mod index;
mod log;
mod record;
mod segment;
mod superblock;

pub use error::SegmentError;
pub use superblock::Shape;

/// What every call of a volume returns.
pub type Result<T, E = SegmentError> = std::result::Result<T, E>;
