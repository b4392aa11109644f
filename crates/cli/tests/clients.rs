//! Clients that exist already: the programs in `tests/clients` run against real clusters, and while they write,
//! their leader is killed.
//!
//! They talk with the test in lines. `leader?` asks who leads; `ready-for-kill` wants that node killed, and is
//! answered with `killed`; `verified` comes last. Everything else is for people. A program that finds something
//! wrong says so and fails.

#[path = "../../../tests/clients/rust/client.rs"]
mod rust_client;
mod support;

use std::io::{BufRead, BufReader, PipeReader, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use support::{Cluster, PATIENCE};

/// A client under way.
struct Program {
    /// What it says, on standard output and standard error.
    lines: Receiver<String>,
    answers: Box<dyn Write>,
    child: Option<Child>,
    transcript: String,
}

impl Program {
    fn child(program: &Path, arguments: &[&Path], endpoints: &[String]) -> Program {
        let (said, says) = pipe().unwrap();
        let (hears, answers) = pipe().unwrap();
        let child = Command::new(program)
            .args(arguments)
            .args(endpoints)
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

    fn thread(endpoints: &[String]) -> Program {
        let (said, says) = pipe().unwrap();
        let (hears, answers) = pipe().unwrap();
        let endpoints = endpoints.to_vec();
        std::thread::spawn(move || rust_client::run(&endpoints, BufReader::new(hears), says));
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
fn converse(start: impl FnOnce(&[String]) -> Program) {
    // A process that is killed loses nothing that the system has: no client waits for a disk here.
    let mut cluster = Cluster::start_with(3, "multipaxos", &["--durability", "os"]);
    let endpoints: Vec<_> = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
    let mut program = start(&endpoints);
    let (mut leader, mut killed, mut verified) = (None, false, false);
    while let Some(line) = program.line() {
        match &*line {
            "leader?" => {
                leader = Some(cluster.leader());
                program.answer(&endpoints[leader.unwrap()]);
            }
            "ready-for-kill" => {
                let leader = leader.expect("it asked for the leader before");
                cluster.nodes[leader].kill();
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
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let clients = variable("QUORATE_CLIENTS").or_else(|| Some(cache()?.join("quorate-clients")));
    clients.expect("QUORATE_CLIENTS or HOME says where the clients are").join(name)
}

/// Sees to it that a client is installed as its lock file says; quick if it is.
fn set_up(name: &str) {
    let setup = programs().join("setup");
    let output = Command::new(&setup).arg(name).output().expect("bash is here");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "tests/clients/setup {name} failed:\n{}",
        String::from_utf8_lossy(&said)
    );
}

#[test]
fn redis_py_goes_on_when_the_leader_is_killed() {
    set_up("python");
    let (program, script) = (installed("python").join("bin/python"), programs().join("python/client.py"));
    converse(|endpoints| Program::child(&program, &[&script], endpoints));
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
    set_up("go");
    converse(|endpoints| Program::child(&installed("go").join("client"), &[], endpoints));
}

#[test]
fn node_redis_goes_on_when_the_leader_is_killed() {
    set_up("node");
    let script = programs().join("node/client.js");
    converse(|endpoints| Program::child(Path::new("node"), &[&script], endpoints));
}

#[test]
fn redis_rs_goes_on_when_the_leader_is_killed() {
    converse(Program::thread);
}
