//! The daemon as the control socket sees it: translates between the verbs' words and the file system's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::sync::watch;
use weft_afs::{Level, level_worth};
use weft_control::{
    BindingStatus, CacheReport, Checked, Code, Copied, Covered, Daemon, Decision, Depth, Eviction, Fact, Figures,
    Grouped, Hello, Lines, Measures, Mounts, NameInfo, OfPinned, PathBytes, Refusal, Reloaded, Removed, Status,
    Trouble, UnsentReport, WarmOrder, WarmStatus, Warmed, Watched, Why,
};
use weft_fuse::{Meter, Mounted, Transport};
use weft_remote::{Caller, Name};
use weft_vfs::{Affinity, Mode, Vfs, VfsError};

use crate::config::Resolved;
use crate::metrics::measures;
use crate::words::{absence, binding_state, joined, name_info, names_of, no_tree, refusal, shown, source_statuses};
use crate::{checking, space, unsent, users, warming, watching};

/// A mount's daemon.
pub struct MountDaemon {
    vfs: Arc<Vfs>,
    mountpoint: PathBuf,
    /// The kernel's number of the mount's connection, where it is known.
    connection: Option<u32>,
    /// Whether the mount has gone: by then the number may be another's.
    is_gone: watch::Sender<bool>,
    cache_dir: PathBuf,
    source: String,
    allow_other: bool,
    /// What is said to cells of AFS is worth so much.
    afs_level: Level,
    started: Instant,
    meter: Arc<Meter>,
    transport: Transport,
    /// Where metrics are served over HTTP, or why not.
    metrics: Option<String>,
    /// Where the end is asked for, so that another daemon takes over.
    replace: tokio::sync::mpsc::Sender<()>,
}

impl MountDaemon {
    /// The daemon of the mount that `resolved` describes.
    pub fn new(vfs: Arc<Vfs>, resolved: &Resolved, replace: tokio::sync::mpsc::Sender<()>) -> MountDaemon {
        MountDaemon {
            vfs,
            mountpoint: resolved.mountpoint.clone(),
            connection: None,
            is_gone: watch::Sender::new(false),
            cache_dir: resolved.cache_dir.clone(),
            source: resolved.source.to_string(),
            allow_other: resolved.allow_other,
            afs_level: resolved.afs.level.unwrap_or(Level::Crypt),
            started: Instant::now(),
            meter: Arc::default(),
            transport: Transport::Classic,
            metrics: None,
            replace,
        }
    }

    /// The same, with how the kernel's requests come and their counters.
    pub fn asked_through(self, mounted: &Mounted) -> MountDaemon {
        MountDaemon { meter: mounted.meter().clone(), transport: mounted.transport(), ..self }
    }

    /// The same, with the kernel's number of the mount's connection.
    pub fn connected(self, connection: Option<u32>) -> MountDaemon {
        MountDaemon { connection, ..self }
    }

    /// The mount has gone: what is asked for from now on is not about what has its number, or its place, by then.
    pub fn mount_is_gone(&self) {
        self.is_gone.send_replace(true);
    }

    /// Where the mount is to be taken away; `None` where it is no more, as this process sees it: what is there now is another.
    fn place(&self) -> Result<Option<PathBuf>, Refusal> {
        if *self.is_gone.borrow() {
            return Ok(None);
        }
        let Some(own) = self.connection else { return Ok(Some(self.mountpoint.clone())) };
        let mounts = Mounts::of_this_process().map_err(|error| Refusal::new(Code::Failed, error.to_string()))?;
        let is_there = |place: &Path| mounts.connection_at(place) == Some(own);
        if is_there(&self.mountpoint) {
            return Ok(Some(self.mountpoint.clone()));
        }
        match mounts.place_of(own) {
            None => Ok(None),
            Some(place) if is_there(place) => Ok(Some(place.to_owned())),
            Some(place) => {
                let place = place.display();
                Err(Refusal::new(Code::Busy, format!("{place}: another mount is over it; unmount that first")))
            }
        }
    }

    /// The same, telling where metrics are served, or why they are not.
    pub fn serving_metrics(self, metrics: Option<String>) -> MountDaemon {
        MountDaemon { metrics, ..self }
    }

    /// Everything that is counted.
    pub fn measures(&self) -> Measures {
        measures(&self.vfs, &self.meter, self.started.elapsed())
    }

