//! A map from fields to strings that is small while it has few fields: a node of the persistent map has room for 64
//! and takes its memory whether they are there or not.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::compact::Compact;

/// From more fields than this on, a write must not copy them all.
const FEW: usize = 32;

/// Memory that a hash and each field take apart from their bytes.
const HASH_BYTES: usize = 64;
const FIELD_BYTES: usize = 96;

/// Fields and their values; knows how much memory they take. A clone costs the same for any size.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    fields: Fields,
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Fields {
    /// In ascending order.
    Few(Arc<Vec<(Compact, Bytes)>>),
    Many(OrdMap<Compact, Bytes>),
}

impl Default for Hash {
    fn default() -> Self {
        Hash { fields: Fields::Few(Arc::default()), bytes: HASH_BYTES }
    }
}

impl PartialEq for Hash {
    /// By content: a hash that has shrunk keeps the form of a large one.
    fn eq(&self, other: &Hash) -> bool {
        self.len() == other.len() && self.after(None).eq(other.after(None))
    }
}

impl Eq for Hash {}

impl Hash {
    pub fn len(&self) -> usize {
        match &self.fields {
            Fields::Few(fields) => fields.len(),
            Fields::Many(fields) => fields.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn get(&self, field: &[u8]) -> Option<&Bytes> {
        match &self.fields {
            Fields::Few(fields) => find(fields, field).ok().map(|at| &fields[at].1),
            Fields::Many(fields) => fields.get(field),
        }
    }

    /// The fields after one, or all, in order.
    pub fn after(&self, field: Option<&[u8]>) -> impl Iterator<Item = (&Compact, &Bytes)> {
        let (few, many) = match &self.fields {
            Fields::Few(fields) => {
                let from = field.map_or(0, |field| find(fields, field).map_or_else(|at| at, |at| at + 1));
                (&fields[from..], None)
            }
            Fields::Many(fields) => {
                let from = field.map_or(Bound::Unbounded, Bound::Excluded);
                (&[][..], Some(fields.range::<_, [u8]>((from, Bound::Unbounded))))
            }
        };
        few.iter().map(|(field, value)| (field, value)).chain(many.into_iter().flatten())
    }

    /// Whether the field is new. The value must not share a large buffer.
    pub fn insert(&mut self, field: &Bytes, value: Bytes) -> bool {
        let value_bytes = value.len();
        let old = match &mut self.fields {
            Fields::Few(fields) => {
                let fields = Arc::make_mut(fields);
                match find(fields, field) {
                    Ok(at) => Some(std::mem::replace(&mut fields[at].1, value)),
                    Err(at) => {
                        fields.insert(at, (Compact::new(field), value));
                        None
                    }
                }
            }
            Fields::Many(fields) => fields.insert(Compact::new(field), value),
        };
        if let Fields::Few(fields) = &mut self.fields
            && fields.len() > FEW
        {
            self.fields = Fields::Many(fields.iter().cloned().collect());
        }
        self.bytes += value_bytes;
        match &old {
            Some(old) => self.bytes -= old.len(),
            None => self.bytes += FIELD_BYTES + field.len(),
        }
        old.is_none()
    }

    /// Whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = match &mut self.fields {
            Fields::Few(fields) => find(fields, field).ok().map(|at| Arc::make_mut(fields).remove(at).1),
            Fields::Many(fields) => fields.remove(field),
        };
        if let Some(value) = &removed {
            self.bytes -= FIELD_BYTES + field.len() + value.len();
        }
        removed.is_some()
    }
}

fn find(fields: &[(Compact, Bytes)], field: &[u8]) -> Result<usize, usize> {
    fields.binary_search_by(|(probe, _)| probe[..].cmp(field))
}
