//! Connections to one host under one scheme.
//!
//! With HTTP/1.1 each request in flight has a connection of its own, taken from the idle ones or made; with HTTP/2
//! all share one. Slots bound the requests in flight, and so the connections: a new one is made only when none
//! is idle.
//!
//! A server may end a shared connection after so many requests (nginx: `keepalive_requests`), and then takes none of those
//! that came after the last. Where many ask at a time the next one is used up as fast, so a request can be given one that
//! nobody shares before its answer is there.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::budget::Budget;
use crate::connect::{ConnectError, Connected, Connecting};
use crate::proxy::Proxy;
use crate::slots::{Expects, Slot, Slots};

/// The connections to one host under one scheme.
pub(crate) struct Pool {
    budget: Arc<Budget>,
    connections: Arc<Slots>,
    connections_max: usize,
    streams: Arc<Slots>,
    /// Held while a connection is made that others may be able to share.
    opening: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// Guarded by `Pool::state`, which is never held over any wait.
#[derive(Default)]
struct State {
    idle: Vec<(Instant, Line)>,
    shared: Option<Stream>,
    /// Number of the last connection of HTTP/2.
    numbers: u64,
    /// What the last connection spoke.
    http1_only: bool,
}

/// A connection lent for one request; it goes back when the body has been read to its end.
pub(crate) struct Lent {
    sender: Sender,
    reused: bool,
    pool: Arc<Pool>,
    slot: Slot,
}

/// A connection of HTTP/1.
struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    /// The proxy that is on its other side and wants whole URLs.
    proxy: Option<Arc<Proxy>>,
}

/// A way to ask on a connection of HTTP/2.
#[derive(Clone)]
struct Stream {
    sender: http2::SendRequest<Full<Bytes>>,
    /// That of its connection.
    number: u64,
    /// Nothing is ever said on it: it is closed when the connection has ended.
    ended: watch::Receiver<()>,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// It was given to a connection that had just ended, and nobody will say so.
    #[error("the connection ended before it took the request")]
    Ended,
}

/// Which connection a request is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Whichever there is, or a new one.
    Any,
    /// A new one that is not shared, also with HTTP/2.
    Own,
}

enum Sender {
    Http1(Line),
    Http2(Stream),
}

impl Pool {
    /// At most `connections_max` connections, and as many again while long bodies come.
    pub fn new(connections_max: usize, budget: Arc<Budget>) -> Pool {
        Pool {
            budget,
            connections: Slots::new(connections_max, connections_max.max(1)),
            connections_max,
            streams: Slots::new(STREAMS_MAX, 0),
            opening: tokio::sync::Mutex::new(()),
            state: Mutex::new(State::default()),
        }
    }

    /// Adds a connection for the next request to use.
    ///
    /// # Errors
    /// `Unreachable` when the HTTP/2 opening fails.
    pub async fn add(&self, connected: Connected) -> Connecting<()> {
        match self.open(connected).await? {
            Sender::Http1(line) => self.state.lock().idle.push((Instant::now(), line)),
            Sender::Http2(stream) => self.state.lock().shared = Some(stream),
        }
        Ok(())
    }

