//! Candidates, and the acceptors that promise their ballots.

use std::collections::BTreeMap;

use quorate_core::{Context, NodeId, NodeSet, Time, mutation};

use super::{
    Candidate, Embeds, Epochs, Event, Evidence, Message, Owner, Polling, Position, Role, Timer, Wanted,
};
use crate::ballot::Ballot;
use crate::clients::PendingRead;
use crate::quorum::Verdict;

impl<P: Position, K: Evidence> Epochs<P, K> {
    pub(super) fn on_election_timer<M: Embeds<P, K>>(&mut self, own: P, cx: &mut Context<'_, M>) -> Event<K> {
        if self.owns() {
            return Event::Nothing;
        }
        if let Some(rest) = self.monitor.remaining(cx.now()).filter(|_| !self.members.is_alone(self.me)) {
            cx.set_timer(Timer::Election.into(), rest);
            return Event::Nothing;
        }
        self.poll(own, cx)
    }

    /// Asks whether a majority misses the owner, before it takes a ballot: who is alone with that disturbs nobody.
    fn poll<M: Embeds<P, K>>(&mut self, own: P, cx: &mut Context<'_, M>) -> Event<K> {
        if let Role::Candidate(_) = self.role {
            self.monitor.lost_election();
        }
        self.restart_patience(cx);
        let leaves = (self.draining && !self.members.is_alone(self.me)) || !self.is_whole();
        if self.waits_for_its_disk() || self.wanted.is_some() || leaves {
            return Event::Nothing;
        }
        if mutation::active("epochs/no-poll") {
            return self.stand(own, cx);
        }
        let sent = cx.now();
        self.role = Role::Polling(Polling { tally: self.members.tally(), sent });
        let event = self.on_poll_reply(self.me, (sent, self.promised), own, cx);
        self.solicit(own, cx);
        event
    }

