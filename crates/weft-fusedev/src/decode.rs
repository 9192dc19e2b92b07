//! Bytes of the kernel to requests. Nothing is believed: every length is checked against what came.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, opcode};
use crate::request::{Changes, Header, Lock, LockFamily, LockRange, Moment, Operation, Read, Request};

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming<'a> {
    /// To be answered by the file system.
    Request(Request<'a>),
    /// Lookups of inodes are given back; not answered.
    Forget(Forgets<'a>),
    /// Somebody who waits for the request with this number has a signal.
    Interrupt { interrupt: Header, unique: u64 },
    /// The first request of a connection.
    Init { header: Header, offer: Offer },
    /// The file system ends.
    Destroy(Header),
    /// What this crate does not know or refuses.
    Unknown(Header),
    /// An answer to a notice that this crate does not send; not answered.
    NotifyReply,
}

/// What the kernel offers in INIT (`fuse_init_in`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    pub(crate) flags: u64,
}

/// Inodes and how many of their lookups are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgets<'a> {
    One { node: u64, lookups: u64 },
    Many(&'a [u8]),
}

impl Forgets<'_> {
    /// Calls for each inode.
    pub(crate) fn each(&self, mut told: impl FnMut(u64, u64)) {
        match self {
            Forgets::One { node, lookups } => told(*node, *lookups),
            Forgets::Many(bytes) => {
                for bytes in bytes.chunks_exact(size_of::<abi::ForgetOne>()) {
                    if let Ok(one) = abi::ForgetOne::read_from_bytes(bytes) {
                        told(one.nodeid, one.nlookup);
                    }
                }
            }
        }
    }
}

/// A message that is not as the protocol has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request of the kernel (opcode {opcode}) is not as the protocol has it: {why}")]
pub(crate) struct Malformed {
    /// The request that can be answered with an error, if that much is known.
    pub(crate) unique: Option<u64>,
    pub(crate) opcode: u32,
    pub(crate) why: &'static str,
}

/// A request as a transport has it: the header, the first argument, and what follows it. On `/dev/fuse` the first
/// argument and the rest are one piece; in a ring they lie apart (`fuse_uring_req_header`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) header: abi::InHeader,
    /// The first argument in a place of its own.
    pub(crate) argument: Option<&'a [u8]>,
    /// The rest, or all.
    pub(crate) rest: &'a [u8],
}

/// Reads one message as read(2) on `/dev/fuse` gives it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Incoming<'_>, Malformed> {
    let (header, rest) = abi::InHeader::read_from_prefix(bytes).map_err(|_| Malformed {
        unique: None,
        opcode: 0,
        why: "shorter than its header",
    })?;
    if header.len as usize != bytes.len() {
        return Err(malformed(&header, "its length is not what was read"));
    }
    decode_parts(Parts { header, argument: None, rest })
}

/// Reads one message that lies in pieces.
pub(crate) fn decode_parts(parts: Parts<'_>) -> Result<Incoming<'_>, Malformed> {
    let header = parts.header;
    let mut reader = Reader { argument: parts.argument, rest: parts.rest };
    let extension = usize::from(header.total_extlen) * EXTENSION_UNIT_BYTES;
    let Some(kept) = reader.rest.len().checked_sub(extension) else {
        return Err(malformed(&header, "its extensions are longer than itself"));
    };
    reader.rest = &reader.rest[..kept];
    incoming(&header, &mut reader).map_err(|why| malformed(&header, why))
}

fn malformed(header: &abi::InHeader, why: &'static str) -> Malformed {
    let silent =
        matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY);
    let unique = Some(header.unique).filter(|unique| *unique != 0 && !silent);
    Malformed { unique, opcode: header.opcode, why }
}

type Result<T, E = &'static str> = std::result::Result<T, E>;

