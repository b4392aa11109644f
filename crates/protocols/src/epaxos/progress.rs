//! How far the replicas are: what is missed, what nobody needs any more, what has to be recovered.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{Context, Fact, NodeId, NodeSet, Wall};
use quorate_parts::ballot::Ballot;
use quorate_parts::batch::Entry;
use quorate_parts::catchup;
use quorate_parts::graph::{Frontier, Graph, Instance};
use quorate_parts::state::Replicated;

use super::instance::Held;
use super::message::{Progress, Record};
use super::replica::{Replica, Timer};
use super::{MAX_GAP, Message, RETRANSMIT};

/// Bytes that answer one `Ask`, about.
const ANSWER_BYTES: usize = 1 << 20;
/// Instances of one owner that are looked after at once.
const LOOK_AHEAD: u64 = 64;
/// Recoveries that are under way at once.
const RECOVERIES: usize = 32;
/// Keys that expire together.
const EXPIRE: usize = 128;
/// Own instances whose dependencies are remembered one by one.
const UNFINISHED: usize = 4096;

impl Replica {
    /// What all members have executed, as far as is known.
    pub(super) fn stable(&self) -> Frontier {
        let own = self.state.executed().prefix();
        self.peers.values().fold(own, |stable, peer| stable.intersection(&peer.progress.executed))
    }

    /// See [`Progress`].
    pub(super) fn floor(&self) -> Frontier {
        self.unfinished.iter().fold(self.stable(), |floor, (_, deps)| floor.intersection(deps))
    }

    pub(super) fn tell_progress(&self, to: NodeSet, cx: &mut Context<'_, Self>) {
        let (executed, collected) = (self.state.executed().prefix(), self.collected);
        cx.send_all(to, Message::Progress(Progress { executed, collected, floor: self.floor() }));
    }

    pub(super) fn on_progress(&mut self, from: NodeId, progress: Progress, cx: &mut Context<'_, Self>) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.heard = Some(cx.now());
        let last = &mut peer.progress;
        last.executed = last.executed.union(&progress.executed);
        last.collected = last.collected.union(&progress.collected);
        last.floor = last.floor.union(&progress.floor);
        for owner in self.config.members.iter() {
            // Not further than this one follows.
            let near = self.committed.of(owner).saturating_add(MAX_GAP);
            let index = progress.executed.of(owner).min(near);
            self.known.set(owner, self.known.of(owner).max(index));
        }
    }

    pub(super) fn on_tick(&mut self, cx: &mut Context<'_, Self>) {
        cx.set_timer(Timer::Tick, self.config.heartbeat);
        let stable = self.stable();
        while self.unfinished.pop_front_if(|(index, _)| *index <= stable.of(self.me)).is_some() {}
        while self.unfinished.len() > UNFINISHED {
            let (_, deps) = self.unfinished.pop_front().expect("there are many");
            let next = self.unfinished.front_mut().expect("there are many");
            next.1 = next.1.intersection(&deps);
        }
        self.tell_progress(self.others(), cx);
        self.repeat(cx);
        self.look_after(cx);
        self.collect(cx);
        self.let_expire(cx);
    }

    /// Finds what does not get on: asks for it, and recovers it in the end.
    fn look_after(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let mut missing = BTreeMap::new();
        let mut waited = false;
        for owner in self.config.members.iter() {
            let (first, last) = (self.committed.of(owner) + 1, self.known.of(owner));
            for index in first..=last.min(first + LOOK_AHEAD) {
                let instance = Instance::new(owner, index);
                let decided = self.state.executed().contains(instance)
                    || self.table.get(&instance).is_some_and(Held::is_committed);
                if decided {
                    continue;
                }
                if let Some(duty) = self.duties.get(&instance) {
                    // Others may be past it.
                    waited |= now.since(duty.since) >= RETRANSMIT;
                    continue;
                }
                let patience = self.patience(instance);
                let until = match self.stuck.get(&instance) {
                    Some(until) => *until,
                    None if owner == self.me && self.is_orphan(instance) => now,
                    None => now + cx.random().between(patience, 2 * patience),
                };
                waited |= self.stuck.contains_key(&instance);
                missing.insert(instance, until);
            }
        }
        let ahead = self.peers.iter().filter(|(_, peer)| !peer.progress.executed.within(&self.committed));
        let sources = ahead.map(|(node, _)| *node).filter(|_| waited).collect();
        let late = missing.iter().filter(|(_, until)| **until <= now).map(|(instance, _)| *instance);
        let under_way = self.duties.values().filter(|duty| duty.ballot != Ballot::ZERO).count();
        let late: Vec<_> = late.take(RECOVERIES.saturating_sub(under_way)).collect();
        self.stuck = missing;
        for instance in late {
            self.stuck.remove(&instance);
            self.recover_instance(instance, cx);
        }
        self.ask(sources, cx);
    }

