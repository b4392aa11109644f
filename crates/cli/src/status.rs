//! `quorate status`: what the nodes of a cluster say of themselves, and whether it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Write, stdout};

use quorate_client::Error;
use quorate_core::{GROUP_MEMORY, MEMORY, WALL_CLOCK};
use quorate_node::monitor::{MEMBERS_DIFFER, WARNING_DISK, WARNING_MEMORY};
use quorate_protocols::registry;
use serde::{Deserialize, Serialize};

use crate::args::Status;
use crate::client::Target;
use crate::failure::Failure;
use crate::protocols;
use crate::service::Service;
use crate::watch;

/// Why there is no status of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStatus {
    /// It does not answer.
    Silent(String),
    /// It answers that this user may not ask.
    Refused(String),
}

impl NoStatus {
    pub fn is_refused(&self) -> bool {
        matches!(self, NoStatus::Refused(_))
    }

    pub fn why(&self) -> &str {
        let (NoStatus::Silent(why) | NoStatus::Refused(why)) = self;
        why
    }
}

impl From<Error> for NoStatus {
    fn from(error: Error) -> NoStatus {
        match is_refusal(&error) {
            true => NoStatus::Refused(error.to_string()),
            false => NoStatus::Silent(error.to_string()),
        }
    }
}

/// Whether a node has answered, and does not do it for this user.
pub fn is_refusal(error: &Error) -> bool {
    let codes = ["NOAUTH", "NOPERM", "WRONGPASS"];
    matches!(error, Error::Refused { message, .. } if codes.iter().any(|code| message.starts_with(code)))
}

/// What a node says of itself (`QUORATE STATUS`).
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    #[serde(default)]
    pub endpoint: String,
    #[serde(default)]
    pub node: String,
    role: String,
    pub leader: Option<u64>,
    ballot: String,
    pub committed: u64,
    pub applied: u64,
    lease: bool,
    #[serde(default)]
    peers: Vec<Peer>,
    /// The other members, and which of them do not answer.
    #[serde(default)]
    contacts: Vec<Contact>,
    /// The gauges and counters of its state machine, by name.
    #[serde(default)]
    pub samples: BTreeMap<String, serde_json::Value>,
    /// Where the keys are divided among groups: each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Peer {
    node: u64,
    lag: u64,
    heard_ms: Option<u64>,
}

/// Another member, as far as a node has to do with it.
#[derive(Debug, Serialize, Deserialize)]
struct Contact {
    node: u64,
    site: String,
    round_trip_ms: Option<f64>,
    unreachable: Option<Unreachable>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Unreachable {
    /// How long the member has not answered, in milliseconds.
    ms: u64,
    why: String,
}

/// A group of replicas, as a node sees it.
#[derive(Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    pub group: u64,
    /// The first key of the range.
    from: String,
    /// The first key that is not its own, if there is one.
    to: Option<String>,
    pub protocol: String,
    role: String,
    pub leader: Option<u64>,
    ballot: String,
    committed: u64,
    applied: u64,
    lease: bool,
    reads: String,
}

impl NodeStatus {
    /// How many members it reaches, itself among them, and how many there are.
    pub fn reach(&self) -> (usize, usize) {
        let silent = self.contacts.iter().filter(|contact| contact.unreachable.is_some()).count();
        (self.contacts.len() + 1 - silent, self.contacts.len() + 1)
    }

    /// Its number, and its site if it has one.
    fn name(&self) -> String {
        match self.fact("site") {
            Some(site) if !site.is_empty() => format!("{} {site}", self.node),
            _ => self.node.clone(),
        }
    }

    /// What it says of itself under this name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.rest.get("facts")?.get(name)?.as_str()
    }

    /// Whether it is a member of the group, with data of its own.
    pub fn takes_part(&self) -> bool {
        !matches!(self.role.as_str(), "proxy" | "waiting")
            && !matches!(self.fact("membership"), Some("joining" | "left"))
    }

    /// What it counts under this name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.samples.get(name)?.as_u64()
    }
}

