//! What becomes of a call: every state, every reason to leave it, and nothing else.
//!
//! ```text
//! client  Queued -> Requesting -> Receiving -> Dallying -> Gone
//! server  Serving -> Replying -> Holding -> Over -> Gone
//! ```
//!
//! Whatever fails makes a call Over, with the error that its owner has yet to hear of.

use crate::security::SecurityError;

/// Why a call did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The other side ended the call or its connection with this code. What it means is the service's to say; codes
    /// from -1 to -100 are Rx's own, those from 19270400 to 19270412 rxkad's.
    #[error("the other side ended the call with code {0}")]
    Aborted(i32),
    /// Nothing was heard for [`Config::dead_after`](crate::Config::dead_after).
    #[error("the other side is silent")]
    Dead,
    /// The call is not there: it ended, its route was forgotten, or its client gave it up for another.
    #[error("the call is closed")]
    Closed,
    /// More calls wait for their route than are kept waiting.
    #[error("too many calls wait for this server")]
    TooMany,
    /// The two sides do not agree on how to secure the connection.
    #[error(transparent)]
    Security(SecurityError),
}

impl CallError {
    /// Whether the same call may go well at another time or with another server.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            CallError::Dead | CallError::TooMany => true,
            CallError::Aborted(_) | CallError::Closed | CallError::Security(_) => false,
        }
    }
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallState {
    /// Client: all channels are taken.
    Queued,
    /// Client: the request goes, nothing of the reply came.
    Requesting,
    /// Client: the reply comes.
    Receiving,
    /// Client: the application has the reply, the server has not been told.
    Dallying,
    /// Server: the request comes.
    Serving,
    /// Server: the reply goes.
    Replying,
    /// Server: the reply is written whole, the client does not have all of it.
    Holding,
    /// Ended; the application has not heard of it yet.
    Over(Result<(), CallError>),
    /// Nobody needs it.
    Gone,
}

/// Why a call's state changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A channel is free for it.
    ChannelFound,
    /// The first data of the reply came.
    ReplyCame,
    /// The application has read the end of the reply.
    ReplyRead,
    /// The server was told that the reply is here.
    ReplyTold,
    /// The application writes the reply.
    ReplyBegun,
    /// The application has written the end of the reply.
    ReplyWritten,
    /// The client has all of the reply.
    ReplyArrived,
    /// The channel is used for another call, which says that this one is done with.
    ChannelReused,
    /// The other side gives up the call or its connection.
    PeerAborted(i32),
    /// The application gives it up.
    GivenUp,
    /// Nothing was heard for too long.
    Silence,
    /// Too many calls wait.
    QueueFull,
    /// The route was forgotten while the call waited for it.
    RouteForgotten,
    /// The connection cannot be secured.
    SecurityFailed(SecurityError),
    /// The application has heard of the end.
    EndHeard,
}

impl CallState {
    /// The next state; `None` if the cause means nothing here.
    pub(crate) fn after(self, cause: Cause) -> Option<CallState> {
        use CallState::*;
        Some(match (self, cause) {
            (Gone, _) => return None,
            (Over(_), Cause::EndHeard) | (_, Cause::GivenUp) => Gone,
            (Over(_), _) => return None,

            (Queued, Cause::ChannelFound) => Requesting,
            (Requesting, Cause::ReplyCame) => Receiving,
            (Receiving, Cause::ReplyRead) => Dallying,
            (Dallying, Cause::ReplyTold | Cause::ChannelReused) => Gone,

            (Serving, Cause::ReplyBegun) => Replying,
            (Serving | Replying, Cause::ReplyWritten) => Holding,
            (Holding, Cause::ReplyArrived | Cause::ChannelReused) => Over(Ok(())),
            (Serving | Replying, Cause::ChannelReused) => Over(Err(CallError::Closed)),

            // The application has its reply already.
            (Dallying, cause) if cause.error().is_some() => Gone,
            (_, cause) => Over(Err(cause.error()?)),
        })
    }

    /// Whether packets of the call are sent and taken.
    pub(crate) fn is_live(self) -> bool {
        !matches!(self, CallState::Queued | CallState::Over(_) | CallState::Gone)
    }

    /// Whether the other side has to give signs of life.
    pub(crate) fn needs_peer(self) -> bool {
        self.is_live() && self != CallState::Dallying
    }
}

impl Cause {
    /// What the application hears of it.
    fn error(self) -> Option<CallError> {
        Some(match self {
            Cause::PeerAborted(code) => CallError::Aborted(code),
            Cause::Silence => CallError::Dead,
            Cause::QueueFull => CallError::TooMany,
            Cause::RouteForgotten => CallError::Closed,
            Cause::SecurityFailed(error) => CallError::Security(error),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES: [Cause; 3] = [Cause::PeerAborted(7), Cause::Silence, Cause::RouteForgotten];

    fn walk(from: CallState, causes: &[Cause]) -> Vec<CallState> {
        let mut state = from;
        let step = |cause: &Cause| {
            state = state.after(*cause)?;
            Some(state)
        };
        causes.iter().map_while(step).collect()
    }

    #[test]
    fn a_call_goes_its_way_to_the_end() {
        use CallState::*;
        let client = [Cause::ChannelFound, Cause::ReplyCame, Cause::ReplyRead, Cause::ReplyTold];
        assert_eq!(walk(Queued, &client), [Requesting, Receiving, Dallying, Gone]);
        let server = [Cause::ReplyBegun, Cause::ReplyWritten, Cause::ReplyArrived, Cause::EndHeard];
        assert_eq!(walk(Serving, &server), [Replying, Holding, Over(Ok(())), Gone]);
    }

    #[test]
    fn a_failure_ends_every_live_call_once() {
        use CallState::*;
        for state in [Queued, Requesting, Receiving, Serving, Replying, Holding] {
            for cause in FAILURES {
                let over = state.after(cause).expect("it ends");
                assert_eq!(over, Over(Err(cause.error().expect("a failure"))));
                assert!(FAILURES.iter().all(|again| over.after(*again).is_none()), "{over:?} ends once");
            }
        }
        assert_eq!(Dallying.after(Cause::Silence), Some(Gone), "the application has its reply");
        assert_eq!(Gone.after(Cause::GivenUp), None);
    }
}
