//! What can be set, typed: nothing here is filled in, `None` means that nobody said.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use weft_fuse::Transport;

use super::{AfsSettings, DirTable, Freshness, LoginTable, OpenFiles, ProxyTable, SpaceSettings, TreeRule};

/// The settings of one file, or of several laid over each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `[mount] deadline`: how long a request may wait for a remote.
    pub deadline: Option<Duration>,
    /// `[mount] allow_other`: whether other users may use the mount.
    pub allow_other: Option<bool>,
    /// `[mount] threads`: threads that answer the kernel.
    pub threads: Option<usize>,
    /// `[mount] transport`: how requests of the kernel come.
    pub transport: Option<Transport>,
    /// `[mount] freshness`: the policy of trees without one of their own.
    pub freshness: Option<Freshness>,
    /// `[mount] open_files`: what open files of trees without a rule of their own show.
    pub open_files: Option<OpenFiles>,
    /// `[mount] stale_if_error`: how long after its lease what is held serves when the source answers with an error.
    pub stale_if_error: Option<Duration>,
    /// `[cache] dir`: where the cache lies.
    pub cache_dir: Option<PathBuf>,
    /// `[metrics]`.
    pub metrics: MetricsSettings,
    /// The rest of `[cache]`.
    pub space: SpaceSettings,
    /// `[web]`.
    pub web: WebSettings,
    /// `[[tree]]`, in the order of the file.
    pub trees: Vec<TreeRule>,
    /// `[[dir]]`, in the order of the file.
    pub dirs: Vec<DirTable>,
    /// `[afs]`.
    pub afs: AfsSettings,
}

/// The settings of the web; `None` leaves the kind's own default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSettings {
    /// Names answered as absent without a request, instead of the built-in list.
    pub probe_names: Option<Vec<String>>,
    /// More such names.
    pub probe_names_extra: Vec<String>,
    /// A PEM file of certificate authorities trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// What weft calls itself to servers.
    pub user_agent: Option<String>,
    /// Memory for what is on its way from all hosts, in bytes.
    pub memory_max: Option<u64>,
    /// Most connections to one host.
    pub connections_per_host: Option<usize>,
    /// Most redirects that are followed.
    pub redirects_max: Option<usize>,
    /// Shortest trust in an answer that does not say how long it is good for.
    pub heuristic_min: Option<Duration>,
    /// Longest such trust.
    pub heuristic_max: Option<Duration>,
    /// Trust in an absence that does not say how long it is good for.
    pub absence_time: Option<Duration>,
    /// Longest wait for a connection.
    pub connect_timeout: Option<Duration>,
    /// Longest wait for the next bytes of a body.
    pub stall_timeout: Option<Duration>,
    /// For how long a host that could not be reached is not tried again.
    pub down_time: Option<Duration>,
    /// Whether addresses that are not of the public internet may be connected to.
    pub private_addresses: Option<PrivateAddresses>,
    /// Hosts that may have such addresses; `None` is none.
    pub allow_hosts: Option<Vec<String>>,
    /// Hosts and addresses that are never connected to; `None` is none.
    pub deny_hosts: Option<Vec<String>>,
    /// Hosts whose directories are listed by WebDAV; `None` is none.
    pub dav_hosts: Option<Vec<String>>,
    /// Hosts that tell of no directory, beside the usual ones.
    pub unlisted_hosts: Option<Vec<String>>,
    /// Most requests of `weft warm` to one host at a time.
    pub warm_per_host: Option<usize>,
    /// Least time between two of them.
    pub warm_pause: Option<Duration>,
    /// The file of logins; empty for none.
    pub netrc: Option<PathBuf>,
    /// Whether logins go to this machine's loopback addresses in plain HTTP.
    pub insecure_credentials: Option<bool>,
    /// Whether every user's own netrc file counts for that user's calls.
    pub netrc_of_users: Option<bool>,
    /// `[[web.proxy]]`, in the order of the file.
    pub proxies: Vec<ProxyTable>,
    /// `[[web.login]]`, in the order of the file.
    pub logins: Vec<LoginTable>,
}

