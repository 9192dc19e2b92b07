//! One connection: resolver, TCP, TLS.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use weft_remote::{RemoteError, Result};

use crate::authority::Authority;
use crate::ca_file::CaFile;
use crate::host::Scheme;
use crate::identity::Identity;
use crate::proxy::{Protocol, Proxies, Proxy, Via};
use crate::race;
use crate::refusal;
use crate::tls_configs::{TlsConfigs, TlsSlot};
use crate::tunnel::{self, TunnelError};
use crate::{AddressPolicy, WebOptions};

/// Any stream that HTTP can be spoken over.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A connection that stands.
pub(crate) struct Connected {
    pub wire: Box<dyn Wire>,
    /// Whether the other side chose HTTP/2.
    pub http2: bool,
    /// The HTTP proxy on the other side, which is told whole URLs.
    pub proxy: Option<Arc<Proxy>>,
    /// The proxy that it goes through, if any, for people.
    pub via: Option<String>,
}

/// Why there is no connection. Each holds the system's words.
#[derive(Clone, Debug)]
pub(crate) enum ConnectError {
    /// The address policy says no. Nothing was sent anywhere.
    Refused(String),
    /// The resolver says that there is no such host.
    NoSuchHost(String),
    /// Refused, no route, resolver out of order.
    Unreachable(String),
    /// No answer to the connection attempt.
    TimedOut(String),
    /// This process has no file left for a socket: nothing is said of the host.
    NoSocket(String),
    /// Something answered, but not in TLS.
    NotTls(String),
    /// TLS was spoken, and the other side is not who it should be or refused us.
    Tls(String),
    /// The same, for nobody who is trusted vouches for it.
    Unvouched(String),
}

/// What connecting gives.
pub(crate) type Connecting<T> = std::result::Result<T, ConnectError>;

impl ConnectError {
    pub fn into_remote(self, url: &str) -> RemoteError {
        match self {
            ConnectError::Refused(why) => RemoteError::Denied { detail: format!("{url}: {why}") },
            ConnectError::NoSuchHost(why) => {
                RemoteError::Unreachable { detail: format!("{url}: no such host ({why})") }
            }
            ConnectError::Unreachable(why) => RemoteError::Unreachable { detail: format!("{url}: {why}") },
            ConnectError::TimedOut(why) => RemoteError::TimedOut { detail: format!("{url}: {why}") },
            ConnectError::NoSocket(why) => RemoteError::TooManyOpen { detail: format!("{url}: {why}") },
            ConnectError::NotTls(why) => RemoteError::Unreachable {
                detail: format!("{url}: nothing speaks TLS there ({why}), and plain http is not used instead"),
            },
            // Not silence: what the store holds must not hide that somebody else may be answering.
            ConnectError::Tls(why) | ConnectError::Unvouched(why) => {
                RemoteError::Denied { detail: format!("{url}: no trusted TLS connection: {why}") }
            }
        }
    }
}

/// A stream to where a host can be spoken to.
struct Way {
    wire: Box<dyn Wire>,
    through: Option<Arc<Proxy>>,
}

/// How connections are made.
pub(crate) struct Dialer {
    connect_timeout: Duration,
    addresses: AddressPolicy,
    proxies: Proxies,
    /// For how long a proxy that takes no connection is left alone.
    down_time: Duration,
    ca_file: Option<CaFile>,
    /// For whoever shows no certificate.
    tls: TlsSlot,
    /// Each look-up holds a thread for as long as the system's resolver takes, even after nobody waits for it.
    lookups: Arc<Semaphore>,
}

impl Dialer {
    /// Reads the extra authorities; the system's are read when TLS is first needed.
    ///
    /// # Errors
    /// `Failed` when the file cannot be read or holds no certificate.
    pub fn new(options: &WebOptions) -> Result<Dialer> {
        let ca_file = options.extra_ca.as_deref().map(CaFile::read).transpose()?;
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Ok(Dialer {
            connect_timeout: options.connect_timeout,
            addresses: options.addresses.clone(),
            proxies: options.proxies.clone(),
            down_time: options.down_time,
            ca_file,
            tls: TlsSlot::default(),
            lookups,
        })
    }

    /// Whether plain http goes another way to a host than https.
    pub fn ways_differ(&self, host: &Authority) -> bool {
        self.proxies.differ(host)
    }

    /// Connects in plain text.
    pub async fn plain(&self, host: &Authority, port: u16) -> Connecting<Connected> {
        let Way { wire, through } = self.reach(host, Scheme::Http, port).await?;
        let via = through.as_ref().map(|proxy| proxy.to_string());
        let proxy = through.filter(|proxy| proxy.protocol == Protocol::Http);
        Ok(Connected { wire, http2: false, proxy, via })
    }

