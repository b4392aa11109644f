//! The command line as a contract: what wrong words are answered with, what exit codes mean, what is left of something
//! that is interrupted, and that nobody who reads the output can stop or break what writes it.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use quorate_node::signals::hangup_is_ignored;
use rustix::process::{Pid, Signal, kill_process};
use support::{Cluster, Connection, Node, Resp, wait_for};

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1";

fn quorate(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(words).env_remove("QUORATE_ENDPOINTS").stdin(Stdio::null());
    command
}

/// The exit code, the output, and what was said on the standard error.
fn run(words: &[&str]) -> (Option<i32>, String, String) {
    parts(quorate(words).output().unwrap())
}

fn parts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn wrong_words_are_answered_with_what_would_be_right() {
    let id = "write a node's id, from 1 to 63";
    for (words, part) in [
        (&["member", "remove", "x"][..], id),
        (&["member", "promote", "64"], id),
        (&["member", "add", "4=a:1", "--remove", "0"], id),
        (&["transfer", "leader"], id),
        (&["sim", "--runs", "abc"], "write a whole number"),
        (&["bench", "--connections", "many"], "write a whole number"),
        (&["protocols", "paxos"], "unknown protocol `paxos`; known here: unreplicated, "),
        (
            &["sim", "--protocol", "epaxos", "--faults", "all,member-changes"],
            "member-changes cannot happen to epaxos",
        ),
        (&["sim", "--protocol", "rspaxos", "--nodes", "17"], "rspaxos runs on 1 to 16 nodes, not on 17"),
        (&["sim", "--protocol", "crossword", "--nodes", "17"], "crossword runs on 1 to 16 nodes, not on 17"),
        (&["sim", "--protocol", "craft", "--nodes", "17"], "craft runs on 1 to 16 nodes, not on 17"),
        (
            &["serve", "--node-id", "1"],
            "--initial-cluster, --listen-peer, --listen-resp, --data-dir are missing, on",
        ),
        (&["proxy", "--listen-resp", "127.0.0.1:0"], ": --initial-cluster is missing, on the command line"),
    ] {
        let (code, _, said) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
    // A flag for passwords is there to be refused: it is not what is advised.
    let (code, _, said) = run(&["put", "k", "v", "--pass", "hidden"]);
    assert!(code == Some(2) && said.contains("'--password-file <FILE>'"), "{code:?} {said}");
    let mut bench = quorate(&["bench"]);
    let (code, _, said) = parts(bench.env("QUORATE_ENDPOINTS", "a:1,b").output().unwrap());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("QUORATE_ENDPOINTS: \"b\": write HOST:PORT"), "{said}");
}

#[test]
fn a_protocol_shows_what_it_can_do_and_what_can_be_set() {
    let (code, shown, said) = run(&["protocols", "raft"]);
    assert_eq!(code, Some(0), "{said}");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("its members can change").ends_with("yes"), "{shown}");
    assert!(line("its leader can be chosen").ends_with("yes"), "{shown}");
    assert!(line("rosters").ends_with("no"), "{shown}");
    let setting = line("election.timeout");
    for part in ["500ms", "a duration such as 250ms", "The shortest silence of a leader"] {
        assert!(setting.contains(part), "{shown}");
    }
}

