//! What must always hold at one replica. What an instance must be like is asserted wherever it changes; the rest after
//! every step of the simulator.

use quorate_parts::graph::Instance;

use super::instance::{Held, Phase};
use super::replica::Replica;

pub(super) fn check(replica: &Replica) {
    let executed = replica.state.executed();
    assert!(executed.prefix().within(&replica.committed), "what is executed is committed");
    assert!(
        executed.hull().of(replica.me) < replica.next,
        "own instances are proposed before they are executed"
    );
    for (instance, duty) in &replica.duties {
        let held = &replica.table[instance];
        assert!(!held.is_committed(), "{instance:?}: nothing is left to do");
        assert!(duty.ballot <= held.state.ballot, "{instance:?}: works in a ballot that it has joined");
    }
}

pub(super) fn check_instance(instance: Instance, held: &Held) {
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
