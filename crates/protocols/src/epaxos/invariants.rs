//! What must always hold at one replica, asserted after every step of the simulator.

use quorate_core::NodeId;
use quorate_parts::graph::Instance;

use super::instance::{Held, Phase};
use super::replica::Replica;

pub(super) fn check(replica: &Replica) {
    let executed = replica.state.executed();
    let prefix = executed.prefix();
    assert!(prefix.within(&replica.committed), "what is executed is committed");
    assert!(replica.floor().within(&prefix), "a floor is below what all have executed");
    assert!(
        executed.hull().of(replica.me) < replica.next,
        "own instances are proposed before they are executed"
    );
    for (instance, held) in replica.unexecuted() {
        let state = &held.state;
        assert!(state.voted <= state.ballot, "{instance:?}: a vote above the ballot that was joined");
        assert!(!state.deps.contains(instance), "{instance:?} does not depend on itself");
        match state.phase {
            Phase::Initial => {}
            Phase::PreAccepted => {
                let init = state.init.expect("somebody proposed it");
                assert!(init.within(&state.deps), "{instance:?}: dependencies only grow");
            }
            Phase::Accepted | Phase::Committed => {
                assert!(held.value().is_some(), "{instance:?}: the value is known");
            }
        }
    }
    for (instance, duty) in &replica.duties {
        let held = &replica.table[instance];
        assert!(!held.is_committed(), "{instance:?}: nothing is left to do");
        assert!(duty.ballot <= held.state.ballot, "{instance:?}: works in a ballot that it has joined");
    }
}

impl Replica {
    /// What is in the table and not executed: what is does not change any more.
    fn unexecuted(&self) -> impl Iterator<Item = (Instance, &Held)> {
        let prefix = self.state.executed().prefix();
        let beyond = move |owner: NodeId| {
            (prefix.of(owner) + 1..=self.known.of(owner)).map(move |index| Instance::new(owner, index))
        };
        let instances = self.config.members.iter().flat_map(beyond);
        instances.filter_map(|instance| Some((instance, self.table.get(&instance)?)))
    }
}
