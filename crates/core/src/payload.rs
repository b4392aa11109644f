//! A value in its encoded form: what travels in a frame, and what lies in the log.

use bytes::Bytes;

use crate::wire::{Encoder, Wire};

/// Room for the small fields of most messages and records, in bytes: one allocation.
const USUAL: usize = 512;

/// An encoded value, in one piece or in several: large values inside it are shared, not copied.
#[derive(Clone, Debug)]
pub enum Payload {
    /// One piece: nothing in it is large.
    Whole(Bytes),
    /// Several, as [`Encoder::into_parts`] gives them.
    Parts(Vec<Bytes>),
}

impl Payload {
    /// The bytes of a value, for one message.
    pub fn of(value: &impl Wire) -> Payload {
        let mut out = Encoder::with_capacity(USUAL);
        value.encode(&mut out);
        let mut parts = out.into_parts();
        match parts.len() {
            1 => Payload::Whole(parts.swap_remove(0)),
            _ => Payload::Parts(parts),
        }
    }

    /// Its pieces, in order.
    pub fn parts(&self) -> &[Bytes] {
        match self {
            Payload::Whole(bytes) => std::slice::from_ref(bytes),
            Payload::Parts(parts) => parts,
        }
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty payload is a payload")]
    pub fn len(&self) -> usize {
        self.parts().iter().map(Bytes::len).sum()
    }

    /// The same behind another piece, which is not copied to it.
    pub fn behind(self, first: Bytes) -> Payload {
        match self {
            Payload::Whole(bytes) => Payload::Parts(vec![first, bytes]),
            Payload::Parts(mut parts) => {
                parts.insert(0, first);
                Payload::Parts(parts)
            }
        }
    }

    /// The whole in one piece, copied together if it is in several.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Payload::Whole(bytes) => bytes,
            Payload::Parts(parts) => parts.concat().into(),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::Whole(bytes)
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(parts: Vec<Bytes>) -> Self {
        Payload::Parts(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_the_encoding_and_shares_large_values() {
        let (small, large) = (Bytes::from_static(b"small"), Bytes::from(vec![7; 10_000]));
        for value in [(1_u64, small), (2, large.clone())] {
            let payload = Payload::of(&value);
            assert_eq!(payload.len(), value.to_bytes().len());
            let shared = payload.parts().iter().any(|part| part.as_ptr() == large.as_ptr());
            assert_eq!(shared, value.0 == 2);
            assert_eq!(payload.into_bytes(), value.to_bytes());
        }
    }
}
