//! The one place that knows every room.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use weft_control::{Access, Server};
use weft_fuse::{Bridge, Life};
use weft_remote::{Name, Remote};
use weft_store::{Journal, Store, StoreError, StoreOptions};
use weft_vfs::{Binding, Notices, Policies, SpaceOptions, SpaceRule, Vfs, VfsOptions};
use weft_web::{AddressPolicy, Connector, Proxies, ProxyRule, UsualProxies, Web, WebOptions};

use crate::config::{PrivateAddresses, ProxyTable, Resolved, Source, SpaceSettings, WebSettings, patterns};
use crate::daemon::MountDaemon;
use crate::handover::{Handover, Line, Word};
use crate::logins;
use crate::metrics::http::Metrics;
use crate::ready::Ready;
use crate::site::{self, Site};

/// Runs the daemon of a mount: returns when it has been unmounted.
///
/// # Errors
/// Whatever keeps the tree from being mounted.
pub fn run(resolved: Resolved, ready: Ready, handover: Handover) -> anyhow::Result<()> {
    let Handover { line, kept, device, notices: sender } = handover;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("weft-worker")
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let journal = Journal::new(kept.journal).context("the journal in memory cannot be used")?;
    let store = open_store(&resolved.cache_dir, journal)?;
    let (notices, receivers) = Notices::channel();
    let binding = bind(&resolved, &store, runtime.handle())?;
    let options = vfs_options(&resolved)?;
    let vfs = Vfs::new(store.clone(), vec![binding], options, notices, runtime.handle().clone())?;

    let access = Access { owner_uid: rustix::process::geteuid().as_raw(), allow_other: resolved.allow_other };
    let server = {
        let _entered = runtime.enter();
        Server::bind(&resolved.socket_dir, access)?
    };
    let keeper = line.clone();
    let mounted = weft_fuse::mount(
        Bridge::new(vfs.clone(), resolved.deadline),
        &mount_options(&resolved),
        receivers,
        runtime.handle(),
        Some(Life {
            roll: kept.roll,
            device,
            entrust: Box::new(move |device| keeper.say(Word::Mounted, &[device])),
            notices: sender,
        }),
    )?;
    let metrics = listen_for_metrics(&resolved, runtime.handle());
    let told = metrics.as_ref().map(|metrics| metrics.as_ref().map_or_else(Clone::clone, |m| m.address().to_string()));
    let (replace, asked) = tokio::sync::mpsc::channel(1);
    let daemon = MountDaemon::new(vfs.clone(), &resolved, replace).asked_through(&mounted).serving_metrics(told);
    let daemon = Arc::new(daemon);
    if let Some(Ok(metrics)) = metrics {
        let daemon = daemon.clone();
        runtime.spawn(metrics.serve(Arc::new(move || daemon.measures())));
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async {
        // An error means that the sender is gone, which is to stop as well.
        let _ = stopped.await;
    };
    let serving = runtime.spawn(server.serve(daemon.clone(), stopped));
    runtime.spawn(unmount_on_signal(daemon));
    // A supervisor that is gone leaves the daemon to itself.
    if line.say(Word::Serving, &[]).is_ok() {
        runtime.spawn(make_way(asked, line, store.clone()));
    }
    ready.mounted();

    let ended = mounted.wait();
    runtime.block_on(vfs.wind_down());
    let flushed = store.flush();
    drop(stop);
    // The verb that asked for the end gets its answer before the process goes, whatever else fails.
    let _ = runtime.block_on(serving);
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    flushed?;
    ended.context("the mount ended")
}

/// When somebody asks for it: ends this process, so that its supervisor starts the program that is installed. What is
/// not answered by then is sent again to the next daemon.
async fn make_way(mut asked: tokio::sync::mpsc::Receiver<()>, line: Line, store: Arc<Store>) {
    if asked.recv().await.is_none() {
        return;
    }
    if let Err(error) = line.say(Word::Replace, &[]) {
        tracing::error!(%error, "the supervisor is gone: this daemon stays");
        return;
    }
    // What it cannot write now is in the journal.
    let flushed = tokio::time::timeout(FLUSH_PATIENCE, tokio::task::spawn_blocking(move || store.flush())).await;
    if !matches!(flushed, Ok(Ok(Ok(())))) {
        tracing::warn!("the store was not written to its end before the next daemon");
    }
    // Nothing is let go of in order: what the kernel holds is the next daemon's.
    std::process::exit(0);
}

/// Binds what serves metrics, where somebody asked for it. An address that is taken keeps nothing from being mounted.
fn listen_for_metrics(resolved: &Resolved, runtime: &tokio::runtime::Handle) -> Option<Result<Metrics, String>> {
    let _entered = runtime.enter();
    let bound = Metrics::bind(resolved.metrics.listen?);
    if let Err(why) = &bound {
        tracing::warn!("metrics: {why}");
    }
    Some(bound)
}

/// Opens the cache. umount(8) does not wait for the daemon, so whoever mounts again at once finds it still closing.
fn open_store(dir: &Path, journal: Journal) -> Result<Arc<Store>, StoreError> {
    let options = StoreOptions { journal: Some(journal), ..StoreOptions::default() };
    let until = Instant::now() + CLOSING_PATIENCE;
    loop {
        match Store::open(dir, options.clone()) {
            Err(StoreError::InUse { .. }) if Instant::now() < until => std::thread::sleep(CLOSING_PAUSE),
            outcome => return outcome,
        }
    }
}

/// The binding of what is mounted. Everything and the web alone differ only in whether the web has a name in the
/// root; they share one cache, for the source is the same.
fn bind(resolved: &Resolved, store: &Arc<Store>, runtime: &tokio::runtime::Handle) -> anyhow::Result<Binding> {
    let options = web_options(resolved, runtime)?;
    let notes = store.notes("web");
    let (name, source, remote): (_, _, Arc<dyn Remote>) = match &resolved.source {
        Source::Everything => {
            let name = Name::new("web").expect("a fixed name that Linux can hold");
            (Some(name), "web".to_owned(), Web::new(options, notes)?)
        }
        Source::Web => (None, "web".to_owned(), Web::new(options, notes)?),
        // A tree of the web has its identities in common with the web as a whole, and so its cache.
        Source::WebTree { host, path } => {
            (None, "web".to_owned(), Web::for_tree(&format!("{host}/{path}"), options, notes)?)
        }
    };
    Ok(Binding { name, source, remote })
}

fn web_options(resolved: &Resolved, runtime: &tokio::runtime::Handle) -> anyhow::Result<WebOptions> {
    let settings = &resolved.web;
    let default = WebOptions::default();
    let mut probe_names = settings.probe_names.clone().unwrap_or(default.probe_names);
    probe_names.extend(settings.probe_names_extra.iter().cloned());
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

fn vfs_options(resolved: &Resolved) -> anyhow::Result<VfsOptions> {
    let (mut rules, mut stale_rules) = (Vec::new(), Vec::new());
    let mut space = space_options(&resolved.space);
    for rule in &resolved.trees {
        let path = match &resolved.source {
            Source::Everything => rule.path.as_str(),
            Source::Web => match rule.path.strip_prefix("web/") {
                Some(path) => path,
                None => continue,
            },
            // Rules name paths below the mount of everything; one about this tree counts from the tree's root.
            source @ Source::WebTree { .. } => match rule_below(&rule.path, &source.to_string()) {
                Some(path) => path,
                None => continue,
            },
        };
        let names: Result<Vec<Name>, _> = path.split('/').filter(|part| !part.is_empty()).map(Name::new).collect();
        let names = names.with_context(|| format!("the rule for {}", rule.path))?;
        stale_rules.extend(rule.stale_if_error.map(|time| (names.clone(), time)));
        rules.extend(rule.freshness.map(|freshness| (names.clone(), freshness)));
        if rule.class.is_some() || rule.max.is_some() {
            space.rules.push(SpaceRule { path: names, class: rule.class, max: rule.max });
        }
    }
    let bounded_max = SpaceOptions::BOUNDED_RULES_MAX;
    if space.rules.iter().filter(|rule| rule.max.is_some()).count() > bounded_max {
        anyhow::bail!("more than {bounded_max} [[tree]] rules have a `max`");
    }
    let default = VfsOptions::default();
    let passes = resolved.passthrough && rustix::process::geteuid().is_root();
    Ok(VfsOptions {
        passthrough_bytes_min: if passes { default.passthrough_bytes_min } else { u64::MAX },
        shared: resolved.allow_other,
        deadline: resolved.deadline,
        policies: Policies::new(resolved.freshness, rules).with_stale_if_error(resolved.stale_if_error, stale_rules),
        space,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        inodes_max: default.inodes_max.min(open_files_max() / FILES_PER_INODE),
        ..default
    })
}

/// What the cache may hold; the rules for trees are added by the caller.
fn space_options(settings: &SpaceSettings) -> SpaceOptions {
    SpaceOptions {
        class: settings.class.unwrap_or_default(),
        rules: Vec::new(),
        max: settings.max,
        scratch_max: settings.scratch_max,
        tree_max: settings.max_per_host,
        keep_free: settings.keep_free,
    }
}

/// How many files this process may have open, after asking for as many as it may ask for: a cached file that was read
/// of late stays open.
fn open_files_max() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays");
            limit.current
        }
    };
    current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// The part of a rule's path that lies inside a mounted tree (`web:host/path`): all of the tree when the rule is
