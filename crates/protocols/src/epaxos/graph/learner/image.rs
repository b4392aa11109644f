//! The image that a learner offers to one that is far behind: the state, and what is *remembered* of its executed
//! instances.
//!
//! - *Traces*: what those touch that are collected and that a recovery may still ask about. Without them the receiver
//!   could not judge whom an instance interferes with, and where no majority is left without such a receiver,
//!   recoveries would wait for ever.
//! - *Batches* that may not be collected yet ([`gc_watermarks`](super::gc_watermarks)): others may need them of the
//!   receiver, when the sender is gone. They are few: a majority has executed all others.
//!
//! The pieces of the state come first. The first byte of a cursor says which of the two it is in.

use bytes::Bytes;
use quorate_blocks::catchup::{Assembler, ImageId};
use quorate_blocks::instance::{Frontier, Instance};
use quorate_blocks::state::{LoadError, Loading, Replicated};
use quorate_core::{Encoder, Image, Piece, Snapshot, Wire, digest, mutation, wire_struct};

use crate::epaxos::graph::conflicts::{Totals, Trace};
use crate::epaxos::graph::{Conflicts, InstanceState};

const REMEMBERED: u8 = b'r';
const STATE: u8 = b's';

/// What goes with a state. See the file comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    /// What instances touch whose batches are not here.
    pub(super) touched: Conflicts,
    /// Those of these that are a frontier: whoever needs them takes a snapshot.
    pub(super) collected: Frontier,
    /// All that are executed and not collected.
    pub(super) batches: Vec<Executed>,
}

/// An executed instance, and how it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Executed {
    /// Its replica, and its place among that replica's instances.
    pub(super) instance: Instance,
    /// The batch; empty for a no-op.
    pub(super) value: Bytes,
    /// What it depends on.
    pub(super) deps: Frontier,
}
wire_struct!(Executed { instance, value, deps });

impl Executed {
    /// For a replica's table; `None` if a peer lies.
    pub(super) fn held(self) -> Option<(Instance, InstanceState)> {
        let Executed { instance, value, deps } = self;
        let mut held = InstanceState::default();
        held.take(&Some(value));
        held.state.commit(held.state.noop, deps);
        held.recorded = true;
        (!deps.contains(instance)).then_some((instance, held))
    }
}

/// A part of what is remembered, as it is sent.
#[derive(Debug, Default)]
struct Part {
    totals: Totals,
    collected: Frontier,
    traces: Vec<Trace>,
    batches: Vec<Executed>,
}
wire_struct!(Part { totals, collected, traces, batches });

impl Part {
    fn all_of(Remembered { touched, collected, batches }: Remembered) -> Part {
        Part { totals: touched.totals(), collected, traces: touched.traces().collect(), batches }
    }

    fn len(&self) -> usize {
        self.traces.len() + self.batches.len()
    }

    /// Of those from `from` on about as many as fit, and the place after them.
    fn part(&self, from: usize, limit: usize) -> (Part, usize) {
        let (mut part, mut end, mut bytes) =
            (Part { traces: Vec::new(), batches: Vec::new(), ..*self }, from, 0);
        while bytes < limit.max(1) && end < self.len() {
            match self.traces.get(end) {
                Some(trace) => {
                    bytes += trace.bytes();
                    part.traces.push(trace.clone());
                }
                None => {
                    let batch = &self.batches[end - self.traces.len()];
                    bytes += batch.value.len() + 2 * Frontier::BYTES;
                    part.batches.push(batch.clone());
                }
            }
            end += 1;
        }
        (part, end)
    }
}

/// Names the image of a state together with what is remembered.
fn name(state: &Replicated, remembered: &Remembered) -> ImageId {
    let ImageId { slot, digest: of_state } = state.image_id();
    if mutation::active("catchup/image-by-count") {
        return ImageId { slot, digest: 0 };
    }
    let mut words = Encoder::new();
    words.put_u64(of_state);
    remembered.touched.totals().encode(&mut words);
    remembered.touched.traces().for_each(|trace| trace.encode(&mut words));
    remembered.collected.encode(&mut words);
    // How each of them was decided is the same everywhere.
    remembered.batches.iter().for_each(|batch| batch.instance.encode(&mut words));
    ImageId { slot, digest: digest(&words.into_bytes()) }
}

/// An image of a state and what is remembered, with its name.
pub(super) fn offer(state: &Replicated, remembered: Remembered) -> (ImageId, Snapshot) {
    let id = name(state, &remembered);
    let remembered = Part::all_of(remembered);
    (id, std::sync::Arc::new(LearnerImage { remembered, state: state.freeze() }))
}

/// See the file comment.
#[derive(Debug)]
struct LearnerImage {
    remembered: Part,
    state: Snapshot,
}

