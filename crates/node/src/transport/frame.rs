//! A message on a connection between processes: one frame, or several if it is long.
//!
//! ```text
//! length u32 · crc u32 · flags u8 · piece … · from 9 bytes · to 9 bytes        little-endian
//! ```
//!
//! A piece has [`FRAME`] bytes, or what is left of the message. `length` counts what follows the flags; the CRC32C is
//! over the flags and that. The ends come last, in the last frame of a message only, so that one message to several
//! processes is encoded and summed once.
//!
//! The flags say whether the message is urgent ([`Class`]), whether the frame continues one, and whether more follows.
//! The frames of a message come in order, and those of another that is as urgent come before or after all of them; of
//! others they may come between them. So a reader keeps at most two unfinished messages ([`Reader`]).
//!
//! A frame with the flag of an echo is a message of its own ([`Echo`]), which no process gets: the links measure
//! round trips by it.
//!
//! A node that was dialed by another says nothing on that connection but [`PROBE`], which asks whether the other is
//! still there; the answer is [`ALIVE`], a frame without content.

use std::cell::OnceCell;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use quorate_core::link::FRAME;
use quorate_core::{Class, Decoder, Payload, ProcessId, Wire};
use thiserror::Error;

use super::echo::Echo;
use super::queue::{Output, SendQueue};

/// Length, checksum and flags.
const HEADER: usize = 9;
/// `from` and `to`.
const ENDS: usize = 18;
/// Flag of what may wait for what is urgent: writes and bulk.
const WAITS: u8 = 1;
/// Flag of a frame that is not a message's first.
const CONTINUES: u8 = 2;
/// Flag of a frame that is not a message's last.
const MORE: u8 = 4;
/// Flag of an [`Echo`].
const ECHO: u8 = 8;

/// Room for a message of several frames at first, in bytes: to grow with each frame, into memory that the kernel must
/// clear first, costs more than all else that is done with it here.
const ROOM: usize = 4 * FRAME;
/// One that is longer than this, in bytes, gets room for the longest that there may be: how long it will be is not
/// announced, and to copy it whenever it has outgrown its room would take long at the end. Memory that is not written
/// to costs nothing.
const LONG: usize = 2 << 20;

/// Asks, against the direction of the frames, for an [`ALIVE`].
pub const PROBE: u8 = b'?';
/// A frame that says only that its sender is there.
pub const ALIVE: [u8; 8] = [0; 8];

/// Why a connection's bytes are no frames.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Longer than a frame, or a message, may be.
    #[error("a frame of {length} bytes is announced, more than the {limit} that are allowed")]
    Long {
        /// Bytes that the frame's head announces.
        length: usize,
        /// The most that is accepted, in bytes.
        limit: usize,
    },
    /// Shorter than its own ends, or than a frame that another follows.
    #[error("a frame of {length} bytes is announced, less than the {least} that it has at least")]
    Short {
        /// Bytes that the frame's head announces.
        length: usize,
        /// The least that a frame has, in bytes.
        least: usize,
    },
    /// Of another version, or no flags at all.
    #[error("a frame has the flags {0:#04x}, of which some are unknown")]
    Flags(u8),
    /// The frame was damaged under way.
    #[error("a frame's checksum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// Of the bytes that came.
        found: u32,
        /// The checksum in the frame's head.
        expected: u32,
    },
    /// It is out of place: none that is as urgent has begun.
    #[error("a frame continues a message, and none of its class is unfinished")]
    Continues,
    /// It is out of place: the one before it that is as urgent has not ended.
    #[error("a frame begins a message while another of its class is unfinished")]
    Begins,
    /// The whole is longer than a message may be.
    #[error("a message has more than the {limit} bytes that are allowed")]
    Endless {
        /// The most that is accepted, in bytes.
        limit: usize,
    },
    /// The ends make no sense.
    #[error("a message's sender or receiver cannot be read")]
    Ends,
    /// It is no echo, whatever its flags say.
    #[error("an echo cannot be read")]
    Echo,
}