/// about something above it.
fn rule_below<'a>(rule: &'a str, source: &str) -> Option<&'a str> {
    let tree = source.replacen(':', "/", 1);
    if tree == rule || tree.starts_with(&format!("{rule}/")) {
        return Some("");
    }
    rule.strip_prefix(&format!("{tree}/"))
}

fn mount_options(resolved: &Resolved) -> weft_fuse::MountOptions {
    let source = resolved.source.to_string();
    weft_fuse::MountOptions {
        mountpoint: resolved.mountpoint.clone(),
        source: if source.is_empty() { "weft".to_owned() } else { source },
        allow_other: resolved.allow_other,
        exec: !resolved.noexec,
        threads: resolved.threads.unwrap_or(READERS),
        transport: resolved.transport,
    }
}

/// SIGTERM, SIGINT and SIGHUP take the mount away; what is in use keeps working until it is let go.
async fn unmount_on_signal(daemon: Arc<MountDaemon>) {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
        tracing::warn!("signals cannot be heard; unmount with `weft umount`");
        return;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    if let Err(refusal) = weft_control::Daemon::unmount(&*daemon, true).await {
        tracing::error!(%refusal, "the mount could not be taken away");
    }
}

/// Threads of the runtime: requests that wait cost none, so these only need to cover work on disk. More than there are
/// processors cost time: a cold small file passes through several tasks, and each hop to another processor is paid.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(WORKERS_MIN, usize::from).clamp(WORKERS_MIN, WORKERS_MAX)
}

const WORKERS_MIN: usize = 2;
const WORKERS_MAX: usize = 8;
/// Threads that read kernel requests, unless the configuration says otherwise.
const READERS: usize = 2;
/// Of the files that may be open, one in so many may belong to an inode that nobody uses.
const FILES_PER_INODE: usize = 4;
/// Bytes under way between the daemon and the sample site in it.
const PIPE_BYTES: usize = 256 << 10;
/// How long a cache may be in use by a daemon that is ending, and how often that is looked at.
const CLOSING_PATIENCE: Duration = Duration::from_secs(3);
const CLOSING_PAUSE: Duration = Duration::from_millis(20);
/// How long the disk may take when another daemon is to come.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// How long requests under way may take when the mount has gone.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn rules_count_from_the_root_of_the_mounted_tree() {
        assert_eq!(rule_below("web/example.org/docs/new", "web:example.org/docs"), Some("new"));
        assert_eq!(rule_below("web/example.org", "web:example.org/docs"), Some(""));
        assert_eq!(rule_below("web/example.org/docs", "web:example.org/docs"), Some(""));
        assert_eq!(rule_below("web/example.com", "web:example.org/docs"), None);
        assert_eq!(rule_below("web/example.org/docs2", "web:example.org/docs"), None);
    }
}
