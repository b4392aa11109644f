//! Bytes on their way to one client: small ones are gathered, large ones stay in the buffer that they are in. A reply
//! with a value of 64 MiB is not copied, which would keep the loop for some tens of milliseconds.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// See the file comment. What has been written is taken off its front ([`Buf`]).
#[derive(Debug, Default)]
pub struct Output {
    /// Written first. Most clients never have a large reply.
    ahead: Option<Box<Ahead>>,
    /// Copied bytes, which are written after that.
    small: BytesMut,
}

/// Shared bytes, and what was gathered before each of them.
#[derive(Debug, Default)]
struct Ahead {
    pieces: VecDeque<Bytes>,
    /// How many bytes all of these are.
    bytes: usize,
}

impl Output {
    /// From so many bytes on, they are not copied.
    pub const SHARED: usize = 64 << 10;

    /// How many bytes wait to be written.
    #[inline]
    pub fn len(&self) -> usize {
        self.small.len() + self.ahead.as_ref().map_or(0, |ahead| ahead.bytes)
    }

    /// Whether no byte waits to be written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for so many bytes that will be copied.
    pub fn reserve(&mut self, bytes: usize) {
        self.small.reserve(bytes);
    }

    /// Appends a copy of these bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
    }

    /// Appends these bytes, which are shared if they are many.
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < Output::SHARED {
            return self.extend_from_slice(bytes);
        }
        let ahead = self.ahead.get_or_insert_default();
        for piece in [self.small.split().freeze(), bytes.clone()] {
            ahead.push(piece);
        }
    }

    /// Appends all of another.
    pub fn append(&mut self, other: Output) {
        if let Some(other) = other.ahead {
            other.pieces.iter().for_each(|piece| self.share(piece));
        }
        if !other.small.is_empty() {
            self.share(&other.small.freeze());
        }
    }

    /// The byte at a position, if there is one.
    pub fn get(&self, mut at: usize) -> Option<u8> {
        if let Some(ahead) = &self.ahead {
            for piece in &ahead.pieces {
                match piece.get(at) {
                    Some(byte) => return Some(*byte),
                    None => at -= piece.len(),
                }
            }
        }
        self.small.get(at).copied()
    }

    /// Gives the memory back if it is empty and has room for more than this many bytes.
    pub(crate) fn release(&mut self, keep: usize) {
        if self.is_empty() && self.small.capacity() > keep {
            *self = Output::default();
        }
    }
}

impl Ahead {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Takes bytes off the front, and says how many of those asked for were not here.
    fn take(&mut self, mut bytes: usize) -> usize {
        while bytes > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let taken = bytes.min(piece.len());
            piece.advance(taken);
            bytes -= taken;
            self.bytes -= taken;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        bytes
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        self.ahead.as_ref().and_then(|ahead| ahead.pieces.front()).map_or(&self.small[..], |piece| piece)
    }

    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.len(), "{bytes} bytes of {}", self.len());
        if let Some(ahead) = &mut self.ahead {
            bytes = ahead.take(bytes);
            if ahead.pieces.is_empty() {
                self.ahead = None;
            }
        }
        if bytes < self.small.len() {
            self.small.advance(bytes);
        } else {
            // Emptied, the buffer is used again from its beginning.
            self.small.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Random;

    use super::*;

    #[test]
    fn bytes_leave_in_order_and_large_ones_are_not_copied() {
        let mut random = Random::new(1);
        let (mut output, mut expected, mut taken) = (Output::default(), Vec::new(), Vec::new());
        for round in 0..2000u64 {
            let bytes = Bytes::from(vec![round as u8; random.range(0..2 * Output::SHARED as u64) as usize]);
            match random.range(0..4) {
                0 => output.share(&bytes),
                1 => output.extend_from_slice(&bytes[..bytes.len() / 1000]),
                2 => {
                    let mut other = Output::default();
                    other.extend_from_slice(b"small");
                    other.share(&bytes);
                    output.append(other);
                }
                _ => {
                    let count = random.range(0..output.len() as u64 + 1) as usize;
                    taken.extend_from_slice(&output.copy_to_bytes(count));
                }
            }
            match taken.len() + output.len() - expected.len() {
                0 => {}
                added if added == bytes.len() => expected.extend_from_slice(&bytes),
                added if added == bytes.len() / 1000 => expected.extend_from_slice(&bytes[..added]),
                _ => expected.extend_from_slice(&[b"small", &bytes[..]].concat()),
            }
            let first = (!output.is_empty()).then(|| expected[taken.len()]);
            assert_eq!((output.get(0), output.get(output.len())), (first, None));
            let last = output.len().checked_sub(1).and_then(|last| output.get(last));
            assert_eq!(last, first.and(expected.last().copied()));
        }
        let rest = output.len();
        taken.extend_from_slice(&output.copy_to_bytes(rest));
        assert!(taken == expected && output.is_empty());
        let large = Bytes::from(vec![1; Output::SHARED]);
        output.extend_from_slice(b"head");
        output.share(&large);
        output.extend_from_slice(b"tail");
        output.advance(4);
        assert_eq!(output.chunk().as_ptr(), large.as_ptr());
        output.advance(Output::SHARED);
        assert_eq!(output.chunk(), b"tail");
    }
}
