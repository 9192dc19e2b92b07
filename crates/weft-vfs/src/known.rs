//! Names known in the store: finding a path and listing what is known, without asking anybody.

use std::time::SystemTime;

use weft_remote::{FileKind, Name, clock};
use weft_store::{DentryTarget, NodeId};

use crate::vfs::Vfs;
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

impl Vfs {
    /// The node behind a path below the mount, from the store alone.
    ///
    /// # Errors
    /// `NotFound` when the store knows no such path.
    pub fn find(&self, path: &[Name]) -> Result<NodeId> {
        let mut node = NodeId::ROOT;
        for name in path {
            node = if self.namespace.is_own(node) {
                self.namespace.own_child(node, name.as_bytes()).ok_or(VfsError::NotFound)?
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

    /// The first name of a path that leads to no tree of this mount, as the path to it, and the names that there are in its
    /// place: nothing will ever be there. `None` where the path leads into a tree, known or not.
    pub fn leads_astray(&self, path: &[Name]) -> Option<(Vec<Name>, Vec<Name>)> {
        let mut node = NodeId::ROOT;
        for (depth, name) in path.iter().enumerate() {
            if !self.namespace.is_own(node) {
                return None;
            }
            let Some(child) = self.namespace.own_child(node, name.as_bytes()) else {
                let mut there: Vec<Name> = self.namespace.own_names(node).into_iter().map(|(name, _)| name).collect();
                there.sort();
                return Some((path[..=depth].to_vec(), there));
            };
            node = child;
        }
        None
    }

    /// The names known in a directory, cached or not; of a file, itself.
    ///
    /// # Errors
    /// `NotFound` when the path is not known.
    pub fn names(&self, path: &[Name]) -> Result<Vec<NameInfo>> {
        let node = self.find(path)?;
        if self.namespace.is_own(node) {
            return self.namespace.own_names(node).into_iter().map(|(name, node)| self.info(name, node)).collect();
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

    /// The path of what is held of a node; `None` when it has none any more.
    pub fn path_of_content(&self, node: NodeId) -> Option<Vec<Name>> {
        self.path_of(node).ok()
    }

    pub(crate) fn children(&self, dir: NodeId) -> Result<Vec<NodeId>> {
        if self.namespace.is_own(dir) {
            return Ok(self.namespace.own_names(dir).into_iter().map(|(_, node)| node).collect());
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

    fn info(&self, name: Name, node: NodeId) -> Result<NameInfo> {
        if self.namespace.is_own(node) {
            let (kind, cached, learnt) = (FileKind::Directory, Cached::Whole, clock::now());
            return Ok(NameInfo { name, kind, cached, size: None, modified: None, learnt });
        }
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
}

/// Names read from the store at once.
const NAMES_AT_ONCE: usize = 1000;
