//! Listings: all names, odd ones too, in one page, under a version that covers them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use weft_remote::{
    ACCESS_LIST, Attributes, Completeness, DEFAULT_ACCESS_LIST, Entry, Figure, FileKind, Listing, Remote, Version,
};

use crate::support::{Bed, call, is_not_found, name};

#[tokio::test]
async fn twenty_thousand_names_come_in_one_page() {
    let bed = Bed::new(&["many/"]).await;
    for at in 0..20_000 {
        fs::write(bed.path(&format!("many/{at:05}")), "").unwrap();
    }
    let (page, version, _) = bed.list("many").await.unwrap();
    assert_eq!(page.completeness, Completeness::Complete);
    assert_eq!(page.next, None);
    let names: Vec<String> = page.entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, (0..20_000).map(|at| format!("{at:05}")).collect::<Vec<_>>());
    let again = bed.dir.entries(&call(), &bed.id("many").await, &version, None).await.unwrap();
    assert!(matches!(again.value, Listing::Unchanged));
    assert_eq!(again.version, version);
}

#[tokio::test]
async fn rows_tell_what_the_files_are() {
    let bed = Bed::new(&["d/file", "d/sub/x"]).await;
    fs::set_permissions(bed.path("d/file"), fs::Permissions::from_mode(0o6751)).unwrap();
    symlink("file", bed.path("d/link")).unwrap();
    let (page, version, _) = bed.list("d").await.unwrap();
    assert_eq!(page.entries.len(), 3);
    for entry in &page.entries {
        let real = fs::symlink_metadata(bed.path("d").join(entry.name.as_os_str())).unwrap();
        assert_eq!(entry.attributes.mode, Some((real.mode() & 0o7777) as u16));
        let owner = entry.attributes.owner.unwrap();
        assert_eq!((owner.uid, owner.gid), (real.uid(), real.gid()));
        let path = format!("d/{}", entry.name);
        let asked = bed.entry(&path).await;
        if entry.attributes.kind == FileKind::Directory {
            // Its times and links are those of what is in it, of which the directory above is not told.
            let unknown = Figure::Unknown;
            let [modified, changed, accessed] = [unknown; 3];
            let (links, allocated) = (None, None);
            let attributes = Attributes { links, modified, changed, accessed, allocated, ..asked.attributes };
            assert_eq!(*entry, Entry { attributes, version: Version::None, ..asked });
            continue;
        }
        assert_eq!(entry.attributes.modified, Figure::Exact(real.modified().unwrap()));
        assert_eq!(entry.attributes.links, Some(real.nlink() as u32));
        let since = |seconds: i64, nanoseconds: i64| UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds as u32);
        assert_eq!(entry.attributes.changed, Figure::Exact(since(real.ctime(), real.ctime_nsec())));
        assert_eq!(entry.attributes.accessed, Figure::Exact(since(real.atime(), real.atime_nsec())));
        assert_eq!(asked, *entry, "a row says what a lookup says");
        assert_eq!(bed.attributes(&path).await.unwrap(), *entry);
    }
    let kinds: Vec<FileKind> = page.entries.iter().map(|entry| entry.attributes.kind).collect();
    assert_eq!(kinds, [FileKind::File, FileKind::Symlink, FileKind::Directory]);
    assert_eq!(page.entries[0].attributes.size, Figure::Exact(6));
    // Whatever a row tells is covered.
    fs::set_permissions(bed.path("d/file"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_ne!(bed.list("d").await.unwrap().1, version);
}

/// Goal: whether something has an access list is told by rows, look-ups and contents, and is covered by the listing's version.
/// Method: the entries of a list as linux/posix_acl_xattr.h has them: a version, then a tag, bits and an id each.
#[tokio::test]
async fn access_lists_are_told_of() {
    let bed = Bed::new(&["d/file", "d/listed", "d/sub/x", "d/heir/x"]).await;
    let list = |entries: &[(u16, u16, u32)]| {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            bytes.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    };
    let none = u32::MAX;
    let named = list(&[(0x01, 6, none), (0x02, 4, 1001), (0x04, 4, none), (0x10, 4, none), (0x20, 0, none)]);
    let set =
        |path: &str, which: &[u8]| rustix::fs::setxattr(bed.path(path), which, &named, rustix::fs::XattrFlags::empty());
    set("d/listed", ACCESS_LIST).unwrap();
    let (_, version, _) = bed.list("d").await.unwrap();
    set("d/heir", DEFAULT_ACCESS_LIST).unwrap();
    let (page, later, _) = bed.list("d").await.unwrap();
    assert_ne!(version, later, "a default list says nothing in the mode");
    let told: Vec<_> = page.entries.iter().map(|entry| entry.attributes.has_access_list).collect();
    assert_eq!(told, [Some(false), Some(true), Some(true), Some(false)]);
    for entry in &page.entries {
        let path = format!("d/{}", entry.name);
        assert_eq!(bed.entry(&path).await.attributes.has_access_list, entry.attributes.has_access_list, "{path}");
        if entry.attributes.kind == FileKind::File {
            let fetched = bed.dir.fetch(&call(), &entry.id, &Version::None, weft_remote::Span::WHOLE).await.unwrap();
            assert_eq!(fetched.value.attributes.has_access_list, entry.attributes.has_access_list, "{path}");
        }
    }
}

#[tokio::test]
async fn names_are_bytes() {
    let bed = Bed::new(&["d/"]).await;
    let longest = [b'x'; 255];
    let odd: [&[u8]; 7] = [b"\xff\xfe", b"new\nline", b" ", b"...", b"-rf", b"names-0", &longest];
    for name in odd {
        fs::write(bed.path("d").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let (page, ..) = bed.list("d").await.unwrap();
    assert_eq!(page.entries.len(), odd.len());
    for entry in page.entries {
        let fetched = bed.dir.fetch(&call(), &entry.id, &Version::None, weft_remote::Span::WHOLE).await.unwrap();
        let bytes = crate::support::drain(fetched.value.body).await.unwrap();
        assert_eq!(bytes, entry.name.as_bytes());
    }
}

#[tokio::test]
async fn a_path_longer_than_the_kernel_takes_at_once_is_reached() {
    let bed = Bed::new(&[]).await;
    // 30 names of 200 bytes are 6,029 bytes; made step by step, for no one call takes the whole.
    let long = "n".repeat(200);
    let mut at = rustix::fs::open(bed.folder.path(), DIR, rustix::fs::Mode::empty()).unwrap();
    let mut dir = bed.dir.root();
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &long, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, &long, DIR, rustix::fs::Mode::empty()).unwrap();
        let found = bed.dir.lookup(&call(), &dir, &name(&long)).await.unwrap().value;
        dir = found.expect("it is there").entry.id;
    }
    assert!(dir.as_bytes().len() < 30, "an identity is short, however long the path");
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "leaf", flags, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let found = bed.dir.lookup(&call(), &dir, &name("leaf")).await.unwrap().value.unwrap();
    let fetched = bed.dir.fetch(&call(), &found.entry.id, &Version::None, weft_remote::Span::WHOLE).await.unwrap();
    assert_eq!(crate::support::drain(fetched.value.body).await.unwrap(), "deep");
}

const DIR: rustix::fs::OFlags = rustix::fs::OFlags::RDONLY.union(rustix::fs::OFlags::DIRECTORY);

#[tokio::test]
async fn what_vanishes_is_gone_and_what_is_no_directory_says_so() {
    let bed = Bed::new(&["d/file", "gone/file"]).await;
    let gone = bed.id("gone").await;
    fs::remove_dir_all(bed.path("gone")).unwrap();
    for _ in 0..2 {
        assert!(is_not_found(&bed.list_of(&gone).await));
        let within = bed.dir.lookup(&call(), &gone, &name("file")).await;
        assert!(is_not_found(&within), "its directory is gone: that is no absence");
    }
    assert!(is_not_found(&bed.attributes("d/absent").await));
    let within = bed.lookup("d/file/within").await;
    assert!(matches!(within, Err(weft_remote::RemoteError::NotADirectory { .. })), "{within:?}");
}
