//! Rx over a socket: what the protocol wants sent is sent, what comes is handed to it, and callers wait for their calls.
//!
//! One socket carries both directions: the calls that are made, and those that file servers make on the very address that
//! they were called from. Datagrams are sent by whoever has something to send, without waiting: one that the system does not
//! take is as one that was lost. Times and what comes are a task's: it puts what comes for a call together and wakes whoever
//! waits when all of it is there, so that what is acknowledged has been taken, and nobody is woken for a packet.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use weft_rx::{CallError, CallId, Config, ConnectionName, Drained, Endpoint, Event};

use crate::heritage::Heritage;
use crate::routes::Routes;
use crate::socket::{Arrivals, Socket, Train};
use crate::tokens::Token;

/// Answers the calls that others make: the request whole, and from whom; the reply whole, or the code to abort with.
pub(crate) type Answering = Box<dyn Fn(SocketAddr, Bytes) -> BoxFuture<'static, Result<Vec<u8>, i32>> + Send + Sync>;

/// A socket that speaks Rx. It ends with this value.
pub(crate) struct Transport {
    shared: Arc<Shared>,
    driver: tokio::task::JoinHandle<()>,
}

struct Shared {
    socket: Socket,
    /// Held while the protocol is told or asked something; not while what it wants sent is handed to the system.
    state: Mutex<State>,
    /// The driver is to look at the time again.
    earlier: Notify,
    answering: Answering,
    /// How many calls of others are being answered, and one for whoever takes in what comes.
    busy: watch::Sender<usize>,
    /// Nothing more is taken in.
    rests: AtomicBool,
    heritage: Heritage,
    /// Held while connections are noted, so that the last word is the newest; the state is not: it may take a disk's time.
    noting: Mutex<()>,
}

struct State {
    endpoint: Endpoint,
    /// Who waits for a call.
    waiting: HashMap<CallId, Waiting>,
    /// Calls of others that nobody has begun to answer.
    incoming: Vec<(CallId, SocketAddr)>,
    routes: Routes,
    /// What is to be sent, in its order.
    outbox: Vec<(SocketAddr, Vec<u8>)>,
    /// What goes together; `None` while somebody sends.
    train: Option<Train>,
    /// When the driver looks at the time next at the latest; `None` if it does not.
    sleeps_until: Option<Instant>,
}

/// Somebody who waits for a call, and what has come of it.
struct Waiting {
    /// There is something to do: all has come, more can be written, or the call has failed.
    changed: Arc<Notify>,
    came: BytesMut,
    /// Most bytes that may come.
    max: usize,
    /// All has come.
    is_whole: bool,
    /// How the call failed.
    failed: Option<CallError>,
}

/// A call that was begun; it is aborted when this goes before its end.
struct Begun<'a> {
    shared: &'a Shared,
    id: CallId,
    changed: Arc<Notify>,
    has_ended: bool,
}

impl Transport {
    /// Speaks on a socket. Within a runtime.
    pub fn open(seed: [u8; 32], socket: Socket, config: Config, answering: Answering, heritage: Heritage) -> Transport {
        let state = State {
            endpoint: Endpoint::new(config, seed),
            waiting: HashMap::new(),
            incoming: Vec::new(),
            routes: Routes::default(),
            outbox: Vec::new(),
            train: Some(Train::default()),
            sleeps_until: None,
        };
        let (state, noting) = (Mutex::new(state), Mutex::new(()));
        let (earlier, busy, rests) = (Notify::new(), watch::Sender::new(1), AtomicBool::new(false));
        let shared = Arc::new(Shared { socket, state, earlier, answering, busy, rests, heritage, noting });
        let driver = tokio::spawn(drive(shared.clone()));
        Transport { shared, driver }
    }

    /// Ends connections that a former daemon had opened and could not end: otherwise servers go on with its calls, and keep to
    /// them what those are about, until they take it for dead.
    pub fn end_former(&self, connections: &[ConnectionName]) {
        self.shared.with(|endpoint, _| connections.iter().for_each(|name| endpoint.end_former(name)));
    }

    /// Leaves what comes from now on in the socket, and waits until the calls of others that have come are answered: they would be
    /// waited for if this process ended before.
    pub async fn rest(&self) {
        self.shared.rests.store(true, Ordering::Release);
        self.shared.earlier.notify_one();
        // It cannot fail: the other side is here.
        let _ = self.shared.busy.subscribe().wait_for(|busy| *busy == 0).await;
    }

