//! What the example `door` of weft-fusedev answers, answered through fuser: `fuser-door DIRECTORY`.

use std::ffi::OsStr;
use std::io::{Error, Result};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

struct Door;

fn attributes(node: INodeNo) -> FileAttr {
    let (kind, perm, size) = match node {
        INodeNo::ROOT => (FileType::Directory, 0o755, 0),
        _ => (FileType::RegularFile, 0o644, CONTENT.len() as u64),
    };
    FileAttr {
        ino: node,
        size,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Door {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> Result<()> {
        config
            .add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ASYNC_READ)
            .map_err(|missing| Error::other(format!("the kernel lacks {missing:?}")))
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "memory" {
            reply.entry_with_ttls(&Duration::ZERO, &LONG, &attributes(MEMORY), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &attributes(node));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let rest = usize::try_from(offset).ok().and_then(|offset| CONTENT.get(offset..)).unwrap_or_default();
        reply.data(&rest[..rest.len().min(size as usize)]);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).ok_or_else(|| Error::other("fuser-door DIRECTORY"))?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("door".to_owned()), MountOption::RO];
    fuser::mount(Door, directory, &config)
}

const MEMORY: INodeNo = INodeNo(2);
const CONTENT: [u8; 4096] = [7; 4096];
const LONG: Duration = Duration::from_secs(3600);
