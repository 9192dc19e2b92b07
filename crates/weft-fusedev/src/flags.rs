//! What a connection can do: flags of INIT.

use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

/// A set of flags of INIT (`FUSE_*` of fuse.h); those above 31 travel in `flags2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitFlags(pub u64);

/// Declares the flags and their names.
macro_rules! flags {
    ($($(#[$meta:meta])* $name:ident = $bit:literal,)*) => {
        impl InitFlags {
            $($(#[$meta])* pub const $name: InitFlags = InitFlags(1 << $bit);)*

            const NAMES: &[(InitFlags, &str)] = &[$((InitFlags::$name, stringify!($name)),)*];
        }
    };
}

flags! {
    /// Read-ahead is asked for without waiting for each answer.
    ASYNC_READ = 0,
    /// Locks of fcntl(2) are the server's.
    POSIX_LOCKS = 1,
    /// O_TRUNC comes with the open.
    ATOMIC_O_TRUNC = 3,
    /// Lookups of `.` and `..` are answered.
    EXPORT_SUPPORT = 4,
    /// Writes of more than a page; every kernel since 7.31 sends them anyway.
    BIG_WRITES = 5,
    /// The server applies the umask.
    DONT_MASK = 6,
    /// Locks of flock(2) are the server's.
    FLOCK_LOCKS = 10,
    /// Pages are dropped when length or time change.
    AUTO_INVAL_DATA = 12,
    /// `Readdirplus` is known.
    DO_READDIRPLUS = 13,
    /// `Readdirplus` only where attributes are used.
    READDIRPLUS_AUTO = 14,
    /// Reads and writes past the page cache need not wait for each other.
    ASYNC_DIO = 15,
    /// The kernel collects writes.
    WRITEBACK_CACHE = 16,
    /// An open that is answered `ENOSYS` opens everything, without being asked again.
    NO_OPEN_SUPPORT = 17,
    /// Several lookups and readdirs in one directory at once.
    PARALLEL_DIROPS = 18,
    /// POSIX access lists.
    POSIX_ACL = 20,
    /// After an abort reads give `ECONNABORTED`.
    ABORT_ERROR = 21,
    /// The largest request is told in pages.
    MAX_PAGES = 22,
    /// Targets of symbolic links are kept.
    CACHE_SYMLINKS = 23,
    /// As `NO_OPEN_SUPPORT`, of directories.
    NO_OPENDIR_SUPPORT = 24,
    /// Pages are dropped only when the server says so.
    EXPLICIT_INVAL_DATA = 25,
    /// Submounts appear by themselves.
    SUBMOUNTS = 27,
    /// The server clears setuid and setgid as Linux does.
    HANDLE_KILLPRIV_V2 = 28,
    /// There is a second half of flags.
    INIT_EXT = 30,
    /// [`Notifier::expire_entry`](crate::Notifier::expire_entry) is known.
    HAS_EXPIRE_ONLY = 35,
    /// Files that are read past the page cache can be mapped, shared.
    DIRECT_IO_ALLOW_MMAP = 36,
    /// The kernel reads and writes backing files itself.
    PASSTHROUGH = 37,
    /// No handles for NFS.
    NO_EXPORT_SUPPORT = 38,
    /// [`Notifier::resend`](crate::Notifier::resend) is known.
    HAS_RESEND = 39,
    /// Mounts with mapped ids.
    ALLOW_IDMAP = 40,
    /// Requests can come over io_uring.
    OVER_IO_URING = 41,
    /// Requests that are not answered in time end the connection.
    REQUEST_TIMEOUT = 42,
}

impl InitFlags {
    /// Whether all of `other` are in.
    pub fn contains(self, other: InitFlags) -> bool {
        self & other == other
    }

    /// These without `other`.
    pub fn without(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & !other.0)
    }

    /// Their names in fuse.h, without the prefix; flags without a name here are left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| *name)
    }

    pub(crate) fn low(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    pub(crate) fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl BitOr for InitFlags {
    type Output = InitFlags;

    fn bitor(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 | other.0)
    }
}

impl BitAnd for InitFlags {
    type Output = InitFlags;

    fn bitand(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & other.0)
    }
}
