//! Mutations of a fake.

use bytes::{Bytes, BytesMut};

use super::serve::{directory, node};
use super::tree::{self, What};
use super::{Fake, Quality};
use crate::{
    ACCESS_LIST, Change, Content, Entry, Extent, FileId, FileKind, Mutation, Name, RemoteError, RenameTarget, Result,
    Sameness, Version,
};

impl Mutation {
    /// The file whose version is expected: the one that changes, or the directory that gains or loses the name.
    pub(super) fn subject(&self) -> &FileId {
        match &self.change {
            Change::Create { dir, .. } | Change::Symlink { dir, .. } | Change::Remove { dir, .. } => dir,
            Change::Rename { from, .. } => from,
            Change::Link { file, .. }
            | Change::Write { file, .. }
            | Change::SetAttributes { file, .. }
            | Change::SetExtended { file, .. } => file,
        }
    }
}

impl Fake {
    /// Makes the change; the entry as it is now, `None` after a removal.
    pub(super) fn make_change(&self, mutation: &Mutation, expected: &Version) -> Result<Option<Entry>> {
        let subject = number(mutation.subject())?;
        // Reading what shall be written may take a while: not under the lock.
        let content = match &mutation.change {
            Change::Write { extents, length, content, .. } => {
                Some(self.written(subject, extents, *length, &**content)?)
            }
            _ => None,
        };
        let validator = self.terms().validator;
        let mut tree = self.shared.tree.lock();
        let there = node(&tree, subject)?;
        let is_written = matches!(mutation.change, Change::Write { .. });
        let has_bytes = is_written && there.has_bytes_of(expected, validator);
        if !has_bytes && there.version(validator).compare(expected) == Sameness::Different {
            return Err(RemoteError::VersionChanged { detail: format!("{:?}", mutation.change) });
        }
        let changed = match &mutation.change {
            Change::Create { name, kind, mode, .. } => {
                let what = match kind {
                    FileKind::Directory => What::Dir(Default::default()),
                    FileKind::File => What::File(Bytes::new()),
                    _ => return Err(RemoteError::Unsupported { detail: format!("a new {kind:?}") }),
                };
                let made = add(&mut tree, subject, name, what)?;
                tree.node_mut(made).mode = Some(mode.masked());
                Some(made)
            }
            Change::Symlink { name, target, .. } => Some(add(&mut tree, subject, name, What::Symlink(target.clone()))?),
            Change::Link { .. } => return Err(RemoteError::Unsupported { detail: "hard links".to_owned() }),
            Change::Remove { name, .. } => {
                let gone = child(&tree, subject, name)?;
                removable(&tree, gone)?;
                tree.remove(gone);
                None
            }
            Change::Rename { name, to, new_name, target, .. } => {
                let to = number(to)?;
                match target {
                    RenameTarget::Absent if tree.child(to, new_name).is_some() => {
                        return Err(RemoteError::Exists { detail: format!("{new_name:?} in fake:{to}") });
                    }
                    RenameTarget::Exchanged => {
                        return Err(RemoteError::Unsupported { detail: "exchanging two names".to_owned() });
                    }
                    RenameTarget::Replaced | RenameTarget::Absent => {}
                }
                Some(rename(&mut tree, subject, name, to, new_name)?)
            }
            Change::Write { .. } => {
                tree.set(subject, content.expect("read above for this very change"));
                Some(subject)
            }
            Change::SetAttributes { new, .. } => {
                let same_since = node(&tree, subject)?.same_since;
                tree.touch(subject);
                let node = tree.node_mut(subject);
                node.same_since = same_since;
                node.mode = new.mode.or(node.mode);
                node.modified = new.modified.unwrap_or(node.modified);
                Some(subject)
            }
            Change::SetExtended { name, value, .. } if self.terms().access_lists && name == ACCESS_LIST => {
                tree.change(subject).access_list.clone_from(value);
                Some(subject)
            }
            Change::SetExtended { .. } => {
                return Err(RemoteError::Unsupported { detail: "extended attributes".to_owned() });
            }
        };
        let entry = changed.map(|number| self.entry(&tree, number, Quality::Exact));
        drop(tree);
        self.broken(changed.unwrap_or(subject));
        Ok(entry)
    }

    /// The content of a file after a write.
    fn written(&self, number: u64, extents: &[Extent], length: u64, content: &dyn Content) -> Result<Bytes> {
        if length > FILE_BYTES_MAX {
            return Err(RemoteError::Failed { detail: format!("a fake holds at most {FILE_BYTES_MAX} bytes a file") });
        }
        let mut bytes = match &node(&self.shared.tree.lock(), number)?.what {
            What::File(bytes) => BytesMut::from(bytes.as_ref()),
            What::Dir(_) | What::Symlink(_) => {
                return Err(RemoteError::IsADirectory { detail: format!("fake:{number}") });
            }
        };
        bytes.resize(length as usize, 0);
        for Extent { offset, length: wanted } in extents {
            let end = offset.checked_add(*wanted).filter(|end| *end <= length);
            let end = end.ok_or_else(|| RemoteError::Failed { detail: "an extent past the end".to_owned() })?;
            let piece = content
                .read(*offset, *wanted as usize)
                .map_err(|error| RemoteError::Failed { detail: format!("reading what shall be written: {error}") })?;
            if piece.len() as u64 != *wanted {
                return Err(RemoteError::Failed { detail: "the content is shorter than its extents".to_owned() });
            }
            bytes[*offset as usize..end as usize].copy_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }
}

fn number(file: &FileId) -> Result<u64> {
    tree::number_of(file).ok_or_else(|| RemoteError::NotFound { detail: format!("{file:?}") })
}

fn child(tree: &tree::Tree, dir: u64, name: &Name) -> Result<u64> {
    directory(tree, dir)?;
    tree.child(dir, name).ok_or_else(|| RemoteError::NotFound { detail: format!("{name:?} in fake:{dir}") })
}

fn add(tree: &mut tree::Tree, dir: u64, name: &Name, what: What) -> Result<u64> {
    directory(tree, dir)?;
    if tree.child(dir, name).is_some() {
        return Err(RemoteError::Exists { detail: format!("{name:?} in fake:{dir}") });
    }
    Ok(tree.add(dir, name.clone(), what))
}

fn rename(tree: &mut tree::Tree, from: u64, name: &Name, to: u64, new_name: &Name) -> Result<u64> {
    let moved = child(tree, from, name)?;
    directory(tree, to)?;
    if tree.is_within(to, moved) {
        return Err(RemoteError::Failed { detail: format!("{name:?} cannot move into itself") });
    }
    match tree.child(to, new_name) {
        Some(same) if same == moved => return Ok(moved),
        Some(replaced) => {
            removable(tree, replaced)?;
            tree.remove(replaced);
        }
        None => {}
    }
    tree.detach(moved);
    tree.attach(moved, to, new_name.clone());
    Ok(moved)
}

fn removable(tree: &tree::Tree, number: u64) -> Result<()> {
    match &node(tree, number)?.what {
        What::Dir(names) if !names.is_empty() => Err(RemoteError::NotEmpty { detail: format!("fake:{number}") }),
        What::Dir(_) | What::File(_) | What::Symlink(_) => Ok(()),
    }
}

/// Longest file that a fake holds.
const FILE_BYTES_MAX: u64 = 1 << 30;
