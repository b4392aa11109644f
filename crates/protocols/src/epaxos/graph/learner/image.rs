//! The image that a learner offers to one that is far behind: the state, and *traces*: what those of its executed
//! instances touch that a recovery may still ask about. Without them the receiver could not judge whom an instance
//! interferes with, and where no majority is left without such a receiver, recoveries would wait for ever.
//!
//! The pieces of the state come first, then those with traces. The first byte of a cursor says which of the two it is
//! in.

use bytes::Bytes;
use quorate_blocks::catchup::{Assembler, ImageId};
use quorate_blocks::state::{LoadError, Loading, Replicated};
use quorate_core::{Encoder, Image, Piece, Snapshot, Wire, digest, mutation, wire_struct};

use crate::epaxos::graph::Conflicts;
use crate::epaxos::graph::conflicts::{Totals, Trace};

const TRACES: u8 = b't';
const STATE: u8 = b's';

/// See the file comment.
#[derive(Debug)]
pub(super) struct LearnerImage {
    traces: Traces,
    state: Snapshot,
}

/// What executed instances touch, as far as a recovery may still ask about them.
#[derive(Debug, Default)]
struct Traces {
    totals: Totals,
    touched: Vec<Trace>,
}
wire_struct!(Traces { totals, touched });

impl Traces {
    fn of(touched: &Conflicts) -> Traces {
        Traces { totals: touched.totals(), touched: touched.traces().collect() }
    }

    /// Names the image of a state together with these.
    fn name(&self, state: &Replicated) -> ImageId {
        let ImageId { slot, digest: of_state } = state.image_id();
        if mutation::active("catchup/image-by-count") {
            return ImageId { slot, digest: 0 };
        }
        let mut words = Encoder::new();
        words.put_u64(of_state);
        self.totals.encode(&mut words);
        self.touched.encode(&mut words);
        ImageId { slot, digest: digest(&words.into_bytes()) }
    }

    /// Of those from `from` on about as many as fit, and the place after them.
    fn part(&self, from: usize, limit: usize) -> (Traces, usize) {
        let mut bytes = 0;
        let rest = &self.touched[from.min(self.touched.len())..];
        let fit = rest.iter().take_while(|trace| {
            let first = bytes == 0;
            bytes += trace.bytes();
            first || bytes <= limit
        });
        let touched: Vec<_> = fit.cloned().collect();
        let end = from.saturating_add(touched.len());
        (Traces { totals: self.totals, touched }, end)
    }
}

/// An image of a state and traces, with its name.
pub(super) fn offer(state: &Replicated, touched: &Conflicts) -> (ImageId, Snapshot) {
    let traces = Traces::of(touched);
    let id = traces.name(state);
    (id, std::sync::Arc::new(LearnerImage { traces, state: state.freeze() }))
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
                    None => traces_from(0),
                };
                Piece { bytes, next: Some(next) }
            }
            Some(&TRACES) => {
                let Ok(from) = u64::from_bytes(within) else {
                    return Piece { bytes: Bytes::new(), next: None };
                };
                let (part, end) = self.traces.part(from as usize, limit);
                let next = (end < self.traces.touched.len()).then(|| traces_from(end));
                Piece { bytes: part.to_bytes(), next }
            }
            Some(_) => Piece { bytes: Bytes::new(), next: None },
        }
    }
}

fn traces_from(index: usize) -> Bytes {
    [&[TRACES], &(index as u64).to_le_bytes()[..]].concat().into()
}

/// Puts such an image together.
#[derive(Debug, Default)]
pub(super) struct LearnerLoading {
    touched: Conflicts,
    state: Loading,
}

impl Assembler for LearnerLoading {
    type State = (Replicated, Conflicts);

    fn push(&mut self, cursor: &Bytes, piece: Bytes) -> Result<(), LoadError> {
        if cursor.first() != Some(&TRACES) {
            return self.state.push(piece);
        }
        let wrong = |error| LoadError(format!("the traces of an image cannot be read: {error}"));
        let Traces { totals, touched } = Traces::from_bytes(piece).map_err(wrong)?;
        self.touched.merge(&totals, touched);
        Ok(())
    }

    fn finish(self) -> Result<(ImageId, Self::State), LoadError> {
        let state = self.state.finish()?;
        Ok((Traces::of(&self.touched).name(&state), (state, self.touched)))
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeId;

    use super::super::super::interference::tests::touching;
    use super::*;
    use quorate_blocks::instance::{Frontier, Instance};

    fn at(index: u64) -> Instance {
        Instance::new(NodeId::new(2).expect("an id"), index)
    }

    fn touched(words: &[&str]) -> Conflicts {
        let mut touched = Conflicts::default();
        (4..).zip(words).for_each(|(index, word)| touched.add(at(index), &touching(word)));
        let mut forgotten = Frontier::default();
        forgotten.add(at(3));
        touched.miss(&forgotten);
        touched
    }

    const WORDS: &[&str] = &["r:a w:b s:1", "w:c", "r*", "s:2", "o", "w:d w:e"];

    /// Reads an image in pieces of this size: how many there were, and what they are together.
    fn read(image: &Snapshot, limit: usize) -> (usize, ImageId, Conflicts) {
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
        let (id, (_, touched)) = loading.finish().expect("whole");
        (pieces, id, touched)
    }

    #[test]
    fn traces_come_in_pieces_and_whole() {
        let (id, image) = offer(&Replicated::default(), &touched(WORDS));
        for limit in [1, 100, 1 << 20] {
            let (pieces, found, arrived) = read(&image, limit);
            assert_eq!((found, arrived), (id, touched(WORDS)));
            assert!(pieces > 7 || limit > 1, "one trace in a piece at least");
        }
    }

    #[test]
    fn images_of_other_sets_or_with_other_traces_have_other_names() {
        let name = |touched: &Conflicts, executed: &[u64]| {
            let mut state = Replicated::default();
            executed.iter().for_each(|index| state.executed_mut().insert(at(*index)));
            offer(&state, touched).0
        };
        let names = [
            name(&touched(WORDS), &[1]),
            name(&touched(WORDS), &[2]),
            name(&touched(&WORDS[..5]), &[1]),
            name(&touched(&["w:a r:b s:1"]), &[1]),
            name(&Conflicts::default(), &[1]),
        ];
        for (index, one) in names.iter().enumerate() {
            assert!(names[index + 1..].iter().all(|other| other != one), "{names:?}");
        }
    }

    #[test]
    fn traces_that_cannot_be_read_are_refused() {
        let mut loading = LearnerLoading::default();
        let error = loading.push(&traces_from(36), Bytes::from_static(b"x")).expect_err("no frontier");
        assert!(error.to_string().contains("the traces of an image cannot be read"), "{error}");
    }
}
