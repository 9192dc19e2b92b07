//! The web as a remote: a site is a directory (WFS).
#![forbid(unsafe_code)]

mod address;
mod authority;
mod bucket;
mod client;
mod connect;
mod content;
mod credentials;
mod dav;
mod fetch;
mod flow;
mod freshness;
mod host;
mod id;
mod index;
mod ladder;
mod links;
mod lister;
mod listing;
mod lookup;
mod name;
mod netrc;
mod options;
mod pattern;
mod pool;
mod remote;
mod tap;
mod target;
mod validator;
mod xml;

pub use address::{AddressPolicy, PrivateAddresses};
pub use credentials::Credentials;
pub use options::{Connector, WebOptions};
pub use pattern::{HostPattern, Network};
pub use remote::Web;
