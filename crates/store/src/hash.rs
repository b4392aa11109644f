//! A map from fields to strings that is small while it has few fields: a node of the persistent map has room for 64
//! and takes its memory whether they are there or not.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::order::Place;

/// From more fields than this on, a write must not copy them all.
const FEW: usize = 32;

/// Memory that a hash and each field take apart from their bytes.
const HASH_BYTES: usize = 64;
const FIELD_BYTES: usize = 104;

/// Fields and their values; knows how much memory they take. A clone costs the same for any size.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    fields: Fields,
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Fields {
    /// Sorted by place; copied on each write while an image shares them.
    Few(Arc<Vec<(Place, Bytes)>>),
    Many(OrdMap<Place, Bytes>),
}

impl Default for Hash {
    fn default() -> Self {
        Hash { fields: Fields::Few(Arc::default()), bytes: HASH_BYTES }
    }
}

impl PartialEq for Hash {
    /// By content: a hash that has shrunk keeps the form of a large one.
    fn eq(&self, other: &Hash) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
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

    pub fn get(&self, field: &Bytes) -> Option<&Bytes> {
        let place = Place::probe(field);
        match &self.fields {
            Fields::Few(fields) => find(fields, &place).ok().map(|at| &fields[at].1),
            Fields::Many(fields) => fields.get(&place),
        }
    }

    /// All fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Bytes)> {
        self.from(Bound::Unbounded)
    }

    /// The fields from a place on, in their order.
    pub fn from(&self, bound: Bound<&Place>) -> impl Iterator<Item = (&Place, &Bytes)> + use<'_> {
        let (few, many) = match &self.fields {
            Fields::Few(fields) => {
                let from = match bound {
                    Bound::Unbounded => 0,
                    Bound::Included(place) => find(fields, place).unwrap_or_else(|at| at),
                    Bound::Excluded(place) => find(fields, place).map_or_else(|at| at, |at| at + 1),
                };
                (&fields[from..], None)
            }
            Fields::Many(fields) => (&[][..], Some(fields.range::<_, Place>((bound, Bound::Unbounded)))),
        };
        few.iter().map(|(place, value)| (place, value)).chain(many.into_iter().flatten())
    }

    /// Whether the field is new. The value must not share a large buffer.
    pub fn insert(&mut self, field: &Bytes, value: Bytes) -> bool {
        let value_bytes = value.len();
        let place = Place::new(field);
        let old = match &mut self.fields {
            Fields::Few(fields) => {
                let fields = Arc::make_mut(fields);
                match find(fields, &place) {
                    Ok(at) => Some(std::mem::replace(&mut fields[at].1, value)),
                    Err(at) => {
                        fields.insert(at, (place, value));
                        None
                    }
                }
            }
            Fields::Many(fields) => fields.insert(place, value),
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
    pub fn remove(&mut self, field: &Bytes) -> bool {
        let place = Place::probe(field);
        let removed = match &mut self.fields {
            Fields::Few(fields) => find(fields, &place).ok().map(|at| Arc::make_mut(fields).remove(at).1),
            Fields::Many(fields) => fields.remove(&place),
        };
        if let Some(value) = &removed {
            self.bytes -= FIELD_BYTES + field.len() + value.len();
        }
        removed.is_some()
    }
}

fn find(fields: &[(Place, Bytes)], place: &Place) -> Result<usize, usize> {
    fields.binary_search_by(|(probe, _)| probe.cmp(place))
}
