//! The connection of a mount to the kernel: what is asked of it, and whether it is new or was another daemon's.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use weft_fusedev::{InitFlags, RingLimits, Session, Transport, Wanted, unmount};

use crate::life::{self, Life};
use crate::mount::{MountError, MountOptions};
use crate::roll::{Entry, Roll, RollError};

/// A connection to the kernel, new or taken over.
pub(crate) struct Connection<'a> {
    pub session: Session,
    pub roll: Arc<Roll>,
    /// What the kernel holds, of one that was taken over.
    pub entries: Option<Vec<Entry>>,
    /// To whoever sends notices in place of this process.
    pub notices: Option<OwnedFd>,
    /// Of a new one: to be forgotten when the mount answers.
    pub undo: Option<Undo<'a>>,
}

impl<'a> Connection<'a> {
    /// Mounts and agrees with the kernel on what is `wanted`. With `life` the connection is given into keeping.
    ///
    /// # Errors
    /// When the kernel refuses, or what is to outlive this process cannot be used.
    pub fn new(options: &'a MountOptions, wanted: &Wanted, life: Option<Life>) -> Result<Connection<'a>, MountError> {
        let place = || options.mountpoint.clone();
        let device = weft_fusedev::mount(&options_of(options));
        let device = device.map_err(|source| MountError::Refused { mountpoint: place(), source })?;
        let undo = Undo(&options.mountpoint);
        let transport = match (options.transport, &life) {
            (Transport::Auto, Some(_)) => Transport::Classic,
            (transport, _) => transport,
        };
        let session = Session::begin_over(device, wanted, transport, RingLimits::default());
        let session = session.map_err(|source| MountError::Unagreed { mountpoint: place(), source })?;
        let (roll, notices) = match life {
            Some(Life { roll, entrust, notices, .. }) => (life::entrust(&session, roll, entrust), notices),
            None => (Ok(Roll::nowhere()), None),
        };
        let roll = roll.map_err(|source| MountError::Kept { mountpoint: place(), source })?;
        // Nobody sends notices on a connection that nobody keeps.
        let notices = notices.filter(|_| roll.is_somewhere());
        Ok(Connection { session, roll: Arc::new(roll), entries: None, notices, undo: Some(undo) })
    }

    /// Takes one over. Nothing is read from it yet.
    ///
    /// # Errors
    /// When the roll is not one.
    pub fn again(device: OwnedFd, roll: File, notices: Option<OwnedFd>) -> Result<Connection<'a>, RollError> {
        let (roll, negotiated, entries) = Roll::take_over(roll)?;
        let session = Session::take_over(device, negotiated);
        Ok(Connection { session, roll: Arc::new(roll), entries: Some(entries), notices, undo: None })
    }
}

/// Takes a mount away that came to nothing: whoever looks into it would wait.
pub(crate) struct Undo<'a>(&'a Path);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Err(error) = unmount(self.0, true) {
            tracing::warn!(%error, "a mount that came to nothing could not be taken away");
        }
    }
}

fn options_of(options: &MountOptions) -> weft_fusedev::MountOptions {
    weft_fusedev::MountOptions {
        mountpoint: options.mountpoint.clone(),
        source: options.source.clone(),
        // By the type `fuse.weft` mounts whose daemon is gone are known.
        subtype: "weft".to_owned(),
        allow_other: options.allow_other,
        check_permissions: options.checks_modes,
        read_only: options.read_only,
        exec: options.exec,
        atime: false,
        sync: options.sync,
    }
}

/// What is asked of the kernel.
pub(crate) fn wanted(privileged: bool, locks: bool, access_lists: bool, options: &MountOptions) -> Wanted {
    let mut flags = WANTED_FLAGS.into_iter().fold(InitFlags::default(), |all, flag| all | flag);
    if privileged {
        flags = flags | InitFlags::PASSTHROUGH;
    }
    if options.read_only {
        // After a write past its pages that nobody waits for the kernel leaves in them what was there before
        // (`generic_file_direct_write` of Linux mm/filemap.c and `fuse_aio_complete` of fs/fuse/file.c; observed with 6.18).
        flags = flags | InitFlags::ASYNC_DIO;
    }
    if options.maps_unkept {
        flags = flags | InitFlags::DIRECT_IO_ALLOW_MMAP;
    }
    if access_lists {
        flags = flags | ACCESS_LISTS;
    }
    if locks {
        flags = flags | InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS;
    }
    Wanted {
        flags,
        max_write: TRANSFER_BYTES_MAX,
        max_background: BACKGROUND_REQUESTS_MAX,
        time_granularity_ns: 1,
        // Backing files that are not stacked themselves.
        max_stack_depth: 1,
    }
}

/// Taken where the kernel offers them (the reasons: SEMANTICS.md and the kernel's fuse.h).
const WANTED_FLAGS: [InitFlags; 12] = [
    InitFlags::ABORT_ERROR,
    InitFlags::ASYNC_READ,
    InitFlags::BIG_WRITES,
    InitFlags::DO_READDIRPLUS,
    InitFlags::READDIRPLUS_AUTO,
    InitFlags::PARALLEL_DIROPS,
    InitFlags::ATOMIC_O_TRUNC,
    InitFlags::HANDLE_KILLPRIV_V2,
    InitFlags::EXPLICIT_INVAL_DATA,
    InitFlags::EXPORT_SUPPORT,
    InitFlags::HAS_EXPIRE_ONLY,
    InitFlags::HAS_RESEND,
];
/// The kernel asks for access lists; they say whether the umask counts, which so is left to the file system.
pub(crate) const ACCESS_LISTS: InitFlags = InitFlags(InitFlags::POSIX_ACL.0 | InitFlags::DONT_MASK.0);
/// Largest request and reply body in bytes.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may send without anybody waiting for them, which are all reads into its pages. Those from a
/// host that is silent are among them until they end, and when there are so many, nobody's pages are read.
const BACKGROUND_REQUESTS_MAX: u16 = 1024;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// What is written past the pages at nobody's waiting would leave old ones behind.
    #[test]
    fn direct_writes_are_waited_for() {
        let options = |read_only| MountOptions {
            mountpoint: PathBuf::new(),
            source: String::new(),
            allow_other: false,
            checks_modes: true,
            exec: true,
            threads: 1,
            transport: Transport::Auto,
            unopened: false,
            maps_unkept: false,
            read_only,
            sync: false,
        };
        for read_only in [false, true] {
            assert_eq!(wanted(true, true, true, &options(read_only)).flags.contains(InitFlags::ASYNC_DIO), read_only);
        }
    }
}
