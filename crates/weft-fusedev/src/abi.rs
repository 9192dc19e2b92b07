//! Structures and constants of the kernel's protocol: `include/uapi/linux/fuse.h`, version 7.45.
//!
//! Everything is in the machine's own byte order. Sizes are part of the protocol and asserted below.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures of the protocol with the derives that make them readable from bytes and the other way round.
macro_rules! wire {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty,)* })*) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$field_meta])* pub(crate) $field: $kind,)* })*
    };
}

wire! {
    /// `fuse_in_header`: before every request.
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        /// Length of extensions at the end, in units of 8 bytes.
        total_extlen: u16,
        padding: u16,
    }
    /// `fuse_out_header`: before every reply and notice.
    struct OutHeader {
        len: u32,
        /// 0, a negated errno, or in a notice its code.
        error: i32,
        unique: u64,
    }
    /// `fuse_attr`.
    struct Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    struct EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    struct AttrOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }
    struct OpenOut {
        fh: u64,
        open_flags: u32,
        backing_id: i32,
    }
    struct CreateOut {
        entry: EntryOut,
        open: OpenOut,
    }
    struct WriteOut {
        size: u32,
        padding: u32,
    }
    struct CopyFileRangeOut {
        bytes_copied: u64,
    }
    /// `fuse_kstatfs`, which `fuse_statfs_out` consists of.
    struct StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    struct GetxattrOut {
        size: u32,
        padding: u32,
    }
    struct FileLock {
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
    }
    struct LseekOut {
        offset: u64,
    }
    /// `fuse_dirent` without its name.
    struct Dirent {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    struct SxTime {
        seconds: i64,
        nanoseconds: u32,
        reserved: i32,
    }
    struct Statx {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    struct StatxOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        stat: Statx,
    }
}

wire! {
    struct ForgetIn {
        nlookup: u64,
    }
    struct ForgetOne {
        nodeid: u64,
        nlookup: u64,
    }
    struct BatchForgetIn {
        count: u32,
        dummy: u32,
    }
    struct GetattrIn {
        getattr_flags: u32,
        dummy: u32,
        fh: u64,
    }
    struct SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    struct MknodIn {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    struct MkdirIn {
        mode: u32,
        umask: u32,
    }
    struct RenameIn {
        newdir: u64,
    }
    struct Rename2In {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    struct LinkIn {
        oldnodeid: u64,
    }
    struct OpenIn {
        flags: u32,
        open_flags: u32,
    }
    struct CreateIn {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    struct ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    struct ReleaseIn {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    struct FsyncIn {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    /// `fuse_setxattr_in` up to `FUSE_COMPAT_SETXATTR_IN_SIZE`: the rest comes only with `FUSE_SETXATTR_EXT`.
    struct SetxattrIn {
        size: u32,
        flags: u32,
    }
    struct GetxattrIn {
        size: u32,
        padding: u32,
    }
    struct FlushIn {
        fh: u64,
        unused: u32,
        padding: u32,
        lock_owner: u64,
    }
    struct LkIn {
        fh: u64,
        owner: u64,
        lock: FileLock,
        lk_flags: u32,
        padding: u32,
    }
    struct AccessIn {
        mask: u32,
        padding: u32,
    }
    struct InterruptIn {
        unique: u64,
    }
    struct FallocateIn {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }
    struct LseekIn {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    struct CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    struct StatxIn {
        getattr_flags: u32,
        reserved: u32,
        fh: u64,
        sx_flags: u32,
        sx_mask: u32,
    }
    /// `fuse_init_in` up to its first 16 bytes, which all kernels send.
    struct InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    }
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
}

wire! {
    struct NotifyInvalInode {
        ino: u64,
        off: i64,
        len: i64,
    }
    struct NotifyInvalEntry {
        parent: u64,
        namelen: u32,
        flags: u32,
    }
    struct NotifyDelete {
        parent: u64,
        child: u64,
        namelen: u32,
        padding: u32,
    }
    struct NotifyStore {
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    /// Argument of the ioctl that makes a backing id.
    struct BackingMap {
        fd: i32,
        flags: u32,
        padding: u64,
    }
}

/// Numbers of requests (`enum fuse_opcode`).
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const POLL: u32 = 40;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Numbers of notices (`enum fuse_notify_code`).
pub(crate) mod notice {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const DELETE: i32 = 6;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const INC_EPOCH: i32 = 8;
}

/// The protocol's version that this crate speaks.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 45;
/// `FUSE_GETATTR_FH`: the request's handle is valid.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// `FUSE_LK_FLOCK`: the lock is one of flock(2).
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// `FUSE_READ_LOCKOWNER` and `FUSE_WRITE_LOCKOWNER`.
pub(crate) const LOCKOWNER: u32 = 1 << 1;
/// `FUSE_WRITE_CACHE`.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_OPEN_KILL_SUIDGID`.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `FUSE_RELEASE_FLUSH`.
pub(crate) const RELEASE_FLUSH: u32 = 1 << 0;
/// `FUSE_RELEASE_FLOCK_UNLOCK`.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// `FUSE_FSYNC_FDATASYNC`.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `FUSE_EXPIRE_ONLY`: the entry is looked up again at its next use and stays until then.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
/// `FUSE_UNIQUE_RESEND`: set in requests that come again. The reply must carry it as well, for the kernel finds the
/// request by the number that it sent last (`fuse_resend` and `fuse_request_find` in fs/fuse/dev.c).
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<Attr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<OpenOut>() == 16);
    assert!(size_of::<CreateOut>() == 144);
    assert!(size_of::<StatfsOut>() == 80);
    assert!(size_of::<FileLock>() == 24);
    assert!(size_of::<Dirent>() == 24);
    assert!(size_of::<Statx>() == 256);
    assert!(size_of::<StatxOut>() == 288);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<ReleaseIn>() == 24);
    assert!(size_of::<FlushIn>() == 24);
    assert!(size_of::<LkIn>() == 48);
    assert!(size_of::<FallocateIn>() == 32);
    assert!(size_of::<LseekIn>() == 24);
    assert!(size_of::<CopyFileRangeIn>() == 56);
    assert!(size_of::<StatxIn>() == 24);
    assert!(size_of::<InitIn>() == 16);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<NotifyInvalInode>() == 24);
    assert!(size_of::<NotifyInvalEntry>() == 16);
    assert!(size_of::<NotifyDelete>() == 24);
    assert!(size_of::<NotifyStore>() == 24);
    assert!(size_of::<BackingMap>() == 16);
};
