//! Large writes in several entries of the log.
//!
//! Problem: a value of 64 MiB in one slot makes one message, one record and one promise of 64 MiB; whatever is behind
//! it on a link waits, also what a leader says to stay leader. Solution: a proxy cuts an *encoded command* that is
//! longer than `value.part` into **parts** of so many bytes, and at most 256 KiB. Each takes a number of the proxy's
//! session, like a write, and is executed like one: once, in the order of numbers. All but the last are only kept, in
//! the session; the last executes the whole.
//!
//! Safety. A part says which number the first of its command has, and how many bytes come before it. It is kept only if
//! just these bytes of just this command are there; otherwise what is there is dropped, and the last part, which then
//! cannot fit either, is refused. So the command that is executed is the one that was cut, or none, whatever else of
//! the session is executed in between, and whatever its proxy has given up. A part is never executed twice, since its
//! number is not.
//!
//! The last part carries the **footprint** of the whole: whoever looks at what is not executed yet (leases, conflicts)
//! needs to know what it will write. That it is the right one is checked before the whole is executed. The other parts
//! touch nothing but their session.
//!
//! What is kept is bounded, and the same at all replicas, also where writes of different sessions are executed in any
//! order: a session's share depends only on how many sessions there are, as for retained replies
//! ([`sessions`](crate::sessions)).
//!
//! The command is put together while its parts come in ([`Joined`]): to copy 64 MiB when the last one is executed would
//! keep a replica from everything else for some tens of milliseconds.

use std::fmt;

use bytes::{Bytes, BytesMut};
use quorate_core::{Decoder, Encoder, MAX_MESSAGE, Wire, WireError, mutation};
use quorate_store::Command;
use quorate_store::command::announced_len;
use quorate_store::footprint::Footprint;

/// Bytes of parts that all sessions together may keep.
const KEPT_BYTES: usize = 2 << 30;
/// Memory that a part takes apart from its own bytes.
const PART_OVERHEAD: usize = 64;
/// Bytes that are put together when one more part comes in, if there are as many, but two parts at least: so one whose
/// parts were restored from a snapshot catches up. A command that is no longer is put together with its last part.
const JOINED_AT_ONCE: usize = 2 << 20;
/// A smaller part is copied: it would hold on to the whole batch it came in.
const COPIED: usize = 64 << 10;
/// What a part begins with where a command could be: no command begins with it.
const TAG: u8 = 0xff;
/// A footprint of so many bytes is always worth its place.
const SMALL_FOOTPRINT: usize = 1 << 10;

/// A part of an encoded command. Encoded, it stands where the command would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the command's first part in the session.
    pub first: u64,
    /// Bytes of the command before this part.
    pub offset: u64,
    /// What the whole command touches; only in the last part.
    pub last: Option<Footprint>,
    /// The bytes of the command themselves.
    pub bytes: Bytes,
}

impl Wire for Part {
    fn encode(&self, out: &mut Encoder) {
        out.put_u8(TAG);
        self.first.encode(out);
        self.offset.encode(out);
        self.last.encode(out);
        out.put_bytes(&self.bytes);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let tag = input.u8()?;
        if tag != TAG {
            return Err(WireError::Value { what: "part", found: tag.into() });
        }
        let (first, offset) = <(u64, u64)>::decode(input)?;
        Ok(Part { first, offset, last: Option::decode(input)?, bytes: Bytes::decode(input)? })
    }
}

impl Part {
    /// The part that a number of a session carries, if it carries one.
    pub fn of(command: &Bytes) -> Option<Part> {
        (command.first() == Some(&TAG)).then(|| Part::from_bytes(command.clone()).ok()).flatten()
    }
}

/// What the bytes of a write touch: a command, or a part of one. `None` for what cannot be read, which is executed as
/// nothing, and for all parts but the last.
pub fn footprint(command: &Bytes) -> Option<Footprint> {
    match Part::of(command) {
        Some(part) => part.last,
        None => Command::from_bytes(command.clone()).ok().map(|command| command.footprint()),
    }
}

/// A command that is being cut.
#[derive(Debug)]
pub struct Cut {
    command: Bytes,
    footprint: Footprint,
    /// The number of its first part, once it has one.
    first: Option<u64>,
    offset: usize,
}

impl Cut {
    /// `None` if the command is not to be cut: it cannot be read, or most of it are keys, which the last part would
    /// name again.
    pub fn new(command: &Bytes) -> Option<Cut> {
        let footprint = Command::from_bytes(command.clone()).ok()?.footprint();
        let names = footprint.to_bytes().len();
        let is_worth_it = names <= SMALL_FOOTPRINT.max(command.len() / 2);
        is_worth_it.then(|| Cut { command: command.clone(), footprint, first: None, offset: 0 })
    }

