//! Telling the kernel what to forget, unasked.
//!
//! A notice may wait for locks that requests in flight hold: it must never be sent by a thread that answers requests,
//! nor under a lock that a handler may want. It waits even when its process is killed, which then cannot end before those
//! requests are answered; so a server that is to be followed by another has its notices sent by a process that stays
//! ([`Notifier::sent_by`], [`send_for`]). Those are on their way when the call returns; [`Notifier::fence`] waits for them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, notice};
use crate::device::Device;
use crate::flags::InitFlags;
use crate::init::Negotiated;

/// Sends notices on one connection. An error of kind `Unsupported` means that this kernel does not know the notice,
/// one with `ENODEV` or `ENOTCONN` that the file system is gone.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<Device>,
    negotiated: Negotiated,
    /// To whoever sends in place of this process.
    other: Option<Arc<Other>>,
}

/// A process that sends in place of this one.
#[derive(Debug)]
struct Other {
    socket: OwnedFd,
    /// Fences so far. Held while one is waited for.
    fences: Mutex<u64>,
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The kernel has done as it was told.
    Done,
    /// The kernel does not know what it is about, and so has nothing to forget.
    Unknown,
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>, negotiated: Negotiated) -> Notifier {
        Notifier { device, negotiated, other: None }
    }

    /// The same, with notices sent by another process, which hears of them over this socket (`SOCK_SEQPACKET`). What
    /// became of them is not known here: each counts as [`Told::Done`], and the kernel has it when a [`Notifier::fence`]
    /// after it has passed. When that process is gone, this one sends.
    pub fn sent_by(self, other: OwnedFd) -> Notifier {
        Notifier { other: Some(Arc::new(Other { socket: other, fences: Mutex::default() })), ..self }
    }

    /// Returns when the kernel has been told all that was sent before by this notifier and its clones: at once, unless
    /// another process sends. That process may wait for requests, and this for it.
    pub fn fence(&self) {
        if let Some(other) = &self.other {
            other.fence();
        }
    }

    /// A name in a directory no longer leads where it led.
    ///
    /// # Errors
    /// What the kernel says, but that it does not know the name.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<Told> {
        self.entry(parent, name, 0)
    }

    /// A name is to be looked up at its next use, and stays until then: what is mounted on it and open below it goes
    /// on (`HAS_EXPIRE_ONLY`).
    ///
    /// # Errors
    /// As [`Notifier::invalidate_entry`], and `Unsupported`.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<Told> {
        self.need(InitFlags::HAS_EXPIRE_ONLY)?;
        self.entry(parent, name, abi::EXPIRE_ONLY)
    }

    /// The attributes of an inode changed; its pages stay.
    ///
    /// # Errors
    /// As [`Notifier::invalidate_entry`].
    pub fn invalidate_attributes(&self, node: u64) -> io::Result<Told> {
        // A negative offset leaves the pages alone (fuse_reverse_inval_inode in fs/fuse/inode.c).
        self.inode(node, -1, 0)
    }

    /// The attributes and bytes of an inode changed: `length` of them from `offset` on, or all that follow when it
    /// is 0.
    ///
    /// # Errors
    /// As [`Notifier::invalidate_entry`].
    pub fn invalidate_content(&self, node: u64, offset: u64, length: u64) -> io::Result<Told> {
        let signed = |value: u64| i64::try_from(value).map_err(|_| io::Error::from(Errno::INVAL));
        self.inode(node, signed(offset)?, signed(length)?)
    }

    /// A name in a directory has been removed, as if by unlink(2): those who watch the directory are told.
    ///
    /// # Errors
    /// As [`Notifier::invalidate_entry`]; `ENOTEMPTY` or `EBUSY` when a directory cannot go.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<Told> {
        let out = abi::NotifyDelete { parent, child, namelen: length_of(name)?, padding: 0 };
        self.send(notice::DELETE, &[out.as_bytes(), name, b"\0"])
    }

    /// Bytes of a file go to the kernel's pages of it.
    ///
    /// # Errors
    /// As [`Notifier::invalidate_entry`].
    pub fn store(&self, node: u64, offset: u64, data: &[u8]) -> io::Result<Told> {
        let out = abi::NotifyStore { nodeid: node, offset, size: length_of(data)?, padding: 0 };
        self.send(notice::STORE, &[out.as_bytes(), data])
    }

    /// All requests that were read and not answered come again, with the top bit of their numbers set
    /// (`HAS_RESEND`): for a server that takes over from one that died.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported`.
    pub fn resend(&self) -> io::Result<Told> {
        self.need(InitFlags::HAS_RESEND)?;
        self.send(notice::RESEND, &[])
    }

    /// All names that the kernel knows are to be looked up at their next use (7.44).
    ///
    /// # Errors
    /// What the kernel says; `Unsupported`.
    pub fn next_epoch(&self) -> io::Result<Told> {
        if self.negotiated.minor < EPOCH_MINOR {
            return Err(unsupported("names cannot be taken back all at once before FUSE 7.44"));
        }
        self.send(notice::INC_EPOCH, &[])
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<Told> {
        let out = abi::NotifyInvalEntry { parent, namelen: length_of(name)?, flags };
        self.send(notice::INVAL_ENTRY, &[out.as_bytes(), name, b"\0"])
    }

    fn inode(&self, ino: u64, off: i64, len: i64) -> io::Result<Told> {
        self.send(notice::INVAL_INODE, &[abi::NotifyInvalInode { ino, off, len }.as_bytes()])
    }

    fn need(&self, flag: InitFlags) -> io::Result<()> {
        match self.negotiated.has(flag) {
            true => Ok(()),
            false => Err(unsupported("this connection does not have the notice")),
        }
    }

    /// A notice has no number, and its code where answers have their error.
    fn send(&self, code: i32, pieces: &[&[u8]]) -> io::Result<Told> {
        if let Some(other) = &self.other {
            let body = pieces.concat();
            let len = length_of(&body)?.saturating_add(size_of::<abi::OutHeader>() as u32);
            let header = abi::OutHeader { len, error: code, unique: 0 };
            // When nobody is there any more, this process sends.
            if send(&other.socket, &[header.as_bytes(), &body].concat(), SendFlags::NOSIGNAL).is_ok() {
                return Ok(Told::Done);
            }
        }
        match self.device.write(0, code, pieces) {
            Ok(()) => Ok(Told::Done),
            Err(Errno::NOENT) => Ok(Told::Unknown),
            Err(error) => Err(error.into()),
        }
    }
}

