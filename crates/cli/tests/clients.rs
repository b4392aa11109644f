//! Clients that exist already: the programs in `tests/clients` run against real clusters, without and with TLS and
//! users, and while they write, their leader is killed.
//!
//! They talk with the test in lines. `leader?` asks who leads; `ready-for-kill` wants that node killed, and is
//! answered with `killed`; `verified` comes last. Everything else is for people. A program that finds something
//! wrong says so and fails.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "../../../tests/clients/rust/client.rs"]
mod rust_client;
mod support;

use std::io::{BufRead, BufReader, PipeReader, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use certificates::Certificates;
use rust_client::Access;
use support::{Cluster, PATIENCE, wait_for};

/// A process that is killed loses nothing that the system has: no client waits for a disk here.
const FLAGS: [&str; 2] = ["--durability", "os"];
const USER: &str = "root";
const PASSWORD: &str = "first";

/// A cluster, and how it is reached.
struct Service {
    cluster: Cluster,
    endpoints: Vec<String>,
    /// Kept where the cluster speaks TLS.
    certificates: Option<Certificates>,
}

impl Service {
    /// For everybody who can connect.
    fn open() -> Service {
        Service::of(Cluster::start_with(3, "multipaxos", &FLAGS), None)
    }

    /// For one user, over TLS.
    fn secured() -> Service {
        let (mut cluster, certificates) = certificates::prepare(3, "multipaxos");
        let users = certificates.directory.path().join("users");
        std::fs::write(&users, format!("user default off\nuser {USER} on >{PASSWORD} ~* +@all\n")).unwrap();
        for node in &mut cluster.nodes {
            node.set("--users", &users.display().to_string());
            node.start();
        }
        let service = Service::of(cluster, Some(certificates));
        for endpoint in &service.endpoints {
            wait_for("a node that serves", || service.says(&["put", "ready", "yes"], endpoint));
        }
        service
    }

    fn of(cluster: Cluster, certificates: Option<Certificates>) -> Service {
        let endpoints = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
        Service { cluster, endpoints, certificates }
    }

    /// What tells a program how to come in.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let Some(certificates) = &self.certificates else { return Vec::new() };
        let files = certificates.files().map(|file| file.display().to_string());
        let files = ["QUORATE_TLS_CA", "QUORATE_TLS_CERT", "QUORATE_TLS_KEY"].into_iter().zip(files);
        let user = [("QUORATE_USER", USER), ("QUORATE_PASSWORD", PASSWORD)];
        files.chain(user.map(|(name, value)| (name, value.to_owned()))).collect()
    }

    /// The same for the program in Rust.
    fn access(&self) -> Option<Access> {
        let certificates = self.certificates.as_ref()?;
        let [authority, certificate, key] = certificates.files().map(|file| std::fs::read(file).unwrap());
        Some(Access { authority, certificate, key, user: USER.to_owned(), password: PASSWORD.to_owned() })
    }

    /// What the command line prints, if it succeeds.
    fn says(&self, words: &[&str], endpoints: &str) -> Option<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(words).args(["--endpoints", endpoints]).envs(self.environment());
        let output = command.output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Which node leads by its own word, once one does.
    fn leader(&self) -> usize {
        wait_for("a leader", || {
            let said = self.says(&["status", "--json"], &self.endpoints.join(","))?;
            let status: serde_json::Value = serde_json::from_str(&said).unwrap();
            status["nodes"].as_array()?.iter().position(|node| node["role"] == "leader")
        })
    }
}

/// A client under way.
struct Program {
    /// What it says, on standard output and standard error.
    lines: Receiver<String>,
    answers: Box<dyn Write>,
    child: Option<Child>,
    transcript: String,
}

impl Program {
    fn child(program: &Path, arguments: &[&Path], service: &Service) -> Program {
        let (said, says) = pipe().unwrap();
        let (hears, answers) = pipe().unwrap();
        let child = Command::new(program)
            .args(arguments)
            .args(&service.endpoints)
            .envs(service.environment())
            .env("NODE_PATH", installed("node").join("node_modules"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(hears)
            .stdout(says.try_clone().unwrap())
            .stderr(says)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run {}: {error}; try tests/clients/setup", program.display())
            });
        Program {
            lines: lines(said),
            answers: Box::new(answers),
            child: Some(child),
            transcript: String::new(),
        }
    }

