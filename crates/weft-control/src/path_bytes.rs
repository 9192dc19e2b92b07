//! Paths and names as JSON holds them, without loss.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a path or name. In JSON a string where they are UTF-8, otherwise `{"hex": "6cff..."}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathBytes(pub Vec<u8>);

impl PathBytes {
    /// As the standard library wants it.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl From<&Path> for PathBytes {
    fn from(path: &Path) -> PathBytes {
        PathBytes(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<&[u8]> for PathBytes {
    fn from(bytes: &[u8]) -> PathBytes {
        PathBytes(bytes.to_vec())
    }
}

/// For people: as it is where it can be shown, escaped otherwise.
impl fmt::Display for PathBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl Serialize for PathBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Hex { hex: self.0.iter().map(|byte| format!("{byte:02x}")).collect() }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PathBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PathBytes, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(PathBytes(text.into_bytes())),
            Form::Hex(Hex { hex }) => {
                let bytes = unhex(hex.as_bytes());
                bytes.map(PathBytes).ok_or_else(|| serde::de::Error::custom("hex needs pairs of 0-9a-f"))
            }
        }
    }
}

/// What JSON may hold for a path.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Hex(Hex),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hex {
    hex: String,
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_json() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"plain", b"", b"new\nline \"quoted\"", "\u{fc}ber".as_bytes(), b"\xff"] {
            let json = serde_json::to_string(&PathBytes::from(bytes)).expect("serialises");
            assert!(!json.contains('\n'), "one line each: {json}");
            let back: PathBytes = serde_json::from_str(&json).expect("parses");
            assert_eq!(back.0, bytes);
        }
        assert_eq!(serde_json::to_string(&PathBytes::from(&b"a/b"[..])).expect("serialises"), "\"a/b\"");
    }

    #[test]
    fn broken_hex_is_refused() {
        for json in [r#"{"hex":"6"}"#, r#"{"hex":"zz"}"#, r#"{"hex":"00","more":1}"#, "7"] {
            assert!(serde_json::from_str::<PathBytes>(json).is_err(), "{json}");
        }
    }
}
