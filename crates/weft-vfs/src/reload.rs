//! Validating now, whatever the leases say.

use std::sync::Arc;

use weft_remote::{Call, Caller, FileKind, Name, RemoteError};
use weft_store::{DentryRecord, DentrySource, DentryTarget, NodeId, Record};

use crate::content::Check;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What a validation found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Files and directories that were checked.
    pub checked: u64,
    /// Those that had changed.
    pub changed: u64,
    /// Those that are gone.
    pub gone: u64,
    /// Those that could not be checked.
    pub failed: u64,
}

/// Something that was not known.
const FOUND: Reloaded = Reloaded { checked: 1, changed: 1, gone: 0, failed: 0 };

/// What is asked about.
enum Asked {
    /// What it is, and what is in it.
    Content,
    /// Whether it is there.
    Presence,
}

/// A name that is known to be absent.
struct Absence {
    dir: NodeId,
    name: Name,
    dentry: DentryRecord,
}

impl Vfs {
    /// Validates a file or a directory now, whatever the leases say; with `recursive` everything below that is
    /// cached or listed.
    ///
    /// # Errors
    /// `NotFound` when the path is not there; otherwise failures are counted, except that of the path itself. With `recursive`
    /// a refusal of that is counted as well where something below it is known, which may be told of all the same.
    pub async fn reload(self: &Arc<Self>, path: &[Name], recursive: bool, caller: Caller) -> Result<Reloaded> {
        self.try_again(path);
        let top = match self.find(path) {
            Err(VfsError::NotFound) => {
                let done = self.reload_unknown(path, caller).await?;
                if self.reach_unlisted(path, caller).await? {
                    return Ok(FOUND);
                }
                // Its list was asked for, and has no such name.
                return self.find(path).map(|_| done);
            }
            found => found?,
        };
        let mut done = Reloaded::default();
        if self.namespace.is_own(top) {
            let mut waiting: Vec<NodeId> = self.children(top)?;
            return self.reload_all(&mut waiting, recursive, caller, done).await;
        }
        let inode = self.inode(top)?;
        let outcome = self.reload_one(&inode, caller, &mut done).await;
        if let Err(VfsError::Stale) = outcome {
            // Something else has its place now.
            return self.look_for(path, caller).await.map(|()| FOUND);
        }
        if done.gone > 0 {
            return Err(VfsError::NotFound);
        }
        let mut waiting = if recursive { self.children(inode.id)? } else { Vec::new() };
        match outcome {
            Err(error) if waiting.is_empty() || !is_refusal(&error) => return Err(error),
            outcome => done.failed += u64::from(outcome.is_err()),
        }
        self.reload_all(&mut waiting, recursive, caller, done).await
    }

