//! What the verbs ask of the file system: known names, removal from the cache, validation, explanation.
//!
//! Paths are resolved in the store alone; only `reload` talks to remotes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weft_remote::{FileKind, Name};
use weft_store::{DentryTarget, NodeId, ObjectRecord, Record};

use crate::content::Check;
use crate::inode::Inode;
use crate::notice::Notice;
use crate::vfs::{Vfs, is_gone};
use crate::{Result, VfsError};

/// How much of a file is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// All of it (for a directory: its listing).
    Whole,
    /// Some of it.
    Part,
    /// Only its name.
    No,
}

/// A name known to exist remotely.
#[derive(Clone, Debug)]
pub struct NameInfo {
    /// The name.
    pub name: Name,
    /// What sort of thing it is, as far as known.
    pub kind: FileKind,
    /// How much of it is here.
    pub cached: Cached,
    /// Length in bytes, as far as known.
    pub size: Option<u64>,
    /// Last modification, as far as known.
    pub modified: Option<SystemTime>,
    /// When the source last spoke of it.
    pub learnt: SystemTime,
}

/// What a removal from the cache freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files whose content was dropped.
    pub files: u64,
    /// Bytes freed.
    pub bytes: u64,
}

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

/// All that weft knows about a path.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// Facts in the order to be shown: a fixed key and its value in words.
    pub facts: Vec<(String, String)>,
}

impl Vfs {
    /// The node behind a path below the mount, from the store alone.
    ///
    /// # Errors
    /// `NotFound` when the store knows no such path.
    pub fn find(&self, path: &[Name]) -> Result<NodeId> {
        let mut node = NodeId::ROOT;
        for name in path {
            node = if self.namespace.is_own_root(node) {
                self.namespace.named(name.as_bytes()).ok_or(VfsError::NotFound)?.root
            } else {
                let dentry = self.store.dentry(self.namespace.real(node), name)?;
                match dentry.map(|dentry| dentry.target) {
                    Some(DentryTarget::Node(child)) => child,
                    Some(DentryTarget::Absent) | None => return Err(VfsError::NotFound),
                }
            };
        }
        Ok(node)
    }

