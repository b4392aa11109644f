//! Gathering shards: how a replica gets what is chosen and is here in too few shards, from others that have shards too
//! (Crossword §3.5, §4: gossip, `Reconstruct`). It spares the leader sending whole values to its followers.
//!
//! *Followers* gather in the background, in rounds, as long as something is due: values but for those at the log's end
//! (`gossip.gap`), which cost less when many are asked for at once, and those too when nothing has come for a while
//! (`lacking.age`). A follower asks the voters behind it, in the order of their numbers, the leader left out, each for
//! shards that it expects there, until all together restore the value. If one of them does not have what it should, all
//! are asked for whatever is missing. What does not come in [`ATTEMPTS`] is fetched whole (`lacking.rs`).
//!
//! *A new leader* asks all for everything, at once: it serves when it has executed what is chosen. So what it knows to
//! be chosen need not be found by phase 1, nor proposed again.
//!
//! Who is asked answers with shards of exactly the value that is asked for, chosen or not: who asks knows that it is
//! chosen. They are kept in memory, since the votes that chose the value are durable. A value that does not have its
//! digest is dropped with all that was gathered of it.
//!
//! *Bounds.* What is gathered at a time is [`WINDOW_BYTES`] of values; a peer is asked for [`PEER_BYTES`] at most. An
//! answer is late as the pace of its peer tells (`blocks/pace.rs`), after ten rounds at least (as the paper has it);
//! followers then ask this peer nothing that they need until it has answered again: what is asked of one that is dead
//! would hold back all behind it. Now and then it is asked for a shard that others are asked for as well. A leader does
//! not wait for it: who led before it may be dead.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::coding::spread::ShardSet;
use quorate_blocks::coding::{Assignment, Coded, Value, ValueId};
use quorate_blocks::pace::InFlight;
use quorate_core::sample::{Count, Sample};
use quorate_core::{Class, Context, NodeId, NodeSet, Time, digest, mutation, wire_enum, wire_struct};

use super::GRACE;
use super::policy::Policy;
use super::replica::{Replica, Role, Timer};
use crate::paxos::engine::slots::SlotLog;

/// From round to round.
const ROUND: Duration = Duration::from_millis(20);
/// No answer is late before.
const PATIENCE: Duration = Duration::from_millis(200);
/// For so long a follower asks nothing of a peer whose answer was late, and then for one shard.
const REST: Duration = Duration::from_secs(1);
/// So often the shards of a value are asked for, before it is fetched whole.
const ATTEMPTS: u32 = 3;
/// Bytes of shards that one request asks for, about.
const REQUEST_BYTES: usize = 1 << 20;
/// Slots of one request.
const REQUEST_SLOTS: usize = 1024;
/// Bytes of shards that a peer is asked for at a time, about.
const PEER_BYTES: usize = 4 << 20;
/// Bytes of values that are gathered at a time, about.
const WINDOW_BYTES: usize = 16 << 20;
/// Slots that are gathered at a time.
const WINDOW_SLOTS: u64 = 8 << 10;

/// What replicas say to each other of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// I need these shards.
    Reconstruct {
        /// The sender's own number for it; grows.
        id: u64,
        /// The slots, at most 1024, and which shards of each.
        wanted: Vec<Wanted>,
    },
    /// Here are those of them that I have.
    Shards {
        /// The number of the request that this answers.
        id: u64,
        /// By slot; always in shards.
        values: Vec<(u64, Value)>,
    },
}
wire_enum!(Message {
    1 => Reconstruct { id, wanted },
    2 => Shards { id, values },
});

/// Shards that are needed of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A chosen slot of which shards are missing.
    pub slot: u64,
    /// Its value, and no other.
    pub value: ValueId,
    /// Shards by number; who has some of these sends them.
    pub shards: ShardSet,
    /// So many of them, at most.
    pub most: u8,
}
wire_struct!(Wanted { slot, value, shards, most });

impl Message {
    /// Whether it may wait for what is urgent.
    pub fn class(&self) -> Class {
        match self {
            Message::Reconstruct { .. } => Class::Urgent,
            Message::Shards { .. } => Class::Gossip,
        }
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }
}

