//! Bytes on their way to one socket: small pieces are gathered, large ones keep their own buffer, and as much as
//! the socket takes leaves in one vectored write.
//!
//! What is urgent goes first, and writes and bulk, in turn, a frame at a time when nothing urgent is left to be written
//! ([`Output`]). The socket takes only little that it cannot send yet (`socket::tune`), so that urgent frames do not
//! wait in the kernel behind others either.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};

use bytes::{Buf, Bytes, BytesMut};
use quorate_core::{Class, ClassScheduler};

use super::frame::EncodedFrame;

/// Pieces from this size on are not copied.
const SPLICE: usize = 4096;
/// Pieces per system call.
const SLICES: usize = 64;

/// Bytes of one turn of the loop, from which on nothing is begun that is not urgent: other sockets wait meanwhile.
const BYTES_PER_TURN: usize = 256 << 10;
/// Writes are gathered up to so many bytes, before the last frame: what is urgent then waits for these.
const GATHERED: usize = 16 << 10;

/// Frames that wait to be written to one socket.
#[derive(Debug, Default)]
pub struct Output {
    /// Those whose turn it is, in order: all urgent ones, and a few others, of which the last may be written in part.
    next: SendQueue,
    writes: Waiting,
    bulk: Waiting,
    gossip: Waiting,
    scheduler: ClassScheduler,
}

/// Frames of a class.
#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<EncodedFrame>,
    bytes: usize,
}

impl Output {
    /// Bytes of a class that wait.
    pub fn len(&self, class: Class) -> usize {
        match class {
            Class::Urgent => self.next.len(),
            Class::Write => self.writes.bytes,
            Class::Bulk => self.bulk.bytes,
            Class::Gossip => self.gossip.bytes,
        }
    }

    /// Bytes of all classes that wait.
    pub fn total(&self) -> usize {
        Class::ALL.into_iter().map(|class| self.len(class)).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// What goes first, in order.
    pub fn urgent(&mut self) -> &mut SendQueue {
        &mut self.next
    }

    /// Appends a frame.
    pub(super) fn push(&mut self, frame: EncodedFrame) {
        let waiting = match frame.class() {
            Class::Urgent => return frame.queue(&mut self.next),
            class => self.waiting(class),
        };
        waiting.bytes += frame.bytes();
        waiting.frames.push_back(frame);
    }

    /// What waits of a class that is not urgent.
    fn waiting(&mut self, class: Class) -> &mut Waiting {
        match class {
            Class::Urgent => unreachable!("it does not wait for its turn"),
            Class::Write => &mut self.writes,
            Class::Bulk => &mut self.bulk,
            Class::Gossip => &mut self.gossip,
        }
    }

    /// Takes what goes next behind what is urgent: gathered writes, or one frame of another class.
    fn begin(&mut self) {
        while self.next.len() < GATHERED {
            let turn = self.scheduler.begun().or_else(|| {
                let mut order = self.scheduler.order().into_iter();
                order.find(|class| self.len(*class) > 0)
            });
            let Some(class) = turn else { return };
            if class != Class::Write && !self.next.is_empty() {
                return;
            }
            let waiting = self.waiting(class);
            let Some(frame) = waiting.frames.pop_front() else { return };
            let bytes = frame.bytes();
            waiting.bytes -= bytes;
            let others = [Class::Write, Class::Bulk].map(|class| self.len(class) > 0);
            self.scheduler.sent((class, frame.ends()), bytes, others);
            frame.queue(&mut self.next);
        }
    }

    /// Writes until nothing is left, the socket takes no more, or it is enough for one turn. Returns the bytes written
    /// too.
    pub fn write_to(&mut self, socket: &mut impl Write) -> io::Result<(Wrote, usize)> {
        let mut total = 0;
        loop {
            if total < BYTES_PER_TURN {
                self.begin();
            }
            let (wrote, bytes) = self.next.write_to(socket)?;
            total += bytes;
            if wrote == Wrote::Some || self.is_empty() {
                return Ok((wrote, total));
            }
            if total >= BYTES_PER_TURN {
                return Ok((Wrote::Enough, total));
            }
        }
    }
}

/// Bytes that wait to be written, in order.
#[derive(Debug, Default)]
pub struct SendQueue {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

/// How far a write came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// Everything that waited was written.
    All,
    /// The socket takes no more for now.
    Some,
    /// It may take more: the next turn goes on.
    Enough,
}

impl SendQueue {
    /// Bytes that wait to be written.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a copy of these bytes behind those that wait.
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
    use quorate_core::NodeId;
    use quorate_core::link::FRAME;

