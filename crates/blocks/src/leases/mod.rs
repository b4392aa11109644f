//! All leases of one replica ([`lease`]): those it grants, each to one other, and those it
//! holds, each from one other, all under one number. Leader leases are those that everybody grants to one; roster
//! leases those that everybody grants to all (Bodega §3.3).
//!
//! A number is left in two steps: first everything granted under it is given back or has ended ([`Leases::release`]),
//! then the next one begins ([`Leases::begin`]). Whoever holds a majority's promises under a number therefore knows
//! that no majority is in a later one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{Context, Fact, Machine, NodeId, NodeSet, Sample, Time, mutation};

use crate::leases::lease::{Grantee, Grantor, LeaseConfig, Message};
use crate::membership::Configuration;

pub mod lease;
pub mod record;

/// See the file comment.
#[derive(Debug)]
pub struct Leases {
    me: NodeId,
    config: LeaseConfig,
    /// Random: the first guard, and the nonces before the first one.
    first: u64,
    number: u64,
    /// Kept for good: they number their grantings.
    grantors: BTreeMap<NodeId, Grantor>,
    /// Kept as long as the number: they number their nonces.
    grantees: BTreeMap<NodeId, Grantee>,
    /// All has been given back: nothing is believed any more before another number begins.
    closed: bool,
    /// After a restart: promises of the earlier incarnation may bind until then.
    bound_until: Time,
}

/// What has changed with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Nothing that matters to anybody else.
    Nothing,
    /// What this replica believes.
    Belief,
    /// It has promised something.
    Promise,
    /// A promise of its has just been given back.
    Freed,
}

impl Leases {
    /// Neither grants nor holds any. `restarted`: an earlier incarnation may have promised anything, until a while
    /// after `now`. `first` is random.
    pub fn new(
        me: NodeId,
        config: LeaseConfig,
        restarted: bool,
        first: u64,
        number: u64,
        now: Time,
    ) -> Leases {
        let bound_until = if restarted { now + config.restart_wait() } else { now };
        let (grantors, grantees) = (BTreeMap::new(), BTreeMap::new());
        Leases { me, config, first, number, grantors, grantees, closed: false, bound_until }
    }

    /// Until when an earlier incarnation's promises may bind.
    pub fn bound_until(&self) -> Time {
        self.bound_until
    }

    // Granting ---------------------------------------------------------------------------------------------------

    /// Called now and then: starts, renews and repeats promises to these, and takes those to others back.
    pub fn grant(&mut self, to: NodeSet, safety_threshold: u64, now: Time) -> Vec<(NodeId, Message)> {
        let mut out = Vec::new();
        for node in to.without(self.me).iter() {
            let (config, first) = (self.config, self.first);
            let grantor = self.grantors.entry(node).or_insert_with(|| Grantor::new(config, first));
            out.extend(grantor.tend(self.number, safety_threshold, now).map(|message| (node, message)));
        }
        for (&node, grantor) in self.grantors.iter_mut().filter(|(node, _)| !to.contains(**node)) {
            out.extend(grantor.revoke(now).map(|message| (node, message)));
        }
        out
    }

    /// Takes promises back, of those to whom `whom` says. Until when the last of the others binds, if one does.
    pub fn release(
        &mut self,
        whom: impl Fn(NodeId) -> bool,
        now: Time,
    ) -> (Vec<(NodeId, Message)>, Option<Time>) {
        if mutation::active("leases/forgotten-at-a-higher-number") {
            self.grantors.clear();
        }
        let mut out = Vec::new();
        let mut bound = Some(self.bound_until).filter(|until| now < *until);
        for (&node, grantor) in self.grantors.iter_mut().filter(|(node, _)| whom(**node)) {
            out.extend(grantor.revoke(now).map(|message| (node, message)));
            bound = bound.max(grantor.bound(now));
        }
        (out, bound)
    }

    /// Until when a promise binds, the last of those to others than these.
    pub fn bound(&mut self, kept: NodeSet, now: Time) -> Option<Time> {
        let others = self.grantors.iter_mut().filter(|(node, _)| !kept.contains(**node));
        others.filter_map(|(_, grantor)| grantor.bound(now)).max()
    }

    /// A grantee that deserves a promise has guarded itself: the first renewal; or what it was promised is asked back,
    /// if it was restarted since.
    fn on_ready(
        &mut self,
        from: NodeId,
        (number, nonce): (u64, u64),
        safety_threshold: u64,
        now: Time,
    ) -> Option<Message> {
        if number != self.number || from == self.me {
            return None;
        }
        let (config, first) = (self.config, self.first);
        let grantor = self.grantors.entry(from).or_insert_with(|| Grantor::new(config, first));
        grantor.on_ready(number, nonce, safety_threshold, now)
    }

    /// Whether a grantee's words are about a promise; what to say next, and whether that promise has just ended.
    fn on_reply(&mut self, from: NodeId, message: &Message, now: Time) -> (Option<Message>, bool) {
        match self.grantors.get_mut(&from) {
            Some(grantor) => grantor.on_reply(message, now),
            None => (None, false),
        }
    }

