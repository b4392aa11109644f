//! Whole runs of real protocols, mostly of seeds and settings that the gate's campaigns (`registry`) do not have.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use quorate_check::Violation;
use quorate_core::Topology;
use quorate_protocols::registry::{self, named};
use quorate_sim::faults::Kind;
use quorate_sim::trace::Trace;
use quorate_sim::{Options, run, sim};

fn assert_passes(protocol: &str, options: &Options) {
    let summary = sim(named(protocol), options, &mut |_| {}).unwrap();
    assert!(summary.is_fine(), "{summary}");
    assert!(summary.undecided + summary.groups_lost <= 1 + options.runs / 20, "not judged: {summary}");
}

#[test]
fn campaigns_pass() {
    let with = |nodes, faults: &str, runs| Options {
        nodes,
        faults: faults.parse().unwrap(),
        runs,
        ..Options::default()
    };
    assert_passes("multipaxos", &with(3, "none", 20));
    assert_passes("multipaxos", &with(5, "all", 30));
    assert_passes("multipaxos", &with(1, "all", 20));
    assert_passes("unreplicated", &with(1, "all", 50));
}

/// Groups of one, in which whoever is asked has a majority already, and of even numbers.
#[test]
fn every_protocol_passes_with_one_two_and_four_nodes() {
    for protocol in replicated() {
        for nodes in [1, 2, 4] {
            assert_passes(protocol, &Options { nodes, runs: 4, ..Options::default() });
        }
    }
    for protocol in ["chain", "craq", "hermes"] {
        assert_passes(protocol, &Options { nodes: 1, ..seed(0, "all", &["reads=eager-alr"]) });
    }
}

#[test]
fn campaigns_of_epaxos_pass_with_one_two_and_four_nodes() {
    let with = |nodes, faults: &str, runs| Options {
        nodes,
        faults: faults.parse().unwrap(),
        runs,
        ..Options::default()
    };
    for (nodes, runs) in [(1, 20), (2, 20), (4, 10)] {
        assert_passes("epaxos", &with(nodes, "all", runs));
    }
    assert_passes("epaxos", &with(3, "none", 20));
}

/// Reads that were repeated while they waited took an instance each, for ever (328); a snapshot hid from an owner
/// that its instance had become a no-op (343). A write that was lost to a no-op waited again behind the later ones of
/// its session, which were proposed in vain, and then admitted once more each time; and reads that nobody waited for
/// any more took an instance each (6235). Replicas whose disks hang rejected recoveries by ballots that were not
/// durable (5860). Small batches behind one that was lost passed for a full link, for ever, and while links are full
/// nobody asks for what is missing (5327). All that a slow owner proposed became no-ops (1294). Nobody was left who
/// remembered whether others interfere with an instance of a lost node (the rest): traces are always forgotten here.
#[test]
fn epaxos_gets_on_where_it_did_not() {
    for seed in [328, 343, 5327, 6235] {
        assert_passes("epaxos", &Options { seed, runs: 1, ..Options::default() });
    }
    for known in [1294, 5860] {
        assert_passes("epaxos", &Options { nodes: 7, ..seed(known, "all", &[]) });
    }
    for (nodes, number) in [(3, 488), (3, 768), (3, 1311), (3, 1707), (5, 78), (5, 79), (5, 797), (5, 917)] {
        let forgetful = seed(number, "all,lost-nodes", &["log.retain=0", "conflicts.keys=1"]);
        assert_passes("epaxos", &Options { nodes, ..forgetful });
    }
}

