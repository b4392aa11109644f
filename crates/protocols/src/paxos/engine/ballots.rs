//! How a ballot comes to be promised: polls, candidates, phase 1.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::quorum::{Tally, Verdict};
use quorate_blocks::walls::Own;
use quorate_core::link::FRAME;
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, Wall, mutation};

use super::message::BallotConfig;
use super::policy::Policy;
use super::replica::{Replica, Role, Timer};
use super::{Message, RETRANSMIT, Record};
use crate::paxos::engine::slots::{Preparation, Reply, Votes};

/// What a vote takes in a message beside its value, about.
const VOTE_BYTES: usize = 32;

/// An answer to `Prepare` that is longer than a frame, or has several parts, is not repeated before this is over, each
/// time twice as long.
const VOTES_RETRANSMIT: Duration = RETRANSMIT.saturating_mul(2);
/// The longest wait before it is.
const MAX_VOTES_RETRANSMIT: Duration = Duration::from_secs(3);

/// How far this replica has told its votes to the owner of the ballot that it has promised: where links are thin, that
/// takes longer than the owner waits before it asks again, and copies would keep the rest from coming.
#[derive(Debug)]
pub struct SentVotes {
    /// The last question that shows how much has arrived.
    from: u64,
    /// Votes for slots below have been sent.
    next: u64,
    /// When it was asked so, or has sent them again.
    since: Time,
    /// How long it waits from then on before it sends them again.
    patience: Duration,
}

impl SentVotes {
    /// The owner asks for votes from this slot on: whether they may still be on their way.
    fn on_question(&mut self, from: u64, now: Time) -> bool {
        if from > self.from {
            (self.from, self.since, self.patience) = (from, now, VOTES_RETRANSMIT);
        }
        from < self.next && now.since(self.since) < self.patience && !mutation::active("paxos/tell-again")
    }
}

/// A poll under way.
#[derive(Debug)]
pub struct Polling {
    ballot: Ballot,
    tally: Tally,
}

impl<P: Policy> Replica<P> {
    /// Somebody is in this ballot. A higher one than the promised is to be promised; what this replica led or stood
    /// for is over.
    pub(super) fn see(&mut self, ballot: Ballot, cx: &mut Context<'_, Self>) {
        self.highest = self.highest.max(ballot);
        let known = P::BallotConfig::EMPTY || self.announced.as_ref().is_some_and(|(of, _)| *of == ballot);
        // An own ballot is taken by `step_up` alone, once.
        if ballot > self.wanted && ballot.node() != Some(self.me) && known {
            self.wanted = ballot;
            self.prepare_from = None;
            self.stop_leading(cx);
            self.adopt(cx);
        }
    }

    /// Somebody has promised a higher ballot than this replica leads or stands in. That ballot is not promised here:
    /// its owner has not asked for it, and may have lost it in a crash before it was durable.
    pub(super) fn on_reject(&mut self, promised: Ballot, cx: &mut Context<'_, Self>) {
        self.highest = self.highest.max(promised);
        let proposes = matches!(self.role, Role::Leader(_) | Role::Candidate(_));
        if !proposes || promised <= self.promised {
            return;
        }
        self.stop_leading(cx);
        self.monitor.forget();
        if promised.node() == Some(self.me) {
            // Lost in this replica's own crash: nobody else will ever lead in it.
            self.step_up(cx);
        }
    }

    /// Promises the wanted ballot, unless a lease to another still binds: then asks for it back, and tries again
    /// later.
    pub(super) fn adopt(&mut self, cx: &mut Context<'_, Self>) {
        if self.wanted <= self.promised {
            return;
        }
        let now = cx.now();
        let bound = self.release_leases(cx);
        if let Some(until) = bound.filter(|_| !mutation::active("paxos/no-release")) {
            cx.set_timer(Timer::Lease, until.since(now).min(RETRANSMIT));
            return;
        }
        self.forget_votes();
        self.sent_votes = None;
        self.leases.note_beliefs_ended(&mut self.reads_until, cx);
        self.promised = self.wanted;
        let announced = self.announced.take().filter(|(of, _)| *of == self.promised);
        self.ballot_config = announced.map(|(_, ballot_config)| ballot_config).unwrap_or_default();
        self.leases.begin(self.promised.number());
        self.safety_threshold = self.log.last();
        let (ballot, ballot_config) = (self.promised, self.ballot_config.clone());
        self.persist(Record::Promise { ballot, ballot_config }, cx);
        self.forget_reads_of_leader();
        if ballot.node() == Some(self.me) {
            self.monitor.stands_for_election(now);
            // What is chosen and lacks shards is gathered by its identity, and not proposed again (`gossip.rs`). If it
            // changes who counts, this ballot ends when that is executed, and has proposed nothing (`changes.rs`).
            let from = self.log.committed() + 1;
            let tally = self.tally();
            self.role = Role::Candidate(Preparation::new(tally, self.me, from, now));
            let missing = tally.missing();
            self.send_prepare(missing, from, cx);
            cx.set_timer(Timer::Retransmit, RETRANSMIT);
        } else {
            self.monitor.supports(now);
            self.role = Role::Follower;
            if let Some(from) = self.prepare_from.take() {
                self.reply_to_prepare(from, cx);
            }
        }
        self.refuse_held(now);
        P::on_adopted(self, cx);
        self.ask_for_leases(cx);
        self.tend_leases(cx);
    }

