//! Everything a replica of the EPaxos family does about instances apart from deciding them: it keeps what is known of
//! each, opens its own for what clients ask, executes what is decided when its turn has come and answers, catches up,
//! and forgets what nobody needs. The protocol decides: it reads and changes the instances' variables
//! ([`entry`](Learner::entry)), has them [recorded](Learner::record), and says what is
//! [committed](Learner::commit).
//!
//! | file | what |
//! |---|---|
//! | [`message`] | what learners say, and records |
//! | `requests.rs` | the clients' side: batches of writes and reads, expiry, replies |
//! | `gc_watermarks.rs` | how far everybody is, and what may therefore be forgotten |
//! | `asking.rs` | how often others are asked for what is missing |
//! | `catchup.rs` | missed decisions and snapshots |
//! | `clock.rs` | the time of a batch |
//! | `progress.rs` | telling others how far this one is, and collecting what nobody needs |
//! | `forgetting.rs` | forgetting what executed instances touch although a member is away |
//! | `founding.rs` | groups that begin with a state, and what is left of one |
//! | `rejoin.rs` | a member that lost its disk, until it takes part again |
//! | `image.rs` | a snapshot for another: the state, and what a recovery may still ask about it |
//!
//! - *An index is durable before its batch leaves* (the protocol's first message waits for the disk), so an index has
//!   one batch, and there are no gaps but those of lost messages.
//! - *An owner stops proposing while `pipeline` of its instances are not executed.* Then everything that is under way
//!   gets committed, and the components of the graph close: their size is bounded, and nothing starves.
//! - *What is collected early* ([`gc_watermarks`]), because a replica is away for long and `retain` is full, leaves
//!   behind traces: who touched each key and session last ([`Conflicts`]). They go with a snapshot to others. When they
//!   are too many (`keys`), a majority agrees to forget (`forgetting.rs`). A replica says what it has forgotten when it
//!   judges an instance.
//! - *Messages may be wrong*: whatever they say, nothing here panics. Numbers in them are bounded when they are
//!   decoded, and what contradicts what is known for certain is dropped.
//! - *What others depend on exists*, also if nothing else was ever heard of it: its owner may be gone for good, and
//!   nobody but those who learn a decision that depends on it can find out what became of it.

mod asking;
mod catchup;
mod clock;
mod forgetting;
mod founding;
mod gc_watermarks;
mod image;
pub mod message;
mod progress;
mod rejoin;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::batch::Batch;
use quorate_blocks::catchup::{Catchup, Source};
use quorate_blocks::instance::{Frontier, Instance, OWNERS};
use quorate_blocks::rejoin::check_group;
use quorate_blocks::settings::{self, IntakeConfig};
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::Walls;
use quorate_core::{
    Context, Fact, Group, Instant, Mark, NodeId, NodeSet, REJOINING, Saved, Settings, SettingsError, Status,
    Time, digest, mutation,
};

use self::asking::Asking;
use self::forgetting::Forgetting;
use self::gc_watermarks::GcWatermarks;
use self::image::LearnerLoading;
pub use self::message::{Host, Message, Record};
use self::rejoin::Standing;
use self::requests::Requests;
use super::instance_state::{InstanceState, State};
use super::{Conflicts, Graph, Interference};

/// A replica takes note of nothing further than this above what it knows to be committed: it is too far behind to help.
pub(in crate::epaxos) const MAX_GAP: u64 = 1 << 14;
/// A replica whose disk has written nothing for this long sends its clients to others.
const HUNG: Duration = Duration::from_secs(2);
/// Undecided instances of one owner that are looked after at once.
pub(in crate::epaxos) const LOOK_AHEAD: u64 = 64;

/// What a learner is told.
#[derive(Clone, Debug)]
pub struct LearnerConfig {
    /// Everybody.
    pub members: NodeSet,
    /// As in [`Group`].
    pub rejoining: bool,
    /// How often a replica tells how far it is.
    pub heartbeat: Duration,
    /// What is taken in.
    pub intake: IntakeConfig,
    /// Own instances that may be proposed and not executed.
    pub pipeline: u64,
    /// Bytes of executed batches to keep for replicas that are behind, when they cannot be awaited.
    pub retain: usize,
    /// Keys to remember, each time in who touched them last and in what was collected early.
    pub keys: usize,
}