/// The source of a snapshot had been slow once, and was waited for longer than a client waits (374). Where slots were
/// few, the log held nothing but requests for sessions, repeated (3059). The longest log was a learner's (6481).
/// Links were so slow that it could not hand over for long, and proxies followed no learner (9944). The source of a
/// snapshot was down for long, and then taken for slow (4289). A leader whose disk hung, and which could not reach
/// another member, needed its own vote (50).
#[test]
fn raft_gets_on_where_it_did_not() {
    for reads in ["reads=quorum", "reads=ongaro-lease"] {
        assert_passes("raft", &seed(374, "all,lost-nodes", &[reads]));
    }
    assert_passes("raft", &seed(3059, "all,slow-nodes", &["reads=ongaro-lease"]));
    for settings in &READS[2..] {
        assert_passes("raft", &seed(6481, "all", settings));
    }
    assert_passes("raft", &seed(9944, "all", READS[3]));
    assert_passes("raft", &seed(4289, "all", &["reads=quorum"]));
    assert_passes("raft", &seed(50, "all,lost-links", &[]));
}

/// Whoever was away when an epoch was proposed was asked again by its leader, whose disk hung: the question never left,
/// and nobody else was there to make a majority with. A leader whose disk hung, and which could not reach another
/// member, needed its own ACK (3 nodes, 44).
#[test]
fn zab_gets_on_where_it_did_not() {
    for (nodes, number) in [(3, 52), (5, 51), (7, 12)] {
        assert_passes("zab", &Options { nodes, ..seed(number, "all", &[]) });
    }
    assert_passes("zab", &seed(44, "all,lost-links", &[]));
}

/// A replica whose disk was rolled back took a ballot below one that it had promised, though it reached no majority.
#[test]
fn a_chain_has_no_ballot_that_a_majority_was_not_polled_for() {
    for number in [206, 1256] {
        assert_passes("chain", &Options { nodes: 5, ..seed(number, "all", &[]) });
    }
}

/// Leases of a member with slow links ended before they were renewed, and reads waited for it for ever (6630, 4103;
/// seven nodes, 703: it had the head's and no others'). A member whose disk hung held up those outside of the chain
/// that were to replace it (6890, 927). A head began epochs for a member whose promise always came a little too late
/// (5419, 5553).
#[test]
fn a_chain_gets_on_where_it_did_not() {
    for (nodes, number) in [(3, 6630), (5, 6890), (7, 703), (7, 5419)] {
        assert_passes("chain", &Options { nodes, ..seed(number, "all", &[]) });
    }
    for (nodes, number) in [(3, 4103), (7, 5553)] {
        assert_passes("craq", &Options { nodes, ..seed(number, "all", &[]) });
    }
    for number in [927, 2944] {
        assert_passes("craq", &Options { nodes: 5, ..seed(number, "all", &["reads=eager-alr"]) });
    }
    for number in [3112, 3243] {
        assert_passes("chain", &Options { nodes: 5, ..seed(number, "all", &["reads=eager-alr"]) });
    }
    let restless = ["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms"];
    assert_passes("chain", &Options { nodes: 5, ..seed(196, "all", &restless) });
}

/// The promise of a far member, which takes two round trips with leases, came later than half an election timeout after
/// the owner had stood, each time (92, 2016); or after a nearer one had promised (102).
#[test]
fn a_far_member_of_hermes_does_not_stay_outside() {
    let restless = ["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms"];
    assert_passes("hermes", &seed(92, "all", &restless));
    assert_passes("hermes", &seed(2016, "all", &[&restless[..], &["reads=eager-alr"]].concat()));
    let until = Some(Duration::from_millis(101));
    let options = seed(102, "loss,partitions,slow-links", &restless);
    assert_passes("hermes", &Options { clients: 2, until, ..options });
}

/// A member answered from a key with a time to live, which the tail had executed the end of.
#[test]
fn craq_reads_no_key_that_has_expired_elsewhere() {
    assert_passes("craq", &seed(200, "all", &[]));
}

/// The first entry of an epoch carried no time, and its readers showed keys that had been over for seconds.
#[test]
fn a_new_epoch_of_a_chain_shows_no_key_whose_time_was_up_before() {
    assert_passes("chain", &seed(970, "all", &[]));
    assert_passes("chain", &Options { nodes: 5, ..seed(597, "all", &[]) });
    assert_passes("craq", &Options { nodes: 5, ..seed(252, "all", &[]) });
}

