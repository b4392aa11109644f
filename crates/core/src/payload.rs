//! A value in its encoded form: what travels in a frame, and what lies in the log.

use std::fmt;

use bytes::Bytes;

use crate::wire::{Decoder, Encoder, Wire, WireError};

/// Room for the small fields of most messages and records, in bytes: one allocation.
const USUAL: usize = 512;

/// An encoded value, in one piece or in several: large values inside it are shared, not copied.
#[derive(Clone)]
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

/// Shown as its bytes, in however many pieces.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Whole(bytes) => bytes.fmt(f),
            Payload::Parts(parts) => Bytes::from(parts.concat()).fmt(f),
        }
    }
}

/// Equal if its bytes are, in however many pieces.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |payload: &Payload| payload.parts().to_vec().into_iter().flatten();
        match (self, other) {
            (Payload::Whole(one), Payload::Whole(other)) => one == other,
            _ => self.len() == other.len() && bytes(self).eq(bytes(other)),
        }
    }
}

impl Eq for Payload {}

/// As its bytes in one piece are, behind their length; large pieces are not copied.
impl Wire for Payload {
    fn encode(&self, out: &mut Encoder) {
        out.put_len(self.len());
        self.parts().iter().for_each(|part| out.put_shared(part));
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        input.bytes().map(Payload::Whole)
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
            let whole = Payload::Whole(value.to_bytes());
            assert_eq!(format!("{payload:?}"), format!("{whole:?}"));
            assert_eq!((&payload, Payload::of(&payload)), (&whole, Payload::of(&value.to_bytes())));
            assert_eq!(Payload::from_bytes(payload.to_bytes()), Ok(whole));
            assert_ne!(payload, Payload::of(&(value.0 + 1, value.1.clone())));
            assert_eq!(payload.into_bytes(), value.to_bytes());
        }
    }
}
