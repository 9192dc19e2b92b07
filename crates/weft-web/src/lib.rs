//! The web as a remote: a site is a directory (WFS).
#![forbid(unsafe_code)]

mod address;
mod authority;
mod base64;
mod bearer;
mod bucket;
mod client;
mod connect;
mod contact;
mod content;
mod cookies;
mod credentials;
mod dav;
mod digest;
mod fetch;
mod flow;
mod freshness;
mod host;
mod id;
mod identity;
mod index;
mod ladder;
mod links;
mod lister;
mod listing;
mod login;
mod lookup;
mod name;
mod netrc;
mod options;
#[cfg(test)]
mod outside;
mod own_file;
mod pass;
mod pattern;
mod pool;
mod probe;
mod proxy;
mod remote;
mod tap;
mod target;
mod traffic;
mod tunnel;
mod validator;
mod xml;

pub use address::{AddressPolicy, PrivateAddresses};
pub use bearer::RunAs;
pub use credentials::{Credentials, HomeOf};
pub use login::{Login, LoginHost, LoginMeans};
pub use options::{Connector, WebOptions};
pub use pattern::{HostPattern, Network};
pub use proxy::{NoProxy, Proxies, Proxy, ProxyRule, UsualProxies, Via};
pub use remote::Web;
