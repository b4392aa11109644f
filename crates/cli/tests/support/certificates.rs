//! Clusters that speak TLS.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use quorate_client::Client;
use quorate_node::{cluster_id, parse_cluster};
use quorate_tls::issue::{AUTHORITY, Authority, Issued, Owner};
use quorate_tls::{ClientCredentials, Process};

use super::support::{Cluster, Node, PATIENCE, wait_for};

/// How long clients wait for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The certificates of a cluster.
pub struct Certificates {
    pub directory: tempfile::TempDir,
    pub authority: Authority,
    /// The files of a client's certificate and key.
    pub client: Issued,
}

impl Certificates {
    pub fn of(cluster: u64) -> Certificates {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::create(directory.path(), cluster).unwrap();
        let client = authority.issue(directory.path(), &Owner::Client("test".to_owned()), 1).unwrap();
        Certificates { directory, authority, client }
    }

    pub fn ca(&self) -> PathBuf {
        self.directory.path().join(AUTHORITY)
    }

    /// What a client needs: the authority's certificate, the client's own and its key.
    pub fn files(&self) -> [PathBuf; 3] {
        [self.ca(), self.client.cert.clone(), self.client.key.clone()]
    }

    pub fn node(&self, id: u8, days: u32) -> Issued {
        let hosts = ["127.0.0.1", "localhost"].map(str::to_owned).to_vec();
        let owner = Owner::Process(Process::Node(id), hosts);
        self.authority.issue(self.directory.path(), &owner, days).unwrap()
    }

    /// A process will be started with these.
    pub fn give(&self, node: &mut Node, Issued { cert, key }: &Issued) {
        for (flag, path) in [("--tls-ca", &self.ca()), ("--tls-cert", cert), ("--tls-key", key)] {
            node.set(flag, &path.display().to_string());
        }
    }

    pub fn credentials(&self) -> ClientCredentials {
        let Issued { cert, key } = &self.client;
        ClientCredentials::load(&self.ca(), Some((cert, key))).unwrap()
    }
}

/// Nodes with certificates, which do not run yet.
pub fn prepare(count: u8, protocol: &str) -> (Cluster, Certificates) {
    let mut cluster = Cluster::prepare(count.into(), protocol, &["--durability", "os"]);
    let certificates = Certificates::of(cluster_id(&parse_cluster(cluster.members()).unwrap()));
    for (id, node) in (1..).zip(&mut cluster.nodes) {
        certificates.give(node, &certificates.node(id, 1));
    }
    (cluster, certificates)
}

/// Starts the nodes, and waits until each serves.
pub fn start(cluster: &mut Cluster, certificates: &Certificates) {
    for node in &mut cluster.nodes {
        node.start();
    }
    for node in &cluster.nodes {
        wait_for("a node that serves", || connect(certificates, &node.resp)?.get("ready").ok());
    }
}

pub fn connect(certificates: &Certificates, address: &str) -> Option<Client> {
    Client::connect_with([address], TIMEOUT, Some(certificates.credentials())).ok()
}

/// What the other side says, after a handshake that this side takes for done.
pub fn said_at(address: &str, credentials: &ClientCredentials) -> String {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    match credentials.connect("127.0.0.1", socket) {
        Ok(mut stream) => match stream.read(&mut [0; 100]) {
            Ok(count) => format!("{count} bytes"),
            Err(error) => quorate_tls::client::in_words(error).to_string(),
        },
        Err(error) => error.to_string(),
    }
}