/// A message that has come in whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Who sent it, as it says.
    pub from: ProcessId,
    /// The process that the message is for.
    pub to: ProcessId,
    /// The encoded message, without its frames.
    pub payload: Bytes,
}

/// Takes messages from what has come in on a connection, whose frames it puts together.
#[derive(Debug, Default)]
pub struct Reader {
    /// What has come of a message that is not whole yet, by class.
    unfinished: [Option<BytesMut>; 2],
    /// Echoes that have come in and were not taken.
    echoes: Vec<Echo>,
}

impl Reader {
    /// Takes the next message that is whole; `None` if there is none yet. A message with more than `limit` bytes,
    /// its ends included, is refused as soon as that is known: no more than that is kept of either class. After an
    /// error, the connection is of no use any more.
    pub fn take(&mut self, input: &mut BytesMut, limit: usize) -> Result<Option<Frame>, FrameError> {
        while let Some((flags, mut piece)) = take_frame(input, limit)? {
            if flags == ECHO {
                let echo = Echo::from_bytes(piece.slice(..piece.len() - ENDS));
                self.echoes.push(echo.map_err(|_| FrameError::Echo)?);
                continue;
            }
            let unfinished = &mut self.unfinished[usize::from(flags & WAITS)];
            let continues = flags & CONTINUES != 0;
            if unfinished.is_some() != continues {
                return Err(if continues { FrameError::Continues } else { FrameError::Begins });
            }
            if unfinished.as_ref().map_or(0, BytesMut::len) + piece.len() > limit {
                return Err(FrameError::Endless { limit });
            }
            if flags & MORE != 0 {
                let whole = unfinished.get_or_insert_with(|| BytesMut::with_capacity(ROOM));
                if whole.len() >= LONG {
                    whole.reserve(limit - whole.len());
                }
                whole.extend_from_slice(&piece);
                continue;
            }
            let mut ends = Decoder::new(piece.split_off(piece.len() - ENDS));
            let (Ok(from), Ok(to)) = (ProcessId::decode(&mut ends), ProcessId::decode(&mut ends)) else {
                return Err(FrameError::Ends);
            };
            let payload = match unfinished.take() {
                None => piece,
                Some(mut whole) => {
                    whole.extend_from_slice(&piece);
                    whole.freeze()
                }
            };
            return Ok(Some(Frame { from, to, payload }));
        }
        Ok(None)
    }

    /// Takes the echoes that came before the message that was taken last, or after it.
    pub fn take_echoes(&mut self) -> Vec<Echo> {
        std::mem::take(&mut self.echoes)
    }
}

/// Takes a whole frame off the front of what has come in: its flags, and what follows them; `None` if there is none
/// yet.
fn take_frame(input: &mut BytesMut, limit: usize) -> Result<Option<(u8, Bytes)>, FrameError> {
    while input.first_chunk() == Some(&ALIVE) {
        input.advance(ALIVE.len());
    }
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    let limit = limit.min(FRAME + ENDS);
    if length > limit {
        return Err(FrameError::Long { length, limit });
    }
    if length == 0 && ALIVE.starts_with(&input[..input.len().min(ALIVE.len())]) {
        return Ok(None);
    }
    if length < ENDS {
        return Err(FrameError::Short { length, least: ENDS });
    }
    let Some(&flags) = input.get(HEADER - 1) else { return Ok(None) };
    if flags & !(WAITS | CONTINUES | MORE) != 0 && flags != ECHO {
        return Err(FrameError::Flags(flags));
    }
    if flags & MORE != 0 && length < FRAME {
        return Err(FrameError::Short { length, least: FRAME });
    }
    if flags & MORE != 0 && length > FRAME {
        return Err(FrameError::Long { length, limit: FRAME });
    }
    if input.len() < HEADER + length {
        return Ok(None);
    }
    input.advance(4);
    let expected = input.get_u32_le();
    let mut piece = input.split_to(1 + length).freeze();
    let found = crc32c::crc32c(&piece);
    if found != expected {
        return Err(FrameError::Checksum { found, expected });
    }
    piece.advance(1);
    Ok(Some((flags, piece)))
}

