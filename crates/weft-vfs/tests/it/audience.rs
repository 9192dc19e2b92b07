//! What one user's rights brought, and others: who is asked about, who is shown what.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::Handle;
use weft_remote::fake::{Fake, Promise, Quality};
use weft_remote::{
    Answer, Audience, Call, Caller, Capabilities, Checked, Cursor, Event, Fetched, FileId, FileKind, Found, Listing,
    Mutation, Name, Outcome, Remote, RemoteError, Result, Span, Version,
};
use weft_store::{Store, StoreOptions};
use weft_vfs::{
    Binding, Data, Freshness, Looked, NewNode, NodeId, Notices, OpenFor, Policies, SetStat, Stat, Vfs, VfsError,
    VfsOptions, Write,
};

use crate::bench::names;

const ALICE: u32 = 1001;
const BOB: u32 = 1002;
const CAROL: u32 = 1003;

/// What the source makes of a user.
#[derive(Clone)]
enum Right {
    /// Nobody: what it gives, it gives to anybody.
    Anybody(Fake),
    /// One who logs in.
    Known(Fake),
    /// One whom it refuses.
    Refused,
}

/// A source that knows its users.
struct Guarded {
    fake: Fake,
    rights: Mutex<HashMap<u32, Right>>,
    /// Those who read, and may not write.
    readers: Mutex<HashSet<u32>>,
}

impl Guarded {
    fn ask(&self, call: &Call) -> Result<(Fake, Audience)> {
        match self.rights.lock().get(&call.caller.uid).cloned() {
            Some(Right::Anybody(fake)) => Ok((fake, Audience::Everyone)),
            Some(Right::Known(fake)) => Ok((fake, Audience::Only { uid: call.caller.uid })),
            Some(Right::Refused) | None => Err(RemoteError::Denied { detail: "401".to_owned() }),
        }
    }

    fn for_whom<T>(answer: Answer<T>, audience: Audience) -> Answer<T> {
        Answer { audience, ..answer }
    }
}

#[async_trait]
impl Remote for Guarded {
    fn capabilities(&self) -> Capabilities {
        Capabilities { rights: true, ..self.fake.capabilities() }
    }

    fn root(&self) -> FileId {
        self.fake.root()
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        let (fake, audience) = self.ask(call)?;
        Ok(Guarded::for_whom(fake.lookup(call, dir, name).await?, audience))
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        let (fake, audience) = self.ask(call)?;
        Ok(Guarded::for_whom(fake.attributes(call, file, known).await?, audience))
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        from: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        let (fake, audience) = self.ask(call)?;
        Ok(Guarded::for_whom(fake.entries(call, dir, known, from).await?, audience))
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        let (fake, audience) = self.ask(call)?;
        Ok(Guarded::for_whom(fake.fetch(call, file, expected, span).await?, audience))
    }

    fn events(&self) -> BoxStream<'static, Event> {
        self.fake.events()
    }

    async fn may_write(&self, call: &Call, _file: &FileId, _dir: Option<&FileId>, _appends: bool) -> Result<()> {
        self.ask(call)?;
        match self.readers.lock().contains(&call.caller.uid) {
            true => Err(RemoteError::Denied { detail: "a reader".to_owned() }),
            false => Ok(()),
        }
    }

    async fn apply(&self, call: &Call, mutation: &Mutation, expected: &Version) -> Result<Answer<Outcome>> {
        let (fake, audience) = self.ask(call)?;
        Ok(Guarded::for_whom(fake.apply(call, mutation, expected).await?, audience))
    }
}

/// A mount that several users share.
struct House {
    source: Arc<Guarded>,
    vfs: Arc<Vfs>,
    _dir: TempDir,
}

/// A tree with `a/secret.txt`.
fn tree(content: &'static str) -> Fake {
    let fake = Fake::writable();
    fake.file("a/secret.txt", content);
    fake.adjust(|terms| terms.promise = Promise::Lasting(Duration::from_secs(3600)));
    fake
}

impl House {
    /// Alice logs in; the others are strangers.
    fn new(freshness: Freshness) -> House {
        House::over(tree("hello"), freshness)
    }

