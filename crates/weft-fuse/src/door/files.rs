//! Files that are opened, and closed.

use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno as E;
use weft_fusedev::{Backings as BackingFiles, Delivery, Header, Opened, Reply};
use weft_remote::NewMode;
use weft_vfs::{HandleId, NodeId, OpenFor, ReadBy};

use super::again::Change;
use super::{Door, caller};
use crate::Errno;
use crate::attributes::entry_of;
use crate::backed::Backed;
use crate::backing::{Backings, KernelInode, Mode};
use crate::handler::{Answer, Attributes, EntryReply, Handler, OpenReply};
use crate::meter::{Asked, Operation};
use crate::pages::Pages;
use crate::roll::{Entry, Key, Roll};

/// How files are opened.
pub(super) struct Files {
    pub(super) modes: Arc<Backings<Backed>>,
    pub(super) backings: BackingFiles,
    pub(super) pages: Pages,
    pub(super) roll: Arc<Roll>,
    /// Who closes a descriptor loses locks by that, also one for reading. Nobody misses it where nothing can be written:
    /// locks of fcntl(2) for reading are in nobody's way, and are given back with the open file.
    pub(super) told_of_closes: bool,
}

/// What a file is opened by: which inode, by which request of the kernel, to write or to read.
#[derive(Clone, Copy)]
struct By {
    node: NodeId,
    unique: u64,
    changing: bool,
}

impl<H: Handler> Door<H> {
    pub(super) fn open(&self, header: &Header, flags: u32, kill_suidgid: bool, reply: Reply) {
        let how = OpenFor { kill_suidgid, ..how_of(flags) };
        let by = By { node: NodeId(header.node), unique: header.unique, changing: how.writing || how.truncating };
        self.close_unanswered(header);
        if !self.modes_allow(header, wanted_of(flags)) {
            return self.refuse(Operation::Open, header, E::ACCESS, reply);
        }
        // Of a file that is opened to be read the kernel looks whether a program is run from it after it has had it cut.
        if how.truncating && !how.writing && self.handler.is_running(by.node) {
            return self.refuse(Operation::Open, header, E::TXTBSY, reply);
        }
        // Asked before the file is cut: an open that cannot be had must leave it alone.
        let reserved = by.changing.then(|| self.files.modes.reserve(self.inode(by.node)));
        if matches!(reserved, Some(None)) {
            return self.refuse(Operation::Open, header, E::TXTBSY, reply);
        }
        let asked = self.driver.meter.begin(Operation::Open, header);
        let opened = self.handler.open(caller(header), by.node, how);
        let (files, handler) = (self.files.clone(), self.handler.clone());
        self.driver.drive(asked, header, opened, move |answer| {
            match answer.and_then(|opened| files.enter(&*handler, by, opened)) {
                Ok(opened) => {
                    if reply.opened(opened) == Delivery::Gone {
                        files.close(&*handler, HandleId(opened.handle));
                    }
                }
                Err(errno) => {
                    reply.error(errno.raw());
                }
            }
            drop(reserved);
        });
    }

