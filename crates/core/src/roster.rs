//! A **roster**: who leads, and for each range of keys which replicas serve linearizable reads from their own state
//! (its **responders**). The leader is a responder for every key without being named. (Bodega §3.1.)
//!
//! It is a part of the contract because operators set and show it ([`Manage::Roster`](crate::Manage::Roster)), whatever
//! the protocol is: drivers and clients know it, and a protocol says in its `Capabilities` whether it has any.

use std::fmt;

use bytes::Bytes;

use crate::id::{NodeId, NodeSet};
use crate::wire::{Decoder, Encoder, Wire, WireError};
use crate::wire_struct;

/// Keys from `from` (inclusive) to `to` (exclusive; none: all that follow), and their responders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key of the range.
    pub from: Bytes,
    /// The first key that is behind the range; `None`: it has no end.
    pub to: Option<Bytes>,
    /// Who serves reads of them.
    pub responders: NodeSet,
}
wire_struct!(Range { from, to, responders });

impl Range {
    /// The range that holds every key.
    pub fn all(responders: NodeSet) -> Range {
        Range { from: Bytes::new(), to: None, responders }
    }

    /// The range that holds one key alone.
    pub fn key(key: &Bytes, responders: NodeSet) -> Range {
        let behind = [key, &b"\0"[..]].concat();
        Range { from: key.clone(), to: Some(behind.into()), responders }
    }

    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to <= &self.from)
    }

    /// Whether all keys of another range are in it.
    fn holds(&self, other: &Range) -> bool {
        let ends_behind = match (&self.to, &other.to) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(other)) => end >= other,
        };
        self.from <= other.from && ends_behind
    }

    fn reaches(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| &to[..] > key)
    }
}

/// See the file comment. Ranges are in the order of their keys and do not overlap; keys in none have no responder but
/// the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    leader: Option<NodeId>,
    ranges: Vec<Range>,
}

/// Why some ranges make no roster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RosterError {
    /// There are too many.
    #[error("a roster has at most {MAX_RANGES} ranges")]
    TooMany,
    /// A range ends before it begins.
    #[error("the range from {0:?} holds no key")]
    Empty(Bytes),
    /// Two ranges share keys.
    #[error("the ranges overlap at {0:?}")]
    Overlap(Bytes),
}

/// A roster is told to everybody whenever it changes.
pub const MAX_RANGES: usize = 4096;
/// Ranges that are written out where a roster is shown in one line.
const SHOWN: usize = 16;

