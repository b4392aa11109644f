//! The systems that are compared: how each is started, and where its load goes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quorate_bench::Ports;
use serde_json::Value;

use super::processes::{Process, Result, Stop, words};

/// A server that does not serve by then has failed to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// `bench/limit`: what a replicator without a protocol reaches.
    Replicator,
    /// One Redis that syncs every write.
    Redis,
    /// Three members of etcd, driven at the leader.
    Etcd,
    /// Three nodes of Quorate, driven at the leader.
    Quorate,
    /// The same, driven at a follower.
    Follower,
}

impl System {
    /// In the order of tables.
    pub const ALL: [System; 5] =
        [System::Replicator, System::Redis, System::Etcd, System::Quorate, System::Follower];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            System::Replicator => "replicator",
            System::Redis => "redis",
            System::Etcd => "etcd",
            System::Quorate => "quorate",
            System::Follower => "follower",
        }
    }
}

/// The programs.
#[derive(Debug)]
pub struct Programs {
    /// `quorate`.
    pub quorate: PathBuf,
    /// The bare replicator of `bench/limit`, where it is measured.
    pub replicator: Option<PathBuf>,
    /// `etcd-load`.
    pub etcd_load: Option<PathBuf>,
}

/// A system that serves.
#[derive(Debug, Default)]
pub struct Running {
    /// Where writes and reads go: of Quorate the leader, and then a follower.
    pub endpoints: Vec<String>,
    /// The serving processes.
    pub pids: Vec<u32>,
    /// How it was started.
    pub commands: Vec<String>,
    _processes: Vec<Process>,
    _ports: Option<Ports>,
}

/// Starts a system in an empty directory, and waits until it serves.
pub fn start(system: System, programs: &Programs, dir: &Path, stop: &Stop) -> Result<Running> {
    match system {
        System::Replicator => replicator(programs, dir, stop),
        System::Redis => redis(dir, stop),
        System::Etcd => etcd(dir, stop),
        System::Quorate | System::Follower => quorate(programs, dir, stop),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Asks until there is an answer.
fn wait_for<T>(what: &str, stop: &Stop, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > START_LIMIT {
            return Err(format!("{what}: nothing after {START_LIMIT:?}"));
        }
        stop.sleep(Duration::from_millis(100))?;
    }
}

/// Sends some bytes; gives what comes back up to its end, or for a moment.
fn converse(endpoint: &str, request: &str) -> Option<String> {
    let address: SocketAddr = endpoint.parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
        if request.starts_with("PING") {
            break;
        }
    }
    Some(String::from_utf8_lossy(&answer).into_owned())
}

fn pongs(endpoint: &str) -> bool {
    converse(endpoint, "PING\r\n").is_some_and(|answer| answer.starts_with("+PONG"))
}

fn replicator(programs: &Programs, dir: &Path, stop: &Stop) -> Result<Running> {
    let program = programs.replicator.as_ref().ok_or("the replicator is not built")?;
    let ports = Ports::claim().map_err(text)?;
    let [leader, first, second] = [(); 3].map(|()| ports.port().to_string());
    let mut running = Running { _ports: Some(ports), ..Running::default() };
    let mut run = |args: &[&str], log: &str| -> Result<()> {
        let mut command = Command::new(program);
        command.args(args);
        running.commands.push(words(&command));
        let process = Process::start(&mut command, &dir.join(log))?;
        running.pids.push(process.id());
        running._processes.push(process);
        Ok(())
    };
    let data = dir.to_string_lossy();
    run(&["follower", &first, &data], "first.log")?;
    run(&["follower", &second, &data], "second.log")?;
    // A follower takes one connection, so its port cannot be tried.
    stop.sleep(Duration::from_millis(700))?;
    run(&["leader", &leader, &data, &first, &second], "leader.log")?;
    let endpoint = format!("127.0.0.1:{leader}");
    wait_for("the replicator", stop, || Ok(TcpStream::connect(&endpoint).is_ok().then_some(())))?;
    running.endpoints.push(endpoint);
    Ok(running)
}

fn redis(dir: &Path, stop: &Stop) -> Result<Running> {
    let ports = Ports::claim().map_err(text)?;
    let port = ports.port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    let log = dir.join("log");
    let mut process = Process::start(&mut command, &log)?;
    let endpoint = format!("127.0.0.1:{port}");
    wait_for("redis-server", stop, || {
        process.expect_alive(&log)?;
        Ok(pongs(&endpoint).then_some(()))
    })?;
    let commands = vec![words(&command)];
    Ok(Running {
        endpoints: vec![endpoint],
        pids: vec![process.id()],
        commands,
        _processes: vec![process],
        _ports: Some(ports),
    })
}