    /// Connects in TLS. `probing` says that the port may as well speak plain HTTP; `identity` is who we are.
    pub async fn tls(
        self: &Arc<Self>,
        host: &Authority,
        port: u16,
        probing: bool,
        identity: Option<Arc<Identity>>,
    ) -> Connecting<Connected> {
        let configs = self.configs(identity.clone(), None).await?;
        let outcome = self.handshake(host, port, configs.of(probing)).await;
        if matches!(outcome, Err(ConnectError::Unvouched(_))) {
            let others = self.configs(identity, Some(configs.clone())).await?;
            if !Arc::ptr_eq(&configs, &others) {
                return self.handshake(host, port, others.of(probing)).await;
            }
        }
        outcome
    }

    /// How TLS is begun by who shows this certificate. `refused` is by what nobody vouches for a host: others, if the
    /// authorities may have changed since.
    async fn configs(
        self: &Arc<Self>,
        identity: Option<Arc<Identity>>,
        refused: Option<Arc<TlsConfigs>>,
    ) -> Connecting<Arc<TlsConfigs>> {
        let dialer = self.clone();
        let configs = tokio::task::spawn_blocking(move || {
            let slot = identity.as_ref().map_or(&dialer.tls, |identity| &identity.configs);
            slot.get(dialer.ca_file.as_ref(), identity.as_deref(), refused)
        });
        configs.await.map_err(|e| ConnectError::Unreachable(e.to_string()))
    }

