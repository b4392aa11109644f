//! The replicated state: the store and the client sessions, executed together.
//!
//! Protocols with a log execute one slot after the other ([`Replicated::apply`]). Protocols that order only what
//! interferes execute instances ([`Replicated::apply_instance`]), and the state must then be the same whatever the
//! order of the others is. So nothing is kept that depends on it: a key's version is the number of the instance
//! that wrote it, or the next after its last one if that is higher (so it grows while the key is there), time is
//! that of each batch alone, keys expire where an instance that writes them says so, and sessions go only where one
//! is opened, which interferes with every session.

mod founding;
mod image;
pub mod level;
mod samples;

use bytes::Bytes;
use quorate_core::{
    Fact, FeatureLevel, Group, Interval, Payload, ProcessId, Roster, Sample, Wall, Wire, digest, mutation,
    wire_struct,
};
use quorate_store::{CommandError, KeyValue, Reply, Store};

use crate::batch::{Batch, Entry};
use crate::instance::{Executed, Instance};
use crate::membership::Configuration;
use crate::parts::{Kept, Part};
use crate::sessions::{self, Sessions, Verdict};

pub use image::{LoadError, Loading, PIECE};
pub use quorate_store::AHEAD;
pub use samples::samples_of;

/// For reads of what a clock has no say in: whatever has a time to live has expired by then.
pub const TIMELESS: Wall = Wall::from_millis(u64::MAX);

/// Store and sessions as they are after the slots up to [`applied`](Replicated::applied).
#[derive(Debug, Default)]
pub struct Replicated {
    store: Store,
    sessions: Sessions,
    applied: u64,
    /// Which instances those are, where there are no slots.
    executed: Executed,
    /// Counts executed commands: the revision that keys get as their version.
    revision: u64,
    time: Wall,
    /// Of the last slot, where a prefix log says so.
    origin: Origin,
    /// The last configuration that was executed, and where; `None`: the initial one.
    configuration: Option<(u64, Configuration)>,
    /// The last roster that was executed, and where; `None`: the initial one.
    roster: Option<(u64, Roster)>,
}

/// What must be known of the last entry that is no longer kept; a part of the replicated state, and so of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The term of the last slot in the state.
    pub term: u64,
    /// When it was made, if it says so.
    pub stamp: Option<Interval>,
    /// The latest end of any stamp up to it.
    pub latest: u64,
    /// Whether any entry up to it bears no stamp.
    pub unstamped: bool,
    /// Whether it gives a lease up.
    pub end_lease: bool,
}
wire_struct!(Origin { term, stamp, latest, unstamped, end_lease });

/// What came of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A session is open.
    Opened {
        /// The proxy that has asked for the session.
        proxy: ProcessId,
        /// The number that this incarnation of the proxy has drawn.
        nonce: u64,
        /// The number of the session that was opened.
        session: u64,
    },
    /// A command was executed, now or when it was here before.
    Executed {
        /// The session of the write.
        session: u64,
        /// The number of the write in its session.
        seq: u64,
        /// What the store has replied.
        reply: CommandReply,
        /// The slot that carried it now.
        slot: u64,
    },
    /// A command was not executed: one before it in its session is missing. Only where there are no slots: the leader
    /// of a log admits no gap.
    Gap {
        /// The session of the write.
        session: u64,
    },
    /// A command was not executed: its session is gone.
    NoSession {
        /// The session of the write.
        session: u64,
    },
}

/// The reply to a command that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandReply {
    /// Encoded; a duplicate gets the same.
    Encoded(Bytes),
    /// Too large to be retained. It shares values with the store until whoever sends it encodes it; all other replicas
    /// drop it as it is.
    Large(Reply),
}

impl CommandReply {
    /// Bytes of its encoding, about.
    pub fn size(&self) -> usize {
        match self {
            CommandReply::Encoded(bytes) => bytes.len(),
            CommandReply::Large(reply) => reply.size(),
        }
    }

    /// The reply, encoded as the proxy reads it.
    pub fn into_payload(self) -> Payload {
        match self {
            CommandReply::Encoded(bytes) => bytes.into(),
            CommandReply::Large(reply) => Payload::of(&reply),
        }
    }
}

/// An instance's number and the place of an entry in it make a version.
const ORDINAL_BITS: u32 = 17;

/// Where an entry is executed.
#[derive(Clone, Copy)]
struct Position {
    slot: u64,
    time: Wall,
    /// Where there are no slots: which instance, and which of its entries.
    instance: Option<(Instance, u64)>,
}

