//! Commands of documents, executed as a shell would whose `quorate` is this build's: alone, or beside a cluster of
//! `quorate up`; and with less work than is written, so that a test can wait for it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::support::wait_for;

/// The client ports of the documents, which are those of `quorate up` unless they are taken.
const FIRST_PORT: u16 = 7101;
/// So many of them are the default of `--endpoints`.
const USUAL: usize = 3;

/// Puts files into a folder.
fn write_files(folder: &Path, files: &[(&str, String)]) {
    files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
}

/// A cluster of `quorate up`.
pub struct Up {
    child: Child,
    pub endpoints: Vec<String>,
    /// What its clients need, as it says itself: variables and their values.
    tls: Vec<(&'static str, String)>,
    _folder: TempDir,
}

impl Up {
    pub fn start(command: &str, files: &[(&str, String)]) -> Up {
        let command = command.replace("cargo run --release -- ", "quorate ");
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path(), files);
        // Until it has its ports: another would take them for free.
        static STARTING: Mutex<()> = Mutex::new(());
        let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(&words)
            .args(["--json", "--durability", "os"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        output.read_line(&mut line).unwrap();
        drop(starting);
        // Nobody reads what else it prints; it must not be stopped by a full pipe.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let json: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{command}: {error}: {line}"));
        let nodes = json["nodes"].as_array().expect("a list of nodes").iter();
        let endpoints = nodes.map(|node| node["resp"].as_str().expect("an address").to_owned()).collect();
        let files = [("QUORATE_TLS_CA", "ca"), ("QUORATE_TLS_CERT", "cert"), ("QUORATE_TLS_KEY", "key")];
        let tls =
            files.iter().filter_map(|(name, file)| Some((*name, json["tls"][file].as_str()?.to_owned())));
        let up = Up { child, endpoints, tls: tls.collect(), _folder: folder };
        wait_for("every node to serve", || {
            up.endpoints.iter().all(|endpoint| up.serves(endpoint)).then_some(())
        });
        up
    }

    fn serves(&self, endpoint: &str) -> bool {
        let mut put = Command::new(env!("CARGO_BIN_EXE_quorate"));
        put.args(["put", "the-documents-test", "serves", "--endpoints", endpoint])
            .envs(self.tls.iter().cloned());
        let output = put.output().unwrap();
        // It knows who the users are, and that this is none of them.
        output.status.success() || String::from_utf8_lossy(&output.stderr).contains("NOAUTH")
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Executes a block as a shell would whose `quorate` is this build's.
pub fn execute(place: &str, commands: &[String], cluster: Option<&Up>, files: &[(&str, String)]) {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), files);
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_quorate"), programs.path().join("quorate")).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut script = String::from("set -euo pipefail\n");
    for command in commands {
        let mut command = with_less_work(command);
        for (index, endpoint) in cluster.iter().flat_map(|up| up.endpoints.iter().enumerate()) {
            let port = endpoint.rsplit(':').next().expect("a port");
            command = command.replace(&(FIRST_PORT + index as u16).to_string(), port);
        }
        script.push_str(&command);
        script.push('\n');
    }
    let mut bash = Command::new("bash");
    bash.current_dir(folder.path()).env("PATH", path).env_remove("QUORATE_ENDPOINTS");
    if let Some(up) = cluster {
        // Those that client commands talk to unless they are told of others.
        let usual = &up.endpoints[..up.endpoints.len().min(USUAL)];
        bash.env("QUORATE_ENDPOINTS", usual.join(",")).envs(up.tls.iter().cloned());
    }
    run(place, &script, &mut bash);
}

/// Executes a script; panics if it fails.
pub fn run(place: &str, script: &str, bash: &mut Command) {
    let output = bash.args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    let end: Vec<_> = printed.lines().rev().take(20).collect();
    assert!(output.status.success(), "{place}: {}\n{script}\n{said}\n{end:#?}", output.status);
}

/// The same command, for so little work that a test can wait for it.
pub fn with_less_work(command: &str) -> String {
    let command = command.replace("cargo run --release -- ", "quorate ");
    let is = |subcommand: &str| command.starts_with(&format!("quorate {subcommand}"));
    let mut words: Vec<&str> = command.split(' ').collect();
    for (flag, value, added) in [
        ("--runs", "2", is("sim") && !command.contains("--explore") && !is("sim --protocol bodega --faults")),
        ("--states", "5000", command.contains("--explore")),
        ("--duration", "700ms", is("bench") || is("compare")),
        ("--protocols", "bodega", is("compare")),
        ("--warm-up", "100ms", is("bench") || is("compare")),
        ("--keys", "1000", is("bench")),
        ("--rate", "500", false),
        ("-n", "1000", false),
    ] {
        match words.iter().position(|word| *word == flag) {
            Some(at) => words[at + 1] = value,
            // What follows a sign of the shell is no word of the command.
            None if added => {
                let end = words.iter().position(|word| ["|", ">"].contains(word)).unwrap_or(words.len());
                words.splice(end..end, [flag, value]);
            }
            None => {}
        }
    }
    words.join(" ")
}
