//! The bytes of one answer, counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;
use weft_remote::{RemoteError, Result};

use crate::digest::Announced;
use crate::pool::Lent;
use crate::traffic::{Counts, shown};

/// A body as it comes from the connection, held to its announced length.
pub(crate) struct Flow {
    url: String,
    incoming: Option<(Incoming, Lent)>,
    announced: Option<u64>,
    /// How many bytes of it were asked for, where that was a range.
    asked: Option<u64>,
    digest: Option<Announced>,
    /// Where a digest is announced, the last bytes so far: nobody gets the end of a body that is another one, nor
    /// anything of a short one.
    held: VecDeque<Bytes>,
    held_bytes: usize,
    delivered: u64,
    /// The rest of it can be asked for later, so it may make room for others.
    takes_turns: bool,
    stall_timeout: Duration,
    counts: Option<Arc<Counts>>,
    started: Instant,
    /// The kernel request that asked for it: the body comes in a task of its own.
    span: tracing::Span,
}

impl Flow {
    pub fn new(url: String, incoming: Incoming, lent: Lent, announced: Option<u64>, stall_timeout: Duration) -> Flow {
        let mut flow = Flow {
            url,
            incoming: None,
            announced,
            asked: None,
            digest: None,
            held: VecDeque::new(),
            held_bytes: 0,
            delivered: 0,
            takes_turns: false,
            stall_timeout,
            counts: None,
            started: Instant::now(),
            span: tracing::Span::current(),
        };
        if incoming.is_end_stream() {
            lent.give_back();
        } else {
            flow.incoming = Some((incoming, lent));
        }
        flow
    }

    /// The same body, whose bytes count for a host.
    pub fn counted(mut self, counts: Arc<Counts>) -> Flow {
        self.counts = Some(counts);
        self
    }

    /// The same flow, held to a digest as well.
    pub fn with_digest(mut self, digest: Option<Announced>) -> Flow {
        self.digest = digest;
        self
    }

    /// The same flow, of which so many bytes were asked for: it ends after these, and with `CutShort` before (a server may
    /// send only a part of a range, RFC 9110 section 15.3.7).
    pub fn asked_for(mut self, bytes: u64) -> Flow {
        self.asked = Some(bytes);
        self
    }

    /// The same flow, which makes room for others when it has come for a while: its rest can be asked for later. One that has
    /// a digest does not, for nobody could hold its parts to that.
    pub fn in_turns(mut self) -> Flow {
        self.takes_turns = self.digest.is_none();
        self
    }

