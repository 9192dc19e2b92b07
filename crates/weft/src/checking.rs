//! The stream of `weft cache check` and `repair`: what the store finds, in the control socket's words.

use std::sync::Arc;

use futures_util::StreamExt;
use weft_control::{CheckProgress, Checked, Code, Lines, PathBytes, Refusal};
use weft_store::{Check, Damage};
use weft_vfs::Vfs;

use crate::words::joined;

/// Looks at everything that is held, and with `repair` gives up what is damaged. Dropping the stream ends the work.
pub fn check(vfs: &Arc<Vfs>, repair: bool) -> Lines<Checked> {
    let under_way = Some((vfs.clone(), vfs.store().check(repair)));
    let lines = futures_util::stream::unfold(under_way, |under_way| async {
        let (vfs, check) = under_way?;
        let stepped = tokio::task::spawn_blocking(move || step(&vfs, check).map(|(lines, check)| (lines, vfs, check)));
        match stepped.await {
            Ok(Ok((lines, vfs, check))) => Some((lines, check.map(|check| (vfs, check)))),
            Ok(Err(refusal)) => Some((vec![Err(refusal)], None)),
            Err(error) => Some((vec![Err(Refusal::new(Code::Failed, error.to_string()))], None)),
        }
    });
    lines.flat_map(futures_util::stream::iter).boxed()
}

type Told = Vec<Result<Checked, Refusal>>;

/// A part of the work; what it told, and the rest.
fn step(vfs: &Vfs, mut check: Check) -> Result<(Told, Option<Check>), Refusal> {
    let more = check.step().map_err(|error| Refusal::new(Code::Failed, error.to_string()))?;
    let mut lines: Vec<_> = check.damages().into_iter().map(|damage| Ok(in_words(vfs, damage))).collect();
    let found = check.found();
    let progress = CheckProgress {
        files: found.objects,
        bytes: found.bytes,
        bytes_held: vfs.store().usage().object_bytes,
        damaged_files: found.damaged_objects,
        damaged_bytes: found.damaged_bytes,
        damaged_volumes: found.damaged_volumes,
    };
    lines.push(Ok(if more { Checked::Progress(progress) } else { Checked::Done(progress) }));
    Ok((lines, more.then_some(check)))
}

fn in_words(vfs: &Vfs, damage: Damage) -> Checked {
    match damage {
        Damage::Piece { node, offset, length, cause } => {
            let path = vfs.path_of_content(node).map_or_else(PathBytes::default, |path| joined(&path));
            Checked::Damage { path, offset, length, cause }
        }
        Damage::Volume(cause) => Checked::Volume { cause },
    }
}
