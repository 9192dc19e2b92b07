//! What a successful answer says about its file, and its bytes as a stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use tokio::sync::OwnedSemaphorePermit;
use weft_remote::{
    Along, Answer, Attributes, Audience, Body, Entry, Figure, FileId, FileKind, Lease, Name, Origin, Piece,
    RemoteError, Result, Version,
};

use crate::WebOptions;
use crate::budget::{Budget, SMALL_PAGE_BYTES};
use crate::exchange::Reply;
use crate::flow::Flow;
use crate::freshness::{Came, lease_of};
use crate::headers::content_length;
use crate::id::Place;
use crate::refusal;
use crate::tap::{Media, Tap, TapSettings};
use crate::target::place_of;
use crate::validator::{holds_pieces_together, version_of};

/// An answer with content, read.
pub(crate) struct Content {
    pub attributes: Attributes,
    pub version: Version,
    pub lease: Lease,
    pub origin: Origin,
    pub audience: Audience,
    pub resumable: bool,
    media: Media,
    reply: Reply,
}

impl Content {
    /// Reads a reply that has the whole content.
    pub fn read(reply: Reply, options: &WebOptions) -> Content {
        Content::with_length(reply, None, options)
    }

    /// The same where the length of the whole file is known otherwise (a range).
    pub fn with_length(reply: Reply, length: Option<u64>, options: &WebOptions) -> Content {
        let headers = &reply.headers;
        let length = match reply.status {
            StatusCode::PARTIAL_CONTENT => length,
            _ => content_length(headers),
        };
        let modified = text(headers, header::LAST_MODIFIED).and_then(|m| httpdate::parse_http_date(m).ok());
        let attributes = Attributes {
            size: length.map_or(Figure::Unknown, Figure::Exact),
            modified: modified.map_or(Figure::Unknown, Figure::Exact),
            ..Attributes::of_kind(FileKind::File)
        };
        let version = version_of(headers, length, SystemTime::now());
        let ranges = text(headers, header::ACCEPT_RANGES).is_some_and(|r| r.eq_ignore_ascii_case("bytes"))
            || reply.host.has_ranges();
        Content {
            attributes,
            resumable: ranges && length.is_some() && holds_pieces_together(&version),
            version,
            lease: lease_of(headers, Came::now(), options),
            origin: origin_of(&reply, "answer of the server"),
            media: media_of(headers),
            audience: reply.audience,
            reply,
        }
    }

    /// The entry of a file with this content.
    pub fn entry(&self, name: Name, id: FileId) -> Entry {
        Entry { name, id, attributes: self.attributes, version: self.version.clone() }
    }

    /// An answer that carries what the headers said.
    pub fn answer<T>(&self, value: T) -> Answer<T> {
        let answer = Answer::new(value, self.version.clone(), self.lease);
        Answer { origin: Some(self.origin.clone()), audience: self.audience, ..answer }
    }

    /// A tap on this content. `dir` is what is learnt about; `own_page` the entry of its page, when this is what
    /// the directory's URL gave; `asked` the place that was asked for.
    pub fn tap(&self, asked: &Place, dir: Place, own_page: Option<Entry>, options: &WebOptions) -> Tap {
        let came_from = place_of(&self.reply.url);
        let slashed = self.reply.slashed.then(|| asked.slashed().path);
        let took_its_place = |other: &Place| other.path == asked.path || Some(&other.path) == slashed.as_ref();
        let alias = came_from.filter(took_its_place).map(|other| other.authority);
        let host = &self.reply.host;
        let tells_all = !(host.authority.text() == dir.authority && host.lists.has_way(&dir.path));
        Tap::new(TapSettings {
            dir,
            tells_all,
            own_page,
            url: self.reply.url.clone(),
            alias,
            media: self.media,
            server: self.reply.headers.get(header::SERVER).map(|server| server.as_bytes().to_vec()),
            version: self.version.clone(),
            lease: self.lease,
            origin: self.origin.clone(),
            audience: self.audience,
            page_bytes_max: options.page_bytes_max,
            links_max: options.links_max,
        })
    }

    /// Whether names may be learnt from the bytes.
    pub fn may_hold_names(&self) -> bool {
        matches!(self.media, Media::Html | Media::Json)
    }

    /// Whether it is XML, as the listing of a bucket is.
    pub fn is_xml(&self) -> bool {
        self.media == Media::Xml
    }