    /// Makes durable what an answer is about to tell: what a verb calls cached is there after a crash. Where the disk
    /// does not take it, the answer is given all the same; the store tells of that trouble itself.
    async fn settle(&self) {
        let store = self.vfs.store().clone();
        let flush = tokio::task::spawn_blocking(move || store.flush());
        let _ = tokio::time::timeout(SETTLE_PATIENCE, flush).await;
    }

    /// Has the kernel told of what a verb changed, before its answer: whoever looks after that sees it.
    async fn tell_kernel(&self) {
        if !self.vfs.kernel_is_told(TOLD_PATIENCE).await {
            tracing::debug!("the kernel is not told in time of what a verb changed");
        }
    }

    /// Whether a user sees here only what everyone may see: neither root, who may read the cache, nor its owner.
    fn is_stranger(&self, uid: u32) -> bool {
        uid != 0 && uid != rustix::process::geteuid().as_raw()
    }

    /// Refuses to tell a stranger of what another user's rights brought here.
    fn check_known(&self, path: &[u8], names: &[Name], uid: u32) -> Result<(), Refusal> {
        match self.is_stranger(uid) && !self.vfs.may_know(names, uid) {
            true => Err(refusal(path, &VfsError::Denied)),
            false => Ok(()),
        }
    }

    /// The names of a path that leads into one of the mount's trees, as one that is mistyped at its top does not.
    fn in_a_tree(&self, path: &[u8]) -> Result<Vec<Name>, Refusal> {
        let names = names_of(path)?;
        match self.vfs.leads_astray(&names) {
            Some((astray, there)) => Err(no_tree(path, &astray, &there)),
            None => Ok(names),
        }
    }

    fn taken_off(&self, mode: Mode, shown_to: impl Fn(&[Name]) -> bool) -> Vec<PathBytes> {
        let paths = self.vfs.offline_paths().into_iter();
        paths.filter(|(path, found)| *found == mode && shown_to(path)).map(|(path, _)| joined(&path)).collect()
    }

    /// What is fetched ahead; strangers see their own.
    fn warms(&self, uid: u32) -> Vec<WarmStatus> {
        let warmings = self.vfs.warmings().into_iter();
        warmings.filter(|warming| !self.is_stranger(uid) || warming.uid == uid).map(warming::status).collect()
    }

    fn figures(&self) -> Figures {
        let figures = self.vfs.figures();
        let usage = self.vfs.store().usage();
        let exchanged = self.vfs.traffic().into_iter().flat_map(|(_, sources)| sources);
        // Kinds that do not count what they send are taken to send one request for each question.
        let sent: u64 = exchanged.map(|source| source.answered + source.failed).sum();
        let misses = figures.lookups_remote + figures.opens_remote + figures.listings_remote + figures.checks_remote;
        Figures {
            names: usage.nodes,
            objects: usage.objects,
            object_bytes: usage.object_bytes,
            requests: if sent > 0 { sent } else { misses + figures.ranges_fetched },
            received_bytes: figures.bytes_received,
            hits: figures.lookups_local + figures.opens_local + figures.listings_local,
            misses,
        }
    }
}

