//! What the cases share: the remote, the samples, and calls with a deadline.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::Bench;
use super::report::{CaseOutcome, Report};
use super::sample::{Sample, sample};
use crate::{
    Answer, Body, Call, Caller, Checked, Completeness, Cursor, Entry, Fetched, FileId, Found, Listing, Name, Piece,
    Remote, Result as RemoteResult, Span, Version,
};

/// The bench with its remote and samples.
pub(super) struct Scene<'a> {
    pub(super) bench: &'a dyn Bench,
    pub(super) remote: Arc<dyn Remote>,
    /// What this source holds, by path.
    pub(super) samples: BTreeMap<Vec<u8>, Sample>,
}

/// What a case comes to: `Err` says how a promise was broken.
pub(super) type Verdict = Result<CaseOutcome, String>;

/// A listing gathered over all its pages.
pub(super) struct Gathered {
    pub(super) entries: Vec<Entry>,
    pub(super) completeness: Completeness,
    pub(super) version: Version,
}

impl<'a> Scene<'a> {
    pub(super) fn new(bench: &'a dyn Bench) -> Scene<'a> {
        let held = sample().into_iter().filter(|sample| bench.cannot_hold(&sample.path).is_none());
        let samples = held.map(|sample| (sample.path.clone(), sample)).collect();
        Scene { bench, remote: bench.remote(), samples }
    }

    /// Runs one case within [`CASE_TIME`].
    pub(super) async fn case(&self, report: &mut Report, name: &str, verdict: impl Future<Output = Verdict>) {
        let outcome = match tokio::time::timeout(CASE_TIME, verdict).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(how)) => CaseOutcome::Failed(how),
            Err(_) => CaseOutcome::Failed(format!("hung for {} s", CASE_TIME.as_secs())),
        };
        report.add(name, outcome);
    }

    pub(super) fn call(&self) -> Call {
        Call::within(Caller::DAEMON, CALL_TIME)
    }

    pub(super) fn bytes_of(&self, path: &str) -> Result<Bytes, String> {
        let sample = self.samples.get(path.as_bytes());
        sample.map(|sample| sample.bytes.clone()).ok_or_else(|| format!("the bench cannot do without {path}"))
    }

    pub(super) async fn lookup(&self, dir: &FileId, name: &Name) -> Result<Answer<Option<Found>>, String> {
        said(self.remote.lookup(&self.call(), dir, name).await, || format!("lookup of {name:?}"))
    }

    /// Walks from the root to a sample; `None` when some name on the way is absent.
    pub(super) async fn walk(&self, path: &[u8]) -> Result<Option<(Found, Version)>, String> {
        let mut names = self.bench.top();
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            names.push(Name::new(part).map_err(|error| error.to_string())?);
        }
        let mut at = self.remote.root();
        let mut last = None;
        for name in names {
            let answer = self.lookup(&at, &name).await?;
            let Some(found) = answer.value else { return Ok(None) };
            at = found.entry.id.clone();
            last = Some((found, answer.version));
        }
        last.map(Some).ok_or_else(|| "the root is not looked up".to_owned())
    }

    /// The identity of a sample; the empty path is the top.
    pub(super) async fn id(&self, path: &str) -> Result<FileId, String> {
        if path.is_empty() && self.bench.top().is_empty() {
            return Ok(self.remote.root());
        }
        Ok(self.entry(path).await?.id)
    }

    pub(super) async fn entry(&self, path: &str) -> Result<Entry, String> {
        let found = self.walk(path.as_bytes()).await?;
        found.map(|(found, _)| found.entry).ok_or_else(|| format!("{path} is not found"))
    }

    /// The version of a file as a check tells it.
    pub(super) async fn version(&self, file: &FileId) -> Result<Version, String> {
        let answer = self.remote.attributes(&self.call(), file, &Version::None).await;
        let answer = said(answer, || format!("attributes of {file:?}"))?;
        match answer.value {
            Checked::Is(_) => Ok(answer.version),
            Checked::Unchanged | Checked::Touched(_) => Err("unchanged, though no version was known".to_owned()),
        }
    }

    pub(super) async fn gather(&self, dir: &FileId) -> Result<Gathered, String> {
        let mut entries = Vec::new();
        let mut cursor: Option<Cursor> = None;
        for _ in 0..PAGES_MAX {
            let answer = self.remote.entries(&self.call(), dir, &Version::None, cursor.as_ref()).await;
            let answer = said(answer, || format!("entries of {dir:?}"))?;
            let version = answer.version;
            let (page, along, standing) = match answer.value {
                Listing::Unchanged => return Err("unchanged, though no version was known".to_owned()),
                Listing::Page(page, along) => (page, along, Vec::new()),
                Listing::Changes(page, standing) => (page, None, standing),
            };
            entries.extend(page.entries);
            entries.extend(standing.iter().map(|entry| Entry::clone(entry)));
            if let Some(along) = along {
                let lists_this = along.lists.as_ref() == Some(dir);
                let known = drain(along.body).await?.known;
                entries.extend(known.into_iter().filter(|(of, _)| lists_this && of == dir).map(|(_, entry)| entry));
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(Gathered { entries: merged(entries), completeness: page.completeness, version }),
            }
        }
        Err(format!("more than {PAGES_MAX} pages"))
    }

    pub(super) async fn fetch(&self, file: &FileId, expected: &Version, span: Span) -> RemoteResult<Answer<Fetched>> {
        self.remote.fetch(&self.call(), file, expected, span).await
    }
}

/// A body read to its end.
pub(super) struct Drained {
    pub(super) bytes: Bytes,
    /// Names learnt on the way, with their directories.
    pub(super) known: Vec<(FileId, Entry)>,
}

/// Reads a body to its end.
pub(super) async fn drain(mut body: Body) -> Result<Drained, String> {
    let mut bytes = BytesMut::new();
    let mut known = Vec::new();
    while let Some(piece) = body.stream.next().await {
        match piece.map_err(|error| format!("the body broke after {} bytes: {error}", bytes.len()))? {
            Piece::Bytes(piece) => bytes.extend_from_slice(&piece),
            Piece::Known(learnt) => {
                let dir = learnt.dir;
                known.extend(learnt.page.value.entries.into_iter().map(|entry| (dir.clone(), entry)));
            }
        }
        if bytes.len() > BODY_BYTES_MAX {
            return Err(format!("a body of more than {BODY_BYTES_MAX} bytes"));
        }
    }
    Ok(Drained { bytes: bytes.freeze(), known })
}

pub(super) fn said<T>(result: RemoteResult<T>, what: impl FnOnce() -> String) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", what()))
}

pub(super) fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

pub(super) fn passed() -> Verdict {
    Ok(CaseOutcome::Passed)
}

pub(super) fn excluded(why: &str) -> Verdict {
    Ok(CaseOutcome::Excluded(why.to_owned()))
}

/// Names learnt from a stream may repeat those of the page that it came with.
fn merged(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        if !kept.contains(&entry) {
            kept.push(entry);
        }
    }
    kept
}

/// How long one call may take.
const CALL_TIME: Duration = Duration::from_secs(10);
/// How long one case may take before it counts as hanging.
const CASE_TIME: Duration = Duration::from_secs(60);
/// Most pages of one listing of the sample tree.
const PAGES_MAX: usize = 1000;
/// Most bytes of one body of the sample tree.
const BODY_BYTES_MAX: usize = 16 << 20;
