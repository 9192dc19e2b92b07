//! A far source: what one body brings too slowly is brought by several.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use weft_remote::fake::{Fake, Fault, Operation, Order};
use weft_remote::{
    Answer, Body, Call, Capabilities, Checked, Cursor, Fetched, FileId, Found, Listing, Name, Remote, Result, Span,
    Version,
};

use crate::bench::{Bench, pattern};

/// A fake at the end of a long way: an answer begins late, and each body brings its pieces with pauses of its own.
struct Far(Fake);

const BEGINS_AFTER: Duration = Duration::from_millis(8);
const PAUSE: Duration = Duration::from_millis(2);

#[async_trait]
impl Remote for Far {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn root(&self) -> FileId {
        self.0.root()
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        self.0.lookup(call, dir, name).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        self.0.attributes(call, file, known).await
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        self.0.entries(call, dir, known, cursor).await
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        tokio::time::sleep(BEGINS_AFTER).await;
        let answer = self.0.fetch(call, file, expected, span).await?;
        Ok(answer.map(|fetched| {
            let stream = fetched.body.stream.then(async |piece| {
                tokio::time::sleep(PAUSE).await;
                piece
            });
            Fetched { body: Body { stream: Box::pin(stream), ..fetched.body }, ..fetched }
        }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_bodies_bring_one_file_and_no_byte_is_wrong_or_comes_often() {
    let fake = Fake::new();
    let content = pattern(96 << 20);
    fake.file("large", content.clone());
    fake.adjust(|terms| terms.piece_bytes = 128 << 10);
    let bench = Bench::over(fake.clone(), Arc::new(Far(fake)));
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    assert!(bench.drain(handle).await.expect("all") == content);
    bench.vfs.close(handle);
    assert!(bench.vfs.figures().ranges_fetched >= 2, "{:?}", bench.vfs.figures());
    let fetched = bench.fake.counts().content_bytes;
    assert!(fetched < content.len() as u64 * 5 / 4, "{fetched} bytes for {}", content.len());
    // All of it is held now, although no single body was whole.
    bench.fake.reset_counts();
    assert!(bench.cat("fake/large").await.expect("held") == content);
    assert_eq!(bench.fake.counts().content_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_breaks_off_is_an_error_once_and_then_asked_for_again() {
    let bench = Bench::new();
    let content = pattern(16 << 20);
    bench.fake.file("large", content.clone());
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    bench.fake.order(Order::of(Fault::CutShort { after: 100_000 }).on(Operation::Fetch).times(1));
    let (at, size) = (12 << 20, 128 << 10);
    bench.read_at(handle, at, size).await.expect_err("it broke off");
    assert!(bench.read_at(handle, at, size).await.expect("it came") == content[at as usize..][..size]);
    bench.vfs.close(handle);
}
