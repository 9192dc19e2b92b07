//! A UDP socket that gives many datagrams to the system at once, and takes many from it.

use std::io::{ErrorKind, IoSliceMut, Result};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, set_ip_mtu_discover, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket on a port that the system has chosen, now or for an earlier one, or an earlier one itself.
pub(crate) struct Socket {
    /// Not the runtime's own, which has its thread woken whenever something that was sent has left.
    io: AsyncFd<UdpSocket>,
    offload: UdpSocketState,
}

/// Datagrams to one place that go together: all are as long as the first, but for the last, which may be shorter
/// (udp(7), `UDP_SEGMENT`).
#[derive(Debug, Default)]
pub(crate) struct Train {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    /// How long each is.
    each: usize,
    count: usize,
    /// The last one is shorter.
    is_closed: bool,
}

/// Room for datagrams that come together.
pub(crate) struct Arrivals {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH],
}

impl Socket {
    /// Opens it, on `former` port if that is free. Within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(former: Option<u16>) -> Result<Socket> {
        let bind = |port: u16| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
        Socket::on(former.map(bind).and_then(Result::ok).map_or_else(|| bind(0), Ok)?)
    }

    /// Goes on with one that there is, and with what has come to it. Within a runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn on(io: UdpSocket) -> Result<Socket> {
        io.set_nonblocking(true)?;
        let offload = UdpSocketState::new(UdpSockRef::from(&io))?;
        // Long proofs of who calls go in fragments, which the library forbids: as sockets have it by themselves (ip(7)).
        set_ip_mtu_discover(&io, Ipv4PathMtuDiscovery::WANT)?;
        // What comes while nobody looks is lost beyond this. More than the system's limit takes a right.
        if set_socket_recv_buffer_size_force(&io, QUEUE_BYTES).is_err() {
            set_socket_recv_buffer_size(&io, QUEUE_BYTES)?;
        }
        #[expect(
            deprecated,
            reason = "the other way is unsafe, for descriptors that change; that of a socket does not"
        )]
        let io = AsyncFd::with_interest(io, Interest::READABLE)?;
        Ok(Socket { io, offload })
    }

    /// Sends all that `next` gives, without waiting: what the system does not take is as lost on the way.
    pub fn send_all(&self, train: &mut Train, mut next: impl FnMut() -> Option<(SocketAddr, Vec<u8>)>) {
        while let Some((to, payload)) = next() {
            if !train.takes(to, payload.len(), self.offload.max_gso_segments()) {
                self.send(train);
            }
            train.add(to, &payload);
        }
        self.send(train);
    }

    fn send(&self, train: &mut Train) {
        let Some(to) = train.to else { return };
        if train.count > 1 && self.give(to, &train.bytes, Some(train.each)).is_ok() {
            return train.clear();
        }
        // Alone, or what the system does not take together: a way takes only shorter ones than these.
        for datagram in train.bytes.chunks(train.each.max(1)) {
            if let Err(error) = self.give(to, datagram, None) {
                tracing::trace!(%error, %to, "a datagram was not sent");
            }
        }
        train.clear();
    }

    fn give(&self, destination: SocketAddr, contents: &[u8], segment_size: Option<usize>) -> Result<()> {
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        self.offload.try_send(UdpSockRef::from(self.io.get_ref()), &transmit)
    }

    /// Waits until something has come, and takes as much of it as there is room for.
    ///
    /// # Errors
    /// What the system says when it is asked to wait.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn receive<'a>(&self, into: &'a mut Arrivals) -> Result<impl Iterator<Item = (SocketAddr, &'a [u8])>> {
        let Arrivals { bytes, metas } = into;
        let mut ready = self.io.readable().await?;
        let mut rooms: Vec<IoSliceMut<'_>> = bytes.chunks_exact_mut(ROOM_BYTES).map(IoSliceMut::new).collect();
        let received = self.offload.recv(UdpSockRef::from(self.io.get_ref()), &mut rooms, metas);
        let count = received.unwrap_or_else(|error| {
            if error.kind() == ErrorKind::WouldBlock {
                // What comes from now on is told anew. That fewer came than there is room for does not say that it was all:
                // an error ends it too, and is told by the next call (recvmmsg(2)).
                ready.clear_ready();
            } else {
                // An answer of ICMP to something sent before: the protocol finds out by itself who is silent.
                tracing::trace!(%error, "a datagram was not received");
            }
            0
        });
        let rooms = bytes.chunks_exact(ROOM_BYTES).zip(&*metas).take(count);
        Ok(rooms.flat_map(|(room, meta)| {
            // An empty datagram is of no use to anybody.
            let datagrams = room[..meta.len.min(ROOM_BYTES)].chunks(meta.stride.max(1));
            datagrams.map(|datagram| (meta.addr, datagram))
        }))
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.io.get_ref().as_fd()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.io.get_ref().local_addr().expect("it is bound").port()
    }
}

impl Train {
    fn takes(&self, to: SocketAddr, length: usize, count_max: usize) -> bool {
        self.to.is_none()
            || (self.to == Some(to)
                && !self.is_closed
                && length <= self.each
                && self.count < count_max
                && self.bytes.len() + length <= TRAIN_BYTES_MAX)
    }

