//! One member's copy of a replicated log: its entries, up to where they are committed, and the state that they have led
//! to; with what every protocol on such a log does with it: execution in order, records, snapshots.
//!
//! Protocols differ in who may append, in what is committed when, and in what must be known before the log is taken for
//! the leader's. That is theirs: they call [`accept`](ReplicatedLog::accept) and [`commit`](ReplicatedLog::commit) when
//! their rules allow it.

use bytes::Bytes;
use quorate_core::{Context, Fact, Group, Machine, Mark, NodeId, Salvaged, digest, mutation};

use super::{Append, Entry, PrefixLog, Progress, Replay};
use crate::batch::{Batch, Kind};
use crate::catchup::{self, Catchup, Source};
use crate::clients::{Intake, Place};
use crate::state::Replicated;

/// What a member must remember of its log. Each protocol has these among its own records, under the same names
/// ([`embed_log`](crate::embed_log)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// An entry; what was at this index and behind it is gone.
    Entry {
        /// The index of the entry.
        index: u64,
        /// The entry, as its leader made it, or shards of it.
        entry: Entry,
    },
    /// Everything up to here is committed. Saves work after a restart; safety does not need it.
    Committed(u64),
    /// The state up to `index` came from another member. It counts when it is on this disk
    /// ([`Context::persist_state`]).
    Installed {
        /// The last index in it.
        index: u64,
        /// Whether the entries behind it stay.
        keep: bool,
    },
    /// Started again without a state that had been received: what was recorded since then never counted, what follows
    /// does.
    Resumed,
}

/// A protocol's records, [`LogRecord`]s among them.
pub trait EmbedsLog: From<LogRecord> {
    /// What it says of the log; `None`: it says something else.
    fn into_log(self) -> Option<LogRecord>;
}

/// Embeds what a [`ReplicatedLog`] says into a protocol's messages (as `Catchup`) and its records into the protocol's
/// (under their own names).
#[macro_export]
macro_rules! embed_log {
    ($message:ident, $record:ident) => {
        impl From<$crate::catchup::Message> for $message {
            fn from(message: $crate::catchup::Message) -> Self {
                $message::Catchup(message)
            }
        }

        impl From<$crate::prefix_log::LogRecord> for $record {
            fn from(record: $crate::prefix_log::LogRecord) -> Self {
                use $crate::prefix_log::LogRecord;
                match record {
                    LogRecord::Entry { index, entry } => $record::Entry { index, entry },
                    LogRecord::Committed(index) => $record::Committed(index),
                    LogRecord::Installed { index, keep } => $record::Installed { index, keep },
                    LogRecord::Resumed => $record::Resumed,
                }
            }
        }

        impl $crate::prefix_log::EmbedsLog for $record {
            fn into_log(self) -> Option<$crate::prefix_log::LogRecord> {
                use $crate::prefix_log::LogRecord;
                match self {
                    $record::Entry { index, entry } => Some(LogRecord::Entry { index, entry }),
                    $record::Committed(index) => Some(LogRecord::Committed(index)),
                    $record::Installed { index, keep } => Some(LogRecord::Installed { index, keep }),
                    $record::Resumed => Some(LogRecord::Resumed),
                    _ => None,
                }
            }
        }
    };
}

/// See the file comment.
#[derive(Debug)]
pub struct ReplicatedLog {
    /// Those that are kept.
    pub entries: PrefixLog,
    /// Everything up to here is committed.
    pub committed: u64,
    /// What the executed entries have led to.
    pub state: Replicated,
    /// The entries are those of the present leader up to here, as its messages showed.
    pub verified: u64,
    /// A snapshot is wanted from whoever sends the entries.
    pub behind: bool,
    catchup: Catchup,
    source: Source,
    /// Bytes of executed entries to keep for replicas that are a little behind.
    retain: usize,
    /// The last [`LogRecord::Committed`], and whether something else was persisted since the last batch end.
    recorded: u64,
    persisted: bool,
}

