//! How a volume is to be used, and what it has done.

use std::time::Duration;

/// How a volume is to be used.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The identity that it has to have; `None` for any.
    pub uuid: Option<u128>,
    /// Memory for objects that are on the disk as well, in bytes.
    pub buffer_bytes: usize,
    /// Memory for objects that are in no segment yet, in bytes; a writer waits when it is full. Half of it is what
    /// packing begins at. At least 16 segments, and no more than a fourth of the volume.
    pub group_bytes: usize,
    /// How long an object waits for others to be packed with before it is written to the log.
    pub age: Duration,
    /// What happens when the volume is full.
    pub policy: Policy,
    /// Who packs.
    pub packer: Packer,
    /// The part of a key that groups go by: of a caller who tells what belongs together before all of a key is known.
    pub group_part: fn(&[u8]) -> &[u8],
}

impl Default for Options {
    fn default() -> Options {
        Options {
            uuid: None,
            buffer_bytes: 64 << 20,
            group_bytes: 8 << 20,
            age: Duration::from_secs(5),
            policy: Policy::Keep,
            packer: Packer::Thread,
            group_part: |key| key,
        }
    }
}

/// What happens when the volume is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nothing is dropped: the writer is told.
    #[default]
    Keep,
    /// The oldest segment goes; what is pinned stays.
    Fifo,
    /// The oldest segment goes; what was used since it was written is packed anew with its friends of today, as long as
    /// that is a quarter at most of what goes.
    Clock,
    /// A hand goes over the segments and passes over those most of which was used since it came by.
    Sieve,
}

/// Who packs and writes segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packer {
    /// A thread of the volume's own.
    #[default]
    Thread,
    /// Whoever fills the group buffer: everything happens in the order of the calls.
    Caller,
}

/// How soon a change is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Soon; a crash before that leaves the state before.
    Cache,
    /// When the call returns. Callers at the same time share one sync.
    Durable,
}

/// What a volume holds and has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects in segments.
    pub objects: u64,
    /// Objects in no segment yet.
    pub waiting: u64,
    /// Most objects that it may hold, in segments or not.
    pub objects_max: u64,
    /// Bytes that the objects in segments take there, with keys, attributes and heads.
    pub live_bytes: u64,
    /// Segments in all.
    pub segments: u32,
    /// Segments that can be written.
    pub free_segments: u32,
    /// Length of a segment in bytes.
    pub segment_bytes: u32,
    /// Memory of the index and of what is known of the segments, in bytes.
    pub index_bytes: u64,
    /// Memory of objects in the buffer, in bytes.
    pub buffer_bytes: u64,
    /// Reads that memory answered.
    pub memory_reads: u64,
    /// Reads of one object from the disk.
    pub object_reads: u64,
    /// Reads of an object and its neighbours from the disk.
    pub neighbour_reads: u64,
    /// Neighbours that came along and were used.
    pub neighbours_used: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Objects that were damaged and are gone.
    pub damaged: u64,
    /// Segments written.
    pub segments_written: u64,
    /// Bytes written, to segments, log and checkpoints.
    pub bytes_written: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Objects that were dropped to make room.
    pub evicted: u64,
    /// Whether the index is being made anew from the segments, so that some objects are not found yet.
    pub scanning: bool,
    /// Whether the start found a part of the log damaged: what it told is lost, what came after it is there.
    pub log_had_gap: bool,
}
