//! Certificates of a cluster, and the authority that issues them, are replaced while it works.

#[path = "support/certificates.rs"]
mod certificates;
mod support;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use certificates::{Certificates, TIMEOUT, connect, prepare, said_at, start};
use quorate_client::Client;
use quorate_tls::ClientCredentials;
use quorate_tls::issue::Issued;
use rustix::process::Signal;
use support::wait_for;

/// Clients that write and read; a request that fails ends the test.
struct Working {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    /// Pairs of a write and a read so far.
    done: AtomicU64,
    /// What each client connects with.
    credentials: Vec<Mutex<ClientCredentials>>,
}

impl Working {
    /// Starts one for each address, with what it connects with.
    fn start(clients: Vec<(&str, ClientCredentials)>) -> Working {
        let (addresses, credentials): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
        let credentials = credentials.into_iter().map(Mutex::new).collect();
        let shared = Arc::new(Shared { stop: false.into(), done: 0.into(), credentials });
        let client = |(number, address): (usize, &str)| {
            let (shared, address) = (shared.clone(), address.to_owned());
            thread::spawn(move || shared.work(number, &address))
        };
        let clients = addresses.into_iter().enumerate().map(client).collect();
        Working { shared, clients }
    }

    /// Waits for so many more pairs.
    fn progress(&self, pairs: u64) {
        let done = || self.shared.done.load(Ordering::Relaxed);
        let target = done() + pairs;
        wait_for("operations", || (done() >= target).then_some(()));
    }

    /// New connections are made with these from now on; whoever is about to make one with others has made it.
    fn connect_with(&self, credentials: &ClientCredentials) {
        for of_client in &self.shared.credentials {
            *of_client.lock().unwrap() = credentials.clone();
        }
    }

