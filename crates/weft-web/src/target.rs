//! Where a request goes: a place with the scheme decided or left open.

use url::Url;
use weft_remote::{RemoteError, Result};

use crate::authority::{Authority, without_default_port};
use crate::host::Scheme;
use crate::id::Place;
use crate::name::{canonical_path, canonical_query, clean_path};

/// What one request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `None`: whatever the host speaks.
    pub scheme: Option<Scheme>,
    pub authority: Authority,
    /// As it goes on the wire.
    pub path_and_query: String,
}

impl Target {
    /// The place itself.
    ///
    /// # Errors
    /// `BadName` when its authority is none.
    pub fn of(place: &Place) -> Result<Target> {
        let authority = Authority::parse(&place.authority)
            .ok_or_else(|| RemoteError::BadName { detail: format!("{}: no host", place.authority) })?;
        Ok(Target { scheme: None, authority, path_and_query: place.path_and_query() })
    }

    /// The top of a host.
    pub fn top(host: &Authority) -> Target {
        Target { scheme: None, authority: host.clone(), path_and_query: "/".to_owned() }
    }

    /// Where a redirect points: existing escapes stay as the server wrote them (a signature may cover them), what
    /// may not stand in a request is escaped. `None` for other schemes than http and https.
    pub fn of_url(url: &Url) -> Option<Target> {
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return None,
        };
        let authority = match url.port() {
            Some(port) => Authority::parse(&format!("{}:{port}", url.host_str()?))?,
            None => Authority::parse(url.host_str()?)?,
        };
        let mut path_and_query = clean_path(url.path());
        if let Some(query) = url.query() {
            path_and_query.push('?');
            path_and_query.push_str(&canonical_query(query));
        }
        Some(Target { scheme: Some(scheme), authority, path_and_query })
    }

    /// The same for S3, where a path is a key: a bare `+` is a space to it also there (observed: S3Proxy; of Amazon's: issue
    /// 554 of s3tools/s3cmd), and what comes after a bare `;` may be left out (observed: moto). `false` if it is so already.
    pub fn spell_key(&mut self) -> bool {
        let end = self.path_and_query.find('?').unwrap_or(self.path_and_query.len());
        let escaped = self.path_and_query[..end].replace('+', "%2B").replace(';', "%3B");
        let is_other = escaped.len() != end;
        self.path_and_query.replace_range(..end, &escaped);
        is_other
    }

    /// The URL, under `scheme`.
    pub fn url(&self, scheme: Scheme) -> String {
        format!("{}://{}{}", scheme.as_str(), self.authority.text(), self.path_and_query)
    }

    /// For messages before the scheme is known.
    pub fn shown(&self) -> String {
        match self.scheme {
            Some(scheme) => self.url(scheme),
            None => format!("{}{}", self.authority.text(), self.path_and_query),
        }
    }
}

/// The canonical place of a URL; `None` for other schemes than http and https, and without a host.
pub(crate) fn place_of(url: &Url) -> Option<Place> {
    let target = Target::of_url(url)?;
    let query = url.query().map(canonical_query);
    Some(Place { authority: target.authority.text(), path: canonical_path(url.path()), query })
}

/// Whether two authorities are one host for the user, default ports left out.
pub(crate) fn same_host(one: &str, other: &str) -> bool {
    without_default_port(one) == without_default_port(other)
}