/// The settings of metrics over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Where they are served; nowhere unless set.
    pub listen: Option<SocketAddr>,
    /// Whether that may be another address than a loopback one.
    pub allow_remote: Option<bool>,
}

/// `[web] private_addresses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivateAddresses {
    /// They are like any other.
    Allow,
    /// Only hosts in `allow_hosts` may have them.
    Deny,
    /// As `Deny` where other users may use the mount, else as `Allow`.
    #[default]
    Auto,
}

impl PrivateAddresses {
    /// All of them, as they are written.
    pub const WORDS: [(&'static str, PrivateAddresses); 3] =
        [("allow", PrivateAddresses::Allow), ("deny", PrivateAddresses::Deny), ("auto", PrivateAddresses::Auto)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            PrivateAddresses::Allow => "allow",
            PrivateAddresses::Deny => "deny",
            PrivateAddresses::Auto => "auto",
        }
    }
}

/// What the system's file denies, a user's file cannot take back.
fn joined(ours: Option<Vec<String>>, below: Option<Vec<String>>) -> Option<Vec<String>> {
    match (ours, below) {
        (Some(ours), Some(below)) => Some([ours, below].concat()),
        (ours, below) => ours.or(below),
    }
}

impl Settings {
    /// These settings where they say something, otherwise those `below`. Rules for trees and extra names add up,
    /// ours first.
    pub fn over(self, below: Settings) -> Settings {
        Settings {
            deadline: self.deadline.or(below.deadline),
            allow_other: self.allow_other.or(below.allow_other),
            threads: self.threads.or(below.threads),
            transport: self.transport.or(below.transport),
            freshness: self.freshness.or(below.freshness),
            open_files: self.open_files.or(below.open_files),
            stale_if_error: self.stale_if_error.or(below.stale_if_error),
            cache_dir: self.cache_dir.or(below.cache_dir),
            // The two keys belong together: one file's word on remote readers says nothing of another's address.
            metrics: if self.metrics.listen.is_some() { self.metrics } else { below.metrics },
            space: self.space.over(below.space),
            web: self.web.over(below.web),
            trees: [self.trees, below.trees].concat(),
            dirs: super::directory::joined(self.dirs, below.dirs),
            afs: self.afs.over(below.afs),
        }
    }
}

impl WebSettings {
    fn over(self, below: WebSettings) -> WebSettings {
        WebSettings {
            probe_names: self.probe_names.or(below.probe_names),
            probe_names_extra: [self.probe_names_extra, below.probe_names_extra].concat(),
            ca_file: self.ca_file.or(below.ca_file),
            user_agent: self.user_agent.or(below.user_agent),
            memory_max: self.memory_max.or(below.memory_max),
            connections_per_host: self.connections_per_host.or(below.connections_per_host),
            redirects_max: self.redirects_max.or(below.redirects_max),
            heuristic_min: self.heuristic_min.or(below.heuristic_min),
            heuristic_max: self.heuristic_max.or(below.heuristic_max),
            absence_time: self.absence_time.or(below.absence_time),
            connect_timeout: self.connect_timeout.or(below.connect_timeout),
            stall_timeout: self.stall_timeout.or(below.stall_timeout),
            down_time: self.down_time.or(below.down_time),
            private_addresses: self.private_addresses.or(below.private_addresses),
            allow_hosts: self.allow_hosts.or(below.allow_hosts),
            dav_hosts: self.dav_hosts.or(below.dav_hosts),
            unlisted_hosts: self.unlisted_hosts.or(below.unlisted_hosts),
            warm_per_host: self.warm_per_host.or(below.warm_per_host),
            warm_pause: self.warm_pause.or(below.warm_pause),
            netrc: self.netrc.or(below.netrc),
            insecure_credentials: self.insecure_credentials.or(below.insecure_credentials),
            netrc_of_users: self.netrc_of_users.or(below.netrc_of_users),
            proxies: [self.proxies, below.proxies].concat(),
            logins: [self.logins, below.logins].concat(),
            deny_hosts: joined(self.deny_hosts, below.deny_hosts),
        }
    }
}
