//! The names of file servers and of clients: 128 bits that stay when addresses change.

use std::fmt;
use std::str::FromStr;

use weft_rx::{Decoder, Encoder, XdrError};

use crate::wire::Xdr;

/// A UUID of 16 bytes in the order of its text. On the wire it has eleven words, for each small part takes one
/// (OpenAFS `src/rx/xdr_afsuuid.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The first 32 bits. Where a site of a volume is known by address and not by UUID, this is the IPv4 address.
    #[must_use]
    pub const fn time_low(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Xdr for Uuid {
    fn encode(&self, to: &mut Encoder) {
        let [_, _, _, _, mid_high, mid_low, hi_high, hi_low, chars @ ..] = self.0;
        to.u32(self.time_low());
        to.u32(u16::from_be_bytes([mid_high, mid_low]).into()).u32(u16::from_be_bytes([hi_high, hi_low]).into());
        for byte in chars {
            to.char(byte);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Uuid, XdrError> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&from.u32()?.to_be_bytes());
        for at in [4, 6] {
            let [_, _, high, low] = from.u32()?.to_be_bytes();
            bytes[at..at + 2].copy_from_slice(&[high, low]);
        }
        for byte in &mut bytes[8..] {
            *byte = from.char()?;
        }
        Ok(Uuid(bytes))
    }
}

/// Why some text is not a [`Uuid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a UUID has 32 hexadecimal digits, with dashes between groups of them")]
pub struct BadUuid;

impl FromStr for Uuid {
    type Err = BadUuid;

    /// Dashes may be anywhere: OpenAFS writes one more than others do.
    fn from_str(text: &str) -> Result<Uuid, BadUuid> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let mut bytes = [0; 16];
        if digits.len() != 2 * bytes.len() {
            return Err(BadUuid);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = value(pair[0]).ok_or(BadUuid)? << 4 | value(pair[1]).ok_or(BadUuid)?;
        }
        Ok(Uuid(bytes))
    }
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12 (RFC 9562).
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode_whole, encode_whole};

    #[test]
    fn each_small_part_of_a_uuid_takes_a_word() {
        let uuid = Uuid([0x80, 0x91, 0xa2, 0xb3, 0xc4, 0xd5, 0xe6, 0xf7, 0x08, 0x99, 1, 2, 3, 4, 5, 0xff]);
        let bytes = encode_whole(&uuid).expect("no bounds");
        let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four"))).collect();
        assert_eq!(words, [0x8091_a2b3, 0xc4d5, 0xe6f7, 8, 0xffff_ff99, 1, 2, 3, 4, 5, 0xffff_ffff]);
        assert_eq!(decode_whole(&bytes), Ok(uuid));
        assert_eq!(uuid.to_string(), "8091a2b3-c4d5-e6f7-0899-0102030405ff");
        assert_eq!(uuid.time_low(), 0x8091_a2b3);
    }

    #[test]
    fn what_extends_a_small_part_is_not_looked_at() {
        // Servers extend chars by their sign or by zeroes; a short may come with anything above it.
        let mut bytes = encode_whole(&Uuid([0xff; 16])).expect("no bounds");
        bytes.chunks_mut(4).skip(1).for_each(|word| word[..2].fill(0));
        assert_eq!(decode_whole(&bytes), Ok(Uuid([0xff; 16])));
    }

    #[test]
    fn the_text_of_a_uuid_leads_back_to_it() {
        let uuid = Uuid([0x80, 0x91, 0xa2, 0xb3, 0xc4, 0xd5, 0xe6, 0xf7, 0x08, 0x99, 1, 2, 3, 4, 5, 0xff]);
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
        assert_eq!("8091A2B3-c4d5-e6f7-08-99-0102030405ff".parse(), Ok(uuid));
        for text in ["", "80", "8091a2b3c4d5e6f708990102030405f", "8091a2b3c4d5e6f708990102030405fg", "\u{e5}"] {
            assert_eq!(text.parse::<Uuid>(), Err(BadUuid), "{text}");
        }
    }
}
