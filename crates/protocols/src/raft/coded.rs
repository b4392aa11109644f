//! Entries in shards ([CRaft](super::craft)): how a leader makes, counts and falls back from them, and how a replica
//! that has shards gets the values.
//!
//! In this file, n are the voters of a set, m is a majority of them, and d is how many shards restore an entry.
//!
//! **Commitment**. Whoever is elected hears m voters, so n − m of those who have an entry may be missing. It is
//! safe with n − m + d voters that have it in shards, each in another one, or with m that have all of it. Every entry
//! before it must be so too.
//!
//! **Configurations** are in force as soon as they are in the log, and a shard of an entry before one was counted in
//! another group. So a configuration is committed with m voters on whose disks everything before it is whole: they
//! fetch what they lack when they see it, and have their state put on the disk. Until it is committed, entries are
//! whole.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::{Batch, Kind};
use quorate_blocks::coding::{MAX_SHARDS, Value, ValueId};
use quorate_blocks::membership::Configuration;
use quorate_blocks::prefix_log::{Entry, LogRecord, Mode, RETRANSMIT};
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, digest, mutation};

use super::leading::Leading;
use super::replica::{Replica, Role, Timer};
use super::{Message, Record};

/// Ranges of indexes in one message, at most: beyond, the last one is longer than it need be.
const MAX_RANGES: usize = 64;

/// How entries are coded.
#[derive(Clone, Debug)]
pub struct Coding {
    /// How many shards restore an entry, at most; `None`: as many as let one voter be missing.
    pub(super) data: Option<usize>,
    /// Followers fetch values of which they have shards only when they have had one for so long.
    pub(super) age: Duration,
    /// The same, when they have shards of so many bytes of values.
    pub(super) bytes: usize,
}

impl Coding {
    /// d among so many voters; `None`: entries are whole.
    pub(super) fn data(&self, voters: usize) -> Option<usize> {
        let majority = voters / 2 + 1;
        let data = self.data.map_or(majority - 1, |data| data.min(majority));
        (data > 1 && voters <= MAX_SHARDS).then_some(data)
    }
}

/// What a replica has in shards.
#[derive(Debug, Default)]
pub struct Shards {
    /// The first index whose value is on this disk in shards only, neither whole nor executed.
    first: Option<u64>,
    /// Since when something that is committed is here in shards only, or when it was last fetched.
    since: Option<Time>,
    /// Values up to this index are to be fetched.
    fetch: u64,
    /// A client waits until this index is executed here.
    awaited: u64,
    /// What the leader of this term has said to be committed.
    pub(super) told: u64,
}

/// An entry that a leader sends in shards, or of which others have shards.
#[derive(Debug)]
pub struct CodedEntry {
    data: usize,
    voters: NodeSet,
    /// Each voter's; none if it is sent whole from now on.
    shards: Vec<Value>,
}

/// The entries behind the commit index that voters may have in shards, and some before.
pub type CodedEntries = BTreeMap<u64, CodedEntry>;

impl CodedEntry {
    fn shard(&self, node: NodeId) -> Option<&Value> {
        self.shards.get(self.voters.iter().position(|voter| voter == node)?)
    }
}

/// What a leader that is elected and has entries in shards has heard of the others.
#[derive(Debug, Default)]
pub struct Gathering {
    answers: BTreeMap<NodeId, Answered>,
}

#[derive(Debug, Default)]
struct Answered {
    /// It has told what it has of every entry before this one.
    next: u64,
    /// Its state has everything up to this index.
    base: u64,
}

impl Replica {
    // The leader -------------------------------------------------------------------------------------------------

    /// What is known of inherited entries: others have them in shards as well.
    pub(super) fn inherited_shards(&self) -> CodedEntries {
        let open = self.log.entries.iter(self.log.committed + 1);
        let coded = open.filter_map(|(index, held)| {
            let data = held.data?.into();
            Some((index, CodedEntry { data, voters: NodeSet::EMPTY, shards: Vec::new() }))
        });
        coded.collect()
    }