/// A member had lost its disk, and the operator made the group smaller: no majority was left, and clients failed for
/// ever, which put off the end of the run each time.
#[test]
fn a_run_ends_whose_group_has_lost_a_majority() {
    assert_passes("bodega", &seed(5133, "all", &[]));
}

/// Every leader gave up before it could exclude the responder whose disk hangs (6).
#[test]
fn bodega_gets_on_where_it_did_not() {
    let hung = Options { clients: 6, ..seed(6, "hung-disks", &[]) };
    assert_passes("bodega", &hung);
}

/// The group had just changed, and a key that was written then expired with those that had been written before.
#[test]
fn a_key_lives_as_long_as_it_was_given_though_the_group_has_just_changed() {
    assert_passes("raft", &seed(3544, "all", READS[3]));
}

/// A promise was announced by a guard and lost with its grantor, which nobody relied on: its next life is not bound.
#[test]
fn a_promise_that_was_announced_only_binds_nobody() {
    assert_passes("quorum-leases", &seed(5938, "all", &["passive=true"]));
}

fn seed(seed: u64, faults: &str, settings: &[&str]) -> Options {
    let settings = settings.iter().map(ToString::to_string).collect();
    Options { seed, runs: 1, faults: faults.parse().unwrap(), settings, ..Options::default() }
}

/// Two disks were rolled back, each to a state before the other's latest life (198). The two let each other in, and
/// nobody else did.
#[test]
fn disks_that_are_rolled_back_together_bind_nobody() {
    let options = seed(198, "all,clocks-beyond-bound", &["reads=eager-alr"]);
    assert_passes("hermes", &Options { nodes: 7, ..options });
}

/// The clocks of a majority were set back, and forth again. When all faults were over the group's time went on by a
/// quarter of an hour, as what had been appended before was executed, and by another, as the head heard the others'
/// clocks: two sessions of one client ended.
#[test]
fn the_time_of_a_group_may_go_on_twice_when_its_clocks_are_right_again() {
    assert_passes("chain", &seed(6847, "all", &[]));
}

/// A node was to stop, since its disk took long to write that another had come back. That one had no memory, so the
/// node went on, and let in nobody before its disk was done.
#[test]
fn a_slow_disk_does_not_keep_a_member_without_memory_outside() {
    assert_passes("hermes", &Options { diskless: true, ..seed(5196, "all", &[]) });
}

/// The replica of a node that has left the group took almost-local reads, and waited for entries that nobody sends it.
#[test]
fn almost_local_reads_are_not_asked_of_a_replica_that_has_left() {
    assert_passes("raft", &seed(294, "all", &["reads=alr"]));
}

/// An operator asked for a group of two, of which one had lost its disk before the change was begun: nobody could be
/// elected any more, and a replica that nobody could tell of the last write was said to have lost it.
#[test]
fn nothing_is_owed_by_a_group_that_cannot_elect() {
    assert_passes("raft", &Options { nodes: 5, ..seed(3302, "all", &["reads=alr"]) });
}

/// A configuration waited for what was before it to be whole at a majority. The word of the last of these was lost, and
/// nobody said it again.
#[test]
fn the_word_that_a_configuration_waits_for_is_said_again() {
    assert_passes("craft", &Options { nodes: 5, ..seed(4499, "all", &[]) });
    assert_passes("craft", &Options { nodes: 7, ..seed(2323, "all", &[]) });
}

/// A leader whose links were slow for good answered, in the end, one read after the other of everybody.
#[test]
fn a_leader_that_is_slow_has_the_time_that_all_reads_through_it_take() {
    assert_passes("crossword", &Options { nodes: 7, ..seed(2943, "all", &["crossword.shards=1"]) });
}

