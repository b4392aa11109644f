//! Membership: an epoch is a ballot, and its owner states who is live in it, those whose acknowledgements a write
//! needs.
//!
//! Whoever misses the owner and has polled a majority who do, or as the owner misses a member that is live, prepares a
//! ballot. An acceptor promises it when no promise to a reader binds it any more, and takes part in no earlier epoch
//! from then on. Those who have promised become live, a majority of all members at least.
//!
//! **Who is whole.** Each promise tells in which epoch its sender was live last, and whether it was whole there. A
//! write that was committed in an epoch is on the disks of all who were live in it, and some of these, which are a
//! majority, are among those who promise. So of those who promise, whoever was live in the latest of these epochs and
//! whole there has everything that was ever committed, and starts whole; the others start as shadows (`transfer.rs`).
//! If all who were whole are missing, the owner gathers what all have who have promised: a majority, so every committed
//! version is among theirs.

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::quorum::{Tally, Verdict};
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, mutation};

use super::replica::{Replica, Timer};
use super::{Message, Record};

/// An epoch lasts for so many election timeouts at least before one is begun to take somebody in.
const SETTLED: u32 = 4;
/// And for so many as long as there are shadows, which would have to begin anew.
const SHADOWED: u32 = 64;

/// What a replica is to the epochs.
#[derive(Debug)]
pub enum Role {
    /// Follows an owner, or waits for one.
    Member,
    /// Asks whether a majority misses the owner, too.
    Polling { tally: Tally, sent: Time },
    /// Wants to own a new epoch: who has promised, with the last epoch of each, and whether it was whole there.
    Candidate { tally: Tally, last: BTreeMap<NodeId, (Ballot, bool)> },
    /// Owns the epoch.
    Owner(Owner),
}

/// What only an owner has.
#[derive(Debug)]
pub struct Owner {
    since: Time,
    /// When each member was last heard, itself included: that its own disk works.
    heard: BTreeMap<NodeId, Time>,
}

impl Replica {
    pub(super) fn owns(&self) -> bool {
        matches!(self.role, Role::Owner(_))
    }

