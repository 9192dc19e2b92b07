//! A right request of every kind, as the kernel lays it out.

use zerocopy::IntoBytes;

use crate::abi::{self, opcode};

/// One request: what stands in its header, its first argument, and what follows that.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) opcode: u32,
    pub(crate) argument: Vec<u8>,
    pub(crate) rest: Vec<u8>,
}

impl Sample {
    fn new(opcode: u32, argument: impl IntoBytes + zerocopy::Immutable, rest: &[u8]) -> Sample {
        Sample { opcode, argument: argument.as_bytes().to_vec(), rest: rest.to_vec() }
    }

    /// One without a structure before its names.
    fn named(opcode: u32, rest: &[u8]) -> Sample {
        Sample { opcode, argument: Vec::new(), rest: rest.to_vec() }
    }

    pub(crate) fn header(&self) -> abi::InHeader {
        let len = size_of::<abi::InHeader>() + self.argument.len() + self.rest.len();
        abi::InHeader {
            len: len as u32,
            opcode: self.opcode,
            unique: UNIQUE,
            nodeid: 3,
            uid: 1000,
            gid: 100,
            pid: 77,
            total_extlen: 0,
            padding: 0,
        }
    }

    /// As read(2) gives it.
    pub(crate) fn message(&self) -> Vec<u8> {
        [self.header().as_bytes(), &self.argument, &self.rest].concat()
    }
}

/// One of each kind that this crate reads, and of kinds that it refuses.
pub(crate) fn all() -> Vec<Sample> {
    [of_names(), of_files(), of_the_rest()].concat()
}

fn of_names() -> Vec<Sample> {
    let create = abi::CreateIn { flags: 2, mode: 0o644, umask: 0o22, open_flags: 0 };
    vec![
        Sample::named(opcode::LOOKUP, b"name\0"),
        Sample::named(opcode::SYMLINK, b"name\0its/target\0"),
        Sample::new(opcode::MKNOD, abi::MknodIn { mode: 0o644, rdev: 5, umask: 0o22, padding: 0 }, b"name\0"),
        Sample::new(opcode::MKDIR, abi::MkdirIn { mode: 0o755, umask: 0o22 }, b"name\0"),
        Sample::named(opcode::UNLINK, b"name\0"),
        Sample::named(opcode::RMDIR, b"name\0"),
        Sample::new(opcode::RENAME, abi::RenameIn { newdir: 9 }, b"old\0new\0"),
        Sample::new(opcode::RENAME2, abi::Rename2In { newdir: 9, flags: 1, padding: 0 }, b"old\0new\0"),
        Sample::new(opcode::LINK, abi::LinkIn { oldnodeid: 9 }, b"name\0"),
        Sample::new(opcode::CREATE, create, b"name\0"),
        Sample::new(opcode::TMPFILE, create, b"/\0"),
        Sample::new(opcode::SETXATTR, abi::SetxattrIn { size: 5, flags: 1 }, b"user.a\0value"),
        Sample::new(opcode::GETXATTR, abi::GetxattrIn { size: 256, padding: 0 }, b"user.a\0"),
        Sample::new(opcode::LISTXATTR, abi::GetxattrIn { size: 256, padding: 0 }, b""),
        Sample::named(opcode::REMOVEXATTR, b"user.a\0"),
    ]
}

