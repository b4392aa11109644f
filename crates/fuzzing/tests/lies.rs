//! Replicas whose peers say what cannot be. What no correct member can have said is dropped; where a member contradicts
//! what it has said before, replicas that cannot both be right stop.

use std::panic::catch_unwind;

use quorate_fuzzing::disturb;
use quorate_protocols::registry;

/// Conversations of each protocol, each disturbed in another way.
const CONVERSATIONS: u64 = 60;

/// What a replica says that stops because a member has contradicted itself: it relies on one who leads a ballot or term
/// not to propose two values for a slot, on followers not to acknowledge what nobody has sent, and on acceptors to tell
/// the shards that they were sent: a value that is not restored may have been chosen.
const CONTRADICTIONS: [&str; 4] = [
    "two values for slot",
    "a follower's log is never ahead of what its leader sent",
    "is committed and cannot be replaced",
    "restore something else",
];

/// Disturbs conversations; how many changed messages came, and what replicas that stopped have said.
fn disturbed(protocol: &'static str) -> (u64, Vec<String>) {
    let (mut came, mut stopped) = (0, Vec::new());
    for seed in 0..CONVERSATIONS {
        match catch_unwind(|| disturb(protocol, seed)) {
            Ok(count) => came += count,
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned();
                let literal = payload.downcast_ref::<&str>().map(ToString::to_string);
                stopped.push(text.or(literal).unwrap_or_default());
            }
        }
    }
    (came, stopped)
}

#[test]
fn epaxos_replicas_stand_whatever_their_peers_say() {
    let (came, stopped) = disturbed("epaxos");
    assert!(came > 100 * CONVERSATIONS, "{came} changed messages came");
    assert!(stopped.is_empty(), "{stopped:?}");
}

#[test]
fn replicas_of_all_protocols_stop_only_where_a_peer_contradicts_itself() {
    for entry in registry::all() {
        let (_, stopped) = disturbed(entry.name);
        let known = |text: &String| CONTRADICTIONS.iter().any(|known| text.contains(known));
        let others: Vec<_> = stopped.iter().filter(|text| !known(text)).collect();
        assert!(others.is_empty(), "{}: {others:?}", entry.name);
    }
}
