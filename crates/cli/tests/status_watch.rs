//! `quorate status --watch` in a pipe: one table after the other, until it is interrupted.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::Cluster;

#[test]
fn a_watch_shows_one_table_after_the_other_and_ends_well_when_interrupted() {
    let cluster = Cluster::start(1, "unreplicated");
    // Nobody listens on port 1.
    let endpoints = format!("{},127.0.0.1:1", cluster.nodes[0].resp);
    let mut watch = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["status", "--watch", "--endpoints", &endpoints])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
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
}
