//! The decision: is there an order of a partition's operations that explains every reply?
//!
//! **Just-in-time linearization** (Lowe 2017). Events are taken in order. A *configuration* is what one way of ordering
//! the operations so far leaves behind: the state, and which of the open operations have taken effect. An operation is
//! made to take effect only when its return forces it, by the shortest sequences of open operations that end
//! with it; the search is depth-first over the alternatives, on a stack of its own. The history is linearizable if
//! and only if some configuration reaches the last event. Everything below only makes this fast; each rule says
//! why no history changes sides by it.
//!
//! 1. *Reads at once.* An operation that changes nothing takes effect as soon as the state agrees with its reply: taken
//!    out of any order that explains the rest, it may be put in here.
//! 2. *Insertion.* A blind write of a key hides what was before it. So a sequence of open operations on that key alone,
//!    which begins with a blind write, may be put in right before the last blind write on the key, if each of them was
//!    called before that moment: nothing that came later notices. (Before a deletion that found the key, the
//!    sequence must leave a value.) The moment is kept as the key's *cut*. An earlier one would not do where
//!    the last does not, since operations that are open now were open at the last.
//! 3. *No closed segments.* Because of rule 2, a sequence that ends with a forced operation need not
//!    contain a blind write of a key and then another that hides it, unless an operation on several keys fell in
//!    between: without the first and all that depends on it, the sequence leaves more to choose from, and they can
//!    be inserted when they are forced. This is what keeps fifty concurrent writers from having 2⁵⁰ orders.
//! 4. *Dominance.* A configuration is dropped if one was seen at the same event and state from which at least as much
//!    can follow: the other may have more unknown operations left (they may stay unused for ever), more blind writes
//!    that were called before the cut (rule 2 takes them when they return), and later cuts.
//! 5. *Twins.* Of open operations with equal effect and reply, the one that returns first takes effect first: in
//!    any order in which it does not, the two can change places.
//! 6. *Dead ends.* If a reply that is still to be explained needs a string at a key, the key has another value, and
//!    no operation that could write the string is left, nothing can follow.
//! 7. *Opaque strings* stand for all strings whose bytes nobody will see ([`Facets`](super::problem::Facets)).
//! 8. *Distance.* Operations that share no key with the forced one, nor with anything that follows them in the
//!    sequence, can as well take effect later.
//! 9. *Aim.* If a forced operation needs a string that only blind writes can bring, or is itself blind, then other
//!    blind writes of its key alone would only be hidden, which is rule 3.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use quorate_store::Reply;

use super::model::{Cell, KeyId, ValueId};
use super::problem::{Effect, Event, EventId, Op, OpId, Problem, WatchId};

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Linearizable,
    /// No order explains the return at this event, or one not much later.
    Stuck(EventId),
    /// The effort is spent.
    Undecided(EventId),
}

/// What one way of ordering the operations so far leaves behind.
#[derive(Clone, Debug)]
struct Config {
    /// The next event.
    event: EventId,
    state: State,
    /// Open known operations that have taken effect, by slot.
    done: Bits,
    /// Unknown operations that have taken effect.
    used: Bits,
    cuts: Cuts,
}

#[derive(Clone, Debug)]
struct State {
    cells: Rc<[Cell]>,
    /// Of the cells.
    hash: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Bits(Vec<u64>);

/// Where operations can be inserted, by key: rule 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cuts(Vec<(KeyId, Cut)>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cut {
    /// Before the last blind write: operations called before this event, whatever they leave.
    free: EventId,
    /// Before the last blind write or deletion: as long as they leave a value. Not before `free`.
    present: EventId,
}

/// A search over one partition.
pub struct Search<'a> {
    problem: &'a mut Problem,
    /// What it may still spend: about one per operation that is tried in a state.
    effort: &'a mut u64,
    seen: BTreeMap<(EventId, u64), Vec<Config>>,
    furthest: EventId,
    /// Scratch.
    changes: Vec<(KeyId, Cell)>,
}

/// What a configuration that is kept costs, in operations tried: bounds memory along with time.
const CONFIG_COST: u64 = 16;

/// A configuration still to be followed.
struct Task {
    config: Config,
    /// Its best successor has been followed already.
    rest: bool,
}

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

