//! Names that are made, moved and taken away.

use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno as E;
use weft_fusedev::{Header, Reply};
use weft_remote::{FileKind, NewMode, RenameTarget};
use weft_vfs::{NewNode, NodeId, Removal};

use super::again::{Makes, Takes};
use super::{Door, caller};
use crate::attributes::entry_of;
use crate::handler::{Answer, EntryReply, Handler};
use crate::meter::Operation;

impl<H: Handler> Door<H> {
    /// Makes a file, a directory or a special file.
    pub(super) fn make(&self, operation: Operation, header: &Header, name: &[u8], new: NewNode, reply: Reply) {
        let makes = Makes::New(new.kind);
        let made = self.handler.create(caller(header), NodeId(header.node), name.to_vec(), new);
        self.answer_made(operation, header, name, (makes, made), reply);
    }

    /// Makes a file or a special file: of the type that is in `kind`.
    pub(super) fn mknod(&self, header: &Header, name: &[u8], kind: u32, (mode, device): (NewMode, u32), reply: Reply) {
        let Some(kind) = kind_of_mode(kind) else {
            return self.refuse(Operation::Mknod, header, E::INVAL, reply);
        };
        let new = NewNode { kind, mode, device };
        self.make(Operation::Mknod, header, name, new, reply);
    }

    pub(super) fn symlink(&self, header: &Header, name: &[u8], target: &[u8], reply: Reply) {
        let made = self.handler.symlink(caller(header), NodeId(header.node), name.to_vec(), target.to_vec());
        self.answer_made(Operation::Symlink, header, name, (Makes::Symlink(target.to_vec()), made), reply);
    }

    pub(super) fn link(&self, header: &Header, node: NodeId, name: &[u8], reply: Reply) {
        let made = self.handler.link(caller(header), node, NodeId(header.node), name.to_vec());
        self.answer_made(Operation::Link, header, name, (Makes::Link(node), made), reply);
    }

    pub(super) fn remove(&self, operation: Operation, header: &Header, name: &[u8], of: Removal, reply: Reply) {
        let removed = self.handler.remove_name(caller(header), NodeId(header.node), name.to_vec(), of);
        self.answer_gone(operation, header, name, (Takes::Away, removed), reply);
    }

    pub(super) fn rename(&self, header: &Header, name: &[u8], to: (NodeId, &[u8]), flags: u32, reply: Reply) {
        let Some(target) = target_of(flags) else {
            return self.refuse(Operation::Rename, header, E::INVAL, reply);
        };
        let (from, to) = ((NodeId(header.node), name.to_vec()), (to.0, to.1.to_vec()));
        let takes = match target {
            RenameTarget::Exchanged => Takes::For(to.0, to.1.clone()),
            RenameTarget::Replaced | RenameTarget::Absent => Takes::To(to.0, to.1.clone()),
        };
        let moved = self.handler.rename(caller(header), from, to, target);
        self.answer_gone(Operation::Rename, header, name, (takes, moved), reply);
    }

    fn answer_made(
        &self,
        operation: Operation,
        header: &Header,
        name: &[u8],
        (makes, made): (Makes, impl Future<Output = Answer<EntryReply>> + Send + 'static),
        reply: Reply,
    ) {
        let asked = self.driver.meter.begin(operation, header);
        let change = self.begin_change(header);
        let driver = match makes {
            Makes::Link(node) => self.driver_of_change(node),
            Makes::New(_) | Makes::Symlink(_) => self.driver.clone(),
        };
        let made = change.made(&self.handler, (caller(header), NodeId(header.node), name), makes, made);
        driver.drive(asked, header, made, move |answer| {
            match answer {
                Ok(EntryReply::Found { attributes, ttl }) => reply.entry(&entry_of(&attributes, ttl)),
                // It was made, and is gone already: the kernel takes that for an error of ours.
                Ok(EntryReply::Absent { .. }) => reply.error(E::IO.raw_os_error()),
                Err(errno) => reply.error(errno.raw()),
            };
            drop(change);
        });
    }

    fn answer_gone(
        &self,
        operation: Operation,
        header: &Header,
        name: &[u8],
        (takes, gone): (Takes, impl Future<Output = Answer<()>> + Send + 'static),
        reply: Reply,
    ) {
        let asked = self.driver.meter.begin(operation, header);
        let change = self.begin_taking(header, name, &takes);
        let gone = change.gone(&self.handler, (caller(header), NodeId(header.node), name), takes, gone);
        self.driver.drive(asked, header, gone, move |answer| {
            match answer {
                Ok(()) => reply.done(),
                Err(errno) => reply.error(errno.raw()),
            };
            drop(change);
        });
    }
}

/// What mknod(2) is to make; `None` for what it cannot.
fn kind_of_mode(mode: u32) -> Option<FileKind> {
    // Without a type it is a file (mknod(2)); the kernel has put that in.
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Some(FileKind::File),
        FileType::Fifo => Some(FileKind::Fifo),
        FileType::Socket => Some(FileKind::Socket),
        FileType::CharacterDevice => Some(FileKind::CharDevice),
        FileType::BlockDevice => Some(FileKind::BlockDevice),
        FileType::Directory | FileType::Symlink | FileType::Unknown => None,
    }
}

/// What renameat2(2) is to do with what has the new name; `None` for flags that are not known.
fn target_of(flags: u32) -> Option<RenameTarget> {
    match RenameFlags::from_bits_retain(flags) {
        RenameFlags::NOREPLACE => Some(RenameTarget::Absent),
        RenameFlags::EXCHANGE => Some(RenameTarget::Exchanged),
        none if none.is_empty() => Some(RenameTarget::Replaced),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_or_moved_is_refused() {
        let kinds = [0o100_644, 0o010_600, 0o140_600, 0o020_600, 0o060_600].map(kind_of_mode);
        let wanted = [FileKind::File, FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
        assert_eq!(kinds, wanted.map(Some));
        assert_eq!([0o040_755, 0o120_777, 0o170_000, 0o644].map(kind_of_mode), [None; 4]);
        let targets = [RenameTarget::Replaced, RenameTarget::Absent, RenameTarget::Exchanged];
        assert_eq!([0, 1, 2].map(target_of), targets.map(Some));
        // Both at once, a whiteout, and what is not invented yet.
        assert_eq!([3, 4, 5, 1 << 20].map(target_of), [None; 4]);
    }
}
