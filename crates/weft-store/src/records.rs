//! What the index remembers: one record type per noun.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize, Serializer};
use weft_remote::{Attributes, Audience, Completeness, Figure, FileId, Lease, Name, Origin, Version};

use crate::PIECE_BYTES;
use crate::object::OBJECT_BYTES_MAX;

/// The durable number of a file in this store; also the inode number that the kernel sees. 0 is never used,
/// 1 is the root of the mount; numbers below 4096 are kept for directories of weft's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
    /// The first number that a file of a remote may have.
    pub const FIRST_OF_REMOTES: u64 = 4096;
}

/// Which binding (directory of the mount that shows a remote) a file belongs to: a small number that the
/// configuration's source string is given once and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BindingId(pub u32);

/// What is known of a file or directory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "StoredNode")]
pub struct NodeRecord {
    /// The binding it belongs to.
    pub binding: BindingId,
    /// Its identity at the remote.
    pub file: FileId,
    /// The directory that it was found in.
    pub parent: NodeId,
    /// The name that it was found under.
    pub name: Name,
    /// Attributes as last told.
    pub attributes: Attributes,
    /// Version as last told.
    pub version: Version,
    /// How long the attributes may be trusted.
    pub lease: Lease,
    /// Who may be shown them.
    pub audience: Audience,
    /// When the source last spoke of it.
    pub learnt: SystemTime,
    /// Where the knowledge came from.
    pub origin: Option<Origin>,
}

/// A node as it stands in the database: what came later stands at the end, and may be missing.
#[derive(Deserialize)]
struct StoredNode {
    binding: BindingId,
    file: FileId,
    parent: NodeId,
    name: Name,
    attributes: Attributes,
    version: Version,
    lease: Lease,
    audience: Audience,
    learnt: SystemTime,
    origin: Option<Origin>,
    #[serde(deserialize_with = "or_none")]
    later: Option<StoredLater>,
    #[serde(deserialize_with = "or_none")]
    latest: Option<StoredLatest>,
    #[serde(deserialize_with = "or_none")]
    access: Option<StoredAccess>,
}

/// Attributes that the first records did not have.
#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredLater {
    #[serde(with = "weft_remote::moment")]
    changed: Figure<SystemTime>,
    #[serde(with = "weft_remote::moment")]
    accessed: Figure<SystemTime>,
    links: Option<u32>,
    device: Option<u32>,
}

/// Attributes that came after those.
#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredLatest {
    allocated: Option<u64>,
}

/// And what came after those.
#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredAccess {
    has_list: Option<bool>,
}

/// A field that ends a record, where the record has it.
fn or_none<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(from).unwrap_or(None))
}

impl From<StoredNode> for NodeRecord {
    fn from(stored: StoredNode) -> NodeRecord {
        let StoredLater { changed, accessed, links, device } = stored.later.unwrap_or_default();
        let StoredLatest { allocated } = stored.latest.unwrap_or_default();
        let StoredAccess { has_list: has_access_list } = stored.access.unwrap_or_default();
        NodeRecord {
            binding: stored.binding,
            file: stored.file,
            parent: stored.parent,
            name: stored.name,
            attributes: Attributes {
                changed,
                accessed,
                links,
                device,
                allocated,
                has_access_list,
                ..stored.attributes
            },
            version: stored.version,
            lease: stored.lease,
            audience: stored.audience,
            learnt: stored.learnt,
            origin: stored.origin,
        }
    }
}

impl Serialize for NodeRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Attributes { changed, accessed, links, device, allocated, has_access_list, .. } = self.attributes;
        let later = Some(StoredLater { changed, accessed, links, device });
        let latest = Some(StoredLatest { allocated });
        let access = Some(StoredAccess { has_list: has_access_list });
        let NodeRecord { binding, file, parent, name, attributes, version, lease, audience, learnt, origin } = self;
        let place = (binding, file, parent, name);
        let told = (attributes, version, lease, audience, learnt, origin);
        // Without names of fields, which the form does not have: tuples in tuples are written one after the other.
        (place, told, later, latest, access).serialize(to)
    }
}

/// Whether a lease ends no earlier than a former one.
fn lasts_as_long(lease: &Lease, former: &Lease) -> bool {
    match (lease, former) {
        (Lease::Until(end), Lease::Until(former)) | (Lease::UntilBroken(end), Lease::UntilBroken(former)) => {
            end >= former
        }
        (lease, former) => lease == former,
    }
}

/// What a name in a directory leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DentryTarget {
    /// To this node.
    Node(NodeId),
    /// To nothing: the source said that there is no such name.
    Absent,
}

impl DentryRecord {
    /// The node that the name leads to.
    pub fn node(&self) -> Option<NodeId> {
        match self.target {
            DentryTarget::Node(id) => Some(id),
            DentryTarget::Absent => None,
        }
    }

    /// Whether the directory's own listing names it.
    pub fn is_by_list(&self) -> bool {
        matches!(self.source, DentrySource::Listed | DentrySource::Described)
    }
}

