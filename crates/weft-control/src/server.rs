//! The server half: takes requests, checks who asks, and passes them to the daemon.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::protocol::{Outcome, Reply, Request, Response, Verb};
use crate::stream::{Lines, pass_on};
use crate::{Code, ControlError, Daemon, LINE_BYTES_MAX, PROTOCOL_VERSION, PathBytes, Refusal, WarmOrder, socket_dir};

/// Who may ask: the user who mounted and root everything; others nothing, or what only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The user who mounted.
    pub owner_uid: u32,
    /// Whether the mount is open to other users.
    pub allow_other: bool,
}

/// A bound control socket. Dropping it takes the socket away.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    socket: PathBuf,
    access: Access,
}

/// What every connection is served with.
#[derive(Clone)]
struct House {
    daemon: Arc<dyn Daemon>,
    access: Access,
    /// Seats of streams: of the owner and root, and of others, who can so never take the owner's.
    streams: Arc<Semaphore>,
    streams_of_others: Arc<Semaphore>,
    /// Becomes true when the daemon ends.
    ending: watch::Receiver<bool>,
}

/// What a verb is answered with.
enum Answer {
    Replies(Vec<Reply>),
    /// With the seat that it takes.
    Stream(Lines<Reply>, OwnedSemaphorePermit),
}

impl Server {
    /// Binds `<pid>.sock` in `dir`, making the folder. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// `UnsafeFolder` when the folder is another user's, `Io`.
    pub fn bind(dir: &Path, access: Access) -> Result<Server, ControlError> {
        let (dir_mode, socket_mode) = if access.allow_other { (0o755, 0o666) } else { (0o700, 0o600) };
        socket_dir::prepare(dir, dir_mode)?;
        let socket = dir.join(format!("{}.sock", std::process::id()));
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ControlError::io(&socket)(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&socket).map_err(ControlError::io(&socket))?;
        // Whoever connects before this line is still checked by credentials.
        let mode = std::fs::Permissions::from_mode(socket_mode);
        std::fs::set_permissions(&socket, mode).map_err(ControlError::io(&socket))?;
        Ok(Server { listener, socket, access })
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Serves until `stop` is ready; then waits a little for the answers that are under way.
    pub async fn serve(self, daemon: Arc<dyn Daemon>, stop: impl Future<Output = ()> + Send) {
        let mut connections = JoinSet::new();
        let (end, ending) = watch::channel(false);
        let house = House {
            daemon,
            access: self.access,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            streams_of_others: Arc::new(Semaphore::new(STREAMS_OF_OTHERS_MAX)),
            ending,
        };
        tokio::select! {
            () = self.accept(&mut connections, house) => {}
            () = stop => {}
        }
        end.send_replace(true);
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WORDS, ended).await.is_err() {
            tracing::debug!("control connections were cut off");
        }
    }

