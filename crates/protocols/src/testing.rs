//! What the unit tests of several protocols need.

use bytes::Bytes;
use quorate_core::{Image, NodeId, NodeSet, Piece};

/// The nodes of these ids, of a digit each; `-`: none.
pub fn set(digits: &str) -> NodeSet {
    digits.chars().filter_map(|digit| NodeId::new(digit.to_digit(10)?.into())).collect()
}

/// All pieces of an image, of so many bytes at most each.
pub fn read_out(image: &dyn Image, limit: usize) -> Vec<Bytes> {
    let (mut pieces, mut cursor) = (Vec::new(), Some(Bytes::new()));
    while let Some(at) = cursor {
        let Piece { bytes, next } = image.piece(&at, limit);
        pieces.push(bytes);
        cursor = next;
    }
    pieces
}
