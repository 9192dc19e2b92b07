//! The log of the web site of the football World Cup of 1998: 20 bytes a request, big-endian.
//!
//! `timestamp`, `clientID`, `objectID` and `size` are `u32`, then `method`, `status`, `type` and `server` a byte each
//! (README of the Internet Traffic Archive's tools for it; method and status are numbers of the tables in their
//! definitions.h). The upper two bits of the status are the version of HTTP.

/// Length of a record.
pub const RECORD_BYTES: usize = 20;

/// A record that can be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Since 1970.
    pub time_s: u64,
    /// Who asked.
    pub client: u32,
    /// For what.
    pub object: u32,
    /// Bytes of the answer, where they are told.
    pub bytes: Option<u32>,
    /// Whether it was a GET that gave the object, or what the client had was still right.
    pub is_read: bool,
}

/// Reads a record; `None` when a field has a value that does not exist.
pub fn parse(record: &[u8; RECORD_BYTES]) -> Option<Record> {
    let field = |at: usize| u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let (method, status, kind) = (record[16], record[17] & 0x3f, record[18]);
    if method > METHOD_MAX || status > STATUS_MAX || kind > TYPE_MAX {
        return None;
    }
    Some(Record {
        time_s: field(0).into(),
        client: field(4),
        object: field(8),
        bytes: Some(field(12)).filter(|bytes| *bytes != NO_SIZE),
        is_read: method == GET && [OK, PARTIAL, NOT_MODIFIED].contains(&status),
    })
}

const GET: u8 = 0;
const METHOD_MAX: u8 = 8;
/// 200, 206 and 304 by their places in the table of status codes.
const OK: u8 = 2;
const PARTIAL: u8 = 8;
const NOT_MODIFIED: u8 = 13;
const STATUS_MAX: u8 = 37;
const TYPE_MAX: u8 = 12;
const NO_SIZE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the README of the tools shows its first line: 34600 asks for an image of 24736 bytes.
    const FIRST: [u8; RECORD_BYTES] =
        [0x35, 0x48, 0xed, 0x69, 0, 0, 0x87, 0x28, 0, 0, 0, 7, 0, 0, 0x60, 0xa0, 0, 0x42, 1, 0x60];

    #[test]
    fn a_record_is_read() {
        let record = parse(&FIRST).unwrap();
        assert_eq!((record.time_s, record.client, record.object), (893_971_817, 34600, 7));
        assert_eq!((record.bytes, record.is_read), (Some(24736), true));
        let mut without = FIRST;
        without[12..16].fill(0xff);
        without[17] = NOT_MODIFIED;
        assert_eq!(parse(&without).map(|record| (record.bytes, record.is_read)), Some((None, true)));
    }

    #[test]
    fn values_that_do_not_exist_are_told() {
        for (at, value) in [(16, 9), (17, 38), (18, 13)] {
            let mut record = FIRST;
            record[at] = value;
            assert_eq!(parse(&record), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(record in proptest::array::uniform20(any::<u8>())) {
            let _ = parse(&record);
        }
    }
}
