//! The order of execution (EPaxos §4.3.2): a decided instance is executed after all that it depends on; instances that
//! depend on each other (a strongly connected component of the graph) are executed together, in the order of their
//! numbers. A component can be executed when it is *closed*: everything it depends on is decided.
//!
//! Tarjan's algorithm, iterative: a chain of dependencies may be long. A search ends at the first dependency that is
//! not decided, and is repeated when that one is; what it has passed on the way has the same obstacle.
//!
//! Dependencies that a frontier includes without need are waited for, too. That is why work and memory are bounded: the
//! graph holds what is decided and not executed, and owners bound how many of theirs are not executed.

use std::collections::{BTreeMap, BTreeSet};

use quorate_blocks::instance::{Executed, Frontier, Instance, OWNERS};
use quorate_core::{NodeId, mutation};

/// Instances that are decided and not executed.
#[derive(Debug, Default)]
pub struct Graph {
    vertices: BTreeMap<Instance, Frontier>,
    /// Of these, what has not been looked at.
    decided: Vec<Instance>,
    /// Who is to be tried again when an instance is decided.
    waiting: BTreeMap<Instance, Vec<Instance>>,
    /// How often searches have entered a vertex.
    #[cfg(test)]
    entered: usize,
}

/// One search, from what has become decided.
#[derive(Debug, Default)]
struct Search {
    visits: BTreeMap<Instance, Visit>,
    /// Visited, and not in a finished component.
    stack: Vec<Instance>,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    number: usize,
    /// The lowest number that is known to be reachable in the same component.
    low: usize,
}

/// A vertex on the path of the search, with what is left of its dependencies.
#[derive(Debug)]
struct Step {
    instance: Instance,
    deps: Frontier,
    /// The owner whose instances are looked at, and the last that was.
    owner: u64,
    index: u64,
}

impl Step {
    /// The next dependency that is not executed; each owner's in order, so that what is below is executed first.
    fn next(&mut self, executed: &Executed) -> Option<Instance> {
        while let Some(owner) = NodeId::new(self.owner).filter(|owner| usize::from(owner.get()) <= OWNERS) {
            self.index = self.index.max(executed.prefix().of(owner)) + 1;
            if self.index > self.deps.of(owner) {
                (self.owner, self.index) = (self.owner + 1, 0);
                continue;
            }
            let dependency = Instance::new(owner, self.index);
            if dependency != self.instance && !executed.contains(dependency) {
                return Some(dependency);
            }
        }
        None
    }
}

impl Graph {
    /// An instance is decided. It is looked at by [`execute_decided`](Self::execute_decided).
    pub fn decide(&mut self, instance: Instance, deps: Frontier, executed: &Executed) {
        if !executed.contains(instance) && self.vertices.insert(instance, deps).is_none() {
            self.decided.push(instance);
        }
    }

    /// Gives what can be executed now, in order; it counts as `executed` from now on. Of many that became decided since
    /// the last time, each is passed once; one after the other they would all be tried again with each.
    pub fn execute_decided(&mut self, executed: &mut Executed) -> Vec<Instance> {
        let (mut order, mut obstacles, mut roots) = (Vec::new(), BTreeMap::new(), Vec::new());
        for instance in std::mem::take(&mut self.decided) {
            roots.push(instance);
            roots.append(&mut self.waiting.remove(&instance).unwrap_or_default());
        }
        for root in roots {
            if !self.vertices.contains_key(&root) {
                continue;
            }
            if let Some(obstacle) = self.search(root, executed, &mut order, &mut obstacles) {
                self.waiting.entry(obstacle).or_default().push(root);
            }
        }
        order
    }

