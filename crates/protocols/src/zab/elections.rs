//! Phases 1 and 2: who is to lead, and in which epoch.

use std::collections::BTreeMap;

use quorate_blocks::prefix_log::{Progress, RETRANSMIT};
use quorate_blocks::quorum::{Tally, Verdict};
use quorate_blocks::walls::Own;
use quorate_core::{Context, NodeId, Time, Wall, mutation};

use super::replica::{Replica, Role, Timer};
use super::{Message, Record};

/// Discovery: an epoch is proposed, and a majority is to accept it.
#[derive(Debug)]
pub struct Discovery {
    /// Who has accepted it from this replica.
    tally: Tally,
    /// The last zxid of each that has answered, epoch first.
    histories: BTreeMap<NodeId, (u64, u64)>,
    /// When it was proposed.
    since: Time,
    /// Whether it is durable here.
    durable: bool,
}

/// How fresh a replica is: its currentEpoch, then its last zxid, epoch first.
pub(super) type Freshness = (u64, (u64, u64));

impl Replica {
    pub(super) fn freshness(&self) -> Freshness {
        let (index, epoch) = self.log.entries.last();
        (self.current, (epoch, index))
    }

    /// Whether this replica has everything that one of this freshness may have helped to commit.
    fn is_as_fresh(&self, other: Freshness) -> bool {
        self.freshness() >= other || mutation::active("zab/any-leader")
    }

    pub(super) fn is_alone(&self) -> bool {
        self.log.entries.configuration().1.is_alone(self.me)
    }

    /// Whether its own acceptedEpoch is not durable: then its NEWEPOCH has not left, and another one would not either.
    fn waits_for_its_disk(&self) -> bool {
        let waits = matches!(&self.role, Role::Discovery(discovery) if !discovery.durable);
        waits && !mutation::active("zab/stand-without-a-disk")
    }

