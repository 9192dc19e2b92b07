//! Leases that a source has ended by its own word ([`Event::Broken`], [`Event::AllBroken`]).
//!
//! Such a word counts for everything that was asked for before it came, also for an answer that is still being learnt:
//! so what is learnt from these sources bears the time at which it was asked for. A source that is to tell of changes
//! does so for as long as this daemon listens: what an earlier one had learnt is asked about again.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use weft_remote::{Event, FileId, FileKind, Name, clock};
use weft_store::{BindingId, DentryRecord, DentryTarget, NodeId, Record};

use crate::absences::ON_ITS_WAY_MAX;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// What one source has ended.
#[derive(Debug)]
pub(crate) struct Breaks(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Whatever was asked for before this.
    all: SystemTime,
    /// Of these, whatever was asked for before that.
    of: HashMap<NodeId, SystemTime>,
    /// Of these names, by directory and the name's hash, whatever was asked for before that.
    names: HashMap<(NodeId, u64), SystemTime>,
    /// Of all names in these directories, whatever was asked for before that.
    all_names: HashMap<NodeId, SystemTime>,
}

impl Breaks {
    /// Of a source that one begins to listen to now.
    pub(crate) fn begin() -> Breaks {
        Breaks(Mutex::new(State::since(clock::now())))
    }

    pub(crate) fn end(&self, id: NodeId) {
        let mut state = self.0.lock();
        let now = clock::now();
        if state.of.len() >= REMEMBERED_MAX {
            // Too many to remember: the next use of each asks once.
            *state = State::since(now);
        } else {
            state.of.insert(id, now);
        }
    }

    fn end_name(&self, dir: NodeId, name: &Name) {
        let mut state = self.0.lock();
        let now = clock::now();
        if state.names.len() >= REMEMBERED_MAX {
            *state = State::since(now);
        } else {
            state.names.insert((dir, hash_of(name)), now);
        }
    }

    fn end_names(&self, dir: NodeId) {
        let mut state = self.0.lock();
        let now = clock::now();
        if state.all_names.len() >= REMEMBERED_MAX {
            *state = State::since(now);
        } else {
            state.all_names.insert(dir, now);
        }
    }

    fn end_all(&self) {
        *self.0.lock() = State::since(clock::now());
    }

    /// Whether what was asked for at `asked` about a file has ended since.
    pub(crate) fn ended(&self, id: NodeId, asked: SystemTime) -> bool {
        let state = self.0.lock();
        // Where the clock was set back, what has ended after it was asked for seems to have ended before.
        clock::is_to_come(asked) || asked <= state.all || state.of.get(&id).is_some_and(|ended| asked <= *ended)
    }

    /// Whether what was asked for at `asked` about a name has ended since.
    pub(crate) fn name_ended(&self, dir: NodeId, name: &Name, asked: SystemTime) -> bool {
        let state = self.0.lock();
        let ends = [state.names.get(&(dir, hash_of(name))), state.all_names.get(&dir)];
        clock::is_to_come(asked) || asked <= state.all || ends.into_iter().flatten().any(|ended| asked <= *ended)
    }
}

impl State {
    fn since(all: SystemTime) -> State {
        State { all, of: HashMap::new(), names: HashMap::new(), all_names: HashMap::new() }
    }
}

/// Two names with one hash end together, which costs a question.
pub(crate) fn hash_of(name: &Name) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    name.as_bytes().hash(&mut hasher);
    hasher.finish()
}

impl Vfs {
    /// Listens to the remotes' events for as long as there is a file system.
    pub(crate) fn listen(self: &Arc<Self>) {
        for bound in self.namespace.all() {
            let vfs = Arc::downgrade(self);
            let binding = bound.id;
            let mut events = bound.remote.events();
            if bound.breaks.is_some() {
                // A former daemon may have promised the kernel to tell it.
                self.notices.send(Notice::Everything);
            }
            self.runtime.spawn(async move {
                while let Some(event) = futures_util::StreamExt::next(&mut events).await {
                    let Some(vfs) = vfs.upgrade() else { break };
                    // The kernel side may be behind, and no word of this kind is left out.
                    let hearing = vfs.clone();
                    let heard = tokio::task::spawn_blocking(move || hearing.hear(binding, event));
                    if heard.await.is_err() {
                        tracing::error!("an event was not heard to its end");
                    }
                    // A source may wait for that, before it lets others see the change; not for long, for what the
                    // kernel is told may wait for a request, and that for the source.
                    if !vfs.kernel_is_told(TOLD_PATIENCE).await {
                        tracing::debug!("the kernel is not told in time of the end of a lease");
                    }
                }
            });
        }
    }

