use std::sync::atomic::{AtomicBool, Ordering};

use simple_dns::RCODE;
use weft_remote::Caller;

use super::*;
use crate::dns::tests::{Reply, a, srv};
use crate::resolver::tests::NameServer;

const SRV: &str = "_afs3-vlserver._udp.example.org";

fn cell(name: &str) -> CellName {
    CellName::new(name.as_bytes()).expect("a name")
}

fn call() -> Call {
    Call::within(Caller { uid: 1, gid: 1, pid: 1 }, Duration::from_secs(60))
}

/// A name server that knows `example.org` and no other cell, and answers while it is told to.
async fn name_server(answers: Arc<AtomicBool>) -> NameServer {
    NameServer::answering(move |question, _| {
        let reply = Reply::to(question);
        let is_known = reply.packet.questions[0].qname.to_string() == SRV;
        match (answers.load(Ordering::Relaxed), is_known) {
            (false, _) => vec![reply.failing(RCODE::ServerFailure).bytes()],
            (true, false) => vec![reply.failing(RCODE::NameError).bytes()],
            (true, true) => {
                let reply = reply.add(SRV, srv(1, 1, 7103, "db1.example.org"));
                vec![reply.along("db1.example.org", a([192, 0, 2, 1])).bytes()]
            }
        }
    })
    .await
}

/// What is remembered counts no longer.
fn forget(cells: &Cells) {
    let learnt = cells.learnt.lock();
    learnt.values().for_each(|learnt| {
        if let Some(state) = learnt.state.lock().as_mut() {
            state.until = Instant::now();
        }
    });
}

/// Goal: what DNS says is asked for once and kept; a cell stays known while DNS is silent, and what was never found is an
/// error then and not an absence.
#[tokio::test]
async fn what_dns_says_is_kept() {
    let answers = Arc::new(AtomicBool::new(true));
    let server = name_server(answers.clone()).await;
    let cells = Cells::new(Vec::new(), Some(Resolver::At(server.at)));
    let (call, example) = (call(), cell("example.org"));
    let known = tokio::join!(cells.known(&call, &example), cells.known(&call, &example), cells.known(&call, &example));
    let known = known.0.expect("found");
    assert_eq!((known.servers(), server.asked()), (vec![([192, 0, 2, 1], 7103).into()], 1), "one question");
    let (there, lasts) = cells.find(&call, &cell("example.com")).await.expect("an answer");
    assert!(there.is_none() && lasts.is_some_and(|lasts| lasts > Duration::from_secs(200)));
    let error = cells.known(&call, &cell("example.com")).await.expect_err("none");
    assert!(matches!(&error, RemoteError::NotFound { detail } if detail.contains("DNS knows none")), "{error}");
    assert_eq!(server.asked(), 3, "SRV and AFSDB, once");
    answers.store(false, Ordering::Relaxed);
    forget(&cells);
    let again = cells.known(&call, &example).await.expect("known before");
    assert!(Arc::ptr_eq(&again, &known) && cells.at_hand(&example).is_some());
    let asked = server.asked();
    for _ in 0..3 {
        assert!(matches!(cells.find(&call, &cell("example.net")).await, Err(RemoteError::Unreachable { .. })));
    }
    assert_eq!(server.asked(), asked + 2, "one attempt of two rounds");
    answers.store(true, Ordering::Relaxed);
    forget(&cells);
    assert!(cells.find(&call, &cell("example.net")).await.is_ok_and(|(there, _)| there.is_none()));
}

/// Goal: DNS is asked neither for what is written down nor for what cannot be a cell; for a cell that is written down without
/// servers it is.
#[tokio::test]
async fn dns_is_asked_where_nothing_is_written() {
    let server = name_server(Arc::new(AtomicBool::new(true))).await;
    let text = b">written.org\n192.0.2.9 #x\n>example.org\n>alone\n";
    let written: Vec<Cell> = crate::cell_server_db::CellServerDb::read(text).expect("good").cells().cloned().collect();
    let cells = Cells::new(written.clone(), Some(Resolver::At(server.at)));
    let call = call();
    assert!(cells.known(&call, &cell("written.org")).await.is_ok());
    for name in ["autorun.inf", "git", "x_y.org"] {
        assert!(cells.find(&call, &cell(name)).await.is_ok_and(|(there, lasts)| there.is_none() && lasts.is_none()));
    }
    assert!(cells.known(&call, &cell("alone")).await.is_ok_and(|known| known.servers().is_empty()));
    assert_eq!(server.asked(), 0);
    assert!(cells.known(&call, &cell("example.org")).await.is_ok_and(|known| known.servers().len() == 1));
    assert_eq!(cells.written(), [&cell("alone"), &cell("example.org"), &cell("written.org")]);
    let without = Cells::new(written, None);
    assert!(matches!(without.known(&call, &cell("example.com")).await, Err(RemoteError::NotFound { .. })));
    assert!(without.known(&call, &cell("example.org")).await.is_ok_and(|known| known.servers().is_empty()));
}

/// Goal: names that somebody makes up take no memory without bound, and cells are not forgotten for them.
#[tokio::test]
async fn names_that_are_none_are_forgotten() {
    let server = name_server(Arc::new(AtomicBool::new(true))).await;
    let cells = Cells::new(Vec::new(), Some(Resolver::At(server.at)));
    assert!(cells.known(&call(), &cell("example.org")).await.is_ok());
    for number in 0..2 * LEARNT_MAX {
        let learnt = cells.learnt_of(&cell(&format!("x{number}.org"))).expect("there is room");
        *learnt.state.lock() = Some(State { until: Instant::now() + ABSENT, outcome: Ok(None) });
    }
    assert!(cells.learnt.lock().len() <= LEARNT_MAX);
    assert!(cells.at_hand(&cell("example.org")).is_some());
}

const ABSENT: Duration = Duration::from_secs(300);
