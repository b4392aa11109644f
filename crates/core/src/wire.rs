//! Bytes on the wire and in the log: little-endian, length-checked, and safe to decode whatever comes in.
//!
//! An [`Encoder`] gathers small fields into one buffer and keeps large payloads as the `Bytes` they are, so a
//! 1 MiB value travels from the client's socket to a peer's without a copy. A [`Decoder`] slices payloads out of
//! the buffer it was given. Neither trusts a length: collections grow with what is really there.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// The longest message that a machine makes, in bytes: one command, or one reply, and what fits beside it. Whatever
/// gathers in a message is split below this, so a driver that carries so much loses none for its length.
pub const MAX_MESSAGE: usize = 80 << 20;

/// Payloads from this size on keep their own buffer instead of being copied behind the header.
const SPLICE: usize = 4096;

/// Why bytes were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// The input ends inside a field.
    #[error("the input ends {missing} bytes early")]
    Short {
        /// At least this many more were announced.
        missing: usize,
    },
    /// A field holds what it cannot hold.
    #[error("{found} is not a valid {what}")]
    Value {
        /// What the field is, in words.
        what: &'static str,
        /// The number that was read there.
        found: u64,
    },
    /// Bytes are left after the last field.
    #[error("{0} bytes follow the end")]
    Trailing(usize),
}

/// What can be written to the wire or the log and read back.
pub trait Wire: Sized {
    /// Appends this value to what is written already.
    fn encode(&self, out: &mut Encoder);

    /// Reads a value back; any input gives a value or an error.
    fn decode(input: &mut Decoder) -> Result<Self, WireError>;

    /// This value alone, in one buffer.
    fn to_bytes(&self) -> Bytes {
        let mut out = Encoder::new();
        self.encode(&mut out);
        out.into_bytes()
    }

    /// A value from all of a buffer.
    fn from_bytes(bytes: Bytes) -> Result<Self, WireError> {
        let mut input = Decoder::new(bytes);
        let value = Self::decode(&mut input)?;
        match input.remaining() {
            0 => Ok(value),
            rest => Err(WireError::Trailing(rest)),
        }
    }
}

/// Gathers what is written as a list of buffers.
#[derive(Default, Debug)]
pub struct Encoder {
    done: Vec<Bytes>,
    done_bytes: usize,
    tail: BytesMut,
}

impl Encoder {
    /// An encoder into which nothing is written yet.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Nothing written yet, with room for this many bytes of small fields: a hot path allocates once.
    pub fn with_capacity(capacity: usize) -> Encoder {
        Encoder { tail: BytesMut::with_capacity(capacity), ..Encoder::default() }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.done_bytes + self.tail.len()
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends one byte.
    pub fn put_u8(&mut self, value: u8) {
        self.tail.put_u8(value);
    }

    /// Appends two bytes, the least significant first.
    pub fn put_u16(&mut self, value: u16) {
        self.tail.put_u16_le(value);
    }

    /// Appends four bytes, the least significant first.
    pub fn put_u32(&mut self, value: u32) {
        self.tail.put_u32_le(value);
    }

    /// Appends eight bytes, the least significant first.
    pub fn put_u64(&mut self, value: u64) {
        self.tail.put_u64_le(value);
    }

    /// Raw bytes without a length.
    pub fn put_slice(&mut self, value: &[u8]) {
        self.tail.put_slice(value);
    }

    /// A payload behind its length (at most 4 GiB); a large one is not copied.
    pub fn put_bytes(&mut self, value: &Bytes) {
        self.put_len(value.len());
        self.put_shared(value);
    }

    /// Raw bytes without a length, that are not copied if they are many.
    pub fn put_shared(&mut self, value: &Bytes) {
        if value.len() < SPLICE {
            self.tail.put_slice(value);
        } else {
            self.flush();
            self.done_bytes += value.len();
            self.done.push(value.clone());
        }
    }

    /// The length of a collection or payload.
    pub fn put_len(&mut self, len: usize) {
        self.put_u32(u32::try_from(len).expect("collections and payloads are limited to 4 GiB"));
    }

    /// Everything written, in order.
    pub fn into_parts(mut self) -> Vec<Bytes> {
        self.flush();
        self.done
    }

    /// Everything written, in one buffer.
    pub fn into_bytes(mut self) -> Bytes {
        if self.done.is_empty() {
            // With no room to spare, nothing is allocated beside it.
            return self.tail.freeze();
        }
        self.take_bytes()
    }

    /// Everything written since the last call, in one buffer. What is small shares a larger one with what is written
    /// next.
    pub fn take_bytes(&mut self) -> Bytes {
        if self.done.is_empty() {
            return self.tail.split().freeze();
        }
        self.flush();
        self.done_bytes = 0;
        match self.done.len() {
            1 => self.done.swap_remove(0),
            _ => std::mem::take(&mut self.done).concat().into(),
        }
    }

    /// Makes room for so many bytes of small fields.
    pub fn reserve(&mut self, bytes: usize) {
        self.tail.reserve(bytes);
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.done_bytes += self.tail.len();
            self.done.push(self.tail.split().freeze());
        }
    }
}

