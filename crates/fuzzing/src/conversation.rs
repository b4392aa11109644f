//! A small cluster of any protocol, stepped until it has answered a few clients. Its messages and records are seeds;
//! and with some of its messages come changed copies of them, as a peer with a defect might send them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Group, Instant, NodeId, Payload, ProcessId, ProxyId, Random, Request, RequestId, Saved, Settings,
    Time, Wall, Wire,
};
use quorate_runtime::{
    AnyProcess, AnyProtocol, ConfiguredProtocol, Effects, Input, OutgoingFrame, OwnMessages, Start,
};
use quorate_store::{Command, Condition, Expiry};

/// Steps of a cluster's time.
const TICK: Duration = Duration::from_millis(10);
const TICKS: u64 = 400;
/// Different messages of one type.
const EACH: usize = 4;
/// Larger ones would fill the corpus.
const LARGEST: usize = 1000;

/// Numbers where arithmetic may go wrong.
const EXTREMES: [u64; 8] =
    [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, (1 << 57) - 1, u32::MAX as u64];

/// A copy with some bytes changed, or a number in it replaced by an extreme one.
fn changed(message: &Bytes, random: &mut Random) -> Bytes {
    let mut bytes = message.to_vec();
    let at = random.range(0..bytes.len() as u64) as usize;
    match random.range(0..3) {
        0 => bytes[at] = random.u64() as u8,
        1 => bytes[at] ^= 1 << random.range(0..8),
        _ => {
            let word = random.pick(&EXTREMES).to_le_bytes();
            let end = bytes.len().min(at + word.len());
            bytes[at..end].copy_from_slice(&word[..end - at]);
        }
    }
    bytes.into()
}

fn at(tick: u64) -> Instant {
    let nanos = TICK.as_nanos() as u64 * (tick + 1);
    Instant { now: Time::from_nanos(nanos), wall: Wall::from_millis(nanos / 1_000_000), clock: None }
}

/// A protocol with its default settings, and the members of its group.
fn configure(protocol: &dyn AnyProtocol) -> (Arc<dyn ConfiguredProtocol>, Vec<NodeId>) {
    let count = protocol.capabilities().max_nodes.min(3) as u64;
    let nodes: Vec<NodeId> = (1..=count).filter_map(NodeId::new).collect();
    let group = Group::of(nodes.iter().copied().collect());
    let configured = protocol.configure(&group, &mut Settings::default()).expect("the defaults are valid");
    (configured, nodes)
}

fn start(protocol: &dyn ConfiguredProtocol, node: NodeId) -> Box<dyn AnyProcess> {
    let (proxy, random, own) = (ProxyId::of(node), Random::new(1), OwnMessages::AsFrames);
    protocol.start(Start { proxy, node: Some(node), at: at(0), random, observed: true, own })
}

/// A process whose replica has not started: for its encodings.
pub fn process(protocol: &dyn AnyProtocol) -> Box<dyn AnyProcess> {
    let (configured, nodes) = configure(protocol);
    start(&*configured, nodes[0])
}

/// Steps a cluster, and gives the records, which are durable at once. `hear` is told the kind of each message and its
/// bytes, and gives others that come with it to a replica, if they are messages; of these it gives how many came.
fn converse(
    protocol: &dyn AnyProtocol,
    mut hear: impl FnMut(&'static str, &Bytes) -> Option<Bytes>,
) -> (Vec<Bytes>, u64) {
    let (configured, nodes) = configure(protocol);
    let mut processes = BTreeMap::new();
    for node in &nodes {
        let mut process = start(&*configured, *node);
        process.load(Saved::nothing()).expect("there are no records");
        process.start_replica(at(0), Random::new(1));
        processes.insert(*node, process);
    }
    let (mut records, mut came) = (Vec::new(), 0);
    for tick in 0..TICKS {
        let mut network = Vec::new();
        for (node, process) in &mut processes {
            if tick % 40 == 20 && *node == nodes[0] {
                process.take(Input::Request(RequestId(tick), request(tick))).expect("no bytes to refuse");
                process.step(at(tick));
            }
            while process.take_due_timer(at(tick).now).is_some() {
                process.step(at(tick));
            }
            process.end_batch(at(tick));
            process.release(u64::MAX);
            let Effects { records: persisted, frames, .. } = std::mem::take(process.effects());
            records.extend(persisted.into_iter().map(Payload::into_bytes));
            network.extend(frames);
        }
        for OutgoingFrame { from, to, kind, payload, .. } in network {
            let payload = payload.into_bytes();
            for to in to.iter() {
                let more = hear(kind, &payload);
                let (node, more) = match to {
                    // The second half of the time, one replica is cut off.
                    ProcessId::Replica(node) if nodes[1..].last() == Some(&node) && tick > TICKS / 2 => {
                        continue;
                    }
                    ProcessId::Replica(node) => (Some(node), more.filter(|_| from.replica().is_some())),
                    ProcessId::Proxy(proxy) => (proxy.host(), None),
                };
                // Who was lied to may write to strangers.
                let Some(process) = node.and_then(|node| processes.get_mut(&node)) else { continue };
                for (payload, is_changed) in [(Some(payload.clone()), false), (more, true)] {
                    // Or say what nobody can read: it is refused, as by a node.
                    if let Some(payload) = payload
                        && process.take(Input::Frame { from, to, payload }).is_ok()
                    {
                        process.step(at(tick));
                        came += u64::from(is_changed);
                    }
                }
            }
        }
    }
    (records, came)
}

/// Brings replicas changed copies of what they say to each other, drawn by the seed; they must not panic. Gives how
/// many came.
pub fn disturb(protocol: &dyn AnyProtocol, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    converse(protocol, |_, message| random.chance(0.3).then(|| changed(message, &mut random))).1
}

/// Messages by their kind, and records, encoded: a few of each.
pub fn encodings(protocol: &dyn AnyProtocol) -> (BTreeMap<&'static str, BTreeSet<Bytes>>, Vec<Bytes>) {
    let mut messages: BTreeMap<&'static str, BTreeSet<Bytes>> = BTreeMap::new();
    let (records, _) = converse(protocol, |kind, bytes| {
        let same = messages.entry(kind).or_default();
        if same.len() < EACH && bytes.len() <= LARGEST {
            same.insert(bytes.clone());
        }
        None
    });
    assert!(messages.len() > 1 && !records.is_empty(), "{}: nothing was said", protocol.name());
    let records: BTreeSet<Bytes> = records.into_iter().filter(|bytes| bytes.len() <= LARGEST).collect();
    (messages, records.into_iter().take(4 * EACH).collect())
}

/// The same as seeds.
pub fn overhear(protocol: &dyn AnyProtocol) -> Vec<Vec<u8>> {
    let (messages, records) = encodings(protocol);
    messages.into_values().flatten().chain(records).map(|bytes| bytes.to_vec()).collect()
}

fn request(tick: u64) -> Request {
    let (key, value) = (Bytes::from_static(b"key"), Bytes::from(format!("value {tick}")));
    let (condition, expiry) = (Condition::Always, Expiry::In(5000));
    let command = match tick % 80 {
        20 => Command::Put { key, value, condition, expiry, old: false },
        _ => Command::Get { key },
    };
    let access = if command.is_read_only() { Access::Read } else { Access::Write };
    let deadline = at(tick + 100).now;
    Request { stream: 1, command: command.to_bytes(), access, deadline, after: 0 }
}
