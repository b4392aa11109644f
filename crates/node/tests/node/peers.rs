//! How nodes meet, and whom they refuse.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use quorate_bench::Ports;
use quorate_core::link::FRAME;
use quorate_core::{Class, NodeId, Payload, ProcessId, ProxyId, Settings, Wire};
use quorate_node::transport::frame::{ALIVE, Encoded, PROBE};
use quorate_node::transport::handshake::{self, Answer, Hello, VERSIONS, Versions};
use quorate_node::transport::queue::Output;
use quorate_node::{Limits, Listeners};

use crate::harness::{Peer, Running, cluster, hello, id, listeners, members, options, until};
use crate::toy::{Message, Toy};

const HOUR: Duration = Duration::from_secs(3600);

/// Node 1 of a cluster whose node 2 is a listener of the test's.
pub fn node_beside(limits: Limits) -> (Running, TcpListener, BTreeMap<NodeId, String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listeners();
    let mut members = members(std::slice::from_ref(&own));
    members.insert(id(2), listener.local_addr().unwrap().to_string());
    (Running::start(options(1, members.clone(), limits), own), listener, members)
}

pub fn refusal(node: &Running, hello: &Hello) -> String {
    let mut peer = Peer::to(node.peer);
    peer.say(hello);
    match peer.hear() {
        Answer::Refused(reason) => {
            peer.expect_end();
            String::from_utf8(reason.to_vec()).unwrap()
        }
        Answer::Welcome(_) | Answer::Disowned(_) => panic!("{hello:?} was let in, or disowned"),
    }
}

pub fn welcome(node: &Running, hello: &Hello) -> Peer {
    introduced(node, hello).0
}

/// Lets a process introduce itself; with what the node says of itself.
fn introduced(node: &Running, hello: &Hello) -> (Peer, Hello) {
    let mut peer = Peer::to(node.peer);
    peer.say(hello);
    match peer.hear() {
        Answer::Welcome(other) => {
            assert_eq!(other.me, id(1).into());
            (peer, other)
        }
        answer => panic!("refused: {answer:?}"),
    }
}

fn frame(from: impl Into<ProcessId>, to: impl Into<ProcessId>, message: &impl Wire) -> Vec<u8> {
    let (mut output, mut bytes) = (Output::default(), Vec::new());
    Encoded::new(Payload::of(message), Class::Urgent).queue(from.into(), to.into(), &mut output);
    output.write_to(&mut bytes).unwrap();
    bytes
}

fn ask(command: &'static str) -> Message {
    Message::Ask { id: 7, command: Bytes::from_static(command.as_bytes()) }
}

#[test]
fn whoever_differs_is_refused_and_told_what_differs() {
    // A connection ends with the refusal, not with the time that an introduction may take.
    let (node, _listener, members) = node_beside(Limits { handshake: HOUR, ..Limits::default() });
    let right = hello(id(2), 1, &members, 5);
    for (wrong, reason) in [
        (Hello { cluster: 9, ..right.clone() }, "the cluster of node 2 is 0000000000000009"),
        (
            Hello { protocol: "raft".into(), ..right.clone() },
            "the protocol of node 2 is raft, that of node 1 is toy",
        ),
        (Hello { expected: id(3).into(), ..right.clone() }, "node 2 looks for node 3, and has found node 1"),
        (Hello { me: id(1).into(), ..right.clone() }, "ids must differ"),
        (
            Hello { me: id(9).into(), ..right.clone() },
            "node 9 is not in --initial-cluster of node 1, which has 2, 1",
        ),
        (Hello { me: ProxyId(2).into(), ..right.clone() }, "speaks through its node"),
        (
            Hello {
                settings_digest: 1,
                settings: [(Bytes::from("lease"), Bytes::from("3s"))].into(),
                ..right.clone()
            },
            "lease is 3s at node 2, 2s at node 1",
        ),
    ] {
        let found = refusal(&node, &wrong);
        assert!(found.contains(reason), "{found}");
    }
    let (_peer, Hello { incarnation, .. }) = introduced(&node, &right);
    let itself = Hello { me: id(1).into(), incarnation, ..right };
    assert_eq!(refusal(&node, &itself), "node 1 connected to itself");
}

