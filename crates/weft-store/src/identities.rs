//! Which file has which number, and what is known of it at a glance: the first fields of a [`NodeRecord`], read where they lie.

use serde::Deserialize;
use serde_bytes::Bytes;
use weft_remote::{Attributes, Audience, FileId, FileKind, Lease, Neighbourhood};

use crate::value::{self, Value};
use crate::{BindingId, NodeId, NodeRecord, Result, Store, StoreError, key, numbers};

/// Which file a record is of.
#[derive(Deserialize)]
pub(crate) struct Identity<'a> {
    pub(crate) binding: BindingId,
    #[serde(borrow)]
    file: &'a Bytes,
}

impl Identity<'_> {
    fn is(&self, binding: BindingId, file: &FileId) -> bool {
        self.binding == binding && **self.file == *file.as_bytes()
    }
}

/// A record up to whom it may be shown.
#[derive(Deserialize)]
struct Front<'a> {
    #[serde(borrow)]
    _identity: Identity<'a>,
    _parent: NodeId,
    #[serde(borrow)]
    _name: &'a Bytes,
    attributes: Attributes,
    #[serde(borrow)]
    _version: Token<'a>,
    _lease: Lease,
    audience: Audience,
}

/// A [`Version`](weft_remote::Version).
#[derive(Deserialize)]
enum Token<'a> {
    #[serde(borrow)]
    Strong(#[expect(dead_code, reason = "it is passed over")] &'a Bytes),
    #[serde(borrow)]
    Weak(#[expect(dead_code, reason = "it is passed over")] &'a Bytes),
    None,
}

impl Store {
    /// The number of a file: the one it has in the index, or the one it will have once a record of it is applied.
    /// The same file, with the same neighbourhood, gets the same number for as long as its record, and the records of
    /// numbers just before it, stay. What is known of neighbours lies together.
    ///
    /// # Errors
    /// `Index`.
    pub fn identify(&self, binding: BindingId, file: &FileId, near: Option<Neighbourhood>) -> Result<NodeId> {
        Ok(self.find(binding, file, near)?.0)
    }

    /// The same with what is known of it.
    ///
    /// # Errors
    /// `Index`.
    pub fn identify_known(
        &self,
        binding: BindingId,
        file: &FileId,
        near: Option<Neighbourhood>,
    ) -> Result<(NodeId, Option<NodeRecord>)> {
        let (node, value) = self.find(binding, file, near)?;
        Ok((node, value.and_then(|value| self.decode(&key::node(node), &value))))
    }

    /// Whether there is a record of this number, and it is of this file.
    ///
    /// # Errors
    /// `Index`.
    pub fn is_of(&self, node: NodeId, binding: BindingId, file: &FileId) -> Result<bool> {
        let key = key::node(node);
        let Some(value) = self.index().get(&key)? else { return Ok(false) };
        let identity = value::decode_head::<Identity<'_>>(&key, &value);
        Ok(identity.is_ok_and(|identity| identity.is(binding, file)))
    }

    /// Whether a file has this number unless another file has it; never asks the index.
    pub fn is_first_number(
        &self,
        number: NodeId,
        binding: BindingId,
        file: &FileId,
        near: Option<Neighbourhood>,
    ) -> bool {
        self.numbers.first(binding, file, near) == number.0
    }

    /// What sort of thing a node is, and who may be shown it.
    ///
    /// # Errors
    /// `Index`.
    pub fn glance(&self, node: NodeId) -> Result<Option<(FileKind, Audience)>> {
        let key = key::node(node);
        let Some(value) = self.index().get(&key)? else { return Ok(None) };
        match value::decode_head::<Front<'_>>(&key, &value) {
            Ok(front) => Ok(Some((front.attributes.kind, front.audience))),
            // That is told by who reads all of it.
            Err(_) => Ok(self.node(node)?.map(|record| (record.attributes.kind, record.audience))),
        }
    }

    fn find(&self, binding: BindingId, file: &FileId, near: Option<Neighbourhood>) -> Result<(NodeId, Option<Value>)> {
        let mut number = self.numbers.first(binding, file, near);
        for _ in 0..PROBES_MAX {
            let key = key::node(NodeId(number));
            let Some(value) = self.index().get(&key)? else { return Ok((NodeId(number), None)) };
            match value::decode_head::<Identity<'_>>(&key, &value) {
                Ok(identity) if !identity.is(binding, file) => number = numbers::next(number),
                // A record that cannot be read is as good as none: its number is free.
                Ok(_) | Err(_) => return Ok((NodeId(number), Some(value))),
            }
        }
        Err(StoreError::Index("too many files have the same number".into()))
    }
}

/// How many numbers are tried for a file.
const PROBES_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use weft_remote::{Figure, Name, Version};

    use super::*;

    /// Goal: a glance tells what the whole record does, of every form that its parts have, and is no more than a glance.
    #[test]
    fn the_front_of_a_record_is_as_the_record() {
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 7);
        let long = FileId::new(vec![0xff; 300]);
        for (version, lease) in [
            (Version::None, Lease::Spent),
            (Version::strong("token"), Lease::Until(time)),
            (Version::weak(vec![b'w'; 400]), Lease::UntilBroken(time)),
        ] {
            for (kind, audience) in
                [(FileKind::Directory, Audience::Everyone), (FileKind::Symlink, Audience::Only { uid: 1000 })]
            {
                let record = NodeRecord {
                    binding: BindingId(7),
                    file: long.clone(),
                    parent: NodeId(u64::MAX >> 1),
                    name: Name::new("name").unwrap(),
                    attributes: Attributes {
                        modified: Figure::Exact(time),
                        mode: Some(0o644),
                        ..Attributes::of_kind(kind)
                    },
                    version: version.clone(),
                    lease,
                    audience,
                    learnt: time,
                    origin: None,
                };
                let value = value::encode(b"n", &record).unwrap();
                let front = value::decode_head::<Front<'_>>(b"n", &value).unwrap();
                assert_eq!((front.attributes.kind, front.audience), (kind, audience));
                let identity = value::decode_head::<Identity<'_>>(b"n", &value).unwrap();
                assert!(identity.is(BindingId(7), &long) && !identity.is(BindingId(8), &long));
                assert!(!identity.is(BindingId(7), &FileId::new(vec![0xff; 299])));
            }
        }
    }
}
