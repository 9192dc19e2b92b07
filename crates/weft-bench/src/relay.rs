//! A long way: a relay that hands on every byte later, in both directions, as a distant host would be.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::server::Site;

/// A relay on a port of 127.0.0.1; it ends with this value, and so do its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

/// How far away the other side is.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// From a request to the first byte of its answer, beside what the server takes; also that of a connection.
    pub round_trip: Duration,
    /// Bytes that a connection may have on their way in each direction.
    pub in_flight: usize,
}

/// What `relay` takes.
#[derive(clap::Args, Debug)]
pub struct RelayArgs {
    /// Port of 127.0.0.1 that the server listens at
    port: u16,
    /// Milliseconds of a round trip
    #[arg(long, default_value_t = 20)]
    round_trip: u64,
    /// KiB that a connection may have on their way
    #[arg(long, default_value_t = 16384)]
    in_flight: usize,
}

/// Relays until it is ended.
pub fn run(args: &RelayArgs) -> Result<()> {
    let round_trip = Duration::from_millis(args.round_trip);
    let relay = Relay::start(Site::at_port(args.port), Distance { round_trip, in_flight: args.in_flight << 10 })?;
    println!("{}", relay.site().authority());
    loop {
        std::thread::park();
    }
}

impl Relay {
    /// Stands before a site.
    pub fn start(site: Site, distance: Distance) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").context("the relay")?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let accepting = std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                // A connection that cannot be handed on is closed, which its client sees.
                let _ = connect(near, site, distance);
            }
        });
        Ok(Relay { address, over, accepting: Some(accepting) })
    }

    /// The site as it is reached through the relay.
    pub fn site(&self) -> Site {
        Site::at_port(self.address.port())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts; where that fails it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn connect(near: TcpStream, site: Site, distance: Distance) -> Result<()> {
    let far = TcpStream::connect(site.authority())?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    // A connection of its own costs a round trip before its first byte.
    let opening = Instant::now() + distance.round_trip;
    pass(near.try_clone()?, far.try_clone()?, distance, opening);
    pass(far, near, distance, opening);
    Ok(())
}

/// Hands on one direction: each byte half a round trip after it came.
fn pass(mut from: TcpStream, to: TcpStream, distance: Distance, opening: Instant) {
    let delay = distance.round_trip / 2;
    let (sender, receiver) = sync_channel(distance.in_flight.div_ceil(CHUNK_BYTES).max(1));
    std::thread::spawn(move || read(&mut from, &sender, delay, opening));
    std::thread::spawn(move || write(to, &receiver));
}

fn read(from: &mut TcpStream, sender: &SyncSender<(Instant, Vec<u8>)>, delay: Duration, opening: Instant) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        let due = Instant::now().max(opening) + delay;
        if sender.send((due, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn write(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = receiver.recv() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may have gone first.
    let _ = to.shutdown(Shutdown::Write);
}

/// Bytes handed on at once.
const CHUNK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_whole_and_not_before_their_time() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Site::at_port(server.local_addr().unwrap().port());
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&vec![7; 300_000]).unwrap();
        });
        let distance = Distance { round_trip: Duration::from_millis(40), in_flight: 128 << 10 };
        let relay = Relay::start(site, distance).unwrap();
        let start = Instant::now();
        let mut stream = TcpStream::connect(relay.site().authority()).unwrap();
        stream.write_all(b"send").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer == vec![7; 300_000]);
        assert!(start.elapsed() >= Duration::from_millis(80), "a connection and a request: two round trips");
        answering.join().unwrap();
    }
}
