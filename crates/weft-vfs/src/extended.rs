//! Extended attributes: what `why` tells, one by one, for programs; and those that files have at their sources, which
//! are asked for each time, for nothing of them is stored.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tz::UtcDateTime;
use weft_remote::{
    Audience, Call, Change, FileKind, Lease, RemoteError, Sameness, SourceState, Version, clock, is_access_list,
};
use weft_store::NodeId;

use crate::inode::Inode;
use crate::learn::Told;
use crate::nameless::USER_ATTRIBUTES;
use crate::offline::Mode;
use crate::vfs::{Vfs, is_gone};
use crate::why::version_words;
use crate::{Result, VfsError};

/// How what is held of an inode stands to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its lease lasts.
    Fresh,
    /// Its lease has ended; it is used although the source fails or is not asked.
    Stale,
    /// Its lease has ended, or nothing is held: the next use asks.
    Unchecked,
    /// Its lease has ended, and its source is away, by the user's word or by itself.
    Offline,
    /// It is on its way.
    Arriving,
}

/// On what word something is held.
pub(crate) struct Trust {
    pub(crate) lease: Lease,
    pub(crate) checked: SystemTime,
    pub(crate) audience: Audience,
}

impl Standing {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Standing::Fresh => "fresh",
            Standing::Stale => "stale",
            Standing::Unchecked => "unchecked",
            Standing::Offline => "offline",
            Standing::Arriving => "arriving",
        }
    }
}

impl Vfs {
    /// On what word the content of a file, or the listing of a directory, is held; `None` when it is not.
    pub(crate) fn trust_of(&self, inode: &Inode) -> Result<Option<Trust>> {
        let binding = inode.record.read().binding;
        let counting = |at| if self.is_broken(binding, inode.id, at) { UNIX_EPOCH } else { at };
        if inode.kind() == FileKind::Directory {
            let listing = self.store.listing(inode.id)?;
            return Ok(listing.map(|l| Trust { lease: l.lease, checked: counting(l.learnt), audience: l.audience }));
        }
        let Some(object) = self.store.object_record(inode.id)? else { return Ok(None) };
        let record = inode.record.read();
        let checked = if object.is_superseded() { UNIX_EPOCH } else { counting(object.checked) };
        let (own, told) = ((object.lease, checked), (record.lease, counting(record.learnt)));
        let now = clock::now();
        let left = |(lease, checked): (Lease, SystemTime)| inode.freshness.remaining(&lease, checked, now);
        // A look at the file may have told that its content is this one (see `Vfs::is_current`).
        let is_told = record.version.compare(&object.version) == Sameness::Same;
        let (lease, checked) = if is_told && left(told) > left(own) { told } else { own };
        Ok(Some(Trust { lease, checked, audience: object.audience }))
    }

    /// How what is held of an inode stands to its source now.
    pub(crate) fn state_of(&self, inode: &Inode, now: SystemTime) -> Result<Standing> {
        if inode.arrival(|_| true).is_some() {
            return Ok(Standing::Arriving);
        }
        let away =
            || self.mode_of(inode) == Some(Mode::Offline) || self.source_state(inode) == SourceState::Disconnected;
        let Some(trust) = self.trust_of(inode)? else {
            return Ok(if away() { Standing::Offline } else { Standing::Unchecked });
        };
        if inode.freshness.holds(&trust.lease, trust.checked, now) {
            return Ok(Standing::Fresh);
        }
        Ok(match () {
            () if away() => Standing::Offline,
            () if self.is_fetch_only(inode) || self.served_since(inode, &trust.lease, trust.checked).is_some() => {
                Standing::Stale
            }
            () => Standing::Unchecked,
        })
    }

    /// The extended attribute `name` of a node: `user.weft.*` tell what `why` tells. `None` for any other name, and for
    /// what this node does not have.
    ///
    /// # Errors
    /// `Stale` when the node is not known.
    pub fn extended(&self, node: NodeId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(key) = name.strip_prefix(OWN_ATTRIBUTES) else { return Ok(None) };
        if self.namespace.is_own(node) {
            return Ok(None);
        }
        let inode = self.inode(node)?;
        let now = clock::now();
        let text = match key {
            b"cached" => Some(self.cached_word(&inode)?.to_string()),
            b"state" => Some(self.state_of(&inode, now)?.as_str().to_string()),
            b"version" => self.store.object_record(inode.id)?.map(|object| version_words(&object.version)),
            b"etag" => self.entity_tag(&inode)?,
            b"validated" => self.checked_at(&inode)?.map(time_text),
            b"age" => {
                let age = |at: SystemTime| now.duration_since(at).unwrap_or(Duration::ZERO).as_secs().to_string();
                self.checked_at(&inode)?.map(age)
            }
            b"error" => inode.content.lock().last_error.as_ref().map(|(_, error)| error.to_string()),
            b"source" => inode.record().origin.map(|origin| origin.source),
            b"url" => self.told_about(&inode, "url")?,
            b"cell" => self.told_about(&inode, "cell")?,
            b"cells" => self.told_about(&inode, "cells")?,
            b"fid" => self.told_about(&inode, "fid")?,
            b"mount_point" => self.told_about(&inode, "mount point")?,
            b"freshness" => Some(inode.freshness.to_string()),
            b"class" => Some(self.class_words(inode.id)?),
            b"unsent" => self.unsent_of(&inode, Vec::new()).map(|unsent| unsent.bytes.to_string()),
            b"listed_by" => self.listed_by(&inode)?,
            _ => None,
        };
        Ok(text.map(String::into_bytes))
    }

