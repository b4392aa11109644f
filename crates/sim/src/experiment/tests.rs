//! What an experiment shows of protocols whose numbers are known beforehand.

use bytes::Bytes;
use quorate_check::linearizability;
use quorate_check::{MILLISECOND, SECOND};
use quorate_core::{Fact, Manage, NodeSet, Range, Rate, Roster};
use quorate_protocols::registry::named;
use quorate_protocols::wide_area;
use quorate_store::{Command, Condition, Expiry, Reply};

use super::*;

const ONE_WAY: Nanos = 2 * MILLISECOND;

fn setup(settings: &[&str]) -> Setup {
    Setup {
        proxies: 2,
        between_nodes: Delay::Fixed(ONE_WAY),
        clock_error: Some(50_000),
        ..Setup::instant(3, settings, 5 * SECOND)
    }
}

fn put(at: Nanos, proxy: usize) -> Ask {
    let (key, value) = (Bytes::from_static(b"k"), Bytes::from(at.to_string()));
    let command =
        Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false };
    Ask { at, proxy, command, patience: SECOND }
}

fn get(at: Nanos, proxy: usize) -> Ask {
    Ask { at, proxy, command: Command::Get { key: Bytes::from_static(b"k") }, patience: SECOND }
}

/// A write and a read every 10 ms, after the first leader has been elected.
fn load(from: Nanos, to: Nanos) -> Vec<Ask> {
    let times = (from..to).step_by(10 * MILLISECOND as usize);
    times.flat_map(|at| [put(at, 0), get(at + 5 * MILLISECOND, 1)]).collect()
}

fn run(setup: &Setup, asks: Vec<Ask>, acts: &[(Nanos, Act)]) -> Measured {
    let load = Load { asks, acts: acts.to_vec(), clients: None };
    let measured = measure(named("raft"), setup, load).expect("the settings are known");
    linearizability::check(&measured.history).expect("linearizable");
    measured
}

/// The latencies of the operations that began in the last second and succeeded, shortest and longest.
fn steady(measured: &Measured, writes: bool) -> (Nanos, Nanos) {
    let late = measured.operations.iter().filter(|op| op.writes == writes && op.asked >= 3 * SECOND);
    let latencies: Vec<_> = late.map(|op| op.latency().expect("everything is answered")).collect();
    (*latencies.iter().min().unwrap(), *latencies.iter().max().unwrap())
}

#[test]
fn a_write_takes_one_round_trip_and_a_read_what_its_mechanism_says() {
    let asks = || load(2 * SECOND, 4 * SECOND);
    let leaseguard = run(&setup(&["reads=leaseguard", "lease.duration=1s"]), asks(), &[]);
    assert_eq!(steady(&leaseguard, true), (2 * ONE_WAY, 2 * ONE_WAY));
    assert_eq!(steady(&leaseguard, false), (0, 0));
    let quorum = run(&setup(&["reads=quorum"]), asks(), &[]);
    assert_eq!(steady(&quorum, true), (2 * ONE_WAY, 2 * ONE_WAY));
    assert_eq!(steady(&quorum, false), (2 * ONE_WAY, 2 * ONE_WAY));
}

#[test]
fn disks_processors_and_interfaces_add_what_they_are_said_to_take() {
    let mut setup = setup(&["reads=leaseguard", "lease.duration=1s"]);
    setup.sync = 3 * MILLISECOND;
    let measured = run(&setup, load(2 * SECOND, 4 * SECOND), &[]);
    // The follower's disk begins when its message comes; the leader's own is ready before.
    assert_eq!(steady(&measured, true), (2 * ONE_WAY + setup.sync, 2 * ONE_WAY + setup.sync));
    setup.capacity = Capacity { per_input: MILLISECOND / 10, ..Capacity::UNLIMITED };
    let measured = run(&setup, load(2 * SECOND, 4 * SECOND), &[]);
    assert_eq!(steady(&measured, false).0, MILLISECOND / 10);
    setup.capacity = Capacity { interface: Some(Rate::mbit(8)), ..Capacity::UNLIMITED };
    let measured = run(&setup, load(2 * SECOND, 4 * SECOND), &[]);
    assert!(steady(&measured, true).0 > 2 * ONE_WAY + setup.sync);
}