    /// What comes with a ballot.
    pub(super) fn learn_ballot_config(&mut self, ballot: Ballot, ballot_config: P::BallotConfig) {
        if ballot > self.promised && self.announced.as_ref().is_none_or(|(of, _)| *of < ballot) {
            self.announced = Some((ballot, ballot_config));
        }
    }

    /// The owner of a ballot has taken it: the one before is to be left.
    pub(super) fn on_announce(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        ballot_config: P::BallotConfig,
        cx: &mut Context<'_, Self>,
    ) {
        if ballot.node() == Some(from) {
            self.learn_ballot_config(ballot, ballot_config);
            self.see(ballot, cx);
        }
    }

    pub(super) fn on_which(&mut self, from: NodeId, ballot: Ballot, cx: &mut Context<'_, Self>) {
        if ballot == self.promised && ballot.node() == Some(self.me) {
            let ballot_config = self.ballot_config.clone();
            cx.send(from, Message::Announce { ballot, ballot_config });
        }
    }

    /// Takes a ballot above any seen, if its vote counts in what it has executed.
    pub fn step_up(&mut self, cx: &mut Context<'_, Self>) {
        if self.draining || !self.configuration.1.votes(self.me) {
            return;
        }
        self.stop_leading(cx);
        let ballot_config = P::ballot_config(self, cx.now());
        self.wanted = self.highest.max(self.wanted).next(self.me);
        self.highest = self.wanted;
        self.prepare_from = None;
        if !P::BallotConfig::EMPTY {
            let ballot = self.wanted;
            self.announced = Some((ballot, ballot_config.clone()));
            self.persist(Record::Taken(ballot), cx);
            let others = self.configuration.1.all().without(self.me);
            cx.send_all(others, Message::Announce { ballot, ballot_config });
        }
        self.adopt(cx);
    }

    /// Whether it stands, and its own promise is not durable yet: then none of its requests has left. It must not take
    /// one ballot after the other: where a disk is slower than an election timeout, it would be in a higher one each
    /// time when the others have promised, and nobody would ever lead.
    fn waits_for_its_disk(&self) -> bool {
        let waits = matches!(&self.role, Role::Candidate(preparation) if !preparation.has_promised(self.me));
        waits && !mutation::active("paxos/stand-without-a-disk")
    }