    /// Executes what it reaches, up to the first dependency that is not decided: that is what it returns.
    fn search(
        &mut self,
        root: Instance,
        executed: &mut Executed,
        order: &mut Vec<Instance>,
        obstacles: &mut BTreeMap<Instance, Instance>,
    ) -> Option<Instance> {
        let mut search = Search::default();
        let mut path = vec![self.enter(root, None, &mut search)];
        while let Some(step) = path.last_mut() {
            let Some(next) = step.next(executed) else {
                let done = path.pop().expect("it is there").instance;
                let Visit { number, low } = search.visits[&done];
                if low == number {
                    self.execute(done, &mut search, executed, order);
                }
                if let Some(parent) = path.last() {
                    let parent = search.visits.get_mut(&parent.instance).expect("visited");
                    parent.low = parent.low.min(low);
                }
                continue;
            };
            if let Some(visit) = search.visits.get(&next).copied() {
                let from = search.visits.get_mut(&step.instance).expect("visited");
                from.low = from.low.min(visit.number);
                continue;
            }
            let obstacle = match self.vertices.contains_key(&next) {
                true => obstacles.get(&next).copied(),
                false => Some(next),
            };
            if let Some(obstacle) = obstacle {
                // All that is on the stack leads here.
                obstacles.extend(search.stack.iter().map(|passed| (*passed, obstacle)));
                return Some(obstacle);
            }
            let parent = step.instance;
            path.push(self.enter(next, Some(parent), &mut search));
        }
        None
    }

    fn enter(&mut self, instance: Instance, parent: Option<Instance>, search: &mut Search) -> Step {
        #[cfg(test)]
        (self.entered += 1);
        let number = search.visits.len();
        search.visits.insert(instance, Visit { number, low: number });
        search.stack.push(instance);
        let wrong = parent.filter(|_| mutation::active("graph/wrong-parent"));
        let deps = self.vertices[&wrong.unwrap_or(instance)];
        Step { instance, deps, owner: 1, index: 0 }
    }

    fn execute(
        &mut self,
        root: Instance,
        search: &mut Search,
        executed: &mut Executed,
        order: &mut Vec<Instance>,
    ) {
        let mut component = BTreeSet::new();
        while !component.contains(&root) {
            component.insert(search.stack.pop().expect("the root is below"));
        }
        for instance in component {
            self.vertices.remove(&instance);
            executed.insert(instance);
            order.push(instance);
        }
    }

