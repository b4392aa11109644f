//! How a learner that is behind gets what it misses: decisions while a peer still has them, else a snapshot.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::catchup;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_blocks::state::Replicated;
use quorate_core::{Context, Fact, NodeId, Time, mutation};

use super::asking::Asking;
use super::image::{self, Executed, Remembered};
use super::message::{Host, Message, Progress, Record};
use super::{Learner, MAX_GAP};
use crate::epaxos::graph::{Graph, InstanceState};

/// Bytes that answer one `Ask`, about.
pub(super) const ANSWER_BYTES: usize = 1 << 20;

impl Learner {
    /// A peer's learner speaks. Whether instances have gone because a snapshot came.
    pub fn on_message<M: Host>(&mut self, from: NodeId, message: Message, cx: &mut Context<'_, M>) -> bool {
        match message {
            Message::Ask { committed } => {
                let mut bytes = 0;
                let beyond = self.table.iter().filter(|(instance, _)| !committed.contains(**instance));
                for (&instance, held) in beyond.filter(|(_, held)| held.is_committed()) {
                    if bytes >= ANSWER_BYTES {
                        cx.send(from, Message::Answered { more: true }.into());
                        return false;
                    }
                    bytes += tell_decision(from, (instance, held), &mut self.asking, cx);
                }
                cx.send(from, Message::Answered { more: false }.into());
            }
            Message::Answered { more } => {
                if self.asking.on_answer(self.committed) && more {
                    self.ask_one_of(vec![from], cx);
                }
            }
            Message::Progress(progress) if from == self.me => {
                self.durable = cx.now();
                self.watermarks.on_own_progress(&progress);
            }
            Message::Progress(progress) => self.on_progress(from, progress, cx),
            Message::Catchup(message) => return self.on_catchup(from, message, cx),
            Message::Rejoin { life, union } => self.on_rejoin(from, life, union, cx),
            Message::RejoinReply { life, known } => self.on_rejoin_reply(from, life, known),
            Message::ClockRequest(request) => {
                cx.send(from, Message::ClockReply { request, wall: cx.wall() }.into());
            }
            Message::ClockReply { request, wall } => self.on_clock_reply(from, request, wall, cx),
        }
        false
    }

    fn on_progress<M: Host>(&mut self, from: NodeId, progress: Progress, cx: &mut Context<'_, M>) {
        if !self.watermarks.on_progress(from, &progress, cx.now()) {
            return;
        }
        self.expect_near(&progress.executed);
        if !mutation::active("learner/follows-no-barrier") {
            self.raise_barrier(progress.barrier);
        }
    }

    /// These exist, as a peer says: not further than this replica follows.
    pub(super) fn expect_near(&mut self, heard: &Frontier) {
        for owner in self.config.members.iter() {
            let near = self.committed.of(owner).saturating_add(MAX_GAP);
            let index = heard.of(owner).min(near);
            self.known.set(owner, self.known.of(owner).max(index));
        }
    }

    /// Tells somebody who asks about an instance that it is committed. If it is executed and no longer here, that one
    /// needs a snapshot.
    pub fn tell<M: Host>(&mut self, to: NodeId, instance: Instance, cx: &mut Context<'_, M>) {
        match self.table.get(&instance) {
            Some(held) => {
                tell_decision(to, (instance, held), &mut self.asking, cx);
            }
            None => cx.send(to, Message::Progress(self.progress()).into()),
        }
    }

    /// Whether to answer somebody who recovers an instance in this ballot, with so many bytes of its batch: they are
    /// few, or cannot be on their way.
    pub fn should_send(&mut self, to: NodeId, at: (Instance, Ballot), bytes: usize, now: Time) -> bool {
        self.asking.should_send(to, at, bytes, now)
    }

