//! Bytes of one version of a file, from anywhere in it.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use weft_remote::{
    Answer, Attributes, Call, Fetched, Figure, FileId, FileKind, RemoteError, Result, Sameness, Span, Version,
};

use crate::content::{Content, empty_body, has_content, status_error};
use crate::exchange::Reply;
use crate::headers::content_length;
use crate::id::{Id, Place};
use crate::landing::Landing;
use crate::listing::page_name;
use crate::remote::{Web, foreign};
use crate::traffic::shown;
use crate::validator::{if_range, version_of};

/// What a Content-Range header says (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// First and last byte; `None` when the range could not be served.
    pub(crate) bytes: Option<(u64, u64)>,
    /// Length of the whole file.
    pub(crate) total: Option<u64>,
}

impl Web {
    /// [`Remote::fetch`](weft_remote::Remote::fetch) without the deadline.
    pub(crate) async fn fetch_span(
        &self,
        call: &Call,
        file: &FileId,
        expected: &Version,
        span: Span,
    ) -> Result<Answer<Fetched>> {
        let place = match Id::parse(file) {
            Some(Id::File(place)) => place,
            Some(Id::Root | Id::Dir(_)) => return Err(is_a_directory(file)),
            None => return Err(foreign(file)),
        };
        let landing = match span == Span::WHOLE {
            true => None,
            false => self.client.landings.of(&call.caller, &place, expected),
        };
        if let Some(landing) = &landing {
            // It may be silent, and there is another way.
            let patience = call.remaining() / 2;
            let asked = self.fetch_at(call, (file, &place), Some(landing), expected, span);
            match tokio::time::timeout(patience, asked).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => tracing::debug!(%error, "a version is no more where it came from"),
                Err(_) => {
                    tracing::debug!(url = shown(landing.url.as_str()), "no answer from where a version came from")
                }
            }
            self.client.landings.forget(landing);
        }
        let has_led = landing.is_some();
        let told = self.fetch_at(call, (file, &place), None, expected, span).await;
        if has_led || span == Span::WHOLE || !matches!(told, Err(RemoteError::VersionChanged { .. })) {
            return told;
        }
        // Behind one name there may be several servers of which each has a tag of its own for the same content (Apache and
        // nginx make it of the file's own times): the next question may reach the one that gave this version. Where that was
        // never so, a file that has changed costs one more request.
        let Some(host) = self.host_of(file) else { return told };
        let more = if host.has_tags_each() { NODES_ASKED_MAX } else { 1 };
        for _ in 0..more {
            if let Ok(answer) = self.fetch_at(call, (file, &place), None, expected, span).await {
                host.saw_tags_each();
                return Ok(answer);
            }
        }
        told
    }

    async fn fetch_at(
        &self,
        call: &Call,
        (file, place): (&FileId, &Place),
        landing: Option<&Landing>,
        expected: &Version,
        span: Span,
    ) -> Result<Answer<Fetched>> {
        let mut conditions = range_headers(expected, span);
        let mut reply = self.client.get_at(call, place, landing, &conditions).await?;
        if reply.slashed {
            return Err(is_a_directory(file));
        }
        if reply.status == StatusCode::RANGE_NOT_SATISFIABLE
            && !conditions.is_empty()
            && past_the_end(&reply, span).is_none()
        {
            // Some servers do not say how long the file is, so that the whole must be asked for.
            reply.body.drain().await;
            conditions.clear();
            reply = self.client.get_at(call, place, landing, &conditions).await?;
        }
        match reply.status {
            StatusCode::PARTIAL_CONTENT if !conditions.is_empty() => self.ranged(file, expected, span, reply),
            StatusCode::RANGE_NOT_SATISFIABLE if !conditions.is_empty() => {
                nothing_there(file, expected, span, reply).await
            }
            StatusCode::PRECONDITION_FAILED => Err(changed(&reply)),
            _ if has_content(&reply) => {
                let content = Content::read(reply, self.options());
                check_version(expected, &content.version, &content.origin.source)?;
                let own_page = (place.path.ends_with('/') && place.query.is_none())
                    .then(|| content.entry(page_name(), file.clone()));
                let tap = content.tap(place, place.dir(), own_page, self.options());
                let answer = content.answer(content.attributes);
                let body = content.body(file.clone(), 0, Some(tap));
                Ok(answer.map(|attributes| Fetched { attributes, body }))
            }
            _ => {
                let (status, error) = (reply.status, status_error(&reply));
                reply.body.drain().await;
                match self.dir_instead(call, place, status).await? {
                    Some(_) => Err(is_a_directory(file)),
                    None => Err(error),
                }
            }
        }
    }

    /// A range, which begins where it was asked for. It may end before or after that: a body that brings less is gone on with
    /// by another one.
    fn ranged(&self, file: &FileId, expected: &Version, span: Span, mut reply: Reply) -> Result<Answer<Fetched>> {
        let damaged = |why: String| RemoteError::Damaged { detail: format!("{}: {why}", reply.url) };
        let text = reply.headers.get(header::CONTENT_RANGE);
        let range =
            content_range(&reply.headers).ok_or_else(|| damaged(format!("the range {text:?} makes no sense")))?;
        let Some((first, last)) = range.bytes.filter(|(first, _)| *first == span.start) else {
            return Err(damaged(format!("bytes from {} were asked for and {text:?} came", span.start)));
        };
        let announced = content_length(&reply.headers);
        if announced.is_some_and(|announced| announced != last - first + 1) {
            return Err(damaged(format!("{text:?} and a length of {announced:?} contradict each other")));
        }
        let asked_last = span.length.map(|length| span.start.saturating_add(length.max(1)) - 1);
        let end = range.total.map_or(last, |total| total - 1);
        let until = asked_last.map_or(end, |asked| asked.min(end));
        reply.body = reply.body.asked_for(until - first + 1);
        reply.host.saw_ranges();
        let content = Content::with_length(reply, range.total, self.options());
        check_version(expected, &content.version, &content.origin.source)?;
        let answer = content.answer(content.attributes);
        let body = content.body(file.clone(), first, None);
        Ok(answer.map(|attributes| Fetched { attributes, body }))
    }
}