#[test]
fn a_process_of_older_or_newer_versions_is_refused_and_told_both_ranges() {
    let (node, _listener, members) = node_beside(Limits::default());
    let hello = hello(id(2), 1, &members, 5);
    let Versions { newest, older } = VERSIONS;
    for (other, words) in [
        (
            [newest + 2, 1],
            format!("the process that connects speaks versions {} to {} of", newest + 1, newest + 2),
        ),
        (
            [newest - older - 1, 0],
            format!("the process that connects speaks version {} of", newest - older - 1),
        ),
    ] {
        let (mut peer, mut bytes) = (Peer::to(node.peer), Vec::new());
        handshake::put(&hello, &mut bytes);
        bytes[4..6].copy_from_slice(&other);
        peer.stream.write_all(&bytes).unwrap();
        let Answer::Refused(reason) = peer.hear() else { panic!("{other:?} was let in") };
        let reason = String::from_utf8(reason.to_vec()).unwrap();
        assert!(
            reason.contains(&words) && reason.contains(&format!("connects to speaks {VERSIONS}")),
            "{reason}"
        );
        peer.expect_end();
    }
    // One that speaks a later version, too, is let in.
    let (mut peer, mut bytes) = (Peer::to(node.peer), Vec::new());
    handshake::put(&hello, &mut bytes);
    bytes[4..6].copy_from_slice(&[newest + 1, 1]);
    peer.stream.write_all(&bytes).unwrap();
    assert!(matches!(peer.hear(), Answer::Welcome(_)));
}

#[test]
fn a_second_process_of_the_same_id_is_refused_while_the_first_is_there() {
    let (node, _listener, members) = node_beside(Limits::default());
    let mut first = welcome(&node, &hello(id(2), 1, &members, 5));
    let mut twin = Peer::to(node.peer);
    twin.say(&hello(id(2), 1, &members, 6));
    // It is asked whether it is there, and is.
    assert_eq!(first.take(|input| input.first().copied()), PROBE);
    first.input.clear();
    first.stream.write_all(&ALIVE).unwrap();
    let Answer::Refused(reason) = twin.hear() else { panic!("two of the same id were let in") };
    assert!(String::from_utf8_lossy(&reason).contains("ids must differ"), "{reason:?}");
    twin.expect_end();
    // What says that it is there is no message.
    first.stream.write_all(&ALIVE).unwrap();
    first.stream.write_all(&frame(id(2), id(1), &ask("1 say hello"))).unwrap();
    let mut client = node.client();
    client.ask_until("facts messages_in_total", |count| count != "0");
    // The same process has lost its connection, which the node has not noticed: the new one replaces it.
    let second = welcome(&node, &hello(id(2), 1, &members, 5));
    first.expect_end();
    drop(second);
    // When it is gone, a restarted one is let in.
    until("the restarted one is let in", || {
        let mut peer = Peer::to(node.peer);
        peer.say(&hello(id(2), 1, &members, 6));
        match peer.hear() {
            Answer::Welcome(_) => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    });
}

#[test]
fn a_restarted_process_is_let_in_although_its_former_connection_was_never_closed() {
    // As after a loss of power: nobody answers on the old connection, and nothing closed it.
    let limits = Limits { silence: Duration::from_secs(2), ..Limits::default() };
    let (node, _listener, members) = node_beside(limits);
    let former = welcome(&node, &hello(id(2), 1, &members, 5));
    let mut restarted = welcome(&node, &hello(id(2), 1, &members, 6));
    former.expect_end();
    restarted.stream.write_all(&frame(id(2), id(1), &ask("1 say hello"))).unwrap();
    node.client().ask_until("facts messages_in_total", |count| count != "0");

    // Two that claim to be it, while it is silent: one of them is, and the other is told.
    let mut claimants = [7, 8].map(|incarnation| {
        let mut peer = Peer::to(node.peer);
        peer.say(&hello(id(2), 1, &members, incarnation));
        peer
    });
    restarted.expect_end();
    let [one, other] = &mut claimants;
    assert!(matches!(one.hear(), Answer::Welcome(_)));
    assert_eq!(one.take(|input| input.first().copied()), PROBE);
    one.stream.write_all(&ALIVE).unwrap();
    assert!(matches!(other.hear(), Answer::Refused(_)));
    // It has answered that time, and not the next.
    welcome(&node, &hello(id(2), 1, &members, 9));
}

#[test]
fn random_bytes_end_the_connection_and_nothing_else() {
    let (node, _listener, members) = node_beside(Limits::default());
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b"*1\r\n$4\r\nPING\r\n", &[0xff; 5000]] {
        let mut peer = Peer::to(node.peer);
        peer.stream.write_all(garbage).unwrap();
        peer.expect_end();
    }
    for garbage in [&[0xff; 8][..], &[1, 0, 0, 0], &[30, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]] {
        let mut peer = welcome(&node, &hello(id(2), 1, &members, 5));
        let mut bytes = garbage.to_vec();
        bytes.resize(64, 0);
        peer.stream.write_all(&bytes).unwrap();
        peer.expect_end();
    }
    // A whole frame with an unreadable message.
    let mut peer = welcome(&node, &hello(id(2), 1, &members, 5));
    peer.stream.write_all(&frame(id(2), id(1), &99u8)).unwrap();
    peer.expect_end();

    let mut client = node.client();
    assert_eq!(client.fact("messages_refused_total"), 4);
    assert_eq!(client.ask("1 say still here"), "still here");
}