    /// Something is missing and does not come: asks somebody who has it.
    pub fn ask<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        if self.asking.is_due(cx.now()) {
            self.ask_one_of(self.watermarks.ahead_of(&self.committed, cx.now()), cx);
        }
    }

    /// Whether an instance's batch is large; one that is not here is taken for large where others are.
    pub fn may_be_large(&self, instance: Instance, now: Time) -> bool {
        let is_large = self.table.get(&instance).and_then(InstanceState::is_large);
        is_large.unwrap_or_else(|| self.asking.are_large(now))
    }

    /// A batch has come from its owner, of so many bytes.
    pub fn on_batch(&mut self, bytes: usize, now: Time) {
        self.asking.on_batch(bytes, now);
    }

    /// Asks one of these for what is missing; for a snapshot, if it has nothing else.
    fn ask_one_of<M: Host>(&mut self, sources: Vec<NodeId>, cx: &mut Context<'_, M>) {
        if sources.is_empty() {
            return;
        }
        let source = *cx.random().pick(&sources);
        let has_it = |node: NodeId| self.watermarks.peer(node).collected.within(&self.committed);
        if has_it(source) {
            self.asking.ask(self.committed, cx.now());
            cx.send(source, Message::Ask { committed: self.committed }.into());
            return;
        }
        let others = sources.iter().copied().filter(|node| *node != source && !has_it(*node));
        let far: Vec<_> = std::iter::once(source).chain(others).collect();
        if let Some((peer, message)) = self.catchup.ask(&far, self.wanted.saturating_add(1), cx.now()) {
            cx.send(peer, Message::Catchup(message).into());
        }
    }

    fn on_catchup<M: Host>(
        &mut self,
        from: NodeId,
        message: catchup::Message,
        cx: &mut Context<'_, M>,
    ) -> bool {
        let now = cx.now();
        match message {
            catchup::Message::Fetch { from: count, asked } => {
                let mut source = std::mem::take(&mut self.source);
                let freeze = || image::offer(&self.state, self.remembered());
                let answers = source.on_far_fetch(from, (count, asked), count, freeze, now);
                self.source = source;
                answers.into_iter().for_each(|answer| cx.send(from, Message::Catchup(answer).into()));
            }
            catchup::Message::More { image, cursor, asked } => {
                let answers = self.source.on_more(from, image, cursor, asked, now);
                answers.into_iter().for_each(|answer| cx.send(from, Message::Catchup(answer).into()));
            }
            catchup::Message::Piece(piece) => {
                let ask = |message| cx.send(from, Message::Catchup(message).into());
                let whole = self.catchup.on_piece(from, piece, 0, now, ask);
                return whole.is_some_and(|(state, remembered)| self.install(state, remembered, cx));
            }
            catchup::Message::Gone { image } => self.catchup.on_gone(from, image),
            catchup::Message::Values { .. } => {}
        }
        false
    }

    /// What a replica that takes this state over must know of executed instances besides: batches that may not be
    /// collected yet, and what a recovery may still ask about those that are.
    fn remembered(&self) -> Remembered {
        let safe = self.watermarks.safe();
        let collected = self.collected.union(&safe).union(&self.kept_by_a_majority());
        let mut remembered = Remembered { touched: self.settled.clone(), collected, batches: Vec::new() };
        for (&instance, held) in &self.table {
            if !self.is_executed(instance) {
                continue;
            }
            if !collected.contains(instance) {
                let value = held.value().expect("what is executed is known");
                remembered.batches.push(Executed { instance, value, deps: held.state.deps });
            } else if !held.state.noop && !safe.contains(instance) {
                remembered.touched.add(instance, &held.touched);
            }
        }
        remembered
    }

    /// Whether an own instance is executed there that this replica has not proposed. Nobody says so who can be
    /// trusted, unless a previous life of this replica has proposed it.
    fn is_ahead_of_me(&self, state: &Replicated) -> bool {
        self.is_whole() && state.executed().hull().of(self.me) >= self.next
    }

    /// Takes a snapshot over, if what it lacks is still here to be executed again. A snapshot hides no-ops: a replica
    /// that learns from one that its own instance became one does not know what it lost.
    ///
    /// What this replica has executed and collected is in the snapshot (`collected` is within it), so the traces that
    /// come with the snapshot take the place of its own, and of what it had forgotten. The batches that come with it
    /// are as if they had been executed here.
    fn install<M: Host>(
        &mut self,
        state: Replicated,
        remembered: Remembered,
        cx: &mut Context<'_, M>,
    ) -> bool {
        self.wanted = state.applied();
        let brings = state.executed().prefix();
        if !self.collected.within(&brings) || brings.within(&self.committed) || self.is_ahead_of_me(&state) {
            return false;
        }
        let old = std::mem::replace(&mut self.state, state);
        let graph = std::mem::take(&mut self.graph);
        let durable = |instance: &Instance| graph.contains(*instance) || old.executed().contains(*instance);
        // What this replica has decided and not recorded yet comes back to it.
        let executed = self.state.executed();
        let mut waiting = Vec::new();
        self.table.retain(|instance, held| {
            let keep = !executed.contains(*instance);
            if keep && held.is_committed() && durable(instance) {
                waiting.push(*instance);
            }
            keep
        });
        let hull = executed.hull();
        let Remembered { touched, collected, batches } = remembered;
        match mutation::active("learner/takes-the-state-alone") {
            true => self.collected = self.collected.union(&hull),
            false => {
                self.collected = self.collected.union(&collected.intersection(&executed.prefix()));
                let own = batches.into_iter().filter(|batch| executed.contains(batch.instance));
                self.table.extend(own.filter_map(Executed::held));
            }
        }
        self.committed = self.committed.union(&executed.prefix());
        self.known = self.known.union(&hull);
        if !self.is_whole() {
            self.next = self.next.max(hull.of(self.me) + 1);
        }
        match mutation::active("learner/no-traces") {
            true => self.settled.miss(&hull),
            false => self.settled = touched,
        }
        self.seen.miss(&hull);
        self.base = self.base.union(&executed.prefix());
        cx.persist_state(Record::Installed);
        let slot = self.state.applied();
        cx.note(|| Fact::Installed { slot });
        self.graph = Graph::default();
        self.resume(waiting, cx);
        self.requests.retire(|instance| !self.state.executed().contains(*instance));
        true
    }
}

/// Tells somebody that an instance is decided: without its large batch if that may be on its way. Returns about how
/// many bytes that takes.
fn tell_decision<M: Host>(
    to: NodeId,
    (instance, held): (Instance, &InstanceState),
    asking: &mut Asking,
    cx: &mut Context<'_, M>,
) -> usize {
    let value = held.value();
    let bytes = value.as_ref().map_or(0, Bytes::len);
    let brings = asking.should_send(to, (instance, Ballot::ZERO), bytes, cx.now());
    cx.send(to, M::commit(instance, value.filter(|_| brings), held.state.deps));
    if brings { held.bytes() } else { held.bytes() - bytes }
}
