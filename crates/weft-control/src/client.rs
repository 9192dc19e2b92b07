//! The client half: one request at a time, synchronous.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::protocol::{Outcome, Reply, Request, Response, Verb};
use crate::stream::BEAT;
use crate::{
    CacheReport, Checked, ControlError, Covered, Depth, Eviction, Grouped, Hello, LINE_BYTES_MAX, Measures, NameInfo,
    OfPinned, PROTOCOL_VERSION, PathBytes, Reloaded, Removed, Status, WarmOrder, Warmed, Watched, Why,
};

/// A connection to one daemon. Errors of every call: `Refused` when the daemon says no, `Io` when it cannot be
/// talked to or takes too long, `Protocol` when it answers something else.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
}

/// A daemon whose mount has been taken away.
#[derive(Debug)]
pub struct Ending {
    client: Client,
    /// `None`: it had ended already.
    process: Option<OwnedFd>,
}

impl Ending {
    /// Waits for its end, for so long at most; whether it has come.
    ///
    /// # Errors
    /// `Io`.
    pub fn within(&self, patience: Duration) -> Result<bool, ControlError> {
        self.client.end_of(self.process.as_ref(), patience)
    }
}

impl Client {
    /// Connects to the daemon's socket.
    ///
    /// # Errors
    /// `Io` when nobody listens there.
    pub fn connect(socket: &Path) -> Result<Client, ControlError> {
        let stream = connect(socket).map_err(|error| ControlError::io(socket)(error.into()))?;
        Ok(Client { socket: socket.to_owned(), stream: BufReader::new(stream) })
    }

