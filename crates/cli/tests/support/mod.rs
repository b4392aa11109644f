//! A cluster of real processes, and clients that speak RESP to it over real sockets.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// No single wait in these tests takes longer, on any machine; running into it fails the test.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub nodes: Vec<Node>,
    _dir: tempfile::TempDir,
}

pub struct Node {
    pub resp: String,
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Cluster {
    /// Starts `count` nodes of a protocol and waits until each serves.
    pub fn start(count: usize, protocol: &str) -> Cluster {
        Cluster::start_with(count, protocol, |_| Vec::new())
    }

    /// The same with further flags for each node, by its index.
    pub fn start_with(count: usize, protocol: &str, flags: impl Fn(usize) -> Vec<String>) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // All at once, so that they differ; then free for the nodes.
        let listeners: Vec<_> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap().to_string()).collect();
        drop(listeners);
        let (peers, resps) = addresses.split_at(count);
        let cluster: Vec<_> = (1..).zip(peers).map(|(id, address)| format!("{id}={address}")).collect();
        let node = |index: usize| {
            let id = (index + 1).to_string();
            let data = dir.path().join(format!("node-{id}"));
            let args = [
                ["serve", "--node-id", &id].map(str::to_owned).to_vec(),
                ["--listen-peer", &peers[index], "--listen-resp", &resps[index]].map(str::to_owned).to_vec(),
                ["--initial-cluster", &cluster.join(","), "--protocol", protocol].map(str::to_owned).to_vec(),
                ["--data-dir".to_owned(), data.display().to_string()].to_vec(),
                flags(index),
            ];
            let log = dir.path().join(format!("node-{id}.log"));
            Node { resp: resps[index].clone(), args: args.concat(), log, child: None }
        };
        let mut cluster = Cluster { nodes: (0..count).map(node).collect(), _dir: dir };
        cluster.nodes.iter_mut().for_each(Node::start);
        cluster.nodes.iter().for_each(|node| node.wait_until_serving());
        cluster
    }

    /// What `--initial-cluster` was.
    pub fn members(&self) -> &str {
        let args = &self.nodes[0].args;
        let flag = args.iter().position(|arg| arg == "--initial-cluster").expect("every node has it");
        &args[flag + 1]
    }

    /// Which node says that it leads, once one does.
    pub fn leader(&self) -> usize {
        wait_for("a leader", || {
            self.nodes.iter().position(|node| node.running() && node.role() == Some("leader".into()))
        })
    }
}

impl Node {
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it is running");
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        self.child = Some(child);
    }

    pub fn running(&self) -> bool {
        self.child.is_some()
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it is running");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn terminate(&mut self) -> std::process::ExitStatus {
        self.signal(Signal::TERM);
        self.child.take().expect("it is running").wait().unwrap()
    }

    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().expect("it is running").id();
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    }

    /// Whether a linearizable read is answered here.
    pub fn wait_until_serving(&self) {
        wait_for("a node to serve", || {
            let mut connection = Connection::open(&self.resp).ok()?;
            matches!(connection.call(&[b"GET", b"readiness"]), Ok(Resp::Nil | Resp::Bulk(_))).then_some(())
        });
    }

    fn role(&self) -> Option<String> {
        let mut connection = Connection::open(&self.resp).ok()?;
        let Ok(Resp::Bulk(json)) = connection.call(&[b"QUORATE", b"STATUS"]) else { return None };
        let status: serde_json::Value = serde_json::from_slice(&json).ok()?;
        Some(status["role"].as_str()?.to_owned())
    }

    pub fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        for node in &mut self.nodes {
            if let Some(mut child) = node.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
            if failed {
                let log = std::fs::read_to_string(node.log()).unwrap_or_default();
                let lines: Vec<_> = log.lines().rev().take(15).collect();
                eprintln!("--- {}", node.log().display());
                lines.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

/// Asks again and again until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A reply of the second version of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resp {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Resp>),
}

pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Longer than a node takes to say that no majority answers.
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    pub fn call(&mut self, args: &[&[u8]]) -> io::Result<Resp> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Resp> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Resp::Simple(rest.to_owned()),
            "-" => Resp::Error(rest.to_owned()),
            ":" => Resp::Integer(number()?),
            "$" if rest == "-1" => Resp::Nil,
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Resp::Bulk(bytes)
            }
            "*" => Resp::Array((0..number()?).map(|_| self.reply()).collect::<io::Result<_>>()?),
            other => return Err(io::Error::other(format!("a reply of kind {other:?}"))),
        })
    }
}