    fn thread(service: &Service) -> Program {
        let (said, says) = pipe().unwrap();
        let (hears, answers) = pipe().unwrap();
        let (endpoints, access) = (service.endpoints.clone(), service.access());
        std::thread::spawn(move || rust_client::run(&endpoints, access, BufReader::new(hears), says));
        Program { lines: lines(said), answers: Box::new(answers), child: None, transcript: String::new() }
    }

    /// What it says next; `None` when it has ended.
    fn line(&mut self) -> Option<String> {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => self.fail("it is silent"),
        };
        self.transcript.push_str(&line);
        self.transcript.push('\n');
        Some(line)
    }

    fn answer(&mut self, text: &str) {
        if writeln!(self.answers, "{text}").is_err() {
            while self.line().is_some() {}
            self.fail("it ended too early");
        }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{what}; it said:\n{}", self.transcript)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lines(said: PipeReader) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    lines
}

/// Runs a program against a cluster of its own to its end.
fn converse(mut service: Service, start: impl FnOnce(&Service) -> Program) {
    let mut program = start(&service);
    let (mut leader, mut killed, mut verified) = (None, false, false);
    while let Some(line) = program.line() {
        match &*line {
            "leader?" => {
                leader = Some(service.leader());
                program.answer(&service.endpoints[leader.unwrap()]);
            }
            "ready-for-kill" => {
                let leader = leader.expect("it asked for the leader before");
                service.cluster.nodes[leader].kill();
                killed = true;
                program.answer("killed");
            }
            "verified" => verified = killed,
            _ => {}
        }
    }
    if let Some(mut child) = program.child.take() {
        let status = child.wait().unwrap();
        if !status.success() {
            program.fail(&format!("the program failed: {status}"));
        }
    }
    if !verified {
        program.fail("it ended before it had verified anything");
    }
    println!("{}", program.transcript);
}

/// The folder of the programs.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients")
}

/// Where `tests/clients/setup` installs a client.
fn installed(name: &str) -> PathBuf {
    support::cache("QUORATE_CLIENTS", "quorate-clients").join(name)
}

/// Sees to it that a client is installed as its lock file says; quick if it is.
fn set_up(name: &str) {
    support::set_up("clients", &[name]);
}

fn redis_py(service: Service) {
    set_up("python");
    let (program, script) = (installed("python").join("bin/python"), programs().join("python/client.py"));
    converse(service, |service| Program::child(&program, &[&script], service));
}

fn go_redis(service: Service) {
    set_up("go");
    converse(service, |service| Program::child(&installed("go").join("client"), &[], service));
}

fn node_redis(service: Service) {
    set_up("node");
    let script = programs().join("node/client.js");
    converse(service, |service| Program::child(Path::new("node"), &[&script], service));
}

fn redis_rs(service: Service) {
    converse(service, Program::thread);
}

#[test]
fn redis_py_goes_on_when_the_leader_is_killed() {
    redis_py(Service::open());
}

#[test]
fn redis_py_goes_on_over_tls_as_a_user() {
    redis_py(Service::secured());
}

#[test]
fn redis_py_knows_users() {
    set_up("python");
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "user default off\nuser root on >first ~* +@all\n").unwrap();
    let mut cluster = Cluster::prepare(1, "multipaxos", &["--durability", "os"]);
    cluster.nodes[0].set("--users", &users.display().to_string());
    cluster.nodes[0].start();
    let resp = cluster.nodes[0].resp.clone();
    support::wait_for("a node that knows its users", || {
        let mut connection = support::Connection::open(&resp).ok()?;
        let answer = connection.call(&[b"GET", b"k"]).ok()?;
        matches!(answer, support::Resp::Error(text) if text.starts_with("NOAUTH")).then_some(())
    });
    let (program, script) = (installed("python").join("bin/python"), programs().join("python/users.py"));
    let output = Command::new(program).arg(script).args([&resp, "first"]).output().unwrap();
    let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("verified"), "{said}");
}

#[test]
fn go_redis_goes_on_when_the_leader_is_killed() {
    go_redis(Service::open());
}

#[test]
fn go_redis_goes_on_over_tls_as_a_user() {
    go_redis(Service::secured());
}

#[test]
fn node_redis_goes_on_when_the_leader_is_killed() {
    node_redis(Service::open());
}

#[test]
fn node_redis_goes_on_over_tls_as_a_user() {
    node_redis(Service::secured());
}

#[test]
fn redis_rs_goes_on_when_the_leader_is_killed() {
    redis_rs(Service::open());
}

#[test]
fn redis_rs_goes_on_over_tls_as_a_user() {
    redis_rs(Service::secured());
}
