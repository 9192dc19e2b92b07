//! A device that lets a test act in the middle of its I/O.

use std::fmt::{Debug, Formatter};
use std::io;

use parking_lot::Mutex;
use weft_segment::device::{Device, MemoryDevice};

/// Something to do once.
pub type Once = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A device that does something once.
pub struct Meddling {
    pub inner: MemoryDevice,
    /// Done after it has read and before it says so.
    pub after_read: Once,
    /// Done after it has written and before it says so.
    pub after_write: Once,
}

impl Meddling {
    pub fn of(image: Vec<u8>) -> Meddling {
        Meddling { inner: MemoryDevice::of(image), after_read: Once::default(), after_write: Once::default() }
    }
}

fn meddle(once: &Once) {
    let meddle = once.lock().take();
    if let Some(meddle) = meddle {
        meddle();
    }
}

impl Debug for Meddling {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for Meddling {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)?;
        meddle(&self.after_read);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)?;
        meddle(&self.after_write);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn name(&self) -> String {
        "meddling".to_owned()
    }
}
