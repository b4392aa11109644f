//! Instances and sets of them.

use std::collections::BTreeSet;
use std::fmt;

use quorate_core::{Decoder, Encoder, NodeId, Wire, WireError, wire_struct};

/// Owners are the nodes 1 to this.
pub const OWNERS: usize = 7;

const NODE_BITS: u32 = 6;
/// Indexes in messages and records are below this: whoever adds to one stays within what an [`Instance`] can hold.
const INDEXES: u64 = 1 << 57;

/// The place of one value: `(index, owner)` in one word, compared in that order. Each owner counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance(u64);

impl Instance {
    /// The owner's instance of this index, which is not 0. Owners beyond [`OWNERS`] have none.
    pub fn new(owner: NodeId, index: u64) -> Instance {
        assert!(usize::from(owner.get()) <= OWNERS && index > 0 && index >> (64 - NODE_BITS) == 0);
        Instance(index << NODE_BITS | u64::from(owner.get()))
    }

    /// Who proposed it first.
    pub fn owner(self) -> NodeId {
        NodeId::new(self.0 & ((1 << NODE_BITS) - 1)).expect("checked when it was made")
    }

    /// Which of the owner's it is.
    pub fn index(self) -> u64 {
        self.0 >> NODE_BITS
    }

    /// As a word that is ordered alike: what slot numbers of facts, marks and answers are.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.owner(), self.index())
    }
}

impl Wire for Instance {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let word = input.u64()?;
        let owner = word & ((1 << NODE_BITS) - 1);
        if !(1..=OWNERS as u64).contains(&owner) || !(1..INDEXES).contains(&(word >> NODE_BITS)) {
            return Err(WireError::Value { what: "instance", found: word });
        }
        Ok(Instance(word))
    }
}

/// A set that holds, of each owner, all instances up to an index.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Frontier([u64; OWNERS]);

impl Frontier {
    /// Every instance that can be.
    pub const ALL: Frontier = Frontier([u64::MAX >> NODE_BITS; OWNERS]);

    /// How many bytes its encoding takes at most.
    pub const BYTES: usize = 1 + 8 * OWNERS;

    /// The last of this owner's that is in it; 0 if none is.
    pub fn of(&self, owner: NodeId) -> u64 {
        self.0[usize::from(owner.get()) - 1]
    }

    /// Replaces what is in it of this owner's.
    pub fn set(&mut self, owner: NodeId, index: u64) {
        self.0[usize::from(owner.get()) - 1] = index;
    }

    /// Whether the instance is in it.
    pub fn contains(&self, instance: Instance) -> bool {
        instance.index() <= self.of(instance.owner())
    }

    /// Adds an instance, and those of its owner before it.
    pub fn add(&mut self, instance: Instance) {
        self.set(instance.owner(), self.of(instance.owner()).max(instance.index()));
    }

    /// What is in either.
    pub fn union(&self, other: &Frontier) -> Frontier {
        Frontier(std::array::from_fn(|at| self.0[at].max(other.0[at])))
    }

    /// What is in both.
    pub fn intersection(&self, other: &Frontier) -> Frontier {
        Frontier(std::array::from_fn(|at| self.0[at].min(other.0[at])))
    }

    /// Whether all of it is in the other.
    pub fn within(&self, other: &Frontier) -> bool {
        self.0.iter().zip(&other.0).all(|(one, other)| one <= other)
    }

    /// The last instance of each owner who has more in it than in the other.
    pub fn lasts_beyond(self, other: Frontier) -> impl Iterator<Item = Instance> {
        let more = (1..).zip(self.0).zip(other.0).filter(|((_, index), other)| index > other);
        more.map(|((id, index), _)| Instance::new(NodeId::new(id).expect("few owners"), index))
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|index| *index == 0)
    }

    /// How many instances are in it.
    pub fn len(&self) -> u64 {
        self.0.iter().fold(0, |sum, index| sum.saturating_add(*index))
    }

    /// Each owner, with its last.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        (1..).zip(&self.0).map(|(id, index)| (NodeId::new(id).expect("few owners"), *index))
    }
}

impl fmt::Debug for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some: Vec<_> = self.iter().filter(|(_, index)| *index > 0).collect();
        f.write_str("{")?;
        for (at, (owner, index)) in some.iter().enumerate() {
            write!(f, "{}{owner}.{index}", if at == 0 { "" } else { " " })?;
        }
        f.write_str("}")
    }
}

