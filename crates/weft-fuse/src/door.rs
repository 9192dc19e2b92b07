//! The door: requests of the kernel to a [`Handler`], its answers back.

mod again;
mod content;
mod directories;
mod extended;
mod files;
mod locks;
mod names;
mod stat;

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno as E;
use weft_fusedev::{Backings as BackingFiles, Header, Interrupted, Operation as Asks, Reply, Request, Serve, Space};
use weft_remote::{Caller, FileKind, NewMode};
use weft_vfs::{HandleId, NewNode, NodeId, Removal, Write};

use self::directories::Rows;
use crate::Errno;
use crate::attributes::{attributes_of, entry_of};
use crate::backed::Backed;
use crate::backing::Backings;
use crate::directory::Directories;
use crate::drive::Driver;
use crate::handler::{Answer, EntryReply, Handler};
use crate::lock_table::{LockTable, Patience};
use crate::meter::Operation;
use crate::pages::Pages;
use crate::reads::Reads;
use crate::roll::{Key, Roll};

use files::Files;

/// A file system on a connection to the kernel.
pub(crate) struct Door<H> {
    handler: Arc<H>,
    driver: Driver,
    reads: Arc<Reads<H>>,
    files: Arc<Files>,
    directories: Arc<Directories>,
    locks: Arc<LockTable<H>>,
    roll: Arc<Roll>,
    manner: Manner,
    /// When it began to serve.
    since: SystemTime,
}

/// How a mount is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// The kernel reads backing files by itself.
    pub(crate) passthrough: bool,
    /// It reads files without opening them.
    pub(crate) unopened: bool,
    /// It lets nobody change anything.
    pub(crate) read_only: bool,
    /// It leaves modes to us.
    pub(crate) modes_here: bool,
    /// It asks for locks of programs.
    pub(crate) locks: bool,
    /// It asks for access lists, and leaves the umask to the file system.
    pub(crate) access_lists: bool,
}

impl<H: Handler> Door<H> {
    /// What it holds is kept on `roll`.
    pub(crate) fn new(
        handler: Arc<H>,
        driver: Driver,
        backings: BackingFiles,
        pages: Pages,
        manner: Manner,
        roll: Arc<Roll>,
    ) -> Door<H> {
        let modes = Arc::new(Backings::new(manner.passthrough));
        let files = Arc::new(Files { modes, backings, pages, roll: roll.clone(), told_of_closes: manner.locks });
        let locks = Arc::new(LockTable::new(handler.clone(), roll.clone(), driver.runtime().clone()));
        let reads = Arc::new(Reads::new(handler.clone(), driver.clone(), manner.unopened));
        Door {
            handler,
            driver,
            reads,
            files,
            directories: Arc::default(),
            locks,
            roll,
            manner,
            since: SystemTime::now(),
        }
    }

    /// What answers.
    pub(crate) fn handler(&self) -> &H {
        &self.handler
    }

    /// The directories that are open.
    pub(crate) fn directories(&self) -> &Arc<Directories> {
        &self.directories
    }

    /// The kernel asks again for what a former daemon may have opened for it already: that is nobody's. Tells of which
    /// inode it was.
    fn close_unanswered(&self, header: &Header) -> Option<NodeId> {
        let (key, node) = header.is_resent().then(|| self.roll.unanswered(header.unique)).flatten()?;
        match key {
            Key::File(handle) => self.files.close(&*self.handler, HandleId(handle)),
            Key::Directory(handle) => self.close_directory(handle),
            Key::Backing(_) | Key::Change(_) | Key::Locks(..) => {}
        }
        Some(NodeId(node))
    }

    /// What something new is to allow. Where the kernel applies the umask, it has done so.
    fn new_mode(&self, mode: u32, umask: u32) -> NewMode {
        let umask = if self.manner.access_lists { stat::permissions(umask) } else { 0 };
        NewMode { asked: stat::permissions(mode), umask }
    }