fn incoming<'a>(raw: &abi::InHeader, reader: &mut Reader<'a>) -> Result<Incoming<'a>> {
    let header =
        Header { opcode: raw.opcode, unique: raw.unique, node: raw.nodeid, uid: raw.uid, gid: raw.gid, pid: raw.pid };
    Ok(match raw.opcode {
        opcode::FORGET => {
            let one: abi::ForgetIn = reader.fixed()?;
            Incoming::Forget(Forgets::One { node: raw.nodeid, lookups: one.nlookup })
        }
        opcode::BATCH_FORGET => {
            let many: abi::BatchForgetIn = reader.fixed()?;
            let length = (many.count as usize).checked_mul(size_of::<abi::ForgetOne>()).ok_or(TOO_MANY)?;
            Incoming::Forget(Forgets::Many(reader.bytes(length)?))
        }
        opcode::INTERRUPT => {
            let interrupt: abi::InterruptIn = reader.fixed()?;
            Incoming::Interrupt { interrupt: header, unique: interrupt.unique }
        }
        opcode::INIT => Incoming::Init { header, offer: offer(reader)? },
        opcode::DESTROY => Incoming::Destroy(header),
        opcode::NOTIFY_REPLY => Incoming::NotifyReply,
        _ => match operation(raw.opcode, reader)? {
            Some(_) if raw.unique == 0 => return Err("it has no number"),
            Some(operation) => Incoming::Request(Request { header, operation }),
            None => Incoming::Unknown(header),
        },
    })
}

fn offer(reader: &mut Reader<'_>) -> Result<Offer> {
    let first: abi::InitIn = reader.fixed()?;
    // The second half of the flags is there when the first says so (FUSE_INIT_EXT).
    let extended = first.flags & (1 << 30) != 0;
    let second = if extended { u32::read_from_prefix(reader.rest).map_err(|_| SHORT)?.0 } else { 0 };
    Ok(Offer {
        major: first.major,
        minor: first.minor,
        max_readahead: first.max_readahead,
        flags: u64::from(second) << 32 | u64::from(first.flags),
    })
}

/// `None` for what this crate does not know or refuses.
fn operation<'a>(code: u32, reader: &mut Reader<'a>) -> Result<Option<Operation<'a>>> {
    if let Some(operation) = operation_on_names(code, reader)? {
        return Ok(Some(operation));
    }
    if let Some(operation) = operation_on_files(code, reader)? {
        return Ok(Some(operation));
    }
    Ok(Some(match code {
        opcode::GETATTR => {
            let asked: abi::GetattrIn = reader.fixed()?;
            Operation::Getattr { handle: handle_of(asked.getattr_flags, asked.fh) }
        }
        opcode::SETATTR => Operation::Setattr(changes(&reader.fixed()?)),
        opcode::READLINK => Operation::Readlink,
        opcode::STATFS => Operation::Statfs,
        opcode::SETXATTR => {
            let asked: abi::SetxattrIn = reader.fixed()?;
            let name = reader.text()?;
            Operation::Setxattr { name, value: reader.bytes(asked.size as usize)?, flags: asked.flags }
        }
        opcode::GETXATTR => {
            let asked: abi::GetxattrIn = reader.fixed()?;
            Operation::Getxattr { name: reader.text()?, size: asked.size }
        }
        opcode::LISTXATTR => {
            let asked: abi::GetxattrIn = reader.fixed()?;
            Operation::Listxattr { size: asked.size }
        }
        opcode::REMOVEXATTR => Operation::Removexattr(reader.text()?),
        opcode::GETLK => Operation::Getlk(lock(&reader.fixed()?)),
        opcode::SETLK => Operation::Setlk(lock(&reader.fixed()?)),
        opcode::SETLKW => Operation::Setlkw(lock(&reader.fixed()?)),
        opcode::ACCESS => {
            let asked: abi::AccessIn = reader.fixed()?;
            Operation::Access { mask: asked.mask }
        }
        opcode::SYNCFS => Operation::Syncfs,
        opcode::STATX => {
            let asked: abi::StatxIn = reader.fixed()?;
            let handle = handle_of(asked.getattr_flags, asked.fh);
            Operation::Statx { handle, flags: asked.sx_flags, mask: asked.sx_mask }
        }
        // Refused: no file here has commands of its own, nor anything to wait for but reads that wait by themselves.
        opcode::IOCTL | opcode::POLL => return Ok(None),
        _ => return Ok(None),
    }))
}

