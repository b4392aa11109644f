//! Nodes with certificates: who is let in at the peers' port, and clients that do not come through the handshake.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use quorate_core::NodeId;
use quorate_node::transport::handshake::{self, Answer};
use quorate_node::{Limits, cluster_id};
use quorate_tls::client::ClientStream;
use quorate_tls::issue::{AUTHORITY, Authority, Issued, Owner};
use quorate_tls::{ClientAuth, ClientCredentials, Files, Process, TlsOptions};
use tempfile::TempDir;

use crate::harness::{PATIENCE, Running, hello, listeners, members, options, until};

/// Three members, and the certificates of their cluster.
struct World {
    directory: TempDir,
    authority: Authority,
    nodes: Vec<Running>,
}

impl World {
    /// The first of them run.
    fn start(running: usize, limits: &Limits) -> (World, std::collections::BTreeMap<NodeId, String>) {
        let own: Vec<_> = (0..3).map(|_| listeners()).collect();
        let members = members(&own);
        let directory = TempDir::new().unwrap();
        let authority = Authority::create(directory.path(), cluster_id(&members)).unwrap();
        let mut world = World { directory, authority, nodes: Vec::new() };
        for (id, own) in (1..=running as u8).zip(own) {
            let mut options = options(id.into(), members.clone(), limits.clone());
            let Issued { cert, key } = world.issue(Process::Node(id));
            let files = Files { ca: world.directory.path().join(AUTHORITY), cert, key };
            options.tls = Some(TlsOptions { files, clients: ClientAuth::Required });
            world.nodes.push(Running::start(options, own));
        }
        (world, members)
    }

    fn issue(&self, process: Process) -> Issued {
        let owner = Owner::Process(process, vec!["127.0.0.1".to_owned()]);
        self.authority.issue(self.directory.path(), &owner, 1).unwrap()
    }

    /// A connection with the certificate of a process of the cluster.
    fn connect(&self, process: Process, address: SocketAddr) -> ClientStream {
        let Issued { cert, key } = self.issue(process);
        let ca = self.directory.path().join(AUTHORITY);
        let credentials = ClientCredentials::load(&ca, Some((&cert, &key))).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        credentials.connect("127.0.0.1", stream).unwrap()
    }
}

fn line(stream: &mut ClientStream, command: &str) -> String {
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

#[test]
fn members_meet_and_serve_their_clients() {
    let (world, _) = World::start(3, &Limits::default());
    let mut client = world.connect(Process::Proxy, world.nodes[1].resp);
    until("both peers", || match line(&mut client, "facts peers_up").as_str() {
        "2" => Ok(()),
        found => Err(found.to_owned()),
    });
    assert_eq!(line(&mut client, "1 say hello"), "hello");
}

#[test]
fn a_process_is_who_its_certificate_says() {
    let (world, members) = World::start(1, &Limits::default());
    for (process, claimed, refused) in
        [(Process::Node(2), 2, false), (Process::Node(2), 3, true), (Process::Proxy, 3, true)]
    {
        let mut stream = world.connect(process, world.nodes[0].peer);
        let mut bytes = Vec::new();
        handshake::put(&hello(NodeId::new(claimed).unwrap(), 1, &members, 7), &mut bytes);
        stream.write_all(&bytes).unwrap();
        let mut input = BytesMut::new();
        let answer = loop {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            input.extend_from_slice(&buffer[..count]);
            if let Some(answer) = handshake::take::<Answer>(&mut input).unwrap() {
                break answer;
            }
        };
        match answer {
            Answer::Refused(reason) => {
                let reason = String::from_utf8(reason.to_vec()).unwrap();
                assert!(refused && reason.contains("a certificate that is not that of node 3"), "{reason}");
            }
            answer => assert!(!refused, "{process} as node {claimed}: {answer:?}"),
        }
    }
}

#[test]
fn clients_that_do_not_finish_the_handshake_keep_nobody_out() {
    let limits = Limits { handshakes: 2, handshake: Duration::from_secs(3), ..Limits::default() };
    let (world, _) = World::start(1, &limits);
    let silent: Vec<_> = (0..5).map(|_| TcpStream::connect(world.nodes[0].resp).unwrap()).collect();
    let mut client = world.connect(Process::Proxy, world.nodes[0].resp);
    assert_eq!(line(&mut client, "1 say hello"), "hello");
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // With a farewell, or without.
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        assert!(told.len() < 100, "{told:?}");
    }
    assert_eq!(line(&mut client, "facts tls_handshakes_refused_total"), "5");
}