#[test]
fn exit_codes_tell_what_is_not_there_from_what_cannot_be_known() {
    let mut cluster = Cluster::start(3, "multipaxos");
    let endpoints: Vec<_> = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
    let all = endpoints.join(",");
    let run = |words: &[&str]| run(&[words, &["--endpoints", &all]].concat());
    let fails = |words: &[&str], code: i32, part: &str| {
        let (found, _, said) = run(words);
        assert!(found == Some(code) && said.contains(part), "{words:?}: {found:?} {said}");
    };

    // A value from the standard input comes back as it is.
    let value = b"two\nlines\0\xff";
    let mut put = quorate(&["put", "k", "-", "--endpoints", &all]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(value).unwrap();
    assert!(put.wait().unwrap().success());
    let mut connection = Connection::open(&endpoints[0]).unwrap();
    assert_eq!(connection.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(value.to_vec()));

    // What begins with a hyphen may be a number.
    fails(&["config", "set", "max-data", "-5"], 1, "max-data is a size such as 2gb");
    assert_eq!(run(&["put", "number", "-5"]).0, Some(0));
    assert_eq!(run(&["get", "number"]).1, "-5\n");

    assert_eq!(run(&["get", "k"]).0, Some(0));
    fails(&["get", "missing"], 1, "there is no key `missing`");
    for words in [&["get", "k"][..], &["put", "k", "v"], &["del", "k"], &["status"], &["member", "list"]] {
        let (code, _, said) = self::run(&[words, &["--endpoints", NOBODY]].concat());
        assert!(code == Some(3) && said.contains("is the cluster running?"), "{words:?}: {code:?} {said}");
    }
    let (code, _, said) = self::run(&["bench", "--endpoints", NOBODY]);
    assert!(code == Some(3) && said.contains("is it running?"), "{code:?} {said}");
    let (code, table, _) = run(&["status"]);
    assert_eq!(code, Some(0));
    let verdict = table.lines().next().unwrap();
    let leader = (cluster.leader() + 1).to_string();
    let words = format!("the cluster serves reads and writes: node {leader} leads, 3 of 3 nodes answer");
    assert_eq!(verdict, words, "{table}");

    let words =
        ["bench", "--workload", "set", "--warm-up", "0s", "--duration", "100ms", "--connections", "1"];
    let (code, report, said) = parts(quorate(&words).env("QUORATE_ENDPOINTS", &all).output().unwrap());
    assert_eq!(code, Some(0), "{report} {said}");

    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    // Its lease may let it answer for a moment.
    let said = wait_for("the end of the service", || {
        let (code, table, said) = run(&["status"]);
        assert!(table.contains("unreachable"), "{table}");
        assert!(table.contains(&format!("\nwarning: no answer of {}: ", endpoints[1])), "{table}");
        (code == Some(1)).then_some(said)
    });
    assert!(said.contains("the cluster does not serve reads and writes: no node could answer"), "{said}");
    let (code, json, _) = run(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["serves"]), (Some(1), &false.into()));
    fails(&["get", "k"], 3, "no majority answered");
    fails(&["put", "k", "v"], 3, "no majority answered");
}

#[test]
fn variables_that_count_for_nothing_are_named_and_nothing_else_changes() {
    let cluster = Cluster::start(1, "unreplicated");
    let node = &*cluster.nodes[0].resp;
    let said = |words: &[&str], variables: &[(&str, &str)]| {
        let (code, output, said) = parts(quorate(words).envs(variables.iter().copied()).output().unwrap());
        assert_eq!((code, &*output), (Some(0), "OK\n"), "{said}");
        said
    };
    let put = ["put", "k", "v", "--endpoints", node];
    assert_eq!(said(&put, &[("QUORATE_ENDPOINTS", node)]), "");
    assert_eq!(
        said(&put, &[("QUORATE_ENDPOINTS", NOBODY)]),
        "--endpoints on the command line wins over QUORATE_ENDPOINTS, which says something else\n"
    );
    let misspelt = ("QUORATE_ENDPOINT", NOBODY);
    assert_eq!(
        said(&put, &[misspelt]),
        "QUORATE_ENDPOINT is no setting of quorate; did you mean QUORATE_ENDPOINTS?\n"
    );
    let two = format!("{node},{NOBODY}");
    assert_eq!(said(&["put", "k", "v", "--endpoints", &two], &[("QUORATE_ENDPOINTS", &two)]), "");
}

#[test]
fn a_node_logs_variables_that_count_for_nothing() {
    let mut cluster = Cluster::prepare(1, "unreplicated", &[]);
    let node = &mut cluster.nodes[0];
    node.start_with_variables(&[("QUORATE_SLOWLOG", "1ms"), ("QUORATE_PORT", "tcp://10.0.0.1:7101")]);
    node.wait_until_serving();
    node.wait_for_line(&["QUORATE_SLOWLOG is no setting of quorate; did you mean QUORATE_SLOW_LOG?"]);
    assert_eq!(node.lines_with("is no setting"), 1);
}

#[test]
fn a_watch_shows_one_table_after_the_other_and_ends_well_when_interrupted() {
    let cluster = Cluster::start(1, "unreplicated");
    let endpoints = format!("{},{NOBODY}", cluster.nodes[0].resp);
    let mut watch = quorate(&["status", "--watch", "--endpoints", &endpoints]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    for round in 1..=2 {
        let table: Vec<_> = lines.by_ref().take(5).collect();
        assert!(table[0].ends_with(" UTC"), "{table:?}");
        assert!(table[1].contains("commits/s  requests/s"), "{table:?}");
        let words: Vec<_> = table[2].split_whitespace().collect();
        assert_eq!((words[2], words[7] == "-"), ("leader", round == 1), "rates need two readings: {table:?}");
        assert!(table[3].contains("unreachable"), "{table:?}");
        assert_eq!(table[4], "");
    }
    kill_process(Pid::from_raw(watch.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));

    // A reader that has seen enough.
    let gone = || std::io::pipe().unwrap().1;
    let mut status = quorate(&["status", "--endpoints", &endpoints]);
    let (code, _, said) = parts(status.stdout(gone()).output().unwrap());
    assert!(code == Some(1) && said.is_empty(), "{code:?} {said}");
    // Nor is anybody there to be told what is wrong.
    let mut get = quorate(&["get", "k", "--endpoints", NOBODY]);
    assert_eq!(get.stderr(gone()).status().unwrap().code(), Some(3));
}

/// A command that runs until it is interrupted, and has begun to watch for that.
fn interruptible(words: &[&str]) -> Child {
    let child = quorate(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a handler of SIGINT", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught & (1 << (Signal::INT.as_raw() - 1)) != 0).then_some(())
    });
    child
}

