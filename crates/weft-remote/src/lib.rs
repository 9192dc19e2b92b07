//! The contract between weft and every kind of remote tree.
//!
//! A *kind* (web, AFS, a local directory, a peer, a replica set) implements [`Remote`] and nothing else; the file
//! system above sees only this crate's words. Three nouns carry the house: what the store holds, a [`Lease`] on
//! how long that may be trusted, and a [`Mutation`] for each change a user makes.
//!
//! This crate is ground: it depends on no other room of weft. With the feature `testing` it also holds the
//! conformance suite that every kind runs and an in-memory remote with faults to order.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod attributes;
mod body;
mod call;
mod crawl;
mod entry;
mod error;
mod event;
mod file_id;
mod lease;
mod lent;
mod mutation;
mod name;
mod news;
mod notes;
mod remote;
mod source;
mod traffic;
mod version;

pub mod clock;
pub mod moment;

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod fake;

pub use access::{ACCESS_LIST, DEFAULT_ACCESS_LIST, is_access_list};
pub use answer::{Answer, Audience, Origin};
pub use attributes::{Attributes, Figure, FileKind, Owner};
pub use body::{Along, Body, Known, Piece, Span};
pub use call::{Call, Caller, Purpose};
pub use crawl::{Crawl, Leave, Rules};
pub use entry::{Checked, Completeness, Cursor, Entry, Fetched, Found, Listing, Page};
pub use error::RemoteError;
pub use event::Event;
pub use file_id::{FileId, Neighbourhood};
pub use lease::{Lease, Stale};
pub use lent::{Borrowed, Lender, borrow_thread, unlent};
pub use mutation::{
    Change, Changed, Content, Extent, Mutation, NamesNow, NewAttributes, NewMode, Outcome, RenameTarget,
};
pub use name::{BadName, Name};
pub use news::{News, ToldUpTo};
pub use notes::{MemoryNotes, Note, Notes, NotesError};
pub use remote::{Backing, Capabilities, LockMode, Remote, Seek, Space};
pub use source::{Source, SourceState};
pub use traffic::Traffic;
pub use version::{Sameness, Version};

/// What every call of a [`Remote`] returns.
pub type Result<T> = std::result::Result<T, RemoteError>;
