//! Finding out that a silent host is back, beside the calls that do not wait for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use weft_remote::{Call, Event, RemoteError};

use crate::client::Client;
use crate::contact::{Next, Took};
use crate::exchange::Question;
use crate::hearsay::unreachable_by;
use crate::host::Host;
use crate::id::Place;
use crate::pool::Which;
use crate::slots::Expects;
use crate::target::Target;

/// What the probes of all hosts share, and where they tell what they find.
pub(crate) struct Probes {
    /// One permit for each probe there may be.
    seats: Arc<Semaphore>,
    /// One permit for each attempt there may be at a time.
    attempts: Semaphore,
    events: mpsc::Sender<Event>,
    /// Guards the other end, until `events()` takes it.
    receiver: Mutex<Option<mpsc::Receiver<Event>>>,
}

/// A call that waits for a host: when the call is given up at its deadline, the host was silent.
pub(crate) struct Waiting<'a> {
    client: &'a Arc<Client>,
    host: &'a Arc<Host>,
    deadline: Instant,
    shown: String,
    /// Since when, and what the host took; guarded for the closure that connects. `None` while nothing is owed.
    owed: Mutex<Option<(Instant, Took)>>,
    is_aside: bool,
}

impl Default for Probes {
    fn default() -> Probes {
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let receiver = Mutex::new(Some(receiver));
        Probes { seats: Arc::new(Semaphore::new(PROBES_MAX)), attempts: Semaphore::new(ATTEMPTS_MAX), events, receiver }
    }
}

impl Probes {
    /// What is found; for the first who asks.
    pub fn events(&self) -> BoxStream<'static, Event> {
        match self.receiver.lock().take() {
            Some(receiver) => Box::pin(futures_util::stream::unfold(receiver, async |mut receiver| {
                receiver.recv().await.map(|event| (event, receiver))
            })),
            None => Box::pin(futures_util::stream::pending()),
        }
    }

    pub fn tell_back(&self, host: &Host) {
        tracing::info!("{}: answers again", host.authority.text());
        self.tell(Event::Reachable(Place::top(&host.authority.text()).dir_id()));
    }

    fn tell_silent(&self, host: &Host) {
        tracing::info!("{}: does not answer", host.authority.text());
        self.tell(Event::Unreachable(Place::top(&host.authority.text()).dir_id()));
    }

    fn tell(&self, event: Event) {
        // Nobody may be listening; who does not keep up finds the state where it is kept.
        let _ = self.events.try_send(event);
    }
}

impl<'a> Waiting<'a> {
    pub fn new(client: &'a Arc<Client>, host: &'a Arc<Host>, call: &Call, shown: String) -> Waiting<'a> {
        let owed = Mutex::new(Some((Instant::now(), Took::Nothing)));
        Waiting { client, host, deadline: call.deadline, shown, owed, is_aside: false }
    }

    /// A redirect has led to a scheme that the host is not known by: silence there says nothing of the host.
    pub fn set_aside(&mut self) {
        self.is_aside = true;
        self.for_nobody();
    }

    pub fn is_aside(&self) -> bool {
        self.is_aside
    }

    /// What is waited for now is not the host.
    pub fn for_nobody(&self) {
        *self.owed.lock() = None;
    }

    /// From now on the host is waited for.
    pub fn for_host(&self, took: Took) {
        *self.owed.lock() = (!self.is_aside).then(|| (Instant::now(), took));
    }

    /// The host answered.
    pub fn over(&self) {
        self.for_nobody();
    }

    /// What was waited for came to this error.
    pub fn failed(&self, error: &RemoteError) {
        let owed = self.owed.lock().take();
        match owed {
            Some((since, took)) if error.is_silence() => self.silent(since, error, took),
            _ => self.host.failed(error),
        }
    }

    fn silent(&self, since: Instant, error: &RemoteError, took: Took) {
        let Some(number) = self.host.silent(since, error, took) else { return };
        if self.host.is_away() {
            self.client.probes.tell_silent(self.host);
        }
        let seat = self.client.probes.seats.clone().try_acquire_owned();
        match (seat, tokio::runtime::Handle::try_current()) {
            (Ok(seat), Ok(runtime)) => {
                let (client, host) = (Arc::downgrade(self.client), self.host.clone());
                runtime.spawn(async move {
                    while let Next::TryAfter { pause, deaf } = host.next_probe(number) {
                        tokio::time::sleep(pause).await;
                        let Some(client) = client.upgrade() else { break };
                        // It may have answered a call, or been given back to the calls, meanwhile.
                        if matches!(host.next_probe(number), Next::TryAfter { .. }) {
                            client.try_host(&host, deaf).await;
                        }
                    }
                    drop(seat);
                });
            }
            _ => self.host.unprobed(),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let owed = self.owed.lock().take();
        let Some((since, took)) = owed else { return };
        // Given up earlier, or with hardly any time for the host, it says nothing about it.
        let now = Instant::now();
        if now >= self.deadline && now.duration_since(since) >= PATIENCE_MIN {
            self.silent(since, &RemoteError::TimedOut { detail: self.shown.clone() }, took);
        }
    }
}

