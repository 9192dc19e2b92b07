//! Mounting and unmounting.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use weft_vfs::NoticeReceivers;

use crate::door::Door;
use crate::drive::Driver;
use crate::handler::Handler;
use crate::meter::Meter;
use crate::notify;

/// How a mount is made.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where.
    pub mountpoint: PathBuf,
    /// First column of `/proc/self/mounts`.
    pub source: String,
    /// Whether other users may use it. `default_permissions` always goes with it.
    pub allow_other: bool,
    /// Whether programs on it may be run.
    pub exec: bool,
    /// Threads that read requests.
    pub threads: usize,
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
    session: BackgroundSession,
    meter: Arc<Meter>,
}

impl Mounted {
    /// Counts the kernel's requests.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    /// When reading requests failed in a way that ended the mount.
    pub fn wait(self) -> std::io::Result<()> {
        self.session.join()
    }
}

/// Mounts a handler's file system and serves it on threads of its own. When this returns, the mount answers.
///
/// # Errors
/// [`MountError`] names the mount point and what refused.
pub fn mount<H: Handler>(
    handler: H,
    options: &MountOptions,
    notices: NoticeReceivers,
    runtime: &tokio::runtime::Handle,
) -> Result<Mounted, MountError> {
    let privileged = rustix::process::geteuid().is_root();
    let meter = Arc::<Meter>::default();
    let driver = Driver::new(runtime.clone(), handler.deadline(), meter.clone());
    let door = Door::new(Arc::new(handler), driver, privileged);
    let backings = door.backings();
    let refused = |source| MountError::Refused { mountpoint: options.mountpoint.clone(), source };
    let threads = |source| MountError::Threads { mountpoint: options.mountpoint.clone(), source };
    let session = if privileged {
        let device = mount_directly(options).map_err(refused)?;
        Session::from_fd(door, device, acl(options), config(options)).map_err(refused)?
    } else {
        Session::new(door, &options.mountpoint, &config(options)).map_err(refused)?
    };
    notify::start(session.notifier(), notices, move |node| backings.forget(node)).map_err(threads)?;
    let session = session.spawn().map_err(threads)?;
    if privileged {
        raise_read_ahead(&options.mountpoint);
    }
    Ok(Mounted { session, meter })
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("weft".to_string()),
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::RO,
    ];
    if !options.exec {
        config.mount_options.push(MountOption::NoExec);
    }
    config.acl = acl(options);
    config.n_threads = Some(options.threads.max(1));
    config
}

fn acl(options: &MountOptions) -> SessionACL {
    if options.allow_other { SessionACL::All } else { SessionACL::Owner }
}

/// Mounts by the system call, as root may: `fuser` would leave the type `fuse.weft` out, by which mounts whose daemon
/// is gone are known. The options are those of the kernel's `fs/fuse/inode.c`.
fn mount_directly(options: &MountOptions) -> std::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::MountFlags;
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME | MountFlags::RDONLY;
    flags.set(MountFlags::NOEXEC, !options.exec);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let fd = device.as_raw_fd();
    let allow_other = if options.allow_other { ",allow_other" } else { "" };
    let data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions{allow_other}");
    let data = CString::new(data).expect("numbers and fixed words hold no NUL");
    rustix::mount::mount(&options.source, &options.mountpoint, "fuse.weft", flags, Some(data.as_c_str()))?;
    Ok(device)
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

/// Takes a mount away: by the system call as root, by fusermount3 otherwise.
///
/// # Errors
/// `ResourceBusy` when files on it are open and `lazy` is not set; what the kernel or fusermount3 said.
pub fn unmount(mountpoint: &Path, lazy: bool) -> std::io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    if rustix::process::geteuid().is_root() {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(unmount(mountpoint, flags)?);
    }
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_string();
    let busy = words.contains("busy");
    let kind = if busy { std::io::ErrorKind::ResourceBusy } else { std::io::ErrorKind::Other };
    Err(std::io::Error::new(kind, words))
}

/// Read-ahead of the mount in KiB, as the system file takes it.
const READ_AHEAD_KB: &str = "1024";
