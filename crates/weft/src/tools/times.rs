//! Times as ctime(3) writes them: local, with the day of the week.

use tz::{DateTime, TimeZone};

/// The zone of this process: `$TZ`, or the system's; UTC where neither can be read.
pub fn zone() -> TimeZone {
    TimeZone::local().unwrap_or_else(|_| TimeZone::utc())
}

/// Seconds since 1970, as in `Sun Nov 22 05:46:05 2026`.
pub fn shown(seconds: u32, zone: &TimeZone) -> String {
    let Ok(time) = DateTime::from_timespec(seconds.into(), 0, zone.as_ref()) else { return seconds.to_string() };
    let day = DAYS[usize::from(time.week_day()) % DAYS.len()];
    let month = MONTHS[usize::from(time.month()).saturating_sub(1) % MONTHS.len()];
    let (date, hour, minute, second) = (time.month_day(), time.hour(), time.minute(), time.second());
    format!("{day} {month} {date:>2} {hour:02}:{minute:02}:{second:02} {}", time.year())
}

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
/// The names of months, as ls(1) and ctime(3) have them.
pub const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_ctime_has_them() {
        assert_eq!(shown(0, &TimeZone::utc()), "Thu Jan  1 00:00:00 1970");
        assert_eq!(shown(951_782_400, &TimeZone::utc()), "Tue Feb 29 00:00:00 2000");
        let east = TimeZone::fixed(7200).expect("a zone");
        assert_eq!(shown(1_795_326_365, &east), "Sun Nov 22 07:46:05 2026");
        assert_eq!(shown(u32::MAX, &TimeZone::utc()), "Sun Feb  7 06:28:15 2106");
    }
}
