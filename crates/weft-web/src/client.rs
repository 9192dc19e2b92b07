//! One GET: scheme, connection, redirects, waiting as told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use parking_lot::Mutex;
use weft_remote::{Call, Notes, RemoteError, Result, Traffic};

use crate::WebOptions;
use crate::authority::Authority;
use crate::budget::Budget;
use crate::connect::{ConnectError, Connected, Connecting, Dialer};
use crate::contact::{Took, cause};
use crate::content::may_take_long;
use crate::digest::Announced;
use crate::exchange::{GetError, Needs, Question, Reply, request_error};
use crate::flow::Flow;
use crate::headers::{announced_length, check_headers};
use crate::hearsay::unreachable_by;
use crate::hops::{Hop, Hops};
use crate::host::{Host, Scheme};
use crate::id::Place;
use crate::identity::Identity;
use crate::landing::{Landing, Landings};
use crate::pass::{HopLogin, Pass};
use crate::pool::{Lent, Which};
use crate::probe::{Probes, Waiting};
use crate::proxy::Proxy;
use crate::slots::Expects;
use crate::target::Target;
use crate::traffic::shown;

/// Sends requests; knows every host.
pub(crate) struct Client {
    pub options: WebOptions,
    pub notes: Arc<dyn Notes>,
    dialer: Arc<Dialer>,
    hosts: Mutex<HashMap<Authority, Arc<Host>>>,
    budget: Arc<Budget>,
    pub(crate) probes: Probes,
    pub(crate) landings: Landings,
}

impl Client {
    pub fn new(options: WebOptions, notes: Arc<dyn Notes>) -> Result<Arc<Client>> {
        let dialer = Arc::new(Dialer::new(&options)?);
        let probes = Probes::default();
        let (budget, landings) = (Budget::new(options.memory_bytes_max), Landings::default());
        Ok(Arc::new(Client { options, notes, dialer, hosts: Mutex::new(HashMap::new()), budget, probes, landings }))
    }

    /// The host, known or new.
    pub fn host(&self, authority: &Authority) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(authority) {
            return host.clone();
        }
        if hosts.len() >= HOSTS_MAX {
            // Forgotten hosts are read from the notes again; those in use are held elsewhere too.
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let builtin = self.options.builtin.get(&authority.text()).cloned();
        let connections_max = self.options.connections_per_host_max;
        let host = Arc::new(Host::new(
            authority.clone(),
            builtin,
            connections_max,
            self.budget.clone(),
            self.options.down_time,
            &*self.notes,
        ));
        hosts.insert(authority.clone(), host.clone());
        host
    }

