//! Keys of the index: a tag byte, then the fields with numbers big-endian, so that byte order is the order of
//! names in a directory. Drawn in `docs/formats/store.md`.

use weft_remote::Name;

use crate::NodeId;

/// A key as it stands in the database.
pub(crate) type Key = Box<[u8]>;

/// A node's record.
pub(crate) fn node(node: NodeId) -> Key {
    join(TAG_NODE, &[&node.0.to_be_bytes()])
}

/// A name in a directory.
pub(crate) fn dentry(dir: NodeId, name: &Name) -> Key {
    join(TAG_DENTRY, &[&dir.0.to_be_bytes(), name.as_bytes()])
}

/// What all names of a directory start with.
pub(crate) fn dentries(dir: NodeId) -> Key {
    join(TAG_DENTRY, &[&dir.0.to_be_bytes()])
}

/// A directory's listing.
pub(crate) fn listing(dir: NodeId) -> Key {
    join(TAG_LISTING, &[&dir.0.to_be_bytes()])
}

/// A node's object.
pub(crate) fn object(node: NodeId) -> Key {
    join(TAG_OBJECT, &[&node.0.to_be_bytes()])
}

/// When a node's object was last used.
pub(crate) fn used(node: NodeId) -> Key {
    join(TAG_USED, &[&node.0.to_be_bytes()])
}

/// The node of a key that is a tag and a node; `None` for any other key.
pub(crate) fn node_of(key: &[u8]) -> Option<NodeId> {
    let number = key.get(1..)?.try_into().ok()?;
    Some(NodeId(u64::from_be_bytes(number)))
}

/// The directory and the name of a name's key; `None` for any other key.
pub(crate) fn dir_and_name(key: &[u8]) -> Option<(NodeId, &[u8])> {
    let (number, name) = key.strip_prefix(NAMES)?.split_first_chunk()?;
    Some((NodeId(u64::from_be_bytes(*number)), name))
}

/// A note of a kind.
pub(crate) fn note(kind: &str, key: &[u8]) -> Key {
    join(TAG_NOTE, &[kind.as_bytes(), &[0], key])
}

/// The number of a binding.
pub(crate) fn binding(source: &str) -> Key {
    join(TAG_BINDING, &[source.as_bytes()])
}

/// The first key after all keys that start with `prefix`; `None` when there is no such key.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

/// Whether this is a node's key.
pub(crate) fn is_node(key: &[u8]) -> bool {
    key.first() == Some(&TAG_NODE)
}

fn join(tag: u8, fields: &[&[u8]]) -> Key {
    let mut key = Vec::with_capacity(1 + fields.iter().map(|field| field.len()).sum::<usize>());
    key.push(tag);
    for field in fields {
        key.extend_from_slice(field);
    }
    key.into()
}

const TAG_NODE: u8 = b'n';
const TAG_DENTRY: u8 = b'd';
const TAG_LISTING: u8 = b'l';
const TAG_OBJECT: u8 = b'o';
const TAG_USED: u8 = b'u';
const TAG_NOTE: u8 = b'k';
const TAG_BINDING: u8 = b'b';

/// All keys of nodes start with this.
pub(crate) const ALL_NODES: &[u8] = &[TAG_NODE];
/// All keys of names start with this.
pub(crate) const NAMES: &[u8] = &[TAG_DENTRY];
/// All keys of listings start with this.
pub(crate) const LISTINGS: &[u8] = &[TAG_LISTING];
/// All keys of objects start with this.
pub(crate) const OBJECTS: &[u8] = &[TAG_OBJECT];
/// All keys of bindings start with this.
pub(crate) const BINDINGS: &[u8] = &[TAG_BINDING];
/// Which format the database has; its value is one byte.
pub(crate) const FORMAT: &[u8] = b"mformat";
/// The random seed of node numbers.
pub(crate) const SEED: &[u8] = b"mseed";
/// Whether files that lie near each other have numbers near each other.
pub(crate) const NEAR: &[u8] = b"mnear";
/// How many bytes and objects are held.
pub(crate) const TOTALS: &[u8] = b"mtotals";
/// How many nodes are known.
pub(crate) const NODES: &[u8] = b"mnodes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_starts_with_it() {
        assert_eq!(after_prefix(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after_prefix(&[b'd', 0xff, 0xff]).as_deref(), Some(&b"e"[..]));
        assert_eq!(after_prefix(&[0xff]), None);
        let dir = NodeId(u64::MAX);
        let name = Name::new([0xff; 255]).unwrap();
        assert!(dentry(dir, &name) < after_prefix(&dentries(dir)).unwrap());
    }
}
