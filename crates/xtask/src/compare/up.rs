//! A cluster of `quorate up`, as users start one.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::processes::{Process, Result, Stop};
use super::services::wait_for;

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
    quorate: PathBuf,
    credentials: Vec<String>,
    _process: Process,
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
        let flags = [("--tls-ca", "ca"), ("--tls-cert", "cert"), ("--tls-key", "key")];
        let flag = |(flag, name)| Some([flag, up["tls"][name].as_str()?].map(str::to_owned));
        let credentials = flags.into_iter().filter_map(flag).flatten().collect();
        Ok(Up { members, quorate: quorate.to_owned(), credentials, _process: process })
    }

    /// The flags by which commands speak TLS with it; none if it does not.
    pub fn credentials(&self) -> &[String] {
        &self.credentials
    }

    /// Where everybody's clients connect.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.resp.clone()).collect()
    }

    /// Whoever leads by its own word, and whom nobody contradicts; waits for one.
    pub fn leader(&self, stop: &Stop) -> Result<Member> {
        let leader = wait_for("a leader of Quorate", stop, || {
            let nodes = self.nodes()?;
            let named: Vec<_> = nodes.iter().map(|node| node["leader"].as_u64()).collect();
            let agreed =
                named.first().copied().flatten().filter(|_| named.iter().all(|other| *other == named[0]));
            Ok(agreed.filter(|_| nodes.len() == self.members.len()))
        })?;
        let found = self.members.iter().find(|member| member.id == leader);
        found.cloned().ok_or_else(|| format!("there is no node {leader}"))
    }

    /// Whom each node takes for the leader, and its ballot (of other protocols the term or epoch).
    pub fn ballots(&self) -> Result<Vec<(Option<u64>, String)>> {
        let of = |node: &Value| Some((node["leader"].as_u64(), node["ballot"].as_str()?.to_owned()));
        let of_nodes = self.nodes()?.iter().map(of).collect::<Option<_>>();
        of_nodes.ok_or_else(|| "a node does not say who leads".to_owned())
    }

    /// Bytes of all records that all nodes have handed to their logs so far.
    pub fn log_bytes(&self) -> Result<f64> {
        let of = |node: &Value| node["facts"]["log_bytes_total"].as_str()?.parse::<f64>().ok();
        let of_nodes = self.nodes()?.iter().map(of).collect::<Option<Vec<_>>>();
        of_nodes
            .map(|bytes| bytes.iter().sum())
            .ok_or_else(|| "a node does not say how long its log is".to_owned())
    }

    /// What each node says of itself.
    fn nodes(&self) -> Result<Vec<Value>> {
        let mut status = Command::new(&self.quorate);
        status.args(["status", "--json", "--endpoints", &self.endpoints().join(",")]).args(&self.credentials);
        let output = status.output().map_err(|error| error.to_string())?;
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(status["nodes"].as_array().cloned().unwrap_or_default())
    }
}
