//! The calls of the protection database that turn names of users and groups into numbers and back (OpenAFS
//! `src/ptserver/ptint.xg`; Rx service 73, port 7002). Numbers of groups are negative.

use weft_rx::{Decoder, Encoder, XdrError};

use super::{List, Xdr, calls, on_the_wire};

/// The Rx service.
pub const SERVICE: u16 = 73;
/// The port.
pub const PORT: u16 = 7002;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;
/// Most names of one call; servers would take more.
pub const NAMES_MAX: usize = 256;
/// The number of whoever has shown no token, and what a server tells for a name that it does not know.
pub const ANONYMOUS: i32 = 32766;

on_the_wire! {
    /// The numbers of some names; [`ANONYMOUS`] for one that is not known.
    pub struct NameToId {
        /// The names.
        names: List<Principal, NAMES_MAX>,
    }

    /// The names of some numbers; the number in digits for one that is not known.
    pub struct IdToName {
        /// The numbers.
        ids: List<i32, NAMES_MAX>,
    }
}

calls! { SERVICE;
    NameToId = 504 -> List<i32, NAMES_MAX>;
    IdToName = 505 -> List<Principal, NAMES_MAX>;
}

/// The name of a user or a group: 1 to [`NAME_BYTES_MAX`] bytes without NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Vec<u8>);

/// Words of a name on the wire: chars up to a NUL, and zeroes.
const NAME_WORDS: usize = NAME_BYTES_MAX + 1;

impl Principal {
    /// Checks a name; `None` if nobody can have it.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Principal> {
        let fits = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX && !bytes.contains(&0);
        fits.then(|| Principal(bytes.to_vec()))
    }

    /// The name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Xdr for Principal {
    fn encode(&self, to: &mut Encoder) {
        for at in 0..NAME_WORDS {
            to.char(self.0.get(at).copied().unwrap_or(0));
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Principal, XdrError> {
        let mut name = [0; NAME_WORDS];
        for byte in &mut name {
            *byte = from.char()?;
        }
        let end = name.iter().position(|byte| *byte == 0).ok_or_else(|| from.invalid("a name without an end"))?;
        Principal::new(&name[..end]).ok_or_else(|| from.invalid("an empty name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::check_call;
    use crate::wire::{Call, decode_whole, encode_whole};

    fn principal(name: &str) -> Principal {
        Principal::new(name.as_bytes()).expect("a name")
    }

    #[test]
    fn names_become_numbers_and_back() {
        let names = || List(vec![principal("system:anyuser"), principal("anna")]);
        let ids = || List(vec![-101, 1001]);
        let request = check_call(&NameToId { names: names() }, &ids());
        assert!(request.starts_with("000001f800000002000000730000007900000073"));
        assert_eq!(request.len(), (2 + 2 * 64) * 8);
        assert_eq!(check_call(&IdToName { ids: ids() }, &names()), "000001f900000002ffffff9b000003e9");
    }

    #[test]
    fn names_that_nobody_has_are_refused() {
        assert_eq!(Principal::new(b""), None);
        assert_eq!(Principal::new(b"a\0b"), None);
        assert_eq!(Principal::new(&[b'a'; 64]), None);
        let longest = Principal::new(&[0xe5; 63]).expect("63 bytes");
        let bytes = encode_whole(&longest).expect("no bounds");
        assert_eq!(&bytes[..4], &[0xff, 0xff, 0xff, 0xe5], "the sign is extended");
        assert_eq!(decode_whole(&bytes), Ok(longest));
        assert!(matches!(decode_whole::<Principal>(&[0; 256]), Err(XdrError::Invalid { .. })));
        assert!(matches!(decode_whole::<Principal>(&[1; 256]), Err(XdrError::Invalid { .. })));
    }

    #[test]
    fn no_more_are_asked_for_than_the_call_has() {
        let too_many = IdToName { ids: List(vec![1; NAMES_MAX + 1]) };
        assert!(matches!(too_many.request(), Err(XdrError::TooLong { max: NAMES_MAX, .. })));
        let told = encode_whole(&List::<i32, 1000>(vec![1; NAMES_MAX + 1])).expect("within its bounds");
        assert!(matches!(NameToId::reply(&told), Err(XdrError::TooLong { max: NAMES_MAX, .. })));
    }
}
