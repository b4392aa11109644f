//! A small cluster of any protocol, stepped until it has answered a few clients. Its messages and records are seeds;
//! and with some of its messages come changed copies of them, as a peer with a defect might send them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Configs, Group, Instant, Machine, NodeId, ProcessId, Protocol, Proxy, ProxyId, Random, Request,
    RequestId, Saved, Settings, Time, Wall, Wire,
};
use quorate_protocols::registry::Visitor;
use quorate_runtime::MachineRunner;
use quorate_store::{Command, Condition, Expiry};

/// Steps of a cluster's time.
const TICK: Duration = Duration::from_millis(10);
const TICKS: u64 = 400;
/// Different messages of one type.
const EACH: usize = 4;
/// Larger ones would fill the corpus.
const LARGEST: usize = 1000;

/// Gives the messages and records, encoded.
pub struct Overheard;

/// Brings replicas changed copies of what they say to each other, drawn by the seed; they must not panic. Gives how
/// many came.
pub struct Disturbed {
    /// Of what is changed, and how.
    pub seed: u64,
}

/// Numbers where arithmetic may go wrong.
const EXTREMES: [u64; 8] =
    [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, (1 << 57) - 1, u32::MAX as u64];

/// A copy with some bytes changed, or a number in it replaced by an extreme one, if that is still a message.
fn changed<M: Wire>(message: &M, random: &mut Random) -> Option<M> {
    let mut bytes = message.to_bytes().to_vec();
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
    M::from_bytes(bytes.into()).ok()
}

fn start<M: Machine>(me: ProcessId, config: M::Config) -> MachineRunner<M> {
    MachineRunner::start(me, config, Saved::nothing(), at(0), Random::new(1), true)
}

/// Fires what is due, and ends the batch. Gives what it sends; records are durable at once.
fn turn<M: Machine>(
    runner: &mut MachineRunner<M>,
    tick: u64,
    records: &mut Vec<Bytes>,
) -> Vec<(ProcessId, M::Message)> {
    while let Some(timer) = runner.timers.pop_due(at(tick).now) {
        runner.step(at(tick), |machine, cx| machine.on_timer(timer, cx));
    }
    runner.end_batch(at(tick));
    records.extend(runner.out.records.drain(..).map(|record| record.to_bytes()));
    runner.out.replies.clear();
    runner.out.facts.clear();
    let sent = runner.out.messages.drain(..);
    sent.flat_map(|sent| sent.to.iter().map(move |to| (to, sent.message.clone()))).collect()
}

fn at(tick: u64) -> Instant {
    let nanos = TICK.as_nanos() as u64 * (tick + 1);
    Instant { now: Time::from_nanos(nanos), wall: Wall::from_millis(nanos / 1_000_000), clock: None }
}

/// Steps a cluster, and gives the records. `hear` is told each message, and gives others that come with it.
fn converse<P: Protocol>(mut hear: impl FnMut(&P::Message) -> Vec<P::Message>) -> Vec<Bytes> {
    let count = P::CAPABILITIES.max_nodes.min(3) as u64;
    let nodes: Vec<NodeId> = (1..=count).filter_map(NodeId::new).collect();
    let group = Group::of(nodes.iter().copied().collect());
    let (replica, proxy): Configs<P> =
        P::configure(&group, &mut Settings::default()).expect("the defaults are valid");
    let replicas = nodes.iter().map(|node| ((*node).into(), start((*node).into(), replica.clone())));
    let mut replicas: BTreeMap<ProcessId, MachineRunner<P::Replica>> = replicas.collect();
    let me = ProxyId::of(nodes[0]).into();
    let mut proxy: MachineRunner<P::Proxy> = start(me, proxy);
    let (mut records, mut network) = (Vec::new(), VecDeque::new());
    for tick in 0..TICKS {
        if tick % 40 == 20 {
            proxy.step(at(tick), |machine, cx| machine.on_request(RequestId(tick), request(tick), cx));
        }
        let turns = replicas.values_mut().flat_map(|host| {
            let from = host.me;
            turn(host, tick, &mut records).into_iter().map(move |(to, message)| (from, to, message))
        });
        network.extend(turns);
        network
            .extend(turn(&mut proxy, tick, &mut records).into_iter().map(|(to, message)| (me, to, message)));
        for (from, to, message) in std::mem::take(&mut network) {
            let more = hear(&message);
            // The second half of the time, one replica is cut off.
            if Some(to) == nodes.last().map(|node| (*node).into()) && count > 1 && tick > TICKS / 2 {
                continue;
            }
            match replicas.get_mut(&to) {
                Some(host) => {
                    let more = more.into_iter().filter(|_| from != me);
                    for message in std::iter::once(message).chain(more) {
                        host.step(at(tick), |machine, cx| machine.on_message(from, message, cx));
                    }
                }
                None => proxy.step(at(tick), |machine, cx| machine.on_message(from, message, cx)),
            }
        }
    }
    records
}

impl Visitor for Disturbed {
    type Out = u64;

    fn visit<P: Protocol>(self) -> u64 {
        let (mut random, mut came) = (Random::new(self.seed), 0);
        converse::<P>(|message| {
            let changed = random.chance(0.3).then(|| changed(message, &mut random)).flatten();
            came += u64::from(changed.is_some());
            changed.into_iter().collect()
        });
        came
    }
}

impl Visitor for Overheard {
    type Out = Vec<Vec<u8>>;

    fn visit<P: Protocol>(self) -> Vec<Vec<u8>> {
        let mut kept: BTreeMap<&'static str, BTreeSet<Bytes>> = BTreeMap::new();
        let records = converse::<P>(|message| {
            let bytes = P::Message::to_bytes(message);
            let same = kept.entry(quorate_core::Message::kind(message)).or_default();
            if same.len() < EACH && bytes.len() <= LARGEST {
                same.insert(bytes);
            }
            Vec::new()
        });
        assert!(kept.len() > 1 && !records.is_empty(), "{}: nothing was said", P::NAME);
        let records: BTreeSet<Bytes> = records.into_iter().filter(|bytes| bytes.len() <= LARGEST).collect();
        let messages = kept.into_values().flatten();
        messages.chain(records.into_iter().take(4 * EACH)).map(|bytes| bytes.to_vec()).collect()
    }
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
    Request { stream: 1, command: command.to_bytes(), access, deadline }
}
