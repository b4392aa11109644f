//! What the unit tests of several protocols need.

use bytes::Bytes;
use quorate_core::{Image, Piece};

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
