//! The calls that file servers make on a client (OpenAFS `src/fsint/afscbint.xg`; Rx service 1 on the socket from which
//! the client speaks).
//!
//! Before a server answers the first call of a client, it asks who that is ([`Request::AboutYou`], then
//! [`Request::ForgetAll`]): a client that does not answer gets nothing. The UUID in the answer is the client's name
//! over all its addresses and starts; two that have the same take each other's callbacks away. A call that we do not
//! have is aborted with -455, on which servers fall back to an older one; among these is 211, a call of a test
//! version that OpenAFS refuses likewise.

use std::net::Ipv4Addr;

use weft_rx::{Decoder, Encoder, XdrError};

use super::status::{Fids, Promises};
use super::{Xdr, encode_whole};
use crate::uuid::Uuid;

/// The Rx service.
pub const SERVICE: u16 = 1;
/// Most addresses that a client tells of.
pub const INTERFACES_MAX: usize = 32;

/// Abort: there is no such call here.
pub const ABORT_UNKNOWN_CALL: i32 = -455;
/// Abort: the arguments cannot be read.
pub const ABORT_BAD_ARGUMENTS: i32 = -453;
/// Abort: the UUID that was probed is another's.
pub const ABORT_OTHER_UUID: i32 = 1;

/// What a server wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// These changed: their promises are broken.
    Break {
        /// Which. Vnode 0 is the whole volume; volume 0 is nothing.
        fids: Fids,
        /// What is left of their promises; may be empty.
        promises: Promises,
    },
    /// All promises of that server are gone.
    ForgetAll {
        /// The server, from those that tell.
        server: Option<Uuid>,
    },
    /// Are you there?
    Probe,
    /// Are you there, and this one?
    ProbeUuid(Uuid),
    /// What are your addresses?
    WhoAreYou,
    /// What are your addresses, and what can you do?
    AboutYou,
    /// A call that we do not have.
    Unknown {
        /// Its number.
        opcode: u32,
    },
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its name, kept with the cache.
    pub uuid: Uuid,
    /// Its addresses, at most [`INTERFACES_MAX`]; servers do not need any.
    pub interfaces: Vec<Interface>,
}

/// One of a client's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The address.
    pub address: Ipv4Addr,
    /// The mask of its network.
    pub mask: Ipv4Addr,
    /// The largest packet, in bytes.
    pub mtu: u32,
}

/// How a call is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With these results, which may be no bytes at all.
    Results(Vec<u8>),
    /// With an abort.
    Abort(i32),
}

const BREAK: u32 = 204;
const FORGET_ALL: u32 = 205;
const PROBE: u32 = 206;
const WHO_ARE_YOU: u32 = 212;
const FORGET_ALL_OF: u32 = 213;
const PROBE_UUID: u32 = 214;
const ABOUT_YOU: u32 = 65538;
/// What we can do: we read codes of the universal table, so that servers need not send their system's own.
const CAPABILITIES: &[u32] = &[1];

impl Request {
    /// Reads a whole request. One that is not known is read whatever its arguments are.
    ///
    /// # Errors
    /// Whatever of [`XdrError`] the bytes deserve; the call is then to be aborted with [`ABORT_BAD_ARGUMENTS`].
    pub fn read(bytes: &[u8]) -> Result<Request, XdrError> {
        let mut from = Decoder::new(bytes);
        let request = match from.u32()? {
            BREAK => Request::Break { fids: Fids::decode(&mut from)?, promises: Promises::decode(&mut from)? },
            FORGET_ALL => Request::ForgetAll { server: None },
            FORGET_ALL_OF => Request::ForgetAll { server: Some(Uuid::decode(&mut from)?) },
            PROBE => Request::Probe,
            PROBE_UUID => Request::ProbeUuid(Uuid::decode(&mut from)?),
            WHO_ARE_YOU => Request::WhoAreYou,
            ABOUT_YOU => Request::AboutYou,
            opcode => return Ok(Request::Unknown { opcode }),
        };
        from.finish()?;
        Ok(request)
    }

