//! Proxies: which one a connection goes through.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::authority::Authority;
use crate::credentials::basic;
use crate::host::Scheme;
use crate::pattern::HostPattern;

/// One way to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// Without a proxy.
    Direct,
    /// Through this one.
    Proxy(Arc<Proxy>),
}

/// A proxy, and whether it works.
pub struct Proxy {
    pub(crate) protocol: Protocol,
    /// With its port.
    pub(crate) authority: Authority,
    pub(crate) login: Option<(String, String)>,
    /// Left alone until then. Held for one look or one change.
    down: Mutex<Option<(Instant, String)>>,
}

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// CONNECT for https, whole URLs for http (RFC 9112 section 3.2.2, RFC 9110 section 9.3.6).
    Http,
    /// RFC 1928, the names being resolved by the proxy.
    Socks5,
}

/// Which proxies serve some hosts: the first that takes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRule {
    /// For whom.
    pub hosts: Vec<HostPattern>,
    /// In the order to be tried.
    pub via: Vec<Via>,
}

/// What the environment says of proxies, for hosts that no rule is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsualProxies {
    /// For plain http.
    pub http: Option<Via>,
    /// For https.
    pub https: Option<Via>,
    /// Hosts that are reached without.
    pub except: NoProxy,
}

/// Hosts that are reached without a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<(HostPattern, Option<u16>)>);

/// All that is known of proxies.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// The first that names a host decides.
    pub rules: Vec<ProxyRule>,
    /// For all other hosts.
    pub usual: UsualProxies,
}

impl Via {
    /// Reads `direct`, or the URL of a proxy: `http://HOST:PORT`, `socks5://HOST:PORT`, perhaps with a login as in
    /// `http://USER:PASSWORD@HOST:PORT`.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed; nothing of a login.
    pub fn parse(text: &str) -> Result<Via, String> {
        if text == "direct" {
            return Ok(Via::Direct);
        }
        let bad = |why: &str| {
            let shown = text.rsplit_once('@').map_or(text, |(_, host)| host);
            format!("\"{shown}\" {why}: write http://HOST:PORT, socks5://HOST:PORT or direct")
        };
        let url = Url::parse(text).map_err(|_| bad("is no URL"))?;
        let (protocol, port) = match url.scheme() {
            "http" => (Protocol::Http, 80),
            // Desktops write the first: GNOME sets `all_proxy=socks://HOST:PORT/` in every terminal.
            "socks" | "socks5" | "socks5h" => (Protocol::Socks5, 1080),
            _ => return Err(bad("is no proxy that weft can use")),
        };
        let authority = url.host_str().and_then(Authority::parse).ok_or_else(|| bad("names no host"))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(bad("has more than a host"));
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(|text| text.into_owned());
        let login = match (decoded(url.username()), decoded(url.password().unwrap_or_default())) {
            (Ok(user), Ok(password)) if user.len() <= LOGIN_BYTES_MAX && password.len() <= LOGIN_BYTES_MAX => {
                (!user.is_empty()).then_some((user, password))
            }
            _ => return Err(bad("has a login that cannot be sent")),
        };
        // Standard ports of http are left out of a URL that has them.
        let authority = Authority { port: Some(url.port().unwrap_or(port)), ..authority };
        Ok(Via::Proxy(Arc::new(Proxy { protocol, authority, login, down: Mutex::new(None) })))
    }

    /// Why it is left alone now, if it is.
    pub(crate) fn left_alone(&self) -> Option<String> {
        match self {
            Via::Direct => None,
            Via::Proxy(proxy) => proxy.is_down(),
        }
    }
}

/// Without its login.
impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Via::Direct => f.write_str("direct"),
            Via::Proxy(proxy) => proxy.fmt(f),
        }
    }
}

/// Without its login.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", self.authority.text())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Proxy {
    fn eq(&self, other: &Proxy) -> bool {
        (self.protocol, &self.authority, &self.login) == (other.protocol, &other.authority, &other.login)
    }
}

impl Eq for Proxy {}

impl Proxy {
    /// Why it is left alone now, if it is.
    pub(crate) fn is_down(&self) -> Option<String> {
        let down = self.down.lock();
        down.as_ref().filter(|(until, _)| Instant::now() < *until).map(|(_, why)| why.clone())
    }

    /// It did not take a connection.
    pub(crate) fn failed(&self, why: &str, down_time: Duration) {
        *self.down.lock() = Some((Instant::now() + down_time, why.to_owned()));
    }

