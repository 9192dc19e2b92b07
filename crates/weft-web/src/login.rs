//! One way to log in, as it is configured.

use std::path::PathBuf;
use std::time::Duration;

use crate::authority::Authority;
use crate::bearer::RunAs;
use crate::pattern::HostPattern;

/// How one local user logs in to some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// To whom.
    pub hosts: Vec<LoginHost>,
    /// For whose calls.
    pub uid: u32,
    /// With what.
    pub means: LoginMeans,
}

/// What is shown to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginMeans {
    /// A token that a program prints, kept until a server refuses it or for a time.
    BearerCommand {
        /// The program and its arguments.
        command: Vec<String>,
        /// As whom it is run, where that is not the daemon's own user.
        run_as: Option<RunAs>,
        /// For how long its token is used.
        lifetime: Duration,
    },
    /// A file whose first line is a token.
    BearerFile(PathBuf),
    /// A TLS certificate with its chain and its key, both in PEM.
    Certificate {
        /// The certificate.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// A file of cookies in Netscape's format.
    CookieFile(PathBuf),
    /// A netrc file.
    Netrc(PathBuf),
}

/// Some hosts, on one port or on all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginHost {
    hosts: HostPattern,
    port: Option<u16>,
}

impl LoginHost {
    /// Reads `example.org`, `*.example.org`, `example.org:8443` and what else a list of hosts may name.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(text: &str) -> Result<LoginHost, String> {
        let whole = HostPattern::parse(text);
        if let Ok(hosts) = whole {
            return Ok(LoginHost { hosts, port: None });
        }
        let port = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok().filter(|p| *p != 0)?)));
        match port {
            Some((host, port)) => Ok(LoginHost { hosts: HostPattern::parse(host)?, port: Some(port) }),
            None => whole.map(|hosts| LoginHost { hosts, port: None }),
        }
    }

    pub(crate) fn covers(&self, host: &Authority) -> bool {
        // Without a port a host is spoken to on that of https, if it gets a login at all.
        let port = self.port.is_none_or(|port| host.port.unwrap_or(443) == port);
        port && self.hosts.covers_name(host.bare_host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_meant_with_or_without_a_port() {
        for (pattern, host, covered) in [
            ("example.org", "example.org", true),
            ("example.org", "example.org:8443", true),
            ("example.org", "www.example.org", false),
            ("example.org:8443", "example.org:8443", true),
            ("example.org:8443", "example.org", false),
            ("example.org:443", "example.org", true),
            ("*.example.org", "www.example.org:1", true),
            ("*.example.org", "example.org", false),
            ("*.example.org:8443", "www.example.org:8443", true),
            ("127.0.0.1:81", "127.0.0.1:81", true),
            ("127.0.0.1:81", "127.0.0.1:82", false),
            ("[::1]:81", "[::1]:81", true),
            ("::1", "[::1]:81", true),
        ] {
            let login = LoginHost::parse(pattern).unwrap();
            assert_eq!(login.covers(&Authority::parse(host).unwrap()), covered, "{pattern} {host}");
        }
        for bad in ["", "a..b", "example.org:0", "example.org:x", "https://example.org", "example.org/x"] {
            assert!(LoginHost::parse(bad).is_err(), "{bad}");
        }
    }
}
