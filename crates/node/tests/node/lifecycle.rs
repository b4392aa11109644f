//! How a node starts and how it ends.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use quorate_core::Settings;
use quorate_node::transport::handshake::{Answer, Hello};
use quorate_node::{ConfigError, Exit, Limits, Listeners, NodeConfig, NodeError};
use quorate_runtime::protocol;

use crate::harness::{Peer, Running, cluster, hello, id, listeners, members, options};
use crate::toy::Toy;

#[test]
fn what_is_under_way_is_finished_before_the_end() {
    let mut nodes = cluster(2, &Limits::default());
    let mut client = nodes[0].client();
    client.ask_until("/50/2 say ready", |answer| answer == "ready");
    let before = client.fact("requests_total");
    client.send("2 later done\n");
    // Seen by the other node before this one is stopped: it is under way.
    let mut other = nodes[1].client();
    let mut idle = nodes[0].client();
    idle.ask_until("facts requests_total", |total| total == (before + 1).to_string());
    other.ask("2 say x");
    nodes[0].stopper.stop();
    // An idle client is let go, and nobody else is let in.
    assert_eq!(idle.line(), None);
    assert!(TcpStream::connect(nodes[0].resp).is_err());
    other.ask("2 go");
    assert_eq!((client.line(), client.line()), (Some("done".to_owned()), None));
    assert_eq!(nodes.remove(0).join().unwrap(), Exit::Drained { unfinished: 0 });
}

#[test]
fn a_message_that_is_still_on_its_way_to_another_node_leaves_before_the_end() {
    let (own, listener) = (listeners(), TcpListener::bind("127.0.0.1:0").unwrap());
    let mut members = members(std::slice::from_ref(&own));
    members.insert(id(2), listener.local_addr().unwrap().to_string());
    let delayed = Settings::parse(["net.delay=500ms"]).unwrap();
    let node = Running::start_set::<Toy>(options(1, members.clone(), Limits::default()), own, delayed);
    let mut peer = Peer::over(listener.accept().unwrap().0);
    peer.hear::<Hello>();
    peer.say(&Answer::Welcome(hello(id(2), 1, &members, 5)));
    let mut client = node.client();
    client.ask_until("facts peers_up", |up| up == "1");
    // Its client waits no longer.
    assert!(client.ask("/1/2 say hello").starts_with('!'));
    node.stopper.stop();
    assert_eq!(client.line(), None);
    assert_eq!(peer.message(1000).to, id(2).into());
    assert_eq!(node.join().unwrap(), Exit::Drained { unfinished: 0 });
}

#[test]
fn a_drain_ends_at_its_bound_and_says_what_was_left() {
    let mut nodes = cluster(1, &Limits { drain: Duration::from_millis(100), ..Limits::default() });
    let mut client = nodes[0].client();
    client.send("1 never\n");
    nodes[0].client().ask_until("facts requests_under_way", |count| count == "1");
    nodes[0].stopper.stop();
    assert_eq!(nodes.remove(0).join().unwrap(), Exit::Drained { unfinished: 1 });
}

#[test]
fn asked_twice_a_node_stops_at_once() {
    let mut nodes = cluster(1, &Limits { drain: Duration::from_secs(3600), ..Limits::default() });
    let mut client = nodes[0].client();
    client.send("1 never\n");
    nodes[0].client().ask_until("facts requests_under_way", |count| count == "1");
    nodes[0].stopper.stop();
    nodes[0].stopper.stop();
    assert_eq!(nodes.remove(0).join().unwrap(), Exit::Hurried);
}

#[test]
fn an_address_that_is_taken_is_named_with_what_to_do() {
    let first = listeners();
    let taken = first.peer_address().unwrap().unwrap().to_string();
    let Err(error @ NodeError::Listen { .. }) = Listeners::bind(&taken, "127.0.0.1:0") else {
        panic!("bound twice");
    };
    let text = error.to_string();
    assert!(text.contains(&taken) && text.contains("another process has it"), "{text}");
}

#[test]
fn a_configuration_that_cannot_work_is_refused_before_anything_happens() {
    let all: Vec<_> = (0..6).map(|_| listeners()).collect();
    let refused = |node, count: usize, change: &dyn Fn(&mut quorate_node::NodeOptions), set: &[&str]| {
        let mut options = options(node, members(&all[..count]), Limits::default());
        change(&mut options);
        NodeConfig::new(protocol::<Toy>(), options, Settings::parse(set).unwrap())
            .err()
            .map(|error| error.to_string())
    };
    for (found, part) in [
        (refused(3, 2, &|_| (), &[]), "node 3 is not in --initial-cluster, which has 1, 2"),
        (refused(1, 6, &|_| (), &[]), "toy runs on 1 to 5 nodes, but --initial-cluster has 6"),
        (refused(1, 2, &|o| o.listen_resp = "x".to_owned(), &[]), "`x` is not an address"),
        (
            refused(
                1,
                2,
                &|o| {
                    o.initial_cluster.insert(id(2), o.initial_cluster[&id(1)].clone());
                },
                &[],
            ),
            "nodes 1 and 2 have the same address",
        ),
        (refused(1, 2, &|_| (), &["colour=red"]), "unknown setting `colour`"),
        (refused(1, 2, &|_| (), &["lease=red"]), "expected a duration"),
    ] {
        assert!(found.clone().is_some_and(|text| text.contains(part)), "{found:?}: {part}");
    }
    assert_eq!(refused(1, 2, &|_| (), &[]), None);
    let error = ConfigError::NeedsDisk { protocol: "x" }.to_string();
    assert!(error.contains("use fsync"), "{error}");
}

#[test]
fn a_client_that_waits_for_its_replies_never_asks_a_node_that_has_let_it_go() {
    for _ in 0..20 {
        let mut nodes = cluster(1, &Limits::default());
        let mut client = nodes[0].client();
        assert_eq!(client.ask("1 say ready"), "ready");
        let stopper = nodes[0].stopper.clone();
        let asker = std::thread::spawn(move || {
            for count in 0.. {
                // Whoever has been let go sees it before it asks again.
                if is_over(&client.stream) {
                    return count;
                }
                assert_eq!(client.ask(&format!("1 say {count}")), count.to_string(), "a request is lost");
            }
            unreachable!("it is let go");
        });
        nodes[0].client().ask_until("facts requests_total", |total| total.parse::<u64>().unwrap() > 20);
        stopper.stop();
        assert!(asker.join().unwrap() > 10);
        assert_eq!(nodes.remove(0).join().unwrap(), Exit::Drained { unfinished: 0 });
    }
}

/// Whether the other side has closed, as far as this one knows.
fn is_over(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    matches!(seen, Ok(0))
}

#[test]
fn who_waits_at_the_door_when_a_node_stops_is_served() {
    let mut nodes = cluster(1, &Limits::default());
    let mut first = nodes[0].client();
    assert_eq!(first.ask("1 say ready"), "ready");
    let mut waiting: Vec<_> = (0..50).map(|_| nodes[0].client()).collect();
    waiting.iter_mut().for_each(|client| client.send("1 say hello\n"));
    nodes[0].stopper.stop();
    for client in &mut waiting {
        assert_eq!((client.line().as_deref(), client.line()), (Some("hello"), None));
    }
    assert_eq!(nodes.remove(0).join().unwrap(), Exit::Drained { unfinished: 0 });
}