    pub(super) fn on_election_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if matches!(self.role, Role::Leader(_)) {
            return;
        }
        if let Some(rest) = self.monitor.remaining(now)
            && !self.is_alone()
        {
            cx.set_timer(Timer::Election, rest);
            return;
        }
        if matches!(self.role, Role::Discovery(_)) && !self.waits_for_its_disk() {
            self.monitor.lost_election();
        }
        let patience = self.monitor.restart(now, cx.random());
        cx.set_timer(Timer::Election, patience);
        let leaves = self.draining && !self.is_alone();
        if !self.waits_for_its_disk() && !leaves {
            self.elect(cx);
        }
    }

    /// Phase 1: asks who would follow this replica.
    pub(super) fn elect(&mut self, cx: &mut Context<'_, Self>) {
        if !self.is_whole() {
            return;
        }
        self.round += 1;
        self.leader = None;
        let mut tally = self.log.entries.configuration().1.tally();
        let verdict = tally.add(self.me);
        self.role = Role::Candidate { tally, accepted: self.accepted };
        match verdict {
            Verdict::Reached => self.discover(cx),
            Verdict::Pending | Verdict::Already => self.solicit(cx),
        }
    }

    /// Asks those who have not answered (again).
    pub(super) fn solicit(&mut self, cx: &mut Context<'_, Self>) {
        match &self.role {
            Role::Candidate { tally, .. } => {
                let (current, (last_epoch, last_index)) = self.freshness();
                let message = Message::Elect { round: self.round, current, last_epoch, last_index };
                cx.send_all(tally.missing().without(self.me), message);
            }
            Role::Discovery(discovery) => {
                let others = discovery.tally.missing().without(self.me);
                cx.send_all(others, Message::NewEpoch { epoch: self.accepted });
            }
            Role::Follower | Role::Leader(_) => return,
        }
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }

    pub(super) fn on_elect(
        &mut self,
        from: NodeId,
        round: u64,
        candidate: Freshness,
        cx: &mut Context<'_, Self>,
    ) {
        let leads = matches!(self.role, Role::Leader(_)) || self.monitor.has_leader(cx.now());
        let complete = candidate >= self.freshness() || mutation::active("zab/any-leader");
        match complete {
            true => self.fresh_candidates.insert(from),
            false => self.fresh_candidates.remove(from),
        };
        if !leads && complete && self.is_whole() {
            cx.send(from, Message::FollowerEpoch { round, accepted: self.accepted });
        }
    }

    pub(super) fn on_follower_epoch(
        &mut self,
        from: NodeId,
        round: u64,
        theirs: u64,
        cx: &mut Context<'_, Self>,
    ) {
        let Role::Candidate { tally, accepted } = &mut self.role else { return };
        if round == self.round {
            *accepted = theirs.max(*accepted);
            if tally.add(from) == Verdict::Reached {
                self.discover(cx);
            }
        }
    }

    /// Phase 2: proposes an epoch that none of a majority has accepted.
    fn discover(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Candidate { accepted, .. } = self.role else { return };
        self.accept(accepted.max(self.refused_by) + 1, self.me, cx);
        let tally = self.log.entries.configuration().1.tally();
        let histories = BTreeMap::new();
        self.role = Role::Discovery(Discovery { tally, histories, since: cx.now(), durable: false });
        // Its own answer counts when it is durable.
        self.acknowledge_epoch(self.me, cx);
        self.solicit(cx);
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election, patience);
    }

    /// Takes part in no earlier epoch from now on: whatever this replica was in one is over.
    pub(super) fn accept(&mut self, epoch: u64, from: NodeId, cx: &mut Context<'_, Self>) {
        self.stop_leading(cx);
        self.role = Role::Follower;
        (self.accepted, self.accepted_from) = (epoch, Some(from));
        (self.leader, self.log.verified, self.acknowledge) = (None, 0, false);
        if !mutation::active("zab/epoch-not-recorded") {
            self.log.persist(Record::Accepted { epoch, from }, cx);
        }
    }

    pub(super) fn on_new_epoch(&mut self, from: NodeId, epoch: u64, cx: &mut Context<'_, Self>) {
        if epoch < self.accepted {
            return self.refuse(from, cx);
        }
        if epoch > self.accepted {
            self.accept(epoch, from, cx);
            // It is given time to lead, if it has all that this replica has. Whoever lacks something loses its
            // election, and one after the other would keep from standing whom they need.
            if self.fresh_candidates.contains(from) || mutation::active("zab/time-for-anybody") {
                let patience = self.monitor.restart(cx.now(), cx.random());
                cx.set_timer(Timer::Election, patience);
            }
        }
        self.acknowledge_epoch(from, cx);
    }

    fn acknowledge_epoch(&mut self, to: NodeId, cx: &mut Context<'_, Self>) {
        let (current, (last_epoch, last_index)) = self.freshness();
        let granted = self.accepted_from == Some(to) || mutation::active("zab/accept-twice");
        let granted = granted && (self.is_whole() || mutation::active("zab/grants-while-it-rejoins"));
        let (epoch, wall) = (self.accepted, cx.wall());
        cx.send(to, Message::AckEpoch { epoch, granted, current, last_epoch, last_index, wall });
    }

    pub(super) fn on_ack_epoch(
        &mut self,
        from: NodeId,
        granted: bool,
        (current, last): Freshness,
        wall: Wall,
        cx: &mut Context<'_, Self>,
    ) {
        let fresher = !self.is_as_fresh((current, last));
        match &mut self.role {
            Role::Discovery(discovery) => {
                discovery.durable |= from == self.me;
                discovery.histories.insert(from, last);
                if !granted {
                    return;
                }
                if fresher {
                    // It might lack what this follower has helped to commit, and whoever has that is to stand.
                    self.role = Role::Follower;
                    self.monitor.lost_election();
                    let patience = self.monitor.restart(cx.now(), cx.random());
                    cx.set_timer(Timer::Election, patience);
                    return;
                }
                let own = Own::read(self.me, cx);
                let reached = discovery.tally.add(from) == Verdict::Reached;
                let asked = (discovery.since, wall);
                self.walls.hear(from, asked, own, &|wall| self.log.entries.configuration().1.reached(wall));
                if reached {
                    let histories = std::mem::take(&mut discovery.histories);
                    self.begin_to_lead(histories, cx);
                }
            }
            Role::Leader(leading) if from != self.me => {
                let begin = self.log.entries.agree(last.1, last.0).min(last.1);
                leading.replication.peers.entry(from).or_insert_with(|| Progress::new(begin));
            }
            Role::Follower | Role::Candidate { .. } | Role::Leader(_) => {}
        }
    }

    /// Whoever speaks for an epoch that is over, or proposes one that is not new, is told.
    pub(super) fn refuse(&self, from: NodeId, cx: &mut Context<'_, Self>) {
        let epoch = self.accepted;
        cx.send(from, Message::Pong { epoch, sent: Time::ZERO, verified: 0, wall: cx.wall() });
    }

    /// Somebody takes part in a later epoch only.
    pub(super) fn on_refusal(&mut self, epoch: u64, cx: &mut Context<'_, Self>) {
        self.refused_by = self.refused_by.max(epoch);
        self.stop_leading(cx);
        if matches!(self.role, Role::Discovery(_)) {
            self.role = Role::Follower;
        }
    }
}
