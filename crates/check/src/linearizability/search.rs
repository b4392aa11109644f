//! The decision: is there an order of a partition's operations that explains every reply?
//!
//! **Just-in-time linearization** (Lowe 2017). Events are taken in order. A *configuration* is what one way of
//! ordering the operations so far leaves behind: the state, and which of the open operations have taken effect. An
//! operation is made to take effect only when its return forces it, by the shortest sequences of open operations
//! that end with it; the search is depth-first over the alternatives, on a stack of its own. The history is
//! linearizable if and only if some configuration reaches the last event. Everything below only makes this fast;
//! each rule says why no history changes sides by it.
//!
//! 1. *Reads at once.* An operation that changes nothing takes effect as soon as the state agrees with its reply:
//!    taken out of any order that explains the rest, it may be put in here.
//! 2. *Insertion.* A blind write of a key hides what was before it. So a sequence of open operations on that key
//!    alone, which begins with a blind write, may be put in right before the last blind write on the key, if each of
//!    them was called before that moment: nothing that came later notices. It is the same with the last deletion that
//!    found the key: a sequence that leaves a value fits right before it, one that leaves none right after it. The
//!    moment is kept as the key's *cut*. An earlier one would not do where the last does not, since operations that
//!    are open now were open at the last.
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
//! 8. *Distance.* An operation that shares no key with anything that follows it in the sequence can as well take
//!    effect later. So operations on a single key stand right before one that shares their key: before the forced
//!    one, or before one on several keys that it needs, which the sequence aims at first.
//! 9. *Aim.* If a forced operation on one key needs a string that only blind writes can bring, or is itself blind,
//!    then other blind writes of single keys right before it would only be hidden, which is rule 3.
//! 10. *Ratchets.* Where all writes of a key add to its integer, or append to its string, what it has passed does not
//!     come back.
//!
//! Most histories are decided depth first, along the first alternative nearly all the time. Where that takes too
//! long, the search starts again breadth first: with the most promising configurations only, which may find a way,
//! and at last with all of them that are not dominated, which decides.

use std::collections::BTreeMap;

use quorate_store::Reply;

use super::config::{Config, State, is_left};
use super::events::Event;
use super::model::{Cell, KeyId};
use super::problem::{Effect, EventId, OpId, Problem};

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Linearizable,
    /// No order explains the return at this event, or one not much later.
    Stuck(EventId),
    /// The effort is spent.
    Undecided(EventId),
}

/// A search over one partition.
pub struct Search<'a> {
    pub problem: &'a mut Problem,
    /// What it may still spend: about one per operation that is tried in a state.
    pub effort: &'a mut u64,
    /// Configurations that stand at an event, by event and hash of the state.
    seen: BTreeMap<(EventId, u64), Vec<Config>>,
    furthest: EventId,
    /// Scratch.
    pub changes: Vec<(KeyId, Cell)>,
}

/// What a configuration that is kept costs, in operations tried: bounds memory along with time.
const CONFIG_COST: u64 = 16;

/// What the depth-first search may spend, at once and for each operation. Most histories that are linearizable need
/// less, by far.
const DEEP_EFFORT: (u64, u64) = (1_000_000, 50);

/// How many configurations are followed at once when the search goes broad, in one attempt after the other. The
/// last one is complete.
const WIDTHS: [usize; 3] = [20, 500, usize::MAX];

/// A configuration still to be followed.
struct Task {
    config: Config,
    /// Its best successor has been followed already.
    rest: bool,
}