    /// The descriptor of the socket.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.socket.descriptor()
    }

    /// The port of the socket.
    pub fn port(&self) -> u16 {
        self.shared.socket.port()
    }

    /// Whether nothing was heard of a host for so long, though it is talked to.
    pub fn is_silent(&self, host: SocketAddr, for_so_long: Duration) -> bool {
        let heard = self.shared.state.lock().endpoint.heard(host);
        heard.is_some_and(|heard| heard.elapsed() >= for_so_long)
    }

    /// Makes a call, as nobody or with a token: sends `request` and after it whatever `more` gives, and returns the reply,
    /// of at most `reply_max` bytes. Dropping the future aborts the call.
    ///
    /// # Errors
    /// The server's abort code, or what became of the connection.
    pub async fn call(
        &self,
        (to, service): (SocketAddr, u16),
        token: Option<&Arc<Token>>,
        request: &[u8],
        more: &mut (dyn Iterator<Item = Bytes> + Send),
        reply_max: usize,
    ) -> Result<Bytes, CallError> {
        self.begin(to, service, token, reply_max).run(request, more).await
    }

    fn begin(&self, to: SocketAddr, service: u16, token: Option<&Arc<Token>>, reply_max: usize) -> Begun<'_> {
        let mut state = self.shared.state.lock();
        let State { endpoint, routes, waiting, .. } = &mut *state;
        let now = Instant::now();
        let route = routes.of(endpoint, now, to, service, token);
        let id = endpoint.call(now, route);
        let changed = Arc::default();
        waiting.insert(id, Waiting::new(&changed, reply_max));
        Begun { shared: &self.shared, id, changed, has_ended: false }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Waiting {
    fn new(changed: &Arc<Notify>, max: usize) -> Waiting {
        Waiting { changed: changed.clone(), came: BytesMut::new(), max, is_whole: false, failed: None }
    }

    /// Takes what has come; wakes whoever waits if that was the last.
    fn take(&mut self, endpoint: &mut Endpoint, now: Instant, call: CallId) {
        if self.came.len() > self.max {
            // It has failed: what else comes is not wanted.
            return;
        }
        let room = self.max.saturating_sub(self.came.len()) + 1;
        match endpoint.drain(now, call, room, |bytes| self.came.extend_from_slice(bytes)) {
            _ if self.came.len() > self.max => self.failed = self.failed.or(Some(CallError::Aborted(RX_MSGSIZE))),
            Ok(Drained::End) => self.is_whole = true,
            // How a call has failed is told by another event.
            Ok(Drained::Blocked | Drained::Full) | Err(_) => return,
        }
        self.changed.notify_one();
    }
}

impl Begun<'_> {
    async fn run(
        &mut self,
        request: &[u8],
        more: &mut (dyn Iterator<Item = Bytes> + Send),
    ) -> Result<Bytes, CallError> {
        self.write(request).await?;
        for piece in more {
            self.write(&piece).await?;
        }
        self.shared.with(|endpoint, now| endpoint.finish(now, self.id));
        let reply = self.whole().await?;
        self.has_ended = true;
        Ok(reply)
    }

    /// All that the other side sends.
    async fn whole(&self) -> Result<Bytes, CallError> {
        loop {
            {
                let mut state = self.shared.state.lock();
                let waiting = state.waiting.get_mut(&self.id).ok_or(CallError::Closed)?;
                if let Some(error) = waiting.failed {
                    return Err(error);
                }
                if waiting.is_whole {
                    return Ok(std::mem::take(&mut waiting.came).freeze());
                }
            }
            self.changed.notified().await;
        }
    }

    /// How the call ended, where the protocol says only that it has.
    fn why(&self, error: CallError) -> CallError {
        self.shared.state.lock().waiting.get(&self.id).and_then(|waiting| waiting.failed).unwrap_or(error)
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), CallError> {
        while !bytes.is_empty() {
            let taken = self.shared.with(|endpoint, now| endpoint.write(now, self.id, bytes));
            let taken = taken.map_err(|error| self.why(error))?;
            bytes = &bytes[taken..];
            if !bytes.is_empty() {
                self.changed.notified().await;
            }
        }
        Ok(())
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shared.with(|endpoint, now| endpoint.abort(now, self.id, RX_USER_ABORT));
        }
        self.shared.state.lock().waiting.remove(&self.id);
    }
}

impl Shared {
    /// Tells or asks the protocol something, and does what comes of it.
    fn with<T>(&self, act: impl FnOnce(&mut Endpoint, Instant) -> T) -> T {
        let mut state = self.state.lock();
        let outcome = act(&mut state.endpoint, Instant::now());
        self.settle(&mut state);
        let next = state.endpoint.poll_timeout();
        if next.is_some_and(|next| state.sleeps_until.is_none_or(|until| next < until)) {
            self.earlier.notify_one();
        }
        let have_changed = state.endpoint.have_names_changed();
        self.send(state);
        self.note_connections(have_changed);
        outcome
    }

    /// Notes which connections there are, where they have changed.
    fn note_connections(&self, have_changed: bool) {
        if have_changed {
            let _turn = self.noting.lock();
            let names: Vec<ConnectionName> = self.state.lock().endpoint.connection_names().collect();
            self.heritage.keep_connections(names.into_iter());
        }
    }

    /// Takes what has come for calls, wakes who waits, and learns after that what is to be sent: acknowledgements tell of what
    /// was taken.
    fn settle(&self, state: &mut State) {
        while self.hear(state) {
            while let Some(transmit) = state.endpoint.poll_transmit(Instant::now()) {
                state.outbox.push((transmit.to, transmit.payload));
            }
        }
    }

