//! What every message is held to in the tests.

use std::fmt::Debug;

use super::{Call, Xdr, decode_whole, encode_whole};

/// Checks that a message is read as it was written, that no shorter and no longer one is read, and that a length of any
/// kind in place of any word is borne. Returns its bytes.
pub(crate) fn check<T: Xdr + PartialEq + Debug>(message: &T) -> Vec<u8> {
    let bytes = encode_whole(message).expect("within its bounds");
    assert_eq!(decode_whole::<T>(&bytes).as_ref(), Ok(message));
    for length in 0..bytes.len() {
        assert!(decode_whole::<T>(&bytes[..length]).is_err(), "cut at {length} of {}: {message:?}", bytes.len());
    }
    assert!(decode_whole::<T>(&[&bytes[..], &[0]].concat()).is_err(), "a byte follows: {message:?}");
    for at in (0..bytes.len()).step_by(4) {
        for word in [0, 1, 2, 13, 14, 50, 51, 196, 197, 256, 257, 500, 501, 1024, 1025, 1 << 31, u32::MAX - 3, u32::MAX]
        {
            let mut wrong = bytes.clone();
            wrong[at..at + 4].copy_from_slice(&word.to_be_bytes());
            // What is still a message is one that can be written again.
            if let Ok(other) = decode_whole::<T>(&wrong) {
                assert!(encode_whole(&other).is_ok(), "{word} at {at}: {other:?}");
            }
        }
    }
    bytes
}

/// Checks a call and its reply, and returns the request in hexadecimal digits.
pub(crate) fn check_call<C: Call + PartialEq + Debug>(call: &C, reply: &C::Reply) -> String
where
    C::Reply: PartialEq + Debug,
{
    let arguments = check(call);
    check(reply);
    let request = call.request().expect("within its bounds");
    assert_eq!(request, [&C::OPCODE.to_be_bytes()[..], &arguments].concat());
    hex(&request)
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