#[test]
fn bytes_and_kinds_of_messages_take_what_they_are_said_to_take() {
    let writes_of = |nodes, capacity| {
        let mut setup = setup(&["reads=leaseguard", "lease.duration=1s"]);
        (setup.nodes, setup.capacity) = (nodes, capacity);
        let measured = run(&setup, load(2 * SECOND, 4 * SECOND), &[]);
        steady(&measured, true).0 - 2 * ONE_WAY
    };
    let writes = |capacity| writes_of(3, capacity);
    let unlimited = Capacity::UNLIMITED;
    assert_eq!(writes(unlimited), 0);
    // Sent to one follower after the other: the first answers, and is waited for.
    let kinds = &[("Append", MILLISECOND), ("AppendReply", MILLISECOND / 10)];
    assert_eq!(writes(Capacity { per_kind: kinds, ..unlimited }), 2 * MILLISECOND + 2 * MILLISECOND / 10);
    // An entry has some 100 bytes at least, and each takes a microsecond.
    let slow = Some(Rate::mbit(8));
    for capacity in [Capacity { disk: slow, ..unlimited }, Capacity { bytes: slow, ..unlimited }] {
        let more = writes(capacity);
        assert!((50_000..2 * MILLISECOND).contains(&more), "{more}");
    }
    // Of five, the second follower is waited for: bytes are sent to each, and encoded once.
    let (sent, encoded) = (Capacity { bytes: slow, ..unlimited }, Capacity { encoding: slow, ..unlimited });
    assert!(writes_of(5, encoded) + 50_000 < writes_of(5, sent));
}

#[test]
fn messages_that_are_taken_first_do_not_wait_behind_requests() {
    // Twice as many reads, at each node, as it has time for.
    let reads =
        (0..2_000).flat_map(|at| (0..3).map(move |node| get(2 * SECOND + at * MILLISECOND / 20, node)));
    let asks: Vec<_> = reads.chain([put(2 * SECOND + 50 * MILLISECOND, 0)]).collect();
    let write = |turns| {
        let mut setup = setup(&["reads=inconsistent", "allow_stale_reads=true"]);
        setup.proxies = 0;
        setup.capacity = Capacity { per_input: MILLISECOND / 10, turns, ..Capacity::UNLIMITED };
        let load = Load { asks: asks.clone(), ..Load::default() };
        let measured = measure(named("raft"), &setup, load).expect("the settings are known");
        measured.operations.iter().find(|op| op.writes).and_then(|op| op.latency()).expect("it is answered")
    };
    let first = write(Turns::MessagesFirst(16));
    let all = write(Turns::MessagesFirst(usize::MAX));
    let in_order = write(Turns::InOrder(16));
    assert!(first < all && first < in_order, "{first} {all} {in_order}");
}

#[test]
fn a_link_sends_at_its_rate_until_the_script_gives_it_another() {
    let node = |id| NodeId::new(id).unwrap();
    let pairs = || (1..=3).flat_map(|a| (1..=3).map(move |b| (node(a), node(b)))).filter(|(a, b)| a != b);
    let fast = Link { delay: std::time::Duration::from_nanos(ONE_WAY), ..Link::default() };
    let slow = Link { rate: Some(Rate::mbit(1)), ..fast };
    let mut setup = setup(&["reads=leaseguard", "lease.duration=1s"]);
    setup.links = pairs().map(|pair| (pair, slow)).collect();
    let measured = run(&setup, load(2 * SECOND, 4 * SECOND), &[]);
    // Messages have 50 bytes at least, and each takes 8 microseconds.
    assert!(steady(&measured, true).0 > 2 * ONE_WAY + 2 * 50 * 8_000);
    assert!(
        measured.bytes.len() > 2 && measured.bytes.keys().all(|pair| pairs().any(|known| known == *pair))
    );
    let acts: Vec<_> = pairs().map(|(from, to)| (2 * SECOND, Act::Link(from, to, fast))).collect();
    let measured = run(&setup, load(2 * SECOND, 4 * SECOND), &acts);
    assert_eq!(steady(&measured, true), (2 * ONE_WAY, 2 * ONE_WAY));
    assert_eq!(measured.acts.len(), 6);
}

