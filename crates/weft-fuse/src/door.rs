//! The first door: the crate `fuser`, driving a [`Handler`].
//!
//! What it lacks (interrupts, flock told apart, io_uring, unknown kinds in listings) another door can bring behind
//! the same trait.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackingId, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request,
};
use parking_lot::Mutex;
use weft_remote::{Caller, FileKind};
use weft_vfs::{DirectoryName, HandleId, NodeId, Snapshot, Stat};

use crate::Errno;
use crate::backing::{Backings, Mode};
use crate::drive::Driver;
use crate::handler::{EntryReply, Handler};
use crate::meter::Operation;

/// A file system on `/dev/fuse` by way of `fuser`.
pub(crate) struct Door<H> {
    handler: Arc<H>,
    driver: Driver,
    backings: Arc<Backings<BackingId>>,
    directories: Arc<Directories>,
    passthrough: bool,
}

/// The directories that are open, each with its names as they were when it was opened.
#[derive(Default)]
struct Directories {
    open: Mutex<HashMap<u64, Arc<Snapshot>>>,
    last: AtomicU64,
}

impl<H: Handler> Door<H> {
    pub(crate) fn new(handler: Arc<H>, driver: Driver, passthrough: bool) -> Door<H> {
        let backings = Arc::new(Backings::new(passthrough));
        Door { handler, driver, backings, directories: Arc::default(), passthrough }
    }

    /// The modes of open inodes, for those who tell the kernel what to forget.
    pub(crate) fn backings(&self) -> Arc<Backings<BackingId>> {
        self.backings.clone()
    }
}