/// What a replica has gathered and asked for. See the file comment.
#[derive(Debug, Default)]
pub struct Gossip {
    slots: BTreeMap<u64, Gathered>,
    peers: BTreeMap<NodeId, Peer>,
    /// The number of the last request.
    last: u64,
    deferred: Deferred,
    /// Whether the next round is set.
    ticking: bool,
    restored: Count,
    dropped: Count,
}

/// What is gathered of one slot.
#[derive(Debug, Default)]
struct Gathered {
    /// Shards that others have sent, all of one value.
    shards: Option<Coded>,
    /// How many requests for it are not answered yet.
    asked: u32,
    /// Requests were answered, or late, so often, and it still lacks shards.
    attempts: u32,
}

#[derive(Debug)]
struct Peer {
    in_flight: InFlight,
    asked: VecDeque<Asked>,
    /// Until when nothing is asked of it, since an answer was late and none has come after that.
    rests_until: Option<Time>,
}

/// A request under way.
#[derive(Debug)]
struct Asked {
    id: u64,
    at: Time,
    bytes: usize,
    slots: Vec<u64>,
}

/// Which slots are old enough to be gathered.
#[derive(Debug, Default)]
struct Deferred {
    /// Those up to here.
    due: u64,
    /// Behind them up to here values come to `bytes`.
    counted: u64,
    bytes: usize,
}

/// Who gathers, and from whom it may.
#[derive(Debug)]
pub struct Gatherer {
    /// The replica that gathers; it asks the voters after it first.
    pub me: NodeId,
    /// Who may have shards, in the order of their numbers.
    pub voters: NodeSet,
    /// The leader, whose link is to be spared.
    pub leader: Option<NodeId>,
    /// It leads itself: all are asked, for everything.
    pub leads: bool,
    /// Slots up to here are due.
    pub upto: u64,
    /// Which shards the voters have, as far as this replica knows.
    pub assignment: Option<Assignment>,
}

/// What is to be done in a round.
#[derive(Debug, Default)]
pub struct Round {
    /// The requests to send, each with the replica that it goes to.
    pub requests: Vec<(NodeId, Message)>,
    /// The last slot that is to be fetched whole.
    pub stuck: Option<u64>,
}

impl Deferred {
    /// The last slot that has more than `gap` bytes of values behind it, or is whole with all before it.
    fn due(&mut self, log: &SlotLog, gap: usize) -> u64 {
        let len = |slot| log.get(slot).map_or(0, |vote| vote.value.whole_len());
        if self.due < log.complete() {
            self.due = log.complete();
            self.counted = self.counted.max(self.due);
            self.bytes = (self.due + 1..=self.counted).map(len).sum();
        }
        while self.counted < log.committed() {
            self.counted += 1;
            self.bytes += len(self.counted);
        }
        while self.bytes > gap {
            self.due += 1;
            self.bytes -= len(self.due);
        }
        self.due
    }
}

impl Gatherer {
    /// Those that can be asked, from the one behind this replica on.
    fn others(&self) -> impl Iterator<Item = NodeId> {
        let voters: Vec<_> = self.voters.iter().collect();
        let next = voters.iter().position(|node| *node == self.me).map_or(0, |at| at + 1);
        let (me, leader, count) = (self.me, self.leader, voters.len());
        let around = (0..count).map(move |step| voters[(next + step) % count]);
        around.filter(move |node| *node != me && Some(*node) != leader)
    }
}

/// The shards that are here of a slot that is chosen and lacks some.
fn lacking(log: &SlotLog, slot: u64) -> Option<&Coded> {
    log.get(slot).filter(|vote| vote.chosen)?.value.coded()
}

impl Gossip {
    /// Whether a request is under way.
    fn waits(&self) -> bool {
        self.peers.values().any(|peer| !peer.asked.is_empty())
    }

