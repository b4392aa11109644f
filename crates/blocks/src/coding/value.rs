//! What a slot or an entry carries: the whole value, or shards of it ([`coding`](crate::coding)).

use std::fmt;

use crate::ballot::Ballot;
use bytes::Bytes;
use quorate_core::{Decoder, Encoder, Wire, WireError, digest, mutation, wire_struct};

use super::spread::ShardSet;
use super::{Code, CodingError, MAX_SHARDS};

/// See the file comment.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// All of it: an encoded batch.
    Whole(Bytes),
    /// Some of its shards.
    Coded(Box<Coded>),
}

/// The identity of a coded value: shards of equal identities restore one value. A value that is proposed again keeps
/// its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueId {
    /// The slot for which it was proposed first.
    pub slot: u64,
    /// The ballot in which it was.
    pub ballot: Ballot,
    /// Of the whole value.
    pub digest: u64,
    /// Bytes of the whole value.
    pub len: u32,
    /// n: how many shards there are.
    pub shards: u8,
    /// d: how many restore it.
    pub data: u8,
}
wire_struct!(ValueId { slot, ballot, digest, len, shards, data });

/// Shards of one value, at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct Coded {
    /// The value that the shards are of.
    pub id: ValueId,
    /// Each with its number, in ascending order.
    shards: Vec<(u8, Bytes)>,
}

impl ValueId {
    /// The code of its shards.
    pub fn code(&self) -> Code {
        Code::new(self.shards.into(), self.data.into()).expect("checked where it was made or decoded")
    }

    /// All of its shards, by number.
    pub fn all_shards(&self) -> ShardSet {
        ShardSet::arc(0, self.shards.into(), self.shards.into())
    }

    /// What each voter gets of the value: `width` shards, of which the first has the voter's number.
    pub fn split(self, value: &Bytes, width: usize) -> impl Iterator<Item = Value> {
        let shards = usize::from(self.shards);
        self.deal(value, (0..shards).map(move |first| ShardSet::arc(first, width, shards)))
    }

    /// These shards of the value, none of them empty; for [`ShardSet::ALL`] all of it.
    pub fn deal(self, value: &Bytes, sets: impl Iterator<Item = ShardSet>) -> impl Iterator<Item = Value> {
        let all = self.code().encode(value);
        sets.map(move |set| {
            if set == ShardSet::ALL {
                return Value::Whole(value.clone());
            }
            let shards = (0..).zip(&all).filter(|(number, _)| set.contains(*number));
            let mislabelled = u8::from(mutation::active("coding/mislabelled-shards"));
            let shards = shards.map(|(number, shard)| (number ^ mislabelled, shard.clone())).collect();
            Value::Coded(Box::new(Coded { id: self, shards }))
        })
    }
}

impl Coded {
    /// The whole value, if these shards are enough. Panics if they restore something else.
    pub fn restore(&self) -> Result<Bytes, CodingError> {
        let value = self.decode()?;
        assert!(digest(&value) == self.id.digest, "the shards of {:?} restore something else", self.id);
        Ok(value)
    }

    /// What these shards restore, if they are enough; that it is the value, only its digest shows.
    pub fn decode(&self) -> Result<Bytes, CodingError> {
        self.id.code().restore(self.id.len as usize, &self.shards)
    }

    /// The numbers of its shards.
    pub fn held(&self) -> ShardSet {
        self.shards.iter().map(|(number, _)| *number).collect()
    }

    /// Takes shards of the same identity in.
    pub fn add(&mut self, other: Coded) {
        for shard in other.shards {
            if let Err(index) = self.shards.binary_search_by_key(&shard.0, |(number, _)| *number) {
                self.shards.insert(index, shard);
            }
        }
    }
}

impl Value {
    /// The whole value, if it is here.
    pub fn whole(&self) -> Option<&Bytes> {
        match self {
            Value::Whole(value) => Some(value),
            Value::Coded(_) => None,
        }
    }

    /// The shards, if it is not here whole.
    pub fn coded(&self) -> Option<&Coded> {
        match self {
            Value::Whole(_) => None,
            Value::Coded(coded) => Some(coded),
        }
    }

