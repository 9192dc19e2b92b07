//! Asking whether a place gives what it gave before.
//!
//! An entity tag is asked about: a 304 says that it is still that one. A time is compared. Servers are free to answer a question
//! about it with 304 also where a file is of a time before (RFC 9110 section 13.1.3; Python, Go and Apache do): what was put back
//! to where it had been would never be seen. So the headers alone are asked for, and tell the time and the length: by HEAD, and of
//! a host that has none, or never answers it, with the first byte. Only where both give nothing the server is left to compare.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use tokio::time::timeout;
use weft_remote::{Answer, Call, Sameness, Version};

use crate::authority::Authority;
use crate::content::{Content, has_content};
use crate::exchange::{GetError, Needs, Question, Reply};
use crate::fetch::content_range;
use crate::headers::content_length;
use crate::host::HeadersBy;
use crate::id::Place;
use crate::remote::Web;
use crate::validator::{Dated, unless_same, version_of};

/// What a place of which a version is known has answered.
pub(crate) enum Confirmed {
    /// It gives that version still.
    Same(Answer<()>),
    /// What it gives now, or why it gives nothing.
    Reply(Box<Reply>),
}

impl Web {
    /// Asks a place for what it gives, unless that is as known.
    ///
    /// # Errors
    /// As [`Client::get`](crate::client::Client::get).
    pub(crate) async fn ask_unless_same(
        &self,
        call: &Call,
        place: &Place,
        known: &Version,
        needs: Needs,
    ) -> std::result::Result<Confirmed, GetError> {
        let mut condition = unless_same(known);
        if let Some(dated) = Dated::of(known)
            && let Some(told) = self.headers_alone(call, place).await
        {
            match told_by(&told, &dated) {
                Sameness::Same | Sameness::Equivalent => return Ok(Confirmed::Same(self.same(told, known).await)),
                Sameness::Different => condition = None,
                Sameness::CannotTell => {}
            }
            told.body.drain().await;
        }
        let headers: Vec<_> = condition.into_iter().collect();
        let question = Question { needs, ..Question::get(&headers) };
        let reply = self.client.ask_noted(call, place, &question).await?;
        if reply.status != StatusCode::NOT_MODIFIED || headers.is_empty() {
            return Ok(Confirmed::Reply(Box::new(reply)));
        }
        Ok(Confirmed::Same(self.same(reply, known).await))
    }

    /// An answer for its headers, as its host can give one. What keeps this from being answered is told by the question that
    /// follows, if it keeps that from it as well.
    async fn headers_alone(&self, call: &Call, place: &Place) -> Option<Reply> {
        let host = self.client.host(&Authority::parse(&place.authority)?);
        match host.headers_by() {
            HeadersBy::Head => {
                match timeout(call.remaining() / 2, self.client.ask(call, place, &Question::head())).await {
                    Ok(Ok(head)) if has_content(&head) => return Some(head),
                    Ok(Ok(head)) if matches!(head.status.as_u16(), 405 | 501) => head.body.drain().await,
                    Ok(_) => return None,
                    Err(_) => {}
                }
            }
            HeadersBy::Part => {}
            HeadersBy::Nothing => return None,
        }
        let first = [(header::RANGE, HeaderValue::from_static("bytes=0-0"))];
        let part = self.client.ask(call, place, &Question::look(&first)).await.ok()?;
        let is_part = matches!(part.status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE);
        if is_part || has_content(&part) {
            host.gives_headers_by(if is_part { HeadersBy::Part } else { HeadersBy::Nothing });
            return Some(part);
        }
        part.body.drain().await;
        None
    }

    async fn same(&self, reply: Reply, known: &Version) -> Answer<()> {
        let content = Content::read(reply, self.options());
        let answer = Answer { version: known.clone(), ..content.answer(()) };
        content.into_flow().drain().await;
        answer
    }
}

/// What the headers of a file say of a version that is made of a time: they may tell none, or a tag instead.
fn told_by(reply: &Reply, known: &Dated<'_>) -> Sameness {
    // Where a redirect has led to it with a slash, this is the page of the directory that it is now. What has no first byte is
    // not worth a comparison.
    if reply.slashed || reply.status == StatusCode::RANGE_NOT_SATISFIABLE {
        return Sameness::Different;
    }
    let length = match reply.status {
        StatusCode::PARTIAL_CONTENT => content_range(&reply.headers).and_then(|range| range.total),
        _ => content_length(&reply.headers),
    };
    let told = version_of(&reply.headers, length, SystemTime::now());
    Dated::of(&told).map_or(Sameness::CannotTell, |told| told.compare(known))
}
