//! A file of cookies in the format of Netscape's browser, which curl, wget and exporters of today's browsers write:
//! lines of domain, whether subdomains are meant, path, whether over TLS alone, expiry (seconds since 1970, 0 for the
//! session), name and value, parted by tabs. It is only read: what servers set is ignored.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;

use crate::authority::Authority;
use crate::host::Scheme;

/// The cookies of one file.
pub(crate) struct Jar(Vec<Cookie>);

struct Cookie {
    /// Lower case, without a leading dot.
    domain: String,
    subdomains: bool,
    path: String,
    secure: bool,
    /// `None`: never.
    expires_unix_s: Option<u64>,
    /// `name=value`.
    pair: String,
}

impl Jar {
    /// Reads the text of such a file. Nothing of it is in the error.
    pub fn parse(text: &[u8]) -> Result<Jar, String> {
        let text = std::str::from_utf8(text).map_err(|_| "not UTF-8".to_owned())?;
        let mut cookies = Vec::new();
        for (number, line) in text.lines().enumerate() {
            // Marks what scripts may not see; to us it is a cookie like any other.
            let line = line.strip_prefix("#HttpOnly_").unwrap_or(line);
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let cookie =
                Cookie::parse(line).ok_or_else(|| format!("line {}: not the seven fields of a cookie", number + 1))?;
            if cookies.len() >= COOKIES_MAX {
                return Err(format!("more than {COOKIES_MAX} cookies"));
            }
            cookies.push(cookie);
        }
        // Longer paths first (RFC 6265 section 5.4).
        cookies.sort_by_key(|cookie: &Cookie| std::cmp::Reverse(cookie.path.len()));
        Ok(Jar(cookies))
    }

    /// The header for a request, if any cookie is for it.
    pub fn header(
        &self,
        host: &Authority,
        scheme: Scheme,
        path_and_query: &str,
        now: SystemTime,
    ) -> Option<HeaderValue> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = path_and_query.split('?').next().unwrap_or_default();
        let meant = |cookie: &&Cookie| {
            cookie.expires_unix_s.is_none_or(|until| until > now)
                && (scheme == Scheme::Https || !cookie.secure)
                && cookie.is_for_host(host.bare_host())
                && cookie.is_for_path(path)
        };
        let pairs: Vec<&str> = self.0.iter().filter(meant).map(|cookie| cookie.pair.as_str()).collect();
        let text = pairs.join("; ");
        let mut header =
            HeaderValue::try_from(text).ok().filter(|header| !header.is_empty() && header.len() <= HEADER_BYTES_MAX)?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl Cookie {
    fn parse(line: &str) -> Option<Cookie> {
        let fields: Vec<&str> = line.splitn(7, '\t').collect();
        // An empty value may have lost its tab.
        let ([domain, subdomains, path, secure, expires, name, value], true) = (match fields[..] {
            [a, b, c, d, e, f] => ([a, b, c, d, e, f, ""], true),
            [a, b, c, d, e, f, g] => ([a, b, c, d, e, f, g], true),
            _ => ([""; 7], false),
        }) else {
            return None;
        };
        let flag = |text: &str| match text {
            "TRUE" => Some(true),
            "FALSE" => Some(false),
            _ => None,
        };
        let until: i64 = expires.parse().ok()?;
        let domain = domain.strip_prefix('.').unwrap_or(domain).to_ascii_lowercase();
        let sayable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b';');
        if domain.is_empty() || !path.starts_with('/') || !sayable(name) || !sayable(value) || name.contains('=') {
            return None;
        }
        Some(Cookie {
            domain,
            subdomains: flag(subdomains)?,
            path: path.to_owned(),
            secure: flag(secure)?,
            expires_unix_s: (until != 0).then(|| u64::try_from(until).unwrap_or(0)),
            pair: format!("{name}={value}"),
        })
    }

    /// RFC 6265 section 5.1.3.
    fn is_for_host(&self, host: &str) -> bool {
        let below = || {
            let named = host.parse::<std::net::IpAddr>().is_err();
            named && host.strip_suffix(&self.domain).is_some_and(|start| start.ends_with('.'))
        };
        host == self.domain || (self.subdomains && below())
    }

    /// RFC 6265 section 5.1.4.
    fn is_for_path(&self, path: &str) -> bool {
        path.strip_prefix(&self.path)
            .is_some_and(|rest| rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/'))
    }
}

/// More cookies than this are no file of a person's.
const COOKIES_MAX: usize = 10_000;
/// Servers refuse longer headers.
const HEADER_BYTES_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FILE: &str = "# Netscape HTTP Cookie File\n\n\
        .example.org\tTRUE\t/\tFALSE\t0\twide\t1\n\
        example.org\tFALSE\t/docs\tFALSE\t2000\tdeep\t2\n\
        #HttpOnly_example.org\tFALSE\t/\tTRUE\t0\tsafe\t3\n\
        127.0.0.1\tFALSE\t/\tFALSE\t0\tempty\n";

    #[test]
    fn a_cookie_goes_where_its_line_says() {
        let jar = Jar::parse(FILE.as_bytes()).unwrap();
        let (https, http) = (Scheme::Https, Scheme::Http);
        for (host, scheme, path, now, wanted) in [
            ("example.org", https, "/", 1000, Some("wide=1; safe=3")),
            ("example.org", http, "/", 1000, Some("wide=1")),
            ("example.org:8443", https, "/docs?x=/", 1000, Some("deep=2; wide=1; safe=3")),
            ("example.org", https, "/docs/a", 1999, Some("deep=2; wide=1; safe=3")),
            ("example.org", https, "/docs/a", 2000, Some("wide=1; safe=3")),
            ("example.org", https, "/docsx", 1000, Some("wide=1; safe=3")),
            ("www.example.org", https, "/docs/", 1000, Some("wide=1")),
            ("anexample.org", https, "/", 1000, None),
            ("org", https, "/", 1000, None),
            ("127.0.0.1", https, "/", 1000, Some("empty=")),
            ("127.0.0.1.example.com", https, "/", 1000, None),
        ] {
            let at = UNIX_EPOCH + Duration::from_secs(now);
            let header = jar.header(&Authority::parse(host).unwrap(), scheme, path, at);
            assert_eq!(header.as_ref().map(|header| header.to_str().unwrap()), wanted, "{scheme:?} {host}{path} {now}");
        }
    }

    #[test]
    fn mistakes_are_told_without_telling_the_text() {
        for line in [
            "secret",
            "a.org\tTRUE\t/\tFALSE\tsecret\tn\tv",
            "a.org\tyes\t/\tFALSE\t0\tsecret\tv",
            "a.org\tTRUE\tsecret\tFALSE\t0\tn\tv",
            "a.org\tTRUE\t/\tFALSE\t0\tn\tsecret; x=y",
            "a.org\tTRUE\t/\tFALSE\t0\tn\tsecr\x07et",
            "\tTRUE\t/\tFALSE\t0\tn\tsecret",
        ] {
            let why = Jar::parse(line.as_bytes()).err().unwrap_or_else(|| panic!("{line} is no cookie"));
            assert!(!why.contains("secr"), "{line}: {why}");
        }
    }
}
