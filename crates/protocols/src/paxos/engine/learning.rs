//! The learner: what is chosen, recorded, executed, fetched from others and installed.

use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::catchup;
use quorate_blocks::coding::spread::ShardSet;
use quorate_blocks::state::Replicated;
use quorate_core::{Context, Fact, Mark, NodeId, Salvaged, digest};

use super::policy::Policy;
use super::replica::{Replica, Role, Timer};
use super::{GRACE, MAX_GAP, Message, Record};
use crate::paxos::engine::slots::Vote;

impl<P: Policy> Replica<P> {
    /// The leader of `ballot` knows all slots up to `committed` to be chosen.
    pub(super) fn on_committed(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        for slot in self.log.commit(ballot, committed) {
            self.batches.on_decided((slot, ballot.number()));
            self.note_chosen(slot, cx);
        }
        self.execute(cx);
        self.review_lacking(cx);
        self.hear_of(from, committed, cx);
    }

    /// Somebody can tell all slots up to `committed`.
    pub(super) fn hear_of(&mut self, from: NodeId, committed: u64, cx: &mut Context<'_, Self>) {
        self.informants.hear(from, committed);
        self.fetch_lacking(cx);
    }

    /// Fetches what is to be fetched: at once what a client waits for.
    pub(super) fn fetch_lacking(&mut self, cx: &mut Context<'_, Self>) {
        match self.log.complete() < self.lacking.fetch.min(self.lacking.awaited) {
            true => self.fetch(cx),
            false => self.fetch_soon(GRACE, cx),
        }
    }

    pub(super) fn note_chosen(&self, slot: u64, cx: &mut Context<'_, Self>) {
        if let Some(vote) = self.log.get(slot).filter(|vote| vote.chosen) {
            cx.note(|| Fact::Chosen { slot, digest: vote.value.digest() });
        }
    }

    pub(super) fn persist(&mut self, record: Record<P::BallotConfig>, cx: &mut Context<'_, Self>) {
        self.persisted = true;
        let slot = match &record {
            Record::Vote { slot, .. } | Record::Learned { slot, .. } => Some(*slot),
            _ => None,
        };
        cx.persist(record);
        slot.into_iter().for_each(|slot| self.note_stored(slot, cx));
    }

    /// What the records so far hold of a slot.
    pub(super) fn note_stored(&self, slot: u64, cx: &mut Context<'_, Self>) {
        let Some(Vote { value, .. }) = self.log.get(slot) else { return };
        let (shards, data) = value.coded().map_or((ShardSet::ALL, 1), |coded| (coded.held(), coded.id.data));
        cx.note(|| Fact::Stored { slot, digest: value.digest(), shards: shards.bits(), data });
    }

    /// From now on, a restart executes at least as much as is executed now.
    pub(super) fn record_committed(&mut self, cx: &mut Context<'_, Self>) {
        if self.recorded < self.log.committed() {
            self.recorded = self.log.committed();
            cx.persist(Record::Committed(self.recorded));
        }
    }

    /// A value is known to be chosen, other than by a commit notice for the own vote.
    pub fn choose(&mut self, slot: u64, value: Bytes, cx: &mut Context<'_, Self>) {
        let ballot = self.promised;
        let is_coded = self.log.get(slot).is_some_and(|vote| vote.value.whole().is_none());
        if self.log.choose(slot, ballot, value.clone().into()) {
            if slot > self.state.applied() {
                self.on_value(slot, &value);
            }
            self.persist(Record::Learned { slot, ballot, value: value.into() }, cx);
        } else if is_coded {
            self.lacking.restored = true;
        }
        self.note_chosen(slot, cx);
    }

    /// Executes what is chosen, in order.
    pub fn execute(&mut self, cx: &mut Context<'_, Self>) {
        while let Some(value) = self.log.chosen(self.state.applied() + 1) {
            let value = value.clone();
            let leads = matches!(self.role, Role::Leader(_));
            let intake = &mut self.intake;
            let effect = |effect| {
                if leads {
                    intake.on_effect(effect);
                }
            };
            let slot = self.state.applied() + 1;
            let requests = self.state.apply(slot, &value, effect, |fact| cx.note(fact));
            if leads {
                cx.mark(Mark::Applied { slot, requests });
            }
            if self.state.configuration().is_some_and(|(at, _)| *at == slot) {
                self.keep_configuration(slot, cx);
                self.publish_configuration(cx);
            }
        }
        for (upto, bytes) in self.source.retention(self.state.applied(), self.config.retain, cx.now()) {
            self.log.retain(upto, bytes);
        }
        self.freshness.executed(self.state.applied());
        self.times.executed(self.state.applied());
        let executed = self.writes.executed(self.state.applied());
        P::on_executed(self, executed, cx);
        self.after_execution(cx);
    }

