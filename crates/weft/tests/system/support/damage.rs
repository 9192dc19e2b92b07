//! Damage to what a cache holds on disk.

use std::os::unix::fs::FileExt;
use std::path::Path;

/// Changes a byte of a small content wherever a volume of the cache has it. The content has at least 64 bytes.
pub fn damage_small(cache: &Path, content: &[u8]) {
    let volume = cache.join("segments/volume-0000");
    let file = std::fs::OpenOptions::new().write(true).open(&volume).expect("opened");
    let bytes = std::fs::read(&volume).expect("read");
    let windows = bytes.windows(64).enumerate().filter(|(_, window)| *window == &content[..64]);
    let places: Vec<usize> = windows.map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the content is there");
    for at in places {
        file.write_all_at(&[bytes[at + 9] ^ 0x40], at as u64 + 9).expect("written");
    }
}
