//! Times as records keep them: serde's own form of `SystemTime`, seconds and nanoseconds since 1970, has none before that.
//!
//! Here the seconds are those of the second in which the time lies, as a number with a sign in two's complement: a time from
//! 1970 on is written as serde writes it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Figure;

#[derive(Serialize, Deserialize)]
struct Moment {
    seconds: u64,
    nanoseconds: u32,
}

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(time: &Figure<SystemTime>, to: S) -> Result<S::Ok, S::Error> {
    time.map(Moment::of).serialize(to)
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Figure<SystemTime>, D::Error> {
    let outside = || D::Error::custom("a time that there is not");
    Ok(match Figure::<Moment>::deserialize(from)? {
        Figure::Exact(moment) => Figure::Exact(moment.time().ok_or_else(outside)?),
        Figure::Rounded(moment) => Figure::Rounded(moment.time().ok_or_else(outside)?),
        Figure::Unknown => Figure::Unknown,
    })
}

impl Moment {
    fn of(time: SystemTime) -> Moment {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Moment { seconds: since.as_secs(), nanoseconds: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let (whole, part) = (before.as_secs(), before.subsec_nanos());
                match part {
                    0 => Moment { seconds: whole.wrapping_neg(), nanoseconds: 0 },
                    part => Moment { seconds: (whole + 1).wrapping_neg(), nanoseconds: NANOSECONDS - part },
                }
            }
        }
    }

    /// `None` for more nanoseconds than a second has, and for what is out of the clock's reach.
    fn time(&self) -> Option<SystemTime> {
        let seconds = self.seconds as i64;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) }?;
        let part = (self.nanoseconds < NANOSECONDS).then(|| Duration::from_nanos(self.nanoseconds.into()))?;
        second.checked_add(part)
    }
}

/// In a second.
const NANOSECONDS: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Kept(#[serde(with = "super")] Figure<SystemTime>);

    fn bytes(time: Figure<SystemTime>) -> Vec<u8> {
        postcard::to_allocvec(&Kept(time)).expect("every time is written")
    }

    /// Goal: every time comes back, those from 1970 on in the bytes that were always written.
    #[test]
    fn every_time_comes_back() {
        let (second, part) = (Duration::from_secs(1), Duration::from_nanos(1));
        let far = Duration::from_secs(1 << 62);
        let early = [UNIX_EPOCH - part, UNIX_EPOCH - second, UNIX_EPOCH - second - part, UNIX_EPOCH - far];
        let late = [UNIX_EPOCH, UNIX_EPOCH + part, UNIX_EPOCH + second + part, UNIX_EPOCH + far];
        for time in early.into_iter().chain(late) {
            for time in [Figure::Exact(time), Figure::Rounded(time)] {
                assert_eq!(postcard::from_bytes::<Kept>(&bytes(time)), Ok(Kept(time)));
            }
        }
        for time in late.map(Figure::Exact) {
            assert_eq!(bytes(time), postcard::to_allocvec(&time).expect("serde's own form"));
        }
        assert_eq!(bytes(Figure::Unknown), [2]);
        assert_eq!(postcard::from_bytes::<Kept>(&[2]), Ok(Kept(Figure::Unknown)));
    }

    #[test]
    fn a_time_that_there_is_not_is_an_error() {
        let read = |seconds: u64, nanoseconds: u32| {
            let bytes = postcard::to_allocvec(&Figure::Exact(Moment { seconds, nanoseconds })).expect("numbers");
            postcard::from_bytes::<Kept>(&bytes)
        };
        assert!(read(0, NANOSECONDS - 1).is_ok() && read(u64::MAX, 0).is_ok());
        assert!(read(0, NANOSECONDS).is_err() && read(u64::MAX, u32::MAX).is_err());
        let far = i64::MAX as u64;
        assert!(read(far, NANOSECONDS - 1).is_ok() && read(far, NANOSECONDS).is_err());
        assert!(read(1 << 63, 0).is_ok(), "the first second that there is");
    }
}