    /// All own votes, as far as slots without a hole go and values are here whole: a vote may be one of the majority by
    /// which its slot was chosen.
    pub(super) fn execute_votes(&self) -> Salvaged {
        let mut state = Replicated::load(&self.state.freeze()).expect("an image that was made loads");
        let value = |slot| self.log.get(slot).and_then(|vote| vote.value.whole());
        while let Some(value) = value(state.applied() + 1) {
            state.apply(state.applied() + 1, value, |_| {}, |_| {});
        }
        let undecided = state.applied().saturating_sub(self.log.committed());
        let left_out = self.log.votes(state.applied() + 1).count() as u64;
        Salvaged { state: state.freeze(), undecided, left_out }
    }

    // Catch-up ---------------------------------------------------------------------------------------------------

    pub(super) fn fetch_soon(&mut self, after: Duration, cx: &mut Context<'_, Self>) {
        if self.missing_from().is_some() && !self.fetching {
            self.fetching = true;
            cx.set_timer(Timer::Fetch, after);
        }
    }

    pub(super) fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        let Some(from) = self.missing_from() else { return };
        let sources = self.informants.sources(from - 1);
        if let Some((peer, message)) = self.catchup.ask(&sources, from, cx.now()) {
            cx.send(peer, Message::Catchup(message));
        }
        self.fetch_soon(catchup::RETRY, cx);
    }

    pub(super) fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match message {
            catchup::Message::Fetch { from: slot, asked } => {
                let (slot, start) = (slot.max(1), self.log.start());
                if slot > self.log.complete() {
                    return self.on_fetch(from, slot, false, now);
                }
                let answers = match slot < start {
                    true => self.source.on_far_fetch(from, (slot, asked), start, || self.state.offer(), now),
                    false => {
                        let on_its_way = self.on_its_way(from, slot, now).unwrap_or(u64::MAX);
                        if on_its_way <= slot {
                            return;
                        }
                        let values = |slot, bytes| self.log.complete_values(slot..on_its_way, bytes);
                        self.source.on_fetch(from, (slot, asked), values, now)
                    }
                };
                self.answer_fetch(from, slot, answers, cx);
            }
            catchup::Message::More { image, cursor, asked } => {
                let answers = self.source.on_more(from, image, cursor, asked, now);
                self.answer_fetch(from, image.slot + 1, answers, cx);
            }
            catchup::Message::Values { from: first, values, asked } => {
                let complete = self.log.complete();
                let end = first.saturating_add(values.len() as u64);
                let goes_on = (first..end).contains(&(complete + 1));
                self.catchup.on_values(from, asked, goes_on, now);
                for (slot, value) in (first..).zip(values) {
                    let complete = self.log.complete();
                    let chosen = self.log.get(slot).filter(|vote| vote.chosen).map(|vote| &vote.value);
                    if chosen.is_some_and(|chosen| !chosen.is_same(&value.clone().into())) {
                        // Only a peer that lies says so. The simulator is told, where nobody does.
                        cx.note(|| Fact::Chosen { slot, digest: digest(&value) });
                        break;
                    }
                    if slot > complete && slot <= complete + MAX_GAP {
                        self.choose(slot, value, cx);
                    }
                }
                self.execute(cx);
                self.fetch(cx);
            }
            catchup::Message::Piece(piece) => {
                let applied = self.state.applied();
                let ask = |message| cx.send(from, Message::Catchup(message));
                if let Some(state) = self.catchup.on_piece(from, piece, applied, now, ask) {
                    self.install(state, cx);
                }
            }
            catchup::Message::Gone { image } => {
                self.catchup.on_gone(from, image);
                self.fetch(cx);
            }
        }
    }

    /// Tells a replica what it misses from this slot on, or pieces of a snapshot behind which that slot comes.
    fn answer_fetch(
        &mut self,
        to: NodeId,
        slot: u64,
        answers: Vec<catchup::Message>,
        cx: &mut Context<'_, Self>,
    ) {
        self.on_fetch(to, slot, answers.iter().any(catchup::Message::has_more), cx.now());
        answers.into_iter().for_each(|answer| cx.send(to, Message::Catchup(answer)));
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        let slot = state.applied();
        if slot <= self.state.applied() {
            return;
        }
        self.persisted = true;
        cx.persist_state(Record::Installed(slot));
        self.lacking.restored = false;
        self.state = state;
        self.log.install(slot);
        self.policy.on_installed(slot);
        self.intake.on_installed();
        cx.note(|| Fact::Installed { slot });
        if self.state.configuration().is_some_and(|(at, _)| *at > self.configuration.0) {
            self.publish_configuration(cx);
        }
        self.execute(cx);
        self.fetch(cx);
    }
}
