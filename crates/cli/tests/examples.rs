//! The examples that `--help` shows are executed, as the documents' commands are.
//!
//! Those of `quorate up`, and of what works beside it; then a cluster that is made by the examples of `quorate cert`
//! and `quorate serve`, which others grow, restore and recover; then what needs no cluster.

#[path = "support/commands.rs"]
mod execution;
#[path = "support/machines.rs"]
mod machines;
mod support;

use std::collections::BTreeSet;
use std::process::Command;

use execution::{Up, execute};
use machines::Session;

/// Every command that has examples, by what becomes of them.
const UP: &str = "up";
const BESIDE: [&str; 5] = ["config set", "backup", "export", "import", "bench"];
const ROSTER: &str = "roster set";
const MACHINES: [&str; 6] = ["cert", "serve", "proxy", "member add", "restore", "recover"];
const ALONE: [&str; 2] = ["sim", "compare"];

/// What `--help` shows of a command, in lines as long as they are.
fn help(command: &str) -> String {
    let mut quorate = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = quorate.args(command.split(' ')).arg("--help").env("COLUMNS", "1000").output().unwrap();
    assert!(output.status.success(), "{command}");
    String::from_utf8(output.stdout).unwrap()
}

/// The examples of a command, without what is said of them.
fn examples(command: &str) -> Vec<String> {
    let help = help(command);
    let text = help.find("\nExample").map_or("", |at| &help[at..]).replace("\\\n      ", "");
    let lines =
        text.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| line.starts_with("quorate ")));
    let bare = |line: &str| line.split("  ").next().expect("a part").to_owned();
    // What is left out cannot be executed.
    lines.map(bare).filter(|line| !line.contains('…')).collect()
}

#[test]
fn every_command_that_has_examples_has_them_executed() {
    let reference = include_str!("../../../docs/reference/commands.md");
    let commands = reference.lines().filter_map(|line| line.strip_prefix("## quorate "));
    let with: BTreeSet<_> = commands.filter(|command| !examples(command).is_empty()).collect();
    let executed = [UP, ROSTER].into_iter().chain(BESIDE).chain(MACHINES).chain(ALONE);
    assert_eq!(with, executed.collect());
}

#[test]
fn examples_of_up_start_clusters_and_others_work_beside_them() {
    for example in examples(UP) {
        let up = Up::start(&example, &[]);
        if example == "quorate up" {
            let commands = BESIDE.map(examples).concat();
            let beside = commands.iter().map(|command| {
                // Of those that are here; and each file is a new one.
                let command = command.replace("10.0.0.2:7101", &up.endpoints[1]);
                let command = command.replace("10.0.1.1:7101", &up.endpoints[0]);
                match command.strip_prefix("quorate backup") {
                    Some(flags) => format!("rm -f monday.backup; quorate backup{flags}"),
                    None => command.replace(
                        "--target redis",
                        &format!("--target redis --endpoints {}", up.endpoints[0]),
                    ),
                }
            });
            execute("examples", &beside.collect::<Vec<_>>(), Some(&up), &[]);
        }
        drop(up);
    }
    let up = Up::start("quorate up --topology geo --protocol bodega", &[]);
    execute(ROSTER, &examples(ROSTER), Some(&up), &[]);
}

#[test]
fn examples_for_several_machines_make_a_cluster_that_grows_and_begins_anew() {
    let mut session = Session::default();
    let mut execute = |commands: &[String]| session.execute("examples", commands);
    let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    execute(&examples("cert"));
    execute(&own(&["quorate cert proxy --dir ca", "cp ca/* ."]));
    let serve = examples("serve");
    execute(&serve);
    // The proxy's flags have variables; it is where a client of that host reaches it.
    execute(&own(&["export QUORATE_TLS_CA=ca.crt QUORATE_TLS_CERT=proxy.crt QUORATE_TLS_KEY=proxy.key"]));
    execute(&examples("proxy"));
    execute(&own(&[
        "export QUORATE_TLS_CERT=client-shop.crt QUORATE_TLS_KEY=client-shop.key",
        "export QUORATE_ENDPOINTS=10.0.0.2:7101,10.0.0.3:7101",
        "quorate put greeting hello --endpoints 127.0.0.1:7101",
    ]));
    for id in [4, 5] {
        let node = format!("--node-id {id} --join");
        let serve = serve[0].replace("--node-id 1", &node).replace("node-1", &format!("node-{id}"));
        let serve = serve.replace("peer 10.0.0.1", &format!("peer 10.0.0.{id}"));
        let serve = serve.replace("resp 10.0.0.1", &format!("resp 10.0.0.{id}"));
        let certificate = format!("quorate cert node --dir . --node-id {id} --host 10.0.0.{id}");
        execute(&[certificate, serve]);
    }
    let [two, replace, learner] = &examples("member add")[..] else { panic!("other examples") };
    execute(&[two.clone(), "quorate member remove 5".into(), "quorate member remove 4".into()]);
    execute(&[replace.clone(), "quorate member remove 4".into(), learner.clone()]);
    execute(&own(&["quorate backup --out monday.backup"]));
    execute(&examples("restore"));
    session.kill();
    session.execute("examples", &examples("recover"));
    session.run();
}

#[test]
fn examples_of_what_needs_no_cluster_succeed() {
    let (violations, fine): (Vec<_>, Vec<_>) =
        ALONE.map(examples).concat().into_iter().partition(|example| example.contains("clocks-beyond-bound"));
    execute("examples", &fine, None, &[]);
    assert!(!violations.is_empty());
    // A violation is exit 1.
    for example in violations {
        execute("examples", &[format!("! {example}")], None, &[]);
    }
}
