//! The suite that every kind runs: on a tree of the cell, on the tree of all cells, and where only a user with a token may
//! look.

use std::sync::Arc;

use async_trait::async_trait;
use weft_remote::conformance::{self, Bench, CaseOutcome};
use weft_remote::{FileKind, Name, Remote, RemoteError};

use crate::cell::AfsCell;
use crate::client::{Client, Tree, name};

/// The sample tree in a volume.
struct Sampled {
    tree: Client,
    /// Another client, on another node: the hand at the source.
    hand: Client,
    /// The names that lead from the root of `tree` to the sample tree.
    top: Vec<Name>,
    /// Where it is for the hand.
    folder: String,
}

impl Sampled {
    /// The sample tree in `folder`, which is made by two clients with what `ccache` holds.
    async fn new(cell: &AfsCell, tree: Tree, folder: &str, ccache: String) -> Sampled {
        let hand = Client::with_ccache(cell, "c2", Tree::Cell, ccache.clone()).await;
        hand.create(folder.as_bytes(), FileKind::Directory).await;
        for sample in conformance::sample() {
            let made = hand.create(&[folder.as_bytes(), &sample.path].join(&b'/'), sample.kind).await;
            if sample.kind == FileKind::File {
                hand.write(&made, &sample.bytes).await;
            }
        }
        let from_root = match tree {
            Tree::Cell => folder.to_owned(),
            Tree::Cells => format!("weft.test/{folder}"),
        };
        let tree = Client::with_ccache(cell, "c1", tree, ccache).await;
        tree.listen();
        let top = from_root.split('/').map(name).collect();
        Sampled { tree, hand, top, folder: folder.to_owned() }
    }

    fn path(&self, path: &[u8]) -> Vec<u8> {
        [self.folder.as_bytes(), path].join(&b'/')
    }

    /// The volume holds every sample, so nothing is excluded but what another kind of remote has.
    async fn passes(&self) {
        let report = conformance::run(self).await;
        println!("{report}");
        report.assert_clean();
        let excluded = report.results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Excluded(_)));
        let excluded: Vec<&str> = excluded.map(|result| result.name.as_str()).collect();
        let expected = ["backing files hold the same bytes", "a read-only kind answers every mutation with ReadOnly"];
        assert_eq!(excluded, expected, "nothing else is excluded");
    }
}

#[async_trait]
impl Bench for Sampled {
    fn remote(&self) -> Arc<dyn Remote> {
        self.tree.afs.clone()
    }

    fn top(&self) -> Vec<Name> {
        self.top.clone()
    }

    async fn change(&self, path: &[u8], bytes: &[u8]) {
        let (entry, _) = self.hand.find(&self.path(path)).await.expect("looked up");
        self.hand.write(&entry.expect("it is there").id, bytes).await;
    }

    async fn remove(&self, path: &[u8]) {
        self.hand.remove(&self.path(path)).await;
    }
}

#[tokio::test]
async fn a_cell_passes_the_suite() {
    let Some(cell) = AfsCell::up() else { return };
    Sampled::new(cell, Tree::Cell, "scratch/suite", cell.no_ccache()).await.passes().await;
}

#[tokio::test]
async fn the_tree_of_all_cells_passes_the_suite() {
    let Some(cell) = AfsCell::up() else { return };
    Sampled::new(cell, Tree::Cells, "scratch/suite-of-cells", cell.no_ccache()).await.passes().await;
}

#[tokio::test]
async fn a_user_passes_the_suite_where_nobody_else_may_look() {
    let Some(cell) = AfsCell::up() else { return };
    let folder = "user/alice/private/suite";
    Sampled::new(cell, Tree::Cell, folder, cell.ccache("alice", "suite")).await.passes().await;
    let anybody = Client::on(cell, "c1", Tree::Cell).await.find(folder.as_bytes()).await;
    assert!(matches!(anybody, Err(RemoteError::Denied { .. })), "{anybody:?}");
}
