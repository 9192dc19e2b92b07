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

/// A fake whose bodies come as a test wants them to.
struct Shaped<S> {
    fake: Fake,
    begins_after: Duration,
    shape: S,
}

const BEGINS_AFTER: Duration = Duration::from_millis(8);
const PAUSE: Duration = Duration::from_millis(2);

#[async_trait]
impl<S: Fn(Body) -> Body + Send + Sync + 'static> Remote for Shaped<S> {
    fn capabilities(&self) -> Capabilities {
        self.fake.capabilities()
    }

    fn root(&self) -> FileId {
        self.fake.root()
    }

    async fn lookup(&self, call: &Call, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>> {
        self.fake.lookup(call, dir, name).await
    }

    async fn attributes(&self, call: &Call, file: &FileId, known: &Version) -> Result<Answer<Checked>> {
        self.fake.attributes(call, file, known).await
    }

    async fn entries(
        &self,
        call: &Call,
        dir: &FileId,
        known: &Version,
        cursor: Option<&Cursor>,
    ) -> Result<Answer<Listing>> {
        self.fake.entries(call, dir, known, cursor).await
    }

    async fn fetch(&self, call: &Call, file: &FileId, expected: &Version, span: Span) -> Result<Answer<Fetched>> {
        tokio::time::sleep(self.begins_after).await;
        let answer = self.fake.fetch(call, file, expected, span).await?;
        Ok(answer.map(|fetched| Fetched { body: (self.shape)(fetched.body), ..fetched }))
    }
}

/// A body at the end of a long way brings its pieces with pauses of its own.
fn slow(body: Body) -> Body {
    let stream = body.stream.then(async |piece| {
        tokio::time::sleep(PAUSE).await;
        piece
    });
    Body { stream: Box::pin(stream), ..body }
}

/// Where a range from the middle waits half way.
#[derive(Default)]
struct Halt {
    range_begun: tokio::sync::Notify,
    whole_ended: tokio::sync::Notify,
}

/// Tells of the end of a body, or that nobody takes more of it.
struct TellsEnd(Arc<Halt>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.whole_ended.notify_one();
    }
}

/// A range from the middle stops half way until the body from the beginning has ended.
fn halting(body: Body, halt: &Arc<Halt>) -> Body {
    let (is_range, halt, ends) = (body.start > 0, halt.clone(), TellsEnd(halt.clone()));
    let stream = body.stream.enumerate().then(move |(number, piece)| {
        let (halt, _ends) = (halt.clone(), &ends);
        async move {
            if is_range && number == 1 {
                halt.range_begun.notify_one();
                halt.whole_ended.notified().await;
            }
            piece
        }
    });
    Body { stream: Box::pin(stream), ..body }
}

/// Goal: a file is whole though the body that brings all of it ends while another has not yet brought the end of a piece that
/// it had begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_ends_before_a_range_that_is_in_its_way_is_no_error() {
    let (fake, halt) = (Fake::new(), Arc::new(Halt::default()));
    let content = pattern(16 << 20);
    fake.file("large", content.clone());
    fake.adjust(|terms| terms.piece_bytes = 48 << 10);
    let bench = {
        let (fake, halt) = (fake.clone(), halt.clone());
        let shaped =
            Shaped { fake: fake.clone(), begins_after: Duration::ZERO, shape: move |body| halting(body, &halt) };
        Arc::new(Bench::over(fake, Arc::new(shaped)))
    };
    let handle = bench.open("fake/large").await.expect("an open file").handle;
    let (at, size) = ((16 << 20) - (256 << 10), 128 << 10);
    let of_range = tokio::spawn({
        let bench = bench.clone();
        async move { bench.read_at(handle, at, size).await }
    });
    halt.range_begun.notified().await;
    assert!(bench.drain(handle).await.expect("all") == content);
    assert!(of_range.await.expect("no panic").expect("it came") == content[at as usize..][..size]);
    bench.vfs.close(handle);
    bench.fake.reset_counts();
    assert!(bench.cat("fake/large").await.expect("held") == content);
    assert_eq!(bench.fake.counts().content_bytes, 0, "nothing of it was given up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_bodies_bring_one_file_and_no_byte_is_wrong_or_comes_often() {
    let fake = Fake::new();
    let content = pattern(96 << 20);
    fake.file("large", content.clone());
    fake.adjust(|terms| terms.piece_bytes = 128 << 10);
    let bench = Bench::over(fake.clone(), Arc::new(Shaped { fake, begins_after: BEGINS_AFTER, shape: slow }));
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
