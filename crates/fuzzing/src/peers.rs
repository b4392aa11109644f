//! What processes say to each other, below the protocols.

use std::sync::LazyLock;

use bytes::BytesMut;
use quorate_core::link::FRAME;
use quorate_core::{Class, NodeId, Payload, ProcessId, ProxyId, Settings, Wire};
use quorate_node::transport::frame::{Encoded, Frame, FrameError, Reader};
use quorate_node::transport::handshake::{self, Answer, Greeting, Hello, Identity, VERSIONS};
use quorate_node::transport::queue::{Output, Wrote};

/// Of a message: a little more than two frames.
const MESSAGE_LIMIT: usize = 2 * FRAME + 4096;
/// Of the frames that the target writes itself.
static ENDS: LazyLock<(ProcessId, ProcessId)> =
    LazyLock::new(|| (NodeId::new(3).expect("valid").into(), ProxyId(1 << 40).into()));
/// So many times does an input stand for a full frame, at most.
const FULL: usize = 4;

/// Cuts the input into pieces: whole, bytewise, or in sizes that a plan gives.
pub fn cuts(input: &[u8], plan: u8) -> Vec<&[u8]> {
    let (mut pieces, mut rest, mut step) = (Vec::new(), input, usize::from(plan));
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((step + 1).min(rest.len()));
        pieces.push(piece);
        rest = behind;
        step = step * 5 / 3 % 251;
    }
    pieces
}

fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<FrameError>) {
    let (mut reader, mut input, mut frames) = (Reader::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match reader.take(&mut input, MESSAGE_LIMIT) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// The frames of a message, as they are written.
fn written(Frame { from, to, payload }: &Frame, class: Class) -> Vec<u8> {
    let (mut output, mut out) = (Output::default(), Vec::new());
    Encoded::new(Payload::Whole(payload.clone()), class).queue(*from, *to, &mut output);
    while output.write_to(&mut out).expect("memory takes everything").0 != Wrote::All {}
    out
}

/// A frame whose checksum fits.
fn summed(flags: u8, rest: &[u8]) -> Vec<u8> {
    let body = [&[flags], rest].concat();
    [&(rest.len() as u32).to_le_bytes()[..], &crc32c::crc32c(&body).to_le_bytes(), &body].concat()
}

/// Messages are the same however the input is split, and what was read is read again as it was written. A plan gives
/// what a fuzzer would not find: frames behind a length and a checksum that fit, full ones among them, in any order.
pub fn frame(data: &[u8]) {
    let Some((&plan, rest)) = data.split_first() else { return };
    let (mut input, mut split) = (rest.to_vec(), plan / 4);
    match plan % 4 {
        1 => input = rest.split_first().map_or_else(Vec::new, |(&flags, rest)| summed(flags, rest)),
        // Each byte has the flags of a frame that is full, and whether it is a whole message's last.
        3 => {
            let full = |&byte: &u8| match byte & 0x80 {
                0 => summed(byte, &[byte; FRAME]),
                _ => summed(byte & 0x7f, &[ENDS.0.to_bytes(), ENDS.1.to_bytes()].concat()),
            };
            input = rest.iter().take(FULL).flat_map(full).collect();
            // Not bytewise: so long an input would have too many cuts.
            split |= 32;
        }
        _ => {}
    }
    let (found, error) = frames([&input[..]]);
    let (again, same) = frames(cuts(&input, split));
    assert_eq!((&found, &error), (&again, &same), "another split of the input");
    for frame in &found {
        for class in Class::ALL {
            let (again, error) = frames([&written(frame, class)[..]]);
            assert!(
                error.is_none() && again.iter().eq([frame]),
                "what was read is written as it was: {error:?}"
            );
        }
    }
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let (from, to) = *ENDS;
    let frame = |payload: &'static str| Frame { from, to, payload: payload.into() };
    let two = [written(&frame(""), Class::Urgent), written(&frame("hello"), Class::Bulk)].concat();
    let sealed = [&[0][..], b"payload", &from.to_bytes()[..], &to.to_bytes()].concat();
    let long = [&(FRAME as u32 + 100).to_le_bytes()[..], b"....."].concat();
    vec![
        [&[0], &two[..]].concat(),
        [&[12], &two[..]].concat(),
        [&[17], &sealed[..]].concat(),
        [&[0], &long[..]].concat(),
        // Full frames: one of each class mixed, one that never ends, one out of place.
        vec![3, 0x04, 0x05, 0x83, 0x82],
        vec![255, 0x05, 0x07, 0x07, 0x07],
        vec![3, 0x06],
    ]
}

fn me() -> Identity {
    let mut settings = Settings::default();
    settings.duration("lease", "2s", "How long a lease lasts").expect("the default is valid");
    Identity::new(7, (NodeId::new(1).expect("valid").into(), "a:1"), 5, "multipaxos", &settings)
}

fn sealed(newest: u8, body: &[u8]) -> Vec<u8> {
    let mut out = handshake::MAGIC.to_vec();
    out.extend_from_slice(&[newest, VERSIONS.older]);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// What one kind of handshake message makes of the input, however it is split.
fn take<T: Greeting + PartialEq + std::fmt::Debug>(input: &[u8], plan: u8) -> Option<T> {
    let whole = handshake::take::<T>(&mut BytesMut::from(input));
    let mut parts = Ok(None);
    let mut buffer = BytesMut::new();
    for piece in cuts(input, plan) {
        buffer.extend_from_slice(piece);
        parts = handshake::take::<T>(&mut buffer);
        if !matches!(parts, Ok(None)) {
            break;
        }
    }
    if let (Ok(one), Ok(other)) = (&whole, &parts) {
        assert_eq!(one, other, "another split of the input");
    }
    assert_eq!(whole.is_ok(), parts.is_ok(), "{whole:?} or {parts:?}: another split of the input");
    if let Err(reason) = &whole {
        assert!(reason.len() <= 2000, "what is logged is short");
    }
    whole.ok().flatten()
}

/// A handshake is read or refused, in words of bounded length. The plan's low bits choose raw bytes, or a body
/// behind a header that fits, of this version or another.
pub fn handshake(data: &[u8]) {
    let Some((&plan, rest)) = data.split_first() else { return };
    let input = match plan % 4 {
        0 => rest.to_vec(),
        3 => sealed(VERSIONS.newest + 1, rest),
        _ => sealed(VERSIONS.newest, rest),
    };
    if let Some(hello) = take::<Hello>(&input, plan / 4) {
        let difference = me().difference(&hello);
        assert!(difference.is_none_or(|text| text.len() <= 20_000), "what is logged is bounded");
        let mut out = Vec::new();
        handshake::put(&hello, &mut out);
        assert_eq!(handshake::take(&mut BytesMut::from(&out[..])), Ok(Some(hello)));
    }
    if let Some(answer) = take::<Answer>(&input, plan / 4) {
        let mut out = Vec::new();
        handshake::put(&answer, &mut out);
        assert_eq!(handshake::take(&mut BytesMut::from(&out[..])), Ok(Some(answer)));
    }
}

pub fn handshake_seeds() -> Vec<Vec<u8>> {
    let hello = me().hello(NodeId::new(2).expect("valid").into());
    let mut whole = vec![0];
    handshake::put(&hello, &mut whole);
    let answers =
        [Answer::Welcome(hello.clone()), Answer::Refused("no".into())].map(|answer| answer.to_bytes());
    let bodies = [&hello.to_bytes(), &answers[0], &answers[1]];
    let sealed = (1..4).flat_map(|plan| bodies.map(|body| [&[plan], &body[..]].concat()));
    sealed.chain([whole]).collect()
}
