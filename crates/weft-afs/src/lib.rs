//! AFS-3 as a kind of remote.
//!
//! What is promised, and how:
//!
//! * **A lease is a callback promise.** What a server tells comes with its promise to call when it changes; the promise is
//!   entered with the answer (`promises.rs`), and its end is told before the server's call is answered. Only the server that
//!   promised is heard. What was promised to a former daemon does not count.
//! * **A body is one version.** Content comes in pieces; each is handed on when the end of its reply has said that it is of
//!   the version that the body is of (`content.rs`).
//! * **Listing contacts no further server.** A cell and a mount point are directories of their own; they lead to the root of
//!   a volume when somebody goes in (`doors.rs`). An identity says on which way its volume was entered (`identity.rs`).
//! * **Each user is asked for as that user.** A call is made with the token of whoever asks, as the user's credential cache
//!   has it (`logins.rs`), else as anybody. What was told for a token is for its user alone, unless its status says that
//!   anybody may have it (`facts.rs`); whether somebody else may have it as well, the server is asked as that user.
//! * **Any server that has a volume will do.** Which one, and what follows from its refusal, is decided in one place
//!   (`rotate.rs`); a change is not made twice by itself.
//!
//! Programs that ask once, and keep nothing, have a [`Client`] of the same parts.
//!
//! What is said on the wire is in `wire/`, a type for each call; the files that neither wait nor read a clock nor open a
//! socket are beside it (`directory.rs`, `mount_point.rs`, `abort.rs` and others).
#![forbid(unsafe_code)]

mod afs;
mod apply;
mod cache_file;
mod cells;
mod client;
mod content;
mod cut_stores;
mod directories;
mod dns;
mod doors;
mod doubt;
mod facts;
mod gains;
mod held;
mod heritage;
mod identity;
mod kvno;
mod learnt;
mod listing;
mod locks;
mod login;
mod logins;
mod logouts;
mod look;
mod names;
mod options;
mod own_changes;
mod pace;
mod parts;
mod probes;
mod promises;
#[cfg(test)]
mod promises_cost;
mod refusals;
mod releases;
mod remote;
mod resolver;
mod retimed;
mod rights;
mod rotate;
mod round;
mod routes;
mod rows;
mod rpc;
mod servers;
mod silences;
mod socket;
mod space;
mod store;
mod stored_parts;
mod tokens;
mod told;
mod transport;
mod utc;
mod vldb;

pub mod abort;
pub mod access;
pub mod ccache;
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

pub use afs::{Afs, AfsError};
pub use cache_file::{BadCacheName, CacheName};
pub use client::{As, Client, Place};
pub use kvno::{Kvno, NoTicket};
pub use learnt::dns_knows;
pub use login::{LoggedIn, LoginError, LoginOrder, log_in};
pub use options::{AfsOptions, Modes, Tickets, level_worth};
pub use resolver::Resolver;
pub use utc::utc;
pub use weft_rx::Level;
