//! XDR (RFC 4506) as AFS has it: big-endian words, and nothing without a maximum.
//!
//! Padding follows the length of the item, not the place in the message: after bulk data, which AFS does not pad, the
//! next item begins wherever the data ended. An encoder keeps its first error until `finish`, so that a message is
//! written in one chain and checked once. A decoder borrows what came; the only thing it allocates are the elements of
//! an array, each of which took at least a word of what came.

/// The size of the unit of XDR, in bytes.
const WORD_BYTES: usize = 4;

/// Why a message cannot be written or read. Trying again does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The message ends inside an item.
    #[error("at byte {offset}: {needed} bytes are needed, {left} are left")]
    Short {
        /// Where the item begins, in bytes from the start of the message.
        offset: usize,
        /// Bytes the item has, padding included.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// An opaque, a string or an array has more bytes or elements than it may.
    #[error("at byte {offset}: a length of {length}, where {max} is the most")]
    TooLong {
        /// Where the length is, in bytes from the start of the message.
        offset: usize,
        /// The length, in bytes or elements.
        length: usize,
        /// The maximum, in the same unit.
        max: usize,
    },
    /// Something follows where the message should end.
    #[error("at byte {offset}: the message ends, and {left} bytes follow")]
    Trailing {
        /// Where the message ends, in bytes from its start.
        offset: usize,
        /// Bytes that follow.
        left: usize,
    },
    /// A value that the message's type does not have.
    #[error("at byte {offset}: {why}")]
    Invalid {
        /// The place in the message, in bytes from its start.
        offset: usize,
        /// What is wrong.
        why: &'static str,
    },
}

/// Writes a message.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    out: Vec<u8>,
    failed: Option<XdrError>,
}

impl Encoder {
    /// An empty message.
    #[must_use]
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Appends to what there is; offsets in errors count from its start.
    #[must_use]
    pub fn over(out: Vec<u8>) -> Encoder {
        Encoder { out, failed: None }
    }

    /// One word.
    pub fn u32(&mut self, value: u32) -> &mut Encoder {
        self.raw(&value.to_be_bytes())
    }

    /// One word.
    pub fn i32(&mut self, value: i32) -> &mut Encoder {
        self.raw(&value.to_be_bytes())
    }

    /// Two words, the high one first.
    pub fn u64(&mut self, value: u64) -> &mut Encoder {
        self.raw(&value.to_be_bytes())
    }

    /// Two words, the high one first.
    pub fn i64(&mut self, value: i64) -> &mut Encoder {
        self.raw(&value.to_be_bytes())
    }

    /// A `char` of C: one word, the sign extended, as OpenAFS sends it (`src/rx/xdr.c`).
    pub fn char(&mut self, value: u8) -> &mut Encoder {
        self.i32(i32::from(value.cast_signed()))
    }

    /// Bytes of variable length, at most `max`: the length, the bytes, zeroes up to a word.
    pub fn opaque(&mut self, bytes: &[u8], max: usize) -> &mut Encoder {
        if !self.length(bytes.len(), max) {
            return self;
        }
        self.fixed_opaque(bytes)
    }

    /// A string of at most `max` bytes, in whatever character set: as an opaque.
    pub fn string(&mut self, bytes: &[u8], max: usize) -> &mut Encoder {
        self.opaque(bytes, max)
    }

    /// Bytes whose number both sides know: the bytes, zeroes up to a word.
    pub fn fixed_opaque(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.raw(bytes).raw(&[0; WORD_BYTES][..padding(bytes.len())])
    }

    /// Elements of variable number, at most `max`: their number, then each.
    pub fn array<T>(&mut self, items: &[T], max: usize, mut write: impl FnMut(&mut Encoder, &T)) -> &mut Encoder {
        if self.length(items.len(), max) {
            items.iter().for_each(|item| write(self, item));
        }
        self
    }

    /// Bytes as they are, without length and padding: bulk data, or what was encoded elsewhere.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Encoder {
        if self.failed.is_none() {
            self.out.extend_from_slice(bytes);
        }
        self
    }

    /// The message.
    ///
    /// # Errors
    /// `TooLong`, for the first item that was longer than its maximum.
    pub fn finish(&mut self) -> Result<Vec<u8>, XdrError> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.out)),
        }
    }

    /// Writes a length, or remembers that it is too great.
    fn length(&mut self, length: usize, max: usize) -> bool {
        match u32::try_from(length) {
            Ok(word) if length <= max => {
                self.u32(word);
                true
            }
            _ => {
                self.failed = self.failed.or(Some(XdrError::TooLong { offset: self.out.len(), length, max }));
                false
            }
        }
    }
}

