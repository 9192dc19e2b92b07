//! The door: requests of the kernel to a [`Handler`], its answers back.

use std::sync::Arc;

use rustix::io::Errno as E;
use weft_fusedev::{
    Backings as BackingFiles, Delivery, Header, Interrupted, Opened, Operation as Asks, Read, Reply, Request, Serve,
    Space,
};
use weft_remote::Caller;
use weft_vfs::{HandleId, NodeId, ReadBy};

use crate::Errno;
use crate::attributes::{attributes_of, entry_of};
use crate::backed::Backed;
use crate::backing::{Backings, Mode};
use crate::directory::Directories;
use crate::drive::Driver;
use crate::handler::{EntryReply, Handler};
use crate::meter::Operation;
use crate::pages::Pages;
use crate::reads::Reads;
use crate::roll::{Entry, Key, Roll};

/// A file system on a connection to the kernel.
pub(crate) struct Door<H> {
    handler: Arc<H>,
    driver: Driver,
    reads: Arc<Reads<H>>,
    files: Arc<Files>,
    directories: Arc<Directories>,
    roll: Arc<Roll>,
    /// Files are read without being opened.
    unopened: bool,
}

/// How files are opened.
struct Files {
    modes: Arc<Backings<Backed>>,
    backings: BackingFiles,
    pages: Pages,
    roll: Arc<Roll>,
}

impl<H: Handler> Door<H> {
    /// `passthrough`: whether the kernel reads backing files by itself; `unopened`: whether it reads files without opening
    /// them. What it holds is kept on `roll`.
    pub(crate) fn new(
        handler: Arc<H>,
        driver: Driver,
        backings: BackingFiles,
        pages: Pages,
        passthrough: bool,
        unopened: bool,
        roll: Arc<Roll>,
    ) -> Door<H> {
        let files = Files { modes: Arc::new(Backings::new(passthrough)), backings, pages, roll: roll.clone() };
        let reads = Arc::new(Reads::new(handler.clone(), driver.clone(), unopened));
        Door { handler, driver, reads, files: Arc::new(files), directories: Arc::default(), roll, unopened }
    }

    /// What answers.
    pub(crate) fn handler(&self) -> &H {
        &self.handler
    }

    /// The directories that are open.
    pub(crate) fn directories(&self) -> &Directories {
        &self.directories
    }

    /// The kernel asks again for what a former daemon may have opened for it already: that is nobody's.
    fn close_unanswered(&self, header: &Header) {
        match header.is_resent().then(|| self.roll.unanswered(header.unique)).flatten() {
            Some(Key::File(handle)) => self.close_file(handle),
            Some(Key::Directory(handle)) => self.close_directory(handle),
            Some(Key::Backing(_)) | None => {}
        }
    }

    fn close_file(&self, handle: u64) {
        self.files.modes.close(HandleId(handle));
        self.handler.close(HandleId(handle));
        self.roll.strike(Key::File(handle));
    }

    fn close_directory(&self, handle: u64) {
        self.directories.close(handle);
        self.roll.strike(Key::Directory(handle));
    }

    /// The modes of open inodes, for those who tell the kernel what to forget.
    pub(crate) fn modes(&self) -> Arc<Backings<Backed>> {
        self.files.modes.clone()
    }
}

impl<H: Handler> Serve for Door<H> {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let header = &request.header;
        match request.operation {
            Asks::Lookup(name) => self.lookup(header, name, reply),
            Asks::Getattr { handle } => self.getattr(header, handle.filter(|_| !self.unopened), reply),
            Asks::Readlink => self.read_link(header, reply),
            // The kernel asks no more, neither to open files nor to close them, and keeps their pages.
            Asks::Open { .. } if self.unopened => {
                reply.error(E::NOSYS.raw_os_error());
            }
            Asks::Open { .. } => self.open(header, reply),
            Asks::Read(read) => self.reads.read(*header, read, reply),
            Asks::Release { handle, .. } => self.release(header, handle, reply),
            Asks::Opendir { .. } => self.opendir(header, reply),
            Asks::Readdir(read) => self.readdir(header, &read, reply),
            Asks::Readdirplus(read) => self.readdirplus(header, &read, reply),
            Asks::Releasedir { handle } => self.releasedir(header, handle, reply),
            Asks::Statfs => self.statfs(header, reply),
            Asks::Getxattr { name, size } => self.getxattr(header, name, size, reply),
            Asks::Listxattr { size } => self.listxattr(header, size, reply),
            // Not there in a file system that is only read: the kernel does without, and asks most of them no more.
            _ => {
                reply.error(E::NOSYS.raw_os_error());
            }
        }
    }

    fn interrupt(&self, unique: u64) -> Interrupted {
        self.driver.interrupt(unique);
        Interrupted::Taken
    }
}

