//! How long an answer may be trusted: RFC 9111 for a private cache.

use std::time::{Duration, SystemTime};

use hyper::header::{self, HeaderMap, HeaderName};
use weft_remote::{Lease, Stale, clock};

use crate::WebOptions;

/// When an answer came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// By the clock that leases go by.
    counted: SystemTime,
    /// By the wall clock, as far as servers have the same.
    by_wall: SystemTime,
}

impl Came {
    pub fn now() -> Came {
        Came { counted: clock::now(), by_wall: SystemTime::now() }
    }
}

/// The lease of an answer.
pub(crate) fn lease_of(headers: &HeaderMap, came: Came, options: &WebOptions) -> Lease {
    explicit(headers, came).unwrap_or_else(|| {
        let date = time(headers, header::DATE).unwrap_or(came.by_wall);
        let modified = time(headers, header::LAST_MODIFIED);
        let quiet = modified.and_then(|modified| date.duration_since(modified).ok()).unwrap_or(Duration::ZERO);
        // RFC 9111 section 4.2.2 names this tenth.
        let max = options.heuristic_max.max(options.heuristic_min);
        Lease::Until(came.counted + (quiet / 10).clamp(options.heuristic_min, max))
    })
}

/// The lease of "there is no such thing".
pub(crate) fn absence_lease(headers: &HeaderMap, came: Came, options: &WebOptions) -> Lease {
    explicit(headers, came).unwrap_or(Lease::Until(came.counted + options.absence_time))
}

/// What the answer itself says; `None` when it says nothing.
fn explicit(headers: &HeaderMap, came: Came) -> Option<Lease> {
    let directives = Directives::read(headers);
    if directives.no_store || directives.no_cache {
        return Some(Lease::Said { end: came.counted, lifetime_s: 0, stale: Stale::Forbidden });
    }
    // RFC 9111 section 5.2.2.2; a period of grace (RFC 5861 section 4) does not count against it.
    let stale = match (directives.must_revalidate, directives.stale_if_error) {
        (true, _) => Stale::Forbidden,
        (false, Some(grace)) => Stale::Allowed { seconds: whole_seconds(grace) },
        (false, None) => Stale::Unsaid,
    };
    let date = time(headers, header::DATE).unwrap_or(came.by_wall);
    let lifetime = match (directives.max_age, headers.get(header::EXPIRES)) {
        (Some(max_age), _) => max_age,
        (None, _) if directives.immutable => IMMUTABLE,
        // RFC 9111 section 5.3: a date that cannot be read (`0` above all) means expired.
        (None, Some(_)) => {
            time(headers, header::EXPIRES).and_then(|end| end.duration_since(date).ok()).unwrap_or(Duration::ZERO)
        }
        (None, None) => return None,
    };
    let age_header = number(headers, header::AGE).unwrap_or(Duration::ZERO);
    let age = age_header.max(came.by_wall.duration_since(date).unwrap_or(Duration::ZERO).min(DATE_AGE_MAX));
    let left = lifetime.min(LIFETIME_MAX).saturating_sub(age);
    Some(Lease::Said { end: came.counted + left, lifetime_s: whole_seconds(lifetime), stale })
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.min(LIFETIME_MAX).as_secs()).unwrap_or(u32::MAX)
}

#[derive(Default)]
struct Directives {
    no_store: bool,
    no_cache: bool,
    immutable: bool,
    must_revalidate: bool,
    stale_if_error: Option<Duration>,
    max_age: Option<Duration>,
}

