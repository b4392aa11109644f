//! Commands of documents that are for several machines, executed on this one as they are written but for this:
//!
//! | in the document | here |
//! |---|---|
//! | `10.0.0.N`, `10.0.1.N` | addresses of this machine alone, and of this session alone |
//! | `127.0.0.1:7101`, where a proxy is | a port that is free |
//! | `/var/lib/quorate` | a folder for each machine: of the address that the command names for its node |
//! | a command with `--node-id 1`, of a group of three | executed for nodes 2 and 3, too, with their numbers and addresses |
//! | `quorate serve`, `quorate proxy` | run until the session ends |
//! | `systemctl reload quorate` | SIGHUP to all nodes that run |
//! | `ID` after `--cluster-id` | the id that the last `quorate restore` or `recover` has printed |
//!
//! Where no node answers yet (exit 3), a command is executed again. Who is asked for a word types it.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use quorate_bench::Ports;

use super::support::PATIENCE;

/// Before each session: nothing outlives it, and a command waits until there is somebody to answer it.
const PROLOGUE: &str = "set -euo pipefail
trap 'kill -9 $(jobs -p) 2> /dev/null || true; wait' EXIT
";

/// Where a proxy serves the host of an application.
const APPLICATION: &str = "127.0.0.1:7101";

/// Terminals of several machines, as one shell script.
#[derive(Default)]
pub struct Session {
    script: String,
}

impl Session {
    #[allow(dead_code, reason = "each test file uses its part of this")]
    pub fn is_empty(&self) -> bool {
        self.script.is_empty()
    }

    /// Goes on with these commands, of this place.
    pub fn execute(&mut self, place: &str, commands: &[String]) {
        writeln!(self.script, "echo '== {place}' >&2").expect("it is a string");
        for command in commands {
            for node in nodes(command) {
                self.script.push_str(&line(&of_node(command, node)));
            }
        }
    }

    /// Kills all nodes that run so far (`kill -9`).
    pub fn kill(&mut self) {
        self.script.push_str("kill -9 $(jobs -p); wait\n");
    }

    /// Executes all of it; panics if a command fails.
    pub fn run(self) {
        static SESSIONS: AtomicU32 = AtomicU32::new(0);
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let network = format!("127.{}.", 100 + (std::process::id() + session) % 100);
        let (ports, script) = (Ports::claim().unwrap(), self.script.replace("10.0.", &network));
        let script = format!("{PROLOGUE}{}", script.replace(APPLICATION, &ports.address()));
        let (folder, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let quorate = programs.path().join("quorate");
        fs::write(&quorate, stand_in()).unwrap();
        fs::set_permissions(&quorate, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("QUORATE_")) {
            bash.env_remove(name);
        }
        bash.args(["-c", &script]).current_dir(folder.path()).env("PATH", path).stdin(Stdio::null());
        let output = bash.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        println!("{}{}", text(&output.stdout), text(&output.stderr));
        let log = fs::read_to_string(folder.path().join("nodes.log")).unwrap_or_default();
        let mut end: Vec<_> = log.lines().rev().take(30).collect();
        end.reverse();
        assert!(output.status.success(), "{}\n{script}\nnodes:\n{}", output.status, end.join("\n"));
    }
}

/// A `quorate` that has patience, and somebody who types what it asks for.
fn stand_in() -> String {
    let program = env!("CARGO_BIN_EXE_quorate");
    let tenths = PATIENCE.as_secs() * 10;
    format!(
        "#!/bin/bash
if [ \"$1\" = serve ] || [ \"$1\" = proxy ]; then exec {program} \"$@\"; fi
for _ in $(seq {tenths}); do
    if [ \"$1\" = recover ]; then
        script --quiet --return --command \"$(printf '%q ' {program} \"$@\")\" /dev/null <<< recover
    else
        {program} \"$@\"
    fi
    code=$?
    [ $code = 3 ] || exit $code
    sleep 0.1
done
exit 3
"
    )
}

/// Which nodes a command of the first of them is for.
fn nodes(command: &str) -> std::ops::RangeInclusive<u8> {
    let members = value(command, "--initial-cluster").map_or(3, |members| members.split(',').count());
    let is_of_first = value(command, "--node-id") == Some("1");
    1..=if is_of_first { members as u8 } else { 1 }
}

/// What follows a flag.
fn value<'a>(command: &'a str, flag: &str) -> Option<&'a str> {
    let mut words = command.split_whitespace().skip_while(|word| *word != flag);
    words.nth(1).map(|value| value.trim_matches('"'))
}

/// The command of the first node, for another.
fn of_node(command: &str, node: u8) -> String {
    if node == 1 {
        return command.to_owned();
    }
    let mut last = "";
    let words = command.split_whitespace().map(|word| match std::mem::replace(&mut last, word) {
        "--node-id" => node.to_string(),
        "--initial-cluster" => word.to_owned(),
        _ => {
            let word = word.replace("node-1", &format!("node-{node}"));
            ["10.0.0.", "10.0.1."].iter().fold(word, |word, network| {
                let (one, other) = (format!("{network}1"), format!("{network}{node}"));
                if word == one || word.starts_with(&format!("{one}:")) {
                    word.replacen(&one, &other, 1)
                } else {
                    word
                }
            })
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The line of the script for a command.
fn line(command: &str) -> String {
    let folder = format!("machine-{}", machine(command).unwrap_or_default());
    let command = command.replace("/var/lib/quorate", &format!("{folder}/var/lib/quorate"));
    let printed = "\"$(sed -n 's/.*--cluster-id //p' printed | tail -1 | tr -d '\\r')\"";
    let command = command.replace("--cluster-id ID", &format!("--cluster-id {printed}"));
    let starts = |subcommand: &str| command.starts_with(&format!("quorate {subcommand} "));
    if command == "systemctl reload quorate" {
        "kill -HUP $(jobs -p)\n".to_owned()
    } else if starts("serve") || starts("proxy") {
        format!("{command} >> nodes.log 2>&1 &\n")
    } else if starts("restore") || starts("recover") {
        format!("{command} | tee -a printed\n")
    } else {
        format!("{command}\n")
    }
}

/// The address of the node that a command is about.
fn machine(command: &str) -> Option<&str> {
    let address = value(command, "--listen-peer").or_else(|| {
        let node = value(command, "--node-id").unwrap_or("1");
        let mut members = value(command, "--initial-cluster")?.split(',');
        members.find_map(|member| member.strip_prefix(node)?.strip_prefix('='))
    });
    address?.split(':').next()
}