/// Reads fields off a buffer; payloads share it.
#[derive(Debug)]
pub struct Decoder {
    rest: Bytes,
}

impl Decoder {
    /// Over all of a buffer.
    pub fn new(bytes: Bytes) -> Decoder {
        Decoder { rest: bytes }
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// All that is not read yet, shared with the input.
    pub fn rest(self) -> Bytes {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.rest.first_chunk::<N>() {
            Some(found) => {
                let found = *found;
                bytes::Buf::advance(&mut self.rest, N);
                Ok(found)
            }
            None => Err(WireError::Short { missing: N - self.rest.len() }),
        }
    }

    /// Reads one byte; an error if the input ends before.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads two bytes, the least significant first; an error if the input ends before.
    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads four bytes, the least significant first; an error if the input ends before.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads eight bytes, the least significant first; an error if the input ends before.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// This many raw bytes, shared with the input.
    pub fn slice(&mut self, len: usize) -> Result<Bytes, WireError> {
        if len > self.rest.len() {
            return Err(WireError::Short { missing: len - self.rest.len() });
        }
        Ok(self.rest.split_to(len))
    }

    /// A payload behind its length, shared with the input.
    pub fn bytes(&mut self) -> Result<Bytes, WireError> {
        let len = self.u32()? as usize;
        self.slice(len)
    }

    /// The length of a collection whose items take at least one byte each: never more than what is left, so a
    /// forged length cannot make the reader reserve memory.
    pub fn count(&mut self) -> Result<usize, WireError> {
        let len = self.u32()? as usize;
        if len > self.rest.len() {
            return Err(WireError::Short { missing: len - self.rest.len() });
        }
        Ok(len)
    }
}

macro_rules! integers {
    ($($type:ty: $put:ident $get:ident),*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Encoder) {
                out.$put(*self);
            }
            fn decode(input: &mut Decoder) -> Result<Self, WireError> {
                input.$get()
            }
        }
    )*};
}
integers!(u8: put_u8 u8, u16: put_u16 u16, u32: put_u32 u32, u64: put_u64 u64);

/// Nothing takes no byte; it cannot be an item of a `Vec`.
impl Wire for () {
    fn encode(&self, _: &mut Encoder) {}
    fn decode(_: &mut Decoder) -> Result<Self, WireError> {
        Ok(())
    }
}

impl Wire for i64 {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(*self as u64);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(input.u64()? as i64)
    }
}

impl Wire for f64 {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.to_bits());
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(f64::from_bits(input.u64()?))
    }
}

