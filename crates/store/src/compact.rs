//! Keys and hash fields as they are stored. Short ones lie in the map itself: a search then compares bytes that it has
//! just loaded, instead of following a pointer at each step, and a key needs no allocation of its own.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::entry::detach;

/// What fits beside a length into the 32 bytes that `Bytes` takes, where it keeps one word for itself.
const SHORT: usize = 23;
const _: () = assert!(size_of::<Compact>() == size_of::<Bytes>());

/// Bytes, ordered as such. Never a part of a large shared buffer.
#[derive(Clone)]
pub(crate) enum Compact {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Bytes),
}

impl Compact {
    /// For a table: a long value that is part of a larger buffer is copied, so that the buffer can go.
    pub fn new(bytes: &Bytes) -> Compact {
        if bytes.len() > SHORT { Compact::Long(detach(bytes)) } else { Compact::shared(bytes) }
    }

    /// To look something up: a long one shares the buffer.
    pub fn shared(bytes: &Bytes) -> Compact {
        if bytes.len() > SHORT {
            return Compact::Long(bytes.clone());
        }
        let mut short = [0; SHORT];
        short[..bytes.len()].copy_from_slice(bytes);
        Compact::Short { len: bytes.len() as u8, bytes: short }
    }

    pub fn to_bytes(&self) -> Bytes {
        match self {
            Compact::Short { .. } => Bytes::copy_from_slice(self),
            Compact::Long(bytes) => bytes.clone(),
        }
    }
}

impl Deref for Compact {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Compact::Short { len, bytes } => &bytes[..usize::from(*len)],
            Compact::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Compact {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Ord for Compact {
    fn cmp(&self, other: &Compact) -> Ordering {
        self[..].cmp(&other[..])
    }
}

impl PartialOrd for Compact {
    fn partial_cmp(&self, other: &Compact) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Compact {
    fn eq(&self, other: &Compact) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Compact {}

impl fmt::Debug for Compact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
