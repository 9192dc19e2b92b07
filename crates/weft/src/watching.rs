//! The stream of `weft watch`: the file system's changes in the control socket's words.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::StreamExt;
use tokio::task::JoinSet;
use weft_control::{Change, ChangeKind, Code, Lines, Refusal, Watched};
use weft_remote::{Caller, Name, Version};
use weft_vfs::Vfs;

use crate::daemon::TOLD_PATIENCE;
use crate::words::joined;

/// The changes at and below a path as far as the caller may know of them. With `every` what is held there is asked
/// about at that pace, first at once, until the stream is dropped.
///
/// # Errors
/// `Invalid` for a pace faster than [`FASTEST`].
pub fn watch(
    vfs: &Arc<Vfs>,
    path: Vec<Name>,
    every: Option<Duration>,
    caller: Caller,
) -> Result<Lines<Watched>, Refusal> {
    check_pace(every).map_err(|why| Refusal::new(Code::Invalid, why))?;
    let watching = vfs.watch(path.clone(), caller);
    // Ends its task when it is dropped, which is with the stream.
    let mut validating = JoinSet::new();
    if let Some(every) = every {
        let vfs = Arc::downgrade(vfs);
        validating.spawn(async move {
            // The file system may end; a watcher does not keep it.
            while let Some(vfs) = vfs.upgrade() {
                if let Err(error) = vfs.validate(&path, caller).await {
                    tracing::warn!(%error, "what is watched could not be validated");
                }
                drop(vfs);
                tokio::time::sleep(every).await;
            }
        });
    }
    let of_kernel = Arc::downgrade(vfs);
    let lines = futures_util::stream::unfold((watching, validating), move |(mut watching, validating)| {
        let of_kernel = of_kernel.clone();
        async move {
            let line = in_words(watching.next().await?);
            // Whoever looks when it is told that a name is there finds it.
            if let Some(vfs) = of_kernel.upgrade() {
                vfs.kernel_is_told(TOLD_PATIENCE).await;
            }
            Some((Ok(line), (watching, validating)))
        }
    });
    Ok(lines.boxed())
}

/// Whether sources may be asked at this pace.
///
/// # Errors
/// A sentence that says which is the fastest.
pub fn check_pace(every: Option<Duration>) -> Result<(), String> {
    match every.is_some_and(|every| every < FASTEST) {
        true => Err(format!("--validate takes at least {} s: servers are asked at that pace", FASTEST.as_secs())),
        false => Ok(()),
    }
}

fn in_words(watched: weft_vfs::Watched) -> Watched {
    let change = match watched {
        weft_vfs::Watched::Lost(lost) => return Watched::Lost { lost },
        weft_vfs::Watched::Change(change) => change,
    };
    let at = change.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Watched::Change(Change {
        at: at.as_millis() as f64 / 1000.0,
        path: joined(&change.path),
        change: match change.what {
            weft_vfs::ChangeKind::Changed => ChangeKind::Changed,
            weft_vfs::ChangeKind::Gone => ChangeKind::Gone,
            weft_vfs::ChangeKind::New => ChangeKind::New,
            weft_vfs::ChangeKind::MovedToDirectory => ChangeKind::MovedToDirectory,
            weft_vfs::ChangeKind::Listed => ChangeKind::Listed,
            weft_vfs::ChangeKind::Damaged => ChangeKind::Damaged,
        },
        from: version(&change.from),
        to: version(&change.to),
        size: change.size,
    })
}

/// A version as text: the kind's token, `W/` before a weak one; bytes that are not printable ASCII are escaped.
fn version(version: &Version) -> Option<String> {
    let weak = matches!(version, Version::Weak(_));
    let token = String::from_utf8_lossy(version.token()?).into_owned();
    let shown = if token.chars().any(char::is_control) { token.escape_default().to_string() } else { token };
    Some(if weak && !shown.starts_with("W/") { format!("W/{shown}") } else { shown })
}

/// Fastest pace of `--validate`.
const FASTEST: Duration = Duration::from_secs(1);
