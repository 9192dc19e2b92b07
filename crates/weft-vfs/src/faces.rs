//! Files that the kernel knows as two inodes.
//!
//! An inode of the kernel has one length and one set of pages. Who has a version of a file open goes on reading it when
//! the source has another one, and whoever opens the file then reads that; were both the same inode, the length of the
//! one would cut the other off or fill it up with zeros. So a file has two numbers towards the kernel, its *faces*. When
//! it turns out to be of another length than a version of it that is being read, it is shown by the other face from then
//! on: its names have to be looked up again, and who comes by the former face is sent to look the name up (`Stale`), but
//! for those who have it open. The inode number that programs see is the same. The same is done when one that is as long is
//! opened ([`crate::beside`]), or when another copy is opened than that which the kernel reads by itself. So that it comes to
//! that, the kernel reads nothing by itself while the former face is in use.
//!
//! Where both faces are in use when a third version comes, the former one is used anew with another generation, by which
//! the kernel tells it from what it had once it has looked the name up, and until then its pages of before are dropped before
//! anybody is told how long it is: who reads the oldest version gets an error (EIO), and never another's bytes.
//! (A daemon that takes the mount over is told of that use by the files that are open.)
//! Where somebody has the file open for writing no face is turned: the kernel is then told to keep no pages of what is
//! opened, and who reads a version of another length gets an error as well ([`crate::ended`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weft_remote::{Attributes, Figure, FileKind, Name, Sameness, Version};
use weft_store::{NodeId, NodeRecord};

use crate::absences::ON_ITS_WAY_MAX;
use crate::handle::{Handle, HandleId, Held};
use crate::inode::{Content, Inode};
use crate::notice::Notice;
use crate::vfs::Vfs;
use crate::{Result, Stat, VfsError};

/// The file that a number of the kernel stands for: the same by both of its faces.
pub fn file_of(face: NodeId) -> NodeId {
    Faces::number(face)
}

/// Which files are shown by their second face.
#[derive(Debug, Default)]
pub(crate) struct Faces {
    turned: Mutex<Turned>,
    /// How many of both: mostly none, and then nobody waits for the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Turned {
    second: HashSet<NodeId>,
    /// Of faces that were used anew: how often.
    generations: HashMap<NodeId, u64>,
}

impl Faces {
    /// The number of a file, by either of its faces.
    pub(crate) fn number(face: NodeId) -> NodeId {
        NodeId(face.0 & !SECOND)
    }

    /// The face that a file is shown by.
    pub(crate) fn of(&self, file: NodeId) -> NodeId {
        let is_second = self.count.load(Ordering::Acquire) > 0 && self.turned.lock().second.contains(&file);
        if is_second { NodeId(file.0 | SECOND) } else { file }
    }

    /// Which use of a face it is.
    pub(crate) fn generation(&self, face: NodeId) -> u64 {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        self.turned.lock().generations.get(&face).copied().unwrap_or(0)
    }

    /// Takes up which use of a face it is.
    pub(crate) fn take_up_generation(&self, face: NodeId, generation: u64) {
        if generation > 0 {
            let mut turned = self.turned.lock();
            turned.generations.insert(face, generation);
            self.count_again(&turned);
        }
    }

    /// Has a file shown by this face, which is used `anew`; false when there are too many of which that is to be
    /// remembered.
    pub(crate) fn show(&self, face: NodeId, anew: bool) -> bool {
        let mut turned = self.turned.lock();
        let remembers_more = anew || face.0 & SECOND != 0;
        if remembers_more && turned.second.len() + turned.generations.len() >= FACES_MAX {
            return false;
        }
        if anew {
            *turned.generations.entry(face).or_default() += 1;
        }
        if face.0 & SECOND == 0 {
            turned.second.remove(&face);
        } else {
            turned.second.insert(Faces::number(face));
        }
        self.count_again(&turned);
        true
    }

