//! The image that a learner offers to one that is far behind: the state, and *traces*: what those of its executed
//! instances touch that a recovery may still ask about. Without them the receiver could not judge whom an instance
//! interferes with ([`Learner::can_judge`](super::Learner::can_judge)), and where no majority is left without such a
//! receiver, recoveries would wait for ever.
//!
//! The pieces of the state come first, then those with traces. The first byte of a cursor says which of the two it is
//! in.

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, Image, Piece, Snapshot, Wire, digest, mutation, wire_struct};

use crate::catchup::{Assembler, ImageId};
use crate::graph::{Frontier, Instance, Interference};
use crate::state::{LoadError, Loading, Replicated};

const TRACES: u8 = b't';
const STATE: u8 = b's';

/// See the file comment.
#[derive(Debug)]
pub(super) struct LearnerImage {
    traces: Traces,
    state: Snapshot,
}

/// What executed instances touch, as far as a recovery may still ask about them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Traces {
    /// Of some of these it is not known any more.
    pub forgotten: Frontier,
    /// In the order of instances.
    pub touched: Vec<(Instance, Interference)>,
}
wire_struct!(Traces { forgotten, touched });

impl Traces {
    /// Names the image of a state together with these. What an instance touches follows from the instance.
    fn name(&self, state: &Replicated) -> ImageId {
        let ImageId { slot, digest: of_state } = state.image_id();
        let mut words = Encoder::new();
        words.put_u64(of_state);
        self.forgotten.encode(&mut words);
        self.touched.iter().for_each(|(instance, _)| instance.encode(&mut words));
        let by_count = mutation::active("catchup/image-by-count");
        ImageId { slot, digest: if by_count { 0 } else { digest(&words.into_bytes()) } }
    }

    /// Of those from `from` on about as many as fit, and the place after them.
    fn part(&self, from: usize, limit: usize) -> (Traces, usize) {
        let mut bytes = 0;
        let rest = &self.touched[from.min(self.touched.len())..];
        let fit = rest.iter().take_while(|(_, touches)| {
            let first = bytes == 0;
            bytes += touches.bytes();
            first || bytes <= limit
        });
        let touched: Vec<_> = fit.cloned().collect();
        let end = from + touched.len();
        (Traces { forgotten: self.forgotten, touched }, end)
    }
}

/// An image of a state and traces, with its name.
pub(super) fn offer(state: &Replicated, traces: Traces) -> (ImageId, Snapshot) {
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
    traces: Traces,
    state: Loading,
}

impl Assembler for LearnerLoading {
    type State = (Replicated, Traces);

    fn push(&mut self, cursor: &Bytes, piece: Bytes) -> Result<(), LoadError> {
        if cursor.first() != Some(&TRACES) {
            return self.state.push(piece);
        }
        let wrong = |what: String| LoadError(format!("the traces of an image cannot be read: {what}"));
        let mut input = Decoder::new(piece);
        let Traces { forgotten, touched } =
            Wire::decode(&mut input).map_err(|error| wrong(error.to_string()))?;
        let mut last = self.traces.touched.last().map(|(instance, _)| *instance);
        for (instance, _) in &touched {
            if last.replace(*instance).is_some_and(|last| last >= *instance) {
                return Err(wrong(format!("{instance:?} is out of order")));
            }
        }
        self.traces.forgotten = forgotten;
        self.traces.touched.extend(touched);
        Ok(())
    }

    fn finish(self) -> Result<(ImageId, Self::State), LoadError> {
        let state = self.state.finish()?;
        Ok((self.traces.name(&state), (state, self.traces)))
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

    fn traces() -> Traces {
        let mut forgotten = Frontier::default();
        forgotten.add(at(3));
        let touched = (4..40).map(|index| (at(index), touching("r:a w:b s:1"))).collect();
        Traces { forgotten, touched }
    }

    /// Reads an image in pieces of this size: how many there were, and what they are together.
    fn read(image: &Snapshot, limit: usize) -> (usize, ImageId, Traces) {
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
        let (id, (_, traces)) = loading.finish().expect("whole");
        (pieces, id, traces)
    }

    #[test]
    fn traces_come_in_pieces_and_whole() {
        let (id, image) = offer(&Replicated::default(), traces());
        for limit in [1, 100, 1 << 20] {
            let (pieces, found, arrived) = read(&image, limit);
            assert_eq!((found, arrived), (id, traces()));
            assert!(pieces > 36 || limit > 1, "one trace in a piece at least");
        }
    }

    #[test]
    fn images_of_other_sets_or_with_other_traces_have_other_names() {
        let name = |traces: Traces, executed: &[u64]| {
            let mut state = Replicated::default();
            executed.iter().for_each(|index| state.executed_mut().insert(at(*index)));
            offer(&state, traces).0
        };
        let mut fewer = traces();
        fewer.touched.pop();
        let names =
            [name(traces(), &[1]), name(traces(), &[2]), name(fewer, &[1]), name(Traces::default(), &[1])];
        for (index, one) in names.iter().enumerate() {
            assert!(names[index + 1..].iter().all(|other| other != one), "{names:?}");
        }
    }

    #[test]
    fn traces_out_of_order_are_refused() {
        let mut loading = LearnerLoading::default();
        let piece = traces().to_bytes();
        loading.push(&traces_from(0), piece.clone()).expect("in order");
        let error = loading.push(&traces_from(36), piece).expect_err("again");
        assert!(error.to_string().contains("out of order"), "{error}");
        assert!(loading.push(&traces_from(36), Bytes::from_static(b"x")).is_err());
    }
}
