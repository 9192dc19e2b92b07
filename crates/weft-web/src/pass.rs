//! Logins on their way through one request and its redirects.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{self, HeaderName, HeaderValue};
use weft_remote::Audience;

use crate::authority::Authority;
use crate::bearer::{BearerCommand, Token};
use crate::cookies::Jar;
use crate::host::Scheme;
use crate::identity::Identity;
use crate::own_file::OwnFiles;

/// What one user shows to one host, bound to the origin that the request began with.
pub(crate) struct Pass {
    host: Authority,
    /// The scheme of its origin; decided at the first hop.
    scheme: Option<Scheme>,
    insecure: bool,
    uid: u32,
    used: bool,
    /// The last hop was asked with the header: what it answered is about that.
    sent: bool,
    pub authorization: Option<Authorization>,
    pub cookies: Option<Arc<Jar>>,
    pub identity: Option<Arc<Identity>>,
}

/// The value of the header of that name, and where another comes from if the server refuses it.
pub(crate) enum Authorization {
    /// Nothing else is known.
    Fixed(HeaderValue),
    /// A program printed it.
    Printed(Token, Arc<BearerCommand>),
    /// A file holds it.
    Written(Arc<HeaderValue>, Arc<OwnFiles<HeaderValue>>),
}

/// What goes along with the request of one hop.
#[derive(Default)]
pub(crate) struct HopLogin {
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub identity: Option<Arc<Identity>>,
}

impl Pass {
    /// One that shows nothing yet. `insecure` has it shown in plain HTTP to this machine's own addresses as well.
    pub fn new(uid: u32, host: &Authority, insecure: bool) -> Pass {
        Pass {
            host: host.clone(),
            scheme: None,
            insecure: insecure && is_loopback(host),
            uid,
            used: false,
            sent: false,
            authorization: None,
            cookies: None,
            identity: None,
        }
    }

    /// Binds it to the origin of a request that begins under this scheme, if it is not bound yet.
    pub fn begin(&mut self, scheme: Scheme) {
        // A first hop in plain HTTP leaves the login for the same host under https, where it may be sent to.
        let first = if self.insecure { scheme } else { Scheme::Https };
        self.scheme.get_or_insert(first);
    }

    /// What a request to this origin is sent with; nothing if it is not the right one.
    pub fn for_hop(&mut self, host: &Authority, scheme: Scheme, path_and_query: &str) -> HopLogin {
        self.begin(scheme);
        self.sent = false;
        if !self.is_origin(host, scheme) {
            return HopLogin::default();
        }
        self.sent = self.authorization.is_some();
        let authorization = self.authorization.as_ref().map(|held| (header::AUTHORIZATION, held.header().clone()));
        let jar = self.cookies.as_ref();
        let cookies = jar.and_then(|jar| jar.header(host, scheme, path_and_query, SystemTime::now()));
        let cookies = cookies.map(|value| (header::COOKIE, value));
        let identity = self.identity.clone().filter(|_| scheme == Scheme::Https);
        let headers: Vec<_> = authorization.into_iter().chain(cookies).collect();
        self.used |= !headers.is_empty() || identity.is_some();
        HopLogin { headers, identity }
    }

    /// The certificate for finding out what this host speaks, before anything is asked of it.
    pub fn identity_for(&self, host: &Authority) -> Option<&Arc<Identity>> {
        self.identity.as_ref().filter(|_| self.scheme != Some(Scheme::Http) && self.is_origin(host, Scheme::Https))
    }

    /// The server took what was sent.
    pub fn worked(&self) {
        if let Some(Authorization::Printed(token, command)) = &self.authorization
            && self.sent
        {
            command.worked(token);
        }
    }

    /// The server refused what was sent (401): whether there is something else now that is worth another try.
    ///
    /// # Errors
    /// Why a program gives no other, as a sentence.
    pub async fn renew(&mut self) -> Result<bool, String> {
        match self.authorization.as_mut().filter(|_| self.sent) {
            None | Some(Authorization::Fixed(_)) => Ok(false),
            Some(Authorization::Printed(token, command)) => {
                if !command.refused(token) {
                    return Ok(false);
                }
                let old = std::mem::replace(token, command.token().await?);
                Ok(old.header != token.header)
            }
            Some(Authorization::Written(header, file)) => {
                file.distrust();
                let old = std::mem::replace(header, file.get().await?);
                Ok(old != *header)
            }
        }
    }

