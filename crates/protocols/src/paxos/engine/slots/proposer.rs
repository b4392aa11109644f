//! The proposer's two phases, as values.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::{Batch, Kind};
use quorate_blocks::coding::ValueId;
use quorate_blocks::coding::spread::ShardSet;
use quorate_blocks::quorum::{Tally, Verdict};
use quorate_core::{NodeId, NodeSet, Time, mutation, wire_struct};

use crate::paxos::engine::MAX_GAP;
use crate::paxos::engine::slots::commit_tracker::CommitTracker;
use crate::paxos::engine::slots::found::Found;
use crate::paxos::engine::slots::log::Vote;
use crate::paxos::engine::slots::spread::Spread;

/// Phase 1: collects what a majority has voted for, and says what must be proposed again.
///
/// An acceptor may have more votes than fit into one message. It sends those of the first slots and the slot at which
/// it has stopped ([`Votes::next`]); the candidate asks for those from there on, and counts the acceptor when it has
/// said that there are no more. All parts are of one promise, whatever happens between them: an acceptor that has
/// promised a ballot votes in no lower one, the owner of the ballot has nothing voted for before it has prepared, and
/// what an acceptor says is durable first, so a restart changes nothing. What is chosen meanwhile it says as chosen.
/// The candidate takes a part only if it begins where the last one ended, so parts may be lost, doubled and late.
#[derive(Debug)]
pub struct Preparation {
    /// When the first request was sent.
    pub since: Time,
    tally: Tally,
    /// What was voted for in each slot.
    votes: BTreeMap<u64, Found>,
    /// Votes were asked for from this slot on.
    from: u64,
    /// From which slot on the votes of those are missing that have sent a part.
    parts: BTreeMap<NodeId, u64>,
    /// The longest prefix that is known to be chosen, and by whom.
    committed: (u64, NodeId),
}

/// What an acceptor that has promised says of its votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Votes {
    /// The first slot that was asked for.
    pub from: u64,
    /// It knows the slots up to here to be chosen, and says nothing of its votes for them.
    pub committed: u64,
    /// All its votes from `from` on, up to `next`.
    pub votes: Vec<(u64, Vote)>,
    /// The first slot of which it has not said anything yet, if there are votes left.
    pub next: Option<u64>,
}
wire_struct!(Votes { from, committed, votes, next });

/// What a reply has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Others are still to be waited for, or it had come before.
    Waiting,
    /// This acceptor has more votes: ask it for those from this slot on.
    Partial(u64),
    /// A majority has replied.
    Prepared(Prepared),
}

/// What phase 1 found.
#[derive(Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Slots up to here are known to be chosen, by `holder`.
    pub committed: u64,
    /// Who can be asked for them.
    pub holder: NodeId,
    /// Every slot above `committed` that may have been chosen, and the holes between them, up to the first
    /// configuration: propose these, once what is committed is known and leaves the configuration as it was. (Of the
    /// slots behind a configuration, replies that were counted under the one before it tell too little.)
    pub proposals: Vec<(u64, Bytes)>,
    /// The identities of those that were coded.
    pub ids: BTreeMap<u64, ValueId>,
}

impl Preparation {
    /// Nobody has replied. The candidate knows all slots below `from` to be chosen, and asks for no votes there: a
    /// majority may reply that knows less, and then says nothing of what it voted for in between.
    ///
    /// `tally` is that of the configuration which the candidate has executed by then.
    pub fn new(tally: Tally, candidate: NodeId, from: u64, since: Time) -> Preparation {
        let committed = (from - 1, candidate);
        Preparation { since, tally, votes: BTreeMap::new(), from, parts: BTreeMap::new(), committed }
    }

    /// From which slot on an acceptor is asked for its votes.
    pub fn from(&self, acceptor: NodeId) -> u64 {
        self.parts.get(&acceptor).copied().unwrap_or(self.from)
    }

    /// Who has not replied.
    pub fn missing(&self) -> NodeSet {
        self.tally.missing()
    }

    /// Whether an acceptor has promised: it has replied, or has sent a part of its votes.
    pub fn has_promised(&self, acceptor: NodeId) -> bool {
        self.parts.contains_key(&acceptor) || !self.tally.missing().contains(acceptor)
    }

