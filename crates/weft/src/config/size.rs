//! Sizes in configuration: `500M`, `20G`.

/// Reads a size: a whole number and a unit (`B`, `K`, `M`, `G`, `T`), each 1024 of the one before. In bytes.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let allowed = || format!("`{text}` is no size: write a whole number and a unit, as in 64K, 500M, 20G or 1T");
    let number: u64 = number.parse().map_err(|_| allowed())?;
    let (_, each) = UNITS.into_iter().find(|(word, _)| *word == unit).ok_or_else(allowed)?;
    number.checked_mul(each).ok_or_else(|| format!("`{text}` is more than any disk has"))
}

/// Writes a size as [`parse_size`] reads it, in the largest unit that loses nothing.
pub fn show_size(bytes: u64) -> String {
    let fitting = UNITS.into_iter().rev().find(|(_, each)| bytes > 0 && bytes.is_multiple_of(*each));
    fitting.map_or_else(|| "0B".to_owned(), |(unit, each)| format!("{}{unit}", bytes / each))
}

const UNITS: [(&str, u64); 5] = [("B", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_alike() {
        for (text, bytes) in [("0B", 0), ("1000B", 1000), ("64K", 65536), ("500M", 500 << 20), ("3T", 3 << 40)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(show_size(bytes), text);
        }
        for text in ["", "G", "20", "20 G", "-1G", "1.5G", "20GB", "20g", "99999999T", "99999999999999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