pub fn status(args: Status) -> Result<(), Failure> {
    let target = Target::new(args.endpoints)?;
    if args.watch {
        return watch::watch(&target);
    }
    let answers: Vec<_> = target.endpoints.iter().map(|endpoint| (endpoint, target.ask(endpoint))).collect();
    let there = answers.iter().filter(|(_, answer)| !matches!(answer, Err(NoStatus::Silent(_))));
    let there: Vec<_> = there.map(|(endpoint, _)| *endpoint).collect();
    let told: Vec<_> = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
    let groups = told.iter().map(|node| &node.groups).max_by_key(|groups| groups.len());
    let mut keys = vec!["quorate:status"];
    keys.extend(groups.into_iter().flatten().map(|group| group.from.as_str()));
    let service = Service::find(&target, &there, &keys, &told);
    if args.json {
        let nodes: Vec<_> = answers
            .iter()
            .map(|(endpoint, answer)| match answer {
                Ok(status) => serde_json::to_value(status).expect("a status is JSON"),
                Err(none) => serde_json::json!({ "endpoint": endpoint, "error": none.why() }),
            })
            .collect();
        let (serves, refused) = (service.serves(), &service.refused);
        let shown = serde_json::json!({ "nodes": nodes, "serves": serves, "refuses_writes": refused });
        writeln!(stdout(), "{shown}")?;
    } else {
        for line in verdict(&answers, &told, &service) {
            writeln!(stdout(), "{line}")?;
        }
        writeln!(stdout())?;
        let mut rows = vec![TITLES.map(str::to_owned)];
        rows.extend(answers.iter().map(|(endpoint, answer)| row(endpoint, answer.as_ref())));
        protocols::print(&rows)?;
        show_groups(&told)?;
        show_samples(&told)?;
        show_timeouts(&told)?;
        if let Some(line) = level_line(&told) {
            writeln!(stdout(), "\n{line}")?;
        }
    }
    if there.is_empty() {
        return Err(Failure::unreachable("no node answered; is the cluster running?"));
    }
    if told.is_empty() {
        let why =
            answers.iter().find_map(|(_, answer)| answer.as_ref().err().filter(|none| none.is_refused()));
        let why = why.map_or("", NoStatus::why);
        return Err(Failure::failed(format!("no node tells its status to this user (--user): {why}")));
    }
    service.result()
}

/// What an operator wants to know first: whether the cluster serves, who leads, and what is wrong with which node.
fn verdict(
    answers: &[(&String, Result<NodeStatus, NoStatus>)],
    nodes: &[&NodeStatus],
    service: &Service,
) -> Vec<String> {
    let leaders: BTreeSet<_> = nodes.iter().filter_map(|node| node.leader).collect();
    let leads = match leaders.iter().collect::<Vec<_>>()[..] {
        [] => String::new(),
        _ if nodes.iter().any(|node| !node.groups.is_empty()) => String::new(),
        [leader] => format!("node {leader} leads, "),
        _ => "the nodes do not agree on who leads, ".to_owned(),
    };
    let refusing =
        answers.iter().filter(|(_, answer)| answer.as_ref().is_err_and(NoStatus::is_refused)).count();
    let mut count = format!("{} of {} nodes answer", nodes.len() + refusing, answers.len());
    if refusing > 0 {
        count.push_str(&format!(", and {refusing} of them do not tell this user their status"));
    }
    let mut lines = vec![format!("{}: {leads}{count}", service.headline())];
    lines.extend(
        service.refused.iter().map(|why| format!("warning: writes that add data are refused: {why}")),
    );
    lines.extend(service.unchecked().map(|why| format!("this user may not check whether it serves: {why}")));
    let versions = by_fact(nodes, "version");
    if versions.len() > 1 {
        let each = versions.iter().map(|(version, at)| format!("{version} at {}", at.join(",")));
        lines.push(format!("nodes run different versions: {}", each.collect::<Vec<_>>().join("; ")));
    }
    let none = answers.iter().filter_map(|(endpoint, answer)| Some((endpoint, answer.as_ref().err()?)));
    lines.extend(none.map(|(endpoint, none)| match none {
        NoStatus::Silent(why) => format!("warning: no answer of {endpoint}: {why}"),
        NoStatus::Refused(why) => format!("warning: no status of {endpoint}: {why}"),
    }));
    lines.extend(unreachable(nodes));
    for node in nodes {
        let words = WARNINGS.iter().filter_map(|name| node.fact(name));
        lines.extend(words.map(|words| format!("warning: node {}: {words}", node.name())));
    }
    lines.extend(clocks(nodes));
    lines.extend(by_fact(nodes, MEMBERS_DIFFER).into_iter().map(|(words, at)| {
        format!("warning: groups have different members, says node {}: {words}: {STOPPED}", at.join(","))
    }));
    lines
}

