//! rxkad, the client's half: a Kerberos ticket proves who calls, fcrypt protects as much as the level says.
//!
//! The server asks (CHALLENGE) while the first requests are under way already; the answer (RESPONSE) carries the ticket
//! and, sealed with the session key, the names of the connection and the numbers of its calls. Every packet of DATA has
//! a checksum of its place; on the levels auth and crypt its data begins with a tag of that place and the data's
//! length. The old form of the challenge, which names no version, is refused: a server sends it only to clients that
//! send no checksums. Source: OpenAFS `src/rxkad/rxkad_client.c`, `rxkad_common.c`, `crypt_conn.c` and `ticket5.c`
//! (`tkt_DeriveDesKey`); draft-kaduk-afs3-rxkad-k5-kdf-00.

use std::sync::Arc;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use md5::Md5;

use crate::security::SecurityError;
use crate::security::fcrypt::{BLOCK_BYTES, Fcrypt, block_of, words, xor};
use crate::wire::{CHANNELS, Header};

/// The security class's number in headers.
pub(crate) const INDEX: u8 = 2;

/// The longest ticket that servers take, in bytes.
const TICKET_BYTES_MAX: usize = 12_000;

/// The shortest session key of which one is derived, in bytes.
const KEY_BYTES_MIN: usize = 16;

/// The first encryption type of Kerberos that is no kind of DES (aes128-cts-hmac-sha1-96, RFC 3962).
const ENCTYPE_MIN: i32 = 17;

/// The version of challenge and response.
const VERSION: u32 = 2;

/// In place of a key's version: the ticket is a whole one of Kerberos 5.
const KERBEROS_5: u32 = 256;

/// Words of the sealed part of a response.
const SEALED_WORDS: usize = 10;

/// Bytes of a sealed packet before its data, on the level auth.
const AUTH_BYTES: usize = 4;

/// Bytes of a sealed packet before its data, on the level crypt.
const CRYPT_BYTES: usize = 8;

/// How much is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Who calls, and the numbers of packets.
    Clear = 0,
    /// The first eight bytes of each packet too.
    Auth = 1,
    /// All data.
    Crypt = 2,
}

/// A ticket for a cell's servers and the key that goes with it. It does not show the key.
#[derive(Clone)]
pub struct Rxkad {
    key: [u8; BLOCK_BYTES],
    ticket: Arc<[u8]>,
    level: Level,
}

impl Rxkad {
    /// What Kerberos gave: the session key with its encryption type (the numbers of RFC 3961 and its successors), and
    /// the ticket as DER.
    ///
    /// # Errors
    /// `WeakKey` for any kind of DES, and for a key of less than 16 bytes; `TicketTooLong` for more than 12,000 bytes.
    pub fn new(enctype: i32, session_key: &[u8], ticket: &[u8], level: Level) -> Result<Rxkad, SecurityError> {
        if enctype < ENCTYPE_MIN || session_key.len() < KEY_BYTES_MIN {
            return Err(SecurityError::WeakKey);
        }
        if ticket.len() > TICKET_BYTES_MAX {
            return Err(SecurityError::TicketTooLong);
        }
        let key = derive(session_key).ok_or(SecurityError::WeakKey)?;
        Ok(Rxkad { key, ticket: ticket.into(), level })
    }

    /// How much is protected.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }
}

impl std::fmt::Debug for Rxkad {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Rxkad").field("level", &self.level).finish_non_exhaustive()
    }
}

/// rxkad on one connection.
#[derive(Clone, Debug)]
pub(crate) struct Kad {
    token: Rxkad,
    cipher: Fcrypt,
    epoch: u32,
    cid: u32,
    /// What makes the checksums of this connection its own.
    origin: [u32; 2],
}

impl Kad {
    pub(crate) fn new(token: &Rxkad, epoch: u32, cid: u32) -> Kad {
        let cipher = Fcrypt::new(token.key);
        let mut names = [0; 2 * BLOCK_BYTES];
        for (to, word) in names.as_chunks_mut::<4>().0.iter_mut().zip([epoch, cid, 0, INDEX.into()]) {
            *to = word.to_be_bytes();
        }
        cipher.encrypt_chain(&mut names);
        Kad { origin: words(&names.as_chunks().0[1]), token: token.clone(), cipher, epoch, cid }
    }

    /// The most data that fits into so many bytes of a packet.
    pub(crate) fn data_bytes_max(&self, payload_bytes: usize) -> usize {
        match self.token.level {
            Level::Clear => payload_bytes,
            Level::Auth => payload_bytes.saturating_sub(AUTH_BYTES),
            Level::Crypt => (payload_bytes / BLOCK_BYTES * BLOCK_BYTES).saturating_sub(CRYPT_BYTES),
        }
    }

