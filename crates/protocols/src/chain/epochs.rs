//! How a chain comes to be: an epoch is a ballot, and its owner, the head, states its chain.
//!
//! Whoever misses the head and has polled a majority who do, or as the head misses a member of its chain, prepares a
//! ballot. An acceptor promises it only if the candidate's log has all that its own has (the rule of Raft's votes), and
//! is in no earlier epoch from then on. The chain is made of those who promised, a majority at least. An entry of an
//! earlier epoch that is committed is on the disks of that epoch's whole chain, so of some member of this one, and
//! therefore in the log of its head.
//!
//! An acceptor that is bound by a promise to a reader gives that up first: [`Replica::leave_when_free`].

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::Batch;
use quorate_blocks::quorum::{Tally, Verdict};
use quorate_blocks::walls::Own;
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, Wall, mutation};

use super::head::Head;
use super::replica::{Replica, Role, Timer};
use super::{Message, Reads, Record, links};

/// A ballot that is to be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The own one's number is chosen when it can be promised.
    pub(super) ballot: Ballot,
    /// Epoch and index of its owner's last entry; `None`: a majority has promised it already.
    pub(super) last: Option<(u64, u64)>,
}

/// Who misses the head.
#[derive(Clone, Copy, Debug)]
pub struct Polling {
    tally: Tally,
    sent: Time,
}

/// What only a candidate has.
#[derive(Debug)]
pub struct Candidate {
    tally: Tally,
    /// The last index of each that has promised.
    last: BTreeMap<NodeId, u64>,
    /// As a head until now: those that work, whose promises are waited for.
    awaited: NodeSet,
    since: Time,
}

impl Replica {
    /// Epoch and index of its last entry: logs are compared by these.
    fn last(&self) -> (u64, u64) {
        let (index, epoch) = self.log.entries.last();
        (epoch, index)
    }

    /// Whether a log that ends with this entry has everything that was committed with the help of this one.
    fn may_lead(&self, last: Option<(u64, u64)>) -> bool {
        last.is_none_or(|last| last >= self.last()) || mutation::active("chain/any-head")
    }

