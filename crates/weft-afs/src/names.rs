//! The names of one directory: as they were fetched, and as our own changes have left them since.
//!
//! A server's answer to a change says which data version the directory has after it. When that is the next one after the one
//! that is held, nobody else has changed anything in between, and the change is entered here; else the directory is fetched
//! again when it is wanted.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use weft_remote::Name;

use crate::directory::{Directory, DirectoryError};
use crate::facts::Stamp;
use crate::fid::{Fid, VolumeId};

/// The content of one directory, checked.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// The state that it is of.
    pub stamp: Stamp,
    volume: VolumeId,
    /// As it was fetched.
    bytes: Bytes,
    /// What names stand for since then.
    changed: Arc<BTreeMap<Name, Option<Fid>>>,
}

impl Content {
    /// What was fetched of a directory in a volume.
    ///
    /// # Errors
    /// What is wrong with its pages.
    pub fn new(volume: VolumeId, stamp: Stamp, bytes: Bytes) -> Result<Content, DirectoryError> {
        Directory::new(&bytes)?;
        Ok(Content { stamp, volume, bytes, changed: Arc::default() })
    }

    /// Bytes that it holds in memory, as far as they count.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// What a name stands for.
    ///
    /// # Errors
    /// When the pages break before the name is found.
    pub fn find(&self, name: &Name) -> Result<Option<Fid>, DirectoryError> {
        if let Some(changed) = self.changed.get(name) {
            return Ok(*changed);
        }
        Ok(Directory::new(&self.bytes)?.find(name.as_bytes())?.map(|found| self.fid(found.vnode, found.unique)))
    }

    /// All names but "." and "..", which are the kernel's. Single entries that are wrong are left out, and told of.
    ///
    /// # Errors
    /// When the pages break.
    pub fn all(&self, mut left_out: impl FnMut(DirectoryError)) -> Result<Vec<(Name, Fid)>, DirectoryError> {
        let mut names = Vec::new();
        for entry in Directory::new(&self.bytes)?.entries() {
            match entry {
                Ok(entry) => {
                    let name = Name::new(entry.name).ok().filter(|name| !self.changed.contains_key(name));
                    names.extend(name.map(|name| (name, self.fid(entry.vnode, entry.unique))));
                }
                Err(error) if error.is_one_entry() => left_out(error),
                Err(error) => return Err(error),
            }
        }
        names.extend(self.changed.iter().filter_map(|(name, fid)| Some((name.clone(), (*fid)?))));
        Ok(names)
    }

    /// The same after a change of ours, which brought the directory to this state; `None` when it is not known what there is
    /// then.
    pub fn after(&self, stamp: Stamp, changes: &[(&Name, Option<Fid>)]) -> Option<Content> {
        let is_next = stamp.data_version == self.stamp.data_version.checked_add(1)?;
        if !is_next || stamp.made != self.stamp.made || self.changed.len() + changes.len() > CHANGED_MAX {
            return None;
        }
        let mut after = self.clone();
        let changed = Arc::make_mut(&mut after.changed);
        changed.extend(changes.iter().map(|(name, fid)| ((*name).clone(), *fid)));
        after.stamp = stamp;
        Some(after)
    }

    fn fid(&self, vnode: u32, unique: u32) -> Fid {
        Fid { volume: self.volume, vnode, unique }
    }
}

/// Changed names beside what was fetched; with more it is fetched again.
const CHANGED_MAX: usize = 512;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::directory_builder::DirectoryBuilder;
    use crate::facts::Made;

    const VOLUME: VolumeId = VolumeId(7);

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn fid(vnode: u32) -> Fid {
        Fid { volume: VOLUME, vnode, unique: vnode }
    }

    /// A state with this data version.
    pub(crate) fn stamp(data_version: u64) -> Stamp {
        Stamp { data_version, written_s: 7, made: Some(Made::Volume(5)) }
    }

    /// A directory with these names.
    pub(crate) fn content(data_version: u64, names: &[(&str, u32)]) -> Content {
        let mut builder = DirectoryBuilder::new();
        for (name, vnode) in names {
            builder.insert(name.as_bytes(), *vnode, *vnode);
        }
        Content::new(VOLUME, stamp(data_version), builder.build().into()).expect("good pages")
    }

    fn all(content: &Content) -> Vec<(String, u32)> {
        let mut names = content.all(|error| panic!("{error}")).expect("good pages");
        names.sort();
        names.into_iter().map(|(name, fid)| (name.to_string(), fid.vnode)).collect()
    }

    #[test]
    fn our_own_changes_are_entered() {
        let before = content(5, &[("a", 2), ("b", 4), ("dir", 3)]);
        let made = before.after(stamp(6), &[(&name("c"), Some(fid(6)))]).expect("the next one");
        let moved = made.after(stamp(7), &[(&name("a"), None), (&name("b"), Some(fid(2)))]).expect("the next one");
        let wanted = [("b", 2), ("c", 6), ("dir", 3)].map(|(name, vnode)| (name.to_owned(), vnode));
        assert_eq!((all(&moved), moved.stamp), (wanted.to_vec(), stamp(7)));
        assert_eq!(moved.find(&name("a")), Ok(None));
        assert_eq!(moved.find(&name("b")), Ok(Some(fid(2))));
        assert_eq!(moved.find(&name("dir")), Ok(Some(fid(3))));
        assert_eq!(before.find(&name("a")), Ok(Some(fid(2))), "what was before stays as it is");
    }

    #[test]
    fn what_others_changed_as_well_is_not_guessed() {
        let before = content(5, &[("a", 2)]);
        for version in [0, 5, 7, u64::MAX] {
            assert!(before.after(stamp(version), &[(&name("c"), None)]).is_none(), "{version}");
        }
        let restored = Stamp { made: Some(Made::Volume(6)), ..stamp(6) };
        assert!(before.after(restored, &[(&name("c"), None)]).is_none(), "the volume was restored in between");
        let mut content = before;
        let changed = (0..).find(|turn| {
            match content.after(stamp(content.stamp.data_version + 1), &[(&name(&format!("n{turn}")), None)]) {
                Some(after) => {
                    content = after;
                    false
                }
                None => true,
            }
        });
        assert_eq!(changed, Some(CHANGED_MAX), "many are fetched again");
    }
}