fn operation_on_names<'a>(code: u32, reader: &mut Reader<'a>) -> Result<Option<Operation<'a>>> {
    Ok(Some(match code {
        opcode::LOOKUP => Operation::Lookup(reader.name()?),
        opcode::SYMLINK => {
            let name = reader.name()?;
            Operation::Symlink { name, target: reader.text()? }
        }
        opcode::MKNOD => {
            let asked: abi::MknodIn = reader.fixed()?;
            Operation::Mknod { name: reader.name()?, mode: asked.mode, rdev: asked.rdev, umask: asked.umask }
        }
        opcode::MKDIR => {
            let asked: abi::MkdirIn = reader.fixed()?;
            Operation::Mkdir { name: reader.name()?, mode: asked.mode, umask: asked.umask }
        }
        opcode::UNLINK => Operation::Unlink(reader.name()?),
        opcode::RMDIR => Operation::Rmdir(reader.name()?),
        opcode::RENAME => {
            let asked: abi::RenameIn = reader.fixed()?;
            let name = reader.name()?;
            Operation::Rename { name, new_parent: asked.newdir, new_name: reader.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let asked: abi::Rename2In = reader.fixed()?;
            let name = reader.name()?;
            Operation::Rename { name, new_parent: asked.newdir, new_name: reader.name()?, flags: asked.flags }
        }
        opcode::LINK => {
            let asked: abi::LinkIn = reader.fixed()?;
            Operation::Link { node: asked.oldnodeid, name: reader.name()? }
        }
        opcode::CREATE => {
            let asked: abi::CreateIn = reader.fixed()?;
            Operation::Create { name: reader.name()?, flags: asked.flags, mode: asked.mode, umask: asked.umask }
        }
        // The kernel sends a name as well (that of the root, "/"); it means nothing.
        opcode::TMPFILE => {
            let asked: abi::CreateIn = reader.fixed()?;
            Operation::Tmpfile { flags: asked.flags, mode: asked.mode, umask: asked.umask }
        }
        _ => return Ok(None),
    }))
}

