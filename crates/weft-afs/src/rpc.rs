//! One call to one server, in types.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use weft_remote::{Call, RemoteError};
use weft_rx::CallError;

use crate::abort::{AbortCode, Next};
use crate::silences::Silences;
use crate::tokens::Token;
use crate::transport::Transport;
use crate::wire::fileserver::{GetTime, GiveUpAllCallBacks};
use crate::wire::{Call as WireCall, vl};

/// Makes calls.
pub(crate) struct Rpc {
    transport: Transport,
    /// Whom to ask is of no use just now.
    pub silences: Silences,
}

/// Why a call has no reply.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server said so.
    Aborted(AbortCode),
    /// The two do not agree on how to prove who asks.
    Refused(String),
    /// The server said nothing; what is known of that.
    Silent(String),
    /// Whoever asked had no more time.
    TimedOut,
    /// The server said something that makes no sense.
    Damaged(String),
    /// The question cannot be put.
    Unaskable(String),
}

impl Failure {
    /// As the contract has it. `what` names the thing.
    pub fn error(self, what: &str) -> RemoteError {
        match self {
            Failure::Aborted(code) => code.error(what),
            Failure::Refused(why) => RemoteError::Denied { detail: format!("{what}: {why}") },
            Failure::Silent(why) => RemoteError::Unreachable { detail: format!("{what}: {why}") },
            Failure::TimedOut => RemoteError::TimedOut { detail: what.to_owned() },
            Failure::Damaged(why) => RemoteError::Damaged { detail: format!("{what}: {why}") },
            Failure::Unaskable(why) => RemoteError::BadName { detail: format!("{what}: {why}") },
        }
    }

    /// Whether another release of the same volume may have another answer: there is no such file.
    pub fn is_of_one_release(&self) -> bool {
        matches!(self, Failure::Aborted(AbortCode(NO_VNODE)))
    }

    /// Whether it is the token, if there was one, that keeps the server from answering.
    pub fn is_about_token(&self) -> bool {
        match self {
            Failure::Aborted(code) => matches!(code.next(), Next::DropToken | Next::DoubtToken),
            Failure::Refused(_) => true,
            Failure::Silent(_) | Failure::TimedOut | Failure::Damaged(_) | Failure::Unaskable(_) => false,
        }
    }

    /// Whether it is that the token has ended.
    pub fn is_of_ended_token(&self) -> bool {
        matches!(self, Failure::Aborted(code) if code.next() == Next::DropToken)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Aborted(code) => code.fmt(f),
            Failure::Refused(why) | Failure::Silent(why) | Failure::Damaged(why) | Failure::Unaskable(why) => {
                f.write_str(why)
            }
            Failure::TimedOut => f.write_str("no answer in time"),
        }
    }
}

impl Rpc {
    pub fn new(transport: Transport) -> Rpc {
        Rpc { transport, silences: Silences::default() }
    }

    /// As [`Transport::rest`].
    pub async fn rest(&self) {
        self.transport.rest().await;
    }

