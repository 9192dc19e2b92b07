//! Times in configuration: `30s`, `10m`, `2h`, `1d`, `250ms`.

use std::time::Duration;

/// Reads a time: a whole number and a unit (`ms`, `s`, `m`, `h`, `d`).
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let allowed = || format!("`{text}` is no time: write a whole number and a unit, as in 250ms, 30s, 10m, 2h or 1d");
    let number: u64 = number.parse().map_err(|_| allowed())?;
    let milliseconds_each = match unit {
        "ms" => 1,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        "d" => 86_400 * SECOND,
        _ => return Err(allowed()),
    };
    match number.checked_mul(milliseconds_each) {
        Some(milliseconds) if milliseconds <= LONGEST => Ok(Duration::from_millis(milliseconds)),
        _ => Err(format!("`{text}` is too long: at most 36500d")),
    }
}

/// Writes a time as [`parse_duration`] reads it, in the largest unit that loses nothing.
pub fn show_duration(time: Duration) -> String {
    let milliseconds = time.as_millis() as u64;
    let units = [(86_400 * SECOND, "d"), (3600 * SECOND, "h"), (60 * SECOND, "m"), (SECOND, "s")];
    for (each, unit) in units {
        if milliseconds > 0 && milliseconds.is_multiple_of(each) {
            return format!("{}{unit}", milliseconds / each);
        }
    }
    if milliseconds == 0 { "0s".to_owned() } else { format!("{milliseconds}ms") }
}

/// In milliseconds, as everything here.
const SECOND: u64 = 1000;
/// A hundred years: far below where adding to a date overflows.
const LONGEST: u64 = 36_500 * 86_400 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_alike() {
        for (text, seconds) in [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("0s", 0), ("90s", 90)] {
            let time = parse_duration(text).expect("a time");
            assert_eq!(time, Duration::from_secs(seconds), "{text}");
            assert_eq!(parse_duration(&show_duration(time)), Ok(time), "{text}");
        }
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(show_duration(Duration::from_secs(60)), "1m");
        for text in ["", "s", "10", "10 s", "-1s", "1.5h", "10y", "99999999999999999999s", "40000d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