    /// Asks for what is due and not asked for, the first slots first.
    pub fn round(&mut self, log: &SlotLog, gatherer: &Gatherer, now: Time) -> Round {
        self.give_up_late(now);
        self.slots.retain(|slot, _| lacking(log, *slot).is_some());
        let mut round = Round::default();
        let mut wanted: BTreeMap<NodeId, (usize, Vec<Wanted>)> = BTreeMap::new();
        let (first, mut bytes) = (log.complete() + 1, 0);
        for slot in first..=gatherer.upto.min(first + WINDOW_SLOTS) {
            let Some(own) = lacking(log, slot) else { continue };
            if bytes > WINDOW_BYTES {
                break;
            }
            bytes += own.id.len as usize;
            let gathered = self.slots.entry(slot).or_default();
            if gathered.asked > 0 {
                continue;
            }
            if gathered.attempts >= ATTEMPTS && !gatherer.leads {
                round.stuck = Some(slot);
                continue;
            }
            let mut asks = gathered.whom_to_ask(slot, own, gatherer, |node| {
                self.peers.get(&node).is_some_and(|peer| peer.rests(now))
            });
            let is_full = |node: &NodeId| {
                let asked = self.peers.get(node).map_or(0, Peer::bytes);
                asked + wanted.get(node).map_or(0, |(bytes, _)| *bytes) >= PEER_BYTES
            };
            // A leader asks all, and goes on without those that do not answer while the others have enough shards.
            let count = asks.len();
            asks.retain(|(node, _)| !is_full(node));
            let are_enough = asks.len() >= usize::from(own.id.data).saturating_sub(own.held().len());
            if asks.len() < count && !(gatherer.leads && are_enough) {
                break;
            }
            gathered.asked = asks.len() as u32;
            gathered.attempts += u32::from(asks.is_empty());
            let shard_len = own.id.code().shard_len(own.id.len as usize);
            for (node, ask) in asks {
                let (bytes, slots) = wanted.entry(node).or_default();
                *bytes += usize::from(ask.most) * shard_len;
                slots.push(ask);
            }
        }
        for (node, (_, slots)) in wanted {
            self.request(node, slots, now, &mut round);
        }
        if let Some(own) = lacking(log, first).filter(|_| first <= gatherer.upto) {
            self.probe_silent(first, own, now, &mut round);
        }
        round
    }

    /// Asks those whose answers were late, and that have rested, for a shard of a slot, whoever else is asked for it.
    fn probe_silent(&mut self, slot: u64, own: &Coded, now: Time, round: &mut Round) {
        let shards = own.id.all_shards().without(own.held());
        let wanted = Wanted { slot, value: own.id, shards, most: 1 };
        for (node, peer) in &mut self.peers {
            if peer.asked.is_empty() && peer.rests_until.is_some_and(|until| until <= now) {
                self.last += 1;
                let id = self.last;
                peer.asked.push_back(Asked { id, at: now, bytes: 0, slots: Vec::new() });
                round.requests.push((*node, Message::Reconstruct { id, wanted: vec![wanted] }));
            }
        }
    }

