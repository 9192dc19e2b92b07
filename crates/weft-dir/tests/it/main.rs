//! A directory as a remote, on real file systems.

mod changes;
mod confined;
mod conformance;
mod copies;
mod events;
mod hands;
mod identities;
mod limits;
mod listings;
mod ours;
mod owned;
mod standing;
mod support;
