//! What is shown where: every kind, as far as it is mounted.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use weft_afs::{Afs, AfsOptions, Kvno, Modes, Tickets};
use weft_dir::{CutOff, Directory, DirectoryError, DirectoryOptions, MountNote};
use weft_remote::Name;
use weft_store::Store;
use weft_vfs::Binding;
use weft_web::{AddressPolicy, Connector, Proxies, ProxyRule, UsualProxies, Web, WebOptions};

use crate::cells::Cells;
use crate::config::{
    AfsSettings, DirTable, PrivateAddresses, ProxyTable, Resolved, Source, TicketSource, WebSettings, patterns,
};
use crate::logins;
use crate::site::{self, Site};

/// What is shown, the part of it that wants to hear of its end, and the one that is to be found first.
pub(super) struct Bound {
    pub all: Vec<Binding>,
    pub cells: Option<Arc<Afs>>,
    /// A tree of the web that is the whole mount.
    pub tree: Option<Arc<Web>>,
}

/// What bindings stand on.
pub(super) struct Ground<'a> {
    pub store: &'a Arc<Store>,
    /// Where writes to directories are noted for the next daemon.
    pub cut_off: Option<Arc<CutOff>>,
    /// The socket of AFS of the daemon before.
    pub socket: Option<Arc<UdpSocket>>,
    /// Whether another daemon has shown the same: what is not there now was then, and is waited for.
    pub is_follower: bool,
    pub runtime: &'a tokio::runtime::Handle,
}

/// The bindings of what is mounted. The web has a name when it is not mounted alone, and so has each directory; all of
/// them share one cache with what is mounted alone, for the sources are the same.
pub(super) fn of(resolved: &Resolved, ground: &Ground<'_>) -> anyhow::Result<Bound> {
    let Ground { store, runtime, .. } = *ground;
    let mut bound_cells = None;
    let mut afs = |at: Vec<Name>, options: AfsOptions| -> anyhow::Result<Binding> {
        let options = AfsOptions { socket: ground.socket.clone(), ..options };
        let (binding, cells) = afs(at, options, store, runtime)?;
        bound_cells = Some(cells);
        Ok(binding)
    };
    let web = |at: Vec<Name>| -> anyhow::Result<Binding> {
        let remote = Web::new(web_options(resolved, runtime)?, store.notes("web"))?;
        Ok(Binding { at, source: "web".to_owned(), remote })
    };
    let mut tree = None;
    let all = match &resolved.source {
        Source::Everything => {
            let mut all = vec![web(vec![kind("web")])?];
            // One directory that is not there keeps nothing else from being mounted, and is shown when it is there.
            for table in &resolved.dirs {
                let shown = Shown { is_awaited: true, ..table.into() };
                match directory(vec![kind("dir"), table.name.clone()], shown, resolved, ground) {
                    Ok(binding) => all.push(binding),
                    Err(error) => tracing::error!("dir/{} is left out: {error:#}", table.name),
                }
            }
            let cells = Cells::read(&resolved.afs).and_then(|cells| {
                // A machine that has nothing to do with AFS has no such directory, and no socket for it.
                let is_wanted = cells.are_written || resolved.afs.dns == Some(true);
                is_wanted.then(|| afs(vec![kind("afs")], afs_options(cells, resolved))).transpose()
            });
            match cells {
                Ok(binding) => all.extend(binding),
                Err(error) => tracing::error!("afs is left out: {error:#}"),
            }
            all
        }
        Source::Afs => {
            let cells = Cells::read(&resolved.afs)?;
            if cells.known.cells().next().is_none() && resolved.afs.resolver().is_none() {
                anyhow::bail!(
                    "{}: no cell is written down there; `[afs] config_dir` names another folder, and with `dns = true` \
                    DNS is asked for cells",
                    cells.cell_server_db().display()
                );
            }
            vec![afs(Vec::new(), afs_options(cells, resolved))?]
        }
        Source::AfsCell { cell } => {
            let options = afs_options(Cells::read(&resolved.afs)?, resolved);
            let options = AfsOptions { tree: Some(cell.clone()), ..options };
            vec![afs(Vec::new(), options)?]
        }
        Source::Web => vec![web(Vec::new())?],
        Source::WebTree { host, path } => {
            let (options, notes) = (web_options(resolved, runtime)?, store.notes("web"));
            let remote = Web::for_tree(&format!("{host}/{path}"), options, notes)?;
            tree = Some(remote.clone());
            // It has its identities in common with the web as a whole, and so its cache.
            vec![Binding { at: Vec::new(), source: "web".to_owned(), remote }]
        }
        Source::Dirs if resolved.dirs.is_empty() => {
            anyhow::bail!("no [[dir]] in the configuration names a directory; `weft mount dir:/PATH DIR` mounts one")
        }
        Source::Dirs => {
            // One that is not there is shown when it is, as above; that none is there is a mistake.
            let is_awaited = resolved.dirs.iter().any(|table| whole_path(&table.path).is_ok());
            let bind = |table: &DirTable| {
                let shown = Shown { is_awaited, ..table.into() };
                directory(vec![table.name.clone()], shown, resolved, ground)
            };
            resolved.dirs.iter().map(bind).collect::<anyhow::Result<_>>()?
        }
        Source::DirTree { path } => {
            let read_only = resolved.dirs.iter().any(|table| table.path == *path && table.read_only);
            vec![directory(Vec::new(), Shown { path, read_only, is_awaited: false }, resolved, ground)?]
        }
    };
    Ok(Bound { all, cells: bound_cells, tree })
}

