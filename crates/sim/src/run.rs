//! One run: a fault phase, in which nothing wrong may happen, then a healing phase, in which everything must be well.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::reach::{Reach, Timeouts};
use quorate_check::history::History;
use quorate_check::log::Logs;
use quorate_check::panics;
use quorate_check::sequential::WriteOrder;
use quorate_check::service::Service;
use quorate_check::{Checker, MILLISECOND, Nanos, Panel, SECOND, Violation};
use quorate_core::{Capabilities, NodeId, NodeSet, Random};
use quorate_runtime::AnyProtocol;

use crate::clock::{Clock, Quality};
use crate::cluster::{Cluster, Event, Knobs, Operator, SLOWNESS};
use crate::disk::{Disk, Speed};
use crate::faults::{Counts, Kind, Plan, Scope};
use crate::founded;
use crate::judge::judge;
use crate::network::{Latency, Network, spread};
use crate::options::{MAX_HOSTS, Options, OptionsError};
use crate::process::SimProcess;
use crate::queue::Queue;
use crate::setup::{Setup, configure, members};
use crate::trace::Trace;
use crate::workload::Workload;

/// The longest one-way delay of other hosts, in the median.
const NEAR: Nanos = MILLISECOND;

/// How long healing may take where messages take no time: elections, waits of restarted grantors, catching up.
pub(crate) const HEALING: Nanos = 30 * SECOND;
/// One-way delays of a request: to a replica that does not lead, back, to the leader, to the others and back, to the
/// client. And all of that once again.
const REQUEST_DELAYS: u64 = 12;
/// How often the run looks after itself.
const POLL: Nanos = 50 * MILLISECOND;
/// More events than this are no run but an endless conversation.
const MOST_EVENTS: u64 = 20_000_000;

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// How long it took in virtual time, in nanoseconds.
    pub virtual_time: Nanos,
    /// Events that happened.
    pub events: u64,
    /// Client requests that were answered.
    pub operations: u64,
    /// Checkpoints that were begun.
    pub checkpoints: u64,
    /// Faults that happened.
    pub faults: Counts,
    /// The faults that were on.
    pub plan: Plan,
    /// The digest of everything that happened.
    pub digest: u64,
    /// Whether the linearizability checker gave up on the history: its keys are tied by many operations on several of
    /// them whose outcome is unknown. Nothing is known to be wrong with it.
    pub undecided: bool,
    /// Whether the run ended early, since nobody owed anything any more: a majority of the changed group was lost, or
    /// nobody was known to have the data.
    pub group_lost: bool,
    /// What went wrong.
    pub violation: Option<Violation>,
    /// The longest that somebody waited for a write and none was answered, once nothing more failed.
    pub longest_wait: Nanos,
    /// What the clients saw, as far as the run got.
    pub history: History,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Faults,
    /// Every client completes some more requests.
    Healing,
    /// Every key is read through every proxy.
    Reading,
    /// All replicas reach one state.
    Converging,
    Done,
    /// Nobody can serve the changed group any more, or has the data, and nothing is owed to anybody.
    GroupLost,
}

/// Runs one seed.
pub fn run(
    protocol: &dyn AnyProtocol,
    options: &Options,
    seed: u64,
    trace: Trace,
) -> Result<Run, OptionsError> {
    options.check(protocol.name(), protocol.capabilities())?;
    Ok(finish(prepare(protocol, options, seed, trace)?, options, seed))
}

/// A cluster with everything that this seed has drawn.
pub(crate) fn prepare(
    protocol: &dyn AnyProtocol,
    options: &Options,
    seed: u64,
    trace: Trace,
) -> Result<Cluster, OptionsError> {
    let mut root = Random::new(seed);
    let far = root.chance(0.15);
    let setup = configure(protocol, options, far, root.fork())?;
    let settings = setup.words.clone();
    let mut cluster = build(protocol, options, root, (far, trace), setup);
    cluster.introduce(seed, &settings);
    Ok(cluster)
}