    /// The names known in a directory, cached or not; of a file, itself.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    pub fn names(&self, path: &[Name]) -> Result<Vec<NameInfo>> {
        let node = self.find(path)?;
        if self.namespace.is_own_root(node) {
            let bound = self.namespace.all().iter();
            return bound.filter_map(|b| Some((b.name.clone()?, b.root))).map(|(n, id)| self.info(n, id)).collect();
        }
        let inode = self.inode(node)?;
        if inode.kind() != FileKind::Directory {
            let name = inode.record().name;
            return Ok(vec![self.info(name, inode.id)?]);
        }
        let mut infos = Vec::new();
        self.each_child(inode.id, |name, child| {
            infos.push(self.info(name, child)?);
            Ok(())
        })?;
        Ok(infos)
    }

    /// Drops a file's content from the cache, or that of everything below a directory. The names stay known.
    /// `uid` must own what it drops, or be root.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory` when a directory is given without `recursive`; `Denied` when somebody else's read
    /// brought the content here (what belongs to `uid` may have been dropped by then).
    pub fn remove(&self, path: &[Name], recursive: bool, uid: u32) -> Result<Removed> {
        let node = self.namespace.real(self.find(path)?);
        let mut removed = Removed::default();
        let mut denied = false;
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            let is_directory = node == NodeId::ROOT
                || self.store.node(node)?.is_some_and(|n| n.attributes.kind == FileKind::Directory);
            if is_directory {
                if !recursive {
                    return Err(VfsError::IsADirectory);
                }
                waiting.extend(self.children(node)?);
                self.forget_listing(node)?;
                continue;
            }
            let Some(object) = self.store.object_record(node)? else { continue };
            if uid != 0 && object.owner_uid != uid {
                denied = true;
                continue;
            }
            removed.files += 1;
            removed.bytes += self.drop_content(node)?;
        }
        if denied { Err(VfsError::Denied) } else { Ok(removed) }
    }

    /// Validates a file or a directory now, whatever the leases say; with `recursive` everything below that is
    /// cached or listed.
    ///
    /// # Errors
    /// `NotFound` when the path is not known; otherwise failures are counted, except that of the path itself.
    pub async fn reload(
        self: &Arc<Self>,
        path: &[Name],
        recursive: bool,
        caller: weft_remote::Caller,
    ) -> Result<Reloaded> {
        let top = self.find(path)?;
        let mut done = Reloaded::default();
        if self.namespace.is_own_root(top) {
            let mut waiting: Vec<NodeId> = self.children(top)?;
            return self.reload_all(&mut waiting, recursive, caller, done).await;
        }
        let inode = self.inode(top)?;
        self.reload_one(&inode, caller, &mut done).await?;
        let mut waiting = if recursive { self.children(inode.id)? } else { Vec::new() };
        self.reload_all(&mut waiting, recursive, caller, done).await
    }

    async fn reload_all(
        self: &Arc<Self>,
        waiting: &mut Vec<NodeId>,
        recursive: bool,
        caller: weft_remote::Caller,
        mut done: Reloaded,
    ) -> Result<Reloaded> {
        while let Some(node) = waiting.pop() {
            let Ok(inode) = self.inode(node) else { continue };
            let is_directory = inode.kind() == FileKind::Directory;
            let known = if is_directory {
                self.store.listing(inode.id)?.is_some()
            } else {
                self.store.object_record(inode.id)?.is_some()
            };
            if known && self.reload_one(&inode, caller, &mut done).await.is_err() {
                done.failed += 1;
            }
            if recursive && is_directory {
                waiting.extend(self.children(inode.id)?);
            }
        }
        Ok(done)
    }

    async fn reload_one(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        caller: weft_remote::Caller,
        done: &mut Reloaded,
    ) -> Result<()> {
        let call = self.call(caller);
        self.distrust(inode)?;
        if inode.kind() == FileKind::Directory {
            let before = self.store.listing(inode.id)?.map(|listing| listing.version);
            self.list(&call, inode).await?;
            let after = self.store.listing(inode.id)?;
            // A listing that is still marked was served stale: the source did not answer.
            if after.as_ref().is_some_and(|listing| listing.learnt == SystemTime::UNIX_EPOCH) {
                return Err(inode_error(inode));
            }
            done.checked += 1;
            done.changed += u64::from(before.is_some() && before != after.map(|listing| listing.version));
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
                self.learn_gone(inode)?;
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

    /// Explains a path: where it comes from, what is held, why it is trusted and what happens next.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    pub fn why(&self, path: &[Name]) -> Result<Why> {
        let node = self.find(path)?;
        let mut why = Why::default();
        if self.namespace.is_own_root(node) {
            why.add("kind", "the root of the mount; known without asking anybody");
            return Ok(why);
        }
        let inode = self.inode(node)?;
        let record = inode.record();
        let bound = self.namespace.bound(record.binding).ok_or(VfsError::Stale)?;
        let now = SystemTime::now();
        why.add("tree", &bound.source);
        why.add("kind", kind_words(record.attributes.kind));
        why.add("inode", &self.namespace.shown(inode.id).0.to_string());
        why.facts.extend(bound.remote.about(&record.file));
        if let Some(origin) = &record.origin {
            why.add("answered by", &origin.how);
            for redirect in &origin.redirects {
                why.add("redirected to", redirect);
            }
        }
        why.add("size", &figure_words(record.attributes.size, |bytes| format!("{bytes} bytes")));
        why.add("modified", &figure_words(record.attributes.modified, |at| age_words(at, now)));
        why.add("learnt", &age_words(record.learnt, now));
        self.why_cached(&mut why, &inode, now)?;
        why.add("policy", &format!("freshness = {}", inode.freshness));
        self.why_next(&mut why, &inode, now)?;
        if let Some((at, error)) = &inode.content.lock().last_error {
            why.add("last error", &format!("{error} ({})", age_words(*at, now)));
        }
        Ok(why)
    }

    /// The last thing that went wrong at the deepest known directory above a path that is not known.
    pub fn last_error_above(&self, path: &[Name]) -> Option<String> {
        let above = (0..path.len()).rev().find_map(|depth| self.find(&path[..depth]).ok())?;
        let inode = self.inode(above).ok()?;
        let (at, error) = inode.content.lock().last_error.clone()?;
        Some(format!("{error} ({})", age_words(at, SystemTime::now())))
    }

    fn why_cached(&self, why: &mut Why, inode: &Inode, now: SystemTime) -> Result<()> {
        if inode.kind() == FileKind::Directory {
            match self.store.listing(inode.id)? {
                None => why.add("listing", "not fetched; only names learnt elsewhere are known"),
                Some(listing) => {
                    let how = listing.origin.map_or_else(|| "the source's list".to_string(), |origin| origin.how);
                    let all = match listing.completeness {
                        weft_remote::Completeness::Complete => "complete",
                        weft_remote::Completeness::CompleteButHidden => "complete but for names that start with a dot",
                        weft_remote::Completeness::Partial => "partial: other names may exist",
                    };
                    why.add("listing", &format!("{how}; {all}; confirmed {}", age_words(listing.learnt, now)));
                }
            }
            return Ok(());
        }
        match self.store.object_record(inode.id)? {
            None if inode.content.lock().current.is_some() => why.add("cached", "on its way"),
            None => why.add("cached", "no"),
            Some(object) => {
                why.add("cached", &held_words(&object));
                why.add("version", &version_words(&object.version));
                why.add("checked", &age_words(object.checked, now));
                why.add("brought by", &format!("user id {}", object.owner_uid));
            }
        }
        Ok(())
    }

    fn why_next(&self, why: &mut Why, inode: &Inode, now: SystemTime) -> Result<()> {
        let held = if inode.kind() == FileKind::Directory {
            self.store.listing(inode.id)?.map(|listing| (listing.lease, listing.learnt))
        } else {
            self.store.object_record(inode.id)?.map(|object| (object.lease, object.checked))
        };
        let next = match held {
            None => "the next use asks the source".to_string(),
            Some((lease, learnt)) => match inode.freshness.remaining(&lease, learnt, now) {
                Duration::ZERO => "the lease has ended: the next use checks with the source".to_string(),
                Duration::MAX => "served from the cache until `weft reload`".to_string(),
                left => format!("served from the cache for another {} s, then checked", left.as_secs()),
            },
        };
        why.add("next", &next);
        Ok(())
    }

    /// The extended attribute `name` of a node: `user.weft.*` tell what `why` tells. `None` for any other name.
    ///
    /// # Errors
    /// `Stale` when the node is not known.
    pub fn extended(&self, node: NodeId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(key) = name.strip_prefix(b"user.weft.") else { return Ok(None) };
        if self.namespace.is_own_root(node) {
            return Ok(None);
        }
        let inode = self.inode(node)?;
        let object = self.store.object_record(inode.id)?;
        let text = match key {
            b"cached" => match &object {
                _ if inode.kind() == FileKind::Directory => return Ok(None),
                None => "no".to_string(),
                Some(object) if object.is_complete() => "whole".to_string(),
                Some(_) => "part".to_string(),
            },
            b"version" => match object {
                Some(object) => version_words(&object.version),
                None => return Ok(None),
            },
            b"source" => match inode.record().origin {
                Some(origin) => origin.source,
                None => return Ok(None),
            },
            b"freshness" => inode.freshness.to_string(),
            _ => return Ok(None),
        };
        Ok(Some(text.into_bytes()))
    }

    fn info(&self, name: Name, node: NodeId) -> Result<NameInfo> {
        let record = self.store.node(node)?.ok_or(VfsError::Stale)?;
        let cached = if record.attributes.kind == FileKind::Directory {
            if self.store.listing(node)?.is_some() { Cached::Whole } else { Cached::No }
        } else {
            match self.store.object_record(node)? {
                None => Cached::No,
                Some(object) if object.is_complete() => Cached::Whole,
                Some(_) => Cached::Part,
            }
        };
        Ok(NameInfo {
            name,
            kind: record.attributes.kind,
            cached,
            size: record.attributes.size.known(),
            modified: record.attributes.modified.known(),
            learnt: record.learnt,
        })
    }

    fn children(&self, dir: NodeId) -> Result<Vec<NodeId>> {
        if self.namespace.is_own_root(dir) {
            return Ok(self.namespace.all().iter().map(|bound| bound.root).collect());
        }
        let mut children = Vec::new();
        self.each_child(dir, |_, child| {
            children.push(child);
            Ok(())
        })?;
        Ok(children)
    }

    fn each_child(&self, dir: NodeId, mut visit: impl FnMut(Name, NodeId) -> Result<()>) -> Result<()> {
        let mut after: Option<Name> = None;
        loop {
            let names = self.store.dentries(dir, after.as_ref(), NAMES_AT_ONCE)?;
            let Some((last, _)) = names.last() else { return Ok(()) };
            after = Some(last.clone());
            for (name, dentry) in names {
                if let DentryTarget::Node(child) = dentry.target {
                    visit(name, child)?;
                }
            }
        }
    }

    /// Has the next use of a directory list it anew; its names stay known.
    fn forget_listing(&self, dir: NodeId) -> Result<()> {
        if self.store.listing(dir)?.is_some() {
            self.store.apply(vec![Record::Listing(dir, None)])?;
        }
        Ok(())
    }

    fn drop_content(&self, node: NodeId) -> Result<u64> {
        let freed = self.give_up_content(node)?;
        if let Some(inode) = self.inodes.get(node) {
            inode.content.lock().pages_of = None;
        }
        self.notices.send(Notice::Content { node: self.namespace.shown(node) });
        Ok(freed)
    }
}

