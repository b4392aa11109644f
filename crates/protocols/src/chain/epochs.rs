//! How a chain comes to be: the owner of an epoch ([`quorate_blocks::epochs`]) is the head, and states its chain.
//!
//! The chain is made of those who promised the epoch's ballot, a majority at least. An acceptor promises it only if the
//! candidate's log has all that its own has. An entry of an earlier epoch that is committed is on the disks of that
//! epoch's whole chain, so of some member of this one, and therefore in the log of its head.

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::Batch;
use quorate_blocks::epochs::{self, Event};
use quorate_blocks::prefix_log::Progress;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, Wall, mutation};

use super::head::Head;
use super::message::Known;
use super::replica::Replica;
use super::{Message, Record, links};

impl Replica {
    /// Epoch and index of its last entry: logs are compared by these.
    pub(super) fn last(&self) -> (u64, u64) {
        let (index, epoch) = self.log.entries.last();
        (epoch, index)
    }

    pub(super) fn on_epoch(
        &mut self,
        from: NodeId,
        message: epochs::Message<(u64, u64), Known>,
        cx: &mut Context<'_, Self>,
    ) {
        if let epochs::Message::Promise { known, .. } = &message
            && let Some(since) = self.epochs.stands_since().filter(|_| from != self.me)
        {
            self.hear_wall(from, (since, known.wall), cx);
        }
        if let epochs::Message::Rejoin { .. } = &message
            && let Some(peer) = self.links.peers.get_mut(&from)
            && !mutation::active("chain/links-to-a-lost-disk")
        {
            // What it had is lost.
            *peer = Progress::new(self.links.durable);
        }
        let known = self.known(cx);
        let event = self.epochs.on_message(from, message, (self.last(), known), cx);
        self.on_event(event, cx);
    }

    pub(super) fn on_epoch_timer(&mut self, timer: epochs::Timer, cx: &mut Context<'_, Self>) {
        let event = self.epochs.on_timer(timer, self.last(), cx);
        self.on_event(event, cx);
    }

    /// What a promise of this member tells.
    fn known(&self, cx: &Context<'_, Self>) -> Known {
        Known { last_index: self.log.entries.last().0, wall: cx.wall() }
    }

    /// What another's wall clock showed when it answered something that was asked at `sent`.
    pub(super) fn hear_wall(&mut self, from: NodeId, known: (Time, Wall), cx: &Context<'_, Self>) {
        let own = Own::read(self.me, cx);
        let members = &self.epochs.members;
        self.walls.hear(from, known, own, &|wall| members.reached(wall));
    }

    /// Wants an epoch of its own.
    pub(super) fn stand(&mut self, cx: &mut Context<'_, Self>) {
        let event = self.epochs.stand(self.last(), cx);
        self.on_event(event, cx);
    }

    pub(super) fn on_event(&mut self, event: Event<Known>, cx: &mut Context<'_, Self>) {
        match event {
            Event::Nothing => {}
            Event::Free => self.enter(cx),
            Event::Decided(promises) => self.decide(&promises, cx),
            Event::Read(replies) => self.answer(replies),
        }
    }

    /// Takes part in no earlier epoch from now on.
    fn enter(&mut self, cx: &mut Context<'_, Self>) {
        let own = (self.last(), self.known(cx));
        let Replica { epochs, log, leading, .. } = self;
        let led = leading.take().is_some();
        let reads = epochs.enter(
            own,
            |ballot, cx| {
                if led {
                    cx.note(|| Fact::Follows);
                }
                log.persist(Record::Promised(ballot), cx);
            },
            cx,
        );
        (self.log.verified, self.log.behind, self.acknowledge) = (0, false, false);
        self.links = links::begin(0, cx.now());
        self.chain.clear();
        self.take_reads_back();
        self.reads.extend(reads);
    }

