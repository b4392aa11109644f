//! The images of several groups as one: theirs one after the other. Each piece begins with two bytes, whose it is, and
//! whether it is that group's last.

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{Decoder, GroupId, Image, Piece, Snapshot, Wire, WireError};

/// What is asked for of an image that was read back, which gives its pieces as they are.
const AS_IT_IS: usize = 1 << 20;

/// See the file comment.
#[derive(Debug)]
pub struct GroupsImage(pub Vec<(GroupId, Snapshot)>);

impl Image for GroupsImage {
    /// A cursor is a place in the list, and a cursor of the image there.
    fn piece(&self, cursor: &Bytes, limit: usize) -> Piece {
        let place = cursor.first().copied().unwrap_or(0);
        let (group, image) = &self.0[usize::from(place)];
        let Piece { bytes, next } = image.piece(&cursor.slice(cursor.len().min(1)..), limit);
        let header = (*group, next.is_none()).to_bytes();
        let next = match next {
            Some(own) => Some([&[place][..], &own].concat().into()),
            None => (usize::from(place) + 1 < self.0.len()).then(|| vec![place + 1].into()),
        };
        Piece { bytes: [&header[..], &bytes].concat().into(), next }
    }

    fn verify(&self, pieces: &mut dyn Iterator<Item = Bytes>) -> Result<(), String> {
        for (group, image) in &self.0 {
            let mut ended = false;
            let mut own = std::iter::from_fn(|| {
                let piece = if ended { None } else { pieces.next() };
                let (of, last, bytes) = split(piece?).ok()?;
                ended = last && of == *group;
                (of == *group).then_some(bytes)
            });
            image.verify(&mut own).map_err(|why| format!("group {group}: {why}"))?;
            if !ended {
                return Err(format!("the pieces of group {group} are not all there, one after the other"));
            }
        }
        pieces.next().map_or(Ok(()), |_| Err("pieces follow the last group's".to_owned()))
    }
}

/// A group's part of an image that was read back.
#[derive(Debug)]
struct GroupImage {
    whole: Snapshot,
    /// Where its first piece is.
    first: Bytes,
}

impl Image for GroupImage {
    fn piece(&self, cursor: &Bytes, limit: usize) -> Piece {
        let Piece { bytes, next } =
            self.whole.piece(if cursor.is_empty() { &self.first } else { cursor }, limit);
        let (_, last, bytes) = split(bytes).expect("it was read before");
        Piece { bytes, next: next.filter(|_| !last) }
    }
}

/// The images of so many groups in one that was read back. Reads it once, to find them.
pub fn divide(whole: &Snapshot, groups: usize) -> Result<Vec<Option<Snapshot>>, WireError> {
    let mut found: Vec<Option<Snapshot>> = vec![None; groups];
    let (mut cursor, mut begins) = (Some(Bytes::new()), true);
    while let Some(first) = cursor {
        let Piece { bytes, next } = whole.piece(&first, AS_IT_IS);
        let (group, last, _) = split(bytes)?;
        if begins {
            let place = found.get_mut(group.index());
            let place = place.ok_or(WireError::Value { what: "group", found: group.get().into() })?;
            *place = Some(Arc::new(GroupImage { whole: whole.clone(), first }));
        }
        (cursor, begins) = (next, last);
    }
    Ok(found)
}

/// Whose a piece is, whether it is the last, and the piece.
fn split(piece: Bytes) -> Result<(GroupId, bool, Bytes), WireError> {
    let mut input = Decoder::new(piece);
    let (group, last) = Wire::decode(&mut input)?;
    Ok((group, last, input.rest()))
}
