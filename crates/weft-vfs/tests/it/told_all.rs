//! Sources that tell of changes after they have made them.

use weft_remote::Event;
use weft_vfs::{Looked, OpenFor};

use crate::bench::Bench;
use crate::breaks::{change_untold, telling, untold};

/// Goal: as long as a source has more to tell, what it has promised is asked about: names, attributes, lists and content.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_promised_is_asked_about_while_not_all_is_told() {
    let bench = telling();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), b"hello");
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    change_untold(&bench);
    untold(&bench, || bench.fake.file("a/b/new.txt", "new"));
    bench.fake.adjust(|terms| terms.told_all = false);
    assert_eq!(bench.vfs.clone().stat(bench.call(), file, None).await.expect("a file").size, 5);
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), b"other");
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt", "new.txt"]);
    assert!(matches!(bench.lookup(dir, "new.txt").await, Ok(Looked::Entry { .. })));
    bench.fake.reset_counts();
    let looked = async || {
        bench.vfs.clone().stat(bench.call(), file, None).await.expect("a file");
        bench.lookup(dir, "hello.txt").await.expect("an answer");
        bench.list("fake/a/b").await.expect("names");
        assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), b"other");
        bench.fake.counts().calls()
    };
    assert!(looked().await >= 4);
    bench.fake.adjust(|terms| terms.told_all = true);
    bench.fake.reset_counts();
    assert_eq!(looked().await, 0, "it is relied on");
}

/// Goal: what is told in the middle of a question counts for it: who relies on that all is told looks at what is known after
/// that. Names, attributes, lists and content. Method: the source tells when it is asked whether it has told all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_in_the_middle_of_a_question_counts_for_it() {
    let bench = telling();
    let dir = bench.walk("fake/a/b").await.expect("a directory").node;
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), b"hello");
    assert_eq!(bench.list("fake/a/b").await.expect("names"), ["hello.txt"]);
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;

    make_untold(&bench, "a/b/new.txt");
    bench.vfs.clone().open_directory(bench.call(), dir).await.expect("listed");
    let names = bench.vfs.directory_names(dir, &bench.call().caller).expect("names");
    assert_eq!(names.len(), 2, "the list");
    make_untold(&bench, "a/b/newer.txt");
    assert!(matches!(bench.lookup(dir, "newer.txt").await, Ok(Looked::Entry { .. })), "the name");

    let length = async || bench.vfs.clone().stat(bench.call(), file, None).await.expect("a file").size;
    assert_eq!(length().await, 5);
    set_untold(&bench, "longer than it was");
    assert_eq!(length().await, 18, "the attributes");
    assert_eq!(bench.cat("fake/a/b/hello.txt").await.expect("read"), b"longer than it was");
    set_untold(&bench, "as long as it was.");
    let opened = bench.vfs.clone().open(bench.call(), file, OpenFor::default()).await.expect("opened").handle;
    assert_eq!(bench.drain(opened).await.expect("read"), b"as long as it was.", "the content");
    bench.vfs.close(opened);
}

/// Makes a file, and tells so late.
fn make_untold(bench: &Bench, path: &str) {
    untold(bench, || bench.fake.file(path, "new"));
    bench.fake.send_late(Event::Broken(bench.fake.id("a/b")));
}

/// Gives the file another content, and tells so late.
fn set_untold(bench: &Bench, content: &'static str) {
    let file = untold(bench, || bench.fake.set("a/b/hello.txt", content));
    bench.fake.send_late(Event::Broken(file));
}
