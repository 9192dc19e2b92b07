//! What a tree shows.

use std::collections::BTreeMap;
use std::io::Result;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All that a program can see of a tree, by path.
pub type Seen = BTreeMap<String, Thing>;

/// What is at a path.
#[derive(Clone, PartialEq, Eq)]
pub struct Thing {
    /// Type and permissions.
    mode: u32,
    /// How many names a file has, and its length.
    links: u64,
    length: u64,
    /// When it was modified, in nanoseconds: only trees with the same clock are alike in that.
    modified: i128,
    attribute: Option<Vec<u8>>,
    /// The bytes of a file, or where a link leads.
    content: Vec<u8>,
}

/// Looks at all there is below `top`.
///
/// # Errors
/// Whatever a call gives: of a tree that is being changed, that something has gone.
pub fn look_at(top: &Path) -> Result<Seen> {
    let mut seen = Seen::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(top.join(&dir))? {
            let entry = entry?;
            let path = format!("{dir}{}", entry.file_name().to_string_lossy());
            let thing = Thing::at(&entry.path())?;
            if entry.file_type()?.is_dir() {
                dirs.push(format!("{path}/"));
            }
            seen.insert(path, thing);
        }
    }
    Ok(seen)
}

impl Thing {
    fn at(path: &Path) -> Result<Thing> {
        let facts = std::fs::symlink_metadata(path)?;
        let kind = facts.file_type();
        let content = if kind.is_symlink() {
            std::fs::read_link(path)?.into_os_string().into_encoded_bytes()
        } else if kind.is_file() {
            std::fs::read(path)?
        } else {
            Vec::new()
        };
        let mut value = [0; 100];
        let attribute = rustix::fs::lgetxattr(path, "user.test", &mut value).ok();
        Ok(Thing {
            mode: if kind.is_symlink() { 0o120_000 } else { facts.mode() },
            links: if kind.is_file() { facts.nlink() } else { 0 },
            length: if kind.is_dir() { 0 } else { facts.len() },
            modified: i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec()),
            attribute: attribute.map(|length| value[..length].to_vec()),
            content,
        })
    }
}

impl std::fmt::Debug for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Thing { mode, links, length, modified, attribute, content } = self;
        write!(f, "{mode:o}, {links} names, {length} long, {modified}, {attribute:?}, ")?;
        let mut at = 0;
        for run in content.chunk_by(|one, next| one == next).take(20) {
            write!(f, "{at}: {:?} × {}, ", char::from(run[0]), run.len())?;
            at += run.len();
        }
        Ok(())
    }
}

/// Where two trees differ; `None` where they do not.
pub fn difference(one: &Seen, other: &Seen, same_clock: bool) -> Option<String> {
    let mut paths: Vec<&String> = one.keys().chain(other.keys()).collect();
    paths.sort();
    paths.dedup();
    let alike = |path: &String| match (one.get(path), other.get(path)) {
        (Some(here), Some(there)) if !same_clock => *here == Thing { modified: here.modified, ..there.clone() },
        (here, there) => here == there,
    };
    let told: Vec<String> = paths
        .into_iter()
        .filter(|path| !alike(path))
        .map(|path| format!("{path}: {:?}\n        {:?}", one.get(path), other.get(path)))
        .collect();
    (!told.is_empty()).then(|| told.join("\n"))
}
