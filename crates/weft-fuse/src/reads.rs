//! Answers to reads.

use std::sync::Arc;

use weft_fusedev::{Delivery, Header, Read, Reply, Unread};
use weft_remote::Caller;
use weft_vfs::{Data, HandleId, NodeId, Stretch};

use crate::Errno;
use crate::drive::{Driver, Signals};
use crate::handler::{Answer, Handler};
use crate::meter::Operation;

/// Reads of open files.
pub(crate) struct Reads<H> {
    handler: Arc<H>,
    driver: Driver,
    /// Files are read without having been opened.
    unopened: bool,
}

impl<H: Handler> Reads<H> {
    pub(crate) fn new(handler: Arc<H>, driver: Driver, unopened: bool) -> Reads<H> {
        Reads { handler, driver, unopened }
    }

    /// Reads, and answers with what is in memory or from the file that it lies in.
    pub(crate) fn read(self: &Arc<Self>, header: Header, read: Read, reply: Reply) {
        let reads = self.clone();
        self.ask(header, read, move |answer| match answer {
            Ok(Data::Bytes(bytes)) => {
                reply.data(&bytes);
            }
            Ok(Data::Stored(stretch)) => {
                if let Err(Unread { reply, error }) = from_file(&stretch, reply) {
                    // It is compared now, and brought again if it is damaged.
                    tracing::warn!(%error, offset = read.offset, "the cache does not have what it should");
                    stretch.doubt();
                    reads.read_compared(header, read, reply);
                }
            }
            Err(errno) => {
                reply.error(errno.raw());
            }
        });
    }

    fn read_compared(&self, header: Header, read: Read, reply: Reply) {
        self.ask(header, read, move |answer| {
            match answer.and_then(|data| data.into_bytes().map_err(Errno::from)) {
                Ok(bytes) => reply.data(&bytes),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    fn ask(&self, header: Header, read: Read, answer: impl FnOnce(Answer<Data>) + Send + 'static) {
        let asked = self.driver.meter.begin(Operation::Read, &header);
        let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
        let (offset, size) = (read.offset, read.size as usize);
        if self.unopened {
            let data = self.handler.read_unopened(caller, NodeId(header.node), offset, size);
            return self.driver.drive_with(Signals::Untold, asked, &header, data, answer);
        }
        let data = self.handler.read(caller, HandleId(read.handle), offset, size);
        self.driver.drive_with(Signals::Untold, asked, &header, data, answer);
    }
}

fn from_file(stretch: &Stretch, reply: Reply) -> Result<Delivery, Unread> {
    match stretch.file() {
        Some(file) => reply.file(file, stretch.offset(), stretch.len()),
        None => Err(Unread { reply, error: std::io::ErrorKind::NotFound.into() }),
    }
}