    /// Sends what is to be sent. Whoever does it does it for all that come meanwhile: so everything goes in its order, and
    /// nobody waits for the system who has only something to ask.
    fn send(&self, mut state: MutexGuard<'_, State>) {
        if state.outbox.is_empty() {
            return;
        }
        let Some(mut train) = state.train.take() else { return };
        let mut outbox = Vec::new();
        while !state.outbox.is_empty() {
            std::mem::swap(&mut outbox, &mut state.outbox);
            MutexGuard::unlocked(&mut state, || {
                let mut all = outbox.drain(..);
                self.socket.send_all(&mut train, || all.next());
            });
        }
        state.train = Some(train);
    }

    /// Hears what the protocol tells; whether there may be something to send after that.
    fn hear(&self, state: &mut State) -> bool {
        let now = Instant::now();
        while let Some(event) = state.endpoint.poll_event() {
            if let Event::Incoming { call, from, .. } = event {
                state.waiting.insert(call, Waiting::new(&Arc::default(), REQUEST_BYTES_MAX));
                state.incoming.push((call, from));
                self.earlier.notify_one();
                continue;
            }
            let State { endpoint, waiting, .. } = state;
            let Some(waiting) = waiting.get_mut(&event.call()) else { continue };
            match event {
                Event::Readable(call) => waiting.take(endpoint, now, call),
                Event::Writable(_) => waiting.changed.notify_one(),
                Event::Ended(_, Err(error)) => {
                    waiting.failed = waiting.failed.or(Some(error));
                    waiting.changed.notify_one();
                }
                Event::Ended(_, Ok(())) | Event::Incoming { .. } => {}
            }
        }
        state.endpoint.wants_to_send()
    }

    /// Takes in what has come.
    fn take_in<'a>(&self, datagrams: impl Iterator<Item = (SocketAddr, &'a [u8])>) {
        let mut state = self.state.lock();
        datagrams.for_each(|(from, datagram)| state.endpoint.handle_datagram(Instant::now(), from, datagram));
        self.settle(&mut state);
        let have_changed = state.endpoint.have_names_changed();
        self.send(state);
        self.note_connections(have_changed);
    }
}

/// Something that is to come to its end before this process does.
struct Busy(Arc<Shared>);

impl Busy {
    fn begin(shared: &Arc<Shared>) -> Busy {
        shared.busy.send_modify(|busy| *busy += 1);
        Busy(shared.clone())
    }

    /// Answers a call of somebody else.
    async fn answer(self, id: CallId, from: SocketAddr) {
        let shared = &*self.0;
        let Some(changed) = shared.state.lock().waiting.get(&id).map(|waiting| waiting.changed.clone()) else { return };
        let mut begun = Begun { shared, id, changed, has_ended: false };
        let Ok(request) = begun.whole().await else { return };
        match (shared.answering)(from, request).await {
            Ok(reply) => {
                if begun.write(&reply).await.is_ok() {
                    shared.with(|endpoint, now| endpoint.finish(now, id));
                    begun.has_ended = true;
                }
            }
            Err(code) => {
                shared.with(|endpoint, now| endpoint.abort(now, id, code));
                begun.has_ended = true;
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.send_modify(|busy| *busy -= 1);
    }
}

/// Hands what comes, and the time, to the protocol.
async fn drive(shared: Arc<Shared>) {
    let mut takes_in = Some(Busy(shared.clone()));
    let mut arrivals = Arrivals::new();
    let mut alarm = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        let (earlier, is_set, have_changed) = {
            let mut state = shared.state.lock();
            state.endpoint.handle_timeout(Instant::now());
            shared.settle(&mut state);
            for (call, from) in std::mem::take(&mut state.incoming) {
                tokio::spawn(Busy::begin(&shared).answer(call, from));
            }
            let next = state.endpoint.poll_timeout();
            let earlier = next.filter(|next| state.sleeps_until.is_none_or(|until| *next < until));
            state.sleeps_until = earlier.or(state.sleeps_until);
            let (is_set, have_changed) = (state.sleeps_until.is_some(), state.endpoint.have_names_changed());
            shared.send(state);
            (earlier, is_set, have_changed)
        };
        shared.note_connections(have_changed);
        takes_in.take_if(|_| shared.rests.load(Ordering::Acquire));
        // It is set earlier only. One that goes off too early costs a look; to set it for each call costs the waking of a
        // thread.
        if let Some(earlier) = earlier {
            alarm.as_mut().reset(earlier.into());
        }
        tokio::select! {
            came = shared.socket.receive(&mut arrivals), if takes_in.is_some() => {
                if let Ok(datagrams) = came {
                    shared.take_in(datagrams);
                }
            }
            () = &mut alarm, if is_set => shared.state.lock().sleeps_until = None,
            () = shared.earlier.notified() => {}
        }
    }
}

/// `RX_USER_ABORT` (OpenAFS `src/rx/rx.h`): whoever made the call does not want it any more.
const RX_USER_ABORT: i32 = -6;
/// `RX_MSGSIZE` (the same): the other side sends more than it should.
const RX_MSGSIZE: i32 = -8;
/// Longest request of somebody else: fifty fids and as many callbacks are far below.
const REQUEST_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