/// Reads a message. Nothing is believed: each length is compared with its maximum and with what is left.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Decoder<'a> {
    /// Begins at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, offset: 0 }
    }

    /// The place of the next item, in bytes from the start.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// One word.
    ///
    /// # Errors
    /// `Short`.
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.word().map(u32::from_be_bytes)
    }

    /// One word.
    ///
    /// # Errors
    /// `Short`.
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.word().map(i32::from_be_bytes)
    }

    /// Two words, the high one first.
    ///
    /// # Errors
    /// `Short`.
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.two_words().map(u64::from_be_bytes)
    }

    /// Two words, the high one first.
    ///
    /// # Errors
    /// `Short`.
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.two_words().map(i64::from_be_bytes)
    }

    /// A `char` of C: the low byte of a word. The rest is not looked at: servers differ in how they extend it.
    ///
    /// # Errors
    /// `Short`.
    pub fn char(&mut self) -> Result<u8, XdrError> {
        self.word().map(|[.., low]| low)
    }

    /// Bytes of variable length, at most `max`.
    ///
    /// # Errors
    /// `TooLong`, `Short`.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let length = self.length(max)?;
        self.fixed_opaque(length)
    }

    /// A string of at most `max` bytes, in whatever character set: as an opaque.
    ///
    /// # Errors
    /// `TooLong`, `Short`.
    pub fn string(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        self.opaque(max)
    }

    /// Bytes whose number both sides know, and their padding, which is not looked at.
    ///
    /// # Errors
    /// `Short`.
    pub fn fixed_opaque(&mut self, length: usize) -> Result<&'a [u8], XdrError> {
        // A saturated length is longer than any message, and is reported as such.
        let padded = self.raw(length.saturating_add(padding(length)))?;
        Ok(&padded[..length])
    }

    /// Elements of variable number, at most `max`, each read by `read`, which has to take at least one word.
    ///
    /// # Errors
    /// `TooLong`; `Short`, also when that many elements cannot be in what is left; what `read` finds.
    pub fn array<T>(
        &mut self,
        max: usize,
        mut read: impl FnMut(&mut Decoder<'a>) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let offset = self.offset;
        let count = self.length(max)?;
        if count > self.left() / WORD_BYTES {
            let needed = count.saturating_mul(WORD_BYTES);
            return Err(XdrError::Short { offset, needed, left: self.left() });
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// Bytes as they are, without padding.
    ///
    /// # Errors
    /// `Short`.
    pub fn raw(&mut self, length: usize) -> Result<&'a [u8], XdrError> {
        let rest = &self.bytes[self.offset..];
        let Some(taken) = rest.get(..length) else {
            return Err(XdrError::Short { offset: self.offset, needed: length, left: rest.len() });
        };
        self.offset += length;
        Ok(taken)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.offset..];
        self.offset = self.bytes.len();
        rest
    }

    /// The end of the message.
    ///
    /// # Errors
    /// `Trailing`, if something is left.
    pub fn finish(self) -> Result<(), XdrError> {
        match self.left() {
            0 => Ok(()),
            left => Err(XdrError::Trailing { offset: self.offset, left }),
        }
    }

    /// An error that says `why` the item before this place is wrong, for values that a message's type does not have.
    #[must_use]
    pub fn invalid(&self, why: &'static str) -> XdrError {
        XdrError::Invalid { offset: self.offset, why }
    }

    fn word(&mut self) -> Result<[u8; 4], XdrError> {
        self.exact()
    }

    fn two_words(&mut self) -> Result<[u8; 8], XdrError> {
        self.exact()
    }

    fn exact<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (offset, left) = (self.offset, self.left());
        let bytes = self.raw(N)?;
        bytes.try_into().map_err(|_| XdrError::Short { offset, needed: N, left })
    }

    fn length(&mut self, max: usize) -> Result<usize, XdrError> {
        let offset = self.offset;
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > max { Err(XdrError::TooLong { offset, length, max }) } else { Ok(length) }
    }
}