    /// A replica has promised, and has these votes. The result comes with the reply that completes the majority.
    pub fn on_reply(&mut self, from: NodeId, reply: Votes) -> Reply {
        let Votes { from: first, committed, votes, next } = reply;
        if first != self.from(from) || next.is_some_and(|next| next <= first) {
            return Reply::Waiting;
        }
        // Nobody votes so far behind what it knows to be chosen; the holes before such a vote would fill all memory.
        if votes.iter().any(|(slot, _)| *slot > committed.saturating_add(MAX_GAP)) {
            return Reply::Waiting;
        }
        if committed > self.committed.0 {
            self.committed = (committed, from);
        }
        for (slot, vote) in votes {
            match self.votes.entry(slot) {
                Entry::Occupied(found) => found.into_mut().add(vote),
                Entry::Vacant(free) => drop(free.insert(Found::new(vote))),
            }
        }
        if let Some(next) = next.filter(|_| !mutation::active("slots/first-part-is-all")) {
            self.parts.insert(from, next);
            return Reply::Partial(next);
        }
        if self.tally.add(from) != Verdict::Reached {
            return Reply::Waiting;
        }
        let (committed, holder) = self.committed;
        let mut votes = std::mem::take(&mut self.votes).split_off(&(committed + 1));
        let last = votes.last_key_value().map_or(committed, |(&slot, _)| slot);
        let (mut proposals, mut ids) = (Vec::new(), BTreeMap::new());
        for slot in committed + 1..=last {
            let value = match votes.remove(&slot).map(Found::into_value) {
                Some(Some((value, id))) => {
                    ids.extend(id.map(|id| (slot, id)));
                    value
                }
                Some(None) => Batch::noop(),
                None if mutation::active("slots/no-noop") => continue,
                None => Batch::noop(),
            };
            let changes = Batch::kind(&value) == Kind::Configuration;
            proposals.push((slot, value));
            if changes {
                break;
            }
        }
        Reply::Prepared(Prepared { committed, holder, proposals, ids })
    }
}

/// Phase 2: proposals of one ballot that are not chosen yet.
#[derive(Debug)]
pub struct Proposals {
    ballot: Ballot,
    /// How many votes a new proposal needs; none are there.
    tally: Tally,
    /// The slot of the first of `open`.
    start: u64,
    open: VecDeque<Option<Proposal>>,
    count: usize,
    bytes: usize,
}

/// A proposal under way.
#[derive(Debug)]
pub struct Proposal {
    /// The whole value that is proposed.
    pub value: Bytes,
    /// How it is sent; `None`: whole.
    pub spread: Option<Spread>,
    tracker: CommitTracker,
    /// When it was last sent.
    pub sent: Time,
    /// Who has not been sent it.
    pub left_out: NodeSet,
    /// When a majority had voted for it, whoever else was needed.
    supported: Option<Time>,
}

impl Proposal {
    /// Who should be sent it again: whoever has not voted, or has granted somebody a say who has not, or has fewer
    /// shards than it is to have.
    pub fn missing(&self) -> NodeSet {
        let pending = self.tracker.grants.iter().map(|(voter, _)| *voter).collect();
        let short = self.spread.map(|spread| self.tracker.short_of(&spread)).unwrap_or_default();
        self.tracker.missing().union(pending).union(short)
    }

    /// Who has voted for it and holds the shards that it is to have, if they are as many as must vote.
    pub fn supporters(&self) -> Option<NodeSet> {
        let short = self.spread.filter(|_| !mutation::active("slots/short-voters-support"));
        let short = short.map(|spread| self.tracker.short_of(&spread)).unwrap_or_default();
        self.tracker.supporters(short)
    }
}

impl Proposals {
    /// None yet; the next free slot is `next`.
    pub fn new(ballot: Ballot, tally: Tally, next: u64) -> Proposals {
        Proposals { ballot, tally, start: next, open: VecDeque::new(), count: 0, bytes: 0 }
    }

    /// From the next slot on, others count.
    pub fn change(&mut self, tally: Tally) {
        self.tally = tally;
    }

    /// No slot below is under way.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The next free slot.
    pub fn next(&self) -> u64 {
        self.start + self.open.len() as u64
    }

    /// Whose votes those under way need beside a majority, as far as is known.
    pub fn demanded(&self) -> NodeSet {
        let demanded = self.open.iter().flatten().map(|proposal| proposal.tracker.demanded());
        demanded.fold(NodeSet::EMPTY, NodeSet::union)
    }

    /// How many are under way.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the values that are proposed and not chosen.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Proposes a value for a slot at or above [`next`](Self::next); slots that are skipped stay empty. `required`: who
    /// must vote for it, beside a majority.
    pub fn propose(
        &mut self,
        slot: u64,
        (value, spread): (Bytes, Option<Spread>),
        required: NodeSet,
        now: Time,
    ) {
        assert!(slot >= self.next(), "one value a slot and ballot");
        let skipped = (slot - self.next()) as usize;
        self.open.extend(std::iter::repeat_with(|| None).take(skipped));
        self.count += 1;
        self.bytes += value.len();
        let data = spread.map_or(0, |spread| spread.id.data.into());
        let tracker = CommitTracker::new(self.tally, required, data);
        let left_out = NodeSet::EMPTY;
        self.open.push_back(Some(Proposal { value, spread, tracker, sent: now, left_out, supported: None }));
    }