impl Why {
    fn add(&mut self, key: &str, value: &str) {
        self.facts.push((key.to_string(), value.to_string()));
    }
}

fn inode_error(inode: &Inode) -> VfsError {
    let last = inode.content.lock().last_error.clone();
    let detail = last.map_or_else(|| "the source".to_string(), |(_, text)| text);
    weft_remote::RemoteError::Unreachable { detail }.into()
}

fn kind_words(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Unknown => "known by name only; what it is shows when it is used",
    }
}

fn figure_words<T: Copy>(figure: weft_remote::Figure<T>, words: impl Fn(T) -> String) -> String {
    match figure {
        weft_remote::Figure::Exact(value) => words(value),
        weft_remote::Figure::Rounded(value) => format!("about {}", words(value)),
        weft_remote::Figure::Unknown => "not told".to_string(),
    }
}

fn held_words(object: &ObjectRecord) -> String {
    if object.is_complete() {
        return format!("whole, {} bytes", object.length);
    }
    format!("in part, {} of {} bytes", object.held_bytes(), object.length)
}

fn version_words(version: &weft_remote::Version) -> String {
    let strength = match version {
        weft_remote::Version::Strong(_) => "strong",
        weft_remote::Version::Weak(_) => "weak",
        weft_remote::Version::None => return "the source offers none".to_string(),
    };
    let token = version.token().unwrap_or_default().escape_ascii();
    format!("{token} ({strength})")
}

fn age_words(at: SystemTime, now: SystemTime) -> String {
    if at == SystemTime::UNIX_EPOCH {
        return "to be checked at the next use".to_string();
    }
    match now.duration_since(at) {
        Ok(age) if age < Duration::from_secs(120) => format!("{} s ago", age.as_secs()),
        Ok(age) if age < Duration::from_secs(7200) => format!("{} min ago", age.as_secs() / 60),
        Ok(age) if age < Duration::from_secs(172_800) => format!("{} h ago", age.as_secs() / 3600),
        Ok(age) => format!("{} days ago", age.as_secs() / 86_400),
        Err(_) => "in the future, by this machine's clock".to_string(),
    }
}

/// Names read from the store at once.
const NAMES_AT_ONCE: usize = 1000;