    /// What an HTTP proxy is told of us.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let (user, password) = self.login.as_ref()?;
        let mut header = HeaderValue::try_from(basic(user, password)).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl Proxies {
    /// The ways to a host, in the order to be tried; never empty.
    pub(crate) fn ways(&self, host: &Authority, scheme: Scheme) -> Vec<Via> {
        let name = host.bare_host();
        let rule = self.rules.iter().find(|rule| rule.hosts.iter().any(|pattern| pattern.covers_name(name)));
        let ways = match rule {
            Some(rule) => rule.via.clone(),
            None if self.usual.except.covers(host, scheme) => Vec::new(),
            None => match scheme {
                Scheme::Https => self.usual.https.clone(),
                Scheme::Http => self.usual.http.clone(),
            }
            .into_iter()
            .collect(),
        };
        if ways.is_empty() { vec![Via::Direct] } else { ways }
    }

    /// Whether plain http goes another way to a host than https: that there is none for the latter says nothing of the former.
    pub(crate) fn differ(&self, host: &Authority) -> bool {
        self.ways(host, Scheme::Http) != self.ways(host, Scheme::Https)
    }

    /// What would serve a host, for people; nothing where there is no proxy.
    pub(crate) fn about(&self, host: &Authority, scheme: Scheme) -> Option<String> {
        let ways = self.ways(host, scheme);
        if ways == [Via::Direct] {
            return None;
        }
        let words = |via: &Via| match via {
            via if via.left_alone().is_some() => format!("{via} (left alone for now)"),
            via => via.to_string(),
        };
        Some(ways.iter().map(words).collect::<Vec<_>>().join(", then "))
    }
}

impl NoProxy {
    /// Reads the value of `no_proxy`: names, which stand for what is below them too, addresses and networks, with
    /// commas between; `*` for every host. What cannot be read is passed over, as other programs do.
    pub fn parse(text: &str) -> NoProxy {
        let items = text.split([',', ' ']).map(str::trim).filter(|item| !item.is_empty());
        let mut except = Vec::new();
        for item in items.take(EXCEPT_MAX) {
            let bare = item.strip_prefix("*.").or_else(|| item.strip_prefix('.')).unwrap_or(item);
            // The root's dot, which a name in full ends with.
            let bare = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
            let (bare, port) = match (HostPattern::parse(&bare), bare.rsplit_once(':')) {
                (Err(_), Some((host, port))) => match port.parse() {
                    Ok(port) => (host.to_owned(), Some(port)),
                    Err(_) => continue,
                },
                _ => (bare, None),
            };
            let patterns = [HostPattern::parse(&bare), HostPattern::parse(&format!("*.{bare}"))];
            except.extend(patterns.into_iter().flatten().map(|pattern| (pattern, port)));
        }
        NoProxy(except)
    }

    fn covers(&self, host: &Authority, scheme: Scheme) -> bool {
        let name = host.bare_host();
        // No proxy leads back to this machine.
        let here = name == "localhost" || crate::pass::is_loopback(host);
        let port = host.port.unwrap_or(scheme.default_port());
        here || self.0.iter().any(|(pattern, on)| on.is_none_or(|on| on == port) && pattern.covers_name(name))
    }
}

/// RFC 1929 section 2 has one byte for the length of each.
const LOGIN_BYTES_MAX: usize = 255;
/// Items of `no_proxy` that are read.
const EXCEPT_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Authority {
        Authority::parse(text).unwrap()
    }

    #[test]
    fn proxies_are_read_and_shown_without_their_login() {
        for (text, shown) in [
            ("direct", "direct"),
            ("http://proxy:3128", "http://proxy:3128"),
            ("http://proxy", "http://proxy:80"),
            ("http://me:word@proxy.lan:3128/", "http://proxy.lan:3128"),
            ("socks5://127.0.0.1", "socks5://127.0.0.1:1080"),
            ("socks://127.0.0.1:9/", "socks5://127.0.0.1:9"),
            ("socks5h://me:word@[::1]:9050", "socks5://[::1]:9050"),
        ] {
            let via = Via::parse(text).unwrap();
            assert_eq!(via.to_string(), shown);
            assert!(!format!("{via:?}").contains("word"));
        }
        let Via::Proxy(proxy) = Via::parse("http://a%40b:w%3Ard@proxy").unwrap() else { panic!("a proxy") };
        assert_eq!(proxy.login, Some(("a@b".to_owned(), "w:rd".to_owned())));
        for bad in ["", "proxy:3128", "ftp://proxy", "https://me:word@proxy", "http://me:word@pro xy", "http://p/word"]
        {
            let why = Via::parse(bad).unwrap_err();
            assert!(!why.contains("me:word"), "{bad}: {why}");
        }
    }

    #[test]
    fn a_rule_goes_before_the_environment() {
        let via = |text: &str| Via::parse(text).unwrap();
        let patterns = |texts: &[&str]| texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect();
        let proxies = Proxies {
            rules: vec![
                ProxyRule { hosts: patterns(&["*.onion"]), via: vec![via("socks5://tor"), via("http://b")] },
                ProxyRule { hosts: patterns(&["intern.lan", "10.0.0.0/8"]), via: vec![Via::Direct] },
            ],
            usual: UsualProxies {
                http: Some(via("http://plain")),
                https: Some(via("http://safe")),
                except: NoProxy::parse("lan.example, .dot.example,Full.example.,port.example:81,192.0.2.0/24,,?"),
            },
        };
        for (name, scheme, wanted) in [
            ("x.onion", Scheme::Https, &["socks5://tor:1080", "http://b:80"][..]),
            ("intern.lan", Scheme::Https, &["direct"]),
            ("10.1.2.3", Scheme::Http, &["direct"]),
            ("example.org", Scheme::Http, &["http://plain:80"]),
            ("example.org", Scheme::Https, &["http://safe:80"]),
            ("lan.example", Scheme::Https, &["direct"]),
            ("a.lan.example:8443", Scheme::Https, &["direct"]),
            ("alan.example", Scheme::Https, &["http://safe:80"]),
            ("dot.example", Scheme::Https, &["direct"]),
            ("a.dot.example", Scheme::Https, &["direct"]),
            ("full.example", Scheme::Https, &["direct"]),
            ("port.example:81", Scheme::Http, &["direct"]),
            ("port.example", Scheme::Http, &["http://plain:80"]),
            ("192.0.2.7", Scheme::Http, &["direct"]),
            ("localhost:8080", Scheme::Http, &["direct"]),
            ("127.0.0.1:8080", Scheme::Http, &["direct"]),
        ] {
            let ways: Vec<String> = proxies.ways(&host(name), scheme).iter().map(Via::to_string).collect();
            assert_eq!(ways, wanted, "{name}");
        }
        let all = UsualProxies { except: NoProxy::parse("*"), ..proxies.usual };
        assert_eq!(Proxies { rules: Vec::new(), usual: all }.ways(&host("example.org"), Scheme::Http), [Via::Direct]);
    }
}
