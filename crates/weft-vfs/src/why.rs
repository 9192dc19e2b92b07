//! Explaining: where a file comes from, what is held of it, why it is trusted and what happens next.

use std::time::{Duration, SystemTime};

use weft_remote::{Completeness, Figure, FileKind, Name, Version};
use weft_store::{NodeId, ObjectRecord};

use crate::inode::Inode;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// All that weft knows about a path.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// Facts in the order to be shown: a fixed key and its value in words.
    pub facts: Vec<(String, String)>,
}

impl Vfs {
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
        self.why_space(&mut why, inode.id)?;
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
                        Completeness::Complete => "complete",
                        Completeness::CompleteButHidden => "complete but for names that start with a dot",
                        Completeness::Partial => "partial: other names may exist",
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
            b"class" => self.class_words(inode.id)?,
            b"freshness" => inode.freshness.to_string(),
            _ => return Ok(None),
        };
        Ok(Some(text.into_bytes()))
    }
}

impl Why {
    pub(crate) fn add(&mut self, key: &str, value: &str) {
        self.facts.push((key.to_string(), value.to_string()));
    }
}

fn kind_words(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::Unknown => "known by name only; what it is shows when it is used",
    }
}

fn figure_words<T: Copy>(figure: Figure<T>, words: impl Fn(T) -> String) -> String {
    match figure {
        Figure::Exact(value) => words(value),
        Figure::Rounded(value) => format!("about {}", words(value)),
        Figure::Unknown => "not told".to_string(),
    }
}

fn held_words(object: &ObjectRecord) -> String {
    if object.is_complete() {
        return format!("whole, {} bytes", object.length);
    }
    format!("in part, {} of {} bytes", object.held_bytes(), object.length)
}

fn version_words(version: &Version) -> String {
    let strength = match version {
        Version::Strong(_) => "strong",
        Version::Weak(_) => "weak",
        Version::None => return "the source offers none".to_string(),
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
