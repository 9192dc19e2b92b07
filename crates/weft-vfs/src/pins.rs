//! What the user pinned: never evicted, and not removed by mistake.
//!
//! A pin is of a place: a node that is known and names below it that need not be. Nodes have the same numbers in every
//! mount on a cache, so a pin holds however a tree is mounted. Pins are notes of the store and outlast the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use weft_remote::{FileKind, Name, Notes};
use weft_store::{Class, DentryTarget, NodeId};

use crate::place::Place;
use crate::vfs::Vfs;
use crate::{Result, VfsError};

/// The pins. The lock guards the list alone and is held for one look or one change.
pub(crate) struct Pins {
    /// Whether there are any: spares all others the look.
    any: AtomicBool,
    pins: RwLock<Vec<Pin>>,
    notes: Arc<dyn Notes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pin {
    anchor: NodeId,
    below: Vec<Name>,
    /// The path as it read in the mount where it was pinned.
    text: String,
}

/// What a pin covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Files that are known.
    pub files: u64,
    /// Their bytes that are held.
    pub bytes: u64,
    /// Files of which not all is held yet.
    pub missing_files: u64,
    /// How many bytes of those are missing, as far as their lengths are known.
    pub missing_bytes: u64,
}

impl Pins {
    pub(crate) fn noted(notes: Arc<dyn Notes>) -> Pins {
        let noted = notes.list(b"").unwrap_or_else(|error| {
            tracing::warn!(%error, "which paths are pinned cannot be read");
            Vec::new()
        });
        let pins: Vec<Pin> = noted.iter().filter_map(|(key, value)| Pin::of_note(key, value)).collect();
        Pins { any: AtomicBool::new(!pins.is_empty()), pins: RwLock::new(pins), notes }
    }

    /// Whether a place is pinned, itself or with a directory above it.
    pub(crate) fn cover(&self, place: &Place) -> bool {
        self.any.load(Ordering::SeqCst) && self.pins.read().iter().any(|pin| pin.covers(&place.nodes, &[]))
    }
}

impl Pin {
    /// Whether this covers what lies at `nodes` and then `unknown` below them.
    fn covers(&self, nodes: &[(NodeId, Name)], unknown: &[Name]) -> bool {
        let names_after = |at: usize| nodes[at..].iter().map(|(_, name)| name).chain(unknown);
        let begins = |at: usize| {
            let mut names = names_after(at);
            self.below.iter().all(|wanted| names.next() == Some(wanted))
        };
        if self.anchor == NodeId::ROOT {
            return begins(0);
        }
        nodes.iter().position(|(node, _)| *node == self.anchor).is_some_and(|at| begins(at + 1))
    }

    fn key(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.below.iter().map(Name::as_bytes).collect();
        [&self.anchor.0.to_be_bytes(), names.join(&b'/').as_slice()].concat()
    }

    fn of_note(key: &[u8], value: &[u8]) -> Option<Pin> {
        let (anchor, names) = key.split_first_chunk()?;
        let names = names.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let below = names.map(|name| Name::new(name).ok()).collect::<Option<_>>()?;
        let text = String::from_utf8_lossy(value).into_owned();
        Some(Pin { anchor: NodeId(u64::from_be_bytes(*anchor)), below, text })
    }
}

impl Vfs {
    /// Pins a path: what is or will be held at and below it is never evicted. A path that is not known is pinned as
    /// well where a top-level tree above it is.
    ///
    /// # Errors
    /// `NotFound` when that is not known either; when the store cannot note it or there are too many pins.
    pub fn pin(&self, path: &[Name]) -> Result<Covered> {
        let pin = self.pin_at(path)?;
        {
            let mut pins = self.space.pins.pins.write();
            if !pins.contains(&pin) {
                if pins.len() >= PINS_MAX {
                    let cause =
                        format!("there are {PINS_MAX} pins already; `weft unpin` some or pin a directory above");
                    return Err(weft_store::StoreError::Index(cause.into()).into());
                }
                pins.push(pin.clone());
            }
            self.space.pins.any.store(true, Ordering::SeqCst);
        }
        self.space.pins.notes.put(&pin.key(), Some(pin.text.as_bytes())).map_err(VfsError::notes)?;
        self.cover(path, true)
    }