    /// Asks a peer for all of these, in as many requests as it takes.
    fn request(&mut self, node: NodeId, slots: Vec<Wanted>, now: Time, round: &mut Round) {
        let in_flight = || InFlight::new(PATIENCE);
        let new = || Peer { in_flight: in_flight(), asked: VecDeque::new(), rests_until: None };
        let peer = self.peers.entry(node).or_insert_with(new);
        let mut rest = slots.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut wanted, mut bytes) = (Vec::new(), 0);
            while let Some(ask) = rest.next_if(|_| bytes < REQUEST_BYTES && wanted.len() < REQUEST_SLOTS) {
                bytes += usize::from(ask.most) * ask.value.code().shard_len(ask.value.len as usize);
                wanted.push(ask);
            }
            self.last += 1;
            let id = self.last;
            let slots = wanted.iter().map(|ask| ask.slot).collect();
            peer.in_flight.on_sent(id, bytes, now);
            peer.asked.push_back(Asked { id, at: now, bytes, slots });
            round.requests.push((node, Message::Reconstruct { id, wanted }));
        }
    }

    /// Waits no longer for answers that are late.
    fn give_up_late(&mut self, now: Time) {
        let mut late = Vec::new();
        for peer in self.peers.values_mut() {
            let Peer { in_flight, asked, rests_until } = peer;
            let is_late = |it: &mut Asked| now.since(it.at) >= PATIENCE && in_flight.is_late(it.id, now);
            while let Some(asked) = asked.pop_front_if(is_late) {
                *rests_until = Some(now + REST);
                late.extend(asked.slots);
            }
        }
        self.settle(&late);
    }

    /// A request for these slots is over.
    fn settle(&mut self, slots: &[u64]) {
        for slot in slots {
            if let Some(gathered) = self.slots.get_mut(slot) {
                gathered.asked = gathered.asked.saturating_sub(1);
                gathered.attempts += u32::from(gathered.asked == 0);
            }
        }
    }

    /// Shards have come. Gives the values that are whole now.
    pub fn on_shards(
        &mut self,
        (from, id): (NodeId, u64),
        values: Vec<(u64, Value)>,
        log: &SlotLog,
        now: Time,
    ) -> Vec<(u64, Bytes)> {
        let mut whole = Vec::new();
        for (slot, value) in values {
            let own = lacking(log, slot);
            let same =
                |shards: &Coded, own: &Coded| shards.id == own.id || mutation::active("gossip/any-value");
            let (Value::Coded(shards), Some(own), Some(gathered)) = (value, own, self.slots.get_mut(&slot))
            else {
                self.dropped.add(1);
                continue;
            };
            match same(&shards, own).then(|| gathered.take(*shards, own)) {
                None | Some(Err(NotTheValue)) => self.dropped.add(1),
                Some(Ok(None)) => {}
                Some(Ok(Some(value))) => {
                    self.restored.add(1);
                    self.slots.remove(&slot);
                    whole.push((slot, value));
                }
            }
        }
        let Some(peer) = self.peers.get_mut(&from) else { return whole };
        if let Some(at) = peer.asked.iter().position(|asked| asked.id == id)
            && let Some(asked) = peer.asked.remove(at)
        {
            peer.in_flight.on_answer(id..=id, now);
            peer.rests_until = None;
            self.settle(&asked.slots);
        }
        whole
    }

    /// Counts for metrics and `status`, since the start.
    pub fn samples(&self) -> [Sample; 2] {
        [
            Sample::counter(
                "values_gathered_total",
                self.restored.get(),
                "Values restored from shards of other replicas.",
            ),
            Sample::counter(
                "shards_dropped_total",
                self.dropped.get(),
                "Shards from other replicas that came too late, or were of another value.",
            ),
        ]
    }
}

/// Shards restore something else than their value.
struct NotTheValue;

impl Gathered {
    /// Whom to ask for which shards. `rests`: nothing is asked of it at the moment.
    fn whom_to_ask(
        &self,
        slot: u64,
        own: &Coded,
        gatherer: &Gatherer,
        rests: impl Fn(NodeId) -> bool,
    ) -> Vec<(NodeId, Wanted)> {
        let id = own.id;
        let held = self.shards.as_ref().map(Coded::held).unwrap_or_default();
        let mut have = own.held().union(held);
        let all = id.all_shards();
        let first = self.attempts == 0 && !gatherer.leads;
        let expected =
            gatherer.assignment.filter(|expected| first && expected.code() == (id.shards, id.data));
        // If this replica has more than it gets at least, so have others, as far as it knows.
        let width = expected.map_or(0, |expected| {
            let own = own.held().len();
            if own > expected.shards_of(gatherer.me, 0).len() { own } else { 0 }
        });
        let mut asks = Vec::new();
        for node in gatherer.others() {
            let needed = usize::from(id.data).saturating_sub(have.len());
            let shards = match expected {
                Some(expected) => expected.shards_of(node, width).without(have).first(needed),
                None => all.without(have),
            };
            if shards.is_empty() || (rests(node) && !gatherer.leads) {
                continue;
            }
            if expected.is_some() {
                have = have.union(shards);
            }
            let most = shards.len().min(needed) as u8;
            asks.push((node, Wanted { slot, value: id, shards, most }));
        }
        asks
    }

