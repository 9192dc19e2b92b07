//! Who goes on with a socket of another.

use std::net::{Ipv4Addr, UdpSocket};

use tokio::sync::Semaphore;
use weft_remote::MemoryNotes;

use super::*;

/// The service that is asked, and what is answered.
const SERVICE: u16 = 1;
const BY_FORMER: &[u8] = b"by the former";
const BY_NEXT: &[u8] = b"by the next";

fn transport(socket: UdpSocket, seed: u8, answering: Answering) -> Transport {
    let config = Config { services: [SERVICE].into(), ..Config::default() };
    let heritage = Heritage::of(Arc::new(MemoryNotes::default()));
    Transport::open([seed; 32], Socket::on(socket).expect("a socket"), config, answering, heritage)
}

fn bound() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")
}

/// Goal: what has come before a process leaves its socket to another is answered by it, and what comes after that by the other,
/// also what came while there was neither. Method: an answer that takes until the test lets it.
#[tokio::test]
async fn a_call_is_answered_by_the_former_or_by_the_next() {
    let socket = bound();
    let kept = socket.try_clone().expect("a descriptor");
    let to = socket.local_addr().expect("bound");
    let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, ends) = (begun.clone(), may_end.clone());
    let slowly: Answering = Box::new(move |_, _| {
        let (begins, ends) = (begins.clone(), ends.clone());
        Box::pin(async move {
            begins.add_permits(1);
            ends.acquire().await.expect("open").forget();
            Ok(BY_FORMER.to_vec())
        })
    });
    let former = transport(socket, 1, slowly);
    let server = Arc::new(transport(bound(), 2, Box::new(|_, _| Box::pin(async { Err(-1) }))));
    let asks = || {
        let server = server.clone();
        tokio::spawn(async move {
            let mut nothing_more = std::iter::empty();
            server.call((to, SERVICE), None, b"a question", &mut nothing_more, 100).await
        })
    };
    let first = asks();
    begun.acquire().await.expect("open").forget();
    {
        let mut rest = pin!(former.rest());
        tokio::select! {
            biased;
            () = &mut rest => panic!("a call is not answered"),
            () = std::future::ready(()) => {}
        }
        may_end.add_permits(1);
        rest.await;
    }
    assert_eq!(first.await.expect("no panic").expect("an answer"), BY_FORMER);
    let second = asks();
    let mut bytes = [0; 1500];
    // It has come, and lies there.
    let peek = || kept.peek_from(&mut bytes).is_ok();
    wait_for(peek).await;
    drop(former);
    assert!(!second.is_finished());
    let _next = transport(kept, 3, Box::new(|_, _| Box::pin(async { Ok(BY_NEXT.to_vec()) })));
    assert_eq!(second.await.expect("no panic").expect("an answer"), BY_NEXT);
}

async fn wait_for(mut has_come: impl FnMut() -> bool) {
    while !has_come() {
        tokio::task::yield_now().await;
    }
}
