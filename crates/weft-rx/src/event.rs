//! What an endpoint tells its application.

use std::net::SocketAddr;

use crate::call::CallId;
use crate::call_state::CallError;

/// Something that the application has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client calls. The request is read, and the reply written, with this id.
    Incoming {
        /// The call.
        call: CallId,
        /// Where its first packet came from. Nothing proves it.
        from: SocketAddr,
        /// The service that is called.
        service: u16,
    },
    /// There is something to read, or the end. Comes again only after a read that found [`Read::Blocked`].
    ///
    /// [`Read::Blocked`]: crate::Read::Blocked
    Readable(CallId),
    /// More can be written, after a write that was not taken whole.
    Writable(CallId),
    /// The call ended, and its id means nothing any more. A client's call ends well when the end of the reply was read,
    /// a server's when the client has the whole reply. A call that the application aborted tells nothing.
    Ended(CallId, Result<(), CallError>),
}

impl Event {
    /// Whose event it is.
    #[must_use]
    pub fn call(&self) -> CallId {
        match self {
            Event::Incoming { call, .. } | Event::Readable(call) | Event::Writable(call) | Event::Ended(call, _) => {
                *call
            }
        }
    }
}
