//! Bytes on their way to one client: small ones are gathered, large ones stay in the buffer that they are in. A reply
//! with a value of 64 MiB is not copied, which would keep the loop for some tens of milliseconds.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// See the file comment. What has been written is taken off its front ([`Buf`]).
#[derive(Debug, Default)]
pub struct Output {
    /// Copied bytes, which are written before the others.
    small: BytesMut,
    /// Then these, in order: shared bytes, of which there are some, and what was gathered behind them.
    shared: VecDeque<(Bytes, BytesMut)>,
    /// How many bytes all of these are.
    shared_bytes: usize,
}

impl Output {
    /// From so many bytes on, they are not copied.
    pub const SHARED: usize = 64 << 10;

    /// How many bytes wait to be written.
    pub fn len(&self) -> usize {
        self.small.len() + self.shared_bytes
    }

    /// Whether no byte waits to be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for so many bytes that will be copied.
    pub fn reserve(&mut self, bytes: usize) {
        match self.shared.back_mut() {
            Some((_, last)) => last.reserve(bytes),
            None => self.small.reserve(bytes),
        }
    }

    /// Appends a copy of these bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self.shared.back_mut() {
            Some((_, last)) => {
                last.extend_from_slice(bytes);
                self.shared_bytes += bytes.len();
            }
            None => self.small.extend_from_slice(bytes),
        }
    }

    /// Appends these bytes, which are shared if they are many.
    pub fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < Output::SHARED {
            self.reserve(bytes.len());
            return self.extend_from_slice(bytes);
        }
        self.shared_bytes += bytes.len();
        self.shared.push_back((bytes.clone(), BytesMut::new()));
    }

    /// Appends all of another.
    pub fn append(&mut self, other: Output) {
        if other.is_empty() {
            return;
        }
        self.share(&other.small.freeze());
        self.shared_bytes += other.shared_bytes;
        self.shared.extend(other.shared);
    }

    /// The byte at a position, if there is one.
    pub fn get(&self, at: usize) -> Option<u8> {
        let pieces = self.shared.iter().flat_map(|(shared, small)| [&shared[..], small]);
        let mut at = at;
        for piece in std::iter::once(&self.small[..]).chain(pieces) {
            match piece.get(at) {
                Some(byte) => return Some(*byte),
                None => at -= piece.len(),
            }
        }
        None
    }

    /// Gives the memory back if it is empty and has room for more than this many bytes.
    pub(crate) fn release(&mut self, keep: usize) {
        if self.is_empty() && self.small.capacity() > keep {
            *self = Output::default();
        }
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        match self.shared.front() {
            Some((shared, _)) if self.small.is_empty() => shared,
            Some(_) | None => &self.small,
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.len(), "{bytes} bytes of {}", self.len());
        while bytes > 0 {
            if bytes < self.small.len() {
                return self.small.advance(bytes);
            }
            bytes -= self.small.len();
            // Emptied, the buffer is used again from its beginning.
            self.small.clear();
            let Some((shared, _)) = self.shared.front_mut() else { return };
            let taken = bytes.min(shared.len());
            shared.advance(taken);
            bytes -= taken;
            self.shared_bytes -= taken;
            if shared.is_empty()
                && let Some((_, small)) = self.shared.pop_front()
            {
                self.shared_bytes -= small.len();
                self.small = small;
            }
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
