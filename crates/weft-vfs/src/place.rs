//! Where a node lies: the directories above it, and what follows from them for space.

use weft_remote::Name;
use weft_store::{Account, BindingId, NodeId};

use crate::Result;
use crate::vfs::Vfs;

/// The directories above a node, as far up as the store knows them: also above the root of a mount that shows a part
/// of what another mount on the same cache shows.
pub(crate) struct Place {
    /// From the topmost directory down to the node itself, each with the name it was found under.
    pub(crate) nodes: Vec<(NodeId, Name)>,
    /// The path below the mount's root; `None` for what this mount does not show.
    pub(crate) path: Option<Vec<Name>>,
}

impl Place {
    /// The top-level tree of a file: what stands first below the topmost directory, or that directory itself for a file
    /// directly in it.
    pub(crate) fn tree(&self) -> NodeId {
        match self.nodes.as_slice() {
            [] => NodeId::ROOT,
            [(top, _)] | [(top, _), _] => *top,
            [_, (tree, _), ..] => *tree,
        }
    }

    /// The place in words: the path in this mount, or the names as far up as they are known.
    pub(crate) fn text(&self) -> String {
        let joined = |names: &mut dyn Iterator<Item = &Name>| names.map(Name::to_string).collect::<Vec<_>>().join("/");
        match &self.path {
            Some(path) => joined(&mut path.iter()),
            None => joined(&mut self.nodes.iter().map(|(_, name)| name)),
        }
    }
}

impl Vfs {
    /// Where a node lies.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn place_of(&self, node: NodeId) -> Result<Place> {
        let mut nodes = Vec::new();
        let mut path: Option<Vec<Name>> = None;
        let mut at = self.namespace.real(node);
        while nodes.len() < DEPTH_MAX {
            let Some((binding, parent, name)) = self.what_is_above(at)? else { break };
            if let Some(bound) = self.namespace.bound(binding).filter(|bound| bound.root == at) {
                let below = nodes.iter().rev().map(|(_, name): &(NodeId, Name)| name.clone());
                path = Some(bound.at.iter().cloned().chain(below).collect());
                if let [kind, _] = bound.at.as_slice() {
                    nodes.push((at, name));
                    nodes.extend(self.namespace.own_above(bound).map(|own| (own, kind.clone())));
                    break;
                }
            }
            nodes.push((at, name));
            if parent == NodeId::ROOT || parent == at {
                break;
            }
            at = parent;
        }
        nodes.reverse();
        Ok(Place { nodes, path })
    }

    /// The binding of a node, the directory above it, and its name there: of one that is in use without asking the store.
    fn what_is_above(&self, node: NodeId) -> Result<Option<(BindingId, NodeId, Name)>> {
        if let Some(inode) = self.inodes.peek(node) {
            // Whoever asks may be looking at it.
            let record = inode.record.read_recursive();
            return Ok(Some((record.binding, record.parent, record.name.clone())));
        }
        Ok(self.store.node(node)?.map(|record| (record.binding, record.parent, record.name)))
    }

    /// What a node's content counts towards.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn account_of(&self, node: NodeId) -> Result<Account> {
        Ok(self.account_at(&self.place_of(node)?))
    }

    pub(crate) fn account_at(&self, place: &Place) -> Account {
        let pinned = self.space.pins.cover(place);
        self.space.options.account(place, pinned)
    }
}

/// Deepest place that is followed upwards.
const DEPTH_MAX: usize = 1024;
