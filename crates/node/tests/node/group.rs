//! How nodes follow a group that changes.

use std::collections::BTreeMap;
use std::net::TcpListener;

use bytes::Bytes;
use quorate_core::{Class, NodeId, Payload, Wire};
use quorate_node::transport::frame::Encoded;
use quorate_node::transport::handshake::{Answer, Hello};
use quorate_node::transport::queue::Output;
use quorate_node::{ConfigError, Limits, NodeConfig};
use quorate_runtime::protocol;

use crate::harness::{Client, Peer, Running, hello, id, listeners, members, options, until};
use crate::toy::{Changing, Message, Toy};

/// Node 1, alone in its group.
fn alone() -> (Running, BTreeMap<NodeId, String>) {
    let own = listeners();
    let members = members(std::slice::from_ref(&own));
    (Running::start_of::<Changing>(options(1, members.clone(), Limits::default()), own), members)
}

/// Somebody who can be dialed.
fn somebody() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// As node 1 dials it.
fn dialed(listener: &TcpListener, node: u64, members: &BTreeMap<NodeId, String>) -> Peer {
    let mut peer = Peer::over(listener.accept().unwrap().0);
    let hello: Hello = peer.hear();
    assert_eq!((hello.me, hello.expected), (id(1).into(), id(node).into()));
    assert_eq!(hello.address, members[&id(1)].as_bytes());
    peer.say(&Answer::Welcome(crate::harness::hello(id(node), 1, members, 5)));
    peer
}

fn known_as(client: &mut Client, standing: &str, members: &str) {
    client.ask_until("facts membership", |found| found == standing);
    assert_eq!(client.ask("facts members"), members);
}

#[test]
fn a_new_member_is_dialed_and_one_that_has_left_is_let_go() {
    let (node, initial) = alone();
    let own = &initial[&id(1)];
    let mut client = node.client();
    known_as(&mut client, "voter", &format!("1={own}"));
    let (listener, address) = somebody();
    assert_eq!(client.ask(&format!("1 members 1 1= 2={address}")), "noted");
    let peer = dialed(&listener, 2, &initial);
    client.ask_until("facts peers_up", |up| up == "1");
    known_as(&mut client, "voter", &format!("1={own},2={address}"));
    // It moves.
    let (listener, address) = somebody();
    client.ask(&format!("1 members 2 1= 2={address}"));
    drop(peer);
    let peer = dialed(&listener, 2, &initial);
    client.ask_until("facts peers_up", |up| up == "1");
    assert_eq!(client.fact("members_version"), 2);
    client.ask("1 members 3 1=");
    peer.expect_end();
    assert_eq!(client.fact("peers_up"), 0);
    // It was this node's turn at last; it goes on, and says how it is.
    client.ask(&format!("1 members 4 3={address}"));
    known_as(&mut client, "left", &format!("3={address}"));
    assert_eq!(client.ask("1 say still here"), "still here");
}

#[test]
fn a_node_that_is_no_member_here_is_heard_and_answered_while_it_is_connected() {
    let (node, initial) = alone();
    let (listener, address) = somebody();
    let mut peer = Peer::to(node.peer);
    peer.say(&Hello { address: address.into(), ..hello(id(9), 1, &initial, 5) });
    assert!(matches!(peer.hear(), Answer::Welcome(_)));
    let mut back = dialed(&listener, 9, &initial);
    let ask = Message::Ask { id: 7, command: Bytes::from_static(b"1 say hello") };
    let (mut output, mut bytes) = (Output::default(), Vec::new());
    Encoded::new(Payload::of(&ask), Class::Urgent).queue(id(9).into(), id(1).into(), &mut output);
    output.write_to(&mut bytes).unwrap();
    // Until it is connected, answers to it are lost.
    until("node 9 is up", || {
        std::io::Write::write_all(&mut peer.stream, &bytes).unwrap();
        let connects = node.client().fact("peer_connects_total");
        if connects == 1 { Ok(()) } else { Err(connects.to_string()) }
    });
    std::io::Write::write_all(&mut peer.stream, &bytes).unwrap();
    let answer = back.message(1000);
    assert_eq!((answer.from, answer.to), (id(1).into(), id(9).into()));
    let text = Bytes::from_static(b"hello");
    assert_eq!(Message::from_bytes(answer.payload), Ok(Message::Answer { id: 7, text }));
    assert_eq!(node.client().fact("peers_up"), 0, "it is no member");
    drop(peer);
    back.expect_end();
}

#[test]
fn a_node_that_joins_serves_its_clients_through_the_others_and_becomes_a_member() {
    let (first, initial) = alone();
    let own = listeners();
    let address = own.peer_address().unwrap().unwrap().to_string();
    let mut join = options(4, initial.clone(), Limits::default());
    join.join = true;
    let joiner = Running::start_of::<Changing>(join, own);
    let mut client = joiner.client();
    known_as(&mut client, "joining", &format!("1={}", initial[&id(1)]));
    client.ask_until("/50/1 say hello", |answer| answer == "hello");
    first.client().ask_until("/50/4 say hello", |answer| answer == "hello");
    let change = format!("members 1 1= 4={address}");
    assert_eq!(first.client().ask(&format!("1 {change}")), "noted");
    assert_eq!(client.ask(&format!("4 {change}")), "noted");
    let all = format!("1={},4={address}", initial[&id(1)]);
    known_as(&mut client, "voter", &all);
    known_as(&mut first.client(), "voter", &all);
    first.client().ask_until("facts peers_up", |up| up == "1");
    assert_eq!(client.ask("1 say hello"), "hello");
    // Removed, it still serves its clients.
    assert_eq!(first.client().ask("1 members 2 1="), "noted");
    assert_eq!(client.ask("4 members 2 1="), "noted");
    known_as(&mut client, "left", &format!("1={}", initial[&id(1)]));
    assert_eq!(client.ask("1 say hello"), "hello");
    drop(joiner);
    // Gone, it is dialed no more.
    let mut silent = first.client();
    let dropped = first.client().fact("messages_dropped_total");
    until("node 4 is let go", || {
        silent.send("4 say hello\n");
        let now = first.client().fact("messages_dropped_total");
        if now > dropped { Ok(()) } else { Err(now.to_string()) }
    });
}

#[test]
fn who_joins_is_none_of_the_initial_members_of_a_group_that_can_change() {
    let initial = BTreeMap::from([(id(1), "127.0.0.1:7001".to_owned())]);
    let mut wrong = options(1, initial.clone(), Limits::default());
    wrong.join = true;
    let error = NodeConfig::new(protocol::<Changing>(), wrong, Default::default()).err().unwrap();
    assert!(matches!(error, ConfigError::JoinsItself { node: 1 }), "{error}");
    let mut wrong = options(2, initial, Limits::default());
    let error = NodeConfig::new(protocol::<Changing>(), wrong.clone(), Default::default()).err().unwrap();
    assert!(matches!(error, ConfigError::NotAMember { node: 2, .. }), "{error}");
    wrong.join = true;
    let error = NodeConfig::new(protocol::<Toy>(), wrong, Default::default()).err().unwrap();
    assert!(matches!(error, ConfigError::Fixed { .. }), "{error}");
}
