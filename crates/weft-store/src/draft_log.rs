//! The log of what was written to one file: records that are told apart from those of before.
//!
//! A record is the length of its fields (4 bytes, little-endian), their XXH3-64 (8 bytes, little-endian; the seed is the
//! log's life) and the fields in postcard. The first one, whose seed is 0, says whose the log is and which life it has. So
//! a log begins anew with one write, whatever is left of others behind it. One that is empty, or begins with zeros, says
//! nothing.
//!
//! Logs of before had no such record: their names say whose they are, and their life is 0.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use weft_remote::{Caller, Version};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::NodeId;
use crate::extents::Extents;

/// A record of the log.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Logged {
    /// The log begins: the file at its source.
    Base { version: Version, length: u64 },
    /// Bytes were written.
    Wrote(Range<u64>),
    /// The file has this length.
    Resized(u64),
    /// The source has another version now, by what was sent. Which of the records before were in that is not told:
    /// all are sent again.
    Sent(Version),
    /// Bytes of the base were put beside what was written.
    Filled(Range<u64>),
    /// The source has another file in this version and length, and is to be told all of this one.
    Over { version: Version, length: u64 },
    /// Whose the log is, and its life. Before all others.
    Begin { node: u64, life: u64 },
    /// Who reads what is written: those that have the file open under this generation. Before the base.
    Readers(u64),
    /// Who closed or synced it last. After all others: the next record is written over it, and it again behind that. So a program
    /// that does not know it misses nothing else.
    Writer { uid: u32, gid: u32 },
}

/// What a log says.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) extents: Extents,
    pub(crate) version: Version,
    /// Under which generation those have the file open that read what is written, where it says so.
    pub(crate) readers: Option<u64>,
    /// Bytes of the base were put beside what was written.
    pub(crate) is_filled: bool,
    /// Who closed or synced it last, where it says so.
    pub(crate) writer: Option<Caller>,
    /// Where it goes on.
    pub(crate) end: u64,
    pub(crate) life: u64,
}

/// Whose a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// It says nothing.
    Nobody,
    Node(NodeId),
    /// Its name says it, if it makes sense at all.
    Named,
}

impl Logged {
    /// The bytes of a record in a log of this life.
    pub(crate) fn encoded(&self, life: u64) -> postcard::Result<Vec<u8>> {
        let fields = postcard::to_stdvec(self)?;
        let length = u32::try_from(fields.len()).map_err(|_| postcard::Error::SerializeBufferFull)?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + fields.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&xxh3_64_with_seed(&fields, life).to_le_bytes());
        bytes.extend_from_slice(&fields);
        Ok(bytes)
    }
}

/// The bytes that a log begins with, of a life that no log had before; and that life.
pub(crate) fn beginning(
    node: NodeId,
    version: Version,
    length: u64,
    readers: Option<u64>,
) -> postcard::Result<(Vec<u8>, u64)> {
    // Keys of hash tables are different each time.
    let life = RandomState::new().build_hasher().finish() | 1;
    let mut bytes = Logged::Begin { node: node.0, life }.encoded(0)?;
    if let Some(readers) = readers {
        // A daemon of before that record reads nothing after it: there must be nothing that it takes for all.
        bytes.extend(Logged::Readers(readers).encoded(life)?);
    }
    bytes.extend(Logged::Base { version, length }.encoded(life)?);
    Ok((bytes, life))
}

/// Whose a log is, by its first bytes ([`WHOSE_BYTES`], or all that there are).
pub(crate) fn whose(bytes: &[u8]) -> Whose {
    match record(bytes, 0) {
        Some((Logged::Begin { node, .. }, _)) => Whose::Node(NodeId(node)),
        None if bytes.iter().take(HEAD_BYTES).all(|byte| *byte == 0) => Whose::Nobody,
        _ => Whose::Named,
    }
}

/// What a log says; `None` where that is nothing. A record that is torn, or of another life, ends it.
pub(crate) fn replay(log: &[u8]) -> Option<Told> {
    let (life, mut rest) = match record(log, 0) {
        Some((Logged::Begin { life, .. }, rest)) => (life, rest),
        _ => (0, log),
    };
    let mut state: Option<(Extents, Version)> = None;
    let (mut readers, mut writer, mut is_filled) = (None, None, false);
    while let Some((record, after)) = record(rest, life) {
        match (record, &mut state) {
            (Logged::Readers(told), None) => readers = Some(told),
            (Logged::Base { version, length }, _) => state = Some((Extents::over(length), version)),
            (Logged::Wrote(range), Some((extents, _))) if range.start <= range.end => extents.write(range),
            (Logged::Resized(length), Some((extents, _))) => extents.resize(length),
            (Logged::Sent(told), Some((_, version))) => *version = told,
            (Logged::Filled(range), Some((extents, _))) if range.start < range.end => {
                extents.fill(range);
                is_filled = true;
            }
            (Logged::Over { version: told, length }, Some((extents, version))) if !extents.needs_base() => {
                extents.replace(length);
                *version = told;
                is_filled = false;
            }
            (Logged::Writer { uid, gid }, Some(_)) => {
                writer = Some(Caller { uid, gid, pid: 0 });
                break;
            }
            _ => break,
        }
        rest = after;
    }
    let (extents, version) = state?;
    Some(Told { extents, version, readers, is_filled, writer, end: (log.len() - rest.len()) as u64, life })
}

fn record(log: &[u8], life: u64) -> Option<(Logged, &[u8])> {
    let (length, rest) = log.split_first_chunk::<4>()?;
    let (check, rest) = rest.split_first_chunk::<8>()?;
    let (fields, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if xxh3_64_with_seed(fields, life).to_le_bytes() != *check {
        return None;
    }
    Some((postcard::from_bytes(fields).ok()?, rest))
}

/// Bytes before a record's fields; a log that begins with so many zeros says nothing.
const HEAD_BYTES: usize = 12;
/// As many bytes as the first record has at most, and some more.
pub(crate) const WHOSE_BYTES: usize = 64;
