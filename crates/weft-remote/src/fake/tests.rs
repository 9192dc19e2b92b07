//! The faults and the counters: goal, that each order happens where and as often as ordered, and nowhere else.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;

use super::*;
use crate::{Body, Call, Caller, Listing, Piece, Remote, RemoteError, Result, Span, Version};

fn call() -> Call {
    Call::within(Caller::DAEMON, Duration::from_secs(10))
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

async fn read(mut body: Body) -> (Vec<u8>, Result<()>) {
    let mut bytes = Vec::new();
    while let Some(piece) = body.stream.next().await {
        match piece {
            Ok(Piece::Bytes(piece)) => bytes.extend_from_slice(&piece),
            Ok(Piece::Known(_)) => {}
            Err(error) => return (bytes, Err(error)),
        }
    }
    (bytes, Ok(()))
}

#[tokio::test]
async fn a_delayed_call_goes_on_when_its_gate_opens() {
    let fake = Fake::new();
    fake.file("a/x", "here");
    let gate = Gate::new();
    fake.order(Order::of(Fault::Delay(gate.clone())).on(Operation::Lookup).at("a/x").times(1));
    let dir = fake.id("a");
    let task = tokio::spawn({
        let fake = fake.clone();
        async move { fake.lookup(&call(), &dir, &name("x")).await }
    });
    gate.arrived(1).await;
    assert!(!task.is_finished());
    gate.open();
    let answer = task.await.expect("the task ends").expect("the lookup succeeds");
    assert!(answer.value.is_some());
}

#[tokio::test]
async fn a_delayed_call_gives_up_at_its_deadline() {
    let fake = Fake::new();
    fake.order(Fault::Delay(Gate::new()));
    let call = Call::within(Caller::DAEMON, Duration::from_millis(1));
    let given_up = fake.entries(&call, &fake.root(), &Version::None, None).await;
    assert!(matches!(given_up, Err(RemoteError::TimedOut { .. })), "{given_up:?}");
}

#[tokio::test]
async fn orders_are_limited_to_operation_path_and_times() {
    let fake = Fake::new();
    fake.file("x", "1");
    fake.file("y", "2");
    let refused = RemoteError::Denied { detail: "test".to_owned() };
    fake.order(Order::of(Fault::Error(refused)).on(Operation::Fetch).at("x").times(1));
    let (x, y) = (fake.id("x"), fake.id("y"));
    assert!(fake.attributes(&call(), &x, &Version::None).await.is_ok());
    assert!(fake.fetch(&call(), &y, &Version::None, Span::WHOLE).await.is_ok());
    assert!(fake.fetch(&call(), &x, &Version::None, Span::WHOLE).await.is_err());
    assert!(fake.fetch(&call(), &x, &Version::None, Span::WHOLE).await.is_ok());
    let counts = fake.counts();
    assert_eq!((counts.attributes, counts.fetch, counts.calls()), (1, 3, 4));
}

#[tokio::test]
async fn bodies_are_cut_changed_and_stalled_after_so_many_bytes() {
    let fake = Fake::new();
    let file = fake.file("x", "0123456789");
    let fetch = async || fake.fetch(&call(), &file, &Version::None, Span::WHOLE).await.expect("found").value.body;

    fake.order(Order::of(Fault::CutShort { after: 4 }).times(1));
    let (bytes, end) = read(fetch().await).await;
    assert_eq!(bytes, b"0123");
    assert!(matches!(end, Err(RemoteError::CutShort { .. })));

    fake.order(Order::of(Fault::ChangeUnderReader { after: 2, to: Bytes::from("new") }).times(1));
    let (bytes, end) = read(fetch().await).await;
    assert_eq!(bytes, b"01");
    assert!(matches!(end, Err(RemoteError::VersionChanged { .. })));
    assert_eq!(fake.content("x").as_deref(), Some(&b"new"[..]));

    let gate = Gate::new();
    fake.order(Order::of(Fault::Stall { after: 1, gate: gate.clone() }).times(1));
    let mut body = fetch().await;
    let first = body.stream.next().await;
    assert!(matches!(first, Some(Ok(Piece::Bytes(ref bytes))) if bytes == "n"), "{first:?}");
    let rest = tokio::spawn(read(body));
    gate.arrived(1).await;
    assert!(!rest.is_finished());
    gate.open();
    assert_eq!(rest.await.expect("the task ends").0, b"ew");
}

#[tokio::test]
async fn a_directory_brings_its_page_with_the_listing_in_the_stream() {
    let fake = Fake::new();
    fake.file("docs/index.html", "<a href=note>");
    fake.file("docs/note", "n");
    fake.page("docs", &name("index.html"));
    let found = fake.lookup(&call(), &fake.root(), &name("docs")).await.expect("answered").value.expect("there");
    let along = found.along.expect("the page comes along");
    assert_eq!(along.body.file, fake.id("docs/index.html"));
    assert_eq!(along.lists, Some(fake.id("docs")));
    let pieces: Vec<_> = along.body.stream.collect().await;
    let Some(Ok(Piece::Known(known))) = pieces.last() else { panic!("{pieces:?}") };
    assert_eq!(known.page.value.entries.len(), 2);
}

#[tokio::test]
async fn hidden_files_answer_by_name_and_changes_break_leases() {
    let fake = Fake::new();
    fake.adjust(|terms| terms.promise = Promise::Breakable(Duration::from_secs(60)));
    let file = fake.file("d/seen", "1");
    fake.file("d/unseen", "2");
    fake.hide("d/unseen");
    let listing = fake.entries(&call(), &fake.id("d"), &Version::None, None).await.expect("answered").value;
    let Listing::Page(page, None) = listing else { panic!("{listing:?}") };
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.completeness, Completeness::Partial);
    let found = fake.lookup(&call(), &fake.id("d"), &name("unseen")).await.expect("answered").value;
    assert!(found.is_some());
    let mut events = fake.events();
    fake.set("d/seen", "other");
    let broken = Event::Broken(file);
    while let Some(event) = events.next().await {
        if event == broken {
            return;
        }
    }
    panic!("the change was not told");
}