    fn stop(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

impl Shared {
    fn work(&self, number: usize, address: &str) {
        let mut count = 0u64;
        while !self.stop.load(Ordering::Relaxed) {
            // A new connection now and then: some meet the old certificate, some the new one.
            let credentials = self.credentials[number].lock().unwrap();
            let mut client = Client::connect_with([address], TIMEOUT, Some(credentials.clone())).unwrap();
            drop(credentials);
            for _ in 0..10 {
                count += 1;
                let value = count.to_string();
                client.put(format!("key-{number}"), &value).unwrap();
                assert_eq!(client.get(format!("key-{number}")).unwrap().unwrap(), value.as_bytes());
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn certificates_are_replaced_under_load_without_a_failed_request() {
    let (mut cluster, ours) = prepare(3, "multipaxos");
    start(&mut cluster, &ours);
    let clients: Vec<_> =
        (0..6).map(|number| (&*cluster.nodes[number % 3].resp, ours.credentials())).collect();
    let clients = Working::start(clients);
    clients.progress(200);
    for (id, node) in (1..).zip(&cluster.nodes) {
        let presented = || {
            let socket = TcpStream::connect(&node.resp).unwrap();
            let stream = ours.credentials().connect("127.0.0.1", socket).unwrap();
            stream.conn.peer_certificates().unwrap()[0].to_vec()
        };
        let old = presented();
        ours.node(id, 2);
        assert_eq!(presented(), old);
        node.signal(Signal::HUP);
        node.wait_for_line(&["connections are made with the certificates as they are now", "hours=4"]);
        assert_ne!(presented(), old);
        clients.progress(100);
    }
    // A node that comes back dials the others with its new certificate.
    clients.stop();
    cluster.nodes[1].terminate();
    cluster.nodes[1].start();
    let resp = cluster.nodes[1].resp.clone();
    wait_for("a node that serves again", || connect(&ours, &resp)?.get("key-0").ok()?);

    // One that cannot be used is left alone.
    let Issued { cert, .. } = ours.node(1, 1);
    fs::write(&cert, "no certificate").unwrap();
    cluster.nodes[0].signal(Signal::HUP);
    cluster.nodes[0].wait_for_line(&["with the certificates as they were", "there is no certificate in it"]);
    connect(&ours, &cluster.nodes[0].resp).unwrap().put("k", "v").unwrap();
}

/// Puts another file in the place of one, at once.
fn replace(path: &Path, sources: &[&Path]) {
    let text: String = sources.iter().map(|source| fs::read_to_string(source).unwrap()).collect();
    let new = path.with_extension("next");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn an_authority_is_replaced_node_by_node_under_load_without_a_failed_request() {
    let (mut cluster, old) = prepare(3, "multipaxos");
    let new = Certificates::of(old.authority.cluster());
    // On machines of their own, each node has its own copy.
    let trusted: Vec<_> = (1..=3).map(|id| old.directory.path().join(format!("trusted-by-{id}"))).collect();
    for (node, trusted) in cluster.nodes.iter_mut().zip(&trusted) {
        replace(trusted, &[&old.ca()]);
        node.set("--tls-ca", &trusted.display().to_string());
    }
    let both = old.directory.path().join("both");
    replace(&both, &[&old.ca(), &new.ca()]);
    start(&mut cluster, &old);

    let of_client =
        |ca: &Path, issued: &Issued| ClientCredentials::load(ca, Some((&issued.cert, &issued.key))).unwrap();
    // None is at node 3, which will be started again.
    let clients = (0..4).map(|number| (&*cluster.nodes[number % 2].resp, old.credentials()));
    let clients = Working::start(clients.collect());
    let reloaded = "connections are made with the certificates as they are now";
    let reload = |node: &support::Node| {
        let before = node.lines_with(reloaded);
        node.signal(Signal::HUP);
        wait_for("a node that has read them", || (node.lines_with(reloaded) > before).then_some(()));
        clients.progress(100);
    };
    let serves = |resp: &str, credentials: &ClientCredentials| {
        let mut client = Client::connect_with([resp], TIMEOUT, Some(credentials.clone())).ok()?;
        client.get("key-0").ok()?
    };
    clients.progress(100);

    // In the wrong order it is refused, and nothing changes.
    replace(&trusted[0], &[&new.ca()]);
    cluster.nodes[0].signal(Signal::HUP);
    let words = ["with the certificates as they were", "was not issued by an authority in --tls-ca"];
    cluster.nodes[0].wait_for_line(&words);
    clients.progress(100);

    // Everybody trusts both.
    for (node, trusted) in cluster.nodes.iter().zip(&trusted) {
        replace(trusted, &[&both]);
        reload(node);
    }
    clients.connect_with(&of_client(&both, &old.client));
    let mut early =
        Client::connect_with([&*cluster.nodes[0].resp], TIMEOUT, Some(old.credentials())).unwrap();
    early.put("early", "1").unwrap();
    clients.progress(100);

    // Everybody gets another certificate; nodes with old and new ones connect to each other.
    let issue = |id: u8| {
        let from = new.node(id, 1);
        replace(&old.directory.path().join(format!("node-{id}.crt")), &[&from.cert]);
        replace(&old.directory.path().join(format!("node-{id}.key")), &[&from.key]);
    };
    for id in [1, 2, 3] {
        issue(id);
        reload(&cluster.nodes[usize::from(id) - 1]);
        if id < 3 {
            let node = &mut cluster.nodes[2];
            node.terminate();
            node.start();
            wait_for("a node that serves again", || serves(&node.resp, &of_client(&both, &old.client)));
        }
    }
    clients.connect_with(&of_client(&both, &new.client));
    clients.progress(100);

    // Everybody trusts the new one alone.
    for (node, trusted) in cluster.nodes.iter().zip(&trusted) {
        replace(trusted, &[&new.ca()]);
        reload(node);
    }
    clients.connect_with(&new.credentials());
    clients.progress(100);
    clients.stop();

    // Whom the old one had issued a certificate is refused; who was let in before stays until the node starts again.
    let stranger = old.node(9, 1);
    for node in &cluster.nodes {
        for (address, issued) in [(&node.resp, &old.client), (&node.peer, &stranger)] {
            let said = said_at(address, &of_client(&both, issued));
            assert!(said.contains("it does not trust the authority"), "{address}: {said}");
        }
    }
    early.put("early", "2").unwrap();
    cluster.nodes[0].terminate();
    cluster.nodes[0].start();
    let resp = &cluster.nodes[0].resp;
    wait_for("a node that serves again", || serves(resp, &new.credentials()));
    assert!(early.get("early").is_err(), "it has to be let in again");
    let value = connect(&new, resp).unwrap().get("early").unwrap();
    assert_eq!(value.as_deref(), Some(&b"2"[..]));
}
