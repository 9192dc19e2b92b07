//! The one place with unsafe code: ioctls of `/dev/fuse`.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{self, Direction, Ioctl, IoctlOutput, Opcode};

use crate::abi::BackingMap;

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
