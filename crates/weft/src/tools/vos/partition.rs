//! Names of partitions: `/vicepa` to `/vicepz`, then `/vicepaa` to `/vicepiu`, numbered from 0 (OpenAFS
//! `src/util/volparse.c`).

use crate::exit::{Failure, Outcome};

/// The name of a partition.
pub fn name(partition: u32) -> String {
    let letter = |at: u32| char::from(b'a' + (at % LETTERS) as u8);
    match partition.checked_sub(LETTERS) {
        None => format!("/vicep{}", letter(partition)),
        Some(rest) if partition < PARTITIONS_MAX => format!("/vicep{}{}", letter(rest / LETTERS), letter(rest)),
        Some(_) => format!("partition {partition}"),
    }
}

/// The number of a partition, from its name, the end of its name, or the number.
///
/// # Errors
/// `Usage`.
pub fn read(text: &str) -> Outcome<u32> {
    let wrong =
        || Failure::usage(format!("-partition {text}: a partition is /vicepa to /vicepiu, or the letters alone"));
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().filter(|number| *number < PARTITIONS_MAX).ok_or_else(wrong);
    }
    let letters = text.strip_prefix('/').unwrap_or(text);
    let letters = if letters.len() > 2 { letters.strip_prefix("vicep").ok_or_else(wrong)? } else { text };
    let value = |byte: u8| byte.is_ascii_lowercase().then(|| u32::from(byte - b'a'));
    let number = match *letters.as_bytes() {
        [one] => value(one),
        [first, second] => value(first).zip(value(second)).map(|(first, second)| LETTERS + first * LETTERS + second),
        _ => None,
    };
    number.filter(|number| *number < PARTITIONS_MAX).ok_or_else(wrong)
}

/// Of the alphabet.
const LETTERS: u32 = 26;
/// Partitions of a server.
const PARTITIONS_MAX: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back() {
        for partition in 0..PARTITIONS_MAX {
            let name = name(partition);
            for text in [&name, &name[1..], &name[6..], &partition.to_string()] {
                assert_eq!(read(text).ok(), Some(partition), "{text}");
            }
        }
        assert_eq!(
            (name(0), name(25), name(26), name(254)),
            ("/vicepa".to_owned(), "/vicepz".to_owned(), "/vicepaa".to_owned(), "/vicepiu".to_owned(),)
        );
        assert_eq!(name(u32::MAX), "partition 4294967295");
    }

    #[test]
    fn what_is_no_partition_is_refused() {
        for text in ["", "A", "/vicep", "vicep", "/vicepiv", "zz", "255", "4294967296", "/x", "abc", "/vicepabc"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
