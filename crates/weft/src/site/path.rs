//! Percent-encoding of paths (RFC 3986 section 2.1).

/// The path that a URL's path means; `None` when it is not UTF-8 or badly encoded: nothing here has such a name.
pub(super) fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let [high, low, after @ ..] = tail else { return None };
            let value = |digit: &u8| (*digit as char).to_digit(16).map(|value| value as u8);
            bytes.push(value(high)? << 4 | value(low)?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// A name as a URL has it: everything but unreserved characters is encoded.
pub(super) fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte as char),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for name in ["plain.txt", "with space", "100%", "\u{fc}ber", "a+b&c"] {
            assert_eq!(decode(&encode(name)).as_deref(), Some(name));
        }
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