    /// Begins to speak on a connection.
    async fn open(&self, connected: Connected) -> Connecting<Sender> {
        let failed = |e: hyper::Error| ConnectError::Unreachable(e.to_string());
        let io = TokioIo::new(connected.wire);
        if connected.http2 {
            let share = self.budget.share(STREAM_WINDOW * STREAMS_MAX);
            let window = u32::try_from(share.bytes).unwrap_or(u32::MAX);
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_PAUSE)
                .keep_alive_timeout(PING_PATIENCE)
                .initial_stream_window_size((window / STREAMS_MAX as u32).max(STREAM_WINDOW_MIN))
                .initial_connection_window_size(window.max(STREAM_WINDOW_MIN * STREAMS_MAX as u32))
                .max_header_list_size(HEADER_BYTES_MAX as u32)
                .handshake(io)
                .await
                .map_err(failed)?;
            let (lives, ended) = watch::channel(());
            spawn(connection, (share, lives));
            let mut state = self.state.lock();
            state.http1_only = false;
            state.numbers += 1;
            Ok(Sender::Http2(Stream { sender, number: state.numbers, ended }))
        } else {
            let share = self.budget.share(READ_BYTES_MAX);
            let (sender, connection) = http1::Builder::new()
                .max_headers(HEADERS_MAX)
                .max_buf_size(share.bytes.max(HEADER_BYTES_MAX))
                // What other clients take: nginx sends a value that its configuration writes in several lines as it is there
                // (RFC 9112 section 5.2), and old devices put a space before the colon (section 5.1).
                .allow_obsolete_multiline_headers_in_responses(true)
                .allow_spaces_after_header_name_in_responses(true)
                .handshake(io)
                .await
                .map_err(failed)?;
            spawn(connection, share);
            self.state.lock().http1_only = true;
            Ok(Sender::Http1(Line { sender, proxy: connected.proxy }))
        }
    }

    /// Lends a connection: a shared one, an idle one, or one made by `connect`.
    ///
    /// # Errors
    /// Those of `connect`.
    pub async fn lend(
        self: &Arc<Self>,
        expects: Expects,
        which: Which,
        connect: impl Future<Output = Connecting<Connected>> + Send,
    ) -> Connecting<Lent> {
        if which == Which::Own {
            let slot = self.connections.take(expects).await;
            let sender = self.open(connect.await?).await?;
            return Ok(self.lent(sender.ready().await?, false, slot));
        }
        if let Some(lent) = self.lend_shared(expects).await {
            return Ok(lent);
        }
        // Only while a connection may turn out to be shareable is it worth waiting for another's.
        let known_http1 = self.state.lock().http1_only;
        let opening = if known_http1 { None } else { Some(self.opening.lock().await) };
        if let Some(lent) = self.lend_shared(expects).await {
            return Ok(lent);
        }
        let slot = self.connections.take(expects).await;
        if let Some(line) = self.take_idle().await {
            return Ok(self.lent(Sender::Http1(line), true, slot));
        }
        match self.open(connect.await?).await? {
            // Not by way of the idle ones, where another request might take it and leave this one with nothing.
            line @ Sender::Http1(_) => Ok(self.lent(line.ready().await?, false, slot)),
            Sender::Http2(stream) => {
                self.state.lock().shared = Some(stream.clone());
                drop(opening);
                // It may be used up meanwhile, as any that is shared.
                let slot = self.streams.take(expects).await;
                Ok(self.lent(Sender::Http2(stream), true, slot))
            }
        }
    }

    fn lent(self: &Arc<Self>, sender: Sender, reused: bool, slot: Slot) -> Lent {
        Lent { sender, reused, pool: self.clone(), slot }
    }

    async fn lend_shared(self: &Arc<Self>, expects: Expects) -> Option<Lent> {
        let shared = |state: &mut State| {
            state.shared.take_if(|stream| stream.sender.is_closed());
            state.shared.clone()
        };
        shared(&mut self.state.lock())?;
        let slot = self.streams.take(expects).await;
        let stream = shared(&mut self.state.lock())?;
        Some(self.lent(Sender::Http2(stream), true, slot))
    }

    async fn take_idle(&self) -> Option<Line> {
        loop {
            let (since, mut line) = self.state.lock().idle.pop()?;
            if since.elapsed() < IDLE_MAX && !line.sender.is_closed() && line.sender.ready().await.is_ok() {
                return Some(line);
            }
        }
    }

    fn give_back(&self, sender: Sender) {
        let mut state = self.state.lock();
        let line = match sender {
            Sender::Http1(line) if !line.sender.is_closed() => line,
            Sender::Http2(stream) if !stream.sender.is_closed() => {
                state.shared.get_or_insert(stream);
                return;
            }
            Sender::Http1(_) | Sender::Http2(_) => return,
        };
        state.idle.retain(|(since, line)| since.elapsed() < IDLE_MAX && !line.sender.is_closed());
        if state.idle.len() < self.connections_max.max(1) {
            state.idle.push((Instant::now(), line));
        }
    }
}

impl Sender {
    /// The same when a request can be sent.
    async fn ready(mut self) -> Connecting<Sender> {
        let ready = match &mut self {
            Sender::Http1(line) => line.sender.ready().await,
            Sender::Http2(stream) => stream.sender.ready().await,
        };
        ready.map(|()| self).map_err(|_| closed_at_once())
    }
}

