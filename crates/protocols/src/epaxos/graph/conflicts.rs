//! The latest instances of each owner that touched a key. A replica has two of these: one of all instances that it
//! knows (what a new instance depends on), and one of those that it has collected and that a recovery may still ask
//! about.
//!
//! The latest of an owner stands for its earlier ones: dependencies hold all of an owner's instances up to one, so "is
//! there one of this owner's that interferes and is not among the dependencies?" has the same answer for all that
//! touched the key as for the last that did. So the index is as large as the keys are many, however often they are
//! touched.
//!
//! The index is bounded: keys that were last touched by instances in a given frontier can be forgotten, and count then
//! as touched by all of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{wire_enum, wire_struct};

use crate::epaxos::graph::Interference;

/// See the file comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    keys: BTreeMap<Bytes, Marks>,
    sessions: BTreeMap<u64, Frontier>,
    totals: Totals,
}

/// Who touched one key last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    read: Frontier,
    written: Frontier,
}
wire_struct!(Marks { read, written });

impl Marks {
    fn hull(&self) -> Frontier {
        self.read.union(&self.written)
    }

    fn merge(&mut self, other: &Marks) {
        self.read = self.read.union(&other.read);
        self.written = self.written.union(&other.written);
    }
}

/// What an index knows apart from single keys and sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of any key, those that touch all keys included.
    any_key: Marks,
    all_keys: Marks,
    any_session: Frontier,
    opens: Frontier,
    forgotten: Frontier,
}
wire_struct!(Totals { any_key, all_keys, any_session, opens, forgotten });

/// One thing that was touched, and by whom last: a piece of an index, in a snapshot or a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A key.
    Key {
        /// The key that instances read or wrote.
        key: Bytes,
        /// The last reader and the last writer of it from each replica.
        marks: Marks,
    },
    /// A session.
    Session {
        /// The session whose writes these are.
        session: u64,
        /// The last instance of each replica that has a write of it.
        touched: Frontier,
    },
}
wire_enum!(Trace { 1 => Key { key, marks }, 2 => Session { session, touched } });

impl Trace {
    /// How many bytes its encoding takes at most.
    pub fn bytes(&self) -> usize {
        let frontier = Frontier::BYTES;
        match self {
            Trace::Key { key, .. } => 1 + 4 + key.len() + 2 * frontier,
            Trace::Session { .. } => 1 + 8 + frontier,
        }
    }
}

impl Conflicts {
    /// An instance touches this.
    pub fn add(&mut self, instance: Instance, touched: &Interference) {
        for key in &touched.reads {
            self.mark(key, |marks| marks.read.add(instance));
        }
        for key in &touched.writes {
            self.mark(key, |marks| marks.written.add(instance));
        }
        for session in &touched.sessions {
            self.sessions.entry(*session).or_default().add(instance);
        }
        let totals = &mut self.totals;
        let marks = [
            (touched.reads_some(), &mut totals.any_key.read),
            (touched.writes_some(), &mut totals.any_key.written),
            (touched.reads_all, &mut totals.all_keys.read),
            (touched.writes_all, &mut totals.all_keys.written),
            (touched.has_sessions(), &mut totals.any_session),
            (touched.opens, &mut totals.opens),
        ];
        for (_, mark) in marks.into_iter().filter(|(touches, _)| *touches) {
            mark.add(instance);
        }
    }

    /// Changes who touched a key. The index has keys of its own: they outlive the batch, and must not keep all of it in
    /// memory.
    fn mark(&mut self, key: &Bytes, change: impl FnOnce(&mut Marks)) {
        match self.keys.get_mut(key) {
            Some(marks) => change(marks),
            None => change(self.keys.entry(Bytes::copy_from_slice(key)).or_default()),
        }
    }

    /// Those that interfere with this, and any that may have been forgotten.
    pub fn with(&self, touched: &Interference) -> Frontier {
        self.surely_with(touched).union(&self.totals.forgotten)
    }