impl Image for LearnerImage {
    /// A cursor that no piece gave leads to an empty last piece, which no receiver accepts.
    fn piece(&self, cursor: &Bytes, limit: usize) -> Piece {
        let within = cursor.slice(cursor.len().min(1)..);
        match cursor.first() {
            None | Some(&STATE) => {
                let Piece { bytes, next } = self.state.piece(&within, limit);
                let next = match next {
                    Some(next) => [&[STATE], &next[..]].concat().into(),
                    None => remembered_from(0),
                };
                Piece { bytes, next: Some(next) }
            }
            Some(&REMEMBERED) => {
                let Ok(from) = u64::from_bytes(within) else {
                    return Piece { bytes: Bytes::new(), next: None };
                };
                let (part, end) = self.remembered.part(from as usize, limit);
                let next = (end < self.remembered.len()).then(|| remembered_from(end));
                Piece { bytes: part.to_bytes(), next }
            }
            Some(_) => Piece { bytes: Bytes::new(), next: None },
        }
    }
}

fn remembered_from(index: usize) -> Bytes {
    [&[REMEMBERED], &(index as u64).to_le_bytes()[..]].concat().into()
}

/// Puts such an image together.
#[derive(Debug, Default)]
pub(super) struct LearnerLoading {
    remembered: Remembered,
    state: Loading,
}

impl Assembler for LearnerLoading {
    type State = (Replicated, Remembered);

    fn push(&mut self, cursor: &Bytes, piece: Bytes) -> Result<(), LoadError> {
        if cursor.first() != Some(&REMEMBERED) {
            return self.state.push(piece);
        }
        let wrong = |error| LoadError(format!("what goes with the state cannot be read: {error}"));
        let Part { totals, collected, traces, batches } = Part::from_bytes(piece).map_err(wrong)?;
        self.remembered.touched.merge(&totals, traces);
        self.remembered.collected = self.remembered.collected.union(&collected);
        self.remembered.batches.extend(batches);
        Ok(())
    }

    fn finish(self) -> Result<(ImageId, Self::State), LoadError> {
        let state = self.state.finish()?;
        Ok((name(&state, &self.remembered), (state, self.remembered)))
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeId;

    use super::super::super::interference::tests::touching;
    use super::*;

    fn at(index: u64) -> Instance {
        Instance::new(NodeId::new(2).expect("an id"), index)
    }

    fn frontier(index: u64) -> Frontier {
        let mut frontier = Frontier::default();
        frontier.add(at(index));
        frontier
    }

    fn touched(words: &[&str]) -> Remembered {
        let mut remembered = Remembered { collected: frontier(9), ..Remembered::default() };
        (4..).zip(words).for_each(|(index, word)| remembered.touched.add(at(index), &touching(word)));
        remembered.touched.miss(&frontier(3));
        remembered
    }

    fn with_batches(indexes: &[u64]) -> Remembered {
        let batch =
            |index: &u64| Executed { instance: at(*index), value: Bytes::new(), deps: frontier(*index - 1) };
        Remembered { batches: indexes.iter().map(batch).collect(), ..touched(WORDS) }
    }

    const WORDS: &[&str] = &["r:a w:b s:1", "w:c", "r*", "s:2", "o", "w:d w:e"];

    /// Reads an image in pieces of this size: how many there were, and what they are together.
    fn read(image: &Snapshot, limit: usize) -> (usize, ImageId, Remembered) {
        let (mut loading, mut cursor, mut pieces) = (LearnerLoading::default(), Bytes::new(), 0);
        loop {
            let piece = image.piece(&cursor, limit);
            loading.push(&cursor, piece.bytes).expect("a piece that was made");
            pieces += 1;
            match piece.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let (id, (_, remembered)) = loading.finish().expect("whole");
        (pieces, id, remembered)
    }

    #[test]
    fn traces_and_batches_come_in_pieces_and_whole() {
        let (id, image) = offer(&Replicated::default(), with_batches(&[10, 12]));
        for limit in [1, 100, 1 << 20] {
            let (pieces, found, arrived) = read(&image, limit);
            assert_eq!((found, arrived), (id, with_batches(&[10, 12])));
            assert!(pieces > 9 || limit > 1, "one of them in a piece at least");
        }
    }

    #[test]
    fn images_of_other_sets_or_with_other_traces_or_batches_have_other_names() {
        let name = |remembered: Remembered, executed: &[u64]| {
            let mut state = Replicated::default();
            executed.iter().for_each(|index| state.executed_mut().insert(at(*index)));
            offer(&state, remembered).0
        };
        let names = [
            name(touched(WORDS), &[1]),
            name(touched(WORDS), &[2]),
            name(touched(&WORDS[..5]), &[1]),
            name(touched(&["w:a r:b s:1"]), &[1]),
            name(Remembered::default(), &[1]),
            name(Remembered { collected: frontier(1), ..Remembered::default() }, &[1]),
            name(with_batches(&[10]), &[1]),
            name(with_batches(&[11]), &[1]),
        ];
        for (index, one) in names.iter().enumerate() {
            assert!(names[index + 1..].iter().all(|other| other != one), "{names:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_or_contradicts_itself_is_refused() {
        let mut loading = LearnerLoading::default();
        let error = loading.push(&remembered_from(36), Bytes::from_static(b"x")).expect_err("no part");
        assert!(error.to_string().contains("what goes with the state cannot be read"), "{error}");
        let lie = Executed { instance: at(3), value: Bytes::new(), deps: frontier(3) };
        assert!(lie.held().is_none(), "it depends on itself");
    }
}