/// How a name became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DentrySource {
    /// The directory's own listing names it.
    Listed,
    /// The directory's own listing names it and tells size and time, so that the listing vouches for those too.
    Described,
    /// Something else named it (a page elsewhere links to it).
    Linked,
    /// Somebody asked for it and it was there (or was not).
    LookedUp,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DentryRecord {
    /// Where it leads.
    pub target: DentryTarget,
    /// How long the name may be trusted to lead there.
    pub lease: Lease,
    /// How it became known.
    pub source: DentrySource,
    /// When it became known or was last confirmed.
    pub learnt: SystemTime,
}

/// What is known of a directory's listing as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListingRecord {
    /// The listing's version.
    pub version: Version,
    /// How long it may be trusted.
    pub lease: Lease,
    /// Whether a name that is not in it exists.
    pub completeness: Completeness,
    /// Who may be shown it.
    pub audience: Audience,
    /// When the source last confirmed it.
    pub learnt: SystemTime,
    /// Where it came from.
    pub origin: Option<Origin>,
}

/// What is known of an object: the content of one version of a file, whole or in part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Which version the bytes are of.
    pub version: Version,
    /// Length of the file in bytes.
    pub length: u64,
    /// How long the content may be trusted.
    pub lease: Lease,
    /// Who may be shown it.
    pub audience: Audience,
    /// The user whose read brought it here.
    pub owner_uid: u32,
    /// When the source last confirmed it.
    pub checked: SystemTime,
    /// Distinguishes the files that held versions of this node; part of the file's name on disk.
    pub generation: u64,
    /// The pieces that are present, in order: number (offset divided by [`PIECE_BYTES`]) and
    /// checksum (XXH3, 64 bits).
    pub pieces: Vec<(u32, u64)>,
}

impl NodeRecord {
    /// Whether this tells no more than that what a former record says was so for longer.
    pub fn confirms(&self, former: &NodeRecord) -> bool {
        let NodeRecord { binding, file, parent, name, attributes, version, lease, audience, learnt, origin } = self;
        *learnt >= former.learnt
            && lasts_as_long(lease, &former.lease)
            && (binding, file, parent, name) == (&former.binding, &former.file, &former.parent, &former.name)
            && (attributes, version, audience, origin)
                == (&former.attributes, &former.version, &former.audience, &former.origin)
    }
}

impl ObjectRecord {
    /// Whether the source was found to have another version since ([`crate::Store::supersede`]).
    pub fn is_superseded(&self) -> bool {
        self.checked == superseded()
    }

    /// Whether this tells no more than that what a former record says was so for longer.
    pub(crate) fn confirms(&self, former: &ObjectRecord) -> bool {
        self.checked >= former.checked
            && lasts_as_long(&self.lease, &former.lease)
            && *self == ObjectRecord { lease: self.lease, checked: self.checked, ..former.clone() }
    }

    /// Whether every byte of the file is held.
    pub fn is_complete(&self) -> bool {
        self.pieces.len() as u64 == self.length.div_ceil(PIECE_BYTES)
    }

    /// How many bytes of the file are held.
    pub fn held_bytes(&self) -> u64 {
        self.pieces.iter().map(|(piece, _)| piece_length(*piece, self.length)).sum()
    }

    /// Whether the fields agree with each other: the pieces are in order and lie in a file that can be.
    pub(crate) fn is_sound(&self) -> bool {
        let ordered = self.pieces.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let possible = self.length <= OBJECT_BYTES_MAX;
        possible && ordered && self.pieces.last().is_none_or(|(piece, _)| piece_length(*piece, self.length) > 0)
    }

    /// What the held bytes take on disk, in whole blocks.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.pieces.iter().map(|(piece, _)| piece_length(*piece, self.length).next_multiple_of(BLOCK_BYTES)).sum()
    }

    /// First byte after the last piece that is present.
    pub(crate) fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |(piece, _)| u64::from(*piece) * PIECE_BYTES + piece_length(*piece, self.length))
    }
}

/// Length of a piece of a file of `length` bytes; zero when it lies after the end.
pub(crate) fn piece_length(piece: u32, length: u64) -> u64 {
    length.saturating_sub(u64::from(piece) * PIECE_BYTES).min(PIECE_BYTES)
}

/// When superseded content was last confirmed: a time of its own, for it is confirmed no more.
pub(crate) fn superseded() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1)
}

/// One change to the index.
#[derive(Clone, Debug)]
pub enum Record {
    /// Sets or removes a node.
    Node(NodeId, Option<NodeRecord>),
    /// Sets or removes a name in a directory.
    Dentry(NodeId, Name, Option<DentryRecord>),
    /// Sets or removes what is known of a listing.
    Listing(NodeId, Option<ListingRecord>),
}

