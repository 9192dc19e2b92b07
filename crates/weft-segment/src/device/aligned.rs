//! Memory that direct I/O takes.

use std::ops::{Deref, DerefMut};

use super::BLOCK_BYTES;

/// A buffer whose first byte lies at a multiple of [`BLOCK_BYTES`].
#[derive(Debug, Default)]
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// A buffer of `length` zeros.
    pub fn zeroed(length: usize) -> Aligned {
        let bytes = vec![0; length + BLOCK_BYTES];
        // The bytes stay where they are when the buffer is moved: only their owner is.
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        Aligned { bytes, start, length }
    }

    /// Makes it shorter, or as long as it was made.
    pub fn set_length(&mut self, length: usize) {
        self.length = length.min(self.most());
    }

    /// The greatest length that it can have.
    pub fn most(&self) -> usize {
        self.bytes.len().saturating_sub(BLOCK_BYTES)
    }
}

/// Whether direct I/O takes these bytes.
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(BLOCK_BYTES) == 0
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_block_wherever_it_is_moved() {
        let buffers: Vec<Aligned> = (1..20).map(|blocks| Aligned::zeroed(blocks * 512)).collect();
        for (buffer, blocks) in buffers.iter().zip(1..) {
            assert!(is_aligned(buffer));
            assert_eq!(buffer.len(), blocks * 512);
            assert!(!is_aligned(&buffer[1..]));
        }
    }
}