    async fn accept(&self, connections: &mut JoinSet<()>, house: House) {
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let seat = Arc::clone(&seats).acquire_owned().await.expect("the semaphore is never closed");
            while connections.try_join_next().is_some() {}
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let house = house.clone();
            connections.spawn(async move {
                if let Err(error) = converse(stream, house).await {
                    tracing::debug!(%error, "a control connection ended");
                }
                drop(seat);
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl House {
    /// A seat for a stream.
    fn seat(&self, uid: u32) -> Result<OwnedSemaphorePermit, Refusal> {
        let own = uid == 0 || uid == self.access.owner_uid;
        let seats = if own { &self.streams } else { &self.streams_of_others };
        Arc::clone(seats).try_acquire_owned().map_err(|_| {
            let sentence = "too many streams are open on this mount; end another `weft watch` first";
            Refusal::new(Code::Busy, sentence)
        })
    }
}

impl Access {
    fn permits(&self, uid: u32, verb: &Verb) -> bool {
        uid == 0 || uid == self.owner_uid || (self.allow_other && verb.only_reads())
    }
}

/// Answers one connection's requests until it ends or falls silent.
async fn converse(stream: UnixStream, mut house: House) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let mut stream = BufReader::new(stream);
    let mut paths = Vec::new();
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LINE_BYTES_MAX as u64 + 1);
        let read = tokio::time::timeout(SILENCE_MAX, limited.read_until(b'\n', &mut line)).await;
        match read {
            Err(_) => return Ok(()),
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
        }
        if line.last() != Some(&b'\n') {
            let refusal =
                Refusal::new(Code::Invalid, format!("a request is one line of at most {LINE_BYTES_MAX} bytes"));
            return send(&mut stream, Outcome::Error(refusal)).await;
        }
        match answer(&line, uid, &house, &mut paths).await {
            Ok(Answer::Stream(lines, seat)) => {
                if !pass_on(&mut stream, lines, &mut house.ending).await? {
                    return Ok(());
                }
                drop(seat);
            }
            Ok(Answer::Replies(replies)) => {
                let last = replies.iter().any(|reply| matches!(reply, Reply::Unmounted | Reply::Replaced));
                for reply in replies {
                    send(&mut stream, Outcome::Ok(reply)).await?;
                }
                if last {
                    return Ok(());
                }
            }
            Err(refusal) => send(&mut stream, Outcome::Error(refusal)).await?,
        }
    }
}

pub(crate) async fn send(stream: &mut BufReader<UnixStream>, outcome: Outcome) -> io::Result<()> {
    let response = Response { v: PROTOCOL_VERSION, outcome };
    let mut line = serde_json::to_vec(&response)?;
    line.push(b'\n');
    if line.len() > LINE_BYTES_MAX {
        let refusal = Refusal::new(Code::Failed, "the answer is longer than one line may be");
        line = serde_json::to_vec(&Response { v: PROTOCOL_VERSION, outcome: Outcome::Error(refusal) })?;
        line.push(b'\n');
    }
    let written = tokio::time::timeout(SILENCE_MAX, stream.get_mut().write_all(&line)).await;
    written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn answer(line: &[u8], uid: u32, house: &House, paths: &mut Vec<PathBytes>) -> Result<Answer, Refusal> {
    let (access, daemon) = (house.access, &*house.daemon);
    let verb = parse(line)?;
    if !access.permits(uid, &verb) {
        let who = access.owner_uid;
        return Err(Refusal::new(Code::Denied, format!("only the user who mounted (uid {who}) and root may do that")));
    }
    let reply = match verb {
        Verb::Hello => Reply::Hello(daemon.hello()),
        Verb::Status => {
            let mut status = daemon.status(uid).await?;
            status.troubles.truncate(crate::Status::TROUBLES_MAX);
            Reply::Status(Box::new(status))
        }
        Verb::Names { path } => return Ok(Answer::Replies(in_lines(daemon.names(checked(&path)?, uid).await?))),
        Verb::Remove { path, depth, of_pinned } => {
            Reply::Removed(daemon.remove(checked(&path)?, depth, of_pinned, uid).await?)
        }
        Verb::Reload { path, depth } => Reply::Reloaded(daemon.reload(checked(&path)?, depth, uid).await?),
        Verb::Why { path } => Reply::Why(daemon.why(checked(&path)?, uid).await?),
        Verb::Offline { path, fetch_only } => {
            daemon.take_offline(checked(&path)?, fetch_only, uid).await?;
            Reply::Offline
        }
        Verb::Online { path } => {
            daemon.bring_online(checked(&path)?, uid).await?;
            Reply::Online
        }
        Verb::Pin { path } => Reply::Pinned(daemon.pin(checked(&path)?, uid).await?),
        Verb::Unpin { path } => Reply::Unpinned(daemon.unpin(checked(&path)?, uid).await?),
        Verb::Cache { path } => Reply::Cache(Box::new(daemon.cache(checked(&path)?, uid).await?)),
        Verb::Evictions { limit } => {
            let evictions = daemon.evictions(limit.min(crate::Eviction::COUNT_MAX), uid).await?;
            Reply::Evictions(crate::space::fitting(evictions))
        }
        Verb::Unmount { lazy } => {
            daemon.unmount(lazy).await?;
            Reply::Unmounted
        }
        Verb::Replace => {
            daemon.replace().await?;
            Reply::Replaced
        }
        Verb::Watch { path, validate_every_ms } => {
            let seat = house.seat(uid)?;
            let every = validate_every_ms.map(Duration::from_millis);
            let lines = daemon.watch(checked(&path)?, every, uid).await?;
            return Ok(Answer::Stream(lines.map(|line| line.map(Reply::Watched)).boxed(), seat));
        }
        Verb::Paths { paths: more } => {
            gather(paths, more)?;
            Reply::Taken
        }
        Verb::Warm(order) => {
            let seat = house.seat(uid)?;
            gather(paths, order.paths)?;
            let order = WarmOrder { paths: std::mem::take(paths), ..order };
            let lines = daemon.warm(order, uid).await?;
            return Ok(Answer::Stream(lines.map(|line| line.map(Reply::Warmed)).boxed(), seat));
        }
        Verb::Check { repair } => {
            let seat = house.seat(uid)?;
            let lines = daemon.check(repair, uid).await?;
            return Ok(Answer::Stream(lines.map(|line| line.map(Reply::Checked)).boxed(), seat));
        }
        Verb::Group { groups, linked } => {
            groups.iter().flatten().try_for_each(|path| checked(path).map(drop))?;
            Reply::Grouped(daemon.group(groups, linked, uid).await?)
        }
        Verb::Unsent { path } => Reply::Unsent(daemon.unsent(checked(&path)?, uid).await?.fitting()),
        Verb::Decide { path, decision } => {
            Reply::Decided { bytes: daemon.decide(checked(&path)?, decision, uid).await? }
        }
        Verb::CopyUnsent { path } => {
            let seat = house.seat(uid)?;
            let lines = daemon.copy_unsent(checked(&path)?, uid).await?;
            return Ok(Answer::Stream(lines.map(|line| line.map(Reply::Copied)).boxed(), seat));
        }
        Verb::CopySource { path } => {
            let seat = house.seat(uid)?;
            let lines = daemon.copy_source(checked(&path)?, uid).await?;
            return Ok(Answer::Stream(lines.map(|line| line.map(Reply::Copied)).boxed(), seat));
        }
        Verb::Stats => Reply::Stats(Box::new(daemon.stats(uid).await?)),
    };
    Ok(Answer::Replies(vec![reply]))
}

fn parse(line: &[u8]) -> Result<Verb, Refusal> {
    /// Read first, so that a request of another version is named as such whatever else it holds.
    #[derive(serde::Deserialize)]
    struct Versioned {
        v: u32,
    }
    let invalid = |error: serde_json::Error| Refusal::new(Code::Invalid, format!("not a request: {error}"));
    let Versioned { v } = serde_json::from_slice(line).map_err(invalid)?;
    if v != PROTOCOL_VERSION {
        let sentence = format!(
            "the daemon speaks version {PROTOCOL_VERSION} of the control protocol, the request version {v}; unmount \
             and mount again after an update"
        );
        return Err(Refusal::new(Code::Invalid, sentence));
    }
    serde_json::from_slice::<Request>(line).map(|request| request.verb).map_err(invalid)
}

/// A path that means a place below the mount's root and nothing else.
fn checked(path: &PathBytes) -> Result<&[u8], Refusal> {
    let bytes = path.0.as_slice();
    let odd = |part: &[u8]| part.is_empty() || part == b"." || part == b".." || part.contains(&0);
    if !bytes.is_empty() && bytes.split(|byte| *byte == b'/').any(odd) {
        return Err(Refusal::new(Code::Invalid, format!("{path}: not a path relative to the mount's root")));
    }
    Ok(bytes)
}

/// Adds to the paths of an order.
fn gather(paths: &mut Vec<PathBytes>, more: Vec<PathBytes>) -> Result<(), Refusal> {
    let bytes: usize = paths.iter().chain(&more).map(|path| path.0.len() + size_of::<PathBytes>()).sum();
    if bytes > WarmOrder::PATH_BYTES_MAX {
        let sentence = format!("more than {} bytes of paths; split the list", WarmOrder::PATH_BYTES_MAX);
        return Err(Refusal::new(Code::Invalid, sentence));
    }
    more.iter().try_for_each(|path| checked(path).map(drop))?;
    paths.extend(more);
    Ok(())
}

/// Names over as many lines as they need.
fn in_lines(names: Vec<crate::NameInfo>) -> Vec<Reply> {
    let mut rest = names.into_iter().peekable();
    let mut lines = Vec::new();
    loop {
        let names: Vec<_> = rest.by_ref().take(NAMES_PER_LINE).collect();
        let more = rest.peek().is_some();
        lines.push(Reply::Names { names, more });
        if !more {
            return lines;
        }
    }
}

/// Most connections at one time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// Of these, most that are streams, so that no number of them keeps a verb from its answer.
const STREAMS_MAX: usize = 32;
/// And most streams of all users who neither mounted nor are root.
const STREAMS_OF_OTHERS_MAX: usize = 8;
/// How long a connection may be silent, or not read what it asked for.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long answers under way may take when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Before accepting again when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A name takes at most 255 bytes, twice that in hex, and a few figures: far below a line's limit.
const NAMES_PER_LINE: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Depth;

    #[test]
    fn others_may_only_read_and_only_where_the_mount_is_open() {
        let why = Verb::Why { path: PathBytes::default() };
        let of_pinned = crate::OfPinned::Stays;
        let remove = Verb::Remove { path: PathBytes::default(), depth: Depth::This, of_pinned };
        let unmount = Verb::Unmount { lazy: true };
        let discard = Verb::Decide { path: PathBytes::default(), decision: crate::Decision::Discard };
        let closed = Access { owner_uid: 1000, allow_other: false };
        let open = Access { owner_uid: 1000, allow_other: true };
        for verb in [&why, &remove, &unmount, &discard] {
            assert!(closed.permits(0, verb) && closed.permits(1000, verb));
            assert!(!closed.permits(1001, verb));
        }
        assert!(open.permits(1001, &why) && open.permits(1001, &Verb::Stats));
        let watch = |validate_every_ms| Verb::Watch { path: PathBytes::default(), validate_every_ms };
        assert!(open.permits(1001, &watch(None)) && !open.permits(1001, &watch(Some(30_000))));
        assert!(!closed.permits(1001, &watch(None)) && closed.permits(1000, &watch(Some(30_000))));
        let unsent = Verb::Unsent { path: PathBytes::default() };
        assert!(!open.permits(1001, &discard) && !open.permits(1001, &unsent));
        assert!(!open.permits(1001, &remove) && !open.permits(1001, &unmount));
    }
}
