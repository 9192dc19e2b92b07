//! One GET: scheme, connection, redirects, waiting as told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use parking_lot::Mutex;
use url::Url;
use weft_remote::{Audience, Call, Notes, RemoteError, Result};

use crate::WebOptions;
use crate::authority::Authority;
use crate::connect::{ConnectError, Connected, Connecting, Dialer};
use crate::credentials::Pass;
use crate::flow::Flow;
use crate::host::{Host, Scheme};
use crate::id::Place;
use crate::target::{Target, place_of};

/// Sends requests; knows every host.
pub(crate) struct Client {
    pub options: WebOptions,
    pub notes: Arc<dyn Notes>,
    dialer: Arc<Dialer>,
    hosts: Mutex<HashMap<Authority, Arc<Host>>>,
}

/// What is asked of a place.
pub(crate) struct Question<'a> {
    /// GET, or another that changes nothing and may be sent again.
    pub method: Method,
    /// Sent besides what every request has.
    pub headers: &'a [(HeaderName, HeaderValue)],
    pub body: Bytes,
}

/// An answer to a question, of any status but a redirect that was followed.
pub(crate) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The URL that was asked for first.
    pub asked: String,
    /// Where the answer came from in the end.
    pub url: Url,
    /// Every hop on the way.
    pub redirects: Vec<String>,
    pub body: Flow,
    /// The host that answered.
    pub host: Arc<Host>,
    /// A redirect had led from the place to the place with a slash: it is a directory, and this its page.
    pub slashed: bool,
    /// Who may see it: everyone, unless a login was sent on the way.
    pub audience: Audience,
}

/// What one hop gave.
struct Hop {
    scheme: Scheme,
    status: StatusCode,
    headers: HeaderMap,
    body: Flow,
    host: Arc<Host>,
}

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum GetError {
    /// The host that was asked for does not exist.
    NoSuchHost(String),
    /// Anything else.
    Remote(RemoteError),
}

impl From<RemoteError> for GetError {
    fn from(error: RemoteError) -> GetError {
        GetError::Remote(error)
    }
}

impl From<GetError> for RemoteError {
    fn from(error: GetError) -> RemoteError {
        match error {
            GetError::NoSuchHost(detail) => RemoteError::Unreachable { detail },
            GetError::Remote(error) => error,
        }
    }
}

impl Client {
    pub fn new(options: WebOptions, notes: Arc<dyn Notes>) -> Result<Client> {
        let dialer =
            Arc::new(Dialer::new(options.connect_timeout, options.addresses.clone(), options.extra_ca.as_deref())?);
        Ok(Client { options, notes, dialer, hosts: Mutex::new(HashMap::new()) })
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
        let host = Arc::new(Host::new(authority.clone(), builtin, connections_max, &*self.notes));
        hosts.insert(authority.clone(), host.clone());
        host
    }

    /// GETs a place, following redirects and waiting as the server asks, within the call's deadline.
    ///
    /// # Errors
    /// `Loop`, `Busy`, `Denied` for TLS that cannot be trusted and for what the address policy refuses, and what keeps the host from answering.
    pub async fn get(
        &self,
        call: &Call,
        place: &Place,
        conditions: &[(HeaderName, HeaderValue)],
    ) -> std::result::Result<Reply, GetError> {
        self.ask(call, place, &Question { method: Method::GET, headers: conditions, body: Bytes::new() }).await
    }