/// Bytes of padding after so many.
fn padding(length: usize) -> usize {
    (WORD_BYTES - length % WORD_BYTES) % WORD_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One of each.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Sample {
        signed: i32,
        long: u64,
        name: Vec<u8>,
        online: u8,
        fids: Vec<(u32, i64)>,
        tail: Vec<u8>,
    }

    const NAME_BYTES_MAX: usize = 20;
    const FIDS_MAX: usize = 5;

    fn encode(sample: &Sample, into: Vec<u8>) -> Result<Vec<u8>, XdrError> {
        Encoder::over(into)
            .i32(sample.signed)
            .u64(sample.long)
            .string(&sample.name, NAME_BYTES_MAX)
            .char(sample.online)
            .array(&sample.fids, FIDS_MAX, |to, (volume, time)| {
                to.u32(*volume).i64(*time);
            })
            .fixed_opaque(&sample.tail[..3])
            .finish()
    }

    fn decode(bytes: &[u8]) -> Result<Sample, XdrError> {
        let mut from = Decoder::new(bytes);
        let sample = Sample {
            signed: from.i32()?,
            long: from.u64()?,
            name: from.string(NAME_BYTES_MAX)?.to_vec(),
            online: from.char()?,
            fids: from.array(FIDS_MAX, |from| Ok((from.u32()?, from.i64()?)))?,
            tail: from.fixed_opaque(3)?.to_vec(),
        };
        from.finish()?;
        Ok(sample)
    }

    fn sample() -> Sample {
        Sample {
            signed: -2,
            long: 0x0102_0304_0506_0708,
            name: b"root.cell".to_vec(),
            online: 0xfe,
            fids: vec![(7, -1), (8, 1 << 40)],
            tail: b"end".to_vec(),
        }
    }

    #[test]
    fn an_item_is_as_rfc_4506_has_it() {
        let bytes = encode(&sample(), Vec::new()).expect("within its bounds");
        let wanted = [
            "fffffffe",
            "0102030405060708",
            "00000009726f6f742e63656c6c000000",
            "fffffffe",
            "00000002",
            "00000007ffffffffffffffff",
            "000000080000010000000000",
            "656e6400",
        ]
        .concat();
        assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), wanted);
        assert_eq!(decode(&bytes), Ok(sample()));
    }

    #[test]
    fn a_message_cut_at_any_byte_is_short() {
        let bytes = encode(&sample(), Vec::new()).expect("within its bounds");
        for length in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..length]), Err(XdrError::Short { .. })), "cut at {length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(decode(&longer), Err(XdrError::Trailing { offset: bytes.len(), left: 1 }));
    }

    #[test]
    fn a_length_is_held_to_its_maximum_and_to_what_came() {
        // Method: both lengths of the sample, each set to the extremes.
        let bytes = encode(&sample(), Vec::new()).expect("within its bounds");
        for (offset, max) in [(12, NAME_BYTES_MAX), (32, FIDS_MAX)] {
            for length in [0, max as u32, max as u32 + 1, 1 << 31, u32::MAX - 3, u32::MAX] {
                let mut wrong = bytes.clone();
                wrong[offset..offset + 4].copy_from_slice(&length.to_be_bytes());
                let error = decode(&wrong).expect_err("no other length fits");
                let here = XdrError::TooLong { offset, length: length as usize, max };
                assert_eq!(error == here, length as usize > max, "{length} at {offset}: {error}");
            }
        }
        // Without a maximum of its own an array is still held to what came, before anything is allocated.
        let mut endless = Decoder::new(&[0xff; 8]);
        let read = endless.array(usize::MAX, |from| from.u32());
        assert_eq!(read, Err(XdrError::Short { offset: 0, needed: 0xffff_ffff * 4, left: 4 }));
    }

    #[test]
    fn what_is_too_long_is_not_written() {
        let mut long = sample();
        long.name = vec![b'x'; NAME_BYTES_MAX + 1];
        let wanted = XdrError::TooLong { offset: 12, length: 21, max: NAME_BYTES_MAX };
        assert_eq!(encode(&long, Vec::new()), Err(wanted));
        long.fids = vec![(0, 0); FIDS_MAX + 1];
        assert_eq!(encode(&long, Vec::new()), Err(wanted), "the first error is the one that is told");
    }

    #[test]
    fn every_byte_is_written_whatever_lay_there() {
        let over = |garbage: u8| {
            let mut room = vec![garbage; 200];
            room.clear();
            encode(&sample(), room)
        };
        assert_eq!(over(0), over(0xff));
    }

    #[test]
    fn bulk_data_moves_what_follows() {
        let bytes = Encoder::new().raw(b"abc").u32(5).finish().expect("no maximum");
        assert_eq!(bytes, b"abc\0\0\0\x05");
        let mut from = Decoder::new(&bytes);
        assert_eq!((from.raw(3), from.u32(), from.rest()), (Ok(&b"abc"[..]), Ok(5), &b""[..]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            signed: i32, long: u64, online: u8,
            name in prop::collection::vec(any::<u8>(), 0..=NAME_BYTES_MAX),
            fids in prop::collection::vec(any::<(u32, i64)>(), 0..=FIDS_MAX),
            tail in prop::collection::vec(any::<u8>(), 3),
        ) {
            let sample = Sample { signed, long, name, online, fids, tail };
            let bytes = encode(&sample, Vec::new()).expect("within its bounds");
            prop_assert_eq!(decode(&bytes), Ok(sample));
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(sample) = decode(&bytes) {
                let again = decode(&encode(&sample, Vec::new()).expect("it was within its bounds"));
                prop_assert_eq!(again, Ok(sample));
            }
        }
    }
}
