//! The suite that every kind runs.
//!
//! A kind serves the sample tree ([`sample()`]) from whatever its real source is, implements [`Bench`] around that,
//! and has a test print and check the [`Report`] of [`run`]. What a kind's capabilities exclude is reported as
//! excluded with the reason, never left out silently.

mod bodies;
mod changes;
mod names;
mod report;
mod sample;
mod scene;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::report::{CaseOutcome, CaseResult, Report};
pub use self::sample::{Sample, sample, write_sample};
use self::scene::Scene;
use crate::{Name, Remote};

/// What a kind puts under the suite: a remote that serves the sample tree, and a hand at its source.
///
/// Paths are bytes with `/` between names, relative to the top of the sample tree.
#[async_trait]
pub trait Bench: Send + Sync {
    /// The remote. The sample tree is complete when this is called, and each call gives the same remote.
    fn remote(&self) -> Arc<dyn Remote>;

    /// The names that lead from the remote's root to the top of the sample tree (a host, a cell).
    fn top(&self) -> Vec<Name> {
        Vec::new()
    }

    /// Why this source cannot hold the sample at `path`; `None` when it can. What is given here is reported as
    /// excluded.
    fn cannot_hold(&self, _path: &[u8]) -> Option<String> {
        None
    }

    /// Whether listings of the sample's directories name at least every sample in them, even where the kind calls
    /// them partial.
    fn lists_all(&self) -> bool {
        true
    }

    /// Gives the file at `path` other bytes, at the source.
    async fn change(&self, path: &[u8], bytes: &[u8]);

    /// Takes the file at `path` away, at the source.
    async fn remove(&self, path: &[u8]);
}

/// Runs every case; a case that does not end counts as failed.
pub async fn run(bench: &dyn Bench) -> Report {
    let scene = Scene::new(bench);
    let mut report = Report::default();
    names::run(&scene, &mut report).await;
    bodies::run(&scene, &mut report).await;
    changes::run(&scene, &mut report).await;
    report
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fake::{Fake, Promise, Quality, Validator};
    use crate::{Completeness, FileKind};

    /// The fake with the sample tree in it.
    struct FakeBench(Fake);

    #[async_trait]
    impl Bench for FakeBench {
        fn remote(&self) -> Arc<dyn Remote> {
            Arc::new(self.0.clone())
        }

        async fn change(&self, path: &[u8], bytes: &[u8]) {
            self.0.set(path, bytes.to_vec());
        }

        async fn remove(&self, path: &[u8]) {
            self.0.remove(path);
        }
    }

    fn with_sample(fake: Fake) -> FakeBench {
        for sample in sample() {
            match sample.kind {
                FileKind::Directory => fake.dir(&sample.path),
                _ => fake.file(&sample.path, sample.bytes),
            };
        }
        FakeBench(fake)
    }

    #[tokio::test]
    async fn the_fake_passes_the_suite() {
        let bench = with_sample(Fake::new());
        bench.0.adjust(|terms| {
            terms.promise = Promise::Lasting(Duration::from_secs(60));
            terms.page_entries = 3;
        });
        let report = run(&bench).await;
        println!("{report}");
        report.assert_clean();
        assert_eq!(report.excluded(), 2, "a read-only kind without backing files: nothing else is excluded");
    }

    #[tokio::test]
    async fn a_writable_fake_with_bodies_along_passes_the_suite() {
        let bench = with_sample(Fake::writable());
        bench.0.adjust(|terms| {
            terms.along = true;
            terms.listing = Quality::Rounded;
            terms.piece_bytes = 1000;
        });
        let report = run(&bench).await;
        println!("{report}");
        report.assert_clean();
    }

    #[tokio::test]
    async fn a_fake_that_knows_little_passes_the_suite() {
        let bench = with_sample(Fake::new());
        bench.0.adjust(|terms| {
            terms.validator = Validator::None;
            terms.ranges = false;
            terms.listing = Quality::Unknown;
        });
        bench.0.completeness("", Completeness::Partial);
        bench.0.quality("big.bin", Quality::Unknown);
        bench.0.unknown_kind("docs");
        let report = run(&bench).await;
        println!("{report}");
        report.assert_clean();
        assert!(report.excluded() >= 3, "versions and ranges are excluded by name");
    }

    /// The suite must notice: each fault here is one that a careless kind could have.
    #[tokio::test]
    async fn the_suite_notices_broken_promises() {
        use crate::RemoteError;
        use crate::fake::{Fault, Operation, Order};

        let failing = async |order: Order| {
            let bench = with_sample(Fake::new());
            bench.0.order(order);
            run(&bench).await.failures().len()
        };
        assert!(failing(Order::of(Fault::CutShort { after: 7 }).on(Operation::Fetch)).await > 0);
        let refused = RemoteError::Denied { detail: "test".to_owned() };
        assert!(failing(Order::of(Fault::Error(refused)).on(Operation::Lookup).at("absent")).await > 0);
        assert!(failing(Order::of(Fault::Disappear).on(Operation::Lookup).at("three")).await > 0);
    }
}
