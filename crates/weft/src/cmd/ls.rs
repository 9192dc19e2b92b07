//! `weft ls -w`, also as `lsw`: names that are known to exist remotely.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tz::UtcDateTime;
use weft_control::{Cached, Located, NameInfo, NameKind};

use super::{find, for_each};
use crate::exit::{Failure, Outcome};
use crate::output::say;
use crate::tools::times::MONTHS;

/// Lists the names known in each of `paths`: those that are not cached, or `all`.
///
/// # Errors
/// The first failure; the other paths are listed all the same.
pub fn run(weft: bool, all: bool, paths: &[PathBuf], json: bool) -> Outcome {
    if !weft {
        let hint = "`weft ls -w` (or `lsw`) lists the names that are known remotely";
        return Err(Failure::usage(format!("for the files themselves use ls(1); {hint}")));
    }
    let (lists, outcome) = for_each(paths, |path| list(path, all));
    if json && !lists.is_empty() {
        let lists = lists.iter().map(|(path, _, names)| json!({ "path": path, "names": names }));
        say!("{}", serde_json::Value::from_iter(lists));
        return outcome;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    for (nth, (path, kind, names)) in lists.iter().enumerate() {
        if lists.len() > 1 {
            say!("{}{}:", if nth == 0 { "" } else { "\n" }, path.display());
        }
        let widest = names.iter().map(|name| size(name).len()).max().unwrap_or(0);
        names.iter().for_each(|name| say!("{}", line(kind, name, widest, now)));
    }
    outcome
}

type List = (PathBuf, String, Vec<NameInfo>);

fn list(path: &Path, all: bool) -> Outcome<List> {
    let Located { mut client, path: below, .. } = find(path)?;
    let mut names = client.names(&below.0)?;
    names.retain(|name| all || name.cached != Cached::Whole);
    names.sort_by(|a, b| a.name.cmp(&b.name));
    let kind = kind_of(&client.status()?, &below.0);
    Ok((path.to_owned(), kind, names))
}

/// The kind of the binding that a path lies in.
fn kind_of(status: &weft_control::Status, path: &[u8]) -> String {
    let around = status.bindings.iter().filter(|binding| {
        let rest = path.strip_prefix(binding.path.0.as_slice());
        rest.is_some_and(|rest| binding.path.0.is_empty() || rest.is_empty() || rest[0] == b'/')
    });
    let innermost = around.max_by_key(|binding| binding.path.0.len());
    innermost.map_or_else(|| "weft".to_owned(), |binding| binding.kind.clone())
}

/// As WFS's `lsw` wrote it, with a mark for what is cached:
/// `[web] -r--r--r--  1234 Apr 28 05:14  foo.html`.
fn line(kind: &str, name: &NameInfo, widest: usize, now: i64) -> String {
    let mark = match name.cached {
        Cached::Whole => "*",
        Cached::Part => "+",
        Cached::No => "",
    };
    let mode = match name.kind {
        NameKind::File => "-r--r--r--",
        NameKind::Directory => "dr-xr-xr-x",
        NameKind::Symlink => "lrwxrwxrwx",
        NameKind::Special => "sr--r--r--",
        NameKind::Unknown => "?r--r--r--",
    };
    let slash = if name.kind == NameKind::Directory { "/" } else { "" };
    // As in WFS: where the source tells no time, that at which the name was learnt, which ls(1) shows as well.
    let time =
        name.modified_unix_s.or(name.learnt_unix_s).map_or_else(|| "           -".to_owned(), |at| show_date(at, now));
    format!(
        "{:<width$} {mode}  {:>widest$}  {time}  {}{slash}",
        format!("[{kind}]{mark}"),
        size(name),
        name.name,
        width = kind.len() + 3
    )
}

fn size(name: &NameInfo) -> String {
    name.size.map_or_else(|| "-".to_owned(), |size| size.to_string())
}

/// As ls(1) does: the time of day within half a year, otherwise the year. In UTC.
fn show_date(at: i64, now: i64) -> String {
    let Ok(date) = UtcDateTime::from_timespec(at, 0) else { return at.to_string() };
    let (month, day) = (MONTHS[usize::from(date.month()).saturating_sub(1) % MONTHS.len()], date.month_day());
    if now.abs_diff(at) < HALF_A_YEAR {
        format!("{month} {day:>2} {:02}:{:02}", date.hour(), date.minute())
    } else {
        format!("{month} {day:>2}  {:>4}", date.year())
    }
}

const HALF_A_YEAR: u64 = 182 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_control::{BindingStatus, PathBytes, Status};

    #[test]
    fn dates_are_those_of_the_calendar() {
        let now = 1_700_000_000;
        assert_eq!(show_date(now - 60, now), "Nov 14 22:12");
        assert_eq!(show_date(0, now), "Jan  1  1970");
        assert_eq!(show_date(-1, now), "Dec 31  1969");
        assert_eq!(show_date(951_782_400, now), "Feb 29  2000");
        assert_eq!(show_date(i64::MIN, i64::MAX), i64::MIN.to_string());
    }

    #[test]
    fn lines_look_like_those_of_the_paper() {
        let name = NameInfo {
            name: PathBytes(b"foo.html".to_vec()),
            kind: NameKind::File,
            cached: Cached::No,
            size: Some(120),
            modified_unix_s: Some(893_740_440),
            learnt_unix_s: None,
        };
        assert_eq!(line("web", &name, 4, 893_740_500), "[web]  -r--r--r--   120  Apr 28 05:14  foo.html");
        let learnt = NameInfo { modified_unix_s: None, learnt_unix_s: Some(893_740_440), ..name.clone() };
        assert_eq!(line("web", &learnt, 4, 893_740_500), "[web]  -r--r--r--   120  Apr 28 05:14  foo.html");
        let dir =
            NameInfo { kind: NameKind::Directory, cached: Cached::Whole, size: None, modified_unix_s: None, ..name };
        assert_eq!(line("web", &dir, 1, 0), "[web]* dr-xr-xr-x  -             -  foo.html/");
    }

    #[test]
    fn the_kind_is_that_of_the_innermost_binding() {
        let binding = |path: &str, kind: &str| BindingStatus {
            path: PathBytes(path.into()),
            kind: kind.to_owned(),
            state: String::new(),
        };
        let status = Status { bindings: vec![binding("web", "web"), binding("we", "x")], ..Status::default() };
        assert_eq!(kind_of(&status, b"web/example.org"), "web");
        assert_eq!(kind_of(&status, b"we"), "x");
        assert_eq!(kind_of(&status, b"webb"), "weft");
    }
}
