//! The tree that a fake serves.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{Quality, Validator};
use crate::{Attributes, Completeness, Figure, FileId, FileKind, Name, Owner, Version};

/// Nodes by number. Numbers are never used twice; the root is [`ROOT`].
pub(super) struct Tree {
    nodes: HashMap<u64, Node>,
    last_number: u64,
    last_version: u64,
}

/// A file, directory or link.
pub(super) struct Node {
    pub(super) what: What,
    pub(super) parent: u64,
    pub(super) name: Option<Name>,
    pub(super) version: u64,
    /// The oldest version with the same bytes, where attributes alone were set since.
    pub(super) same_since: u64,
    pub(super) modified: SystemTime,
    pub(super) mode: Option<u16>,
    pub(super) owner: Option<Owner>,
    pub(super) access_list: Option<Vec<u8>>,
    pub(super) completeness: Completeness,
    pub(super) hidden: bool,
    pub(super) quality: Quality,
    pub(super) listed_kind: Option<FileKind>,
    pub(super) page: Option<Name>,
}

/// What a node is.
pub(super) enum What {
    File(Bytes),
    Dir(BTreeMap<Name, u64>),
    Symlink(Vec<u8>),
}

impl Tree {
    pub(super) fn new() -> Tree {
        let root = Node::new(What::Dir(BTreeMap::new()), ROOT, None, 1);
        Tree { nodes: HashMap::from([(ROOT, root)]), last_number: ROOT, last_version: 1 }
    }

    pub(super) fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&number)
    }

    pub(super) fn node_mut(&mut self, number: u64) -> &mut Node {
        self.nodes.get_mut(&number).expect("the caller has found this node under the same lock")
    }

    pub(super) fn child(&self, dir: u64, name: &Name) -> Option<u64> {
        match &self.nodes.get(&dir)?.what {
            What::Dir(names) => names.get(name).copied(),
            What::File(_) | What::Symlink(_) => None,
        }
    }

    pub(super) fn find(&self, path: &[u8]) -> Option<u64> {
        let mut number = ROOT;
        for name in components(path) {
            number = self.child(number, &name)?;
        }
        Some(number)
    }

    /// The path of a node, for matching faults and for people.
    pub(super) fn path(&self, number: u64) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = number;
        while let Some(node) = self.nodes.get(&at)
            && let Some(name) = &node.name
        {
            names.push(name.as_bytes());
            at = node.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    pub(super) fn make_dir(&mut self, path: &[u8]) -> u64 {
        let mut at = ROOT;
        for name in components(path) {
            at = match self.child(at, &name) {
                Some(number) => number,
                None => self.add(at, name, What::Dir(BTreeMap::new())),
            };
        }
        at
    }

    /// Makes a file or link that is not there yet; its number and that of its directory.
    pub(super) fn make(&mut self, path: &[u8], what: What) -> (u64, u64) {
        let mut names = components(path);
        let name = names.pop().expect("the root is a directory");
        let above: Vec<&[u8]> = names.iter().map(Name::as_bytes).collect();
        let dir = self.make_dir(&above.join(&b'/'));
        (self.add(dir, name, what), dir)
    }

    pub(super) fn add(&mut self, dir: u64, name: Name, what: What) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let version = self.bump();
        self.nodes.insert(number, Node::new(what, dir, Some(name.clone()), version));
        let What::Dir(names) = &mut self.node_mut(dir).what else { panic!("only a directory takes names") };
        assert!(names.insert(name, number).is_none(), "the name is free");
        self.touch(dir);
        number
    }

    pub(super) fn set(&mut self, number: u64, bytes: Bytes) {
        let What::File(content) = &mut self.node_mut(number).what else { panic!("only a file takes bytes") };
        *content = bytes;
        self.touch(number);
        // The listing tells the file's size and time, so it is another one now.
        let dir = self.node_mut(number).parent;
        self.touch(dir);
    }

    pub(super) fn touch(&mut self, number: u64) {
        let version = self.bump();
        let node = self.node_mut(number);
        (node.version, node.same_since) = (version, version);
        node.modified = time_of(version);
    }

    /// A node that gets a new version, with the same bytes.
    pub(super) fn change(&mut self, number: u64) -> &mut Node {
        let version = self.bump();
        let node = self.node_mut(number);
        node.version = version;
        node
    }

    /// Takes a node and all below it away; the number of the directory that lost it.
    pub(super) fn remove(&mut self, number: u64) -> u64 {
        let dir = self.detach(number);
        let mut gone = vec![number];
        while let Some(next) = gone.pop() {
            if let Some(Node { what: What::Dir(names), .. }) = self.nodes.remove(&next) {
                gone.extend(names.into_values());
            }
        }
        dir
    }

    pub(super) fn detach(&mut self, number: u64) -> u64 {
        let node = self.node_mut(number);
        let (dir, name) = (node.parent, node.name.clone().expect("the root is never removed"));
        let What::Dir(names) = &mut self.node_mut(dir).what else { panic!("a parent is a directory") };
        names.remove(&name);
        self.touch(dir);
        dir
    }

    pub(super) fn attach(&mut self, number: u64, dir: u64, name: Name) {
        let node = self.node_mut(number);
        node.parent = dir;
        node.name = Some(name.clone());
        let What::Dir(names) = &mut self.node_mut(dir).what else { panic!("the caller has checked the directory") };
        names.insert(name, number);
        self.touch(dir);
    }

    /// Whether `number` is `above` or lies below it.
    pub(super) fn is_within(&self, number: u64, above: u64) -> bool {
        let mut at = number;
        loop {
            if at == above {
                return true;
            }
            match self.nodes.get(&at) {
                Some(node) if node.parent != at => at = node.parent,
                _ => return false,
            }
        }
    }

    fn bump(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }
}