    use super::super::frame::Encoded;
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
    fn bulk_goes_a_frame_at_a_time_behind_what_is_urgent_and_only_so_much_in_a_turn() {
        let mut output = Output::default();
        let node = |id| NodeId::new(id).unwrap().into();
        // All bytes are alike but 9 before the message and 18 behind it.
        let push = |output: &mut Output, class, byte: u8| {
            let message = Encoded::new(Bytes::from(vec![byte; 2973]).into(), class);
            message.queue(node(1), node(2), output);
        };
        (1..=3).for_each(|byte| push(&mut output, Class::Bulk, byte));
        push(&mut output, Class::Urgent, 9);
        assert_eq!(
            (output.len(Class::Urgent), output.len(Class::Bulk), output.total()),
            (3000, 9000, 12_000)
        );
        let mut socket = Trickle { got: Vec::new(), calls: 0 };
        assert_eq!(output.write_to(&mut socket).unwrap(), (Wrote::Some, 3000));
        // One of bulk has begun.
        push(&mut output, Class::Urgent, 8);
        while output.write_to(&mut socket).unwrap().0 != Wrote::All {}
        let order: Vec<_> = socket.got.chunks(3000).map(|frame| (frame[9], frame[2981])).collect();
        assert_eq!(order, [(9, 9), (1, 1), (8, 8), (2, 2), (3, 3)]);
        for _ in 0..=BYTES_PER_TURN / 3000 + 1 {
            push(&mut output, Class::Bulk, 1);
        }
        assert_eq!(output.write_to(&mut Vec::new()).unwrap().0, Wrote::Enough);
        assert_eq!(output.write_to(&mut Vec::new()).unwrap().0, Wrote::All);
    }

    #[test]
    fn writes_and_bulk_go_in_turn_behind_what_is_urgent_and_a_message_that_has_begun() {
        let mut output = Output::default();
        let node = |id| NodeId::new(id).unwrap().into();
        let push = |output: &mut Output, class, byte: u8, length| {
            Encoded::new(Bytes::from(vec![byte; length]).into(), class).queue(node(1), node(2), output);
        };
        // Two frames, of which one begins; and two messages behind it.
        push(&mut output, Class::Bulk, 1, FRAME + 1);
        push(&mut output, Class::Bulk, 2, 1);
        push(&mut output, Class::Bulk, 3, 1);
        output.begin();
        assert_eq!(output.scheduler.begun(), Some(Class::Bulk));
        (4..=7).for_each(|byte| push(&mut output, Class::Write, byte, FRAME - 100));
        push(&mut output, Class::Urgent, 8, 10);
        let mut socket = Vec::new();
        while output.write_to(&mut socket).unwrap().0 != Wrote::All {}
        let mut frames: &[u8] = &socket;
        let mut order = Vec::new();
        while !frames.is_empty() {
            let length = u32::from_le_bytes(frames[..4].try_into().unwrap()) as usize;
            order.push(frames[9]);
            frames = &frames[9 + length..];
        }
        // More than a frame of writes has gone before bulk where that waits.
        assert_eq!(order, [1, 8, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!((output.scheduler.begun(), output.total()), (None, 0));
    }

    #[test]
    fn what_becomes_urgent_waits_for_few_writes_that_were_gathered() {
        let (mut output, node) = (Output::default(), |id| NodeId::new(id).unwrap().into());
        let write = Encoded::new(Bytes::from(vec![1; 2973]).into(), Class::Write);
        (0..100).for_each(|_| write.queue(node(1), node(2), &mut output));
        output.begin();
        assert!((GATHERED..GATHERED + 3000).contains(&output.next.len()), "{}", output.next.len());
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