    /// A file is there no more, and nobody has it open.
    pub(crate) fn forget(&self, file: NodeId) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut turned = self.turned.lock();
        turned.second.remove(&file);
        for face in [file.0, file.0 | SECOND] {
            turned.generations.remove(&NodeId(face));
        }
        self.count_again(&turned);
    }

    fn count_again(&self, turned: &Turned) {
        self.count.store(turned.second.len() + turned.generations.len(), Ordering::Release);
    }
}

/// What `stat` showed of a file by a face that somebody still has open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Former {
    face: NodeId,
    stat: Stat,
}

impl Vfs {
    /// Puts what is known of an inode in use from now on. By what others have done, and not by what was `changed_here`, a
    /// file is shown by its other face if somebody reads a version of another length; where it cannot be, that version ends.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn replace_record(&self, inode: &Inode, new: &NodeRecord, changed_here: bool) -> Result<()> {
        let size = inode.record.read().attributes.size;
        // What was done here has told of what others wrote meanwhile, where nothing was written here and the length is another.
        let is_told = (!changed_here || size != new.attributes.size) && new.attributes.kind == FileKind::File;
        let may_turn = is_told && !inode.shows_newest() && inode.draft().is_none();
        let is_read = may_turn && inode.content.lock().is_read();
        let handles = if is_read { self.handles.of(inode) } else { Vec::new() };
        // Held until the record is there: who opens the file finds both or neither.
        let mut content = inode.content.lock();
        let former = inode.record.read().clone();
        let turned = may_turn && content.is_read() && self.turn(inode, &mut content, &handles, (&former, new));
        let is_longer_or_shorter = former.attributes.size != new.attributes.size;
        let has_ended = may_turn
            && !turned
            && is_longer_or_shorter
            && self.end_other_lengths(inode, &mut content, &handles, (former.attributes.size, new.attributes.size));
        // What is held is not what the source has, however long that was promised to last.
        let is_outdated = is_told
            && former.version != new.version
            && content
                .current
                .as_ref()
                .is_some_and(|held| held.object.version().compare(&new.version) == Sameness::Different);
        // Somebody else has moved it, of which the kernel may not have heard.
        let has_moved = !changed_here && (former.parent, &former.name) != (new.parent, &new.name);
        if has_several_names(&former) || has_moved {
            content.had_several_names = Some(Instant::now());
        }
        *inode.record.write() = new.clone();
        drop(content);
        if is_outdated {
            self.distrust_content(inode.id)?;
        }
        if turned {
            self.tell_turned(inode.id, &[&former, new]);
        }
        if has_ended {
            self.tell_ended(inode);
        }
        Ok(())
    }

    /// The same for what a former daemon had open: what is known of it may be of another version.
    pub(crate) fn compare_reopened(&self, inode: &Inode) {
        let record = inode.record();
        if record.attributes.kind != FileKind::File || inode.shows_newest() || inode.draft().is_some() {
            return;
        }
        let handles = self.handles.of(inode);
        let unknown = Attributes { size: Figure::Unknown, ..record.attributes };
        let former = NodeRecord { attributes: unknown, ..record.clone() };
        let mut content = inode.content.lock();
        let turned = self.turn(inode, &mut content, &handles, (&former, &record));
        // What the kernel was told by the former daemon is not known.
        let size = record.attributes.size;
        let has_ended = !turned && self.end_other_lengths(inode, &mut content, &handles, (Figure::Unknown, size));
        drop(content);
        if turned {
            self.tell_turned(inode.id, &[&record]);
        }
        if has_ended {
            self.notices.send_later(Notice::Content { node: self.namespace.shown(inode.id) }, &self.runtime);
            self.tell_ended(inode);
        }
    }

    /// Turns to the other face if one of the handles is of another version; says whether it did.
    fn turn(
        &self,
        inode: &Inode,
        content: &mut Content,
        handles: &[Arc<Handle>],
        (former, new): (&NodeRecord, &NodeRecord),
    ) -> bool {
        if former.attributes.size == new.attributes.size {
            return false;
        }
        let is_other = |handle: &Handle| handle.is_of_another_length(new.attributes.size);
        self.turn_from(inode, content, handles, former, (is_other, true))
    }

    /// The same by whatever makes a handle one of another version; unless it `may_end` the oldest, where three would be open.
    pub(crate) fn turn_from(
        &self,
        inode: &Inode,
        content: &mut Content,
        handles: &[Arc<Handle>],
        former: &NodeRecord,
        (is_other, may_end): (impl Fn(&Handle) -> bool, bool),
    ) -> bool {
        let shown = self.namespace.shown(inode.id);
        let other = NodeId(shown.0 ^ SECOND);
        // One that is counted and not there yet has not said yet what it is of.
        let unknown = (content.handles() as usize) > handles.iter().filter(|handle| handle.is_counted()).count();
        let (oldest, readers): (Vec<_>, Vec<_>) =
            handles.iter().filter(|handle| !handle.is_over()).partition(|handle| handle.face() == Some(other));
        let is_read = unknown || readers.iter().any(|handle| is_other(handle));
        if !is_read
            || !(may_end || oldest.is_empty())
            || handles.iter().any(|handle| handle.writing)
            || !self.namespace.show_face(other, !oldest.is_empty())
        {
            return false;
        }
        tracing::debug!(file = inode.id.0, face = other.0, ended = oldest.len(), "an older version is being read");
        let seen = content.seen.unwrap_or(former.learnt);
        let stat = self.default_owner().stat(shown, former, seen, Duration::ZERO);
        oldest.iter().for_each(|handle| handle.over.store(true, Ordering::Release));
        readers.iter().for_each(|handle| handle.by_former.store(true, Ordering::Release));
        content.former = Some(Former { face: shown, stat });
        content.turn();
        inode.told_length.forget();
        if !oldest.is_empty() {
            self.notices.send_later(Notice::Content { node: other }, &self.runtime);
        }
        true
    }

    /// Has the kernel look the names of a file up again that it had and has, and ask about the former face: of what changes
    /// from now on it is told by the other one.
    pub(crate) fn tell_turned(&self, file: NodeId, records: &[&NodeRecord]) {
        let mut names: Vec<(NodeId, Name)> = Vec::new();
        let mut add = |name| {
            if !names.contains(&name) {
                names.push(name)
            }
        };
        for record in records {
            add((record.parent, record.name.clone()));
            if has_several_names(record) {
                self.names_in(record.parent, file).into_iter().for_each(|name| add((record.parent, name)));
            }
        }
        let expired = || {
            let of = |(dir, name): &(NodeId, Name)| Notice::Expired {
                parent: self.namespace.shown(*dir),
                name: name.clone(),
            };
            let former = Notice::Attributes { node: NodeId(self.namespace.shown(file).0 ^ SECOND) };
            names.iter().map(of).chain([former]).collect::<Vec<_>>()
        };
        expired().into_iter().for_each(|notice| self.notices.send(notice));
        // An answer by the former face may be on its way.
        self.notices.send_after(ON_ITS_WAY_MAX, expired(), &self.runtime);
    }

    /// The names in a directory that are known to lead to a file.
    fn names_in(&self, dir: NodeId, file: NodeId) -> Vec<Name> {
        let mut found = Vec::new();
        let mut after: Option<Name> = None;
        // Where the store cannot be read, they are looked up again when they are used.
        while let Ok(names) = self.store.dentries(dir, after.as_ref(), NAMES_AT_ONCE)
            && let Some((last, _)) = names.last()
        {
            after = Some(last.clone());
            found.extend(names.into_iter().filter(|(_, known)| known.node() == Some(file)).map(|(name, _)| name));
        }
        found
    }

    /// Notes by which face a file was opened; false when what is known of it is of another length by now, so that it has to
    /// be opened again.
    ///
    /// # Errors
    /// `Stale` when it is shown by the other one by now: whoever looks its name up again opens that.
    pub(crate) fn note_face(&self, inode: &Inode, face: NodeId, handle: HandleId) -> Result<bool> {
        let Some(handle) = self.handles.get(handle) else { return Ok(true) };
        let is_compared = !inode.shows_newest() && !inode.is_gone() && inode.draft().is_none();
        let _content = inode.content.lock();
        if self.namespace.shown(inode.id) != face {
            return Err(VfsError::Stale);
        }
        if is_compared && handle.is_of_another_length(inode.record.read().attributes.size) {
            return Ok(false);
        }
        handle.face.store(face.0, Ordering::Release);
        Ok(true)
    }

    /// Waits until the kernel has dropped what it has of the shown face from a use before this one. Who is about to be told how long
    /// the file is may have it open by that, and the kernel would fill the last page up with zeros to that length, and show them.
    pub(crate) async fn former_pages_dropped(&self, stat: &Stat) -> Result<()> {
        if stat.generation == 0 {
            return Ok(());
        }
        let inode = self.inode(stat.node)?;
        let is_dropped = inode.content.lock().pages_dropped_for >= stat.generation;
        if !is_dropped && self.kernel_is_told(DROPPED_PATIENCE).await {
            let mut content = inode.content.lock();
            content.pages_dropped_for = content.pages_dropped_for.max(stat.generation);
        }
        Ok(())
    }

    /// What is told of a file to those who asked by this face.
    ///
    /// # Errors
    /// `Stale` when that is a former one, and nobody has the file open by it any more.
    pub(crate) fn by_face(&self, face: NodeId, stat: Stat) -> Result<Stat> {
        if face == stat.node || Faces::number(face) != Faces::number(stat.node) {
            return Ok(stat);
        }
        let inode = self.inode(face)?;
        let handle =
            self.handles.of(&inode).into_iter().find(|handle| handle.face() == Some(face) && !handle.is_over());
        let Some(handle) = handle else { return Err(VfsError::Stale) };
        let former = inode.content.lock().former.filter(|former| former.face == face).map(|former| former.stat);
        let told = former.unwrap_or(stat);
        let size = handle.length().unwrap_or(told.size);
        let (modified, changed) = (told.modified, told.changed);
        Ok(Stat { node: face, modified, changed, ttl: Duration::ZERO, ..stat.of_length(size) })
    }

    /// Takes up by which faces a file was opened under a former daemon: the last one who opened it came by the one that was
    /// shown.
    pub(crate) fn take_up_faces(&self, inode: &Inode) {
        let mut opened = Vec::new();
        self.handles.each_of(inode, |id, handle| opened.extend(handle.face().map(|face| (id.0, face))));
        let Some((_, shown)) = opened.into_iter().max_by_key(|(id, _)| *id) else { return };
        if !self.namespace.show_face(shown, false) {
            return;
        }
        let mut content = inode.content.lock();
        content.open.clear();
        content.open_by_former.clear();
        self.handles.each_of(inode, |_, handle| {
            let by_former = handle.face() != Some(shown);
            handle.by_former.store(by_former, Ordering::Release);
            if !handle.is_counted() {
                return;
            }
            if by_former {
                content.opened_by_former(handle.counted());
                return;
            }
            content.opened(handle.counted());
            if !handle.offered && !handle.bypass_pages.load(Ordering::Relaxed) {
                content.pages_of = Some(handle.counted());
            }
        });
    }

    /// Whether somebody reads a file: then its names are not told before it is known which version the next reader gets.
    pub(crate) fn is_read_now(&self, file: NodeId) -> bool {
        let inode = self.inodes.peek(file);
        inode.is_some_and(|inode| inode.draft().is_none() && inode.content.lock().is_read())
    }
}

