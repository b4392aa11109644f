//! Bytes on their way to one socket: small pieces are gathered, large ones keep their own buffer, and as much as
//! the socket takes leaves in one vectored write.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};

use bytes::{Buf, Bytes, BytesMut};

/// Pieces from this size on are not copied.
const SPLICE: usize = 4096;
/// Pieces per system call.
const SLICES: usize = 64;

/// What waits to be written.
#[derive(Debug, Default)]
pub struct SendQueue {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

/// How far a write came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// Nothing is left.
    All,
    /// The socket takes no more for now.
    Some,
}

impl SendQueue {
    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends by copying.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.tail.extend_from_slice(bytes);
    }

    /// Appends; a large piece is shared.
    pub fn push(&mut self, piece: &Bytes) {
        if piece.len() < SPLICE {
            return self.copy(piece);
        }
        self.bytes += piece.len();
        self.close_tail();
        self.pieces.push_back(piece.clone());
    }

    /// Appends what another holds.
    pub fn append(&mut self, mut other: SendQueue) {
        other.close_tail();
        self.close_tail();
        self.bytes += other.bytes;
        self.pieces.append(&mut other.pieces);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = SendQueue::default();
    }

    /// Writes until nothing is left or the socket takes no more. Returns the bytes written too.
    pub fn write_to(&mut self, socket: &mut impl Write) -> io::Result<(Wrote, usize)> {
        self.close_tail();
        let mut total = 0;
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.pieces.len().min(SLICES);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            match socket.write_vectored(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    total += written;
                    self.advance(written);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((Wrote::Some, total)),
                Err(error) => return Err(error),
            }
        }
        Ok((Wrote::All, total))
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > written {
                return first.advance(written);
            }
            written -= first.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes per call, then none for a while.
    struct Trickle {
        got: Vec<u8>,
        calls: usize,
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }
        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(ErrorKind::WouldBlock.into());
            }
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = all.len().min(1777);
            self.got.extend_from_slice(&all[..taken]);
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_leave_in_order_however_little_the_socket_takes() {
        let mut queue = SendQueue::default();
        let mut expected = Vec::new();
        for index in 0..200usize {
            let piece = Bytes::from(vec![index as u8; if index % 3 == 0 { 5000 } else { index }]);
            queue.push(&piece);
            expected.extend_from_slice(&piece);
        }
        assert_eq!(queue.len(), expected.len());
        let mut socket = Trickle { got: Vec::new(), calls: 0 };
        let mut total = 0;
        loop {
            let (wrote, bytes) = queue.write_to(&mut socket).unwrap();
            total += bytes;
            if wrote == Wrote::All {
                break;
            }
        }
        assert!(queue.is_empty());
        assert_eq!((total, socket.got), (expected.len(), expected));
    }

    #[test]
    fn a_large_piece_is_not_copied() {
        let mut queue = SendQueue::default();
        let large = Bytes::from(vec![1; SPLICE]);
        queue.copy(b"small");
        queue.push(&large);
        assert_eq!(queue.pieces[1].as_ptr(), large.as_ptr());
    }
}