    fn add(&mut self, to: SocketAddr, payload: &[u8]) {
        if self.to.is_none() {
            (self.to, self.each) = (Some(to), payload.len());
        }
        self.is_closed = payload.len() < self.each;
        self.bytes.extend_from_slice(payload);
        self.count += 1;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        *self = Train { bytes: std::mem::take(&mut self.bytes), ..Train::default() };
    }
}

impl Arrivals {
    pub fn new() -> Arrivals {
        Arrivals { bytes: vec![0; BATCH * ROOM_BYTES], metas: [RecvMeta::default(); BATCH] }
    }
}

/// Rooms for what comes: each takes one datagram, or several that the system has put together. What is not used of them is
/// no memory.
const BATCH: usize = 16;
/// Room of the system for what comes: a system counts more than 2 KiB for a datagram, and a hundred of them are on their way
/// for a few files.
const QUEUE_BYTES: usize = 1 << 20;
/// Longest datagram of IPv4, and most that the system puts together.
const ROOM_BYTES: usize = 65_535;
/// Most bytes that go together: with their headers less than the longest datagram.
const TRAIN_BYTES_MAX: usize = 60_000;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// All that comes until there are as many datagrams.
    async fn received(socket: &Socket, wanted: usize) -> Vec<Vec<u8>> {
        let (mut arrivals, mut all) = (Arrivals::new(), Vec::new());
        while all.len() < wanted {
            let came = socket.receive(&mut arrivals).await.expect("a socket");
            all.extend(came.map(|(_, datagram)| datagram.to_vec()));
        }
        all
    }

    fn at(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// Goal: each datagram arrives as it was sent, whatever went together with it. Method: rows of all kinds of lengths, to two
    /// places in turn.
    #[tokio::test]
    async fn datagrams_keep_their_bounds() {
        let (from, one, two) = (Socket::open(None).unwrap(), Socket::open(None).unwrap(), Socket::open(None).unwrap());
        let lengths = [1440, 1440, 1440, 1440, 30, 1440, 65, 65, 65, 1440, 1441, 12_100, 1, 1440];
        let datagram = |number: usize| vec![u8::try_from(number).unwrap(); lengths[number]];
        let mut train = Train::default();
        let mut sent: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
        for to in [one.port(), two.port(), one.port()] {
            sent.extend((0..lengths.len()).map(|number| (at(to), datagram(number))));
        }
        let mut rows = sent.into_iter();
        from.send_all(&mut train, || rows.next());
        assert!(train.to.is_none() && train.bytes.is_empty());
        let wanted: Vec<Vec<u8>> = (0..lengths.len()).map(datagram).collect();
        assert_eq!(received(&one, 2 * lengths.len()).await, [&wanted[..], &wanted[..]].concat());
        assert_eq!(received(&two, lengths.len()).await, wanted);
    }

    /// Goal: nothing is lost of what the system does not take together. Method: more than it takes.
    #[tokio::test]
    async fn what_cannot_go_together_goes_one_by_one() {
        let (from, to) = (Socket::open(None).unwrap(), Socket::open(None).unwrap());
        let mut train = Train::default();
        (0..=200).for_each(|number| train.add(at(to.port()), &[number; 50]));
        from.send(&mut train);
        let wanted: Vec<Vec<u8>> = (0..=200).map(|number| vec![number; 50]).collect();
        assert_eq!(received(&to, wanted.len()).await, wanted);
        assert_eq!(from.offload.max_gso_segments(), 1, "and it is not tried again");
    }

    /// Goal: what is alike goes together, and no more than the system takes.
    #[test]
    fn a_train_has_one_place_and_one_length() {
        let mut train = Train::default();
        assert!(train.takes(at(1), 1440, 1));
        train.add(at(1), &[0; 1440]);
        assert!(train.takes(at(1), 1440, 64) && train.takes(at(1), 7, 64));
        assert!(!train.takes(at(2), 1440, 64) && !train.takes(at(1), 1441, 64) && !train.takes(at(1), 1440, 1));
        train.add(at(1), &[0; 7]);
        assert!(!train.takes(at(1), 7, 64), "only the last one is shorter");
        train.clear();
        (0..TRAIN_BYTES_MAX / 1440).for_each(|_| train.add(at(1), &[0; 1440]));
        assert!(!train.takes(at(1), 1440, 64));
    }

    /// Goal: what is longer than the way takes goes in fragments.
    #[tokio::test]
    async fn fragments_are_allowed() {
        let socket = Socket::open(None).unwrap();
        let told = rustix::net::sockopt::ip_mtu_discover(socket.io.get_ref()).unwrap();
        assert!([Ipv4PathMtuDiscovery::WANT, Ipv4PathMtuDiscovery::DONT].contains(&told), "{told:?}");
        let ports: HashSet<u16> = [socket.port(), Socket::open(None).unwrap().port()].into();
        assert!(ports.len() == 2 && !ports.contains(&0));
    }
}
