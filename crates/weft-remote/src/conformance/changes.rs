//! Cases about change: at the source, and by mutations. They come last, for they change the sample tree.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::report::Report;
use super::sample::{CHANGING, CHANGING_BEFORE, GOING, THREE};
use super::scene::{Scene, Verdict, check, drain, excluded, passed, said};
use crate::{
    Change, Checked, Content, Entry, Extent, FileId, FileKind, Mutation, Name, NewAttributes, Outcome, RemoteError,
    RenameTarget, Sameness, Span, Version,
};

pub(super) async fn run(scene: &Scene<'_>, report: &mut Report) {
    scene.case(report, "a version that never was is VersionChanged", wrong_version(scene)).await;
    scene.case(report, "a change at the source is seen, the old version refused", changed(scene)).await;
    scene.case(report, "a file removed at the source is NotFound", removed(scene)).await;
    scene.case(report, "a read-only kind answers every mutation with ReadOnly", read_only(scene)).await;
    scene.case(report, "a writable kind makes every change", writable(scene)).await;
}

async fn wrong_version(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(THREE).await?;
    if !matches!(scene.version(&file).await?, Version::Strong(_)) {
        return excluded("the source gives no strong versions");
    }
    let never = Version::strong("no source gives this version");
    match scene.fetch(&file, &never, Span::WHOLE).await {
        Err(RemoteError::VersionChanged { .. }) => passed(),
        other => Err(format!("{other:?}")),
    }
}

async fn changed(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(CHANGING).await?;
    let before = scene.version(&file).await?;
    let answer = said(scene.fetch(&file, &before, Span::WHOLE).await, || "fetch before".to_owned())?;
    check(drain(answer.value.body).await?.bytes == CHANGING_BEFORE, || "other bytes before".to_owned())?;
    scene.bench.change(CHANGING.as_bytes(), CHANGING_AFTER).await;
    let file = scene.id(CHANGING).await?;
    let after = scene.version(&file).await?;
    if before.compare(&after) != Sameness::CannotTell {
        check(before.compare(&after) == Sameness::Different, || format!("still the version {after:?}"))?;
        let answer = scene.remote.attributes(&scene.call(), &file, &before).await;
        let answer = said(answer, || "attributes".to_owned())?;
        check(matches!(answer.value, Checked::Is(_)), || "called unchanged".to_owned())?;
        let refused = scene.fetch(&file, &before, Span::WHOLE).await;
        check(matches!(refused, Err(RemoteError::VersionChanged { .. })), || format!("old version: {refused:?}"))?;
    }
    let answer = said(scene.fetch(&file, &after, Span::WHOLE).await, || "fetch after".to_owned())?;
    check(drain(answer.value.body).await?.bytes == CHANGING_AFTER, || "other bytes after".to_owned())?;
    if before.compare(&after) == Sameness::CannotTell {
        return excluded("the bytes are right, but the source gives no versions to compare");
    }
    passed()
}

async fn removed(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(GOING).await?;
    scene.bench.remove(GOING.as_bytes()).await;
    let found = scene.walk(GOING.as_bytes()).await?;
    check(found.is_none(), || "still found".to_owned())?;
    let attributes = scene.remote.attributes(&scene.call(), &file, &Version::None).await;
    check(matches!(attributes, Err(RemoteError::NotFound { .. })), || format!("attributes: {attributes:?}"))?;
    let fetched = scene.fetch(&file, &Version::None, Span::WHOLE).await;
    check(matches!(fetched, Err(RemoteError::NotFound { .. })), || format!("fetch: {fetched:?}"))?;
    passed()
}

async fn read_only(scene: &Scene<'_>) -> Verdict {
    if scene.remote.capabilities().writable {
        return excluded("the kind takes mutations");
    }
    let (dir, file) = (scene.id("").await?, scene.id(THREE).await?);
    for change in every_change(&dir, &file) {
        let shown = format!("{change:?}");
        match apply(scene, change, &Version::None).await {
            Err(RemoteError::ReadOnly { .. }) => {}
            other => return Err(format!("{shown}: {other:?}")),
        }
    }
    let answer = said(scene.fetch(&file, &Version::None, Span::WHOLE).await, || "fetch after".to_owned())?;
    check(drain(answer.value.body).await?.bytes == scene.bytes_of(THREE)?, || "it changed all the same".to_owned())?;
    passed()
}