    fn over(fake: Fake, freshness: Freshness) -> House {
        let source = Arc::new(Guarded { fake: fake.clone(), rights: Mutex::default(), readers: Mutex::default() });
        source.rights.lock().insert(ALICE, Right::Known(fake));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(dir.path(), StoreOptions::default()).expect("a store");
        let binding = Binding { at: names("x"), source: "x".to_owned(), remote: source.clone() };
        let options =
            VfsOptions { policies: Policies::new(freshness, Vec::new()), shared: true, ..VfsOptions::default() };
        let vfs =
            Vfs::new(store, vec![binding], options, Notices::nowhere(), Handle::current()).expect("a file system");
        House { source, vfs, _dir: dir }
    }

    fn give(&self, uid: u32, right: Right) {
        self.source.rights.lock().insert(uid, right);
    }

    fn call(uid: u32) -> Call {
        Call::within(Caller { uid, gid: uid, pid: 1 }, Duration::from_secs(20))
    }

    /// What the last name of a path leads to, and how long the kernel may believe so.
    async fn walk(&self, uid: u32, path: &str) -> std::result::Result<(Stat, Duration), VfsError> {
        let mut at = (NodeId::ROOT, None);
        for name in path.split('/') {
            match self.vfs.clone().lookup(House::call(uid), at.0, name.as_bytes().to_vec()).await? {
                Looked::Entry { stat, ttl } => at = (stat.node, Some((stat, ttl))),
                Looked::Absent { .. } => return Err(VfsError::NotFound),
            }
        }
        Ok(at.1.expect("a path has a name"))
    }

    async fn cat(&self, uid: u32) -> std::result::Result<Vec<u8>, VfsError> {
        let (stat, _) = self.walk(uid, "x/a/secret.txt").await?;
        let handle = self.vfs.clone().open(House::call(uid), stat.node, OpenFor::default()).await?.handle;
        let bytes = self.vfs.clone().read(House::call(uid), handle, 0, 100).await.and_then(Data::into_bytes);
        self.vfs.close(handle);
        Ok(bytes?.to_vec())
    }

