//! Walks through all that is known, a portion at a time: for whoever looks for what nothing leads to any more.
//!
//! What is changed meanwhile may be met as it was or as it is. Nothing that stays is left out.

use weft_remote::Name;

use crate::identities::Identity;
use crate::key::{self, Key};
use crate::{BindingId, DentryRecord, NodeId, Result, Store, value};

/// Where a walk goes on; a new one begins.
#[derive(Clone, Debug, Default)]
pub struct Onward(Option<Key>);

impl Store {
    /// The next names, at most `limit`, with their directories. Those of a directory come together; none come at the end.
    ///
    /// # Errors
    /// `Index`.
    pub fn names_onward(&self, onward: &mut Onward, limit: usize) -> Result<Vec<(NodeId, Name, DentryRecord)>> {
        self.portion(key::NAMES, onward, limit, |key, bytes| {
            let (dir, name) = key::dir_and_name(key)?;
            // One that cannot be read is as good as none.
            Some((dir, Name::new(name).ok()?, value::decode(key, bytes).ok()?))
        })
    }

    /// The next nodes, at most `limit`, and what they are of. None come at the end.
    ///
    /// # Errors
    /// `Index`.
    pub fn nodes_onward(&self, onward: &mut Onward, limit: usize) -> Result<Vec<(NodeId, BindingId)>> {
        self.portion(key::ALL_NODES, onward, limit, |key, bytes| {
            let identity = value::decode_head::<Identity<'_>>(key, bytes).ok()?;
            Some((key::node_of(key)?, identity.binding))
        })
    }

    /// The next directories of which a listing is known, at most `limit`. None come at the end.
    ///
    /// # Errors
    /// `Index`.
    pub fn listings_onward(&self, onward: &mut Onward, limit: usize) -> Result<Vec<NodeId>> {
        self.portion(key::LISTINGS, onward, limit, |key, _| key::node_of(key))
    }

    /// The next of what starts with `prefix`; what `read` makes nothing of is passed over.
    fn portion<T>(
        &self,
        prefix: &[u8],
        onward: &mut Onward,
        limit: usize,
        read: impl Fn(&[u8], &[u8]) -> Option<T>,
    ) -> Result<Vec<T>> {
        loop {
            let pairs = self.index().scan(prefix, onward.0.as_deref(), limit)?;
            let Some((last, _)) = pairs.last() else { return Ok(Vec::new()) };
            onward.0 = Some(last.clone());
            let found: Vec<T> = pairs.iter().filter_map(|(key, value)| read(key, value)).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
}
