//! What a host says to who does not show it what it wants, and what may help.

use hyper::header::{self, HeaderMap};
use tokio::time::timeout;

use crate::flow::{DRAIN_TIME_MAX, Flow};

/// What nginx says over TLS of a certificate that it misses or does not take: 400 like to any bad request, and the reason in
/// its page alone (`ngx_http_special_response.c`; observed: 1.22).
pub(crate) async fn of_certificate(body: &mut Flow) -> Option<String> {
    // The page is short; who is slow with it has said enough.
    let page = timeout(DRAIN_TIME_MAX, body.next()).await.ok()??.ok()?;
    let page = String::from_utf8_lossy(&page[..page.len().min(PAGE_BYTES)]);
    let title = page.split_once("<title>")?.1.split_once("</title>")?.0;
    title.contains("SSL certificate").then(|| with_hint(title.to_owned(), title.contains("No required")))
}

/// What the other side has ended TLS with, in the words of rustls.
pub(crate) fn of_tls(why: String) -> String {
    let is_missed = why.contains("CertificateRequired");
    match is_missed || NOT_TAKEN.iter().any(|alert| why.contains(alert)) {
        true => with_hint(why, is_missed),
        false => why,
    }
}

/// What may help who was answered 401.
pub(crate) fn of_login(headers: &HeaderMap) -> String {
    let asked = headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|line| line.to_str().ok());
    let mut schemes: Vec<&str> = asked.filter_map(|line| line.split([' ', ',']).next()).collect();
    schemes.dedup();
    let is_ours = |scheme: &&str| ["basic", "bearer"].contains(&scheme.to_ascii_lowercase().as_str());
    match schemes.is_empty() || schemes.iter().any(is_ours) {
        true => "a netrc file or [[web.login]] can give it a login".to_owned(),
        false => {
            format!("it asks for {}, and weft can show Basic, Bearer, cookies and certificates", schemes.join(", "))
        }
    }
}

fn with_hint(why: String, is_missed: bool) -> String {
    match is_missed {
        true => format!("{why}; [[web.login]] can give it a certificate"),
        false => format!("{why}; it does not take the certificate that [[web.login]] gives it"),
    }
}

/// Alerts about the certificate that we have shown (RFC 8446 section 6.2).
const NOT_TAKEN: [&str; 5] =
    ["BadCertificate", "CertificateExpired", "CertificateRevoked", "CertificateUnknown", "UnknownCA"];
/// How much of a page is looked at.
const PAGE_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn who_is_asked_for_a_login_is_told_which() {
        let told = |lines: &[&'static str]| {
            let line = |line: &&'static str| (header::WWW_AUTHENTICATE, HeaderValue::from_static(line));
            of_login(&lines.iter().map(line).collect())
        };
        for ours in [&["Basic realm=\"a\""][..], &["Digest realm=\"a\"", "basic"], &["Bearer"], &[]] {
            assert!(told(ours).contains("netrc"), "{ours:?}");
        }
        let digest = told(&["Digest realm=\"a\", qop=\"auth\"", "Digest algorithm=SHA-256", "Negotiate"]);
        assert!(digest.starts_with("it asks for Digest, Negotiate,"), "{digest}");
    }

    #[test]
    fn a_certificate_that_is_not_taken_is_told_apart_from_none() {
        let told = |alert: &str| of_tls(format!("received fatal alert: {alert}"));
        assert!(told("CertificateRequired").ends_with("can give it a certificate"));
        assert!(told("UnknownCA").ends_with("does not take the certificate that [[web.login]] gives it"));
        assert_eq!(told("ProtocolVersion"), "received fatal alert: ProtocolVersion");
    }
}
