//! Asking DNS: the name servers of this machine, one after the other, over UDP, and over TCP where an answer does not fit.
//!
//! Each question has a socket of its own on a port that the system chooses, and a random number; what comes from another
//! address, or is no answer to it, is passed over. Nothing is remembered here.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout_at;

use crate::dns::{Answer, Found, Kind, question, read};

/// Which name servers are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resolver {
    /// Those of `/etc/resolv.conf`, as it is then.
    #[default]
    System,
    /// This one alone.
    At(SocketAddr),
}

impl Resolver {
    /// Asks for the records of a name, with as many dots as it has: nothing is added to it. `None` when there is no such name.
    ///
    /// # Errors
    /// What kept the last server from answering.
    pub(crate) async fn ask(&self, name: &str, kind: Kind, until: Instant) -> Result<Option<Found>, String> {
        let servers = self.servers().await?;
        let mut last = "/etc/resolv.conf names no name server".to_owned();
        for server in std::iter::repeat_n(&servers, ROUNDS).flatten() {
            let patience = until.min(Instant::now() + SERVER_PATIENCE);
            let answer = match timeout_at(patience.into(), ask(*server, name, kind)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => Answer::Useless(error),
                Err(_) => Answer::Useless("no answer".to_owned()),
            };
            match answer {
                Answer::Found(found) => return Ok(Some(found)),
                Answer::NoSuchName => return Ok(None),
                Answer::Useless(why) => last = format!("name server {server}: {why}"),
                Answer::Cut | Answer::NotOurs => last = format!("name server {server}: an answer that is none"),
            }
            tracing::debug!(name, ?kind, "{last}");
            if Instant::now() >= until {
                break;
            }
        }
        Err(last)
    }

    async fn servers(&self) -> Result<Vec<SocketAddr>, String> {
        match self {
            Resolver::At(server) => Ok(vec![*server]),
            Resolver::System => {
                let read = tokio::task::spawn_blocking(|| std::fs::read(Path::new(RESOLV_CONF))).await;
                let text = read.map_err(|error| error.to_string())?;
                let text = text.map_err(|error| format!("{RESOLV_CONF}: {error}"))?;
                Ok(name_servers(&String::from_utf8_lossy(&text)))
            }
        }
    }
}

/// The servers that resolv.conf(5) names.
fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = (words.next() == Some("nameserver")).then(|| words.next()).flatten()?;
        Some(SocketAddr::from((address.parse::<IpAddr>().ok()?, PORT)))
    };
    text.lines().filter_map(server).take(SERVERS_MAX).collect()
}

/// Asks one server.
async fn ask(server: SocketAddr, name: &str, kind: Kind) -> Result<Answer, String> {
    let id = random()?;
    let question = question(id, name, kind)?;
    let said = |error: std::io::Error| error.to_string();
    let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).await.map_err(said)?;
    // From then on the system passes over what comes from elsewhere.
    socket.connect(server).await.map_err(said)?;
    socket.send(&question).await.map_err(said)?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(said)?;
        match read(&buffer[..length], (id, name, kind)) {
            Answer::NotOurs => {}
            Answer::Cut => break,
            answer => return Ok(answer),
        }
    }
    let mut stream = TcpStream::connect(server).await.map_err(said)?;
    let length = u16::try_from(question.len()).expect("a name and a few bytes");
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await.map_err(said)?;
    let length = stream.read_u16().await.map_err(said)?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await.map_err(said)?;
    Ok(read(&answer, (id, name, kind)))
}

fn random() -> Result<u16, String> {
    let mut bytes = [0; 2];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(2) => Ok(u16::from_be_bytes(bytes)),
        Ok(_) => Err("too few random bytes".to_owned()),
        Err(errno) => Err(errno.to_string()),
    }
}

/// Where the machine's name servers are written down.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The port of name servers.
const PORT: u16 = 53;
/// Most servers that are asked, as resolv.conf(5) has it, and how often each of them.
const SERVERS_MAX: usize = 3;
const ROUNDS: usize = 2;
/// How long one of them may take.
const SERVER_PATIENCE: Duration = Duration::from_millis(1500);
/// Longest datagram that is read; none is longer than 512 bytes without being asked to.
const DATAGRAM_BYTES_MAX: usize = 4096;

#[cfg(test)]
#[path = "resolver_tests.rs"]
pub(crate) mod tests;