/// A message, encoded once for all its receivers. A full frame is summed when the first of them is to get it: to sum
/// all of a message of 64 MiB at once would keep the loop for some milliseconds.
#[derive(Clone, Debug)]
pub struct Encoded {
    class: Class,
    length: usize,
    /// The frames before the last: full ones.
    full: Vec<Rc<Piece>>,
    /// Of the last frame, summed already.
    last: Piece,
}

/// What one frame has of a message.
#[derive(Clone, Debug)]
struct Piece {
    flags: u8,
    bytes: Payload,
    /// Of the flags and the bytes, without the ends, once it is needed.
    crc: OnceCell<u32>,
}

impl Piece {
    fn new(flags: u8, bytes: Payload) -> Piece {
        Piece { flags, bytes, crc: OnceCell::new() }
    }

    fn summed(flags: u8, bytes: Payload) -> Piece {
        let piece = Piece::new(flags, bytes);
        piece.crc();
        piece
    }

    fn crc(&self) -> u32 {
        let flags = || crc32c::crc32c(&[self.flags]);
        let parts = self.bytes.parts().iter();
        *self.crc.get_or_init(|| parts.fold(flags(), |crc, part| crc32c::crc32c_append(crc, part)))
    }

    /// Appends the frame, but for its ends, which it has if this is the last.
    fn queue(&self, ends: Option<&[u8; ENDS]>, queue: &mut SendQueue) {
        let crc = ends.map_or(self.crc(), |ends| crc32c::crc32c_append(self.crc(), ends));
        let length = self.bytes.len() + ends.map_or(0, |ends| ends.len());
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&u32::try_from(length).expect("a frame is short").to_le_bytes());
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        header[8] = self.flags;
        queue.copy(&header);
        for part in self.bytes.parts() {
            queue.push(part);
        }
        if let Some(ends) = ends {
            queue.copy(ends);
        }
    }
}

impl Encoded {
    /// Around the encoding of a message.
    pub fn new(message: Payload, class: Class) -> Encoded {
        let length = message.len();
        let flags = if class == Class::Urgent { 0 } else { WAITS };
        if length <= FRAME {
            return Encoded { class, length, full: Vec::new(), last: Piece::summed(flags, message) };
        }
        let (mut full, mut piece, mut room) = (Vec::new(), Vec::new(), FRAME);
        for part in message.parts() {
            let mut part = part.clone();
            while part.len() > room {
                piece.push(part.split_to(room));
                let continues = if full.is_empty() { 0 } else { CONTINUES };
                let bytes = std::mem::take(&mut piece).into();
                full.push(Rc::new(Piece::new(flags | continues | MORE, bytes)));
                room = FRAME;
            }
            room -= part.len();
            piece.push(part);
        }
        Encoded { class, length, full, last: Piece::summed(flags | CONTINUES, piece.into()) }
    }

    /// The frame of an echo, which goes between those of messages.
    pub(super) fn echo(echo: Echo) -> Encoded {
        let bytes = echo.to_bytes();
        let (class, length) = (Class::Urgent, bytes.len());
        Encoded { class, length, full: Vec::new(), last: Piece::summed(ECHO, bytes.into()) }
    }

    /// What it waits for.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What [`Reader::take`] compares with its limit.
    pub fn length(&self) -> usize {
        self.length + ENDS
    }

    /// Bytes on the connection.
    pub fn bytes(&self) -> usize {
        HEADER * (self.full.len() + 1) + self.length()
    }

    /// Appends its frames to what waits for a connection.
    pub fn queue(&self, from: ProcessId, to: ProcessId, output: &mut Output) {
        match self.class {
            Class::Urgent => {
                self.full.iter().for_each(|piece| piece.queue(None, output.urgent()));
                self.last.queue(Some(&ends_of(from, to)), output.urgent());
            }
            Class::Write | Class::Bulk | Class::Gossip => {
                self.clone().frames(from, to).for_each(|frame| output.push(frame))
            }
        }
    }