    /// The bytes alone.
    pub fn into_flow(self) -> Flow {
        self.reply.body
    }

    /// The body as the content of `file`, with what the tap learns at its end.
    pub fn body(self, file: FileId, start: u64, tap: Option<Tap>) -> Body {
        let budget = self.reply.host.budget.clone();
        let most = self.attributes.size.exact().map_or(usize::MAX, |size| usize::try_from(size).unwrap_or(usize::MAX));
        let takes_turns = self.resumable && self.media == Media::Other;
        let flow = if takes_turns { self.reply.body.in_turns() } else { self.reply.body };
        Body {
            file,
            version: self.version,
            start,
            file_length: self.attributes.size.exact(),
            resumable: self.resumable,
            stream: stream_of(VecDeque::new(), Some(flow), tap.map(|tap| (tap, budget, most)), None),
        }
    }

    /// The body as something that comes along, if there is a place for it. `lists` is the directory that the tap lists.
    pub fn along(self, file: FileId, lists: Option<FileId>, tap: Option<Tap>) -> Option<Along> {
        let (lease, audience) = (self.lease, self.audience);
        (!self.reply.unplaced).then(|| Along { lists, lease, audience, body: self.body(file, 0, tap) })
    }

    /// Reads the body into memory, up to a bound.
    ///
    /// # Errors
    /// Those of the body.
    pub async fn gather(mut self, tap: &mut Tap, bytes_max: usize) -> Result<Gathered> {
        let mut gathered = Gathered {
            pieces: VecDeque::new(),
            bytes: 0,
            rest: None,
            room: None,
            version: self.version,
            attributes: self.attributes,
            audience: self.audience,
        };
        gathered.attributes.size = self.attributes.size;
        while let Some(bytes) = self.reply.body.next().await.transpose()? {
            tap.feed(&bytes);
            gathered.bytes += bytes.len();
            if tap.holds_page() {
                gathered.pieces.clear();
            } else {
                gathered.put_first(tap.released());
                gathered.pieces.push_back(Piece::Bytes(bytes));
            }
            if gathered.bytes > SMALL_PAGE_BYTES && gathered.room.is_none() {
                let most = self.attributes.size.exact().map_or(bytes_max, |size| bytes_max.min(size as usize));
                gathered.room = Some(self.reply.host.budget.page(most).await);
            }
            if gathered.bytes > bytes_max {
                gathered.rest = Some(self.reply.body);
                return Ok(gathered);
            }
        }
        gathered.attributes.size = Figure::Exact(gathered.bytes as u64);
        Ok(gathered)
    }
}

/// A body in memory, or its beginning.
pub(crate) struct Gathered {
    pub pieces: VecDeque<Piece>,
    bytes: usize,
    rest: Option<Flow>,
    /// Memory for all this.
    room: Option<OwnedSemaphorePermit>,
    pub version: Version,
    /// With the exact size, if all of it came.
    pub attributes: Attributes,
    audience: Audience,
}

impl Gathered {
    /// Puts the beginning back that somebody else held.
    pub fn put_first(&mut self, page: Vec<u8>) {
        if !page.is_empty() {
            self.pieces = VecDeque::from([Piece::Bytes(page.into())]);
        }
    }

    /// The bytes that are here.
    pub fn head(&self) -> Vec<u8> {
        let bytes = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.to_vec(),
            Piece::Known(_) => Vec::new(),
        };
        self.pieces.iter().flat_map(bytes).collect()
    }

    /// Whether all of it is here.
    pub fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    /// The bytes again, then the pieces given here.
    pub fn along(mut self, file: FileId, lists: Option<FileId>, lease: Lease, after: Vec<Piece>) -> Along {
        // What was learnt comes before the rest of a body that was too long to be learnt from to its end.
        self.pieces.extend(after);
        let body = Body {
            file,
            version: self.version,
            start: 0,
            file_length: self.attributes.size.exact(),
            resumable: false,
            stream: stream_of(self.pieces, self.rest, None, self.room),
        };
        Along { body, lists, lease, audience: self.audience }
    }
}

