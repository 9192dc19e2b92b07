//! Files and directories that their source no longer has, or not where they were.
//!
//! Where a file is what its name says (a URL), the name is absent with it. Where files have identities of their own, its
//! name may lead to another by now: to one that was moved there, as editors do when they save. So the source is asked
//! about the name as well, and whoever came by the inode is told to look the path up again. What is asked of a directory, a
//! name in it above all, is no answer either when another has taken its place. A name that leads to what is gone all the same, as
//! a mount point of AFS whose volume is not there, leads to nothing when that is so twice in a row.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_remote::{Call, Lease, Name, RemoteError, Version, clock};
use weft_store::{BindingId, DentryRecord, DentrySource, DentryTarget, ListingRecord, NodeId, Record};

use crate::content::Check;
use crate::inode::Inode;
use crate::learn::Told;
use crate::notice::Notice;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// What the name leads to under which something was known that is gone.
enum Led {
    Nowhere,
    /// To the same as before.
    There,
    /// To another, or that is not told.
    Elsewhere,
}

impl Vfs {
    /// Learns that a file is gone at the source; what whoever came by its inode is told: `NotFound` where there is nothing
    /// at its name, else `Stale`, with which the kernel looks the path up again.
    pub(crate) async fn learn_gone(&self, call: &Call, inode: &Inode) -> Result<VfsError> {
        self.give_up_content(inode.id)?;
        inode.keep_written();
        if self.has_identities(inode)? {
            return match Box::pin(self.ask_for_name(call, inode)).await? {
                // What the path leads to is absent, and not what was to be made or found there: the kernel knows what to do.
                Led::Nowhere | Led::There if self.begins_again(call, inode) => Ok(VfsError::Stale),
                Led::Nowhere | Led::There => Ok(VfsError::NotFound),
                Led::Elsewhere => Ok(VfsError::Stale),
            };
        }
        let _names = self.renames.lock();
        let record = inode.record();
        let known = self.store.dentry(record.parent, &record.name)?;
        let leads_here = known.is_none_or(|known| known.target == DentryTarget::Node(inode.id));
        // It may have come back, and be listed.
        if leads_here && !self.is_listed_since(record.parent, known.as_ref(), call.begun) {
            let told = (Lease::lasting(GONE_LEASE), clock::now());
            self.put_absence(record.parent, &record.name, known, told)?;
        }
        Ok(VfsError::NotFound)
    }

    /// What a name leads to, by what is known of it and the word of its source on a file that somebody reads.
    pub(crate) async fn leads_by_now(
        self: &Arc<Self>,
        call: &Call,
        dir: &Inode,
        name: &Name,
        (id, ttl): (NodeId, Duration),
    ) -> Result<Option<DentryTarget>> {
        let known = Some(DentryTarget::Node(id));
        if !self.is_read_now(id) {
            return Ok(known);
        }
        let inode = self.inode(id)?;
        // A list may tell the name alone; a source that tells of changes tells of the name with them.
        let is_told = self.is_breakable(inode.record.read().binding);
        if !ttl.is_zero() && (is_told || !self.attributes_remaining(&inode)?.is_zero()) {
            return Ok(known);
        }
        // Whatever comes of it, the lookup goes on with what is known then: to whom has it open a file is there all the same.
        drop(Box::pin(self.refresh(call, inode)).await);
        Ok(self.store.dentry(dir.id, name)?.map(|dentry| dentry.target))
    }

    /// What whoever asked a directory for something is told when the source no longer has it: as of a file. Other errors are
    /// what they are.
    pub(crate) async fn gone_directory(&self, call: &Call, dir: &Inode, error: VfsError) -> VfsError {
        if !is_gone(&error) || !self.has_identities(dir).unwrap_or(false) {
            return error;
        }
        match Box::pin(self.ask_for_name(call, dir)).await {
            Ok(Led::Elsewhere) => VfsError::Stale,
            // It may have come back in between.
            Ok(Led::There) if self.begins_again(call, dir) => VfsError::Stale,
            Ok(Led::Nowhere | Led::There) => VfsError::NotFound,
            Err(_) => error,
        }
    }

    /// The same of a change in directories, which may have found a name absent: they are asked about first.
    pub(crate) async fn gone_in_change(&self, call: &Call, dirs: &[&Arc<Inode>], error: VfsError) -> VfsError {
        if !is_gone(&error) {
            return error;
        }
        for dir in dirs {
            let Ok(remote) = self.remote_of(dir) else { continue };
            let file = dir.record().file;
            if let Err(gone) = self.ask_of(call, dir, || remote.attributes(call, &file, &Version::None)).await
                && let VfsError::Stale = self.gone_directory(call, dir, gone).await
            {
                return VfsError::Stale;
            }
        }
        error
    }

