//! Changes made through the contract, for tests of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use weft_remote::{
    Call, Caller, Change, Content, Entry, Extent, FileId, FileKind, Mutation, NewAttributes, Remote, RenameTarget,
    Result, Version,
};

use crate::support::{Bed, PATIENCE, name};

/// Bytes to be written, given out in pieces of at most 1000.
struct Held(Vec<u8>);

impl Content for Held {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        Ok(Bytes::copy_from_slice(&rest[..length.min(rest.len()).min(1000)]))
    }
}

pub async fn apply_as(bed: &Bed, caller: Caller, change: Change, expected: &Version) -> Result<Option<Entry>> {
    let mutation = Mutation { change, made: SystemTime::now() };
    let answer = bed.dir.apply(&Call::within(caller, PATIENCE), &mutation, expected).await?;
    Ok(answer.value.entry)
}

pub async fn apply(bed: &Bed, change: Change) -> Result<Option<Entry>> {
    apply_as(bed, Caller::DAEMON, change, &Version::None).await
}

pub fn create(dir: FileId, new: &str, kind: FileKind, mode: u16) -> Change {
    Change::Create { dir, name: name(new), kind, mode: mode.into(), device: 0 }
}

pub fn symlink(dir: FileId, new: &str, target: &[u8]) -> Change {
    Change::Symlink { dir, name: name(new), target: target.to_vec() }
}

pub fn link(file: FileId, dir: FileId, new: &str) -> Change {
    Change::Link { file, dir, name: name(new) }
}

pub fn remove(dir: FileId, gone: &str) -> Change {
    Change::Remove { dir, name: name(gone) }
}

pub fn rename(from: FileId, old: &str, to: FileId, new: &str) -> Change {
    rename_to(from, old, to, new, RenameTarget::Replaced)
}

pub fn rename_to(from: FileId, old: &str, to: FileId, new: &str, target: RenameTarget) -> Change {
    Change::Rename { from, name: name(old), to, new_name: name(new), target }
}

pub fn write(file: FileId, content: Vec<u8>, extents: Vec<Extent>, length: u64) -> Change {
    Change::Write { file, extents, length, content: Arc::new(Held(content)) }
}

/// The whole of a file.
pub fn write_all(file: FileId, content: &[u8]) -> Change {
    let length = content.len() as u64;
    write(file, content.to_vec(), vec![Extent { offset: 0, length }], length)
}

pub fn set(file: FileId, new: NewAttributes) -> Change {
    Change::SetAttributes { file, new }
}

pub fn set_extended(file: FileId, attribute: &str, value: Option<&[u8]>, must_exist: Option<bool>) -> Change {
    let (name, value) = (attribute.as_bytes().to_vec(), value.map(<[u8]>::to_vec));
    Change::SetExtended { file, name, value, must_exist }
}

pub fn mode_of(bed: &Bed, path: &str) -> u32 {
    fs::symlink_metadata(bed.path(path)).unwrap().mode() & 0o7777
}