    /// The descriptor of the socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.transport.descriptor()
    }

    /// Asks one server, as nobody.
    pub async fn ask<C: WireCall>(&self, call: &Call, to: SocketAddr, question: &C) -> Result<C::Reply, Failure> {
        self.send(call, (to, None), question, &mut std::iter::empty()).await
    }

    /// Tells file servers, all at once, to forget what they have promised this client.
    pub async fn forget_at(&self, servers: impl IntoIterator<Item = SocketAddr>, call: Call) {
        let telling = servers.into_iter().map(async |at| {
            if let Err(failure) = self.ask(&call, at, &GiveUpAllCallBacks {}).await {
                tracing::debug!(%at, %failure, "a file server goes on to know this client");
            }
        });
        join_all(telling).await;
    }

    /// The same, as nobody or with a token, with bytes that follow the request. One that was given up is not asked.
    pub async fn send<C: WireCall>(
        &self,
        call: &Call,
        (to, token): (SocketAddr, Option<&Arc<Token>>),
        question: &C,
        more: &mut (dyn Iterator<Item = Bytes> + Send),
    ) -> Result<C::Reply, Failure> {
        match self.silences.given_up(to) {
            Some(why) => Err(Failure::Silent(why)),
            None => self.send_anyway(call, (to, token), question, more).await,
        }
    }

    /// Asks a file server or a server of the VLDB for something small, also one that was given up; what comes of it is noted.
    pub async fn probe(&self, call: &Call, to: SocketAddr) {
        let nothing = &mut std::iter::empty();
        let outcome = match to.port() {
            vl::PORT => self.send_anyway(call, (to, None), &vl::ProbeServer {}, nothing).await.map(drop),
            _ => self.send_anyway(call, (to, None), &GetTime {}, nothing).await.map(drop),
        };
        if let Err(failure) = outcome {
            tracing::debug!(%to, %failure, "a server does not answer a probe");
        }
        self.silences.probed(to);
    }

    async fn send_anyway<C: WireCall>(
        &self,
        call: &Call,
        (to, token): (SocketAddr, Option<&Arc<Token>>),
        question: &C,
        more: &mut (dyn Iterator<Item = Bytes> + Send),
    ) -> Result<C::Reply, Failure> {
        let request = question.request().map_err(|error| Failure::Unaskable(error.to_string()))?;
        let mut asked = pin!(self.transport.call((to, C::SERVICE), token, &request, more, C::REPLY_BYTES_MAX));
        // Before the call is: one that is ended has nothing more to tell of its server.
        let _patience = Patience { rpc: self, to, begun: Instant::now(), deadline: call.deadline };
        let soon = call.deadline.min(Instant::now() + SUSPECT_AFTER);
        let mut answer = tokio::time::timeout_at(soon.into(), &mut asked).await;
        if answer.is_err() {
            self.silences.suspect(to, &format!("{to}: {}", Failure::TimedOut));
            answer = tokio::time::timeout_at(call.deadline.into(), asked).await;
        }
        let reply = match answer {
            Ok(reply) => reply.map_err(|error| (failure(to, &error), error)),
            Err(_) => return Err(Failure::TimedOut),
        };
        match &reply {
            Err((why, CallError::Dead)) => self.silences.silent(to, &why.to_string()),
            // That is of this side.
            Err((_, CallError::Closed | CallError::TooMany)) => {}
            Ok(_) | Err((_, CallError::Aborted(_) | CallError::Security(_))) => self.silences.answered(to),
        }
        let reply = reply.map_err(|(failure, _)| failure)?;
        C::reply(&reply).map_err(|error| Failure::Damaged(format!("the reply of {to}: {error}")))
    }
}

/// How long somebody waits for a server. Who has come to a deadline, and has heard nothing at all for a while, gives it up: a
/// program whose system call takes several requests waits for one of them, not for each.
///
/// Whoever waits may be dropped at that deadline, so this is done at the end of the wait however it ends.
struct Patience<'a> {
    rpc: &'a Rpc,
    to: SocketAddr,
    begun: Instant,
    deadline: Instant,
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        let is_over = Instant::now() >= self.deadline && self.begun.elapsed() >= SUSPECT_AFTER;
        if is_over && self.rpc.transport.is_silent(self.to, SUSPECT_AFTER) {
            self.rpc.silences.silent(self.to, &format!("{}: {}", self.to, Failure::TimedOut));
        }
    }
}

fn failure(server: SocketAddr, error: &CallError) -> Failure {
    match error {
        CallError::Aborted(code) => Failure::Aborted(AbortCode(*code)),
        CallError::Security(error) => Failure::Refused(format!("{server}: {error}")),
        error => Failure::Silent(format!("{server}: {error}")),
    }
}

/// The code for a file that the volume does not have (VNOVNODE).
pub(crate) const NO_VNODE: i32 = 102;
/// How long a call may take before it is found out whether its server answers anything; Rx asks for a sign of life twice in
/// that time.
const SUSPECT_AFTER: Duration = Duration::from_secs(4);