    /// Asks a question of a place, as [`Client::get`] does.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn ask(
        &self,
        call: &Call,
        place: &Place,
        question: &Question<'_>,
    ) -> std::result::Result<Reply, GetError> {
        let mut target = Target::of(place)?;
        let mut pass = self.options.credentials.pass(&call.caller, &target.authority);
        let mut redirects: Vec<String> = Vec::new();
        let mut slashed = false;
        let mut tries = 1;
        let mut asked = None;
        loop {
            let visited = redirects.is_empty();
            let hop = match self.send(&target, question, pass.as_mut(), visited).await {
                Ok(hop) => hop,
                // Only the host the user named can be absent; one that a redirect names is a fault of the source.
                Err(GetError::NoSuchHost(detail)) if !visited => {
                    return Err(GetError::Remote(RemoteError::Unreachable { detail }));
                }
                Err(other) => return Err(other),
            };
            let Hop { scheme, status, headers, body, host } = hop;
            let url = Url::parse(&target.url(scheme))
                .map_err(|e| RemoteError::Failed { detail: format!("{}: {e}", target.url(scheme)) })?;
            let asked = asked.get_or_insert_with(|| url.to_string());
            if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                body.drain().await;
                self.wait_as_told(call, &url, status, &headers, &mut tries).await?;
                continue;
            }
            let Some(next) = redirect_target(&url, status, &headers) else {
                let audience = pass.as_ref().map_or(Audience::Everyone, Pass::audience);
                let asked = asked.clone();
                return Ok(Reply { status, headers, asked, url, redirects, body, host, slashed, audience });
            };
            let next = next?;
            body.drain().await;
            redirects.push(next.to_string());
            self.check_redirect(&host, &url, &next, &redirects)?;
            slashed = slashed || is_slashed(place, &next);
            target = Target::of_url(&next)
                .ok_or_else(|| RemoteError::Failed { detail: format!("{url}: redirects to {next}") })?;
        }
    }

    fn check_redirect(&self, host: &Host, from: &Url, to: &Url, chain: &[String]) -> Result<()> {
        let returning = chain[..chain.len() - 1].contains(&chain[chain.len() - 1]) || from == to;
        if chain.len() > self.options.redirects_max || returning {
            let detail = format!("{from}: redirected to {}", chain.join(", then to "));
            return Err(RemoteError::Loop { detail });
        }
        let same = from.host_str() == to.host_str();
        if same && from.scheme() == "https" && to.scheme() == "http" && host.memory().is_some_and(|m| m.https_seen) {
            let detail = format!("{from}: refused to follow a redirect from https to {to}");
            return Err(RemoteError::Denied { detail });
        }
        Ok(())
    }

    /// Sleeps as long as Retry-After says, if that fits.
    async fn wait_as_told(
        &self,
        call: &Call,
        url: &Url,
        status: StatusCode,
        headers: &HeaderMap,
        tries: &mut usize,
    ) -> Result<()> {
        let asked = retry_after(headers);
        let wait = asked.unwrap_or(RETRY_PAUSE);
        if *tries >= TRIES_MAX || wait >= call.remaining() {
            return Err(RemoteError::Busy { detail: format!("{url}: {status}"), retry_after: asked });
        }
        *tries += 1;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// One request and its answer's headers, on a connection of whatever the host speaks.
    async fn send(
        &self,
        target: &Target,
        question: &Question<'_>,
        pass: Option<&mut Pass>,
        visited: bool,
    ) -> std::result::Result<Hop, GetError> {
        let host = self.host(&target.authority);
        if let Some(error) = host.is_down() {
            return Err(error.into());
        }
        let scheme = match self.scheme(&host, target.scheme).await {
            Ok(scheme) => scheme,
            Err(error) => return Err(self.connect_failed(&host, target, error)),
        };
        let url = target.url(scheme);
        let login = pass.and_then(|pass| pass.header_for(&target.authority, scheme));
        let login = login.map(|value| (header::AUTHORIZATION, value));
        let headers: Vec<_> = question.headers.iter().cloned().chain(login).collect();
        let mut fresh = false;
        loop {
            let mut lent = match host.pool(scheme).lend(fresh, self.connect(&host, scheme, false)).await {
                Ok(lent) => lent,
                Err(error) => return Err(self.connect_failed(&host, target, error)),
            };
            let request = self.request(question, target, scheme, &headers, lent.is_http2())?;
            match lent.send(request).await {
                Ok(response) => {
                    if scheme == Scheme::Https {
                        host.learn(scheme, "a redirect led to https");
                    }
                    host.answered(visited, &*self.notes);
                    let (parts, incoming) = response.into_parts();
                    check_headers(&url, &parts.headers)?;
                    let announced = announced_length(parts.status, &parts.headers);
                    let flow = Flow::new(url, incoming, lent, announced, self.options.stall_timeout);
                    return Ok(Hop { scheme, status: parts.status, headers: parts.headers, body: flow, host });
                }
                // An idle connection may have been closed just then: a GET may be sent again.
                Err(_) if lent.reused() && !fresh => fresh = true,
                Err(error) => {
                    let error = request_error(&url, &error);
                    host.failed(&error);
                    return Err(error.into());
                }
            }
        }
    }

    fn connect_failed(&self, host: &Host, target: &Target, error: ConnectError) -> GetError {
        let no_such_host = matches!(error, ConnectError::NoSuchHost(_));
        let error = error.into_remote(&target.shown());
        host.failed(&error);
        if no_such_host {
            return GetError::NoSuchHost(error.to_string());
        }
        if error.is_silence() {
            host.down(Instant::now() + self.options.down_time, &error);
        }
        error.into()
    }

    /// The scheme to use: as remembered; as a redirect says, unless https was seen; else found out.
    async fn scheme(&self, host: &Arc<Host>, asked: Option<Scheme>) -> Connecting<Scheme> {
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
            None => self.decide(host).await,
        }
    }

    /// https where anything speaks TLS, else http.
    async fn decide(&self, host: &Arc<Host>) -> Connecting<Scheme> {
        let error = match self.connect(host, Scheme::Https, host.authority.port.is_some()).await {
            Ok(connected) => {
                host.learn(Scheme::Https, "it speaks TLS");
                host.https.add(connected).await?;
                return Ok(Scheme::Https);
            }
            Err(error) => error,
        };
        let explicit_port = host.authority.port.is_some();
        let why = match &error {
            ConnectError::NotTls(why) => format!("its port does not speak TLS ({why})"),
            ConnectError::Unreachable(why) | ConnectError::TimedOut(why) if !explicit_port => {
                format!("nothing answers on port 443 ({why})")
            }
            // A server that waits for the end of a line takes the connection and stays silent.
            ConnectError::TimedOut(why) if why.contains("TLS") => format!("its port does not speak TLS ({why})"),
            _ => return Err(error),
        };
        match self.connect(host, Scheme::Http, false).await {
            Ok(connected) => {
                host.learn(Scheme::Http, &why);
                host.http.add(connected).await?;
                Ok(Scheme::Http)
            }
            Err(_) => Err(error),
        }
    }

    async fn connect(&self, host: &Host, scheme: Scheme, probing: bool) -> Connecting<Connected> {
        if let Some(connector) = &host.builtin {
            return Ok(Connected { wire: Box::new(connector.connect()), http2: false });
        }
        let port = host.port(scheme);
        match scheme {
            Scheme::Https => self.dialer.tls(&host.authority, port, probing).await,
            Scheme::Http => self.dialer.plain(&host.authority, port).await,
        }
    }

    fn request(
        &self,
        question: &Question<'_>,
        target: &Target,
        scheme: Scheme,
        headers: &[(HeaderName, HeaderValue)],
        http2: bool,
    ) -> Result<Request<Full<Bytes>>> {
        let (authority, path_and_query) = (target.authority.text(), target.path_and_query.as_str());
        let mut request = Request::builder().method(question.method.clone());
        request = if http2 {
            request.uri(format!("{}://{authority}{path_and_query}", scheme.as_str()))
        } else {
            request.uri(path_and_query).header(header::HOST, &authority)
        };
        request = request
            .header(header::USER_AGENT, &self.options.user_agent)
            .header(header::ACCEPT, "*/*")
            .header(header::ACCEPT_ENCODING, "identity");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(Full::new(question.body.clone())).map_err(|e| RemoteError::Failed {
            detail: format!("{}://{authority}{path_and_query}: no such request can be made: {e}", scheme.as_str()),
        })
    }
}