    /// What the kind of tree tells of a file under a name, without asking anybody.
    fn told_about(&self, inode: &Inode, fact: &str) -> Result<Option<String>> {
        let record = inode.record();
        let facts = self.remote(record.binding)?.about(&record.file);
        Ok(facts.into_iter().find(|(told, _)| told == fact).map(|(_, value)| value))
    }

    /// Whether any source has access lists.
    pub fn has_access_lists(&self) -> bool {
        self.namespace.all().iter().any(|bound| bound.remote.capabilities().access_lists)
    }

    /// An extended attribute that a file has at its source; `None` when it has none of that name.
    ///
    /// # Errors
    /// `Stale`, `Denied`, `Offline`; whatever keeps the remote from answering.
    pub async fn extended_of(self: Arc<Self>, call: Call, node: NodeId, name: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let Some(inode) = self.inode_with_attributes(&call, node).await? else { return Ok(None) };
        if inode.is_gone() {
            return self.extended_of_nameless(&inode, &name);
        }
        let (remote, file) = (self.remote_of(&inode)?, inode.record().file);
        if is_access_list(&name) && (!remote.capabilities().access_lists || self.is_known_listless(&inode)?) {
            return Ok(None);
        }
        match self.ask_for(&call, remote.extended(&call, &file, &name)).await {
            Err(VfsError::Remote(RemoteError::Unplaced { .. })) => {
                self.place_again(&call, &inode).await?;
                self.ask_for(&call, remote.extended(&call, &file, &name)).await
            }
            Err(error) if is_gone(&error) => Err(self.learn_gone(&call, &inode).await?),
            answer => answer,
        }
    }

    /// Whether it is known that a file has no access list, as surely as its mode is. The kernel asks for that of the root at each
    /// path which somebody else than its owner follows: it makes the root before it is told that there are lists, and keeps no
    /// answer for what it made until then (`fuse_init_inode` of Linux fs/fuse/inode.c; observed with 6.18).
    fn is_known_listless(&self, inode: &Inode) -> Result<bool> {
        if !self.is_told_all(inode) || self.attributes_remaining(inode)?.is_zero() {
            return Ok(false);
        }
        Ok(inode.record.read().attributes.has_access_list == Some(false))
    }

    /// The names of the extended attributes that a file has at its source.
    ///
    /// # Errors
    /// As of [`Vfs::extended_of`].
    pub async fn extended_names(self: Arc<Self>, call: Call, node: NodeId) -> Result<Vec<Vec<u8>>> {
        let Some(inode) = self.inode_with_attributes(&call, node).await? else { return Ok(Vec::new()) };
        if inode.is_gone() {
            return self.extended_names_of_nameless(&inode);
        }
        let (remote, file) = (self.remote_of(&inode)?, inode.record().file);
        let mut names = match self.ask_for(&call, remote.extended_names(&call, &file)).await {
            Err(VfsError::Remote(RemoteError::Unplaced { .. })) => {
                self.place_again(&call, &inode).await?;
                self.ask_for(&call, remote.extended_names(&call, &file)).await?
            }
            answer => answer?,
        };
        names.retain(|name| !name.starts_with(OWN_ATTRIBUTES));
        Ok(names)
    }

    /// Sets an extended attribute of a file at its source, or takes it away. `must_exist`: whether it must be there
    /// already, or must not.
    ///
    /// # Errors
    /// `ReadOnly` where the tree takes no changes, `Denied` for weft's own attributes, `NoAttribute` when one that must
    /// be there is not; what the remote says.
    pub async fn set_extended(
        self: Arc<Self>,
        call: Call,
        node: NodeId,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        must_exist: Option<bool>,
    ) -> Result<()> {
        if self.namespace.is_own(node) {
            return Err(VfsError::ReadOnly);
        }
        let inode = self.inode(node)?;
        if !self.remote(inode.record.read().binding)?.capabilities().writable {
            return Err(VfsError::ReadOnly);
        }
        if name.starts_with(OWN_ATTRIBUTES) {
            let is_there = value.is_some() || self.extended(node, &name)?.is_some();
            return Err(if is_there { VfsError::Denied } else { VfsError::NoAttribute });
        }
        if name == USER_ATTRIBUTES {
            let detail = "the attribute user.: it has no name below that".to_owned();
            return Err(RemoteError::Invalid { detail }.into());
        }
        self.admit(&call, &inode).await?;
        self.refuse_moved(&call, &inode).await?;
        let _gate = inode.gate.lock().await;
        let call = call.renewed(self.options.deadline);
        if inode.is_gone() {
            return self.set_extended_of_nameless(&inode, &name, value.as_deref(), must_exist);
        }
        self.set_extended_at_source(&call, &inode, (name, value), must_exist).await
    }

