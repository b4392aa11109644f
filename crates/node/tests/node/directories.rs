//! Whom a node lets in where votes rely on disks: what others say of their data directories is durable before.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;

use quorate_blocks::admission::{DiskId, DiskLife, Introduction, KnownGroup, PeerDisk, Stage};
use quorate_blocks::reach::Reach;
use quorate_core::{NodeId, ProxyId};
use quorate_node::transport::frame::{ALIVE, PROBE};
use quorate_node::transport::handshake::{Answer, Hello};
use quorate_node::{Durability, Limits};
use tempfile::TempDir;

use crate::harness::{Peer, Running, hello, id, listeners, members, on_disk, options};
use crate::peers::{refusal, welcome};
use crate::toy::Relying;

/// Node 1 of a cluster whose other nodes are the test's.
struct Beside {
    node: Running,
    others: Vec<TcpListener>,
    members: BTreeMap<NodeId, String>,
    directory: TempDir,
}

impl Beside {
    fn start(nodes: u64) -> Beside {
        let others: Vec<_> = (2..=nodes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let (own, directory) = (listeners(), TempDir::new().unwrap());
        let mut members = members(std::slice::from_ref(&own));
        for (node, other) in (2..).zip(&others) {
            members.insert(id(node), other.local_addr().unwrap().to_string());
        }
        // Nobody is given up meanwhile.
        let limits = Limits { handshake: crate::harness::PATIENCE * 10, ..Limits::default() };
        let options = on_disk(options(1, members.clone(), limits), directory.path(), Durability::Os);
        let node = Running::start_of::<Relying>(options, own);
        let beside = Beside { node, others, members, directory };
        // Its own start is in the directory.
        beside.turn();
        beside
    }

    /// How another node presents itself that is there for the first time, and knows so much of others.
    fn hello(&self, node: u64, peers: BTreeMap<NodeId, PeerDisk>) -> Hello {
        let all = self.members.keys().copied().collect();
        let introduction = Introduction {
            life: life(node, 1),
            stage: Stage::New,
            groups: vec![KnownGroup::initial(all)],
            peers,
            reach: Reach::SHORTEST,
        };
        Hello { disk: Some(introduction), ..hello(id(node), 1, &self.members, node) }
    }

    /// Lets another node be dialed and answer.
    fn answer(&self, node: u64) -> Peer {
        let listener = &self.others[node as usize - 2];
        let mut peer = Peer::over(listener.accept().unwrap().0);
        peer.hear::<Hello>();
        peer.say(&Answer::Welcome(self.hello(node, BTreeMap::new())));
        peer
    }

    /// Has the node look at all that has come in.
    fn turn(&self) {
        for _ in 0..2 {
            let stranger = Hello { cluster: 9, ..self.hello(2, BTreeMap::new()) };
            assert!(refusal(&self.node, &stranger).contains("the cluster of node 2"));
        }
    }
}

/// A life of a node's directory.
fn life(node: u64, life: u64) -> DiskLife {
    DiskLife { disk: DiskId(node.into()), life, starts: (1..=life).map(|start| 100 * node + start).collect() }
}

#[test]
fn two_nodes_speak_only_when_what_each_said_of_its_directory_is_durable() {
    let beside = Beside::start(2);
    // The file cannot be written while a directory has its place, and is tried again.
    let obstacle = beside.directory.path().join("admission.tmp");
    fs::create_dir(&obstacle).unwrap();
    let mut inbound = Peer::to(beside.node.peer);
    inbound.say(&beside.hello(2, BTreeMap::new()));
    let mut dialed = beside.answer(2);
    dialed.stream.write_all(&[PROBE]).unwrap();
    beside.turn();
    let mut client = beside.node.client();
    assert_eq!(client.fact("peers_up"), 0);
    inbound.expect_nothing();
    dialed.expect_nothing();

    fs::remove_dir(&obstacle).unwrap();
    assert!(matches!(inbound.hear(), Answer::Welcome(_)));
    // It is told that this node is there, as it has asked.
    dialed.take(|input| input.starts_with(&ALIVE).then_some(()));
    client.ask_until("facts peers_up", |up| up == "1");
}

#[test]
fn a_proxy_is_answered_only_when_others_know_the_directory_of_the_node() {
    let beside = Beside::start(2);
    let mut proxy = Peer::to(beside.node.peer);
    proxy.say(&hello(ProxyId(1 << 40), 1, &beside.members, 7));
    beside.turn();
    proxy.expect_nothing();
    let _dialed = beside.answer(2);
    assert!(matches!(proxy.hear(), Answer::Welcome(_)));
}

#[test]
fn connections_to_a_process_end_when_others_know_a_later_start_of_its_directory() {
    let beside = Beside::start(3);
    let dialed = beside.answer(2);
    let inbound = welcome(&beside.node, &beside.hello(2, BTreeMap::new()));
    beside.node.client().ask_until("facts peers_up", |up| up == "1");
    let later = PeerDisk { current: Some(life(2, 2)), admitted: false, retired: Vec::new() };
    welcome(&beside.node, &beside.hello(3, [(id(2), later)].into()));
    inbound.expect_end();
    dialed.expect_end();
}
