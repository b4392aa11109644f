//! What a node keeps on its disk, and what it does when it cannot.

use std::path::Path;

use quorate_core::Settings;
use quorate_node::{Durability, Exit, Limits, Node, NodeConfig, NodeError};
use quorate_runtime::protocol;
use tempfile::TempDir;

use crate::harness::{Running, id, listeners, on_disk, options, until};
use crate::lines::Lines;
use crate::toy::Toy;

fn start(directory: &Path, durability: Durability, limits: Limits) -> Running {
    // The cluster id comes from the addresses, which must be the same each time.
    let members = [(id(1), "127.0.0.1:7001".to_owned())].into();
    Running::start(on_disk(options(1, members, limits), directory, durability), listeners())
}

#[test]
fn what_was_kept_is_there_after_a_restart() {
    for durability in [Durability::Fsync, Durability::Os] {
        let directory = TempDir::new().unwrap();
        let mut kept = 0;
        for _ in 0..3 {
            let node = start(directory.path(), durability, Limits::default());
            let mut client = node.client();
            for _ in 0..20 {
                kept += 1;
                assert_eq!(client.ask(&format!("1 keep {}", "x".repeat(kept * 500))), kept.to_string());
            }
            node.stopper.stop();
            node.stopper.stop();
            assert!(node.join().is_ok());
        }
    }
}

#[test]
fn many_wait_for_one_sync() {
    let directory = TempDir::new().unwrap();
    let node = start(directory.path(), Durability::Fsync, Limits::default());
    let mut client = node.client();
    client.send(&"1 keep x\n".repeat(1000));
    for kept in 1..=1000 {
        assert_eq!(client.line(), Some(kept.to_string()));
    }
    // The gauges are looked after now and then.
    client.ask_until("facts log_syncs_total", |syncs| syncs != "0");
    let syncs = client.fact("log_syncs_total");
    assert!(syncs < 200, "{syncs} syncs for 1000 records");
}

#[test]
fn the_log_is_replaced_by_snapshots_and_nothing_is_lost() {
    let directory = TempDir::new().unwrap();
    let limits = Limits { snapshot_after: 10_000, ..Limits::default() };
    let node = start(directory.path(), Durability::Fsync, limits.clone());
    let mut client = node.client();
    let mut kept = 0;
    let mut keep = |client: &mut crate::harness::Client| {
        kept += 1;
        assert_eq!(client.ask(&format!("1 keep {}", "x".repeat(1000))), kept.to_string());
    };
    for snapshots in 1..=2 {
        // The next one is due when the log has grown by the last one's size, and a bit more.
        until("a snapshot", || {
            (0..30).for_each(|_| keep(&mut client));
            let total = client.fact("snapshots_total");
            if total >= snapshots { Ok(()) } else { Err(total.to_string()) }
        });
    }
    keep(&mut client);
    drop(node);
    let node = start(directory.path(), Durability::Fsync, limits);
    keep(&mut node.client());
}

#[test]
fn a_state_from_elsewhere_is_acknowledged_once_it_is_saved_and_is_there_after_a_restart() {
    for durability in [Durability::Fsync, Durability::Os, Durability::None] {
        let directory = TempDir::new().unwrap();
        let node = start(directory.path(), durability, Limits::default());
        let mut client = node.client();
        for round in 1..4 {
            client.send(&format!("1 keep a\n1 adopt {}\n1 keep b\n1 adopt {round}\n1 keep c\n", 10 * round));
            let answers: Vec<_> = (0..5).map(|_| client.line().unwrap().parse::<u64>().unwrap()).collect();
            let before = if round == 1 { 1 } else { round + 1 };
            assert_eq!(answers, [before, 10 * round, 10 * round + 1, round, round + 1]);
        }
        node.stopper.stop();
        node.stopper.stop();
        assert!(node.join().is_ok());
        let node = start(directory.path(), durability, Limits::default());
        let kept = if durability == Durability::None { 1 } else { 5 };
        assert_eq!(node.client().ask("1 keep d"), kept.to_string());
    }
}

#[test]
fn nothing_waits_for_a_disk_that_is_not_used() {
    let directory = TempDir::new().unwrap();
    let node = start(directory.path(), Durability::None, Limits::default());
    assert_eq!(node.client().ask("1 keep a"), "1");
    drop(node);
    let node = start(directory.path(), Durability::None, Limits::default());
    assert_eq!(node.client().ask("1 keep a"), "1");
}

#[test]
fn a_node_whose_log_fails_stops_and_says_why() {
    let directory = TempDir::new().unwrap();
    let home = directory.path().join("data");
    let node = start(&home, Durability::Fsync, Limits::default());
    let mut client = node.client();
    assert_eq!(client.ask("1 keep a"), "1");
    // Files that are open stay; the next one cannot be made.
    std::fs::rename(&home, directory.path().join("elsewhere")).unwrap();
    let large = format!("1 keep {}\n", "x".repeat(1 << 20));
    let mut kept = 1;
    loop {
        client.send(&large);
        match client.line() {
            Some(count) => {
                kept += 1;
                assert_eq!(count, kept.to_string());
            }
            None => break,
        }
        assert!(kept < 1000, "the log has no next segment");
    }
    let error = node.join().unwrap_err();
    assert!(matches!(error, NodeError::LogFailed(_)), "{error}");
    assert!(error.to_string().contains("nothing can be promised"), "{error}");
}

#[test]
fn a_data_directory_of_another_cluster_is_refused() {
    let directory = TempDir::new().unwrap();
    let first = start(directory.path(), Durability::Fsync, Limits::default());
    assert_eq!(first.client().ask("1 keep a"), "1");
    first.stopper.stop();
    assert_eq!(first.join().unwrap(), Exit::Drained { unfinished: 0 });
    let members = [(id(1), "127.0.0.1:9999".to_owned())].into();
    let options = on_disk(options(1, members, Limits::default()), directory.path(), Durability::Fsync);
    let node =
        Node::new(NodeConfig::new(protocol::<Toy>(), options, Settings::default()).unwrap(), listeners())
            .unwrap();
    let error = node.run(Lines).unwrap_err();
    assert!(matches!(error, NodeError::Storage(_)) && error.to_string().contains("cluster"), "{error}");
}

#[test]
fn a_promise_whose_records_are_durable_waits_for_nothing() {
    let directory = TempDir::new().unwrap();
    let node = start(directory.path(), Durability::Fsync, Limits::default());
    let mut client = node.client();
    client.ask("1 keep a");
    let turns = client.fact("turns_total");
    for _ in 0..100 {
        client.ask("1 say again");
    }
    // If they waited, each would take one turn more, for whatever wakes the loop next.
    let turns = client.fact("turns_total") - turns;
    assert!(turns < 150, "{turns} turns for 100 requests");
}