/// The URL that an answer sends us to; `None` when it is no redirect.
fn redirect_target(from: &Url, status: StatusCode, headers: &HeaderMap) -> Option<Result<Url>> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = headers.get(header::LOCATION).map(HeaderValue::as_bytes).map(String::from_utf8_lossy);
    let target = location.as_deref().and_then(|location| from.join(location).ok());
    let Some(mut target) = target else {
        let detail = format!("{from}: {status} without a URL that can be read");
        return Some(Err(RemoteError::Damaged { detail }));
    };
    target.set_fragment(None);
    Some(Ok(target))
}

/// Whether a redirect leads from `place` to the same with a slash: on the same host, or on another that takes its
/// place (`www.`).
fn is_slashed(place: &Place, next: &Url) -> bool {
    if place.query.is_some() || place.path.ends_with('/') {
        return false;
    }
    let path = place_of(next).map(|next| next.path);
    path.is_some_and(|path| path.strip_suffix('/') == Some(&place.path))
}

fn check_headers(url: &str, headers: &HeaderMap) -> Result<()> {
    // Every line counts: one that is harmless does not excuse the next.
    let plain: [(HeaderName, &[u8]); 2] =
        [(header::CONTENT_ENCODING, b"identity"), (header::TRANSFER_ENCODING, b"chunked")];
    for (name, plain) in plain {
        let strange = |value: &&HeaderValue| !value.is_empty() && !value.as_bytes().eq_ignore_ascii_case(plain);
        if let Some(encoding) = headers.get_all(&name).iter().find(strange) {
            let detail = format!("{url}: came with {name} {encoding:?} although only plain content was asked for");
            return Err(RemoteError::Damaged { detail });
        }
    }
    if let Some(length) = content_length(headers).filter(|length| i64::try_from(*length).is_err()) {
        return Err(RemoteError::Damaged { detail: format!("{url}: no file can have {length} bytes") });
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > crate::pool::HEADERS_MAX || bytes > crate::pool::HEADER_BYTES_MAX {
        let detail = format!("{url}: {} headers of {bytes} bytes are too much", headers.len());
        return Err(RemoteError::Damaged { detail });
    }
    Ok(())
}

fn announced_length(status: StatusCode, headers: &HeaderMap) -> Option<u64> {
    if matches!(status, StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
        return None;
    }
    content_length(headers)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            Some(at.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
        }
    }
}

fn request_error(url: &str, error: &hyper::Error) -> RemoteError {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        why = format!("{why}: {inner}");
        source = inner.source();
    }
    let detail = format!("{url}: {why}");
    if error.is_parse() || error.is_parse_too_large() {
        RemoteError::Damaged { detail }
    } else {
        RemoteError::Unreachable { detail }
    }
}

/// Hosts remembered in memory.
const HOSTS_MAX: usize = 1024;
/// Tries of one request at a server that asks to come back later.
const TRIES_MAX: usize = 3;
/// Pause before such a try when the server does not say when.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
