//! Nodes on loopback, in threads of the test's process, and clients of theirs. Whatever waits gives up after
//! [`PATIENCE`] and fails the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quorate_core::{NodeId, ProcessId, Protocol, Settings, Wire};
use quorate_node::transport::frame::{Frame, Reader};
use quorate_node::transport::handshake::{self, Greeting, Hello, Identity};
use quorate_node::{
    ClockSource, Durability, Exit, Limits, Listeners, Node, NodeConfig, NodeError, NodeOptions, Stopper,
};
use quorate_runtime::protocol;

use tempfile::TempDir;

use crate::lines::Lines;
use crate::toy::{self, Toy};

pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn id(id: u64) -> NodeId {
    NodeId::new(id).unwrap()
}

/// A node that runs.
pub struct Running {
    pub peer: SocketAddr,
    pub resp: SocketAddr,
    pub stopper: Stopper,
    thread: Option<JoinHandle<Result<Exit, NodeError>>>,
    /// Removed at the end.
    _directory: Option<TempDir>,
}

impl Running {
    /// Runs a node; without a data directory of the test's, in one of its own.
    pub fn start(options: NodeOptions, listeners: Listeners) -> Running {
        Running::start_of::<Toy>(options, listeners)
    }

    /// The same, of a protocol like [`Toy`].
    pub fn start_of<P>(options: NodeOptions, listeners: Listeners) -> Running
    where
        P: Protocol<Replica = toy::Replica, Proxy = toy::Proxy>,
    {
        Running::start_set::<P>(options, listeners, Settings::default())
    }

    /// The same with settings.
    pub fn start_set<P>(mut options: NodeOptions, listeners: Listeners, settings: Settings) -> Running
    where
        P: Protocol<Replica = toy::Replica, Proxy = toy::Proxy>,
    {
        let mut directory = None;
        if options.data_dir.as_os_str().is_empty() {
            let own = directory.insert(TempDir::new().unwrap());
            options.data_dir = own.path().to_owned();
        }
        let (peer, resp) = (listeners.peer_address().unwrap().unwrap(), listeners.resp_address().unwrap());
        let config = NodeConfig::new(protocol::<P>(), options, settings).unwrap();
        let node = Node::new(config, listeners).unwrap();
        let stopper = node.stopper();
        Running {
            peer,
            resp,
            stopper,
            thread: Some(thread::spawn(move || node.run(Lines))),
            _directory: directory,
        }
    }

    /// Waits for its end.
    pub fn join(mut self) -> Result<Exit, NodeError> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn client(&self) -> Client {
        Client::to(self.resp)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stopper.stop();
            self.stopper.stop();
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

pub fn listeners() -> Listeners {
    Listeners::bind("127.0.0.1:0", "127.0.0.1:0").unwrap()
}

pub fn options(node: u64, members: BTreeMap<NodeId, String>, limits: Limits) -> NodeOptions {
    NodeOptions {
        site: None,
        topology: None,
        topology_file: None,
        node: id(node),
        listen_peer: "127.0.0.1:0".to_owned(),
        listen_resp: "127.0.0.1:0".to_owned(),
        initial_cluster: members,
        join: false,
        replace_disk: false,
        cluster_id: None,
        data_dir: PathBuf::new(),
        durability: Durability::None,
        clock: ClockSource::None,
        tls: None,
        limits,
    }
}

/// The same with its data in a directory of the test's.
pub fn on_disk(options: NodeOptions, directory: &Path, durability: Durability) -> NodeOptions {
    NodeOptions { data_dir: directory.to_owned(), durability, ..options }
}

/// A cluster of this many nodes, numbered from 1.
pub fn cluster(nodes: u64, limits: &Limits) -> Vec<Running> {
    let listeners: Vec<_> = (0..nodes).map(|_| listeners()).collect();
    let members = members(&listeners);
    let start = |(index, listeners)| {
        Running::start(options(index as u64 + 1, members.clone(), limits.clone()), listeners)
    };
    listeners.into_iter().enumerate().map(start).collect()
}

pub fn members(listeners: &[Listeners]) -> BTreeMap<NodeId, String> {
    let address = |(index, listeners): (usize, &Listeners)| {
        (id(index as u64 + 1), listeners.peer_address().unwrap().unwrap().to_string())
    };
    listeners.iter().enumerate().map(address).collect()
}

/// A client that speaks in lines.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// The next line; none at the end of the connection.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("waiting for a line: {error}"),
        }
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.send(&format!("{command}\n"));
        self.line().expect("the connection is open")
    }

    pub fn fact(&mut self, name: &str) -> u64 {
        self.ask(&format!("facts {name}")).parse().unwrap()
    }

    /// Asks until the answer fits.
    pub fn ask_until(&mut self, command: &str, fits: impl Fn(&str) -> bool) {
        until(command, || {
            let answer = self.ask(command);
            if fits(&answer) { Ok(()) } else { Err(answer) }
        });
    }
}

/// Tries until it works; the error says what was found instead.
pub fn until(what: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(found) = attempt() {
        assert!(Instant::now() < deadline, "{what}: still {found}");
        thread::yield_now();
    }
}

/// A process that speaks the peer protocol by hand.
pub struct Peer {
    pub stream: TcpStream,
    pub input: BytesMut,
}

impl Peer {
    pub fn to(address: SocketAddr) -> Peer {
        Peer::over(TcpStream::connect(address).unwrap())
    }

    pub fn over(stream: TcpStream) -> Peer {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer { stream, input: BytesMut::new() }
    }

    pub fn say(&mut self, message: &impl Wire) {
        let mut bytes = Vec::new();
        handshake::put(message, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn hear<T: Greeting>(&mut self) -> T {
        self.take(|input| handshake::take(input).unwrap())
    }

    /// The next message, of so many bytes at most.
    pub fn message(&mut self, limit: usize) -> Frame {
        let mut reader = Reader::default();
        self.take(|input| reader.take(input, limit).unwrap())
    }

    /// Reads until something can be taken.
    pub fn take<T>(&mut self, mut take: impl FnMut(&mut BytesMut) -> Option<T>) -> T {
        loop {
            if let Some(taken) = take(&mut self.input) {
                return taken;
            }
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the connection ended");
            self.input.extend_from_slice(&buffer[..count]);
        }
    }

    /// There is nothing to read, and the other side has not closed.
    pub fn expect_nothing(&self) {
        self.stream.set_nonblocking(true).unwrap();
        let found = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        assert!(matches!(&found, Err(error) if error.kind() == ErrorKind::WouldBlock), "{found:?}");
    }

    /// Waits until the other side has closed.
    pub fn expect_end(mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) => panic!("waiting for the end: {error}"),
            }
        }
    }
}

/// How a process of the cluster of these members presents itself, as a node does that runs [`Toy`].
pub fn hello(
    me: impl Into<ProcessId>,
    expected: u64,
    members: &BTreeMap<NodeId, String>,
    incarnation: u64,
) -> Hello {
    let mut settings = Settings::default();
    settings.duration("lease", "2s", "How long a lease lasts").unwrap();
    let cluster = quorate_node::cluster_id(members);
    Identity::new(cluster, (me.into(), ""), incarnation, "toy", &settings).hello(id(expected).into())
}
