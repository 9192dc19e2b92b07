//! Answers to the kernel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::abi::{self, opcode};
use crate::attributes::{Attributes, Entry, Space, Statx, seconds_of};
use crate::device::Device;
use crate::request::LockRange;
use crate::splice::Part;

/// The answer to one request, given once. Dropped without one it answers `EIO`, so that nobody waits for ever.
///
/// It may go to another thread and be answered at any time. Whatever brought the request takes the answer back: the
/// device, or a transport of another kind behind [`Sink`].
#[derive(Debug)]
pub struct Reply {
    unique: u64,
    opcode: u32,
    /// `None` when the answer has been given.
    source: Option<Source>,
}

/// Where a request came from, which is where its answer goes.
pub(crate) enum Source {
    /// read(2) on `/dev/fuse`.
    Device(Arc<Device>),
    /// Another transport.
    Sink(Box<dyn Sink>),
}

/// A way for one answer other than write(2) on `/dev/fuse`.
pub trait Sink: Send {
    /// Room for the answer's body in the transport itself, if it has some: bodies that are made piece by piece are
    /// then made there ([`Body::InPlace`]).
    fn room(&mut self) -> Option<&mut [u8]> {
        None
    }

    /// Sends the answer. `errno` is 0 or a positive error number, and then there is no body. A body that does not
    /// fit is answered with `EIO` by the sink.
    fn send(self: Box<Self>, unique: u64, errno: i32, body: Body<'_>) -> Delivery;
}

/// What follows the header of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// These pieces, one after the other.
    Pieces(&'a [&'a [u8]]),
    /// So many bytes of [`Sink::room`].
    InPlace(usize),
}

/// Whether an answer arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel has it.
    Delivered,
    /// The kernel does not want it any more: the request was aborted or the file system is gone. What an answered
    /// open would have opened is to be closed, for no release will come.
    Gone,
}

/// How an open is answered (`FOPEN_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The server's own number of what is open.
    pub handle: u64,
    /// Any of the constants of this type, joined by `|`.
    pub flags: u32,
    /// The backing file, with [`Opened::PASSTHROUGH`].
    pub backing_id: i32,
}

impl Opened {
    /// Past the page cache (`FOPEN_DIRECT_IO`).
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The kernel's pages of the inode stay (`FOPEN_KEEP_CACHE`).
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// It cannot seek (`FOPEN_NONSEEKABLE`).
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The kernel may keep the names of the directory (`FOPEN_CACHE_DIR`).
    pub const CACHE_DIR: u32 = 1 << 3;
    /// It has no position (`FOPEN_STREAM`).
    pub const STREAM: u32 = 1 << 4;
    /// Closing it sends no `Flush` (`FOPEN_NOFLUSH`, 7.35).
    pub const NOFLUSH: u32 = 1 << 5;
    /// Several may write it past the page cache at once (`FOPEN_PARALLEL_DIRECT_WRITES`, 7.38).
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel reads and writes the backing file itself (`FOPEN_PASSTHROUGH`, 7.40).
    pub const PASSTHROUGH: u32 = 1 << 7;
}

impl Reply {
    /// A reply whose answer goes to `sink`.
    pub fn new(unique: u64, opcode: u32, sink: Box<dyn Sink>) -> Reply {
        Reply::from_source(unique, opcode, Source::Sink(sink))
    }

    pub(crate) fn from_source(unique: u64, opcode: u32, source: Source) -> Reply {
        Reply { unique, opcode, source: Some(source) }
    }

    /// The kernel's number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// An error: a positive errno.
    pub fn error(mut self, errno: i32) -> Delivery {
        self.send(errno, Body::Pieces(&[]))
    }

    /// Done, with nothing to tell.
    pub fn done(self) -> Delivery {
        self.pieces(&[])
    }

    /// A name leads there. Counts as one lookup of the inode, until it is forgotten.
    pub fn entry(self, entry: &Entry) -> Delivery {
        self.pieces(&[entry.wire().as_bytes()])
    }

