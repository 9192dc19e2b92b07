//! The suite that every kind runs, on a tree of the cell and on the tree of all cells.

use std::sync::Arc;

use async_trait::async_trait;
use weft_remote::conformance::{self, Bench, CaseOutcome};
use weft_remote::{FileKind, Name, Remote};

use crate::cell::AfsCell;
use crate::client::{Client, Tree, name};

/// The sample tree in the volume `scratch`, where anybody may write.
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
    async fn new(cell: &AfsCell, tree: Tree, folder: &str) -> Sampled {
        let hand = Client::on(cell, "c2", Tree::Cell).await;
        let folder = hand.folder(folder).await;
        for sample in conformance::sample() {
            let made = hand.create(&[folder.as_bytes(), &sample.path].join(&b'/'), sample.kind).await;
            if sample.kind == FileKind::File {
                hand.write(&made, &sample.bytes).await;
            }
        }
        let from_root = match tree {
            Tree::Cell => folder.clone(),
            Tree::Cells => format!("weft.test/{folder}"),
        };
        let tree = Client::on(cell, "c1", tree).await;
        tree.listen();
        Sampled { tree, hand, top: from_root.split('/').map(name).collect(), folder }
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
    Sampled::new(cell, Tree::Cell, "suite").await.passes().await;
}

#[tokio::test]
async fn the_tree_of_all_cells_passes_the_suite() {
    let Some(cell) = AfsCell::up() else { return };
    Sampled::new(cell, Tree::Cells, "suite-of-cells").await.passes().await;
}