    /// The next part, of at most so many bytes, which gets this number; and whether it is the last.
    pub fn next(&mut self, seq: u64, bytes: usize) -> (Bytes, bool) {
        let first = *self.first.get_or_insert(seq);
        let end = self.command.len().min(self.offset + bytes);
        let is_last = end == self.command.len();
        let last = is_last.then(|| self.footprint.clone());
        let part =
            Part { first, offset: self.offset as u64, last, bytes: self.command.slice(self.offset..end) };
        self.offset = end;
        (part.to_bytes(), is_last)
    }
}

/// What came of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// More parts have to come.
    Incomplete,
    /// This is the whole command.
    Whole(Bytes),
    /// It has no room, or what comes before it is not there.
    Refused,
}

/// The parts of one command that a session keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// The number of the first; 0 if there is none.
    first: u64,
    parts: Vec<Bytes>,
    bytes: usize,
    joined: Joined,
}

/// The beginning of a command in one piece, as far as it was copied there. It says nothing that its parts do not say:
/// a copy of it is empty, and all are equal.
#[derive(Default)]
struct Joined {
    bytes: BytesMut,
    /// Parts that are in it.
    parts: usize,
}

impl Joined {
    /// Copies parts that are not here: two, and more until so many bytes are copied.
    fn follow(&mut self, parts: &[Bytes], bytes: usize) {
        let (until, two) = (self.bytes.len().saturating_add(bytes), self.parts + 2);
        while let Some(part) = parts.get(self.parts)
            && (self.bytes.len() < until || self.parts < two)
        {
            self.bytes.extend_from_slice(part);
            self.parts += 1;
        }
    }
}

impl Clone for Joined {
    fn clone(&self) -> Self {
        Joined::default()
    }
}

impl PartialEq for Joined {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Joined {}

impl fmt::Debug for Joined {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl Assembly {
    /// Bytes that one of so many sessions may keep: no command is longer than a message.
    pub fn share(sessions: usize) -> usize {
        (KEPT_BYTES / sessions.max(1)).min(MAX_MESSAGE)
    }

    /// The number of the first part.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Puts a part that was kept before back.
    pub fn restore(&mut self, first: u64, part: Bytes) {
        self.first = first;
        self.push(part);
    }

    fn push(&mut self, part: Bytes) {
        self.bytes += part.len();
        self.parts.push(if part.len() < COPIED { Bytes::copy_from_slice(&part) } else { part });
    }

    /// Takes the next part of a command. No more than `share` bytes are kept.
    pub fn take(&mut self, part: Part, share: usize) -> Kept {
        let Part { first, offset, last, bytes } = part;
        if offset == 0 || mutation::active("parts/alone") {
            *self = Assembly { first, ..Assembly::default() };
        }
        let follows = self.first == first && self.bytes as u64 == offset || mutation::active("parts/alone");
        self.push(bytes);
        if !follows || self.trim(share) {
            *self = Assembly::default();
            return Kept::Refused;
        }
        let Some(footprint) = last else {
            self.join(share);
            return Kept::Incomplete;
        };
        let whole = std::mem::take(self).whole();
        match Command::from_bytes(whole.clone()) {
            Ok(command) if command.footprint() != footprint => Kept::Refused,
            Ok(_) | Err(_) => Kept::Whole(whole),
        }
    }

    /// Goes on putting the command together, if it says how long it will be.
    fn join(&mut self, share: usize) {
        if self.joined.bytes.capacity() == 0 {
            let announced = self.parts.first().and_then(|first| announced_len(first));
            let Some(len) = announced.filter(|len| *len > JOINED_AT_ONCE) else { return };
            self.joined.bytes.reserve(len.min(share));
        }
        self.joined.follow(&self.parts, JOINED_AT_ONCE);
    }

    /// All of the command.
    fn whole(self) -> Bytes {
        let Assembly { parts, mut joined, .. } = self;
        if joined.bytes.is_empty() {
            return parts.concat().into();
        }
        joined.follow(&parts, usize::MAX);
        joined.bytes.freeze()
    }