    /// The shards that are here; `None`: all of it.
    pub fn held(&self) -> Option<ShardSet> {
        match self {
            Value::Whole(_) => None,
            Value::Coded(coded) => Some(coded.held()),
        }
    }

    /// Those of these shards of the value with this identity that are here or can be made here, at most so many; `None`
    /// if there are none, or another value is here.
    pub fn shards(&self, id: ValueId, wanted: ShardSet, most: usize) -> Option<Coded> {
        let (id, shards): (_, Vec<_>) = match self {
            Value::Whole(value) => {
                let code = Code::new(id.shards.into(), id.data.into()).ok()?;
                let numbers = (0..id.shards).filter(|number| wanted.contains(*number)).take(most);
                if value.len() != id.len as usize || digest(value) != id.digest {
                    return None;
                }
                (id, numbers.clone().zip(code.shards(value, numbers.map(usize::from))).collect())
            }
            Value::Coded(coded) if coded.id == id || mutation::active("gossip/any-value") => {
                let shards = coded.shards.iter().filter(|(number, _)| wanted.contains(*number));
                (coded.id, shards.take(most).cloned().collect())
            }
            Value::Coded(_) => return None,
        };
        (!shards.is_empty()).then_some(Coded { id, shards })
    }

    /// Bytes of the whole value.
    pub fn whole_len(&self) -> usize {
        match self {
            Value::Whole(value) => value.len(),
            Value::Coded(coded) => coded.id.len as usize,
        }
    }

    /// Bytes that are kept here.
    pub fn len(&self) -> usize {
        match self {
            Value::Whole(value) => value.len(),
            Value::Coded(coded) => coded.shards.iter().map(|(_, shard)| shard.len()).sum(),
        }
    }

    /// Whether no bytes are kept here, as for a no-op.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of the whole value.
    pub fn digest(&self) -> u64 {
        match self {
            Value::Whole(value) => digest(value),
            Value::Coded(coded) => coded.id.digest,
        }
    }

    /// Whether both are of the same whole value.
    pub fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Whole(a), Value::Whole(b)) => a == b,
            (Value::Coded(a), Value::Coded(b)) => a.id.digest == b.id.digest && a.id.len == b.id.len,
            (Value::Whole(a), Value::Coded(b)) | (Value::Coded(b), Value::Whole(a)) => {
                b.id.len as usize == a.len() && b.id.digest == digest(a)
            }
        }
    }

    /// What is here when `self` replaces `old`: with all shards of the same identity, and whole if either is. So an
    /// acceptor that votes for a value again never has less of it than before.
    pub fn over(self, old: &Value) -> Value {
        match (self, old) {
            (Value::Coded(new), Value::Whole(_)) if Value::Coded(new.clone()).is_same(old) => old.clone(),
            (Value::Coded(mut new), Value::Coded(old)) if new.id == old.id => {
                if !mutation::active("slots/shards-replaced") {
                    new.add((**old).clone());
                }
                Value::Coded(new)
            }
            (new, _) => new,
        }
    }
}

impl From<Bytes> for Value {
    fn from(value: Bytes) -> Value {
        Value::Whole(value)
    }
}

/// A whole value reads like its bytes.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(value) => value.fmt(f),
            Value::Coded(coded) => coded.fmt(f),
        }
    }
}

impl fmt::Debug for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ValueId { slot, ballot, digest, len, shards, data } = self.id;
        let held: Vec<_> = self.shards.iter().map(|(number, _)| number).collect();
        write!(f, "shards {held:?} of {slot}@{ballot} ({shards},{data}) {len}B {digest:016x}")
    }
}

/// In place of the length of a whole value, which is never so large: shards follow. So a whole value takes no byte more
/// than its bytes do.
const CODED: u32 = u32::MAX;

