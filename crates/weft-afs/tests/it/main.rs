//! AFS as a remote, against a real cell of OpenAFS's own servers, without a mount. Where there can be no cell, each test
//! says why it is skipped.

mod callbacks;
mod cell;
mod client;
mod conformance;
mod network;
mod reads;
mod refusals;
mod standing;
mod stranger;
mod writes;
