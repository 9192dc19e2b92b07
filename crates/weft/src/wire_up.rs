//! The one place that knows every room.

mod bindings;
mod options;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use weft_afs::Afs;
use weft_control::{Access, Mounts, Server};
use weft_dir::CutOff;
use weft_fuse::{Bridge, Changes, Life};
use weft_remote::{Call, Caller, RemoteError};
use weft_store::{Journal, NodeId, Store, StoreError, StoreOptions};
use weft_vfs::{Notices, Vfs};
use weft_web::Web;

use crate::config::Resolved;
use crate::daemon::MountDaemon;
use crate::handover::{Handover, Line, Word};
use crate::metrics::http::Metrics;
use crate::ready::Ready;

pub use bindings::asked_afs;

/// Runs the daemon of a mount: returns when it has been unmounted.
///
/// # Errors
/// Whatever keeps the tree from being mounted.
pub fn run(resolved: Resolved, ready: Ready, handover: Handover) -> anyhow::Result<()> {
    let Handover { line, kept, mount, notices: sender } = handover;
    let (device, of_former) = mount.map(|mount| (mount.device, mount.connection)).unzip();
    let runtime = begin_runtime().context("the runtime cannot be started")?;
    let journal = Journal::new(kept.journal).context("the journal in memory cannot be used")?;
    let store = open_store(&resolved.cache_dir, journal)?;
    let (notices, receivers) = Notices::channel();
    let cut_off = kept.writes.map(CutOff::new).transpose().context("the writes in memory cannot be used")?;
    let is_follower = device.is_some();
    let socket = kept.cells.map(|socket| Arc::new(UdpSocket::from(socket)));
    let ground = bindings::Ground { store: &store, cut_off, socket, is_follower, runtime: runtime.handle() };
    let bindings::Bound { all: bindings, cells, tree } = bindings::of(&resolved, &ground)?;
    if let Some(cells) = &cells {
        // A supervisor that is gone, or of before, keeps none: then the next daemon takes the port again.
        let _ = line.say(Word::Cells, &[cells.socket()]);
    }
    let options = options::vfs_options(&resolved)?;
    let takes_changes = bindings.iter().any(|binding| binding.remote.capabilities().writable);
    let vfs = Vfs::new(store.clone(), bindings, options, notices, runtime.handle().clone())?;
    if !is_follower {
        vfs.let_sent_go();
    }
    if let Some(tree) = tree.filter(|_| device.is_none()) {
        runtime.block_on(find_tree(&vfs, &tree))?;
    }

    let access = Access { owner_uid: rustix::process::geteuid().as_raw(), allow_other: resolved.allow_other };
    let server = {
        let _entered = runtime.enter();
        Server::bind(&resolved.socket_dir, access)?
    };
    let keeper = line.clone();
    let place = resolved.mountpoint.clone();
    let mounted = weft_fuse::mount(
        Bridge::new(vfs.clone(), resolved.deadline),
        &options::mount_options(&resolved, takes_changes),
        receivers,
        runtime.handle(),
        Some(Life {
            roll: kept.roll,
            device,
            entrust: Box::new(move |device| keeper.say(Word::Mounted { connection: connection_at(&place) }, &[device])),
            notices: sender,
        }),
    )?;
    vfs.send_left();
    let (replace, asked) = tokio::sync::mpsc::channel(1);
    // What is at the place of a mount that was taken over may be another by now.
    let connection = of_former.unwrap_or_else(|| connection_at(&resolved.mountpoint));
    let daemon = MountDaemon::new(vfs.clone(), &resolved, replace).asked_through(&mounted).connected(connection);
    let daemon = serving_metrics(daemon, &resolved, runtime.handle());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async {
        // An error means that the sender is gone, which is to stop as well.
        let _ = stopped.await;
    };
    let serving = runtime.spawn(server.serve(daemon.clone(), stopped));
    runtime.spawn(unmount_on_signal(daemon.clone()));
    // A supervisor that is gone leaves the daemon to itself.
    if line.say(Word::Serving, &[]).is_ok() {
        let way = MakeWay { line, store: store.clone(), changes: mounted.changes().clone(), cells: cells.clone() };
        runtime.spawn(way.when(asked));
    }
    ready.mounted();

    let ended = mounted.wait();
    daemon.mount_is_gone();
    runtime.block_on(vfs.wind_down());
    if let Some(cells) = cells {
        // Another daemon that takes over comes with the same name, and does not pass here.
        runtime.block_on(cells.give_up(GIVE_UP_PATIENCE));
    }
    let flushed = store.flush();
    drop(stop);
    // The verb that asked for the end gets its answer before the process goes, whatever else fails.
    let _ = runtime.block_on(serving);
    runtime.shutdown_timeout(SHUTDOWN_PATIENCE);
    flushed?;
    ended.context("the mount ended")
}

