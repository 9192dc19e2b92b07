//! Times as servers print them.

use std::time::{Duration, SystemTime};

/// `03-Feb-2024 04:05` or `2024-02-03 04:05` or `2024-Feb-03 04:05:06`.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.trim().split_once(' ')?;
    let mut date = date.split('-');
    let (first, month, last) = (date.next()?, date.next()?, date.next()?);
    if date.next().is_some() {
        return None;
    }
    let (year, day) = if first.len() == 4 { (first, last) } else { (last, first) };
    let month = match month.len() {
        2 => digits(month, 2)?,
        _ => MONTHS.iter().position(|m| *m == month)? as u64 + 1,
    };
    let mut time = time.split(':');
    let (hour, minute) = (digits(time.next()?, 2)?, digits(time.next()?, 2)?);
    let second = time.next().map_or(Some(0), |second| digits(second, 2))?;
    if time.next().is_some() {
        return None;
    }
    let seconds = seconds_of(digits(year, 4)?, month, digits(day, 2)?, hour, minute, second)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// RFC 3339: `2024-02-03T04:05:06Z`, with fractions and offsets.
pub(crate) fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.trim().split_once('T')?;
    let zone_at = time.find(['Z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let clock = clock.split('.').next()?;
    let utc = parse(&format!("{date} {clock}"))?;
    if zone == "Z" {
        return Some(utc);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let offset = Duration::from_secs(digits(hours, 2)? * 3600 + digits(minutes, 2)? * 60);
    if zone.starts_with('+') { utc.checked_sub(offset) } else { utc.checked_add(offset) }
}

fn digits(text: &str, count: usize) -> Option<u64> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn seconds_of(year: u64, month: u64, day: u64, hour: u64, minute: u64, second: u64) -> Option<u64> {
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    // Days since 1970 with years that start in March, so that the leap day comes last.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * shifted_year + shifted_year / 4 - shifted_year / 100 + shifted_year / 400 + day_of_year;
    days.checked_sub(DAYS_TO_1970).map(|days| days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from the first of March of the year 0 to the first of January 1970.
const DAYS_TO_1970: u64 = 719_468;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(at: Option<SystemTime>) -> Option<u64> {
        at.map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_are_read_in_every_servers_form() {
        for text in ["03-Feb-2024 04:05", "2024-02-03 04:05", "2024-Feb-03 04:05:00"] {
            assert_eq!(seconds(parse(text)), Some(1_706_933_100), "{text}");
        }
        assert_eq!(seconds(parse("1970-01-01 00:00")), Some(0));
        assert_eq!(seconds(parse("2000-02-29 00:00")), Some(951_782_400));
        assert_eq!(seconds(parse_rfc3339(" 2024-02-03T05:05:06.5+01:00")), Some(1_706_933_106));
        assert_eq!(seconds(parse_rfc3339("2024-02-03T04:05:06Z")), Some(1_706_933_106));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "-",
            "03-Feb-2024",
            "03-Xxx-2024 04:05",
            "2024-13-03 04:05",
            "1969-12-31 23:59",
            "a b",
            "2024-02-03 4:5",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["2024-02-03T04:05:06", "2024-02-03T04:05:06+\u{e9}", "T", "1970-01-01T00:00:00+"] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