    /// Drops everything if it takes more than this, and says whether it did.
    pub fn trim(&mut self, share: usize) -> bool {
        let over = self.bytes + self.parts.len() * PART_OVERHEAD > share;
        if over {
            *self = Assembly::default();
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use quorate_store::{Condition, Expiry};

    use super::*;

    fn put(len: usize) -> Bytes {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let (key, value) = (Bytes::from_static(b"key"), vec![b'v'; len].into());
        Command::Put { key, value, condition, expiry, old: false }.to_bytes()
    }

    /// All parts of a command, the first with this number.
    fn cut(command: &Bytes, first: u64, bytes: usize) -> Vec<Part> {
        let mut cut = Cut::new(command).expect("it is worth it");
        let mut parts = Vec::new();
        loop {
            let (part, is_last) = cut.next(first + parts.len() as u64, bytes);
            parts.push(Part::of(&part).expect("a part"));
            if is_last {
                return parts;
            }
        }
    }

    #[test]
    fn parts_in_their_order_are_the_command_and_only_the_last_tells_what_it_touches() {
        for (len, bytes) in [(100, 7), (100, 200), (0, 1), (200_000, 70_000)] {
            let command = put(len);
            let parts = cut(&command, 5, bytes);
            assert_eq!(parts.len(), command.len().div_ceil(bytes));
            let mut assembly = Assembly::default();
            for (index, part) in parts.iter().enumerate() {
                let is_last = index + 1 == parts.len();
                assert_eq!(footprint(&part.to_bytes()), is_last.then(|| footprint(&command).unwrap()));
                let expected = if is_last { Kept::Whole(command.clone()) } else { Kept::Incomplete };
                assert_eq!(assembly.take(part.clone(), usize::MAX), expected);
            }
            assert_eq!(assembly, Assembly::default(), "nothing is left behind");
        }
    }

    #[test]
    fn a_part_that_does_not_follow_those_that_are_there_is_refused_and_so_is_the_rest() {
        let (one, other) = (cut(&put(20), 5, 10), cut(&put(21), 9, 10));
        let wrong = [
            vec![&one[1]],
            vec![&one[0], &one[2], &one[3]],
            vec![&one[0], &one[1], &one[1], &one[2], &one[3]],
            vec![&one[0], &other[1], &other[2], &other[3]],
            vec![&one[0], &other[0], &one[1], &one[2], &one[3]],
            vec![&one[0], &one[1], &one[2], &other[3]],
        ];
        for parts in wrong {
            let mut assembly = Assembly::default();
            let last = parts.into_iter().map(|part| assembly.take(part.clone(), usize::MAX)).last();
            assert_eq!(last, Some(Kept::Refused));
            assert_eq!(assembly, Assembly::default());
        }
        let mut lying = one.clone();
        lying[3].last = Some(Command::Clear.footprint());
        let mut assembly = Assembly::default();
        let last = lying.into_iter().map(|part| assembly.take(part, usize::MAX)).last();
        assert_eq!(last, Some(Kept::Refused), "it touches something else");
    }

    #[test]
    fn a_long_command_is_put_together_while_its_parts_come_in() {
        let command = put(8 * JOINED_AT_ONCE);
        let parts = cut(&command, 5, 1 << 20);
        // Whoever goes on from a snapshot, or from a copy, has only the parts.
        for copied in [None, Some(0), Some(9)] {
            let (mut assembly, mut longest) = (Assembly::default(), 0);
            for (index, part) in parts.iter().enumerate() {
                let before = assembly.joined.bytes.len();
                match assembly.take(part.clone(), MAX_MESSAGE) {
                    Kept::Incomplete => {
                        let joined = &assembly.joined;
                        longest = longest.max(joined.bytes.len() - before);
                        assert!(joined.bytes.capacity() <= command.len() + 20);
                    }
                    kept => assert_eq!(kept, Kept::Whole(command.clone())),
                }
                if copied == Some(index) {
                    assembly = assembly.clone();
                }
            }
            assert!(longest <= JOINED_AT_ONCE, "{longest} bytes at once");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let parts = cut(&put(100), 5, 10);
        let mut assembly = Assembly::default();
        let kept: Vec<_> = parts.iter().map(|part| assembly.take(part.clone(), 200)).collect();
        assert_eq!(kept[..3], [Kept::Incomplete, Kept::Incomplete, Kept::Refused]);
        assert_eq!(kept.last(), Some(&Kept::Refused));
        assert_eq!(Assembly::share(1), MAX_MESSAGE);
        assert!(Assembly::share(4096) * 4096 <= KEPT_BYTES);
    }

    #[test]
    fn no_command_begins_like_a_part_and_one_that_is_mostly_keys_is_not_cut() {
        assert!(Command::from_bytes(Bytes::from_static(&[TAG])).is_err());
        assert_eq!(Part::of(&put(5)), None);
        let keys = (0..1000).map(|key| Bytes::from(format!("{key:09}"))).collect();
        assert!(Cut::new(&Command::Delete { keys }.to_bytes()).is_none());
        assert!(Cut::new(&Bytes::from_static(b"\xfe nonsense")).is_none());
    }
}