/// Sees to it that a tree of the web is there, as far as its host tells. One of which names are known was, and a host that
/// does not answer, or not to everybody, keeps nothing from being mounted.
async fn find_tree(vfs: &Vfs, tree: &Web) -> anyhow::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let owner = Caller { uid, gid, pid: 0 };
    let is_known = !vfs.directory_names(NodeId::ROOT, &owner)?.is_empty();
    if is_known || !vfs.offline_paths().is_empty() {
        return Ok(());
    }
    match tree.find_tree(&Call::within(owner, FIND_PATIENCE)).await {
        Err(error @ (RemoteError::NotFound { .. } | RemoteError::NotADirectory { .. })) => {
            Err(error).context("there is no such directory to mount")
        }
        Err(error) => {
            tracing::warn!(%error, "mounted all the same");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The kernel's number of the connection of what was mounted at a place just now.
fn connection_at(place: &Path) -> Option<u32> {
    Mounts::of_this_process().ok()?.connection_at(place)
}

/// What is left in order for the next daemon.
struct MakeWay {
    line: Line,
    store: Arc<Store>,
    changes: Changes,
    cells: Option<Arc<Afs>>,
}

impl MakeWay {
    /// When somebody asks for it: ends this process, so that its supervisor starts the program that is installed. What is
    /// not answered by then is sent again to the next daemon.
    async fn when(self, mut asked: tokio::sync::mpsc::Receiver<()>) {
        let MakeWay { line, store, changes, cells } = self;
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
        if !changes.end(CHANGES_PATIENCE).await {
            tracing::warn!(
                "a name or a lock is being changed at a source that is silent: a lock may be left there until its time has come"
            );
        }
        if let Some(cells) = cells
            && tokio::time::timeout(CALLS_PATIENCE, cells.rest()).await.is_err()
        {
            tracing::debug!("a file server waits for an answer, and will ask the next daemon");
        }
        // Nothing is let go of in order: what the kernel holds is the next daemon's.
        std::process::exit(0);
    }
}

fn begin_runtime() -> std::io::Result<Runtime> {
    // Work that is begun by the thread of a ring's queue may start one.
    let ordinary = weft_fuse::OrdinaryThread::like_this();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("weft-worker")
        .on_thread_start(move || ordinary.begin())
        .enable_all()
        .build()
}

/// The daemon, whose metrics are served where somebody asked for it. An address that is taken keeps nothing from being mounted.
fn serving_metrics(daemon: MountDaemon, resolved: &Resolved, runtime: &Handle) -> Arc<MountDaemon> {
    let Some(address) = resolved.metrics.listen else { return Arc::new(daemon) };
    let _entered = runtime.enter();
    match Metrics::bind(address) {
        Ok(metrics) => {
            let daemon = Arc::new(daemon.serving_metrics(Some(metrics.address().to_string())));
            let measured = daemon.clone();
            runtime.spawn(metrics.serve(Arc::new(move || measured.measures())));
            daemon
        }
        Err(why) => {
            tracing::warn!("metrics: {why}");
            Arc::new(daemon.serving_metrics(Some(why)))
        }
    }
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
/// How long a cache may be in use by a daemon that is ending, and how often that is looked at.
const CLOSING_PATIENCE: Duration = Duration::from_secs(3);
const CLOSING_PAUSE: Duration = Duration::from_millis(20);
/// How long the host of a tree may take to tell whether that is there.
const FIND_PATIENCE: Duration = Duration::from_secs(5);
/// How long the disk may take when another daemon is to come.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// How long sources may take to answer what they were asked to change before the next daemon is to come.
const CHANGES_PATIENCE: Duration = Duration::from_secs(5);
/// How long the calls of file servers may take to be answered before the next daemon is to come.
const CALLS_PATIENCE: Duration = Duration::from_secs(1);
/// How long file servers may take to hear that this client ends.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(1);
/// How long requests under way may take when the mount has gone.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);
