//! What this machine holds: names and attributes in an embedded database, content as objects on disk.
#![forbid(unsafe_code)]

mod error;
mod records;

pub use error::StoreError;
pub use records::{
    BindingId, DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, NodeRecord, ObjectRecord, Record,
};

/// What every call of the store returns.
pub type Result<T> = std::result::Result<T, StoreError>;