    pub(super) fn create(&self, header: &Header, name: &[u8], flags: u32, mode: NewMode, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Create, header);
        let made_before = self.close_unanswered(header);
        let change = self.begin_change(header);
        let (dir, caller) = (NodeId(header.node), caller(header));
        let made = self.handler.create_open(caller, dir, name.to_vec(), mode);
        let (again, name, begun) = (self.handler.clone(), name.to_vec(), change.before);
        let (is_ours, may_be_made) = (change.to_be_made(), change.may_be_made());
        let exclusive = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        let made = async move {
            may_be_made.await;
            match made.await {
                Ok((entry, opened)) => made_of(&*again, entry, opened),
                Err(Errno(E::EXIST)) => match made_before {
                    Some(node) => open_made(&*again, caller, dir, name, |found| found.node == node).await,
                    None if exclusive && begun => open_made(&*again, caller, dir, name, is_ours).await,
                    None if begun => open_made(&*again, caller, dir, name, |_| true).await,
                    // Somebody else was faster: the kernel looks the name up anew, asks whether it may be opened, and
                    // opens it.
                    None if !exclusive => Err(Errno(E::STALE)),
                    None => Err(Errno(E::EXIST)),
                },
                Err(errno) => Err(errno),
            }
        };
        self.answer_created(asked, header, made, Some(change), reply);
    }

    pub(super) fn create_nameless(&self, header: &Header, mode: NewMode, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Create, header);
        self.close_unanswered(header);
        let handler = self.handler.clone();
        let made = handler.create_nameless(caller(header), NodeId(header.node), mode);
        let made = async move {
            let (entry, opened) = made.await?;
            made_of(&*handler, entry, opened)
        };
        self.answer_created(asked, header, made, None, reply);
    }

    fn answer_created(
        &self,
        asked: Asked,
        header: &Header,
        made: impl Future<Output = Answer<(Made, OpenReply)>> + Send + 'static,
        change: Option<Change>,
        reply: Reply,
    ) {
        let (files, handler, unique) = (self.files.clone(), self.handler.clone(), header.unique);
        self.driver.drive(asked, header, made, move |answer| {
            let entered = answer.and_then(|(entry, mut opened)| {
                let by = By { node: entry.attributes.node, unique, changing: true };
                opened.record.node_generation = entry.attributes.generation;
                Ok((entry, files.enter(&*handler, by, opened)?))
            });
            match entered {
                Ok((made, opened)) => {
                    if reply.created(&entry_of(&made.attributes, made.ttl), opened) == Delivery::Gone {
                        files.close(&*handler, HandleId(opened.handle));
                    }
                }
                Err(errno) => {
                    reply.error(errno.raw());
                }
            }
            drop(change);
        });
    }

    /// The inode that a number stands for now.
    pub(super) fn inode(&self, node: NodeId) -> KernelInode {
        KernelInode { node, generation: self.handler.generation(node) }
    }

    pub(super) fn release(&self, header: &Header, handle: u64, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Release, header);
        let node = super::locks::locked(header);
        if self.locks.has(node) {
            // Nobody waits for it. The source is told before the file is closed here, for the file may be sent.
            let (files, handler) = (self.files.clone(), self.handler.clone());
            let released = self.locks.clone().released(caller(header), node, handle);
            let closed = async move {
                released.await;
                files.released(&*handler, HandleId(handle));
                Ok(())
            };
            return self.driver.drive(asked, header, self.driver.to_its_end(closed), move |_| {
                reply.done();
            });
        }
        self.files.released(&*self.handler, HandleId(handle));
        asked.answered(None);
        reply.done();
    }
}

impl Files {
    /// Chooses how the kernel treats an open file, and enters it on the roll: before the kernel knows of it, for
    /// whoever serves next must.
    fn enter<H: Handler>(&self, handler: &H, by: By, opened: OpenReply) -> Answer<Opened> {
        let By { node, unique, changing } = by;
        let make = |object: &weft_vfs::Object| {
            let file = object.backing().ok_or(std::io::ErrorKind::NotFound)?;
            let backing = Backed::new(self.backings.open(file)?, self.roll.clone());
            self.roll.enter(&Entry::Backing { id: backing.id(), node: node.0, generation: object.generation() });
            Ok(backing)
        };
        let OpenReply { handle, bypass_pages: bypass, .. } = opened;
        let inode = KernelInode { node, generation: opened.record.node_generation };
        let mode = match changing {
            true => self.modes.open_to_write(inode, handle, bypass),
            false => self.modes.open(inode, handle, opened.backing.as_ref(), bypass, make),
        };
        let (flags, backing) = match mode {
            Mode::Cached if opened.keep_pages || changing => {
                self.pages.settle(node);
                (if opened.keep_pages { Opened::KEEP_CACHE } else { 0 }, None)
            }
            Mode::Cached => match self.pages.give(node, || handler.content_at_hand(handle)) {
                true => (Opened::KEEP_CACHE, None),
                false => (0, None),
            },
            Mode::Bypass => (Opened::DIRECT_IO, None),
            Mode::Passthrough(backing) => (Opened::PASSTHROUGH, Some(backing)),
            Mode::Refused => {
                handler.close(handle);
                return Err(Errno::from(weft_vfs::VfsError::OldVersionOpen));
            }
        };
        let backing_id = backing.as_ref().map_or(0, |backing| backing.id());
        let read_by = if backing.is_some() { ReadBy::Kernel } else { ReadBy::Daemon };
        let handle = handle.0;
        self.roll.enter(&Entry::File { handle, node: node.0, unique, read_by, record: opened.record });
        // Who may have written is told by close(2) whether it arrived.
        let told = changing || (self.told_of_closes && handler.is_writable(node));
        let flags = if told { flags } else { flags | Opened::NOFLUSH };
        Ok(Opened { handle, flags, backing_id })
    }

