//! A node's state as JSON: what `QUORATE STATUS` answers, and `/status.json` with more beside it.

use quorate_core::{Amount, NodeId, Status};
use quorate_node::frontend::{Contact, Unreachable};
use serde_json::{Value, json};

use crate::resp::KeyGroups;

/// One object. `groups` are those of the node, if its keys are divided among several, and what each says of itself.
pub(crate) fn describe(
    status: &Status,
    facts: Vec<(&'static str, String)>,
    contacts: &[Contact],
    groups: Option<(&KeyGroups, &[Status])>,
) -> Value {
    let peers = status
        .peers
        .iter()
        .map(|peer| json!({ "node": peer.node.get(), "lag": peer.lag, "heard_ms": peer.heard_ms }));
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
    // One value for each name: distributions and what has labels are for /metrics.
    let samples = status.samples.iter().filter(|sample| sample.label.is_none()).filter_map(|sample| {
        let value = match sample.value {
            Amount::Count(count) => json!(count),
            Amount::Time(time) => json!(time.as_secs_f64()),
            Amount::Times(_) => return None,
        };
        Some((sample.name.to_owned(), value))
    });
    let mut text = replica(status);
    text["peers"] = peers.collect();
    text["contacts"] = contacts.iter().map(contact).collect();
    text["samples"] = samples.collect();
    text["facts"] = facts.collect();
    if let Some((groups, statuses)) = groups {
        text["groups"] = groups.describe(statuses).into();
    }
    text
}

fn contact(contact: &Contact) -> Value {
    let unreachable =
        |Unreachable { lasts, why }: &Unreachable| json!({ "ms": lasts.as_millis() as u64, "why": why });
    json!({
        "node": contact.node.get(),
        "site": contact.site,
        "round_trip_ms": contact.round_trip.map(|took| took.as_secs_f64() * 1000.0),
        "unreachable": contact.unreachable.as_ref().map(unreachable),
    })
}

/// What every replica says of itself: that of the node, and that of each of several groups.
pub(crate) fn replica(status: &Status) -> Value {
    json!({
        "role": status.role,
        "leader": status.leader.map(NodeId::get),
        "ballot": status.ballot,
        "committed": status.committed,
        "applied": status.applied,
        "lease": status.lease,
        "reads": status.reads,
    })
}
