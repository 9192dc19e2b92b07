//! Content: at offsets that no file reaches, and of a file that somebody changes while it is read.

use futures_util::StreamExt;
use weft_remote::{FileKind, Piece, Remote, RemoteError, Span, Version};

use crate::cell::AfsCell;
use crate::client::{Client, Tree, call};

/// Goal: beyond its end a file has no bytes, however far. Method: offsets around the largest that AFS has a number for;
/// what would make a server add beyond that might cost it the volume, so the file is read again afterwards.
#[tokio::test]
async fn nothing_is_read_beyond_the_end() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let folder = client.folder("far").await;
    let file = client.create(format!("{folder}/file").as_bytes(), FileKind::File).await;
    client.write(&file, b"short").await;
    let last = i64::MAX.cast_unsigned();
    for start in [5, 6, u64::from(u32::MAX), 1 << 62, last - (1 << 20), last - 1, last, last + 1, u64::MAX] {
        for length in [Some(0), Some(1), Some(u64::MAX), None] {
            let answer = client.afs.fetch(&call(), &file, &Version::None, Span { start, length }).await;
            let mut body = answer.unwrap_or_else(|error| panic!("{start}, {length:?}: {error}")).value.body;
            assert_eq!((body.start, body.file_length), (start, Some(5)));
            let piece = body.stream.next().await;
            assert!(piece.is_none(), "{start}, {length:?}: {piece:?}");
        }
    }
    assert_eq!(client.read(&file).await.expect("read"), b"short");
}

/// Goal: a body is of one version. Method: somebody writes the file, as long as before, after the first of its pieces.
#[tokio::test]
async fn a_file_that_changes_while_it_is_read_ends_its_body() {
    let Some(cell) = AfsCell::up() else { return };
    let (client, other) = (Client::on(cell, "c1", Tree::Cell).await, Client::on(cell, "c2", Tree::Cell).await);
    let folder = other.folder("midway").await;
    let path = format!("{folder}/file");
    let there = other.create(path.as_bytes(), FileKind::File).await;
    other.write(&there, &[1; LONG]).await;
    let file = client.id(&path).await;
    let mut stream =
        client.afs.fetch(&call(), &file, &Version::None, Span::WHOLE).await.expect("begun").value.body.stream;
    let first = stream.next().await;
    assert!(matches!(&first, Some(Ok(Piece::Bytes(bytes))) if bytes.iter().all(|byte| *byte == 1)), "{first:?}");
    other.write(&there, &[2; LONG]).await;
    let next = stream.next().await;
    assert!(matches!(next, Some(Err(RemoteError::VersionChanged { .. }))), "{next:?}");
    assert!(client.read(&file).await.expect("read").iter().all(|byte| *byte == 2));
}

/// Bytes of a file of several pieces.
const LONG: usize = 5 << 20;