fn operation_on_files<'a>(code: u32, reader: &mut Reader<'a>) -> Result<Option<Operation<'a>>> {
    Ok(Some(match code {
        opcode::OPEN => {
            let asked: abi::OpenIn = reader.fixed()?;
            Operation::Open { flags: asked.flags, kill_suidgid: asked.open_flags & abi::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::OPENDIR => {
            let asked: abi::OpenIn = reader.fixed()?;
            Operation::Opendir { flags: asked.flags }
        }
        opcode::READ => Operation::Read(read(&reader.fixed()?)),
        opcode::READDIR => Operation::Readdir(read(&reader.fixed()?)),
        opcode::READDIRPLUS => Operation::Readdirplus(read(&reader.fixed()?)),
        opcode::WRITE => {
            let asked: abi::WriteIn = reader.fixed()?;
            Operation::Write {
                handle: asked.fh,
                offset: asked.offset,
                data: reader.bytes(asked.size as usize)?,
                flags: asked.flags,
                lock_owner: Some(asked.lock_owner).filter(|_| asked.write_flags & abi::LOCKOWNER != 0),
                cached: asked.write_flags & abi::WRITE_CACHE != 0,
                kill_suidgid: asked.write_flags & abi::WRITE_KILL_SUIDGID != 0,
            }
        }
        opcode::RELEASE => {
            let asked: abi::ReleaseIn = reader.fixed()?;
            Operation::Release {
                handle: asked.fh,
                flags: asked.flags,
                lock_owner: asked.lock_owner,
                flush: asked.release_flags & abi::RELEASE_FLUSH != 0,
                unlock: asked.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0,
            }
        }
        opcode::RELEASEDIR => {
            let asked: abi::ReleaseIn = reader.fixed()?;
            Operation::Releasedir { handle: asked.fh }
        }
        opcode::FSYNC | opcode::FSYNCDIR => {
            let asked: abi::FsyncIn = reader.fixed()?;
            let (handle, data_only) = (asked.fh, asked.fsync_flags & abi::FSYNC_FDATASYNC != 0);
            if code == opcode::FSYNC {
                Operation::Fsync { handle, data_only }
            } else {
                Operation::Fsyncdir { handle, data_only }
            }
        }
        opcode::FLUSH => {
            let asked: abi::FlushIn = reader.fixed()?;
            Operation::Flush { handle: asked.fh, lock_owner: asked.lock_owner }
        }
        opcode::FALLOCATE => {
            let asked: abi::FallocateIn = reader.fixed()?;
            let (handle, mode) = (asked.fh, asked.mode);
            Operation::Fallocate { handle, offset: asked.offset, length: asked.length, mode }
        }
        opcode::LSEEK => {
            let asked: abi::LseekIn = reader.fixed()?;
            Operation::Lseek { handle: asked.fh, offset: asked.offset, whence: asked.whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let asked: abi::CopyFileRangeIn = reader.fixed()?;
            Operation::CopyFileRange {
                from: asked.fh_in,
                from_offset: asked.off_in,
                to_node: asked.nodeid_out,
                to: asked.fh_out,
                to_offset: asked.off_out,
                length: asked.len,
                flags: asked.flags,
            }
        }
        _ => return Ok(None),
    }))
}

fn handle_of(flags: u32, handle: u64) -> Option<u64> {
    Some(handle).filter(|_| flags & abi::GETATTR_FH != 0)
}

fn read(asked: &abi::ReadIn) -> Read {
    Read {
        handle: asked.fh,
        offset: asked.offset,
        size: asked.size,
        flags: asked.flags,
        lock_owner: Some(asked.lock_owner).filter(|_| asked.read_flags & abi::LOCKOWNER != 0),
    }
}

fn lock(asked: &abi::LkIn) -> Lock {
    let abi::FileLock { start, end, kind, pid } = asked.lock;
    let family = if asked.lk_flags & abi::LK_FLOCK != 0 { LockFamily::Flock } else { LockFamily::Posix };
    Lock { handle: asked.fh, owner: asked.owner, family, range: LockRange { start, end, kind, pid } }
}

/// The bits are `FATTR_*`.
fn changes(asked: &abi::SetattrIn) -> Changes {
    let has = |bit: u32| asked.valid & (1 << bit) != 0;
    let moment = |bit, now: Option<u32>, seconds: u64, nanoseconds| match now {
        _ if !has(bit) => None,
        Some(now) if has(now) => Some(Moment::Now),
        _ => Some(Moment::At { seconds: seconds.cast_signed(), nanoseconds }),
    };
    Changes {
        handle: has(6).then_some(asked.fh),
        mode: has(0).then_some(asked.mode),
        uid: has(1).then_some(asked.uid),
        gid: has(2).then_some(asked.gid),
        size: has(3).then_some(asked.size),
        accessed: moment(4, Some(7), asked.atime, asked.atimensec),
        modified: moment(5, Some(8), asked.mtime, asked.mtimensec),
        changed: moment(10, None, asked.ctime, asked.ctimensec),
        lock_owner: has(9).then_some(asked.lock_owner),
        kill_suidgid: has(11),
    }
}

/// Takes arguments off the front of a request.
struct Reader<'a> {
    argument: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A structure.
    fn fixed<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T> {
        if let Some(argument) = self.argument.take() {
            return Ok(T::read_from_prefix(argument).map_err(|_| SHORT)?.0);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| SHORT)?;
        self.rest = rest;
        Ok(value)
    }

    /// Bytes up to a NUL, which goes as well.
    fn text(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or("a name has no end")?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(text)
    }

    /// The name of an entry.
    fn name(&mut self) -> Result<&'a [u8]> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err("a name is not one");
        }
        Ok(name)
    }

    /// So many bytes.
    fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or("data are shorter than announced")?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// `total_extlen` counts these.
const EXTENSION_UNIT_BYTES: usize = 8;
const SHORT: &str = "an argument is too short";
const TOO_MANY: &str = "it announces more than memory holds";

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