    /// Asks now for a path that is not known, or known to be absent. Where the source is silent, all is as before.
    ///
    /// # Errors
    /// `NotFound` when it is not there; whatever keeps the source from answering.
    pub(crate) async fn reload_unknown(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<Reloaded> {
        let absence = self.forget_absence(path)?;
        let asked = self.ask_for_unknown(path, caller).await;
        if let Some(absence) = absence
            && matches!(&asked, Err(error) if !is_gone(error))
        {
            self.put_back(absence)?;
        }
        asked
    }

    /// Asks for a path of whose name nothing is known.
    async fn ask_for_unknown(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<Reloaded> {
        // It may be in the list by now: that says so, or that it is not.
        let Some(dir) = self.denied_by(path, &caller)? else {
            return self.look_for(path, caller).await.map(|()| FOUND);
        };
        let mut done = Reloaded::default();
        let listed = self.reload_one(&self.inode(dir)?, caller, &mut done).await;
        if self.denied_by(path, &caller)?.is_none() {
            // The list is refused now, or not all of it is told.
            return self.look_for(path, caller).await.map(|()| FOUND);
        }
        listed.map(|()| done)
    }

    /// Asks for a path by its name where the list of its directory has none: lists may leave out what is there. Whether it is.
    async fn reach_unlisted(self: &Arc<Self>, path: &[Name], caller: Caller) -> Result<bool> {
        let (Some(name), Some(dir)) = (path.last(), self.denied_by(path, &caller)?) else { return Ok(false) };
        let known = self.store.dentry(dir, name)?.is_some();
        Ok(!known && self.reach(dir, std::slice::from_ref(name), self.call(caller)).await?.is_some())
    }

    /// What is known of a name that is known to be absent; from now on nothing is.
    fn forget_absence(&self, path: &[Name]) -> Result<Option<Absence>> {
        let Some((name, above)) = path.split_last() else { return Ok(None) };
        let Ok(dir) = self.find(above) else { return Ok(None) };
        let dir = self.namespace.real(dir);
        let absent = self.store.dentry(dir, name)?.filter(|dentry| dentry.target == DentryTarget::Absent);
        let Some(dentry) = absent else { return Ok(None) };
        self.store.apply(vec![Record::Dentry(dir, name.clone(), None)])?;
        self.notices.send(Notice::Entry { parent: self.namespace.shown(dir), name: name.clone() });
        Ok(Some(Absence { dir, name: name.clone(), dentry }))
    }

    /// Has a name be absent again, of which nothing else has been learnt.
    fn put_back(&self, absence: Absence) -> Result<()> {
        let Absence { dir, name, dentry } = absence;
        let _names = self.renames.lock();
        if self.store.dentry(dir, &name)?.is_none() {
            self.absent_names.note(dir, &name);
            self.store.apply(vec![Record::Dentry(dir, name, Some(dentry))])?;
        }
        Ok(())
    }

    /// The directory that says of this name that it is absent, by its list.
    fn denied_by(&self, path: &[Name], caller: &Caller) -> Result<Option<NodeId>> {
        let Some((name, above)) = path.split_last() else { return Ok(None) };
        let dir = match self.find(above) {
            Ok(dir) if !self.namespace.is_own(dir) => self.namespace.real(dir),
            _ => return Ok(None),
        };
        let Some(listing) = self.store.listing(dir)? else { return Ok(None) };
        let shown = listing.completeness.denies(name) && self.shows_listing(&*self.inode(dir)?, &listing, caller);
        Ok(shown.then_some(dir))
    }

    async fn reload_all(
        self: &Arc<Self>,
        waiting: &mut Vec<NodeId>,
        recursive: bool,
        caller: Caller,
        mut done: Reloaded,
    ) -> Result<Reloaded> {
        while let Some(node) = waiting.pop() {
            if self.namespace.is_own(node) {
                waiting.extend(self.children(node)?);
                continue;
            }
            let Ok(inode) = self.inode(node) else { continue };
            let is_directory = inode.kind() == FileKind::Directory;
            let outcome = match self.asked_about(&inode)? {
                Some(Asked::Content) => self.reload_one(&inode, caller, &mut done).await,
                Some(Asked::Presence) => self.reload_presence(&inode, caller, &mut done).await,
                None => Ok(()),
            };
            done.failed += u64::from(outcome.is_err());
            if recursive && is_directory {
                waiting.extend(self.children(inode.id)?);
            }
        }
        Ok(done)
    }

    /// What is asked about a file or directory, of which more is known than the list says that names it: how long it is, what is
    /// in it, or that it is there. Where a source tells of changes, only of what is held: it has told of all else.
    fn asked_about(&self, inode: &Inode) -> Result<Option<Asked>> {
        let is_directory = inode.kind() == FileKind::Directory;
        let holds = match is_directory {
            true => self.store.listing(inode.id)?.is_some(),
            false => self.store.object_record(inode.id)?.is_some(),
        };
        if holds {
            return Ok(Some(Asked::Content));
        }
        let is_breakable = self.is_breakable(inode.record.read().binding);
        let Some(known) = self.name_of(inode)?.filter(|_| !is_breakable) else { return Ok(None) };
        let is_told = known.source != DentrySource::Described && inode.record.read().attributes.size.known().is_some();
        Ok(match is_directory {
            true => (known.source == DentrySource::LookedUp).then_some(Asked::Presence),
            false => is_told.then_some(Asked::Content),
        })
    }

    /// Asks whether a directory is there that has never been listed.
    async fn reload_presence(self: &Arc<Self>, dir: &Arc<Inode>, caller: Caller, done: &mut Reloaded) -> Result<()> {
        let call = self.call(caller);
        self.admit(&call, dir).await?;
        match self.check(&call, dir).await {
            Err(error) if is_gone(&error) => {
                self.learn_gone(&call, dir).await?;
                done.gone += 1;
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        done.checked += 1;
        Ok(())
    }

    /// Asks about one file or directory. What is known loses no trust by it: where the source is silent, all stays as it
    /// was.
    async fn reload_one(self: &Arc<Self>, inode: &Arc<Inode>, caller: Caller, done: &mut Reloaded) -> Result<()> {
        let call = self.call(caller).anew();
        let before = inode.record().version;
        let shown = self.admits(inode, &call);
        self.admit(&call, inode).await?;
        if inode.kind() == FileKind::Directory {
            return Box::pin(self.reload_directory(&call, inode, done)).await;
        }
        if !shown {
            // To know that this caller may see it, the source was asked just now.
            done.checked += 1;
            done.changed += u64::from(before != inode.record().version);
            return Ok(());
        }
        let gate = inode.gate.lock().await;
        let outcome = self.check(&call, inode).await;
        drop(gate);
        match outcome {
            Ok(Check::Unchanged) => done.checked += 1,
            Ok(Check::Changed | Check::Elsewhere(_)) => {
                done.checked += 1;
                done.changed += 1;
            }
            Err(error) if is_gone(&error) => {
                self.learn_gone(&call, inode).await?;
                done.checked += 1;
                done.gone += 1;
            }
            Err(error) => {
                inode.note_error(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn reload_directory(self: &Arc<Self>, call: &Call, dir: &Arc<Inode>, done: &mut Reloaded) -> Result<()> {
        let before = self.store.listing(dir.id)?.map(|listing| listing.version);
        if let Err(error) = self.relist(call, dir).await {
            dir.note_error(&error);
            // Names that are known from elsewhere are all that a directory without a list has.
            match self.without_list(call, dir, error.clone()).await {
                Err(error) if is_gone(&error) && self.name_of(dir)?.is_none() => {
                    done.checked += 1;
                    done.gone += 1;
                    return Ok(());
                }
                outcome => outcome?,
            }
            if before.is_some() {
                return Err(error);
            }
        }
        let after = self.store.listing(dir.id)?.map(|listing| listing.version);
        done.checked += 1;
        done.changed += u64::from(before.is_some() && before != after);
        // Names that were looked for one by one are in no list. Not on a thread that a request needs.
        let (vfs, dir) = (self.clone(), dir.clone());
        let forgotten = tokio::task::spawn_blocking(move || vfs.forget_absences(&dir)).await;
        forgotten.unwrap_or_else(|ended| match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The file system ends.
            Err(_) => Ok(()),
        })
    }
}

/// Whether a source has answered, and would not tell: of what it was asked for this says all, and of what lies below nothing.
fn is_refusal(error: &VfsError) -> bool {
    matches!(error, VfsError::Remote(RemoteError::Denied { .. } | RemoteError::Failed { .. }))
}