impl Client {
    /// One attempt to reach a silent host.
    async fn try_host(self: &Arc<Self>, host: &Arc<Host>, deaf: bool) {
        let _permit = self.probes.attempts.acquire().await.expect("this semaphore is never closed");
        match self.reach(host, deaf).await {
            Ok(()) => {
                let was_away = host.is_away();
                if host.back() && was_away {
                    self.probes.tell_back(host);
                }
            }
            Err((error, took)) => {
                if host.still_silent(&error, took) {
                    self.probes.tell_silent(host);
                }
            }
        }
    }

    /// A connection, which stays for the next call; of a host that takes connections and is silent, an answer as well.
    async fn reach(self: &Arc<Self>, host: &Arc<Host>, deaf: bool) -> std::result::Result<(), (RemoteError, Took)> {
        let shown = host.authority.text();
        let known = host.memory().is_some();
        // A probe is nobody's and shows no certificate: where some do, it may be refused what they get, and a connection is
        // all that it can find out.
        let identified = host.has_identities();
        let tried = async {
            let scheme = self.scheme(host, None, None).await?;
            if known {
                let connected = self.connect(host, scheme, false, None).await?;
                if !identified {
                    host.pool(scheme, None).add(connected).await?;
                }
            }
            Ok::<_, crate::connect::ConnectError>(scheme)
        };
        let scheme = match tried.await {
            Ok(scheme) => scheme,
            Err(error) => {
                let error = error.into_remote(&shown);
                // Whatever else it says, somebody is there who says it.
                return if error.is_silence() { Err((error, Took::Nothing)) } else { Ok(()) };
            }
        };
        if !deaf || identified {
            return Ok(());
        }
        let took = |detail: String| (RemoteError::TimedOut { detail }, Took::Connection);
        let answered = async {
            let connect = self.connect(host, scheme, false, None);
            let mut lent = host
                .pool(scheme, None)
                .lend(Expects::Anything, Which::Any, connect)
                .await
                .map_err(|e| (e.into_remote(&shown), Took::Nothing))?;
            // Not every server answers HEAD; of the body nothing is read.
            let target = Target::top(&host.authority);
            let request = self
                .request(&Question::get(&[]), &target, scheme, &[], &lent)
                .map_err(|error| (error, Took::Nothing))?;
            let sent = Instant::now();
            match lent.send(request).await {
                Ok(response) => {
                    let answer = response.into_parts().0;
                    if let Some(error) = lent.proxy().and_then(|proxy| unreachable_by(proxy, &shown, &answer)) {
                        host.counts.failed();
                        return Err((error, Took::Connection));
                    }
                    host.counts.answered(sent.elapsed());
                    Ok(())
                }
                Err(error) => {
                    host.counts.failed();
                    Err(took(format!("{shown}: {error}")))
                }
            }
        };
        match timeout(self.options.connect_timeout, answered).await {
            Ok(outcome) => outcome,
            Err(_) => Err(took(format!("{shown}: takes connections and does not answer"))),
        }
    }
}

/// Hosts that are probed at a time; further ones are tried by the calls that want them.
const PROBES_MAX: usize = 256;
/// Attempts at a time.
const ATTEMPTS_MAX: usize = 16;
/// A host that had less time than this to answer is not called silent.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Events that wait to be read.
const EVENTS_MAX: usize = 256;