/// Runs a cluster to its end, and judges what its clients saw.
pub(crate) fn finish(mut cluster: Cluster, options: &Options, seed: u64) -> Run {
    let end = options.end();
    // A leader may be slow, and everything is read through it in the end.
    let furthest = match cluster.plan.kinds.contains(Kind::SlowNodes) {
        true => cluster.furthest.max(NEAR) * SLOWNESS,
        false => cluster.furthest,
    };
    let group_lost = panics::catch(|| drive(&mut cluster, end, furthest)).unwrap_or_else(|panic| {
        cluster.fail("assertion", panic);
        false
    });
    let (history, undecided) = judge(&mut cluster, options.founded);
    Run {
        seed,
        virtual_time: cluster.now,
        events: cluster.queue.scheduled(),
        operations: cluster.work.completed,
        checkpoints: cluster.checkpoints,
        faults: cluster.counts.clone(),
        plan: cluster.plan.clone(),
        digest: cluster.trace.digest(),
        undecided,
        group_lost,
        longest_wait: cluster.service.longest_wait(),
        violation: cluster.violation.take(),
        history,
    }
}

/// How many nodes are there that are not in the group as it is set up.
fn spares(can: Capabilities, options: &Options, random: &mut Random) -> usize {
    let most = MAX_HOSTS.saturating_sub(options.nodes + options.proxies);
    if can.membership { (*random.pick(&[0, 1, 1, 2, 2, 2])).min(most) } else { 0 }
}

fn build(
    protocol: &dyn AnyProtocol,
    options: &Options,
    mut root: Random,
    (far, trace): (bool, Trace),
    setup: Setup,
) -> Cluster {
    let Setup { by_reach, others, timeouts, drift, furthest, consistency, .. } = setup;
    let least = timeouts.map_or(Reach::SHORTEST, Timeouts::least);
    let limits = by_reach[least.index()].limits;
    let can = protocol.capabilities();
    let groups = protocol.groups();
    let nodes = options.nodes + spares(can, options, &mut root);
    let hosts = nodes + options.proxies;
    let duration = options.duration.as_nanos() as Nanos;
    let scope = Scope { nodes, hosts, can, end: duration };
    let plan = Plan::draw(options.faults, scope, root.u64());
    let mut knobs = root.fork();
    let mut workload = root.fork();
    let mut counts = Counts::default();
    let on = |kind| plan.kinds.contains(kind);
    let quality = Quality {
        drift: if on(Kind::Drift) { drift } else { 0.0 },
        wall_jumps: on(Kind::WallJumps),
        beyond_bound: on(Kind::ClocksBeyondBound),
    };
    let mut latencies = latencies(hosts, far, &mut root.fork());
    if let Some((_, topology)) = &options.topology {
        spread(&mut latencies, topology);
    }
    let mut network = Network::new(hosts, |from, to| latencies[from][to], plan.noise, root.fork());
    if let Some((_, topology)) = &options.topology {
        let site = |host| host % topology.sites().len();
        for host in 0..nodes {
            let link = |other| topology.link(site(host), site(other)).rate;
            network.rate(host, link, topology.interface(site(host)));
        }
    }
    if let Some(rate) = plan.rate {
        (0..hosts).for_each(|host| network.rate(host, |_| Some(rate), None));
        counts.add(Kind::ThinLinks);
    }
    let sync = Latency::LogNormal { median: *knobs.pick(&[50_000, 500_000, 5_000_000]) };
    let speed = Speed { write: Latency::LogNormal { median: 20_000 }, sync, bandwidth: None };
    let mut widening = widening(&plan, options.nodes);
    let widened = widening.iter().flat_map(|(_, nodes, _)| nodes.iter()).collect();
    let (founded, group) = (options.founded.then(founded::state), members(options.nodes));
    let hosts: Vec<_> = (0..hosts)
        .map(|host| {
            let mut random = root.fork();
            let mut clock = Clock::draw(quality, duration, &mut random.fork());
            if quality.beyond_bound {
                counts.add(Kind::ClocksBeyondBound);
            } else if clock.drifts() {
                counts.add(Kind::Drift);
            }
            clock.wall_jumps().filter(|at| *at < options.end()).for_each(|_| counts.add(Kind::WallJumps));
            let node = (host < nodes).then(|| NodeId::new(host as u64 + 1).expect("few nodes"));
            if let (Some(node), Some((at, nodes, random))) = (node, &mut widening)
                && nodes.contains(node)
            {
                counts.add(Kind::WideClocks);
                clock.widen(*at, WIDE, random);
            }
            let mut disk = Disk::new(speed, random.fork());
            if let Some(state) = founded.as_ref().filter(|_| node.is_some_and(|node| group.contains(node))) {
                disk.found(by_reach[least.index()].configs.found(state.clone()));
            }
            SimProcess { least, ..SimProcess::new(node, disk, clock, random) }
        })
        .collect();
    let mut cluster = Cluster {
        can,
        diskless: options.diskless,
        now: 0,
        queue: Queue::default(),
        nodes,
        members: members(options.nodes),
        by_reach,
        others,
        changed: false,
        timeouts,
        operator: Operator::new(members(options.nodes), members(nodes), groups.len()),
        logs: groups.iter().map(|_| Logs::default()).collect(),
        network,
        knobs: Knobs::draw(&mut knobs, options.values),
        counts,
        panels: groups
            .iter()
            .map(|group| Panel::of_protocol(&group.capabilities(), quality.beyond_bound))
            .collect(),
        // Where keys have histories of their own, the slot of a write says nothing of other keys.
        executed: (can.multi_key && !quality.beyond_bound).then(BTreeMap::new),
        consistency,
        order: WriteOrder::default(),
        work: Workload::new(
            (options.clients, options.readers, options.writers),
            hosts.len(),
            duration,
            (options.values, can.multi_key),
            &mut workload,
        ),
        trace,
        random: root.fork(),
        violation: None,
        healed: false,
        impairments: plan.impairments.len() + plan.lost_links.iter().count(),
        lost_links: None,
        widened,
        service: Service::new(limits),
        heal_at: options.end(),
        clear_at: options.end(),
        furthest: furthest.as_nanos() as Nanos,
        checkpoints: 0,
        awaiting_piece: None,
        states: Default::default(),
        posts: 0,
        hosts,
        plan,
    };
    if options.founded {
        let members = options.nodes as u64;
        cluster.panels.iter_mut().for_each(|panel| panel.on_founded(founded::SLOT, members));
        cluster.logs.iter_mut().for_each(|logs| logs.on_founded(founded::SLOT));
    }
    schedule(&mut cluster, options);
    cluster
}

