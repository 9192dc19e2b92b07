//! What is unsent, in the control socket's words.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_util::StreamExt;
use weft_control::{Code, Copied, Decision, Lines, PathBytes, Refusal, UnsentFile, UnsentReport};
use weft_remote::{Caller, Name};
use weft_vfs::{Over, Unsent, UnsentError, Vfs};

use crate::words::{code_of, joined, shown};

/// These files.
pub fn report(files: impl IntoIterator<Item = Unsent>) -> UnsentReport {
    UnsentReport { files: files.into_iter().map(file).collect(), more: 0 }
}

/// What a status tells of them: those that somebody has to know of.
pub fn stuck(vfs: &Vfs, may_know: impl Fn(&[Name]) -> bool, most: usize) -> UnsentReport {
    let all = vfs.unsent(&[]).into_iter().filter(|unsent| unsent.is_stuck() && may_know(&unsent.path));
    let mut report = report(all);
    report.more = report.files.len().saturating_sub(most) as u64;
    report.files.truncate(most);
    report
}

/// Does what was decided; the bytes that it was about.
pub async fn decide(vfs: &Arc<Vfs>, path: &[Name], decision: Decision, caller: Caller) -> Result<u64, Refusal> {
    let done = match decision {
        Decision::Send => vfs.send_unsent(path, Over::Nothing, caller).await,
        Decision::SendOver => vfs.send_unsent(path, Over::Another, caller).await,
        Decision::Discard => vfs.discard_unsent(path, caller).await,
    };
    done.map_err(|error| refusal(path, &error))
}

/// The bytes of an unsent file, from its beginning to its end.
pub fn copy(vfs: &Arc<Vfs>, path: Vec<Name>, caller: Caller) -> Lines<Copied> {
    let under_way = Some((vfs.clone(), path, 0));
    let lines = futures_util::stream::unfold(under_way, move |under_way| async move {
        let (vfs, path, at) = under_way?;
        match vfs.read_unsent(&path, caller, at, Copied::BYTES_MAX).await {
            Ok(bytes) if bytes.is_empty() => Some((Ok(Copied::Done { bytes: at }), None)),
            Ok(bytes) => {
                let next = at + bytes.len() as u64;
                Some((Ok(Copied::Bytes(PathBytes(bytes.to_vec()))), Some((vfs, path, next))))
            }
            Err(error) => Some((Err(refusal(&path, &error)), None)),
        }
    });
    lines.boxed()
}

/// The bytes of what the source has under the name of an unsent file.
pub async fn copy_source(vfs: &Arc<Vfs>, path: Vec<Name>, caller: Caller) -> Result<Lines<Copied>, Refusal> {
    let source = vfs.at_source(&path, caller).await.map_err(|error| refusal(&path, &error))?;
    let under_way = Some((source, Bytes::new()));
    let lines = futures_util::stream::unfold(under_way, move |under_way| {
        let path = path.clone();
        async move {
            let (mut source, mut left) = under_way?;
            if left.is_empty() {
                left = match source.next().await {
                    Ok(bytes) if bytes.is_empty() => return Some((Ok(Copied::Done { bytes: source.came() }), None)),
                    Ok(bytes) => bytes,
                    Err(error) => return Some((Err(refusal(&path, &error)), None)),
                };
            }
            let line = left.split_to(left.len().min(Copied::BYTES_MAX));
            Some((Ok(Copied::Bytes(PathBytes(line.to_vec()))), Some((source, left))))
        }
    });
    Ok(lines.boxed())
}

fn file(unsent: Unsent) -> UnsentFile {
    UnsentFile {
        path: joined(&unsent.path),
        bytes: unsent.bytes,
        length: unsent.length,
        since_unix_s: unsent.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        why: unsent.why,
        tried_again: unsent.tried_again,
        is_refused: unsent.is_refused,
        is_sending: unsent.is_sending,
        is_open: unsent.is_open,
        kept: unsent.kept.as_path().into(),
    }
}

fn refusal(path: &[Name], error: &UnsentError) -> Refusal {
    let code = match error {
        UnsentError::NotUnsent | UnsentError::Sent | UnsentError::Absent => Code::NotFound,
        UnsentError::Open => Code::Busy,
        UnsentError::Changed => Code::Failed,
        UnsentError::Incomplete { cause, .. } => code_of(cause),
        UnsentError::Failed(error) => code_of(error),
    };
    Refusal::new(code, format!("{}: {error}", shown(&joined(path).0)))
}