    /// The header with its checksum, and the payload.
    pub(crate) fn seal(&self, header: Header, data: &[u8]) -> (Header, Vec<u8>) {
        let header = Header { checksum: self.checksum(&header), ..header };
        let tag = tag(&header) | data.len() as u32;
        let mut payload = Vec::with_capacity(data.len() + 2 * BLOCK_BYTES);
        match self.token.level {
            Level::Clear => payload.extend_from_slice(data),
            Level::Auth => {
                payload.extend_from_slice(&tag.to_be_bytes());
                payload.extend_from_slice(data);
                payload.resize(payload.len().max(BLOCK_BYTES), 0);
                if let Some(first) = payload.first_chunk_mut() {
                    *first = block_of(self.cipher.encrypt(words(first)));
                }
            }
            Level::Crypt => {
                payload.extend_from_slice(&tag.to_be_bytes());
                payload.extend_from_slice(&[0; CRYPT_BYTES - AUTH_BYTES]);
                payload.extend_from_slice(data);
                payload.resize(payload.len().next_multiple_of(BLOCK_BYTES), 0);
                self.cipher.encrypt_chain(&mut payload);
            }
        }
        (header, payload)
    }

    /// The data of a packet; `None` if it is not what the server sealed for this place.
    pub(crate) fn open(&self, header: &Header, payload: &[u8]) -> Option<Bytes> {
        if header.checksum != self.checksum(header) {
            return None;
        }
        let mut payload = payload.to_vec();
        let begin = match self.token.level {
            Level::Clear => return Some(payload.into()),
            Level::Auth => {
                let first = payload.first_chunk_mut()?;
                *first = block_of(self.cipher.decrypt(words(first)));
                AUTH_BYTES
            }
            Level::Crypt if payload.len().is_multiple_of(BLOCK_BYTES) => {
                self.cipher.decrypt_chain(&mut payload);
                CRYPT_BYTES
            }
            Level::Crypt => return None,
        };
        let length = u32::from_be_bytes(*payload.first_chunk()?).checked_sub(tag(header))?;
        let length = usize::from(u16::try_from(length).ok()?);
        let payload = Bytes::from(payload);
        let end = begin + length;
        (end <= payload.len()).then(|| payload.slice(begin..end))
    }

    /// The payload of the answer to a challenge.
    pub(crate) fn respond(&self, challenge: &[u8], calls: [u32; CHANNELS]) -> Result<Vec<u8>, SecurityError> {
        let word = |at: usize| Some(u32::from_be_bytes(*challenge.get(at..)?.first_chunk()?));
        let (Some(VERSION), Some(nonce), Some(level), Some(_)) = (word(0), word(4), word(8), word(12)) else {
            return Err(SecurityError::Unexpected);
        };
        if level > self.token.level as u32 {
            return Err(SecurityError::LevelRefused);
        }
        let index = u32::from(INDEX);
        let [a, b, c, d] = calls;
        let nonce = nonce.wrapping_add(1);
        let mut sealed = [self.epoch, self.cid, 0, index, a, b, c, d, nonce, self.token.level as u32];
        sealed[2] = response_checksum(&self.response(&sealed));
        let mut response = self.response(&sealed);
        self.cipher.encrypt_chain(&mut response[8..8 + 4 * SEALED_WORDS]);
        response.extend_from_slice(&self.token.ticket);
        Ok(response)
    }

    /// A response before anything of it is sealed, without the ticket.
    fn response(&self, sealed: &[u32; SEALED_WORDS]) -> Vec<u8> {
        let ticket_bytes = self.token.ticket.len() as u32;
        let words = [VERSION, 0].into_iter().chain(*sealed).chain([KERBEROS_5, ticket_bytes]);
        words.flat_map(u32::to_be_bytes).collect()
    }

    /// The checksum in the header of a packet of DATA: of its call, its channel and its number.
    fn checksum(&self, header: &Header) -> u16 {
        let place = [header.call, ((header.channel() as u32) << 30) | (header.seq & 0x3fff_ffff)];
        let [_, low] = self.cipher.encrypt(xor(place, self.origin));
        // 0 means that there is none.
        ((low >> 16) as u16).max(1)
    }
}

/// The upper half of the word that sealed data begins with; the lower is the data's length.
fn tag(header: &Header) -> u32 {
    (header.seq ^ header.call) << 16
}

