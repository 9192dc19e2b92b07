//! What is written by whoever had a file open before its mode took the right away, of an ordinary user's.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use weft_remote::{FileKind, NewAttributes, Remote, RemoteError, Version};

use crate::confined::passes_as_nobody;
use crate::hands::{apply, apply_as, create, mode_of, set, write_all};
use crate::support::{Bed, call};

#[tokio::test]
async fn what_its_owner_has_open_is_written_whatever_the_mode_says_by_now() {
    if passes_as_nobody("owned::what_its_owner_has_open_is_written_whatever_the_mode_says_by_now") {
        return;
    }
    let bed = Bed::new(&["d/"]).await;
    for mode in [0o444, 0o000, 0o200, 0o555] {
        let name = format!("{mode:o}");
        let made = apply(&bed, create(bed.id("d").await, &name, FileKind::File, mode)).await.unwrap().unwrap();
        let write = write_all(made.id.clone(), b"as git has its objects");
        let written = apply_as(&bed, weft_remote::Caller::DAEMON, write, &made.version).await.unwrap().unwrap();
        bed.dir.sync(&call(), &made.id).await.unwrap();
        assert_eq!(written.attributes.mode, Some(mode), "{name}");
        assert_eq!(mode_of(&bed, &format!("d/{name}")), u32::from(mode));
        apply(&bed, set(made.id, NewAttributes { mode: Some(0o600), ..Default::default() })).await.unwrap();
        assert_eq!(fs::read(bed.path(&format!("d/{name}"))).unwrap(), b"as git has its objects", "{name}");
    }
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_the_mode_and_what_was_read() {
    if passes_as_nobody("owned::a_write_that_is_refused_leaves_the_mode_and_what_was_read") {
        return;
    }
    let bed = Bed::new(&["d/file"]).await;
    fs::set_permissions(bed.path("d/file"), fs::Permissions::from_mode(0o444)).unwrap();
    let before = bed.lookup("d/file").await.unwrap().value.unwrap().entry;
    let other = Version::strong("1:2-3-4-5.0-6.0");
    let refused = apply_as(&bed, weft_remote::Caller::DAEMON, write_all(before.id.clone(), b"x"), &other).await;
    assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
    assert_eq!(mode_of(&bed, "d/file"), 0o444);
    assert_eq!(fs::read(bed.path("d/file")).unwrap(), b"d/file");
    // Whoever had read it goes on in the same version.
    apply_as(&bed, weft_remote::Caller::DAEMON, write_all(before.id, b"y"), &before.version).await.unwrap();
    assert_eq!(fs::read(bed.path("d/file")).unwrap(), b"y");
}
