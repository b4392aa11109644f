//! What processes say to each other, below the protocols.

use bytes::BytesMut;
use quorate_core::{NodeId, Payload, ProcessId, ProxyId, Settings, Wire};
use quorate_node::transport::frame::{self, Encoded, Frame, FrameError};
use quorate_node::transport::handshake::{self, Answer, Hello, Identity};
use quorate_node::transport::queue::SendQueue;

/// As small as makes a difference.
const FRAME_LIMIT: usize = 4096;

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
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match frame::take(&mut input, FRAME_LIMIT) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// Frames are the same however the input is split, and are written as they were read. An odd plan gives what
/// follows a length and a checksum that fit, which a fuzzer would not find.
pub fn frame(data: &[u8]) {
    let Some((&plan, rest)) = data.split_first() else { return };
    let mut input = rest.to_vec();
    if plan % 2 == 1 {
        input = (rest.len() as u32).to_le_bytes().to_vec();
        input.extend_from_slice(&crc32c::crc32c(rest).to_le_bytes());
        input.extend_from_slice(rest);
    }
    let (found, error) = frames([&input[..]]);
    let (again, same) = frames(cuts(&input, plan / 2));
    assert_eq!((&found, &error), (&again, &same), "another split of the input");
    let mut written = Vec::new();
    for Frame { from, to, payload } in &found {
        let mut queue = SendQueue::default();
        Encoded::new(payload.clone().into()).queue(*from, *to, &mut queue);
        queue.write_to(&mut written).expect("memory takes everything");
    }
    assert!(input.starts_with(&written), "what was read is written as it was");
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let ends: [ProcessId; 2] = [NodeId::new(3).expect("valid").into(), ProxyId(1 << 40).into()];
    let mut two = Vec::new();
    for payload in ["", "hello"] {
        let mut queue = SendQueue::default();
        Encoded::new(Payload::Whole(payload.into())).queue(ends[0], ends[1], &mut queue);
        queue.write_to(&mut two).expect("memory takes everything");
    }
    let sealed = [b"payload", &ends[0].to_bytes()[..], &ends[1].to_bytes()].concat();
    let long = [&5000u32.to_le_bytes()[..], b"...."].concat();
    vec![
        [&[0], &two[..]].concat(),
        [&[6], &two[..]].concat(),
        [&[9], &sealed[..]].concat(),
        [&[0], &long[..]].concat(),
    ]
}

fn me() -> Identity {
    let mut settings = Settings::default();
    settings.duration("lease", "2s", "How long a lease lasts").expect("the default is valid");
    Identity::new(7, (NodeId::new(1).expect("valid").into(), "a:1"), 5, "multipaxos", &settings)
}

fn sealed(version: u16, body: &[u8]) -> Vec<u8> {
    let mut out = handshake::MAGIC.to_vec();
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// What one kind of handshake message makes of the input, however it is split.
fn take<T: Wire + PartialEq + std::fmt::Debug>(input: &[u8], plan: u8) -> Option<T> {
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
        3 => sealed(handshake::VERSION + 1, rest),
        _ => sealed(handshake::VERSION, rest),
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