impl Wire for bool {
    fn encode(&self, out: &mut Encoder) {
        out.put_u8((*self).into());
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match input.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Value { what: "flag", found: other.into() }),
        }
    }
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Encoder) {
        out.put_bytes(self);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        input.bytes()
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Encoder) {
        Bytes::copy_from_slice(self.as_bytes()).encode(out);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let bytes = Bytes::decode(input)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(WireError::Value { what: "text", found: error.valid_up_to() as u64 }),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Encoder) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        if bool::decode(input)? { T::decode(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn encode(&self, out: &mut Encoder) {
        T::encode(self, out);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        T::decode(input).map(Arc::new)
    }
}

/// Items must take at least one byte each.
impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Encoder) {
        out.put_len(self.len());
        for item in self {
            item.encode(out);
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let len = input.count()?;
        // A forged length may still claim one item a byte: reserve little, and grow with what decodes.
        let mut items = Vec::with_capacity(len.min(1024));
        for _ in 0..len {
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn encode(&self, out: &mut Encoder) {
        out.put_len(self.len());
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let mut map = BTreeMap::new();
        for _ in 0..input.count()? {
            map.insert(K::decode(input)?, V::decode(input)?);
        }
        Ok(map)
    }
}

macro_rules! tuples {
    ($(($($name:ident . $index:tt),+))*) => {$(
        impl<$($name: Wire),+> Wire for ($($name,)+) {
            fn encode(&self, out: &mut Encoder) {
                $(self.$index.encode(out);)+
            }
            fn decode(input: &mut Decoder) -> Result<Self, WireError> {
                Ok(($($name::decode(input)?,)+))
            }
        }
    )*};
}
tuples!((A.0, B.1)(A.0, B.1, C.2)(A.0, B.1, C.2, D.3));

/// Implements [`Wire`] for a struct by its fields, in order.
#[macro_export]
macro_rules! wire_struct {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::wire::Wire for $type {
            fn encode(&self, out: &mut $crate::wire::Encoder) {
                let $type { $($field),* } = self;
                $($crate::wire::Wire::encode($field, out);)*
                let _ = out;
            }
            fn decode(
                input: &mut $crate::wire::Decoder,
            ) -> Result<Self, $crate::wire::WireError> {
                let _ = &input;
                Ok($type { $($field: $crate::wire::Wire::decode(input)?),* })
            }
        }
    };
}

/// A pattern for anything, in place of a name.
#[doc(hidden)]
#[macro_export]
macro_rules! skip {
    ($name:ident) => {
        _
    };
}

/// Implements [`Wire`] for an enum: a tag byte, then the variant's fields in order. Variants are written as
/// `1 => Name { a, b }`, `2 => Name(a)` or `3 => Name`. Tags are forever: never reuse one. `variant` tells the name.
#[macro_export]
macro_rules! wire_enum {
    ($type:ident $(<$($param:ident),+>)? {
        $($tag:literal => $variant:ident $({ $($field:ident),* $(,)? })? $(( $($item:ident),* ))?),* $(,)?
    }) => {
        impl $(<$($param: $crate::wire::Wire),+>)? $crate::wire::Wire for $type $(<$($param),+>)? {
            fn encode(&self, out: &mut $crate::wire::Encoder) {
                match self {
                    $($type::$variant $({ $($field),* })? $(( $($item),* ))? => {
                        out.put_u8($tag);
                        $($($crate::wire::Wire::encode($field, out);)*)?
                        $($($crate::wire::Wire::encode($item, out);)*)?
                    })*
                }
            }
            fn decode(
                input: &mut $crate::wire::Decoder,
            ) -> Result<Self, $crate::wire::WireError> {
                match input.u8()? {
                    $($tag => {
                        $($(let $field = $crate::wire::Wire::decode(input)?;)*)?
                        $($(let $item = $crate::wire::Wire::decode(input)?;)*)?
                        Ok($type::$variant $({ $($field),* })? $(( $($item),* ))?)
                    })*
                    tag => Err($crate::wire::WireError::Value {
                        what: concat!(stringify!($type), " tag"),
                        found: tag.into(),
                    }),
                }
            }
        }

        #[allow(dead_code)]
        impl $(<$($param),+>)? $type $(<$($param),+>)? {
            /// The variant's name.
            pub(crate) fn variant(&self) -> &'static str {
                match self {
                    $($type::$variant $({ $($field: _),* })? $(( $($crate::skip!($item)),* ))? => {
                        stringify!($variant)
                    })*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[derive(Debug, Clone, PartialEq)]
    enum Sample {
        Unit,
        Pair(u64, Bytes),
        Named { flag: bool, items: Vec<Option<u32>> },
    }
    wire_enum!(Sample { 1 => Unit, 2 => Pair(a, b), 3 => Named { flag, items } });

    #[test]
    fn a_variant_has_its_name() {
        let samples =
            [Sample::Unit, Sample::Pair(1, Bytes::new()), Sample::Named { flag: true, items: vec![] }];
        assert_eq!(samples.each_ref().map(Sample::variant), ["Unit", "Pair", "Named"]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for value in [
            Sample::Unit,
            Sample::Pair(u64::MAX, Bytes::from_static(b"x")),
            Sample::Pair(0, vec![7; 3 * SPLICE].into()),
            Sample::Named { flag: true, items: vec![None, Some(3)] },
        ] {
            assert_eq!(Sample::from_bytes(value.to_bytes()), Ok(value));
        }
    }

    #[test]
    fn a_large_payload_is_not_copied() {
        let payload = Bytes::from(vec![1; SPLICE]);
        let mut out = Encoder::new();
        Sample::Pair(1, payload.clone()).encode(&mut out);
        out.put_u8(9);
        let parts = out.into_parts();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[1].as_ptr(), payload.as_ptr());
    }

    #[test]
    fn what_is_taken_is_what_was_written_since_the_last_time() {
        let mut out = Encoder::with_capacity(4096);
        let large = Bytes::from(vec![1; 2 * SPLICE]);
        for value in [Bytes::from_static(b"a"), large, Bytes::new(), Bytes::from_static(b"b")] {
            let sample = Sample::Pair(7, value);
            sample.encode(&mut out);
            assert_eq!(out.len(), sample.to_bytes().len());
            assert_eq!(out.take_bytes(), sample.to_bytes());
        }
        assert!(out.is_empty());
    }

    #[test]
    fn every_cut_is_refused_and_nothing_may_follow() {
        let whole = Sample::Named { flag: false, items: vec![Some(1), None] }.to_bytes();
        for cut in 0..whole.len() {
            assert!(Sample::from_bytes(whole.slice(..cut)).is_err(), "cut at {cut}");
        }
        let longer = Bytes::from([&whole[..], b"x"].concat());
        assert_eq!(Sample::from_bytes(longer), Err(WireError::Trailing(1)));
    }

    #[test]
    fn a_flag_is_0_or_1() {
        let flag = |byte: u8| bool::from_bytes(Bytes::copy_from_slice(&[byte]));
        assert_eq!((flag(0), flag(1)), (Ok(false), Ok(true)));
        assert_eq!(flag(2), Err(WireError::Value { what: "flag", found: 2 }));
    }

    #[test]
    fn arbitrary_bytes_never_panic_nor_reserve_what_they_announce() {
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.range(0..40)).map(|_| random.u64() as u8).collect();
            let _ = Sample::from_bytes(bytes.into());
        }
        let forged = Bytes::from_static(&[3, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(Sample::from_bytes(forged), Err(WireError::Short { .. })));
    }
}