#[async_trait]
impl Daemon for MountDaemon {
    fn hello(&self) -> Hello {
        Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            daemon_pid: std::process::id(),
            mountpoint: self.mountpoint.as_path().into(),
            uid: rustix::process::geteuid().as_raw(),
            connection: self.connection,
            is_ending: *self.is_gone.borrow(),
        }
    }

    async fn status(&self, uid: u32) -> Result<Status, Refusal> {
        let stranger = self.is_stranger(uid);
        self.settle().await;
        let bindings = self.vfs.bindings().map(|(at, source, used)| BindingStatus {
            path: PathBytes(at.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/')),
            kind: source.split(':').next().unwrap_or_default().to_owned(),
            state: match source.split(':').next() {
                Some("dir") if used.is_empty() => "on this machine".to_owned(),
                Some("dir") => "away".to_owned(),
                Some("afs") => {
                    format!("{}; with a ticket: level {}", binding_state(&used), level_worth(self.afs_level))
                }
                _ => binding_state(&used),
            },
        });
        let troubles = self.vfs.troubles().into_iter().rev();
        // A path that something went wrong at may be known to one user alone.
        let troubles = troubles.filter(|trouble| !stranger || trouble.about.is_empty());
        let troubles = troubles.take(Status::TROUBLES_MAX).map(|trouble| Trouble {
            at_unix_s: trouble.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            sentence: match trouble.about.as_str() {
                "" => trouble.text,
                about => format!("{about}: {}", trouble.text),
            },
        });
        let may_know = |path: &[Name]| !stranger || self.vfs.may_know(path, uid);
        let pinned = self.vfs.pinned_paths().into_iter();
        let pinned = pinned.filter(|path| names_of(path.as_bytes()).is_ok_and(|path| may_know(&path)));
        let mut sources = self.vfs.sources();
        if stranger {
            // What went wrong names what somebody asked for.
            sources.iter_mut().for_each(|source| source.last_error = None);
        }
        let hello = self.hello();
        Ok(Status {
            version: hello.version,
            daemon_pid: hello.daemon_pid,
            mountpoint: hello.mountpoint,
            source: self.source.clone(),
            cache_dir: self.cache_dir.as_path().into(),
            uptime_s: self.started.elapsed().as_secs(),
            allow_other: self.allow_other,
            transport: self.transport.to_string(),
            bindings: bindings.collect(),
            offline: self.taken_off(Mode::Offline, may_know),
            fetch_only: self.taken_off(Mode::FetchOnly, may_know),
            sources: source_statuses(sources),
            pinned: pinned.collect(),
            warms: self.warms(uid),
            unsent: unsent::stuck(&self.vfs, may_know, Status::UNSENT_MAX),
            figures: self.figures(),
            metrics: self.metrics.clone(),
            troubles: troubles.collect(),
        })
    }

    async fn names(&self, path: &[u8], uid: u32) -> Result<Vec<NameInfo>, Refusal> {
        let above = self.in_a_tree(path)?;
        self.check_known(path, &above, uid)?;
        let mut infos = self.vfs.names(&above).map_err(|error| refusal(path, &error))?;
        if self.is_stranger(uid) {
            infos.retain(|info| self.vfs.may_know(&[above.as_slice(), std::slice::from_ref(&info.name)].concat(), uid));
        }
        self.settle().await;
        Ok(infos.into_iter().map(name_info).collect())
    }

    async fn remove(&self, path: &[u8], depth: Depth, of_pinned: OfPinned, uid: u32) -> Result<Removed, Refusal> {
        let of_pinned = match of_pinned {
            OfPinned::Stays => weft_vfs::OfPinned::Stays,
            OfPinned::Goes => weft_vfs::OfPinned::Goes,
        };
        let removed = self.vfs.remove(&self.in_a_tree(path)?, depth == Depth::Below, of_pinned, uid);
        let weft_vfs::Removed { files, bytes } = removed.map_err(|error| match error {
            VfsError::IsADirectory => {
                Refusal::new(Code::Invalid, format!("{}: is a directory; -r drops all below it", shown(path)))
            }
            VfsError::Denied => Refusal::new(
                Code::Denied,
                format!(
                    "{}: holds content that another user brought here; only that user or root drops it",
                    shown(path)
                ),
            ),
            error => refusal(path, &error),
        })?;
        self.tell_kernel().await;
        Ok(Removed { files, bytes })
    }

    async fn reload(&self, path: &[u8], depth: Depth, uid: u32) -> Result<Reloaded, Refusal> {
        let caller = Caller { uid, gid: uid, pid: 0 };
        let reloaded = self.vfs.reload(&self.in_a_tree(path)?, depth == Depth::Below, caller).await;
        self.tell_kernel().await;
        let done = reloaded.map_err(|error| match error {
            VfsError::NotFound => {
                Refusal::new(Code::NotFound, format!("{}: asked just now: not found at the source", shown(path)))
            }
            error => refusal(path, &error),
        })?;
        Ok(Reloaded { checked: done.checked, changed: done.changed + done.gone, failed: done.failed })
    }

    async fn why(&self, path: &[u8], uid: u32) -> Result<Why, Refusal> {
        let names = self.in_a_tree(path)?;
        self.check_known(path, &names, uid)?;
        let why = self.vfs.why(&names).map_err(|error| {
            let mut refusal = refusal(path, &error);
            if refusal.code != Code::NotFound {
                return refusal;
            }
            if let Some(error) = self.vfs.last_error_above(&names) {
                refusal.sentence = format!("{}; the last look-up of it failed: {error}", refusal.sentence);
            } else if let Some((absent, asked)) = self.vfs.absent_above(&names) {
                refusal.sentence = absence(path, names.len(), &absent, &asked);
            }
            refusal
        })?;
        self.settle().await;
        Ok(Why { facts: why.facts.into_iter().map(|(name, value)| Fact { name, value }).collect() })
    }

    async fn take_offline(&self, path: &[u8], fetch_only: bool, _uid: u32) -> Result<(), Refusal> {
        let mode = if fetch_only { Mode::FetchOnly } else { Mode::Offline };
        self.vfs.take_offline(&self.in_a_tree(path)?, mode).map_err(|error| refusal(path, &error))?;
        self.tell_kernel().await;
        Ok(())
    }

    async fn bring_online(&self, path: &[u8], _uid: u32) -> Result<(), Refusal> {
        let brought = self.vfs.bring_online(&names_of(path)?);
        self.tell_kernel().await;
        match brought {
            Ok(_) => Ok(()),
            Err(VfsError::NotFound) => {
                let hint = "`weft status` lists what is offline";
                Err(Refusal::new(
                    Code::NotFound,
                    format!("{}: nothing at or below it is offline or given up; {hint}", shown(path)),
                ))
            }
            Err(error) => Err(refusal(path, &error)),
        }
    }

    async fn pin(&self, path: &[u8], _uid: u32) -> Result<Covered, Refusal> {
        let covered = self.vfs.pin(&self.in_a_tree(path)?).map_err(|error| match error {
            VfsError::NotFound => {
                let hint = "a look at it with ls or cat asks the source; below a known host any path can be pinned";
                Refusal::new(Code::NotFound, format!("{}: not known here; {hint}", shown(path)))
            }
            error => refusal(path, &error),
        })?;
        // A pin is a promise: it is there after a crash.
        self.settle().await;
        Ok(space::covered(covered))
    }

    async fn unpin(&self, path: &[u8], _uid: u32) -> Result<Covered, Refusal> {
        let covered = self.vfs.unpin(&names_of(path)?).map_err(|error| match error {
            VfsError::NotFound => {
                let hint = "`weft status` lists what is; a directory above it may be";
                Refusal::new(Code::NotFound, format!("{}: nothing at or below it is pinned; {hint}", shown(path)))
            }
            error => refusal(path, &error),
        })?;
        self.settle().await;
        Ok(space::covered(covered))
    }

    async fn cache(&self, path: &[u8], _uid: u32) -> Result<CacheReport, Refusal> {
        self.settle().await;
        Ok(space::report(self.vfs.cache_usage(&names_of(path)?).map_err(|error| refusal(path, &error))?))
    }

    async fn evictions(&self, limit: usize, _uid: u32) -> Result<Vec<Eviction>, Refusal> {
        let evictions = self.vfs.evictions(limit);
        let evictions = evictions.map_err(|error| {
            Refusal::new(Code::Failed, format!("{}: the journal of evictions: {error}", self.cache_dir.display()))
        })?;
        Ok(evictions.into_iter().map(space::eviction).collect())
    }

    async fn unmount(&self, lazy: bool) -> Result<(), Refusal> {
        let Some(place) = self.place()? else { return Ok(()) };
        let attempt = move || {
            weft_fuse::unmount(&place, lazy).map_err(|error| match error.kind() {
                std::io::ErrorKind::ResourceBusy => Refusal::new(Code::Busy, users::sentence(&place)),
                _ => Refusal::new(Code::Failed, format!("{}: {error}", place.display())),
            })
        };
        let attempt = tokio::task::spawn_blocking(attempt);
        until_gone(self.is_gone.subscribe(), attempt)
            .await
            .unwrap_or_else(|error| Err(Refusal::new(Code::Failed, error.to_string())))
    }

    async fn replace(&self) -> Result<(), Refusal> {
        // Full: it was asked for already. Closed: there is no supervisor.
        match self.replace.try_send(()) {
            Ok(()) | Err(tokio::sync::mpsc::error::TrySendError::Full(())) => Ok(()),
            Err(tokio::sync::mpsc::error::TrySendError::Closed(())) => {
                let place = self.mountpoint.display();
                let hint = "unmount, and mount again";
                Err(Refusal::new(Code::Failed, format!("{place}: nobody is there to start another daemon; {hint}")))
            }
        }
    }

    async fn watch(&self, path: &[u8], validate_every: Option<Duration>, uid: u32) -> Result<Lines<Watched>, Refusal> {
        watching::watch(&self.vfs, self.in_a_tree(path)?, validate_every, Caller { uid, gid: uid, pid: 0 })
    }

    async fn warm(&self, order: WarmOrder, uid: u32) -> Result<Lines<Warmed>, Refusal> {
        warming::warm(&self.vfs, order, Caller { uid, gid: uid, pid: 0 })
    }

    async fn group(&self, groups: Vec<Vec<PathBytes>>, linked: bool, uid: u32) -> Result<Grouped, Refusal> {
        let paths = |group: &Vec<PathBytes>| group.iter().map(|path| names_of(&path.0)).collect::<Result<Vec<_>, _>>();
        let groups = groups.iter().map(paths).collect::<Result<Vec<_>, _>>()?;
        let affinity = if linked { Affinity::Linked } else { Affinity::Told };
        let call = self.vfs.call(Caller { uid, gid: uid, pid: 0 });
        let done = self.vfs.group(&call, &groups, affinity).await.map_err(|error| refusal(b"", &error))?;
        Ok(Grouped { groups: done.groups, files: done.files, unknown: done.unknown })
    }

    async fn check(&self, repair: bool, _uid: u32) -> Result<Lines<Checked>, Refusal> {
        Ok(checking::check(&self.vfs, repair))
    }

    async fn unsent(&self, path: &[u8], _uid: u32) -> Result<UnsentReport, Refusal> {
        Ok(unsent::report(self.vfs.unsent(&names_of(path)?)))
    }

    async fn decide(&self, path: &[u8], decision: Decision, uid: u32) -> Result<u64, Refusal> {
        let caller = Caller { uid, gid: uid, pid: 0 };
        let decided = unsent::decide(&self.vfs, &names_of(path)?, decision, caller).await;
        self.tell_kernel().await;
        decided
    }

    async fn copy_unsent(&self, path: &[u8], uid: u32) -> Result<Lines<Copied>, Refusal> {
        Ok(unsent::copy(&self.vfs, names_of(path)?, Caller { uid, gid: uid, pid: 0 }))
    }

    async fn copy_source(&self, path: &[u8], uid: u32) -> Result<Lines<Copied>, Refusal> {
        let caller = Caller { uid, gid: uid, pid: 0 };
        unsent::copy_source(&self.vfs, names_of(path)?, caller).await
    }

    async fn stats(&self, _uid: u32) -> Result<Measures, Refusal> {
        Ok(self.measures())
    }
}