fn kind(name: &str) -> Name {
    Name::new(name).expect("a fixed name that Linux can hold")
}

/// A directory of this machine, and how it is shown.
struct Shown<'a> {
    path: &'a Path,
    read_only: bool,
    /// Whether it is waited for where it is not there.
    is_awaited: bool,
}

impl<'a> From<&'a DirTable> for Shown<'a> {
    fn from(table: &'a DirTable) -> Shown<'a> {
        Shown { path: &table.path, read_only: table.read_only, is_awaited: false }
    }
}

/// One directory of this machine.
fn directory(at: Vec<Name>, shown: Shown<'_>, resolved: &Resolved, ground: &Ground<'_>) -> anyhow::Result<Binding> {
    let is_awaited = shown.is_awaited || ground.is_follower;
    let path = whole_path(shown.path).or_else(|error| match is_awaited {
        true => Ok(path_to_come(shown.path)),
        false => Err(error),
    })?;
    // A link may lead there. Of the mount point nobody is asked: its daemon may be this one.
    let cache = std::fs::canonicalize(&resolved.cache_dir).unwrap_or_else(|_| resolved.cache_dir.clone());
    // The daemon would wait for itself, or store what it stores.
    for (what, inner) in [("the mount point", &resolved.mountpoint), ("the cache", &cache)] {
        if inner.starts_with(&path) {
            anyhow::bail!("{}: {what} ({}) lies inside of it; choose another place", path.display(), inner.display());
        }
    }
    let _entered = ground.runtime.enter();
    let source = format!("dir:{}", path.display());
    let mount_note = Some(MountNote::new(ground.store.notes("dir"), source.as_bytes()));
    let (read_only, cut_off) = (shown.read_only, ground.cut_off.clone());
    let options = DirectoryOptions { read_only, cut_off, mount_note, ..DirectoryOptions::new(path) };
    let remote = match ground.is_follower {
        // What was mounted then is waited for as well.
        true => Directory::open_or_await(options)?,
        false => match Directory::open(options.clone()) {
            Err(DirectoryError::Open { .. }) if is_awaited => Directory::open_or_await(options)?,
            opened => opened?,
        },
    };
    Ok(Binding { at, source, remote })
}

/// The same directory has the same cache whatever link leads to it.
fn whole_path(path: &Path) -> anyhow::Result<PathBuf> {
    std::fs::canonicalize(path).with_context(|| format!("{}: the directory cannot be reached", path.display()))
}

/// The same of one that is not there, as far as there is something on the way to it. A link may be there that leads to it.
fn path_to_come(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let real = |above: &Path| {
            let rest = path.strip_prefix(above).ok()?.to_owned();
            Some((std::fs::canonicalize(above).ok()?, rest))
        };
        let Some((real, rest)) = path.ancestors().find_map(real) else { break };
        let mut names = rest.components();
        let Some(first) = names.next() else { return real };
        // Name by name: nothing would be joined with a slash.
        path = match std::fs::read_link(real.join(first)) {
            Ok(target) => names.fold(real.join(target), |path, name| path.join(name)),
            Err(_) => return rest.components().fold(real, |path, name| path.join(name)),
        };
    }
    path
}

