//! How a leader comes to be: silence, pre-votes, votes.
//!
//! # Why a learner may stand
//!
//! A leader sends its entries to learners too, so the longest log may be a learner's. While voters elect a leader
//! without it, that does no harm. But a learner may be needed: a survivor's log may hold a change that makes it a
//! voter, written by a leader of an earlier term and not committed. That survivor needs the learner's vote, and is
//! refused it, since its log is the shorter one; the other voters' logs are shorter still. If the leader that knew
//! better is lost for good, nobody but the learner can be elected.
//!
//! So a member that does not vote stands as well, when several election timeouts have passed without a leader. It is
//! safe for the reason for which a leader may be outside of its own configuration (thesis §4.2.2): it is elected by a
//! majority of the voters of the configuration in its log, of both sets in a joint one, and by voters whose logs are no
//! longer than its own. Neither of Raft's arguments, that majorities meet and that the one in both votes for a complete
//! log only, asks who the candidate is. Its own vote does not count, nor does its own log when it leads. It hands over
//! to a voter with its first commit (`changes.rs`).
//!
//! A learner that is merely cut off deposes nobody: pre-votes change no term, and those who hear a leader refuse them.
//! A node that its last committed configuration leaves out is never needed: a majority of the others has that
//! configuration, and whichever of them has the longest log has it too.

use quorate_blocks::prefix_log::RETRANSMIT;
use quorate_blocks::quorum::Verdict;
use quorate_blocks::walls::Own;
use quorate_core::{Context, NodeId, Time, Wall, mutation};

use super::Message;
use super::replica::{Replica, Role, Timer};

/// So many election timeouts without a leader leave it to the voters to elect one; then a member that does not vote
/// stands too.
const LEARNER_TIMEOUTS: u32 = 4;

impl Replica {
    /// Whether votes are refused without a look: a leader is there, or may count on it (Ongaro's lease does; after a
    /// restart, what an earlier incarnation told a leader still holds).
    pub(super) fn is_bound(&self, now: Time) -> bool {
        if mutation::active("ongaro/vote-at-once") {
            return false;
        }
        let leads = matches!(self.role, Role::Leader(_) | Role::Gathering(_));
        leads || self.monitor.has_leader(now) || now < self.bound_until
    }

    /// Whether it takes part in elections as voters do. One that its last configuration leaves out may still be needed,
    /// until that is committed: it may be the only one to have it (thesis §4.2.2).
    fn may_stand(&self) -> bool {
        let leaves = self.log.entries.configuration_at(self.log.committed).1;
        (self.log.entries.configuration().1.votes(self.me) || leaves.votes(self.me)) && !self.draining
    }

    /// Whether it stands because nobody else does: a member that does not vote, after a long silence (see the file's
    /// comment).
    fn may_stand_as_learner(&self) -> bool {
        let committed = self.log.entries.configuration_at(self.log.committed).1;
        let member = self.log.entries.configuration().1.all().union(committed.all()).contains(self.me);
        let silent = self.silent_timeouts > LEARNER_TIMEOUTS;
        member && silent && !self.draining && !mutation::active("raft/learners-never-stand")
    }

    /// Whether it decides alone.
    pub(super) fn is_alone(&self) -> bool {
        self.log.entries.configuration().1.is_alone(self.me)
    }

    /// Whether it stands, and its own vote is not durable yet: then none of its requests for votes has left. It must
    /// not enter one term after the other, which the others would follow as soon as they hear of them: while its disk
    /// hangs, they might elect nobody.
    fn waits_for_its_disk(&self) -> bool {
        let waits = matches!(self.role, Role::Candidate { durable: false, .. });
        waits && !mutation::active("raft/stand-without-a-disk")
    }

    fn last(&self) -> (u64, u64) {
        let (index, term) = self.log.entries.last();
        (term, index)
    }

