//! Attributes as the kernel wants them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use weft_remote::{Attributes, Caller, FileKind};
use weft_store::{NodeId, NodeRecord};

use crate::faces::Faces;
use crate::handle::HandleId;
use crate::inode::Inode;
use crate::lookup::cap;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What `stat` shows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Which inode of the kernel it is.
    pub node: NodeId,
    /// Which use of that number.
    pub generation: u64,
    /// File, directory or symbolic link; never `Unknown`.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// Last change of content, attributes or names.
    pub changed: SystemTime,
    /// Last use.
    pub accessed: SystemTime,
    /// Permission bits with the set-id and sticky bits.
    pub mode: u16,
    /// How many names it has; 1 where that is not known, of directories too.
    pub links: u32,
    /// Of a device: which.
    pub device: u32,
    /// Bytes that it takes on the disk of its source, or as many as it is long where that is not told.
    pub allocated: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How long the kernel may use these without asking.
    pub ttl: Duration,
}

impl Stat {
    /// The inode number that programs see.
    pub fn number(&self) -> u64 {
        Faces::number(self.node).0
    }

    /// The same of a content with this length. What another takes on the disk of the source is not known.
    pub(crate) fn of_length(self, size: u64) -> Stat {
        Stat { size, allocated: if size == self.size { self.allocated } else { size }, ..self }
    }
}

/// Whose files the mount shows where the source has no owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DefaultOwner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl DefaultOwner {
    /// A record as `stat` shows it; `seen` stands for a time that the source does not tell.
    pub(crate) fn stat(&self, node: NodeId, record: &NodeRecord, seen: SystemTime, ttl: Duration) -> Stat {
        let Attributes { kind, size, modified, mode, owner, changed, accessed, links, device, allocated, .. } =
            record.attributes;
        let (kind, default_mode) = match kind {
            FileKind::Directory => (FileKind::Directory, 0o555),
            FileKind::Symlink => (FileKind::Symlink, 0o777),
            FileKind::Unknown => (FileKind::File, 0o444),
            kind => (kind, 0o444),
        };
        let modified = modified.known().unwrap_or(seen);
        let size = size.known().unwrap_or(0);
        Stat {
            node,
            generation: 0,
            kind,
            size,
            modified,
            changed: changed.known().unwrap_or_else(|| to_the_minute(modified)),
            accessed: accessed.known().unwrap_or(modified),
            // Set-id bits become no rights: every mount is `nosuid`.
            mode: mode.unwrap_or(default_mode) & 0o7777,
            // 1 for directories too where the source does not say (find(1) takes that for "not known").
            links: links.unwrap_or(1),
            device: device.unwrap_or(0),
            allocated: allocated.unwrap_or(size),
            uid: owner.map_or(self.uid, |owner| owner.uid),
            gid: owner.map_or(self.gid, |owner| owner.gid),
            ttl,
        }
    }
}

/// A time of modification as the time of change of a source that tells none. Lists of the web tell minutes and the files
/// themselves seconds: a program that looks whether a file changed while it read it (tar(1) does, by this time alone)
/// would find that one did which only came to be known better.
fn to_the_minute(modified: SystemTime) -> SystemTime {
    match modified.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs() / 60 * 60),
        Err(_) => modified,
    }
}

impl Vfs {
    /// What `stat` shows of an open file: its own length. Trusted as long as the node's where both agree, for the
    /// kernel asks at the end of every file whose attributes it does not trust.
    pub(crate) fn stat_open(&self, node: NodeId, handle: HandleId) -> Result<Option<Stat>> {
        let Some(handle) = self.handles.get(handle) else { return Ok(None) };
        if handle.inode.id != self.namespace.real(node) {
            return Ok(None);
        }
        if handle.is_over() && !handle.by_former.load(Ordering::Acquire) {
            if handle.goes_on() {
                return Ok(None);
            }
            // By the length that the file has it would be cut off, or filled up.
            return Err(VfsError::Changed);
        }
        if handle.draft().is_some() || handle.writing || handle.inode.shows_newest() {
            // Of what is written here, the inode tells.
            return Ok(None);
        }
        let Some(length) = handle.length() else { return Ok(None) };
        let agreed = handle.inode.record.read().attributes.size.exact() == Some(length);
        let ttl = if agreed { self.attributes_remaining(&handle.inode)? } else { Duration::ZERO };
        Ok(Some(self.show(&handle.inode, ttl, &Caller::DAEMON).of_length(length)))
    }

    /// What `stat` shows of an inode, to somebody who may trust it that long.
    pub(crate) fn show(&self, inode: &Inode, ttl: Duration, to: &Caller) -> Stat {
        // Before the content: that is the order of their locks.
        let draft = inode.draft();
        // Held over all of it, so that nobody is told the length of one version by the number of another.
        let mut content = inode.content.lock();
        let node = self.namespace.shown(inode.id);
        let record = inode.record.read();
        let is_directory = record.attributes.kind == FileKind::Directory;
        if is_directory {
            // Before it is looked what it is: whoever changes that looks afterwards who was told.
            content.told_to.note(to.pid, Instant::now());
        }
        // Who has another version open asks for its length at the end of this one.
        let untrusted = content.is_open_otherwise() || content.ended.is_some() || self.is_private(record.audience);
        let ttl = if untrusted { Duration::ZERO } else { cap(ttl) };
        let seen = content.seen.unwrap_or(record.learnt);
        let generation = self.namespace.generation(node);
        let mut stat = Stat { generation, ..self.default_owner().stat(node, &record, seen, ttl) };
        if let Some(draft) = draft {
            stat = stat.of_length(draft.dirty.length());
            stat.ttl = Duration::ZERO;
            if draft.dirty.is_unsent() {
                stat.allocated = stat.size;
                stat.modified = draft.written();
                stat.changed = draft.written();
            }
        } else if !is_directory {
            stat = stat.of_length(content.ended.and_then(|ended| ended.shown).unwrap_or(stat.size));
            content.pages_told(stat.size);
        }
        stat
    }
}