    /// The locks of programs.
    pub(crate) fn locks(&self) -> &Arc<LockTable<H>> {
        &self.locks
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
            Asks::Getattr { handle } => self.getattr(header, handle.filter(|_| !self.manner.unopened), reply),
            Asks::Readlink => self.read_link(header, reply),
            Asks::Access { mask } if self.manner.modes_here => self.access(header, mask, reply),
            // The kernel asks no more, neither to open files nor to close them, and keeps their pages.
            Asks::Open { .. } if self.manner.unopened => unknown(reply),
            Asks::Open { flags, kill_suidgid } => self.open(header, flags, kill_suidgid, reply),
            Asks::Read(read) => self.reads.read(*header, read, reply),
            Asks::Release { handle, .. } => self.release(header, handle, reply),
            Asks::Opendir { .. } => self.opendir(header, reply),
            Asks::Readdir(read) => self.readdir(header, read, Rows::Names, reply),
            Asks::Readdirplus(read) => self.readdir(header, read, Rows::Entries, reply),
            Asks::Releasedir { handle } => self.releasedir(header, handle, reply),
            Asks::Statfs => self.statfs(header, reply),
            Asks::Getxattr { name, size } => self.getxattr(header, name, size, reply),
            Asks::Listxattr { size } => self.listxattr(header, size, reply),
            // Nothing is to be made durable, and nothing known of holes, where all is only read: asked once.
            Asks::Flush { .. } | Asks::Fsync { .. } | Asks::Fsyncdir { .. } | Asks::Lseek { .. }
                if self.manner.read_only =>
            {
                unknown(reply)
            }
            asked => self.change(header, asked, reply),
        }
    }

    fn interrupt(&self, unique: u64) -> Interrupted {
        self.driver.interrupt(unique);
        Interrupted::Taken
    }
}

impl<H: Handler> Door<H> {
    /// Requests of those who write.
    fn change(&self, header: &Header, asked: Asks<'_>, reply: Reply) {
        match asked {
            Asks::Setattr(changes) => self.setattr(header, &changes, reply),
            Asks::Symlink { name, target } => self.symlink(header, name, target, reply),
            Asks::Mknod { name, mode, rdev, umask } => {
                self.mknod(header, name, mode, (self.new_mode(mode, umask), rdev), reply);
            }
            Asks::Mkdir { name, mode, umask } => {
                let new = NewNode { kind: FileKind::Directory, mode: self.new_mode(mode, umask), device: 0 };
                self.make(Operation::Mkdir, header, name, new, reply);
            }
            Asks::Unlink(name) => self.remove(Operation::Unlink, header, name, Removal::File, reply),
            Asks::Rmdir(name) => self.remove(Operation::Rmdir, header, name, Removal::Directory, reply),
            Asks::Rename { name, new_parent, new_name, flags } => {
                self.rename(header, name, (NodeId(new_parent), new_name), flags, reply);
            }
            Asks::Link { node, name } => self.link(header, NodeId(node), name, reply),
            Asks::Tmpfile { mode, umask, .. } => self.create_nameless(header, self.new_mode(mode, umask), reply),
            Asks::Create { name, flags, mode, umask } => {
                self.create(header, name, flags, self.new_mode(mode, umask), reply);
            }
            Asks::Write { handle, offset, data, flags, kill_suidgid, cached: unseen, .. } => {
                // The room that they came in is the next request's.
                let bytes = Bytes::copy_from_slice(data);
                let appends = !unseen && OFlags::from_bits_retain(flags).contains(OFlags::APPEND);
                self.write(header, HandleId(handle), Write { offset, bytes, kill_suidgid, unseen, appends }, reply);
            }
            Asks::Flush { handle, lock_owner } => self.flush(header, HandleId(handle), lock_owner, reply),
            Asks::Getlk(lock) if self.manner.locks => self.getlk(header, &lock, reply),
            Asks::Setlk(lock) if self.manner.locks => self.setlk(header, &lock, Patience::None, reply),
            Asks::Setlkw(lock) if self.manner.locks => self.setlk(header, &lock, Patience::Endless, reply),
            Asks::Fsync { handle, .. } => self.fsync(header, HandleId(handle), reply),
            Asks::Fsyncdir { .. } => self.fsyncdir(header, reply),
            Asks::Fallocate { handle, offset, length, mode } => {
                self.fallocate(header, HandleId(handle), (offset, length), mode, reply);
            }
            Asks::Lseek { handle, offset, whence } => self.lseek(header, HandleId(handle), offset, whence, reply),
            Asks::Setxattr { name, value, flags } => self.setxattr(header, name, value, flags, reply),
            Asks::Removexattr(name) => self.removexattr(header, name, reply),
            // Not there: the kernel does without, and asks most of them no more.
            _ => unknown(reply),
        }
    }

