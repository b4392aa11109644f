//! How far nodes are from each other, and the timeouts that follow from it ([`quorate_blocks::reach`]). Nodes ask each
//! other for echoes, as real ones do; and a fault lets one find out that it needs longer timeouts than it has.

use std::time::Duration;

use quorate_blocks::reach::Reach;
use quorate_check::{MILLISECOND, Nanos};
use quorate_core::Class;

use super::impairments::node;
use super::{Cluster, Event, GroupConfigs};
use crate::faults::Kind;

/// From one question to the next; a run is short.
const EVERY: Nanos = 200 * MILLISECOND;

/// How long a node that is to start again goes on.
const FINISHING: std::ops::Range<Nanos> = 0..200 * MILLISECOND;

/// How long a process takes to start again.
const RESTART: std::ops::Range<Nanos> = MILLISECOND..50 * MILLISECOND;

/// A question how far away a node is, or the answer.
#[derive(Clone, Copy)]
pub(crate) struct Echo {
    /// Host and epoch of the sender.
    from: (usize, u64),
    to: usize,
    /// When the question left.
    asked: Nanos,
    answers: bool,
}

impl Cluster {
    /// What the machines are told at a reach.
    pub(super) fn at_reach(&self, reach: Reach) -> &GroupConfigs {
        let others = self.others.as_ref().filter(|_| self.changed);
        &others.unwrap_or(&self.by_reach)[reach.index()]
    }

    /// A node finds out that it needs longer timeouts.
    pub(super) fn need_reach(&mut self, kind: Kind, host: usize) {
        let Some(guard) = self.guard(host) else { return };
        let revision = guard.admission.revision();
        let next = guard.admission.reach().next().filter(|reach| *reach <= Reach::MOST_MEASURED);
        next.into_iter().for_each(|reach| guard.admission.need_reach(reach));
        if guard.admission.revision() > revision {
            self.counts.add(kind);
            self.remember(host);
        }
    }

    /// A node that must start again does so when its clients have had time to finish what they have begun.
    pub(super) fn start_again_if_needed(&mut self, host: usize) {
        let epoch = self.hosts[host].epoch;
        let Some(guard) = self.guard(host).filter(|guard| guard.admission.longer_reach().is_some()) else {
            return;
        };
        if !std::mem::replace(&mut guard.starts_again, true) {
            let at = self.now + self.random.range(FINISHING);
            self.queue.push(at, Event::StartAgain { host, epoch });
        }
    }

    /// A node starts again, with longer timeouts. Others will: service may take longer from now on.
    pub(super) fn start_again(&mut self, host: usize) {
        let reach = self.hosts[host].reach();
        self.trace.line(self.now, &self.hosts[host], || {
            format!("starts again, with timeouts for round trips up to {:?}", reach.round_trip())
        });
        let limits = self.at_reach(reach).limits;
        self.service.widen(limits);
        let down = self.random.range(RESTART);
        self.kill(host, down);
    }

    /// The operator starts a node again, which then has the present settings.
    pub(super) fn reconfigure(&mut self, host: usize) {
        let down = self.random.range(RESTART);
        self.kill(host, down);
    }

    /// A node asks those that it is connected to how far away they are, again and again.
    pub(super) fn measure(&mut self, host: usize) {
        let (epoch, frozen, now) = (self.hosts[host].epoch, self.hosts[host].frozen_until, self.now);
        let Some(guard) = self.guard(host) else { return };
        let others: Vec<_> = guard.up.keys().copied().filter(|_| now >= frozen).collect();
        for to in others {
            self.post_echo(Echo { from: (host, epoch), to, asked: now, answers: false });
        }
        self.queue.push(now + EVERY, Event::Measure { host, epoch });
    }

    fn post_echo(&mut self, echo: Echo) {
        let (link, size) = ((echo.from.0, echo.to), || 64);
        let [first, second] = self.network.send(link, Class::Urgent, self.now, size, &mut self.counts);
        for at in [first, second].into_iter().flatten() {
            self.queue.push(at, Event::Echo(echo));
        }
    }

    /// A question arrives, or an answer.
    pub(super) fn on_echo(&mut self, echo: Echo) {
        let (now, Echo { from: (from, epoch), to, asked, answers }) = (self.now, echo);
        let is_up = self.hosts[from].epoch == epoch && now >= self.hosts[to].frozen_until;
        let own = self.hosts[to].epoch;
        if !is_up || !self.may_send(to, from) {
            return;
        }
        let Some(guard) = self.guard(to) else { return };
        if answers {
            let took = Duration::from_nanos(now - asked);
            guard.admission.on_round_trip(node(from), took, |reach| reach);
            self.trace.mix(now ^ (to as u64) << 8 ^ from as u64);
            self.remember(to);
        } else {
            self.post_echo(Echo { from: (to, own), to: from, asked, answers: true });
        }
    }
}