    /// States the chain of those who have promised.
    fn decide(&mut self, promises: &BTreeMap<NodeId, Known>, cx: &mut Context<'_, Self>) {
        // Those who would hold the others up come last, and stay outside if the others are enough.
        let last = self.log.entries.last().0;
        let far = |node: NodeId| promises[&node].last_index + (self.config.pipeline as u64) < last;
        let holds_up = |node: NodeId| (self.epochs.laggards.contains(node), far(node));
        let place = |node: NodeId| self.former.iter().position(|other| *other == node).unwrap_or(usize::MAX);
        let mut others: Vec<_> = promises.keys().copied().filter(|node| *node != self.me).collect();
        others.sort_by_key(|node| (holds_up(*node), place(*node), *node));
        let fit = others.iter().filter(|node| holds_up(**node) == (false, false)).count();
        others.truncate(fit.max(self.epochs.members.voters.majority() - 1));
        let began_with = self.began_with.replace(self.log.committed);
        self.in_vain = if began_with == self.began_with { self.in_vain + 1 } else { 0 };
        let mut chain = vec![self.me];
        others.sort_by_key(|node| (place(*node), *node));
        chain.extend(others);
        self.begin_to_lead(chain, cx);
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        chain: Vec<NodeId>,
        (committed, sent): (u64, Time),
        cx: &mut Context<'_, Self>,
    ) {
        let live: NodeSet = chain.iter().copied().collect();
        let valid = live.len() == chain.len() && chain.first() == Some(&from) && from != self.me;
        let may_follow = self.epochs.may_follow(ballot, live);
        if !valid || !may_follow || !self.epochs.is_statement(from, ballot, live) {
            return;
        }
        let event = self.epochs.hear_of(from, ballot, self.last(), cx);
        self.on_event(event, cx);
        if !self.epochs.follow(from, ballot, cx.now()) {
            return;
        }
        if self.chain.is_empty() {
            self.adopt(chain, cx);
        }
        self.commit(committed.min(self.links.durable), cx);
        self.epochs.tend_leases(cx);
        // No chain could have it, or not yet.
        if !self.epochs.is_whole() || self.epochs.is_bound_outside(cx.now()) {
            return;
        }
        let (durable, committed) = (self.links.durable, self.log.committed);
        let (leased, wall) = (self.epochs.leased_until(cx.now()).is_some(), cx.wall());
        cx.send(from, Message::HeartbeatReply { ballot, sent, durable, committed, leased, wall });
    }

    /// The chain of this epoch is known. What an earlier life has stored in it goes on.
    fn adopt(&mut self, chain: Vec<NodeId>, cx: &mut Context<'_, Self>) {
        let number = self.epochs.promised.number();
        cx.note(|| Fact::Chain { number, members: chain.clone() });
        (self.chain, self.former) = (chain.clone(), chain);
        if !self.is_reader() {
            // Their proxies are told whom to ask; as the head, it passes them on.
            self.intake.keep_reads(std::mem::take(&mut self.reads).into_iter());
        }
        if !self.is_head() {
            (self.keeps_intake, self.leaseless_since) = (false, None);
            self.intake.depart(self.chain[0]);
        }
        if mutation::active("chain/links-agree-unseen") && !self.is_head() {
            self.verify_all(cx.now());
        }
        if self.links.durable > 0 {
            self.go_on(cx);
        }
        self.epochs.adopt(self.chain.iter().copied().collect(), self.readers());
        self.epochs.ask_for_leases(cx);
    }

    /// All of the log is the head's of this epoch, and durable.
    fn verify_all(&mut self, now: Time) {
        self.log.verified = self.log.entries.last().0;
        self.links = links::begin(self.log.verified, now);
    }

    /// Becomes the head of the epoch that it has prepared.
    fn begin_to_lead(&mut self, chain: Vec<NodeId>, cx: &mut Context<'_, Self>) {
        let number = self.epochs.promised.number();
        cx.note(|| Fact::Leads { number });
        self.leading = Some(Box::new(Head::new(cx.now())));
        self.walls.begin_to_lead(cx.now(), self.log.state.time());
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
        self.on_heartbeat_timer(cx);
    }
}
