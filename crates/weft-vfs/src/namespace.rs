//! The top of the mount: which remote is shown where.

use std::sync::Arc;
use std::time::SystemTime;

use weft_remote::{Audience, FileId, Lease, Name, Remote, Version, clock};
use weft_store::{BindingId, NodeId, NodeRecord, Record, Store};

use crate::breaks::Breaks;
use crate::faces::Faces;
use crate::vfs::Binding;
use crate::{Result, Stat};

/// One remote in its place.
pub(crate) struct Bound {
    pub(crate) id: BindingId,
    /// Where: a path below the mount's root of at most two names; none when it is the whole mount.
    pub(crate) at: Vec<Name>,
    pub(crate) source: String,
    pub(crate) remote: Arc<dyn Remote>,
    /// Node of the remote's root directory.
    pub(crate) root: NodeId,
    /// What its source has ended, where it tells of such things.
    pub(crate) breaks: Option<Breaks>,
}

/// The bindings of a mount. Either one remote is the whole mount, or the root is a directory of weft's own that
/// holds one name per remote, or per kind where there may be several of a kind: then that is a directory of weft's own
/// as well.
pub(crate) struct Namespace {
    bound: Vec<Bound>,
    /// The directories of weft's own below the root.
    kinds: Vec<(Name, NodeId)>,
    made: SystemTime,
    faces: Faces,
}

impl Namespace {
    /// Gives each binding its number and its root's node in the store.
    pub(crate) fn new(store: &Arc<Store>, bindings: Vec<Binding>) -> Result<Namespace> {
        let (mut bound, mut kinds) = (Vec::new(), Vec::<(Name, NodeId)>::new());
        for Binding { at, source, remote } in bindings {
            let id = store.binding(&source)?;
            let root = store.identify(id, &remote.root(), remote.neighbourhood(&remote.root()))?;
            if store.node(root)?.is_none() {
                let record = root_record(id, remote.as_ref(), at.last());
                store.apply(vec![Record::Node(root, Some(record))])?;
            }
            if let [kind, _] = at.as_slice()
                && kinds.iter().all(|(known, _)| known != kind)
            {
                let node = store.identify(store.binding(OWN_SOURCE)?, &FileId::new(kind.as_bytes()), None)?;
                kinds.push((kind.clone(), node));
            }
            let breaks = remote.capabilities().breakable_leases.then(Breaks::begin);
            bound.push(Bound { id, at, source, remote, root, breaks });
        }
        Ok(Namespace { bound, kinds, made: SystemTime::now(), faces: Faces::default() })
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

    /// Whether a node is a directory of weft's own.
    pub(crate) fn is_own(&self, id: NodeId) -> bool {
        self.own_path(id).is_some()
    }

    /// Where a directory of weft's own lies.
    pub(crate) fn own_path(&self, id: NodeId) -> Option<Vec<Name>> {
        if id == NodeId::ROOT {
            return self.whole().is_none().then(Vec::new);
        }
        self.kinds.iter().find(|(_, node)| *node == id).map(|(name, _)| vec![name.clone()])
    }

    /// The directory of weft's own that holds the root of a binding; `None` when that is the whole mount.
    pub(crate) fn own_above(&self, bound: &Bound) -> Option<NodeId> {
        match bound.at.as_slice() {
            [] => None,
            [kind, _] => self.kinds.iter().find(|(name, _)| name == kind).map(|(_, node)| *node),
            _ => Some(NodeId::ROOT),
        }
    }

    /// What is in a directory of weft's own.
    pub(crate) fn own_names(&self, dir: NodeId) -> Vec<(Name, NodeId)> {
        let here = |bound: &&Bound| self.own_above(bound) == Some(dir);
        let roots = self.bound.iter().filter(here).filter_map(|bound| Some((bound.at.last()?.clone(), bound.root)));
        let kinds = self.kinds.iter().filter(|_| dir == NodeId::ROOT).cloned();
        roots.chain(kinds).collect()
    }

    /// What a name in a directory of weft's own leads to.
    pub(crate) fn own_child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.own_names(dir).into_iter().find(|(known, _)| known.as_bytes() == name).map(|(_, node)| node)
    }

    /// The node in the store for a node that the kernel names.
    pub(crate) fn real(&self, id: NodeId) -> NodeId {
        match self.whole() {
            Some(bound) if id == NodeId::ROOT => bound.root,
            _ => Faces::number(id),
        }
    }

    /// The node that the kernel knows for a node in the store.
    pub(crate) fn shown(&self, id: NodeId) -> NodeId {
        match self.whole() {
            Some(bound) if id == bound.root => NodeId::ROOT,
            _ => self.faces.of(id),
        }
    }

    /// Has a file shown by this face; false when that cannot be.
    pub(crate) fn show_face(&self, face: NodeId, anew: bool) -> bool {
        self.faces.show(face, anew)
    }

    /// A file is there no more, and nobody has it open.
    pub(crate) fn forget_face(&self, file: NodeId) {
        self.faces.forget(file);
    }

    /// Takes up which use of its number an inode of the kernel was under a former daemon.
    pub(crate) fn take_up_generation(&self, face: NodeId, generation: u64) {
        self.faces.take_up_generation(face, generation);
    }

    /// Which use of its number an inode of the kernel is.
    pub(crate) fn generation(&self, face: NodeId) -> u64 {
        self.faces.generation(face)
    }

    /// A directory of weft's own, as `stat` shows it.
    pub(crate) fn own_stat(&self, node: NodeId, uid: u32, gid: u32) -> Stat {
        Stat {
            node,
            generation: 0,
            kind: weft_remote::FileKind::Directory,
            size: 0,
            modified: self.made,
            changed: self.made,
            accessed: self.made,
            mode: 0o555,
            links: 1,
            device: 0,
            allocated: 0,
            uid,
            gid,
            ttl: ROOT_TTL,
        }
    }

    fn whole(&self) -> Option<&Bound> {
        self.bound.iter().find(|bound| bound.at.is_empty())
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
        learnt: clock::now(),
        origin: None,
    }
}

/// What directories of weft's own are identified under in the store; no source of a binding has spaces.
const OWN_SOURCE: &str = "directories of weft's own";
/// How long the kernel may keep the root's attributes: they never change while the daemon lives.
pub(crate) const ROOT_TTL: std::time::Duration = std::time::Duration::from_secs(3600);
