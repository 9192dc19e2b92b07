//! Open files that are written.

use rustix::io::Errno as E;
use weft_fusedev::{Header, Reply};
use weft_remote::Seek;
use weft_vfs::{Allocate, HandleId, NodeId, Write};

use super::{Door, caller};
use crate::Errno;
use crate::handler::Handler;
use crate::meter::Operation;

impl<H: Handler> Door<H> {
    pub(super) fn write(&self, header: &Header, handle: HandleId, write: Write, reply: Reply) {
        let asked = self.driver.meter.begin(Operation::Write, header);
        let written = self.handler.write(caller(header), handle, write);
        self.driver.drive(asked, header, written, move |answer| {
            match answer {
                // No request is as long as this number can be.
                Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }

    pub(super) fn fsync(&self, header: &Header, handle: HandleId, reply: Reply) {
        let synced = self.handler.sync(caller(header), handle);
        self.finish_sending(Operation::Fsync, header, synced, reply);
    }

    pub(super) fn fsyncdir(&self, header: &Header, reply: Reply) {
        let synced = self.handler.sync_directory(caller(header), NodeId(header.node));
        self.finish(Operation::Fsyncdir, header, synced, reply);
    }

    pub(super) fn fallocate(&self, header: &Header, handle: HandleId, range: (u64, u64), mode: u32, reply: Reply) {
        let Some(how) = how_of(mode) else {
            return self.refuse(Operation::Fallocate, header, E::OPNOTSUPP, reply);
        };
        let allocated = self.handler.allocate(caller(header), handle, range.0, range.1, how);
        self.finish(Operation::Fallocate, header, allocated, reply);
    }

    pub(super) fn lseek(&self, header: &Header, handle: HandleId, offset: u64, whence: u32, reply: Reply) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            // The kernel knows the others itself.
            _ => return self.refuse(Operation::Lseek, header, E::INVAL, reply),
        };
        let asked = self.driver.meter.begin(Operation::Lseek, header);
        let seek = self.handler.seek(caller(header), handle, offset, what);
        let found = async move { seek.await?.ok_or(Errno(E::NXIO)) };
        self.driver.drive(asked, header, found, move |found| {
            match found {
                Ok(place) => reply.offset(place),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }
}

/// What fallocate(2) is to do; `None` for what is not known here.
fn how_of(mode: u32) -> Option<Allocate> {
    const PUNCH_AND_KEEP: u32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_AND_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Some(Allocate::Extend),
        KEEP_SIZE => Some(Allocate::Reserve),
        PUNCH_AND_KEEP => Some(Allocate::Punch),
        ZERO_RANGE => Some(Allocate::Zero),
        ZERO_AND_KEEP => Some(Allocate::ZeroWithin),
        _ => None,
    }
}

/// Of lseek(2) (include/uapi/linux/fs.h).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Of fallocate(2) (`FALLOC_FL_*` in include/uapi/linux/falloc.h).
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;