impl Handle {
    /// The face that it was opened by; `None` while it is being opened.
    pub(crate) fn face(&self) -> Option<NodeId> {
        let face = self.face.load(Ordering::Acquire);
        (face != 0).then_some(NodeId(face))
    }

    /// Whether its version cannot be read any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The length of what it reads, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match &*self.content.lock() {
            Held::Object(object) => object.length(),
            Held::Lost(lost) => lost.length,
            Held::Empty(_) => Some(0),
            Held::Through(through) => through.length(),
        }
    }

    /// Whether it reads another version than this.
    pub(crate) fn is_of_another_version(&self, version: &Version) -> bool {
        !matches!(self.sameness_of(version), Sameness::Same | Sameness::Equivalent)
    }

    /// What comparing the version that it reads with this one tells. Who reads past the store reads whichever there is.
    pub(crate) fn sameness_of(&self, version: &Version) -> Sameness {
        match &*self.content.lock() {
            Held::Object(held) => held.version().compare(version),
            Held::Lost(lost) => lost.version.compare(version),
            Held::Empty(empty) => empty.compare(version),
            Held::Through(_) => Sameness::Same,
        }
    }

    /// Whether it was opened by a face that the file had before.
    pub(crate) fn by_former(&self) -> bool {
        self.by_former.load(Ordering::Acquire)
    }

    /// Whether the inode's content counts it.
    fn is_counted(&self) -> bool {
        !matches!(*self.content.lock(), Held::Through(_))
    }

    /// Whether it reads a version that is not so long.
    pub(crate) fn is_of_another_length(&self, size: Figure<u64>) -> bool {
        let length = match &*self.content.lock() {
            Held::Object(object) => object.length(),
            Held::Lost(lost) => lost.length,
            Held::Through(through) => through.length(),
            Held::Empty(_) => None,
        };
        matches!((length, size), (Some(length), Figure::Exact(size)) if length != size)
    }
}