/// Of a response with 0 in the checksum's place.
fn response_checksum(response: &[u8]) -> u32 {
    response.iter().fold(1_000_003, |sum: u32, byte| sum.wrapping_mul(0x1020_4081).wrapping_add(u32::from(*byte)))
}

/// The key of rxkad from one of Kerberos; `None` if none of the 255 that can be derived is a good one.
fn derive(session_key: &[u8]) -> Option<[u8; BLOCK_BYTES]> {
    (1..=u8::MAX).find_map(|round| {
        let key = odd(derive_round(session_key, round)?);
        (!WEAK_KEYS.contains(&u64::from_be_bytes(key))).then_some(key)
    })
}

fn derive_round(session_key: &[u8], round: u8) -> Option<[u8; BLOCK_BYTES]> {
    let mut mac = Hmac::<Md5>::new_from_slice(session_key).ok()?;
    mac.update(&[round]);
    mac.update(b"rxkad\0");
    // The length of the key in bits.
    mac.update(&64_u32.to_be_bytes());
    mac.finalize().into_bytes().first_chunk().copied()
}

/// With an odd number of bits in each byte.
fn odd(key: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
    key.map(|byte| (byte & 0xfe) | u8::from((byte >> 1).count_ones().is_multiple_of(2)))
}

/// The weak and the half weak keys of DES (FIPS 74, 3.6).
const WEAK_KEYS: [u64; 16] = [
    0x0101_0101_0101_0101,
    0xfefe_fefe_fefe_fefe,
    0x1f1f_1f1f_0e0e_0e0e,
    0xe0e0_e0e0_f1f1_f1f1,
    0x01fe_01fe_01fe_01fe,
    0xfe01_fe01_fe01_fe01,
    0x1fe0_1fe0_0ef1_0ef1,
    0xe01f_e01f_f10e_f10e,
    0x01e0_01e0_01f1_01f1,
    0xe001_e001_f101_f101,
    0x1ffe_1ffe_0efe_0efe,
    0xfe1f_fe1f_fe0e_fe0e,
    0x011f_011f_010e_010e,
    0x1f01_1f01_0e01_0e01,
    0xe0fe_e0fe_f1fe_f1fe,
    0xfee0_fee0_fef1_fef1,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::unhex;
    use crate::wire::{PacketType, flag};

    /// The connection of the golden vectors.
    fn kad(level: Level) -> Kad {
        let key = unhex("0123456789abcdef").try_into().expect("eight bytes");
        let token = Rxkad { key, ticket: [1, 2, 3, 4].into(), level };
        Kad::new(&token, 0x8000_0001, 0x1234_5670)
    }

    fn header(call: u32, channel: u32, seq: u32) -> Header {
        Header {
            epoch: 0x8000_0001,
            cid: 0x1234_5670 | channel,
            call,
            seq,
            serial: 1,
            kind: PacketType::Data,
            flags: flag::CLIENT_INITIATED,
            user_status: 0,
            security: INDEX,
            checksum: 0,
            service: 1,
        }
    }

    fn data() -> Vec<u8> {
        [&unhex("00000084")[..], b"ABCDEFGH"].concat()
    }

    #[test]
    fn checksums_of_packets_are_those_of_others() {
        let kad = kad(Level::Clear);
        assert_eq!(block_of(kad.origin).to_vec(), unhex("56ce9a8c1ecfd04c"));
        let golden = [((1, 0, 1), 0x9e6c), ((1, 0, 2), 0x384a), ((1, 3, 1), 0x154c), ((7, 2, 300), 0x4215)];
        for ((call, channel, seq), checksum) in golden {
            assert_eq!(kad.checksum(&header(call, channel, seq)), checksum, "{call} {channel} {seq}");
        }
    }

    #[test]
    fn a_challenge_is_answered_as_others_answer_it() {
        let kad = kad(Level::Crypt);
        let challenge = unhex("00000002 01020304 00000000 00000000");
        let response = kad.respond(&challenge, [1, 0, 0, 0]).expect("a challenge");
        let golden = "0000000200000000 f4cd4c89cf89c18e 8f083225f688d12e c961f0516754fb69\
            90e4cac185c975a7 ce672046cfcd6645 0000010000000004 01020304";
        assert_eq!(response, unhex(golden));
        let plain = [0x8000_0001, 0x1234_5670, 0, 2, 1, 0, 0, 0, 0x0102_0305, 2];
        assert_eq!(response_checksum(&kad.response(&plain)), 0x773d_0b67);
    }

    #[test]
    fn a_challenge_that_asks_too_much_or_too_little_is_refused() {
        let challenge = |words: [u32; 4]| words.into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>();
        let answer = |level, bytes: &[u8]| kad(level).respond(bytes, [0; 4]).map(|response| response.len());
        assert_eq!(answer(Level::Auth, &challenge([2, 7, 2, 0])), Err(SecurityError::LevelRefused));
        assert_eq!(answer(Level::Auth, &challenge([2, u32::MAX, 1, 0])), Ok(60));
        for version in [0, 1, 3, u32::MAX] {
            assert_eq!(answer(Level::Crypt, &challenge([version, 7, 0, 0])), Err(SecurityError::Unexpected));
        }
        let whole = challenge([2, 7, 0, 0]);
        for length in 0..whole.len() {
            assert_eq!(answer(Level::Crypt, &whole[..length]), Err(SecurityError::Unexpected), "cut at {length}");
        }
    }

    #[test]
    fn data_is_sealed_as_others_seal_it() {
        let golden = [
            (Level::Clear, "000000844142434445464748"),
            (Level::Auth, "c97639276c17cc034142434445464748"),
            (Level::Crypt, "66734f0484dc5a267909bba64eeaecb7797c2c8f4591bf10"),
        ];
        for (level, sealed) in golden {
            let (header, payload) = kad(level).seal(header(1, 0, 1), &data());
            assert_eq!((header.checksum, &payload), (0x9e6c, &unhex(sealed)), "{level:?}");
            assert_eq!(kad(level).open(&header, &payload).as_deref(), Some(&data()[..]), "{level:?}");
        }
    }

    #[test]
    fn data_of_any_length_fits_and_comes_back() {
        for level in [Level::Clear, Level::Auth, Level::Crypt] {
            let kad = kad(level);
            let most = kad.data_bytes_max(1412);
            assert_eq!(most, [1412, 1408, 1400][level as usize]);
            for length in (0..40).chain(most - 9..=most) {
                let data: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
                let (header, payload) = kad.seal(header(3, 1, 70_000), &data);
                assert!(payload.len() <= 1412, "{level:?} {length}");
                assert_eq!(kad.open(&header, &payload).as_deref(), Some(&data[..]), "{level:?} {length}");
            }
        }
    }

    #[test]
    fn data_of_another_place_or_cut_or_changed_is_not_opened() {
        for level in [Level::Auth, Level::Crypt] {
            let kad = kad(level);
            let (sealed, payload) = kad.seal(header(1, 0, 1), &data());
            for wrong in [header(1, 0, 2), header(2, 0, 1), header(1, 1, 1)] {
                assert_eq!(kad.open(&Header { checksum: sealed.checksum, ..wrong }, &payload), None);
                // With the right checksum the tag tells, but for the channel, which it does not have.
                let checksum = kad.checksum(&wrong);
                let opened = kad.open(&Header { checksum, ..wrong }, &payload);
                assert_eq!(opened.is_some(), wrong.channel() == 1, "{level:?} {wrong:?}");
            }
            for length in 0..payload.len() {
                let opened = kad.open(&sealed, &payload[..length]);
                assert!(opened.is_none_or(|opened| opened.len() <= length), "{level:?} cut at {length}");
            }
            for bit in 0..64 {
                let mut changed = payload.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(kad.open(&sealed, &changed).as_deref(), Some(&data()[..]), "{level:?} bit {bit}");
            }
        }
    }

    #[test]
    fn a_key_is_derived_as_others_derive_it() {
        let session_key: Vec<u8> = (0..32).collect();
        assert_eq!(derive_round(&session_key, 1).expect("any length").to_vec(), unhex("b70db5e30b276b16"));
        let token = Rxkad::new(18, &session_key, b"ticket", Level::Crypt).expect("a good key");
        assert_eq!(token.key.to_vec(), unhex("b60db5e30b266b16"));
        assert_eq!(format!("{token:?}"), "Rxkad { level: Crypt, .. }");
        let weak = |enctype, key: &[u8]| Rxkad::new(enctype, key, b"", Level::Crypt).map(|_| ());
        assert_eq!(weak(1, &[1; 8]), Err(SecurityError::WeakKey));
        assert_eq!(weak(16, &[1; 24]), Err(SecurityError::WeakKey));
        assert_eq!(weak(17, &[1; 15]), Err(SecurityError::WeakKey));
        let long = Rxkad::new(18, &session_key, &[0; 12_001], Level::Crypt).map(|_| ());
        assert_eq!(long, Err(SecurityError::TicketTooLong));
    }

    #[test]
    fn weak_keys_are_such_that_can_be_derived() {
        // Goal: a key of the list that has the wrong parity would never be found.
        for key in WEAK_KEYS.map(u64::to_be_bytes) {
            assert_eq!(odd(key), key);
        }
    }
}
