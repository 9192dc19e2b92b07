//! A line of a server's log: the common format, and the combined one, which has two fields more
//! (Apache HTTP Server, mod_log_config).

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'l> {
    /// Who asked.
    pub client: &'l [u8],
    /// Since 1970.
    pub time_s: u64,
    /// As it was sent.
    pub method: &'l [u8],
    /// A path, or a whole URL as proxies are sent it.
    pub target: &'l [u8],
    /// What was answered.
    pub status: u16,
    /// Bytes of the body, where there was one.
    pub bytes: Option<u64>,
    /// What referred to it, of the combined format.
    pub referer: Option<&'l [u8]>,
}

/// Reads a line without its end; `None` for whatever is no such line.
pub fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line;
    let client = word(&mut rest)?;
    // The rest up to the time are names of the user, which may hold spaces.
    let open = rest.iter().position(|byte| *byte == b'[')?;
    rest = &rest[open + 1..];
    let close = rest.iter().position(|byte| *byte == b']')?;
    let time_s = time(std::str::from_utf8(&rest[..close]).ok()?)?;
    rest = &rest[close + 1..];
    let mut request = quoted(&mut rest)?;
    let (method, target) = (word(&mut request)?, word(&mut request)?);
    let status = number(word(&mut rest)?)?;
    let bytes = match word(&mut rest)? {
        b"-" => None,
        bytes => Some(number(bytes)?),
    };
    let referer = quoted(&mut rest).filter(|referer| !referer.is_empty() && *referer != b"-");
    Some(Line { client, time_s, method, target, status: u16::try_from(status).ok()?, bytes, referer })
}

/// Up to the next space, which goes as well.
fn word<'l>(rest: &mut &'l [u8]) -> Option<&'l [u8]> {
    let text = rest.trim_ascii_start();
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

/// What stands between two quotes; a backslash takes away the meaning of what follows it.
fn quoted<'l>(rest: &mut &'l [u8]) -> Option<&'l [u8]> {
    let text = rest.trim_ascii_start().strip_prefix(b"\"")?;
    let mut at = 0;
    while *text.get(at)? != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    *rest = &text[at + 1..];
    Some(&text[..at])
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `17/May/2015:10:05:03 +0000`, since 1970.
fn time(text: &str) -> Option<u64> {
    let (moment, zone) = text.split_once(' ')?;
    let mut parts = moment.split(['/', ':']);
    let day: i64 = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = 1 + i64::try_from(MONTHS.iter().position(|month| *month == name)?).ok()?;
    let year: i64 = parts.next()?.parse().ok()?;
    let mut next = |most: i64| parts.next()?.parse::<i64>().ok().filter(|value| (0..=most).contains(value));
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    let is_date = (1..=31).contains(&day) && (1970..=9999).contains(&year);
    let seconds = days(year, month, is_date.then_some(day)?) * 86400 + hour * 3600 + minute * 60 + second;
    let (sign, zone) = match zone.split_at_checked(1)? {
        ("+", zone) => (1, zone),
        ("-", zone) => (-1, zone),
        _ => return None,
    };
    let zone: i64 = zone.parse().ok().filter(|zone| (0..=2400).contains(zone))?;
    u64::try_from(seconds - sign * (zone / 100 * 3600 + zone % 100 * 60)).ok()
}

/// Days since 1970 of a date of the calendar of today: years begin in March, so that the day that comes every four years
/// is their last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let to_year = year * 365 + year / 4 - year / 100 + year / 400;
    // 1 March of the year 0 came so many days before 1970.
    to_year + of_year - 719_468
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMBINED: &str =
        r#"a.example - x y [17/May/2015:10:05:03 +0200] "GET /a/b?c=d HTTP/1.1" 200 203023 "http://s/\"q" "An agent""#;

    #[test]
    fn both_formats_are_read() {
        let line = parse(COMBINED.as_bytes()).unwrap();
        // date -u -d '2015-05-17 08:05:03' +%s
        assert_eq!((line.client, line.time_s), (&b"a.example"[..], 1_431_849_903));
        assert_eq!((line.method, line.target, line.status), (&b"GET"[..], &b"/a/b?c=d"[..], 200));
        assert_eq!((line.bytes, line.referer), (Some(203_023), Some(&br#"http://s/\"q"#[..])));
        let common = parse(br#"1.2.3.4 - - [29/Feb/2000:23:59:60 -0000] "HEAD / HTTP/1.0" 304 -"#).unwrap();
        assert_eq!((common.time_s, common.bytes, common.referer), (951_868_800, None, None));
    }

    #[test]
    fn what_is_no_line_is_told_from_lines() {
        for line in [
            "",
            "a",
            "a - - [x] \"GET / HTTP/1.0\" 200 1",
            "a - - [17/May/2015:10:05:03 +0000] GET / HTTP/1.0 200 1",
            "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.0 200 1",
            "a - - [17/May/2015:10:05:03 +0000] \"\\x16\\x03\" 400 1",
            "a - - [17/May/2015:24:05:03 +0000] \"GET / HTTP/1.0\" 200 1",
            "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.0\" 200 99999999999999999999",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        /// Goal: no bytes do harm. Method: any bytes, and a line with some of its bytes changed or gone.
        #[test]
        fn any_bytes_are_survived(
            any in proptest::collection::vec(any::<u8>(), 0..200),
            changes in proptest::collection::vec((0usize..100, any::<u8>()), 0..8),
            length in 0usize..120,
        ) {
            let _ = parse(&any);
            let mut line = COMBINED.as_bytes().to_vec();
            for (at, byte) in changes {
                line[at] = byte;
            }
            line.truncate(length);
            let _ = parse(&line);
        }
    }
}