    /// The same at the source. The caller holds the inode's gate.
    pub(crate) async fn set_extended_at_source(
        self: &Arc<Self>,
        call: &Call,
        inode: &Arc<Inode>,
        (name, value): (Vec<u8>, Option<Vec<u8>>),
        must_exist: Option<bool>,
    ) -> Result<()> {
        let change = Change::SetExtended { file: inode.record().file, name, value, must_exist };
        match self.apply(call, inode, change, SystemTime::now(), &Version::None).await {
            Ok(answer) => {
                self.retries.forget(call);
                // The mode is another by an access list.
                let told = Told::of_change(&answer);
                if let Some(entry) = &answer.value.entry {
                    self.learn_attributes(inode, entry.attributes, &told)?;
                }
                self.rest_on(call, inode, &told.version).await
            }
            // The file is there: it was found.
            Err(VfsError::Remote(RemoteError::NotFound { .. })) if must_exist == Some(true) => {
                Err(VfsError::NoAttribute)
            }
            Err(error) if is_gone(&error) => Err(self.learn_gone(call, inode).await?),
            Err(error) => Err(error),
        }
    }

    /// The inode of a node whose source keeps extended attributes, for a caller who may see it.
    async fn inode_with_attributes(self: &Arc<Self>, call: &Call, node: NodeId) -> Result<Option<Arc<Inode>>> {
        if self.namespace.is_own(node) {
            return Ok(None);
        }
        let inode = self.inode(node)?;
        if !self.remote(inode.record.read().binding)?.capabilities().extended {
            return Ok(None);
        }
        self.admit(call, &inode).await?;
        Ok(Some(inode))
    }

    fn cached_word(&self, inode: &Inode) -> Result<&'static str> {
        if inode.kind() == FileKind::Directory {
            return Ok(if self.store.listing(inode.id)?.is_some() { "whole" } else { "no" });
        }
        Ok(match self.store.object_record(inode.id)? {
            None => "no",
            Some(object) if object.is_complete() => "whole",
            Some(_) => "part",
        })
    }

    /// The version, where it is an entity tag (RFC 9110 section 8.8.3).
    fn entity_tag(&self, inode: &Inode) -> Result<Option<String>> {
        let version = self.store.object_record(inode.id)?.map(|object| object.version);
        let version = version.unwrap_or_else(|| inode.record().version);
        let tag = version.token().filter(|token| token.starts_with(b"\"") || token.starts_with(b"W/\""));
        Ok(tag.map(|tag| tag.escape_ascii().to_string().replace("\\\"", "\"")))
    }

    fn checked_at(&self, inode: &Inode) -> Result<Option<SystemTime>> {
        let checked = self.trust_of(inode)?.map(|trust| trust.checked);
        Ok(checked.filter(|checked| *checked != UNIX_EPOCH))
    }

    /// How the list was made that names an inode; of a directory, its own.
    fn listed_by(&self, inode: &Inode) -> Result<Option<String>> {
        let record = inode.record();
        let lists = if inode.kind() == FileKind::Directory {
            Some(inode.id)
        } else {
            let dentry = self.store.dentry(record.parent, &record.name)?;
            dentry.is_some_and(|dentry| dentry.is_by_list()).then_some(record.parent)
        };
        let Some(dir) = lists else { return Ok(None) };
        Ok(self.store.listing(dir)?.and_then(|listing| listing.origin).map(|origin| origin.how))
    }
}

/// A time as RFC 3339 writes it, in UTC. What lies before 1970, or after what a calendar has, is told as 1970.
pub(crate) fn time_text(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let at = i64::try_from(seconds).ok().and_then(|seconds| UtcDateTime::from_timespec(seconds, 0).ok());
    let Some(at) = at else { return time_text(UNIX_EPOCH) };
    let (year, month, day) = (at.year(), at.month(), at.month_day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", at.hour(), at.minute(), at.second())
}

/// What names of weft's own attributes begin with: no file has such ones at its source.
pub const OWN_ATTRIBUTES: &[u8] = b"user.weft.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_262_400, "2026-11-21T12:00:00Z"),
            (16_725_225_600, "2500-01-01T00:00:00Z"),
        ] {
            assert_eq!(time_text(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