#[test]
fn a_message_comes_in_several_frames_and_frames_out_of_place_or_without_end_close_the_connection() {
    let (node, _listener, members) = node_beside(Limits { frame: 4 * FRAME, ..Limits::default() });
    let me = ProxyId(1 << 40);
    let open = Hello { cluster: 0, settings_digest: 0, ..hello(me, 1, &members, 5) };
    let long = |bytes: usize| {
        let command = Bytes::from(format!("1 say {}", "x".repeat(bytes)));
        frame(me, id(1), &Message::Ask { id: 7, command })
    };
    let mut peer = welcome(&node, &open);
    peer.stream.write_all(&long(3 * FRAME)).unwrap();
    let answer = peer.message(4 * FRAME);
    let text = Bytes::from("x".repeat(3 * FRAME));
    assert_eq!(Message::from_bytes(answer.payload), Ok(Message::Answer { id: 7, text }));
    drop(peer);

    let header = 9;
    let (whole, without_end) = (long(2 * FRAME), long(5 * FRAME));
    for (what, garbage) in [
        ("it continues what has not begun", &whole[header + FRAME..]),
        ("it begins before the end of another", &[&whole[..header + FRAME], &whole].concat()),
        ("it never ends", &without_end),
        ("its flags are unknown", &[18, 0, 0, 0, 0, 0, 0, 0, 16]),
    ] {
        let refused = node.client().fact("messages_refused_total");
        let mut peer = welcome(&node, &open);
        // The node closes it, perhaps before everything is written.
        let _ = peer.stream.write_all(garbage);
        peer.expect_end();
        assert_eq!(node.client().fact("messages_refused_total"), refused + 1, "{what}");
    }
    assert_eq!(node.client().ask("1 say still here"), "still here");
}

#[test]
fn a_node_speaks_for_itself_only() {
    let (node, _listener, members) = node_beside(Limits::default());
    let mut peer = welcome(&node, &hello(id(2), 1, &members, 5));
    peer.stream.write_all(&frame(id(1), id(1), &ask("1 say forged"))).unwrap();
    peer.expect_end();
    assert_eq!(node.client().fact("messages_refused_total"), 1);
}