    /// Those that interfere with this, as far as is remembered: the last of each owner does, for certain.
    pub fn surely_with(&self, touched: &Interference) -> Frontier {
        let totals = &self.totals;
        let mut all = Frontier::default();
        let mut take = |frontier: &Frontier| all = all.union(frontier);
        for key in &touched.reads {
            self.keys.get(key).into_iter().for_each(|marks| take(&marks.written));
        }
        for key in &touched.writes {
            self.keys.get(key).into_iter().for_each(|marks| take(&marks.hull()));
        }
        if touched.reads_some() {
            take(&totals.all_keys.written);
        }
        if touched.writes_some() {
            take(&totals.all_keys.hull());
        }
        if touched.reads_all {
            take(&totals.any_key.written);
        }
        if touched.writes_all {
            take(&totals.any_key.hull());
        }
        for session in &touched.sessions {
            self.sessions.get(session).into_iter().for_each(&mut take);
        }
        if touched.opens {
            take(&totals.any_session);
        } else if touched.has_sessions() {
            take(&totals.opens);
        }
        all
    }

    /// Forgets keys and sessions that were touched by instances of this frontier only: all of these instances may
    /// interfere with anything from now on.
    pub fn forget(&mut self, upto: &Frontier) {
        let forgotten = self.remove(upto);
        self.miss(&forgotten);
    }

    /// Drops keys and sessions that were touched by instances of this frontier only, where nobody asks about those any
    /// more.
    pub fn retire(&mut self, upto: &Frontier) {
        self.remove(upto);
    }

    /// Removes what was touched by instances of this frontier only; the smallest frontier with all that did.
    fn remove(&mut self, upto: &Frontier) -> Frontier {
        let mut removed = Frontier::default();
        let mut keep = |touched: Frontier| {
            let goes = touched.within(upto);
            if goes {
                removed = removed.union(&touched);
            }
            !goes
        };
        self.keys.retain(|_, marks| keep(marks.hull()));
        self.sessions.retain(|_, frontier| keep(*frontier));
        removed
    }

    /// Counts everything of this frontier as forgotten: there may be more of it than was ever here.
    pub fn miss(&mut self, frontier: &Frontier) {
        self.totals.forgotten = self.totals.forgotten.union(frontier);
    }

    /// Of some of these it is not known any more what they touched.
    pub fn forgotten(&self) -> Frontier {
        self.totals.forgotten
    }