/// AFS with the cells that are written down, as this mount shows it.
fn afs_options(written: Cells, resolved: &Resolved) -> AfsOptions {
    let modes = if resolved.allow_other { Modes::Everybodys } else { Modes::Exact };
    AfsOptions { modes, ..asked_afs(written, &resolved.afs, &resolved.kvno) }
}

/// AFS with the cells that are written down, for whoever asks their servers.
pub fn asked_afs(written: Cells, settings: &AfsSettings, kvno: &Kvno) -> AfsOptions {
    let default = AfsOptions::default();
    AfsOptions {
        cells: written.known.cells().cloned().collect(),
        aliases: written.aliases,
        resolver: settings.resolver(),
        level: settings.level.unwrap_or(default.level),
        tickets: match settings.tickets.unwrap_or_default() {
            TicketSource::Get => Tickets::Get(kvno.clone()),
            TicketSource::Found => Tickets::Found,
        },
        ccache: settings.ccache.clone(),
        sysnames: settings.sysname.clone().unwrap_or(default.sysnames),
        probe_after: settings.probe.unwrap_or(default.probe_after),
        ..default
    }
}

/// AFS: identities have their cells in them, so that all of it shares one cache.
fn afs(
    at: Vec<Name>,
    options: AfsOptions,
    store: &Arc<Store>,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<(Binding, Arc<Afs>)> {
    let _entered = runtime.enter();
    let cells = Afs::open(options, &store.notes("afs"))?;
    Ok((Binding { at, source: "afs".to_owned(), remote: cells.clone() }, cells))
}

fn web_options(resolved: &Resolved, runtime: &tokio::runtime::Handle) -> anyhow::Result<WebOptions> {
    let settings = &resolved.web;
    let default = WebOptions::default();
    let mut probe_names = settings.probe_names.clone().unwrap_or(default.probe_names);
    probe_names.extend(settings.probe_names_extra.iter().cloned());
    let mut unlisted_hosts = default.unlisted_hosts;
    unlisted_hosts.extend(patterns(settings.unlisted_hosts.as_deref().unwrap_or_default())?);
    Ok(WebOptions {
        probe_names,
        connect_timeout: settings.connect_timeout.unwrap_or(default.connect_timeout),
        stall_timeout: settings.stall_timeout.unwrap_or(default.stall_timeout),
        down_time: settings.down_time.unwrap_or(default.down_time),
        memory_bytes_max: settings
            .memory_max
            .map_or(default.memory_bytes_max, |max| usize::try_from(max).unwrap_or(usize::MAX)),
        connections_per_host_max: settings.connections_per_host.unwrap_or(default.connections_per_host_max),
        redirects_max: settings.redirects_max.unwrap_or(default.redirects_max),
        heuristic_min: settings.heuristic_min.unwrap_or(default.heuristic_min),
        heuristic_max: settings.heuristic_max.unwrap_or(default.heuristic_max),
        absence_time: settings.absence_time.unwrap_or(default.absence_time),
        extra_ca: settings.ca_file.clone(),
        user_agent: settings.user_agent.clone().unwrap_or(default.user_agent),
        addresses: address_policy(settings, resolved.allow_other)?,
        proxies: proxies(settings, resolved.usual_proxies.clone())?,
        credentials: logins::credentials(settings)?,
        dav_hosts: patterns(settings.dav_hosts.as_deref().unwrap_or_default())?,
        unlisted_hosts,
        crawl_at_once: settings.warm_per_host.unwrap_or(default.crawl_at_once),
        crawl_pause: settings.warm_pause.unwrap_or(default.crawl_pause),
        builtin: HashMap::from([(site::HOST.to_owned(), sample_site(runtime.clone()))]),
        ..default
    })
}

/// The configuration's proxies, and for all other hosts those of the environment.
fn proxies(settings: &WebSettings, usual: UsualProxies) -> anyhow::Result<Proxies> {
    let rule = |table: &ProxyTable| Ok(ProxyRule { hosts: patterns(&table.hosts)?, via: table.via.clone() });
    let rules = settings.proxies.iter().map(rule).collect::<anyhow::Result<_>>()?;
    Ok(Proxies { rules, usual })
}

/// Whoever may use a mount reaches what its daemon reaches. So a mount that others may use leads to public addresses
/// alone, unless somebody says otherwise.
fn address_policy(settings: &WebSettings, allow_other: bool) -> anyhow::Result<AddressPolicy> {
    let rule = match (settings.private_addresses.unwrap_or_default(), allow_other) {
        (PrivateAddresses::Allow, _) | (PrivateAddresses::Auto, false) => None,
        (PrivateAddresses::Deny, _) => Some("private_addresses = \"deny\" holds"),
        (PrivateAddresses::Auto, true) => Some(
            "private_addresses = \"auto\" refuses such addresses in a mount that other users may use (allow_other)",
        ),
    };
    let private = rule
        .map_or(weft_web::PrivateAddresses::Allow, |rule| weft_web::PrivateAddresses::Deny { rule: rule.to_owned() });
    let list = |texts: &Option<Vec<String>>| patterns(texts.as_deref().unwrap_or_default());
    Ok(AddressPolicy { private, allow: list(&settings.allow_hosts)?, deny: list(&settings.deny_hosts)? })
}

/// The sample site, served in process under its reserved name.
fn sample_site(runtime: tokio::runtime::Handle) -> Connector {
    let site = std::sync::OnceLock::new();
    Connector::new(move || {
        let site: &Arc<Site> = site.get_or_init(|| Arc::new(Site::new()));
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        runtime.spawn(site.clone().serve(server));
        client
    })
}

/// Links that are followed on the way to a directory that is not there, as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Bytes under way between the daemon and the sample site in it.
const PIPE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a directory that is not there has the name that it has when it is, so that its cache is the same.
    #[test]
    fn the_path_of_what_is_to_come_is_what_it_is_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = std::fs::canonicalize(folder.path()).expect("there");
        let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, real.join(at)).expect("made");
        std::fs::create_dir(real.join("media")).expect("made");
        link("media/stick", "direct");
        link("../to/./media", "media/around");
        link("..", "media/up");
        link(real.join("direct").to_str().expect("text"), "absolute");
        link(".", "to");
        for (asked, leads) in [
            ("media/stick", "media/stick"),
            ("media/stick/a/b", "media/stick/a/b"),
            ("direct", "media/stick"),
            ("absolute/a", "media/stick/a"),
            ("media/around/stick", "media/stick"),
            ("media/up/direct/a", "media/stick/a"),
        ] {
            let (asked, leads) = (real.join(asked), real.join(leads));
            let to_come = path_to_come(&asked);
            assert_eq!(to_come.as_os_str(), leads.as_os_str(), "{}", asked.display());
            std::fs::create_dir_all(&leads).expect("made");
            assert_eq!(whole_path(&asked).expect("there").as_os_str(), leads.as_os_str());
            assert_eq!(path_to_come(&asked).as_os_str(), leads.as_os_str());
            let stick = real.join("media/stick");
            std::fs::remove_dir_all(&stick).expect("removed");
        }
        link("circle", "circle");
        assert_eq!(path_to_come(&real.join("circle")).as_os_str(), real.join("circle").as_os_str());
    }

    #[test]
    fn private_addresses_are_refused_where_others_may_use_the_mount() {
        let policy = |said: Option<PrivateAddresses>, allow_other: bool| {
            let settings = WebSettings { private_addresses: said, ..WebSettings::default() };
            address_policy(&settings, allow_other).expect("no patterns").private
        };
        let open = weft_web::PrivateAddresses::Allow;
        for said in [None, Some(PrivateAddresses::Auto)] {
            assert_eq!(policy(said, false), open);
            let closed = policy(said, true);
            assert!(matches!(&closed, weft_web::PrivateAddresses::Deny { rule } if rule.contains("allow_other")));
        }
        for allow_other in [false, true] {
            assert_eq!(policy(Some(PrivateAddresses::Allow), allow_other), open);
            assert_ne!(policy(Some(PrivateAddresses::Deny), allow_other), open);
        }
    }
}