impl LearnerConfig {
    /// `heartbeat`, `pipeline`, `log.retain`, `conflicts.keys`, and what [`settings::intake`] knows.
    pub fn new(group: &Group, settings: &mut Settings) -> Result<LearnerConfig, SettingsError> {
        let (members, rejoining) = (group.members, group.rejoining);
        check_group(group)?;
        if let Some(node) = members.iter().find(|node| usize::from(node.get()) > OWNERS) {
            let text = format!("instances are those of nodes 1 to {OWNERS}; there is a node {node}");
            return Err(SettingsError::Conflict(text));
        }
        let meaning = "Keys of which a replica remembers who touched them last";
        Ok(LearnerConfig {
            members,
            rejoining,
            heartbeat: settings::heartbeat(settings)?,
            intake: settings::intake(settings)?,
            pipeline: settings.number("pipeline", 64, 1..=4096, "Own instances under way, at most")?,
            retain: settings::retain(settings)?,
            keys: settings.number("conflicts.keys", 1 << 17, 1..=1 << 24, meaning)? as usize,
        })
    }

    /// How many may fail.
    pub fn f(&self) -> usize {
        (self.members.len() - 1) / 2
    }
}

/// See the module's comment.
#[derive(Debug)]
pub struct Learner {
    config: LearnerConfig,
    me: NodeId,
    /// What is known of instances that are not collected.
    table: BTreeMap<Instance, InstanceState>,
    /// Bytes in it.
    bytes: usize,
    graph: Graph,
    state: Replicated,
    requests: Requests,
    /// Who touched what last.
    seen: Conflicts,
    /// Who touched what last of those that are collected, as far as a recovery may ask.
    settled: Conflicts,
    forgetting: Forgetting,
    collected: Frontier,
    /// Up to here all are committed.
    committed: Frontier,
    /// Up to here some were heard of.
    known: Frontier,
    /// The index of the next own instance.
    next: u64,
    /// All own instances depend on this from now on.
    base: Frontier,
    /// Below everybody's floor, at the last heartbeat.
    safe: Frontier,
    standing: Standing,
    watermarks: GcWatermarks,
    /// When something that waits for the own disk came last.
    durable: Time,
    /// The others' wall clocks.
    walls: Walls,
    /// Whose are known: `walls` does not show it to the explorer.
    clocks: NodeSet,
    /// A random number: answers to requests of an earlier life of this replica do not count.
    life: u64,
    catchup: Catchup<LearnerLoading>,
    source: Source,
    /// How much the last snapshot that came had executed: the next must be another.
    wanted: u64,
    /// When others may be asked for what is missing.
    asking: Asking,
}

impl Learner {
    /// Back from what was saved.
    pub fn recover<M: Host>(config: LearnerConfig, saved: Saved<Record>, cx: &mut Context<'_, M>) -> Learner {
        let me = cx.me().replica().expect("a replica's process id");
        let state =
            saved.snapshot.map(|image| Replicated::load(&image).expect("an image that was saved loads"));
        let state = state.unwrap_or_default();
        let hull = state.executed().hull();
        let mut learner = Learner {
            me,
            table: BTreeMap::new(),
            bytes: 0,
            graph: Graph::default(),
            requests: Requests::new(me, config.intake.clone()),
            seen: Conflicts::default(),
            settled: Conflicts::default(),
            forgetting: Forgetting::default(),
            collected: Frontier::default(),
            committed: state.executed().prefix(),
            known: hull,
            next: hull.of(me) + 1,
            base: hull,
            safe: Frontier::default(),
            standing: Standing::Original,
            watermarks: GcWatermarks::new(config.members.without(me).iter(), cx.now()),
            durable: cx.now(),
            walls: Walls::default(),
            clocks: NodeSet::EMPTY,
            life: cx.random().u64(),
            catchup: Catchup::default(),
            source: Source::default(),
            wanted: 0,
            asking: Asking::default(),
            state,
            config,
        };
        saved.records.into_iter().for_each(|record| learner.replay(record));
        learner.start_rejoining(cx);
        learner.seen.miss(&hull);
        let slot = learner.state.applied();
        cx.note(|| Fact::Installed { slot });
        let held = learner.table.iter().filter(|(_, held)| held.is_committed());
        let decided = held.map(|(instance, _)| *instance).collect();
        learner.resume(decided, cx);
        learner.begin_barrier();
        learner.requests.restart();
        learner.tell_progress(cx);
        learner.ask_clocks(cx);
        learner
    }