impl Wire for Value {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Value::Whole(value) => value.encode(out),
            Value::Coded(coded) => {
                out.put_u32(CODED);
                coded.id.encode(out);
                coded.shards.encode(out);
            }
        }
    }

    fn decode(input: &mut Decoder) -> Result<Value, WireError> {
        let len = input.u32()?;
        if len != CODED {
            return Ok(Value::Whole(input.slice(len as usize)?));
        }
        let coded = Coded { id: ValueId::decode(input)?, shards: Vec::decode(input)? };
        check(&coded)?;
        Ok(Value::Coded(Box::new(coded)))
    }
}

/// Whether these can be shards of that value.
fn check(coded: &Coded) -> Result<(), WireError> {
    let Coded { id, shards } = coded;
    let wrong = |what, found: usize| Err(WireError::Value { what, found: found as u64 });
    let Ok(code) = Code::new(id.shards.into(), id.data.into()) else {
        return wrong("number of shards", id.shards.into());
    };
    if shards.is_empty() || shards.len() > MAX_SHARDS {
        return wrong("number of shards held", shards.len());
    }
    let ascends = shards.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if let Some((number, _)) = shards.last().filter(|(number, _)| !ascends || *number >= id.shards) {
        return wrong("number of a shard", (*number).into());
    }
    let len = code.shard_len(id.len as usize);
    match shards.iter().find(|(_, shard)| shard.len() != len) {
        Some((_, shard)) => wrong("length of a shard", shard.len()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u64, value: &Bytes, data: u8) -> ValueId {
        let digest = digest(value);
        ValueId { slot, ballot: Ballot::ZERO, digest, len: value.len() as u32, shards: 5, data }
    }

    fn held(value: &Value) -> Vec<u8> {
        match value {
            Value::Whole(_) => vec![],
            Value::Coded(coded) => coded.shards.iter().map(|(number, _)| *number).collect(),
        }
    }

    #[test]
    fn shards_of_one_identity_are_united_and_others_replaced() {
        let (value, other) = (Bytes::from(vec![1; 400]), Bytes::from(vec![2; 400]));
        let shards: Vec<_> = id(7, &value, 3).split(&value, 1).collect();
        let both = shards[3].clone().over(&shards[1]);
        assert_eq!((held(&both), both.len()), (vec![1, 3], 2 * 192));
        assert_eq!(held(&shards[1].clone().over(&both)), [1, 3], "a shard that is here already");
        let foreign = id(7, &other, 3).split(&other, 1).next().unwrap();
        assert_eq!(held(&foreign.clone().over(&both)), [0]);
        assert!(!foreign.is_same(&both) && shards[0].is_same(&both));
        let two = id(7, &value, 3).split(&value, 2).last().unwrap();
        assert_eq!(held(&two), [0, 4], "in a circle");
        let whole = Value::Whole(value.clone());
        assert_eq!(shards[0].clone().over(&whole), whole, "nothing is lost of a whole value");
        assert_eq!(whole.clone().over(&both), whole);
        assert_eq!(foreign.clone().over(&whole), foreign);
        let Value::Coded(coded) = shards[4].clone().over(&both) else { panic!("three shards") };
        assert_eq!(coded.restore(), Ok(value));
        let Value::Coded(coded) = both else { panic!("two shards") };
        assert_eq!(coded.restore(), Err(CodingError::TooFew(2, 3)));
    }

    #[test]
    fn what_cannot_be_shards_of_the_value_does_not_decode() {
        let value = Bytes::from(vec![1; 400]);
        let good =
            Coded { id: id(7, &value, 3), shards: vec![(1, vec![0; 192].into()), (4, vec![0; 192].into())] };
        let mut bad = vec![good.clone(); 6];
        bad[0].id.data = 9;
        bad[1].id.shards = 17;
        bad[2].shards.clear();
        bad[3].shards.reverse();
        bad[4].shards[1].0 = 5;
        bad[5].shards[0].1 = vec![0; 191].into();
        let back = |coded: &Coded| Value::from_bytes(Value::Coded(Box::new(coded.clone())).to_bytes());
        assert_eq!(back(&good).unwrap(), Value::Coded(Box::new(good)));
        bad.iter().for_each(|coded| assert!(back(coded).is_err(), "{coded:?}"));
    }
}