    /// How `client` answers. What the request tells is to be taken in before the answer is sent.
    #[must_use]
    pub fn answer(&self, client: &Client) -> Answer {
        match self {
            Request::Break { .. } | Request::ForgetAll { .. } | Request::Probe => Answer::Results(Vec::new()),
            Request::ProbeUuid(uuid) if *uuid == client.uuid => Answer::Results(Vec::new()),
            Request::ProbeUuid(_) => Answer::Abort(ABORT_OTHER_UUID),
            Request::WhoAreYou => Answer::of(encode_whole(client)),
            Request::AboutYou => {
                let mut to = Encoder::new();
                client.encode(&mut to);
                to.array(CAPABILITIES, CAPABILITIES.len(), |to, word| word.encode(to));
                Answer::of(to.finish())
            }
            Request::Unknown { .. } => Answer::Abort(ABORT_UNKNOWN_CALL),
        }
    }
}

impl Answer {
    fn of(results: Result<Vec<u8>, XdrError>) -> Answer {
        results.map_or(Answer::Abort(ABORT_UNKNOWN_CALL), Answer::Results)
    }
}

/// `interfaceAddr`, 108 words: the number of addresses, the UUID, and 32 places each for addresses, masks and sizes.
/// What has no place is not told.
impl Xdr for Client {
    fn encode(&self, to: &mut Encoder) {
        let told = &self.interfaces[..self.interfaces.len().min(INTERFACES_MAX)];
        self.uuid.encode(to.u32(told.len() as u32));
        let columns: [fn(&Interface) -> u32; 3] =
            [|one| one.address.to_bits(), |one| one.mask.to_bits(), |one| one.mtu];
        for column in columns {
            for at in 0..INTERFACES_MAX {
                to.u32(told.get(at).map_or(0, column));
            }
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Client, XdrError> {
        let told = usize::try_from(from.u32()?).unwrap_or(usize::MAX);
        if told > INTERFACES_MAX {
            return Err(from.invalid("more addresses than a client can tell of"));
        }
        let uuid = Uuid::decode(from)?;
        let mut columns = [[0; INTERFACES_MAX]; 3];
        for word in columns.as_flattened_mut() {
            *word = from.u32()?;
        }
        let [addresses, masks, mtus] = columns;
        let interface = |at: usize| Interface {
            address: Ipv4Addr::from_bits(addresses[at]),
            mask: Ipv4Addr::from_bits(masks[at]),
            mtu: mtus[at],
        };
        Ok(Client { uuid, interfaces: (0..told).map(interface).collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fid::{Fid, VolumeId};
    use crate::wire::List;
    use crate::wire::check::check;
    use crate::wire::status::FIDS_MAX;
    use crate::wire::status::tests::promise;

    const UUID: Uuid = Uuid([0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    fn client() -> Client {
        let address = |last: u8| Interface {
            address: Ipv4Addr::new(192, 0, 2, last),
            mask: Ipv4Addr::new(255, 255, 255, 0),
            mtu: 1500,
        };
        Client { uuid: UUID, interfaces: vec![address(1), address(2)] }
    }

    fn request(opcode: u32, arguments: &[&dyn Fn(&mut Encoder)]) -> Vec<u8> {
        let mut to = Encoder::new();
        to.u32(opcode);
        arguments.iter().for_each(|write| write(&mut to));
        to.finish().expect("within its bounds")
    }

    #[test]
    fn each_call_is_read_and_answered() {
        let uuid = |to: &mut Encoder| UUID.encode(to);
        let empty = Answer::Results(Vec::new());
        let cases: [(Vec<u8>, Request, Answer); 7] = [
            (request(205, &[]), Request::ForgetAll { server: None }, empty.clone()),
            (request(206, &[]), Request::Probe, empty.clone()),
            (request(213, &[&uuid]), Request::ForgetAll { server: Some(UUID) }, empty.clone()),
            (request(214, &[&uuid]), Request::ProbeUuid(UUID), empty),
            (request(211, &[]), Request::Unknown { opcode: 211 }, Answer::Abort(-455)),
            (request(65536, &[&uuid]), Request::Unknown { opcode: 65536 }, Answer::Abort(-455)),
            (request(u32::MAX, &[]), Request::Unknown { opcode: u32::MAX }, Answer::Abort(-455)),
        ];
        for (bytes, wanted, answer) in cases {
            let read = Request::read(&bytes);
            assert_eq!(read.as_ref(), Ok(&wanted));
            assert_eq!(wanted.answer(&client()), answer);
        }
        let other = Uuid([0; 16]);
        assert_eq!(Request::ProbeUuid(other).answer(&client()), Answer::Abort(1));
    }

    #[test]
    fn a_client_tells_who_it_is() {
        let bytes = check(&client());
        assert_eq!(bytes.len(), 108 * 4);
        let who = Request::read(&request(212, &[])).map(|request| request.answer(&client()));
        assert_eq!(who, Ok(Answer::Results(bytes.clone())));
        let about = Request::read(&request(65538, &[])).map(|request| request.answer(&client()));
        assert_eq!(
            about,
            Ok(Answer::Results([&bytes[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat())),
            "errors are translated"
        );
        check(&Client { uuid: UUID, interfaces: Vec::new() });
        let many = Client { uuid: UUID, interfaces: vec![client().interfaces[0]; INTERFACES_MAX + 1] };
        let told = encode_whole(&many).expect("only those that have a place");
        assert_eq!((told.len(), told[3]), (108 * 4, INTERFACES_MAX as u8));
    }

    #[test]
    fn breaks_are_read() {
        let fid = |vnode| Fid { volume: VolumeId(7), vnode, unique: 9 };
        for (fids, promises) in [(0, 0), (1, 1), (2, 0), (FIDS_MAX, FIDS_MAX)] {
            let (fids, promises): (Fids, Promises) = (List(vec![fid(4); fids]), List(vec![promise(); promises]));
            let bytes = request(204, &[&|to| fids.encode(to), &|to| promises.encode(to)]);
            let read = Request::read(&bytes).expect("a request");
            assert_eq!(read.answer(&client()), Answer::Results(Vec::new()));
            assert_eq!(read, Request::Break { fids, promises });
            for length in 0..bytes.len() {
                assert!(Request::read(&bytes[..length]).is_err(), "cut at {length}");
            }
        }
    }

    #[test]
    fn more_breaks_than_a_call_can_have_are_refused() {
        for length in [FIDS_MAX as u32 + 1, 1 << 31, u32::MAX] {
            let bytes = request(
                204,
                &[&|to| {
                    to.u32(length).raw(&[0; 4096]);
                }],
            );
            assert!(matches!(Request::read(&bytes), Err(XdrError::TooLong { max: FIDS_MAX, .. })), "{length}");
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        let bytes = request(213, &[&|to| UUID.encode(to)]);
        for length in 0..bytes.len() {
            assert!(Request::read(&bytes[..length]).is_err(), "cut at {length}");
        }
        for opcode in [205, 206, 212, 65538] {
            let longer = request(
                opcode,
                &[&|to| {
                    to.u32(0);
                }],
            );
            assert_eq!(Request::read(&longer), Err(XdrError::Trailing { offset: 4, left: 4 }), "{opcode}");
        }
    }

    proptest! {
        #[test]
        fn any_request_is_borne(
            opcode in prop_oneof![200u32..220, 65536u32..65540], rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [&opcode.to_be_bytes()[..], &rest].concat();
            if let Ok(request) = Request::read(&bytes) {
                let _ = request.answer(&client());
            }
        }
    }
}