/// At 8 Mbit/s, a frame of 64 KiB takes 66 ms.
#[test]
fn groups_have_nothing_in_common_but_the_links_of_their_machines() {
    let mut setup = setup(&["reads=leaseguard", "lease.duration=1s", "election.timeout=1s"]);
    (setup.nodes, setup.groups, setup.proxies) = (6, 2, 0);
    setup.capacity.interface = Some(Rate::mbit(8));
    let raft = |setup: &Setup, asks| {
        let load = Load { asks, ..Load::default() };
        measure(named("raft"), setup, load).expect("the settings are known")
    };
    let idle = raft(&setup, Vec::new());
    let leader = |group: usize| {
        let leads = |(_, node, fact): &&(Nanos, NodeId, Fact)| {
            matches!(fact, Fact::Leads { .. }) && (usize::from(node.get()) - 1) / 3 == group
        };
        usize::from(idle.facts.iter().rfind(leads).expect("each group has a leader").1.get()) - 1
    };
    // While one leader sends a large write, the other one has a small one.
    let mut large = put(3 * SECOND, leader(0));
    if let Command::Put { value, .. } = &mut large.command {
        *value = Bytes::from(vec![7; 4 << 16]);
    }
    let small = put(3 * SECOND + 10 * MILLISECOND, leader(1));
    let asks = vec![large, Ask { patience: 2 * SECOND, ..small }];
    let small = |setup: &Setup| raft(setup, asks.clone()).operations[1].latency().expect("it is written");
    assert!(small(&setup) < 30 * MILLISECOND);
    // Turned so that both leaders are on one machine.
    setup.machines = (0..3).chain((3..6).map(|node| (node + 3 - leader(1) % 3 + leader(0)) % 3)).collect();
    assert!(small(&setup) > 60 * MILLISECOND);
}

/// 70 sessions share the 2 GiB that parts may take.
#[test]
fn a_large_write_for_which_its_session_has_no_room_changes_nothing_whoever_leads() {
    let setup = Setup { proxies: 70, end: 10 * SECOND, ..setup(&[]) };
    let large = |at, proxy, mib: usize| {
        let (key, value) = (Bytes::from_static(b"large"), Bytes::from(vec![b'v'; mib << 20]));
        let command =
            Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false };
        Ask { at, proxy, command, patience: SECOND }
    };
    let read = |at, proxy| {
        let command = Command::Get { key: Bytes::from_static(b"large") };
        Ask { at, proxy, command, patience: SECOND }
    };
    let sessions = (0..70).map(|proxy| put(2 * SECOND, proxy));
    let asks = [large(3 * SECOND, 0, 20), large(4 * SECOND, 1, 40), read(5 * SECOND, 2)];
    // The session that had no room goes on, under a leader that has learned of it from the log.
    let after = [read(8 * SECOND, 3), large(8 * SECOND + MILLISECOND, 1, 10), read(9 * SECOND, 3)];
    let load = Load {
        asks: sessions.chain(asks).chain(after).collect(),
        acts: vec![(6 * SECOND, Act::CrashLeader)],
        clients: None,
    };
    let measured = measure(named("raft"), &setup, load).expect("the settings are known");
    let replies = measured.history.0.iter().skip(70).map(|operation| match &operation.returned {
        Some((_, Reply::Value(Some(value)))) => format!("{} MiB", value.len() >> 20),
        Some((_, reply)) => format!("{reply:?}"),
        None => "nothing".to_owned(),
    });
    let replies: Vec<_> = replies.collect();
    assert_eq!(replies, ["Done", "Error(NoRoom)", "20 MiB", "20 MiB", "Done", "10 MiB"]);
}

/// At 8 Mbit/s, a frame of 64 KiB takes 66 ms, and the value four times that. A write and its answer meet it once each.
#[test]
fn a_large_answer_keeps_no_message_waiting_for_more_than_one_frame() {
    let mut setup = setup(&["reads=leaseguard", "lease.duration=1s", "election.timeout=1s"]);
    setup.capacity.interface = Some(Rate::mbit(8));
    let mut large = put(2 * SECOND, 0);
    if let Command::Put { value, .. } = &mut large.command {
        *value = Bytes::from(vec![7; 4 << 16]);
    }
    let answered = 10 * MILLISECOND;
    let asks = vec![large, get(4 * SECOND, 1), put(4 * SECOND + answered, 0)];
    let measured = run(&setup, asks, &[]);
    let latencies: Vec<_> =
        measured.operations.iter().map(|op| op.latency().unwrap() / MILLISECOND).collect();
    let [_, read, write] = latencies[..] else { panic!("{latencies:?}") };
    assert!(read > 4 * 65 && write < 2 * 66 + 10, "{latencies:?}");
}

