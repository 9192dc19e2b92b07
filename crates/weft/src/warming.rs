//! The stream of `weft warm`: what is asked for and what happens, in the words of each side.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use weft_control::{Code, Lines, Refusal, WarmCame, WarmForecast, WarmOrder, WarmProgress, WarmStatus, Warmed};
use weft_remote::{Caller, Rules};
use weft_vfs::{Came, Forecast, Progress, Vfs, WarmEvent, WarmRequest, Warming};

use crate::globs::Globs;
use crate::words::{code_of, joined, names_of, refusal};

/// Begins to fetch ahead, and tells what happens. Dropping the stream ends the work.
///
/// # Errors
/// `Invalid` for a glob or path that is none.
pub fn warm(vfs: &Arc<Vfs>, order: WarmOrder, caller: Caller) -> Result<Lines<Warmed>, Refusal> {
    if vfs.warmings().len() >= WarmRequest::COUNT_MAX {
        let sentence = format!("{} `weft warm` are under way; wait for one, or end it", WarmRequest::COUNT_MAX);
        return Err(Refusal::new(Code::Busy, sentence));
    }
    let globs = Globs::new(&order.matching, &order.excluding).map_err(|why| Refusal::new(Code::Invalid, why))?;
    let paths: Result<Vec<_>, _> = order.paths.iter().map(|path| names_of(&path.0)).collect();
    let request = WarmRequest {
        paths: paths?,
        depth: order.depth,
        choice: Arc::new(globs),
        max: order.max_bytes,
        pin: order.pin,
        dry_run: order.dry_run,
        force: order.force,
        rules: if order.ignore_robots { Rules::Ignored } else { Rules::Kept },
        jobs: order.jobs,
        pause: Duration::from_millis(order.pause_ms),
    };
    let (tell, told) = mpsc::channel(EVENTS_MAX);
    // Ends its task when it is dropped, which is with the stream.
    let mut work = JoinSet::new();
    work.spawn(vfs.clone().warm(request, caller, tell));
    let lines = futures_util::stream::unfold((told, work), |(mut told, mut work)| async {
        let line = match told.recv().await {
            Some(event) => Ok(in_words(event)),
            None => match work.join_next().await? {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => Err(refusal(b"", &error)),
                Err(error) => Err(Refusal::new(Code::Failed, error.to_string())),
            },
        };
        Some((line, (told, work)))
    });
    Ok(lines.boxed())
}

/// A warming for `weft status`.
pub fn status(warming: Warming) -> WarmStatus {
    let Warming { uid, path, others, progress } = warming;
    WarmStatus { uid, path, others: others as u64, progress: progress_words(progress) }
}

fn in_words(event: WarmEvent) -> Warmed {
    match event {
        WarmEvent::Walking { directories, files } => Warmed::Walking { directories, files },
        WarmEvent::Note(text) => Warmed::Note { text },
        WarmEvent::Forbidden { path, why } => Warmed::Forbidden { path: joined(&path), why },
        WarmEvent::Failed { path, why, error, others } => {
            let code = error.as_ref().map_or(Code::Failed, code_of);
            Warmed::Failed { path: joined(&path), why, code, others }
        }
        WarmEvent::Forecast(forecast) => Warmed::Forecast(forecast_words(forecast)),
        WarmEvent::File { path, came, bytes } => {
            let came = match came {
                Came::Held => WarmCame::Held,
                Came::Confirmed => WarmCame::Confirmed,
                Came::Fetched => WarmCame::Fetched,
            };
            Warmed::File { path: joined(&path), came, bytes }
        }
        WarmEvent::Progress(progress) => Warmed::Progress(progress_words(progress)),
        WarmEvent::Done(progress) => Warmed::Done(progress_words(progress)),
    }
}

fn forecast_words(forecast: Forecast) -> WarmForecast {
    let Forecast {
        files,
        directories,
        fresh,
        to_check,
        to_fetch,
        bytes,
        estimated_bytes,
        unknown,
        disk_free: disk_free_bytes,
        misfits,
    } = forecast;
    WarmForecast {
        files,
        directories,
        fresh,
        to_check,
        to_fetch,
        bytes,
        estimated_bytes,
        unknown,
        disk_free_bytes,
        misfits,
    }
}

fn progress_words(progress: Progress) -> WarmProgress {
    let Progress { files, files_done, fetched, bytes, bytes_done, failed, forbidden, current } = progress;
    WarmProgress { files, files_done, fetched, bytes, bytes_done, failed, forbidden, current }
}

/// Events that wait for a reader; then the work waits.
const EVENTS_MAX: usize = 256;