    fn replay(&mut self, record: Record) {
        match record {
            Record::Changed { instance, state, command } => {
                let held = self.table.entry(instance).or_default();
                held.state = state;
                if let Some(command) = command {
                    held.learn(&command);
                    held.recorded = true;
                }
                if instance.owner() == self.me && instance.index() >= self.next {
                    self.next = instance.index() + 1;
                    self.watermarks.begin(instance.index(), state.init.unwrap_or_default());
                }
            }
            Record::Installed => {}
            Record::Saved { next, collected, floor } => {
                (self.next, self.collected) = (next.max(self.next), collected);
                self.watermarks.begin(next - 1, floor);
            }
            Record::Settled { totals, traces } => self.settled.merge(&totals, traces),
            Record::Rejoining => self.standing = Standing::Rejoining(self.rejoin()),
            Record::Rejoined { last } => self.replay_rejoined(last),
        }
    }

    /// Goes on at a start, or after a snapshot was installed: these are decided.
    fn resume<M: Host>(&mut self, decided: Vec<Instance>, cx: &mut Context<'_, M>) {
        self.bytes = self.table.values().map(InstanceState::bytes).sum();
        for (instance, held) in &self.table {
            self.known.add(*instance);
            if !held.state.noop && held.command.is_some() {
                self.seen.add(*instance, &held.touched);
            }
        }
        for instance in decided {
            let held = &self.table[&instance];
            let deps = held.state.deps;
            note_decided(instance, held, cx);
            self.expect_all(&deps);
            self.graph.decide(instance, deps, self.state.executed());
        }
        self.execute_decided(cx);
        self.config.members.iter().for_each(|owner| self.advance(owner));
    }