    /// Closes a file that the kernel gives back.
    fn released<H: Handler>(&self, handler: &H, handle: HandleId) {
        self.modes.close(handle);
        handler.released(handle);
        self.roll.strike(Key::File(handle.0));
    }

    /// Closes a file of which the kernel will never know: no release comes.
    pub(super) fn close<H: Handler>(&self, handler: &H, handle: HandleId) {
        self.modes.close(handle);
        handler.close(handle);
        self.roll.strike(Key::File(handle.0));
    }
}

/// What was made, and how long its name lasts.
struct Made {
    attributes: Attributes,
    ttl: std::time::Duration,
}

fn made_of<H: Handler>(handler: &H, entry: EntryReply, opened: OpenReply) -> Answer<(Made, OpenReply)> {
    match entry {
        EntryReply::Found { attributes, ttl } => Ok((Made { attributes, ttl }, opened)),
        EntryReply::Absent { .. } => {
            handler.close(opened.handle);
            Err(Errno(E::IO))
        }
    }
}

/// Opens what a former daemon made for this very request, if that is still what has the name.
async fn open_made<H: Handler>(
    handler: &H,
    caller: weft_remote::Caller,
    dir: NodeId,
    name: Vec<u8>,
    is_it: impl FnOnce(&Attributes) -> bool,
) -> Answer<(Made, OpenReply)> {
    match handler.lookup(caller, dir, name).await? {
        EntryReply::Found { attributes, ttl } if is_it(&attributes) => {
            let opened = handler.open(caller, attributes.node, OpenFor { writing: true, ..OpenFor::default() }).await?;
            Ok((Made { attributes, ttl }, opened))
        }
        EntryReply::Found { .. } | EntryReply::Absent { .. } => Err(Errno(E::EXIST)),
    }
}

/// What the flags of open(2) ask for.
fn how_of(flags: u32) -> OpenFor {
    let flags = OFlags::from_bits_retain(flags);
    OpenFor {
        writing: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
        truncating: flags.contains(OFlags::TRUNC),
        appends: flags.contains(OFlags::APPEND),
        running: flags.bits() & FOR_RUNNING != 0,
        kill_suidgid: false,
    }
}

/// What the mode of a file has to allow for that, in the bits of access(2).
fn wanted_of(flags: u32) -> u32 {
    let (flags, how) = (OFlags::from_bits_retain(flags), how_of(flags));
    let reads = !flags.contains(OFlags::WRONLY) && !how.running;
    let writes = how.writing || how.truncating;
    [(reads, 4), (writes, 2), (how.running, 1)].iter().map(|(is_wanted, bit)| u32::from(*is_wanted) * bit).sum()
}

/// Of an open by execve(2): the kernel's own `__FMODE_EXEC` (include/linux/fs.h), which it passes on.
const FOR_RUNNING: u32 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_a_mode_has_to_allow() {
        let wanted = |flags: OFlags| wanted_of(flags.bits());
        assert_eq!((wanted(OFlags::RDONLY), wanted(OFlags::WRONLY), wanted(OFlags::RDWR)), (4, 2, 6));
        assert_eq!(wanted(OFlags::RDONLY | OFlags::TRUNC), 6);
        assert_eq!(wanted_of(FOR_RUNNING), 1);
    }

    #[test]
    fn flags_say_what_a_file_is_opened_for() {
        let how = |flags: OFlags| how_of((flags | OFlags::NOFOLLOW).bits());
        let wanted = |writing, truncating| OpenFor { writing, truncating, ..OpenFor::default() };
        assert_eq!(how_of(FOR_RUNNING), OpenFor { running: true, ..OpenFor::default() });
        assert_eq!(how(OFlags::RDONLY), wanted(false, false));
        assert_eq!(how(OFlags::WRONLY), wanted(true, false));
        assert_eq!(how(OFlags::RDWR | OFlags::TRUNC), wanted(true, true));
        assert_eq!(how(OFlags::RDONLY | OFlags::TRUNC), wanted(false, true));
        let appending = OpenFor { appends: true, ..wanted(true, false) };
        assert_eq!(how(OFlags::WRONLY | OFlags::APPEND), appending);
    }
}