impl<H: Handler> Filesystem for Door<H> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wanted in WANTED_FLAGS {
            if config.add_capabilities(wanted).is_err() {
                tracing::debug!(?wanted, "this kernel does not offer a flag");
            }
        }
        if self.passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            // The depth must be set for backing files to be taken; 1 is for backing files that are not stacked.
            let _ = config.set_max_stack_depth(1);
        }
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let asked = self.driver.meter.begin(Operation::Lookup, parent.0, request);
        let found = self.handler.lookup(caller(request), NodeId(parent.0), name.as_bytes().to_vec());
        self.driver.drive(asked, found, move |answer| match answer {
            Ok(EntryReply::Found { attributes, ttl }) => {
                reply.entry_with_ttls(&attributes.ttl, &ttl, &file_attr(&attributes), GENERATION);
            }
            Ok(EntryReply::Absent { ttl }) if ttl.is_zero() => reply.error(fuser::Errno::ENOENT),
            // An entry with inode 0 tells the kernel that the name is absent for that long (fuse.h).
            Ok(EntryReply::Absent { ttl }) => reply.entry_with_ttls(&ttl, &ttl, &absent_attr(), GENERATION),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let asked = self.driver.meter.begin(Operation::Getattr, ino.0, request);
        let handle = fh.map(|fh| HandleId(fh.0));
        let attributes = self.handler.attributes(caller(request), NodeId(ino.0), handle);
        self.driver.drive(asked, attributes, move |answer| match answer {
            Ok(attributes) => reply.attr(&attributes.ttl, &file_attr(&attributes)),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let asked = self.driver.meter.begin(Operation::Open, ino.0, request);
        let opened = self.handler.open(caller(request), NodeId(ino.0));
        let backings = self.backings.clone();
        let handler = self.handler.clone();
        self.driver.drive(asked, opened, move |answer| match answer {
            Ok(opened) => answer_open(&*handler, &backings, NodeId(ino.0), &opened, reply),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let asked = self.driver.meter.begin(Operation::Read, ino.0, request);
        let read = self.handler.read(caller(request), HandleId(fh.0), offset, size as usize);
        self.driver.drive(asked, read, move |answer| match answer {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let asked = self.driver.meter.begin(Operation::Release, ino.0, request);
        self.backings.close(HandleId(fh.0));
        self.handler.close(HandleId(fh.0));
        asked.answered(None);
        reply.ok();
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let asked = self.driver.meter.begin(Operation::Opendir, ino.0, request);
        let listed = self.handler.open_directory(caller(request), NodeId(ino.0));
        let directories = self.directories.clone();
        self.driver.drive(asked, listed, move |answer| match answer {
            Ok(snapshot) => {
                let id = directories.last.fetch_add(1, Ordering::Relaxed) + 1;
                directories.open.lock().insert(id, Arc::new(snapshot));
                reply.opened(FileHandle(id), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno.into()),
        });
    }

    fn readdir(&self, request: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let asked = self.driver.meter.begin(Operation::Readdir, ino.0, request);
        let Some(snapshot) = self.directories.get(fh) else {
            asked.answered(Some(Errno(rustix::io::Errno::BADF)));
            return reply.error(fuser::Errno::EBADF);
        };
        for (next, row) in rows(&snapshot, NodeId(ino.0), offset) {
            if reply.add(INodeNo(row.node.0), next, file_type(row.kind), OsStr::from_bytes(row.name)) {
                break;
            }
        }
        asked.answered(None);
        reply.ok();
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let asked = self.driver.meter.begin(Operation::Readdirplus, ino.0, request);
        let Some(snapshot) = self.directories.get(fh) else {
            asked.answered(Some(Errno(rustix::io::Errno::BADF)));
            return reply.error(fuser::Errno::EBADF);
        };
        for (next, row) in rows(&snapshot, NodeId(ino.0), offset) {
            let dots = next <= DOTS;
            let known = if dots { None } else { self.handler.attributes_known(row.node) };
            let attributes = known.unwrap_or_else(|| unknown_stat(&row));
            let name = OsStr::from_bytes(row.name);
            let full = reply.add(INodeNo(row.node.0), next, name, &attributes.ttl, &file_attr(&attributes), GENERATION);
            if full {
                break;
            }
        }
        asked.answered(None);
        reply.ok();
    }

    fn releasedir(&self, request: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let asked = self.driver.meter.begin(Operation::Releasedir, ino.0, request);
        self.directories.open.lock().remove(&fh.0);
        asked.answered(None);
        reply.ok();
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let asked = self.driver.meter.begin(Operation::Statfs, ino.0, request);
        let space = self.handler.space();
        let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
        asked.answered(None);
        reply.statfs(blocks(space.total), blocks(space.free), blocks(space.free), 0, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let asked = self.driver.meter.begin(Operation::Getxattr, ino.0, request);
        if !name.as_bytes().starts_with(b"user.") {
            // Labels and access lists are nothing that this file system has, which is another answer than that there
            // are none here: `ls -l` then asks for them once, not twice for each name.
            asked.answered(Some(Errno(rustix::io::Errno::OPNOTSUPP)));
            return reply.error(fuser::Errno::EOPNOTSUPP);
        }
        let found = self.handler.extended(NodeId(ino.0), name.as_bytes());
        asked.answered(match &found {
            Ok(Some(value)) if size > 0 && value.len() > size as usize => Some(Errno(rustix::io::Errno::RANGE)),
            Ok(Some(_)) => None,
            Ok(None) => Some(Errno(rustix::io::Errno::NODATA)),
            Err(errno) => Some(*errno),
        });
        match found {
            Ok(Some(value)) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
            Ok(Some(value)) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
            Ok(Some(value)) => reply.data(&value),
            Ok(None) => reply.error(fuser::Errno::NO_XATTR),
            Err(errno) => reply.error(errno.into()),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.driver.meter.begin(Operation::Listxattr, ino.0, request).answered(None);
        // The attributes are there for who asks by name; listed, `cp -a` would copy them to other file systems.
        if size == 0 { reply.size(0) } else { reply.data(&[]) }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }
}

fn answer_open<H: Handler>(
    handler: &H,
    backings: &Backings<BackingId>,
    node: NodeId,
    opened: &crate::OpenReply,
    reply: ReplyOpen,
) {
    let handle = FileHandle(opened.handle.0);
    let make = |object: &weft_vfs::Object| {
        let file = object.backing().ok_or(std::io::ErrorKind::NotFound)?;
        reply.open_backing(file)
    };
    let mode = backings.open(node, opened.handle, opened.backing.as_ref(), opened.bypass_pages, make);
    let keep = if opened.keep_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
    match mode {
        Mode::Cached => reply.opened(handle, keep | FopenFlags::FOPEN_NOFLUSH),
        Mode::Bypass => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH),
        Mode::Passthrough(id) => reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &id),
        Mode::Refused => {
            handler.close(opened.handle);
            reply.error(Errno::from(weft_vfs::VfsError::OldVersionOpen).into());
        }
    }
}

impl Directories {
    fn get(&self, fh: FileHandle) -> Option<Arc<Snapshot>> {
        self.open.lock().get(&fh.0).cloned()
    }
}

/// The rows of a listing from `offset` on, each with the offset of the row after it; `.` and `..` come first.
fn rows(snapshot: &Snapshot, dir: NodeId, offset: u64) -> impl Iterator<Item = (u64, DirectoryName<'_>)> {
    let dots = [&b"."[..], b".."].into_iter().zip(1..=DOTS);
    let dots = dots.map(move |(name, next)| (next, DirectoryName { name, node: dir, kind: FileKind::Directory }));
    let first = usize::try_from(offset.saturating_sub(DOTS)).unwrap_or(usize::MAX);
    let names = (first..snapshot.len()).filter_map(|index| {
        let row = snapshot.get(index)?;
        Some((index as u64 + DOTS + 1, row))
    });
    dots.filter(move |(next, _)| *next > offset).chain(names)
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        // fuser cannot say "unknown"; the lookup that precedes any use corrects it.
        FileKind::File | FileKind::Unknown => FileType::RegularFile,
    }
}

fn file_attr(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.node.0),
        size: stat.size,
        blocks: stat.size.div_ceil(512),
        atime: stat.modified,
        mtime: stat.modified,
        ctime: stat.modified,
        crtime: stat.modified,
        kind: file_type(stat.kind),
        perm: stat.mode,
        // 1 for directories too: the number of subdirectories is not known (find(1) takes 1 for that).
        nlink: 1,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// A row whose attributes must be asked for: valid for no time, so the kernel looks the name up before any use.
fn unknown_stat(row: &DirectoryName<'_>) -> Stat {
    Stat {
        node: row.node,
        kind: row.kind,
        size: 0,
        modified: UNIX_EPOCH,
        mode: if row.kind == FileKind::Directory { 0o555 } else { 0o444 },
        uid: 0,
        gid: 0,
        ttl: Duration::ZERO,
    }
}

fn absent_attr() -> FileAttr {
    let stat = Stat {
        node: NodeId(0),
        kind: FileKind::File,
        size: 0,
        modified: UNIX_EPOCH,
        mode: 0,
        uid: 0,
        gid: 0,
        ttl: Duration::ZERO,
    };
    file_attr(&stat)
}

impl From<Errno> for fuser::Errno {
    fn from(errno: Errno) -> fuser::Errno {
        fuser::Errno::from_i32(errno.0.raw_os_error())
    }
}

/// Asked for by name, one by one, so that a kernel without one of them still gets the others.
const WANTED_FLAGS: [InitFlags; 7] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
];
/// Node ids are never used for another file, so one generation does.
const GENERATION: Generation = Generation(0);
/// Largest request and reply body in bytes.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may send without anybody waiting for them (read-ahead).
const BACKGROUND_REQUESTS_MAX: u16 = 64;
/// Unit of `df` and preferred size of reads, in bytes.
const BLOCK_BYTES: u32 = 4096;
/// Offsets taken by `.` and `..`.
const DOTS: u64 = 2;
