//! How a forced operation takes effect: the sequences of operations that end with it. The rules are those of
//! [`search`](super::search).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::config::{Bits, Config, Cuts, State, is_left};
use super::events::Event;
use super::model::KeyId;
use super::problem::{Effect, EventId, NEVER, OpId, Problem, WatchId};
use super::search::Search;

/// A sequence of operations on the way to a forced one.
#[derive(Clone)]
struct Path {
    state: State,
    done: Bits,
    used: Bits,
    cuts: Cuts,
    /// The operations, in order.
    ops: Vec<OpId>,
    /// Keys whose last blind write is in the sequence, and whether an operation on several keys came since.
    segments: Vec<(KeyId, bool)>,
}

impl Search<'_> {
    /// The configurations after the forced return at which this one stands, the most promising first; at least
    /// `limit` of them, if there are so many.
    pub fn successors(&mut self, config: &Config, limit: usize) -> Vec<Config> {
        let Event::Return(forced) = self.problem.events[config.event as usize] else {
            unreachable!("only returns force anything");
        };
        let mut found = Vec::new();
        let op = self.problem.op(forced);
        if op.pure || op.blind {
            self.insert(config, forced, limit, &mut found);
            if found.len() < limit {
                self.extend(config, forced, limit, &mut found);
            }
        } else {
            self.extend(config, forced, limit, &mut found);
            if found.len() < limit {
                self.insert(config, forced, limit, &mut found);
            }
        }
        for next in &mut found {
            self.unsee(forced, config.event, &mut next.state);
        }
        found
    }

    /// Sequences that go on from the present state, the shortest first.
    fn extend(&mut self, config: &Config, forced: OpId, limit: usize, found: &mut Vec<Config>) {
        let event = config.event;
        let makers = self.makers(config, forced);
        let target = self.problem.op(forced);
        let slot = target.slot;
        if makers.as_ref().is_some_and(Vec::is_empty)
            && !target.blind
            && !self.needs_are_met(forced, &config.state)
        {
            return;
        }
        let (aims, singles) = self.near(config, forced, makers.as_deref());
        let mut seen = BTreeSet::new();
        let mut queue: VecDeque<(OpId, Path)> = aims.iter().map(|aim| (*aim, Path::new(config))).collect();
        while let Some((aim, path)) = queue.pop_front() {
            for &id in std::iter::once(&aim).chain(&singles[&aim]) {
                if found.len() >= limit || *self.effort == 0 {
                    return;
                }
                let twins = if id == aim { &aims } else { &singles[&aim] };
                if !self.is_next(id, twins, &path, EventId::MAX) {
                    continue;
                }
                let Some(longer) = self.step(&path, id, event) else { continue };
                if longer.done.contains(slot) {
                    if self.is_tight(&longer, forced) {
                        found.push(longer.into_config(event, slot));
                    }
                    continue;
                }
                let next: &[OpId] = if self.is_reached(aim, &longer) { &aims } else { &[aim] };
                for aim in next.iter().filter(|aim| !self.is_reached(**aim, &longer)) {
                    // The hash first and the cells last: states of many keys are seldom compared as a whole then.
                    let left = (longer.done.clone(), longer.used.clone(), longer.cuts.clone());
                    let node = (longer.state.hash, left, longer.state.cells.clone());
                    if seen.insert((*aim, node)) {
                        queue.push_back((*aim, longer.clone()));
                    }
                }
            }
        }
    }

    fn is_reached(&self, aim: OpId, path: &Path) -> bool {
        let op = self.problem.op(aim);
        if op.known() { path.done.contains(op.slot) } else { path.used.contains(op.slot) }
    }

    /// Rule 8: the forced operation, and all on several keys that share one with it, perhaps through others; and for
    /// each the operations on a single key that may come right before it.
    fn near(
        &self,
        config: &Config,
        forced: OpId,
        makers: Option<&[OpId]>,
    ) -> (Vec<OpId>, BTreeMap<OpId, Vec<OpId>>) {
        let problem = &*self.problem;
        let known = problem.open(config.event).iter();
        let mut others: Vec<OpId> = known.chain(problem.unknown_before(config.event)).copied().collect();
        others.retain(|id| *id != forced && left(problem, config, *id));

        let (mut aims, mut reach) = (vec![forced], problem.op(forced).keys.to_vec());
        loop {
            let before = aims.len();
            for id in &others {
                let keys = &problem.op(*id).keys;
                if keys.len() > 1 && !aims.contains(id) && keys.iter().any(|key| reach.contains(key)) {
                    aims.push(*id);
                    reach.extend(keys.iter());
                }
            }
            if aims.len() == before {
                break;
            }
        }
        aims[1..].sort_unstable();

        let singles = aims.iter().map(|aim| {
            let target = problem.op(*aim);
            let before = others.iter().copied().filter(|id| {
                let op = problem.op(*id);
                op.single().is_some_and(|key| target.touches(key)) && (!op.pure || op.asks)
            });
            (*aim, before.collect())
        });
        let mut singles: BTreeMap<OpId, Vec<OpId>> = singles.collect();

        // Rule 9.
        if let (Some(makers), Some(before)) = (makers, singles.get_mut(&forced)) {
            // What is not blind may still follow the last blind write before; unknown operations only for the sake of
            // others that see them.
            let seen = others
                .iter()
                .map(|id| problem.op(*id))
                .any(|op| op.known() && !op.blind && meet(&op.keys, &problem.op(forced).keys));
            before.retain(|id| {
                let op = problem.op(*id);
                if op.blind { makers.contains(id) } else { op.known() || seen }
            });
            before.sort_by_key(|id| !makers.contains(id));
        }
        (aims, singles)
    }

    /// The blind writes of which one must come last before the forced operation on a single key: none if it is blind
    /// itself, those that bring the string it needs if only blind writes can. `None` if it is otherwise.
    fn makers(&self, config: &Config, forced: OpId) -> Option<Vec<OpId>> {
        let problem = &*self.problem;
        let op = problem.op(forced);
        if op.blind {
            return Some(Vec::new());
        }
        op.single()?;
        let watch = problem.watch(*op.needs.first()?);
        if watch.anyone {
            return None;
        }
        let mut makers = Vec::new();
        for id in self.recent(&watch.made_by, config.event) {
            let maker = problem.op(id);
            if left(problem, config, id) {
                if !maker.blind {
                    return None;
                }
                makers.push(id);
            }
        }
        Some(makers)
    }

    fn needs_are_met(&self, id: OpId, state: &State) -> bool {
        self.problem.op(id).needs.iter().all(|watch| {
            let watch = self.problem.watch(*watch);
            state.cells[watch.key as usize].value == watch.value
        })
    }

    /// Rule 5: whether an operation is left, and the first of its class to be taken among those called before
    /// `before`.
    fn is_next(&self, id: OpId, candidates: &[OpId], path: &Path, before: EventId) -> bool {
        let problem = &*self.problem;
        let op = problem.op(id);
        let left = |id: OpId| {
            let op = problem.op(id);
            let gone = if op.known() { path.done.contains(op.slot) } else { path.used.contains(op.slot) };
            op.call < before && !gone
        };
        if !left(id) {
            return false;
        }
        if op.unique {
            return true;
        }
        // The twin must not be one that could still be inserted where this one could not.
        let cut = op.single().map_or(0, |key| path.cuts.get(key));
        !candidates.iter().any(|other| {
            let twin = problem.op(*other);
            twin.class == op.class
                && (twin.ret, *other) < (op.ret, id)
                && left(*other)
                && (op.blind || twin.call >= cut || op.call < cut)
        })
    }

    /// The sequence with one more operation and all reads that then agree; `None` if it does not fit or leads
    /// nowhere.
    fn step(&mut self, path: &Path, id: OpId, event: EventId) -> Option<Path> {
        let op = self.problem.op(id);
        if op.blind {
            // Rule 3.
            let hidden = path.segments.iter().any(|(key, crossed)| !crossed && op.touches(*key));
            // Unknown operations that nobody sees are better left unused.
            let unseen = path
                .ops
                .last()
                .map(|last| self.problem.op(*last))
                .is_some_and(|last| !last.known() && last.keys.iter().all(|key| op.touches(*key)));
            if hidden || unseen {
                return None;
            }
        }
        let (known, blind, slot) = (op.known(), op.blind, op.slot);
        *self.effort = self.effort.saturating_sub(1);
        let effect = self.problem.apply(id, &path.state.cells, &mut self.changes)?;
        // A blind write hides what was before even if it writes the same.
        if !known && !blind && effect == Effect::Nothing {
            return None;
        }
        let mut longer = path.clone();
        longer.ops.push(id);
        if known {
            longer.done.insert(slot);
        } else {
            longer.used.insert(slot);
        }
        self.blur(event);
        longer.state.set(&self.changes);

        let op = self.problem.op(id);
        if op.keys.len() > 1 || op.asks {
            longer.cross(&op.keys);
        }
        if op.blind {
            longer.segments.retain(|(key, _)| !op.touches(*key));
            longer.segments.extend(op.keys.iter().map(|key| (*key, op.keys.len() > 1)));
        }
        if op.blind || op.clears {
            op.keys.iter().for_each(|key| longer.cuts.set(*key, event));
        }
        if effect == Effect::Changes {
            self.read_on(&mut longer, id, event);
        }
        let lost = self.risks(id, &path.state, &longer.state);
        let lost = lost.into_iter().any(|watch| self.is_lost(watch, &longer.state, event, &longer));
        (!lost && !self.is_past(id, event, &longer)).then_some(longer)
    }

    /// Rule 7, for the cells that were just changed.
    fn blur(&mut self, event: EventId) {
        for (key, cell) in &mut self.changes {
            cell.value = self.problem.canonical(*key, cell.value, event);
        }
    }

    /// Rule 1, after an operation.
    fn read_on(&mut self, path: &mut Path, after: OpId, event: EventId) {
        for at in 0..self.problem.open(event).len() {
            let id = self.problem.open(event)[at];
            let op = self.problem.op(id);
            if !op.pure || path.done.contains(op.slot) || !meet(&op.keys, &self.problem.op(after).keys) {
                continue;
            }
            if self.agrees(id, &path.state) {
                let op = self.problem.op(id);
                path.done.insert(op.slot);
                path.ops.push(id);
                if op.keys.len() > 1 || op.asks {
                    path.cross(&op.keys);
                }
            }
        }
    }

    /// Rule 6: the strings that an operation may have made unreachable.
    fn risks(&self, id: OpId, before: &State, after: &State) -> Vec<WatchId> {
        let problem = &*self.problem;
        let op = problem.op(id);
        let left = op.keys.iter().filter_map(|key| {
            let (old, new) = (before.cells[*key as usize], after.cells[*key as usize]);
            if old.value == new.value { None } else { problem.watch_of(*key, old.value) }
        });
        left.chain(op.makes.iter().copied()).collect()
    }

    /// Rule 6: whether a string is not there, still needed, and cannot be made again.
    fn is_lost(&self, watch: WatchId, state: &State, event: EventId, path: &Path) -> bool {
        let problem = &*self.problem;
        let watch = problem.watch(watch);
        let here = state.cells[watch.key as usize].value == watch.value;
        let any_left = |ids: &[OpId], last: EventId| {
            let mut left = self.recent(ids, event).filter(|id| problem.op(*id).ret <= last);
            left.any(|id| is_left(problem, id, event, &path.done, &path.used))
        };
        !here
            && !watch.anyone
            && any_left(&watch.needed_by, problem.horizon)
            && !any_left(&watch.made_by, NEVER)
    }

    /// Rule 10: whether an operation that is left needs what a key of this operation has left behind.
    fn is_past(&self, id: OpId, event: EventId, path: &Path) -> bool {
        let problem = &*self.problem;
        problem.op(id).keys.iter().any(|key| {
            let Some(ratchet) = problem.ratchet(*key) else { return false };
            let value = problem.model.value(path.state.cells[*key as usize].value);
            let open = problem.open(event).iter().copied().filter(|id| {
                let op = problem.op(*id);
                op.single() == Some(*key) && op.ret <= problem.horizon && !path.done.contains(op.slot)
            });
            open.chain(ratchet.lowest_after(event)).any(|id| ratchet.is_past(value, problem.op(id)))
        })
    }

    /// Of operations in order of their calls, the last ones that may be open at an event or are still to come.
    fn recent(&self, ids: &[OpId], event: EventId) -> impl Iterator<Item = OpId> {
        let problem = &*self.problem;
        let oldest = problem.oldest[event as usize];
        let start = ids.partition_point(|id| problem.op(*id).call < oldest);
        // Unknown operations stay open for ever.
        let unknown = ids[..start].iter().filter(|id| !problem.op(**id).known());
        ids[start..].iter().rev().chain(unknown).copied()
    }

    /// Rule 8: whether each operation of a sequence matters to a later one.
    fn is_tight(&self, path: &Path, forced: OpId) -> bool {
        let problem = &*self.problem;
        if problem.fertile.len() <= 1 {
            return true;
        }
        let mut matter: Vec<KeyId> = problem.op(forced).keys.to_vec();
        let end = path.ops.iter().position(|id| *id == forced).unwrap_or(path.ops.len());
        for id in path.ops[..end].iter().rev() {
            let op = problem.op(*id);
            if op.keys.iter().any(|key| matter.contains(key)) {
                matter.extend(op.keys.iter());
            } else if !op.pure {
                return false;
            }
        }
        true
    }

    /// Sequences that begin with a blind write and are put in before the last one: rule 2.
    fn insert(&mut self, config: &Config, forced: OpId, limit: usize, found: &mut Vec<Config>) {
        let event = config.event;
        let op = self.problem.op(forced);
        let Some(key) = op.single() else { return };
        let cut = config.cuts.get(key);
        if op.call >= cut || op.asks {
            return;
        }
        let makers = self.makers(config, forced);
        let problem = &*self.problem;
        let mut candidates: Vec<OpId> = problem.open(event).to_vec();
        match &makers {
            Some(makers) => {
                candidates.extend(&problem.unknown_soft);
                candidates.extend(makers.iter().filter(|id| !problem.op(**id).known()));
            }
            None => candidates.extend(problem.unknown_before(cut)),
        }
        candidates.retain(|id| {
            let op = problem.op(*id);
            let inside = op.call < cut && op.single() == Some(key) && !op.pure && !op.asks;
            inside && left(problem, config, *id)
        });
        let slot = self.problem.op(forced).slot;
        let mut seen = BTreeSet::new();
        let mut queue = VecDeque::from([Path::new(config)]);
        while let Some(path) = queue.pop_front() {
            for &id in &candidates {
                if found.len() >= limit || *self.effort == 0 {
                    return;
                }
                let op = self.problem.op(id);
                let opens = path.ops.is_empty();
                let aimed = makers
                    .as_ref()
                    .is_none_or(|makers| id == forced || makers.contains(&id) || (path.done.contains(slot)));
                if op.blind != opens || (opens && !aimed) || !self.is_next(id, &candidates, &path, cut) {
                    continue;
                }
                let Some(longer) = self.step_inside(&path, id, key, config) else { continue };
                let node = (longer.state.cells.clone(), longer.done.clone(), longer.used.clone());
                if !seen.insert(node) {
                    continue;
                }
                if longer.done.contains(slot) && self.closes(&longer, config, key) {
                    let mut closed = longer.clone();
                    closed.state = config.state.clone();
                    found.push(closed.into_config(event, slot));
                }
                queue.push_back(longer);
            }
        }
    }

    /// As [`step`](Self::step), in a sequence that is put in before a cut.
    fn step_inside(&mut self, path: &Path, id: OpId, key: KeyId, config: &Config) -> Option<Path> {
        let (event, before) = (config.event, config.cuts.get(key));
        *self.effort = self.effort.saturating_sub(1);
        let effect = self.problem.apply(id, &path.state.cells, &mut self.changes)?;
        let op = self.problem.op(id);
        if !op.known() && effect == Effect::Nothing && !path.ops.is_empty() {
            return None;
        }
        let mut longer = path.clone();
        longer.ops.push(id);
        if op.known() {
            longer.done.insert(op.slot);
        } else {
            longer.used.insert(op.slot);
        }
        self.blur(event);
        longer.state.set(&self.changes);
        for at in 0..self.problem.open(event).len() {
            let id = self.problem.open(event)[at];
            let op = self.problem.op(id);
            let inside = op.pure && !op.asks && op.call < before && op.single() == Some(key);
            if inside && !longer.done.contains(op.slot) && self.agrees(id, &longer.state) {
                longer.done.insert(self.problem.op(id).slot);
            }
        }
        let mut risks = self.risks(id, &path.state, &longer.state);
        risks.retain(|watch| self.is_lost(*watch, &longer.state, event, &longer));
        let lost = risks.into_iter().any(|watch| self.is_lost(watch, &config.state, event, &longer));
        (!lost).then_some(longer)
    }

    /// Whether nothing that is still needed is lost when a sequence on a key ends at its cut.
    fn closes(&self, path: &Path, config: &Config, key: KeyId) -> bool {
        let leaves = self.problem.watch_of(key, path.state.cells[key as usize].value);
        let made = path.ops.iter().flat_map(|id| &self.problem.op(*id).makes).copied();
        let mut risks = leaves.into_iter().chain(made);
        !risks.any(|watch| self.is_lost(watch, &config.state, config.event, path))
    }
}

impl Path {
    fn new(config: &Config) -> Path {
        Path {
            state: config.state.clone(),
            done: config.done.clone(),
            used: config.used.clone(),
            cuts: config.cuts.clone(),
            ops: Vec::new(),
            segments: Vec::new(),
        }
    }

    fn into_config(mut self, event: EventId, slot: u32) -> Config {
        self.done.remove(slot);
        Config { event: event + 1, state: self.state, done: self.done, used: self.used, cuts: self.cuts }
    }

    fn cross(&mut self, keys: &[KeyId]) {
        for (key, crossed) in &mut self.segments {
            *crossed |= keys.contains(key);
        }
    }
}

/// Whether an operation that was called before the event at which a configuration stands can still take effect.
fn left(problem: &Problem, config: &Config, id: OpId) -> bool {
    let called = problem.op(id).call < config.event;
    called && is_left(problem, id, config.event, &config.done, &config.used)
}

fn meet(a: &[KeyId], b: &[KeyId]) -> bool {
    a.iter().any(|key| b.binary_search(key).is_ok())
}
