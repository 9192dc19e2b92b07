//! Cells that are written down nowhere: found by DNS (RFC 5864; AFSDB: RFC 1183, section 1).
//!
//! * `_afs3-vlserver._udp.CELL` has the hosts and ports of a cell's database servers, of which those of the lowest priority
//!   are asked first; where there are none, `CELL` has records AFSDB of subtype 1 with hosts. Only the whole name of a cell
//!   is asked for.
//! * Anybody may make up names below `/afs`, and programs try some in every directory; so nothing is asked for a name that no
//!   cell has: without a dot, of what DNS cannot have, or with the ending of a file.
//! * What DNS says is remembered as long as it says, within bounds; that there is no such cell, for some minutes; that nothing
//!   answers, for some seconds. A cell that was found goes on with what is known while DNS does not answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use crate::cell::{CELL_SERVERS_MAX, CellName};
use crate::dns::{Data, Found, Kind, LABEL_BYTES_MAX, is_host};
use crate::resolver::Resolver;
use crate::wire::vl;

/// What DNS says of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Its database servers, the first to be asked first; none when there is no such cell.
    pub servers: Vec<SocketAddr>,
    /// How long that is so.
    pub lasts: Duration,
}

/// Whether a name may be that of a cell that DNS knows.
pub(crate) fn may_be_known(cell: &CellName) -> bool {
    let name = cell.as_str();
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let Some((_, last)) = name.rsplit_once('.') else { return false };
    name.len() + SERVICE.len() < NAME_BYTES_MAX
        && name.split('.').all(is_label)
        && last.len() > 1
        && (last.starts_with("xn--") || last.bytes().all(|byte| byte.is_ascii_alphabetic()))
        && !NO_DOMAINS.contains(&last)
}

/// Asks DNS for a cell's database servers.
///
/// # Errors
/// What keeps DNS from answering.
pub(crate) async fn ask(resolver: &Resolver, cell: &CellName, until: Instant) -> Result<Said, String> {
    let found = resolver.ask(&format!("{SERVICE}{cell}"), Kind::Srv, until).await?.unwrap_or_default();
    let (mut hosts, mut found) = (hosts_of_srv(&found), found);
    if hosts.is_empty() {
        found = resolver.ask(cell.as_str(), Kind::Afsdb, until).await?.unwrap_or_default();
        hosts = hosts_of_afsdb(&found);
    }
    if hosts.is_empty() {
        return Ok(Said { servers: Vec::new(), lasts: ABSENCE_TIME });
    }
    let ttl_s = found.records.iter().map(|record| record.ttl_s).min().unwrap_or_default();
    let found = &found;
    // Made before they are run: a closure that makes them meanwhile would have too narrow a type.
    let asking: Vec<_> = hosts.iter().map(|(host, port)| addresses(resolver, (host, *port), found, until)).collect();
    let told: Vec<_> = futures_util::stream::iter(asking).buffered(HOSTS_AT_ONCE).collect().await;
    let (mut servers, mut ttl_s, mut last) = (Vec::new(), ttl_s, None);
    for told in told {
        match told {
            Ok(told) => {
                for (server, of_address_s) in told {
                    if servers.len() < CELL_SERVERS_MAX && !servers.contains(&server) {
                        servers.push(server);
                        ttl_s = ttl_s.min(of_address_s);
                    }
                }
            }
            // The other hosts may do.
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) if servers.is_empty() => Err(error),
        _ => Ok(Said { servers, lasts: Duration::from_secs(ttl_s.into()).clamp(LASTS_MIN, LASTS_MAX) }),
    }
}

/// Whether DNS knows a cell: for programs that ask once.
///
/// # Errors
/// What keeps DNS from answering.
pub async fn dns_knows(resolver: &Resolver, cell: &CellName, patience: Duration) -> Result<bool, String> {
    if !may_be_known(cell) {
        return Ok(false);
    }
    Ok(!ask(resolver, cell, Instant::now() + patience).await?.servers.is_empty())
}