/// What file systems commonly allocate at least.
const BLOCK_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    /// Bytes that are on disks already: when this fails, the format has changed and needs a new number.
    #[test]
    fn the_formats_stay() {
        let time = SystemTime::UNIX_EPOCH + Duration::new(300, 5);
        let dentry = DentryRecord {
            target: DentryTarget::Node(NodeId(4096)),
            lease: Lease::Until(time),
            source: DentrySource::LookedUp,
            learnt: time,
        };
        let fields = [1, 0, 0x80, 0x20, 1, 0xac, 2, 5, 3, 0xac, 2, 5];
        let value = value::encode(b"d", &dentry).unwrap();
        assert_eq!(value[..value.len() - 4], fields);
        assert_eq!(
            value[value.len() - 4..],
            xxhash_rust::xxh3::xxh3_64(&[b"d", &fields[..]].concat()).to_le_bytes()[..4]
        );
        let object = ObjectRecord {
            version: Version::weak("w"),
            length: 1,
            lease: Lease::Forever,
            audience: Audience::Only { uid: 2 },
            owner_uid: 3,
            checked: SystemTime::UNIX_EPOCH,
            generation: 4,
            pieces: vec![(0, 128)],
        };
        let value = value::encode(b"o", &object).unwrap();
        assert_eq!(value[..value.len() - 4], [1, 1, 1, b'w', 1, 3, 1, 2, 3, 0, 0, 4, 1, 0, 0x80, 1]);
    }

    /// Goal: nodes that were remembered when less was known of them are still.
    #[test]
    fn nodes_of_before_are_read() {
        let attributes = Attributes {
            links: Some(2),
            allocated: Some(512),
            has_access_list: Some(false),
            ..Attributes::of_kind(weft_remote::FileKind::File)
        };
        let record = NodeRecord {
            binding: BindingId(1),
            file: FileId::new(b"file"),
            parent: NodeId::ROOT,
            name: Name::new("name").unwrap(),
            attributes,
            version: Version::strong("v"),
            lease: Lease::Forever,
            audience: Audience::Everyone,
            learnt: SystemTime::UNIX_EPOCH,
            origin: None,
        };
        let whole = postcard::to_allocvec(&record).unwrap();
        let read = |bytes: &[u8]| postcard::from_bytes::<NodeRecord>(bytes).unwrap().attributes;
        assert_eq!(read(&whole), attributes);
        // At the end: that there is more, that it is told, no.
        let (whole, access) = whole.split_at(whole.len() - 3);
        assert_eq!(access, [1, 1, 0]);
        let listless = Attributes { has_access_list: None, ..attributes };
        assert_eq!(read(whole), listless);
        // And before that: that there is more, that it is told, 512 in two octets.
        let (whole, latest) = whole.split_at(whole.len() - 4);
        assert_eq!(latest, [1, 1, 0x80, 4]);
        let before = Attributes { allocated: None, ..listless };
        assert_eq!(read(whole), before);
        let first = Attributes { links: None, ..before };
        // And before that: changed, accessed, links, device.
        assert_eq!(read(&whole[..whole.len() - 6]), first);
    }

    #[test]
    fn a_lease_that_ends_earlier_confirms_nothing() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let record = |lease, checked| ObjectRecord {
            version: Version::None,
            length: 0,
            lease,
            audience: Audience::Everyone,
            owner_uid: 0,
            checked: at(checked),
            generation: 0,
            pieces: Vec::new(),
        };
        let former = record(Lease::Until(at(5)), 1);
        assert!(record(Lease::Until(at(6)), 2).confirms(&former));
        assert!(!record(Lease::Until(at(4)), 2).confirms(&former) && !record(Lease::Spent, 2).confirms(&former));
        assert!(!record(Lease::Until(at(6)), 0).confirms(&former), "it is not to be trusted");
        assert!(!ObjectRecord { length: 1, ..record(Lease::Until(at(6)), 2) }.confirms(&former));
    }

    #[test]
    fn pieces_must_be_in_order_and_in_the_file() {
        let record = |length, pieces: &[u32]| ObjectRecord {
            version: Version::None,
            length,
            lease: Lease::Spent,
            audience: Audience::Everyone,
            owner_uid: 0,
            checked: SystemTime::UNIX_EPOCH,
            generation: 0,
            pieces: pieces.iter().map(|piece| (*piece, 0)).collect(),
        };
        assert!(record(0, &[]).is_sound() && record(0, &[]).is_complete());
        assert!(record(1, &[0]).is_sound() && record(1, &[0]).is_complete());
        assert!(!record(0, &[0]).is_sound());
        assert!(!record(PIECE_BYTES, &[1]).is_sound());
        assert!(!record(OBJECT_BYTES_MAX, &[1, 1]).is_sound());
        assert!(record(OBJECT_BYTES_MAX, &[1, 5]).is_sound());
        assert!(!record(OBJECT_BYTES_MAX + 1, &[1, 5]).is_sound());
        assert!(!record(OBJECT_BYTES_MAX, &[u32::MAX]).is_sound());
        assert_eq!(record(PIECE_BYTES + 3, &[1]).held_bytes(), 3);
        assert_eq!(record(PIECE_BYTES + 3, &[1]).end(), PIECE_BYTES + 3);
    }
}