    async fn list(&self, uid: u32, path: &str) -> std::result::Result<Vec<String>, VfsError> {
        let (stat, _) = self.walk(uid, path).await?;
        let call = House::call(uid);
        self.vfs.clone().open_directory(call, stat.node).await?;
        let snapshot = self.vfs.directory_names(stat.node, &call.caller)?;
        let rows = (0..snapshot.len()).filter_map(|index| snapshot.get(index));
        Ok(rows.map(|row| String::from_utf8_lossy(row.name).into_owned()).collect())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernel_does_not_keep_what_one_user_makes() {
    let house = House::new(Freshness::Http);
    let (dir, _) = house.walk(ALICE, "x/a").await.expect("hers");
    for kind in [FileKind::File, FileKind::Directory] {
        let (call, name) = (House::call(ALICE), format!("{kind:?}").into_bytes());
        let new = NewNode { kind, mode: 0o755.into(), device: 0 };
        let made = house.vfs.clone().create(call, dir.node, name, new).await.expect("made");
        let Looked::Entry { stat, ttl } = made else { panic!("{made:?}") };
        assert_eq!((stat.ttl, ttl), (Duration::ZERO, Duration::ZERO), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernel_keeps_nothing_of_what_one_user_may_see() {
    let house = House::new(Freshness::Http);
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    for path in ["x/a", "x/a/secret.txt"] {
        let (stat, ttl) = house.walk(ALICE, path).await.expect("hers");
        assert_eq!((stat.ttl, ttl), (Duration::ZERO, Duration::ZERO), "{path}");
        assert_eq!(house.vfs.stat_known(stat.node).expect("known"), None, "a listing tells nothing of it");
    }
    match house
        .vfs
        .clone()
        .lookup(House::call(ALICE), house.walk(ALICE, "x/a").await.unwrap().0.node, b"no".to_vec())
        .await
    {
        Ok(Looked::Absent { ttl }) => assert_eq!(ttl, Duration::ZERO),
        other => panic!("{other:?}"),
    }
    // The same of what everyone may see is kept.
    house.give(BOB, Right::Anybody(house.source.fake.clone()));
    assert_eq!(house.cat(BOB).await.expect("everyone's"), b"hello");
    let (stat, ttl) = house.walk(BOB, "x/a/secret.txt").await.expect("everyone's");
    assert!(!stat.ttl.is_zero() && !ttl.is_zero());
}

/// Goal: what one user writes is shown to those to whom the source would show the file, while it is written as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_being_written_is_shown_to_whom_the_file_is() {
    let house = House::new(Freshness::Http);
    let node = house.walk(ALICE, "x/a/secret.txt").await.expect("hers").0.node;
    let writing = OpenFor { writing: true, ..OpenFor::default() };
    let handle = house.vfs.clone().open(House::call(ALICE), node, writing).await.expect("opened").handle;
    let write =
        Write { offset: 0, bytes: b"HELLO".as_slice().into(), kill_suidgid: false, unseen: false, appends: false };
    house.vfs.clone().write(House::call(ALICE), handle, write).await.expect("written");
    house.give(BOB, Right::Refused);
    for how in [OpenFor::default(), writing, OpenFor { truncating: true, ..writing }] {
        // By number, as a kernel that still knew the name would ask.
        let opened = house.vfs.clone().open(House::call(BOB), node, how).await.map(drop);
        assert!(matches!(opened, Err(VfsError::Denied | VfsError::Remote(RemoteError::Denied { .. }))), "{opened:?}");
    }
    house.give(CAROL, Right::Known(house.source.fake.clone()));
    assert_eq!(house.cat(CAROL).await.expect("hers as well"), b"HELLO");
    // Who reads it sends nothing when that is closed: it is not hers to send.
    house.source.readers.lock().insert(CAROL);
    let reader = house.vfs.clone().open(House::call(CAROL), node, OpenFor::default()).await.expect("opened").handle;
    house.vfs.clone().flush(House::call(CAROL), reader).await.expect("nothing to send");
    house.vfs.close(reader);
    assert_eq!(house.source.fake.counts().apply, 0);
    house.vfs.clone().flush(House::call(ALICE), handle).await.expect("sent");
    assert_eq!(house.source.fake.counts().apply, 1);
    house.vfs.close(handle);
}

/// Goal: who may not write is refused when a file is opened, and nobody sees what would have been written; who reads, reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_write_is_refused_at_the_open() {
    let house = House::new(Freshness::Http);
    house.give(BOB, Right::Known(house.source.fake.clone()));
    house.source.readers.lock().insert(BOB);
    let node = house.walk(BOB, "x/a/secret.txt").await.expect("his to read").0.node;
    let writing = OpenFor { writing: true, ..OpenFor::default() };
    for how in [writing, OpenFor { truncating: true, ..writing }] {
        let opened = house.vfs.clone().open(House::call(BOB), node, how).await.map(drop);
        assert!(matches!(opened, Err(VfsError::Remote(RemoteError::Denied { .. }))), "{opened:?}");
    }
    let cut = SetStat { size: Some(0), ..SetStat::default() };
    let cut = house.vfs.clone().set_stat(House::call(BOB), node, None, cut).await;
    assert!(matches!(cut, Err(VfsError::Remote(RemoteError::Denied { .. }))), "{cut:?}");
    for uid in [ALICE, BOB] {
        assert_eq!(house.cat(uid).await.expect("as before"), b"hello");
    }
    house.source.readers.lock().clear();
    let opened = house.vfs.clone().open(House::call(BOB), node, writing).await.expect("he may now");
    house.vfs.close(opened.handle);
}

/// Goal: a name that is in somebody's list stays in it when another looks it up anew, and the list has not changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_name_that_another_looks_up_stays_listed() {
    let fake = tree("hello");
    fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
    let house = House::over(fake.clone(), Freshness::Http);
    house.give(BOB, Right::Known(fake.clone()));
    for _ in 0..3 {
        assert_eq!(house.list(BOB, "x/a").await.expect("his as well"), ["secret.txt"]);
        fake.reset_counts();
        fake.send(Event::NamesBroken(fake.id("a")));
        // The event travels by itself.
        while fake.counts().lookup == 0 {
            assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
            tokio::task::yield_now().await;
        }
        assert_eq!(house.list(BOB, "x/a").await.expect("his as well"), ["secret.txt"]);
    }
}

/// Goal: when a source ends what it said of a directory, as when its access list is changed, everybody is asked for anew, also
/// for files that have not changed; what it tells one user then tells it to nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_lost_a_right_is_refused_what_has_not_changed() {
    for was_granted in [false, true] {
        for by_list in [false, true] {
            let fake = tree("hello");
            fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(3600)));
            let house = House::over(fake.clone(), Freshness::Http);
            house.give(BOB, if was_granted { Right::Known(fake.clone()) } else { Right::Anybody(fake.clone()) });
            // Told to her first, so that it is granted to him, or for everybody.
            assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
            assert_eq!(house.cat(BOB).await.expect("his as well"), b"hello");
            assert_eq!(house.list(ALICE, "x/a").await.expect("hers"), ["secret.txt"]);
            house.give(BOB, Right::Refused);
            assert_eq!(house.cat(BOB).await.expect("nobody has said otherwise"), b"hello");
            fake.reset_counts();
            fake.send(Event::NamesBroken(fake.id("a")));
            // The event travels by itself.
            while fake.counts().lookup + fake.counts().entries == 0 {
                match by_list {
                    true => drop(house.list(ALICE, "x/a").await.expect("hers")),
                    false => drop(house.cat(ALICE).await.expect("hers")),
                }
                tokio::task::yield_now().await;
            }
            let refused = house.cat(BOB).await;
            assert!(
                matches!(refused, Err(VfsError::Denied | VfsError::Remote(RemoteError::Denied { .. }))),
                "{was_granted} {by_list}: {refused:?}"
            );
            assert_eq!(house.cat(ALICE).await.expect("still hers"), b"hello");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_told_no_name_no_size_and_no_content() {
    let house = House::new(Freshness::Http);
    assert_eq!(house.list(ALICE, "x/a").await.expect("hers"), ["secret.txt"]);
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    let node = house.walk(ALICE, "x/a/secret.txt").await.unwrap().0.node;
    let dir = house.walk(ALICE, "x/a").await.unwrap().0.node;
    house.give(BOB, Right::Refused);
    let refused = |error: &VfsError| matches!(error, VfsError::Denied | VfsError::Remote(RemoteError::Denied { .. }));
    for path in ["x/a", "x/a/secret.txt"] {
        assert!(house.walk(BOB, path).await.is_err_and(|error| refused(&error)), "{path}");
    }
    // By number as well, as a kernel that still knew it would ask.
    let (call, vfs) = (House::call(BOB), house.vfs.clone());
    assert!(vfs.clone().stat(call, node, None).await.is_err_and(|error| refused(&error)));
    assert!(vfs.clone().open(call, node, OpenFor::default()).await.is_err_and(|error| refused(&error)));
    assert!(vfs.clone().open_directory(call, dir).await.is_err_and(|error| refused(&error)));
    assert!(vfs.clone().lookup(call, dir, b"secret.txt".to_vec()).await.is_err_and(|error| refused(&error)));
    assert!(vfs.may_know(&names("x/a/secret.txt"), ALICE) && !vfs.may_know(&names("x/a/secret.txt"), BOB));
    // A directory that anybody may enter shows its names to those alone who may see them.
    house.give(BOB, Right::Anybody(Fake::new()));
    assert_eq!(house.list(BOB, "x").await.expect("empty for him"), Vec::<String>::new());
    assert_eq!(house.list(ALICE, "x").await.expect("hers"), ["a"]);
    assert_eq!(house.cat(ALICE).await.expect("still hers"), b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_login_that_gets_the_same_version_is_granted_it() {
    let house = House::new(Freshness::Http);
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    house.give(BOB, Right::Known(house.source.fake.clone()));
    house.source.fake.reset_counts();
    assert_eq!(house.cat(BOB).await.expect("his as well"), b"hello");
    let asked = house.source.fake.counts();
    assert_eq!((asked.fetch, asked.attributes), (0, 1), "the content is held: {asked:?}");
    // The grant lasts as long as the source's word, and Alice is not asked about again.
    assert_eq!(house.cat(BOB).await.expect("granted"), b"hello");
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    assert_eq!(house.source.fake.counts(), asked);
    assert!(house.cat(CAROL).await.is_err(), "a grant is for one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_source_gives_to_anybody_is_everyones() {
    let house = House::new(Freshness::Http);
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    house.give(BOB, Right::Anybody(house.source.fake.clone()));
    assert_eq!(house.cat(BOB).await.expect("anybody's"), b"hello");
    house.source.fake.reset_counts();
    assert_eq!(house.cat(CAROL).await.expect("everyone's by now"), b"hello");
    assert_eq!(house.source.fake.counts().calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_path_has_one_content_at_a_time() {
    let house = House::new(Freshness::Http);
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    let other = tree("his own");
    other.set("a/secret.txt", "his own and longer");
    house.give(BOB, Right::Known(other.clone()));
    assert!(matches!(house.cat(BOB).await, Err(VfsError::Denied)));
    assert!(house.vfs.troubles().iter().any(|trouble| trouble.text.contains("one content at a time")));
    assert_eq!(house.cat(ALICE).await.expect("untouched"), b"hello");
    // Where nothing is trusted, each gets what the source has for them.
    let house = House::new(Freshness::Always);
    house.give(BOB, Right::Known(other));
    for _ in 0..2 {
        assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
        assert_eq!(house.cat(BOB).await.expect("his"), b"his own and longer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_one_users_list_told_is_not_shown_with_a_name_that_all_may_see() {
    let house = House::new(Freshness::Always);
    let terse = tree("hello");
    terse.adjust(|terms| terms.listing = Quality::Unknown);
    house.give(BOB, Right::Anybody(terse));
    let told = |house: &House| house.vfs.names(&names("x/a")).expect("known")[0].size;
    assert_eq!(house.list(BOB, "x/a").await.expect("everyone's"), ["secret.txt"]);
    assert_eq!(told(&house), None);
    // One more name, so that hers is another list.
    house.source.fake.file("a/zebra", "hers");
    assert_eq!(house.list(ALICE, "x/a").await.expect("hers"), ["secret.txt", "zebra"]);
    assert_eq!(told(&house), None);
    // The same list for everyone tells it to everyone.
    house.source.fake.file("a/zebu", "anybody's");
    house.give(BOB, Right::Anybody(house.source.fake.clone()));
    assert_eq!(house.list(BOB, "x/a").await.expect("everyone's"), ["secret.txt", "zebra", "zebu"]);
    assert_eq!(told(&house), Some(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_by_somebody_without_rights_takes_nothing_from_those_who_have_them() {
    let house = House::new(Freshness::Http);
    assert_eq!(house.list(ALICE, "x/a").await.expect("hers"), ["secret.txt"]);
    assert_eq!(house.cat(ALICE).await.expect("hers"), b"hello");
    let root = Caller { uid: 0, gid: 0, pid: 0 };
    let other = tree("his own");
    other.set("a/secret.txt", "his own and longer");
    for refused in [Right::Refused, Right::Known(Fake::new()), Right::Known(other)] {
        house.give(0, refused);
        house.vfs.reload(&names("x/a/secret.txt"), true, root).await.expect_err("not to be seen");
    }
    house.source.fake.reset_counts();
    assert_eq!(house.cat(ALICE).await.expect("still hers"), b"hello");
    assert_eq!(house.source.fake.counts().calls(), 0, "and as good as before");
    // One who has the rights checks it.
    house.give(0, Right::Known(house.source.fake.clone()));
    assert_eq!(house.vfs.reload(&names("x/a/secret.txt"), true, root).await.expect("checked").checked, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_the_source_hides_from_one_is_not_gone_for_another() {
    let house = House::new(Freshness::Http);
    house.source.fake.adjust(|terms| terms.listing = Quality::Unknown);
    assert_eq!(house.list(ALICE, "x/a").await.expect("hers"), ["secret.txt"]);
    let empty = Fake::new();
    empty.dir("a");
    house.give(BOB, Right::Known(empty));
    assert!(matches!(house.walk(BOB, "x/a/secret.txt").await, Err(VfsError::NotFound)));
    assert_eq!(house.cat(ALICE).await.expect("still hers"), b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_fetched_ahead_of_what_only_another_may_see() {
    let house = House::new(Freshness::Http);
    for n in 0..9 {
        house.source.fake.file(format!("a/f{n}"), "content");
    }
    assert_eq!(house.list(ALICE, "x/a").await.expect("hers").len(), 10);
    house.give(BOB, Right::Known(house.source.fake.clone()));
    for (uid, ahead) in [(BOB, false), (ALICE, true)] {
        for n in 0..3 {
            let n = if uid == BOB { n } else { n + 3 };
            let node = house.walk(uid, &format!("x/a/f{n}")).await.expect("there").0.node;
            let handle = house.vfs.clone().open(House::call(uid), node, OpenFor::default()).await.expect("open").handle;
            house.vfs.close(handle);
        }
        assert_eq!(house.vfs.figures().prefetches > 0, ahead, "{uid}");
    }
}
