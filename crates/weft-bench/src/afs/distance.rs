//! A long way to the cell: a node whose frames are handed on later, in both directions, as a distant one's would be.
//!
//! The node has a network of its own. Its cable ends in the network of the cell's switch, where another one goes on to the
//! switch; between the two stands a process (`weft-bench afs-distance`) that hands on every Ethernet frame half a round trip
//! after it came. So addresses and ports stay what they are, and servers can call back.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket, sockopt,
};

use super::cell::Cell;
use crate::process;

/// A distant node; it ends with this value.
#[derive(Debug)]
pub struct Distance {
    network: String,
    switch: String,
    child: Option<Child>,
}

/// What `afs-distance` takes.
#[derive(clap::Args, Debug)]
pub struct DistanceArgs {
    /// An interface of this network
    one: String,
    /// Another
    other: String,
    /// Milliseconds of a round trip
    #[arg(long)]
    round_trip: u64,
}

impl Distance {
    /// The name of the node.
    pub const NODE: &str = "far";

    /// Makes one that is so far away.
    pub fn make(cell: &Cell, round_trip_ms: u64) -> Result<Distance> {
        let (network, switch) = (cell.network(Distance::NODE), cell.network("switch"));
        let mut distance = Distance { network, switch, child: None };
        let Distance { network, switch, .. } = &distance;
        ip(&format!("netns add {network}"))?;
        ip(&format!("-n {network} link set lo up"))?;
        ip(&format!("-n {switch} link add {NEAR} type veth peer name eth0 netns {network}"))?;
        ip(&format!("-n {switch} link add {BEYOND} type veth peer name {PORT}"))?;
        ip(&format!("-n {switch} link set {PORT} master switch"))?;
        ip(&format!("-n {network} address add {ADDRESS} dev eth0"))?;
        // Whoever takes frames would get datagrams that are still in one piece, and hand them on as one long one.
        ip(&format!("-n {network} link set dev eth0 gso_max_segs 1"))?;
        ip(&format!("-n {network} link set eth0 up"))?;
        for interface in [NEAR, BEYOND, PORT] {
            ip(&format!("-n {switch} link set {interface} up"))?;
        }
        let mut command = cell.command_at("switch", &std::env::current_exe()?);
        command.args(["afs-distance", NEAR, BEYOND, "--round-trip", &round_trip_ms.to_string()]);
        distance.child = Some(command.stdin(Stdio::null()).spawn().context("afs-distance")?);
        // It stands there when the first server answers.
        let ping = "for try in $(seq 100); do \"$0\" 10.77.0.1 7000 -version >&2 && exit; done; exit 1";
        let mut command = cell.command_at(Distance::NODE, Path::new("sh"));
        process::output(command.args(["-c", ping, "rxdebug"]))?;
        Ok(distance)
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        // What was not made cannot be removed: the other ends of cables go with these.
        for command in [format!("-n {} link delete {BEYOND}", self.switch), format!("netns delete {}", self.network)] {
            let _ = ip(&command);
        }
    }
}

fn ip(words: &str) -> Result<()> {
    process::output(Command::new("ip").args(words.split(' '))).map(drop)
}

/// Hands on frames until it is ended.
pub fn run(args: &DistanceArgs) -> Result<()> {
    let (one, other) = (tap(&args.one)?, tap(&args.other)?);
    let delay = Duration::from_millis(args.round_trip) / 2;
    std::thread::scope(|scope| {
        for (from, to) in [(&one, &other), (&other, &one)] {
            let (sender, receiver) = sync_channel(FRAMES_MAX);
            scope.spawn(move || take(from, &sender, delay));
            scope.spawn(move || hand_on(to, &receiver));
        }
    });
    Ok(())
}

/// A socket that takes all frames that come to an interface, and sends whole ones there (packet(7)).
fn tap(interface: &str) -> Result<OwnedFd> {
    let addresses = nix::ifaddrs::getifaddrs().context("the interfaces of this network")?;
    let mut links = addresses.filter(|address| address.interface_name == interface);
    let link = links.find_map(|address| address.address?.as_link_addr().copied());
    let link = link.with_context(|| format!("no interface {interface}"))?;
    let tap = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)
        .with_context(|| format!("frames of {interface}"))?;
    setsockopt(&tap, sockopt::RcvBufForce, &BUFFER_BYTES)?;
    bind(tap.as_raw_fd(), &link).with_context(|| format!("frames of {interface}"))?;
    // Until then it heard all interfaces.
    let mut frame = vec![0; FRAME_BYTES_MAX];
    while recv(tap.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT).is_ok() {}
    Ok(tap)
}

fn take(from: &OwnedFd, sender: &SyncSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    loop {
        let length = match recv(from.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => length,
            Err(Errno::EINTR) => continue,
            // The cable was taken away.
            Err(_) => return,
        };
        let mut frame = buffer[..length].to_vec();
        without_udp_checksum(&mut frame);
        if sender.send((Instant::now() + delay, frame)).is_err() {
            return;
        }
    }
}

fn hand_on(to: &OwnedFd, receiver: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, frame)) = receiver.recv() {
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        // A frame that the system does not take is lost, as on any network.
        let _ = send(to.as_raw_fd(), &frame, MsgFlags::empty());
    }
}

/// Says in a UDP datagram over IPv4 that it has no checksum (RFC 768): between namespaces the system leaves it to a card that
/// is not there, so what is in the field is none.
fn without_udp_checksum(frame: &mut [u8]) {
    let is_ipv4 = frame.get(12..14) == Some(&[0x08, 0x00]);
    let Some([version, _, _, _, _, _, flags, fragment, _, protocol]) = frame.get(14..24) else { return };
    let first = (u16::from_be_bytes([*flags, *fragment]) & 0x1fff) == 0;
    let header = usize::from(version & 0x0f) * 4;
    if is_ipv4
        && first
        && *protocol == UDP
        && let Some(checksum) = frame.get_mut(14 + header + 6..14 + header + 8)
    {
        checksum.fill(0);
    }
}

/// Interfaces in the network of the switch: the node's cable, the one to the switch, and its end there.
const NEAR: &str = "far-near";
const BEYOND: &str = "far-beyond";
const PORT: &str = "far-port";
/// Of the node.
const ADDRESS: &str = "10.77.0.13/24";
/// The protocol's number in IPv4.
const UDP: u8 = 17;
/// Longest frame: one that a card would cut in pieces.
const FRAME_BYTES_MAX: usize = 65_536 + 64;
/// Frames on their way in each direction.
const FRAMES_MAX: usize = 65_536;
/// What the system keeps for a process that is late.
const BUFFER_BYTES: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of datagrams the checksum alone is changed, and nothing in any other frame, however short.
    #[test]
    fn only_checksums_are_changed() {
        let mut udp = vec![9; 60];
        udp[12..14].copy_from_slice(&[8, 0]);
        udp[14] = 0x45;
        udp[20..22].copy_from_slice(&[0x40, 0]);
        udp[23] = UDP;
        let changed = |frame: &[u8]| {
            let mut frame = frame.to_vec();
            without_udp_checksum(&mut frame);
            frame
        };
        let mut wanted = udp.clone();
        wanted[40..42].fill(0);
        assert_eq!(changed(&udp), wanted);
        for (at, value) in [(12, 6), (23, 6), (21, 1)] {
            let mut other = udp.clone();
            other[at] = value;
            assert_eq!(changed(&other), other, "byte {at}");
        }
        (0..42).for_each(|length| assert_eq!(changed(&udp[..length]), udp[..length]));
    }
}