    /// Whether the list of the directory above, asked for now, is without one that gives no list: by itself that says nothing,
    /// for there may be files in it all the same.
    pub(crate) async fn is_gone_by_list(self: &Arc<Self>, call: &Call, dir: &Inode) -> Result<bool> {
        let (above, name) = {
            let record = dir.record.read();
            (record.parent, record.name.clone())
        };
        if self.has_identities(dir)? || self.namespace.is_own(above) {
            return Ok(false);
        }
        let tells = |listing: ListingRecord| listing.completeness.denies(&name);
        if !self.store.listing(above)?.is_some_and(tells) {
            return Ok(false);
        }
        if let Err(error) = Box::pin(self.relist(call, &self.inode(above)?)).await {
            tracing::debug!(%error, "the list above does not tell whether a directory is there");
            return Ok(false);
        }
        let leads = self.store.dentry(above, &name)?.and_then(|leads| leads.node());
        Ok(leads != Some(dir.id) && self.store.listing(above)?.is_some_and(tells))
    }

    /// Has the name of a directory that gives no list lead to nothing if that is so now, where it was found by that name, and no
    /// list tells of it.
    pub(crate) async fn ask_if_looked_up(&self, call: &Call, dir: &Inode) -> Result<()> {
        let is_looked_up = |known: DentryRecord| known.source == DentrySource::LookedUp;
        if !self.has_identities(dir)? && self.name_of(dir)?.is_some_and(is_looked_up) {
            Box::pin(self.ask_for_name(call, dir)).await?;
        }
        Ok(())
    }

    /// What is known of the name of an inode, if that leads to it.
    pub(crate) fn name_of(&self, inode: &Inode) -> Result<Option<DentryRecord>> {
        let (above, name) = {
            let record = inode.record.read();
            (record.parent, record.name.clone())
        };
        Ok(self.store.dentry(above, &name)?.filter(|known| known.node() == Some(inode.id)))
    }

    /// What whoever came by an inode is told when the source says that it is of another kind now: `Stale`, once it is known what
    /// its name leads to. Other errors are what they are.
    pub(crate) async fn of_another_kind(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        error: VfsError,
    ) -> VfsError {
        use RemoteError::{IsADirectory, NotADirectory};
        if !matches!(error, VfsError::Remote(IsADirectory { .. } | NotADirectory { .. })) {
            return error;
        }
        match Box::pin(self.check(call, inode)).await {
            Ok(Check::Elsewhere(_)) => VfsError::Stale,
            Ok(Check::Unchanged | Check::Changed) | Err(_) => error,
        }
    }

    /// Whether a file of this tree stays itself under another name: then one that is gone says nothing of its names. So it is
    /// offline as well.
    pub(crate) fn has_identities(&self, inode: &Inode) -> Result<bool> {
        let binding = inode.record.read().binding;
        self.tree_has_identities(binding)
    }

    /// The same of all files of a tree. Elsewhere a file is whatever has its name: another that has it later is taken to be the same.
    pub(crate) fn tree_has_identities(&self, binding: BindingId) -> Result<bool> {
        Ok(self.remote(binding)?.capabilities().stable_ids)
    }

    /// Asks what the name leads to now under which a file was known that is gone.
    async fn ask_for_name(&self, call: &Call, gone: &Inode) -> Result<Led> {
        let (id, name) = {
            let record = gone.record.read();
            (record.parent, record.name.clone())
        };
        self.doubt_name(id, &name)?;
        if self.namespace.is_own(id) {
            // A tree whose top is gone.
            return Ok(Led::Nowhere);
        }
        let dir = self.inode(id)?;
        let (parent, remote) = (dir.record(), self.remote_of(&dir)?.clone());
        let asked = self.ask_of(call, &dir, || remote.lookup(call, &parent.file, &name)).await;
        // The next look-up meets what kept the source from answering.
        let Ok(answer) = asked else { return Ok(Led::Elsewhere) };
        let told = Told::by(&answer);
        match answer.value {
            Some(found) => {
                let mut entry = found.entry;
                entry.name = name;
                let (found, _) = self.learn_entry(dir.id, parent.binding, &entry, &told)?;
                Ok(if found == gone.id { Led::There } else { Led::Elsewhere })
            }
            // A name has one record, for everyone: that it is absent for this caller tells others nothing.
            None if self.is_private(told.audience) => Ok(Led::Nowhere),
            None => {
                let learnt = self.learnt(parent.binding, &told);
                let is_newest = self.learn_absence(dir.id, parent.binding, &name, &told, learnt)?;
                Ok(if is_newest { Led::Nowhere } else { Led::Elsewhere })
            }
        }
    }

    /// Has the next look-up of a name ask the source, where it is known to lead to a file, of which something else has told
    /// otherwise.
    pub(crate) fn doubt_name(&self, dir: NodeId, name: &Name) -> Result<()> {
        let _names = self.renames.lock();
        let known = self.store.dentry(dir, name)?;
        if let Some(known) = known.filter(|known| known.target != DentryTarget::Absent) {
            let doubted = DentryRecord { learnt: SystemTime::UNIX_EPOCH, ..known };
            self.store.apply(vec![Record::Dentry(dir, name.clone(), Some(doubted))])?;
            self.notices.send(Notice::Expired { parent: self.namespace.shown(dir), name: name.clone() });
            self.expire_again(dir, vec![(name.clone(), known.node())]);
        }
        Ok(())
    }
}

/// How long a name is taken to be absent whose file the source says is gone.
const GONE_LEASE: Duration = Duration::from_secs(5);
