//! Rx, the remote procedure call protocol of AFS, and XDR, the encoding of what it carries: no I/O, no clock, no threads.
#![forbid(unsafe_code)]

mod xdr;

pub use xdr::{Decoder, Encoder, XdrError};