impl Wire for Frontier {
    fn encode(&self, out: &mut Encoder) {
        let len = OWNERS - self.0.iter().rev().take_while(|index| **index == 0).count();
        // In one piece: every record and most messages carry some.
        let mut bytes = [0; Self::BYTES];
        bytes[0] = len as u8;
        for (word, index) in bytes[1..].chunks_exact_mut(8).zip(&self.0[..len]) {
            word.copy_from_slice(&index.to_le_bytes());
        }
        out.put_slice(&bytes[..1 + 8 * len]);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let len = input.u8()?;
        if usize::from(len) > OWNERS {
            return Err(WireError::Value { what: "frontier", found: len.into() });
        }
        let mut frontier = Frontier::default();
        for at in 0..usize::from(len) {
            let index = input.u64()?;
            if index >= INDEXES {
                return Err(WireError::Value { what: "index", found: index });
            }
            frontier.0[at] = index;
        }
        Ok(frontier)
    }
}

/// The instances that were executed: nearly all of them are a frontier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    prefix: Frontier,
    beyond: BTreeSet<Instance>,
    hull: Frontier,
}

impl Executed {
    /// Adds one that is not in it.
    pub fn insert(&mut self, instance: Instance) {
        assert!(!self.contains(instance), "{instance:?} is executed once");
        self.beyond.insert(instance);
        self.hull.add(instance);
        let owner = instance.owner();
        while self.beyond.remove(&Instance::new(owner, self.prefix.of(owner) + 1)) {
            self.prefix.set(owner, self.prefix.of(owner) + 1);
        }
    }

    /// Whether it was executed.
    pub fn contains(&self, instance: Instance) -> bool {
        self.prefix.contains(instance) || self.beyond.contains(&instance)
    }

    /// Per owner, up to where all were.
    pub fn prefix(&self) -> Frontier {
        self.prefix
    }

    /// The smallest frontier that has them all.
    pub fn hull(&self) -> Frontier {
        self.hull
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.beyond.is_empty()
    }

    /// Everything, for a snapshot.
    pub fn image(&self) -> ExecutedImage {
        ExecutedImage { prefix: self.prefix, beyond: self.beyond.iter().copied().collect() }
    }

    /// Back from a snapshot.
    pub fn from_image(image: ExecutedImage) -> Executed {
        let mut executed = Executed { prefix: image.prefix, beyond: BTreeSet::new(), hull: image.prefix };
        for instance in image.beyond {
            if !executed.contains(instance) {
                executed.insert(instance);
            }
        }
        executed
    }
}

/// The encoded form of [`Executed`].
#[derive(Clone, Debug)]
pub struct ExecutedImage {
    prefix: Frontier,
    beyond: Vec<Instance>,
}
wire_struct!(ExecutedImage { prefix, beyond });

#[cfg(test)]
mod tests {
    use super::*;

    fn at(owner: u64, index: u64) -> Instance {
        Instance::new(NodeId::new(owner).expect("an id"), index)
    }

    #[test]
    fn a_frontier_holds_all_up_to_the_last_that_was_added() {
        let mut frontier = Frontier::default();
        frontier.add(at(2, 3));
        frontier.add(at(2, 1));
        assert_eq!([1, 3, 4].map(|index| frontier.contains(at(2, index))), [true, true, false]);
        assert!(!frontier.contains(at(1, 1)));
        let mut other = Frontier::default();
        other.add(at(1, 5));
        let both = frontier.union(&other);
        assert!(frontier.within(&both) && other.within(&both) && !both.within(&other));
        assert_eq!(both.intersection(&other), other);
        assert_eq!(both.lasts_beyond(other).collect::<Vec<_>>(), [at(2, 3)]);
        assert_eq!((both.len(), format!("{both:?}")), (8, "{1.5 2.3}".to_owned()));
        assert_eq!(Frontier::from_bytes(both.to_bytes()), Ok(both));
    }

    #[test]
    fn what_is_executed_out_of_order_becomes_the_prefix_when_the_gap_closes() {
        let mut executed = Executed::default();
        for index in [2, 3, 5] {
            executed.insert(at(1, index));
        }
        assert_eq!((executed.prefix().of(at(1, 1).owner()), executed.hull().len()), (0, 5));
        executed.insert(at(1, 1));
        assert_eq!(executed.prefix().len(), 3);
        assert!(executed.contains(at(1, 5)) && !executed.contains(at(1, 4)));
        let image = ExecutedImage::from_bytes(executed.image().to_bytes()).expect("whole");
        assert_eq!(Executed::from_image(image), executed);
    }

    #[test]
    fn forged_instances_are_refused() {
        for word in [0u64, 1, 9 << 6, 1 << 6 | 8, INDEXES << 6 | 1, u64::MAX] {
            assert!(Instance::from_bytes(word.to_bytes()).is_err(), "{word}");
        }
        // How many owners, and the last index of each.
        for (owners, index, is_one) in
            [(7u8, 1u64, true), (8, 1, false), (7, INDEXES - 1, true), (7, INDEXES, false)]
        {
            let mut bytes = vec![owners];
            (0..owners).for_each(|_| bytes.extend_from_slice(&index.to_le_bytes()));
            assert_eq!(Frontier::from_bytes(bytes.into()).is_ok(), is_one, "{owners} owners, {index}");
        }
    }
}
