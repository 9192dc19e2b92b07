//! What we did ourselves is not taken for somebody else's doing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::StreamExt;
use weft_remote::{
    Call, Caller, Change, Checked, Content, Extent, FileId, Mutation, NewAttributes, Piece, Remote, RemoteError, Span,
    Version,
};

use crate::hands::{apply, apply_as, link, rename, set, set_extended, write_all};
use crate::support::{Bed, PATIENCE, call, drain};

const LENGTH: usize = 3 << 20;

async fn version(bed: &Bed, file: &FileId) -> Version {
    bed.attributes_of(file).await.unwrap().version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_a_file_reads_on_while_we_change_its_names_and_attributes() {
    let bed = Bed::new(&["d/"]).await;
    let bytes: Vec<u8> = (0..LENGTH).map(|at| (at / 5) as u8).collect();
    fs::write(bed.path("file"), &bytes).unwrap();
    let (top, dir, file) = (bed.dir.root(), bed.id("d").await, bed.id("file").await);
    let before = version(&bed, &file).await;
    let mut body = bed.dir.fetch(&call(), &file, &before, Span::WHOLE).await.unwrap().value.body.stream;
    let mut read = Vec::new();
    let changes = [
        set(file.clone(), NewAttributes { mode: Some(0o600), ..Default::default() }),
        rename(top.clone(), "file", dir.clone(), "moved"),
        link(file.clone(), top.clone(), "second"),
        set_extended(file.clone(), "user.a", Some(b"b"), None),
    ];
    for change in changes {
        if let Some(Ok(Piece::Bytes(piece))) = body.next().await {
            read.extend_from_slice(&piece);
        }
        apply(&bed, change).await.unwrap();
    }
    while let Some(piece) = body.next().await {
        if let Piece::Bytes(piece) = piece.unwrap() {
            read.extend_from_slice(&piece);
        }
    }
    assert!(read == bytes);
    let now = version(&bed, &file).await;
    assert_ne!(now, before);
    let asked = bed.dir.attributes(&call(), &file, &before).await.unwrap();
    let touched = matches!(&asked.value, Checked::Touched(entry) if entry.attributes.mode == Some(0o600));
    assert!(touched && asked.version == now, "its bytes are what they were: {asked:?}");
    let middle = Span { start: 1 << 20, length: Some(10) };
    let answer = bed.dir.fetch(&call(), &file, &before, middle).await.unwrap();
    assert_eq!(answer.value.body.version, before, "the bytes are those that were asked for");
    assert_eq!(&drain(answer.value.body).await.unwrap()[..], &bytes[1 << 20..][..10]);
    // Somebody else's change may be of the bytes as well.
    fs::set_permissions(bed.path("d/moved"), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = bed.dir.fetch(&call(), &file, &before, middle).await;
    assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
    let asked = bed.dir.attributes(&call(), &file, &before).await.unwrap();
    assert!(matches!(asked.value, Checked::Is(_)), "{asked:?}");
}

/// Bytes that cannot be read from a place on.
struct Broken(u64);

impl Content for Broken {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        if offset >= self.0 {
            return Err(std::io::Error::other("no more"));
        }
        let length = length.min((self.0 - offset) as usize);
        Ok(vec![7; length].into())
    }
}

async fn break_off(bed: &Bed, file: &FileId, expected: &Version) {
    let extents = vec![Extent { offset: 0, length: 4000 }];
    let change = Change::Write { file: file.clone(), extents, length: 4000, content: Arc::new(Broken(1000)) };
    let mutation = Mutation { change, made: SystemTime::now() };
    let call = Call::within(Caller::DAEMON, PATIENCE);
    bed.dir.apply(&call, &mutation, expected).await.expect_err("it breaks off");
}

#[tokio::test]
async fn a_write_that_broke_off_can_be_made_again() {
    let bed = Bed::new(&["file"]).await;
    let file = bed.id("file").await;
    let before = version(&bed, &file).await;
    break_off(&bed, &file, &before).await;
    assert_ne!(version(&bed, &file).await, before);
    break_off(&bed, &file, &before).await;
    apply_as(&bed, Caller::DAEMON, write_all(file.clone(), b"whole"), &before).await.unwrap();
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"whole");
    let before = version(&bed, &file).await;
    break_off(&bed, &file, &before).await;
    fs::write(bed.path("file"), "theirs, written since").unwrap();
    let refused = apply_as(&bed, Caller::DAEMON, write_all(file, b"whole"), &before).await;
    assert!(matches!(refused, Err(RemoteError::VersionChanged { .. })), "{refused:?}");
}