/// Half the width of a clock that has become wide.
const WIDE: Nanos = 10 * SECOND;

/// When clocks become wide, whose, and what draws the rest: those of a minority of the members.
fn widening(plan: &Plan, members: usize) -> Option<(Nanos, NodeSet, Random)> {
    let widening = plan.widening?;
    let mut random = Random::new(widening.seed);
    let mut nodes = NodeSet::EMPTY;
    for _ in 0..(members - 1) / 2 {
        nodes.insert(NodeId::new(random.range(1..members as u64 + 1)).expect("few nodes"));
    }
    Some((widening.at, nodes, random))
}

fn latencies(hosts: usize, far: bool, random: &mut Random) -> Vec<Vec<Latency>> {
    let scale = if far { 10 * MILLISECOND } else { *random.pick(&[30_000, 100_000, 500_000]) };
    let mut draw = |from: usize, to: usize| {
        let median = random.range(scale / 2..scale * 2);
        match from == to || !far {
            true => Latency::LogNormal { median },
            // Long lines are steadier.
            false => Latency::Uniform { low: median, high: median * 5 / 4 },
        }
    };
    (0..hosts).map(|from| (0..hosts).map(|to| draw(from, to)).collect()).collect()
}

/// How long a cluster may take to serve all clients and converge: each has its share of requests to make, and at the
/// end one reader a host asks for one key after the other, through the log perhaps. Where links are thin, each may wait
/// behind what restless writers have just sent.
fn healing(cluster: &Cluster, furthest: Nanos) -> Nanos {
    let behind = cluster.plan.rate.map(|rate| rate.transmission(cluster.work.restless_bytes()));
    let request = REQUEST_DELAYS * furthest + behind.unwrap_or_default().as_nanos() as Nanos;
    HEALING + request * cluster.work.requests_since_heal() as Nanos
}

fn schedule(cluster: &mut Cluster, options: &Options) {
    for host in 0..cluster.hosts.len() {
        let at = cluster.random.range(0..20 * MILLISECOND);
        cluster.queue.push(at, Event::Start { host });
    }
    for (index, fault) in cluster.plan.schedule.iter().enumerate() {
        if fault.at < options.end() && !options.skip.contains(&index) {
            cluster.queue.push(fault.at, Event::Fault(index));
        }
    }
    for lane in 0..cluster.work.lanes.len() {
        let at = cluster.random.range(0..SECOND);
        cluster.queue.push(at, Event::Ask(lane));
    }
    cluster.queue.push(options.end(), Event::Heal);
    for (index, impairment) in cluster.plan.impairments.iter().enumerate() {
        cluster.queue.push(options.end() + impairment.after, Event::Impair(index));
    }
    if let Some(lost) = cluster.plan.lost_links {
        cluster.queue.push(lost.at.min(options.end()), Event::LoseLinks);
    }
    cluster.queue.push(POLL, Event::Poll);
}

