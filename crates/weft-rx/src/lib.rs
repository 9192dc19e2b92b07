//! Rx, the remote procedure call protocol of AFS, and XDR, the encoding of what it carries: no I/O, no clock, no threads.
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
pub use receiving::Read;
pub use route::RouteId;
pub use security::{Level, Rxkad, Security, SecurityError};
pub use xdr::{Decoder, Encoder, XdrError};
