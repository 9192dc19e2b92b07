//! Byte ranges of a request (RFC 9110 section 14.1.2).

use std::ops::Range;

/// What a `Range` header comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// No range, several, or another unit: everything is sent, as a server may.
    Everything,
    /// These bytes.
    Part(Range<usize>),
    /// Nothing of the file is in the range.
    Unsatisfiable,
}

/// Reads the header for a file of `length` bytes.
pub(super) fn wanted(header: Option<&str>, length: usize) -> Wanted {
    let Some((first, last)) = header.and_then(|header| header.strip_prefix("bytes=")?.trim().split_once('-')) else {
        return Wanted::Everything;
    };
    match (number(first), number(last)) {
        (Some(first), _) if first >= length && (last.is_empty() || number(last).is_some()) => Wanted::Unsatisfiable,
        (Some(first), None) if last.is_empty() => Wanted::Part(first..length),
        (Some(first), Some(last)) if first <= last => Wanted::Part(first..last.saturating_add(1).min(length)),
        (None, Some(0)) if first.is_empty() => Wanted::Unsatisfiable,
        (None, Some(_)) if first.is_empty() && length == 0 => Wanted::Unsatisfiable,
        (None, Some(suffix)) if first.is_empty() => Wanted::Part(length.saturating_sub(suffix)..length),
        _ => Wanted::Everything,
    }
}

fn number(digits: &str) -> Option<usize> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        let cases = [
            (None, Wanted::Everything),
            (Some("bytes=0-0"), Wanted::Part(0..1)),
            (Some("bytes=2-5"), Wanted::Part(2..6)),
            (Some("bytes=2-"), Wanted::Part(2..10)),
            (Some("bytes=2-999999999999999999999999"), Wanted::Part(2..10)),
            (Some("bytes=-3"), Wanted::Part(7..10)),
            (Some("bytes=-30"), Wanted::Part(0..10)),
            (Some("bytes=10-"), Wanted::Unsatisfiable),
            (Some("bytes=10-20"), Wanted::Unsatisfiable),
            (Some("bytes=-0"), Wanted::Unsatisfiable),
            (Some("bytes=5-2"), Wanted::Everything),
            (Some("bytes=0-1,3-4"), Wanted::Everything),
            (Some("lines=0-1"), Wanted::Everything),
            (Some("bytes=-"), Wanted::Everything),
            (Some("bytes=x-y"), Wanted::Everything),
        ];
        for (header, expected) in cases {
            assert_eq!(wanted(header, 10), expected, "{header:?}");
        }
        assert_eq!(wanted(Some("bytes=-1"), 0), Wanted::Unsatisfiable);
    }
}
