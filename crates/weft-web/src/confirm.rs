//! Asking whether a place gives what it gave before.
//!
//! An entity tag is asked about: a 304 says that it is still that one. A time is compared. Servers are free to answer a question
//! about it with 304 also where a file is of a time before (RFC 9110 section 13.1.3; Python, Go and Apache do): what was put back
//! to where it had been would never be seen. So the headers alone are asked for, and tell the time and the length.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::HeaderMap;
use weft_remote::{Answer, Call, Sameness, Version};

use crate::content::{Content, has_content};
use crate::exchange::{GetError, Needs, Question, Reply};
use crate::headers::content_length;
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
        // What keeps this from being answered is told by the question that follows, if it keeps that from it as well.
        if let Some(dated) = Dated::of(known)
            && let Ok(head) = self.client.ask(call, place, &Question::head()).await
            && has_content(&head)
        {
            // Where a redirect has led to it with a slash, this is the page of the directory that it is now.
            let sameness = if head.slashed { Sameness::Different } else { told_by(&head.headers, &dated) };
            match sameness {
                Sameness::Same | Sameness::Equivalent => return Ok(Confirmed::Same(self.same(head, known))),
                Sameness::Different => condition = None,
                Sameness::CannotTell => {}
            }
        }
        let headers: Vec<_> = condition.into_iter().collect();
        let question = Question { needs, ..Question::get(&headers) };
        let reply = self.client.ask_noted(call, place, &question).await?;
        if reply.status != StatusCode::NOT_MODIFIED || headers.is_empty() {
            return Ok(Confirmed::Reply(Box::new(reply)));
        }
        Ok(Confirmed::Same(self.same(reply, known)))
    }

    fn same(&self, reply: Reply, known: &Version) -> Answer<()> {
        Answer { version: known.clone(), ..Content::read(reply, self.options()).answer(()) }
    }
}

/// What the headers of a file say of a version that is made of a time: they may tell none, or a tag instead.
fn told_by(headers: &HeaderMap, known: &Dated<'_>) -> Sameness {
    let told = version_of(headers, content_length(headers), SystemTime::now());
    Dated::of(&told).map_or(Sameness::CannotTell, |told| told.compare(known))
}