impl Roster {
    /// Of these ranges, in any order; those without responders are left out.
    pub fn new(leader: Option<NodeId>, mut ranges: Vec<Range>) -> Result<Roster, RosterError> {
        if let Some(empty) = ranges.iter().find(|range| range.is_empty()) {
            return Err(RosterError::Empty(empty.from.clone()));
        }
        ranges.sort_by(|a, b| a.from.cmp(&b.from));
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].reaches(&pair[1].from)) {
            return Err(RosterError::Overlap(pair[1].from.clone()));
        }
        ranges.retain(|range| !range.responders.is_empty());
        if ranges.len() > MAX_RANGES {
            return Err(RosterError::TooMany);
        }
        Ok(Roster { leader, ranges })
    }

    /// Of these ranges, in any order, of which one may lie within another: then it counts for its keys, and the other
    /// for the rest of its own. So a default for all keys goes together with exceptions for some.
    pub fn layered(leader: Option<NodeId>, mut ranges: Vec<Range>) -> Result<Roster, RosterError> {
        if let Some(empty) = ranges.iter().find(|range| range.is_empty()) {
            return Err(RosterError::Empty(empty.from.clone()));
        }
        // Of two that begin with the same key the longer comes first.
        ranges.sort_by(|a, b| a.from.cmp(&b.from).then_with(|| b.holds(a).cmp(&a.holds(b))));
        let is_twice = |pair: &&[Range]| pair[0].from == pair[1].from && pair[0].to == pair[1].to;
        if let Some(pair) = ranges.windows(2).find(is_twice) {
            return Err(RosterError::Overlap(pair[1].from.clone()));
        }
        // Those that hold the present key, the innermost last, without what is in `flat` already.
        let (mut open, mut flat) = (Vec::<Range>::new(), Vec::new());
        for range in ranges {
            close(&mut open, Some(&range.from), &mut flat);
            if let Some(outer) = open.last() {
                if !outer.holds(&range) {
                    return Err(RosterError::Overlap(range.from));
                }
                flat.push(Range { to: Some(range.from.clone()), ..outer.clone() });
            }
            open.push(range);
        }
        close(&mut open, None, &mut flat);
        flat.retain(|range| !range.is_empty());
        Roster::new(leader, flat)
    }

    /// The same responders, led by another.
    pub fn with_leader(&self, leader: NodeId) -> Roster {
        Roster { leader: Some(leader), ranges: self.ranges.clone() }
    }

    /// The same, without those who are not in `nodes`.
    pub fn within(&self, nodes: NodeSet) -> Roster {
        let ranges = self
            .ranges
            .iter()
            .map(|range| Range { responders: range.responders.intersection(nodes), ..range.clone() });
        let ranges = ranges.filter(|range| !range.responders.is_empty()).collect();
        Roster { leader: self.leader.filter(|leader| nodes.contains(*leader)), ranges }
    }

    /// Who is to lead; `None`: whoever does.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// The responders of a key, apart from the leader.
    pub fn responders(&self, key: &[u8]) -> NodeSet {
        let behind = self.ranges.partition_point(|range| &range.from[..] <= key);
        let found = behind.checked_sub(1).map(|at| &self.ranges[at]).filter(|range| range.reaches(key));
        found.map_or(NodeSet::EMPTY, |range| range.responders)
    }

    /// Whoever is a responder of some key, apart from the leader.
    pub fn everyone(&self) -> NodeSet {
        self.ranges.iter().fold(NodeSet::EMPTY, |all, range| all.union(range.responders))
    }

    /// Whether a replica is a responder of every key there could be.
    pub fn has_all(&self, node: NodeId) -> bool {
        let mut covered = Some(Bytes::new());
        for range in self.ranges.iter().filter(|range| range.responders.contains(node)) {
            match covered {
                Some(upto) if range.from <= upto => covered = range.to.clone(),
                _ => return false,
            }
        }
        covered.is_none()
    }
}

/// Moves ranges that end at or before a key, or all, from `open` to `flat`. What surrounds one goes on where it ends.
fn close(open: &mut Vec<Range>, key: Option<&Bytes>, flat: &mut Vec<Range>) {
    while let Some(range) = open.pop_if(|range| key.is_none_or(|key| !range.reaches(key))) {
        match (&range.to, open.last_mut()) {
            (Some(to), Some(outer)) => outer.from = to.clone(),
            (None, _) => open.clear(),
            (Some(_), None) => {}
        }
        flat.push(range);
    }
}

/// The ranges, as `quorate roster set` takes them; after a few, how many more there are.
impl fmt::Display for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranges.is_empty() {
            return f.write_str("none");
        }
        for (index, Range { from, to, responders }) in self.ranges.iter().take(SHOWN).enumerate() {
            let space = if index == 0 { "" } else { " " };
            let to = to.as_deref().unwrap_or_default();
            write!(f, "{space}{}..{}=", from.escape_ascii(), to.escape_ascii())?;
            for (index, node) in responders.iter().enumerate() {
                write!(f, "{}{node}", if index == 0 { "" } else { "," })?;
            }
        }
        match self.ranges.len().checked_sub(SHOWN + 1) {
            Some(more) => write!(f, " and {} more", more + 1),
            None => Ok(()),
        }
    }
}