fn is_a_directory(file: &FileId) -> RemoteError {
    RemoteError::IsADirectory { detail: file.as_bytes().escape_ascii().to_string() }
}

fn range_headers(expected: &Version, span: Span) -> Vec<(HeaderName, HeaderValue)> {
    if span == Span::WHOLE {
        return Vec::new();
    }
    let range = match span.length {
        Some(length) => format!("bytes={}-{}", span.start, span.start.saturating_add(length.max(1)) - 1),
        None => format!("bytes={}-", span.start),
    };
    let range = HeaderValue::from_str(&range).expect("digits and a dash are a header value");
    let mut headers = vec![(header::RANGE, range)];
    headers.extend(if_range(expected));
    headers
}

/// The length of the file, when an unsatisfied range says that the span starts behind it.
fn past_the_end(reply: &Reply, span: Span) -> Option<u64> {
    content_range(&reply.headers)?.total.filter(|total| span.start >= *total)
}

async fn nothing_there(file: &FileId, expected: &Version, span: Span, reply: Reply) -> Result<Answer<Fetched>> {
    let Some(total) = past_the_end(&reply, span) else { return Err(status_error(&reply)) };
    let told = version_of(&reply.headers, Some(total), SystemTime::now());
    // Such an answer often has no validator: then the expectation stands, as far as the length bears it out.
    let version = if told == Version::None { expected.clone() } else { told };
    check_version(expected, &version, reply.url.as_str())?;
    let attributes = Attributes { size: Figure::Exact(total), ..Attributes::of_kind(FileKind::File) };
    let audience = reply.audience;
    let body = empty_body(file.clone(), version.clone(), span.start, Some(total));
    reply.body.drain().await;
    Ok(Answer { audience, ..Answer::new(Fetched { attributes, body }, version, weft_remote::Lease::Spent) })
}

fn check_version(expected: &Version, found: &Version, url: &str) -> Result<()> {
    match (expected, expected.compare(found)) {
        (Version::None, _) | (_, Sameness::Same | Sameness::Equivalent) => Ok(()),
        (_, Sameness::Different | Sameness::CannotTell) => Err(RemoteError::VersionChanged { detail: url.to_owned() }),
    }
}

fn changed(reply: &Reply) -> RemoteError {
    RemoteError::VersionChanged { detail: reply.url.to_string() }
}

pub(crate) fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = text.strip_prefix("bytes ")?.trim().split_once('/')?;
    let total = match total {
        "*" => None,
        total => Some(total.parse::<u64>().ok()?),
    };
    let bytes = match range {
        "*" => None,
        range => {
            let (first, last) = range.split_once('-')?;
            let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
            if first > last || last == u64::MAX || total.is_some_and(|total| last >= total) {
                return None;
            }
            Some((first, last))
        }
    };
    Some(ContentRange { bytes, total })
}

/// How often more a part of a version is asked for, where several servers have tags of their own, before it counts as gone.
const NODES_ASKED_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_that_make_no_sense_are_none() {
        let read = |text: &str| {
            content_range(&HeaderMap::from_iter([(header::CONTENT_RANGE, HeaderValue::from_str(text).unwrap())]))
        };
        assert_eq!(read("bytes 2-5/9"), Some(ContentRange { bytes: Some((2, 5)), total: Some(9) }));
        assert_eq!(read("bytes 2-5/*"), Some(ContentRange { bytes: Some((2, 5)), total: None }));
        assert_eq!(read("bytes */9"), Some(ContentRange { bytes: None, total: Some(9) }));
        for bad in
            ["", "bytes", "bytes 5-2/9", "bytes 2-9/9", "items 1-2/3", "bytes 0-18446744073709551615/*", "bytes -1-2/3"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
