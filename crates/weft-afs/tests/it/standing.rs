//! Listings that tell only what has changed since the one before.

use weft_remote::{Change, Entry, FileId, FileKind, NewAttributes, RenameTarget};

use crate::cell::AfsCell;
use crate::client::{Client, Tree, call, name};

/// Two clients on two nodes, and a directory of many files, which the first has listed.
struct Listed {
    here: Client,
    there: Client,
    folder: String,
    dir: FileId,
}

impl Listed {
    async fn new(cell: &AfsCell, folder: &str) -> Listed {
        let there = Client::on(cell, "c2", Tree::Cell).await;
        let folder = there.folder(folder).await;
        for nth in 0..FILES {
            there.create(format!("{folder}/f{nth}").as_bytes(), FileKind::File).await;
        }
        let here = Client::on(cell, "c1", Tree::Cell).await;
        [&here, &there].into_iter().for_each(Client::listen);
        let dir = here.id(&folder).await;
        let (told, standing) = here.list(&dir, &call()).await;
        assert_eq!((told.len(), standing.len()), (FILES, 0), "the first listing tells all");
        Listed { here, there, folder, dir }
    }

    fn path(&self, name: &str) -> Vec<u8> {
        format!("{}/{name}", self.folder).into_bytes()
    }

    async fn id(&self, client: &Client, name: &str) -> FileId {
        client.id(&format!("{}/{name}", self.folder)).await
    }

    /// Checks that a listing tells these names alone, that the others stand, and that what it says is what a client says who has
    /// heard nothing before.
    async fn tells(&self, names: &[&str], of: &str) -> Vec<Entry> {
        let (mut told, standing) = self.here.list(&self.dir, &call()).await;
        told.sort_by(|one, other| one.name.cmp(&other.name));
        let told_names: Vec<String> = told.iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(told_names, names, "{of}");
        let (looked, _) = self.here.list(&self.dir, &call().anew()).await;
        assert_eq!(looked.len(), told.len() + standing.len(), "{of}");
        for entry in &looked {
            let same = told.iter().chain(&standing).find(|row| row.name == entry.name);
            assert_eq!(same, Some(entry), "{of}");
        }
        told
    }
}

/// Goal: what others do is told, and few questions are asked for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_asks_about_what_others_have_changed() {
    let Some(cell) = AfsCell::up() else { return };
    let listed = Listed::new(cell, "others-standing").await;
    let Listed { here, there, dir, .. } = &listed;
    listed.tells(&[], "nothing has happened").await;

    there.create(&listed.path("new"), FileKind::File).await;
    let before = here.asked();
    let (told, standing) = here.list(dir, &call()).await;
    assert_eq!((told.len(), standing.len()), (1, FILES));
    // The directory, its status at most, and the new name.
    assert!(here.asked() - before <= 3, "{} questions", here.asked() - before);

    let (f0, f1) = (listed.id(there, "f0").await, listed.id(there, "f1").await);
    there.write(&f0, b"written").await;
    let new = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    there.apply(Change::SetAttributes { file: f1.clone(), new }).await.expect("set");
    let told = listed.tells(&["f0", "f1"], "written, and another mode").await;
    assert_eq!((told[0].attributes.size.known(), told[1].attributes.mode), (Some(7), Some(0o600)));

    let second = Change::Link { file: f1, dir: there.id(&listed.folder).await, name: name("second") };
    there.apply(second).await.expect("linked");
    let told = listed.tells(&["f1", "second"], "a second name").await;
    assert!(told.iter().all(|entry| entry.attributes.links == Some(2)));
    listed.tells(&["f1", "second"], "of several names no row stands").await;
    there.remove(&listed.path("f1")).await;
    listed.tells(&["second"], "one of two names removed").await;
    listed.tells(&[], "it has one name").await;

    there.remove(&listed.path("f2")).await;
    listed.tells(&[], "a name removed").await;
    there.create(&listed.path("f2"), FileKind::File).await;
    listed.tells(&["f2"], "and made again").await;
}

/// Goal: so is what is done from here, of which no server tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_asks_about_what_was_changed_from_here() {
    let Some(cell) = AfsCell::up() else { return };
    let listed = Listed::new(cell, "own-standing").await;
    let Listed { here, dir, .. } = &listed;
    let (f0, f1) = (listed.id(here, "f0").await, listed.id(here, "f1").await);
    here.write(&f0, b"mine").await;
    listed.tells(&["f0"], "written").await;
    let new = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    here.apply(Change::SetAttributes { file: f1.clone(), new }).await.expect("set");
    let told = listed.tells(&["f1"], "another mode").await;
    assert_eq!(told[0].attributes.mode, Some(0o600));
    here.apply(Change::Link { file: f1, dir: dir.clone(), name: name("second") }).await.expect("linked");
    listed.tells(&["f1", "second"], "a second name").await;
    here.remove(&listed.path("second")).await;
    let told = listed.tells(&["f1"], "and one again").await;
    assert_eq!(told[0].attributes.links, Some(1));
    let (from, to, target) = (dir.clone(), dir.clone(), RenameTarget::Replaced);
    let moved = Change::Rename { from, name: name("f3"), to, new_name: name("f4"), target };
    here.apply(moved).await.expect("renamed");
    listed.tells(&["f4"], "moved over another").await;
    here.create(&listed.path("below"), FileKind::Directory).await;
    listed.tells(&["below"], "a directory").await;
    here.create(&listed.path("below/file"), FileKind::File).await;
    listed.tells(&["below"], "and a name in that").await;
    listed.tells(&[], "nothing has happened").await;
}

/// Goal: rows are those of whoever asked: another user may see other things.
#[tokio::test(flavor = "multi_thread")]
async fn rows_stand_for_whom_they_were_told() {
    let Some(cell) = AfsCell::up() else { return };
    let ccache = cell.ccache("alice", "standing");
    let alice = Client::with_ccache(cell, "c1", Tree::Cell, ccache).await;
    alice.listen();
    let folder = alice.folder("alices-standing").await;
    for nth in 0..FILES {
        alice.create(format!("{folder}/f{nth}").as_bytes(), FileKind::File).await;
    }
    let dir = alice.id(&folder).await;
    for (told, standing) in [(FILES, 0), (0, FILES)] {
        let (rows, stood) = alice.list(&dir, &call()).await;
        assert_eq!((rows.len(), stood.len()), (told, standing));
    }
    // A user of this machine without a token.
    let mut nobody = call();
    nobody.caller.uid = 65_534;
    for (told, standing) in [(FILES, 0), (0, FILES)] {
        let (rows, stood) = alice.list(&dir, &nobody).await;
        assert_eq!((rows.len(), stood.len()), (told, standing), "as anybody");
    }
    let (rows, stood) = alice.list(&dir, &call()).await;
    assert_eq!((rows.len(), stood.len()), (0, FILES), "and alice again");
}

/// More than one question can be about.
const FILES: usize = 60;
