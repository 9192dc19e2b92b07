//! Directories that are opened, read and closed.

use std::sync::Arc;

use weft_fusedev::{Delivery, Header, Read, Reply};
use weft_vfs::{NodeId, Snapshot};

use super::{Door, caller};
use crate::directory::{Directories, Reading};
use crate::handler::Handler;
use crate::meter::Operation;
use crate::roll::{Entry, Key};

/// What is told of each name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// The name alone.
    Names,
    /// And what is known of what it leads to.
    Entries,
}

impl<H: Handler> Door<H> {
    pub(super) fn opendir(&self, header: &Header, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Opendir, header);
        let listed = self.handler.open_directory(caller(header), NodeId(header.node));
        self.close_unanswered(header);
        let (directories, roll, handler) = (self.directories.clone(), self.roll.clone(), self.handler.clone());
        let (caller, Header { node, unique, uid, gid, .. }) = (caller(header), *header);
        let opened = async move {
            let as_of = listed.await?;
            let node = NodeId(node);
            if let Some(opened) = directories.open_kept(node, caller, &as_of) {
                return Ok((directories, opened));
            }
            let names = handler.directory_names(caller, node)?;
            let opened = directories.open((node, caller), names, &as_of);
            Ok((directories, opened))
        };
        self.driver.drive(asked, header, opened, move |answer| match answer {
            Ok((directories, opened)) => {
                let handle = opened.handle;
                roll.enter(&Entry::Directory { handle, node, unique, uid, gid });
                if reply.opened(opened) == Delivery::Gone {
                    directories.close_untold(handle);
                    roll.strike(Key::Directory(handle));
                }
            }
            Err(errno) => {
                reply.error(errno.raw());
            }
        });
    }

    pub(super) fn readdir(&self, header: &Header, read: Read, rows: Rows, reply: Reply) {
        let operation = if rows == Rows::Names { Operation::Readdir } else { Operation::Readdirplus };
        let asked = self.driver.meter.begin(operation, header);
        let dir = NodeId(header.node);
        match self.directories.read(read.handle, read.offset, |node| self.handler.names_mark(node)) {
            Ok(Reading::On(snapshot)) => {
                asked.answered(None);
                tell((&*self.handler, &self.directories), &snapshot, dir, (&read, rows), reply);
            }
            Ok(Reading::Anew { node, caller, asks, former }) => {
                let (directories, handler) = (self.directories.clone(), self.handler.clone());
                let found = async move {
                    let listed = if asks { handler.open_directory(caller, node).await.map(drop) } else { Ok(()) };
                    let names = match listed {
                        // Who has read it before, and cannot now, reads what there was.
                        Err(error) if former.is_some() => Err(error),
                        _ => handler.directory_names(caller, node),
                    };
                    match (names, former) {
                        (Ok(names), _) => Ok(directories.renew(read.handle, names)),
                        (Err(_), Some(former)) => Ok(former),
                        (Err(error), None) => Err(error),
                    }
                };
                let (handler, directories) = (self.handler.clone(), self.directories.clone());
                self.driver.drive(asked, header, found, move |answer| match answer {
                    Ok(snapshot) => tell((&*handler, &directories), &snapshot, dir, (&read, rows), reply),
                    Err(errno) => {
                        reply.error(errno.raw());
                    }
                });
            }
            Err(errno) => {
                asked.answered(Some(errno));
                reply.error(errno.raw());
            }
        }
    }

    pub(super) fn releasedir(&self, header: &Header, handle: u64, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Releasedir, header);
        self.close_directory(handle);
        asked.answered(None);
        reply.done();
    }

    pub(super) fn close_directory(&self, handle: u64) {
        self.directories.close(handle);
        self.roll.strike(Key::Directory(handle));
    }
}

fn tell<H: Handler>(
    (handler, directories): (&H, &Directories),
    snapshot: &Arc<Snapshot>,
    dir: NodeId,
    (read, rows): (&Read, Rows),
    reply: Reply,
) {
    match rows {
        Rows::Names => {
            directories.tell_bare(read, snapshot);
            crate::directory::names(snapshot, dir, read, reply);
        }
        Rows::Entries => {
            crate::directory::entries(snapshot, dir, read, handler.entries_known(dir), reply);
        }
    }
}
