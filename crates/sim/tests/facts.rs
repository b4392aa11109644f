//! Facts that replicas state, and checkers that wait for them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use quorate_check::Panel;
use quorate_protocols::registry::{self, Entry};
use quorate_sim::trace::Trace;
use quorate_sim::{Options, run};

/// Seeds of each of the gate's campaigns, at least; and at most, for facts that take a rare event.
const SEEDS: (u64, u64) = (4, 15);

/// The kinds of facts that replicas state in the first seeds of what the gate simulates.
fn stated(entry: &Entry) -> BTreeSet<String> {
    let stated = Rc::new(RefCell::new(BTreeSet::new()));
    for seed in 0..SEEDS.1 {
        let is_stated = |kind: &&str| stated.borrow().contains(*kind);
        if seed >= SEEDS.0 && entry.facts.iter().all(is_stated) {
            break;
        }
        state_all(entry, seed, &stated);
    }
    stated.take()
}

/// Adds those of one seed of each campaign.
fn state_all(entry: &Entry, seed: u64, stated: &Rc<RefCell<BTreeSet<String>>>) {
    for budget in entry.gate {
        let nodes = budget.nodes.unwrap_or(Options::default().nodes).min(entry.capabilities.max_nodes);
        let settings = budget.settings.iter().map(ToString::to_string).collect();
        let faults = budget.faults.unwrap_or("all").parse().expect("kinds of faults");
        let options = Options { nodes, settings, faults, diskless: budget.diskless, ..Options::default() };
        let sink = Rc::clone(stated);
        let trace = Trace::of_facts(move |line| {
            let said = line.split_once(" fact ").map(|(_, fact)| fact);
            let kind = said.and_then(|fact| fact.split(|c: char| !c.is_alphanumeric()).next());
            if let Some(kind) = kind.filter(|kind| !sink.borrow().contains(*kind)) {
                sink.borrow_mut().insert(kind.to_owned());
            }
        });
        let run = run(entry.protocol, &options, seed, trace).expect("the gate's options are valid");
        assert!(run.violation.is_none(), "{}: seed {seed}: {:?}", entry.name, run.violation);
    }
}

#[test]
fn every_protocol_states_the_facts_of_its_entry_and_no_others() {
    let mut wrong = Vec::new();
    for entry in registry::all() {
        let stated = stated(&entry);
        let owed: BTreeSet<_> = entry.facts.iter().map(ToString::to_string).collect();
        if stated != owed {
            wrong.push(format!("{} states {stated:?}, and its entry says {owed:?}", entry.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A checker that gets one kind of fact and not the other, which it needs as well, finds nothing wrong, ever.
#[test]
fn checkers_get_all_facts_that_they_wait_for_or_none() {
    for entry in registry::all() {
        let panel = Panel::of_protocol(&entry.capabilities, false);
        for (checker, awaited) in panel.awaited() {
            let stated = awaited.iter().filter(|kind| entry.facts.contains(kind)).count();
            assert!(
                stated == 0 || stated == awaited.len(),
                "{checker} waits for {awaited:?}, of which {} states only some",
                entry.name
            );
        }
        for kind in ["Applied", "Executed", "Installed"] {
            assert!(
                entry.facts.contains(&kind),
                "{} does not state {kind}, which everybody does",
                entry.name
            );
        }
    }
}