#[test]
fn a_connection_that_says_nothing_is_given_up_and_they_are_limited() {
    let limits = Limits { handshake: Duration::from_millis(200), ..Limits::default() };
    let (node, listener, members) = node_beside(limits);
    let dialed = Peer::over(listener.accept().unwrap().0);
    Peer::to(node.peer).expect_end();
    dialed.expect_end();
    welcome(&node, &hello(id(2), 1, &members, 5));

    let (node, _listener, members) =
        node_beside(Limits { strangers: 2, handshake: HOUR, gives_way: HOUR, ..Limits::default() });
    let (one, two) = (Peer::to(node.peer), Peer::to(node.peer));
    Peer::to(node.peer).expect_end();
    one.expect_nothing();
    drop(two);
    until("another may come", || {
        let mut peer = Peer::to(node.peer);
        peer.say(&hello(id(2), 1, &members, 5));
        let mut first = [0];
        match std::io::Read::read(&mut peer.stream, &mut first) {
            Ok(1) => Ok(()),
            end => Err(format!("{end:?}")),
        }
    });
}

#[test]
fn who_says_nothing_keeps_no_member_out() {
    let limits = Limits { strangers: 2, handshake: HOUR, gives_way: Duration::ZERO, ..Limits::default() };
    let (node, _listener, members) = node_beside(limits);
    let (one, two) = (Peer::to(node.peer), Peer::to(node.peer));
    let member = welcome(&node, &hello(id(2), 1, &members, 5));
    one.expect_end();
    two.expect_nothing();
    member.expect_nothing();
}

