//! The bytes of one answer, counted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;
use weft_remote::{RemoteError, Result};

use crate::host::Host;
use crate::pool::Lent;

/// A body as it comes from the connection, held to its announced length.
pub(crate) struct Flow {
    url: String,
    host: Arc<Host>,
    incoming: Option<(Incoming, Lent)>,
    announced: Option<u64>,
    delivered: u64,
    stall_timeout: Duration,
}

impl Flow {
    pub fn new(
        url: String,
        host: Arc<Host>,
        incoming: Incoming,
        lent: Lent,
        announced: Option<u64>,
        stall_timeout: Duration,
    ) -> Flow {
        let mut flow = Flow { url, host, incoming: None, announced, delivered: 0, stall_timeout };
        if incoming.is_end_stream() {
            lent.give_back();
        } else {
            flow.incoming = Some((incoming, lent));
        }
        flow
    }

    /// The next bytes; `None` after the last. After an error there is nothing more to ask.
    ///
    /// # Errors
    /// `Damaged` when more or fewer bytes come than were announced, `TimedOut` when none come.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            let Some((incoming, _)) = &mut self.incoming else { return self.check_length().map(Err) };
            let frame = match timeout(self.stall_timeout, incoming.frame()).await {
                Err(_) => {
                    self.incoming = None;
                    self.announced = None;
                    return Some(Err(RemoteError::TimedOut { detail: format!("{}: the body stalled", self.url) }));
                }
                Ok(Some(Err(e))) => {
                    self.incoming = None;
                    self.announced = None;
                    let detail = format!("{}: the body broke off after {} bytes: {e}", self.url, self.delivered);
                    return Some(Err(RemoteError::Damaged { detail }));
                }
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => {
                    self.finish();
                    continue;
                }
            };
            // Trailers say nothing that is needed.
            let Ok(data) = frame.into_data() else { continue };
            self.delivered += data.len() as u64;
            self.host.received(data.len() as u64);
            if self.announced.is_some_and(|announced| self.delivered > announced) {
                self.incoming = None;
                return self.check_length().map(Err);
            }
            if incoming.is_end_stream() {
                self.finish();
            }
            if !data.is_empty() {
                return Some(Ok(data));
            }
        }
    }

    /// Reads the rest of a body nobody wants, so that the connection can be used again, unless it is long.
    pub async fn drain(mut self) {
        let read = async {
            while let Some(Ok(_)) = self.next().await {
                if self.delivered > DRAIN_BYTES_MAX {
                    break;
                }
            }
        };
        // Late bytes cost the connection, nothing else.
        let _ = timeout(DRAIN_TIME_MAX, read).await;
    }

    fn finish(&mut self) {
        if let Some((_, lent)) = self.incoming.take() {
            lent.give_back();
        }
    }

    fn check_length(&mut self) -> Option<RemoteError> {
        let announced = self.announced.take()?;
        (announced != self.delivered).then(|| RemoteError::Damaged {
            detail: format!("{}: {announced} bytes were announced and {} came", self.url, self.delivered),
        })
    }
}

const DRAIN_BYTES_MAX: u64 = 64 << 10;
const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
