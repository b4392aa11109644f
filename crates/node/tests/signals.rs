//! SIGTERM and SIGHUP, alone in their process.

#[path = "node/harness.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod harness;
#[path = "node/lines.rs"]
mod lines;
#[path = "node/toy.rs"]
mod toy;

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use quorate_core::{Rate, Settings, Topology};
use quorate_node::signals::hangup_is_ignored;
use quorate_node::{Exit, Limits, Listeners, Node, NodeConfig, TopologyFile};
use quorate_runtime::protocol;
use signal_hook::consts::{SIGHUP, SIGTERM};

use harness::{Client, listeners, members, options, until};

/// A signal is the whole process's: one test at a time.
static SIGNALS: Mutex<()> = Mutex::new(());

#[test]
fn a_signal_drains_and_a_second_one_stops_at_once() {
    let _alone = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let drained = Exit::Drained { unfinished: 0 };
    // Under `nohup` a hangup is none.
    let hangup = if hangup_is_ignored() { SIGTERM } else { SIGHUP };
    for (signal, signals, command, exit) in [
        (SIGTERM, 1, "1 later done", drained),
        (SIGTERM, 2, "1 never", Exit::Hurried),
        (hangup, 1, "1 later done", drained),
    ] {
        let own = listeners();
        let address = own.resp_address().unwrap();
        let members = members(std::slice::from_ref(&own));
        let directory = tempfile::TempDir::new().unwrap();
        let mut options = options(1, members, Limits::default());
        options.data_dir = directory.path().to_owned();
        let config = NodeConfig::new(protocol::<toy::Toy>(), options, Settings::default());
        let node = Node::new(config.unwrap(), own).unwrap();
        let thread = thread::spawn(move || node.run_until_signalled(lines::Lines));
        let (mut client, mut idle) = (Client::to(address), Client::to(address));
        // Served, so signals are watched.
        client.send(&format!("{command}\n"));
        idle.ask_until("facts requests_under_way", |count| count == "1");
        if signals == 1 {
            idle.ask("1 go");
            assert_eq!(client.line(), Some("done".to_owned()));
        }
        for _ in 0..signals {
            signal_hook::low_level::raise(signal).unwrap();
            // The next one counts only once this one is seen: the node lets idle clients go.
            assert_eq!(idle.line(), None);
        }
        assert_eq!(thread.join().unwrap().unwrap(), exit);
    }
}

/// Two sites, 1 ms apart; the text is the rate of the links between them, in Kbit/s.
fn topology(rate: &str) -> Result<Topology, String> {
    let apart = [("a", "b", Duration::from_millis(1))];
    let rate = Rate::parse(&format!("{rate}Kbit/s")).ok_or("no rate")?;
    let topology = Topology::new(&["a", "b"], apart, Duration::ZERO);
    let rated = topology.and_then(|topology| topology.with_rates::<&str>(Some(rate), [], []));
    rated.map_err(|error| error.to_string())
}

#[test]
fn a_hangup_reads_rates_again_and_stops_no_node_of_a_topologys_file() {
    let _alone = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("topology");
    std::fs::write(&path, "1000000").unwrap();
    let both = [listeners(), listeners()];
    let members = members(&both);
    let resp = both[0].resp_address().unwrap();
    let start = |(index, own): (usize, Listeners)| {
        let mut options = options(index as u64 + 1, members.clone(), Limits::default());
        options.data_dir = directory.path().join(index.to_string());
        options.topology = Some(topology("1000000").unwrap());
        options.topology_file = Some(TopologyFile { path: path.clone(), parse: topology });
        let config = NodeConfig::new(protocol::<toy::Toy>(), options, Settings::default());
        let node = Node::new(config.unwrap(), own).unwrap();
        thread::spawn(move || node.run_until_signalled(lines::Lines))
    };
    let nodes: Vec<_> = both.into_iter().enumerate().map(start).collect();
    let mut client = Client::to(resp);
    let long = "x".repeat(300);
    client.ask_until(&format!("/50/2 say {long}"), |answer| answer == long);
    // What is no topology changes nothing, and stops nothing.
    std::fs::write(&path, "nonsense").unwrap();
    signal_hook::low_level::raise(SIGHUP).unwrap();
    assert_eq!(client.ask(&format!("2 say {long}")), long);
    // From now on the text is under way for seconds.
    std::fs::write(&path, "1").unwrap();
    signal_hook::low_level::raise(SIGHUP).unwrap();
    let mut other = Client::to(resp);
    until("it is under way", || {
        client.send(&format!("2 say {long}\n"));
        let fewest = (0..50).map(|_| other.fact("peer_output_bytes")).min();
        if fewest >= Some(long.len() as u64) { Ok(()) } else { Err(format!("{fewest:?} bytes wait")) }
    });
    assert_eq!(other.ask("1 say here"), "here");
    drop((client, other));
    for _ in 0..2 {
        signal_hook::low_level::raise(SIGTERM).unwrap();
    }
    for node in nodes {
        node.join().unwrap().unwrap();
    }
}
