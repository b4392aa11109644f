//! `quorate get`, `put`, `del` and `status`: against the endpoints of a cluster.

use std::io::{Write, stdout};
use std::time::Duration;

use quorate_client::Client;
use serde::{Deserialize, Serialize};

use crate::args::{Del, Endpoints, Get, Put, Status};
use crate::failure::Failure;
use crate::protocols;
use crate::watch;

/// Longer than a node takes to explain that no majority answers.
const TIMEOUT: Duration = Duration::from_secs(10);
/// For the state of one node, which it knows by itself.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

fn connect(endpoints: Endpoints) -> Result<Client, Failure> {
    connect_for(endpoints, TIMEOUT)
}

/// For requests that take as long.
pub fn connect_for(endpoints: Endpoints, timeout: Duration) -> Result<Client, Failure> {
    Client::connect(endpoints.endpoints, timeout).map_err(|error| {
        Failure::failed(format!(
            "{error}; is the cluster running? (`quorate up`, or --endpoints HOST:PORT,…)"
        ))
    })
}

pub fn get(args: Get) -> Result<(), Failure> {
    match connect(args.endpoints)?.get(&args.key).map_err(Failure::failed)? {
        Some(value) => {
            let mut out = stdout().lock();
            out.write_all(&value)?;
            out.write_all(b"\n")?;
            Ok(())
        }
        None => Err(Failure::failed(format!("there is no key `{}`", args.key))),
    }
}

pub fn put(args: Put) -> Result<(), Failure> {
    connect(args.endpoints)?.put(&args.key, &args.value).map_err(Failure::failed)?;
    writeln!(stdout(), "OK")?;
    Ok(())
}

pub fn del(args: Del) -> Result<(), Failure> {
    let count = connect(args.endpoints)?.del(&args.keys).map_err(Failure::failed)?;
    writeln!(stdout(), "{count}")?;
    Ok(())
}

/// What a node says of itself (`QUORATE STATUS`).
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    pub node: String,
    role: String,
    leader: Option<u64>,
    ballot: String,
    pub committed: u64,
    applied: u64,
    lease: bool,
    #[serde(default)]
    peers: Vec<Peer>,
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Peer {
    node: u64,
    lag: u64,
    heard_ms: Option<u64>,
}

impl NodeStatus {
    /// What it says of itself under this name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.rest.get("facts")?.get(name)?.as_str()
    }
}

/// A node's status; the error says why there is none.
pub fn ask(endpoint: &str) -> Result<NodeStatus, String> {
    let mut client = Client::connect([endpoint], STATUS_TIMEOUT).map_err(|error| error.to_string())?;
    let text = client.status().map_err(|error| error.to_string())?;
    let mut status: NodeStatus = serde_json::from_str(&text)
        .map_err(|error| format!("{endpoint} answered something else than a status: {error}"))?;
    status.endpoint = endpoint.to_owned();
    status.node = status.fact("node_id").unwrap_or("?").to_owned();
    Ok(status)
}

pub fn status(args: Status) -> Result<(), Failure> {
    let endpoints = args.endpoints.endpoints;
    if args.watch {
        return watch::watch(&endpoints);
    }
    let answers: Vec<_> = endpoints.iter().map(|endpoint| (endpoint, ask(endpoint))).collect();
    let answered = answers.iter().any(|(_, answer)| answer.is_ok());
    if args.json {
        let nodes: Vec<_> = answers
            .into_iter()
            .map(|(endpoint, answer)| match answer {
                Ok(status) => serde_json::to_value(status).expect("a status is JSON"),
                Err(error) => serde_json::json!({ "endpoint": endpoint, "error": error }),
            })
            .collect();
        writeln!(stdout(), "{}", serde_json::json!({ "nodes": nodes }))?;
    } else {
        let mut rows = vec![TITLES.map(str::to_owned)];
        rows.extend(answers.iter().map(|(endpoint, answer)| row(endpoint, answer.as_ref().ok())));
        protocols::print(&rows)?;
    }
    if answered { Ok(()) } else { Err(Failure::failed("no node answered; is the cluster running?")) }
}

/// The columns of the table.
pub const TITLES: [&str; 9] =
    ["endpoint", "node", "role", "leader", "ballot", "committed", "applied", "lease", "lag of peers"];

/// A node's line in the table.
pub fn row(endpoint: &str, status: Option<&NodeStatus>) -> [String; 9] {
    let Some(status) = status else {
        return [endpoint, "-", "unreachable", "-", "-", "-", "-", "-", ""].map(str::to_owned);
    };
    let lag = status.peers.iter().map(|peer| format!("{}:{}", peer.node, peer.lag));
    [
        endpoint.to_owned(),
        match status.fact("site") {
            Some(site) if !site.is_empty() => format!("{} {site}", status.node),
            _ => status.node.clone(),
        },
        match status.fact("membership") {
            Some(out @ ("joining" | "left")) => out.to_owned(),
            _ => status.role.clone(),
        },
        status.leader.map_or("-".to_owned(), |leader| leader.to_string()),
        status.ballot.clone(),
        status.committed.to_string(),
        status.applied.to_string(),
        if status.lease { "held" } else { "-" }.to_owned(),
        lag.collect::<Vec<_>>().join(" "),
    ]
}
