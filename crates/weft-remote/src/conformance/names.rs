//! Cases about names: lookup, attributes, entries.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::report::{CaseOutcome, Report};
use super::sample::{self, DOCS, EMPTY, THREE, sample};
use super::scene::{Gathered, Scene, Verdict, check, drain, excluded, passed, said};
use crate::{
    Call, Caller, Checked, Completeness, Entry, FileId, FileKind, Lease, Listing, Name, RemoteError, Span, Version,
};

pub(super) async fn run(scene: &Scene<'_>, report: &mut Report) {
    scene.case(report, "the root is known without asking", root(scene)).await;
    for sample in sample() {
        let name = format!("lookup of {}", sample.path.escape_ascii());
        match scene.bench.cannot_hold(&sample.path) {
            Some(why) => report.add(name, CaseOutcome::Excluded(why)),
            None => scene.case(report, &name, present(scene, &sample)).await,
        }
    }
    scene.case(report, "lookup of an absent name is an answer with a lease", absent(scene)).await;
    scene.case(report, "lookup in a file is NotADirectory", lookup_in_file(scene)).await;
    scene.case(report, "identities are the same on each lookup", stable_ids(scene)).await;
    scene.case(report, "attributes are Unchanged by version", attributes_unchanged(scene)).await;
    scene.case(report, "entries are Unchanged by version", entries_unchanged(scene)).await;
    for dir in ["", DOCS, "odd"] {
        let name = format!("entries of /{dir} are those of the source");
        scene.case(report, &name, entries(scene, dir)).await;
    }
    scene.case(report, "entries of a file is NotADirectory", entries_of_file(scene)).await;
    scene.case(report, "a deadline that has passed", late(scene)).await;
    scene.case(report, "a dropped call leaves nothing behind", dropped_call(scene)).await;
}

async fn root(scene: &Scene<'_>) -> Verdict {
    check(scene.remote.root() == scene.remote.root(), || "two roots".to_owned())?;
    check(scene.remote.root_attributes().kind == FileKind::Directory, || "the root is no directory".to_owned())?;
    let space = scene.remote.space(&scene.call(), &scene.remote.root()).await.map_err(|error| error.to_string())?;
    check(space.is_none_or(|space| space.free <= space.total), || format!("{space:?}"))?;
    passed()
}

async fn present(scene: &Scene<'_>, sample: &sample::Sample) -> Verdict {
    let Some((found, version)) = scene.walk(&sample.path).await? else { return Err("absent".to_owned()) };
    let Entry { name, id, attributes, .. } = found.entry;
    let wanted = sample.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    check(name.as_bytes() == wanted, || format!("under the name {name:?}"))?;
    check(id.as_bytes().len() <= FileId::BYTES_MAX, || format!("an identity of {} bytes", id.as_bytes().len()))?;
    check(attributes.kind == sample.kind, || format!("it is {:?}", attributes.kind))?;
    if sample.kind != FileKind::File {
        return passed();
    }
    if let Some(size) = attributes.size.exact() {
        check(size == sample.bytes.len() as u64, || format!("exactly {size} bytes"))?;
    }
    if let Some(along) = found.along
        && along.body.file == id
    {
        check(along.body.version == version, || "the body along is another version".to_owned())?;
        check(along.body.start == 0, || "the body along starts in the middle".to_owned())?;
        check(drain(along.body).await?.bytes == sample.bytes, || "the body along has other bytes".to_owned())?;
    }
    let answer = said(scene.fetch(&id, &version, Span::WHOLE).await, || "fetch".to_owned())?;
    check(drain(answer.value.body).await?.bytes == sample.bytes, || "other bytes".to_owned())?;
    // What the kind has to tell people must not need anybody.
    let _ = scene.remote.about(&id);
    passed()
}

async fn absent(scene: &Scene<'_>) -> Verdict {
    let name = Name::new("absent").expect("a good name");
    for dir in ["", DOCS] {
        let answer = scene.lookup(&scene.id(dir).await?, &name).await?;
        check(answer.value.is_none(), || format!("{:?}", answer.value))?;
        check(answer.lease != Lease::Forever, || "absent for ever".to_owned())?;
    }
    passed()
}

async fn lookup_in_file(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(THREE).await?;
    let name = Name::new("within").expect("a good name");
    match scene.remote.lookup(&scene.call(), &file, &name).await {
        Err(RemoteError::NotADirectory { .. }) => passed(),
        other => Err(format!("{other:?}")),
    }
}

async fn stable_ids(scene: &Scene<'_>) -> Verdict {
    for path in scene.samples.keys() {
        let first = scene.walk(path).await?.map(|(found, _)| found.entry.id);
        let second = scene.walk(path).await?.map(|(found, _)| found.entry.id);
        check(first.is_some() && first == second, || format!("{}: {first:?}, {second:?}", path.escape_ascii()))?;
    }
    let ids: BTreeMap<FileId, Vec<u8>> = BTreeMap::new();
    let mut seen = ids;
    for path in scene.samples.keys() {
        let Some((found, _)) = scene.walk(path).await? else { continue };
        if let Some(other) = seen.insert(found.entry.id, path.clone()) {
            return Err(format!("{} and {} have one identity", other.escape_ascii(), path.escape_ascii()));
        }
    }
    passed()
}

