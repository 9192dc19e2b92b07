//! What the kernel asks, in words.

/// Who asks and what about: the part that all requests have (`fuse_in_header`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kernel's number of what is asked (`enum fuse_opcode`).
    pub opcode: u32,
    /// The kernel's number of the request. No two requests of a connection have the same, but a request that comes
    /// again after [`Notifier::resend`](crate::Notifier::resend) has its own with the top bit set.
    pub unique: u64,
    /// The inode that it is about; the directory in requests that name something.
    pub node: u64,
    /// The asking process's user for file systems (0 in what the kernel asks by itself).
    pub uid: u32,
    /// The asking process's group for file systems.
    pub gid: u32,
    /// The asking thread in the daemon's pid namespace; 0 when it is not visible there.
    pub pid: u32,
}

impl Header {
    /// Whether the request was sent before, maybe to another daemon, and may have been carried out already
    /// (`FUSE_UNIQUE_RESEND`).
    pub fn is_resent(&self) -> bool {
        self.unique & crate::abi::UNIQUE_RESEND != 0
    }
}

/// A request to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who asks and what about.
    pub header: Header,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What is asked. Names hold neither NUL nor slash and are not empty; flags are those of the system call with the
/// same name unless something else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Where a name leads. Answered by [`Reply::entry`](crate::Reply::entry) or
    /// [`Reply::absent`](crate::Reply::absent).
    Lookup(&'a [u8]),
    /// Attributes, of an open file when a handle is given.
    Getattr {
        /// The open file that fstat(2) was called on.
        handle: Option<u64>,
    },
    /// Changes of attributes. Answered by [`Reply::attributes`](crate::Reply::attributes).
    Setattr(Changes),
    /// Where a symbolic link points. Answered by [`Reply::data`](crate::Reply::data).
    Readlink,
    /// Makes a symbolic link. Answered by an entry, as all that make something are.
    Symlink {
        /// The new name.
        name: &'a [u8],
        /// Where it is to point.
        target: &'a [u8],
    },
    /// Makes a file or special file.
    Mknod {
        /// The new name.
        name: &'a [u8],
        /// Type and permissions.
        mode: u32,
        /// Device number of a device.
        rdev: u32,
        /// The process's umask, already taken off `mode` unless `DONT_MASK` was granted.
        umask: u32,
    },
    /// Makes a directory.
    Mkdir {
        /// The new name.
        name: &'a [u8],
        /// Permissions.
        mode: u32,
        /// As in `Mknod`.
        umask: u32,
    },
    /// Removes a name that is not a directory's. Answered by [`Reply::done`](crate::Reply::done).
    Unlink(&'a [u8]),
    /// Removes an empty directory.
    Rmdir(&'a [u8]),
    /// Moves a name (`FUSE_RENAME` and `FUSE_RENAME2`).
    Rename {
        /// The old name in the request's inode.
        name: &'a [u8],
        /// The new directory.
        new_parent: u64,
        /// The new name.
        new_name: &'a [u8],
        /// Of renameat2(2).
        flags: u32,
    },
    /// One more name for a file.
    Link {
        /// The file.
        node: u64,
        /// The new name in the request's inode.
        name: &'a [u8],
    },
    /// Opens a file. Answered by [`Reply::opened`](crate::Reply::opened).
    Open {
        /// Of open(2), without O_CREAT, O_EXCL, O_NOCTTY and, unless `ATOMIC_O_TRUNC` was granted, O_TRUNC.
        flags: u32,
        /// With O_TRUNC: the bits setuid and setgid go as well (`FUSE_OPEN_KILL_SUIDGID`).
        kill_suidgid: bool,
    },
    /// Makes and opens a file. Answered by [`Reply::created`](crate::Reply::created).
    Create {
        /// The new name.
        name: &'a [u8],
        /// Of open(2).
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// As in `Mknod`.
        umask: u32,
    },
    /// Makes and opens a file without a name. Answered as `Create`.
    Tmpfile {
        /// Of open(2).
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// As in `Mknod`.
        umask: u32,
    },
    /// Reads an open file. Answered by [`Reply::data`](crate::Reply::data); less than `size` means the end.
    Read(Read),
    /// Writes an open file. Answered by [`Reply::written`](crate::Reply::written).
    Write {
        /// The open file; a guess when `cached`.
        handle: u64,
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: &'a [u8],
        /// Of open(2), as they are now.
        flags: u32,
        /// Owner of locks, where the kernel tells it.
        lock_owner: Option<u64>,
        /// Written back from the kernel's pages (`FUSE_WRITE_CACHE`).
        cached: bool,
        /// The bits setuid and setgid go as well (`FUSE_WRITE_KILL_SUIDGID`).
        kill_suidgid: bool,
    },
    /// Figures for `df`. Answered by [`Reply::space`](crate::Reply::space).
    Statfs,
    /// The last reference to an open file is gone. Its answer is not looked at.
    Release {
        /// The open file.
        handle: u64,
        /// Of open(2).
        flags: u32,
        /// Owner of locks.
        lock_owner: u64,
        /// What is buffered is to be written (`FUSE_RELEASE_FLUSH`).
        flush: bool,
        /// Locks of flock(2) are to be given back (`FUSE_RELEASE_FLOCK_UNLOCK`).
        unlock: bool,
    },
    /// Makes a file durable. Answered by [`Reply::done`](crate::Reply::done).
    Fsync {
        /// The open file.
        handle: u64,
        /// Data alone, as fdatasync(2).
        data_only: bool,
    },
    /// Makes a directory durable.
    Fsyncdir {
        /// The open directory.
        handle: u64,
        /// As in `Fsync`.
        data_only: bool,
    },
    /// Sets an extended attribute.
    Setxattr {
        /// Its name; slashes are allowed here.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Of setxattr(2).
        flags: u32,
    },
    /// An extended attribute. Answered by [`Reply::extended`](crate::Reply::extended).
    Getxattr {
        /// Its name.
        name: &'a [u8],
        /// Room for the value; 0 asks for its length.
        size: u32,
    },
    /// Names of extended attributes, each ended by NUL. Answered as `Getxattr`.
    Listxattr {
        /// Room for the names; 0 asks for their length.
        size: u32,
    },
    /// Removes an extended attribute.
    Removexattr(&'a [u8]),
    /// A descriptor of an open file is closed. `ENOSYS` has the kernel ask no more.
    Flush {
        /// The open file.
        handle: u64,
        /// Whose POSIX locks are to be given back.
        lock_owner: u64,
    },
    /// Opens a directory. Answered by [`Reply::opened`](crate::Reply::opened).
    Opendir {
        /// Of open(2).
        flags: u32,
    },
    /// Names of a directory. Answered by [`Reply::names`](crate::Reply::names).
    Readdir(Read),
    /// Names of a directory with attributes. Answered by [`Reply::entries`](crate::Reply::entries).
    Readdirplus(Read),
    /// The last reference to an open directory is gone.
    Releasedir {
        /// The open directory.
        handle: u64,
    },
    /// Which lock is in the way. Answered by [`Reply::lock`](crate::Reply::lock).
    Getlk(Lock),
    /// Takes or gives back a lock, or fails at once with `EAGAIN`.
    Setlk(Lock),
    /// Takes a lock and waits for it.
    Setlkw(Lock),
    /// Whether access is allowed: asked only without `default_permissions`.
    Access {
        /// Of access(2).
        mask: u32,
    },
    /// Makes room in a file.
    Fallocate {
        /// The open file.
        handle: u64,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Of fallocate(2).
        mode: u32,
    },
    /// Finds data or a hole. Answered by [`Reply::offset`](crate::Reply::offset).
    Lseek {
        /// The open file.
        handle: u64,
        /// Where, in bytes.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// Copies within the file system. Answered by [`Reply::copied`](crate::Reply::copied).
    CopyFileRange {
        /// The open file that is read.
        from: u64,
        /// Where it is read, in bytes.
        from_offset: u64,
        /// The inode that is written.
        to_node: u64,
        /// The open file that is written.
        to: u64,
        /// Where it is written, in bytes.
        to_offset: u64,
        /// How many bytes at most.
        length: u64,
        /// Of copy_file_range(2).
        flags: u64,
    },
    /// Makes the file system durable.
    Syncfs,
    /// Attributes as statx(2) has them. Answered by [`Reply::statx`](crate::Reply::statx).
    Statx {
        /// The open file that it was called on.
        handle: Option<u64>,
        /// Of statx(2).
        flags: u32,
        /// Which attributes, as in statx(2).
        mask: u32,
    },
}

/// Which piece of an open file or directory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// What is open.
    pub handle: u64,
    /// Where, in bytes; in a directory the offset that the last name came with.
    pub offset: u64,
    /// How many bytes at most.
    pub size: u32,
    /// Of open(2), as they are now.
    pub flags: u32,
    /// Owner of locks, where the kernel tells it.
    pub lock_owner: Option<u64>,
}

/// Changes of attributes (`fuse_setattr_in`): what is absent stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The open file that it is done through.
    pub handle: Option<u64>,
    /// Permissions (and type, which stays).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last use.
    pub accessed: Option<Moment>,
    /// Last change of the content.
    pub modified: Option<Moment>,
    /// Last change of the inode; told only with `WRITEBACK_CACHE`.
    pub changed: Option<Moment>,
    /// Owner of locks.
    pub lock_owner: Option<u64>,
    /// The bits setuid and setgid go as well (`FATTR_KILL_SUIDGID`).
    pub kill_suidgid: bool,
}

/// A moment that a file is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server's own now.
    Now,
    /// This one.
    At {
        /// Since 1970, negative before.
        seconds: i64,
        /// 0 to 999,999,999, unless the kernel errs.
        nanoseconds: u32,
    },
}

/// A lock that is asked for (`fuse_lk_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The open file.
    pub handle: u64,
    /// Who: the same number is the same owner.
    pub owner: u64,
    /// Which kind of lock.
    pub family: LockFamily,
    /// Which bytes.
    pub range: LockRange,
}

/// Locks of the two families do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFamily {
    /// Of fcntl(2): of a process, on bytes.
    Posix,
    /// Of flock(2): of an open file, on the whole file (`FUSE_LK_FLOCK`).
    Flock,
}

/// Bytes that are locked (`fuse_file_lock`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte; `OFFSET_MAX` (2^63 - 1) for the end of the file.
    pub end: u64,
    /// `F_RDLCK` (0), `F_WRLCK` (1) or `F_UNLCK` (2).
    pub kind: u32,
    /// The process.
    pub pid: u32,
}