    /// Everything, for a restart.
    pub fn save(&self) -> Saved<Record> {
        let (next, collected, floor) = (self.next, self.collected, self.floor());
        let mut records: Vec<_> = self.standing_record().into_iter().collect();
        records.push(Record::Saved { next, collected, floor });
        records.extend(self.settled_records());
        for (&instance, held) in &self.table {
            let (state, command) = (held.state, held.command.clone());
            records.push(Record::Changed { instance, state, command });
        }
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records }
    }

    // Instances ------------------------------------------------------------------------------------------------------

    /// What is known of an instance.
    pub fn get(&self, instance: Instance) -> Option<&InstanceState> {
        self.table.get(&instance)
    }

    /// What is known of an instance, to change it.
    pub fn entry(&mut self, instance: Instance) -> &mut InstanceState {
        self.table.entry(instance).or_default()
    }

    /// Whether it was executed here.
    pub fn is_executed(&self, instance: Instance) -> bool {
        self.state.executed().contains(instance)
    }

    /// Whether to take note of what is said about this instance: it is not executed, not too far ahead, and not an own
    /// one that does not exist yet.
    pub fn admits(&mut self, instance: Instance) -> bool {
        let owner = instance.owner();
        let near = instance.index() <= self.committed.of(owner).saturating_add(MAX_GAP);
        let exists = owner != self.me || !self.is_whole() || instance.index() < self.next;
        let admits = near && exists && self.config.members.contains(owner) && !self.is_executed(instance);
        if admits {
            self.known.add(instance);
        }
        admits
    }

    /// These exist, as somebody says: they are looked after if they stay undecided.
    pub fn expect(&mut self, instances: &[Instance]) {
        for instance in instances {
            self.admits(*instance);
        }
    }

    /// Records how an instance is now, and its batch with it the first time. What is proposed later and interferes will
    /// depend on it.
    pub fn record<M: Host>(&mut self, instance: Instance, cx: &mut Context<'_, M>) {
        let held = self.table.get_mut(&instance).expect("what changes is in the table");
        held.check(instance);
        let fresh = !held.recorded && held.command.is_some();
        if fresh {
            held.recorded = true;
            self.bytes += held.bytes();
        }
        if !held.state.noop {
            self.seen.add(instance, &held.touched);
        }
        let command = held.command.clone().filter(|_| fresh);
        cx.persist(Record::Changed { instance, state: held.state, command });
    }

    /// What an instance depends on, as far as is known here, and all that it may depend on because it is forgotten or
    /// behind the barrier.
    pub fn interfering(&self, instance: Instance) -> Frontier {
        self.seen.with(&self.table[&instance].touched)
    }

    /// Instances that interfere with this one and are not in `deps`, with what is known of each: nothing of those that
    /// were executed and are collected, and of these only the last of each owner.
    pub fn beyond(
        &self,
        instance: Instance,
        deps: Frontier,
    ) -> impl Iterator<Item = (Instance, Option<&State>)> {
        let touched = &self.table[&instance].touched;
        let beyond = move |other: Instance, touches: &Interference| {
            other != instance && !deps.contains(other) && touches.with(touched)
        };
        let held = self.table.iter().filter(move |(other, held)| beyond(**other, &held.touched));
        // Who is named here speaks against the instance: none that may not interfere.
        let settled = self.settled.surely_with(touched).lasts_beyond(deps);
        held.map(|(other, held)| (*other, Some(&held.state))).chain(settled.map(|other| (other, None)))
    }

    /// Instances that are heard of and not decided, the first few of each owner.
    pub fn undecided(&self) -> Vec<Instance> {
        let of = |owner| {
            let (first, mut last) = (self.committed.of(owner) + 1, self.known.of(owner));
            if owner == self.me && self.is_whole() {
                last = last.min(self.next - 1);
            }
            (first..=last.min(first + LOOK_AHEAD)).map(move |index| Instance::new(owner, index))
        };
        self.config.members.iter().flat_map(of).filter(|instance| !self.is_decided(*instance)).collect()
    }

    fn is_decided(&self, instance: Instance) -> bool {
        self.is_executed(instance) || self.table.get(&instance).is_some_and(InstanceState::is_committed)
    }

    /// Sends a value, a no-op or the batch, to these: without the batch to those who have it. Returns the message with
    /// the batch.
    pub fn spread<M: Host>(
        &self,
        (instance, noop): (Instance, bool),
        (members, knowing): (NodeSet, NodeSet),
        message: impl Fn(Option<Bytes>) -> M::Message,
        cx: &mut Context<'_, M>,
    ) -> M::Message {
        let batch = || self.table.get(&instance)?.command.clone();
        let whole = if noop { Batch::noop() } else { batch().expect("proposed by whoever knows it") };
        let whole = message(Some(whole));
        let knowing = if noop { NodeSet::EMPTY } else { members.intersection(knowing) };
        cx.send_all(knowing, message(None));
        let others = members.iter().filter(|node| !knowing.contains(*node)).collect();
        cx.send_all(others, whole.clone());
        whole
    }

    /// This replica, and those that were heard lately.
    pub fn present(&self, now: Time) -> NodeSet {
        self.watermarks.present(now).union(NodeSet::from_iter([self.me]))
    }

    /// Whether the own disk hangs: no word to itself that waits for the disk has come for long. Others can serve the
    /// clients of this replica then.
    fn is_hung(&self, now: Time) -> bool {
        now.since(self.durable) >= HUNG && !mutation::active("learner/serves-without-a-disk")
    }

    // Clients --------------------------------------------------------------------------------------------------------

    /// Opens an own instance for what clients have asked, if they have, and returns it with its batch and dependencies.
    /// Not before the clocks of a majority are known: by a wrong one, keys would expire too early, or never.
    pub fn open<M: Host>(&mut self, cx: &mut Context<'_, M>) -> Option<(Instance, Bytes, Frontier)> {
        let executed = self.state.executed().prefix().of(self.me);
        let under_way = (self.next - 1).saturating_sub(executed);
        if !self.requests.wait(cx.now()) || under_way >= self.config.pipeline {
            return None;
        }
        let time = self.time(cx.now(), cx.wall())?;
        let instance = Instance::new(self.me, self.next);
        self.next += 1;
        self.known.add(instance);
        let value = self.requests.take_batch(instance, &self.state, time);
        let held = self.table.entry(instance).or_default();
        held.learn(&value);
        let own = self.state.executed().prefix();
        let deps = self.seen.with(&held.touched).union(&self.watermarks.stable(own)).union(&self.base);
        self.watermarks.begin(instance.index(), deps);
        cx.mark(Mark::Proposed { slot: instance.number() });
        cx.mark(Mark::Recorded { slot: instance.number() });
        Some((instance, value, deps))
    }

    // Learning -------------------------------------------------------------------------------------------------------

    /// Somebody says that this is committed, with the value as messages carry it. Whether that is news.
    pub fn commit<M: Host>(
        &mut self,
        instance: Instance,
        value: Option<Bytes>,
        deps: Frontier,
        cx: &mut Context<'_, M>,
    ) -> bool {
        if deps.contains(instance) || !self.admits(instance) || self.graph.contains(instance) {
            return false;
        }
        self.asking.on_batch(value.as_ref().map_or(0, Bytes::len), cx.now());
        let held = self.table.entry(instance).or_default();
        let decided = held.is_committed().then_some((held.state.noop, held.state.deps));
        if !held.take(&value) {
            // It comes again, with its batch.
            return false;
        }
        let noop = held.state.noop;
        match decided {
            Some(before) if before != (noop, deps) => {
                // Only a peer that lies says so. The simulator is told, where nobody does.
                held.state.noop = before.0;
                let (slot, digest) = (instance.number(), digest(&value.unwrap_or_default()));
                cx.note(|| Fact::Decided {
                    slot,
                    digest,
                    deps: deps.iter().map(|(_, index)| index).collect(),
                });
                return false;
            }
            Some(_) => {}
            None => {
                held.state.commit(noop, deps);
                self.record(instance, cx);
            }
        }
        self.expect_all(&deps);
        if !self.is_whole() && instance.owner() == self.me {
            // The previous life proposed it.
            self.next = self.next.max(instance.index() + 1);
        }
        let held = &self.table[&instance];
        note_decided(instance, held, cx);
        if instance.owner() == self.me {
            cx.mark(Mark::Committed { slot: instance.number() });
            if noop {
                self.requests.on_noop(instance, held);
            }
        }
        self.graph.decide(instance, deps, self.state.executed());
        self.advance(instance.owner());
        true
    }

    /// These exist: something that is decided depends on them.
    fn expect_all(&mut self, deps: &Frontier) {
        if !mutation::active("learner/unknown-dependencies") {
            self.known = self.known.union(deps);
        }
    }

    /// How an instance is decided, durably; `None`: it is not, as far as is known here.
    pub fn fate(&self, instance: Instance) -> Option<&State> {
        let held = self.table.get(&instance).filter(|held| held.is_committed())?;
        (self.graph.contains(instance) || self.is_executed(instance)).then_some(&held.state)
    }

    /// Executes what can be executed, at the end of each batch.
    pub fn execute_decided<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        let order = self.graph.execute_decided(self.state.executed_mut());
        if order.is_empty() {
            return;
        }
        // Only own reads need it, and it is known when they are proposed.
        let time = self.time(cx.now(), cx.wall()).unwrap_or_default();
        let Learner { table, state, requests, .. } = self;
        for instance in order {
            let value = table[&instance].value().expect("what is decided is known");
            let each = |effect| requests.on_effect(instance, effect);
            cx.note(|| Interference::of(&value).fact(instance));
            let count = state.apply_instance(instance, &value, each, |fact| cx.note(fact));
            if instance.owner() == self.me {
                cx.mark(Mark::Applied { slot: instance.number(), requests: count });
            }
            requests.answer(instance, state, time);
        }
    }

    fn advance(&mut self, owner: NodeId) {
        loop {
            let next = Instance::new(owner, self.committed.of(owner) + 1);
            if !self.is_decided(next) {
                return;
            }
            self.committed.add(next);
        }
    }

    // Looking at it --------------------------------------------------------------------------------------------------

    /// What always holds.
    pub fn check(&self) {
        let executed = self.state.executed();
        assert!(executed.prefix().within(&self.committed), "what is executed is committed");
        assert!(executed.hull().within(&self.known), "what is executed was heard of");
        assert!(
            executed.hull().of(self.me) < self.next,
            "own instances are proposed before they are executed"
        );
    }

    /// Whose instances it opens.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// What was executed, and the sessions.
    pub fn state(&self) -> &Replicated {
        &self.state
    }

    /// For operators.
    pub fn status(&self, at: Instant) -> Status {
        let mut status = Status {
            role: if self.is_whole() { "replica" } else { REJOINING },
            leader: None,
            ballot: "-".to_owned(),
            committed: self.committed.len().max(self.state.applied()),
            applied: self.state.applied(),
            lease: false,
            reads: "quorum",
            peers: self.watermarks.status(self.state.executed().prefix(), at.now),
            samples: self.state.samples().into(),
            facts: self.rejoin_status().into_iter().collect(),
        };
        self.tell_clock(at, &mut status);
        status
    }
}

fn note_decided<M: Host>(instance: Instance, held: &InstanceState, cx: &mut Context<'_, M>) {
    cx.note(|| {
        let digest = digest(&held.value().expect("what is decided is known"));
        let deps = held.state.deps.iter().map(|(_, index)| index).collect();
        Fact::Decided { slot: instance.number(), digest, deps }
    });
}
