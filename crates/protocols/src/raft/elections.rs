//! How a leader comes to be: silence, pre-votes, votes.

use quorate_core::{Context, NodeId, Time, mutation};
use quorate_parts::quorum::Verdict;

use super::replica::{Replica, Role, Timer};
use super::{Message, RETRANSMIT};

impl Replica {
    /// Whether votes are refused without a look: a leader is there, or may count on it (Ongaro's lease does; after a
    /// restart, what an earlier incarnation told a leader still holds).
    pub(super) fn is_bound(&self, now: Time) -> bool {
        if mutation::active("ongaro/vote-at-once") {
            return false;
        }
        matches!(self.role, Role::Leader(_)) || self.monitor.has_leader(now) || now < self.bound_until
    }

    /// Whether it takes part in elections. One that its last configuration leaves out may still be needed, until that
    /// is committed: it may be the only one to have it (thesis §4.2.2).
    fn may_stand(&self) -> bool {
        let leaves = self.chain.configuration_at(self.committed).1;
        (self.chain.configuration().1.votes(self.me) || leaves.votes(self.me)) && !self.draining
    }

    /// Whether it stands, and its own vote is not durable yet: then none of its requests for votes has left. It must
    /// not enter one term after the other, which the others would follow as soon as they hear of them: while its disk
    /// hangs, they might elect nobody.
    fn waits_for_its_disk(&self) -> bool {
        let waits = matches!(&self.role, Role::Candidate { tally, .. } if tally.missing().contains(self.me));
        waits && !mutation::active("raft/stand-without-a-disk")
    }

    fn last(&self) -> (u64, u64) {
        let (index, term) = self.chain.last();
        (term, index)
    }

    pub(super) fn on_election_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if matches!(self.role, Role::Leader(_)) {
            return;
        }
        if let Some(rest) = self.monitor.remaining(now)
            && (self.chain.configuration().1.voters.len() > 1 || self.is_bound(now))
        {
            cx.set_timer(Timer::Election, rest);
            return;
        }
        if now < self.bound_until {
            cx.set_timer(Timer::Election, self.bound_until.since(now));
            return;
        }
        let patience = self.monitor.restart(now, cx.random());
        cx.set_timer(Timer::Election, patience);
        self.give_up_waiting();
        if self.waits_for_its_disk() {
            return;
        }
        if self.may_stand() {
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
        let mut tally = self.chain.configuration().1.tally();
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
        let (last_index, last_term) = self.chain.last();
        match self.role {
            Role::PreCandidate { tally, .. } => {
                let message = Message::PreVote { term: self.term + 1, last_index, last_term };
                cx.send_all(tally.missing().without(self.me), message);
            }
            Role::Candidate { tally, transfer } => {
                let message = Message::Vote { term: self.term, last_index, last_term, transfer };
                cx.send_all(tally.missing().without(self.me), message);
            }
            Role::Follower | Role::Leader(_) => return,
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
        self.on_former_member(from);
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
        let tally = self.chain.configuration().1.tally();
        self.role = Role::Candidate { tally, transfer };
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
                self.expecting = true;
            }
            // It is given time to win.
            let patience = self.monitor.restart(cx.now(), cx.random());
            cx.set_timer(Timer::Election, patience);
        }
        cx.send(from, Message::VoteReply { term: self.term, granted, wall: cx.wall() });
    }

    pub(super) fn on_vote_reply(&mut self, from: NodeId, granted: bool, cx: &mut Context<'_, Self>) {
        if let Role::Candidate { tally, .. } = &mut self.role
            && granted
            && tally.add(from) == Verdict::Reached
        {
            self.begin_to_lead(cx);
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
            Role::Leader(_) => self.retransmit(cx),
        }
    }
}