impl Wire for Roster {
    fn encode(&self, out: &mut Encoder) {
        self.leader.encode(out);
        self.ranges.encode(out);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (leader, ranges) = (Wire::decode(input)?, Vec::<Range>::decode(input)?);
        let found = ranges.len() as u64;
        Roster::new(leader, ranges).map_err(|_| WireError::Value { what: "roster ranges", found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &str) -> NodeSet {
        ids.chars().map(|c| NodeId::new(c.to_digit(10).unwrap().into()).unwrap()).collect()
    }

    /// `from-to:responders`; nothing behind the dash is no end.
    fn ranges(text: &str) -> Vec<Range> {
        let range = |word: &str| {
            let (keys, responders) = word.split_once(':').unwrap();
            let (from, to) = keys.split_once('-').unwrap();
            let to = Some(to).filter(|to| !to.is_empty()).map(|to| Bytes::copy_from_slice(to.as_bytes()));
            Range { from: Bytes::copy_from_slice(from.as_bytes()), to, responders: nodes(responders) }
        };
        text.split_whitespace().map(range).collect()
    }

    #[test]
    fn keys_find_their_responders() {
        let roster = Roster::new(None, ranges("m-:4 b-d:123 d-e:2")).unwrap();
        for (key, expected) in [("a", ""), ("b", "123"), ("cz", "123"), ("d", "2"), ("e", ""), ("zz", "4")] {
            assert_eq!(roster.responders(key.as_bytes()), nodes(expected), "{key}");
        }
        assert_eq!(roster.everyone(), nodes("1234"));
        assert_eq!(roster.to_string(), "b..d=1,2,3 d..e=2 m..=4");
        assert_eq!(roster.within(nodes("13")).everyone(), nodes("13"));
        assert_eq!(Roster::from_bytes(roster.to_bytes()).unwrap(), roster);
        let one = Roster::new(None, vec![Range::key(&Bytes::from_static(b"k"), nodes("2"))]).unwrap();
        assert_eq!([&b"k"[..], b"k\0", b"j"].map(|key| one.responders(key).len()), [1, 0, 0]);
    }

    #[test]
    fn ranges_that_overlap_or_hold_nothing_are_refused() {
        for (text, fine) in [("a-c:1 c-:2", true), ("a-:1 c-d:2", false), ("c-c:1", false), ("d-c:1", false)]
        {
            assert_eq!(Roster::new(None, ranges(text)).is_ok(), fine, "{text}");
        }
    }

    #[test]
    fn a_roster_has_so_many_ranges_at_most_also_where_it_comes_from_outside() {
        let key = |number: usize| Range::key(&Bytes::from(format!("{number:04}")), nodes("1"));
        let ranges: Vec<_> = (0..=MAX_RANGES).map(key).collect();
        assert!(Roster::new(None, ranges[1..].to_vec()).is_ok());
        assert_eq!(Roster::new(None, ranges.clone()), Err(RosterError::TooMany));
        let forged = (None::<NodeId>, ranges);
        assert!(Roster::from_bytes(forged.to_bytes()).is_err());
    }

    #[test]
    fn a_leader_who_is_in_the_group_no_more_leads_no_more() {
        let roster = Roster::new(NodeId::new(2), ranges("a-:12")).unwrap();
        assert_eq!(
            [nodes("12"), nodes("13")].map(|group| roster.within(group).leader()),
            [NodeId::new(2), None]
        );
    }

    #[test]
    fn a_range_within_another_counts_for_its_keys() {
        for (text, expected) in [
            ("-:12 u-v:3", "..u=1,2 u..v=3 v..=1,2"),
            ("-:1 b-d:2 c-cc:3 x-:4", "..b=1 b..c=2 c..cc=3 cc..d=2 d..x=1 x..=4"),
            ("a-z:1 a-m:2 m-z:3", "a..m=2 m..z=3"),
            ("a-:1 a-b:2", "a..b=2 b..=1"),
            ("-:1 a-b: c-:2", "..a=1 b..c=1 c..=2"),
            ("a-b:1 c-d:2", "a..b=1 c..d=2"),
        ] {
            let mut reversed = ranges(text);
            reversed.reverse();
            for ranges in [ranges(text), reversed] {
                assert_eq!(Roster::layered(None, ranges).unwrap().to_string(), expected, "{text}");
            }
        }
        for text in ["a-c:1 b-d:2", "a-c:1 a-c:2", "-:1 -:2", "-m:1 l-:2", "-:1 a-c:1 b-d:2", "c-c:1"] {
            assert!(Roster::layered(None, ranges(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn all_keys_are_covered_or_not() {
        for (text, expected) in
            [("-:12", "12"), ("-m:12 m-:1", "1"), ("-m:12 n-:1", ""), ("a-:1", ""), ("", "")]
        {
            let roster = Roster::new(None, ranges(text)).unwrap();
            let all: NodeSet = (1..=3).filter_map(NodeId::new).filter(|node| roster.has_all(*node)).collect();
            assert_eq!(all, nodes(expected), "{text}");
        }
    }
}