    /// What was exchanged with each host that was talked to.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.hosts().iter().filter_map(|host| host.counts.traffic(host.authority.text())).collect()
    }

    /// The hosts in memory.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.hosts.lock().values().cloned().collect()
    }

    /// The host, if it is in memory.
    pub fn known_host(&self, authority: &Authority) -> Option<Arc<Host>> {
        self.hosts.lock().get(authority).cloned()
    }

    /// GETs a place, following redirects and waiting as the server asks, within the call's deadline.
    ///
    /// # Errors
    /// `Loop`, `Busy`, `Denied` for TLS that cannot be trusted and for what the address policy refuses, and what keeps the host from answering.
    pub async fn get(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        conditions: &[(HeaderName, HeaderValue)],
    ) -> std::result::Result<Reply, GetError> {
        self.get_at(call, place, None, conditions).await
    }

    /// The same as if the place had just redirected to where a version came from.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_at(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        landing: Option<&Landing>,
        conditions: &[(HeaderName, HeaderValue)],
    ) -> std::result::Result<Reply, GetError> {
        let reply = self.ask_at(call, place, landing, &Question::get(conditions)).await?;
        self.landings.note(place, &reply);
        Ok(reply)
    }

    /// The same for who needs the headers alone: a long body may be there without a place to come in.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn look(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        conditions: &[(HeaderName, HeaderValue)],
    ) -> std::result::Result<Reply, GetError> {
        self.ask_noted(call, place, &Question::look(conditions)).await
    }

    /// Asks a question of a place whose answer brings a version: where it came from is noted.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn ask_noted(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        question: &Question<'_>,
    ) -> std::result::Result<Reply, GetError> {
        let reply = self.ask(call, place, question).await?;
        self.landings.note(place, &reply);
        Ok(reply)
    }

    /// Asks a question of a place, as [`Client::get`] does.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn ask(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        question: &Question<'_>,
    ) -> std::result::Result<Reply, GetError> {
        self.ask_at(call, place, None, question).await
    }

    async fn ask_at(
        self: &Arc<Self>,
        call: &Call,
        place: &Place,
        landing: Option<&Landing>,
        question: &Question<'_>,
    ) -> std::result::Result<Reply, GetError> {
        Hops::begin(self, call, place, landing).await?.answer(question).await
    }

    /// One request and its answer's headers, on a connection of whatever the host speaks. `visited`: whether it is the host that
    /// was named, and no redirect that leads there.
    ///
    /// # Errors
    /// What keeps the host from answering, and answers whose headers cannot be believed.
    pub(crate) async fn send(
        self: &Arc<Self>,
        call: &Call,
        target: &Target,
        question: &Question<'_>,
        mut pass: Option<&mut Pass>,
        visited: bool,
    ) -> std::result::Result<Hop, GetError> {
        let host = self.host(&target.authority);
        host.may_ask().await?;
        let mut waiting = Waiting::new(self, &host, call, target.shown());
        let identity = pass.as_ref().and_then(|pass| pass.identity_for(&target.authority)).cloned();
        let scheme = match self.scheme(&host, target.scheme, identity).await {
            Ok(scheme) => scheme,
            Err(error) => return Err(self.connect_failed(&host, target, error, waiting)),
        };
        if host.memory().is_some_and(|memory| memory.scheme != scheme) {
            waiting.set_aside();
            host.may_ask_aside()?;
        }
        let url = target.url(scheme);
        let login = pass.as_mut().map(|pass| pass.for_hop(&target.authority, scheme, &target.path_and_query));
        let HopLogin { headers: login, identity } = login.unwrap_or_default();
        let headers: Vec<_> = question.headers.iter().cloned().chain(login).collect();
        let pool = host.pool(scheme, identity.as_deref());
        let (mut expects, mut failures) = (question.expects(), 0);
        loop {
            // A place among the connections may be waited for long while others read: that is no silence.
            waiting.for_nobody();
            let connect = async {
                waiting.for_host(Took::Nothing);
                self.connect(&host, scheme, false, identity.clone()).await
            };
            let which = if failures == SHARED_MAX { Which::Own } else { Which::Any };
            let mut lent = match pool.lend(expects, which, connect).await {
                Ok(lent) => lent,
                Err(error) => return Err(self.connect_failed(&host, target, error, waiting)),
            };
            let request = self.request(question, target, scheme, &headers, &lent)?;
            let sent = Instant::now();
            waiting.for_host(Took::Connection);
            match lent.send(request).await {
                // It is for another connection, or none (RFC 9110 section 15.5.20).
                Ok(response) if response.status() == StatusCode::MISDIRECTED_REQUEST && which == Which::Any => {
                    lent.forget();
                    failures = SHARED_MAX;
                }
                Ok(response) => {
                    let (parts, incoming) = response.into_parts();
                    if let Some(error) = lent.proxy().and_then(|proxy| unreachable_by(proxy, &url, &parts)) {
                        host.counts.failed();
                        waiting.failed(&error);
                        return Err(error.into());
                    }
                    waiting.over();
                    self.has_answered(&host, scheme, sent.elapsed(), visited);
                    check_headers(&url, &parts.headers)?;
                    let announced = announced_length(&question.method, parts.status, &parts.headers);
                    let (status, took_ms) = (parts.status.as_u16(), sent.elapsed().as_millis());
                    let method = question.method.as_str();
                    tracing::debug!(method, url = shown(&url), status, announced, took_ms, "asked");
                    let long = may_take_long(parts.status, &parts.headers, announced, self.options.page_bytes_max);
                    let unplaced = long && !lent.keep_for_long_body();
                    if unplaced && question.needs == Needs::Body {
                        // What it has now is kept free for questions: it is asked for again from a place to stay.
                        (expects, failures) = (Expects::LongBody, 0);
                        continue;
                    }
                    let digest = Announced::read(parts.status, &parts.headers);
                    let flow = Flow::new(url, incoming, lent, announced, self.options.stall_timeout);
                    let flow = flow.counted(host.counts.clone()).with_digest(digest);
                    let (status, headers) = (parts.status, parts.headers);
                    return Ok(Hop { scheme, status, headers, body: flow, unplaced, host: host.clone() });
                }
                // An idle connection may have been closed just then, and a shared one may take no more: a GET may be sent again.
                Err(_) if lent.reused() => {
                    lent.forget();
                    failures += 1;
                }
                Err(error) => {
                    let error = request_error(&url, &error);
                    host.counts.failed();
                    let took_ms = sent.elapsed().as_millis();
                    tracing::debug!(method = question.method.as_str(), url = shown(&url), took_ms, "no answer");
                    waiting.failed(&error);
                    return Err(error.into());
                }
            }
        }
    }

    fn has_answered(&self, host: &Arc<Host>, scheme: Scheme, took: Duration, visited: bool) {
        host.counts.answered(took);
        if scheme == Scheme::Https {
            host.learn(scheme, "a redirect led to https");
        }
        let was_away = host.is_away();
        if host.answered(visited, &*self.notes) && was_away {
            self.probes.tell_back(host);
        }
    }

    fn connect_failed(&self, host: &Host, target: &Target, error: ConnectError, waiting: Waiting<'_>) -> GetError {
        let no_such_host = matches!(error, ConnectError::NoSuchHost(_));
        let error = error.into_remote(&target.shown());
        // A name that led somewhere before is not gone because a resolver says so: this may be another network.
        if no_such_host && host.memory().is_none() {
            host.failed(&error);
            waiting.over();
            return GetError::NoSuchHost(cause(&error));
        }
        host.counts.failed();
        tracing::debug!(host = host.authority.text(), "no connection");
        if waiting.is_aside() && error.is_silence() {
            host.silent_aside(&error);
        }
        waiting.failed(&error);
        if no_such_host { GetError::NoSuchHost(cause(&error)) } else { error.into() }
    }

    /// The scheme to use: as remembered; as a redirect says, unless https was seen; else found out.
    pub(crate) async fn scheme(
        &self,
        host: &Arc<Host>,
        asked: Option<Scheme>,
        identity: Option<Arc<Identity>>,
    ) -> Connecting<Scheme> {
        match (asked, host.memory()) {
            (Some(Scheme::Https), _) => return Ok(Scheme::Https),
            (Some(Scheme::Http), Some(memory)) if memory.https_seen => return Ok(Scheme::Https),
            (Some(Scheme::Http), _) => return Ok(Scheme::Http),
            (None, Some(memory)) => return Ok(memory.scheme),
            (None, None) => {}
        }
        let _deciding = host.deciding.lock().await;
        match host.memory() {
            Some(memory) => Ok(memory.scheme),
            None => self.decide(host, identity).await,
        }
    }

    /// https where anything speaks TLS, else http.
    async fn decide(&self, host: &Arc<Host>, identity: Option<Arc<Identity>>) -> Connecting<Scheme> {
        let probing = host.authority.port.is_some();
        let error = match self.connect(host, Scheme::Https, probing, identity.clone()).await {
            Ok(connected) => {
                host.learn(Scheme::Https, "it speaks TLS");
                host.pool(Scheme::Https, identity.as_deref()).add(connected).await?;
                return Ok(Scheme::Https);
            }
            Err(error) => error,
        };
        let why = match &error {
            ConnectError::NotTls(why) => format!("its port does not speak TLS ({why})"),
            ConnectError::Unreachable(why) | ConnectError::TimedOut(why) if !probing => {
                format!("nothing answers on port 443 ({why})")
            }
            // A proxy for plain http alone may reach, and know, hosts that this machine does not.
            ConnectError::Unreachable(why) | ConnectError::TimedOut(why) | ConnectError::NoSuchHost(why)
                if self.dialer.ways_differ(&host.authority) =>
            {
                format!("https goes another way, on which nothing answers ({why})")
            }
            // A server that waits for the end of a line takes the connection and stays silent.
            ConnectError::TimedOut(why) if why.contains("TLS") => format!("its port does not speak TLS ({why})"),
            _ => return Err(error),
        };
        match self.connect(host, Scheme::Http, false, None).await {
            Ok(connected) => {
                host.learn(Scheme::Http, &why);
                host.pool(Scheme::Http, None).add(connected).await?;
                Ok(Scheme::Http)
            }
            Err(_) => Err(error),
        }
    }

    pub(crate) async fn connect(
        &self,
        host: &Host,
        scheme: Scheme,
        probing: bool,
        identity: Option<Arc<Identity>>,
    ) -> Connecting<Connected> {
        if let Some(connector) = &host.builtin {
            return Ok(Connected { wire: Box::new(connector.connect()), http2: false, proxy: None, via: None });
        }
        let port = host.port(scheme);
        let connected = match scheme {
            Scheme::Https => self.dialer.tls(&host.authority, port, probing, identity).await?,
            Scheme::Http => self.dialer.plain(&host.authority, port).await?,
        };
        host.came_by(connected.via.clone());
        Ok(connected)
    }

    pub(crate) fn request(
        &self,
        question: &Question<'_>,
        target: &Target,
        scheme: Scheme,
        headers: &[(HeaderName, HeaderValue)],
        lent: &Lent,
    ) -> Result<Request<Full<Bytes>>> {
        let url = target.url(scheme);
        let mut request = Request::builder().method(question.method.clone());
        request = match (lent.is_http2(), lent.proxy()) {
            (true, _) => request.uri(&url),
            (false, Some(_)) => request.uri(&url).header(header::HOST, target.authority.text()),
            (false, None) => request.uri(&target.path_and_query).header(header::HOST, target.authority.text()),
        };
        if let Some(login) = lent.proxy().and_then(Proxy::authorization) {
            request = request.header(header::PROXY_AUTHORIZATION, login);
        }
        request = request
            .header(header::USER_AGENT, &self.options.user_agent)
            .header(header::ACCEPT, "*/*")
            .header(header::ACCEPT_ENCODING, "identity");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request
            .body(Full::new(question.body.clone()))
            .map_err(|e| RemoteError::Failed { detail: format!("{url}: no such request can be made: {e}") })
    }
}

/// On how many connections that others used as well a request is sent before it gets one of its own.
const SHARED_MAX: u32 = 2;
/// Hosts remembered in memory.
const HOSTS_MAX: usize = 1024;