    /// These are not sent the last proposal for now.
    pub fn leave_out(&mut self, nodes: NodeSet) {
        if let Some(Some(proposal)) = self.open.back_mut() {
            proposal.left_out = nodes;
        }
    }

    /// A replica has voted for this ballot's proposal of a slot, has granted these a say in it, and holds these shards;
    /// the value, if it is chosen with this vote.
    pub fn on_vote(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        slot: u64,
        (grants, held): (NodeSet, ShardSet),
        now: Time,
    ) -> Option<Bytes> {
        if ballot != self.ballot && !mutation::active("slots/count-across-ballots") {
            return None;
        }
        let index = usize::try_from(slot.checked_sub(self.start)?).ok()?;
        let open = self.open.get_mut(index)?;
        let Proposal { tracker, supported, spread, .. } = open.as_mut()?;
        let held = match spread.filter(|_| mutation::active("slots/held-as-assigned")) {
            Some(spread) => spread.shards_of(from),
            None => held,
        };
        tracker.add(from, grants, held);
        if !tracker.is_reached() {
            if supported.is_none() && tracker.is_supported() {
                *supported = Some(now);
            }
            return None;
        }
        let value = open.take().expect("present").value;
        self.count -= 1;
        self.bytes -= value.len();
        while self.open.pop_front_if(|open| open.is_none()).is_some() {
            self.start += 1;
        }
        Some(value)
    }

    /// Who must vote beside a majority has changed, for those under way too; what is chosen now.
    pub fn reconsider(&mut self, required: impl Fn(&Bytes) -> NodeSet) -> Vec<(u64, Bytes)> {
        let mut chosen = Vec::new();
        for (index, open) in self.open.iter_mut().enumerate() {
            let Some(proposal) = open else { continue };
            proposal.tracker.required = required(&proposal.value);
            if proposal.tracker.is_reached() {
                let value = open.take().expect("present").value;
                self.count -= 1;
                self.bytes -= value.len();
                chosen.push((self.start + index as u64, value));
            }
        }
        while self.open.pop_front_if(|open| open.is_none()).is_some() {
            self.start += 1;
        }
        chosen
    }

    /// Who has not voted where a majority had `limit` ago.
    pub fn overdue(&self, limit: Duration, now: Time) -> NodeSet {
        let old = |proposal: &&Proposal| proposal.supported.is_some_and(|at| now.since(at) >= limit);
        let late = self.open.iter().flatten().filter(old);
        late.fold(NodeSet::EMPTY, |late, proposal| late.union(proposal.tracker.missing()))
    }

    /// The last slot under way that a majority has voted for; 0 if there is none.
    pub fn supported(&self) -> u64 {
        let last = self.open.iter().rposition(|open| open.as_ref().is_some_and(|it| it.supported.is_some()));
        last.map_or(0, |index| self.start + index as u64)
    }

    /// Whether this ballot's proposal of a slot is under way: not chosen by votes for it.
    pub fn is_open(&self, slot: u64) -> bool {
        self.under_way(slot).is_some()
    }

    /// Whether a majority has voted for this ballot's proposal of a slot, which others must vote for as well before it
    /// is chosen.
    pub fn is_supported(&self, slot: u64) -> bool {
        self.under_way(slot).is_some_and(|proposal| proposal.supported.is_some())
    }

    fn under_way(&self, slot: u64) -> Option<&Proposal> {
        let index = usize::try_from(slot.checked_sub(self.start)?).ok()?;
        self.open.get(index)?.as_ref()
    }

    /// A proposal under way is sent in these shards from now on: who has voted and must get more.
    pub fn respread(&mut self, slot: u64, spread: Option<Spread>) -> NodeSet {
        let proposal = self.under_way_mut(slot);
        let before = std::mem::replace(&mut proposal.spread, spread);
        spread
            .filter(|_| spread != before)
            .map(|spread| proposal.tracker.short_of(&spread))
            .unwrap_or_default()
    }

    /// These are sent a proposal under way once more.
    pub fn on_sent_again(&mut self, slot: u64, to: NodeSet, now: Time) {
        let proposal = self.under_way_mut(slot);
        proposal.sent = now;
        proposal.left_out = proposal.left_out.difference(to);
    }

    fn under_way_mut(&mut self, slot: u64) -> &mut Proposal {
        let index = slot.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        let open = index.and_then(|index| self.open.get_mut(index)?.as_mut());
        open.unwrap_or_else(|| panic!("slot {slot} is not under way"))
    }

    /// Those under way, oldest first.
    pub fn open(&mut self) -> impl Iterator<Item = (u64, &mut Proposal)> {
        let start = self.start;
        let open = self.open.iter_mut().enumerate();
        open.filter_map(move |(index, proposal)| Some((start + index as u64, proposal.as_mut()?)))
    }
}

#[cfg(test)]
mod tests;