impl Other {
    /// Returns when the process has sent all that it was given before, or is gone.
    fn fence(&self) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        *fences += 1;
        let fence = fence_of(*fences);
        if send(&self.socket, fence.as_bytes(), SendFlags::NOSIGNAL).is_err() {
            return;
        }
        let mut answer = [0; size_of::<abi::OutHeader>()];
        loop {
            match recv(&self.socket, &mut answer[..], RecvFlags::empty()) {
                // The answer to one of before comes first.
                Ok((_, length)) if length == answer.len() && answer != *fence.as_bytes() => {}
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Sends the notices of another process on its connection, until that closes its end of the socket, and tells it when it
/// has sent them. What the kernel does not take is nothing that it has to forget.
pub fn send_for(other: impl AsFd, device: impl AsFd) {
    let mut notice = vec![0; NOTICE_BYTES_MAX];
    loop {
        let notice = match recv(&other, &mut notice[..], RecvFlags::empty()) {
            Ok((_, 0)) => return,
            Ok((_, length)) => &notice[..length.min(NOTICE_BYTES_MAX)],
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        if is_fence(notice) {
            // Whoever does not hear it is gone.
            let _ = send(&other, notice, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        } else {
            let _ = rustix::io::write(&device, notice);
        }
    }
}

/// Stands between notices on their way to the process that sends them, which sends it back.
fn fence_of(number: u64) -> abi::OutHeader {
    abi::OutHeader { len: size_of::<abi::OutHeader>() as u32, error: FENCE, unique: number }
}

fn is_fence(notice: &[u8]) -> bool {
    abi::OutHeader::read_from_bytes(notice).is_ok_and(|header| header.error == FENCE)
}

fn unsupported(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what)
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| Errno::TOOBIG.into())
}

/// Longest notice that another process sends: a name, and what stands before it.
const NOTICE_BYTES_MAX: usize = 8192;
/// No notice of the kernel's: those count up from 1 (`enum fuse_notify_code` in fuse.h).
const FENCE: i32 = i32::MIN;
/// The minor version that has `FUSE_NOTIFY_INC_EPOCH`.
const EPOCH_MINOR: u32 = 44;