/// Whether a file is known to have more than one name.
pub(crate) fn has_several_names(record: &NodeRecord) -> bool {
    record.attributes.links.is_some_and(|links| links > 1)
}

/// Names read from the store at once.
const NAMES_AT_ONCE: usize = 1000;
/// The bit that tells the faces of a file apart: numbers of files have none there.
const SECOND: u64 = 1 << 63;
/// How long the kernel may take to drop pages, before somebody is told how long a file is all the same: it may wait for requests.
const DROPPED_PATIENCE: Duration = Duration::from_secs(1);
/// Files that are shown by their second face, and faces that are used anew, at most.
const FACES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_two_faces_and_the_number_of_one() {
        let (faces, first) = (Faces::default(), NodeId(7));
        let second = NodeId(7 | SECOND);
        assert_eq!((faces.of(first), file_of(second)), (first, first));
        assert!(faces.show(second, false));
        assert_eq!((faces.of(first), faces.of(NodeId(8))), (second, NodeId(8)));
        assert_eq!((faces.generation(first), faces.generation(second)), (0, 0));
        assert!(faces.show(first, true));
        assert_eq!((faces.of(first), faces.generation(first), faces.generation(second)), (first, 1, 0));
    }

    #[test]
    fn there_are_no_more_than_are_remembered_and_the_way_back_is_free() {
        let faces = Faces::default();
        for number in 0..FACES_MAX as u64 {
            assert!(faces.show(NodeId(number | SECOND), false));
        }
        let more = NodeId(FACES_MAX as u64);
        assert!(!faces.show(NodeId(more.0 | SECOND), false) && faces.of(more) == more);
        faces.forget(NodeId(5));
        assert!(faces.of(NodeId(5)) == NodeId(5) && faces.show(NodeId(7), true), "there is room for one");
        faces.forget(NodeId(7));
        assert_eq!(faces.generation(NodeId(7)), 0);
        assert!(faces.show(NodeId(5 | SECOND), false) && faces.show(NodeId(7 | SECOND), false));
        assert!(faces.show(NodeId(1), false) && faces.of(NodeId(1)) == NodeId(1));
        assert!(faces.show(NodeId(more.0 | SECOND), false));
    }
}
