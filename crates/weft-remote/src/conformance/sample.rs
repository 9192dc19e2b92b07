//! The tree that a bench serves.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;

use crate::FileKind;

/// One file or directory of the sample tree.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Path relative to the top, `/` between names.
    pub path: Vec<u8>,
    /// [`FileKind::File`] or [`FileKind::Directory`].
    pub kind: FileKind,
    /// The content of a file.
    pub bytes: Bytes,
}

/// The sample tree, directories before what is in them.
pub fn sample() -> Vec<Sample> {
    let mut samples = vec![
        file(EMPTY, Bytes::new()),
        file(THREE, Bytes::from_static(b"abc")),
        file(BIG, pattern(BIG_BYTES)),
        file(CHANGING, Bytes::from_static(CHANGING_BEFORE)),
        file(GOING, Bytes::from_static(b"here for a while\n")),
        dir(DOCS),
        file("docs/note.txt", Bytes::from_static(b"a note\n")),
        dir("docs/deep"),
        file("docs/deep/leaf.txt", Bytes::from_static(b"a leaf\n")),
        dir(ODD),
    ];
    for name in ODD_NAMES {
        let path = [ODD.as_bytes(), name].join(&b'/');
        let bytes = Bytes::from([b"this is ", *name, b"\n"].concat());
        samples.push(Sample { path, kind: FileKind::File, bytes });
    }
    samples
}

/// Writes the sample tree into a directory of this machine, for sources that serve one.
///
/// # Errors
/// Whatever the file system gives.
pub fn write_sample(top: &Path) -> std::io::Result<()> {
    for Sample { path, kind, bytes } in sample() {
        let path = top.join(OsStr::from_bytes(&path));
        match kind {
            FileKind::Directory => std::fs::create_dir_all(path)?,
            _ => std::fs::write(path, bytes)?,
        }
    }
    Ok(())
}

/// Bytes in which every position looks different from its neighbours and from the same position elsewhere.
fn pattern(length: usize) -> Bytes {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn file(path: &str, bytes: Bytes) -> Sample {
    Sample { path: path.as_bytes().to_vec(), kind: FileKind::File, bytes }
}

fn dir(path: &str) -> Sample {
    Sample { path: path.as_bytes().to_vec(), kind: FileKind::Directory, bytes: Bytes::new() }
}

pub(super) const EMPTY: &str = "empty";
pub(super) const THREE: &str = "three";
pub(super) const BIG: &str = "big.bin";
pub(super) const CHANGING: &str = "changing.txt";
pub(super) const GOING: &str = "going.txt";
pub(super) const DOCS: &str = "docs";
const ODD: &str = "odd";
pub(super) const CHANGING_BEFORE: &[u8] = b"before\n";
/// 1 MiB and a bit, so that no power of two divides it.
const BIG_BYTES: usize = (1 << 20) + 17;

/// Names that need care in URLs, in HTML, in shells or in text.
const ODD_NAMES: &[&[u8]] = &[
    b"with space.txt",
    b" leading and trailing ",
    b"percent%41.txt",
    b"%2e%2e",
    b"question?mark=1&two",
    b"hash#tag",
    b"plus+amp&amp;",
    b"semi;colon:8080",
    b"quote'\"<angle>",
    b"back\\slash",
    b"new\nline",
    b"[brackets]{braces}|^`",
    b"-dash",
    b".dotted",
    b"~tilde",
    b"trailing.",
    b"*star@at!",
    b"\xc3\xbcmlaut",
    b"latin\xe9",
    b"\xf0\x9f\xa7\xb6",
];