    /// d of an entry that is appended now; `None`: it is whole.
    fn code(&self, value: &Bytes, now: Time) -> Option<usize> {
        let coding = self.config.coding.as_ref()?;
        let (index, configuration) = self.log.entries.configuration();
        let settled = index <= self.log.committed && !configuration.is_joint();
        let data = coding.data(configuration.voters.len())?;
        let codes = settled && Batch::kind(value) == Kind::Clients && configuration.votes(self.me);
        (codes && self.are_there(data, configuration, now)).then_some(data)
    }

    /// Whether enough voters take part to commit an entry in shards.
    fn are_there(&self, data: usize, configuration: &Configuration, now: Time) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        let is_there = |node: &NodeId| {
            *node == self.me
                || leading.replication.peers.get(node).is_some_and(|peer| {
                    let heard = peer.heard.is_some_and(|at| now.since(at) < self.config.timeouts.election);
                    heard && peer.mode == Mode::Replicate
                })
        };
        let there = configuration.voters.iter().filter(is_there).count();
        there >= configuration.voters.len() - configuration.voters.majority() + data
    }

    /// What the own log is to have of a value that is appended now at this index, and what the others are sent.
    pub(super) fn split(&self, index: u64, value: &Bytes, now: Time) -> Option<CodedEntry> {
        let data = self.code(value, now)?;
        let voters = self.log.entries.configuration().1.voters;
        let (ballot, digest, len) = (Ballot::ZERO, digest(value), value.len() as u32);
        let id = ValueId { slot: index, ballot, digest, len, shards: voters.len() as u8, data: data as u8 };
        Some(CodedEntry { data, voters, shards: id.split(value, 1).collect() })
    }

    /// Keeps an entry that is sent in shards; what its record is to hold.
    pub(super) fn keep_shards(&mut self, index: u64, coded: CodedEntry) -> Value {
        let own = coded.shard(self.me).expect("only a voter codes").clone();
        self.log.entries.set_data(index, Some(coded.data as u8));
        self.shards.first.get_or_insert(index);
        if let Role::Leader(leading) = &mut self.role {
            leading.coded.insert(index, coded);
        }
        own
    }

    /// What this node is to be sent of these entries, of which the first has this index.
    pub(super) fn entries_for(&self, node: NodeId, first: u64, entries: &[Entry]) -> Vec<Entry> {
        let Role::Leader(leading) = &self.role else { unreachable!("only a leader sends entries") };
        let own = (first..).zip(entries).map(|(index, entry)| {
            let shard = leading.coded.get(&index).and_then(|coded| coded.shard(node));
            Entry { value: shard.unwrap_or(&entry.value).clone(), ..*entry }
        });
        own.collect()
    }

    /// Whether some of these entries are sent in shards.
    pub(super) fn are_coded(&self, first: u64, entries: usize) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        let mut coded = leading.coded.range(first..first + entries as u64);
        coded.any(|(_, coded)| !coded.shards.is_empty())
    }

    /// The last index up to which every entry is safe with those who have it.
    pub(super) fn reached_in_shards(&self) -> u64 {
        let open = self.log.committed + 1..=self.log.entries.last().0;
        open.take_while(|index| self.is_safe(*index)).last().unwrap_or(self.log.committed)
    }

    /// Whether an entry is with enough voters (see the file comment), in shards or whole.
    fn is_safe(&self, index: u64) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        let configuration = self.log.entries.get(index).is_some_and(|held| held.kind == Kind::Configuration);
        let has = |node: NodeId| -> Option<bool> {
            let (matched, partial) = match node == self.me {
                true => (leading.replication.durable, &leading.partial),
                false => leading.replication.peers.get(&node).map(|peer| (peer.matched, &peer.partial))?,
            };
            let whole = match configuration && !mutation::active("craft/configuration-over-shards") {
                true => partial.iter().all(|(first, _)| *first > index),
                false => !partial.iter().any(|(first, last)| (*first..=*last).contains(&index)),
            };
            (matched >= index).then_some(whole)
        };
        let coded = leading.coded.get(&index);
        self.log.entries.configuration().1.tally().sets().all(|(set, majority)| {
            let (mut all, mut whole) = (0, 0);
            for has_whole in set.iter().filter_map(has) {
                all += 1;
                whole += usize::from(has_whole);
            }
            let bare = mutation::active("craft/bare-majority-of-shards")
                || mutation::active("craft/bare-majority-after-fallback")
                    && coded.is_some_and(|coded| coded.shards.is_empty());
            let needed = coded.map_or(usize::MAX, |coded| set.len() - majority + coded.data);
            whole >= majority || all >= needed.max(majority) || bare && all >= majority
        })
    }

    /// Fewer take part than shards need, or some are slow: what is not committed is whole from now on, here and at
    /// those who have shards of it.
    pub(super) fn fall_back(&mut self, cx: &mut Context<'_, Self>) {
        let Some(coding) = &self.config.coding else { return };
        let now = cx.now();
        let current = self.log.entries.configuration().1;
        let enough = coding.data(current.voters.len()).is_some_and(|data| self.are_there(data, current, now));
        let Role::Leader(leading) = &mut self.role else { return };
        let mut late = Vec::new();
        for (&index, coded) in leading.coded.range_mut(self.log.committed + 1..) {
            if !enough || now.since(self.log.entries.at(index)) >= self.config.timeouts.election {
                coded.shards.clear();
                late.push(index);
            }
        }
        late.retain(|index| self.keep_whole(*index, cx));
        if !late.is_empty() {
            cx.send(self.me, self.append_reply(self.log.entries.last().0));
        }
        let Role::Leader(leading) = &mut self.role else { return };
        leading.replication.peers.values_mut().for_each(|peer| peer.resent = 0);
        let peers: NodeSet = leading.replication.peers.keys().copied().collect();
        peers.iter().for_each(|node| self.send_whole(node, cx));
    }

    /// Sends whole what this peer has in shards and is no longer sent so, unless it was sent the same just now.
    pub(super) fn send_whole(&mut self, node: NodeId, cx: &mut Context<'_, Self>) {
        let (term, committed) = (self.term, self.log.committed);
        let Role::Leader(leading) = &mut self.role else { return };
        let Leading { replication, coded, .. } = &mut **leading;
        let Some(peer) = replication.peers.get_mut(&node) else { return };
        let open = |(first, last): &(u64, u64)| (*first).max(committed + 1)..=(*last).min(peer.matched);
        let is_whole = |index: &u64| coded.get(index).is_none_or(|coded| coded.shards.is_empty());
        let Some(first) = peer.partial.iter().flat_map(open).find(is_whole) else { return };
        if peer.resent == first {
            return;
        }
        peer.resent = first;
        let prev_index = first - 1;
        let Some(prev_term) = self.log.entries.term(prev_index) else { return };
        let entries = self.log.entries.slice(first, self.config.append_bytes);
        cx.send(node, Message::Append { term, prev_index, prev_term, entries, committed });
    }

    /// Shards of what everybody has are of no use any more.
    pub(super) fn forget_shards(&mut self) {
        let Role::Leader(leading) = &mut self.role else { return };
        let everybody = leading.replication.peers.values().map(|peer| peer.matched).min().unwrap_or(u64::MAX);
        let old = self.log.committed.saturating_sub(self.config.pipeline as u64);
        let done = everybody.min(self.log.committed).max(old);
        leading.coded = leading.coded.split_off(&(done + 1));
    }

    // Any replica ------------------------------------------------------------------------------------------------

    /// The own log is the leader's up to this index, durably.
    pub(super) fn append_reply(&self, matched: u64) -> Message {
        let mut partial: Vec<(u64, u64)> = Vec::new();
        if let Some(first) = self.shards.first {
            // The leader counts what it does not know to be committed.
            let told = match self.role {
                Role::Leader(_) => self.log.committed,
                _ => self.shards.told,
            };
            let start = first.max(self.log.entries.base() + 1).max(told + 1);
            if first < start {
                partial.push((first, start - 1));
            }
            let open = self.log.entries.iter(start);
            for (index, _) in
                open.take_while(|(index, _)| *index <= matched).filter(|(_, held)| held.data.is_some())
            {
                let full = partial.len() >= MAX_RANGES;
                match partial.last_mut() {
                    Some((_, last)) if *last + 1 == index || full => *last = index,
                    _ => partial.push((index, index)),
                }
            }
        }
        match partial.is_empty() {
            true => Message::AppendReply { term: self.term, matched },
            false => Message::PartialReply { term: self.term, matched, partial },
        }
    }

    /// Entries were appended as they were sent, up to `upto`.
    pub(super) fn on_appended(&mut self, upto: u64, entries: &[Entry]) {
        let first = upto + 1 - entries.len() as u64;
        if let Some(at) = entries.iter().position(|entry| entry.value.coded().is_some()) {
            self.shards.first.get_or_insert(first + at as u64);
        }
    }

    /// Entries were removed, or are whole.
    pub(super) fn review_shards(&mut self) {
        let first = self.shards.first.filter(|first| *first > self.log.entries.base());
        if first.is_some() || self.shards.first.is_none() {
            self.shards.first = self.shards_behind(first.map_or(self.log.state.applied(), |first| first - 1));
        }
    }

    /// The value of an entry of which this disk has shards goes there whole; false if it has no shards, or there is no
    /// more than these.
    fn keep_whole(&mut self, index: u64, cx: &mut Context<'_, Self>) -> bool {
        let held = self.log.entries.get(index).filter(|held| held.data.is_some());
        let Some(value) = held.and_then(|held| held.entry.value.whole()).cloned() else { return false };
        self.log.persist(Record::Whole { index, value }, cx);
        self.log.entries.set_data(index, None);
        self.review_shards();
        true
    }

    /// The leader has sent these entries, of which the first has this index, and they were here already. Those that
    /// have left the log are in the state, which goes to the disk.
    pub(super) fn keep_sent_whole(&mut self, first: u64, entries: &[Entry], cx: &mut Context<'_, Self>) {
        let base = self.log.entries.base();
        let sent = (first..).zip(entries).filter(|(_, entry)| entry.value.whole().is_some());
        let mut executed = false;
        for (index, entry) in sent {
            executed |= index <= base && self.shards.first.is_some_and(|first| first <= index);
            if self.log.entries.get(index).is_some_and(|held| held.data.is_some()) {
                self.log.entries.add_value(index, &entry.value);
                self.keep_whole(index, cx);
            }
        }
        if executed && !mutation::active("craft/executed-stays-in-shards") {
            self.keep_executed(cx);
        }
    }

    /// A configuration waits for what is before it to be whole on the disk: what is executed goes there as a state.
    /// What is not is sent whole if it is not committed soon: an entry of an earlier leader is committed with one of
    /// this leader only, which comes behind the configuration.
    pub(super) fn keep_state(&mut self, cx: &mut Context<'_, Self>) {
        let applied = self.log.state.applied();
        let (configuration, _) = self.log.entries.configuration();
        let waits = self.shards.first.is_some_and(|first| first < configuration && first <= applied);
        let next = self.shards_behind(applied);
        if waits && next.is_none_or(|next| next > configuration) {
            self.keep_executed(cx);
            match self.role {
                Role::Leader(_) => cx.send(self.me, self.append_reply(self.log.entries.last().0)),
                _ => self.acknowledge = true,
            }
        }
    }

    /// What was executed goes to the disk as a state: there it is not in shards any more.
    fn keep_executed(&mut self, cx: &mut Context<'_, Self>) {
        let index = self.log.state.applied();
        self.log.persist_state(LogRecord::Installed { index, keep: true }, cx);
        self.on_state_kept();
    }

    /// What it said to have whole may have been lost, and a leader sends nothing more that is acknowledged while a
    /// configuration waits for this alone.
    pub(super) fn tell_shards_again(&mut self) {
        let (configuration, _) = self.log.entries.configuration();
        let waits = self.log.committed < configuration && configuration <= self.log.verified;
        self.acknowledge |= waits && self.config.coding.is_some();
    }

    /// The state goes to the disk, and what is persisted from now on counts only with it.
    pub(super) fn on_state_kept(&mut self) {
        self.shards.first = self.shards_behind(self.log.state.applied());
    }

    /// The first index behind this one whose value is on this disk in shards.
    fn shards_behind(&self, index: u64) -> Option<u64> {
        let mut kept = self.log.entries.iter(index + 1);
        kept.find(|(_, held)| held.data.is_some()).map(|(index, _)| index)
    }

    // Fetching values --------------------------------------------------------------------------------------------

    /// Decides whether values of which there are shards only are fetched. Called at the end of each batch.
    pub(super) fn review_lacking(&mut self, cx: &mut Context<'_, Self>) {
        let Some(coding) = &self.config.coding else { return };
        let (applied, now) = (self.log.state.applied(), cx.now());
        if applied == self.log.committed {
            self.shards.since = None;
            return;
        }
        let since = *self.shards.since.get_or_insert_with(|| {
            if !self.log.behind {
                cx.set_timer(Timer::Fetch, coding.age);
            }
            now
        });
        let bytes = self.log.entries.bytes(applied + 1, self.log.committed) as usize;
        let changes = self.log.entries.configuration().0 > applied;
        let is_due = now.since(since) >= coding.age || applied < self.shards.awaited;
        if applied >= self.shards.fetch && (changes || is_due || bytes > coding.bytes) {
            (self.shards.fetch, self.shards.since) = (self.log.committed, Some(now));
            self.fetch(cx);
        }
    }

    /// The end of the batch fetches what a client waits for.
    pub(super) fn on_value_awaited(&mut self, index: u64) {
        self.shards.awaited = self.shards.awaited.max(index);
    }

    /// Whether values are being fetched.
    pub(super) fn fetches_values(&self) -> bool {
        self.log.state.applied() < self.shards.fetch || matches!(self.role, Role::Gathering(_))
    }

    /// Nothing is being fetched: the end of a batch after a while looks again.
    pub(super) fn review_lacking_later(&mut self, cx: &mut Context<'_, Self>) {
        if let Some(coding) = &self.config.coding
            && self.log.state.applied() < self.log.committed
        {
            cx.set_timer(Timer::Fetch, coding.age);
        }
    }

    /// Values of committed entries, from this index on, for one who has shards of them.
    pub(super) fn values_for(&self, first: u64) -> Option<Vec<Bytes>> {
        let kept = first > self.log.entries.base() && first <= self.log.state.applied();
        if self.config.coding.is_none() || !kept {
            return None;
        }
        let mut bytes = 0;
        let executed =
            self.log.entries.iter(first).take_while(|(index, _)| *index <= self.log.state.applied());
        let whole = executed.map_while(|(_, held)| held.entry.value.whole());
        let fits = whole.take_while(|value| {
            bytes += value.len();
            bytes <= self.config.append_bytes || bytes == value.len()
        });
        Some(fits.cloned().collect())
    }

    /// Values of committed entries have come in.
    pub(super) fn on_values(&mut self, first: u64, values: Vec<Bytes>, cx: &mut Context<'_, Self>) {
        for (index, value) in (first..=self.log.committed).zip(values) {
            self.log.entries.add_value(index, &value.into());
        }
        self.execute(cx);
        self.go_on_gathering(cx);
    }

    // After an election ------------------------------------------------------------------------------------------

    /// A majority has voted for this replica. What it has in shards it gathers before it acts.
    pub(super) fn on_elected(&mut self, cx: &mut Context<'_, Self>) {
        if self.first_in_shards().is_none() {
            return self.begin_to_lead(cx);
        }
        self.role = Role::Gathering(Gathering::default());
        self.gather(cx);
        self.show_gathering(cx);
    }

    fn first_in_shards(&self) -> Option<u64> {
        let mut rest = self.log.entries.iter(self.log.state.applied() + 1);
        rest.find(|(_, held)| held.entry.value.whole().is_none()).map(|(index, _)| index)
    }

    /// Asks those who have not told everything (again).
    pub(super) fn gather(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Gathering(gathering) = &self.role else { return };
        let (last, Some(first)) = (self.log.entries.last().0, self.first_in_shards()) else { return };
        for node in self.log.entries.configuration().1.all().without(self.me).iter() {
            let next = gathering.answers.get(&node).map_or(0, |answered| answered.next);
            if next <= last {
                cx.send(node, Message::Gather { term: self.term, first: next.max(first) });
            }
        }
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }

    /// Nobody else need stand.
    pub(super) fn show_gathering(&mut self, cx: &mut Context<'_, Self>) {
        let (term, committed) = (self.term, self.log.committed);
        let others = self.log.entries.configuration().1.all().without(self.me);
        cx.send_all(others, Message::Heartbeat { term, committed, round: 0 });
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
    }

    pub(super) fn on_gather(&mut self, from: NodeId, first: u64, cx: &mut Context<'_, Self>) {
        let (base, last) = (self.log.entries.base(), self.log.entries.last().0);
        let first = first.max(base + 1);
        let entries = self.log.entries.slice(first, self.config.append_bytes);
        cx.send(from, Message::Shards { term: self.term, first, entries, last, base });
    }

    /// What another has of the entries from `first` on, its last index, and what its state has.
    pub(super) fn on_shards(
        &mut self,
        from: NodeId,
        (first, entries): (u64, Vec<Entry>),
        (last, base): (u64, u64),
        cx: &mut Context<'_, Self>,
    ) {
        let start = self.first_in_shards();
        let (Role::Gathering(gathering), Some(start)) = (&mut self.role, start) else { return };
        let answered = gathering.answers.entry(from).or_default();
        answered.base = answered.base.max(base);
        if first > answered.next.max(start).max(base + 1) {
            return;
        }
        let end = first + entries.len() as u64;
        let next = if end > last { u64::MAX } else { end };
        let news = next > answered.next;
        answered.next = next.max(answered.next);
        for (index, entry) in (first..).zip(&entries) {
            if self.log.entries.term(index) == Some(entry.term) {
                self.log.entries.add_value(index, &entry.value);
            }
        }
        self.execute(cx);
        if !news {
            return;
        }
        self.gathering_gets_on(cx);
        if next <= self.log.entries.last().0 {
            cx.send(from, Message::Gather { term: self.term, first: next });
        }
        self.go_on_gathering(cx);
    }

    /// Leads as soon as everything is whole. What a majority has told too little of was not committed: it goes, and
    /// what is behind it.
    pub(super) fn go_on_gathering(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Gathering(gathering) = &self.role else { return };
        if let Some(index) = self.first_in_shards() {
            let mut tally = self.log.entries.configuration().1.tally();
            tally.add(self.me);
            for (node, _) in gathering.answers.iter().filter(|(_, answered)| answered.next > index) {
                tally.add(*node);
            }
            if !tally.reached() && !mutation::active("craft/drop-with-too-few-answers") {
                return;
            }
            let is_executed = |answered: &Answered| answered.base >= index;
            let has_executed =
                gathering.answers.values().any(is_executed) && !mutation::active("craft/states-ignored");
            if index <= self.log.committed || has_executed {
                return self.fetch(cx);
            }
            cx.note(|| Fact::Truncated { index });
            self.log.entries.truncate(index);
            self.review_shards();
            self.publish_configuration(cx);
        }
        self.execute(cx);
        self.begin_to_lead(cx);
    }

    /// Something has come in that was asked for: it is given time to be whole.
    pub(super) fn gathering_gets_on(&mut self, cx: &mut Context<'_, Self>) {
        if matches!(self.role, Role::Gathering(_)) {
            let patience = self.monitor.restart(cx.now(), cx.random());
            cx.set_timer(Timer::Election, patience);
        }
    }

    /// Who has a state that this replica needs before it can lead.
    pub(super) fn sources_of_gathering(&self) -> Vec<NodeId> {
        let Role::Gathering(gathering) = &self.role else { return Vec::new() };
        let answers = gathering.answers.iter();
        answers
            .filter(|(_, answered)| answered.base > self.log.state.applied())
            .map(|(node, _)| *node)
            .collect()
    }
}