impl Directives {
    fn read(headers: &HeaderMap) -> Directives {
        let mut read = Directives::default();
        for line in headers.get_all(header::CACHE_CONTROL) {
            for directive in line.to_str().unwrap_or("no-cache").split(',') {
                let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
                match name.trim().to_ascii_lowercase().as_str() {
                    "no-store" => read.no_store = true,
                    // With field names it is about those fields only.
                    "no-cache" if value.is_empty() => read.no_cache = true,
                    "must-revalidate" => read.must_revalidate = true,
                    "stale-if-error" => read.stale_if_error = seconds(value),
                    "immutable" => read.immutable = true,
                    "max-age" => read.max_age = Some(seconds(value).unwrap_or(Duration::ZERO)),
                    _ => {}
                }
            }
        }
        read
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let digits = text.trim().trim_matches('"');
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().map_or(LIFETIME_MAX, Duration::from_secs))
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<Duration> {
    seconds(headers.get(name)?.to_str().ok()?)
}

fn time(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// What counts as for ever; also keeps sums of times in range.
const LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// For `immutable` without a lifetime.
const IMMUTABLE: Duration = Duration::from_secs(365 * 24 * 3600);
/// A server's clock that is further off than this says nothing about the age of its answer.
const DATE_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn left(list: &[(HeaderName, &str)]) -> Duration {
        let now = httpdate::parse_http_date(DATE).unwrap();
        let headers = list.iter().map(|(n, v)| (n.clone(), v.parse().unwrap())).collect();
        lease_of(&headers, Came { counted: now, by_wall: now }, &WebOptions::default()).remaining_at(now)
    }

    #[test]
    fn explicit_lifetimes_count() {
        for (control, seconds) in [
            ("max-age=600", 600),
            ("public, Max-Age=\"600\", s-maxage=5", 600),
            ("max-age=600, no-cache", 0),
            ("no-store", 0),
            ("max-age=0", 0),
            ("max-age=x", 0),
            ("max-age=99999999999999999999999", LIFETIME_MAX.as_secs()),
            ("immutable", 365 * 24 * 3600),
            ("no-cache=\"set-cookie\", max-age=7", 7),
        ] {
            assert_eq!(left(&[(header::CACHE_CONTROL, control)]).as_secs(), seconds, "{control}");
        }
        let aged = [(header::CACHE_CONTROL, "max-age=600"), (header::AGE, "200"), (header::DATE, DATE)];
        assert_eq!(left(&aged).as_secs(), 400);
        let expires = [(header::EXPIRES, "Sun, 06 Nov 1994 08:59:37 GMT"), (header::DATE, DATE)];
        assert_eq!(left(&expires).as_secs(), 600);
        assert_eq!(left(&[(header::EXPIRES, "0")]).as_secs(), 0);
    }

    /// Goal: an answer is as old as the wall clock says, and its lease ends by the other clock, which may be ahead.
    #[test]
    fn a_lease_ends_by_the_clock_that_is_not_set_back() {
        let by_wall = httpdate::parse_http_date(DATE).unwrap();
        let counted = by_wall + Duration::from_secs(7200);
        for (control, seconds) in [("max-age=600", 600), ("no-cache", 0), ("public", 60)] {
            let pairs = [(header::CACHE_CONTROL, control), (header::DATE, DATE)];
            let headers = pairs.map(|(name, value)| (name, value.parse().unwrap())).into_iter().collect();
            let lease = lease_of(&headers, Came { counted, by_wall }, &WebOptions::default());
            assert_eq!(lease.end(), Some(counted + Duration::from_secs(seconds)), "{control}");
        }
    }

    #[test]
    fn without_a_lifetime_a_tenth_of_the_quiet_time_counts_within_bounds() {
        let quiet = |modified| left(&[(header::DATE, DATE), (header::LAST_MODIFIED, modified)]).as_secs();
        assert_eq!(quiet("Sun, 06 Nov 1994 07:49:37 GMT"), 360);
        assert_eq!(quiet(DATE), 60);
        assert_eq!(quiet("Sat, 06 Nov 1993 07:49:37 GMT"), 24 * 3600);
        assert_eq!(left(&[]).as_secs(), 60);
    }

    #[test]
    fn what_may_be_done_after_the_end_is_as_the_answer_says() {
        let now = httpdate::parse_http_date(DATE).unwrap();
        let stale = |value: &str| {
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, value.parse().unwrap())]);
            lease_of(&headers, Came { counted: now, by_wall: now }, &WebOptions::default()).stale()
        };
        for (value, said) in [
            ("max-age=5", Stale::Unsaid),
            ("public", Stale::Unsaid),
            ("max-age=5, stale-if-error=30", Stale::Allowed { seconds: 30 }),
            ("max-age=5, stale-if-error=soon", Stale::Unsaid),
            ("max-age=5, stale-if-error=99999999999", Stale::Allowed { seconds: 315_360_000 }),
            ("max-age=5, must-revalidate, stale-if-error=30", Stale::Forbidden),
            ("no-cache", Stale::Forbidden),
            ("no-store", Stale::Forbidden),
        ] {
            assert_eq!(stale(value), said, "{value}");
        }
    }
}
