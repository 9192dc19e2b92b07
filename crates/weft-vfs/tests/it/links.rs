//! Symbolic links.

use weft_remote::FileKind;
use weft_vfs::VfsError;

use crate::bench::Bench;

/// Goal: a link is shown as one and says what it says; what is none, or has gone, is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_says_what_it_says() {
    let bench = Bench::new();
    bench.fake.symlink("a/link", "b/hello.txt");
    let link = bench.walk("fake/a/link").await.expect("a link");
    assert_eq!(link.kind, FileKind::Symlink);
    let read = |node| bench.vfs.clone().read_link(bench.call(), node);
    assert_eq!(read(link.node).await.expect("a target"), b"b/hello.txt");
    let file = bench.walk("fake/a/b/hello.txt").await.expect("a file").node;
    assert!(matches!(read(file).await, Err(VfsError::Stale)));
    bench.fake.remove("a/link");
    assert!(matches!(read(link.node).await, Err(VfsError::Stale)), "the path is followed again first");
    assert!(matches!(read(link.node).await, Err(VfsError::NotFound)));
}