    /// Who may see what came of it.
    pub fn audience(&self) -> Audience {
        if self.used { Audience::Only { uid: self.uid } } else { Audience::Everyone }
    }

    fn is_origin(&self, host: &Authority, scheme: Scheme) -> bool {
        let own = self.scheme.unwrap_or(Scheme::Https);
        let port = |authority: &Authority| authority.port.unwrap_or(own.default_port());
        scheme == own && host.host == self.host.host && port(host) == port(&self.host)
    }
}

impl Authorization {
    fn header(&self) -> &HeaderValue {
        match self {
            Authorization::Fixed(header) => header,
            Authorization::Printed(token, _) => &token.header,
            Authorization::Written(header, _) => header,
        }
    }
}

pub(crate) fn is_loopback(host: &Authority) -> bool {
    host.bare_host().parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Authority {
        Authority::parse(text).unwrap()
    }

    #[test]
    fn a_pass_is_good_for_one_origin() {
        let pass = |insecure: bool, name: &str| Pass {
            authorization: Some(Authorization::Fixed(HeaderValue::from_static("Basic eDp5"))),
            ..Pass::new(1000, &host(name), insecure)
        };
        let (https, http) = (Scheme::Https, Scheme::Http);
        for (insecure, first, hops) in [
            (false, "a.org", &[("a.org", https, true), ("a.org:443", https, true), ("b.org", https, false)][..]),
            (false, "a.org", &[("a.org", http, false), ("a.org", https, true), ("a.org:80", https, false)]),
            (false, "a.org", &[("a.org", https, true), ("a.org", http, false), ("a.org:8443", https, false)]),
            (false, "a.org", &[("www.a.org", https, false), ("a.org", https, true)]),
            (true, "a.org", &[("a.org", http, false), ("a.org", https, true)]),
            (true, "127.0.0.1:81", &[("127.0.0.1:81", http, true), ("127.0.0.1:82", http, false)]),
            (true, "127.0.0.1:81", &[("127.0.0.1:81", http, true), ("127.0.0.1:81", https, false)]),
            (true, "127.0.0.1", &[("127.0.0.1", https, true), ("127.0.0.1", http, false)]),
            (true, "localhost", &[("localhost", http, false)]),
        ] {
            let mut pass = pass(insecure, first);
            assert_eq!(pass.audience(), Audience::Everyone);
            let mut sent = false;
            for (to, scheme, wanted) in hops {
                let headers = pass.for_hop(&host(to), *scheme, "/").headers;
                assert_eq!(!headers.is_empty(), *wanted, "{first}, then {scheme:?} {to}");
                sent |= wanted;
            }
            assert_eq!(pass.audience() == Audience::Only { uid: 1000 }, sent, "{first}");
        }
    }

    #[test]
    fn cookies_go_with_the_login_and_no_further() {
        let jar = Jar::parse(b"a.org\tTRUE\t/in\tFALSE\t0\tn\tv\n").unwrap();
        let mut pass = Pass { cookies: Some(Arc::new(jar)), ..Pass::new(1000, &host("a.org"), false) };
        assert!(pass.for_hop(&host("a.org"), Scheme::Https, "/").headers.is_empty());
        assert_eq!(pass.audience(), Audience::Everyone, "nothing was sent");
        assert!(pass.for_hop(&host("www.a.org"), Scheme::Https, "/in").headers.is_empty());
        assert!(pass.for_hop(&host("a.org"), Scheme::Http, "/in").headers.is_empty());
        assert_eq!(
            pass.for_hop(&host("a.org"), Scheme::Https, "/in").headers,
            [(header::COOKIE, "n=v".parse().unwrap())]
        );
        assert_eq!(pass.audience(), Audience::Only { uid: 1000 });
    }
}
