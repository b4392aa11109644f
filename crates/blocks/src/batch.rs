//! What one slot of a log carries: client entries that are executed together, under one time.

use std::collections::BTreeSet;

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, ProcessId, Roster, Wall, Wire, WireError, mutation, wire_enum};

use crate::membership::Configuration;

/// One client's share of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Opens a session for a proxy incarnation; repeating it while that session lives gives the same one.
    Open {
        /// The proxy that is answered.
        proxy: ProcessId,
        /// Drawn by this incarnation of the proxy.
        nonce: u64,
    },
    /// A command under a session.
    Write {
        /// The session that the write belongs to.
        session: u64,
        /// Its number in the session.
        seq: u64,
        /// Replies below this number need not be kept.
        low: u64,
        /// The encoded command, or a [part](crate::parts) of one; empty for none.
        command: Bytes,
    },
    /// The group is this from now on; what *now* means is the protocol's. Stands alone in its batch.
    Configuration(Configuration),
    /// A read, whose replica answers it at this position; for the others it only touches keys.
    Read {
        /// The command, as the store's wire format has it.
        command: Bytes,
    },
    /// Those of these keys whose time is up by the batch's time expire now.
    Expire {
        /// Keys whose time is up, as the proposer's clocks show it.
        keys: Vec<Bytes>,
    },
    /// The leader that made this gives its lease up: it answers nothing from its state any more. Stands alone.
    EndLease,
    /// These serve reads from now on, as the protocol has it. Stands alone.
    Roster(Roster),
}
wire_enum!(Entry {
    1 => Open { proxy, nonce },
    2 => Write { session, seq, low, command },
    3 => Configuration(configuration),
    4 => EndLease,
    5 => Roster(roster),
    6 => Read { command },
    7 => Expire { keys },
});

impl Entry {
    /// The encoded command of a write.
    pub fn command(&self) -> Option<&Bytes> {
        match self {
            Entry::Write { command, .. } => Some(command),
            Entry::Open { .. }
            | Entry::Configuration(_)
            | Entry::Read { .. }
            | Entry::Expire { .. }
            | Entry::EndLease
            | Entry::Roster(_) => None,
        }
    }
}

/// What a value is to the protocol that orders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It changes nothing: a slot that had to be filled.
    Noop,
    /// What clients asked for, or the time alone.
    Clients,
    /// A configuration of the group.
    Configuration,
    /// The end of a lease.
    EndLease,
    /// A roster: who serves reads of which keys.
    Roster,
}

/// An encoded batch: `time (8) · entry · entry …`. An empty one (no bytes at all) is a **no-op**, which fills a slot
/// without executing anything, not even the passing of time.
#[derive(Debug)]
pub struct Batch {
    /// The leader's wall clock when it was proposed.
    pub time: Wall,
    /// What to execute, in order.
    pub entries: Vec<Entry>,
}

impl Batch {
    /// The value of a no-op.
    pub fn noop() -> Bytes {
        Bytes::new()
    }

    /// A value that holds a time, by which keys and sessions expire, and no entry.
    pub fn empty(time: Wall) -> Bytes {
        time.to_bytes()
    }

    /// A value that holds one entry, for the protocol itself.
    pub fn alone(time: Wall, entry: &Entry) -> Bytes {
        let mut out = Encoder::new();
        time.encode(&mut out);
        entry.encode(&mut out);
        out.into_bytes()
    }

    /// A batch with more entries at its end.
    pub fn extended<'a>(value: Bytes, more: impl IntoIterator<Item = &'a Entry>) -> Bytes {
        let mut more = more.into_iter().peekable();
        if more.peek().is_none() {
            return value;
        }
        let mut out = Encoder::new();
        out.put_slice(&value);
        more.for_each(|entry| entry.encode(&mut out));
        out.into_bytes()
    }

    /// What a value is, told by its first entry.
    pub fn kind(value: &Bytes) -> Kind {
        match value.get(TIME_BYTES) {
            None if value.is_empty() => Kind::Noop,
            Some(&CONFIGURATION) => Kind::Configuration,
            Some(&END_LEASE) => Kind::EndLease,
            Some(&ROSTER) => Kind::Roster,
            Some(_) | None => Kind::Clients,
        }
    }

    /// The time in a value; `None` for a no-op.
    pub fn time(value: &Bytes) -> Option<Wall> {
        Wall::decode(&mut Decoder::new(value.clone())).ok()
    }

    /// The configuration in a value, if it is one.
    pub fn configuration(value: &Bytes) -> Option<Configuration> {
        match Batch::decode(value).ok()??.entries.pop()? {
            Entry::Configuration(configuration) => Some(configuration),
            Entry::Open { .. }
            | Entry::Write { .. }
            | Entry::Read { .. }
            | Entry::Expire { .. }
            | Entry::EndLease
            | Entry::Roster(_) => None,
        }
    }

    /// Reads a value; `None` for a no-op.
    pub fn decode(value: &Bytes) -> Result<Option<Batch>, WireError> {
        if value.is_empty() {
            return Ok(None);
        }
        let mut input = Decoder::new(value.clone());
        let time = Wall::decode(&mut input)?;
        let mut entries = Vec::new();
        while input.remaining() > 0 {
            entries.push(Entry::decode(&mut input)?);
        }
        Ok(Some(Batch { time, entries }))
    }
}

