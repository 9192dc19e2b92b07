//! Somebody who calls a client as a file server would, from wherever.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weft_afs::wire::callback;
use weft_rx::{CallError, Config, Endpoint, Event, Read, Security};

use crate::network::Network;

/// Makes one call of the callback service from a socket in `network`. The reply, or how the call failed.
pub async fn calls(network: &Network, client: SocketAddr, request: Vec<u8>) -> Result<Vec<u8>, CallError> {
    network.run(move || converse(client, &request)).await
}

fn converse(client: SocketAddr, request: &[u8]) -> Result<Vec<u8>, CallError> {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let mut endpoint = Endpoint::new(Config::default(), [7; 32]);
    let route = endpoint.route(client, callback::SERVICE, Security::None);
    let call = endpoint.call(Instant::now(), route);
    let taken = endpoint.write(Instant::now(), call, request).expect("the call has just begun");
    assert_eq!(taken, request.len(), "a request of one packet");
    endpoint.finish(Instant::now(), call);
    let (mut reply, mut buffer) = (Vec::new(), [0; 2048]);
    loop {
        while let Some(transmit) = endpoint.poll_transmit(Instant::now()) {
            socket.send_to(&transmit.payload, transmit.to).expect("sent");
        }
        while let Some(event) = endpoint.poll_event() {
            if let Event::Ended(_, Err(error)) = event {
                return Err(error);
            }
        }
        match endpoint.read(Instant::now(), call, buffer.len())? {
            Read::Bytes(bytes) => reply.extend_from_slice(&bytes),
            Read::End => return Ok(reply),
            Read::Blocked => {
                let until = endpoint.poll_timeout().expect("a call under way has a time");
                let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                socket.set_read_timeout(Some(left)).expect("not zero");
                match socket.recv_from(&mut buffer) {
                    Ok((length, from)) => endpoint.handle_datagram(Instant::now(), from, &buffer[..length]),
                    Err(_) => endpoint.handle_timeout(Instant::now()),
                }
            }
        }
    }
}
