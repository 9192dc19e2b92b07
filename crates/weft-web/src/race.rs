//! A TCP connection to one of several addresses: the first that takes it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::connect::{ConnectError, Connecting, is_out_of_files};

/// Connects to the first of these that takes a connection, each within `limit`. One that says nothing soon does not hold up
/// the next (RFC 8305): a host may have addresses of a kind that lead nowhere from here, IPv6 above all.
///
/// # Errors
/// That of the last address, when all have failed.
pub(crate) async fn first_of(addresses: Vec<SocketAddr>, limit: Duration) -> Connecting<TcpStream> {
    let mut waiting = taking_turns(addresses).into_iter().take(ADDRESSES_MAX).enumerate();
    let mut trying = FuturesUnordered::new();
    let mut last = (0, ConnectError::NoSuchHost("the name has no address".to_owned()));
    loop {
        let begun = waiting.next();
        let more = begun.is_some();
        trying.extend(begun.map(async |(place, address)| (place, attempt(address, limit).await)));
        let next = async {
            // Without another address there is nothing that could be begun.
            if more { sleep(HEAD_START).await } else { std::future::pending().await }
        };
        tokio::pin!(next);
        loop {
            let ended = tokio::select! {
                ended = trying.next() => ended,
                () = &mut next => break,
            };
            match ended {
                Some((_, Ok(stream))) => return Ok(stream),
                Some((_, Err(error @ ConnectError::NoSocket(_)))) => return Err(error),
                Some((place, Err(error))) if place >= last.0 => last = (place, error),
                Some(_) => {}
                None => return Err(last.1),
            }
            // What has failed makes room for the next at once.
            if more {
                break;
            }
        }
    }
}

async fn attempt(address: SocketAddr, limit: Duration) -> Connecting<TcpStream> {
    match timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => {
            // Requests are small and complete; waiting to fill a segment only costs time.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(Err(e)) if is_out_of_files(&e) => Err(ConnectError::NoSocket(e.to_string())),
        Ok(Err(e)) => Err(ConnectError::Unreachable(format!("{address}: {e}"))),
        Err(_) => Err(ConnectError::TimedOut(format!("{address}: no answer to a connection"))),
    }
}

/// The addresses so that IPv6 and IPv4 take turns, else in the order of the resolver (RFC 8305 section 4).
fn taking_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_with_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut these, mut others): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == begins_with_ipv6);
    let mut ordered = Vec::with_capacity(these.len() + others.len());
    while let Some(address) = these.pop_front().or_else(|| others.pop_front()) {
        ordered.push(address);
        ordered.extend(others.pop_front());
    }
    ordered
}

/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;
/// For how long an address has the way to itself (RFC 8305 section 8).
const HEAD_START: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(text: &[&str]) -> Vec<SocketAddr> {
        text.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn kinds_of_addresses_take_turns() {
        let mixed = at(&["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1", "127.0.0.2:1"]);
        let turns = at(&["[::1]:1", "127.0.0.1:1", "[::2]:1", "127.0.0.2:1", "[::3]:1"]);
        assert_eq!(taking_turns(mixed), turns);
        let mixed = at(&["127.0.0.1:1", "[::1]:1", "[::2]:1", "[::3]:1"]);
        assert_eq!(taking_turns(mixed), at(&["127.0.0.1:1", "[::1]:1", "[::2]:1", "[::3]:1"]));
        assert_eq!(taking_turns(Vec::new()), []);
    }

    /// A listener whose queue is full: what asks to connect gets no answer, as from an address that leads nowhere.
    async fn silent() -> (SocketAddr, Vec<TcpStream>, tokio::net::TcpListener) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) = timeout(HEAD_START, TcpStream::connect(address)).await {
            queued.push(stream);
        }
        (address, queued, listener)
    }

    /// Goal: an address that does not answer holds nobody up. Method: it is never given up, so a connection comes only by way
    /// of the next one.
    #[tokio::test]
    async fn a_silent_address_does_not_hold_up_the_next() {
        let (dead, _queued, _listener) = silent().await;
        let alive = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = alive.local_addr().unwrap();
        let never = Duration::from_secs(24 * 3600);
        let stream = first_of(vec![dead, address], never).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn the_error_is_that_of_the_last_address() {
        let refused = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let (dead, _queued, _listener) = silent().await;
        let limit = HEAD_START * 2;
        let error = first_of(vec![dead, refused], limit).await.unwrap_err();
        assert!(matches!(&error, ConnectError::Unreachable(why) if why.contains(&refused.to_string())), "{error:?}");
        let error = first_of(vec![refused, dead], limit).await.unwrap_err();
        assert!(matches!(&error, ConnectError::TimedOut(_)), "{error:?}");
        assert!(matches!(first_of(Vec::new(), limit).await, Err(ConnectError::NoSuchHost(_))));
    }
}
