//! Who a server is told that we are.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use hyper::header::HeaderValue;
use weft_remote::{Audience, Caller};

use crate::authority::Authority;
use crate::host::Scheme;
use crate::netrc::{self, Login};

/// The logins of one local user. They are for that user's own calls alone.
#[derive(Clone, Default)]
pub struct Credentials {
    uid: u32,
    insecure: bool,
    logins: Vec<Login>,
}

/// Never shows what is in it: options are written to logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({} logins of user id {})", self.logins.len(), self.uid)
    }
}

impl Credentials {
    /// Those of a netrc file, for the user with this id. `insecure` has them sent in plain HTTP to this machine's
    /// own loopback addresses as well.
    ///
    /// # Errors
    /// Why the file is not used: others may read it, it is somebody else's, it cannot be understood.
    pub fn from_netrc(path: &Path, uid: u32, insecure: bool) -> Result<Credentials, String> {
        Ok(Credentials { uid, insecure, logins: netrc::load(path, uid)? })
    }

    /// The pass for what a caller asks of a host, if there is a login for it. The port counts where the file names
    /// one; such a login goes before one for the host on any port, and that before the default.
    pub(crate) fn pass(&self, caller: &Caller, host: &Authority) -> Option<Pass> {
        if caller.uid != self.uid {
            return None;
        }
        let login = self.login(host)?;
        // What cannot be said in Basic (RFC 7617 section 2).
        let sayable = !login.login.contains(':') && !login.login.bytes().chain(login.password.bytes()).any(is_control);
        if !sayable {
            return None;
        }
        let mut header = HeaderValue::try_from(basic(&login.login, &login.password)).ok()?;
        header.set_sensitive(true);
        let insecure = self.insecure && is_loopback(host);
        Some(Pass { header, host: host.clone(), scheme: None, insecure, uid: self.uid, used: false })
    }

    fn login(&self, host: &Authority) -> Option<&Login> {
        let for_machine = |name: &str| self.logins.iter().find(|login| login.machine.as_deref() == Some(name));
        let with_port = for_machine(&host.text()).or_else(|| for_machine(host.bare_host()));
        with_port.or_else(|| self.logins.iter().find(|login| login.machine.is_none()))
    }

    /// What would be sent to a host, for people; nothing that is secret.
    pub(crate) fn about(&self, host: &Authority) -> Option<String> {
        self.login(host)?;
        let how = if self.insecure && is_loopback(host) { "" } else { " over https" };
        Some(format!("the login of the netrc file is sent{how} for user id {} alone", self.uid))
    }
}

/// A login on its way through one request and its redirects, bound to the origin that the request began with.
pub(crate) struct Pass {
    header: HeaderValue,
    host: Authority,
    /// The scheme of its origin; decided at the first hop.
    scheme: Option<Scheme>,
    insecure: bool,
    uid: u32,
    used: bool,
}

impl Pass {
    /// The header for a request to this origin, if it is the right one.
    pub fn header_for(&mut self, host: &Authority, scheme: Scheme) -> Option<HeaderValue> {
        // A first hop in plain HTTP leaves the login for the same host under https, where it may be sent to.
        let first = if self.insecure { scheme } else { Scheme::Https };
        let own = *self.scheme.get_or_insert(first);
        let port = |authority: &Authority| authority.port.unwrap_or(own.default_port());
        if scheme != own || host.host != self.host.host || port(host) != port(&self.host) {
            return None;
        }
        self.used = true;
        Some(self.header.clone())
    }

    /// Who may see what came of it.
    pub fn audience(&self) -> Audience {
        if self.used { Audience::Only { uid: self.uid } } else { Audience::Everyone }
    }
}

fn is_loopback(host: &Authority) -> bool {
    host.bare_host().parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_control(byte: u8) -> bool {
    byte < b' ' || byte == 0x7f
}

/// The value of the header (RFC 7617), in UTF-8.
fn basic(login: &str, password: &str) -> String {
    let bytes = format!("{login}:{password}").into_bytes();
    let mut value = "Basic ".to_owned();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for nth in 0..4 {
            // A group of n bytes has n + 1 letters.
            let letter = ALPHABET[(bits >> (18 - 6 * nth)) as usize & 63];
            value.push(if nth <= three.len() { char::from(letter) } else { '=' });
        }
    }
    value
}

/// RFC 4648 section 4.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(machines: &[Option<&str>]) -> Credentials {
        let login = |machine: &Option<&str>| Login {
            machine: machine.map(str::to_owned),
            login: machine.unwrap_or("anyone").to_owned(),
            password: "word".to_owned(),
        };
        Credentials { uid: 1000, insecure: false, logins: machines.iter().map(login).collect() }
    }

    fn host(text: &str) -> Authority {
        Authority::parse(text).unwrap()
    }

    const USER: Caller = Caller { uid: 1000, gid: 1000, pid: 1 };

    /// The examples of RFC 4648 section 10 behind a login of one colon's length, and that of RFC 7617 section 2.
    #[test]
    fn basic_is_as_the_standard_has_it() {
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(basic("test", "123\u{a3}"), "Basic dGVzdDoxMjPCow==");
        assert_eq!(basic("", ""), "Basic Og==");
        assert_eq!(basic("a", ""), "Basic YTo=");
        assert_eq!(basic("a", "b"), "Basic YTpi");
    }

    #[test]
    fn the_nearest_login_is_taken_and_for_its_user_alone() {
        let all = logins(&[Some("a.org"), Some("a.org:8443"), None]);
        for (name, taken) in
            [("a.org", "a.org"), ("a.org:8443", "a.org:8443"), ("a.org:1", "a.org"), ("b.org", "anyone")]
        {
            assert_eq!(all.login(&host(name)).map(|login| login.login.as_str()), Some(taken), "{name}");
        }
        assert!(logins(&[Some("a.org")]).login(&host("x.a.org")).is_none());
        assert!(all.pass(&USER, &host("b.org")).is_some());
        for uid in [0, 1001] {
            assert!(all.pass(&Caller { uid, ..USER }, &host("a.org")).is_none());
        }
        // A colon would end the login early.
        assert!(all.pass(&USER, &host("a.org:8443")).is_none());
        assert!(!format!("{all:?}").contains("word"));
    }

    #[test]
    fn a_pass_is_good_for_one_origin() {
        let pass =
            |insecure: bool, name: &str| Credentials { insecure, ..logins(&[None]) }.pass(&USER, &host(name)).unwrap();
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
                assert_eq!(pass.header_for(&host(to), *scheme).is_some(), *wanted, "{first}, then {scheme:?} {to}");
                sent |= wanted;
            }
            assert_eq!(pass.audience() == Audience::Only { uid: 1000 }, sent, "{first}");
        }
    }
}