async fn attributes_unchanged(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(THREE).await?;
    let version = scene.version(&file).await?;
    if version == Version::None {
        return excluded("the source gives no versions");
    }
    let answer = scene.remote.attributes(&scene.call(), &file, &version).await;
    let answer = said(answer, || "attributes".to_owned())?;
    check(matches!(answer.value, Checked::Unchanged), || format!("{:?}", answer.value))?;
    let other = Version::strong("no source gives this version");
    let answer = said(scene.remote.attributes(&scene.call(), &file, &other).await, || "attributes".to_owned())?;
    check(matches!(answer.value, Checked::Is(_)), || "unchanged from a version that never was".to_owned())?;
    passed()
}

async fn entries_unchanged(scene: &Scene<'_>) -> Verdict {
    let dir = scene.id(DOCS).await?;
    let Gathered { version, .. } = scene.gather(&dir).await?;
    if version == Version::None {
        return excluded("the source gives no versions of listings");
    }
    let answer = scene.remote.entries(&scene.call(), &dir, &version, None).await;
    let answer = said(answer, || "entries".to_owned())?;
    match answer.value {
        Listing::Unchanged => passed(),
        // A source may be unable to check a listing (generated pages without validators), but not wrong about it.
        Listing::Page(..) | Listing::Changes(..) => {
            check(answer.version == version, || "another version".to_owned()).and(passed())
        }
    }
}

async fn entries(scene: &Scene<'_>, dir: &str) -> Verdict {
    let Gathered { entries, completeness, .. } = scene.gather(&scene.id(dir).await?).await?;
    let mut by_name: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    for entry in entries {
        if let Some(twice) = by_name.insert(entry.name.as_bytes().to_vec(), entry) {
            return Err(format!("{:?} comes twice", twice.name));
        }
    }
    let expected = children(scene, dir);
    for (name, sample) in &expected {
        match by_name.get(name) {
            Some(entry) => agrees(entry, sample)?,
            None if completeness == Completeness::Partial && !scene.bench.lists_all() => {}
            None => return Err(format!("{} is missing", name.escape_ascii())),
        }
    }
    if completeness != Completeness::Partial {
        let extra = by_name.keys().find(|name| !expected.contains_key(*name));
        check(extra.is_none(), || format!("{} is not at the source", extra.expect("found").escape_ascii()))?;
    }
    passed()
}

/// Whether a listed entry says nothing false about the sample.
fn agrees(entry: &Entry, sample: &sample::Sample) -> Result<(), String> {
    let kind = entry.attributes.kind;
    check(kind == sample.kind || kind == FileKind::Unknown, || format!("{:?} is listed as {kind:?}", entry.name))?;
    match entry.attributes.size.exact() {
        Some(size) if sample.kind == FileKind::File && size != sample.bytes.len() as u64 => {
            Err(format!("{:?} is listed with exactly {size} bytes", entry.name))
        }
        _ => Ok(()),
    }
}

/// The samples directly in `dir`, by name.
fn children<'a>(scene: &'a Scene<'_>, dir: &str) -> BTreeMap<Vec<u8>, &'a sample::Sample> {
    let prefix = if dir.is_empty() { Vec::new() } else { [dir.as_bytes(), b"/"].concat() };
    let below = scene.samples.iter().filter_map(|(path, sample)| Some((path.strip_prefix(&prefix[..])?, sample)));
    below.filter(|(name, _)| !name.contains(&b'/')).map(|(name, sample)| (name.to_vec(), sample)).collect()
}

async fn entries_of_file(scene: &Scene<'_>) -> Verdict {
    let file = scene.id(EMPTY).await?;
    match scene.remote.entries(&scene.call(), &file, &Version::None, None).await {
        Err(RemoteError::NotADirectory { .. }) => passed(),
        other => Err(format!("{other:?}")),
    }
}

async fn late(scene: &Scene<'_>) -> Verdict {
    let (dir, file) = (scene.id(DOCS).await?, scene.id(THREE).await?);
    let name = Name::new("note.txt").expect("a good name");
    let now = Instant::now();
    let deadline = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
    let late = Call { deadline, ..Call::within(Caller::DAEMON, Duration::ZERO) };
    in_time(scene.remote.lookup(&late, &dir, &name).await, "lookup")?;
    in_time(scene.remote.attributes(&late, &file, &Version::None).await, "attributes")?;
    in_time(scene.remote.entries(&late, &dir, &Version::None, None).await, "entries")?;
    in_time(scene.remote.fetch(&late, &file, &Version::None, Span::WHOLE).await, "fetch")?;
    passed()
}

/// An answer at hand is as good as giving up.
fn in_time<T>(result: crate::Result<T>, what: &str) -> Result<(), String> {
    match result {
        Ok(_) | Err(RemoteError::TimedOut { .. }) => Ok(()),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

async fn dropped_call(scene: &Scene<'_>) -> Verdict {
    let dir = scene.id(DOCS).await?;
    let name = Name::new("note.txt").expect("a good name");
    let call = scene.call();
    {
        let lookup = scene.remote.lookup(&call, &dir, &name);
        // Polled once, then dropped, wherever it stands.
        let _ = futures_util::FutureExt::now_or_never(lookup);
    }
    let found = scene.lookup(&dir, &name).await?.value;
    check(found.is_some(), || "absent after a lookup of it was dropped".to_owned())?;
    passed()
}
