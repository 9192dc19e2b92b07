//! What AFS says over Rx: each call as a type, its arguments and its results as XDR has them.
//!
//! A request is the call's number and its arguments in the order of their declaration; a reply is the results alone,
//! for a call that fails ends with an abort (`abort.rs`). Each type here is written and read by one `impl`, in both
//! directions: a client needs one of them, whoever stands in for a server in a test the other. Every string and every
//! array has its maximum in its type.

pub mod callback;
pub mod fileserver;
pub mod pr;
pub mod status;
pub mod vl;
pub mod volser;

use weft_rx::{Decoder, Encoder, XdrError};

/// Something that XDR has a form for.
pub trait Xdr: Sized {
    /// Writes it. What is too long for its type is found when the message is finished.
    fn encode(&self, to: &mut Encoder);

    /// Reads it.
    ///
    /// # Errors
    /// Whatever of [`XdrError`] the bytes deserve.
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError>;
}

/// One call: its arguments are its fields.
pub trait Call: Xdr {
    /// The Rx service that answers it.
    const SERVICE: u16;
    /// Its number in that service.
    const OPCODE: u32;
    /// Longest reply that is taken in, in bytes: that with a piece of content, or with the largest directory (1,023 pages).
    const REPLY_BYTES_MAX: usize = 4 << 20;
    /// What it returns.
    type Reply: Xdr;

    /// The request, from its number on.
    ///
    /// # Errors
    /// `TooLong`, if an argument is longer than the protocol has it.
    fn request(&self) -> Result<Vec<u8>, XdrError> {
        let mut to = Encoder::new();
        self.encode(to.u32(Self::OPCODE));
        to.finish()
    }

    /// Reads a whole reply.
    ///
    /// # Errors
    /// Whatever of [`XdrError`] the bytes deserve; `Trailing` for bytes that follow.
    fn reply(bytes: &[u8]) -> Result<Self::Reply, XdrError> {
        decode_whole(bytes)
    }
}

/// A string of at most `MAX` bytes, in whatever character set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text<const MAX: usize>(pub Vec<u8>);

/// At most `MAX` things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

/// Writes a whole message.
///
/// # Errors
/// `TooLong`.
pub fn encode_whole(message: &impl Xdr) -> Result<Vec<u8>, XdrError> {
    let mut to = Encoder::new();
    message.encode(&mut to);
    to.finish()
}

/// Reads a whole message.
///
/// # Errors
/// Whatever of [`XdrError`] the bytes deserve; `Trailing` for bytes that follow.
pub fn decode_whole<T: Xdr>(bytes: &[u8]) -> Result<T, XdrError> {
    let mut from = Decoder::new(bytes);
    let message = T::decode(&mut from)?;
    from.finish()?;
    Ok(message)
}

impl<const MAX: usize> Xdr for Text<MAX> {
    fn encode(&self, to: &mut Encoder) {
        to.string(&self.0, MAX);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Text<MAX>, XdrError> {
        from.string(MAX).map(|bytes| Text(bytes.to_vec()))
    }
}

impl<T: Xdr, const MAX: usize> Xdr for List<T, MAX> {
    fn encode(&self, to: &mut Encoder) {
        to.array(&self.0, MAX, |to, item| item.encode(to));
    }

    fn decode(from: &mut Decoder<'_>) -> Result<List<T, MAX>, XdrError> {
        from.array(MAX, T::decode).map(List)
    }
}

impl Xdr for () {
    fn encode(&self, _to: &mut Encoder) {}

    fn decode(_from: &mut Decoder<'_>) -> Result<(), XdrError> {
        Ok(())
    }
}

impl Xdr for u32 {
    fn encode(&self, to: &mut Encoder) {
        to.u32(*self);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<u32, XdrError> {
        from.u32()
    }
}

impl Xdr for i32 {
    fn encode(&self, to: &mut Encoder) {
        to.i32(*self);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<i32, XdrError> {
        from.i32()
    }
}

impl Xdr for u64 {
    fn encode(&self, to: &mut Encoder) {
        to.u64(*self);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<u64, XdrError> {
        from.u64()
    }
}

impl Xdr for i64 {
    fn encode(&self, to: &mut Encoder) {
        to.i64(*self);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<i64, XdrError> {
        from.i64()
    }
}

impl<const MAX: usize> From<&[u8]> for Text<MAX> {
    fn from(bytes: &[u8]) -> Text<MAX> {
        Text(bytes.to_vec())
    }
}

impl<const MAX: usize> From<&str> for Text<MAX> {
    fn from(text: &str) -> Text<MAX> {
        text.as_bytes().into()
    }
}

/// Makes structures whose fields are on the wire in the order in which they stand here.
macro_rules! on_the_wire {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$what:meta])* $field:ident: $type:ty,)* })+) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$what])* pub $field: $type,)* }

        impl $crate::wire::Xdr for $name {
            fn encode(&self, _to: &mut ::weft_rx::Encoder) {
                $(self.$field.encode(_to);)*
            }

            fn decode(_from: &mut ::weft_rx::Decoder<'_>) -> Result<$name, ::weft_rx::XdrError> {
                Ok($name { $($field: <$type>::decode(_from)?,)* })
            }
        }
    )+};
}

/// Makes calls: `Arguments = number -> Results`, of one service.
macro_rules! calls {
    ($service:expr; $($call:ident = $opcode:literal -> $reply:ty;)+) => {$(
        impl $crate::wire::Call for $call {
            const SERVICE: u16 = $service;
            const OPCODE: u32 = $opcode;
            type Reply = $reply;
        }
    )+};
}

use {calls, on_the_wire};

#[cfg(test)]
pub(crate) mod check;