/// A state with strings of 1 MiB was written in pieces of one byte: for more than 20 s nothing else was durable, and
/// one candidate after the other took ballots that nobody was asked to promise.
#[test]
fn groups_with_values_of_1_mib_are_led_soon() {
    for (protocol, number) in [("crossword", 139), ("rspaxos", 173), ("craft", 74)] {
        assert_passes(protocol, &Options { nodes: 5, values: 1 << 20, ..seed(number, "all", &[]) });
    }
}

/// It had promised leases of the next epoch before that was on its disk, and after a crash those of the epoch before.
#[test]
fn a_member_of_a_chain_promises_leases_of_no_epoch_that_it_may_forget() {
    assert_passes("craq", &Options { nodes: 7, ..seed(5107, "all", &[]) });
}

/// Its successor was started before it, with all that the two had kept.
#[test]
fn nothing_is_expected_of_a_predecessor_whose_disk_was_rolled_back() {
    assert_passes("chain", &Options { nodes: 7, ..seed(68, "all", &[]) });
    assert_passes("craq", &Options { nodes: 5, ..seed(5591, "all", &[]) });
}

/// What the replica nearby says tells a proxy nothing of its leader.
#[test]
fn writes_go_on_beside_clients_that_read_nearby_all_the_time() {
    let nearby: &[(&str, &[&str])] = &[
        ("multipaxos", &["reads=alr"]),
        ("raft", &["reads.at=nearest"]),
        ("raft", &["reads=alr"]),
        ("zab", &["reads=local"]),
        ("zab", &["reads=alr"]),
        ("bodega", &[]),
        ("quorum-leases", &[]),
        ("craq", &[]),
        ("hermes", &["reads=eager-alr"]),
    ];
    for (protocol, settings) in nearby {
        let settings = settings.iter().map(ToString::to_string).collect();
        assert_passes(protocol, &Options { settings, readers: 3, runs: 25, ..Options::default() });
    }
}

/// They ask no clock for anything but when keys expire.
#[test]
fn clocks_that_lie_never_hurt_epaxos_and_zab() {
    let faults = "partitions,one-way-partitions,crashes,drift,wall-jumps,clocks-beyond-bound";
    let options = Options { faults: faults.parse().unwrap(), runs: 50, ..Options::default() };
    assert_passes("epaxos", &options);
    assert_passes("zab", &options);
}

/// What Raft's reads can be set to.
const READS: &[&[&str]] = &[
    &["reads=quorum"],
    &["reads=ongaro-lease"],
    &["reads=leaseguard"],
    &["reads=leaseguard", "leaseguard.clock=timers"],
];

fn raft(settings: &[&str], faults: &str, runs: u64) -> Options {
    let settings = settings.iter().map(ToString::to_string).collect();
    Options { settings, faults: faults.parse().unwrap(), runs, ..Options::default() }
}

#[test]
fn campaigns_of_raft_pass_with_any_number_of_nodes() {
    assert_passes("raft", &Options { nodes: 5, ..raft(READS[2], "all", 20) });
    assert_passes("raft", &Options { nodes: 1, ..raft(READS[2], "all", 20) });
    assert_passes("raft", &raft(READS[2], "none", 20));
}

#[test]
fn campaigns_of_bodega_pass() {
    let with = |nodes, settings: &[&str], runs| Options {
        nodes,
        settings: settings.iter().map(ToString::to_string).collect(),
        runs,
        ..Options::default()
    };
    assert_passes("bodega", &with(5, &[], 20));
    assert_passes(
        "bodega",
        &with(3, &["early_notes=false", "roster.auto=true", "coverage.period=500ms"], 30),
    );
    assert_passes("bodega", &with(1, &[], 10));
}

#[test]
fn roster_leases_stand_and_fall_with_clocks() {
    let options = Options {
        faults: "partitions,one-way-partitions,drift,clocks-beyond-bound".parse().unwrap(),
        settings: vec!["lease.duration=1500ms".to_owned(), "lease.guard=1500ms".to_owned()],
        ..Options::default()
    };
    assert_is_stale("bodega", &options, 16);
}