impl<'a> Search<'a> {
    pub fn new(problem: &'a mut Problem, effort: &'a mut u64) -> Search<'a> {
        Search { problem, effort, seen: BTreeMap::new(), furthest: 0, changes: Vec::new() }
    }

    /// Depth first as long as that promises to be fast, then breadth first.
    pub fn run(&mut self) -> Outcome {
        let initial = Config::initial(self.problem);
        let deep = DEEP_EFFORT.0 + DEEP_EFFORT.1 * self.problem.ops.len() as u64;
        let reserve = self.effort.saturating_sub(deep);
        *self.effort -= reserve;
        let mut outcome = self.run_deep(vec![initial.clone()]);
        *self.effort += reserve;
        for (attempt, width) in WIDTHS.into_iter().enumerate() {
            if let Outcome::Undecided(_) = outcome {
                // Attempts that may prove nothing must leave enough to the last.
                let reserve = *self.effort - *self.effort / (WIDTHS.len() - attempt) as u64;
                *self.effort -= reserve;
                outcome = self.run_broad(initial.clone(), width);
                *self.effort += reserve;
            }
        }
        outcome
    }

    /// Depth first, from configurations on the way.
    pub fn run_deep(&mut self, from: Vec<Config>) -> Outcome {
        self.seen.clear();
        self.furthest = 0;
        let mut stack: Vec<Task> = from.into_iter().map(|config| Task { config, rest: false }).collect();
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
            if !self.keep(&config) {
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

    /// Breadth first: all configurations that can stand at an event, and then the next event. Nothing that another
    /// dominates is ever followed, so this is the way to prove that there is no way. Where more than `width`
    /// stand, or follow on one, only the most promising count; then nothing is proved by getting stuck.
    pub fn run_broad(&mut self, mut initial: Config, width: usize) -> Outcome {
        self.seen.clear();
        self.furthest = 0;
        let mut complete = true;
        if !self.advance(&mut initial) {
            return Outcome::Linearizable;
        }
        self.keep(&initial);
        loop {
            let Some((&(event, _), _)) = self.seen.range((self.furthest + 1, 0)..).next() else {
                let at = self.furthest;
                return if complete { Outcome::Stuck(at) } else { Outcome::Undecided(at) };
            };
            // What stood before is of no more use.
            self.seen = self.seen.split_off(&(event, 0));
            self.furthest = event;
            complete &= self.standing().count() <= width;
            for config in self.most_promising(width) {
                let successors = self.successors(&config, width);
                complete &= successors.len() < width;
                for mut next in successors {
                    if !self.advance(&mut next) {
                        return Outcome::Linearizable;
                    }
                    self.keep(&next);
                }
                if *self.effort == 0 {
                    return Outcome::Undecided(event);
                }
            }
        }
    }

    /// Of the configurations that stand, some of each state, those first that have most left to choose from and least
    /// to do.
    fn most_promising(&self, width: usize) -> Vec<Config> {
        let mut ranked: Vec<(usize, u32, &Config)> = Vec::new();
        for (_, configs) in self.seen.range((self.furthest, 0)..=(self.furthest, u64::MAX)) {
            let mut configs: Vec<(u32, &Config)> =
                configs.iter().map(|config| (config.burden(self.problem), config)).collect();
            configs.sort_by_key(|(burden, _)| *burden);
            ranked.extend((0..).zip(configs).map(|(rank, (burden, config))| (rank, burden, config)));
        }
        if ranked.len() > width {
            ranked.sort_by_key(|(rank, burden, _)| (*rank, *burden));
            ranked.truncate(width);
        }
        ranked.into_iter().map(|(_, _, config)| config.clone()).collect()
    }

    /// The configurations that stood at the event where the search got stuck.
    pub fn standing(&self) -> impl Iterator<Item = &Config> {
        let at = self.furthest;
        self.seen.range((at, 0)..=(at, u64::MAX)).flat_map(|(_, configs)| configs)
    }

    /// After a search that got stuck: replies that the operation whose return could not be explained might have
    /// given, at once or after one other operation.
    pub fn possible_replies(&mut self, limit: usize) -> Vec<Reply> {
        let at = self.furthest;
        let Some(&Event::Return(forced)) = self.problem.events.get(at as usize) else { return Vec::new() };
        let stood: Vec<Config> = self.standing().cloned().collect();
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
        while config.event <= self.problem.horizon {
            match self.problem.events[config.event as usize] {
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
    pub fn unsee(&mut self, id: OpId, event: EventId, state: &mut State) {
        for at in 0..self.problem.op(id).needs.len() {
            let key = self.problem.watch(self.problem.op(id).needs[at]).key;
            let cell = state.cells[key as usize];
            let value = self.problem.canonical(key, cell.value, event + 1);
            state.set(&[(key, Cell { value, ..cell })]);
        }
    }

    /// Whether an operation that changes nothing fits a state.
    pub fn agrees(&mut self, id: OpId, state: &State) -> bool {
        *self.effort = self.effort.saturating_sub(1);
        self.problem.apply(id, &state.cells, &mut self.changes) == Some(Effect::Nothing)
    }

    /// Rule 4: keeps a configuration unless another that stands at its event dominates it.
    fn keep(&mut self, config: &Config) -> bool {
        let problem = &*self.problem;
        let others = self.seen.entry((config.event, config.state.hash)).or_default();
        if others.iter().any(|other| other.dominates(config, problem)) {
            return false;
        }
        *self.effort = self.effort.saturating_sub(CONFIG_COST + config.state.cells.len() as u64 / 8);
        others.retain(|other| !config.dominates(other, problem));
        others.push(config.clone());
        true
    }
}
