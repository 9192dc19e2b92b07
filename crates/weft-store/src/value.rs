//! Values of the index: a format byte, the record in postcard, and a check over key and record.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::StoreError;

/// A value as it stands in the database.
pub(crate) type Value = Box<[u8]>;

/// Why a value cannot be understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it is too short")]
    Short,
    #[error("its check does not match")]
    Check,
    #[error("its format {0} is not known")]
    Format(u8),
    #[error("its fields do not decode: {0}")]
    Fields(postcard::Error),
}

/// Encodes a record that will stand under `key`. Fails only for a time before 1970.
pub(crate) fn encode<T: Serialize>(key: &[u8], record: &T) -> crate::Result<Value> {
    let mut room = [0; ROOM];
    room[0] = FORMAT;
    match postcard::to_slice(record, &mut room[1..ROOM - CHECK_BYTES]) {
        Ok(fields) => {
            let length = 1 + fields.len();
            let check = check(key, &room[..length]);
            room[length..length + CHECK_BYTES].copy_from_slice(&check);
            Ok(Box::from(&room[..length + CHECK_BYTES]))
        }
        Err(postcard::Error::SerializeBufferFull) => encode_long(key, record),
        Err(error) => Err(StoreError::Index(Box::new(error))),
    }
}

/// The same of a record that needs more room than most.
fn encode_long<T: Serialize>(key: &[u8], record: &T) -> crate::Result<Value> {
    let mut value = vec![FORMAT];
    value = postcard::to_extend(record, value).map_err(|error| StoreError::Index(Box::new(error)))?;
    let check = check(key, &value);
    value.extend_from_slice(&check);
    Ok(value.into())
}

/// Decodes the record that stands under `key`.
pub(crate) fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, Unreadable> {
    let fields = fields(key, value)?;
    postcard::from_bytes(fields).map_err(Unreadable::Fields)
}

/// Decodes the first fields of the record that stands under `key`.
pub(crate) fn decode_head<'a, T: Deserialize<'a>>(key: &[u8], value: &'a [u8]) -> Result<T, Unreadable> {
    let fields = fields(key, value)?;
    postcard::take_from_bytes(fields).map(|(head, _)| head).map_err(Unreadable::Fields)
}

fn fields<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Unreadable> {
    let (body, told) = value.split_last_chunk::<CHECK_BYTES>().ok_or(Unreadable::Short)?;
    if check(key, body) != *told {
        return Err(Unreadable::Check);
    }
    match body.split_first() {
        Some((&FORMAT, fields)) => Ok(fields),
        Some((&other, _)) => Err(Unreadable::Format(other)),
        None => Err(Unreadable::Short),
    }
}

/// The key takes part, so that a value that strayed to another key is noticed.
fn check(key: &[u8], body: &[u8]) -> [u8; CHECK_BYTES] {
    let sum = if key.len() + body.len() <= JOINED_MAX {
        let mut joined = [0; JOINED_MAX];
        joined[..key.len()].copy_from_slice(key);
        joined[key.len()..key.len() + body.len()].copy_from_slice(body);
        xxh3_64(&joined[..key.len() + body.len()])
    } else {
        let mut hash = Xxh3::new();
        hash.update(key);
        hash.update(body);
        hash.digest()
    };
    let [a, b, c, d, ..] = sum.to_le_bytes();
    [a, b, c, d]
}

/// Format of every record written by this version.
const FORMAT: u8 = 1;
/// Length of the check: the low half of an XXH3-64, little-endian.
const CHECK_BYTES: usize = 4;
/// Up to this length the one-pass form of the hash is quicker than the streaming one.
const JOINED_MAX: usize = 512;
/// What most records need, in bytes.
const ROOM: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// Flips every bit of a value and cuts it everywhere: each is noticed, none panics.
    #[test]
    fn a_changed_value_is_noticed() {
        let value = encode(b"key", &(7u32, "seven")).unwrap();
        assert_eq!(decode::<(u32, String)>(b"key", &value), Ok((7, "seven".into())));
        assert_eq!(decode::<(u32, String)>(b"kez", &value), Err(Unreadable::Check));
        for bit in 0..value.len() * 8 {
            let mut changed = value.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode::<(u32, String)>(b"key", &changed).is_err());
        }
        for length in 0..value.len() {
            assert!(decode::<(u32, String)>(b"key", &value[..length]).is_err());
        }
    }

    /// Goal: a record of any length is written in the same form. Method: lengths around that of the room that most fit in.
    #[test]
    fn a_record_may_have_any_length() {
        for length in (ROOM - 20..ROOM + 5).chain([0, 100_000]) {
            let record = vec![7_u8; length];
            let value = encode(b"key", &record).unwrap();
            assert_eq!(value, encode_long(b"key", &record).unwrap());
            assert_eq!(decode::<Vec<u8>>(b"key", &value), Ok(record));
        }
    }

    #[test]
    fn a_newer_format_is_refused() {
        let mut value = encode(b"key", &1u8).unwrap().to_vec();
        value.truncate(value.len() - CHECK_BYTES);
        value[0] = FORMAT + 1;
        let sum = check(b"key", &value);
        value.extend_from_slice(&sum);
        assert_eq!(decode::<u8>(b"key", &value), Err(Unreadable::Format(FORMAT + 1)));
    }

    #[test]
    fn both_ways_to_check_agree() {
        for length in [JOINED_MAX - 4, JOINED_MAX - 3, JOINED_MAX - 2] {
            let body = vec![5; length];
            let mut joined = b"key".to_vec();
            joined.extend_from_slice(&body);
            assert_eq!(check(b"key", &body), xxh3_64(&joined).to_le_bytes()[..CHECK_BYTES]);
        }
    }
}