/// Clocks that lie are noticed by the history: in a seed in which they were before, or, when runs have changed, in
/// another.
fn assert_is_stale(protocol: &str, options: &Options, known: u64) {
    let is_stale = |violation: Violation| violation.checker == "linearizability";
    let told = |seed: &u64| {
        let run = run(named(protocol), options, *seed, Trace::silent()).unwrap();
        run.violation.is_some_and(is_stale)
    };
    let seed = (known..known + 1).chain(0..2000).find(told);
    println!("{protocol} {:?}: seed {seed:?}", options.settings);
    assert!(seed.is_some(), "{protocol}, {:?}: no lie is told", options.settings);
}

/// Leases stand and fall with clocks; asking a majority does not.
#[test]
fn clocks_that_lie_are_caught_by_the_history_unless_a_majority_is_asked() {
    const LIES: &str = "partitions,one-way-partitions,drift,clocks-beyond-bound";
    // A lease that is long beside the time that others need to agree on a leader, so that it matters when it ends.
    const LONG: &[&str] = &["heartbeat=50ms", "election.timeout=1500ms"];
    assert_passes("raft", &raft(&[READS[0], LONG].concat(), LIES, 100));
    for (reads, known) in READS[1..3].iter().zip([9, 33]) {
        assert_is_stale("raft", &raft(&[*reads, LONG].concat(), LIES, 1), known);
    }
    assert_is_stale("raft", &raft(READS[3], &format!("{LIES},crashes"), 1), 477);
}

#[test]
fn groups_change_and_leaders_hand_over() {
    let options = Options { runs: 60, ..Options::default() };
    let multipaxos = sim(named("multipaxos"), &options, &mut |_| {}).unwrap();
    let raft = sim(named("raft"), &raft(READS[0], "all", 60), &mut |_| {}).unwrap();
    for summary in [multipaxos, raft] {
        assert!(summary.is_fine(), "{summary}");
        for kind in [Kind::MemberChanges, Kind::Transfers] {
            assert!(
                summary.faults.of(kind) > 20,
                "{} happened {} times",
                kind.name(),
                summary.faults.of(kind)
            );
        }
    }
}

#[test]
fn leaders_hand_over_where_members_cannot_change() {
    for protocol in ["zab", "chain", "craq"] {
        for nodes in [3, 5] {
            let summary = sim(named(protocol), &set(&[], nodes, "all,transfers", 30), &mut |_| {}).unwrap();
            assert!(summary.is_fine(), "{summary}");
            assert!(summary.faults.of(Kind::Transfers) > 30, "{summary}");
        }
    }
}

/// A clock that is off by much of a lease is of no use.
#[test]
fn raft_passes_with_clocks_that_are_known_too_badly() {
    assert_passes("raft", &raft(&["reads=leaseguard", "leaseguard.max_error=20ms"], "all", 60));
}

#[test]
fn the_rest_serves_everybody_when_a_minority_is_lost_for_good() {
    for nodes in [3, 5] {
        let lossy = |settings: &[&str]| set(settings, nodes, "all,lost-nodes", 45);
        let multipaxos = sim(named("multipaxos"), &lossy(&[]), &mut |_| {}).unwrap();
        let raft = sim(named("raft"), &lossy(READS[0]), &mut |_| {}).unwrap();
        let bodega = sim(named("bodega"), &lossy(&[]), &mut |_| {}).unwrap();
        for summary in [multipaxos, raft, bodega] {
            assert!(summary.is_fine(), "{summary}");
            assert!(summary.faults.of(Kind::LostNodes) >= 40, "{summary}");
        }
    }
}