    /// Who may believe in a promise of this replica, or come to by what is on its way; `None`: anybody.
    pub fn granted(&mut self, now: Time) -> Option<NodeSet> {
        if now < self.bound_until {
            return None;
        }
        let granting =
            self.grantors.iter_mut().filter_map(|(&node, one)| one.is_granting(now).then_some(node));
        Some(granting.collect())
    }

    /// Which granting to one is under way or in force.
    pub fn granting(&mut self, to: NodeId, now: Time) -> Option<u64> {
        self.grantors.get_mut(&to).and_then(|grantor| grantor.granting(now))
    }

    /// Begins under another number: what was believed under the last one counts no more.
    pub fn begin(&mut self, number: u64) {
        self.number = number;
        self.grantees.clear();
        self.closed = false;
    }

    fn grantee(&mut self, from: NodeId) -> &mut Grantee {
        let first = self.first;
        self.grantees.entry(from).or_insert_with(|| Grantee::new(first))
    }

    // Holding ----------------------------------------------------------------------------------------------------

    /// Asks these for promises, which they may not know to be wanted.
    pub fn ready<M: Machine<Message: From<Message>>>(&mut self, from: NodeSet, cx: &mut Context<'_, M>) {
        for node in from.without(self.me).iter() {
            let number = self.number;
            if let Some(message) = self.grantee(node).ready(number, cx.now()) {
                cx.send(node, message.into());
            }
        }
    }

    /// Believes nothing any more under this number, and says so: nobody need ask for it back.
    pub fn give_back<M: Machine<Message: From<Message>>>(&mut self, cx: &mut Context<'_, M>) {
        let before = mutation::active("leases/given-back-and-believed").then(|| self.grantees.clone());
        self.closed = before.is_none();
        for (&node, grantee) in &mut self.grantees {
            if let Some(message) = grantee.give_back(self.number) {
                cx.send(node, message.into());
            }
        }
        if let Some(before) = before {
            self.grantees = before;
        }
    }

    /// A grantor speaks; `holds`: this replica takes promises at the moment. The answer, and whether what is believed
    /// may have changed.
    fn on_grant(
        &mut self,
        from: NodeId,
        message: &Message,
        holds: bool,
        now: Time,
    ) -> (Option<Message>, bool) {
        let (Message::Guard { number, .. } | Message::Renew { number, .. } | Message::Revoke { number, .. }) =
            message
        else {
            return (None, false);
        };
        let revokes = matches!(message, Message::Revoke { .. });
        if holds && *number == self.number && (!self.closed || revokes) {
            let config = self.config;
            let grantee = self.grantee(from);
            return (grantee.on_message(message, &config, now), true);
        }
        match *message {
            // Nothing of that number is believed any more.
            Message::Revoke { number, guard } if number != self.number => {
                (Some(Message::RevokeReply { number, guard }), false)
            }
            Message::Revoke { .. } => {
                let config = self.config;
                let reply = self.grantee(from).on_message(message, &config, now);
                (reply, true)
            }
            _ => (None, false),
        }
    }

    /// What is believed of one: the granting and its safety threshold.
    pub fn held_from(&self, node: NodeId, now: Time) -> Option<(u64, u64)> {
        self.grantees.get(&node).and_then(|grantee| grantee.held(now))
    }

    /// Until when promises of a majority are believed, counting itself, if they are.
    pub fn held(&self, configuration: &Configuration, now: Time) -> Option<Time> {
        configuration.reached(|node| match node == self.me {
            true => Some(Time::from_nanos(u64::MAX)),
            false => self.grantees.get(&node).and_then(|grantee| grantee.believed(now)),
        })
    }

    /// The slot up to which everything must be known to whoever holds a majority's promises: the smallest that a
    /// majority of their thresholds does not exceed. `own`: the last slot that this replica had accepted anything in
    /// when it began under this number.
    pub fn safety_threshold(&self, configuration: &Configuration, own: u64, now: Time) -> Option<u64> {
        if mutation::active("leases/threshold-ignored") {
            return Some(0);
        }
        let safety_threshold = configuration.reached(|node| match node == self.me {
            true => Some(Reverse(own)),
            false => self.grantees.get(&node).and_then(|grantee| grantee.safety_threshold(now)).map(Reverse),
        });
        safety_threshold.map(|Reverse(safety_threshold)| safety_threshold)
    }

    // The conversation -------------------------------------------------------------------------------------------

    /// Sends these, and tells checkers what is promised with them.
    pub fn say<M: Machine<Message: From<Message>>>(
        &mut self,
        messages: Vec<(NodeId, Message)>,
        cx: &mut Context<'_, M>,
    ) {
        for (to, message) in messages {
            cx.send(to, message.into());
            self.note_promise(to, cx);
        }
    }

