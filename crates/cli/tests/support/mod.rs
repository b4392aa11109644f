//! A cluster of real processes, and clients that speak RESP to it over real sockets.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quorate_bench::Ports;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

/// No single wait in these tests takes longer, on any machine; running into it fails the test.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub ports: Ports,
    dir: tempfile::TempDir,
}

pub struct Node {
    pub resp: String,
    pub peer: String,
    pub data: PathBuf,
    pub args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Cluster {
    /// Starts `count` nodes of a protocol and waits until each serves.
    pub fn start(count: usize, protocol: &str) -> Cluster {
        Cluster::start_with(count, protocol, &[])
    }

    /// The same with further flags.
    pub fn start_with(count: usize, protocol: &str, flags: &[&str]) -> Cluster {
        Cluster::start_each(count, protocol, |_| flags.iter().map(|flag| (*flag).to_owned()).collect())
    }

    /// The same with further flags for each node, by its index.
    pub fn start_each(count: usize, protocol: &str, flags: impl Fn(usize) -> Vec<String>) -> Cluster {
        let mut cluster = Cluster::prepare_each(count, protocol, flags);
        cluster.nodes.iter_mut().for_each(Node::start);
        cluster.nodes.iter().for_each(|node| node.wait_until_serving());
        cluster
    }

    /// Starts nodes whose disks hang, each while its file is there; waits until each serves.
    pub fn start_with_disks_that_hang(
        count: usize,
        protocol: &str,
        flags: &[&str],
    ) -> (Cluster, Vec<PathBuf>) {
        let mut cluster = Cluster::prepare(count, protocol, flags);
        let hangs: Vec<_> = cluster.nodes.iter().map(|node| node.data.with_extension("hangs")).collect();
        for (node, file) in cluster.nodes.iter_mut().zip(&hangs) {
            node.start_with_disk_that_hangs_while(file);
        }
        cluster.nodes.iter().for_each(|node| node.wait_until_serving());
        (cluster, hangs)
    }

    /// Kills all nodes at once, and starts them again.
    pub fn restart(&mut self) {
        self.nodes.iter_mut().for_each(Node::kill);
        self.nodes.iter_mut().for_each(Node::start);
        self.nodes.iter().for_each(Node::wait_until_serving);
    }

    /// Starts nothing yet.
    pub fn prepare(count: usize, protocol: &str, flags: &[&str]) -> Cluster {
        Cluster::prepare_each(count, protocol, |_| flags.iter().map(|flag| (*flag).to_owned()).collect())
    }

    /// The same with further flags for each node, by its index.
    pub fn prepare_each(count: usize, protocol: &str, flags: impl Fn(usize) -> Vec<String>) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let ports = Ports::claim().expect("free ports");
        let addresses: Vec<_> = (0..2 * count).map(|_| ports.address()).collect();
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
            let (resp, peer) = (resps[index].clone(), peers[index].clone());
            Node { resp, peer, data, args: args.concat(), log, child: None }
        };
        Cluster { nodes: (0..count).map(node).collect(), ports, dir }
    }

    /// One more node, which waits to be added to the group; gives its address for peers.
    pub fn join(&mut self) -> String {
        let [peer, resp] = [(); 2].map(|()| self.ports.address());
        let id = (self.nodes.len() + 1).to_string();
        let mut node = self.twin(0);
        node.log = self.dir.path().join(format!("node-{id}.log"));
        node.data = self.dir.path().join(format!("node-{id}"));
        (node.peer, node.resp) = (peer.clone(), resp.clone());
        let data = node.data.display().to_string();
        let flags =
            [("--node-id", &id), ("--listen-peer", &peer), ("--listen-resp", &resp), ("--data-dir", &data)];
        flags.into_iter().for_each(|(flag, value)| node.set(flag, value));
        node.args.push("--join".to_owned());
        node.start();
        self.nodes.push(node);
        peer
    }

    /// A process that runs a proxy alone, for these members.
    pub fn proxy(&self, name: &str, protocol: &str, members: &str, flags: &[&str]) -> Node {
        let resp = self.ports.address();
        let words = ["proxy", "--listen-resp", &resp, "--protocol", protocol, "--initial-cluster", members];
        let args = words.iter().chain(flags).map(|word| (*word).to_owned()).collect();
        let log = self.dir.path().join(format!("{name}.log"));
        let mut node = Node { resp, peer: String::new(), data: PathBuf::new(), args, log, child: None };
        node.start();
        node.wait_until_serving();
        node
    }

    /// Another process with the flags of a node, and a log of its own.
    pub fn twin(&self, index: usize) -> Node {
        let Node { resp, peer, data, args, log, .. } = &self.nodes[index];
        let (resp, peer, data, args) = (resp.clone(), peer.clone(), data.clone(), args.clone());
        Node { resp, peer, data, args, log: log.with_extension("twin.log"), child: None }
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
        self.spawn(Command::new(env!("CARGO_BIN_EXE_quorate")), None);
    }

    /// Starts another build of the program.
    pub fn start_build(&mut self, program: &Path) {
        self.spawn(Command::new(program), None);
    }

    /// Starts it with a disk that hangs while a file is there, which does not exist yet.
    pub fn start_with_disk_that_hangs_while(&mut self, file: &Path) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.env("QUORATE_TEST_HANG", file);
        self.spawn(command, None);
    }

    /// Starts it with a disk that has as much free as a file says.
    pub fn start_with_free_disk(&mut self, file: &Path) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.env("QUORATE_TEST_DISK_FREE", file);
        self.spawn(command, None);
    }

    /// Starts it with these environment variables.
    pub fn start_with_variables(&mut self, variables: &[(&str, &str)]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.envs(variables.iter().copied());
        self.spawn(command, None);
    }

    /// Starts it with its log going somewhere else than to its file.
    pub fn start_logging_to(&mut self, stderr: Stdio) {
        self.spawn(Command::new(env!("CARGO_BIN_EXE_quorate")), Some(stderr));
    }

    /// Starts it with another soft limit, as a shell would.
    pub fn start_with_descriptors(&mut self, soft: u64) {
        let mut shell = Command::new("sh");
        let limited = format!("ulimit -Sn {soft} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_quorate")]);
        self.spawn(shell, None);
    }

    /// Starts it with so much address space and no more.
    pub fn start_with_address_space(&mut self, kib: u64) {
        let mut shell = Command::new("sh");
        let limited = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limited, env!("CARGO_BIN_EXE_quorate")]);
        self.spawn(shell, None);
    }

    /// Starts it in a control group.
    pub fn start_in_control_group(&mut self, group: &Path) {
        let mut shell = Command::new("sh");
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        shell.args(["-c", enter]).arg(group.join("cgroup.procs")).arg(env!("CARGO_BIN_EXE_quorate"));
        self.spawn(shell, None);
    }

    fn spawn(&mut self, mut command: Command, stderr: Option<Stdio>) {
        assert!(self.child.is_none(), "it is running");
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let child = command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(stderr.unwrap_or_else(|| log.into()))
            .spawn()
            .expect("the binary starts");
        self.child = Some(child);
    }

    /// Starts it and waits until it has ended by itself: its exit code, and what it has ever said.
    pub fn run_to_end(&mut self) -> (Option<i32>, String) {
        self.start();
        let code = self.wait_for_end();
        (code, self.said())
    }

    /// Waits until it has ended by itself: its exit code.
    pub fn wait_for_end(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("it is running");
        let end = wait_until(PATIENCE, || child.try_wait().expect("a child can be waited for"));
        if end.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        end.unwrap_or_else(|| panic!("it goes on:\n{}", self.said())).code()
    }

    /// Gives a flag, or replaces what it was given.
    pub fn set(&mut self, flag: &str, value: &str) {
        match self.args.iter().position(|word| word == flag) {
            Some(at) => self.args[at + 1] = value.to_owned(),
            None => self.args.extend([flag.to_owned(), value.to_owned()]),
        }
    }

    /// Its log.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line that holds all of these words, and gives it.
    pub fn wait_for_line(&self, words: &[&str]) -> String {
        let found = wait_until(PATIENCE, || {
            let said = self.said();
            said.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
        });
        found.unwrap_or_else(|| panic!("no line with {words:?} in:\n{}", self.said()))
    }

    /// How many lines hold a word.
    pub fn lines_with(&self, word: &str) -> usize {
        self.said().lines().filter(|line| line.contains(word)).count()
    }

    /// Resident memory now and at its highest, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        let pid = self.child.as_ref().expect("it is running").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is running");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux tells");
            line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).expect("a number") << 10
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    /// Whether it was started, and has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|end| end.is_none()))
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

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// From now on it may write no file beyond so many bytes.
    pub fn bound_files(&self, bytes: u64) {
        let bound = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        prlimit(Some(self.pid()), Resource::Fsize, bound).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it is running"))
    }

    /// Whether a linearizable read is answered here.
    pub fn wait_until_serving(&self) {
        wait_for("a node to serve", || {
            let mut connection = Connection::open(&self.resp).ok()?;
            matches!(connection.call(&[b"GET", b"readiness"]), Ok(Resp::Nil | Resp::Bulk(_))).then_some(())
        });
    }

    /// Whether its replica, whose disk took the place of a lost one, counts again. Its clients are served before that.
    pub fn wait_until_whole(&self) {
        wait_for("a replaced disk to count", || {
            (!["waiting", "rejoining"].contains(&self.role()?.as_str())).then_some(())
        });
    }

    /// What it reads as soon as it can.
    pub fn read(&self, key: &str) -> Resp {
        let mut connection = Connection::open(&self.resp).expect("a connection");
        wait_for("a read", || match connection.call(&[b"GET", key.as_bytes()]).expect("an answer") {
            Resp::Error(_) => None,
            value => Some(value),
        })
    }

    fn role(&self) -> Option<String> {
        Some(self.status()?["role"].as_str()?.to_owned())
    }

    /// What it says of itself, if it answers.
    pub fn status(&self) -> Option<serde_json::Value> {
        let mut connection = Connection::open(&self.resp).ok()?;
        let Ok(Resp::Bulk(json)) = connection.call(&[b"QUORATE", b"STATUS"]) else { return None };
        serde_json::from_slice(&json).ok()
    }

    pub fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Node {
    /// Whatever a test does with it, it does not outlive the test.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
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

/// Where a script of `tests` keeps what it has made: in the folder that a variable names, or in the user's cache, in
/// one of this name.
pub fn cache(name: &str, folder: &str) -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let named = variable(name).or_else(|| Some(cache()?.join(folder)));
    named.unwrap_or_else(|| panic!("{name} or HOME says where {folder} is"))
}

/// Runs `tests/FOLDER/setup`, which is quick where everything is there. What it says.
pub fn set_up(folder: &str, words: &[&str]) -> String {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(folder).join("setup");
    let output = Command::new(&setup).args(words).output().expect("bash is here");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{} {words:?} failed:\n{said}", setup.display());
    said
}

/// Asks again and again until there is an answer.
pub fn wait_for<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    wait_until(PATIENCE, ask).unwrap_or_else(|| panic!("waited in vain for {what}"))
}

/// Asks again and again, but not longer than this.
pub fn wait_until<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        match ask() {
            Some(answer) => return Some(answer),
            None if start.elapsed() >= patience => return None,
            None => std::thread::park_timeout(Duration::from_millis(10)),
        }
    }
}

/// A request, as bytes.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
    request
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

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    pub fn call(&mut self, args: &[&[u8]]) -> io::Result<Resp> {
        self.send(&request(args))?;
        self.reply()
    }

    pub fn reply(&mut self) -> io::Result<Resp> {
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