    async fn handshake(&self, host: &Authority, port: u16, config: Arc<ClientConfig>) -> Connecting<Connected> {
        let name = ServerName::try_from(host.bare_host().to_owned())
            .map_err(|e| ConnectError::Tls(format!("{}: {e}", host.host)))?;
        let Way { wire, through } = self.reach(host, Scheme::Https, port).await?;
        let via = through.map(|proxy| proxy.to_string());
        let connector = tokio_rustls::TlsConnector::from(config);
        match timeout(self.connect_timeout, connector.connect(name, wire)).await {
            Err(_) => Err(ConnectError::TimedOut("no answer to the TLS handshake".to_owned())),
            Ok(Err(e)) => Err(tls_error(&e)),
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Ok(Connected { wire: Box::new(stream), http2, proxy: None, via })
            }
        }
    }

    /// A stream to a host's port, over the first way there that takes a connection. A proxy that is left alone may be back: it
    /// is tried where all others fail.
    async fn reach(&self, host: &Authority, scheme: Scheme, port: u16) -> Connecting<Way> {
        let ways = self.proxies.ways(host, scheme).into_iter().take(WAYS_MAX);
        let (left_alone, ways): (Vec<Via>, Vec<Via>) = ways.partition(|via| via.left_alone().is_some());
        let mut last = None;
        if ways.is_empty() {
            self.admit_by_proxy(host, port).await?;
            let why = left_alone.last().and_then(Via::left_alone);
            return Err(ConnectError::Unreachable(why.unwrap_or_else(|| NO_WAY.to_owned())));
        }
        let mut late = Vec::new();
        for via in ways.into_iter().chain(left_alone) {
            let tried = match via {
                Via::Direct => {
                    let stream = race::first_of(self.admitted(host, port).await?, self.connect_timeout).await;
                    stream.map(|stream| Way { wire: Box::new(stream), through: None })
                }
                Via::Proxy(proxy) => self.by_proxy(proxy, host, scheme, port, &mut late).await?,
            };
            match tried {
                Ok(way) => {
                    // The host was not what they waited for.
                    late.iter().for_each(|(proxy, why): &(Arc<Proxy>, String)| proxy.failed(why, self.down_time));
                    return Ok(way);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ConnectError::Unreachable(NO_WAY.to_owned())))
    }

    /// A stream by way of a proxy; in `late` stand those that have not answered, of which the next way tells whose fault that
    /// is. One silent host must not have a proxy left alone that serves all others.
    ///
    /// # Errors
    /// What ends the attempt; within it, what has the next way tried.
    async fn by_proxy(
        &self,
        proxy: Arc<Proxy>,
        host: &Authority,
        scheme: Scheme,
        port: u16,
        late: &mut Vec<(Arc<Proxy>, String)>,
    ) -> Connecting<Connecting<Way>> {
        self.admit_by_proxy(host, port).await?;
        match self.through(&proxy, host, scheme, port).await {
            Ok(wire) => Ok(Ok(Way { wire, through: Some(proxy) })),
            Err(TunnelError::Host(error)) => Err(error),
            Err(TunnelError::Late(why)) => {
                late.push((proxy, why.clone()));
                Ok(Err(ConnectError::TimedOut(why)))
            }
            Err(TunnelError::Proxy(why)) => {
                proxy.failed(&why, self.down_time);
                Ok(Err(ConnectError::Unreachable(why)))
            }
        }
    }

    async fn through(
        &self,
        proxy: &Proxy,
        host: &Authority,
        scheme: Scheme,
        port: u16,
    ) -> std::result::Result<Box<dyn Wire>, TunnelError> {
        let silent = |error: ConnectError| {
            let words = match error {
                ConnectError::NoSocket(_) => return TunnelError::Host(error),
                ConnectError::NoSuchHost(why) | ConnectError::Unreachable(why) | ConnectError::TimedOut(why) => why,
                other => format!("{other:?}"),
            };
            TunnelError::Proxy(format!("the proxy {proxy} takes no connection: {words}"))
        };
        // Its addresses are not asked about: whoever names a proxy wants it used.
        let addresses = self.resolve(&proxy.authority, proxy.authority.port.unwrap_or(0)).await.map_err(silent)?;
        let stream = race::first_of(addresses, self.connect_timeout).await.map_err(silent)?;
        tunnel::open(proxy, stream, host, scheme, port, self.connect_timeout).await
    }

    /// Whether a proxy may be asked for a host. Which address it connects to cannot be seen from here: a name that
    /// leads to a refused one by this machine's resolver is refused, and one that is unknown here is the proxy's to
    /// judge.
    async fn admit_by_proxy(&self, host: &Authority, port: u16) -> Connecting<()> {
        self.addresses.check_host(host).map_err(ConnectError::Refused)?;
        if !self.addresses.judges_addresses() {
            return Ok(());
        }
        let known = timeout(self.connect_timeout, self.resolve(host, port)).await;
        for address in known.ok().and_then(|found| found.ok()).unwrap_or_default() {
            self.addresses.check_address(host, address.ip()).map_err(ConnectError::Refused)?;
        }
        Ok(())
    }

    /// The addresses that a connection may use. What is returned here is connected to as it is, so that a name whose
    /// address changes after the check gains nothing; addresses that are refused are left out when there are others.
    async fn admitted(&self, host: &Authority, port: u16) -> Connecting<Vec<SocketAddr>> {
        self.addresses.check_host(host).map_err(ConnectError::Refused)?;
        let mut refused = None;
        let mut admitted = self.resolve(host, port).await?;
        admitted.retain(|address| match self.addresses.check_address(host, address.ip()) {
            Ok(()) => true,
            Err(why) => {
                refused.get_or_insert(why);
                false
            }
        });
        match refused {
            Some(why) if admitted.is_empty() => Err(ConnectError::Refused(why)),
            _ => Ok(admitted),
        }
    }

    async fn resolve(&self, host: &Authority, port: u16) -> Connecting<Vec<SocketAddr>> {
        let bare = host.bare_host().to_owned();
        if let Ok(address) = bare.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let permit = self.lookups.clone().acquire_owned().await.expect("this semaphore is never closed");
        let found = tokio::task::spawn_blocking(move || {
            let found = (bare.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            drop(permit);
            found
        });
        match found.await.map_err(io::Error::other).and_then(|found| found) {
            Ok(addresses) => Ok(addresses),
            Err(e) if is_out_of_files(&e) => Err(ConnectError::NoSocket(e.to_string())),
            Err(e) if is_no_such_host(&e) => Err(ConnectError::NoSuchHost(e.to_string())),
            Err(e) => Err(ConnectError::Unreachable(e.to_string())),
        }
    }
}

fn tls_error(error: &io::Error) -> ConnectError {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return match tls {
            rustls::Error::InvalidMessage(_) => ConnectError::NotTls(tls.to_string()),
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => ConnectError::Unvouched(format!(
                "{tls}: the system knows no authority that signed its certificate; [web] ca_file can name a PEM file with it"
            )),
            rustls::Error::InvalidCertificate(CertificateError::BadSignature) => ConnectError::Unvouched(format!(
                "{tls}: an authority with the name of the one that signed its certificate is trusted, but has another key (was it made anew?); [web] ca_file can name a PEM file with the one of now"
            )),
            _ => ConnectError::Tls(refusal::of_tls(tls.to_string())),
        };
    }
    match error.kind() {
        // Closed at our first words: what plain servers do that cannot read them.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ConnectError::NotTls(error.to_string())
        }
        _ => ConnectError::Unreachable(error.to_string()),
    }
}

/// The standard library gives the resolver's answer only as text: gai_strerror(3) of glibc for EAI_NONAME and
/// EAI_NODATA, and of musl, in the C locale, which Rust programs run in.
fn is_no_such_host(error: &io::Error) -> bool {
    let text = error.to_string();
    ["Name or service not known", "No address associated with hostname", "Name does not resolve", "Name has no usable"]
        .iter()
        .any(|known| text.contains(known))
}

pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Look-ups of host names at a time.
const LOOKUPS_MAX: usize = 32;
/// Proxies that are tried for one connection.
const WAYS_MAX: usize = 8;
const NO_WAY: &str = "there is no way to this host";