    fn hear(&self, binding: BindingId, event: Event) {
        let heard = match event {
            Event::Broken(file) => self.break_lease(binding, &file),
            Event::NameBroken { dir, name, file } => self.break_name(binding, &dir, &name, file.as_ref()),
            Event::NamesBroken(dir) => self.break_names(binding, &dir),
            Event::AllBroken => self.break_all(binding),
            // Whether a source is asked, its kind decides at each call.
            Event::Reachable(_) | Event::Unreachable(_) => Ok(()),
        };
        if let Err(error) = heard {
            tracing::warn!(%error, "a broken lease could not be ended");
        }
    }

    /// Ends the lease on a file: the next use asks again.
    pub(crate) fn break_lease(&self, binding: BindingId, file: &FileId) -> Result<()> {
        self.numbers_of(binding, file)?.try_for_each(|id| self.break_lease_of(binding, id))
    }

    fn break_lease_of(&self, binding: BindingId, id: NodeId) -> Result<()> {
        if let Some(breaks) = self.namespace.breaks(binding) {
            breaks.end(id);
        }
        match self.inode(id) {
            // It, or the directory that it was in, is not known any more: a use begins with a look at its name.
            Err(VfsError::Stale) => Ok(()),
            inode => self.distrust(&*inode?),
        }
    }

    /// Ends the leases on a name, on what it led to, and on a file that was told of by way of it: the next use asks again.
    pub(crate) fn break_name(
        &self,
        binding: BindingId,
        dir: &FileId,
        name: &Name,
        file: Option<&FileId>,
    ) -> Result<()> {
        let dir = self.identify(binding, dir)?;
        if let Some(breaks) = self.namespace.breaks(binding) {
            breaks.end_name(dir, name);
        }
        let names = self.renames.lock();
        let known = self.store.dentry(dir, name)?;
        if let Some(mut dentry) = known {
            dentry.learnt = SystemTime::UNIX_EPOCH;
            let gone = matches!(dentry.target, DentryTarget::Absent);
            let dentry = (!gone).then_some(dentry);
            self.store.apply(vec![Record::Dentry(dir, name.clone(), dentry)])?;
        }
        drop(names);
        self.take_back_absence(dir, name);
        let target = known.and_then(|dentry| dentry.node());
        self.expire(dir, vec![(name.clone(), target)]);
        let told_of = file.map(|file| self.numbers_of(binding, file)).transpose()?;
        let ended = target.into_iter().chain(told_of.into_iter().flatten().filter(|id| target != Some(*id)));
        ended.into_iter().try_for_each(|id| self.break_lease_of(binding, id))
    }

    /// Ends the leases on a directory and on all names in it: the next use of each asks again.
    fn break_names(&self, binding: BindingId, dir: &FileId) -> Result<()> {
        let id = self.identify(binding, dir)?;
        if let Some(breaks) = self.namespace.breaks(binding) {
            breaks.end_names(id);
        }
        let names = self.store.dentries(id, None, NAMES_TOLD_MAX + 1)?;
        if names.len() > NAMES_TOLD_MAX {
            self.notices.send_surely(Notice::Everything);
        } else {
            self.expire(id, names.into_iter().map(|(name, dentry)| (name, dentry.node())).collect());
        }
        self.break_lease(binding, dir)
    }

    /// Ends all leases of a remote.
    fn break_all(&self, binding: BindingId) -> Result<()> {
        if let Some(breaks) = self.namespace.breaks(binding) {
            breaks.end_all();
        }
        self.absences.clear();
        self.notices.send_surely(Notice::Everything);
        for inode in self.inodes.all() {
            if inode.record.read().binding == binding {
                self.distrust_content(inode.id)?;
                self.notices.send_surely(Notice::Attributes { node: self.namespace.shown(inode.id) });
                self.forget_pages_unopened(inode.id);
            }
        }
        Ok(())
    }

    /// Has the kernel look names up again that lead to these, as far as is known. An answer that is on its way to the kernel,
    /// to somebody who has the name looked up anew while it is known, may come after that and have it kept. One to somebody
    /// who looks it up for the first time, or has the directory listed, is waited for there.
    pub(crate) fn expire(&self, dir: NodeId, names: Vec<(Name, Option<NodeId>)>) {
        let parent = self.namespace.shown(dir);
        for (name, _) in &names {
            self.notices.send_surely(Notice::Expired { parent, name: name.clone() });
        }
        self.expire_again(dir, names);
    }

