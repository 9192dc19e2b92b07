//! Access lists of files, which the kernel asks for whenever somebody else than the owner uses them.

use weft_remote::fake::Fake;
use weft_remote::{ACCESS_LIST, Event};
use weft_store::NodeId;
use weft_vfs::Notices;

use crate::bench::Bench;
use crate::breaks::{told_to, untold};

const LIST: &[u8] = b"a list";
const OTHER: &[u8] = b"another list";

/// A source with access lists that tells of changes.
fn listed() -> Bench {
    let fake = Fake::writable();
    fake.adjust(|terms| terms.access_lists = true);
    told_to(fake, Notices::nowhere())
}

async fn list_of(bench: &Bench, node: NodeId) -> Option<Vec<u8>> {
    bench.vfs.clone().extended_of(bench.call(), node, ACCESS_LIST.to_vec()).await.expect("an answer")
}

/// Goal: of what is known to have no list the source is not asked for one, whether that was told by a list of the directory, a
/// look at the name, or with the content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_list_is_known_as_the_mode_is() {
    let bench = listed();
    bench.list("fake/a/b").await.expect("names");
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    assert_eq!(list_of(&bench, file).await, None);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), b"hello");
    assert_eq!(list_of(&bench, file).await, None);
    assert_eq!(bench.fake.counts().extended, 0);
    bench.fake.adjust(|terms| terms.told_all = false);
    assert_eq!(list_of(&bench, file).await, None);
    assert_eq!(bench.fake.counts().extended, 1, "while not all is told it is asked");
}

/// Goal: a list that somebody sets or takes away counts from then on, whether it is set here, or beside us and told of in the
/// middle of the question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_set_counts_at_once() {
    let bench = listed();
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    let set = async |list: Option<&[u8]>| {
        let set =
            bench.vfs.clone().set_extended(bench.call(), file, ACCESS_LIST.to_vec(), list.map(<[u8]>::to_vec), None);
        set.await.expect("set");
    };
    assert_eq!(list_of(&bench, file).await, None);
    set(Some(LIST)).await;
    assert_eq!(list_of(&bench, file).await.as_deref(), Some(LIST));
    let set_beside_us = async |list: Option<&[u8]>| {
        untold(&bench, || bench.fake.access_list("a/b/hello.txt", list));
        bench.fake.send_late(Event::Broken(bench.fake.id("a/b/hello.txt")));
        assert_eq!(list_of(&bench, file).await.as_deref(), list);
    };
    set_beside_us(Some(OTHER)).await;
    set_beside_us(None).await;
    bench.vfs.clone().stat(bench.call(), file, None).await.expect("a file");
    set_beside_us(Some(OTHER)).await;
    set(None).await;
    assert_eq!(list_of(&bench, file).await, None);
    set_beside_us(Some(LIST)).await;
}