/// Hosts and ports, by priority, and of one priority those first that have more weight.
fn hosts_of_srv(found: &Found) -> Vec<(String, u16)> {
    let hosts = found.records.iter().filter_map(|record| match &record.data {
        Data::Srv { priority, weight, port, host } if is_host(host) && *port != 0 => {
            Some((*priority, std::cmp::Reverse(*weight), host, *port))
        }
        _ => None,
    });
    let mut hosts: Vec<_> = hosts.collect();
    hosts.sort();
    hosts.dedup();
    hosts.into_iter().map(|(_, _, host, port)| (host.clone(), port)).take(HOSTS_MAX).collect()
}

fn hosts_of_afsdb(found: &Found) -> Vec<(String, u16)> {
    let hosts = found.records.iter().filter_map(|record| match &record.data {
        Data::Afsdb { subtype: 1, host } if is_host(host) => Some((host.clone(), vl::PORT)),
        _ => None,
    });
    hosts.take(HOSTS_MAX).collect()
}

/// The addresses of a host that may be a server's, and how long they are so.
async fn addresses(
    resolver: &Resolver,
    (host, port): (&str, u16),
    found: &Found,
    until: Instant,
) -> Result<Vec<(SocketAddr, u32)>, String> {
    let along = found.along.iter().filter(|(of, ..)| of == host).map(|(_, address, ttl_s)| (*address, *ttl_s));
    let mut told: Vec<(Ipv4Addr, u32)> = along.collect();
    if told.is_empty() {
        let asked = resolver.ask(host, Kind::Address, until).await?.unwrap_or_default();
        told.extend(asked.records.iter().filter_map(|record| match record.data {
            Data::Address(address) => Some((address, record.ttl_s)),
            _ => None,
        }));
    }
    // A cell may be one of this machine or network alone.
    told.retain(|(address, _)| !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast());
    told.truncate(ADDRESSES_MAX);
    Ok(told.into_iter().map(|(address, ttl_s)| ((address, port).into(), ttl_s)).collect())
}

/// What the name of the service that is asked for begins with (RFC 5864).
const SERVICE: &str = "_afs3-vlserver._udp.";
/// Longest name of DNS as text.
const NAME_BYTES_MAX: usize = 253;
/// Endings of files that programs try in every directory, and of domains that no name server has; no domain ends so.
const NO_DOMAINS: &[&str] = &[
    "bak",
    "bin",
    "cfg",
    "conf",
    "config",
    "css",
    "csv",
    "desktop",
    "directory",
    "dll",
    "doc",
    "exe",
    "gif",
    "git",
    "gz",
    "hg",
    "htm",
    "html",
    "icns",
    "ico",
    "inf",
    "ini",
    "invalid",
    "jar",
    "jpeg",
    "jpg",
    "js",
    "json",
    "ko",
    "lnk",
    "localhost",
    "lock",
    "log",
    "old",
    "onion",
    "orig",
    "pdf",
    "php",
    "pid",
    "plist",
    "png",
    "rc",
    "rej",
    "sock",
    "svg",
    "svn",
    "swo",
    "swp",
    "tar",
    "tgz",
    "tmp",
    "toml",
    "txt",
    "url",
    "xml",
    "xz",
    "yaml",
    "yml",
];
/// How long it is remembered that there is no such cell.
const ABSENCE_TIME: Duration = Duration::from_secs(300);
/// Bounds of how long DNS may say that something is so.
const LASTS_MIN: Duration = Duration::from_secs(60);
const LASTS_MAX: Duration = Duration::from_secs(86_400);
/// Most hosts of a cell, most addresses of a host, and how many hosts are asked for at once.
const HOSTS_MAX: usize = 16;
const ADDRESSES_MAX: usize = 4;
const HOSTS_AT_ONCE: usize = 4;

#[cfg(test)]
#[path = "learnt_tests.rs"]
pub(crate) mod tests;