    /// Whether it is decided and not executed.
    pub fn contains(&self, instance: Instance) -> bool {
        self.vertices.contains_key(&instance)
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Random;

    use super::*;

    fn at(owner: u64, index: u64) -> Instance {
        Instance::new(NodeId::new(owner).expect("an id"), index)
    }

    /// `1.2` as `(owner, index)`.
    fn parse(text: &str) -> Instance {
        let (owner, index) = text.split_once('.').expect("owner.index");
        at(owner.parse().expect("an owner"), index.parse().expect("an index"))
    }

    /// Decides `INSTANCE:DEPENDENCY,…` one after the other; what each leads to.
    fn play(decisions: &str) -> Vec<String> {
        let (mut graph, mut executed) = (Graph::default(), Executed::default());
        let lines = decisions.split_whitespace().map(|decision| {
            let (instance, deps) = decision.split_once(':').expect("instance:deps");
            let mut frontier = Frontier::default();
            deps.split(',').filter(|dep| !dep.is_empty()).for_each(|dep| frontier.add(parse(dep)));
            graph.decide(parse(instance), frontier, &executed);
            let order = graph.execute_decided(&mut executed);
            order.iter().map(|instance| format!("{instance:?}")).collect::<Vec<_>>().join(" ")
        });
        lines.collect()
    }

    #[test]
    fn closed_components_are_executed_in_order_and_ties_by_number() {
        for (decisions, expected) in [
            ("1.1: 1.2:1.1 2.1:1.2", vec!["1.1", "1.2", "2.1"]),
            // Out of order.
            ("2.1:1.2 1.2:1.1 1.1:", vec!["", "", "1.1 1.2 2.1"]),
            // A pair that depends on each other, decided in either order.
            ("1.1:2.1 2.1:1.1", vec!["", "1.1 2.1"]),
            ("2.1:1.1 1.1:2.1", vec!["", "1.1 2.1"]),
            // A larger component, and one below it.
            ("3.1:2.1 2.1:1.1 1.1:3.1,4.1 4.1:", vec!["", "", "", "4.1 1.1 2.1 3.1"]),
            // A component waits for one instance far away.
            ("1.1:2.1 2.1:1.1,3.1 3.1:4.1 4.1:", vec!["", "", "", "4.1 3.1 1.1 2.1"]),
            // A dependency on the second of an owner is one on its first.
            ("2.1:1.2 1.2: 1.1:", vec!["", "1.2", "1.1 2.1"]),
            // Twice is once.
            ("1.1: 1.1: 2.1:1.1", vec!["1.1", "", "2.1"]),
        ] {
            assert_eq!(play(decisions), expected, "{decisions}");
        }
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let (mut graph, mut executed) = (Graph::default(), Executed::default());
        let mut order = Vec::new();
        for index in (1..=100_000).rev() {
            let mut deps = Frontier::default();
            if index > 1 {
                deps.add(at(1, index - 1));
            }
            graph.decide(at(1, index), deps, &executed);
            order.append(&mut graph.execute_decided(&mut executed));
        }
        assert_eq!(order.len(), 100_000);
        assert!(order.is_sorted() && graph.vertices.is_empty() && graph.waiting.is_empty());
    }

    /// As one learns them that was away: all of an owner, then all of the next, who depend on each other.
    #[test]
    fn what_is_decided_together_is_passed_once() {
        let all: Vec<_> = (1..=3).flat_map(|owner| (1..=500).map(move |index| at(owner, index))).collect();
        let deps = |instance: Instance| {
            let mut deps = Frontier::default();
            for owner in 1..=3 {
                let before = instance.index() - u64::from(at(owner, 1).owner() >= instance.owner());
                (before > 0).then(|| deps.add(at(owner, before)));
            }
            deps
        };
        let entered = |together: usize| {
            let (mut graph, mut executed, mut order) = (Graph::default(), Executed::default(), 0);
            for some in all.chunks(together) {
                some.iter().for_each(|instance| graph.decide(*instance, deps(*instance), &executed));
                order += graph.execute_decided(&mut executed).len();
            }
            assert_eq!(order, all.len());
            graph.entered
        };
        assert_eq!([1500, 250].map(entered), [1500, 3497]);
        assert!(entered(1) > 100 * 1500);
    }

    /// Whatever the order of decisions, and how many come together, everything is executed, and in the same order where
    /// one depends on the other.
    #[test]
    fn all_orders_of_decision_lead_to_one_order_of_what_depends() {
        let mut random = Random::new(5);
        for _ in 0..300 {
            let mut all: Vec<_> =
                (1..=3).flat_map(|owner| (1..=4).map(move |index| at(owner, index))).collect();
            let deps: BTreeMap<_, _> = all
                .iter()
                .map(|instance| {
                    let mut frontier = Frontier::default();
                    for other in &all {
                        let allowed = other.owner() != instance.owner() || other.index() < instance.index();
                        if allowed && random.chance(0.15) {
                            frontier.add(*other);
                        }
                    }
                    (*instance, frontier)
                })
                .collect();
            let mut orders = Vec::new();
            for together in [1, 1, 2, 5, 12] {
                let (mut graph, mut executed, mut order) =
                    (Graph::default(), Executed::default(), Vec::new());
                for at in (1..all.len()).rev() {
                    all.swap(at, random.range(0..at as u64 + 1) as usize);
                }
                for some in all.chunks(together) {
                    some.iter().for_each(|instance| graph.decide(*instance, deps[instance], &executed));
                    order.append(&mut graph.execute_decided(&mut executed));
                }
                assert_eq!(order.len(), all.len());
                orders.push(order);
            }
            let place = |order: &[Instance], one| order.iter().position(|other| *other == one);
            for one in &all {
                for other in all.iter().filter(|other| deps[one].contains(**other) && *other != one) {
                    let before = |order: &Vec<Instance>| place(order, *other) < place(order, *one);
                    assert!(orders.iter().all(|order| before(order) == before(&orders[0])));
                }
            }
        }
    }
}