    /// Its frames, in order, as one receiver gets them.
    pub(super) fn frames(self, from: ProcessId, to: ProcessId) -> impl Iterator<Item = EncodedFrame> {
        let (class, ends) = (self.class, ends_of(from, to));
        let full = self.full.into_iter().map(move |piece| EncodedFrame { class, piece, ends: None });
        full.chain([EncodedFrame { class, piece: Rc::new(self.last), ends: Some(ends) }])
    }
}

/// A frame of a message.
#[derive(Debug)]
pub(super) struct EncodedFrame {
    class: Class,
    piece: Rc<Piece>,
    /// Of the last one.
    ends: Option<[u8; ENDS]>,
}

impl EncodedFrame {
    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Whether a message ends with it.
    pub(super) fn ends(&self) -> bool {
        self.ends.is_some()
    }

    /// Bytes on the connection.
    pub(super) fn bytes(&self) -> usize {
        HEADER + self.piece.bytes.len() + self.ends.map_or(0, |ends| ends.len())
    }

    /// Appends it to what is to be written.
    pub(super) fn queue(&self, queue: &mut SendQueue) {
        self.piece.queue(self.ends.as_ref(), queue);
    }
}

/// The ends of a message.
fn ends_of(from: ProcessId, to: ProcessId) -> [u8; ENDS] {
    let mut ends = [0; ENDS];
    put_end(&mut ends[..9], from);
    put_end(&mut ends[9..], to);
    ends
}

