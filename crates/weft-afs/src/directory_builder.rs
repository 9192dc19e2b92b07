//! Makes directories for tests, as a file server would: first fit, new entries at the head of their chains.

use crate::directory::{
    CHAINS, FIRST, HEAD_SLOTS, HEADS_AT, MAP_AT, MAP_PAGES, NAME_AT, PAGE_BYTES, PAGE_SLOTS, PAGES_MAX, SLOT_BYTES,
    TAG, chain_of,
};

/// Where the bitmap of used slots is in a page, in bytes.
const BITMAP_AT: usize = 5;

/// A directory that grows.
pub(crate) struct DirectoryBuilder {
    bytes: Vec<u8>,
}

impl DirectoryBuilder {
    /// A fresh directory with `.` and `..`, both the root.
    pub fn new() -> DirectoryBuilder {
        let mut made = DirectoryBuilder::bare();
        made.insert(b".", 1, 1).insert(b"..", 1, 1);
        made
    }

    /// A directory without any name.
    pub fn bare() -> DirectoryBuilder {
        let mut made = DirectoryBuilder { bytes: Vec::new() };
        made.bytes.resize(PAGE_BYTES, 0);
        made.begin_page(0);
        made.bytes[BITMAP_AT..BITMAP_AT + 2].copy_from_slice(&[0xff, 0x1f]);
        made.bytes[MAP_AT..HEADS_AT].fill(PAGE_SLOTS as u8);
        made.bytes[MAP_AT] = (PAGE_SLOTS - HEAD_SLOTS) as u8;
        made
    }

    /// Adds a name; it must not be there.
    pub fn insert(&mut self, name: &[u8], vnode: u32, unique: u32) -> &mut DirectoryBuilder {
        let wanted = slots_of(name);
        let slot = self.take_slots(wanted);
        let head_at = HEADS_AT + 2 * chain_of(name);
        let at = slot * SLOT_BYTES;
        let head = [self.bytes[head_at], self.bytes[head_at + 1]];
        self.bytes[at] = FIRST;
        self.bytes[at + 2..at + 4].copy_from_slice(&head);
        self.bytes[at + 4..at + 8].copy_from_slice(&vnode.to_be_bytes());
        self.bytes[at + 8..at + NAME_AT].copy_from_slice(&unique.to_be_bytes());
        self.bytes[at + NAME_AT..at + NAME_AT + name.len()].copy_from_slice(name);
        self.set_word(head_at, slot as u16);
        self
    }

    /// The content.
    pub fn build(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// The first run of free slots, taken.
    fn take_slots(&mut self, wanted: usize) -> usize {
        for page in 0..PAGES_MAX {
            if page * PAGE_BYTES == self.bytes.len() {
                self.bytes.resize((page + 1) * PAGE_BYTES, 0);
                self.begin_page(page);
                self.set_word(0, (page + 1) as u16);
            }
            // Where the map tells of the page, it saves looking.
            if page < MAP_PAGES && usize::from(self.bytes[MAP_AT + page]) < wanted {
                continue;
            }
            let used = |slot: usize| self.bytes[page * PAGE_BYTES + BITMAP_AT + slot / 8] >> (slot % 8) & 1 == 1;
            let fit = (0..=PAGE_SLOTS - wanted).find(|first| !(*first..first + wanted).any(used));
            if let Some(first) = fit {
                for slot in first..first + wanted {
                    self.bytes[page * PAGE_BYTES + BITMAP_AT + slot / 8] |= 1 << (slot % 8);
                }
                if page < MAP_PAGES {
                    self.bytes[MAP_AT + page] -= wanted as u8;
                }
                return page * PAGE_SLOTS + first;
            }
        }
        panic!("the test fills more than a directory can hold");
    }

    fn begin_page(&mut self, page: usize) {
        let at = page * PAGE_BYTES;
        self.set_word(at, u16::from(page == 0));
        self.set_word(at + 2, TAG);
        self.bytes[at + BITMAP_AT] = 1;
        if (1..MAP_PAGES).contains(&page) {
            self.bytes[MAP_AT + page] = (PAGE_SLOTS - 1) as u8;
        }
    }

    fn set_word(&mut self, at: usize, word: u16) {
        self.bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
    }
}

/// Slots that a name takes, its entry included (OpenAFS `src/dir/dir.c`, `afs_dir_NameBlobs`).
pub(crate) fn slots_of(name: &[u8]) -> usize {
    1 + ((name.len() + 1 + 15) >> 5)
}

const _: () = assert!(HEADS_AT + 2 * CHAINS == HEAD_SLOTS * SLOT_BYTES, "the head of page 0 fills its slots");
