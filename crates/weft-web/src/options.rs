//! What can be set on the web.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use weft_remote::Name;

use crate::{AddressPolicy, Credentials, HostPattern, Proxies};

/// Makes the client's end of a new connection to a host that is served inside this process, in plain HTTP.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl Connector {
    /// Wraps the function that makes a connection; it must not block.
    pub fn new(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Connector {
        Connector(Arc::new(connect))
    }

    pub(crate) fn connect(&self) -> DuplexStream {
        (self.0)()
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// The settings of the web.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Names answered as absent at once, without a request: what shells, prompts and file managers probe for in
    /// every directory. A `*` at the end stands for anything. A page that links to such a name still shows it.
    pub probe_names: Vec<String>,
    /// Longest wait for one address of a host to take a connection, and for its TLS handshake.
    pub connect_timeout: Duration,
    /// Longest wait for the next bytes of a body once somebody reads it.
    pub stall_timeout: Duration,
    /// For how long a host that could not be connected to is answered for without trying again.
    pub down_time: Duration,
    /// Most connections to one host at a time; with HTTP/2 there is one, shared.
    pub connections_per_host_max: usize,
    /// Most redirects followed for one request.
    pub redirects_max: usize,
    /// Bytes of a page that are searched for links, or held to be read as an index.
    pub page_bytes_max: usize,
    /// Bytes in memory of what is on its way from all hosts: half for connections, which get smaller buffers the more
    /// there are, half for pages that are held while they are read, which wait for each other.
    pub memory_bytes_max: usize,
    /// Most names learnt from one page.
    pub links_max: usize,
    /// Shortest trust in an answer that does not say how long it is good for.
    pub heuristic_min: Duration,
    /// Longest trust in an answer that does not say how long it is good for.
    pub heuristic_max: Duration,
    /// Trust in an absence that does not say how long it is good for.
    pub absence_time: Duration,
    /// A PEM file of certificate authorities trusted besides the system's.
    pub extra_ca: Option<PathBuf>,
    /// What weft calls itself to servers.
    pub user_agent: String,
    /// Where connections may lead. Hosts that are served inside this process are not asked about.
    pub addresses: AddressPolicy,
    /// Which connections go through a proxy.
    pub proxies: Proxies,
    /// Logins of the user whose mount this is.
    pub credentials: Credentials,
    /// Hosts whose directories are listed by WebDAV without trying anything else first.
    pub dav_hosts: Vec<HostPattern>,
    /// Hosts that tell of no directory: there a name that is refused is one, unless it ends as a file's does.
    pub unlisted_hosts: Vec<HostPattern>,
    /// Most requests to one host at a time on behalf of a program that goes through it.
    pub crawl_at_once: usize,
    /// Least time between the beginnings of two such requests to one host.
    pub crawl_pause: Duration,
    /// Hosts that are served inside this process, by name.
    pub builtin: HashMap<String, Connector>,
}

impl Default for WebOptions {
    fn default() -> WebOptions {
        WebOptions {
            probe_names: PROBE_NAMES.iter().map(|n| (*n).to_owned()).collect(),
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
            down_time: Duration::from_secs(2),
            connections_per_host_max: 16,
            redirects_max: 10,
            page_bytes_max: 16 << 20,
            memory_bytes_max: 96 << 20,
            links_max: 100_000,
            heuristic_min: Duration::from_secs(60),
            heuristic_max: Duration::from_secs(24 * 3600),
            absence_time: Duration::from_secs(60),
            extra_ca: None,
            user_agent: concat!("weft/", env!("CARGO_PKG_VERSION")).to_owned(),
            addresses: AddressPolicy::default(),
            proxies: Proxies::default(),
            credentials: Credentials::default(),
            dav_hosts: Vec::new(),
            unlisted_hosts: UNLISTED_HOSTS.iter().map(|host| HostPattern::Exact((*host).to_owned())).collect(),
            crawl_at_once: 2,
            crawl_pause: Duration::ZERO,
            builtin: HashMap::new(),
        }
    }
}

impl WebOptions {
    /// Whether `name` is one that programs look for everywhere.
    pub(crate) fn is_probe(&self, name: &Name) -> bool {
        let name = name.as_bytes();
        self.probe_names.iter().any(|probe| match probe.strip_suffix('*') {
            Some(start) => name.starts_with(start.as_bytes()),
            None => name == probe.as_bytes(),
        })
    }
}

/// What version control, file managers, desktops, search tools and shell prompts ask for in every directory they
/// see. `HEAD`, which git asks for as well, is not among them: served repositories have it.
const PROBE_NAMES: &[&str] = &[
    ".git",
    ".gitignore",
    ".hg",
    ".svn",
    ".bzr",
    "_darcs",
    ".jj",
    ".fslckout",
    "CVS",
    ".hidden",
    ".Trash",
    ".Trash-*",
    ".directory",
    ".xdg-volume-info",
    ".nomedia",
    ".envrc",
    ".ignore",
    ".rgignore",
    ".nfs*",
    "._*",
    ".DS_Store",
    ".localized",
    ".metadata_never_index",
    "autorun.inf",
    "AutoRun.inf",
    "Autorun.inf",
    "AUTORUN.INF",
    "desktop.ini",
    "Desktop.ini",
    "Thumbs.db",
];

/// Hosts of raw files and of packages: for the directories of what they give they answer 400, 403 or 404.
const UNLISTED_HOSTS: &[&str] = &[
    "raw.githubusercontent.com",
    "gist.githubusercontent.com",
    "files.pythonhosted.org",
    "index.crates.io",
    "static.crates.io",
    "proxy.golang.org",
    "registry.npmjs.org",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_end() {
        let options = WebOptions::default();
        for (name, probe) in
            [(".git", true), (".Trash-1000", true), ("._x", true), (".github", false), (".well-known", false)]
        {
            assert_eq!(options.is_probe(&Name::new(name).unwrap()), probe, "{name}");
        }
    }
}
