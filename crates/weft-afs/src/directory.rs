//! A directory as a file server keeps it: pages of 2048 bytes that are fetched like a file's content.
//!
//! A page is 64 slots of 32 bytes. Slot 0 of each page is its header; in page 0 the slots 1 to 12 hold a map of free
//! slots and 128 heads of hash chains. An entry begins in one slot and runs on through the following ones of its
//! page: a flag (1), an unused byte, the number of the next slot in its chain (0 ends it), vnode, unique, and the
//! name with a NUL at its end. Slots are numbered through all pages. (OpenAFS `src/dir/dir.h`, `src/dir/dir.c`.)
//!
//! The chains are the truth here, as they are for the server: a name is found by its chain, and the listing is what
//! is in the chains, so the two cannot disagree about a name. The map of free slots is not looked at. Nothing of the
//! rest is believed: a slot has to be one that an entry can begin in, no slot is visited twice, and an entry has to
//! be in the chain of its name. These are the checks of the salvager (`src/dir/salvage.c`), so what is refused here
//! is what a server would have repaired. A name may come twice in a hostile directory; the first of its chain counts.

use crate::directory::DirectoryError as Error;

/// Size of a page, in bytes.
pub const PAGE_BYTES: usize = 2048;
/// Most pages that a directory can have.
pub const PAGES_MAX: usize = 1023;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Size of a slot, in bytes.
pub(crate) const SLOT_BYTES: usize = 32;
/// Slots of a page.
pub(crate) const PAGE_SLOTS: usize = PAGE_BYTES / SLOT_BYTES;
/// Slots of page 0 that are header, map and chains.
pub(crate) const HEAD_SLOTS: usize = 13;
/// Number of hash chains.
pub(crate) const CHAINS: usize = 128;
/// What each page bears in bytes 2 and 3.
pub(crate) const TAG: u16 = 1234;
/// Where the map of free slots begins, in bytes; one byte for each of the first 128 pages.
pub(crate) const MAP_AT: usize = 32;
/// Pages that the map tells of.
pub(crate) const MAP_PAGES: usize = 128;
/// Where the heads of the chains begin, in bytes.
pub(crate) const HEADS_AT: usize = MAP_AT + MAP_PAGES;
/// Where an entry's name begins, in bytes from the start of its slot.
pub(crate) const NAME_AT: usize = 12;
/// The flag of a slot that an entry begins in.
pub(crate) const FIRST: u8 = 1;

/// Why a directory, or one of its names, cannot be used. Trying again helps only if the server repairs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// Not a whole number of pages, none, or too many.
    #[error("a directory has 1 to {PAGES_MAX} pages of {PAGE_BYTES} bytes, not {bytes} bytes")]
    Size {
        /// Bytes that came.
        bytes: usize,
    },
    /// The directory says that it has other pages than came.
    #[error("the directory says that it has {told} pages, and {pages} came")]
    Pages {
        /// What it says.
        told: usize,
        /// Pages that came.
        pages: usize,
    },
    /// A page does not bear the tag of directories.
    #[error("page {page} is not one of a directory")]
    Tag {
        /// Which page.
        page: usize,
    },
    /// A chain leads to where no entry begins.
    #[error("a chain leads to slot {slot}, where no entry begins")]
    Slot {
        /// Which slot.
        slot: usize,
    },
    /// A chain comes to a slot for the second time.
    #[error("a chain leads to slot {slot} again")]
    Loop {
        /// Which slot.
        slot: usize,
    },
    /// The entry is not in the chain of its name, so that it could not be found.
    #[error("the entry at slot {slot} is in a chain that is not its own")]
    Chain {
        /// Which slot.
        slot: usize,
    },
    /// A name that nothing can have: empty, with a slash, longer than [`NAME_BYTES_MAX`] or its page.
    #[error("the entry at slot {slot} has a name that nothing can have")]
    Name {
        /// Which slot.
        slot: usize,
    },
    /// The entry is of no file: its vnode is 0.
    #[error("the entry at slot {slot} leads to no file")]
    NoFile {
        /// Which slot.
        slot: usize,
    },
}

impl DirectoryError {
    /// Whether only one entry is wrong, and the others can be used.
    #[must_use]
    pub fn is_one_entry(self) -> bool {
        matches!(self, Error::Chain { .. } | Error::Name { .. } | Error::NoFile { .. })
    }
}

/// One name in a directory. The volume is the directory's; an odd vnode is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, 1 to 255 bytes without `/` and NUL; may be `.` or `..`.
    pub name: &'a [u8],
    /// The vnode, never 0.
    pub vnode: u32,
    /// The uniquifier.
    pub unique: u32,
}

/// A directory's content, with its pages checked.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    bytes: &'a [u8],
    slots: usize,
}