impl<'a> Search<'a> {
    pub fn new(problem: &'a mut Problem, effort: &'a mut u64) -> Search<'a> {
        Search { problem, effort, seen: BTreeMap::new(), furthest: 0, changes: Vec::new() }
    }

    pub fn run(&mut self) -> Outcome {
        let initial = Config {
            event: 0,
            state: State::new(self.problem.model.initial().into()),
            done: Bits::new(self.problem.slots),
            used: Bits::new(self.problem.unknown.len()),
            cuts: Cuts::default(),
        };
        let mut stack = vec![Task { config: initial, rest: false }];
        while let Some(Task { mut config, rest }) = stack.pop() {
            if *self.effort == 0 {
                return Outcome::Undecided(self.furthest);
            }
            if rest {
                let mut others = self.successors(&config, usize::MAX);
                others.drain(..1.min(others.len()));
                stack.extend(others.into_iter().rev().map(|config| Task { config, rest: false }));
                continue;
            }
            if !self.advance(&mut config) {
                return Outcome::Linearizable;
            }
            self.furthest = self.furthest.max(config.event);
            if self.dominated(&config) {
                continue;
            }
            if let Some(first) = self.successors(&config, 1).into_iter().next() {
                stack.push(Task { config, rest: true });
                stack.push(Task { config: first, rest: false });
            }
        }
        // A search that ran out of effort may have found nothing only for that.
        if *self.effort == 0 { Outcome::Undecided(self.furthest) } else { Outcome::Stuck(self.furthest) }
    }

    /// After a search that got stuck: replies that the operation whose return could not be explained might have given,
    /// at once or after one other operation.
    pub fn possible_replies(&mut self, limit: usize) -> Vec<Reply> {
        let at = self.furthest;
        let Some(&Event::Return(forced)) = self.problem.events.get(at as usize) else { return Vec::new() };
        let stood: Vec<Config> =
            self.seen.range((at, 0)..=(at, u64::MAX)).flat_map(|(_, configs)| configs).cloned().collect();
        let mut states: Vec<State> = stood.iter().map(|config| config.state.clone()).collect();
        for config in &stood {
            let problem = &*self.problem;
            let open = problem.open(at).iter().chain(problem.unknown_before(at)).copied();
            let others: Vec<OpId> = open
                .filter(|id| *id != forced && is_left(problem, *id, at, &config.done, &config.used))
                .collect();
            for id in others {
                if self.problem.apply(id, &config.state.cells, &mut self.changes).is_some() {
                    let mut state = config.state.clone();
                    state.set(&self.changes);
                    states.push(state);
                }
            }
        }
        let mut replies = Vec::new();
        for state in states {
            let reply = self.problem.reply(forced, &state.cells, &mut self.changes);
            if let Some(reply) = reply.filter(|reply| replies.len() < limit && !replies.contains(reply)) {
                replies.push(reply);
            }
        }
        replies
    }

    /// Moves on to the next return that forces something; false at the end.
    fn advance(&mut self, config: &mut Config) -> bool {
        while let Some(event) = self.problem.events.get(config.event as usize) {
            match *event {
                Event::Call(id) => {
                    let op = self.problem.op(id);
                    if op.pure && op.known() && self.agrees(id, &config.state) {
                        config.done.insert(self.problem.op(id).slot);
                    }
                }
                Event::Return(id) => {
                    let slot = self.problem.op(id).slot;
                    if !config.done.contains(slot) {
                        config.cuts.forget(self.problem.oldest[config.event as usize]);
                        return true;
                    }
                    config.done.remove(slot);
                    self.unsee(id, config.event, &mut config.state);
                }
            }
            config.event += 1;
        }
        false
    }

    /// Rule 7: the reply of an operation that returns at an event shows its strings for the last time.
    fn unsee(&mut self, id: OpId, event: EventId, state: &mut State) {
        for at in 0..self.problem.op(id).needs.len() {
            let key = self.problem.watch(self.problem.op(id).needs[at]).key;
            let cell = state.cells[key as usize];
            let value = self.problem.canonical(key, cell.value, event + 1);
            state.set(&[(key, Cell { value, ..cell })]);
        }
    }

    /// Whether an operation that changes nothing fits a state.
    fn agrees(&mut self, id: OpId, state: &State) -> bool {
        *self.effort = self.effort.saturating_sub(1);
        self.problem.apply(id, &state.cells, &mut self.changes) == Some(Effect::Nothing)
    }

    /// Rule 4. Keeps the configuration otherwise.
    fn dominated(&mut self, config: &Config) -> bool {
        let problem = &*self.problem;
        let others = self.seen.entry((config.event, config.state.hash)).or_default();
        if others.iter().any(|other| other.dominates(config, problem)) {
            return true;
        }
        *self.effort = self.effort.saturating_sub(CONFIG_COST + config.state.cells.len() as u64 / 8);
        others.push(config.clone());
        false
    }

    /// The configurations after the forced return at which this one stands, the most promising first; at least `limit`
    /// of them, if there are so many.
    fn successors(&mut self, config: &Config, limit: usize) -> Vec<Config> {
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
        let candidates = self.candidates(config, forced);
        let start = Path {
            state: config.state.clone(),
            done: config.done.clone(),
            used: config.used.clone(),
            cuts: config.cuts.clone(),
            ops: Vec::new(),
            segments: Vec::new(),
        };
        let slot = self.problem.op(forced).slot;
        let mut seen = BTreeSet::new();
        let mut queue = VecDeque::from([start]);
        while let Some(path) = queue.pop_front() {
            for &id in &candidates {
                if found.len() >= limit || *self.effort == 0 {
                    return;
                }
                if !self.is_next(id, &candidates, &path, EventId::MAX) {
                    continue;
                }
                let Some(longer) = self.step(&path, id, event) else { continue };
                if longer.done.contains(slot) {
                    if self.is_tight(&longer, forced) {
                        found.push(longer.into_config(event, slot));
                    }
                } else {
                    let node = (longer.state.cells.clone(), longer.done.clone(), longer.used.clone());
                    if seen.insert((node, longer.cuts.clone())) {
                        queue.push_back(longer);
                    }
                }
            }
        }
    }

    /// The operations that can be part of a sequence which ends with the forced one, itself first.
    fn candidates(&self, config: &Config, forced: OpId) -> Vec<OpId> {
        let problem = &*self.problem;
        let event = config.event;
        let known = problem.open(event).iter().copied().filter(|id| {
            let op = problem.op(*id);
            *id != forced && !config.done.contains(op.slot) && (!op.pure || op.asks)
        });
        let unknown = problem.unknown_before(event).iter().copied();
        let unknown = unknown.filter(|id| !config.used.contains(problem.op(*id).slot));
        let mut others: Vec<OpId> = known.chain(unknown).collect();

        // Rule 8, as far as it can be told beforehand.
        let target = problem.op(forced);
        if problem.model.keys().len() > 1 {
            let mut near: BTreeSet<KeyId> = target.keys.iter().copied().collect();
            let mut spread = true;
            while spread {
                spread = false;
                for id in problem.open(event).iter().chain(&others) {
                    let op = problem.op(*id);
                    let open = !op.known() || !config.done.contains(op.slot);
                    if open && op.keys.len() > 1 && op.keys.iter().any(|key| near.contains(key)) {
                        let before = near.len();
                        near.extend(op.keys.iter());
                        spread |= near.len() > before;
                    }
                }
            }
            others.retain(|id| problem.op(*id).keys.iter().any(|key| near.contains(key)));
        }

        // Rule 9.
        if let Some(key) = target.single() {
            let crossed = problem.open(event).iter().chain(&others).any(|id| {
                let op = problem.op(*id);
                let open = !op.known() || !config.done.contains(op.slot);
                open && (op.keys.len() > 1 || op.asks) && op.touches(key)
            });
            let makers = self.makers(config, forced);
            if let Some(makers) = makers.filter(|_| !crossed) {
                if makers.is_empty() && !target.blind && !self.needs_are_met(forced, &config.state) {
                    return Vec::new();
                }
                // What is not blind may still follow the last blind write before; unknown ones only for the sake of
                // others that see them.
                let seen = problem.open(event).iter().any(|id| {
                    let op = problem.op(*id);
                    *id != forced && !op.blind && op.touches(key) && !config.done.contains(op.slot)
                });
                others.retain(|id| {
                    let op = problem.op(*id);
                    if op.blind { makers.contains(id) } else { op.known() || seen }
                });
                others.sort_by_key(|id| !makers.contains(id));
            }
        }
        others.insert(0, forced);
        others
    }

    /// The blind writes of which one must come last before the forced operation on a single key: none if it is blind
    /// itself, those that bring the string it needs if only blind writes can. `None` if it is otherwise.
    fn makers(&self, config: &Config, forced: OpId) -> Option<Vec<OpId>> {
        let problem = &*self.problem;
        let op = problem.op(forced);
        if op.blind {
            return Some(Vec::new());
        }
        let watch = problem.watch(*op.needs.first()?);
        if watch.anyone {
            return None;
        }
        let mut makers = Vec::new();
        for id in self.recent(&watch.made_by, config.event) {
            let maker = problem.op(id);
            if maker.call < config.event && is_left(problem, id, config.event, &config.done, &config.used) {
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

    /// Rule 5: whether an operation is left, and the first of its class to be taken among those called before `before`.
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
        let cut = op.single().map(|key| path.cuts.get(key)).unwrap_or_default();
        let place = |op: &Op| if op.call < cut.free { 2 } else { u32::from(op.call < cut.present) };
        !candidates.iter().any(|other| {
            let twin = problem.op(*other);
            twin.class == op.class
                && (twin.ret, *other) < (op.ret, id)
                && left(*other)
                && (op.blind || place(twin) <= place(op))
        })
    }

    /// The sequence with one more operation and all reads that then agree; `None` if it does not fit or leads nowhere.
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
            op.keys.iter().for_each(|key| longer.cuts.set(*key, Cut { free: event, present: event }));
        } else if op.semiblind {
            let key = op.keys[0];
            let free = longer.cuts.get(key).free;
            longer.cuts.set(key, Cut { free, present: event });
        }
        if effect == Effect::Changes {
            self.read_on(&mut longer, id, event);
        }
        let lost = self.risks(id, &path.state, &longer.state);
        let lost = lost.into_iter().any(|watch| self.is_lost(watch, &longer.state, event, &longer));
        (!lost).then_some(longer)
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
        let any_left = |ids: &[OpId]| {
            self.recent(ids, event).any(|id| is_left(problem, id, event, &path.done, &path.used))
        };
        !here && !watch.anyone && any_left(&watch.needed_by) && !any_left(&watch.made_by)
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
        if problem.model.keys().len() == 1 {
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
        if op.call >= cut.present || op.asks {
            return;
        }
        let mut candidates: Vec<OpId> = self.problem.open(event).to_vec();
        candidates.extend(self.problem.unknown_before(cut.present));
        let problem = &*self.problem;
        candidates.retain(|id| {
            let op = problem.op(*id);
            op.call < cut.present
                && op.single() == Some(key)
                && !op.asks
                && is_left(problem, *id, event, &config.done, &config.used)
        });
        let makers = self.makers(config, forced);
        let slot = self.problem.op(forced).slot;
        let start = Path {
            state: config.state.clone(),
            done: config.done.clone(),
            used: config.used.clone(),
            cuts: config.cuts.clone(),
            ops: Vec::new(),
            segments: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        let mut queue = VecDeque::from([start]);
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
                if op.blind != opens
                    || (opens && !aimed)
                    || op.pure
                    || !self.is_next(id, &candidates, &path, cut.present)
                {
                    continue;
                }
                let Some(longer) = self.step_inside(&path, id, key, config) else { continue };
                let node = (longer.state.cells.clone(), longer.done.clone(), longer.used.clone());
                if !seen.insert(node) {
                    continue;
                }
                if longer.done.contains(slot) && self.closes(&longer, config, key, event) {
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
        let (event, before) = (config.event, config.cuts.get(key).present);
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
                longer.ops.push(id);
            }
        }
        let mut risks = self.risks(id, &path.state, &longer.state);
        risks.retain(|watch| self.is_lost(*watch, &longer.state, event, &longer));
        let lost = risks.into_iter().any(|watch| self.is_lost(watch, &config.state, event, &longer));
        (!lost).then_some(longer)
    }

    /// Whether a sequence on a key can stand before the cut, and what it leaves there be lost.
    fn closes(&self, path: &Path, config: &Config, key: KeyId, event: EventId) -> bool {
        let cut = config.cuts.get(key);
        let last = path.ops.iter().map(|id| self.problem.op(*id).call).max();
        let leaves = path.state.cells[key as usize].value;
        let fits = leaves != ValueId::ABSENT || last < Some(cut.free);
        let lost = |watch| self.is_lost(watch, &config.state, event, path);
        fits && !self.problem.watch_of(key, leaves).is_some_and(lost)
            && !path.ops.iter().any(|id| self.problem.op(*id).makes.iter().any(|watch| lost(*watch)))
    }
}

