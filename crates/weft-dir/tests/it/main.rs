//! A directory as a remote, on real file systems.

mod changes;
mod confined;
mod conformance;
mod copies;
mod events;
mod limits;
mod listings;
mod support;