/// Why groups have different members (`--groups`), and what to do about it.
pub const STOPPED: &str = "they change one after the other, which is under way, or has stopped and goes on when it is \
                           asked for again (quorate member)";

/// Whose wall clocks are off. Where every node tells, they tell the same.
fn clocks(nodes: &[&NodeStatus]) -> Option<String> {
    let said = |node: &&NodeStatus| {
        let off = node.fact(WALL_CLOCK)?;
        Some(format!("warning: a wall clock is off, node {} says: {off}", node.name()))
    };
    nodes.iter().find_map(said)
}

/// A line for each member that does not answer some of these nodes: for how long and why, by the node that has missed
/// it for the longest time.
fn unreachable(nodes: &[&NodeStatus]) -> Vec<String> {
    let mut missed: BTreeMap<u64, Vec<(&str, &Unreachable)>> = BTreeMap::new();
    for node in nodes {
        for contact in &node.contacts {
            let silent = contact.unreachable.iter().map(|silent| (node.node.as_str(), silent));
            missed.entry(contact.node).or_default().extend(silent);
        }
    }
    let line = |(member, by): (u64, Vec<(&str, &Unreachable)>)| {
        let (_, Unreachable { ms, why }) = by.iter().max_by_key(|(_, silent)| silent.ms)?;
        let by = by.iter().map(|(node, _)| *node).collect::<Vec<_>>().join(",");
        Some(format!("warning: node {member} has been unreachable for {} s from {by}: {why}", ms / 1000))
    };
    missed.into_iter().filter_map(line).collect()
}

/// Facts that are there only if something is wrong.
const WARNINGS: [&str; 5] = [WARNING_DISK, WARNING_MEMORY, "waiting", MEMORY, GROUP_MEMORY];

/// The groups that the keys are divided among, as each node sees them.
fn show_groups(nodes: &[&NodeStatus]) -> Result<(), Failure> {
    let titles =
        ["group", "keys", "protocol", "node", "role", "leader", "ballot", "committed", "applied", "lease"];
    let mut rows = vec![titles.map(str::to_owned)];
    let mut all: Vec<_> =
        nodes.iter().flat_map(|node| node.groups.iter().map(move |group| (group, node))).collect();
    all.sort_by_key(|(group, _)| group.group);
    rows.extend(all.into_iter().map(|(group, node)| {
        let keys = match &group.to {
            Some(to) => format!("{}..{to}", group.from),
            None => format!("{}..", group.from),
        };
        let lease = if group.lease { "held" } else { "-" };
        let leader = group.leader.map_or("-".to_owned(), |leader| leader.to_string());
        let (committed, applied) = (group.committed.to_string(), group.applied.to_string());
        let (protocol, role, ballot) = (group.protocol.clone(), group.role.clone(), group.ballot.clone());
        let number = group.group.to_string();
        [number, keys, protocol, node.name(), role, leader, ballot, committed, applied, lease.to_owned()]
    }));
    if rows.len() > 1 {
        writeln!(stdout())?;
        protocols::print(&rows)?;
    }
    Ok(())
}

/// What the nodes count, a column each, and the rosters they act by; nothing where no protocol says anything.
fn show_samples(nodes: &[&NodeStatus]) -> Result<(), Failure> {
    let names: BTreeSet<_> = nodes.iter().flat_map(|node| node.samples.keys()).collect();
    let counts = |name: &&String| {
        let of = |node: &&NodeStatus| node.samples.get(*name).and_then(serde_json::Value::as_f64);
        nodes.iter().filter_map(of).any(|value| value != 0.0)
    };
    let mut rows = vec![vec!["".to_owned()]];
    rows[0].extend(nodes.iter().map(|node| node.name()));
    for name in names.into_iter().filter(counts) {
        let mut row = vec![name.clone()];
        row.extend(nodes.iter().map(|node| match node.samples.get(name) {
            Some(value) if value.is_f64() => format!("{:.3}", value.as_f64().unwrap_or(0.0)),
            Some(value) => value.to_string(),
            None => "-".to_owned(),
        }));
        rows.push(row);
    }
    if rows.len() > 1 {
        writeln!(stdout())?;
        protocols::print(&rows)?;
    }
    let mut rosters: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for node in nodes {
        if let Some(roster) = node.fact("roster") {
            let auto = if node.fact("roster_auto") == Some("on") { ", changes by itself" } else { "" };
            rosters.entry((&node.ballot, roster, auto)).or_default().push(node.node.as_str());
        }
    }
    for (index, ((ballot, roster, auto), nodes)) in rosters.iter().enumerate() {
        let space = if index == 0 { "\n" } else { "" };
        writeln!(stdout(), "{space}roster of ballot {ballot} (at {}): {roster}{auto}", nodes.join(","))?;
    }
    Ok(())
}