    pub(super) fn on_election_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if matches!(self.role, Role::Leader(_)) {
            return;
        }
        if let Some(rest) = self.monitor.remaining(now)
            && (!self.is_alone() || self.is_bound(now))
        {
            cx.set_timer(Timer::Election, rest);
            return;
        }
        if now < self.bound_until {
            cx.set_timer(Timer::Election, self.bound_until.since(now));
            return;
        }
        if matches!(self.role, Role::Candidate { .. } | Role::Gathering(_)) && !self.waits_for_its_disk() {
            self.monitor.lost_election();
        }
        let patience = self.monitor.restart(now, cx.random());
        cx.set_timer(Timer::Election, patience);
        self.silent_timeouts = self.silent_timeouts.saturating_add(1);
        self.give_up_waiting();
        if self.waits_for_its_disk() {
            return;
        }
        if self.may_stand() || self.may_stand_as_learner() {
            self.pre_vote(cx);
        } else {
            self.role = Role::Follower;
        }
    }

    /// Asks whether a majority would vote for this replica; the term stays as it is.
    fn pre_vote(&mut self, cx: &mut Context<'_, Self>) {
        if mutation::active("raft/pre-vote-bumps-terms") {
            self.term += 1;
            self.voted = None;
            self.persist_term(cx);
        }
        let term = match mutation::active("raft/pre-vote-bumps-terms") {
            true => self.term - 1,
            false => self.term,
        };
        let mut tally = self.log.entries.configuration().1.tally();
        let verdict = tally.add(self.me);
        self.leader = None;
        self.role = Role::PreCandidate { tally, term };
        if verdict == Verdict::Reached {
            self.stand(false, cx);
        } else {
            self.solicit(cx);
        }
    }

    /// Asks those who have not answered (again).
    fn solicit(&mut self, cx: &mut Context<'_, Self>) {
        let (last_index, last_term) = self.log.entries.last();
        match self.role {
            Role::PreCandidate { tally, .. } => {
                let message = Message::PreVote { term: self.term + 1, last_index, last_term };
                cx.send_all(tally.missing().without(self.me), message);
            }
            Role::Candidate { tally, transfer, .. } => {
                let message = Message::Vote { term: self.term, last_index, last_term, transfer };
                cx.send_all(tally.missing().without(self.me), message);
            }
            Role::Follower | Role::Gathering(_) | Role::Leader(_) => return,
        }
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }

    pub(super) fn on_pre_vote(
        &mut self,
        from: NodeId,
        term: u64,
        last: (u64, u64),
        cx: &mut Context<'_, Self>,
    ) {
        let granted = term > self.term && self.is_complete(last) && !self.is_bound(cx.now());
        cx.send(from, Message::PreVoteReply { term, granted, current: self.term });
        self.on_former_member(from, cx.now());
    }

    pub(super) fn on_pre_vote_reply(
        &mut self,
        from: NodeId,
        term: u64,
        granted: bool,
        cx: &mut Context<'_, Self>,
    ) {
        if let Role::PreCandidate { tally, .. } = &mut self.role
            && granted
            && term == self.term + 1
            && tally.add(from) == Verdict::Reached
        {
            self.stand(false, cx);
        }
    }

    /// Stands for election in the next term.
    pub(super) fn stand(&mut self, transfer: bool, cx: &mut Context<'_, Self>) {
        self.enter(self.term + 1, Some(self.me), cx);
        let tally = self.log.entries.configuration().1.tally();
        self.role = Role::Candidate { tally, transfer, durable: false, since: cx.now() };
        self.expecting = true;
        // The own vote counts when it is durable.
        cx.send(self.me, Message::VoteReply { term: self.term, granted: true, wall: cx.wall() });
        self.solicit(cx);
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election, patience);
    }

    /// Whether a log that ends at this index and term may lead: it has everything that was committed with the help of
    /// this one (§5.4.1).
    fn is_complete(&self, last: (u64, u64)) -> bool {
        (last.1, last.0) >= self.last() || mutation::active("raft/vote-for-any-log")
    }

    pub(super) fn on_vote(&mut self, from: NodeId, last: (u64, u64), cx: &mut Context<'_, Self>) {
        let free = self.voted.is_none_or(|voted| voted == from);
        let granted = free && self.is_complete(last) && self.leader.is_none_or(|leader| leader == from);
        if granted {
            if self.voted.is_none() {
                self.voted = Some(from);
                self.persist_term(cx);
                // Where it is known who leads, nothing has to wait: this question is late.
                self.expecting = self.leader.is_none();
            }
            // It is given time to win.
            let patience = self.monitor.restart(cx.now(), cx.random());
            cx.set_timer(Timer::Election, patience);
        }
        cx.send(from, Message::VoteReply { term: self.term, granted, wall: cx.wall() });
    }

    pub(super) fn on_vote_reply(
        &mut self,
        from: NodeId,
        granted: bool,
        wall: Wall,
        cx: &mut Context<'_, Self>,
    ) {
        let Role::Candidate { tally, durable, since, .. } = &mut self.role else { return };
        *durable |= from == self.me;
        // A refusal may answer a request of an earlier term.
        if granted {
            let own = Own::read(self.me, cx);
            self.walls
                .hear(from, (*since, wall), own, &|wall| self.log.entries.configuration().1.reached(wall));
            if tally.add(from) == Verdict::Reached {
                self.on_elected(cx);
            }
        }
    }

    /// The leader stops, and wants this replica to lead.
    pub(super) fn on_timeout_now(&mut self, committed: u64, cx: &mut Context<'_, Self>) {
        self.commit_verified(committed, cx);
        self.monitor.forget();
        if self.may_stand() {
            self.stand(true, cx);
        }
    }

    /// Votes and entries may have been lost.
    pub(super) fn on_retransmit_timer(&mut self, cx: &mut Context<'_, Self>) {
        match self.role {
            Role::Follower => {}
            Role::PreCandidate { .. } | Role::Candidate { .. } => self.solicit(cx),
            Role::Gathering(_) => self.gather(cx),
            Role::Leader(_) => self.retransmit(cx),
        }
    }
}
