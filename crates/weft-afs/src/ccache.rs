//! The credential cache of Kerberos as a file, in the format of MIT's and Heimdal's `FILE:` caches.
//!
//! ```text
//! file        05 04  header length (16 bits)  field...  principal  credential...
//!             05 03                                   principal  credential...
//! field       tag (16)  length (16)  data; of the tag 1 the offset of the clock: seconds, microseconds (32 each, with a sign)
//! principal   name type (32), count of components (32), realm, component...
//! credential  client, server (principals), key type (16; twice in version 3), key,
//!             authenticated, starts, ends, renewable until (32 each, seconds since 1970), in a session key (8),
//!             flags (32), addresses, authorization data (a count (32) of: type (16), data), ticket, second ticket
//! ```
//!
//! What is called data, a realm, a component, a key or a ticket here has its length (32) before it. All is big-endian; the
//! versions 1 and 2, which are not, went out of use in the last century. Credentials of the realm `X-CACHECONF:` are
//! settings of whoever keeps the cache, and are passed over. Source: MIT Kerberos, "Credential cache file format"
//! (web.mit.edu/kerberos/krb5-latest/doc/formats/ccache_file_format.html).
//!
//! The offset is what Kerberos's clock was ahead of this machine's when the user logged in. MIT's programs add it to what this
//! machine's clock says, and so work where that is wrong. Here it is taken from the times of the tickets.
//!
//! Whoever writes a cache appends to it or puts another file in its place, so it may be read while it is half written:
//! that is an error, and it is read again when it changes.

use std::fmt;

/// Longest cache that is read, in bytes.
pub const CCACHE_BYTES_MAX: usize = 1 << 20;
/// Most credentials in a cache.
pub const CREDENTIALS_MAX: usize = 4096;
/// Most components of a name.
const COMPONENTS_MAX: u32 = 32;
/// Most addresses, or pieces of authorization data, of a credential.
const ITEMS_MAX: u32 = 1024;
/// What the names of tickets that get others begin with.
const GRANTER: &[u8] = b"krbtgt";
/// The field of the header that tells how Kerberos's clock goes.
const CLOCK_OFFSET: u16 = 1;
/// The realm of what is no credential.
const SETTINGS_REALM: &[u8] = b"X-CACHECONF:";

/// A credential cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ccache {
    /// Whose cache it is.
    pub principal: Principal,
    /// What is in it, in its order.
    pub credentials: Vec<Credential>,
}

/// A name in Kerberos: `alice@EXAMPLE.ORG`, `afs/example.org@EXAMPLE.ORG`. Any bytes, by the format.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    /// What comes after the `@`.
    pub realm: Vec<u8>,
    /// What comes before it, between slashes.
    pub components: Vec<Vec<u8>>,
}

/// A ticket, and the key that goes with it. It does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// Whose it is.
    pub client: Principal,
    /// For which service.
    pub server: Principal,
    /// The type of the session key (the numbers of RFC 3961 and its successors).
    pub enctype: i32,
    /// The session key.
    pub key: Vec<u8>,
    /// From when on it is good by this machine's clock, in seconds since 1970; 0 for always.
    pub starts_s: u32,
    /// Until when, by the same clock.
    pub ends_s: u32,
    /// The ticket as DER.
    pub ticket: Vec<u8>,
}

/// Why some bytes are not a credential cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CcacheError {
    /// Another file, or one in the byte order of some machine.
    #[error("this is no credential cache of version 3 or 4")]
    Version,
    /// More than [`CCACHE_BYTES_MAX`] bytes.
    #[error("a credential cache of more than {CCACHE_BYTES_MAX} bytes is not read")]
    TooLong,
    /// The file ends within something, or a length in it is wrong.
    #[error("the credential cache ends in the middle: {bytes} bytes more are needed at byte {at}")]
    Truncated {
        /// Where.
        at: usize,
        /// How many are missing there.
        bytes: usize,
    },
    /// More of something than the reader bears.
    #[error("the credential cache has {count} {what} at byte {at}: at most {max} are read")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it says there are.
        count: u32,
        /// How many there may be.
        max: u32,
        /// Where it says so.
        at: usize,
    },
}

impl Ccache {
    /// Reads a whole cache.
    ///
    /// # Errors
    /// All of [`CcacheError`].
    pub fn read(bytes: &[u8]) -> Result<Ccache, CcacheError> {
        let mut credentials = Vec::new();
        let (principal, head) = walk(bytes, |credential, _| {
            if credential.server.realm != SETTINGS_REALM {
                credentials.push(credential);
            }
        })?;
        credentials.iter_mut().for_each(|credential| credential.is_told_by(head.clock_ahead_s));
        Ok(Ccache { principal, credentials })
    }

    /// A whole cache as it was read, but with those tickets alone that get others.
    ///
    /// # Errors
    /// As of [`Ccache::read`].
    pub fn granters_of(bytes: &[u8]) -> Result<Vec<u8>, CcacheError> {
        let mut kept = Vec::new();
        let (_, head) = walk(bytes, |credential, written| {
            if credential.server.components.first().is_some_and(|name| name == GRANTER) {
                kept.extend_from_slice(written);
            }
        })?;
        Ok([&bytes[..head.ends], &kept].concat())
    }

    /// The ticket that gets others: that for the user's own realm, of several the one that ends last.
    #[must_use]
    pub fn granter(&self) -> Option<&Credential> {
        let granters = self.credentials.iter().filter(|credential| {
            let Principal { realm, components } = &credential.server;
            *realm == self.principal.realm && matches!(&components[..], [name, of] if name == GRANTER && of == realm)
        });
        granters.max_by_key(|credential| credential.ends_s)
    }
}