impl Replicated {
    /// Executes the next slot, tells what came of each entry, and returns how many there were. With `facts`, also
    /// what checkers want to know.
    ///
    /// A value that does not decode is executed as a no-op: every replica has the same bytes and does the same.
    pub fn apply(
        &mut self,
        slot: u64,
        value: &Bytes,
        mut each: impl FnMut(Effect),
        mut note: impl FnMut(&dyn Fn() -> Fact),
    ) -> usize {
        assert_eq!(slot, self.applied + 1, "slots are executed in order, each once");
        self.applied = slot;
        note(&|| Fact::Applied { slot, digest: digest(value) });
        let Ok(Some(batch)) = Batch::decode(value) else { return 0 };
        self.time = self.time.max(batch.time);
        self.store.advance(self.time);
        self.sessions.sweep(self.time);
        let at = Position { slot, time: self.time, instance: None };
        for entries in batch.entries.chunks(AHEAD) {
            self.touch(entries.iter().filter_map(Entry::command));
            for entry in entries {
                self.execute_entry(entry, at, &mut each, &mut note);
            }
        }
        batch.entries.len()
    }

    /// Executes an instance that [`executed_mut`](Self::executed_mut) has been told of. Those that interfere with it
    /// must come in the same order at all replicas; others may come in any. For the rest as [`apply`](Self::apply).
    pub fn apply_instance(
        &mut self,
        instance: Instance,
        value: &Bytes,
        mut each: impl FnMut(Effect),
        mut note: impl FnMut(&dyn Fn() -> Fact),
    ) -> usize {
        assert!(self.executed.contains(instance), "{instance:?} is executed when its turn has come");
        self.applied += 1;
        let slot = instance.number();
        note(&|| Fact::Applied { slot, digest: digest(value) });
        let Ok(Some(batch)) = Batch::decode(value) else { return 0 };
        let mut time = batch.time;
        if mutation::active("state/shared-time") {
            self.time = self.time.max(time);
            time = self.time;
        }
        for (ordinal, entry) in (0..).zip(&batch.entries) {
            let at = Position { slot, time, instance: Some((instance, ordinal)) };
            self.execute_entry(entry, at, &mut each, &mut note);
        }
        batch.entries.len()
    }

    /// The instances that were executed. Whoever adds one applies it before anything else happens.
    pub fn executed_mut(&mut self) -> &mut Executed {
        &mut self.executed
    }

    /// The instances that were executed.
    pub fn executed(&self) -> &Executed {
        &self.executed
    }

