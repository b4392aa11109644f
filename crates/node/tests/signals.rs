//! SIGTERM and SIGHUP, alone in their process.

#[path = "node/harness.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod harness;
#[path = "node/lines.rs"]
mod lines;
#[path = "node/toy.rs"]
mod toy;

use std::thread;

use quorate_core::Settings;
use quorate_node::signals::hangup_is_ignored;
use quorate_node::{Exit, Limits, Node, NodeConfig};
use quorate_runtime::protocol;
use signal_hook::consts::{SIGHUP, SIGTERM};

use harness::{Client, listeners, members, options};

#[test]
fn a_signal_drains_and_a_second_one_stops_at_once() {
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