#[test]
fn standalone_proxies_are_limited_and_each_id_is_that_of_one() {
    let (node, _listener, members) = node_beside(Limits { proxies: 1, handshake: HOUR, ..Limits::default() });
    let proxy = |number: u64| hello(ProxyId(1 << 40 | number), 1, &members, 5);
    let first = welcome(&node, &proxy(1));
    let refused = refusal(&node, &proxy(2));
    assert!(refused.contains("1 proxies are connected to node 1 already"), "{refused}");
    first.expect_nothing();
    drop(first);
    for number in 2..4 {
        until("there is room for another", || {
            let mut peer = Peer::to(node.peer);
            peer.say(&proxy(number));
            match peer.hear() {
                Answer::Welcome(_) => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        });
    }

    // A second one of an id is refused whether the first answers or not.
    let (node, _listener, members) = node_beside(Limits { silence: HOUR, ..Limits::default() });
    let proxy = |incarnation| hello(ProxyId(1 << 40), 1, &members, incarnation);
    let first = welcome(&node, &proxy(5));
    let refused = refusal(&node, &proxy(6));
    assert!(refused.contains("ids must differ"), "{refused}");
    first.expect_nothing();
}

#[test]
fn a_member_speaks_on_its_own_connections_only_and_those_of_its_former_process_end() {
    let (node, listener, members) = node_beside(Limits::default());
    let accept = |incarnation| {
        let mut peer = Peer::over(listener.accept().unwrap().0);
        peer.hear::<Hello>();
        peer.say(&Answer::Welcome(hello(id(2), 1, &members, incarnation)));
        peer
    };
    let mut client = node.client();
    let mut dialed = accept(5);
    client.ask_until("facts peers_up", |up| up == "1");
    dialed.stream.write_all(&frame(id(2), id(1), &ask("1 say hello"))).unwrap();
    dialed.expect_end();
    assert_eq!(client.fact("messages_in_total"), 0);

    let dialed = accept(5);
    client.ask_until("facts peer_connects_total", |connects| connects == "2");
    let _inbound = welcome(&node, &hello(id(2), 1, &members, 6));
    dialed.expect_end();
}

#[test]
fn a_message_that_no_receiver_would_take_is_dropped_where_it_is_made() {
    let (node, listener, members) = node_beside(Limits { frame: 1000, ..Limits::default() });
    let mut dialed = Peer::over(listener.accept().unwrap().0);
    dialed.hear::<Hello>();
    dialed.say(&Answer::Welcome(hello(id(2), 1, &members, 5)));
    let mut client = node.client();
    client.ask_until("facts peers_up", |up| up == "1");
    assert!(client.ask(&format!("/10/2 say {}", "x".repeat(1000))).starts_with('!'));
    assert_eq!(client.fact("messages_too_long_total"), 1);
    client.send("/10/2 say hello\n");
    let asked = dialed.message(1000);
    let Ok(Message::Ask { command, .. }) = Message::from_bytes(asked.payload) else { panic!() };
    assert_eq!(command, "2 say hello");
}

#[test]
fn a_dialer_checks_who_answers_and_tries_again() {
    let limits = Limits { redial_refused: Duration::from_millis(20), ..Limits::default() };
    let (node, listener, members) = node_beside(limits);
    let accept = || {
        let mut peer = Peer::over(listener.accept().unwrap().0);
        let hello: Hello = peer.hear();
        assert_eq!((hello.me, hello.expected), (id(1).into(), id(2).into()));
        peer
    };
    let right = hello(id(2), 1, &members, 5);
    for wrong in [
        Answer::Refused(Bytes::from_static(b"not today")),
        Answer::Welcome(Hello { me: id(3).into(), ..right.clone() }),
        Answer::Welcome(Hello { cluster: 1, ..right.clone() }),
    ] {
        let mut peer = accept();
        peer.say(&wrong);
        peer.expect_end();
    }
    accept().stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();

    // Let in at last, it sends what its proxy asks, and takes the answer from a connection of ours.
    let mut there = accept();
    there.say(&Answer::Welcome(right.clone()));
    let mut client = node.client();
    client.ask_until("facts peers_up", |up| up == "1");
    client.send("2 say hello\n");
    let asked = there.message(1000);
    assert_eq!((asked.from, asked.to), (ProxyId::of(id(1)).into(), id(2).into()));
    let Message::Ask { id: number, command } = Message::from_bytes(asked.payload).unwrap() else { panic!() };
    assert_eq!(command, "2 say hello");
    let mut back = welcome(&node, &right);
    let answer = Message::Answer { id: number, text: Bytes::from_static(b"hello") };
    // However it is cut.
    for byte in frame(id(2), ProxyId::of(id(1)), &answer) {
        back.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.line(), Some("hello".to_owned()));

    // Lost, it is dialed again.
    drop(there);
    accept().say(&Answer::Welcome(right));
    client.ask_until("facts peer_connects_total", |count| count == "2");
}

#[test]
fn messages_to_a_member_that_does_not_read_are_dropped_at_the_bound() {
    let (node, listener, members) = node_beside(Limits { peer_output: 1 << 20, ..Limits::default() });
    let mut peer = Peer::over(listener.accept().unwrap().0);
    peer.hear::<Hello>();
    peer.say(&Answer::Welcome(hello(id(2), 1, &members, 5)));
    let mut client = node.client();
    client.ask_until("facts peers_up", |up| up == "1");
    let large = format!("/10/2 say {}\n", "x".repeat(1 << 19));
    let mut dropped = 0;
    for _ in 0..200 {
        client.send(&large);
        assert!(client.line().unwrap().starts_with('!'));
        dropped = client.fact("messages_dropped_total");
        if dropped > 0 {
            break;
        }
    }
    assert!(dropped > 0, "the queue has no bound");
    assert!(client.fact("peer_output_bytes") <= 1 << 20);
    assert_eq!(client.ask("1 say unimpressed"), "unimpressed");
    // What was queued arrives whole when it reads again.
    let asked = peer.message(1 << 20);
    assert!(matches!(Message::from_bytes(asked.payload), Ok(Message::Ask { .. })));
}

#[test]
fn a_message_to_a_member_without_connection_is_dropped_and_counted() {
    let own = listeners();
    let mut members = members(std::slice::from_ref(&own));
    // Nobody listens there.
    members.insert(id(2), "127.0.0.1:1".to_owned());
    let node = Running::start(options(1, members, Limits::default()), own);
    let mut client = node.client();
    assert!(client.ask("/20/2 say hello").starts_with('!'));
    assert_eq!(client.fact("messages_dropped_total"), 1);
}

#[test]
fn a_standalone_proxy_is_answered_on_its_own_connection() {
    let (node, _listener, members) = node_beside(Limits::default());
    let me = ProxyId(1 << 40);
    let open = Hello { cluster: 0, settings_digest: 0, ..hello(me, 1, &members, 5) };
    let mut peer = welcome(&node, &open);
    peer.stream.write_all(&frame(me, id(1), &ask("1 say hello"))).unwrap();
    let answer = peer.message(1000);
    assert_eq!((answer.from, answer.to), (id(1).into(), me.into()));
    let text = Bytes::from_static(b"hello");
    assert_eq!(Message::from_bytes(answer.payload), Ok(Message::Answer { id: 7, text }));
}

#[test]
fn a_member_is_found_by_its_host_name() {
    let both = [listeners(), listeners()];
    let mut members = members(&both);
    for address in members.values_mut() {
        *address = address.replace("127.0.0.1", "localhost");
    }
    let start = |(index, own): (usize, Listeners)| {
        Running::start(options(index as u64 + 1, members.clone(), Limits::default()), own)
    };
    let nodes: Vec<_> = both.into_iter().enumerate().map(start).collect();
    nodes[0].client().ask_until("/50/2 say hello", |answer| answer == "hello");
}

#[test]
fn what_is_under_way_to_another_node_waits_for_the_delay_and_nothing_else_does() {
    for (delay, arrives) in [("2ms", true), ("3600s", false)] {
        let both = [listeners(), listeners()];
        let members = members(&both);
        let settings =
            || Settings::parse([format!("net.delay={delay}"), "net.jitter=1ms".to_owned()]).unwrap();
        let start = |(index, own): (usize, Listeners)| {
            let options = options(index as u64 + 1, members.clone(), Limits::default());
            Running::start_set::<Toy>(options, own, settings())
        };
        let nodes: Vec<_> = both.into_iter().enumerate().map(start).collect();
        let mut client = nodes[0].client();
        client.ask_until("facts peers_up", |up| up == "1");
        if arrives {
            for _ in 0..20 {
                assert_eq!(client.ask("2 say hello"), "hello");
            }
        } else {
            assert!(client.ask("/50/2 say hello").starts_with('!'));
            assert!(client.fact("peer_output_bytes") > 0);
            assert_eq!(client.fact("messages_dropped_total"), 0);
        }
        assert_eq!(client.ask("1 say here"), "here");
        let me = ProxyId(1 << 40);
        let open = Hello { cluster: 0, settings_digest: 0, ..hello(me, 1, &members, 5) };
        let mut proxy = welcome(&nodes[0], &open);
        proxy.stream.write_all(&frame(me, id(1), &ask("1 say hello"))).unwrap();
        proxy.message(1000);
    }
}

#[test]
fn a_restarted_member_is_reached_again() {
    // Nobody else takes the address of the second while it is down.
    let ports = Ports::claim().unwrap();
    let peer = ports.address();
    let both = [listeners(), Listeners::bind(&peer, "127.0.0.1:0").unwrap()];
    let members = members(&both);
    let [one, two] = both;
    let one = Running::start(options(1, members.clone(), Limits::default()), one);
    let two = Running::start(options(2, members.clone(), Limits::default()), two);
    let mut client = one.client();
    client.ask_until("/50/2 say hello", |answer| answer == "hello");
    drop(two);
    client.ask_until("facts peers_up", |up| up == "0");
    let again = Listeners::bind(&peer, "127.0.0.1:0").unwrap();
    let _two = Running::start(options(2, members, Limits::default()), again);
    client.ask_until("/50/2 say hello", |answer| answer == "hello");
}

#[test]
fn nodes_of_different_clusters_never_meet() {
    let nodes = [cluster(1, &Limits::default()), cluster(1, &Limits::default())];
    let stranger = hello(id(2), 1, &BTreeMap::from([(id(1), nodes[0][0].peer.to_string())]), 5);
    assert!(refusal(&nodes[1][0], &stranger).contains("--initial-cluster must be the same everywhere"));
}
