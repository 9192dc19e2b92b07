//! Mounting and unmounting.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_fusedev::{End, InitError, InitFlags, Serving, Transport};
use weft_vfs::{NoticeReceivers, OnTurned};

use crate::changes::Changes;
use crate::connection::{ACCESS_LISTS, Connection, wanted};
use crate::door::{Door, Manner};
use crate::drive::Driver;
use crate::handler::Handler;
use crate::life::{self, Life};
use crate::meter::Meter;
use crate::notify;
use crate::pages::Pages;
use crate::roll::RollError;

pub use weft_fusedev::unmount;

/// How a mount is made.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where.
    pub mountpoint: PathBuf,
    /// First column of `/proc/self/mounts`.
    pub source: String,
    /// Whether other users may use it.
    pub allow_other: bool,
    /// Whether the kernel checks modes and owners (`default_permissions`). Otherwise the source decides who may change what, and
    /// modes are looked at here ([`Handler::modes_allow`]).
    pub checks_modes: bool,
    /// Whether programs on it may be run.
    pub exec: bool,
    /// Threads that read requests.
    pub threads: usize,
    /// How requests come. A mount that is to outlive its daemon takes [`Transport::Auto`] for [`Transport::Classic`]:
    /// what a dead daemon had taken from a ring is lost.
    pub transport: Transport,
    /// Whether files are read without being opened: the kernel then asks nothing to open or close one, and keeps its
    /// pages until it is told that they are old. Only of a mount that is read-only.
    pub unopened: bool,
    /// Whether files may be mapped to be shared of which the kernel is told to keep no pages. Where others read the same file
    /// from its pages those may be of another version then.
    pub maps_unkept: bool,
    /// Whether the kernel lets nobody change anything.
    pub read_only: bool,
    /// Whether each write(2) ends with an fsync(2) (`sync` of mount(8)).
    pub sync: bool,
}

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or fusermount3 refused.
    #[error("cannot mount on {mountpoint}: {source}; `weft doctor` checks this machine and says what to type")]
    Refused {
        /// Where.
        mountpoint: PathBuf,
        /// What they said.
        #[source]
        source: std::io::Error,
    },
    /// The kernel and weft did not agree.
    #[error("cannot serve {mountpoint}: {source}")]
    Unagreed {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        #[source]
        source: InitError,
    },
    /// What outlives the daemon cannot be used.
    #[error("cannot go on serving {mountpoint}: {source}")]
    Kept {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        #[source]
        source: RollError,
    },
    /// A thread could not be started.
    #[error("cannot serve {mountpoint}: {source}")]
    Threads {
        /// Where.
        mountpoint: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// A mount that is being served.
pub struct Mounted {
    serving: Serving,
    meter: Arc<Meter>,
    changes: Changes,
    mountpoint: PathBuf,
}

impl Mounted {
    /// Counts the kernel's requests.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// What sources are asked to change, for a daemon that is replaced.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// How requests come.
    pub fn transport(&self) -> Transport {
        if self.serving.has_rings() { Transport::IoUring } else { Transport::Classic }
    }

    /// Waits until the mount is gone. One whose connection was aborted stays in the way of everybody: it is taken away.
    ///
    /// # Errors
    /// When reading requests failed in a way that ended the mount, or one that was aborted stays.
    pub fn wait(self) -> std::io::Result<()> {
        match self.serving.join()? {
            End::Unmounted => Ok(()),
            End::Aborted => {
                tracing::warn!("the connection to the kernel was aborted: the mount is taken away");
                // Another mount may be in its place by now, and that answers.
                match rustix::fs::statvfs(&self.mountpoint) {
                    Err(rustix::io::Errno::NOTCONN) => unmount(&self.mountpoint, true),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Mounts a handler's file system, or takes over a mount that is there, and serves it on threads of its own. When this
/// returns, the mount answers. With `life` it outlives this process.
///
/// # Errors
/// [`MountError`] names the mount point and what refused.
pub fn mount<H: Handler>(
    handler: H,
    options: &MountOptions,
    notices: NoticeReceivers,
    runtime: &tokio::runtime::Handle,
    life: Option<Life>,
) -> Result<Mounted, MountError> {
    let privileged = rustix::process::geteuid().is_root();
    let meter = Arc::<Meter>::default();
    let driver = Driver::new(runtime.clone(), handler.deadline(), meter.clone());
    let place = || options.mountpoint.clone();
    // Where all is only read the kernel's own locks do: then it need not tell who closes what.
    let locks = handler.has_locks() && !options.read_only;
    let connection = match life {
        Some(Life { roll, device: Some(device), notices, .. }) => Connection::again(device, roll, notices)
            .map_err(|source| MountError::Kept { mountpoint: place(), source })?,
        life => {
            let wanted = wanted(privileged, locks, handler.has_access_lists(), options);
            Connection::new(options, &wanted, life)?
        }
    };
    let Connection { session, roll, entries, notices: sender, undo } = connection;
    let agreed = session.negotiated();
    if let Some(why) = session.rings_missing() {
        tracing::debug!(%why, "requests come over the device");
    }
    tracing::debug!(minor = agreed.minor, flags = ?agreed.flags.names().collect::<Vec<_>>(), "the kernel agreed");
    let passthrough = agreed.has(InitFlags::PASSTHROUGH);
    let pages = Pages::new(session.notifier());
    let read_only = options.read_only;
    // What nobody opens, nobody closes: writes would never be sent.
    let manner = Manner {
        passthrough,
        unopened: options.unopened && read_only,
        read_only,
        modes_here: !options.checks_modes,
        locks: agreed.has(InitFlags::POSIX_LOCKS),
        access_lists: agreed.has(ACCESS_LISTS),
    };
    let renewed = roll.clone();
    handler.on_turned(OnTurned::new(move |handle, record| renewed.renew_file(handle.0, record)));
    let door = Arc::new(Door::new(Arc::new(handler), driver, session.backings(), pages, manner, roll.clone()));
    let (modes, directories, changes) = (door.modes(), door.directories().clone(), door.locks().changes().clone());
    let threads = |source| MountError::Threads { mountpoint: place(), source };
    let notifier = session.notifier();
    let is_new = entries.is_none();
    let held = entries.as_ref().map_or_else(Vec::new, |entries| life::nodes(entries));
    if let Some(entries) = entries {
        life::restore(&door, &session, &roll, &entries);
        // Before anything is read: what is read after this must not come twice.
        notifier.resend().map_err(threads)?;
    }
    let of_names = match sender {
        Some(sender) => session.notifier().sent_by(sender),
        None => session.notifier(),
    };
    let forget = move |node| modes.forget(node);
    let of_notices = directories.clone();
    let keeps_names = move |node| of_notices.keeps_names(node);
    notify::start(session.notifier(), of_names, notices, (forget, keeps_names)).map_err(threads)?;
    let had_rings = session.has_rings();
    let serving = session.serve(door.clone(), options.threads, "weft-fuse").map_err(threads)?;
    if let Some(why) = serving.rings_missing().filter(|_| had_rings) {
        tracing::warn!(%why, "requests come over the device");
    }
    std::mem::forget(undo);
    if is_new && privileged {
        raise_read_ahead(&options.mountpoint);
    }
    if !is_new {
        life::ask_anew(&notifier, &held, &directories);
        life::place(door.handler(), held, runtime);
    }
    Ok(Mounted { serving, meter, changes, mountpoint: place() })
}

/// The kernel offers 128 KiB of read-ahead when it mounts; more is set on the mount's device afterwards. Only root
/// may, and a failure costs speed alone.
fn raise_read_ahead(mountpoint: &Path) {
    let set = || -> std::io::Result<()> {
        let device = rustix::fs::stat(mountpoint)?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KB)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "read-ahead stays at the kernel's default");
    }
}

/// Read-ahead of the mount in KiB, as the system file takes it. An answer of so much and its header fit into a pipe of
/// the size that everybody may have (1 MiB in slots of a page), and into the second cache of a processor.
const READ_AHEAD_KB: &str = "512";
