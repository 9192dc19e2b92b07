//! A volume in memory.

use std::io;

use parking_lot::RwLock;

use super::Device;

/// Bytes in memory, for tests and for measuring what is not the disk's.
#[derive(Debug, Default)]
pub struct MemoryDevice {
    /// Held for one copy.
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// Zeros.
    pub fn new(length: usize) -> MemoryDevice {
        MemoryDevice::of(vec![0; length])
    }

    /// What another device held.
    pub fn of(bytes: Vec<u8>) -> MemoryDevice {
        MemoryDevice { bytes: RwLock::new(bytes) }
    }

    /// A copy of what it holds.
    pub fn image(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    /// Turns one bit over; one beyond the end is none.
    pub fn flip(&self, bit: u64) {
        let at = usize::try_from(bit / 8).unwrap_or(usize::MAX);
        if let Some(byte) = self.bytes.write().get_mut(at) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

impl Device for MemoryDevice {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.read();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        buffer.copy_from_slice(bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, new: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(new.len());
        bytes.get_mut(start..end).ok_or(io::ErrorKind::StorageFull)?.copy_from_slice(new);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}