    /// Has the memory loaded that the first [`AHEAD`] of these encoded commands will need: so many at once are faster
    /// than one after the other.
    pub fn touch<'a>(&'a self, commands: impl Iterator<Item = &'a Bytes>) {
        self.store.touch(commands);
    }

    fn execute_entry(
        &mut self,
        entry: &Entry,
        at: Position,
        each: &mut impl FnMut(Effect),
        note: &mut impl FnMut(&dyn Fn() -> Fact),
    ) {
        let Position { slot, time, instance } = at;
        match *entry {
            Entry::Open { proxy, nonce } => {
                if instance.is_some() {
                    self.sessions.sweep(time);
                }
                let session = self.sessions.open(proxy, nonce, time);
                each(Effect::Opened { proxy, nonce, session });
            }
            Entry::Write { session, seq, low, ref command } => match self.sessions.check(session, seq) {
                Verdict::Next => {
                    let reply = match Part::of(command).map(|part| self.sessions.keep(session, part)) {
                        None => self.execute(command, at, note),
                        Some(Kept::Whole(command)) => self.execute(&command, at, note),
                        Some(Kept::Incomplete) => CommandReply::Encoded(Bytes::new()),
                        Some(Kept::Refused) => {
                            CommandReply::Encoded(Reply::Error(CommandError::NoRoom).encoded())
                        }
                    };
                    let retained = match &reply {
                        CommandReply::Encoded(bytes) => bytes.clone(),
                        CommandReply::Large(_) => Reply::NotRetained.encoded(),
                    };
                    self.sessions.record(session, low, retained, time);
                    each(Effect::Executed { session, seq, reply, slot });
                }
                Verdict::Duplicate(reply) => {
                    let reply = CommandReply::Encoded(reply);
                    each(Effect::Executed { session, seq, reply, slot });
                }
                Verdict::NoSession => each(Effect::NoSession { session }),
                // A gap cannot take effect before what it follows; its proxy repeats it.
                Verdict::Gap if instance.is_some() => each(Effect::Gap { session }),
                Verdict::Forgotten | Verdict::Gap => {}
            },
            Entry::Configuration(ref configuration) => {
                self.configuration = Some((slot, configuration.clone()));
            }
            Entry::Roster(ref roster) => self.roster = Some((slot, roster.clone())),
            Entry::Expire { ref keys } => self.store.expire(keys, time),
            Entry::Read { .. } | Entry::EndLease => {}
        }
    }

    fn execute(
        &mut self,
        command: &Bytes,
        at: Position,
        note: &mut impl FnMut(&dyn Fn() -> Fact),
    ) -> CommandReply {
        if command.is_empty() {
            return CommandReply::Encoded(Bytes::new());
        }
        note(&|| Fact::Executed { slot: at.slot, command: digest(command) });
        let reply = match (self.store.decode(command), at.instance) {
            (Err(error), _) => Reply::Error(error),
            (Ok(command), None) => {
                self.revision += 1;
                self.store.apply(&command, self.revision, at.time)
            }
            (Ok(command), Some((instance, ordinal))) => {
                let version = instance.number() << ORDINAL_BITS | ordinal & ((1 << ORDINAL_BITS) - 1);
                self.store.apply_unordered(&command, version, at.time)
            }
        };
        match reply.size() {
            large if large > sessions::REPLY_BYTES => CommandReply::Large(reply),
            _ => CommandReply::Encoded(reply.encoded()),
        }
    }

    /// The store, for a protocol that has no log.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// Which commands may be executed.
    pub fn level(&self) -> FeatureLevel {
        self.store.level()
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.store.len()
    }

    /// All keys with their values, except those whose time is up.
    pub fn entries(&self) -> impl Iterator<Item = KeyValue<'_>> {
        self.store.entries()
    }

    /// How large the data are, for operators.
    pub fn samples(&self) -> [Sample; 5] {
        samples_of(&self.store)
    }

    /// Keys whose time is up on this wall clock, the first few.
    pub fn overdue(&self, wall: Wall, limit: usize) -> Vec<Bytes> {
        self.store.overdue(wall, limit)
    }

    /// The reply to a read of the present state. `None` if a key it touches has outlived its time on this wall clock:
    /// then the log must decide first whether it has expired.
    pub fn read(&self, command: &Bytes, wall: Wall) -> Option<Payload> {
        match self.store.decode(command) {
            Ok(command) if !command.is_read_only() => {}
            Ok(command) if !self.store.is_current(&command, wall) => return None,
            Ok(command) => return Some(self.store.read_encoded(&command)),
            Err(_) => {}
        }
        Some(Reply::Error(CommandError::Malformed).encoded().into())
    }

    /// The reply to a read of the present state, if none of the keys it touches has a time to live. Otherwise any
    /// later slot may carry the time at which one expires, also a slot that does not write it.
    pub fn read_lasting(&self, command: &Bytes) -> Option<Payload> {
        self.read(command, TIMELESS)
    }

    /// Whether none of the keys that a command touches has a time to live, as for [`read_lasting`](Self::read_lasting).
    pub fn is_lasting(&self, command: &Bytes) -> bool {
        self.store.decode(command).is_ok_and(|command| self.store.is_current(&command, TIMELESS))
    }

    /// The reply to a read at a log position that came after it was asked, in one piece.
    pub fn read_now(&self, command: &Bytes) -> Bytes {
        self.read(command, Wall::ZERO).expect("nothing expires before the epoch").into_bytes()
    }

    /// The last slot executed; where there are no slots, how many instances were.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Where the last slot came from, as [`follow`](Self::follow) said.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Says where the slot that was executed last came from. It is the same at all replicas.
    pub fn follow(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// The last configuration that was executed, and its slot; `None`: the initial one.
    pub fn configuration(&self) -> Option<&(u64, Configuration)> {
        self.configuration.as_ref()
    }

    /// The last roster that was executed, and its slot; `None`: the initial one.
    pub fn roster(&self) -> Option<&(u64, Roster)> {
        self.roster.as_ref()
    }

    /// The configuration; the initial one, of this group, is at 0.
    pub fn configuration_in(&self, group: &Group) -> (u64, Configuration) {
        self.configuration.clone().unwrap_or_else(|| (0, Configuration::initial(group)))
    }

    /// Every client's session, with what it was last answered.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Replicated time: the latest that a slot carried.
    pub fn time(&self) -> Wall {
        self.time
    }

    /// When the next key expires, if one does.
    pub fn next_expiry(&self) -> Option<Wall> {
        self.store.next_expiry()
    }

    /// Whether a leader has a reason to propose a slot that nobody asked for: a key's time is up on this wall clock, or
    /// keys that have expired are still to be removed, which a slot does for a bounded number of them.
    pub fn wants_slot(&self, wall: Wall) -> bool {
        self.store.unremoved() > 0 || self.next_expiry().is_some_and(|at| at <= wall)
    }

    /// The slot (or a digest of the set of instances) and a digest of everything: equal slots mean equal digests at
    /// all replicas.
    pub fn fingerprint(&self) -> (u64, u64) {
        let sessions = digest(&self.sessions.piece(sessions::Cursor::default(), usize::MAX).0);
        let sessions = digest(&(sessions, self.sessions.summary()).to_bytes());
        let group = digest(&(self.origin, (self.configuration.clone(), self.roster.clone())).to_bytes());
        let words = [self.store.digest(), sessions, self.revision, self.time.millis(), group];
        let executed = &self.executed;
        let position = if executed.is_empty() { self.applied } else { digest(&executed.image().to_bytes()) };
        (position, digest(&words.map(u64::to_le_bytes).concat()))
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::ProxyId;
    use quorate_store::{Command, Condition, Expiry};

    use super::*;
    use crate::batch::{Builder, Limits};

    const LIMITS: Limits = Limits { entries: 100, bytes: 1 << 20 };

    fn put(key: &str, value: &str, expiry: Expiry) -> Bytes {
        let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
        Command::Put { key, value, condition: Condition::Always, expiry, old: false }.to_bytes()
    }

    fn get(key: &str) -> Bytes {
        Command::Get { key: Bytes::copy_from_slice(key.as_bytes()) }.to_bytes()
    }

    fn value(text: &str) -> Bytes {
        Reply::Value(Some(Bytes::copy_from_slice(text.as_bytes()))).to_bytes()
    }

    fn batch(entries: Vec<Entry>, millis: u64) -> Bytes {
        let mut builder = Builder::new();
        entries.into_iter().for_each(|entry| builder.push(entry));
        builder.take(LIMITS, Wall::from_millis(millis))
    }

    fn open() -> Entry {
        Entry::Open { proxy: ProxyId(1).into(), nonce: 5 }
    }

    fn write(seq: u64, command: Bytes) -> Entry {
        Entry::Write { session: 1, seq, low: 1, command }
    }

    /// Applies batches to a fresh state; the effects of all of them.
    fn run(values: &[Bytes]) -> (Replicated, Vec<Effect>) {
        let (mut state, mut effects) = (Replicated::default(), Vec::new());
        for (slot, value) in (1..).zip(values) {
            state.apply(slot, value, |effect| effects.push(effect), |_| {});
        }
        (state, effects)
    }

    #[test]
    fn a_repeated_write_gets_its_old_reply_and_does_nothing() {
        let increment = Command::Increment { key: Bytes::from_static(b"n"), by: 1 }.to_bytes();
        let value_of = |slot: u64| batch(vec![write(1, increment.clone())], slot);
        let (state, effects) = run(&[batch(vec![open()], 1), value_of(2), value_of(3)]);
        let reply = CommandReply::Encoded(Reply::Integer(1).to_bytes());
        let executed = |slot| Effect::Executed { session: 1, seq: 1, reply: reply.clone(), slot };
        assert_eq!(effects[1..], [executed(2), executed(3)]);
        assert_eq!(state.read_now(&get("n")), value("1"));
    }

    #[test]
    fn a_repeated_write_with_a_large_reply_is_told_that_it_was_executed_and_does_nothing() {
        let large = "x".repeat(sessions::REPLY_BYTES);
        let take = Command::Take { key: Bytes::from_static(b"k") }.to_bytes();
        let (state, effects) = run(&[
            batch(vec![open(), write(1, put("k", &large, Expiry::Never)), write(2, take.clone())], 1),
            batch(vec![write(3, put("k", "again", Expiry::Never)), write(2, take)], 2),
        ]);
        let told = |effect: &Effect| match effect {
            Effect::Executed { reply, .. } => Reply::from_bytes(reply.clone().into_payload().into_bytes()),
            other => panic!("{other:?}"),
        };
        let replies: Vec<_> = effects[1..].iter().map(|effect| told(effect).unwrap()).collect();
        let old = Reply::Value(Some(Bytes::from(large)));
        assert_eq!(replies, [Reply::Done, old, Reply::Done, Reply::NotRetained]);
        assert_eq!(state.read_now(&get("k")), value("again"));
    }

    #[test]
    fn a_write_after_a_gap_or_without_a_session_does_nothing() {
        let put = put("k", "v", Expiry::Never);
        let (state, effects) =
            run(&[batch(vec![write(1, put.clone())], 1), batch(vec![open(), write(2, put)], 2)]);
        assert_eq!(effects[0], Effect::NoSession { session: 1 });
        assert_eq!(effects.len(), 2, "a gap has no effect: {effects:?}");
        assert_eq!(state.read_now(&get("k")), Reply::Value(None).to_bytes());
    }

    #[test]
    fn keys_expire_at_log_positions_and_reads_near_the_end_are_left_to_the_log() {
        let mut values = vec![batch(vec![open(), write(1, put("k", "v", Expiry::In(100)))], 1000)];
        let (state, _) = run(&values);
        assert_eq!(state.read(&get("k"), Wall::from_millis(1099)), Some(value("v").into()));
        assert_eq!(state.read(&get("k"), Wall::from_millis(1100)), None, "the log must decide");
        assert_eq!(state.read_now(&get("k")), value("v"), "until it has");
        values.push(Batch::noop());
        assert_eq!(run(&values).0.read_now(&get("k")), value("v"), "a no-op tells no time");
        values.push(batch(vec![], 1100));
        assert_eq!(run(&values).0.read_now(&get("k")), Reply::Value(None).to_bytes());
    }

    #[test]
    fn replicated_time_never_goes_back() {
        let expiring = put("k", "v", Expiry::In(100));
        let (state, _) = run(&[batch(vec![open()], 5000), batch(vec![write(1, expiring)], 10)]);
        assert_eq!(state.next_expiry(), Some(Wall::from_millis(5100)));
    }

    /// The writes of a key come in one order, which need not be that of their instances' numbers.
    #[test]
    fn versions_grow_with_the_writes_of_a_key_wherever_they_come_from() {
        let versions = || Command::VersionsOf { keys: vec![Bytes::from_static(b"k")] }.to_bytes();
        let (mut state, mut last) = (Replicated::default(), 0);
        let at = |owner, index| Instance::new(quorate_core::NodeId::new(owner).expect("an id"), index);
        let put = || put("k", "v", Expiry::Never);
        let batches = [
            (at(1, 1), vec![open()]),
            (at(3, 9), vec![write(1, put())]),
            (at(3, 2), vec![write(2, put())]),
            (at(1, 2), vec![write(3, put()), write(4, put())]),
            (at(2, 40), vec![write(5, put())]),
        ];
        for (instance, entries) in batches {
            state.executed_mut().insert(instance);
            state.apply_instance(instance, &batch(entries, 1), |_| {}, |_| {});
            let Ok(Reply::Versions(now)) = Reply::from_bytes(state.read_now(&versions())) else { panic!() };
            assert!(now[0] > last || instance == at(1, 1), "{instance:?}: {now:?} after {last}");
            last = now[0];
        }
        assert_eq!(last, at(2, 40).number() << ORDINAL_BITS, "a high number is taken as it is");
    }

    #[test]
    fn a_snapshot_is_the_whole_state() {
        let values: Vec<_> = std::iter::once(batch(vec![open()], 1))
            .chain(
                (1..200).map(|seq| batch(vec![write(seq, put(&format!("k{seq}"), "v", Expiry::In(9)))], 2)),
            )
            .collect();
        let (mut state, _) = run(&values);
        let (image, print) = (state.freeze(), state.fingerprint());
        let mut back = Replicated::load(&image).unwrap();
        assert_eq!(back.fingerprint(), print);
        let more =
            batch(vec![write(200, put("x", "y", Expiry::Never)), write(7, put("x", "z", Expiry::Never))], 3);
        state.apply(201, &more, |_| {}, |_| {});
        back.apply(201, &more, |_| {}, |_| {});
        assert_eq!(back.fingerprint(), state.fingerprint(), "and goes on alike");
    }
}