#[test]
fn another_leader_follows_one_that_dies_and_everything_is_told() {
    let crash = (2500 * MILLISECOND, Act::CrashLeader);
    let setup = setup(&["reads=leaseguard", "lease.duration=1s", "proxy.patience=20ms"]);
    let measured = run(&setup, load(2 * SECOND, 4 * SECOND), std::slice::from_ref(&crash));
    let [(at, _, dead)] = measured.acts[..] else { panic!("one leader dies") };
    assert_eq!(at, crash.0);
    let (elected, leader) = measured.elected_after(at).next().expect("another leads");
    assert_ne!(leader, dead);
    let committed = measured.first_commit_of(leader, elected).expect("it commits");
    // Its predecessor's last entry is at most 10 ms older than the crash.
    let lease_end = at + SECOND;
    assert!((lease_end - 15 * MILLISECOND..lease_end + MILLISECOND).contains(&committed), "{committed}");
    assert_eq!(steady(&measured, false).0, 0);
}

#[test]
fn a_deaf_leader_replicates_what_it_cannot_commit() {
    let at = 2500 * MILLISECOND;
    let acts = [(at, Act::DeafenLeader), (at + 55 * MILLISECOND, Act::CrashLeader)];
    let setup = setup(&["reads=leaseguard", "lease.duration=2s"]);
    let measured = run(&setup, load(2 * SECOND, 3 * SECOND), &acts);
    let (elected, leader) = measured.elected_after(at).next().expect("another leads");
    assert_eq!(measured.limbo_of(leader, elected), Some(6), "one entry each 10 ms");
}

#[test]
fn an_isolated_leader_is_followed_by_another_while_its_clients_still_reach_it() {
    let at = 2500 * MILLISECOND;
    let run = |settings: &[&str]| {
        let asks = load(2 * SECOND, 4 * SECOND);
        let load = Load { asks, acts: vec![(at, Act::IsolateLeader)], clients: None };
        measure(named("raft"), &setup(settings), load).expect("the settings are known")
    };
    let guarded = run(&["reads=leaseguard", "lease.duration=2s", "proxy.patience=3s"]);
    let (elected, _) = guarded.elected_after(at).next().expect("the others have a leader");
    let late = |op: &&Operation| !op.writes && op.asked > elected && op.latency() == Some(0);
    assert!(guarded.operations.iter().filter(late).count() > 10, "its lease outlasts its term");
    let writes = guarded.operations.iter().filter(|op| op.writes && op.asked > at);
    assert_eq!(writes.filter(|op| op.succeeded).count(), 0);
}

/// Five nodes at the paper's sites, one millisecond between a client and its node, and twelve clients in closed loops
/// that write each fifth time.
fn wide(settings: &[&str], acts: Vec<(Nanos, Act)>) -> (Setup, Measured) {
    let geo = Topology::named("geo").unwrap();
    let settings = wide_area::settings(&geo, named("raft"), 5)
        .into_iter()
        .chain(settings.iter().map(ToString::to_string));
    let setup = Setup {
        nodes: 5,
        proxies: 0,
        settings: settings.collect(),
        topology: Some(geo),
        links: BTreeMap::new(),
        to_clients: Delay::Fixed(MILLISECOND / 2),
        end: 20 * SECOND,
        ..setup(&[])
    };
    let mut count = 0;
    let draw = |client, _| {
        count += 1;
        let command = match count % 5 {
            0 => put(count, 0).command,
            _ => get(0, 0).command,
        };
        (client % 4, command)
    };
    let clients = Clients {
        count: 12,
        from: 5 * SECOND,
        until: 18 * SECOND,
        think: MILLISECOND,
        patience: SECOND,
        draw: Box::new(draw),
    };
    let load = Load { asks: Vec::new(), clients: Some(clients), acts };
    let measured = measure(named("raft"), &setup, load).expect("the settings are known");
    linearizability::check(&measured.history).expect("linearizable");
    (setup, measured)
}

