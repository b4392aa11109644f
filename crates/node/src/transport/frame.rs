//! A message on a connection between processes.
//!
//! ```text
//! length u32 · crc u32 · payload … · from 9 bytes · to 9 bytes        little-endian
//! ```
//!
//! `length` counts what follows the checksum; the CRC32C is over the same bytes. The ends come last so that one
//! message to several processes is encoded and summed once.
//!
//! A node that was dialed by another says nothing on that connection but [`PROBE`], which asks whether the other is
//! still there; the answer is [`ALIVE`], a frame without content.

use bytes::{Buf, Bytes, BytesMut};
use quorate_core::{Decoder, Payload, ProcessId, Wire};
use thiserror::Error;

use super::queue::SendQueue;

/// Length and checksum.
const HEADER: usize = 8;
/// `from` and `to`.
const ENDS: usize = 18;

/// Asks, against the direction of the frames, for an [`ALIVE`].
pub const PROBE: u8 = b'?';
/// A frame that says only that its sender is there.
pub const ALIVE: [u8; HEADER] = [0; HEADER];

/// Why a connection's bytes are no frames.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Longer than may be.
    #[error("a frame of {length} bytes is announced, more than the {limit} that are allowed")]
    Long {
        /// As announced.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// Shorter than its own ends.
    #[error("a frame of {0} bytes is announced, less than its header takes")]
    Short(usize),
    /// Damaged under way.
    #[error("a frame's checksum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// Of the bytes that came.
        found: u32,
        /// As sent.
        expected: u32,
    },
    /// The ends make no sense.
    #[error("a frame's sender or receiver cannot be read")]
    Ends,
}

/// A frame that has come in whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Who sent it, as it says.
    pub from: ProcessId,
    /// For whom.
    pub to: ProcessId,
    /// The encoded message.
    pub payload: Bytes,
}

/// Takes a whole frame off the front of what has come in; `None` if there is none yet. A frame with more than
/// `limit` bytes behind its header is refused as soon as it is announced.
pub fn take(input: &mut BytesMut, limit: usize) -> Result<Option<Frame>, FrameError> {
    while input.first_chunk() == Some(&ALIVE) {
        input.advance(HEADER);
    }
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > limit {
        return Err(FrameError::Long { length, limit });
    }
    if length == 0 && ALIVE.starts_with(&input[..input.len().min(HEADER)]) {
        return Ok(None);
    }
    if length < ENDS {
        return Err(FrameError::Short(length));
    }
    if input.len() < HEADER + length {
        return Ok(None);
    }
    input.advance(4);
    let expected = input.get_u32_le();
    let mut payload = input.split_to(length).freeze();
    let found = crc32c::crc32c(&payload);
    if found != expected {
        return Err(FrameError::Checksum { found, expected });
    }
    let mut ends = Decoder::new(payload.split_off(length - ENDS));
    match (ProcessId::decode(&mut ends), ProcessId::decode(&mut ends)) {
        (Ok(from), Ok(to)) => Ok(Some(Frame { from, to, payload })),
        _ => Err(FrameError::Ends),
    }
}

/// A message, encoded once for all its receivers.
#[derive(Debug)]
pub struct Encoded {
    message: Payload,
    length: usize,
    crc: u32,
}

impl Encoded {
    /// Around the encoding of a message.
    pub fn new(message: Payload) -> Encoded {
        let length = message.len();
        let crc = message.parts().iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        Encoded { message, length, crc }
    }

    /// What [`take`] compares with its limit.
    pub fn length(&self) -> usize {
        self.length + ENDS
    }

    /// Bytes on the connection.
    pub fn bytes(&self) -> usize {
        HEADER + self.length()
    }

    /// Appends the frame to a connection's queue.
    pub fn queue(&self, from: ProcessId, to: ProcessId, queue: &mut SendQueue) {
        let mut ends = [0; ENDS];
        put_end(&mut ends[..9], from);
        put_end(&mut ends[9..], to);
        let crc = crc32c::crc32c_append(self.crc, &ends);
        let length = u32::try_from(self.length()).expect("the caller refuses frames beyond its limit");
        queue.copy(&length.to_le_bytes());
        queue.copy(&crc.to_le_bytes());
        for part in self.message.parts() {
            queue.push(part);
        }
        queue.copy(&ends);
    }
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

    fn ends() -> (ProcessId, ProcessId) {
        (NodeId::new(3).unwrap().into(), ProxyId(1 << 40).into())
    }

    fn bytes_of(message: &Bytes) -> BytesMut {
        let (from, to) = ends();
        let mut queue = SendQueue::default();
        let encoded = Encoded::new(Payload::of(message));
        encoded.queue(from, to, &mut queue);
        let mut out = Vec::new();
        queue.write_to(&mut out).unwrap();
        assert_eq!(out.len(), encoded.bytes());
        BytesMut::from(&out[..])
    }

    #[test]
    fn a_frame_is_taken_only_when_it_is_whole_and_comes_out_as_it_went_in() {
        let (from, to) = ends();
        for size in [0, 1, 100, 5000, 300_000] {
            let message = Bytes::from(vec![7; size]);
            let whole = bytes_of(&message);
            let mut input = BytesMut::new();
            for chunk in whole.chunks(whole.len() / 3) {
                assert_eq!(take(&mut input, 1 << 20), Ok(None));
                input.extend_from_slice(chunk);
            }
            input.extend_from_slice(b"next");
            let frame = take(&mut input, 1 << 20).unwrap().unwrap();
            assert_eq!((frame.from, frame.to), (from, to));
            assert_eq!(Bytes::from_bytes(frame.payload), Ok(message));
            assert_eq!(&input[..], b"next");
        }
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
    fn what_is_too_long_or_damaged_is_refused() {
        let mut long = BytesMut::from(&1001u32.to_le_bytes()[..]);
        assert_eq!(take(&mut long, 1000), Err(FrameError::Long { length: 1001, limit: 1000 }));
        let mut short = BytesMut::from(&17u32.to_le_bytes()[..]);
        assert_eq!(take(&mut short, 1000), Err(FrameError::Short(17)));
        let whole = bytes_of(&Bytes::from_static(b"hello"));
        for at in 4..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(matches!(take(&mut damaged, 1000), Err(FrameError::Checksum { .. })), "byte {at}");
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let mut input: BytesMut = (0..random.range(0..64)).map(|_| random.u64() as u8).collect();
            let _ = take(&mut input, 1000);
            // Behind a length and a checksum that fit, the ends are still arbitrary.
            let body: Vec<u8> = (0..random.range(18..64)).map(|_| random.u64() as u8).collect();
            let mut input = BytesMut::from(&(body.len() as u32).to_le_bytes()[..]);
            input.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
            input.extend_from_slice(&body);
            let _ = take(&mut input, 1000);
        }
    }
}
