//! Digests that a server announces of what it sends, checked while it comes.
//!
//! `Repr-Digest` and `Content-Digest` (RFC 9530) and the older `Digest` (RFC 3230), with SHA-256 and SHA-512. Content
//! is never encoded here, so that of a whole file all three are about the bytes that come; of a range only
//! `Content-Digest` is.

use hyper::StatusCode;
use hyper::header::HeaderMap;
use sha2::{Digest, Sha256, Sha512};

use crate::base64;

/// What a body must come to.
#[derive(Default)]
pub(crate) struct Announced {
    sha256: Option<(Sha256, Vec<String>)>,
    sha512: Option<(Sha512, Vec<String>)>,
}

impl Announced {
    /// What the headers of an answer announce; `None` where nothing does that can be checked.
    pub fn read(status: StatusCode, headers: &HeaderMap) -> Option<Announced> {
        let mut announced = Announced::default();
        announced.fields(headers, "content-digest", Form::Dictionary);
        match status {
            StatusCode::OK => {
                announced.fields(headers, "repr-digest", Form::Dictionary);
                announced.fields(headers, "digest", Form::List);
            }
            StatusCode::PARTIAL_CONTENT => {}
            // Nothing else becomes content.
            _ => return None,
        }
        (announced.sha256.is_some() || announced.sha512.is_some()).then_some(announced)
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some((hash, _)) = &mut self.sha256 {
            hash.update(bytes);
        }
        if let Some((hash, _)) = &mut self.sha512 {
            hash.update(bytes);
        }
    }

    /// At the end: whether all is as announced.
    ///
    /// # Errors
    /// Which digest is another.
    pub fn check(self) -> Result<(), String> {
        if let Some((hash, announced)) = self.sha256 {
            compare("SHA-256", &base64::encode(&hash.finalize()), &announced)?;
        }
        if let Some((hash, announced)) = self.sha512 {
            compare("SHA-512", &base64::encode(&hash.finalize()), &announced)?;
        }
        Ok(())
    }

    fn fields(&mut self, headers: &HeaderMap, name: &str, form: Form) {
        let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
        for item in lines.flat_map(|line| line.split(',')).take(ITEMS_MAX) {
            let Some((algorithm, value)) = item.split_once('=') else { continue };
            let value = match form {
                Form::List => value.trim(),
                // A byte sequence (RFC 8941 section 3.3.5), perhaps with parameters.
                Form::Dictionary => {
                    let value = value.split(';').next().unwrap_or_default().trim();
                    let Some(value) = value.strip_prefix(':').and_then(|value| value.strip_suffix(':')) else {
                        continue;
                    };
                    value
                }
            };
            // One of another length is none.
            match (algorithm.trim().to_ascii_lowercase().as_str(), value.len()) {
                ("sha-256", SHA256_LETTERS) => self.sha256.get_or_insert_default().1.push(value.to_owned()),
                ("sha-512", SHA512_LETTERS) => self.sha512.get_or_insert_default().1.push(value.to_owned()),
                _ => {}
            }
        }
    }
}

/// How a field is written.
#[derive(Clone, Copy)]
enum Form {
    /// `sha-256=:...:`.
    Dictionary,
    /// `SHA-256=...`.
    List,
}

fn compare(algorithm: &str, found: &str, announced: &[String]) -> Result<(), String> {
    match announced.iter().find(|announced| *announced != found) {
        Some(announced) => Err(format!("its {algorithm} was announced as {announced} and is {found}")),
        None => Ok(()),
    }
}

/// Digests that are read from one kind of field.
const ITEMS_MAX: usize = 16;
/// Of 32 and of 64 bytes, in Base64.
const SHA256_LETTERS: usize = 44;
const SHA512_LETTERS: usize = 88;

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    /// Of `{"hello": "world"}` and a line feed, from RFC 9530 appendix B and its SHA-512 in section 2.
    const SHA256: &str = "RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=";
    const SHA512: &str = "YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==";
    const BODY: &[u8] = b"{\"hello\": \"world\"}\n";

    fn check(status: u16, fields: &[(&str, String)], body: &[u8]) -> Option<Result<(), String>> {
        let pair = |(name, value): &(&str, String)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let headers: HeaderMap = fields.iter().map(pair).collect();
        let mut announced = Announced::read(StatusCode::from_u16(status).unwrap(), &headers)?;
        body.chunks(5).for_each(|bytes| announced.update(bytes));
        Some(announced.check())
    }

    #[test]
    fn the_standards_examples_hold_and_others_do_not() {
        for (name, value) in [
            ("repr-digest", format!("sha-256=:{SHA256}:")),
            ("content-digest", format!("sha-512=:{SHA512}:;x=1, md5=:abcd:")),
            ("repr-digest", format!("unixsum=:AAA=:,  sha-256=:{SHA256}:, sha-512=:{SHA512}:")),
            ("digest", format!("SHA-256={SHA256},sha-512={SHA512}")),
        ] {
            let field = [(name, value.clone())];
            assert_eq!(check(200, &field, BODY), Some(Ok(())), "{value}");
            assert!(check(200, &field, b"{\"hello\": \"wurld\"}\n").is_some_and(|checked| checked.is_err()), "{value}");
            assert!(check(200, &field, b"").is_some_and(|checked| checked.is_err()), "{value}");
        }
        let two = [("digest", format!("sha-256={SHA256}")), ("repr-digest", format!("sha-256=:{}=:", "A".repeat(43)))];
        assert!(check(200, &two, BODY).is_some_and(|checked| checked.is_err()), "every one counts");
    }

    #[test]
    fn what_is_about_other_bytes_or_makes_no_sense_is_passed_over() {
        for (status, name, value) in [
            (206, "repr-digest", format!("sha-256=:{SHA256}:")),
            (206, "digest", format!("sha-256={SHA256}")),
            (404, "content-digest", format!("sha-256=:{SHA256}:")),
            (200, "repr-digest", format!("sha-256={SHA256}")),
            (200, "repr-digest", "sha-256=:AAAA:".to_owned()),
            (200, "digest", "md5=AAAA, sha-256".to_owned()),
            (200, "digest", String::new()),
        ] {
            assert_eq!(check(status, &[(name, value.clone())], b"other"), None, "{status} {name} {value}");
        }
        let of_range = [("content-digest", format!("sha-256=:{SHA256}:"))];
        assert!(check(206, &of_range, b"other").is_some_and(|checked| checked.is_err()));
    }
}