impl<'a> Directory<'a> {
    /// Checks the pages of a directory that was fetched whole.
    ///
    /// # Errors
    /// `Size`, `Pages` and `Tag`.
    pub fn new(bytes: &'a [u8]) -> Result<Directory<'a>, DirectoryError> {
        let pages = bytes.len() / PAGE_BYTES;
        if !bytes.len().is_multiple_of(PAGE_BYTES) || pages == 0 || pages > PAGES_MAX {
            return Err(Error::Size { bytes: bytes.len() });
        }
        let told = match word(bytes, 0) {
            // Directories of old have no number; there the map says which pages are there.
            0 => bytes[MAP_AT..HEADS_AT].iter().filter(|free| usize::from(**free) != PAGE_SLOTS).count(),
            told => told.into(),
        };
        if told == 0 || told > pages {
            return Err(Error::Pages { told, pages });
        }
        match (0..told).find(|page| word(bytes, page * PAGE_BYTES + 2) != TAG) {
            Some(page) => Err(Error::Tag { page }),
            None => Ok(Directory { bytes, slots: told * PAGE_SLOTS }),
        }
    }

    /// All entries, `.` and `..` among them, chain by chain. After an error that is not of one entry it ends.
    #[must_use]
    pub fn entries(&self) -> Entries<'a> {
        Entries { directory: *self, visited: vec![0; self.slots.div_ceil(64)], chain: 0, next: self.head(0) }
    }

    /// The entry of a name, by its chain. Other entries of that chain that are wrong are passed over.
    ///
    /// # Errors
    /// `Slot` and `Loop`, when the chain breaks before the name is found.
    pub fn find(&self, name: &[u8]) -> Result<Option<Entry<'a>>, DirectoryError> {
        let chain = chain_of(name);
        let mut slot = self.head(chain);
        // A chain that is longer than there are slots has come back to itself.
        for _ in 0..self.slots {
            if slot == 0 {
                return Ok(None);
            }
            let next = self.after(slot)?;
            if let Ok(entry) = self.entry(slot, chain)
                && entry.name == name
            {
                return Ok(Some(entry));
            }
            slot = next;
        }
        if slot == 0 { Ok(None) } else { Err(Error::Loop { slot }) }
    }

    /// The first slot of a chain, 0 for none.
    fn head(&self, chain: usize) -> usize {
        word(self.bytes, HEADS_AT + 2 * chain).into()
    }

    /// Checks that an entry can begin at `slot`, and tells the next of its chain, 0 for none.
    fn after(&self, slot: usize) -> Result<usize, DirectoryError> {
        let first = if slot < PAGE_SLOTS { HEAD_SLOTS } else { 1 };
        let at = slot * SLOT_BYTES;
        if slot >= self.slots || slot % PAGE_SLOTS < first || self.bytes[at] != FIRST {
            return Err(Error::Slot { slot });
        }
        Ok(word(self.bytes, at + 2).into())
    }

    /// Reads the entry at a slot that [`Self::after`] has checked.
    fn entry(&self, slot: usize, chain: usize) -> Result<Entry<'a>, DirectoryError> {
        let at = slot * SLOT_BYTES;
        let page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        let room = &self.bytes[at + NAME_AT..page_end];
        let room = &room[..room.len().min(NAME_BYTES_MAX + 1)];
        let length = room.iter().position(|byte| *byte == 0).ok_or(Error::Name { slot })?;
        let name = &room[..length];
        if name.is_empty() || name.contains(&b'/') {
            return Err(Error::Name { slot });
        }
        if chain_of(name) != chain {
            return Err(Error::Chain { slot });
        }
        let (vnode, unique) = (long(self.bytes, at + 4), long(self.bytes, at + 8));
        if vnode == 0 { Err(Error::NoFile { slot }) } else { Ok(Entry { name, vnode, unique }) }
    }
}

/// The entries of a directory, one by one.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    directory: Directory<'a>,
    /// A bit for each slot that was visited.
    visited: Vec<u64>,
    /// The chain we are in; [`CHAINS`] at the end.
    chain: usize,
    /// The next slot of it, 0 when it has ended.
    next: usize,
}

impl Entries<'_> {
    /// Whether this is the first visit of the slot.
    fn visit(&mut self, slot: usize) -> bool {
        let (word, bit) = (&mut self.visited[slot / 64], 1 << (slot % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DirectoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next == 0 {
            if self.chain + 1 >= CHAINS {
                return None;
            }
            self.chain += 1;
            self.next = self.directory.head(self.chain);
        }
        let slot = self.next;
        let next = match self.directory.after(slot) {
            Ok(_) if !self.visit(slot) => Err(Error::Loop { slot }),
            next => next,
        };
        match next {
            Ok(next) => {
                self.next = next;
                Some(self.directory.entry(slot, self.chain))
            }
            Err(error) => {
                (self.chain, self.next) = (CHAINS, 0);
                Some(Err(error))
            }
        }
    }
}

/// The chain that a name belongs to (OpenAFS `src/dir/dir.c`, `afs_dir_DirHash`).
pub(crate) fn chain_of(name: &[u8]) -> usize {
    let hash = name.iter().fold(0u32, |hash, byte| hash.wrapping_mul(173).wrapping_add(u32::from(*byte)));
    let chain = hash as usize % CHAINS;
    if chain != 0 && hash >= 1 << 31 { CHAINS - chain } else { chain }
}

/// Two bytes at `at`, which the caller knows to be there.
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes at `at`, which the caller knows to be there.
fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
