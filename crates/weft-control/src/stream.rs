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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// The two ends of a connection, and the end of the daemon.
    fn ends() -> (BufReader<UnixStream>, UnixStream, watch::Sender<bool>) {
        let (server, client) = UnixStream::pair().expect("a pair");
        (BufReader::new(server), client, watch::Sender::new(false))
    }

    async fn line(client: &mut UnixStream) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(client.read_u8().await.expect("a byte"));
        }
        String::from_utf8(line).expect("ASCII")
    }

    /// Goal: a stream that has nothing to tell beats, and one that tells something beats only after silence.
    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_with_beats() {
        let (mut server, mut client, end) = ends();
        let mut ending = end.subscribe();
        let began = tokio::time::Instant::now();
        let passing = pass_on(&mut server, futures_util::stream::pending().boxed(), &mut ending);
        let reading = async {
            for _ in 0..4 {
                assert!(line(&mut client).await.contains("\"ok\":\"beat\""));
            }
            assert_eq!(began.elapsed().as_secs(), 3 * BEAT.as_secs());
            end.send_replace(true);
            assert!(line(&mut client).await.contains("\"ok\":\"end\""));
        };
        let (passed, ()) = tokio::join!(passing, reading);
        assert!(passed.expect("written"), "the client is still there");
    }

    /// Goal: a client that goes ends its stream at once; one that asks for something else ends it in good order; one
    /// that takes nothing is cut off.
    #[tokio::test(start_paused = true)]
    async fn every_client_ends_its_stream() {
        let (mut server, client, end) = ends();
        let pending = || futures_util::stream::pending().boxed();
        drop(client);
        let gone = pass_on(&mut server, pending(), &mut end.subscribe()).await;
        assert!(!gone.unwrap_or(false), "gone, or not to be written to");

        let (mut server, mut client, end) = ends();
        tokio::io::AsyncWriteExt::write_all(&mut client, b"{").await.expect("written");
        assert!(pass_on(&mut server, pending(), &mut end.subscribe()).await.expect("written"));
        assert!(line(&mut client).await.contains("beat") && line(&mut client).await.contains("end"));

        let (mut server, _client, end) = ends();
        let endless = futures_util::stream::repeat_with(|| Ok(Reply::Offline)).boxed();
        let cut = pass_on(&mut server, endless, &mut end.subscribe()).await;
        assert_eq!(cut.expect_err("cut off").kind(), io::ErrorKind::TimedOut);
    }
}