/// What has come in of what this member has missed.
#[derive(Debug)]
pub enum Fetched {
    /// All of a state, which reaches further than the own one. To be [installed](ReplicatedLog::install), unless the
    /// protocol has a reason not to.
    State(Box<Replicated>),
    /// Values of committed entries.
    Values {
        /// The index of the first.
        first: u64,
        /// In order, without holes.
        values: Vec<Bytes>,
    },
    /// A state that was coming in comes no more: another is to be asked for.
    Gone,
}

impl ReplicatedLog {
    /// After a start, as its records say. `retain`: bytes of executed entries to keep.
    pub fn recover<M>(replay: Replay, retain: usize, cx: &mut Context<'_, M>) -> ReplicatedLog
    where
        M: Machine<Record: EmbedsLog>,
    {
        let (state, entries, recorded, void) = replay.finish();
        let mut log = ReplicatedLog {
            committed: state.applied().max(recorded.min(entries.last().0)),
            entries,
            state,
            verified: 0,
            behind: false,
            catchup: Catchup::default(),
            source: Source::default(),
            retain,
            recorded,
            persisted: false,
        };
        if void {
            log.persist(LogRecord::Resumed, cx);
        }
        log.note_all(cx);
        log
    }

    /// What a replica's `save` has of the log: the entries that are not in the state.
    pub fn records<R: EmbedsLog>(&self) -> impl Iterator<Item = R> {
        let entries = self.entries.iter(self.state.applied() + 1);
        entries.map(|(index, held)| LogRecord::Entry { index, entry: held.entry.clone() }.into())
    }

    /// All of the log whose values are here whole: what is committed, and what follows it.
    pub fn salvage(&self) -> Salvaged {
        let mut state = Replicated::load(&self.state.freeze()).expect("an image that was made loads");
        let value = |index| self.entries.get(index).and_then(|held| held.entry.value.whole());
        while let Some(value) = value(state.applied() + 1) {
            state.apply(state.applied() + 1, value, |_| {}, |_| {});
        }
        let undecided = state.applied().saturating_sub(self.committed);
        let left_out = self.entries.last().0.saturating_sub(state.applied());
        Salvaged { state: state.freeze(), undecided, left_out }
    }

    // Records ----------------------------------------------------------------------------------------------------

    /// Any record of the protocol's, so that the commit position is recorded beside it.
    pub fn persist<M>(&mut self, record: impl Into<M::Record>, cx: &mut Context<'_, M>)
    where
        M: Machine<Record: EmbedsLog>,
    {
        self.persisted = true;
        cx.persist(record.into());
    }

    /// The same for one that says that the state is to be on the disk ([`Context::persist_state`]).
    pub fn persist_state<M>(&mut self, record: LogRecord, cx: &mut Context<'_, M>)
    where
        M: Machine<Record: EmbedsLog>,
    {
        if mutation::active("log/snapshot-not-durable") {
            return self.persist(record, cx);
        }
        self.persisted = true;
        cx.persist_state(record.into());
    }

    /// At the end of a batch. What is committed is recorded in the shadow of records that are synced anyway.
    pub fn on_batch_end<M>(&mut self, cx: &mut Context<'_, M>)
    where
        M: Machine<Record: EmbedsLog>,
    {
        if std::mem::take(&mut self.persisted) && self.recorded < self.committed {
            self.recorded = self.committed;
            cx.persist(LogRecord::Committed(self.recorded).into());
        }
    }

    // Entries ----------------------------------------------------------------------------------------------------

    /// As a leader: appends an entry, and records it; its index.
    pub fn propose<M>(&mut self, entry: Entry, cx: &mut Context<'_, M>) -> u64
    where
        M: Machine<Record: EmbedsLog>,
    {
        let index = self.append(entry.clone(), cx);
        self.record(index, entry, cx);
        index
    }

    /// As a leader: appends an entry that is [recorded](Self::record) next, perhaps with less of its value.
    pub fn append<M: Machine>(&mut self, entry: Entry, cx: &mut Context<'_, M>) -> u64 {
        let index = self.entries.append(entry, cx.now());
        self.note_appended(index, cx);
        cx.mark(Mark::Proposed { slot: index });
        index
    }

    /// Records an entry that was appended.
    pub fn record<M>(&mut self, index: u64, entry: Entry, cx: &mut Context<'_, M>)
    where
        M: Machine<Record: EmbedsLog>,
    {
        self.persist(LogRecord::Entry { index, entry }, cx);
        cx.mark(Mark::Recorded { slot: index });
    }

    /// The leader has these entries after the one at `prev`. What differs has gone, and what is new is appended; it is
    /// to be [stored](Self::store).
    pub fn accept<M>(&mut self, prev: (u64, u64), offered: &[Entry], cx: &mut Context<'_, M>) -> Append
    where
        M: Machine,
    {
        let found = self.entries.accept(prev, offered, cx.now());
        if let Append::Matches { cut, .. } = found {
            if let Some(index) = cut {
                assert!(index > self.committed, "entry {index} is committed and cannot be replaced");
                cx.note(|| Fact::Truncated { index });
            }
            self.behind &= offered.is_empty();
        }
        found
    }

    /// Records those of the accepted entries that were not here before. The log is the leader's up to `upto`, the last
    /// of them if there are any.
    pub fn store<M>(&mut self, upto: u64, fresh: &[Entry], cx: &mut Context<'_, M>)
    where
        M: Machine<Record: EmbedsLog>,
    {
        let first = upto + 1 - fresh.len() as u64;
        for (index, entry) in (first..).zip(fresh) {
            self.note_appended(index, cx);
            self.persist(LogRecord::Entry { index, entry: entry.clone() }, cx);
        }
        self.verified = self.verified.max(upto);
    }

    fn note_appended<M: Machine>(&self, index: u64, cx: &mut Context<'_, M>) {
        let held = self.entries.get(index).expect("it has just been appended");
        let (term, writes) = (held.entry.term, held.kind == Kind::Clients);
        cx.note(|| Fact::Appended { index, term, digest: held.entry.value.digest(), writes });
    }

    fn note_all<M: Machine>(&self, cx: &mut Context<'_, M>) {
        let (index, term) = (self.entries.base(), self.state.origin().term);
        cx.note(|| Fact::Installed { slot: index });
        cx.note(|| Fact::Begins { index, term });
        for index in index + 1..=self.entries.last().0 {
            self.note_appended(index, cx);
        }
    }

    // Commitment and execution -----------------------------------------------------------------------------------

    /// Whether so many entries, or so many bytes of them, are appended and not committed.
    pub fn is_full(&self, entries: u64, bytes: u64) -> bool {
        let last = self.entries.last().0;
        last - self.committed >= entries || self.entries.bytes(self.committed + 1, last) >= bytes
    }

    /// Term and index of the last entry that is executed.
    pub fn executed(&self) -> (u64, u64) {
        let last = match mutation::active("rejoin/not-executed") {
            true => self.entries.last().0,
            false => self.committed,
        };
        (self.entries.term(last).expect("what is committed is kept, or just before that"), last)
    }

    /// Of what the leader knows to be committed, that which this log is known to share with the leader's.
    pub fn shared(&self, committed: u64) -> u64 {
        committed.min(match mutation::active("log/commit-beyond-verified") {
            true => self.entries.last().0,
            false => self.verified,
        })
    }

    /// Everything up to `upto` is committed. True if that is news: then it is to be executed.
    pub fn commit(&mut self, upto: u64) -> bool {
        let news = upto > self.committed;
        self.committed = self.committed.max(upto);
        news
    }

    /// Executes what is committed, in order, up to an entry of whose value there are only shards. A leader's `intake`
    /// hears what came of it; `each` is told of each entry once it is executed.
    pub fn execute<M: Machine>(
        &mut self,
        mut intake: Option<&mut Intake>,
        mut each: impl FnMut(Place),
        cx: &mut Context<'_, M>,
    ) {
        while self.state.applied() < self.committed {
            let slot = self.state.applied() + 1;
            let held = self.entries.get(slot).expect("what is committed and not executed is kept");
            let term = held.entry.term;
            let value = match held.entry.value.whole() {
                Some(value) => value.clone(),
                None if mutation::active("log/partial-executed") => Batch::noop(),
                // It is fetched later.
                None => break,
            };
            let effect = |effect| {
                if let Some(intake) = &mut intake {
                    intake.on_effect(effect);
                }
            };
            cx.note(|| Fact::Chosen { slot, digest: digest(&value) });
            let requests = self.state.apply(slot, &value, effect, |fact| cx.note(fact));
            self.state.follow(self.entries.origin(slot));
            each((slot, term));
            if intake.is_some() {
                cx.mark(Mark::Applied { slot, requests });
            }
        }
        for (upto, bytes) in self.source.retention(self.state.applied(), self.retain, cx.now()) {
            self.entries.retain(upto, bytes);
        }
    }

    // Snapshots --------------------------------------------------------------------------------------------------

    /// Asks one of these for what is missing here, unless an answer is on its way. To be called again after
    /// [`catchup::RETRY`], as long as something is missing.
    pub fn fetch<M>(&mut self, sources: &[NodeId], cx: &mut Context<'_, M>)
    where
        M: Machine<Message: From<catchup::Message>>,
    {
        if let Some((peer, message)) = self.catchup.ask(sources, self.state.applied() + 1, cx.now()) {
            cx.send(peer, message.into());
        }
    }

    /// A member asks for what it has missed, or answers. `peer`: what is known of its log, if it is sent entries from
    /// here.
    pub fn on_catchup<M>(
        &mut self,
        from: NodeId,
        message: catchup::Message,
        mut peer: Option<&mut Progress>,
        cx: &mut Context<'_, M>,
    ) -> Option<Fetched>
    where
        M: Machine<Message: From<catchup::Message>>,
    {
        let now = cx.now();
        let asks = matches!(message, catchup::Message::Fetch { .. } | catchup::Message::More { .. });
        if let Some(peer) = peer.as_mut().filter(|_| asks) {
            peer.on_fetch(now);
        }
        match message {
            catchup::Message::Fetch { from: index, asked } => {
                let (index, base) = (index.max(1), self.entries.base());
                if index <= base {
                    let state = || self.state.offer();
                    let answers = self.source.on_far_fetch(from, (index, asked), base + 1, state, now);
                    answers.into_iter().for_each(|answer| cx.send(from, answer.into()));
                } else if let Some(peer) = peer {
                    peer.on_known(index);
                }
                None
            }
            catchup::Message::More { image, cursor, asked } => {
                let answers = self.source.on_more(from, image, cursor, asked, now);
                answers.into_iter().for_each(|answer| cx.send(from, answer.into()));
                None
            }
            catchup::Message::Values { from: first, values, asked } => {
                self.catchup.on_values(from, asked, false, now);
                Some(Fetched::Values { first, values })
            }
            catchup::Message::Piece(piece) => {
                let applied = self.state.applied();
                let ask = |message: catchup::Message| cx.send(from, message.into());
                let state = self.catchup.on_piece(from, piece, applied, now, ask)?;
                Some(Fetched::State(Box::new(state)))
            }
            catchup::Message::Gone { image } => {
                self.catchup.on_gone(from, image);
                Some(Fetched::Gone)
            }
        }
    }

    /// Takes the place of what is here by a state that reaches further. `group`: as it was founded.
    pub fn install<M>(&mut self, state: Replicated, group: &Group, cx: &mut Context<'_, M>)
    where
        M: Machine<Record: EmbedsLog>,
    {
        let (index, origin) = (state.applied(), state.origin());
        let keep = self.entries.install(index, origin, state.configuration_in(group), cx.now());
        self.state = state;
        self.committed = self.committed.max(index);
        self.behind = false;
        // What is committed is in every later leader's log.
        self.verified = self.verified.max(index);
        self.persist_state(LogRecord::Installed { index, keep }, cx);
        self.note_all(cx);
    }
}

#[cfg(test)]
mod tests;