/// Two members cannot reach each other, from some instant of the fault phase to the end of the run.
#[test]
fn the_rest_serves_everybody_when_two_members_lose_the_links_to_each_other() {
    for entry in registry::all().into_iter().filter(|entry| Kind::LostLinks.possible(&entry.capabilities)) {
        for (nodes, runs) in [(3, 10), (5, 5)] {
            let options = set(&[], nodes, "all,lost-links", runs);
            let summary = sim(entry.protocol, &options, &mut |_| {}).unwrap();
            assert!(summary.is_fine(), "{summary}");
            let spares_one = (entry.capabilities.quorum)(nodes) < nodes;
            assert_eq!(summary.faults.of(Kind::LostLinks) > runs / 4, spares_one, "{summary}");
        }
    }
}

/// Whoever lost a disk, or got an old one back, is refused, and nobody else is: the run itself checks that.
#[test]
fn nodes_with_damaged_disks_are_refused_and_the_rest_serves() {
    for nodes in [3, 5] {
        let damaging =
            |settings| set(settings, nodes, "all,wiped-disks,rolled-back-disks,-replaced-disks", 40);
        for protocol in ["multipaxos", "raft", "bodega", "quorum-leases", "zab"] {
            let settings = if protocol == "raft" { READS[0] } else { &[] };
            let summary = sim(named(protocol), &damaging(settings), &mut |_| {}).unwrap();
            assert!(summary.is_fine(), "{summary}");
            let of = |kind| summary.faults.of(kind);
            assert!(of(Kind::WipedDisks) >= 10 && of(Kind::RolledBackDisks) >= 10, "{summary}");
        }
    }
}

#[test]
fn a_member_whose_disk_is_lost_replaces_it_and_takes_part_again() {
    for (protocol, runs) in [("epaxos", 40), ("zab", 20), ("chain", 20), ("hermes", 10)] {
        for options in [3, 5].map(|nodes| set(&[], nodes, "all,replaced-disks", runs)) {
            let summary = sim(named(protocol), &options, &mut |_| {}).unwrap();
            assert!(summary.is_fine() && summary.faults.of(Kind::ReplacedDisks) >= runs, "{summary}");
        }
    }
}

fn assert_happens(protocol: &str, settings: &[&str]) {
    let settings = settings.iter().map(ToString::to_string).collect();
    let summary =
        sim(named(protocol), &Options { runs: 100, settings, ..Options::default() }, &mut |_| {}).unwrap();
    for &kind in Kind::ALL {
        let times = summary.faults.of(kind);
        let possible = kind.possible(&named(protocol).capabilities());
        let expected = possible && !kind.on_demand();
        assert_eq!(times > 5, expected, "{} happened {times} times", kind.name());
    }
    assert!(summary.checkpoints > 1000, "{}", summary.checkpoints);
    assert!(summary.operations > 10_000, "{}", summary.operations);
}

#[test]
fn every_kind_of_fault_happens() {
    assert_happens("multipaxos", &[]);
    assert_happens("raft", &["reads=quorum"]);
    assert_happens("epaxos", &[]);
}

fn set(words: &[&str], nodes: usize, faults: &str, runs: u64) -> Options {
    let settings = words.iter().map(ToString::to_string).collect();
    Options { nodes, settings, faults: faults.parse().unwrap(), runs, ..Options::default() }
}

#[test]
fn reads_of_a_majority_or_under_quorum_leases_pass() {
    for nodes in [1, 5] {
        for flag in ["true", "false"] {
            assert_passes("pqr", &set(&[&format!("leader_lease={flag}")], nodes, "all", 30));
            assert_passes("quorum-leases", &set(&[&format!("passive={flag}")], nodes, "all", 30));
        }
    }
    assert_passes("quorum-leases", &set(&["grantees=none"], 3, "all", 20));
    assert_passes("pqr", &set(&["rinse.rounds=0"], 3, "all", 20));
}

#[test]
fn quorum_leases_stand_and_fall_with_clocks_and_reads_of_a_majority_do_not() {
    const LIES: &str = "clocks-beyond-bound,partitions,one-way-partitions";
    // Bounded clocks that run apart by more than the bound for as long as possible.
    const LONG: &[&str] =
        &["heartbeat=50ms", "election.timeout=1500ms", "lease.duration=3s", "lease.guard=3s"];
    assert_passes("pqr", &set(&[], 3, LIES, 75));
    for (protocol, variant, known) in [
        ("pqr", "leader_lease=true", 9),
        ("quorum-leases", "passive=true", 56),
        ("quorum-leases", "passive=false", 29),
    ] {
        assert_is_stale(protocol, &set(&[&[variant], LONG].concat(), 3, LIES, 1), known);
    }
}