/// Has a mount taken away. That it is gone is told before the kernel has let go of all that was known of it (fuse_kill_sb_anon
/// in fs/fuse/inode.c), which takes it seconds for a million inodes: nobody waits for the rest.
async fn until_gone<E>(
    mut is_gone: watch::Receiver<bool>,
    attempt: impl Future<Output = Result<Result<(), Refusal>, E>>,
) -> Result<Result<(), Refusal>, E> {
    tokio::select! {
        biased;
        done = attempt => done,
        Ok(_) = is_gone.wait_for(|is_gone| *is_gone) => Ok(Ok(())),
    }
}

/// How long an answer waits for the disk.
const SETTLE_PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer waits for the kernel, which may wait for a request.
pub(crate) const TOLD_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn who_unmounts_waits_for_the_end_of_the_mount_and_not_for_what_the_kernel_does_after_it() {
        let gone = watch::Sender::new(false);
        let attempt = std::future::pending::<Result<Result<(), Refusal>, Infallible>>();
        let mut answer = Box::pin(until_gone(gone.subscribe(), attempt));
        assert!(answer.as_mut().now_or_never().is_none(), "it is still there");
        gone.send_replace(true);
        assert!(matches!(answer.now_or_never(), Some(Ok(Ok(())))));
    }

    #[test]
    fn who_cannot_unmount_is_told_why() {
        let gone = watch::Sender::new(false);
        let attempt = std::future::ready(Ok::<_, Infallible>(Err(Refusal::new(Code::Busy, "in use"))));
        let answer = until_gone(gone.subscribe(), attempt).now_or_never();
        assert!(matches!(answer, Some(Ok(Err(Refusal { code: Code::Busy, .. })))), "{answer:?}");
    }
}