    /// The second half of [`Vfs::expire`].
    pub(crate) fn expire_again(&self, dir: NodeId, names: Vec<(Name, Option<NodeId>)>) {
        let named = |id| self.inodes.peek(id).and_then(|inode| inode.content.lock().named);
        let is_late = |id| named(id).is_some_and(|named| named.elapsed() < ON_ITS_WAY_MAX);
        let parent = self.namespace.shown(dir);
        let late = names.into_iter().filter(|(_, target)| target.is_some_and(is_late));
        let notices: Vec<Notice> = late.map(|(name, _)| Notice::Expired { parent, name }).collect();
        if !notices.is_empty() {
            self.notices.send_after(ON_ITS_WAY_MAX, notices, &self.runtime);
        }
    }

    /// Has the next use of an inode ask its remote, whatever leases say.
    pub(crate) fn distrust(&self, inode: &Inode) -> Result<()> {
        let names = self.renames.lock();
        let record = {
            let mut record = inode.record.write();
            record.learnt = SystemTime::UNIX_EPOCH;
            record.clone()
        };
        let mut changes = vec![Record::Node(inode.id, Some(record.clone()))];
        if let Some(mut dentry) = self.store.dentry(record.parent, &record.name)? {
            dentry.learnt = SystemTime::UNIX_EPOCH;
            changes.push(Record::Dentry(record.parent, record.name.clone(), Some(dentry)));
        }
        if let Some(mut listing) = self.store.listing(inode.id)? {
            listing.learnt = SystemTime::UNIX_EPOCH;
            changes.push(Record::Listing(inode.id, Some(listing)));
        }
        self.store.apply(changes)?;
        drop(names);
        self.distrust_content(inode.id)?;
        self.expire(record.parent, vec![(record.name.clone(), Some(inode.id))]);
        self.notices.send_surely(Notice::Attributes { node: self.namespace.shown(inode.id) });
        self.forget_pages_unopened(inode.id);
        self.forget_absences(inode)
    }

    /// Has the next use of a file ask its remote where a name, as is learnt now, leads to it no longer: what the source was to
    /// tell of it, it may have been to tell by that name. A directory is told of by itself. Does not wait for the kernel.
    pub(crate) fn distrust_left(
        &self,
        binding: BindingId,
        known: Option<DentryRecord>,
        now: Option<NodeId>,
    ) -> Result<()> {
        let left = known.and_then(|known| known.node()).filter(|id| Some(*id) != now);
        let (Some(id), Some(breaks)) = (left, self.namespace.breaks(binding)) else { return Ok(()) };
        let inode = match self.inode(id) {
            // It is not known any more.
            Err(VfsError::Stale) => return Ok(()),
            inode => inode?,
        };
        if inode.kind() == FileKind::Directory || inode.is_gone() {
            return Ok(());
        }
        breaks.end(id);
        self.distrust_quietly(&inode)?;
        self.distrust_content(id)?;
        self.notices.send_later(Notice::Attributes { node: self.namespace.shown(id) }, &self.runtime);
        self.forget_pages_unopened(id);
        Ok(())
    }

    /// Names that a directory did not have may be there now.
    pub(crate) fn forget_absences(&self, dir: &Inode) -> Result<()> {
        if dir.kind() != FileKind::Directory {
            return Ok(());
        }
        self.take_back_absences(dir.id);
        let forgotten = match self.absent_names.take(dir.id) {
            Some(names) => self.forget_absent(dir.id, names),
            None => {
                self.absent_names.begin(dir.id);
                self.forget_all_absent(dir.id)
            }
        };
        forgotten.inspect_err(|_| self.absent_names.give_up(dir.id))
    }