/// The pieces that are here, then those of the flow, along which a tap reads; `room` is the memory of what is here.
fn stream_of(
    ready: VecDeque<Piece>,
    flow: Option<Flow>,
    tap: Option<(Tap, Arc<Budget>, usize)>,
    room: Option<OwnedSemaphorePermit>,
) -> BoxStream<'static, Result<Piece>> {
    struct State {
        ready: VecDeque<Piece>,
        flow: Option<Flow>,
        /// With the most that it holds.
        tap: Option<(Tap, Arc<Budget>, usize)>,
        room: Option<OwnedSemaphorePermit>,
        delivered: usize,
    }
    let tap = tap.filter(|(tap, ..)| !tap.is_idle());
    let state = State { ready, flow, tap, room, delivered: 0 };
    Box::pin(stream::unfold(state, async |mut state| {
        if let Some(piece) = state.ready.pop_front() {
            return Some((Ok(piece), state));
        }
        match state.flow.as_mut()?.next().await {
            Some(Ok(bytes)) => {
                state.delivered += bytes.len();
                if let Some((tap, budget, most)) = &mut state.tap {
                    tap.feed(&bytes);
                    if state.delivered > SMALL_PAGE_BYTES && state.room.is_none() && tap.holds_page() {
                        state.room = Some(budget.page(*most).await);
                    }
                }
                Some((Ok(Piece::Bytes(bytes)), state))
            }
            Some(Err(error)) => {
                state.flow = None;
                Some((Err(error), state))
            }
            None => {
                state.flow = None;
                let known = state.tap.take().map(|(tap, ..)| tap.finish().into_known()).unwrap_or_default();
                state.ready = known.into_iter().map(Piece::Known).collect();
                state.ready.pop_front().map(|piece| (Ok(piece), state))
            }
        }
    }))
}

/// A body without bytes.
pub(crate) fn empty_body(file: FileId, version: Version, start: u64, file_length: Option<u64>) -> Body {
    let stream = stream_of(VecDeque::from([Piece::Bytes(Bytes::new())]), None, None, None);
    Body { file, version, start, file_length, resumable: false, stream }
}

/// Where a reply came from, for people.
pub(crate) fn origin_of(reply: &Reply, how: &str) -> Origin {
    let source = match reply.redirects.is_empty() {
        true => reply.url.to_string(),
        false => reply.asked.clone(),
    };
    Origin { source, how: how.to_owned(), redirects: reply.redirects.clone() }
}

/// What a status without usable content means for somebody who needs the file. 404 and 410 are `NotFound`.
pub(crate) fn status_error(reply: &Reply) -> RemoteError {
    let detail = format!("{}: {}", reply.url, reply.status);
    let error = match reply.status.as_u16() {
        404 | 410 => return RemoteError::NotFound { detail },
        401 => RemoteError::Denied { detail: format!("{detail}; {}", refusal::of_login(&reply.headers)) },
        407 => RemoteError::Denied { detail: format!("{detail}; the URL of the proxy can have a login") },
        403 | 451 => RemoteError::Denied { detail },
        100..=199 | 204..=206 | 300..=399 | 416 => {
            RemoteError::Damaged { detail: format!("{detail} is no answer to this request") }
        }
        _ => RemoteError::Failed { detail },
    };
    reply.host.failed(&error);
    error
}

/// Whether the body of an answer may take long: a file of some length or of none that is told, but not a page, from which
/// names may be learnt.
pub(crate) fn may_take_long(
    status: StatusCode,
    headers: &HeaderMap,
    announced: Option<u64>,
    page_bytes_max: usize,
) -> bool {
    let is_page = media_of(headers) != Media::Other;
    let most = if is_page { page_bytes_max as u64 } else { SHORT_BODY_BYTES };
    status.is_success() && announced.map_or(!is_page, |announced| announced > most)
}

/// Whether the reply has the whole content of what was asked for.
pub(crate) fn has_content(reply: &Reply) -> bool {
    matches!(reply.status, StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION)
}

pub(crate) fn media_of(headers: &HeaderMap) -> Media {
    let essence = text(headers, header::CONTENT_TYPE).and_then(|t| t.split(';').next()).unwrap_or_default();
    match essence.trim().to_ascii_lowercase().as_str() {
        "text/html" | "application/xhtml+xml" => Media::Html,
        "application/json" => Media::Json,
        "application/xml" | "text/xml" => Media::Xml,
        _ => Media::Other,
    }
}

/// The longest body of a file that is not called long.
pub(crate) const SHORT_BODY_BYTES: u64 = 256 << 10;

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(HeaderValue::to_str)?.ok()
}
