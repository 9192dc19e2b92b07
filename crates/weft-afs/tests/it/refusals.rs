//! What AFS cannot hold is refused in the contract's words, and nothing of it is left.

use weft_remote::{
    Call, Change, FileKind, LockMode, Mutation, NewAttributes, Remote, RemoteError, RenameTarget, Result, Version,
};

use crate::cell::AfsCell;
use crate::client::{Client, Tree, call, is_unsupported, name};

/// Goal: what the capabilities deny is refused as `Unsupported`, so that it is told from what failed.
#[tokio::test]
async fn what_afs_does_not_have_is_unsupported() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let folder = client.folder("unsupported").await;
    let dir = client.id(&folder).await;
    let file = client.create(format!("{folder}/file").as_bytes(), FileKind::File).await;
    let capabilities = client.afs.capabilities();
    assert!(!capabilities.special_files && !capabilities.extended);
    for kind in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice] {
        let special = Change::Create { dir: dir.clone(), name: name("special"), kind, mode: 0o644.into(), device: 0 };
        assert!(is_unsupported(&client.apply(special).await), "{kind:?}");
    }
    let (attribute, value) = (b"user.note".to_vec(), Some(b"text".to_vec()));
    let extended = Change::SetExtended { file: file.clone(), name: attribute.clone(), value, must_exist: None };
    assert!(is_unsupported(&client.apply(extended).await));
    assert!(is_unsupported(&client.afs.extended(&call(), &file, &attribute).await));
    client.create(format!("{folder}/other").as_bytes(), FileKind::File).await;
    let (from, to, target) = (dir.clone(), dir.clone(), RenameTarget::Exchanged);
    let exchange = Change::Rename { from, name: name("file"), to, new_name: name("other"), target };
    assert!(is_unsupported(&client.apply(exchange).await));
    let link = |length| Change::Symlink { dir: dir.clone(), name: name("link"), target: vec![b'x'; length] };
    let refused = client.apply(link(1025)).await;
    assert!(matches!(refused, Err(RemoteError::TooMuch { .. })), "{refused:?}");
    assert_eq!(client.names(&dir).await, ["file", "other"], "nothing was made");
    client.apply(link(1024)).await.expect("as long as can be");
}

/// Goal: links of files, as far as AFS has them: within one directory (OpenAFS `src/viced/afsfileprocs.c`, `SAFSS_Link`).
#[tokio::test]
async fn a_second_name_is_of_the_same_directory() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let folder = client.folder("links").await;
    let dir = client.id(&folder).await;
    let file = client.create(format!("{folder}/file").as_bytes(), FileKind::File).await;
    let below = client.create(format!("{folder}/below").as_bytes(), FileKind::Directory).await;
    let link = |dir| Change::Link { file: file.clone(), dir, name: name("second") };
    let made = client.apply(link(dir.clone())).await.expect("linked").entry.expect("it is new");
    assert_eq!((made.id, made.attributes.links), (file.clone(), Some(2)));
    let refused = client.apply(link(below)).await;
    assert!(matches!(refused, Err(RemoteError::OtherTree { .. })), "{refused:?}");
    let again = client.apply(link(dir.clone())).await;
    assert!(matches!(again, Err(RemoteError::Exists { .. })), "{again:?}");
    let of_directory = (client.id(&folder).await, client.id("scratch").await);
    let symlink = Change::Symlink { dir: dir.clone(), name: name("symlink"), target: b"file".to_vec() };
    let symlink = client.apply(symlink).await.expect("made").entry.expect("it is new").id;
    for (file, dir) in [of_directory, (symlink, dir)] {
        let refused = client.apply(Change::Link { file, dir, name: name("third") }).await;
        assert!(matches!(refused, Err(RemoteError::NotPermitted { .. })), "{refused:?}");
    }
}

/// Goal: where nobody may write, and in volumes that are read-only copies, a change says so.
#[tokio::test]
async fn where_nobody_may_write_that_is_said() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let create = |dir| Change::Create { dir, name: name("new"), kind: FileKind::File, mode: 0o644.into(), device: 0 };
    let denied = client.apply(create(client.id("pub").await)).await;
    assert!(matches!(denied, Err(RemoteError::Denied { .. })), "{denied:?}");
    for dir in [client.afs.root(), client.id("replicated").await] {
        let refused = client.apply(create(dir)).await;
        assert!(matches!(refused, Err(RemoteError::ReadOnly { .. })), "{refused:?}");
    }
    let private = client.id("user/alice/private").await;
    let unread = client.afs.entries(&call(), &private, &Version::None, None).await;
    assert!(matches!(unread, Err(RemoteError::Denied { .. })), "{unread:?}");
}

/// Goal: who is refused again and again is told so at once. Method: all in the time of one call, in which a server that answers
/// late, as OpenAFS's does after ten refusals in a row, would have answered a few.
#[tokio::test]
async fn many_refusals_take_no_longer_than_others() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let folder = client.folder("removed").await;
    let path = format!("{folder}/file");
    let file = client.create(path.as_bytes(), FileKind::File).await;
    client.remove(path.as_bytes()).await;
    let (open, private) = (client.id("pub").await, client.id("user/alice/private").await);
    let readable = client.id("pub/large.bin").await;
    let create =
        || Change::Create { dir: open.clone(), name: name("new"), kind: FileKind::File, mode: 0o644.into(), device: 0 };
    let new = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    let set = || Change::SetAttributes { file: readable.clone(), new };
    let afs = &client.afs;
    again_and_again(async |call| match afs.attributes(call, &file, &Version::None).await {
        Err(RemoteError::NotFound { detail }) => Err(RemoteError::Denied { detail }),
        outcome => outcome.map(drop),
    })
    .await;
    again_and_again(async |call| afs.entries(call, &private, &Version::None, None).await.map(drop)).await;
    again_and_again(async |call| afs.lock(call, &readable, LockMode::Unlocked, LockMode::Exclusive).await).await;
    for change in [&create as &(dyn Fn() -> Change + Send + Sync), &set] {
        again_and_again(async |call| {
            let mutation = Mutation { change: change(), made: std::time::SystemTime::now() };
            afs.apply(call, &mutation, &Version::None).await.map(drop)
        })
        .await;
    }
}

/// Asks for what is refused, more often than a server bears without delay.
async fn again_and_again(ask: impl AsyncFn(&Call) -> Result<()>) {
    let call = call();
    for turn in 0..4 * REFUSALS_BORNE {
        let refused = ask(&call).await;
        assert!(matches!(refused, Err(RemoteError::Denied { .. })), "{turn}: {refused:?}");
    }
}

/// After how many refusals in a row OpenAFS's file server answers late (`-abortthreshold`).
const REFUSALS_BORNE: usize = 10;