fn of_files() -> Vec<Sample> {
    let read = abi::ReadIn { fh: 7, offset: 4096, size: 65_536, read_flags: 2, lock_owner: 9, flags: 0, padding: 0 };
    let write = abi::WriteIn { fh: 7, offset: 4096, size: 8, write_flags: 3, lock_owner: 9, flags: 1, padding: 0 };
    let release = abi::ReleaseIn { fh: 7, flags: 0, release_flags: 3, lock_owner: 9 };
    let sync = abi::FsyncIn { fh: 7, fsync_flags: 1, padding: 0 };
    let copy =
        abi::CopyFileRangeIn { fh_in: 7, off_in: 1, nodeid_out: 9, fh_out: 8, off_out: 2, len: 1 << 33, flags: 0 };
    let lock = abi::FileLock { start: 1, end: u64::MAX >> 1, kind: 1, pid: 77 };
    let lock = abi::LkIn { fh: 7, owner: 9, lock, lk_flags: 1, padding: 0 };
    vec![
        Sample::new(opcode::OPEN, abi::OpenIn { flags: 0x8000, open_flags: 0 }, b""),
        Sample::new(opcode::READ, read, b""),
        Sample::new(opcode::WRITE, write, b"8 octets"),
        Sample::new(opcode::RELEASE, release, b""),
        Sample::new(opcode::FSYNC, sync, b""),
        Sample::new(opcode::FLUSH, abi::FlushIn { fh: 7, unused: 0, padding: 0, lock_owner: 9 }, b""),
        Sample::new(opcode::OPENDIR, abi::OpenIn { flags: 0x18800, open_flags: 0 }, b""),
        Sample::new(opcode::READDIR, read, b""),
        Sample::new(opcode::READDIRPLUS, read, b""),
        Sample::new(opcode::RELEASEDIR, release, b""),
        Sample::new(opcode::FSYNCDIR, sync, b""),
        Sample::new(opcode::GETLK, lock, b""),
        Sample::new(opcode::SETLK, lock, b""),
        Sample::new(opcode::SETLKW, lock, b""),
        Sample::new(opcode::FALLOCATE, abi::FallocateIn { fh: 7, offset: 1, length: 2, mode: 3, padding: 0 }, b""),
        Sample::new(opcode::LSEEK, abi::LseekIn { fh: 7, offset: 1, whence: 3, padding: 0 }, b""),
        Sample::new(opcode::COPY_FILE_RANGE, copy, b""),
        Sample::new(opcode::COPY_FILE_RANGE_64, copy, b""),
    ]
}

fn of_the_rest() -> Vec<Sample> {
    let init = abi::InitIn { major: 7, minor: 45, max_readahead: 131_072, flags: u32::MAX };
    let forgets = [abi::ForgetOne { nodeid: 5, nlookup: 1 }, abi::ForgetOne { nodeid: 6, nlookup: u64::MAX }];
    let times = abi::SetattrIn { valid: 0xfff, size: 10, atime: u64::MAX, mode: 0o644, ..Default::default() };
    let statx = abi::StatxIn { getattr_flags: 1, reserved: 0, fh: 7, sx_flags: 0, sx_mask: 0xfff };
    vec![
        Sample::new(opcode::FORGET, abi::ForgetIn { nlookup: 2 }, b""),
        Sample::new(opcode::BATCH_FORGET, abi::BatchForgetIn { count: 2, dummy: 0 }, forgets.as_bytes()),
        Sample::new(opcode::GETATTR, abi::GetattrIn { getattr_flags: 1, dummy: 0, fh: 7 }, b""),
        Sample::new(opcode::SETATTR, times, b""),
        Sample::named(opcode::READLINK, b""),
        Sample::named(opcode::STATFS, b""),
        // The second half of the flags, and what the kernel keeps for later.
        Sample::new(opcode::INIT, init, &[0xff; 48]),
        Sample::new(opcode::ACCESS, abi::AccessIn { mask: 4, padding: 0 }, b""),
        Sample::new(opcode::INTERRUPT, abi::InterruptIn { unique: UNIQUE + 2 }, b""),
        Sample::named(opcode::DESTROY, b""),
        Sample::named(opcode::NOTIFY_REPLY, &[0; 32]),
        Sample::new(opcode::SYNCFS, 0u64, b""),
        Sample::new(opcode::STATX, statx, b""),
        Sample::named(opcode::IOCTL, &[1; 32]),
        Sample::named(opcode::POLL, &[1; 24]),
        Sample::named(UNKNOWN, &[1; 64]),
    ]
}

/// The number of each.
pub(crate) const UNIQUE: u64 = 8;
/// A kind that no kernel has.
const UNKNOWN: u32 = 4000;
