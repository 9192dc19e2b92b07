//! Callbacks: what others change is told before their change returns, under each identity, and only servers are heard.

use std::net::Ipv4Addr;
use std::time::Duration;

use weft_afs::fid::Fid;
use weft_afs::wire::callback::ABORT_UNKNOWN_CALL;
use weft_afs::wire::status::{Fids, Promises};
use weft_afs::wire::{List, Xdr};
use weft_remote::{Change, Event, FileId, FileKind, Lease, NewAttributes, Remote, RemoteError, RenameTarget, Version};
use weft_rx::{CallError, Encoder};

use crate::cell::AfsCell;
use crate::client::{Client, PATIENCE, Tree, call, name};
use crate::network::Network;
use crate::stranger;

/// Two clients on two nodes, and a directory with a file in it.
struct Pair {
    watcher: Client,
    other: Client,
    folder: String,
}

impl Pair {
    async fn new(cell: &AfsCell, tree: Tree, folder: &str) -> Pair {
        let other = Client::on(cell, "c2", Tree::Cell).await;
        let folder = other.folder(folder).await;
        other.create(format!("{folder}/file").as_bytes(), FileKind::File).await;
        Pair { watcher: Client::on(cell, "c1", tree).await, other, folder }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

/// Has the server promise to tell of a file and of the directory that it is in. A change that is just being made may
/// overtake the answer: then it is asked for again.
async fn hold(client: &Client, path: &str) {
    let asked = async {
        loop {
            let (found, lease) = client.find(path.as_bytes()).await.expect("looked up");
            assert!(found.is_some(), "{path} is there");
            match lease {
                Lease::UntilBroken(_) => return,
                Lease::Spent => {}
                other => panic!("{path}: {other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("a promise is given");
}

/// Goal: a server that is told to forget a client calls it no more, and promises anew when it is asked. Method: another client
/// changes what was promised; such a change returns when all that were promised it have been called.
#[tokio::test]
async fn a_client_that_gives_up_its_promises_is_not_called() {
    let Some(cell) = AfsCell::up() else { return };
    let Pair { watcher, other, folder } = &Pair::new(cell, Tree::Cell, "given-up").await;
    let path = format!("{folder}/file");
    let (here, there) = (watcher.id(&path).await, other.id(&path).await);
    hold(watcher, &path).await;
    watcher.told();
    watcher.afs.give_up(PATIENCE).await;
    other.write(&there, b"unseen").await;
    assert_eq!(watcher.told(), []);
    hold(watcher, &path).await;
    other.write(&there, b"seen").await;
    assert_told(watcher, &[&Event::Broken(here)], "asked again");
}

/// Goal: whoever has changed something knows that nobody uses what was there before. Method: one client holds promises,
/// another makes each kind of change; the moment that returns, the first has been told.
#[tokio::test]
async fn a_change_returns_after_others_were_told_of_it() {
    let Some(cell) = AfsCell::up() else { return };
    let pair = Pair::new(cell, Tree::Cell, "told").await;
    let Pair { watcher, other, .. } = &pair;
    let (path, made) = (pair.path("file"), pair.path("made"));
    let (dir, file) = (watcher.id(&pair.folder).await, watcher.id(&path).await);
    let (here, there) = (other.id(&pair.folder).await, other.id(&path).await);
    let names = Event::NamesBroken(dir.clone());
    hold(watcher, &path).await;
    watcher.told();

    other.write(&there, b"written").await;
    assert_told(watcher, &[&Event::Broken(file.clone())], "content");
    assert_eq!(watcher.read(&file).await.expect("read"), b"written");

    hold(watcher, &path).await;
    let new = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    other.apply(Change::SetAttributes { file: there.clone(), new }).await.expect("set");
    assert_told(watcher, &[&Event::Broken(file.clone())], "attributes");
    let (entry, _) = watcher.find(path.as_bytes()).await.expect("looked up");
    assert_eq!(entry.expect("it is there").attributes.mode, Some(0o600));

    hold(watcher, &path).await;
    assert_eq!(watcher.find(made.as_bytes()).await.expect("looked up").0, None);
    other.create(made.as_bytes(), FileKind::Directory).await;
    assert_told(watcher, &[&names], "a new name");
    hold(watcher, &made).await;

    let (from, to) = (here.clone(), here.clone());
    let (old, new_name, target) = (name("made"), name("moved"), RenameTarget::Absent);
    other.apply(Change::Rename { from, name: old, to, new_name, target }).await.expect("renamed");
    assert_told(watcher, &[&names], "another name");
    assert_eq!(watcher.find(made.as_bytes()).await.expect("looked up").0, None);
    hold(watcher, &pair.path("moved")).await;

    other.remove(pair.path("moved").as_bytes()).await;
    assert_told(watcher, &[&names], "a directory removed");
    assert_eq!(watcher.find(pair.path("moved").as_bytes()).await.expect("looked up").0, None);

    hold(watcher, &path).await;
    other.apply(Change::Link { file: there, dir: here, name: name("second") }).await.expect("linked");
    assert_told(watcher, &[&names], "a second name");
    hold(watcher, &pair.path("second")).await;
    other.remove(path.as_bytes()).await;
    assert_told(watcher, &[&names, &Event::Broken(file.clone())], "one of two names removed");
    hold(watcher, &pair.path("second")).await;

    // Of a file that is gone with its last name servers say nothing: the name's end says it.
    other.remove(pair.path("second").as_bytes()).await;
    assert_told(watcher, &[&names], "the last name removed");
    assert_eq!(watcher.find(pair.path("second").as_bytes()).await.expect("looked up").0, None);
    let read = watcher.read(&file).await;
    assert!(matches!(read, Err(RemoteError::NotFound { .. })), "{read:?}");
}

/// Goal: a client is not told of what it changes itself, and goes on with what it holds.
#[tokio::test]
async fn who_changes_something_keeps_its_promises() {
    let Some(cell) = AfsCell::up() else { return };
    let client = Client::on(cell, "c1", Tree::Cell).await;
    let folder = client.folder("own").await;
    let file = client.create(format!("{folder}/file").as_bytes(), FileKind::File).await;
    let dir = client.id(&folder).await;
    hold(&client, &format!("{folder}/file")).await;
    client.told();
    client.write(&file, b"mine").await;
    let of_ours = |event: &Event| [Event::Broken(file.clone()), Event::NamesBroken(dir.clone())].contains(event);
    assert!(!client.told().iter().any(of_ours));
    let asked = client.asked();
    let answer = client.afs.lookup(&call(), &dir, &name("absent")).await.expect("at hand");
    assert!(answer.value.is_none() && client.asked() == asked, "the directory is as it was");
    assert_eq!(client.read(&file).await.expect("read"), b"mine");
}

/// Goal: who changes names sees them as they are then, though others ask for the same directory all the time: answers that
/// were under way are of before the change, and no server says so. Method: somebody elsewhere changes names as well, so
/// that the directory has to be fetched.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_a_change_of_ours_overtakes_are_not_kept() {
    let Some(cell) = AfsCell::up() else { return };
    let Pair { watcher, other, folder } = Pair::new(cell, Tree::Cell, "overtaken").await;
    let (here, there) = (watcher.id(&folder).await, other.id(&folder).await);
    [&watcher, &other].into_iter().for_each(Client::listen);
    let asking: Vec<_> = (0..4)
        .map(|nth| {
            let (afs, here) = (watcher.afs.clone(), here.clone());
            tokio::spawn(async move {
                loop {
                    // What is there in between counts for nothing.
                    match nth {
                        0 => drop(afs.entries(&call(), &here, &Version::None, None).await),
                        _ => drop(afs.lookup(&call(), &here, &name(format!("{nth}"))).await),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let make = |dir: &FileId, text| {
        let (kind, mode) = (FileKind::File, 0o644);
        Change::Create { dir: dir.clone(), name: name(text), kind, mode: mode.into(), device: 0 }
    };
    for round in 0..ROUNDS {
        other.apply(make(&there, format!("theirs-{round}"))).await.expect("made there");
        watcher.apply(make(&here, format!("ours-{round}"))).await.expect("made here");
        let (from, to, target) = (here.clone(), here.clone(), RenameTarget::Absent);
        let (old, new_name) = (name(format!("ours-{round}")), name(format!("moved-{round}")));
        let moved = watcher.apply(Change::Rename { from, name: old, to, new_name: new_name.clone(), target }).await;
        assert!(moved.is_ok_and(|outcome| outcome.entry.is_some()), "round {round}");
        let found = watcher.afs.lookup(&call(), &here, &new_name).await.expect("looked up").value;
        assert!(found.is_some(), "round {round}");
        let names = watcher.names(&here).await;
        assert!(names.contains(&new_name.to_string()), "round {round}: {names:?}");
        watcher.apply(Change::Remove { dir: here.clone(), name: new_name.clone() }).await.expect("removed here");
        let found = watcher.afs.lookup(&call(), &here, &new_name).await.expect("looked up").value;
        assert!(found.is_none(), "removed, round {round}");
        other
            .apply(Change::Remove { dir: there.clone(), name: name(format!("theirs-{round}")) })
            .await
            .expect("removed");
    }
    asking.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Goal: a change may be made though nobody hears of it: its caller went away, or the answer was lost. Then what is there is
/// asked for. Method: callers that go away at every moment of a change.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nobody_waited_for_is_seen() {
    let Some(cell) = AfsCell::up() else { return };
    let Pair { watcher, other, folder } = Pair::new(cell, Tree::Cell, "left").await;
    let (here, there) = (watcher.id(&folder).await, other.id(&folder).await);
    [&watcher, &other].into_iter().for_each(Client::listen);
    let mut left = 0;
    for round in 0..ROUNDS {
        watcher.names(&here).await;
        let (dir, kind) = (here.clone(), FileKind::Directory);
        let change = Change::Create { dir, name: name(format!("{round}")), kind, mode: 0o755.into(), device: 0 };
        let patience = Duration::from_micros(100 * (round as u64 % 20));
        left += usize::from(tokio::time::timeout(patience, watcher.apply(change)).await.is_err());
        // Whatever its server was told before it was told that the caller is gone has been done by then.
        let alike = async {
            while watcher.names(&here).await != other.names(&there).await {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, alike).await.unwrap_or_else(|_| panic!("round {round}"));
    }
    assert!(left > 0, "all were waited for");
}

/// Goal: nobody but the cell's servers can end promises. Method: a break of exactly what is held, and a word that all is
/// forgotten, come from another node's address, by a caller who is answered otherwise; what is held is used without asking
/// afterwards, and the server's own break still comes.
#[tokio::test]
async fn a_stranger_ends_no_promise() {
    let Some(cell) = AfsCell::up() else { return };
    let pair = Pair::new(cell, Tree::Cell, "stranger").await;
    let Pair { watcher, other, .. } = &pair;
    let (path, absent) = (pair.path("file"), name("absent"));
    let (dir, file) = (watcher.id(&pair.folder).await, watcher.id(&path).await);
    hold(watcher, &path).await;
    watcher.told();

    let network = Network::of(cell, "c2");
    let client = (Ipv4Addr::new(10, 77, 0, 11), watcher.port).into();
    assert_eq!(stranger::calls(&network, client, vec![0, 0, 0, PROBE]).await, Ok(Vec::new()), "anybody may ask");
    let (dir_fid, file_fid) = (fid(watcher, &dir), fid(watcher, &file));
    let volume = Fid { vnode: 0, unique: 0, ..file_fid };
    for fids in [vec![dir_fid, file_fid], vec![volume], Vec::new()] {
        let refused = stranger::calls(&network, client, break_of(&fids)).await;
        assert_eq!(refused, Err(CallError::Aborted(ABORT_UNKNOWN_CALL)), "{fids:?}");
    }
    let refused = stranger::calls(&network, client, vec![0, 0, 0, FORGET_ALL]).await;
    assert_eq!(refused, Err(CallError::Aborted(ABORT_UNKNOWN_CALL)));

    let of_ours = |event: &Event| {
        [Event::NamesBroken(dir.clone()), Event::Broken(file.clone()), Event::AllBroken].contains(event)
    };
    assert!(!watcher.told().iter().any(of_ours), "nothing has ended");
    let asked = watcher.asked();
    let answer = watcher.afs.lookup(&call(), &dir, &absent).await.expect("at hand");
    assert!(answer.value.is_none() && matches!(answer.lease, Lease::UntilBroken(_)));
    assert_eq!(watcher.asked(), asked, "the directory's promise holds");

    let there = other.id(&path).await;
    other.write(&there, b"written").await;
    assert_told(watcher, &[&Event::Broken(file)], "the server's own word counts");
    other.create(pair.path("absent").as_bytes(), FileKind::File).await;
    assert_told(watcher, &[&Event::NamesBroken(dir.clone())], "and of names");
    let answer = watcher.afs.lookup(&call(), &dir, &absent).await.expect("looked up");
    assert!(answer.value.is_some() && watcher.asked() > asked);
}

/// Goal: a volume that is entered on two ways has each of its files twice, and both are told of. Method: `scratch`, by the
/// read-only side of the cell and by the read-write one.
#[tokio::test]
async fn a_volume_in_two_places_is_told_of_in_both() {
    let Some(cell) = AfsCell::up() else { return };
    let pair = Pair::new(cell, Tree::Cells, "two-places").await;
    let Pair { watcher, other, .. } = &pair;
    let mut places: Vec<[FileId; 3]> = Vec::new();
    for side in ["weft.test", ".weft.test"] {
        let path = |path: &str| format!("{side}/{path}");
        hold(watcher, &path(&pair.path("file"))).await;
        let root = watcher.id(&path("scratch")).await;
        places.push([root, watcher.id(&path(&pair.folder)).await, watcher.id(&path(&pair.path("file"))).await]);
    }
    let [one, two] = [&places[0], &places[1]];
    for (one, two) in one.iter().zip(two) {
        assert_ne!(one, two, "two places are two identities");
    }
    assert_eq!(fid(watcher, &one[2]), fid(watcher, &two[2]), "of one file");
    watcher.told();

    let there = other.id(&pair.path("file")).await;
    other.write(&there, b"written").await;
    assert_told(watcher, &[&Event::Broken(one[2].clone()), &Event::Broken(two[2].clone())], "a file");
    for file in [&one[2], &two[2]] {
        assert_eq!(watcher.read(file).await.expect("read"), b"written");
    }
    other.create(pair.path("made").as_bytes(), FileKind::File).await;
    assert_told(watcher, &[&Event::NamesBroken(one[1].clone()), &Event::NamesBroken(two[1].clone())], "a directory");

    // The root of the volume has the identities of what leads there.
    for side in ["weft.test", ".weft.test"] {
        hold(watcher, &format!("{side}/{}", pair.folder)).await;
    }
    other.folder("two-places-made").await;
    assert_told(watcher, &[&Event::NamesBroken(one[0].clone()), &Event::NamesBroken(two[0].clone())], "the root");
}

/// Checks that events were told by now.
#[track_caller]
fn assert_told(client: &Client, wanted: &[&Event], of: &str) {
    let told = client.told();
    for event in wanted {
        assert!(told.contains(event), "{of}: {event:?} is not among {told:?}");
    }
}

/// The fid of a file, as people are told of it.
#[track_caller]
fn fid(client: &Client, file: &FileId) -> Fid {
    let about = client.afs.about(file);
    let (_, fid) = about.iter().find(|(what, _)| what == "fid").expect("it is in a volume");
    fid.parse().expect("a fid")
}

/// The request by which a server breaks promises.
fn break_of(fids: &[Fid]) -> Vec<u8> {
    let mut request = Encoder::new();
    request.u32(BREAK);
    Fids::encode(&List(fids.to_vec()), &mut request);
    Promises::encode(&List(Vec::new()), &mut request);
    request.finish().expect("few fids")
}

/// Rounds of what happens at the same time.
const ROUNDS: usize = 100;
/// Calls of file servers (OpenAFS `src/fsint/afscbint.xg`).
const BREAK: u32 = 204;
const FORGET_ALL: u8 = 205;
const PROBE: u8 = 206;