    /// Takes shards in; the value, if they are enough with those that are here.
    fn take(&mut self, shards: Coded, own: &Coded) -> Result<Option<Bytes>, NotTheValue> {
        match &mut self.shards {
            Some(gathered) => gathered.add(shards),
            none => *none = Some(shards),
        }
        let mut all = own.clone();
        all.add(self.shards.clone().expect("there are some"));
        match all.decode() {
            Err(_) => Ok(None),
            Ok(value) if digest(&value) == own.id.digest || mutation::active("gossip/any-value") => {
                Ok(Some(value))
            }
            Ok(_) => {
                // Nobody knows which of them are wrong. It is fetched whole.
                (self.shards, self.attempts) = (None, ATTEMPTS);
                Err(NotTheValue)
            }
        }
    }
}

impl Peer {
    /// How many bytes of shards are asked for and not there yet.
    fn bytes(&self) -> usize {
        self.asked.iter().map(|asked| asked.bytes).sum()
    }

    /// Whether nothing that is needed is asked of it.
    fn rests(&self, now: Time) -> bool {
        let is_over = |until| until <= now && mutation::active("gossip/ask-the-silent");
        self.rests_until.is_some_and(|until| !is_over(until))
    }
}

impl<P: Policy> Replica<P> {
    /// The last slot whose shards are to be gathered; one that is complete if there is none.
    fn gather_upto(&mut self) -> u64 {
        let (complete, committed) = (self.log.complete(), self.log.committed());
        if matches!(self.role, Role::Leader(_)) {
            return committed;
        }
        match P::lacking(self).gossip_gap {
            // It is being fetched.
            _ if complete < self.lacking.fetch => complete,
            Some(gap) => self.gossip.deferred.due(&self.log, gap).max(self.lacking.gather).min(committed),
            None => complete,
        }
    }

    /// A round follows if something is due.
    pub(super) fn gather_soon(&mut self, cx: &mut Context<'_, Self>) {
        if !self.gossip.ticking && self.gather_upto() > self.log.complete() {
            self.gossip.ticking = true;
            cx.set_timer(Timer::Gossip, ROUND);
        }
    }

    /// One round: asks for what is missing, within the bounds of what may be under way.
    pub(super) fn gather(&mut self, cx: &mut Context<'_, Self>) {
        self.gossip.ticking = false;
        let upto = self.gather_upto();
        if upto <= self.log.complete() && !self.gossip.waits() {
            return;
        }
        let leads = matches!(self.role, Role::Leader(_));
        let (me, voters) = (self.me, self.configuration.1.voting());
        let (leader, assignment) = (self.promised.node(), P::assignment(self));
        let gatherer = Gatherer { me, voters, leader, leads, upto, assignment };
        let Round { requests, stuck } = self.gossip.round(&self.log, &gatherer, cx.now());
        for (peer, message) in requests {
            cx.send(peer, super::Message::Gossip(message));
        }
        if let Some(slot) = stuck {
            self.lacking.fetch = self.lacking.fetch.max(slot);
            self.fetch_soon(GRACE, cx);
        }
        self.gossip.ticking = true;
        cx.set_timer(Timer::Gossip, ROUND);
    }

    pub(super) fn on_gossip(&mut self, from: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::Reconstruct { id, wanted } => {
                let (mut values, mut bytes) = (Vec::new(), 0);
                for Wanted { slot, value, shards, most } in wanted {
                    let vote = self.log.get(slot);
                    let Some(shards) = vote.and_then(|vote| vote.value.shards(value, shards, most.into()))
                    else {
                        continue;
                    };
                    let shards = Value::Coded(Box::new(shards));
                    bytes += shards.len();
                    values.push((slot, shards));
                    if bytes > 2 * REQUEST_BYTES {
                        break;
                    }
                }
                cx.send(from, super::Message::Gossip(Message::Shards { id, values }));
            }
            Message::Shards { id, values } => {
                for (slot, value) in self.gossip.on_shards((from, id), values, &self.log, cx.now()) {
                    self.choose(slot, value, cx);
                }
                self.execute(cx);
            }
        }
    }
}

#[cfg(test)]
mod tests;
