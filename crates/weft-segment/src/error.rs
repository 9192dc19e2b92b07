//! What can go wrong with a volume.

use std::io;

/// Why a volume could not do what it was asked. Each message names the volume, the cause and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// There is no room for more: nothing was stored.
    #[error("{volume}: the volume is full ({what}); remove objects, let old ones be evicted, or make a larger volume")]
    Full {
        /// The volume's name.
        volume: String,
        /// What ran out.
        what: &'static str,
    },
    /// A key, its attributes or a content is longer than the format allows.
    #[error("{volume}: {what} has {given} bytes, at most {most} fit; store it elsewhere")]
    TooLarge {
        /// The volume's name.
        volume: String,
        /// What is too long.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The most that fits.
        most: usize,
    },
    /// Another process, or another handle of this one, uses the volume.
    #[error("{volume}: in use by another process; end that one or give this one a volume of its own")]
    InUse {
        /// The volume's name.
        volume: String,
    },
    /// Neither superblock can be read.
    #[error("{volume}: not a volume of segments, or both of its superblocks are damaged; remove it to begin anew")]
    NotAVolume {
        /// The volume's name.
        volume: String,
    },
    /// The volume was written in another format.
    #[error(
        "{volume}: written in format {found}, this program knows {known}; use the program that wrote it or remove it"
    )]
    OtherFormat {
        /// The volume's name.
        volume: String,
        /// The format on the disk.
        found: u32,
        /// The format of this program.
        known: u32,
    },
    /// The volume is not the one that was expected.
    #[error(
        "{volume}: holds volume {found:032x}, expected {expected:032x}; put the right one there or remove this one"
    )]
    OtherVolume {
        /// The volume's name.
        volume: String,
        /// Its identity.
        found: u128,
        /// The identity that was expected.
        expected: u128,
    },
    /// The shape that was asked for cannot be made.
    #[error("{volume}: {what}; choose another size")]
    BadShape {
        /// The volume's name.
        volume: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The device failed in a way that leaves unknown what it holds: nothing more is written in this life.
    #[error("{volume}: takes no more changes since the device failed ({cause}); check the disk and open it again")]
    Failed {
        /// The volume's name.
        volume: String,
        /// What the device said.
        cause: String,
    },
    /// The system refused.
    #[error("{volume}: {source}")]
    Io {
        /// The volume's name.
        volume: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl SegmentError {
    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        matches!(self, SegmentError::Full { .. })
    }

    /// Whether asking again later may help.
    pub fn may_pass(&self) -> bool {
        match self {
            SegmentError::Full { .. }
            | SegmentError::InUse { .. }
            | SegmentError::Failed { .. }
            | SegmentError::Io { .. } => true,
            SegmentError::TooLarge { .. }
            | SegmentError::NotAVolume { .. }
            | SegmentError::OtherFormat { .. }
            | SegmentError::OtherVolume { .. }
            | SegmentError::BadShape { .. } => false,
        }
    }
}