    /// The next bytes; `None` after the last. After an error there is nothing more to ask.
    ///
    /// # Errors
    /// `CutShort` when fewer bytes come than were announced, `Damaged` when more or others do, `TimedOut` when none come;
    /// `GaveWay` when it makes room.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            let Some((incoming, lent)) = &mut self.incoming else { return self.end() };
            if self.takes_turns && self.delivered >= TURN_BYTES_MIN && lent.gives_way() {
                self.give_up();
                let detail = format!("{}: {} bytes came", self.url, self.delivered);
                return Some(Err(RemoteError::GaveWay { detail }));
            }
            let frame = match timeout(self.stall_timeout, incoming.frame()).await {
                Err(_) => {
                    self.give_up();
                    return Some(Err(RemoteError::TimedOut { detail: format!("{}: the body stalled", self.url) }));
                }
                Ok(Some(Err(e))) => {
                    self.give_up();
                    let detail = format!("{}: the body broke off after {} bytes: {e}", self.url, self.delivered);
                    return Some(Err(RemoteError::CutShort { detail }));
                }
                Ok(Some(Ok(frame))) => frame,
                // The library takes a stream that is reset without an error for one that ended: so it may be after its end alone
                // (RFC 9113 section 8.1), and there is no length to tell.
                Ok(None) if lent.is_http2() && !incoming.is_end_stream() => {
                    self.give_up();
                    let detail = format!("{}: the body broke off after {} bytes: reset", self.url, self.delivered);
                    return Some(Err(RemoteError::CutShort { detail }));
                }
                Ok(None) => {
                    self.finish();
                    continue;
                }
            };
            // Trailers say nothing that is needed.
            let Ok(mut data) = frame.into_data() else { continue };
            self.delivered += data.len() as u64;
            if let Some(counts) = &self.counts {
                counts.received(data.len());
            }
            if self.announced.is_some_and(|announced| self.delivered > announced) {
                self.incoming = None;
                return self.end();
            }
            let ends = incoming.is_end_stream();
            if let Some(over) = self.asked.and_then(|asked| self.delivered.checked_sub(asked)).filter(|over| *over > 0)
            {
                self.delivered -= over;
                data.truncate(data.len().saturating_sub(over as usize));
                self.end_here();
            }
            if let Some(digest) = &mut self.digest {
                digest.update(&data);
            }
            if ends {
                self.finish();
            }
            if data.is_empty() {
                continue;
            }
            if self.digest.is_none() {
                return Some(Ok(data));
            }
            self.held_bytes += data.len();
            self.held.push_back(data);
            if self.held_bytes > HELD_BYTES && self.held.len() > 1 {
                return self.release().map(Ok);
            }
        }
    }

    /// Reads the rest of a body nobody wants, so that the connection can be used again, unless it is long.
    pub async fn drain(self) {
        self.drain_within(DRAIN_TIME_MAX).await;
    }

    /// The same, in no more than this time.
    pub async fn drain_within(mut self, time_max: Duration) {
        let read = async {
            while let Some(Ok(_)) = self.next().await {
                if self.delivered > DRAIN_BYTES_MAX {
                    break;
                }
            }
        };
        // Late bytes cost the connection, nothing else.
        let _ = timeout(time_max, read).await;
    }

    fn finish(&mut self) {
        if let Some((_, lent)) = self.incoming.take() {
            lent.give_back();
        }
    }

    /// Nothing that was announced is asked about after an error.
    fn give_up(&mut self) {
        self.incoming = None;
        self.announced = None;
        self.digest = None;
        self.held.clear();
    }

    /// What comes after this was not asked for, and goes into no digest of what was.
    fn end_here(&mut self) {
        (self.incoming, self.announced, self.digest) = (None, None, None);
    }

    fn end(&mut self) -> Option<Result<Bytes>> {
        if let Some(error) = self.check_end() {
            self.held.clear();
            return Some(Err(error));
        }
        self.release().map(Ok)
    }

    fn release(&mut self) -> Option<Bytes> {
        let first = self.held.pop_front()?;
        self.held_bytes -= first.len();
        Some(first)
    }

    fn check_end(&mut self) -> Option<RemoteError> {
        let digest = self.digest.take();
        let damaged = |why: String| RemoteError::Damaged { detail: format!("{}: {why}", self.url) };
        if let Some(announced) = self.announced.take().filter(|announced| *announced != self.delivered) {
            let why = format!("{announced} bytes were announced and {} came", self.delivered);
            return Some(match self.delivered < announced {
                true => RemoteError::CutShort { detail: format!("{}: {why}", self.url) },
                false => damaged(why),
            });
        }
        if let Some(error) = digest.and_then(|digest| digest.check().err()) {
            return Some(damaged(error));
        }
        let asked = self.asked.take().filter(|asked| self.delivered < *asked)?;
        let detail = format!("{}: only {} of the {asked} bytes that were asked for came", self.url, self.delivered);
        Some(RemoteError::CutShort { detail })
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let took_ms = self.started.elapsed().as_millis();
        tracing::debug!(parent: &self.span, url = shown(&self.url), bytes = self.delivered, took_ms, "body ended");
    }
}

/// How much of the end of a body waits for its digest.
const HELD_BYTES: usize = 1 << 20;
/// A body that brings less in its turn comes so slowly that asking for it again would cost more than it brings.
const TURN_BYTES_MIN: u64 = 512 << 10;
const DRAIN_BYTES_MAX: u64 = 64 << 10;
/// Longest wait for the rest of a body that nobody wants.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_millis(500);