    pub(super) fn on_election_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if self.is_head() {
            return;
        }
        if let Some(rest) = self.monitor.remaining(now).filter(|_| !self.members.is_alone(self.me)) {
            cx.set_timer(Timer::Election, rest);
            return;
        }
        self.poll(cx);
    }

    /// Asks whether a majority misses the head, before it takes a ballot: who is alone with that disturbs nobody.
    fn poll(&mut self, cx: &mut Context<'_, Self>) {
        self.is_patient(cx);
        let leaves = self.draining && !self.members.is_alone(self.me);
        if self.waits_for_its_disk() || self.wanted.is_some() || leaves {
            return;
        }
        if mutation::active("chain/no-poll") {
            return self.stand(cx);
        }
        let polling = Polling { tally: self.members.tally(), sent: cx.now() };
        self.role = Role::Polling(polling);
        self.on_poll_reply(self.me, polling.sent, self.promised, cx);
        self.solicit(cx);
    }

    pub(super) fn on_poll(&mut self, from: NodeId, sent: Time, last: (u64, u64), cx: &mut Context<'_, Self>) {
        if !self.is_head() && !self.monitor.has_leader(cx.now()) && self.may_lead(Some(last)) {
            cx.send(from, Message::PollReply { sent, ballot: self.promised });
        }
    }

    pub(super) fn on_poll_reply(
        &mut self,
        from: NodeId,
        sent: Time,
        ballot: Ballot,
        cx: &mut Context<'_, Self>,
    ) {
        self.seen = self.seen.max(ballot);
        if let Role::Polling(polling) = &mut self.role
            && polling.sent == sent
            && polling.tally.add(from) == Verdict::Reached
        {
            self.stand(cx);
        }
    }

    /// Whether its own promise to itself is not durable yet: while its disk hangs, it must not go from ballot to
    /// ballot.
    fn waits_for_its_disk(&self) -> bool {
        matches!(&self.role, Role::Candidate(candidate) if candidate.last.is_empty())
    }

    pub(super) fn is_patient(&mut self, cx: &mut Context<'_, Self>) {
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election, patience);
    }

    /// Wants an epoch of its own.
    pub(super) fn stand(&mut self, cx: &mut Context<'_, Self>) {
        if !self.is_head() {
            self.is_patient(cx);
        }
        if !self.waits_for_its_disk() && self.wanted.is_none() {
            let ballot = self.promised.max(self.seen).next(self.me);
            self.wanted = Some(Wanted { ballot, last: Some(self.last()) });
            self.leave_when_free(cx);
        }
    }

    pub(super) fn on_prepare(&mut self, from: NodeId, wanted: Wanted, cx: &mut Context<'_, Self>) {
        let Wanted { ballot, last } = wanted;
        // Not even its ballot is looked at while a head is there that works, unless it is the head who asks.
        let follows = self.is_head() || self.monitor.has_leader(cx.now());
        if ballot.node() != Some(from) || from == self.me || (follows && self.promised.node() != Some(from)) {
            return;
        }
        self.seen = self.seen.max(ballot);
        if ballot < self.promised {
            cx.send(from, Message::Refused { ballot: self.promised });
        } else if ballot == self.promised {
            self.promise(from, cx);
        } else if self.may_lead(last) {
            if self.wanted.is_none_or(|wanted| wanted.ballot < ballot) {
                self.wanted = Some(wanted);
            }
            self.leave_when_free(cx);
        }
    }

    /// Promises the ballot that is wanted as soon as no promise to a reader binds this acceptor to the present one.
    pub(super) fn leave_when_free(&mut self, cx: &mut Context<'_, Self>) {
        let Some(wanted) = self.wanted else { return };
        let now = cx.now();
        let (messages, bound) = self.leases.release(|_| true, now);
        self.leases.say(messages, cx);
        if let Some(until) = bound.filter(|_| !mutation::active("chain/promise-while-leased")) {
            cx.set_timer(Timer::Free, until.since(now));
            return;
        }
        let owner = wanted.ballot.node().expect("a ballot that is wanted has an owner");
        if owner != self.me && !self.may_lead(wanted.last) {
            // Its log has grown meanwhile.
            self.wanted = None;
            return;
        }
        let ballot =
            if owner == self.me { self.promised.max(self.seen).next(self.me) } else { wanted.ballot };
        self.enter(ballot, cx);
        self.is_patient(cx);
        if wanted.last.is_some() {
            self.promise(owner, cx);
        }
    }

    /// Takes part in no earlier epoch from now on.
    fn enter(&mut self, ballot: Ballot, cx: &mut Context<'_, Self>) {
        assert!(ballot > self.promised, "ballots grow");
        self.give_leases_back(cx);
        self.leases.begin(ballot.number());
        if self.is_head() {
            cx.note(|| Fact::Follows);
        }
        let awaited = self.awaited(cx.now());
        (self.promised, self.seen, self.wanted) = (ballot, self.seen.max(ballot), None);
        self.log.persist(Record::Promised(ballot), cx);
        (self.log.verified, self.log.behind, self.acknowledge) = (0, false, false);
        self.links = links::begin(0, cx.now());
        self.chain.clear();
        self.take_reads_back();
        self.role = Role::Member;
        if ballot.node() == Some(self.me) {
            let tally = self.members.tally();
            self.role = Role::Candidate(Candidate { tally, last: BTreeMap::new(), awaited, since: cx.now() });
            self.solicit(cx);
        }
    }

    /// Whose promises are to be waited for, if that is known: what the head of the last epoch has seen to work.
    fn awaited(&self, now: Time) -> NodeSet {
        match &self.role {
            _ if mutation::active("chain/late-promises") => NodeSet::EMPTY,
            Role::Head(_) => self.alive(now).iter().filter(|node| !self.laggards.contains(*node)).collect(),
            Role::Candidate(candidate) => candidate.awaited,
            Role::Member | Role::Polling(_) => NodeSet::EMPTY,
        }
    }

    /// Asks those who have not answered (again).
    pub(super) fn solicit(&mut self, cx: &mut Context<'_, Self>) {
        let (ballot, (last_epoch, last_index)) = (self.promised, self.last());
        let (tally, message) = match &self.role {
            Role::Polling(Polling { tally, sent }) => {
                (tally, Message::Poll { sent: *sent, last_index, last_epoch })
            }
            Role::Candidate(candidate) => {
                (&candidate.tally, Message::Prepare { ballot, last_index, last_epoch })
            }
            Role::Member | Role::Head(_) => return,
        };
        cx.send_all(tally.missing().without(self.me), message);
    }

    fn promise(&mut self, owner: NodeId, cx: &mut Context<'_, Self>) {
        let (last_index, _) = self.log.entries.last();
        cx.send(owner, Message::Promise { ballot: self.promised, last_index, wall: cx.wall() });
    }

    pub(super) fn on_promise(&mut self, from: NodeId, last: u64, wall: Wall, cx: &mut Context<'_, Self>) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        let own = Own { me: self.me, wall: cx.wall(), now: cx.now() };
        if from != self.me {
            let members = &self.members;
            self.walls.hear(from, (candidate.since, wall), own, &|wall| members.reached(wall));
        }
        let me = self.me;
        let enough =
            |candidate: &Candidate| candidate.tally.reached() && candidate.tally.votes().contains(me);
        let had = enough(candidate);
        candidate.last.insert(from, last);
        candidate.tally.add(from);
        if !had && enough(candidate) {
            cx.set_timer(Timer::Decide, self.config.timeouts.heartbeat);
        }
        self.decide(false, cx);
    }

    /// States the chain: when all have promised, or all of those that are known to work; or of those who have promised
    /// in time. Another epoch would soon be begun for one that works and whose promise comes a little later.
    pub(super) fn decide(&mut self, in_time: bool, cx: &mut Context<'_, Self>) {
        let Role::Candidate(candidate) = &self.role else { return };
        let promised = candidate.tally.votes();
        let (awaited, waited) = (candidate.awaited, cx.now().since(candidate.since));
        let late: NodeSet = awaited.iter().filter(|node| !promised.contains(*node)).collect();
        let all = if awaited.is_empty() { candidate.tally.missing().is_empty() } else { late.is_empty() };
        if !candidate.tally.reached() || !promised.contains(self.me) || !(in_time || all) {
            return;
        }
        // No longer than this, or others miss a head.
        let rest = (self.config.timeouts.election / 2).saturating_sub(waited);
        if !late.is_empty() && !rest.is_zero() {
            return cx.set_timer(Timer::Decide, rest);
        }
        late.iter().for_each(|node| self.leave_out(node, cx.now()));
        let Role::Candidate(candidate) = &self.role else { return };
        // Those who would hold the others up come last, and stay outside if the others are enough.
        let last = self.log.entries.last().0;
        let far = |node: NodeId| candidate.last[&node] + (self.config.pipeline as u64) < last;
        let holds_up = |node: NodeId| (self.laggards.contains(node), far(node));
        let place = |node: NodeId| self.former.iter().position(|other| *other == node).unwrap_or(usize::MAX);
        let mut others: Vec<_> = promised.without(self.me).iter().collect();
        others.sort_by_key(|node| (holds_up(*node), place(*node), *node));
        let fit = others.iter().filter(|node| holds_up(**node) == (false, false)).count();
        others.truncate(fit.max(self.members.voters.majority() - 1));
        let mut chain = vec![self.me];
        others.sort_by_key(|node| (place(*node), *node));
        chain.extend(others);
        self.begin_to_lead(chain, cx);
    }

    /// Somebody has promised a later ballot: as the head or a candidate, this replica cannot have it in its chain
    /// without one that is later still.
    pub(super) fn on_refused(&mut self, ballot: Ballot, cx: &mut Context<'_, Self>) {
        self.seen = self.seen.max(ballot);
        if ballot > self.promised && matches!(self.role, Role::Candidate(_) | Role::Head(_)) {
            self.stand(cx);
        }
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        chain: Vec<NodeId>,
        (committed, sent): (u64, Time),
        cx: &mut Context<'_, Self>,
    ) {
        let members: Vec<_> = self.members.voters.iter().collect();
        let distinct = chain.iter().enumerate().all(|(at, node)| !chain[..at].contains(node));
        let valid =
            distinct && chain.iter().all(|node| members.contains(node)) && chain.len() * 2 > members.len();
        if !valid || from == self.me || ballot.node() != Some(from) || chain.first() != Some(&from) {
            return;
        }
        self.seen = self.seen.max(ballot);
        if ballot < self.promised {
            cx.send(from, Message::Refused { ballot: self.promised });
            return;
        }
        if ballot > self.promised {
            // Elected without this replica, which follows as soon as it may.
            if self.wanted.is_none_or(|wanted| wanted.ballot < ballot) {
                self.wanted = Some(Wanted { ballot, last: None });
            }
            self.leave_when_free(cx);
            if ballot != self.promised {
                return;
            }
        }
        self.monitor.heard(cx.now());
        self.role = Role::Member;
        // Whoever else has asked is not followed while the head is there.
        self.wanted = self.wanted.filter(|wanted| wanted.ballot.node() == Some(from));
        if self.chain.is_empty() {
            self.adopt(chain, cx);
        }
        self.commit(committed.min(self.links.durable), cx);
        self.tend_leases(cx);
        let (durable, committed) = (self.links.durable, self.log.committed);
        let (leased, wall) = (self.is_leased(cx.now()), cx.wall());
        cx.send(from, Message::HeartbeatReply { ballot, sent, durable, committed, leased, wall });
    }

    /// The chain of this epoch is known. What an earlier life has stored in it goes on.
    pub(super) fn adopt(&mut self, chain: Vec<NodeId>, cx: &mut Context<'_, Self>) {
        let number = self.promised.number();
        cx.note(|| Fact::Chain { number, members: chain.clone() });
        (self.chain, self.former) = (chain.clone(), chain);
        if !self.is_reader() {
            // Their proxies are told whom to ask; as the head, it passes them on.
            self.intake.keep_reads(std::mem::take(&mut self.reads).into_iter());
        }
        if !self.is_head() {
            self.role = Role::Member;
            self.keeps_intake = false;
            self.intake.depart(self.chain[0]);
        }
        if mutation::active("chain/links-agree-unseen") && !self.is_head() {
            self.verify_all(cx.now());
        }
        if self.links.durable > 0 {
            self.go_on(cx);
        }
        if self.is_reader() && self.config.reads == Reads::Lease {
            self.leases.ready(self.members.voters, cx);
        }
    }

    /// All of the log is the head's of this epoch, and durable.
    fn verify_all(&mut self, now: Time) {
        self.log.verified = self.log.entries.last().0;
        self.links = links::begin(self.log.verified, now);
    }

    /// Becomes the head of the epoch that it has prepared.
    fn begin_to_lead(&mut self, chain: Vec<NodeId>, cx: &mut Context<'_, Self>) {
        let number = self.promised.number();
        cx.note(|| Fact::Leads { number });
        self.role = Role::Head(Box::new(Head::new(cx.now())));
        // Its promise to itself is durable, and so is what was in its log before.
        self.verify_all(cx.now());
        if !self.keeps_intake {
            self.keeps_intake = true;
            self.intake.retire();
            self.intake.found(self.me);
            let open = self.log.entries.iter(self.log.committed + 1);
            self.intake.expect(open.filter_map(|(_, held)| held.entry.value.whole()));
        }
        self.adopt(chain, cx);
        // A reader that has executed this one finds no key whose time was up before.
        let time = self.time(cx.now(), cx.wall());
        let timeless = mutation::active("chain/first-entry-without-time");
        self.append(if timeless { Batch::noop() } else { Batch::empty(time) }, cx);
        cx.cancel_timer(Timer::Election);
        self.on_heartbeat_timer(cx);
    }
}
