//! Answers that are streams: lines until their source, the client or the daemon ends.
//!
//! The first line of a stream, and one after every [`BEAT`] without another, is `beat`: so the client knows that it has
//! begun, and notices a daemon that is no more. The server notices a client that goes away at once, by the end of what
//! it reads from it; any request that the client sends ends the stream first. A client that reads slowly holds nothing
//! here but one line: its stream is not asked for the next before the last is written, and what feeds a stream is
//! bounded by whoever makes it. A client that takes nothing for a minute is cut off.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::Refusal;
use crate::protocol::{Outcome, Reply};
use crate::server::send;

/// What a daemon tells bit by bit. An error is told and ends it. Dropping it is how the client's end is noticed.
pub type Lines<T> = BoxStream<'static, Result<T, Refusal>>;

/// What to do next.
enum Next {
    Line(Option<Result<Reply, Refusal>>),
    Beat,
    /// The client wants something else, or the daemon ends.
    Enough,
    /// The client has gone.
    Gone,
}

/// Writes `lines` to the client; whether it is still there afterwards.
///
/// # Errors
/// When the client cannot be talked to.
pub(crate) async fn pass_on(
    stream: &mut BufReader<UnixStream>,
    mut lines: Lines<Reply>,
    ending: &mut watch::Receiver<bool>,
) -> io::Result<bool> {
    send(stream, Outcome::Ok(Reply::Beat)).await?;
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + BEAT, BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = tokio::select! {
            biased;
            asked = stream.fill_buf() => if asked?.is_empty() { Next::Gone } else { Next::Enough },
            // An error means that the server is gone, which is an end as well.
            _ = ending.wait_for(|ending| *ending) => Next::Enough,
            _ = beat.tick() => Next::Beat,
            line = lines.next() => Next::Line(line),
        };
        match next {
            Next::Gone => return Ok(false),
            Next::Enough | Next::Line(None) => {
                send(stream, Outcome::Ok(Reply::End)).await?;
                return Ok(true);
            }
            Next::Beat => send(stream, Outcome::Ok(Reply::Beat)).await?,
            Next::Line(Some(Ok(reply))) => {
                send(stream, Outcome::Ok(reply)).await?;
                beat.reset();
            }
            Next::Line(Some(Err(refusal))) => {
                send(stream, Outcome::Error(refusal)).await?;
                return Ok(true);
            }
        }
    }
}

/// Longest time without a line.
pub(crate) const BEAT: Duration = Duration::from_secs(10);