impl Config {
    /// Whether whatever can follow the other configuration can follow this one. Both stand at the same event.
    fn dominates(&self, other: &Config, problem: &Problem) -> bool {
        if self.state.cells != other.state.cells || !self.used.is_subset(&other.used) {
            return false;
        }
        if !self.cuts.covers(&other.cuts) {
            return false;
        }
        if self.done == other.done {
            return true;
        }
        problem.open(self.event).iter().all(|id| {
            let op = problem.op(*id);
            match (self.done.contains(op.slot), other.done.contains(op.slot)) {
                (true, true) | (false, false) => true,
                (true, false) => false,
                (false, true) => {
                    op.blind && op.single().is_some_and(|key| op.call < self.cuts.get(key).present)
                }
            }
        })
    }
}

impl Path {
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

impl State {
    fn new(cells: Rc<[Cell]>) -> State {
        let hash = (0..).zip(cells.iter()).fold(0, |hash, (key, cell)| hash ^ mix(key, *cell));
        State { cells, hash }
    }

    fn set(&mut self, changes: &[(KeyId, Cell)]) {
        let cells = &self.cells;
        if changes.iter().all(|(key, cell)| cells[*key as usize] == *cell) {
            return;
        }
        let cells = Rc::make_mut(&mut self.cells);
        for (key, cell) in changes {
            let old = std::mem::replace(&mut cells[*key as usize], *cell);
            self.hash ^= mix(*key, old) ^ mix(*key, *cell);
        }
    }
}

fn mix(key: KeyId, cell: Cell) -> u64 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&key.to_le_bytes());
    bytes[4..8].copy_from_slice(&cell.value.0.to_le_bytes());
    bytes[8..].copy_from_slice(&cell.version.0.to_le_bytes());
    quorate_core::digest(&bytes)
}

