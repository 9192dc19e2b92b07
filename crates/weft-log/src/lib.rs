//! Logs of web servers, as requests, and what they tell of objects that are used together.
//!
//! Bad lines are counted and left out; no bytes do harm.
#![forbid(unsafe_code)]

mod line;
mod log;
mod sessions;
mod trace;
mod worldcup;

pub use log::{Log, LogFormat, REQUESTS_MAX};
pub use sessions::{Hint, Sessions};
pub use trace::{Act, Request, Trace};