    pub(super) fn on_poll<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        sent: Time,
        (position, own): (P, P),
        cx: &mut Context<'_, M>,
    ) {
        if !self.owns() && !self.monitor.has_leader(cx.now()) && covers(Some(position), own) {
            cx.send(from, Message::PollReply { sent, ballot: self.promised }.into());
        }
    }

    pub(super) fn on_poll_reply<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        (sent, ballot): (Time, Ballot),
        own: P,
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        self.seen = self.seen.max(ballot);
        if let Role::Polling(polling) = &mut self.role
            && polling.sent == sent
            && polling.tally.add(from) == Verdict::Reached
        {
            return self.stand(own, cx);
        }
        Event::Nothing
    }

    /// Whether its own promise to itself is not durable yet: while its disk hangs, it must not go from ballot to
    /// ballot.
    fn waits_for_its_disk(&self) -> bool {
        matches!(&self.role, Role::Candidate(candidate) if !candidate.promises.contains_key(&self.me))
    }

    pub(super) fn restart_patience<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) {
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election.into(), patience);
    }

    /// Wants an epoch of its own.
    pub fn stand<M: Embeds<P, K>>(&mut self, own: P, cx: &mut Context<'_, M>) -> Event<K> {
        if !self.owns() {
            self.restart_patience(cx);
        }
        if self.waits_for_its_disk() || self.wanted.is_some() || !self.is_whole() {
            return Event::Nothing;
        }
        self.want(Wanted { ballot: self.next(), position: Some(own) }, own, cx)
    }

    fn next(&self) -> Ballot {
        self.promised.max(self.seen).next(self.me)
    }

    /// Asks those who have not answered (again). While a candidate with a majority waits for others, those who have
    /// promised hear that it is there: nobody else stands meanwhile.
    pub fn solicit<M: Embeds<P, K>>(&mut self, position: P, cx: &mut Context<'_, M>) {
        let (to, message) = match &self.role {
            Role::Polling(Polling { tally, sent }) => {
                (tally.missing(), Message::Poll { sent: *sent, position })
            }
            Role::Candidate(candidate) => {
                let waits = candidate.enough.is_some() && !candidate.stalled;
                let to = match waits && !mutation::active("epochs/silent-candidate") {
                    true => self.members.voters,
                    false => candidate.tally.missing(),
                };
                if waits {
                    self.monitor.stands_for_election(cx.now());
                }
                (to, Message::Prepare { ballot: self.promised, position })
            }
            Role::Member | Role::Owner(_) => return,
        };
        cx.send_all(to.without(self.me), message.into());
    }

    /// Since when it has been a candidate, if it is one.
    pub fn stands_since(&self) -> Option<Time> {
        if let Role::Candidate(candidate) = &self.role { Some(candidate.since) } else { None }
    }

    /// As a candidate that waits for more promises than those of a majority, which it has: these.
    pub fn stalled(&self) -> Option<&BTreeMap<NodeId, K>> {
        match &self.role {
            Role::Candidate(candidate) if candidate.stalled => Some(&candidate.promises),
            _ => None,
        }
    }

    pub(super) fn on_promise<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        known: K,
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        let Role::Candidate(candidate) = &mut self.role else { return Event::Nothing };
        candidate.promises.insert(from, known);
        candidate.tally.add(from);
        let enough = candidate.tally.reached() && candidate.tally.votes().contains(self.me);
        if enough && candidate.enough.is_none() {
            candidate.enough = Some(cx.now());
            cx.set_timer(Timer::Decide.into(), self.timeouts.heartbeat);
        }
        self.decide(false, cx)
    }

    /// Owns the epoch when all have promised, or all of those that are known to work; or else those who have promised
    /// in time. Another epoch would soon be begun for one that works and whose promise comes a little later.
    pub(super) fn decide<M: Embeds<P, K>>(&mut self, in_time: bool, cx: &mut Context<'_, M>) -> Event<K> {
        let Role::Candidate(candidate) = &mut self.role else { return Event::Nothing };
        let (promised, now) = (candidate.tally.votes(), cx.now());
        let late: NodeSet = candidate.awaited.iter().filter(|node| !promised.contains(*node)).collect();
        let all = match candidate.awaited.is_empty() {
            true => candidate.tally.missing().is_empty(),
            false => late.is_empty(),
        };
        let waited = in_time || all || candidate.stalled;
        let Some(enough) = candidate.enough.filter(|_| waited) else { return Event::Nothing };
        // Whoever is far needs two round trips: before it promises, it takes back the leases that it has granted. Later
        // writes would wait for it as long.
        let short = mutation::active("epochs/short-wait");
        let wait = if short { self.timeouts.election / 2 } else { 2 * self.timeouts.election };
        let rest = wait.saturating_sub(now.since(enough));
        if !late.is_empty() && !rest.is_zero() {
            cx.set_timer(Timer::Decide.into(), rest);
            return Event::Nothing;
        }
        if !K::suffices(self.members.voters, &candidate.promises) {
            candidate.stalled = true;
            return Event::Nothing;
        }
        let promises = std::mem::take(&mut candidate.promises);
        self.leave_out(late, now);
        self.monitor.won_election();
        self.role = Role::Owner(Owner { since: now, heard: BTreeMap::new() });
        cx.cancel_timer(Timer::Election.into());
        Event::Decided(promises)
    }

    // Acceptors --------------------------------------------------------------------------------------------------

    pub(super) fn on_prepare<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        (ballot, position): (Ballot, P),
        (own, known): (P, K),
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        // Not even its ballot is looked at while an owner is there that works, unless it is the owner who asks.
        let follows = self.owns() || self.monitor.has_leader(cx.now());
        if ballot.node() != Some(from) || from == self.me || (follows && self.promised.node() != Some(from)) {
            return Event::Nothing;
        }
        self.seen = self.seen.max(ballot);
        if ballot < self.promised {
            cx.send(from, Message::Refused { ballot: self.promised }.into());
        } else if ballot == self.promised {
            self.monitor.heard(cx.now());
            cx.send(from, Message::Promise { ballot, known }.into());
        } else if covers(Some(position), own) {
            return self.want(Wanted { ballot, position: Some(position) }, own, cx);
        }
        Event::Nothing
    }

    pub(super) fn want<M: Embeds<P, K>>(
        &mut self,
        wanted: Wanted<P>,
        own: P,
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        if self.wanted.is_none_or(|other| other.ballot < wanted.ballot) {
            self.wanted = Some(wanted);
        }
        self.leave_when_free(own, cx)
    }

    /// Promises the ballot that is wanted as soon as no promise to a reader binds this acceptor to the present one.
    pub(super) fn leave_when_free<M: Embeds<P, K>>(&mut self, own: P, cx: &mut Context<'_, M>) -> Event<K> {
        let Some(wanted) = self.wanted else { return Event::Nothing };
        let now = cx.now();
        let (messages, bound) = self.leases.release(|_| true, now);
        self.leases.say(messages, cx);
        if let Some(until) = bound.filter(|_| !mutation::active("epochs/promise-while-leased")) {
            cx.set_timer(Timer::Free.into(), until.since(now));
            return Event::Nothing;
        }
        let lacks = wanted.ballot.node() != Some(self.me) && !covers(wanted.position, own);
        if lacks && !mutation::active("epochs/own-log-has-grown") {
            // The own log has grown meanwhile.
            self.wanted = None;
            return Event::Nothing;
        }
        Event::Free
    }

    /// Promises the ballot that is wanted: takes part in no earlier epoch from now on, and promises no later one of
    /// another before its owner has had an election timeout to state the epoch. `persist` records it. Reads that are to
    /// be executed again: what is asked in a later epoch tells nothing of them.
    #[must_use]
    pub fn enter<M: Embeds<P, K>>(
        &mut self,
        (own, known): (P, K),
        persist: impl FnOnce(Ballot, &mut Context<'_, M>),
        cx: &mut Context<'_, M>,
    ) -> Vec<PendingRead> {
        let wanted = self.wanted.take().expect("a ballot is wanted");
        let owner = wanted.ballot.node().expect("a ballot that is wanted has an owner");
        let ballot = if owner == self.me { self.next() } else { wanted.ballot };
        assert!(ballot > self.promised, "ballots grow");
        self.give_leases_back(cx);
        self.leases.begin(ballot.number());
        persist(ballot, cx);
        let (awaited, since) = (self.awaited(cx.now()), cx.now());
        (self.promised, self.seen) = (ballot, self.seen.max(ballot));
        (self.live, self.readers) = (NodeSet::EMPTY, NodeSet::EMPTY);
        self.role = Role::Member;
        if owner == self.me {
            let (tally, promises) = (self.members.tally(), BTreeMap::new());
            let candidate = Candidate { tally, promises, awaited, since, enough: None, stalled: false };
            self.role = Role::Candidate(candidate);
            self.solicit(own, cx);
        }
        self.restart_patience(cx);
        if owner != self.me && !mutation::active("epochs/promises-taken-back") {
            // Its owner has time to state it.
            self.monitor.heard(cx.now());
        }
        if wanted.position.is_some() {
            cx.send(owner, Message::Promise { ballot, known }.into());
        }
        self.take_reads()
    }

    /// Whose promises are to be waited for, if that is known: what the owner of the last epoch has seen to work.
    fn awaited(&self, now: Time) -> NodeSet {
        match &self.role {
            _ if mutation::active("epochs/late-promises") => NodeSet::EMPTY,
            Role::Owner(_) => {
                let works = |node: &NodeId| !self.laggards.contains(*node);
                self.alive(now).iter().filter(works).chain([self.me]).collect()
            }
            Role::Candidate(candidate) => candidate.awaited,
            Role::Member | Role::Polling(_) => NodeSet::EMPTY,
        }
    }

    /// Somebody has promised a later ballot: as the owner or a candidate, this member cannot have it in its epoch
    /// without one that is later still.
    pub(super) fn on_refused<M: Embeds<P, K>>(
        &mut self,
        ballot: Ballot,
        own: P,
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        self.seen = self.seen.max(ballot);
        if ballot > self.promised && matches!(self.role, Role::Candidate(_) | Role::Owner(_)) {
            return self.stand(own, cx);
        }
        Event::Nothing
    }
}

/// Whether a log that ends here has everything that the own log has; a majority has said so of one that is in force.
fn covers<P: Ord>(position: Option<P>, own: P) -> bool {
    position.is_none_or(|position| position >= own) || mutation::active("epochs/any-candidate")
}
