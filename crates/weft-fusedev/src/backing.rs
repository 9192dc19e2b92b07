//! Files that the kernel reads and writes by itself.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::device::Device;
use crate::sys;

/// Makes backing files on one connection (`FUSE_DEV_IOC_BACKING_OPEN`, 7.40).
#[derive(Clone, Debug)]
pub struct Backings {
    device: Arc<Device>,
}

/// A file that the kernel may read and write for this file system. It is given back when this goes; what is open by
/// then stays open.
#[derive(Debug)]
pub struct Backing {
    device: Arc<Device>,
    id: i32,
}

impl Backings {
    pub(crate) fn new(device: Arc<Device>) -> Backings {
        Backings { device }
    }

    /// Gives the kernel a file. One inode may have one backing file at a time: a second open with another one fails
    /// with `EIO`, so a server keeps an id for each.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`; `EINVAL` when the file cannot be one, `EOPNOTSUPP` when its type cannot;
    /// `ELOOP` when it lies on a file system that is stacked too deep.
    pub fn open(&self, file: impl AsFd) -> io::Result<Backing> {
        let id = sys::backing_open(self.device.as_fd(), file.as_fd())?;
        Ok(Backing { device: self.device.clone(), id })
    }

    /// Takes over an id that was made on this connection, by a server that has ended; it must belong to nobody else.
    pub fn adopt(&self, id: i32) -> Backing {
        Backing { device: self.device.clone(), id }
    }
}

impl Backing {
    /// Its number, for [`Opened::backing_id`](crate::Opened::backing_id).
    pub fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // Fails only when the connection is gone, and the id with it.
        let _ = sys::backing_close(self.device.as_fd(), self.id);
    }
}