    /// A name leads nowhere, for so long: an entry with inode 0. With no time at all it is `ENOENT`.
    pub fn absent(self, ttl: Duration) -> Delivery {
        if ttl.is_zero() {
            return self.error(rustix::io::Errno::NOENT.raw_os_error());
        }
        let (entry_valid, entry_valid_nsec) = seconds_of(ttl);
        self.pieces(&[abi::EntryOut { entry_valid, entry_valid_nsec, ..Default::default() }.as_bytes()])
    }

    /// Attributes, good for `ttl`.
    pub fn attributes(self, attributes: &Attributes, ttl: Duration) -> Delivery {
        let (attr_valid, attr_valid_nsec) = seconds_of(ttl);
        self.pieces(&[abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attributes.wire() }.as_bytes()])
    }

    /// Attributes as statx(2) has them, good for `ttl`.
    pub fn statx(self, statx: &Statx, ttl: Duration) -> Delivery {
        let (attr_valid, attr_valid_nsec) = seconds_of(ttl);
        let out = abi::StatxOut { attr_valid, attr_valid_nsec, stat: statx.wire(), ..Default::default() };
        self.pieces(&[out.as_bytes()])
    }

    /// A file or directory is open.
    pub fn opened(self, opened: Opened) -> Delivery {
        self.pieces(&[opened.wire().as_bytes()])
    }

    /// A file was made and is open.
    pub fn created(self, entry: &Entry, opened: Opened) -> Delivery {
        self.pieces(&[abi::CreateOut { entry: entry.wire(), open: opened.wire() }.as_bytes()])
    }

    /// Bytes: of a file, of a link's target.
    pub fn data(self, bytes: &[u8]) -> Delivery {
        self.pieces(&[bytes])
    }

    /// Bytes that lie in several pieces.
    pub fn pieces(mut self, pieces: &[&[u8]]) -> Delivery {
        self.send(0, Body::Pieces(pieces))
    }

    /// So many bytes of `file` from `offset` on. They go to the kernel from the file, where the transport has a way.
    ///
    /// # Errors
    /// What the system says when the file does not have them, with the reply, which is still to be given.
    pub fn file(mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> Result<Delivery, Unread> {
        let part = Part { file, offset, length };
        let sent = match self.source.take() {
            Some(Source::Device(device)) => {
                let sent = device.answer_part(self.unique, &part);
                sent.map_err(|error| (Source::Device(device), error))
            }
            Some(Source::Sink(mut sink)) => match sink.room().and_then(|room| room.get_mut(..length)) {
                Some(room) => match part.read_to(room) {
                    Ok(()) => Ok(sink.send(self.unique, 0, Body::InPlace(length))),
                    Err(error) => Err((Source::Sink(sink), error)),
                },
                None => match part.read() {
                    Ok(bytes) => Ok(sink.send(self.unique, 0, Body::Pieces(&[&bytes]))),
                    Err(error) => Err((Source::Sink(sink), error)),
                },
            },
            None => Ok(Delivery::Gone),
        };
        sent.map_err(|(source, error)| {
            self.source = Some(source);
            Unread { reply: self, error }
        })
    }

    /// So many bytes were written.
    pub fn written(self, size: u32) -> Delivery {
        self.pieces(&[abi::WriteOut { size, padding: 0 }.as_bytes()])
    }

    /// So many bytes were copied.
    pub fn copied(self, bytes: u64) -> Delivery {
        if self.opcode == opcode::COPY_FILE_RANGE_64 {
            return self.pieces(&[abi::CopyFileRangeOut { bytes_copied: bytes }.as_bytes()]);
        }
        // The older request cannot tell more; the caller then asks for the rest.
        self.written(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Figures for `df`.
    pub fn space(self, space: &Space) -> Delivery {
        self.pieces(&[space.wire().as_bytes()])
    }

    /// An extended attribute or the names of all, to a request that has room for `size` bytes: its length when the
    /// room is 0, `ERANGE` when it does not suffice.
    pub fn extended(self, value: &[u8], size: u32) -> Delivery {
        if size == 0 {
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            return self.pieces(&[abi::GetxattrOut { size: length, padding: 0 }.as_bytes()]);
        }
        if value.len() > size as usize {
            return self.error(rustix::io::Errno::RANGE.raw_os_error());
        }
        self.data(value)
    }

    /// The lock that is in the way; of kind `F_UNLCK` when none is.
    pub fn lock(self, range: LockRange) -> Delivery {
        let LockRange { start, end, kind, pid } = range;
        self.pieces(&[abi::FileLock { start, end, kind, pid }.as_bytes()])
    }

    /// Where data or a hole begins, in bytes.
    pub fn offset(self, offset: u64) -> Delivery {
        self.pieces(&[abi::LseekOut { offset }.as_bytes()])
    }

    /// Begins an answer that is made piece by piece, of at most `size` bytes.
    pub fn begin(self, size: u32) -> Filling {
        Filling { own: Vec::new(), used: 0, limit: size as usize, reply: self }
    }

    /// Begins the answer to a `Readdir` of at most `size` bytes.
    pub fn names(self, size: u32) -> crate::Names {
        crate::Names::new(self.begin(size))
    }

    /// Begins the answer to a `Readdirplus` of at most `size` bytes.
    pub fn entries(self, size: u32) -> crate::Entries {
        crate::Entries::new(self.begin(size))
    }

    fn send(&mut self, errno: i32, body: Body<'_>) -> Delivery {
        match self.source.take() {
            Some(Source::Device(device)) => device.answer(self.unique, errno, body),
            Some(Source::Sink(sink)) => sink.send(self.unique, errno, body),
            None => Delivery::Gone,
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.source.is_some() {
            self.send(rustix::io::Errno::IO.raw_os_error(), Body::Pieces(&[]));
        }
    }
}

/// A part of a file that could not be read.
#[derive(Debug)]
pub struct Unread {
    /// Still to be given.
    pub reply: Reply,
    /// What the system said; `UnexpectedEof` where the file ends before.
    pub error: std::io::Error,
}

/// An answer that is made piece by piece: in the transport's own room where it has some.
#[derive(Debug)]
pub struct Filling {
    own: Vec<u8>,
    used: usize,
    limit: usize,
    reply: Reply,
}

/// Whether something found room in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Room {
    /// It is in.
    Added,
    /// There is no room for it: the answer is full and may be sent.
    Full,
}

impl Filling {
    /// Adds these pieces, all or none.
    pub fn add(&mut self, pieces: &[&[u8]]) -> Room {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let Some(end) = self.used.checked_add(length).filter(|end| *end <= self.limit) else { return Room::Full };
        let room = match &mut self.reply.source {
            Some(Source::Sink(sink)) => sink.room(),
            _ => None,
        };
        match room {
            Some(room) => {
                let Some(mut to) = room.get_mut(self.used..end) else { return Room::Full };
                for piece in pieces {
                    let (here, after) = to.split_at_mut(piece.len());
                    here.copy_from_slice(piece);
                    to = after;
                }
            }
            None => pieces.iter().for_each(|piece| self.own.extend_from_slice(piece)),
        }
        self.used = end;
        Room::Added
    }

    /// Sends what was added.
    pub fn send(mut self) -> Delivery {
        let own = std::mem::take(&mut self.own);
        if own.is_empty() && self.used > 0 {
            return self.reply.send(0, Body::InPlace(self.used));
        }
        self.reply.send(0, Body::Pieces(&[&own]))
    }

    /// Answers with an error instead.
    pub fn error(self, errno: i32) -> Delivery {
        self.reply.error(errno)
    }
}

impl Opened {
    fn wire(&self) -> abi::OpenOut {
        abi::OpenOut { fh: self.handle, open_flags: self.flags, backing_id: self.backing_id }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Source::Device(_) => "Device",
            Source::Sink(_) => "Sink",
        })
    }
}
