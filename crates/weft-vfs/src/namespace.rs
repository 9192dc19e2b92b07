//! The top of the mount: which remote is shown where.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Audience, Lease, Name, Remote, Version};
use weft_store::{BindingId, NodeId, NodeRecord, Record, Store};

use crate::breaks::Breaks;
use crate::vfs::Binding;
use crate::{Result, Stat};

/// One remote in its place.
pub(crate) struct Bound {
    pub(crate) id: BindingId,
    pub(crate) name: Option<Name>,
    pub(crate) source: String,
    pub(crate) remote: Arc<dyn Remote>,
    /// Node of the remote's root directory.
    pub(crate) root: NodeId,
    /// What its source has ended, where it tells of such things.
    pub(crate) breaks: Option<Breaks>,
}

/// The bindings of a mount. Either one remote is the whole mount, or the root is a directory of weft's own that
/// holds one name per remote.
pub(crate) struct Namespace {
    bound: Vec<Bound>,
    made: SystemTime,
}

impl Namespace {
    /// Gives each binding its number and its root's node in the store.
    pub(crate) fn new(store: &Arc<Store>, bindings: Vec<Binding>) -> Result<Namespace> {
        let mut bound = Vec::new();
        for Binding { name, source, remote } in bindings {
            let id = store.binding(&source)?;
            let root = store.identify(id, &remote.root())?;
            if store.node(root)?.is_none() {
                let record = root_record(id, remote.as_ref(), name.as_ref());
                store.apply(vec![Record::Node(root, Some(record))])?;
            }
            let breaks = remote.capabilities().breakable_leases.then(Breaks::begin);
            bound.push(Bound { id, name, source, remote, root, breaks });
        }
        Ok(Namespace { bound, made: SystemTime::now() })
    }

    pub(crate) fn all(&self) -> &[Bound] {
        &self.bound
    }

    pub(crate) fn bound(&self, id: BindingId) -> Option<&Bound> {
        self.bound.iter().find(|bound| bound.id == id)
    }

    pub(crate) fn remote(&self, id: BindingId) -> Option<&Arc<dyn Remote>> {
        self.bound(id).map(|bound| &bound.remote)
    }

    /// What the source of a binding has ended; `None` where it does not tell.
    pub(crate) fn breaks(&self, id: BindingId) -> Option<&Breaks> {
        self.bound(id)?.breaks.as_ref()
    }

    /// Whether a node is the root directory of weft's own.
    pub(crate) fn is_own_root(&self, id: NodeId) -> bool {
        id == NodeId::ROOT && self.whole().is_none()
    }

    /// The binding with this name in the root of weft's own.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&Bound> {
        self.bound.iter().find(|bound| bound.name.as_ref().is_some_and(|n| n.as_bytes() == name))
    }

    /// The node in the store for a node that the kernel names.
    pub(crate) fn real(&self, id: NodeId) -> NodeId {
        match self.whole() {
            Some(bound) if id == NodeId::ROOT => bound.root,
            _ => id,
        }
    }

    /// The node that the kernel knows for a node in the store.
    pub(crate) fn shown(&self, id: NodeId) -> NodeId {
        match self.whole() {
            Some(bound) if id == bound.root => NodeId::ROOT,
            _ => id,
        }
    }

    /// The root directory of weft's own, as `stat` shows it.
    pub(crate) fn own_root_stat(&self, uid: u32, gid: u32) -> Stat {
        Stat {
            node: NodeId::ROOT,
            kind: weft_remote::FileKind::Directory,
            size: 0,
            modified: self.made,
            mode: 0o555,
            uid,
            gid,
            ttl: ROOT_TTL,
        }
    }

    fn whole(&self) -> Option<&Bound> {
        self.bound.iter().find(|bound| bound.name.is_none())
    }
}

fn root_record(binding: BindingId, remote: &dyn Remote, name: Option<&Name>) -> NodeRecord {
    let name = name.cloned().unwrap_or_else(|| Name::new("root").expect("a fixed name that Linux can hold"));
    NodeRecord {
        binding,
        file: remote.root(),
        parent: NodeId::ROOT,
        name,
        attributes: remote.root_attributes(),
        version: Version::None,
        lease: Lease::Forever,
        audience: Audience::Everyone,
        learnt: SystemTime::now(),
        origin: None,
    }
}

/// How long the kernel may keep the root's attributes: they never change while the daemon lives.
pub(crate) const ROOT_TTL: std::time::Duration = std::time::Duration::from_secs(3600);
