//! What this machine holds: names and attributes in an embedded database, content as objects on disk.
//!
//! Two things are kept. The *index* (`redb`) remembers names, attributes, versions, leases and what is held of which
//! object; the *objects* are bytes, one per version of a file: small ones in segments that many share, others in files,
//! sparse when held in part. Nobody outside sees a path or a key, so that other tiers can come underneath.
//!
//! What is promised after a stop without warning:
//!
//! * A kill of the daemon loses at most the changes of the last flush interval, and none where somebody who outlives
//!   it keeps a journal ([`StoreOptions::journal`]); what [`Store::flush`] confirmed, and
//!   every object whose commit came before that, is there, and its bytes are those that were written.
//! * A power cut keeps the index as of the last flush as well. Content is not synced by itself when it is committed,
//!   for a cache can fetch again: each piece (256 KiB) has a checksum in the index and is compared the first time
//!   that it is read in a life of the daemon. One that differs is given up and is missing from then on.
//! * A damaged database is set aside under another name and a new one begun.
//!
//! The formats on disk are drawn in `docs/formats/store.md`.
#![forbid(unsafe_code)]

mod bindings;
mod body;
mod census;
mod check;
mod database;
mod dirty;
mod disk;
mod draft_files;
mod draft_log;
mod error;
mod evict;
mod extents;
mod flusher;
mod identities;
mod index;
mod journal;
mod key;
mod ledger;
mod marks;
mod notes;
mod numbers;
mod object;
mod options;
mod parted;
mod pieces;
mod records;
#[cfg(test)]
mod refusals;
mod shelf;
mod small;
mod stage;
mod staging;
mod store;
mod stretch;
mod sweeper;
mod tier;
mod troubles;
mod uses;
mod value;
mod writer;

pub use census::Onward;
pub use check::{Check, Damage, Found};
pub use dirty::Dirty;
pub use error::StoreError;
pub use evict::Evicted;
pub use extents::{Batch, Origin};
pub use journal::Journal;
pub use ledger::{Account, Bound, Bounds, Candidate, Class, Sum};
pub use object::{NewObject, Object};
pub use options::{StoreOptions, Usage};
pub use records::{
    BindingId, DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord, ObjectRecord, Record,
};
pub use store::Store;
pub use stretch::Stretch;
pub use weft_segment::Affinity;
pub use writer::Writer;

/// What every call of the store returns.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Length of the pieces that content is checked and held by, in bytes.
pub const PIECE_BYTES: u64 = 256 << 10;