    /// Whether an earlier life of this replica left it, and nobody is at work on it.
    fn is_orphan(&self, own: Instance) -> bool {
        self.table.get(&own).is_some_and(|held| held.state.ballot == Ballot::ZERO)
    }

    /// How long to wait before an instance is recovered, at least. Longer after each attempt of anybody: those who
    /// try at the same time get into each other's way.
    pub(super) fn patience(&self, instance: Instance) -> Duration {
        let attempts = self.table.get(&instance).map_or(0, |held| held.state.ballot.rounds());
        self.config.recovery * (1 << attempts.min(5))
    }

    /// Asks one of these for what is missing; for a snapshot, if it has nothing else.
    fn ask(&mut self, sources: NodeSet, cx: &mut Context<'_, Self>) {
        let sources: Vec<_> = sources.iter().collect();
        // The answer may be long, and on its way.
        if sources.is_empty() || self.asked.is_some_and(|at| cx.now().since(at) < RETRANSMIT) {
            return;
        }
        let source = *cx.random().pick(&sources);
        if self.peers[&source].progress.collected.within(&self.committed) {
            self.asked = Some(cx.now());
            cx.send(source, Message::Ask { committed: self.committed });
        } else if let Some((peer, message)) = self.catchup.ask(source, self.wanted + 1, cx.now()) {
            cx.send(peer, Message::Catchup(message));
        }
    }

    pub(super) fn on_ask(&mut self, from: NodeId, committed: Frontier, cx: &mut Context<'_, Self>) {
        let mut bytes = 0;
        for (&instance, held) in &self.table {
            if committed.contains(instance) || !held.is_committed() {
                continue;
            }
            if bytes >= ANSWER_BYTES {
                return cx.send(from, Message::Answered { more: true });
            }
            self.tell(from, instance, cx);
            bytes += held.bytes();
        }
        cx.send(from, Message::Answered { more: false });
    }

    /// That was all, or there is more where it came from.
    pub(super) fn on_answered(&mut self, from: NodeId, more: bool, cx: &mut Context<'_, Self>) {
        if self.asked.take().is_some() && more {
            self.ask([from].into_iter().collect(), cx);
        }
    }