/// Collects entries until they are proposed.
#[derive(Debug)]
pub struct Builder {
    entries: std::collections::VecDeque<Entry>,
    bytes: usize,
}

/// How much one slot may carry. A single larger entry still goes, alone.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries in a batch.
    pub entries: usize,
    /// Bytes in a batch.
    pub bytes: usize,
}

/// The time at the head of a batch.
const TIME_BYTES: usize = 8;
/// As entries are tagged.
const CONFIGURATION: u8 = 3;
const END_LEASE: u8 = 4;
const ROSTER: u8 = 5;

/// What an entry adds to a batch besides its command.
const ENTRY_OVERHEAD: usize = 32;

impl Builder {
    /// A batch without entries.
    pub fn new() -> Builder {
        Builder { entries: Default::default(), bytes: 0 }
    }

    /// Adds an entry behind those that are there.
    pub fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.entries.push_back(entry);
    }

    /// Takes a session's writes back, from this number on. Returns the number that follows those which still wait;
    /// `None` if none does.
    pub fn withdraw(&mut self, session: u64, from: u64) -> Option<u64> {
        let Builder { entries, bytes } = self;
        let mut next = None;
        entries.retain(|entry| {
            let Entry::Write { session: of, seq, .. } = entry else { return true };
            if *of != session {
                return true;
            }
            let waits = *seq < from;
            match waits {
                true => next = Some(seq + 1),
                false => *bytes -= size(entry),
            }
            waits
        });
        next
    }

    /// Those of these writes of a session that still wait will use up their numbers and do nothing else.
    pub fn give_up(&mut self, session: u64, numbers: &BTreeSet<u64>) {
        for entry in &mut self.entries {
            let Entry::Write { session: of, seq, command, .. } = entry else { continue };
            if *of == session && numbers.contains(seq) {
                self.bytes -= std::mem::take(command).len();
            }
        }
    }

    /// About how many bytes the batch has when it is encoded.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes as much as one slot may carry, stamped with a time. With nothing waiting, a batch that only tells time.
    ///
    /// Writes that their clients have given up do nothing but use up their numbers, and are not counted: where slots
    /// are slow and carry little, what clients still wait for would come behind all of them, and be given up too.
    pub fn take(&mut self, limits: Limits, time: Wall) -> Bytes {
        let mut out = Encoder::with_capacity(TIME_BYTES + self.bytes.min(limits.bytes));
        time.encode(&mut out);
        let mut counted = 0;
        while let Some(entry) = self.entries.front() {
            let given_up = entry.command().is_some_and(Bytes::is_empty);
            let counts = !given_up || mutation::active("batch/given-up-counts");
            let fits = out.len() == TIME_BYTES || out.len() + size(entry) <= limits.bytes;
            if !fits || (counts && counted == limits.entries) {
                break;
            }
            entry.encode(&mut out);
            self.bytes -= size(entry);
            self.entries.pop_front();
            counted += usize::from(counts);
        }
        out.into_bytes()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

fn size(entry: &Entry) -> usize {
    match entry {
        Entry::Open { .. } | Entry::Configuration(_) | Entry::EndLease | Entry::Roster(_) => ENTRY_OVERHEAD,
        Entry::Write { command, .. } | Entry::Read { command } => ENTRY_OVERHEAD + command.len(),
        Entry::Expire { keys } => ENTRY_OVERHEAD + keys.iter().map(|key| key.len() + 4).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(seq: u64, len: usize) -> Entry {
        Entry::Write { session: 1, seq, low: 1, command: vec![b'x'; len].into() }
    }

    #[test]
    #[allow(clippy::type_complexity, reason = "a table")]
    fn batches_respect_their_limits_and_keep_the_order() {
        // entries waiting (command bytes) | limits (entries, bytes) | entries per batch
        let table: [(&[usize], (usize, usize), &[usize]); 7] = [
            (&[], (10, 1000), &[0]),
            (&[10, 10, 10], (10, 1000), &[3]),
            (&[10, 10, 10], (2, 1000), &[2, 1]),
            (&[100, 100, 100], (10, 250), &[1, 1, 1]),
            (&[5000, 10], (10, 1000), &[1, 1]),
            (&[0, 10, 0, 0, 10, 10], (1, 1000), &[4, 1, 1]),
            (&[0, 0, 0, 0], (1, 80), &[2, 2]),
        ];
        for (waiting, (entries, bytes), expected) in table {
            let mut builder = Builder::new();
            for (seq, len) in waiting.iter().enumerate() {
                builder.push(write(seq as u64, *len));
            }
            let mut seen = Vec::new();
            for count in expected {
                let value = builder.take(Limits { entries, bytes }, Wall::from_millis(5));
                let batch = Batch::decode(&value).unwrap().unwrap();
                assert_eq!((batch.time, batch.entries.len()), (Wall::from_millis(5), *count), "{waiting:?}");
                seen.extend(batch.entries);
            }
            assert!(builder.is_empty() && builder.bytes() == 0);
            let all: Vec<_> = waiting.iter().enumerate().map(|(seq, len)| write(seq as u64, *len)).collect();
            assert_eq!(seen, all);
        }
    }

    #[test]
    fn writes_that_are_taken_back_leave_the_others_in_order() {
        let mut builder = Builder::new();
        (1..=4).for_each(|seq| builder.push(write(seq, 10)));
        builder.push(Entry::Write { session: 2, seq: 3, low: 1, command: Bytes::new() });
        builder.push(Entry::Expire { keys: Vec::new() });
        let bytes = builder.bytes();
        assert_eq!((builder.withdraw(1, 5), builder.withdraw(3, 1)), (Some(5), None));
        assert_eq!(builder.bytes(), bytes, "nothing was taken back");
        assert_eq!(builder.withdraw(1, 3), Some(3));
        assert_eq!(builder.withdraw(1, 0), None);
        let left = Batch::decode(&builder.take(Limits { entries: 9, bytes: 1000 }, Wall::ZERO));
        let left = left.unwrap().unwrap().entries;
        assert!(
            matches!(left[..], [Entry::Write { session: 2, seq: 3, .. }, Entry::Expire { .. }]),
            "{left:?}"
        );
        assert_eq!(builder.bytes(), 0);
    }

    #[test]
    fn writes_that_are_given_up_keep_their_places_and_nothing_else() {
        let mut builder = Builder::new();
        (1..=3).for_each(|seq| builder.push(write(seq, 10)));
        builder.push(Entry::Write { session: 2, seq: 2, low: 1, command: vec![b'x'; 10].into() });
        builder.give_up(1, &[2, 3, 4].into());
        builder.give_up(1, &[2].into());
        let value = builder.take(Limits { entries: 9, bytes: 1000 }, Wall::ZERO);
        let lengths = |entry: &Entry| entry.command().map(Bytes::len);
        let batch = Batch::decode(&value).unwrap().unwrap();
        assert_eq!(batch.entries.iter().map(lengths).collect::<Vec<_>>(), [10, 0, 0, 10].map(Some));
        assert_eq!(builder.bytes(), 0);
    }

    #[test]
    fn a_value_tells_what_it_is() {
        let time = Wall::from_millis(7);
        let configuration = Configuration { voters: quorate_core::NodeSet::EMPTY, ..Default::default() };
        let entry = Entry::Configuration(configuration.clone());
        assert_eq!(Batch::kind(&Batch::noop()), Kind::Noop);
        assert_eq!(Batch::kind(&Batch::alone(time, &write(1, 5))), Kind::Clients);
        assert_eq!(Batch::kind(&Builder::new().take(Limits { entries: 1, bytes: 1 }, time)), Kind::Clients);
        assert_eq!(Batch::kind(&Batch::alone(time, &Entry::EndLease)), Kind::EndLease);
        assert_eq!(Batch::kind(&Batch::alone(time, &entry)), Kind::Configuration);
        assert_eq!(Batch::kind(&Batch::alone(time, &Entry::Roster(Roster::default()))), Kind::Roster);
        assert_eq!(Batch::configuration(&Batch::alone(time, &entry)), Some(configuration));
        assert_eq!(Batch::configuration(&Batch::alone(time, &Entry::EndLease)), None);
    }

    #[test]
    fn a_noop_is_not_a_batch_that_tells_time() {
        assert!(Batch::decode(&Batch::noop()).unwrap().is_none());
        let idle = Builder::new().take(Limits { entries: 1, bytes: 1 }, Wall::from_millis(1));
        assert!(Batch::decode(&idle).unwrap().is_some());
    }
}
