//! Rx, the remote procedure call protocol of AFS, and XDR, the encoding of what it carries, without I/O or clock.
//!
//! A *call* is a request and a reply, each a stream of bytes cut into packets (`sending.rs`, `receiving.rs`); it goes
//! over a *channel* of a *connection* (`connection.rs`), and what becomes of it is said in one place
//! (`call_state.rs`). An [`Endpoint`] is both the client of many servers and a server itself, on one socket, for AFS
//! file servers call their clients back. Its parts:
//!
//! * packets: `wire.rs` (header), `ack.rs` (acknowledgements), `inbound.rs` (whose a packet is);
//! * ends: `name.rs` (what to keep of a connection so that also another process can end it);
//! * flow: `window.rs` (how much may be under way), `rtt.rs` (how long to wait for an answer);
//! * order: `route.rs` (connections to a server, and the calls that wait for one), `settle.rs` (what follows from a
//!   change);
//! * security classes: `security/`, for connections that are opened here. Clients are served without any: the callback
//!   service of AFS has none.
//!
//! Not here: jumbograms (dropped), answers to VERSION and DEBUG, packets that only keep a way through NAT open, sizes
//! beyond what passes everywhere, rxgk.
#![forbid(unsafe_code)]

mod ack;
mod call;
mod call_state;
mod config;
mod connection;
mod counts;
#[cfg(test)]
mod dialogue;
mod endpoint;
mod event;
#[cfg(test)]
mod hex;
mod inbound;
mod name;
mod receiving;
mod route;
mod rtt;
mod security;
mod sending;
mod settle;
mod window;
mod wire;
mod xdr;

pub use call::CallId;
pub use call_state::CallError;
pub use config::Config;
pub use counts::{Counts, Load};
pub use endpoint::{Endpoint, Transmit};
pub use event::Event;
pub use name::{BadConnectionName, ConnectionName};
pub use receiving::{Drained, Read};
pub use route::RouteId;
pub use security::{Level, Rxkad, Security, SecurityError};
pub use xdr::{Decoder, Encoder, XdrError};
