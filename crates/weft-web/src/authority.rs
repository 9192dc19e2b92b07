//! Which names can be hosts.

use weft_remote::Name;

/// A host, perhaps with a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Authority {
    /// Lower case, in its ASCII form; IPv6 addresses in brackets.
    pub host: String,
    /// The port, if the name gives one.
    pub port: Option<u16>,
}

impl Authority {
    /// Reads the name of a directory at the root. Host names are lower-cased and put into ASCII (IDNA); `None` for
    /// what cannot be a host: a trailing dot, an empty label, more than 253 bytes, characters that no host has, an
    /// address in an unusual spelling (`127.1`), and single words, which name no host on the web unless a port
    /// follows (`nas:8080`), except `localhost`.
    pub fn from_name(name: &Name) -> Option<Authority> {
        let text = std::str::from_utf8(name.as_bytes()).ok()?;
        let authority = Authority::parse(text)?;
        let single = !authority.host.contains('.') && !authority.host.starts_with('[');
        if single && authority.port.is_none() && authority.host != "localhost" {
            return None;
        }
        Some(authority)
    }

    /// Reads `host` or `host:port`, single words included.
    pub fn parse(text: &str) -> Option<Authority> {
        // The URL rules would decode escapes, and one host would have many names.
        if text.contains('%') {
            return None;
        }
        let (host, port) = split_port(text)?;
        let host = match url::Host::parse(host).ok()? {
            url::Host::Ipv4(address) => {
                let plain = address.to_string();
                if plain != host {
                    return None;
                }
                plain
            }
            url::Host::Ipv6(address) => format!("[{address}]"),
            url::Host::Domain(domain) => checked_domain(domain)?,
        };
        Some(Authority { host, port })
    }

    /// As ids write it.
    pub fn text(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// The host without brackets, as resolvers and TLS want it.
    pub fn bare_host(&self) -> &str {
        self.host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(&self.host)
    }
}

/// The authority without a port that is the default of either scheme, for telling whether a link stays on its host.
pub(crate) fn without_default_port(authority: &str) -> &str {
    authority.strip_suffix(":443").or_else(|| authority.strip_suffix(":80")).unwrap_or(authority)
}

fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let after_host = if text.starts_with('[') { text.find(']')? + 1 } else { text.find(':').unwrap_or(text.len()) };
    let (host, rest) = text.split_at(after_host);
    if rest.is_empty() {
        return Some((host, None));
    }
    let digits = rest.strip_prefix(':')?;
    let port: u16 = digits.parse().ok().filter(|port| *port != 0)?;
    // One spelling per port, or one host would have several directories.
    (port.to_string() == digits).then_some((host, Some(port)))
}

fn checked_domain(domain: String) -> Option<String> {
    let label_fits = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    (domain.len() <= HOST_BYTES_MAX && domain.split('.').all(label_fits)).then_some(domain)
}

/// RFC 1035 section 2.3.4, in the form without the trailing dot.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Authority::from_name(&Name::new(text).unwrap()).map(|a| a.text())
    }

    #[test]
    fn hosts_are_read_in_one_spelling() {
        for (name, host) in [
            ("Example.ORG", "example.org"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("example.org:8443", "example.org:8443"),
            ("localhost", "localhost"),
            ("nas:8080", "nas:8080"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]", "[::1]"),
            ("[0:0::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(read(name).as_deref(), Some(host), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_a_host_is_refused() {
        let long = format!("{}.org", "a.".repeat(125));
        for name in [
            "README",
            "a..b",
            ".hidden",
            "example.org.",
            "127.1",
            "0x7f.0.0.1",
            "1",
            "user@example.org",
            "a b.org",
            "example.org:0",
            "example.org:080",
            "example.org:99999",
            "example.org:",
            "a.org?x",
            "[::1",
            "a#b.c",
            "-a.org",
            "a%2Eorg",
            &long,
        ] {
            assert_eq!(read(name), None, "{name}");
        }
    }
}