/// [`ProcessId`]'s encoding without an allocation.
fn put_end(out: &mut [u8], process: ProcessId) {
    let (kind, id) = match process {
        ProcessId::Replica(node) => (0, node.get().into()),
        ProcessId::Proxy(proxy) => (1, proxy.0),
    };
    out[0] = kind;
    out[1..].copy_from_slice(&u64::to_le_bytes(id));
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_core::{NodeId, ProxyId, Random};

    const LIMIT: usize = 1 << 20;

    fn ends() -> (ProcessId, ProcessId) {
        (NodeId::new(3).unwrap().into(), ProxyId(1 << 40).into())
    }

    /// The frames of a message, one by one.
    fn frames(class: Class, message: impl Into<Payload>) -> Vec<Vec<u8>> {
        let (from, to) = ends();
        let mut output = Output::default();
        let encoded = Encoded::new(message.into(), class);
        encoded.queue(from, to, &mut output);
        assert_eq!(output.len(class), encoded.bytes());
        let mut out = Vec::new();
        output.write_to(&mut out).unwrap();
        let (mut rest, mut frames) = (&out[..], Vec::new());
        while let Some(length) = rest.first_chunk::<4>() {
            let (frame, behind) = rest.split_at(HEADER + u32::from_le_bytes(*length) as usize);
            frames.push(frame.to_vec());
            rest = behind;
        }
        frames
    }

    fn taken(reader: &mut Reader, frames: &[&[u8]]) -> Result<Vec<Bytes>, FrameError> {
        let (mut input, mut taken) = (BytesMut::from(&frames.concat()[..]), Vec::new());
        while let Some(frame) = reader.take(&mut input, LIMIT)? {
            assert_eq!((frame.from, frame.to), ends());
            taken.push(frame.payload);
        }
        Ok(taken)
    }

    #[test]
    fn a_message_is_taken_only_when_it_is_whole_and_comes_out_as_it_went_in() {
        for size in [0, 1, 100, 5000, FRAME, FRAME + 1, 2 * FRAME, 300_000] {
            let message: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
            let parts: Vec<_> = message.chunks(70_000).map(Bytes::copy_from_slice).collect();
            let frames = frames(Class::Urgent, parts);
            assert_eq!(frames.len(), size.div_ceil(FRAME).max(1));
            let whole = frames.concat();
            let (mut reader, mut input) = (Reader::default(), BytesMut::new());
            for chunk in whole.chunks(whole.len() / 3) {
                assert_eq!(reader.take(&mut input, LIMIT), Ok(None));
                input.extend_from_slice(chunk);
            }
            input.extend_from_slice(b"next");
            let frame = reader.take(&mut input, LIMIT).unwrap().unwrap();
            assert_eq!((frame.from, frame.to, &frame.payload[..]), (ends().0, ends().1, &message[..]));
            assert_eq!(&input[..], b"next");
        }
        // Nor is a part of what says only that its sender is there.
        let part = Reader::default().take(&mut BytesMut::from(&ALIVE[..5]), LIMIT);
        assert_eq!(part, Ok(None));
    }

    #[test]
    fn a_frame_of_bulk_is_summed_when_it_is_to_be_written() {
        let encoded = Encoded::new(Bytes::from(vec![1; 9 * FRAME]).into(), Class::Bulk);
        let summed = || encoded.full.iter().filter(|piece| piece.crc.get().is_some()).count();
        let ((from, to), mut outputs) = (ends(), [Output::default(), Output::default()]);
        outputs.iter_mut().for_each(|output| encoded.queue(from, to, output));
        assert_eq!(summed(), 0);
        // 256 KiB are enough for a turn.
        let mut written = Vec::new();
        outputs[0].write_to(&mut written).unwrap();
        assert_eq!(summed(), 4);
        while !outputs[0].is_empty() {
            outputs[0].write_to(&mut written).unwrap();
        }
        assert_eq!(summed(), 8);
        let mut again = Vec::new();
        while !outputs[1].is_empty() {
            outputs[1].write_to(&mut again).unwrap();
        }
        assert!(again == written, "all receivers get the same sums");
    }

    #[test]
    fn frames_of_one_class_come_between_those_of_a_message_of_the_other() {
        let (long, other) = (Bytes::from(vec![1; 2 * FRAME + 9]), Bytes::from(vec![2; FRAME + 9]));
        let (bulk, urgent) = (frames(Class::Bulk, long.clone()), frames(Class::Urgent, other.clone()));
        let short = frames(Class::Urgent, Bytes::from_static(b"short"));
        let mixed = [&bulk[0][..], &short[0], &urgent[0], &bulk[1], &urgent[1], &bulk[2]];
        assert_eq!(
            taken(&mut Reader::default(), &mixed),
            Ok(vec![Bytes::from_static(b"short"), other, long])
        );
    }

    #[test]
    fn a_frame_out_of_place_is_refused() {
        let frames = frames(Class::Bulk, Bytes::from(vec![1; 2 * FRAME + 9]));
        let refused = |order: &[&[u8]]| taken(&mut Reader::default(), order).unwrap_err();
        assert_eq!(refused(&[&frames[1]]), FrameError::Continues);
        assert_eq!(refused(&[&frames[2]]), FrameError::Continues);
        assert_eq!(refused(&[&frames[0], &frames[0]]), FrameError::Begins);
        let short = self::frames(Class::Bulk, Bytes::from_static(b"short"));
        assert_eq!(refused(&[&frames[0], &short[0]]), FrameError::Begins);
        // A message of the one class is not continued by a frame of the other.
        let urgent = self::frames(Class::Urgent, Bytes::from(vec![1; 2 * FRAME + 9]));
        assert_eq!(refused(&[&frames[0], &urgent[1]]), FrameError::Continues);
    }

    #[test]
    fn an_echo_comes_between_the_frames_of_a_message_and_no_process_gets_it() {
        let message = Bytes::from(vec![1; FRAME + 9]);
        let (long, echo) = (frames(Class::Urgent, message.clone()), Echo::Ask { asked: 7 });
        let ((from, to), mut output, mut written) = (ends(), Output::default(), Vec::new());
        Encoded::echo(echo).queue(from, to, &mut output);
        output.write_to(&mut written).unwrap();
        let mut reader = Reader::default();
        assert_eq!(taken(&mut reader, &[&long[0], &written, &long[1]]), Ok(vec![message]));
        assert_eq!((reader.take_echoes(), reader.take_echoes()), (vec![echo], vec![]));
        let body = [&[ECHO][..], &[9; ENDS]].concat();
        let wrong = [&(ENDS as u32).to_le_bytes()[..], &crc32c::crc32c(&body).to_le_bytes(), &body].concat();
        assert_eq!(taken(&mut reader, &[&wrong]), Err(FrameError::Echo));
    }

    #[test]
    fn a_message_that_never_ends_is_refused_at_the_bound() {
        let frames = frames(Class::Bulk, Bytes::from(vec![1; 3 * FRAME]));
        let mut reader = Reader::default();
        assert_eq!(taken(&mut reader, &[&frames[0]]), Ok(vec![]));
        for _ in 1..LIMIT / FRAME {
            assert_eq!(taken(&mut reader, &[&frames[1]]), Ok(vec![]));
        }
        assert_eq!(taken(&mut reader, &[&frames[1]]), Err(FrameError::Endless { limit: LIMIT }));
        assert_eq!(reader.unfinished[1].as_ref().map(BytesMut::len), Some(LIMIT));
    }

    #[test]
    fn a_long_message_is_not_copied_while_it_comes_in() {
        let frames = frames(Class::Bulk, Bytes::from(vec![1; 3 * FRAME]));
        let (mut reader, limit, mut copies) = (Reader::default(), 80 << 20, Vec::new());
        let mut take = |frame: &[u8]| {
            assert_eq!(reader.take(&mut BytesMut::from(frame), limit), Ok(None));
            reader.unfinished[1].as_ref().map_or((std::ptr::null(), 0), |whole| (whole.as_ptr(), whole.len()))
        };
        let mut from = take(&frames[0]).0;
        for _ in 1..limit / FRAME {
            let (now, len) = take(&frames[1]);
            if std::mem::replace(&mut from, now) != now {
                copies.push(len);
            }
        }
        assert!(copies.iter().all(|len| *len <= LONG + FRAME), "{copies:?}");
    }

    #[test]
    fn the_sender_is_encoded_as_its_type_says() {
        let (from, to) = ends();
        let mut plain = [0; 18];
        put_end(&mut plain[..9], from);
        put_end(&mut plain[9..], to);
        assert_eq!(&plain[..], &[from.to_bytes(), to.to_bytes()].concat()[..]);
    }

    #[test]
    fn what_is_too_long_too_short_of_unknown_flags_or_damaged_is_refused() {
        let take = |bytes: &[u8], limit| Reader::default().take(&mut BytesMut::from(bytes), limit);
        let announced = |length: usize, flags: u8| {
            [&u32::try_from(length).unwrap().to_le_bytes()[..], &[0; 4], &[flags]].concat()
        };
        assert_eq!(take(&1001u32.to_le_bytes(), 1000), Err(FrameError::Long { length: 1001, limit: 1000 }));
        let most = FRAME + ENDS;
        let long = FrameError::Long { length: most + 1, limit: most };
        assert_eq!(take(&announced(most + 1, 0), LIMIT), Err(long));
        assert_eq!(take(&17u32.to_le_bytes(), 1000), Err(FrameError::Short { length: 17, least: ENDS }));
        for (length, error) in [
            (FRAME - 1, FrameError::Short { length: FRAME - 1, least: FRAME }),
            (FRAME + 1, FrameError::Long { length: FRAME + 1, limit: FRAME }),
        ] {
            assert_eq!(
                take(&announced(length, MORE), LIMIT),
                Err(error),
                "a frame that another follows is full"
            );
        }
        for unknown in [16, ECHO | MORE] {
            assert_eq!(take(&announced(18, unknown), LIMIT), Err(FrameError::Flags(unknown)));
        }
        let whole = frames(Class::Urgent, Bytes::from_static(b"hello")).concat();
        for at in 4..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(matches!(take(&damaged, 1000), Err(FrameError::Checksum { .. })), "byte {at}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let mut input: BytesMut = (0..random.range(0..64)).map(|_| random.u64() as u8).collect();
            let _ = Reader::default().take(&mut input, 1000);
            // Behind a length and a checksum that fit, the flags and the ends are still arbitrary.
            let body: Vec<u8> = (0..random.range(19..64)).map(|_| random.u64() as u8).collect();
            let mut input = BytesMut::from(&(body.len() as u32 - 1).to_le_bytes()[..]);
            input.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
            input.extend_from_slice(&body);
            let _ = Reader::default().take(&mut input, 1000);
        }
    }
}