/// Lets everything happen. Whether that ended because nobody owes anything any more.
fn drive(cluster: &mut Cluster, end: Nanos, furthest: Nanos) -> bool {
    let mut stage = Stage::Faults;
    while cluster.violation.is_none() && !matches!(stage, Stage::Done | Stage::GroupLost) {
        let (at, event) = cluster.queue.pop().expect("a poll is always scheduled");
        cluster.now = at;
        if cluster.queue.scheduled() > MOST_EVENTS {
            cluster.fail("liveness", "an endless conversation: too many events for one run");
        }
        match event {
            Event::Poll => {
                stage = poll(cluster, stage, end, furthest);
                // A leader may append something now and then for ever; not always just before it is looked at.
                let again = if stage == Stage::Converging { cluster.random.range(0..POLL) } else { POLL };
                cluster.queue.push(at + again, Event::Poll);
            }
            event => cluster.handle(event),
        }
    }
    if cluster.violation.is_none() {
        cluster.finish_checks(stage == Stage::GroupLost);
    }
    stage == Stage::GroupLost
}

fn poll(cluster: &mut Cluster, stage: Stage, end: Nanos, furthest: Nanos) -> Stage {
    let healing = healing(cluster, furthest);
    if cluster.now > end + healing {
        if !cluster.is_tolerable() {
            // It was asked to, before they went.
            cluster.trace.line(cluster.now, "!", || "a majority of the changed group is lost".to_owned());
            return Stage::GroupLost;
        }
        if cluster.has_lost_its_memory() {
            cluster.trace.line(cluster.now, "!", || "nobody is known to have all data".to_owned());
            return Stage::GroupLost;
        }
        let what = format!(
            "{:?} after all faults were over, {}",
            Duration::from_nanos(healing),
            unfinished(cluster, stage)
        );
        cluster.fail("liveness", what);
        return stage;
    }
    cluster.judge_service();
    match stage {
        Stage::Faults if !cluster.healed => {
            if cluster.random.chance(0.1) {
                let host = cluster.random.range(0..cluster.nodes as u64) as usize;
                cluster.compare_states(host);
            }
            Stage::Faults
        }
        Stage::Faults => Stage::Healing,
        Stage::Healing if cluster.work.is_done() && cluster.impairments == 0 => {
            let impaired = cluster.impaired();
            let well = |host: &usize| cluster.hosts[*host].node.is_none_or(|node| !impaired.contains(node));
            let left = (0..cluster.hosts.len()).filter(|host| well(host) && cluster.serves_clients(*host));
            let left: Vec<_> = left.collect();
            for lane in cluster.work.add_readers(left.into_iter()) {
                cluster.queue.push(cluster.now, Event::Ask(lane));
            }
            Stage::Reading
        }
        Stage::Reading if cluster.work.is_done() => Stage::Converging,
        Stage::Healing | Stage::Reading => stage,
        Stage::Converging => match cluster.has_converged() && cluster.are_refused() {
            true => Stage::Done,
            false => Stage::Converging,
        },
        Stage::Done | Stage::GroupLost => stage,
    }
}

/// What a run that does not end is waiting for.
fn unfinished(cluster: &Cluster, stage: Stage) -> String {
    let lanes = cluster.work.lanes.iter().enumerate().filter(|(_, lane)| lane.pending.is_some());
    let waiting: Vec<_> =
        lanes.map(|(index, lane)| format!("{index} at {}", cluster.hosts[lane.host])).collect();
    let states = cluster.hosts[..cluster.nodes].iter().map(|host| match host.status(cluster.now) {
        Some(status) => format!(
            "{host} {} {} committed {} applied {}",
            status.role, status.ballot, status.committed, status.applied
        ),
        None if host.lost => format!("{host} lost"),
        None if host.damaged => format!("{host} is to be refused"),
        None => format!("{host} down"),
    });
    let states: Vec<_> = states.collect();
    match stage {
        Stage::Converging => format!("the replicas have not converged: {}", states.join("; ")),
        _ => format!("clients {} still wait for replies: {}", waiting.join(", "), states.join("; ")),
    }
}

impl Run {
    /// Whether nothing went wrong.
    pub fn is_fine(&self) -> bool {
        self.violation.is_none()
    }
}
