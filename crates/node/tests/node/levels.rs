//! How a node follows the feature level of its group.

use std::collections::BTreeMap;
use std::path::Path;

use quorate_core::{FeatureLevel, ProxyId};
use quorate_node::transport::handshake::{Answer, Hello};
use quorate_node::{Durability, Exit, Limits, NodeError};
use tempfile::TempDir;

use crate::harness::{Peer, Running, hello, id, listeners, members, on_disk, options};
use crate::peers::{node_beside, refusal, welcome};

const NEWEST: FeatureLevel = FeatureLevel::NEWEST;

/// What whoever knows only the first level is told.
const LACKS: &str = "knows feature levels up to 1, but this group is at 3";

/// Whether a data directory is marked with a level.
fn is_marked(directory: &Path, level: u16) -> bool {
    let identity = std::fs::read_to_string(directory.join("identity")).unwrap();
    identity.lines().any(|line| line == format!("level = {level}"))
}

#[test]
fn a_level_is_in_the_data_directory_before_anything_is_answered_and_counts_from_the_next_start_on() {
    let directory = TempDir::new().unwrap();
    let members = BTreeMap::from([(id(1), "127.0.0.1:7001".to_owned()), (id(2), "127.0.0.1:1".to_owned())]);
    let start = || {
        let options = options(1, members.clone(), Limits::default());
        Running::start(on_disk(options, directory.path(), Durability::Os), listeners())
    };
    let node = start();
    let mut client = node.client();
    client.ask_until("1 say x", |answer| answer == "x");
    assert!(!is_marked(directory.path(), NEWEST.get()));
    assert_eq!(client.ask(&format!("1 level {NEWEST}")), NEWEST.to_string());
    assert!(is_marked(directory.path(), NEWEST.get()));
    node.stopper.stop();
    assert_eq!(node.join().unwrap(), Exit::Drained { unfinished: 0 });

    let node = start();
    let right = hello(id(2), 1, &members, 5);
    let earlier = Hello { knows: FeatureLevel::FIRST, ..right.clone() };
    let refused = refusal(&node, &earlier);
    assert!(refused.contains(LACKS), "{refused}");
    welcome(&node, &right);
}

#[test]
fn a_level_that_this_build_does_not_know_ends_the_node_unanswered() {
    let directory = TempDir::new().unwrap();
    let own = listeners();
    let options = options(1, members(std::slice::from_ref(&own)), Limits::default());
    let node = Running::start(on_disk(options, directory.path(), Durability::Os), own);
    let (mut client, unknown) = (node.client(), NEWEST.get() + 1);
    client.send(&format!("1 level {unknown}\n"));
    assert_eq!(client.line(), None);
    let error = node.join().unwrap_err();
    assert!(matches!(error, NodeError::Level { level } if level.get() == unknown), "{error}");
    assert!(is_marked(directory.path(), unknown));
}

#[test]
fn whose_builds_do_not_know_the_level_of_the_group_are_let_go_when_it_comes_to_it() {
    let (node, listener, members) = node_beside(Limits::default());
    let earlier = |hello: Hello| Hello { knows: FeatureLevel::FIRST, ..hello };
    let mut dialed = Peer::over(listener.accept().unwrap().0);
    dialed.hear::<Hello>();
    dialed.say(&Answer::Welcome(earlier(hello(id(2), 1, &members, 5))));
    let mut client = node.client();
    client.ask_until("facts peers_up", |up| up == "1");
    let proxy = welcome(&node, &earlier(hello(ProxyId(1 << 40), 1, &members, 7)));
    let newest = welcome(&node, &hello(ProxyId(1 << 41), 1, &members, 8));
    let mut member = welcome(&node, &earlier(hello(id(2), 1, &members, 5)));
    // It waits for the end of the other connection of its id, which is asked whether it is there.
    let mut claimant = Peer::to(node.peer);
    claimant.say(&earlier(hello(id(2), 1, &members, 6)));
    member.take(|input| (!input.is_empty()).then_some(()));

    assert_eq!(client.ask(&format!("1 level {NEWEST}")), NEWEST.to_string());
    let Answer::Refused(reason) = claimant.hear() else { panic!("it was let in") };
    assert!(String::from_utf8_lossy(&reason).contains(LACKS), "{reason:?}");
    for gone in [dialed, member, proxy] {
        gone.expect_end();
    }
    newest.expect_nothing();
}

#[test]
fn a_new_cluster_waits_with_its_first_level_while_a_member_is_there_whose_build_does_not_know_it() {
    let (node, listener, members) = node_beside(Limits::default());
    let mut dialed = Peer::over(listener.accept().unwrap().0);
    dialed.hear::<Hello>();
    let earlier = Hello { knows: FeatureLevel::FIRST, ..hello(id(2), 1, &members, 5) };
    dialed.say(&Answer::Welcome(earlier));
    let mut client = node.client();
    client.ask_until("facts peers_up", |up| up == "1");
    // Each request of a client may bring the node's own with it.
    for (command, answer) in [("1 level 1", "1"), ("1 say x", "x"), ("1 which", "1")] {
        assert_eq!(client.ask(command), answer, "{command}");
    }
    drop(dialed);
    client.ask_until("1 which", |level| level == NEWEST.to_string());
}
