//! A moment as people read it.

use std::time::SystemTime;

use tz::UtcDateTime;

/// A moment by the minute: `2026-11-22 05:46 UTC`. What lies before 1970, or after what a calendar has, is told as 1970.
#[must_use]
pub fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let at = i64::try_from(seconds).ok().and_then(|seconds| UtcDateTime::from_timespec(seconds, 0).ok());
    let Some(at) = at else { return utc(SystemTime::UNIX_EPOCH) };
    let (year, month, day) = (at.year(), at.month(), at.month_day());
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", at.hour(), at.minute())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let at = |seconds| utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400 - 1), "2000-02-28 23:59 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(951_868_800), "2000-03-01 00:00 UTC");
        assert_eq!(at(1_700_000_000), "2023-11-14 22:13 UTC");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00 UTC");
    }
}
