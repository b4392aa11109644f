//! The endpoints of a cluster, and `quorate get`, `put` and `del` against them.

use std::io::{Read, Write, stdin, stdout};
use std::time::Duration;

use quorate_client::{Client, Error, Login};
use quorate_store::VALUE_LIMIT;
use quorate_tls::ClientCredentials;

use crate::args::{Del, Endpoints, Get, Put};
use crate::certificates;
use crate::failure::Failure;
use crate::status::{NoStatus, NodeStatus};
use crate::users;

/// Longer than a node takes to explain that no majority answers.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than a node takes to say that a change of members, or of the roster, is not done yet.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(65);
/// For the state of one node, which it knows by itself.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

fn connect(endpoints: Endpoints) -> Result<Client, Failure> {
    connect_for(endpoints, TIMEOUT)
}

/// For requests that take as long.
pub fn connect_for(endpoints: Endpoints, timeout: Duration) -> Result<Client, Failure> {
    Target::new(endpoints)?.any(timeout)
}

/// Where a cluster is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Target {
    pub endpoints: Vec<String>,
    pub tls: Option<ClientCredentials>,
    pub login: Option<Login>,
}

impl Target {
    pub fn new(flags: Endpoints) -> Result<Target, Failure> {
        let (tls, login) = (certificates::of_client(&flags.tls)?, users::of_client(&flags.login)?);
        Ok(Target { tls, login, endpoints: flags.endpoints })
    }

    /// To the first of its nodes that can be reached.
    pub fn any(&self, timeout: Duration) -> Result<Client, Failure> {
        Ok(Client::connect_as(self.endpoints.clone(), timeout, self.tls.clone(), self.login.clone())?)
    }

    /// To one of its nodes.
    pub fn connect(&self, endpoint: &str, timeout: Duration) -> Result<Client, Error> {
        Client::connect_as([endpoint], timeout, self.tls.clone(), self.login.clone())
    }

    /// A node's status; the error says why there is none.
    pub fn ask(&self, endpoint: &str) -> Result<NodeStatus, NoStatus> {
        let mut client = self.connect(endpoint, STATUS_TIMEOUT).map_err(NoStatus::from)?;
        let text = client.status().map_err(NoStatus::from)?;
        let mut status: NodeStatus = serde_json::from_str(&text).map_err(|error| {
            NoStatus::Silent(format!("{endpoint} answered something else than a status: {error}"))
        })?;
        status.endpoint = endpoint.to_owned();
        status.node = status.fact("node_id").unwrap_or("?").to_owned();
        Ok(status)
    }
}

pub fn get(args: Get) -> Result<(), Failure> {
    let mut client = connect(args.endpoints)?;
    if let Some(staleness) = args.staleness {
        // Should the connection break in between, the value is the latest.
        let mode = format!("bounded={staleness}");
        client.read(&["CLIENT", "READMODE", &mode])?;
    }
    match client.get(&args.key)? {
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
    let value = match args.value.as_str() {
        "-" => standard_input()?,
        given => given.as_bytes().to_vec(),
    };
    connect(args.endpoints)?.put(&args.key, &value)?;
    writeln!(stdout(), "OK")?;
    Ok(())
}

/// All of the standard input, if it is no longer than a value may be.
fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let limit = VALUE_LIMIT as u64;
    let read = stdin().lock().take(limit + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::failed(format!("cannot read the standard input: {error}")))?;
    match value.len() as u64 > limit {
        true => {
            Err(Failure::wrong(format!("the standard input is longer than a value may be: {limit} bytes")))
        }
        false => Ok(value),
    }
}

pub fn del(args: Del) -> Result<(), Failure> {
    let count = connect(args.endpoints)?.del(&args.keys)?;
    writeln!(stdout(), "{count}")?;
    Ok(())
}