    /// What is known apart from single keys and sessions.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Each key and session, in order.
    pub fn traces(&self) -> impl Iterator<Item = Trace> + '_ {
        let keys = self.keys.iter().map(|(key, marks)| Trace::Key { key: key.clone(), marks: *marks });
        let sessions = self.sessions.iter();
        keys.chain(sessions.map(|(&session, &touched)| Trace::Session { session, touched }))
    }

    /// Adds a part of another index.
    pub fn merge(&mut self, totals: &Totals, traces: impl IntoIterator<Item = Trace>) {
        let own = &mut self.totals;
        own.any_key.merge(&totals.any_key);
        own.all_keys.merge(&totals.all_keys);
        for (own, other) in [
            (&mut own.any_session, &totals.any_session),
            (&mut own.opens, &totals.opens),
            (&mut own.forgotten, &totals.forgotten),
        ] {
            *own = own.union(other);
        }
        for trace in traces {
            match trace {
                Trace::Key { key, marks } => self.mark(&key, |own| own.merge(&marks)),
                Trace::Session { session, touched } => {
                    let own = self.sessions.entry(session).or_default();
                    *own = own.union(&touched);
                }
            }
        }
    }

    /// How many keys and sessions are remembered.
    pub fn len(&self) -> usize {
        self.keys.len() + self.sessions.len()
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{NodeId, Random, Wire};

    use super::super::interference::tests::touching;
    use super::*;

    fn at(owner: u64, index: u64) -> Instance {
        Instance::new(NodeId::new(owner).expect("an id"), index)
    }

    /// The last of each owner is the last that interferes, as pairs of batches say.
    #[test]
    fn the_index_finds_what_interferes() {
        let words =
            ["r:a", "w:a", "r:b w:a", "w:b", "r*", "w*", "s:1 w:c", "s:1", "s:2 r:a", "o", "w:c r:a", ""];
        let mut conflicts = Conflicts::default();
        let mut all = Vec::new();
        for (at_index, word) in (0u64..).zip(words.iter().chain(words.iter().rev())) {
            let touched = touching(word);
            let instance = at(1 + at_index % 3, 1 + at_index / 3);
            let mut expected = Frontier::default();
            for (earlier, other) in &all {
                if touched.with(other) {
                    expected.add(*earlier);
                }
            }
            assert_eq!(conflicts.with(&touched), expected, "{word}");
            conflicts.add(instance, &touched);
            all.push((instance, touched));
        }
    }

    #[test]
    fn what_was_forgotten_may_interfere_with_anything() {
        let mut conflicts = Conflicts::default();
        conflicts.add(at(1, 1), &touching("w:a"));
        conflicts.add(at(1, 2), &touching("w:b"));
        conflicts.add(at(2, 9), &touching("w:a"));
        let mut upto = Frontier::default();
        upto.add(at(1, 7));
        conflicts.forget(&upto);
        assert_eq!(conflicts.len(), 1, "`a` was touched by another as well");
        assert_eq!(format!("{:?}", conflicts.with(&touching("w:z"))), "{1.2}");
        assert_eq!(format!("{:?}", conflicts.with(&touching("w:a"))), "{1.2 2.9}");
        assert_eq!(format!("{:?}", conflicts.surely_with(&touching("w:a"))), "{1.1 2.9}");
        assert_eq!(
            format!("{:?}", conflicts.surely_with(&touching("w:b"))),
            "{}",
            "nobody may be accused of it"
        );
    }

    /// A recovery asks whether an instance outside of its dependencies interferes: the latest stand for all.
    #[test]
    fn a_key_that_is_touched_again_and_again_takes_no_more_room_and_hides_nothing() {
        let words = ["r:a", "w:a", "r:b w:a", "m:bc", "s:1 w:c", "o", "r*", "w*"];
        let mut random = Random::new(3);
        let (mut conflicts, mut all) = (Conflicts::default(), Vec::new());
        for index in 1..=200 {
            for owner in 1..=3 {
                let touched = touching(random.pick::<&str>(&words));
                conflicts.add(at(owner, index), &touched);
                all.push((at(owner, index), touched));
            }
            let mut deps = Frontier::default();
            (1..=3).for_each(|owner| deps.add(at(owner, index.saturating_sub(random.range(0..5)).max(1))));
            for word in words {
                let touched = touching(word);
                let beyond = |(other, touches): &(Instance, Interference)| {
                    !deps.contains(*other) && touches.with(&touched)
                };
                let expected = all.iter().any(beyond);
                assert_eq!(!conflicts.with(&touched).within(&deps), expected, "{word} {deps:?}");
            }
        }
        assert_eq!(conflicts.len(), 4);
    }

    #[test]
    fn an_index_keeps_no_batch_in_memory() {
        let (mut conflicts, batch) = (Conflicts::default(), Bytes::from(vec![b'k'; 1 << 16]));
        let (reads, writes) = (vec![batch.slice(..1)], vec![batch.slice(..2)]);
        conflicts.add(at(1, 1), &Interference { reads, writes, ..Interference::default() });
        let trace = Trace::Key { key: batch.slice(..3), marks: Marks::default() };
        conflicts.merge(&Totals::default(), [trace]);
        assert_eq!(conflicts.len(), 3);
        assert!(batch.is_unique());
    }

    #[test]
    fn parts_of_an_index_make_up_the_whole() {
        let mut whole = Conflicts::default();
        for (index, word) in (1..).zip(["w:a r:b", "s:1 w:c", "o", "r*", "s:2 r:a"]) {
            whole.add(at(1 + index % 3, index), &touching(word));
        }
        whole.miss(&{
            let mut forgotten = Frontier::default();
            forgotten.add(at(2, 1));
            forgotten
        });
        let traces: Vec<_> = whole.traces().collect();
        assert!(traces.iter().all(|trace| trace.to_bytes().len() <= trace.bytes()), "{traces:?}");
        let mut other = Conflicts::default();
        for trace in traces.into_iter().rev() {
            let trace = Trace::from_bytes(trace.to_bytes()).expect("whole");
            other.merge(&whole.totals(), [trace]);
        }
        assert_eq!(other, whole);
        let mut upto = Frontier::default();
        upto.add(at(3, 9));
        other.retire(&upto);
        assert_eq!((other.len() < whole.len(), other.totals()), (true, whole.totals()), "nobody asks for it");
    }
}