    pub(super) fn on_election_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let leads = matches!(self.role, Role::Leader(_));
        let configuration = &self.configuration.1;
        let (alone, all) = (configuration.is_alone(self.me), configuration.all());
        if let Some(rest) = self.monitor.remaining(now).filter(|_| !alone) {
            cx.set_timer(Timer::Election, rest);
            return;
        }
        if matches!(self.role, Role::Candidate(_)) && !self.waits_for_its_disk() {
            self.monitor.lost_election();
        }
        let patience = self.monitor.restart(now, cx.random());
        cx.set_timer(Timer::Election, patience);
        // Nobody has to wait for one that has left.
        if leads || self.draining || !all.contains(self.me) || self.waits_for_its_disk() {
            return;
        }
        let mut tally = self.configuration.1.tally();
        let ballot = self.highest.max(self.wanted).next(self.me);
        if tally.add(self.me) == Verdict::Reached {
            self.step_up(cx);
            return;
        }
        // A learner asks too, to hear what others know: they may all have left, and wait for it to learn that it
        // counts.
        self.role = match self.configuration.1.votes(self.me) {
            true => Role::Polling(Polling { ballot, tally }),
            false => Role::Follower,
        };
        cx.send_all(all.without(self.me), Message::Poll { ballot });
    }

    pub(super) fn on_poll(&mut self, from: NodeId, ballot: Ballot, cx: &mut Context<'_, Self>) {
        let leads = matches!(self.role, Role::Leader(_));
        let granted = !leads && !self.monitor.has_leader(cx.now());
        let committed = self.log.complete();
        cx.send(from, Message::PollReply { ballot, granted, highest: self.highest, committed });
    }

    pub(super) fn on_poll_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        granted: bool,
        (highest, committed): (Ballot, u64),
        cx: &mut Context<'_, Self>,
    ) {
        self.highest = self.highest.max(highest);
        self.hear_of(from, committed, cx);
        if let Role::Polling(polling) = &mut self.role
            && polling.ballot == ballot
            && granted
            && polling.tally.add(from) == Verdict::Reached
        {
            self.role = Role::Follower;
            self.step_up(cx);
        }
    }

    // Phase 1 ----------------------------------------------------------------------------------------------------

    fn send_prepare(&self, to: NodeSet, from: u64, cx: &mut Context<'_, Self>) {
        let (ballot, ballot_config) = (self.promised, self.ballot_config.clone());
        cx.send_all(to, Message::Prepare { ballot, ballot_config, from });
    }

    /// Phase 1a again, to those who have not replied.
    pub(super) fn repeat_prepare(&mut self, cx: &mut Context<'_, Self>) {
        if let Role::Candidate(preparation) = &self.role {
            let mut groups: BTreeMap<u64, NodeSet> = BTreeMap::new();
            for node in preparation.missing().iter() {
                groups.entry(preparation.from(node)).or_default().insert(node);
            }
            for (from, nodes) in groups {
                self.send_prepare(nodes, from, cx);
            }
        }
    }

    /// Phase 1b.
    pub(super) fn on_prepare(&mut self, from: NodeId, ballot: Ballot, slot: u64, cx: &mut Context<'_, Self>) {
        if ballot.node() != Some(from) {
            return;
        }
        if ballot < self.promised || ballot < self.wanted {
            cx.send(from, Message::Reject { promised: self.promised.max(self.wanted) });
            return;
        }
        self.see(ballot, cx);
        if ballot == self.promised {
            self.monitor.supports(cx.now());
            self.reply_to_prepare(slot, cx);
        } else if ballot == self.wanted {
            self.prepare_from = Some(slot);
        }
    }

    /// Everything that a later ballot must respect, from a slot on, or as much of it as may be told at once, in parts.
    /// The owner asks for the rest when that has arrived.
    fn reply_to_prepare(&mut self, from: u64, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if self.sent_votes.as_mut().is_some_and(|sent| sent.on_question(from, now)) {
            return;
        }
        let candidate = self.promised.node().expect("a promised ballot has an owner");
        let (ballot, wall, committed) = (self.promised, cx.wall(), self.log.complete());
        let send = |reply, cx: &mut Context<'_, Self>| {
            cx.send(candidate, Message::PrepareReply { ballot, reply, wall });
        };
        let part = |from| Votes { from, committed, votes: Vec::new(), next: None };
        let (mut reply, mut bytes, mut all) = (part(from), 0, 0);
        for (slot, vote) in self.log.votes(from.max(committed + 1)) {
            let len = vote.value.len() + VOTE_BYTES;
            let is_first = reply.votes.is_empty();
            if all + len > self.config.prepare_bytes && !is_first {
                reply.next = Some(slot);
                break;
            }
            if bytes + len > FRAME && !is_first {
                reply.next = Some(slot);
                send(std::mem::replace(&mut reply, part(slot)), cx);
                bytes = 0;
            }
            (bytes, all) = (bytes + len, all + len);
            reply.votes.push((slot, vote.clone()));
        }
        let takes_long = all > FRAME || reply.from > from;
        let patience = self.sent_votes.take().filter(|sent| sent.from == from).map(|sent| sent.patience * 2);
        let patience = patience.unwrap_or(VOTES_RETRANSMIT).min(MAX_VOTES_RETRANSMIT);
        let next = reply.next.unwrap_or(u64::MAX);
        self.sent_votes = takes_long.then_some(SentVotes { from, next, since: now, patience });
        send(reply, cx);
    }

    pub(super) fn on_prepare_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        reply: Votes,
        wall: Wall,
        cx: &mut Context<'_, Self>,
    ) {
        if ballot != self.promised || self.wanted > self.promised {
            return;
        }
        let Role::Candidate(preparation) = &mut self.role else { return };
        let own = Own::read(self.me, cx);
        self.walls.hear(from, (preparation.since, wall), own, &|wall| self.configuration.1.reached(wall));
        match preparation.on_reply(from, reply) {
            Reply::Waiting => {}
            Reply::Partial(next) => {
                // However many parts there are, this replica goes on standing while they come. Those that send them
                // hear of it with each question.
                if !mutation::active("paxos/parts-are-no-progress") {
                    self.monitor.stands_for_election(cx.now());
                }
                self.send_prepare(NodeSet::from_iter([from]), next, cx);
            }
            Reply::Prepared(prepared) => self.begin_to_lead(prepared, cx),
        }
    }

    /// No longer leads or stands.
    pub fn stop_leading(&mut self, cx: &mut Context<'_, Self>) {
        if let Role::Leader(_) = &self.role {
            self.intake.retire();
            cx.cancel_timer(Timer::Heartbeat);
            cx.cancel_timer(Timer::Retransmit);
            cx.cancel_timer(Timer::Announce);
            cx.note(|| Fact::Follows);
            self.leases.note_beliefs_ended(&mut self.reads_until, cx);
        }
        self.forget_reads_of_leader();
        self.role = Role::Follower;
        self.refuse_held(cx.now());
        self.policy.on_leave(cx.now());
    }
}