fn closed_at_once() -> ConnectError {
    ConnectError::Unreachable("the connection was closed at once".to_owned())
}

impl Stream {
    /// Sends one request. What is given to a connection in the moment in which it ends is never answered, not even with an error
    /// (seen of hyper 1.12 with h2 0.4): who waits for it asks whether the connection is still there.
    async fn send(&mut self, request: Request<Full<Bytes>>) -> std::result::Result<Response<Incoming>, SendError> {
        let mut sending = pin!(self.sender.send_request(request));
        tokio::select! {
            biased;
            answer = &mut sending => return Ok(answer?),
            _ = self.ended.changed() => {}
        }
        // What has come, or failed, is on its way through another task.
        let told = tokio::time::timeout(AFTER_END, sending).await;
        Ok(told.map_err(|_| SendError::Ended)??)
    }
}

/// Drives a connection; what it `has` for as long as it lives goes when it ends.
fn spawn<E>(connection: impl Future<Output = std::result::Result<(), E>> + Send + 'static, has: impl Send + 'static) {
    tokio::spawn(async move {
        // Whoever waits for an answer of this connection is told.
        let _ = connection.await;
        drop(has);
    });
}

impl Lent {
    /// Whether the connection had been used before, or is shared: a request that fails on such a one deserves another.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// Has nobody lent what may have gone the way of this one: it, and all that are idle.
    pub fn forget(self) {
        let mut state = self.pool.state.lock();
        state.idle.clear();
        if let Sender::Http2(failed) = &self.sender {
            state.shared.take_if(|stream| stream.number == failed.number);
        }
    }

    /// Keeps a slot for the long body that the answer has; says whether there is one.
    pub fn keep_for_long_body(&mut self) -> bool {
        self.slot.keep_for_long_body()
    }

    /// Whether the long body that comes on it is to make room for another.
    pub fn gives_way(&mut self) -> bool {
        self.slot.gives_way()
    }

    /// Whether requests name the whole URL.
    pub fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// The proxy on the other side, if it wants whole URLs.
    pub fn proxy(&self) -> Option<&Proxy> {
        match &self.sender {
            Sender::Http1(line) => line.proxy.as_deref(),
            Sender::Http2(_) => None,
        }
    }

    /// Sends one request.
    ///
    /// # Errors
    /// Whatever the connection gives.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> std::result::Result<Response<Incoming>, SendError> {
        match &mut self.sender {
            Sender::Http1(line) => Ok(line.sender.send_request(request).await?),
            Sender::Http2(stream) => stream.send(request).await,
        }
    }

    /// Gives the connection back after the body was read to its end.
    pub fn give_back(self) {
        // One that is shared was never away.
        if !(self.is_http2() && self.reused) {
            self.pool.give_back(self.sender);
        }
    }
}

/// Most bytes read from a connection at once, and so of an answer with its headers under HTTP/1 (they are counted again
/// after that). A connection's buffer grows to it only while a large body comes faster than it is taken; with a smaller
/// one each piece costs a change of threads, and the cached file lies in the page cache in smaller parts.
const READ_BYTES_MAX: usize = 2 << 20;
/// Bytes of an answer's headers.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Lines of an answer's headers.
pub(crate) const HEADERS_MAX: usize = 100;
/// Requests at a time on a shared connection.
const STREAMS_MAX: usize = 64;
/// Bytes of one answer in flight on a shared connection. The connection's window holds as many as there may be
/// answers, so that one nobody reads cannot hold up the others.
const STREAM_WINDOW: usize = 256 << 10;
/// The same where memory is short.
const STREAM_WINDOW_MIN: u32 = 16 << 10;
/// How often a shared connection with open requests shows that it lives; a dead one would take every new request
/// along with it.
const PING_PAUSE: Duration = Duration::from_secs(10);
/// Longest wait for the answer to that.
const PING_PATIENCE: Duration = Duration::from_secs(10);
/// How long what a connection has brought or refused may be on its way to who waits for it, after its end.
const AFTER_END: Duration = Duration::from_secs(1);
/// Idle connections older than this are not used again.
const IDLE_MAX: Duration = Duration::from_secs(55);
