//! The one place with unsafe code: ioctls of `/dev/fuse`, rings with the memory that the kernel shares, and what the
//! scheduler is told of a thread.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::ioctl::{self, Direction, Ioctl, IoctlOutput, Opcode};

use crate::abi::BackingMap;
use crate::ring::Head;

/// Makes a backing id of a file.
pub(crate) fn backing_open(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<i32> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the argument is a `fuse_backing_map` as the kernel wants it for this number, which it only reads and
    // which lives through the call; the descriptor in it is open, for it is borrowed.
    Ok(unsafe { ioctl::ioctl(device, BackingCall { opcode: BACKING_OPEN, argument: map }) }?)
}

/// Gives a backing id back.
pub(crate) fn backing_close(device: BorrowedFd<'_>, id: i32) -> io::Result<()> {
    // SAFETY: the argument is a number of 32 bits as the kernel wants it for this number, which it only reads and which
    // lives through the call.
    unsafe { ioctl::ioctl(device, BackingCall { opcode: BACKING_CLOSE, argument: id }) }?;
    Ok(())
}

/// An ioctl that reads an argument and returns a number.
struct BackingCall<T> {
    opcode: Opcode,
    argument: T,
}

// SAFETY: the pointer is to the argument, which is as long as the number of the ioctl says (see the constants), and
// nothing is written through it.
unsafe impl<T> Ioctl for BackingCall<T> {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut rustix::ffi::c_void {
        (&raw mut self.argument).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut rustix::ffi::c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

/// `FUSE_DEV_IOC_MAGIC`.
const GROUP: u8 = 229;
/// `FUSE_DEV_IOC_BACKING_OPEN`.
const BACKING_OPEN: Opcode = ioctl::opcode::from_components(Direction::Write, GROUP, 1, size_of::<BackingMap>());
/// `FUSE_DEV_IOC_BACKING_CLOSE`.
const BACKING_CLOSE: Opcode = ioctl::opcode::from_components(Direction::Write, GROUP, 2, size_of::<u32>());

/// How the scheduler treats a thread (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// `SCHED_OTHER`: as others.
    Other,
    /// `SCHED_BATCH`: woken, it does not take the processor from who runs.
    Batch,
    /// Any other.
    Special,
}

/// How the calling thread is treated.
pub(crate) fn policy() -> io::Result<Policy> {
    // SAFETY: no memory takes part.
    match unsafe { libc::sched_getscheduler(0) } {
        libc::SCHED_OTHER => Ok(Policy::Other),
        libc::SCHED_BATCH => Ok(Policy::Batch),
        failed if failed < 0 => Err(io::Error::last_os_error()),
        _ => Ok(Policy::Special),
    }
}

/// Has the calling thread treated so; [`Policy::Special`] is an error.
pub(crate) fn set_policy(policy: Policy) -> io::Result<()> {
    let number = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Batch => libc::SCHED_BATCH,
        Policy::Special => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are only read, and live through the call.
    match unsafe { libc::sched_setscheduler(0, number, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Memory for entries of a ring, which the kernel and this process share: for each a head of [`HEAD_STRIDE_BYTES`],
/// then for each a payload. Pages are made when they are first used.
#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    bytes: usize,
    entries: usize,
    payload_bytes: usize,
}

// SAFETY: the region is memory of the process that belongs to no thread; who may touch which part of it is told by the
// `Slot`s, of which there is one for each entry.
unsafe impl Send for Region {}
// SAFETY: as above; nothing is reached through a shared `Region` but by the one who has the `Slot`.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Slot::map` with this length, and no slot is left that reaches into it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// One entry of a ring while it is not the kernel's: whoever has it alone may read and write its memory.
#[derive(Debug)]
pub(crate) struct Slot {
    region: Arc<Region>,
    /// Its place in the region.
    place: usize,
    /// Its number in its queue.
    number: usize,
}

impl Slot {
    /// Maps memory for `count` entries whose numbers begin at `first`.
    pub(crate) fn map(first: usize, count: usize, payload_bytes: usize) -> io::Result<Vec<Slot>> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let page = rustix::param::page_size();
        let payload_bytes = payload_bytes.next_multiple_of(page);
        let bytes = heads_bytes(count) + count * payload_bytes;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the kernel chooses a place where nothing is mapped.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from(rustix::io::Errno::NOMEM))?;
        let region = Arc::new(Region { base, bytes, entries: count, payload_bytes });
        Ok((0..count).map(|place| Slot { region: region.clone(), place, number: first + place }).collect())
    }

    /// Its number in its queue.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// What the kernel wrote about the request.
    pub(crate) fn head(&self) -> Head {
        // SAFETY: the head lies inside the mapping, is aligned (the stride is), is of bytes of which all values are
        // valid, and nobody else touches it while this slot exists.
        unsafe { self.head_at().cast::<Head>().read() }
    }

    /// The same, to be answered in.
    pub(crate) fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`; the slot is borrowed for writing.
        unsafe { &mut *self.head_at().cast::<Head>() }
    }

    /// What follows the request's first argument, or room for the body of the answer.
    pub(crate) fn payload(&self) -> &[u8] {
        // SAFETY: the payload lies inside the mapping, which lives as long as the region; all bytes are valid, and
        // nobody else writes them while this slot exists.
        unsafe { std::slice::from_raw_parts(self.payload_at(), self.region.payload_bytes) }
    }

    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `payload`; the slot is borrowed for writing, and slots do not overlap.
        unsafe { std::slice::from_raw_parts_mut(self.payload_at(), self.region.payload_bytes) }
    }

    fn head_at(&self) -> *mut u8 {
        // SAFETY: `place` is less than the number of entries for which the mapping has room.
        unsafe { self.region.base.as_ptr().add(self.place * HEAD_STRIDE_BYTES) }
    }

    fn payload_at(&self) -> *mut u8 {
        let offset = heads_bytes(self.region.entries) + self.place * self.region.payload_bytes;
        // SAFETY: as in `head_at`.
        unsafe { self.region.base.as_ptr().add(offset) }
    }

    /// Writes the two vectors that tell the kernel where head and payload are, behind the head; gives their address.
    fn vectors(&mut self) -> *const u8 {
        let words =
            [self.head_at() as u64, size_of::<Head>() as u64, self.payload_at() as u64, self.payload().len() as u64];
        // SAFETY: the stride has room for them behind the head, aligned to 8 bytes.
        unsafe {
            let at = self.head_at().add(size_of::<Head>());
            at.cast::<[u64; 4]>().write(words);
            at
        }
    }
}

/// Heads of so many entries, in whole pages.
fn heads_bytes(entries: usize) -> usize {
    (entries * HEAD_STRIDE_BYTES).next_multiple_of(rustix::param::page_size())
}

/// A ring of one queue, and the entries that are the kernel's.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    queue: u16,
    /// By number.
    given: Vec<Option<Slot>>,
    outstanding: usize,
}

/// What the kernel has done.
#[derive(Debug)]
pub(crate) enum Completed {
    /// An entry came back: with a request (0) or an error (a negated errno).
    Entry(Slot, i32),
    /// The descriptor of [`Ring::watch`] can be read.
    Woken,
}

impl Ring {
    /// Makes a ring for one queue with room for `entries_max` entries. It begins with [`Ring::enable`], on the thread
    /// that uses it from then on.
    pub(crate) fn new(queue: u16, entries_max: usize) -> io::Result<Ring> {
        let completions = u32::try_from(entries_max + EXTRA_COMPLETIONS).map_err(io::Error::other)?;
        let ring = IoUring::builder()
            .setup_cqsize(completions.max(SUBMISSIONS).next_power_of_two())
            .setup_clamp()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_no_sqarray()
            .build(SUBMISSIONS)?;
        Ok(Ring { ring, queue, given: Vec::new(), outstanding: 0 })
    }

    /// Does once what a ring is used for beside FUSE: a host may allow that rings are made and forbid the rest, and then
    /// it would be too late when the kernel has been told that there are some.
    pub(crate) fn try_out() -> io::Result<()> {
        let mut ring = Ring::new(0, 1)?;
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let wake = std::os::fd::AsFd::as_fd(&wake);
        ring.enable(wake)?;
        ring.watch(wake)?;
        ring.submit_and_wait(0)
    }

    /// The calling thread uses the ring from now on, for entries of `device`, which the ring holds open until it is
    /// gone: a file that is held need not be looked up and counted for every request, by all processors in one place.
    pub(crate) fn enable(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_enable_rings()?;
        submitter.register_files(&[device.as_raw_fd()])
    }

    /// How many entries are the kernel's.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Gives a new entry to the kernel (`FUSE_IO_URING_CMD_REGISTER`).
    pub(crate) fn register(&mut self, mut slot: Slot) -> io::Result<()> {
        let vectors = slot.vectors() as u64;
        self.give(slot, REGISTER, 0, vectors)
    }

    /// Gives an entry back with the answer that is in its memory (`FUSE_IO_URING_CMD_COMMIT_AND_FETCH`).
    pub(crate) fn commit(&mut self, slot: Slot, commit_id: u64) -> io::Result<()> {
        self.give(slot, COMMIT_AND_FETCH, commit_id, 0)
    }

    fn give(&mut self, slot: Slot, command: u32, commit_id: u64, vectors: u64) -> io::Result<()> {
        let mut request = [0; 80];
        // `fuse_uring_cmd_req`: flags, commit_id, qid.
        request[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        request[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let number = slot.number;
        let mut entry = opcode::UringCmd80::new(types::Fixed(DEVICE), command)
            .cmd(request)
            .addr(Some(vectors))
            .build()
            .user_data(number as u64);
        if vectors != 0 {
            // SAFETY: an entry is 128 bytes as `struct io_uring_sqe` has them (include/uapi/linux/io_uring.h), and
            // bytes 24 to 27 of it are `len`: the number of vectors, which the builder cannot set.
            unsafe { (&raw mut entry).cast::<u8>().add(24).cast::<u32>().write(VECTORS) };
        }
        if self.given.len() <= number {
            self.given.resize_with(number + 1, || None);
        }
        self.push(&entry)?;
        self.given[number] = Some(slot);
        self.outstanding += 1;
        Ok(())
    }

    /// Says so when `fd` can be read, once.
    pub(crate) fn watch(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let readable = u32::from(rustix::event::PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), readable).build().user_data(WOKEN);
        self.push(&entry.into())
    }

    fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        for _ in 0..2 {
            // SAFETY: an entry of FUSE points to memory of a slot, which is kept in `given` until it comes back, or for
            // ever (see `drop`); a poll points to no memory. Descriptors are looked up when the entry is submitted,
            // and one that is closed by then gives an error.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.submit_and_wait(0)?;
        }
        Err(io::Error::other("the kernel takes no more entries of the ring"))
    }

    /// Hands on what was pushed, and waits until at least so much has completed.
    pub(crate) fn submit_and_wait(&mut self, completions: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(completions) {
            Ok(_) => Ok(()),
            Err(error) => match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes what has completed.
    pub(crate) fn completed(&mut self, to: &mut Vec<Completed>) {
        for done in self.ring.completion() {
            if done.user_data() == WOKEN {
                to.push(Completed::Woken);
                continue;
            }
            let number = usize::try_from(done.user_data()).unwrap_or(usize::MAX);
            if let Some(slot) = self.given.get_mut(number).and_then(Option::take) {
                self.outstanding -= 1;
                to.push(Completed::Entry(slot, done.result()));
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may write to entries that it has until the ring is gone, which is some time after it is closed:
        // their memory stays.
        self.given.drain(..).flatten().for_each(std::mem::forget);
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Ring").field("queue", &self.queue).field("outstanding", &self.outstanding).finish()
    }
}

/// A head and the two vectors that tell where it and the payload are.
const HEAD_STRIDE_BYTES: usize = size_of::<Head>() + VECTORS as usize * 16;
const _: () = assert!(HEAD_STRIDE_BYTES == 320 && HEAD_STRIDE_BYTES.is_multiple_of(align_of::<Head>()));
/// `FUSE_URING_IOV_SEGS`: head and payload.
const VECTORS: u32 = 2;
/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// The one file that a ring holds.
const DEVICE: u32 = 0;
/// Entries that can be pushed before they are submitted.
const SUBMISSIONS: u32 = 128;
/// Completions beside those of entries: of the watch.
const EXTRA_COMPLETIONS: usize = 2;
const WOKEN: u64 = u64::MAX;