    /// The user whose process listens at the other end.
    ///
    /// # Errors
    /// `Io` when the system does not tell.
    pub fn daemon_uid(&self) -> Result<u32, ControlError> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref());
        peer.map(|peer| peer.uid.as_raw()).map_err(|error| ControlError::io(&self.socket)(error.into()))
    }

    /// Who this is.
    ///
    /// # Errors
    /// As for every call.
    pub fn hello(&mut self) -> Result<Hello, ControlError> {
        self.greet()?;
        self.greeted(SHORT)
    }

    /// Asks who this is, for [`Client::greeted`].
    pub(crate) fn greet(&mut self) -> Result<(), ControlError> {
        self.send(Verb::Hello)
    }

    /// Who this has said it is.
    pub(crate) fn greeted(&mut self, patience: Duration) -> Result<Hello, ControlError> {
        match self.answer_within(patience)? {
            Reply::Hello(hello) => Ok(hello),
            other => Err(unexpected(&other)),
        }
    }

    /// How things are.
    ///
    /// # Errors
    /// As for every call.
    pub fn status(&mut self) -> Result<Status, ControlError> {
        match self.ask(Verb::Status, MIDDLE)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// The names known in a directory; at most [`Client::NAMES_MAX`].
    ///
    /// # Errors
    /// As for every call.
    pub fn names(&mut self, path: &[u8]) -> Result<Vec<NameInfo>, ControlError> {
        let mut reply = self.ask(Verb::Names { path: path.into() }, MIDDLE)?;
        let mut all = Vec::new();
        loop {
            match reply {
                Reply::Names { names, more } => {
                    all.extend(names);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected(&other)),
            }
            if all.len() > Client::NAMES_MAX {
                return Err(ControlError::Protocol { why: format!("more than {} names", Client::NAMES_MAX) });
            }
            reply = self.receive()?;
        }
    }

    /// Drops content from the cache.
    ///
    /// # Errors
    /// As for every call.
    pub fn remove(&mut self, path: &[u8], depth: Depth, of_pinned: OfPinned) -> Result<Removed, ControlError> {
        match self.ask(Verb::Remove { path: path.into(), depth, of_pinned }, LONG)? {
            Reply::Removed(removed) => Ok(removed),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks the source now.
    ///
    /// # Errors
    /// As for every call.
    pub fn reload(&mut self, path: &[u8], depth: Depth) -> Result<Reloaded, ControlError> {
        match self.ask(Verb::Reload { path: path.into(), depth }, LONG)? {
            Reply::Reloaded(reloaded) => Ok(reloaded),
            other => Err(unexpected(&other)),
        }
    }

    /// What there is to know about a file.
    ///
    /// # Errors
    /// As for every call.
    pub fn why(&mut self, path: &[u8]) -> Result<Why, ControlError> {
        match self.ask(Verb::Why { path: PathBytes::from(path) }, MIDDLE)? {
            Reply::Why(why) => Ok(why),
            other => Err(unexpected(&other)),
        }
    }

    /// Has everything below a path ask no remote.
    ///
    /// # Errors
    /// As for every call.
    pub fn take_offline(&mut self, path: &[u8], fetch_only: bool) -> Result<(), ControlError> {
        match self.ask(Verb::Offline { path: path.into(), fetch_only }, MIDDLE)? {
            Reply::Offline => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends that.
    ///
    /// # Errors
    /// As for every call.
    pub fn bring_online(&mut self, path: &[u8]) -> Result<(), ControlError> {
        match self.ask(Verb::Online { path: path.into() }, MIDDLE)? {
            Reply::Online => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything that is counted.
    ///
    /// # Errors
    /// As for every call.
    pub fn stats(&mut self) -> Result<Measures, ControlError> {
        match self.ask(Verb::Stats, MIDDLE)? {
            Reply::Stats(measures) => Ok(*measures),
            other => Err(unexpected(&other)),
        }
    }

    /// Has what is at and below a path never evicted.
    ///
    /// # Errors
    /// As for every call.
    pub fn pin(&mut self, path: &[u8]) -> Result<Covered, ControlError> {
        match self.ask(Verb::Pin { path: path.into() }, LONG)? {
            Reply::Pinned(covered) => Ok(covered),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends that.
    ///
    /// # Errors
    /// As for every call.
    pub fn unpin(&mut self, path: &[u8]) -> Result<Covered, ControlError> {
        match self.ask(Verb::Unpin { path: path.into() }, LONG)? {
            Reply::Unpinned(covered) => Ok(covered),
            other => Err(unexpected(&other)),
        }
    }

    /// Who uses what of the cache.
    ///
    /// # Errors
    /// As for every call.
    pub fn cache(&mut self, path: &[u8]) -> Result<CacheReport, ControlError> {
        match self.ask(Verb::Cache { path: path.into() }, LONG)? {
            Reply::Cache(report) => Ok(*report),
            other => Err(unexpected(&other)),
        }
    }

    /// Tells which files are read together. `groups` fit into a request ([`Client::GROUP_BYTES_MAX`]).
    ///
    /// # Errors
    /// As for every call.
    pub fn group(&mut self, groups: Vec<Vec<PathBytes>>, linked: bool) -> Result<Grouped, ControlError> {
        match self.ask(Verb::Group { groups, linked }, LONG)? {
            Reply::Grouped(grouped) => Ok(grouped),
            other => Err(unexpected(&other)),
        }
    }

    /// The newest evictions, oldest first; fewer than `limit` where they would not fit into one answer.
    ///
    /// # Errors
    /// As for every call.
    pub fn evictions(&mut self, limit: usize) -> Result<Vec<Eviction>, ControlError> {
        match self.ask(Verb::Evictions { limit }, MIDDLE)? {
            Reply::Evictions(evictions) => Ok(evictions),
            other => Err(unexpected(&other)),
        }
    }

    /// The changes that are found at and below a path, from now on: when this returns, none is missed.
    ///
    /// # Errors
    /// As for every call.
    pub fn watch(self, path: &[u8], validate_every: Option<Duration>) -> Result<Watching, ControlError> {
        let validate_every_ms = validate_every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX));
        let take = |reply| match reply {
            Reply::Watched(watched) => Ok(watched),
            other => Err(unexpected(&other)),
        };
        self.stream(Verb::Watch { path: path.into(), validate_every_ms }, take)
    }

    /// Has trees fetched ahead, and tells what happens; dropping the stream ends the work.
    ///
    /// # Errors
    /// As for every call.
    pub fn warm(mut self, mut order: WarmOrder) -> Result<Warmth, ControlError> {
        let mut paths = std::mem::take(&mut order.paths).into_iter().peekable();
        while paths.peek().is_some() {
            // In JSON a byte takes at most six.
            let mut left = LINE_BYTES_MAX / 8;
            let mut some = Vec::new();
            while let Some(path) = paths.next_if(|path| some.is_empty() || path.0.len() + 4 <= left) {
                left = left.saturating_sub(path.0.len() + 4);
                some.push(path);
            }
            match self.ask(Verb::Paths { paths: some }, MIDDLE)? {
                Reply::Taken => {}
                other => return Err(unexpected(&other)),
            }
        }
        let take = |reply| match reply {
            Reply::Warmed(warmed) => Ok(warmed),
            other => Err(unexpected(&other)),
        };
        self.stream(Verb::Warm(order), take)
    }

    /// Has everything that the cache holds read and compared; with `repair` what is damaged is given up.
    ///
    /// # Errors
    /// As for every call; the stream's own are its items.
    pub fn check(self, repair: bool) -> Result<Checking, ControlError> {
        let take = |reply| match reply {
            Reply::Checked(checked) => Ok(checked),
            other => Err(unexpected(&other)),
        };
        self.stream(Verb::Check { repair }, take)
    }

    /// Asks for a stream and waits until it has begun.
    pub(crate) fn stream<T>(mut self, verb: Verb, take: Take<T>) -> Result<Streamed<T>, ControlError> {
        match self.ask(verb, STREAM_PATIENCE)? {
            Reply::Beat => Ok(Streamed { client: self, take, over: false }),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes the mount away. The daemon lives on for as long as something of it is in use.
    ///
    /// # Errors
    /// As for every call.
    pub fn unmount(mut self, lazy: bool) -> Result<Ending, ControlError> {
        let process = self.process()?;
        match self.ask(Verb::Unmount { lazy }, MIDDLE)? {
            Reply::Unmounted => Ok(Ending { client: self, process }),
            other => Err(unexpected(&other)),
        }
    }

    /// Has another daemon take the mount over and waits until this one has ended.
    ///
    /// # Errors
    /// As for every call; `Io` also when the daemon has not ended in time.
    pub fn replace(&mut self) -> Result<(), ControlError> {
        let daemon = self.process()?;
        match self.ask(Verb::Replace, MIDDLE)? {
            Reply::Replaced if self.end_of(daemon.as_ref(), MIDDLE)? => Ok(()),
            Reply::Replaced => Err(ControlError::io(&self.socket)(std::io::ErrorKind::TimedOut.into())),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for the end of a process; whether it came in time.
    fn end_of(&self, process: Option<&OwnedFd>, patience: Duration) -> Result<bool, ControlError> {
        let Some(process) = process else { return Ok(true) };
        // A process descriptor becomes readable when the process ends (pidfd_open(2)).
        let mut end = [PollFd::new(process, PollFlags::IN)];
        let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut end, Some(&patience)) {
            Ok(ready) => Ok(ready > 0),
            Err(error) => Err(ControlError::io(&self.socket)(error.into())),
        }
    }

    /// A descriptor of the process at the other end; none when it has ended already.
    fn process(&self) -> Result<Option<OwnedFd>, ControlError> {
        let io = |error: rustix::io::Errno| ControlError::io(&self.socket)(error.into());
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref()).map_err(io)?;
        match rustix::process::pidfd_open(peer.pid, rustix::process::PidfdFlags::empty()) {
            Ok(process) => Ok(Some(process)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(io(error)),
        }
    }

    /// Most bytes of paths in one call of [`Client::group`]: in JSON a byte takes at most six.
    pub const GROUP_BYTES_MAX: usize = LINE_BYTES_MAX / 8;
    /// Most names that one listing may bring.
    pub const NAMES_MAX: usize = 2_000_000;

    pub(crate) fn ask(&mut self, verb: Verb, patience: Duration) -> Result<Reply, ControlError> {
        self.send(verb)?;
        self.answer_within(patience)
    }

    fn send(&mut self, verb: Verb) -> Result<(), ControlError> {
        let request = Request { v: PROTOCOL_VERSION, verb };
        let mut line = serde_json::to_vec(&request).expect("a request is plain data");
        line.push(b'\n');
        if line.len() > LINE_BYTES_MAX {
            return Err(ControlError::Protocol { why: "the request is too long".to_owned() });
        }
        self.stream.get_mut().write_all(&line).map_err(|error| ControlError::io(&self.socket)(error))
    }

    fn answer_within(&mut self, patience: Duration) -> Result<Reply, ControlError> {
        // Zero would be for ever.
        let patience = patience.max(Duration::from_millis(1));
        self.stream.get_ref().set_read_timeout(Some(patience)).map_err(ControlError::io(&self.socket))?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Reply, ControlError> {
        let mut line = Vec::new();
        let mut limited = (&mut self.stream).take(LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut line).map_err(ControlError::io(&self.socket))?;
        let broken = |why: String| ControlError::Protocol { why };
        if line.last() != Some(&b'\n') {
            let is_cut = line.len() < LINE_BYTES_MAX;
            return Err(if is_cut { ControlError::Ended } else { broken("a line is too long".to_owned()) });
        }
        let response: Response = serde_json::from_slice(&line).map_err(|error| broken(error.to_string()))?;
        match response.outcome {
            Outcome::Ok(reply) if response.v == PROTOCOL_VERSION => Ok(reply),
            Outcome::Ok(_) => Err(broken(format!("it speaks version {} of the protocol", response.v))),
            Outcome::Error(refusal) => Err(ControlError::Refused(refusal)),
        }
    }
}

/// The lines of a stream as they come. `None` when the daemon has ended it. After an error there is nothing more.
pub struct Streamed<T> {
    client: Client,
    take: Take<T>,
    over: bool,
}

/// The lines of `weft watch`.
pub type Watching = Streamed<Watched>;

/// The lines of `weft cache check`.
pub type Checking = Streamed<Checked>;

/// The lines of `weft warm`.
pub type Warmth = Streamed<Warmed>;

/// What a reply in a stream is.
pub(crate) type Take<T> = fn(Reply) -> Result<T, ControlError>;

impl<T> Iterator for Streamed<T> {
    type Item = Result<T, ControlError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            let line = match self.client.receive() {
                Ok(Reply::Beat) => continue,
                Ok(Reply::End) => {
                    self.over = true;
                    return None;
                }
                Ok(reply) => (self.take)(reply),
                Err(error) => Err(error),
            };
            self.over = line.is_err();
            return Some(line);
        }
        None
    }
}

pub(crate) fn unexpected(reply: &Reply) -> ControlError {
    ControlError::Protocol { why: format!("another answer than asked for: {reply:?}") }
}

/// A connection whose writes, and whose making, end after a while: the latter waits where a daemon that stands still has as
/// many connections already as it may have without taking them (`SO_SNDTIMEO`, unix(7) and socket(7)).
fn connect(socket: &Path) -> rustix::io::Result<UnixStream> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&fd, Timeout::Send, Some(SHORT))?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    Ok(UnixStream::from(fd))
}

/// Patience with what a daemon answers from memory.
pub(crate) const SHORT: Duration = Duration::from_secs(2);
/// Patience with what it reads from its disk.
pub(crate) const MIDDLE: Duration = Duration::from_secs(60);
/// Patience with the next line of a stream: a few beats may come late on a busy machine.
const STREAM_PATIENCE: Duration = Duration::from_secs(BEAT.as_secs() * 3);
/// Patience with what it asks remotes, many times perhaps.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