    /// Waits for what has nothing to tell but that it is done.
    fn finish(
        &self,
        operation: Operation,
        header: &Header,
        request: impl Future<Output = Answer<()>> + Send + 'static,
        reply: Reply,
    ) {
        self.finish_by(&self.driver, operation, header, request, reply);
    }

    /// The same, of what is sent: it goes on also when nobody waits for it.
    fn finish_sending(
        &self,
        operation: Operation,
        header: &Header,
        request: impl Future<Output = Answer<()>> + Send + 'static,
        reply: Reply,
    ) {
        let request = self.driver.to_its_end(request);
        self.finish_by(&self.driver.without_deadline(), operation, header, request, reply);
    }

    /// For a change of a file: where that is being sent it waits for the end of this, which takes as long as there is to be
    /// sent.
    fn driver_of_change(&self, node: NodeId) -> Driver {
        if self.handler.is_unsent(node) { self.driver.without_deadline() } else { self.driver.clone() }
    }

    fn finish_by(
        &self,
        driver: &Driver,
        operation: Operation,
        header: &Header,
        request: impl Future<Output = Answer<()>> + Send + 'static,
        reply: Reply,
    ) {
        let asked = driver.meter.begin(operation, header);
        driver.drive(asked, header, request, move |answer| {
            match answer {
                Ok(()) => reply.done(),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    /// Answers with an error that is known without asking.
    fn refuse(&self, operation: Operation, header: &Header, errno: E, reply: Reply) {
        self.driver.meter.begin(operation, header).answered(Some(Errno(errno)));
        reply.error(errno.raw_os_error());
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

    fn access(&self, header: &Header, mask: u32, reply: Reply) {
        match self.modes_allow(header, mask) {
            true => self.finish(Operation::Access, header, std::future::ready(Ok(())), reply),
            false => self.refuse(Operation::Access, header, E::ACCESS, reply),
        }
    }

    /// Whether the mode of a file allows whoever asks all of that, where the kernel does not see to it.
    fn modes_allow(&self, header: &Header, wanted: u32) -> bool {
        !self.manner.modes_here || self.handler.modes_allow(caller(header), NodeId(header.node), wanted)
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

    fn statfs(&self, header: &Header, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Statfs, header);
        let space = self.handler.space(caller(header), NodeId(header.node));
        self.driver.drive(asked, header, space, move |answer| {
            match answer {
                Ok(space) => {
                    let blocks = |bytes: u64| bytes / u64::from(crate::attributes::BLOCK_BYTES);
                    reply.space(&Space {
                        blocks: blocks(space.total),
                        blocks_free: blocks(space.free),
                        blocks_available: blocks(space.available),
                        files: space.files,
                        files_free: space.files_free,
                        block_bytes: crate::attributes::BLOCK_BYTES,
                        name_bytes_max: 255,
                    })
                }
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }
}

fn caller(header: &Header) -> Caller {
    Caller { uid: header.uid, gid: header.gid, pid: header.pid }
}

fn unknown(reply: Reply) {
    reply.error(E::NOSYS.raw_os_error());
}