    pub(super) fn on_election_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if self.owns() {
            return;
        }
        if let Some(rest) = self.monitor.remaining(now).filter(|_| !self.members.is_alone(self.me)) {
            cx.set_timer(Timer::Election, rest);
            return;
        }
        self.is_patient(cx);
        let leaves = self.draining && !self.members.is_alone(self.me);
        if self.waits_for_its_disk() || self.wanted.is_some() || leaves {
            return;
        }
        self.role = Role::Polling { tally: self.members.tally(), sent: now };
        self.on_poll_reply(self.me, now, self.promised, cx);
        self.solicit(cx);
    }

    pub(super) fn on_poll(&mut self, from: NodeId, sent: Time, cx: &mut Context<'_, Self>) {
        if !self.owns() && !self.monitor.has_leader(cx.now()) {
            cx.send(from, Message::PollReply { sent, ballot: self.promised });
        }
    }

    pub(super) fn on_poll_reply(
        &mut self,
        from: NodeId,
        asked: Time,
        ballot: Ballot,
        cx: &mut Context<'_, Self>,
    ) {
        self.seen = self.seen.max(ballot);
        if let Role::Polling { tally, sent } = &mut self.role
            && *sent == asked
            && tally.add(from) == Verdict::Reached
        {
            self.stand(cx);
        }
    }

    /// Whether its own promise to itself is not durable yet: while its disk hangs, it must not go from ballot to
    /// ballot.
    fn waits_for_its_disk(&self) -> bool {
        matches!(&self.role, Role::Candidate { last, .. } if !last.contains_key(&self.me))
    }

    fn is_patient(&mut self, cx: &mut Context<'_, Self>) {
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election, patience);
    }

    /// Wants an epoch of its own.
    pub(super) fn stand(&mut self, cx: &mut Context<'_, Self>) {
        if !self.owns() {
            self.is_patient(cx);
        }
        if !self.waits_for_its_disk() && self.wanted.is_none() {
            self.wanted = Some((self.promised.max(self.seen).next(self.me), true));
            self.leave_when_free(cx);
        }
    }

    pub(super) fn on_prepare(&mut self, from: NodeId, ballot: Ballot, cx: &mut Context<'_, Self>) {
        // Not even its ballot is looked at while an owner is there that works, unless it is the owner who asks.
        let follows = self.owns() || self.monitor.has_leader(cx.now());
        if ballot.node() != Some(from) || from == self.me || (follows && self.promised.node() != Some(from)) {
            return;
        }
        self.seen = self.seen.max(ballot);
        if ballot < self.promised {
            cx.send(from, Message::Refused { ballot: self.promised });
        } else if ballot == self.promised {
            self.promise(from, cx);
        } else {
            self.want(ballot, true, cx);
        }
    }

    fn want(&mut self, ballot: Ballot, promise: bool, cx: &mut Context<'_, Self>) {
        if self.wanted.is_none_or(|(wanted, _)| wanted < ballot) {
            self.wanted = Some((ballot, promise));
        }
        self.leave_when_free(cx);
    }

    /// Promises the ballot that is wanted as soon as no promise to a reader binds this acceptor to the present one.
    pub(super) fn leave_when_free(&mut self, cx: &mut Context<'_, Self>) {
        let Some((wanted, promise)) = self.wanted else { return };
        let now = cx.now();
        let (messages, bound) = self.leases.release(|_| true, now);
        self.leases.say(messages, cx);
        if let Some(until) = bound.filter(|_| !mutation::active("hermes/promise-while-leased")) {
            cx.set_timer(Timer::Free, until.since(now));
            return;
        }
        let owner = wanted.node().expect("a ballot that is wanted has an owner");
        let ballot = if owner == self.me { self.promised.max(self.seen).next(self.me) } else { wanted };
        self.enter(ballot, cx);
        self.is_patient(cx);
        if promise {
            self.promise(owner, cx);
        }
    }

    /// Takes part in no earlier epoch from now on.
    fn enter(&mut self, ballot: Ballot, cx: &mut Context<'_, Self>) {
        assert!(ballot > self.promised, "ballots grow");
        self.leases.note_beliefs_ended(&mut self.reads_until, cx);
        self.leases.give_back(cx);
        self.leases.begin(ballot.number());
        (self.promised, self.seen, self.wanted) = (ballot, self.seen.max(ballot), None);
        cx.persist(Record::Promised(ballot));
        (self.live, self.whole, self.transfer) = (NodeSet::EMPTY, NodeSet::EMPTY, None);
        self.role = Role::Member;
        if ballot.node() == Some(self.me) {
            self.role = Role::Candidate { tally: self.members.tally(), last: BTreeMap::new() };
            self.solicit(cx);
        }
    }

    /// Asks those who have not answered (again).
    pub(super) fn solicit(&mut self, cx: &mut Context<'_, Self>) {
        let (tally, message) = match &self.role {
            Role::Polling { tally, sent } => (tally, Message::Poll { sent: *sent }),
            Role::Candidate { tally, .. } => (tally, Message::Prepare { ballot: self.promised }),
            Role::Member | Role::Owner(_) => return,
        };
        cx.send_all(tally.missing().without(self.me), message);
    }

    fn promise(&self, owner: NodeId, cx: &mut Context<'_, Self>) {
        let (ballot, entered, whole) = (self.promised, self.entered, self.is_whole);
        cx.send(owner, Message::Promise { ballot, entered, whole });
    }

    pub(super) fn on_promise(&mut self, from: NodeId, known: (Ballot, bool), cx: &mut Context<'_, Self>) {
        let me = self.me;
        let Role::Candidate { tally, last } = &mut self.role else { return };
        let enough = |tally: &Tally| tally.reached() && tally.votes().contains(me);
        let had = enough(tally);
        last.insert(from, known);
        tally.add(from);
        if !had && enough(tally) {
            // Far members must be in time: whoever is not is tried again ever more rarely.
            cx.set_timer(Timer::Decide, self.config.timeouts.election / 2);
        }
        self.decide(false, cx);
    }

    /// States who is live: all members, or those who have promised in time.
    pub(super) fn decide(&mut self, in_time: bool, cx: &mut Context<'_, Self>) {
        let Role::Candidate { tally, last } = &self.role else { return };
        let promised = tally.votes();
        let enough = if in_time { tally.reached() } else { tally.missing().is_empty() };
        if !enough || !promised.contains(self.me) {
            return;
        }
        let latest = last.values().map(|(entered, _)| *entered).max().unwrap_or_default();
        let is_whole = |node: &NodeId| match last[node] {
            // Nobody was ever live: all begin with the same.
            _ if latest == Ballot::ZERO => true,
            (entered, whole) => whole && (entered == latest || mutation::active("hermes/whole-before")),
        };
        let whole: NodeSet = promised.iter().filter(is_whole).collect();
        // Those who would hold the others up stay outside if the others are enough.
        let fit = |node: &NodeId| *node == self.me || !self.laggards.contains(*node);
        let fit: NodeSet = promised.iter().filter(fit).collect();
        let late = tally.missing();
        let does = fit.len() >= self.members.voters.majority() && !fit.intersection(whole).is_empty();
        let live = if does { fit } else { promised };
        // Whoever has not promised in time is tried again ever more rarely.
        self.leave_out(late, |_| false, cx.now());
        self.role = Role::Owner(Owner { since: cx.now(), heard: BTreeMap::new() });
        cx.cancel_timer(Timer::Election);
        self.adopt(live, live.intersection(whole), cx);
        self.speak(cx);
    }

    /// The owner shows that it is there.
    pub(super) fn speak(&mut self, cx: &mut Context<'_, Self>) {
        if self.owns() {
            let (ballot, live, whole) = (self.promised, self.live, self.whole);
            cx.send_all(self.members.voters, Message::Heartbeat { ballot, live, whole, sent: cx.now() });
            self.review(cx);
        }
    }

    /// Somebody has promised a later ballot: as the owner or a candidate, this replica cannot have it in its epoch
    /// without one that is later still.
    pub(super) fn on_refused(&mut self, ballot: Ballot, cx: &mut Context<'_, Self>) {
        self.seen = self.seen.max(ballot);
        if ballot > self.promised && matches!(self.role, Role::Candidate { .. } | Role::Owner(_)) {
            self.stand(cx);
        }
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (live, whole): (NodeSet, NodeSet),
        cx: &mut Context<'_, Self>,
    ) {
        let known = live.intersection(self.members.voters) == live && whole.intersection(live) == whole;
        if !known || live.len() < self.members.voters.majority() || ballot.node() != Some(from) {
            return;
        }
        self.seen = self.seen.max(ballot);
        if ballot < self.promised {
            cx.send(from, Message::Refused { ballot: self.promised });
            return;
        }
        if ballot > self.promised {
            // Decided without this replica, which follows as soon as it may.
            self.want(ballot, false, cx);
            if ballot != self.promised {
                return;
            }
        }
        if from != self.me {
            self.monitor.heard(cx.now());
            self.role = Role::Member;
            // Whoever else has asked is not followed while the owner is there.
            self.wanted = self.wanted.filter(|(wanted, _)| wanted.node() == Some(from));
            if self.live.is_empty() {
                self.adopt(live, whole, cx);
            }
            self.whole = self.whole.union(whole);
            self.tend_leases(cx);
        }
        cx.send(from, Message::HeartbeatReply { ballot, whole: self.is_whole && self.is_live() });
    }

    /// It is known who is live in this epoch.
    fn adopt(&mut self, live: NodeSet, whole: NodeSet, cx: &mut Context<'_, Self>) {
        (self.live, self.whole) = (live, whole);
        if !self.is_live() {
            return self.stop_serving(cx);
        }
        let is_back = self.entered == self.promised;
        self.is_whole = whole.contains(self.me) || (is_back && self.is_whole);
        if !is_back || whole.contains(self.me) {
            self.entered = self.promised;
            cx.persist(Record::Entered { ballot: self.entered, whole: self.is_whole });
        }
        let (number, is_whole) = (self.promised.number(), self.is_whole);
        cx.note(|| Fact::Live { number, whole: is_whole });
        self.take_up(cx);
        self.begin_transfer(cx);
        self.leases.ready(self.members.voters, cx);
    }

    pub(super) fn on_heartbeat_reply(&mut self, from: NodeId, whole: bool, now: Time) {
        let Role::Owner(owner) = &mut self.role else { return };
        owner.heard.insert(from, now);
        if whole && self.live.contains(from) {
            self.whole.insert(from);
        }
    }

    /// Begins another epoch if a live member is silent and the others are enough, or if one that was outside is back.
    fn review(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let limit = 2 * self.config.timeouts.election;
        let Role::Owner(owner) = &self.role else { return };
        let silent =
            |node: &NodeId| now.since(owner.heard.get(node).copied().unwrap_or(owner.since)) >= limit;
        let lasts = |times: u32| now.since(owner.since) >= times * self.config.timeouts.election;
        let settled = lasts(SETTLED) && (self.live == self.whole || lasts(SHADOWED));
        let heard = |node: &NodeId| owner.heard.contains_key(node) && !silent(node);
        let alive: NodeSet = self.members.voters.iter().filter(|node| !silent(node)).collect();
        let overdue: NodeSet = self.live.iter().filter(silent).collect();
        let back: NodeSet = self.members.voters.iter().filter(heard).collect();
        self.leave_out(overdue, |node| back.contains(node), now);
        let joins = back.iter().any(|node| !self.live.contains(node) && !self.laggards.contains(node));
        if alive.len() < self.members.voters.majority() || !alive.contains(self.me) {
            self.abdicate(cx);
        } else if !overdue.is_empty() || (joins && settled) {
            self.stand(cx);
        }
    }

    /// Epochs do without these until they are `near` again, and some time has passed.
    fn leave_out(&mut self, nodes: NodeSet, near: impl Fn(NodeId) -> bool, now: Time) {
        let least = self.config.timeouts.election / 2;
        self.laggards.review(nodes.without(self.me), near, least, now);
    }

    /// As the owner: its own disk hangs, or it reaches too few: another may do better.
    pub(super) fn abdicate(&mut self, cx: &mut Context<'_, Self>) {
        self.role = Role::Member;
        self.is_patient(cx);
    }

    /// A member is about to stop: it is to be left out, or followed, before it is missed.
    pub(super) fn on_leave(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        self.leave_out([from].into_iter().collect(), |_| false, cx.now());
        if self.owns() && self.live.contains(from) && self.live.len() > self.members.voters.majority() {
            self.stand(cx);
        } else if self.promised.node() == Some(from) && !self.draining {
            self.monitor.forget();
            if self.live.without(from).iter().next() == Some(self.me) {
                self.stand(cx);
            }
        }
    }
}