fn etcd(dir: &Path, stop: &Stop) -> Result<Running> {
    let ports = Ports::claim().map_err(text)?;
    let [clients, peers] = [(); 2].map(|()| [(); 3].map(|()| ports.port()));
    let members: Vec<_> =
        (1..).zip(&peers).map(|(id, port)| format!("m{id}=http://127.0.0.1:{port}")).collect();
    let (mut processes, mut commands) = (Vec::new(), Vec::new());
    for (id, (client, peer)) in (1..).zip(clients.iter().zip(&peers)) {
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{id}"), "--data-dir"]).arg(dir.join(format!("m{id}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &members.join(","), "--initial-cluster-state", "new"]);
        command.args(["--logger", "zap", "--log-level", "error"]);
        commands.push(words(&command));
        processes.push(Process::start(&mut command, &dir.join(format!("m{id}.log")))?);
    }
    let endpoints: Vec<_> = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let leads = |endpoint: &&String| {
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {endpoint}\r\n\r\n");
        converse(endpoint, &request)
            .is_some_and(|answer| answer.lines().any(|line| line.trim() == "etcd_server_is_leader 1"))
    };
    let leader = wait_for("etcd", stop, || {
        for (id, process) in (1..).zip(&mut processes) {
            process.expect_alive(&dir.join(format!("m{id}.log")))?;
        }
        Ok(endpoints.iter().find(leads).cloned())
    })?;
    let pids = processes.iter().map(Process::id).collect();
    Ok(Running { endpoints: vec![leader], pids, commands, _processes: processes, _ports: Some(ports) })
}

/// A member of a cluster of Quorate.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Where its clients connect.
    pub resp: String,
    /// Its process.
    pub pid: u32,
}

/// A cluster of Quorate that serves.
#[derive(Debug)]
pub struct Up {
    /// Everybody.
    pub members: Vec<Member>,
    /// How it was started.
    pub command: String,
    quorate: PathBuf,
    process: Process,
}

impl Up {
    /// Starts `quorate up` with some flags in an empty directory, and waits until it serves.
    pub fn start(quorate: &Path, flags: &[String], dir: &Path, stop: &Stop) -> Result<Up> {
        let mut command = Command::new(quorate);
        command
            .args(["up", "--json", "--durability", "fsync"])
            .args(flags)
            .arg("--data-dir")
            .arg(dir.join("data"));
        let log = dir.join("up.log");
        let mut process = Process::start(&mut command, &log)?;
        let up = wait_for("quorate up", stop, || {
            process.expect_alive(&log)?;
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            Ok(text
                .split_inclusive('\n')
                .find(|line| line.ends_with('\n'))
                .and_then(|line| serde_json::from_str::<Value>(line).ok()))
        })?;
        let nodes = up["nodes"].as_array().ok_or("quorate up --json says no nodes")?;
        let member = |node: &Value| {
            let pid = u32::try_from(node["pid"].as_u64()?).ok()?;
            Some(Member { id: node["id"].as_u64()?, resp: node["resp"].as_str()?.to_owned(), pid })
        };
        let members = nodes.iter().filter_map(member).collect();
        Ok(Up { members, command: words(&command), quorate: quorate.to_owned(), process })
    }

    /// Where everybody's clients connect.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.resp.clone()).collect()
    }

    /// Whoever leads by its own word, and whom nobody contradicts; waits for one.
    pub fn leader(&self, stop: &Stop) -> Result<Member> {
        let leader = wait_for("a leader of Quorate", stop, || {
            let mut status = Command::new(&self.quorate);
            status.args(["status", "--json", "--endpoints", &self.endpoints().join(",")]);
            let output = status.output().map_err(text)?;
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
            let named: Vec<_> = nodes.iter().map(|node| node["leader"].as_u64()).collect();
            let agreed =
                named.first().copied().flatten().filter(|_| named.iter().all(|other| *other == named[0]));
            Ok(agreed.filter(|_| nodes.len() == self.members.len()))
        })?;
        let found = self.members.iter().find(|member| member.id == leader);
        found.cloned().ok_or_else(|| format!("there is no node {leader}"))
    }
}

fn quorate(programs: &Programs, dir: &Path, stop: &Stop) -> Result<Running> {
    let up = Up::start(&programs.quorate, &[], dir, stop)?;
    let leader = up.leader(stop)?;
    let follower = up.members.iter().find(|member| member.id != leader.id).ok_or("there is no follower")?;
    let endpoints = vec![leader.resp, follower.resp.clone()];
    let pids = up.members.iter().map(|member| member.pid).collect();
    Ok(Running { endpoints, pids, commands: vec![up.command], _processes: vec![up.process], _ports: None })
}