    /// Takes the pins at and below a path away; what they covered, which has the class of its tree again.
    ///
    /// # Errors
    /// `NotFound` when there are none: a directory above it may be what is pinned.
    pub fn unpin(&self, path: &[Name]) -> Result<Covered> {
        let whole = self.pin_at(path)?;
        let noted = self.space.pins.pins.read().clone();
        let mut gone = Vec::new();
        for pin in noted {
            let nodes = if pin.anchor == NodeId::ROOT { Vec::new() } else { self.place_of(pin.anchor)?.nodes };
            if whole.covers(&nodes, &pin.below) {
                gone.push(pin);
            }
        }
        if gone.is_empty() {
            return Err(VfsError::NotFound);
        }
        for pin in &gone {
            self.space.pins.notes.put(&pin.key(), None).map_err(VfsError::notes)?;
        }
        {
            let mut pins = self.space.pins.pins.write();
            pins.retain(|pin| !gone.contains(pin));
            self.space.pins.any.store(!pins.is_empty(), Ordering::SeqCst);
        }
        self.cover(path, true)
    }

    /// The paths that are pinned, as they were given.
    pub fn pinned_paths(&self) -> Vec<String> {
        self.space.pins.pins.read().iter().map(|pin| pin.text.clone()).collect()
    }

    /// What there is at and below a path.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn covered(&self, path: &[Name]) -> Result<Covered> {
        self.cover(path, false)
    }

    fn pin_at(&self, path: &[Name]) -> Result<Pin> {
        let (mut node, mut known) = (NodeId::ROOT, 0);
        for (depth, name) in path.iter().enumerate() {
            let next = if self.namespace.is_own(node) {
                self.namespace.own_child(node, name.as_bytes())
            } else {
                match self.store.dentry(self.namespace.real(node), name)?.map(|dentry| dentry.target) {
                    Some(DentryTarget::Node(child)) => Some(child),
                    Some(DentryTarget::Absent) | None => None,
                }
            };
            let Some(next) = next else { break };
            (node, known) = (next, depth + 1);
        }
        let anchor = self.namespace.real(node);
        if known < path.len() {
            // At the top of a binding stand the hosts: one that is not known may be none. Where a binding is the whole
            // mount, it may be a tree of its own, and whatever is below is below something known.
            let is_top = self.namespace.is_own(anchor) || self.namespace.all().iter().any(|bound| bound.root == anchor);
            let shows_all = self.namespace.all().iter().any(|bound| bound.root == anchor && bound.at.is_empty());
            if is_top && !shows_all {
                return Err(VfsError::NotFound);
            }
        }
        let text = path.iter().map(Name::to_string).collect::<Vec<_>>().join("/");
        Ok(Pin { anchor, below: path[known..].to_vec(), text })
    }

    /// Adds up what is at and below a path, and where asked to, enters its class into the accounts.
    fn cover(&self, path: &[Name], transfer: bool) -> Result<Covered> {
        let mut covered = Covered::default();
        let node = match self.find(path) {
            Ok(node) => self.namespace.real(node),
            Err(VfsError::NotFound) => return Ok(covered),
            Err(error) => return Err(error),
        };
        self.each_file(node, |node| {
            covered.files += 1;
            let held = self.store.object_record(node)?;
            let length = self.store.node(node)?.and_then(|record| record.attributes.size.known());
            let (bytes, whole) = held.as_ref().map_or((0, false), |held| (held.held_bytes(), held.is_complete()));
            covered.bytes += bytes;
            if !whole {
                covered.missing_files += 1;
                let length = held.map(|held| held.length).or(length).unwrap_or(0);
                covered.missing_bytes += length.saturating_sub(bytes);
            }
            if transfer && self.store.account(node).is_some() {
                self.store.transfer(node, self.account_of(node)?);
            }
            Ok(())
        })?;
        Ok(covered)
    }

    /// Visits the files known at and below a node.
    pub(crate) fn each_file(&self, node: NodeId, mut visit: impl FnMut(NodeId) -> Result<()>) -> Result<()> {
        let mut waiting = vec![(node, 0)];
        while let Some((node, depth)) = waiting.pop() {
            let kind = match node {
                NodeId::ROOT => FileKind::Directory,
                _ => self.store.node(node)?.map_or(FileKind::File, |record| record.attributes.kind),
            };
            if kind != FileKind::Directory {
                visit(node)?;
            } else if depth < DEPTH_MAX {
                waiting.extend(self.children(node)?.into_iter().map(|child| (child, depth + 1)));
            }
        }
        Ok(())
    }

    /// Whether a node's content is pinned, by a pin or by its tree's class.
    pub(crate) fn is_pinned(&self, node: NodeId) -> Result<bool> {
        Ok(self.account_of(node)?.class == Class::Pinned)
    }
}

/// Most pins; each is looked at for every new file.
const PINS_MAX: usize = 4096;
/// Deepest directory that is walked, for a tree may be made to lead around.
const DEPTH_MAX: usize = 256;
