//! What a batch touches. Two batches *interfere* if the order of their execution matters: one writes a key that the
//! other reads or writes (by the store's footprints and nothing else), or both carry writes of one session, or one of
//! them opens a session, which may drop others and so comes before or after everything of any session.

use bytes::Bytes;
use quorate_blocks::batch::{Batch, Entry};
use quorate_blocks::instance::Instance;
use quorate_blocks::parts;
use quorate_core::{Fact, digest, wire_struct};
use quorate_store::footprint::Extent;

/// The keys and sessions that a batch touches; a no-op touches none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interference {
    /// Keys that are read and not written, in order, each once.
    pub(super) reads: Vec<Bytes>,
    /// Keys that are written, in order, each once.
    pub(super) writes: Vec<Bytes>,
    pub(super) reads_all: bool,
    pub(super) writes_all: bool,
    /// Sessions that carry writes, in order, each once.
    pub(super) sessions: Vec<u64>,
    pub(super) opens: bool,
}

wire_struct!(Interference { reads, writes, reads_all, writes_all, sessions, opens });

impl Interference {
    /// Of an encoded batch. What does not decode is executed as a no-op, and touches nothing.
    pub fn of(value: &Bytes) -> Interference {
        let mut touched = Interference::default();
        let Ok(Some(batch)) = Batch::decode(value) else { return touched };
        for entry in batch.entries {
            match entry {
                Entry::Open { .. } => touched.opens = true,
                Entry::Write { session, command, .. } => {
                    touched.sessions.push(session);
                    touched.add(command);
                }
                Entry::Read { command } => touched.add(command),
                Entry::Expire { keys } => touched.writes.extend(keys),
                Entry::Configuration(_) | Entry::EndLease | Entry::Roster(_) => {}
            }
        }
        for keys in [&mut touched.reads, &mut touched.writes] {
            keys.sort_unstable();
            keys.dedup();
        }
        touched.sessions.sort_unstable();
        touched.sessions.dedup();
        let Interference { reads, writes, .. } = &mut touched;
        reads.retain(|key| writes.binary_search(key).is_err());
        touched
    }

    /// A command that writes decides whether the keys that it only reads have expired, and removes those that have
    /// ([`Store::apply_unordered`](quorate_store::Store::apply_unordered)): it counts as writing them.
    fn add(&mut self, command: Bytes) {
        let Some(footprint) = parts::footprint(&command) else { return };
        let (keys, all) = match footprint.is_read_only() {
            true => (&mut self.reads, &mut self.reads_all),
            false => (&mut self.writes, &mut self.writes_all),
        };
        match footprint.reads() {
            Extent::Keys(read) => keys.extend_from_slice(read.as_slice()),
            Extent::Everything => *all = true,
        }
        match footprint.writes() {
            Extent::Keys(keys) => self.writes.extend_from_slice(keys.as_slice()),
            Extent::Everything => self.writes_all = true,
        }
    }

    /// Whether the order of the two matters.
    pub fn with(&self, other: &Interference) -> bool {
        self.overwrites(other)
            || other.overwrites(self)
            || (self.opens && other.has_sessions())
            || (other.opens && self.has_sessions())
            || common(&self.sessions, &other.sessions)
    }

    /// Whether it writes what the other reads or writes.
    fn overwrites(&self, other: &Interference) -> bool {
        (self.writes_all && (other.reads_some() || other.writes_some()))
            || (other.reads_all && self.writes_some())
            || common(&self.writes, &other.writes)
            || common(&self.writes, &other.reads)
    }

    /// Whether the key is read or written.
    pub fn touches(&self, key: &Bytes) -> bool {
        let names = |keys: &[Bytes]| keys.binary_search(key).is_ok();
        self.reads_all || self.writes_all || names(&self.reads) || names(&self.writes)
    }

    pub(super) fn reads_some(&self) -> bool {
        self.reads_all || !self.reads.is_empty()
    }

    pub(super) fn writes_some(&self) -> bool {
        self.writes_all || !self.writes.is_empty()
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.opens || !self.sessions.is_empty()
    }

    /// What is written, apart from all keys, by the instance that has this.
    pub fn fact(&self, instance: Instance) -> Fact {
        Fact::Ordered { slot: instance.number(), writes: self.writes.iter().map(|key| digest(key)).collect() }
    }
}

/// Whether two sorted lists have something in common.
fn common<T: Ord>(one: &[T], other: &[T]) -> bool {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().any(|item| many.binary_search(item).is_ok())
}

#[cfg(test)]
pub(super) mod tests {
    use quorate_core::{ProxyId, Wall, Wire};
    use quorate_store::{Command, Condition, Expiry, Single};

    use super::*;

    /// `r:k` reads a key, `w:k` writes one (in no session), `r*` and `w*` all of them, `s:1` writes nothing in a
    /// session, `o` opens one, `m:ab` is a transaction that reads `a` and writes `b`.
    pub(crate) fn touching(words: &str) -> Interference {
        let key = |word: &str| Bytes::copy_from_slice(&word.as_bytes()[2..]);
        let entries: Vec<_> = words
            .split_whitespace()
            .map(|word| match &word[..1] {
                "r" if word == "r*" => Entry::Read { command: Command::Count.to_bytes() },
                "r" => Entry::Read { command: Command::Get { key: key(word) }.to_bytes() },
                "w" if word == "w*" => Entry::Read { command: Command::Clear.to_bytes() },
                "w" => {
                    let (value, condition) = (Bytes::new(), Condition::Always);
                    let expiry = Expiry::Never;
                    let put = Command::Put { key: key(word), value, condition, expiry, old: false };
                    Entry::Read { command: put.to_bytes() }
                }
                "m" => {
                    let key = |at: usize| Bytes::copy_from_slice(&word.as_bytes()[at..=at]);
                    let commands = [Command::Get { key: key(2) }, Command::Increment { key: key(3), by: 1 }];
                    let commands = commands.map(Single).into();
                    Entry::Read { command: Command::Batch { watched: Vec::new(), commands }.to_bytes() }
                }
                "s" => {
                    let session = word[2..].parse().expect("a number");
                    Entry::Write { session, seq: 1, low: 1, command: Bytes::new() }
                }
                _ => Entry::Open { proxy: ProxyId(1).into(), nonce: 1 },
            })
            .collect();
        let head = Wall::from_millis(1).to_bytes();
        Interference::of(&Batch::extended(head, &entries))
    }

    #[test]
    fn batches_interfere_when_their_order_matters() {
        for (one, other, expected) in [
            ("r:a", "r:a", false),
            ("r:a", "w:a", true),
            ("w:a", "w:a", true),
            ("w:a", "w:b", false),
            ("r:a w:b", "r:b", true),
            ("r:a w:b", "r:a w:c", false),
            ("r*", "r:a", false),
            ("r*", "w:a", true),
            ("r*", "r*", false),
            ("w*", "r:a", true),
            ("w*", "w:a", true),
            ("w*", "w*", true),
            ("w*", "s:1", false),
            ("s:1", "s:1", true),
            ("s:1", "s:2", false),
            ("s:1 w:a", "s:2 w:a", true),
            ("m:ab", "r:a", true),
            ("m:ab", "m:ac", true),
            ("m:ab", "r:c", false),
            ("o", "s:1", true),
            ("o", "o", true),
            ("o", "w:a", false),
            ("", "w*", false),
        ] {
            let (a, b) = (touching(one), touching(other));
            assert_eq!((a.with(&b), b.with(&a)), (expected, expected), "`{one}` and `{other}`");
        }
    }
}
