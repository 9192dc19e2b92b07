//! Cases about bodies: whole, in parts, at the edges, dropped, many at once.

use bytes::Bytes;
use futures_util::StreamExt;

use super::report::Report;
use super::sample::{BIG, DOCS, EMPTY, THREE};
use super::scene::{Scene, Verdict, check, drain, excluded, passed, said};
use crate::{FileId, Piece, RemoteError, Span, Version};

pub(super) async fn run(scene: &Scene<'_>, report: &mut Report) {
    for path in [EMPTY, THREE, BIG] {
        scene.case(report, &format!("fetch of the whole of {path}"), whole(scene, path)).await;
    }
    scene.case(report, "spans at the edges", edges(scene)).await;
    scene.case(report, "ranges are used where declared", ranges(scene)).await;
    scene.case(report, "a body dropped midway is harmless", dropped(scene)).await;
    scene.case(report, "many bodies at once", many(scene)).await;
    scene.case(report, "fetch of a directory is IsADirectory", directory(scene)).await;
    scene.case(report, "backing files hold the same bytes", backing(scene)).await;
}

async fn whole(scene: &Scene<'_>, path: &str) -> Verdict {
    let (file, expected) = (scene.id(path).await?, scene.bytes_of(path)?);
    let answer = said(scene.fetch(&file, &Version::None, Span::WHOLE).await, || "fetch".to_owned())?;
    let body = answer.value.body;
    check(body.start == 0, || format!("the body starts at {}", body.start))?;
    check(body.file == file, || format!("the body is of {:?}", body.file))?;
    check(body.version == answer.version, || "answer and body differ in version".to_owned())?;
    let length = expected.len() as u64;
    check(body.file_length.is_none_or(|told| told == length), || format!("announced {:?}", body.file_length))?;
    let size = answer.value.attributes.size;
    check(size.exact().is_none_or(|told| told == length), || format!("told {size:?}"))?;
    let bytes = drain(body).await?.bytes;
    check(bytes.len() == expected.len(), || format!("{} bytes", bytes.len()))?;
    check(bytes == expected, || "other bytes".to_owned())?;
    passed()
}

async fn edges(scene: &Scene<'_>) -> Verdict {
    for path in [BIG, THREE, EMPTY] {
        let (file, content) = (scene.id(path).await?, scene.bytes_of(path)?);
        let length = content.len() as u64;
        let spans = [
            (0, Some(0)),
            (0, Some(1)),
            (1, Some(1)),
            (length.saturating_sub(1), Some(1)),
            (length, Some(1)),
            (length + 100, None),
            (length.saturating_sub(10), Some(100)),
            (65_535, Some(3)),
            (length / 2, None),
            (u64::MAX - 1, Some(u64::MAX)),
        ];
        for (start, wanted) in spans {
            let span = Span { start, length: wanted };
            part(scene, &file, &content, span).await.map_err(|how| format!("{path} {span:?}: {how}"))?;
        }
    }
    passed()
}

async fn part(scene: &Scene<'_>, file: &FileId, content: &Bytes, span: Span) -> Result<(), String> {
    let answer = said(scene.fetch(file, &Version::None, span).await, || "fetch".to_owned())?;
    let body = answer.value.body;
    let length = content.len() as u64;
    let start = body.start;
    check(start <= span.start, || format!("the body starts at {start}"))?;
    check(body.file_length.is_none_or(|told| told == length), || format!("announced {:?}", body.file_length))?;
    let bytes = drain(body).await?.bytes;
    let end = start + bytes.len() as u64;
    check(end <= length.max(start), || format!("the body ends at {end}"))?;
    let wanted_end = span.start.saturating_add(span.length.unwrap_or(u64::MAX)).min(length);
    check(end >= wanted_end || span.start >= length, || format!("the body ends at {end}"))?;
    let from = start.min(length) as usize;
    check(bytes == content.slice(from..from + bytes.len()), || "other bytes".to_owned())
}

async fn ranges(scene: &Scene<'_>) -> Verdict {
    if !scene.remote.capabilities().ranges {
        return excluded("the kind has no ranges");
    }
    let (file, content) = (scene.id(BIG).await?, scene.bytes_of(BIG)?);
    let span = Span { start: content.len() as u64 / 2, length: Some(10) };
    let answer = said(scene.fetch(&file, &Version::None, span).await, || "fetch".to_owned())?;
    let start = answer.value.body.start;
    check(start > 0, || "the body starts at 0 all the same".to_owned())?;
    check(answer.value.body.resumable, || "fetched from the middle, but not resumable".to_owned())?;
    passed()
}

async fn dropped(scene: &Scene<'_>) -> Verdict {
    let (big, three) = (scene.id(BIG).await?, scene.id(THREE).await?);
    for _ in 0..ROUNDS {
        let answer = said(scene.fetch(&big, &Version::None, Span::WHOLE).await, || "fetch".to_owned())?;
        let mut body = answer.value.body;
        let first = body.stream.next().await;
        check(matches!(first, Some(Ok(Piece::Bytes(_)))), || format!("the first piece: {first:?}"))?;
        drop(body);
        let answer = said(scene.fetch(&three, &Version::None, Span::WHOLE).await, || "fetch after".to_owned())?;
        let bytes = drain(answer.value.body).await?.bytes;
        check(bytes == scene.bytes_of(THREE)?, || "other bytes after a dropped body".to_owned())?;
    }
    passed()
}

async fn many(scene: &Scene<'_>) -> Verdict {
    let (big, three) = (scene.id(BIG).await?, scene.id(THREE).await?);
    let fetches = (0..AT_ONCE).map(|turn| {
        let (file, path) = if turn % 4 == 0 { (&big, BIG) } else { (&three, THREE) };
        async move {
            let answer = said(scene.fetch(file, &Version::None, Span::WHOLE).await, || "fetch".to_owned())?;
            let bytes = drain(answer.value.body).await?.bytes;
            check(bytes == scene.bytes_of(path)?, || format!("{path}: other bytes"))
        }
    });
    futures_util::future::join_all(fetches).await.into_iter().collect::<Result<(), String>>()?;
    passed()
}

async fn directory(scene: &Scene<'_>) -> Verdict {
    let dir = scene.id(DOCS).await?;
    match scene.fetch(&dir, &Version::None, Span::WHOLE).await {
        Err(RemoteError::IsADirectory { .. }) => passed(),
        other => Err(format!("{other:?}")),
    }
}

async fn backing(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(BIG).await?;
    let Some(backing) = scene.remote.backing(&file) else { return excluded("the kind has no backing files") };
    let mut bytes = Vec::new();
    let read = std::io::Read::read_to_end(&mut std::fs::File::from(backing.file), &mut bytes);
    read.map_err(|error| format!("reading the backing file: {error}"))?;
    check(bytes == scene.bytes_of(BIG)?, || "other bytes".to_owned())?;
    passed()
}

/// How often a body is dropped midway.
const ROUNDS: usize = 20;
/// How many bodies are read at the same time.
const AT_ONCE: usize = 16;
