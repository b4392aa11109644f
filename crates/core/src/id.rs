//! Who is who: replicas, proxies, requests.

use std::fmt;

use crate::wire::{Decoder, Encoder, Wire, WireError};

/// A replica of a group, numbered 1 to 63 by the operator (`--node-id`), so that sets fit in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// The largest id; a set of nodes is one word of 64 bits.
    pub const MAX: u8 = 63;

    /// An id from what an operator or a peer wrote; `None` when it is outside 1 to 63.
    pub fn new(id: u64) -> Option<NodeId> {
        (1..=u64::from(Self::MAX)).contains(&id).then_some(NodeId(id as u8))
    }

    /// The id as a number, from 1.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl Wire for NodeId {
    fn encode(&self, out: &mut Encoder) {
        out.put_u8(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let id = input.u8()?;
        NodeId::new(id.into()).ok_or(WireError::Value { what: "node id", found: id.into() })
    }
}

/// One of the groups among which the keys of a process are divided (`--groups`), numbered from 1 in the order of their
/// keys. Where they are not divided, all is the first's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u8);

impl GroupId {
    /// The largest number; `--groups` takes no more.
    pub const MAX: u8 = 64;
    /// The group of the lowest keys.
    pub const FIRST: GroupId = GroupId(1);

    /// The group of this number, from 1; `None` if no process has so many.
    pub fn new(number: u8) -> Option<GroupId> {
        (1..=Self::MAX).contains(&number).then_some(GroupId(number))
    }

    /// The group at a place from 0. Panics at or above [`MAX`](Self::MAX).
    pub fn at(index: usize) -> GroupId {
        assert!(index < usize::from(Self::MAX), "no process has so many groups");
        GroupId(index as u8 + 1)
    }