impl<H: Handler> Door<H> {
    fn lookup(&self, header: &Header, name: &[u8], reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Lookup, header);
        let found = self.handler.lookup(caller(header), NodeId(header.node), name.to_vec());
        self.driver.drive(asked, header, found, move |answer| {
            match answer {
                Ok(EntryReply::Found { attributes, ttl }) => reply.entry(&entry_of(&attributes, ttl)),
                Ok(EntryReply::Absent { ttl }) => reply.absent(ttl),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    fn getattr(&self, header: &Header, handle: Option<u64>, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Getattr, header);
        let attributes = self.handler.attributes(caller(header), NodeId(header.node), handle.map(HandleId));
        self.driver.drive(asked, header, attributes, move |answer| {
            match answer {
                Ok(stat) => reply.attributes(&attributes_of(&stat), stat.ttl),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    fn read_link(&self, header: &Header, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Readlink, header);
        let said = self.handler.read_link(caller(header), NodeId(header.node));
        self.driver.drive(asked, header, said, move |answer| {
            match answer {
                Ok(target) => reply.data(&target),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    fn open(&self, header: &Header, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Open, header);
        self.close_unanswered(header);
        let (node, unique) = (NodeId(header.node), header.unique);
        let opened = self.handler.open(caller(header), node);
        let (files, handler) = (self.files.clone(), self.handler.clone());
        self.driver.drive(asked, header, opened, move |answer| match answer {
            Ok(opened) => files.answer(&*handler, node, unique, &opened, reply),
            Err(errno) => {
                reply.error(errno.raw());
            }
        });
    }

    fn release(&self, header: &Header, handle: u64, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Release, header);
        self.close_file(handle);
        asked.answered(None);
        reply.done();
    }

    fn opendir(&self, header: &Header, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Opendir, header);
        let listed = self.handler.open_directory(caller(header), NodeId(header.node));
        self.close_unanswered(header);
        let (directories, roll) = (self.directories.clone(), self.roll.clone());
        let Header { node, unique, uid, gid, .. } = *header;
        self.driver.drive(asked, header, listed, move |answer| match answer {
            Ok(snapshot) => {
                let handle = directories.open(snapshot);
                roll.enter(&Entry::Directory { handle, node, unique, uid, gid });
                if reply.opened(Opened { handle, ..Opened::default() }) == Delivery::Gone {
                    directories.close(handle);
                    roll.strike(Key::Directory(handle));
                }
            }
            Err(errno) => {
                reply.error(errno.raw());
            }
        });
    }

    fn readdir(&self, header: &Header, read: &Read, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Readdir, header);
        let snapshot = match self.names_of(read.handle) {
            Ok(snapshot) => snapshot,
            Err(errno) => {
                asked.answered(Some(errno));
                reply.error(errno.raw());
                return;
            }
        };
        asked.answered(None);
        crate::directory::names(&snapshot, NodeId(header.node), read, reply);
    }

    fn readdirplus(&self, header: &Header, read: &Read, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Readdirplus, header);
        let snapshot = match self.names_of(read.handle) {
            Ok(snapshot) => snapshot,
            Err(errno) => {
                asked.answered(Some(errno));
                reply.error(errno.raw());
                return;
            }
        };
        asked.answered(None);
        let known = |node| self.handler.attributes_known(node);
        crate::directory::entries(&snapshot, NodeId(header.node), read, known, reply);
    }

    fn names_of(&self, handle: u64) -> Result<Arc<weft_vfs::Snapshot>, Errno> {
        self.directories.get(handle, |node, caller| self.handler.directory_again(caller, node))
    }

    fn releasedir(&self, header: &Header, handle: u64, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Releasedir, header);
        self.close_directory(handle);
        asked.answered(None);
        reply.done();
    }

    fn statfs(&self, header: &Header, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Statfs, header);
        let space = self.handler.space();
        let blocks = |bytes: u64| bytes / u64::from(crate::attributes::BLOCK_BYTES);
        let (blocks, free) = (blocks(space.total), blocks(space.free));
        asked.answered(None);
        reply.space(&Space {
            blocks,
            blocks_free: free,
            blocks_available: free,
            files: 0,
            files_free: 0,
            block_bytes: crate::attributes::BLOCK_BYTES,
            name_bytes_max: 255,
        });
    }

    fn getxattr(&self, header: &Header, name: &[u8], size: u32, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Getxattr, header);
        // Labels and access lists are nothing that this file system has, which is another answer than that there are
        // none here: `ls -l` then asks for them once, not twice for each name.
        let ours = name.starts_with(b"user.");
        let found = if ours { self.handler.extended(NodeId(header.node), name) } else { Err(Errno(E::OPNOTSUPP)) };
        let found = found.and_then(|value| value.ok_or(Errno(E::NODATA)));
        asked.answered(match &found {
            Ok(value) if size > 0 && value.len() > size as usize => Some(Errno(E::RANGE)),
            Ok(_) => None,
            Err(errno) => Some(*errno),
        });
        match found {
            Ok(value) => reply.extended(&value, size),
            Err(errno) => reply.error(errno.raw()),
        };
    }

    fn listxattr(&self, header: &Header, size: u32, reply: Reply) {
        self.driver.meter.begin(Operation::Listxattr, header).answered(None);
        // The attributes are there for who asks by name; listed, `cp -a` would copy them to other file systems.
        reply.extended(&[], size);
    }
}

impl Files {
    fn answer<H: Handler>(&self, handler: &H, node: NodeId, unique: u64, opened: &crate::OpenReply, reply: Reply) {
        let make = |object: &weft_vfs::Object| {
            let file = object.backing().ok_or(std::io::ErrorKind::NotFound)?;
            let backing = Backed::new(self.backings.open(file)?, self.roll.clone());
            self.roll.enter(&Entry::Backing { id: backing.id(), node: node.0, generation: object.generation() });
            Ok(backing)
        };
        let mode = self.modes.open(node, opened.handle, opened.backing.as_ref(), opened.bypass_pages, make);
        let (flags, backing) = match mode {
            Mode::Cached if opened.keep_pages => {
                self.pages.settle(node);
                (Opened::KEEP_CACHE, None)
            }
            Mode::Cached => match self.pages.give(node, || handler.content_at_hand(opened.handle)) {
                true => (Opened::KEEP_CACHE, None),
                false => (0, None),
            },
            Mode::Bypass => (Opened::DIRECT_IO, None),
            Mode::Passthrough(backing) => (Opened::PASSTHROUGH, Some(backing)),
            Mode::Refused => {
                handler.close(opened.handle);
                reply.error(Errno::from(weft_vfs::VfsError::OldVersionOpen).raw());
                return;
            }
        };
        let backing_id = backing.as_ref().map_or(0, |backing| backing.id());
        let read_by = if backing.is_some() { ReadBy::Kernel } else { ReadBy::Daemon };
        let (handle, record) = (opened.handle.0, opened.record.clone());
        // Before the kernel knows of it: whoever serves next must.
        self.roll.enter(&Entry::File { handle, node: node.0, unique, read_by, record });
        let answer = Opened { handle: opened.handle.0, flags: flags | Opened::NOFLUSH, backing_id };
        if reply.opened(answer) == Delivery::Gone {
            // No release will come.
            self.modes.close(opened.handle);
            handler.close(opened.handle);
            self.roll.strike(Key::File(handle));
        }
    }
}

fn caller(header: &Header) -> Caller {
    Caller { uid: header.uid, gid: header.gid, pid: header.pid }
}
