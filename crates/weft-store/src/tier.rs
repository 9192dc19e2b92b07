//! Which tier has the bytes of an object: segments for small ones, files for the others.

use crate::body::Body;
use crate::shelf::{Shelf, Unusable};
use crate::small::{Small, SmallKey};
use crate::{NodeId, NodeRecord, Object, ObjectRecord, Result, key, value};

impl Shelf {
    /// Whether the index has this generation of an object.
    pub(crate) fn refers_to(&self, key: SmallKey) -> Result<bool> {
        Ok(self.record(key.node)?.is_some_and(|record| record.generation == key.generation))
    }

    /// Brings the bytes of a whole small object to where they stay.
    pub(crate) fn settle(&self, object: &Object) -> Result<()> {
        if !object.is_complete() || object.body.has_file() {
            return Ok(());
        }
        let key = key::node(object.node);
        let parent = self.index.get(&key)?.and_then(|value| value::decode::<NodeRecord>(&key, &value).ok());
        let directory = parent.map_or(0, |record| record.parent.0);
        let settled = object.body.settle(&self.small, &self.disk, directory);
        settled.map_err(|error| object.refused(error))
    }

    /// Takes the bytes of an object that is gone out of their segment; who has it open keeps them.
    pub(crate) fn unsettle(&self, object: &Object) {
        object.body.hold(&self.small);
        self.small.remove(SmallKey { node: object.node, generation: object.generation });
    }

    /// The bytes of an object that the index has.
    pub(crate) fn open_body(&self, node: NodeId, record: &ObjectRecord) -> Result<Body, Unusable> {
        let key = SmallKey { node, generation: record.generation };
        let path = self.path(node, record.generation);
        if record.length <= Small::CONTENT_BYTES_MAX {
            if record.pieces.is_empty() {
                return Ok(Body::draft(key, path));
            }
            if self.small.holds(key) {
                return Ok(Body::in_segment(key, path));
            }
        }
        let file = self.open_file(&path, record.end())?;
        Ok(Body::in_file(key, path, file))
    }
}