/// The timeouts in force, and why: once where they are the same, as they are but for a moment.
fn show_timeouts(nodes: &[&NodeStatus]) -> Result<(), Failure> {
    let timeouts = by_fact(nodes, "timeouts");
    for (words, at) in &timeouts {
        let at = if timeouts.len() > 1 { format!(" (at {})", at.join(",")) } else { String::new() };
        writeln!(stdout(), "\ntimeouts{at} {words}")?;
    }
    Ok(())
}

/// Whether a node's protocol executes what raises the feature level, a command on all keys; of groups, the first one's.
/// One that this build does not know may.
fn can_raise_level(node: &NodeStatus) -> bool {
    let of_first = node.groups.iter().find(|group| group.group == 1).map(|group| group.protocol.as_str());
    let protocol = of_first.or(node.fact("protocol")).and_then(|name| registry::find(name).ok());
    protocol.is_none_or(|protocol| protocol.capabilities.multi_key)
}

/// The feature level, and whether it can be raised as far as these nodes know.
fn level_line(nodes: &[&NodeStatus]) -> Option<String> {
    let of = |node: &&NodeStatus| node.fact("feature_level")?.parse::<u64>().ok();
    // A member that lags may not have executed the last raise.
    let level = nodes.iter().filter_map(of).max()?;
    let known = by_fact(nodes, "knows_feature_level");
    let least = nodes.iter().map(|node| node.fact("knows_feature_level").map_or(Ok(1), str::parse::<u64>));
    let least = least.collect::<Result<Vec<_>, _>>().ok()?.into_iter().min()?;
    Some(match known.keys().filter_map(|known| known.parse::<u64>().ok()).max() {
        Some(most) if most > least => {
            let each = known.iter().map(|(known, at)| format!("{known} at {}", at.join(",")));
            format!("feature level {level}; these nodes know: {}", each.collect::<Vec<_>>().join("; "))
        }
        Some(most) if most > level && nodes.iter().all(|node| can_raise_level(node)) => format!(
            "feature level {level}; these nodes know {most}: once all members do, `quorate config set feature-level \
             {most}`"
        ),
        _ => format!("feature level {level}"),
    })
}

/// What nodes say of themselves under a name, and which say it.
fn by_fact<'a>(nodes: &[&'a NodeStatus], name: &str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for node in nodes {
        if let Some(words) = node.fact(name) {
            found.entry(words).or_default().push(node.node.as_str());
        }
    }
    found
}

/// The columns of the table.
pub const TITLES: [&str; 9] =
    ["endpoint", "node", "role", "leader", "ballot", "committed", "applied", "lease", "lag of peers"];

/// A node's line in the table.
pub fn row(endpoint: &str, status: Result<&NodeStatus, &NoStatus>) -> [String; 9] {
    let without = |role: &str| [endpoint, "-", role, "-", "-", "-", "-", "-", ""].map(str::to_owned);
    let status = match status {
        Ok(status) => status,
        Err(NoStatus::Silent(_)) => return without("unreachable"),
        Err(NoStatus::Refused(_)) => return without("not told"),
    };
    // How far one is that was never heard nobody knows.
    let behind = |peer: &Peer| peer.heard_ms.map_or("-".to_owned(), |_| peer.lag.to_string());
    let lag = status.peers.iter().map(|peer| format!("{}:{}", peer.node, behind(peer)));
    [
        endpoint.to_owned(),
        status.name(),
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

#[cfg(test)]
mod tests;
