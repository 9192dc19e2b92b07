//! A small real web site inside the program, so that there is something to see without a network.
//!
//! The daemon serves it in process under the reserved name [`HOST`] (RFC 2606), the demo on a loopback port. It is
//! plain HTTP/1.1 with strong validators, ranges and redirects, as any static server has them (RFC 9110).

mod answer;
mod pages;
mod path;
mod range;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// The name under which the daemon serves the site. Nobody can own it (RFC 2606 section 2).
pub const HOST: &str = "weft.example";

/// The site: its pages, and how often it was asked.
pub struct Site {
    pages: BTreeMap<String, Page>,
    requests: AtomicU64,
}

/// What is under one path.
enum Page {
    Content(Content),
    /// A directory that was asked for without its slash.
    Moved(String),
}

/// The bytes of a page with what goes into its headers.
struct Content {
    bytes: Bytes,
    media_type: &'static str,
    /// A strong validator, with its quotes.
    etag: String,
}

impl Site {
    /// The site, with its large file made anew (it is the same each time).
    pub fn new() -> Site {
        Site { pages: pages::pages(), requests: AtomicU64::new(0) }
    }

    /// Serves one connection until it ends.
    pub async fn serve<I>(self: Arc<Site>, connection: I)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let answer = answer::answer(&self, request.method(), request.uri().path(), request.headers());
            async move { Ok::<_, Infallible>(answer) }
        });
        let ended =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).serve_connection(TokioIo::new(connection), service);
        if let Err(error) = ended.await {
            // A client that hangs up, or speaks TLS here, is no trouble of ours.
            tracing::debug!(%error, "a connection to the sample site ended");
        }
    }

    /// How many requests have come so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The paths of all files, without a leading slash and not encoded; a directory's page as `dir/index.html`
    /// where it is a file and not a generated list.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let contents = self.pages.iter().filter(|(_, page)| matches!(page, Page::Content(_)));
        contents.map(|(path, _)| path.trim_start_matches('/')).filter(|path| !path.is_empty() && !path.ends_with('/'))
    }
}

/// Most of a request's head that is held.
const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests;