    pub(super) fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match message {
            catchup::Message::Fetch { from: count } => {
                let answer = self.source.on_far_fetch(count, count, &self.state, now);
                cx.send(from, Message::Catchup(answer));
            }
            catchup::Message::More { slot, cursor } => {
                let answer = self.source.on_more(slot, cursor, now);
                cx.send(from, Message::Catchup(answer));
            }
            catchup::Message::Piece { slot, cursor, bytes, next } => {
                let ask = |message| cx.send(from, Message::Catchup(message));
                if let Some(state) = self.catchup.on_piece(from, (slot, cursor, bytes, next), 0, now, ask) {
                    self.install(state, cx);
                }
            }
            catchup::Message::Gone { slot } => self.catchup.on_gone(from, slot),
            catchup::Message::Values { .. } => {}
        }
    }

    /// Takes a snapshot over, if what it lacks is still here to be executed again.
    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        self.wanted = state.applied();
        let brings = state.executed().prefix();
        if !self.collected.within(&brings) || brings.within(&self.committed) {
            return;
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
        self.committed = self.committed.union(&executed.prefix());
        self.collected = self.collected.union(&hull);
        self.known = self.known.union(&hull);
        self.forgotten = self.forgotten.union(&hull);
        self.seen.miss(&hull);
        self.duties.retain(|instance, _| self.table.contains_key(instance));
        self.waits.retain(|instance, _| !hull.contains(*instance));
        cx.persist_state(Record::Installed);
        let slot = self.state.applied();
        cx.note(|| Fact::Installed { slot });
        self.graph = Graph::default();
        self.resume(waiting, cx);
        // What came of the writes here is in the session table, if they were not replaced by no-ops: they are asked
        // again. Reads need another instance.
        self.intake.retire();
        let here = |instance: &Instance| self.table.contains_key(instance);
        let gone = self.reads.extract_if(.., |instance, _| !here(instance)).flat_map(|(_, reads)| reads);
        gone.for_each(|read| self.queue.again(read));
    }

    /// Forgets what nobody needs from here any more.
    fn collect(&mut self, cx: &mut Context<'_, Self>) {
        self.source.retention(0, 0, cx.now());
        let safe =
            self.peers.values().fold(self.floor(), |safe, peer| safe.intersection(&peer.progress.floor));
        let mut upto = safe;
        if self.bytes > self.config.retain {
            upto = upto.union(&self.kept_by_a_majority());
        }
        self.settled.retain(|instance, _| !safe.contains(*instance));
        if upto.within(&self.collected) {
            return;
        }
        let Replica { table, state, settled, bytes, .. } = self;
        table.retain(|instance, held| {
            let goes = upto.contains(*instance) && state.executed().contains(*instance);
            if goes {
                *bytes -= held.bytes().min(*bytes);
                if !safe.contains(*instance) && !held.state.noop {
                    settled.insert(*instance, std::mem::take(&mut held.touched));
                }
            }
            !goes
        });
        self.collected = self.collected.union(&upto.intersection(&self.state.executed().prefix()));
        self.bound(&safe);
    }

    /// What this and enough others to be a majority have executed, if it has executed all that they say they have.
    fn kept_by_a_majority(&self) -> Frontier {
        let own = self.state.executed().prefix();
        let others = self.peers.values().map(|peer| peer.progress.executed);
        let mut behind: Vec<_> = others.filter(|executed| executed.within(&own)).collect();
        behind.sort_unstable_by_key(|executed| std::cmp::Reverse(executed.len()));
        match behind.get(..self.config.members.majority() - 1) {
            Some(nearest) => nearest.iter().fold(own, |kept, executed| kept.intersection(executed)),
            None => Frontier::default(),
        }
    }

    /// Keeps the memory of who touched what within its limit.
    fn bound(&mut self, safe: &Frontier) {
        if self.seen.len() > self.config.keys {
            self.seen.forget(safe);
        }
        if self.seen.len() > 2 * self.config.keys {
            self.seen.forget(&self.state.executed().prefix());
        }
        let mut keys: usize = self.settled.values().map(|touched| touched.len() + 1).sum();
        while keys > 4 * self.config.keys {
            let (instance, touched) = self.settled.pop_first().expect("there are keys");
            keys -= touched.len() + 1;
            self.forgotten.add(instance);
        }
    }

    /// Proposes the end of keys whose time is up; one replica after the other, so that mostly one does.
    fn let_expire(&mut self, cx: &mut Context<'_, Self>) {
        let rank = self.config.members.iter().position(|node| node == self.me).unwrap_or(0) as u64;
        let wait = rank * 2 * self.config.heartbeat.as_millis() as u64;
        let wall = Wall::from_millis(cx.wall().millis().saturating_sub(wait));
        let busy = self.expiring > self.state.executed().prefix().of(self.me);
        if busy || self.draining || self.state.next_expiry().is_none_or(|at| at > wall) {
            return;
        }
        self.extra = vec![Entry::Expire { keys: self.state.overdue(wall, EXPIRE) }];
        self.expiring = self.next;
    }
}
