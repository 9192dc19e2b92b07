//! Tokens that a server seems not to take.
//!
//! A packet that was changed on its way looks the same to a server as one that was made with another key, and it ends all calls
//! of the connection with it (RXKADSEALEDINCON; `rxkad_CheckPacket` of OpenAFS `src/rxkad/rxkad_common.c`, `rxi_ConnectionError`
//! of `src/rx/rx.c`). So a token is refused only where the server says so twice, of two connections. A change is not made
//! twice, for others of that connection may have been made: the server is asked the time instead.

use crate::rpc::Failure;

/// Whether a call may be made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It asks.
    Freely,
    /// It changes something.
    UnlessSilent,
}

/// What becomes of a call whose token its server does not seem to take.
#[derive(Debug)]
pub(crate) enum Verdict<R> {
    /// The server takes the token.
    Stands(Result<R, Failure>),
    /// It does not, and says why.
    Refused(Failure),
}

/// Finds out what it means that a server did not seem to take a token. `again` puts the same to it once more, `probe` asks it for
/// something small; both with that token.
pub(crate) async fn doubt<R>(
    failure: Failure,
    repeat: Repeat,
    again: impl AsyncFnOnce() -> Result<R, Failure>,
    probe: impl AsyncFnOnce() -> Result<(), Failure>,
) -> Verdict<R> {
    if failure.is_of_ended_token() {
        return Verdict::Refused(failure);
    }
    match repeat {
        Repeat::Freely => match again().await {
            Err(failure) if failure.is_about_token() => Verdict::Refused(failure),
            outcome => Verdict::Stands(outcome),
        },
        Repeat::UnlessSilent => match probe().await {
            Err(failure) if failure.is_about_token() => Verdict::Refused(failure),
            // Whether the change was made is not known.
            Ok(()) => Verdict::Stands(Err(Failure::Silent(format!("a packet was changed on its way ({failure})")))),
            Err(other) => Verdict::Stands(Err(other)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::abort::AbortCode;

    /// RXKADSEALEDINCON, RXKADEXPIRED and EACCES of OpenAFS `src/rxkad/rxkad_errs.et` and of Linux.
    const SEALED: Failure = Failure::Aborted(AbortCode(19_270_410));
    const EXPIRED: Failure = Failure::Aborted(AbortCode(19_270_409));
    const DENIED: Failure = Failure::Aborted(AbortCode(13));

    /// The verdict, in words, and how often the call and the probe were made.
    async fn judged(first: Failure, repeat: Repeat, then: Option<Failure>) -> (String, (u32, u32)) {
        let (calls, probes) = (Cell::new(0), Cell::new(0));
        let outcome = then.map_or(Ok(()), Err);
        let counted = async |count: &Cell<u32>| {
            count.set(count.get() + 1);
            outcome.clone()
        };
        let verdict = doubt(first, repeat, async || counted(&calls).await, async || counted(&probes).await).await;
        let words = match verdict {
            Verdict::Refused(_) => "refused",
            Verdict::Stands(Ok(())) => "answered",
            Verdict::Stands(Err(Failure::Silent(_))) => "not known",
            Verdict::Stands(Err(_)) => "failed",
        };
        (words.to_owned(), (calls.get(), probes.get()))
    }

    #[tokio::test]
    async fn one_packet_that_was_changed_takes_no_token_away() {
        use Repeat::{Freely, UnlessSilent};
        let cases = [
            (SEALED, Freely, None, "answered", (1, 0)),
            (SEALED, Freely, Some(DENIED), "failed", (1, 0)),
            (SEALED, Freely, Some(SEALED), "refused", (1, 0)),
            (SEALED, UnlessSilent, None, "not known", (0, 1)),
            (SEALED, UnlessSilent, Some(Failure::TimedOut), "failed", (0, 1)),
            (SEALED, UnlessSilent, Some(SEALED), "refused", (0, 1)),
            (Failure::Refused("a challenge that was changed".into()), Freely, None, "answered", (1, 0)),
            (EXPIRED, Freely, None, "refused", (0, 0)),
            (EXPIRED, UnlessSilent, None, "refused", (0, 0)),
        ];
        for (first, repeat, then, words, asked) in cases {
            let what = format!("{first:?}, {repeat:?}, then {then:?}");
            assert_eq!(judged(first, repeat, then).await, (words.to_owned(), asked), "{what}");
        }
    }
}