    /// Its place, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0) - 1
    }

    /// The number of the group, from 1.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Wire for GroupId {
    fn encode(&self, out: &mut Encoder) {
        out.put_u8(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let number = input.u8()?;
        GroupId::new(number).ok_or(WireError::Value { what: "group", found: number.into() })
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A client side. Ids up to [`NodeId::MAX`] are the proxies that live inside the node of that number (and are
/// reached through it); larger ones are drawn at random by processes that run a proxy alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyId(pub u64);

impl ProxyId {
    /// The proxy inside a node.
    pub fn of(node: NodeId) -> ProxyId {
        ProxyId(node.0.into())
    }

    /// The node that hosts this proxy, if one does.
    pub fn host(self) -> Option<NodeId> {
        NodeId::new(self.0)
    }
}

/// One end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessId {
    /// A member of the group.
    Replica(NodeId),
    /// What runs for the clients, beside a replica or alone.
    Proxy(ProxyId),
}

impl ProcessId {
    /// The replica's id, if this is one.
    pub fn replica(self) -> Option<NodeId> {
        match self {
            ProcessId::Replica(node) => Some(node),
            ProcessId::Proxy(_) => None,
        }
    }
}

impl From<NodeId> for ProcessId {
    fn from(node: NodeId) -> Self {
        ProcessId::Replica(node)
    }
}

impl From<ProxyId> for ProcessId {
    fn from(proxy: ProxyId) -> Self {
        ProcessId::Proxy(proxy)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessId::Replica(node) => write!(f, "r{}", node.0),
            ProcessId::Proxy(proxy) => write!(f, "p{}", proxy.0),
        }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Wire for ProcessId {
    fn encode(&self, out: &mut Encoder) {
        match self {
            ProcessId::Replica(node) => {
                out.put_u8(0);
                out.put_u64(node.0.into());
            }
            ProcessId::Proxy(proxy) => {
                out.put_u8(1);
                out.put_u64(proxy.0);
            }
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match (input.u8()?, input.u64()?) {
            (0, id) => {
                NodeId::new(id).map(ProcessId::Replica).ok_or(WireError::Value { what: "node id", found: id })
            }
            (1, id) => Ok(ProcessId::Proxy(ProxyId(id))),
            (tag, _) => Err(WireError::Value { what: "process kind", found: tag.into() }),
        }
    }
}

/// A request as its driver knows it: what `reply` answers. Local to one proxy incarnation, never on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A set of replicas, as one word.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(u64);

impl NodeSet {
    /// The set without a node.
    pub const EMPTY: NodeSet = NodeSet(0);

    /// Every id that there can be.
    pub const ALL: NodeSet = NodeSet(!1);

    /// Adds a replica; false if it was in already.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let fresh = !self.contains(node);
        self.0 |= 1 << node.0;
        fresh
    }

    /// Takes a replica out; false if it was not in.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let was = self.contains(node);
        self.0 &= !(1 << node.0);
        was
    }

    /// Whether the replica is in.
    pub fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// How many are in.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether none is in.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes of the set, by ascending id.
    pub fn iter(self) -> impl Iterator<Item = NodeId> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let id = rest.trailing_zeros() as u8;
            rest &= rest - 1;
            Some(NodeId(id))
        })
    }

    /// The nodes that are in both sets.
    pub fn intersection(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & other.0)
    }

    /// The nodes that are in either set, or in both.
    pub fn union(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    /// The nodes of this set that are not in the other.
    pub fn difference(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & !other.0)
    }

    /// The set without this node; the same set if it is not in it.
    pub fn without(mut self, node: NodeId) -> NodeSet {
        self.remove(node);
        self
    }

    /// How many make a majority of this set: ⌊n/2⌋ + 1.
    pub fn majority(self) -> usize {
        self.len() / 2 + 1
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = NodeSet::EMPTY;
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Wire for NodeSet {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let bits = input.u64()?;
        if bits & 1 != 0 {
            return Err(WireError::Value { what: "node set", found: bits });
        }
        Ok(NodeSet(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> NodeId {
        NodeId::new(id).unwrap()
    }

    #[test]
    fn ids_outside_1_to_63_are_refused() {
        assert_eq!(NodeId::new(0), None);
        assert_eq!(NodeId::new(64), None);
        assert_eq!(NodeId::new(63).map(NodeId::get), Some(63));
    }

    #[test]
    fn what_is_no_id_is_refused_from_the_wire() {
        let node = |id: u8| NodeId::from_bytes(id.to_bytes()).is_ok();
        assert_eq!([0, 1, 63, 64].map(node), [false, true, true, false]);
        let group = |number: u8| GroupId::from_bytes(number.to_bytes()).is_ok();
        assert_eq!([0, 1, 64, 65].map(group), [false, true, true, false]);
        // There is no node 0 in a set either.
        let set = |bits: u64| NodeSet::from_bytes(bits.to_bytes()).is_ok();
        assert_eq!([0, 2, !1, 1, !0].map(set), [true, true, true, false, false]);
    }

    #[test]
    #[should_panic(expected = "no process has so many groups")]
    fn there_is_no_place_behind_the_last_group() {
        assert_eq!(GroupId::at(63).get(), GroupId::MAX);
        GroupId::at(64);
    }

    #[test]
    fn a_set_holds_each_node_once_and_in_order() {
        let mut set: NodeSet = [node(63), node(1), node(7)].into_iter().collect();
        assert!(!set.insert(node(7)));
        assert_eq!(set.iter().map(NodeId::get).collect::<Vec<_>>(), [1, 7, 63]);
        assert!(set.remove(node(1)) && !set.remove(node(1)));
        assert_eq!(set.len(), 2);
    }

    #[test]
    fn two_majorities_of_one_set_always_meet() {
        for n in 1..=63 {
            let all: NodeSet = (1..=n).map(node).collect();
            assert!(2 * all.majority() > all.len(), "{n}");
            assert!(2 * (all.majority() - 1) <= all.len(), "{n}: larger than needed");
        }
    }
}