    /// A grantor or a grantee speaks. `holds`: this replica takes promises at the moment. `deserves`: the sender
    /// deserves one, with this safety threshold.
    pub fn on_message<M: Machine<Message: From<Message>>>(
        &mut self,
        from: NodeId,
        message: &Message,
        (holds, deserves): (bool, Option<u64>),
        cx: &mut Context<'_, M>,
    ) -> Changed {
        let now = cx.now();
        match message {
            Message::Guard { .. } | Message::Renew { .. } | Message::Revoke { .. } => {
                let (reply, changed) = self.on_grant(from, message, holds, now);
                reply.into_iter().for_each(|reply| cx.send(from, reply.into()));
                if changed {
                    cx.note(|| self.belief(from, now));
                    return Changed::Belief;
                }
            }
            &Message::Ready { number, nonce } => {
                let answer = deserves
                    .and_then(|safety_threshold| self.on_ready(from, (number, nonce), safety_threshold, now));
                if let Some(answer) = answer {
                    self.say(vec![(from, answer)], cx);
                    return Changed::Promise;
                }
            }
            Message::GuardReply { .. } | Message::RenewReply { .. } | Message::RevokeReply { .. } => {
                let (next, freed) = self.on_reply(from, message, now);
                next.into_iter().for_each(|next| cx.send(from, next.into()));
                self.note_promise(from, cx);
                if freed {
                    return Changed::Freed;
                }
            }
        }
        Changed::Nothing
    }

    /// Tells checkers that nothing which is believed under this number is acted upon any more. `reads_until`: until
    /// when they were told that reads are answered from the own state.
    pub fn note_beliefs_ended<M: Machine>(&self, reads_until: &mut Option<Time>, cx: &mut Context<'_, M>) {
        let (now, number) = (cx.now(), self.number);
        for from in self.grantees.keys().copied() {
            cx.note(|| Fact::Believes { from, number, until: now });
        }
        if reads_until.take().is_some() {
            cx.note(|| Fact::ReadsLocally { number, until: now });
        }
    }

    fn note_promise<M: Machine>(&mut self, to: NodeId, cx: &mut Context<'_, M>) {
        if let Some(fact) = self.promise(to, cx.now()) {
            cx.note(|| fact);
        }
    }

    // For people -------------------------------------------------------------------------------------------------

    /// Promises in force; `majority`: until when promises of one are believed, if they are.
    pub fn samples(&self, majority: Option<Time>, now: Time) -> [Sample; 4] {
        let held = self.grantees.values().filter(|grantee| grantee.believed(now).is_some()).count();
        let granted = self.grantors.values().filter(|grantor| grantor.promises(now)).count();
        // A group of one has nobody to wait for.
        let rest = majority
            .filter(|until| until.nanos() < u64::MAX)
            .map_or(Duration::ZERO, |until| until.since(now));
        [
            Sample::gauge("leases_held", held, "Other members whose promises are believed."),
            Sample::gauge("leases_granted", granted, "Other members that a promise binds to."),
            Sample::gauge("lease_seconds", rest, "For how long a majority's promises hold if not renewed."),
            Sample::gauge(
                "lease_bound_seconds",
                self.bound_until.since(now),
                "For how long promises from before the restart may bind.",
            ),
        ]
    }

    // For checkers -----------------------------------------------------------------------------------------------

    /// What this replica has promised to another, if it ever has anything.
    fn promise(&mut self, to: NodeId, now: Time) -> Option<Fact> {
        let bound = self.grantors.get_mut(&to)?.bound(now);
        // What an earlier incarnation promised still binds for a while.
        let until = bound.unwrap_or(now).max(self.bound_until).max(now);
        Some(Fact::Promised { to, number: self.number, until })
    }

    /// What this replica believes of another.
    fn belief(&self, from: NodeId, now: Time) -> Fact {
        let until = self.grantees.get(&from).and_then(|grantee| grantee.believed(now)).unwrap_or(now);
        Fact::Believes { from, number: self.number, until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A majority's promises under one number say nothing of a later one.
    #[test]
    fn what_was_believed_under_one_number_is_not_believed_under_the_next() {
        let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("an id"));
        let ms = Duration::from_millis;
        let config = LeaseConfig { guard: ms(100), lease: ms(100), drift: ms(4) };
        let mut leases = Leases::new(me, config, false, 7, 5, Time::ZERO);
        let voters = [me, other].into_iter().collect();
        let configuration = Configuration { voters, ..Configuration::default() };
        let is_held = |leases: &Leases| {
            let held = leases.held(&configuration, Time::ZERO).is_some();
            assert_eq!(held, leases.held_from(other, Time::ZERO).is_some());
            held
        };
        let guard = Message::Guard { number: 5, guard: 1, safety_threshold: 0 };
        let (Some(Message::GuardReply { nonce, .. }), _) = leases.on_grant(other, &guard, true, Time::ZERO)
        else {
            panic!("a guard is answered")
        };
        let renew = Message::Renew { number: 5, guard: 1, nonce, seq: 1, safety_threshold: 0 };
        assert!(!is_held(&leases), "it is only guarded");
        leases.on_grant(other, &renew, true, Time::ZERO);
        assert!(is_held(&leases));
        leases.begin(6);
        assert!(!is_held(&leases));
        leases.on_grant(other, &renew, true, Time::ZERO);
        assert!(!is_held(&leases), "a renewal that comes late");
    }
}
