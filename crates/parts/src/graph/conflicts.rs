//! The latest instances of each owner that touched a key: what a new instance depends on.
//!
//! The index is bounded: keys that were last touched by instances in a given frontier can be forgotten, and count then
//! as touched by all of it.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::graph::{Frontier, Instance, Interference};

/// See the file comment.
#[derive(Clone, Debug, Default)]
pub struct Conflicts {
    keys: BTreeMap<Bytes, Marks>,
    sessions: BTreeMap<u64, Frontier>,
    /// Of any key, those that touch all keys included.
    any_key: Marks,
    all_keys: Marks,
    any_session: Frontier,
    opens: Frontier,
    forgotten: Frontier,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    read: Frontier,
    written: Frontier,
}

impl Marks {
    fn hull(&self) -> Frontier {
        self.read.union(&self.written)
    }
}

impl Conflicts {
    /// An instance touches this.
    pub fn add(&mut self, instance: Instance, touched: &Interference) {
        for key in &touched.reads {
            self.keys.entry(key.clone()).or_default().read.add(instance);
        }
        for key in &touched.writes {
            self.keys.entry(key.clone()).or_default().written.add(instance);
        }
        for session in &touched.sessions {
            self.sessions.entry(*session).or_default().add(instance);
        }
        let marks = [
            (touched.reads_some(), &mut self.any_key.read),
            (touched.writes_some(), &mut self.any_key.written),
            (touched.reads_all, &mut self.all_keys.read),
            (touched.writes_all, &mut self.all_keys.written),
            (touched.has_sessions(), &mut self.any_session),
            (touched.opens, &mut self.opens),
        ];
        for (_, mark) in marks.into_iter().filter(|(touches, _)| *touches) {
            mark.add(instance);
        }
    }

    /// Those that interfere with this, and any that may have been forgotten.
    pub fn with(&self, touched: &Interference) -> Frontier {
        let mut all = self.forgotten;
        let mut take = |frontier: &Frontier| all = all.union(frontier);
        for key in &touched.reads {
            self.keys.get(key).into_iter().for_each(|marks| take(&marks.written));
        }
        for key in &touched.writes {
            self.keys.get(key).into_iter().for_each(|marks| take(&marks.hull()));
        }
        if touched.reads_some() {
            take(&self.all_keys.written);
        }
        if touched.writes_some() {
            take(&self.all_keys.hull());
        }
        if touched.reads_all {
            take(&self.any_key.written);
        }
        if touched.writes_all {
            take(&self.any_key.hull());
        }
        for session in &touched.sessions {
            self.sessions.get(session).into_iter().for_each(&mut take);
        }
        if touched.opens {
            take(&self.any_session);
        } else if touched.has_sessions() {
            take(&self.opens);
        }
        all
    }

    /// Forgets keys and sessions that were touched by instances of this frontier only.
    pub fn forget(&mut self, upto: &Frontier) {
        let Conflicts { keys, sessions, forgotten, .. } = self;
        let mut keep = |touched: Frontier| {
            let goes = touched.within(upto);
            if goes {
                *forgotten = forgotten.union(&touched);
            }
            !goes
        };
        keys.retain(|_, marks| keep(marks.hull()));
        sessions.retain(|_, frontier| keep(*frontier));
    }

    /// Counts everything of this frontier as forgotten: there may be more of it than was ever here.
    pub fn miss(&mut self, frontier: &Frontier) {
        self.forgotten = self.forgotten.union(frontier);
    }

    /// How many keys and sessions are remembered.
    pub fn len(&self) -> usize {
        self.keys.len() + self.sessions.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeId;

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
    }
}