#[test]
fn clients_in_closed_loops_pay_the_distances_of_their_sites() {
    let (setup, measured) = wide(&["reads=leaseguard"], Vec::new());
    let (_, leader) = measured.elected_after(0).next().expect("somebody leads");
    let geo = setup.topology.unwrap();
    let leader = usize::from(leader.get()) - 1;
    let mut trips: Vec<_> = (0..5).map(|site| geo.round_trip(leader, site)).collect();
    trips.sort();
    let nanos = |time: std::time::Duration| time.as_nanos() as Nanos;
    for site in 0..4 {
        let there = MILLISECOND + nanos(geo.round_trip(site, leader));
        let reads = measured.latencies(site, false, (8 * SECOND, 17 * SECOND));
        assert_eq!(reads.quantile(0.5), Some(there), "the way to the leader and back");
        let writes = measured.latencies(site, true, (8 * SECOND, 17 * SECOND));
        assert_eq!(writes.quantile(0.0), Some(there + nanos(trips[2])), "and its majority");
        // Three clients, each of which asks once in that time and a millisecond.
        let mean = (reads.rate() * reads.mean().unwrap() + writes.rate() * writes.mean().unwrap())
            / (reads.rate() + writes.rate());
        let expected = 3.0 * SECOND as f64 / (mean + MILLISECOND as f64);
        let rate = reads.rate() + writes.rate();
        assert!((rate / expected - 1.0).abs() < 0.05, "{rate} of {expected}");
    }
    assert_eq!(measured.latencies(4, false, (0, 20 * SECOND)).count(), 0, "it has no clients");
}

#[test]
fn clients_whose_node_dies_go_to_the_nearest_that_lives_and_operators_are_answered() {
    let node = |id| NodeId::new(id).unwrap();
    let transfer = Act::Manage(0, Manage::Transfer { to: Some(node(2)) });
    let acts = vec![(6 * SECOND, transfer), (10 * SECOND, Act::Crash(node(1)))];
    let (_, measured) = wide(&["reads=leaseguard"], acts);
    let [managed] = &measured.managed[..] else { panic!("one is asked") };
    assert!(managed.succeeded && managed.ended.is_some(), "{managed:?}");
    assert_eq!(measured.acts.len(), 1);
    let reads = |between| measured.latencies(0, false, between).quantile(0.5);
    // From EU to VA and back: first between the nodes, then between the client and the node there.
    let trip = 77 * MILLISECOND;
    assert_eq!(reads((8 * SECOND, 9 * SECOND)), Some(trip + MILLISECOND));
    assert_eq!(reads((12 * SECOND, 17 * SECOND)), Some(trip));
    assert!(measured.operations.iter().any(|op| !op.succeeded), "those that were under way when it died");
}

#[test]
fn what_idle_replicas_of_bodega_send_does_not_grow_with_their_roster() {
    // Messages and their bytes in ten seconds, with so many ranges of keys in the roster.
    let idle = |ranges: u32| {
        let responders: NodeSet = [1, 2].into_iter().filter_map(NodeId::new).collect();
        let key = |number: u32| Range::key(&Bytes::from(format!("key-{number:06}")), responders);
        let roster = Roster::new(None, (0..ranges).map(key).collect()).unwrap();
        let until = |end| {
            let acts = vec![(2 * SECOND, Act::Manage(0, Manage::Roster(roster.clone())))];
            let load = Load { asks: Vec::new(), acts, clients: None };
            let measured = measure(named("bodega"), &Setup { end, ..setup(&[]) }, load).unwrap();
            assert!(measured.managed.iter().all(|managed| managed.succeeded), "{:?}", measured.managed);
            (measured.sent["Heartbeat"], measured.bytes.values().sum::<u64>())
        };
        let ((heartbeats, bytes), (more, all)) = (until(8 * SECOND), until(18 * SECOND));
        (more - heartbeats, all - bytes)
    };
    let (one, many) = (idle(1), idle(1000));
    assert!(one.0 > 0, "{one:?}");
    assert_eq!(one, many);
}

#[test]
fn equal_seeds_give_equal_experiments() {
    let digest = |seed| {
        let mut setup = Setup { seed, ..setup(&[]) };
        setup.between_nodes = Delay::LogNormal { mean: 1e6, deviation: 1e6 };
        let measured = run(&setup, load(2 * SECOND, 3 * SECOND), &[(2500 * MILLISECOND, Act::CrashLeader)]);
        (measured.operations, measured.facts, measured.sent)
    };
    assert!(digest(1) == digest(1));
    assert!(digest(1) != digest(2));
}