fn every_change(dir: &FileId, file: &FileId) -> Vec<Change> {
    let (dir, file) = (|| dir.clone(), || file.clone());
    vec![
        Change::Create { dir: dir(), name: name("new"), kind: FileKind::File, mode: 0o644.into(), device: 0 },
        Change::Create { dir: dir(), name: name("new-dir"), kind: FileKind::Directory, mode: 0o755.into(), device: 0 },
        Change::Symlink { dir: dir(), name: name("link"), target: b"three".to_vec() },
        Change::Link { file: file(), dir: dir(), name: name("second") },
        Change::Remove { dir: dir(), name: name(THREE) },
        Change::Rename {
            from: dir(),
            name: name(THREE),
            to: dir(),
            new_name: name("four"),
            target: RenameTarget::Replaced,
        },
        write(file(), b"xyz"),
        Change::SetAttributes { file: file(), new: NewAttributes { mode: Some(0o600), ..Default::default() } },
    ]
}

async fn writable(scene: &Scene<'_>) -> Verdict {
    let capabilities = scene.remote.capabilities();
    if !capabilities.writable {
        return excluded("the kind is read-only");
    }
    let dir = scene.id("").await?;
    let create =
        Change::Create { dir: dir.clone(), name: name("made"), kind: FileKind::File, mode: 0o644.into(), device: 0 };
    let made = done(scene, create, &Version::None).await?.ok_or("creating gives no entry")?;
    let written = done(scene, write(made.id.clone(), b"first"), &Version::None).await?.ok_or("no entry")?;
    let old = scene.version(&written.id).await?;
    done(scene, write(written.id.clone(), b"second"), &old).await?;
    if old != Version::None {
        let refused = apply(scene, write(written.id.clone(), b"third"), &old).await;
        check(matches!(refused, Err(RemoteError::VersionChanged { .. })), || format!("old version: {refused:?}"))?;
    }
    let answer = said(scene.fetch(&written.id, &Version::None, Span::WHOLE).await, || "fetch".to_owned())?;
    check(drain(answer.value.body).await?.bytes == b"second"[..], || "other bytes than written".to_owned())?;
    let (from, to, target) = (dir.clone(), dir.clone(), RenameTarget::Absent);
    let rename = Change::Rename { from, name: name("made"), to, new_name: name("moved"), target };
    let moved = done(scene, rename, &Version::None).await?.ok_or("renaming gives no entry")?;
    check(moved.id == written.id || !capabilities.stable_ids, || "another identity after renaming".to_owned())?;
    check(scene.walk(b"made").await?.is_none(), || "the old name is still there".to_owned())?;
    let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let new = NewAttributes { mode: Some(0o600), modified: Some(modified), ..Default::default() };
    let set = Change::SetAttributes { file: moved.id.clone(), new };
    done(scene, set, &Version::None).await?;
    let told = scene.entry("moved").await?.attributes.modified;
    check(told.known() == Some(modified), || format!("modified {told:?}"))?;
    done(scene, Change::Remove { dir: dir.clone(), name: name("moved") }, &Version::None).await?;
    check(scene.walk(b"moved").await?.is_none(), || "removed, but still there".to_owned())?;
    passed()
}

async fn apply(scene: &Scene<'_>, change: Change, expected: &Version) -> crate::Result<Outcome> {
    let mutation = Mutation { change, made: SystemTime::now() };
    scene.remote.apply(&scene.call(), &mutation, expected).await.map(|answer| answer.value)
}

async fn done(scene: &Scene<'_>, change: Change, expected: &Version) -> Result<Option<Entry>, String> {
    let shown = format!("{change:?}");
    said(apply(scene, change, expected).await, || shown).map(|outcome| outcome.entry)
}

fn write(file: FileId, bytes: &'static [u8]) -> Change {
    let length = bytes.len() as u64;
    Change::Write { file, extents: vec![Extent { offset: 0, length }], length, content: Arc::new(InMemory(bytes)) }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

/// Bytes to be written.
struct InMemory(&'static [u8]);

impl Content for InMemory {
    fn read(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        Ok(Bytes::from_static(&rest[..length.min(rest.len())]))
    }
}

/// Of another length than before, since some sources tell versions by length and whole seconds.
const CHANGING_AFTER: &[u8] = b"after, and longer\n";
