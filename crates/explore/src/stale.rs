//! Messages that nobody will take notice of any more: dropping them merges states that differ in nothing else.
//!
//! Whether a message is stale is a guess at first: delivered now, it would change nothing, and nothing would be said.
//! The guess is verified when the search is over: in every state that the replica can get into from there, as the
//! search has seen it move, the message must still change nothing. Then leaving it out has lost nothing: whatever the
//! cluster does with the message, it does without. A guess that was wrong is not made again, and the search is
//! repeated.

use std::collections::{BTreeMap, BTreeSet};

use super::locals::{Code, Locals};
use super::table::Table;

/// See the file comment.
#[derive(Default)]
pub(super) struct Stale {
    /// States of replicas in which a message was taken for stale, by message.
    guesses: BTreeMap<u32, Vec<u32>>,
    /// 1: guessed; 2: wrong.
    known: Table<u8>,
    moves: Vec<(u32, u32)>,
    moved: Table<()>,
}

fn pair(one: u32, other: u32) -> u128 {
    u128::from(one) << 32 | u128::from(other) | 1 << 127
}

impl Stale {
    /// A replica gets from one state into another.
    pub fn moves(&mut self, from: u32, to: u32) {
        if from != to && self.moved.insert(pair(from, to), ()) {
            self.moves.push((from, to));
        }
    }

    /// Whether a message is taken for stale in a state of the replica to which it goes.
    pub fn holds(&mut self, locals: &mut Locals, local: u32, flight: u32) -> bool {
        if let Some(known) = self.known.get(pair(local, flight)) {
            return known == 1;
        }
        let step = locals.step(local, Code::flight(flight));
        let idle = locals.taken(step).is_ok_and(|step| step.is_idle(local));
        if idle {
            self.guesses.entry(flight).or_default().push(local);
        }
        self.known.insert(pair(local, flight), if idle { 1 } else { 2 });
        idle
    }

    /// Whether every guess was right. Those that were not will not be made again.
    pub fn verify(&mut self, locals: &mut Locals) -> bool {
        let mut next: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (from, to) in &self.moves {
            next.entry(*from).or_default().push(*to);
        }
        let mut right = true;
        for (flight, guessed) in &mut self.guesses {
            let before = guessed.len();
            // States from which the message can be noticed: backwards from those in which it is.
            let mut seen: BTreeSet<u32> = guessed.iter().copied().collect();
            let mut todo = guessed.clone();
            let (mut back, mut loud): (BTreeMap<u32, Vec<u32>>, Vec<u32>) = (BTreeMap::new(), Vec::new());
            while let Some(local) = todo.pop() {
                let step = locals.step(local, Code::flight(*flight));
                if !locals.taken(step).is_ok_and(|step| step.is_idle(local)) {
                    loud.push(local);
                    continue;
                }
                for &to in next.get(&local).into_iter().flatten() {
                    back.entry(to).or_default().push(local);
                    if seen.insert(to) {
                        todo.push(to);
                    }
                }
            }
            let mut wrong: BTreeSet<u32> = loud.iter().copied().collect();
            while let Some(local) = loud.pop() {
                for &from in back.get(&local).into_iter().flatten() {
                    if wrong.insert(from) {
                        loud.push(from);
                    }
                }
            }
            guessed.retain(|local| !wrong.contains(local));
            right &= guessed.len() == before;
            for local in wrong {
                self.known.set(pair(local, *flight), 2);
            }
        }
        right
    }
}