impl Node {
    fn new(what: What, parent: u64, name: Option<Name>, version: u64) -> Node {
        Node {
            what,
            parent,
            name,
            version,
            same_since: version,
            modified: time_of(version),
            mode: None,
            owner: None,
            access_list: None,
            completeness: Completeness::Complete,
            hidden: false,
            quality: Quality::Exact,
            listed_kind: None,
            page: None,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match &self.what {
            What::File(_) => FileKind::File,
            What::Dir(_) => FileKind::Directory,
            What::Symlink(_) => FileKind::Symlink,
        }
    }

    pub(super) fn version(&self, validator: Validator) -> Version {
        let token = self.version.to_string();
        match validator {
            Validator::Strong => Version::strong(token),
            Validator::Weak => Version::weak(token),
            Validator::None => Version::None,
        }
    }

    /// Whether a version was one with the bytes that there are now.
    pub(super) fn has_bytes_of(&self, known: &Version, validator: Validator) -> bool {
        let number = known.token().and_then(|token| std::str::from_utf8(token).ok()?.parse().ok());
        validator != Validator::None
            && matches!(self.what, What::File(_))
            && number.is_some_and(|number| (self.same_since..=self.version).contains(&number))
    }

    /// Attributes told no better than `quality` and the node's own.
    pub(super) fn attributes(&self, quality: Quality) -> Attributes {
        let size = match &self.what {
            What::File(bytes) => self.quality.worse(quality).of_size(bytes.len() as u64),
            What::Symlink(target) => Figure::Exact(target.len() as u64),
            What::Dir(_) => Figure::Unknown,
        };
        let modified = quality.of_time(self.modified);
        Attributes { size, modified, mode: self.mode, owner: self.owner, ..Attributes::of_kind(self.kind()) }
    }
}

impl Quality {
    fn worse(self, other: Quality) -> Quality {
        match (self, other) {
            (Quality::Unknown, _) | (_, Quality::Unknown) => Quality::Unknown,
            (Quality::Rounded, _) | (_, Quality::Rounded) => Quality::Rounded,
            (Quality::Exact, Quality::Exact) => Quality::Exact,
        }
    }

    fn of_size(self, size: u64) -> Figure<u64> {
        match self {
            Quality::Exact => Figure::Exact(size),
            Quality::Rounded => Figure::Rounded(size / 1024 * 1024),
            Quality::Unknown => Figure::Unknown,
        }
    }

    fn of_time(self, time: SystemTime) -> Figure<SystemTime> {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        match self {
            Quality::Exact => Figure::Exact(time),
            Quality::Rounded => Figure::Rounded(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds / 60 * 60)),
            Quality::Unknown => Figure::Unknown,
        }
    }
}

pub(super) fn file_id(number: u64) -> FileId {
    FileId::new(format!("fake:{number}"))
}

/// The number behind an identity; `None` for one that no fake gave.
pub(super) fn number_of(file: &FileId) -> Option<u64> {
    std::str::from_utf8(file.as_bytes()).ok()?.strip_prefix("fake:")?.parse().ok()
}

fn components(path: &[u8]) -> Vec<Name> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(|part| Name::new(part).expect("the test gives names that Linux can hold")).collect()
}

/// A clock that moves one second with each change, so that runs are alike.
fn time_of(version: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(FIRST_SECOND + version)
}

pub(super) const ROOT: u64 = 1;
/// 13 September 2020.
const FIRST_SECOND: u64 = 1_600_000_000;
