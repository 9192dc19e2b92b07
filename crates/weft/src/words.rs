//! What the file system says, in the words of the control socket.

use std::time::{SystemTime, UNIX_EPOCH};

use weft_control::{Cached, Code, NameInfo, NameKind, PathBytes, Refusal, SourceStatus, Status};
use weft_remote::{FileKind, Name, RemoteError, Source, SourceState};
use weft_vfs::VfsError;

/// How a tree of many hosts is, in a few words.
pub(crate) fn binding_state(sources: &[Source]) -> String {
    let away = sources.iter().filter(|source| source.state != SourceState::Connected).count();
    match (sources.len(), away) {
        (0, _) => "no host used yet".to_owned(),
        (1, 0) => "1 host used, connected".to_owned(),
        (used, 0) => format!("{used} hosts used, all connected"),
        (used, away) => format!("{used} hosts used, {away} of them not connected"),
    }
}

/// Those that are not connected first.
pub(crate) fn source_statuses(mut sources: Vec<Source>) -> Vec<SourceStatus> {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    sources.sort_by_key(|source| source.state == SourceState::Connected);
    let status = |source: Source| SourceStatus {
        name: source.name,
        state: source.state.as_str().to_owned(),
        since_unix_s: seconds(source.since),
        last_contact_unix_s: source.last_contact.map(seconds),
        last_error_unix_s: source.last_error.as_ref().map(|(at, _)| seconds(*at)),
        last_error: source.last_error.map(|(_, text)| text),
        requests: source.requests,
        received_bytes: source.received_bytes,
    };
    sources.into_iter().take(Status::SOURCES_MAX).map(status).collect()
}

pub(crate) fn joined(path: &[Name]) -> PathBytes {
    PathBytes(path.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/'))
}

pub(crate) fn names_of(path: &[u8]) -> Result<Vec<Name>, Refusal> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let names: Result<Vec<Name>, _> = parts.map(Name::new).collect();
    names.map_err(|error| Refusal::new(Code::Invalid, format!("{}: {error}", shown(path))))
}

pub(crate) fn name_info(info: weft_vfs::NameInfo) -> NameInfo {
    let seconds = |time: SystemTime| match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    };
    NameInfo {
        name: PathBytes(info.name.as_bytes().to_vec()),
        kind: match info.kind {
            FileKind::File => NameKind::File,
            FileKind::Directory => NameKind::Directory,
            FileKind::Symlink => NameKind::Symlink,
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => NameKind::Special,
            FileKind::Unknown => NameKind::Unknown,
        },
        cached: match info.cached {
            weft_vfs::Cached::Whole => Cached::Whole,
            weft_vfs::Cached::Part => Cached::Part,
            weft_vfs::Cached::No => Cached::No,
        },
        size: info.size,
        modified_unix_s: info.modified.map(seconds),
        learnt_unix_s: Some(seconds(info.learnt)).filter(|at| *at > 0),
    }
}

/// The sort of refusal that an error is.
pub(crate) fn code_of(error: &VfsError) -> Code {
    match error {
        VfsError::NotFound | VfsError::Stale => Code::NotFound,
        VfsError::Remote(RemoteError::NotFound { .. }) => Code::NotFound,
        VfsError::Denied | VfsError::Pinned => Code::Denied,
        VfsError::Remote(RemoteError::Denied { .. } | RemoteError::NotPermitted { .. }) => Code::Denied,
        error if error.is_silence() => Code::Unreachable,
        VfsError::Remote(RemoteError::Busy { .. }) => Code::Busy,
        VfsError::NameTooLong | VfsError::NotADirectory | VfsError::IsADirectory => Code::Invalid,
        _ => Code::Failed,
    }
}

pub(crate) fn refusal(path: &[u8], error: &VfsError) -> Refusal {
    let code = code_of(error);
    let sentence = match error {
        VfsError::NotFound => format!("{}: not known here; a look at it with ls or cat asks the source", shown(path)),
        error => format!("{}: {error}", shown(path)),
    };
    Refusal::new(code, sentence)
}

/// What is said of a path that is not known because a name on the way to it is absent.
pub(crate) fn absence(path: &[u8], depth: usize, absent: &[Name], asked: &str) -> String {
    let first: Vec<String> = absent.iter().map(Name::to_string).collect();
    let next = match absent.len() < depth {
        true => "some hosts tell of no directory: `weft reload` asks for the whole path",
        false => "`weft reload` asks again",
    };
    format!("{}: {} is not there, said its source {asked}; {next}", shown(path), first.join("/"))
}

/// What is said of a path whose first names are none of the mount's; `astray` leads to the first of these.
pub(crate) fn no_tree(path: &[u8], astray: &[Name], there: &[Name]) -> Refusal {
    let there = there.iter().map(Name::to_string).collect::<Vec<_>>().join(", ");
    let (missing, above) = match astray {
        [above @ .., missing] => (missing.to_string(), joined(above)),
        [] => (String::new(), PathBytes::default()),
    };
    let sentence = format!("{}: there is no {missing} in {}, only: {there}", shown(path), shown(&above.0));
    Refusal::new(Code::NotFound, sentence)
}

pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() { "the mount's root".to_owned() } else { PathBytes(path.to_vec()).to_string() }
}