    /// Forgets those of these names that are absent.
    fn forget_absent(&self, dir: NodeId, names: Vec<Name>) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        {
            // What is made meanwhile stays.
            let _names = self.renames.lock();
            let mut changes = Vec::with_capacity(names.len());
            for name in &names {
                if self.store.dentry(dir, name)?.is_some_and(|known| known.target == DentryTarget::Absent) {
                    changes.push(Record::Dentry(dir, name.clone(), None));
                }
            }
            self.store.apply(changes)?;
        }
        // Not under the lock, for this may wait for the kernel, and that for a request.
        let parent = self.namespace.shown(dir);
        names.into_iter().for_each(|name| self.notices.send_surely(Notice::Expired { parent, name }));
        Ok(())
    }

    fn forget_all_absent(&self, dir: NodeId) -> Result<()> {
        let mut after = None;
        loop {
            let names = self.store.dentries(dir, after.as_ref(), NAMES_AT_ONCE)?;
            let Some((last, _)) = names.last() else { return Ok(()) };
            after = Some(last.clone());
            let absent = names.into_iter().filter(|(_, dentry)| dentry.target == DentryTarget::Absent);
            self.forget_absent(dir, absent.map(|(name, _)| name).collect())?;
        }
    }

    /// Whether the source of this binding tells when what it said has changed.
    pub(crate) fn is_breakable(&self, binding: BindingId) -> bool {
        self.namespace.breaks(binding).is_some()
    }

    /// Whether everything that has changed at the source of an inode is known to have ended what it ended; else what was
    /// promised is asked about. Asked before what is known is looked at: what is heard in between has ended that.
    pub(crate) fn is_told_all(&self, inode: &Inode) -> bool {
        let binding = inode.record.read().binding;
        !self.is_breakable(binding) || self.namespace.remote(binding).is_none_or(|remote| remote.has_told_all())
    }

    /// Waits a little until that is so.
    pub(crate) async fn hear_all(&self, inode: &Inode) {
        let binding = inode.record.read().binding;
        if self.is_breakable(binding)
            && let Some(remote) = self.namespace.remote(binding)
            && tokio::time::timeout(HEARD_PATIENCE, remote.told_all()).await.is_err()
        {
            tracing::debug!(?binding, "its source tells of changes all the time");
        }
    }

    /// Whether its source has ended since what was asked for then about a name.
    pub(crate) fn name_has_ended(&self, dir: &Inode, name: &Name, asked: SystemTime) -> bool {
        let breaks = self.namespace.breaks(dir.record.read().binding);
        breaks.is_some_and(|breaks| breaks.name_ended(dir.id, name, asked))
    }

    /// Whether the source has ended what was asked for about a node at `asked`.
    pub(crate) fn is_broken(&self, binding: BindingId, id: NodeId, asked: SystemTime) -> bool {
        self.namespace.breaks(binding).is_some_and(|breaks| breaks.ended(id, asked))
    }
}

/// Files of which it is remembered when their leases were ended.
const REMEMBERED_MAX: usize = 16_384;
/// How long somebody waits for all that a source has to tell to be heard.
const HEARD_PATIENCE: Duration = Duration::from_millis(50);
/// How long the next word of a source waits for the kernel to be told of the last.
const TOLD_PATIENCE: Duration = Duration::from_millis(50);
/// Names of a directory that the kernel is told of one by one; of more it is told that any name may be another.
const NAMES_TOLD_MAX: usize = 256;
/// Names read from the store at once.
const NAMES_AT_ONCE: usize = 1000;
/// Longest time that the kernel is told to trust what a source may end: it is told of every end, but one that came
/// between two daemons is told to nobody.
pub(crate) const BREAKABLE_TTL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_the_end_has_ended() {
        let before = SystemTime::now();
        let breaks = Breaks::begin();
        assert!(breaks.ended(NodeId(1), before), "another daemon had asked");
        assert!(!breaks.ended(NodeId(1), SystemTime::now()));
        let state = |id| breaks.0.lock().of.contains_key(&NodeId(id));
        breaks.end(NodeId(1));
        assert!(state(1) && !state(2));
        assert!(breaks.ended(NodeId(1), SystemTime::now() - Duration::from_secs(1)));
        let asked = SystemTime::now();
        (0..=REMEMBERED_MAX as u64).for_each(|id| breaks.end(NodeId(id)));
        assert!(breaks.0.lock().of.len() <= REMEMBERED_MAX);
        assert!(breaks.ended(NodeId(0), asked), "what cannot be remembered one by one is remembered of all");
        breaks.end_all();
        assert!(breaks.0.lock().of.is_empty());
    }

    /// Goal: where the clock was set back, the end of what was asked for before that is not taken to be earlier than the asking.
    #[test]
    fn what_was_asked_by_a_clock_that_was_ahead_has_ended() {
        let breaks = Breaks::begin();
        let ahead = SystemTime::now() + Duration::from_secs(5);
        breaks.end_all();
        assert!(breaks.ended(NodeId(1), ahead) && !breaks.ended(NodeId(1), SystemTime::now()));
        assert!(breaks.name_ended(NodeId(1), &Name::new("a").expect("a name"), ahead));
    }

    #[test]
    fn all_names_of_a_directory_end_at_once() {
        let breaks = Breaks::begin();
        let name = Name::new("a").expect("a name");
        let asked = SystemTime::now();
        let ended = |dir| breaks.name_ended(NodeId(dir), &name, asked);
        breaks.0.lock().all_names.insert(NodeId(1), asked);
        assert!(ended(1) && !ended(2));
        assert!(!breaks.name_ended(NodeId(1), &name, SystemTime::now()), "asked since");
        (0..=REMEMBERED_MAX as u64).for_each(|id| breaks.end_names(NodeId(id)));
        assert!(breaks.0.lock().all_names.len() <= REMEMBERED_MAX);
    }
}