/// Runs a seed; its digest and its whole trace.
fn trace(seed: u64) -> (u64, String) {
    let lines = Rc::new(RefCell::new(String::new()));
    let sink = Rc::clone(&lines);
    let trace = Trace::to(move |line| {
        sink.borrow_mut().push_str(line);
        sink.borrow_mut().push('\n');
    });
    let run = run(named("multipaxos"), &Options::default(), seed, trace).unwrap();
    (run.digest, lines.take())
}

#[test]
fn equal_seeds_give_byte_identical_traces_and_other_seeds_do_not() {
    for seed in 0..10 {
        let (digest, lines) = trace(seed);
        assert!(lines.lines().count() > 1000, "seed {seed} has a trace");
        assert!(trace(seed) == (digest, lines), "seed {seed} gave two different runs");
        let silent = run(named("multipaxos"), &Options::default(), seed, Trace::silent()).unwrap();
        assert_eq!(silent.digest, digest, "nobody's listening changes nothing");
        assert_ne!(trace(seed + 1).0, digest);
    }
}

/// As after a restore. The state that the group begins with is in no log, and shows in the digest of every later one:
/// who joins, or replaces a disk, must get it from a member.
#[test]
fn groups_that_begin_with_the_state_of_another_get_on_as_others_do() {
    for (protocol, nodes, faults, runs) in [
        ("raft", 3, "all", 40),
        ("multipaxos", 3, "all", 40),
        ("zab", 3, "all", 15),
        ("bodega", 3, "all", 15),
        ("rspaxos", 5, "all", 15),
        ("primary-copy", 3, "none", 5),
        ("unreplicated", 1, "all", 10),
        ("hermes", 3, "all", 15),
        ("craq", 3, "all", 15),
        ("crossword", 5, "all", 15),
        ("epaxos", 3, "all", 15),
        ("epaxos", 5, "none", 5),
    ] {
        let faults = faults.parse().unwrap();
        assert_passes(protocol, &Options { nodes, faults, runs, founded: true, ..Options::default() });
    }
}

/// Protocols whose nodes wait for each other.
fn replicated() -> impl Iterator<Item = &'static str> {
    let entries = registry::all().into_iter().filter(|entry| entry.capabilities.max_nodes > 1);
    entries.map(|entry| entry.name)
}

/// One node after the other learns that the group needs longer timeouts, and starts again; or the operator has changed
/// the settings: meanwhile some have leases of the one length and some of the other.
#[test]
fn leases_change_under_all_kinds_of_faults() {
    for faults in ["all,longer-timeouts,follower-crashes", "all,other-settings"] {
        for protocol in replicated() {
            let faults = faults.parse().unwrap();
            assert_passes(protocol, &Options { faults, runs: 15, ..Options::default() });
        }
        READS.iter().for_each(|settings| assert_passes("raft", &raft(settings, faults, 15)));
    }
}

/// Nobody has said how far apart they are: 221 ms, the two that are furthest.
#[test]
fn a_group_whose_members_are_far_apart_finds_its_timeouts_by_itself() {
    let geo = || Some(("geo".to_owned(), Topology::named("geo").unwrap()));
    for protocol in replicated() {
        for (faults, runs) in [("none", 2), ("loss,partitions,crashes,stalls,drift", 4)] {
            let options = Options {
                nodes: 5,
                topology: geo(),
                settings: vec!["timeouts=auto".to_owned()],
                faults: faults.parse().unwrap(),
                runs,
                ..Options::default()
            };
            assert_passes(protocol, &options);
        }
    }
}