impl Bits {
    fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    fn contains(&self, bit: u32) -> bool {
        self.0[bit as usize / 64] & 1 << (bit % 64) != 0
    }

    fn insert(&mut self, bit: u32) {
        self.0[bit as usize / 64] |= 1 << (bit % 64);
    }

    fn remove(&mut self, bit: u32) {
        self.0[bit as usize / 64] &= !(1 << (bit % 64));
    }

    fn is_subset(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }
}

impl Cuts {
    fn get(&self, key: KeyId) -> Cut {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.0[at].1,
            Err(_) => Cut::default(),
        }
    }

    fn set(&mut self, key: KeyId, cut: Cut) {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.0[at].1 = cut,
            Err(at) => self.0.insert(at, (key, cut)),
        }
    }

    /// Drops cuts before which no open operation was called.
    fn forget(&mut self, oldest: EventId) {
        for (_, cut) in &mut self.0 {
            if cut.free <= oldest {
                cut.free = 0;
            }
        }
        self.0.retain(|(_, cut)| cut.present > oldest);
    }

    fn covers(&self, other: &Cuts) -> bool {
        other.0.iter().all(|(key, theirs)| {
            let ours = self.get(*key);
            ours.free >= theirs.free && ours.present >= theirs.present
        })
    }
}

/// Whether an operation can still take effect: it is open and has not, or is still to come.
fn is_left(problem: &Problem, id: OpId, event: EventId, done: &Bits, used: &Bits) -> bool {
    let op = problem.op(id);
    if op.call > event {
        true
    } else if op.known() {
        op.ret >= event && !done.contains(op.slot)
    } else {
        !used.contains(op.slot)
    }
}

fn meet(a: &[KeyId], b: &[KeyId]) -> bool {
    a.iter().any(|key| b.binary_search(key).is_ok())
}
