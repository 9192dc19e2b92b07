//! What clients ask for, one request after the other: made up from a seed (or read from a server's log, `weft-log`).

mod site;
mod views;
mod zipf;

pub use site::{Shape, Site};
pub use views::{Clients, views};
