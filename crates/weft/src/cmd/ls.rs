//! `weft ls -w`, also as `lsw`: names that are known to exist remotely.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use weft_control::{Cached, Located, NameInfo, NameKind};

use super::{find, for_each};
use crate::exit::{Failure, Outcome};
use crate::output::say;

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
    let (days, second) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let month = MONTHS[month as usize - 1];
    if (now - at).abs() < HALF_A_YEAR {
        format!("{month} {day:>2} {:02}:{:02}", second / 3600, second % 3600 / 60)
    } else {
        format!("{month} {day:>2}  {year:>4}")
    }
}

/// Year, month and day of a number of days since 1970 in the Gregorian calendar. Years are counted from March, so
/// that the leap day is a year's last, and in cycles of 400 years, which all have the same number of days.
fn civil(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + DAYS_FROM_MARCH_0_TO_1970;
    let (cycle, day) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
    // Every 4th year but every 100th is a day longer; the very last day of the cycle is such a day too.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, months have 153 days in five.
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next_year, month, day_of_month)
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const HALF_A_YEAR: i64 = 182 * 86_400;
const DAYS_IN_400_YEARS: i64 = 146_097;
const DAYS_FROM_MARCH_0_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;
    use weft_control::{BindingStatus, PathBytes, Status};

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (59, (1970, 3, 1)),
            (789, (1972, 2, 29)),
            (10_957, (2000, 1, 1)),
            (11_016, (2000, 2, 29)),
            (20_778, (2026, 11, 21)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date, "{days}");
        }
        let now = 1_700_000_000;
        assert_eq!(show_date(now - 60, now), "Nov 14 22:12");
        assert_eq!(show_date(0, now), "Jan  1  1970");
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