fn interrupt(child: Child) -> (Option<i32>, String, String) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    parts(child.wait_with_output().unwrap())
}

#[test]
fn what_is_interrupted_prints_what_it_has_measured() {
    let cluster = Cluster::start(1, "unreplicated");
    let node = &cluster.nodes[0];
    let words =
        ["bench", "--workload", "set", "--warm-up", "0s", "--duration", "3600s", "--connections", "2"];
    let bench = interruptible(&[&words[..], &["--endpoints", &node.resp]].concat());
    let mut connection = Connection::open(&node.resp).unwrap();
    wait_for("requests", || (fact(&mut connection, "replies_total") > 1000).then_some(()));
    let (code, report, said) = interrupt(bench);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("interrupted in run 1 of 1"), "{said}");
    assert!(report.contains("update") && report.contains("p99"), "{report}");

    let (code, summary, said) = interrupt(interruptible(&[
        "sim",
        "--protocol",
        "unreplicated",
        "--runs",
        "1000000000",
        "--jobs",
        "1",
    ]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("interrupted after "), "{said}");
    assert!(!summary.is_empty());

    let (code, table, said) =
        interrupt(interruptible(&["compare", "--topology", "wan", "--duration", "3600s"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("interrupted: bodega and what follows it were not measured"), "{said}");
    assert!(table.contains("read p50"), "{table}");
}

/// A number that a node counts.
fn fact(connection: &mut Connection, name: &str) -> u64 {
    let Resp::Bulk(info) = connection.call(&[b"INFO", b"quorate"]).unwrap() else { panic!("INFO is text") };
    let info = String::from_utf8(info).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.unwrap_or_else(|| panic!("no {name} in {info}"));
    value.trim().parse().unwrap_or_else(|error| panic!("{name}:{value}: {error}"))
}

/// It serves, whatever has become of its log; then it stops in order when it is asked to.
fn serves_and_stops(node: &mut Node, drops: bool) {
    node.wait_until_serving();
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    if drops {
        wait_for("dropped lines", || (fact(&mut connection, "stderr_lines_dropped_total") > 0).then_some(()));
    }
    drop(connection);
    node.signal(Signal::TERM);
    assert_eq!(node.wait_for_end(), Some(0));
}

#[test]
fn a_node_serves_and_stops_although_nobody_reads_its_log_or_its_disk_is_full() {
    let mut cluster = Cluster::prepare(1, "unreplicated", &[]);
    let node = &mut cluster.nodes[0];
    // Whoever read it is gone.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    node.start_logging_to(writer.into());
    serves_and_stops(node, true);
    // The disk of the log is full.
    node.start_logging_to(std::fs::File::create("/dev/full").unwrap().into());
    serves_and_stops(node, true);
    // Somebody is there, and does not read: the pipe is full before the first line.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let mut filled = 0;
    while let Ok(count) = writer.write(&[b'\n'; 4096]) {
        filled += count;
    }
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    node.start_logging_to(writer.try_clone().unwrap().into());
    serves_and_stops(node, false);
    // Nor does one that fails keep its process.
    let wrong = node.args.clone();
    node.set("--protocol", "multipaxos");
    node.start_logging_to(writer.into());
    assert_eq!(node.wait_for_end(), Some(2));
    node.args = wrong;
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(filled > 0 && rest.len() >= filled);
}

#[test]
fn a_hangup_drains_and_the_file_may_ask_for_json() {
    let mut cluster = Cluster::prepare(1, "unreplicated", &[]);
    let node = &mut cluster.nodes[0];
    let config = node.data.with_extension("toml");
    std::fs::write(&config, "log-json = true\nclient-memory = \"2GiB\"\n").unwrap();
    node.set("--config", &config.display().to_string());
    node.start();
    node.wait_until_serving();
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(fact(&mut connection, "clients_buffered_limit"), 2 << 30);
    assert!(fact(&mut connection, "turns_total") > 0);
    // It is shown where people look for it.
    fact(&mut connection, "loop_stalls_total");
    drop(connection);
    // Under `nohup` a hangup is none.
    node.signal(if hangup_is_ignored() { Signal::TERM } else { Signal::HUP });
    assert_eq!(node.wait_for_end(), Some(0), "{}", node.said());
    let said = node.said();
    assert!(said.contains("asked to stop: finishing what is under way"), "{said}");
    for line in said.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
}
