//! AFS-3 as a kind of remote: the parts without I/O.
//!
//! What is said on the wire is in `wire/`, a type for each call; what the answers mean is in the files beside it.
//! Nothing here waits, reads a clock or opens a socket: bytes come in, and values or errors come out.
#![forbid(unsafe_code)]

pub mod abort;
pub mod access;
pub mod cell;
pub mod cell_server_db;
pub mod directory;
pub mod fid;
pub mod mount_point;
pub mod uuid;
pub mod volume_name;
pub mod wire;

#[cfg(test)]
mod directory_builder;