impl Credential {
    /// Its times are those of a clock that is so much ahead of this machine's.
    fn is_told_by(&mut self, clock_ahead_s: i32) {
        let here = |seconds: u32| {
            let here = i64::from(seconds) - i64::from(clock_ahead_s);
            u32::try_from(here.max(0)).unwrap_or(u32::MAX)
        };
        self.ends_s = here(self.ends_s);
        if self.starts_s != 0 {
            self.starts_s = here(self.starts_s);
        }
    }
}

/// What is before the credentials.
struct Head {
    clock_ahead_s: i32,
    ends: usize,
}

/// Goes through a whole cache: each credential with its bytes. Whose cache it is, and its head.
fn walk(bytes: &[u8], mut each: impl FnMut(Credential, &[u8])) -> Result<(Principal, Head), CcacheError> {
    if bytes.len() > CCACHE_BYTES_MAX {
        return Err(CcacheError::TooLong);
    }
    let mut from = Reader { bytes, at: 2, version: 0 };
    from.version = match bytes {
        [5, version @ (3 | 4), ..] => *version,
        _ => return Err(CcacheError::Version),
    };
    let clock_ahead_s = if from.version == 4 { from.header()? } else { 0 };
    let principal = from.principal()?;
    let (head, mut count) = (Head { clock_ahead_s, ends: from.at }, 0);
    while from.at < bytes.len() {
        let at = from.at;
        count += 1;
        from.within("credentials", count, CREDENTIALS_MAX as u32, at)?;
        let credential = from.credential()?;
        each(credential, &bytes[at..from.at]);
    }
    Ok((principal, head))
}

impl Principal {
    /// Of a service: its name, and on which host or in which cell, if it says so.
    #[must_use]
    pub fn service(components: &[&str], realm: &[u8]) -> Principal {
        let components = components.iter().map(|component| component.as_bytes().to_vec()).collect();
        Principal { realm: realm.to_vec(), components }
    }
}

/// As people write it; what is not printable ASCII is escaped.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, component) in self.components.iter().enumerate() {
            let slash = if nth == 0 { "" } else { "/" };
            write!(f, "{slash}{}", component.escape_ascii())?;
        }
        write!(f, "@{}", self.realm.escape_ascii())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (self.client.to_string(), self.server.to_string());
        let mut shown = f.debug_struct("Credential");
        shown.field("client", &client).field("server", &server).field("enctype", &self.enctype);
        shown.field("starts_s", &self.starts_s).field("ends_s", &self.ends_s).finish_non_exhaustive()
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    version: u8,
}

impl<'a> Reader<'a> {
    /// By how many seconds Kerberos's clock is ahead.
    fn header(&mut self) -> Result<i32, CcacheError> {
        let length = self.u16()?;
        let mut fields = Reader { bytes: self.take(length.into())?, at: 0, version: self.version };
        let mut clock_ahead_s = 0;
        // What makes no sense to us is another's business: only its length counts.
        while let Ok(tag) = fields.u16()
            && let Ok(length) = fields.u16()
            && let Ok(data) = fields.take(length.into())
        {
            if tag == CLOCK_OFFSET
                && let Some((seconds, _)) = data.split_first_chunk()
            {
                clock_ahead_s = i32::from_be_bytes(*seconds);
            }
        }
        Ok(clock_ahead_s)
    }

    fn credential(&mut self) -> Result<Credential, CcacheError> {
        let (client, server) = (self.principal()?, self.principal()?);
        let enctype = self.u16()?;
        if self.version == 3 {
            self.u16()?;
        }
        let key = self.data()?.to_vec();
        let _authenticated = self.u32()?;
        let (starts_s, ends_s) = (self.u32()?, self.u32()?);
        let _renewable_until = self.u32()?;
        let (_in_session_key, _flags) = (self.take(1)?, self.u32()?);
        for what in ["addresses", "pieces of authorization data"] {
            let at = self.at;
            let count = self.u32()?;
            self.within(what, count, ITEMS_MAX, at)?;
            for _ in 0..count {
                self.u16()?;
                self.data()?;
            }
        }
        let ticket = self.data()?.to_vec();
        let _second = self.data()?;
        // Private types of keys are negative.
        let enctype = i32::from(enctype.cast_signed());
        Ok(Credential { client, server, enctype, key, starts_s, ends_s, ticket })
    }

    fn principal(&mut self) -> Result<Principal, CcacheError> {
        let _type = self.u32()?;
        let at = self.at;
        let count = self.u32()?;
        self.within("components of a name", count, COMPONENTS_MAX, at)?;
        let realm = self.data()?.to_vec();
        let components = (0..count).map(|_| self.data().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?;
        Ok(Principal { realm, components })
    }

    fn within(&self, what: &'static str, count: u32, max: u32, at: usize) -> Result<(), CcacheError> {
        if count > max { Err(CcacheError::TooMany { what, count, max, at }) } else { Ok(()) }
    }

    fn data(&mut self) -> Result<&'a [u8], CcacheError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn u16(&mut self) -> Result<u16, CcacheError> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, CcacheError> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], CcacheError> {
        let rest = &self.bytes[self.at..];
        let taken = rest
            .get(..length)
            .ok_or(CcacheError::Truncated { at: self.at, bytes: length.saturating_sub(rest.len()) })?;
        self.at += length;
        Ok(taken)
    }
}

#[cfg(test)]
#[path = "ccache_tests.rs"]
pub(crate) mod tests;
