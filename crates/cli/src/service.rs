//! What a cluster does for its clients, as `quorate status` says in its first line: whether linearizable reads are
//! answered, and whether writes are refused, or wait for more members than are there.

use std::collections::BTreeMap;
use std::thread;

use quorate_client::Error;
use quorate_node::monitor::WARNING_DISK;
use quorate_protocols::registry;

use crate::client::{TIMEOUT, Target};
use crate::failure::Failure;
use crate::status::{NodeStatus, is_refusal};

/// What clients of a cluster get, as far as its nodes tell.
pub struct Service {
    pub reads: Reads,
    /// Why writes that add data are refused though reads are answered; of several groups, each reason names its own.
    pub refused: Vec<String>,
    /// Why no write is answered though reads are; likewise.
    pub unwritten: Vec<String>,
    /// What nobody leads that somebody must lead, as far as the nodes tell.
    pub unled: Vec<String>,
}

/// Whether linearizable reads are answered.
#[derive(Debug)]
pub enum Reads {
    Served,
    /// Nowhere, and why not.
    NotServed(String),
    /// This user may not read, and so cannot find out.
    Unchecked(String),
}

impl Service {
    /// Asks these endpoints for these keys; nothing is written.
    pub fn find(target: &Target, endpoints: &[&String], keys: &[&str], nodes: &[&NodeStatus]) -> Service {
        let reads = reads(target, endpoints, keys);
        Service { reads, refused: refused_writes(nodes), unwritten: unwritten(nodes), unled: unled(nodes) }
    }

    /// Whether it serves reads, if that is known.
    pub fn serves(&self) -> Option<bool> {
        match self.reads {
            Reads::Served => Some(true),
            Reads::NotServed(_) => Some(false),
            Reads::Unchecked(_) => None,
        }
    }

    /// Why that is not known.
    pub fn unchecked(&self) -> Option<&str> {
        match &self.reads {
            Reads::Unchecked(why) => Some(why),
            Reads::Served | Reads::NotServed(_) => None,
        }
    }

    /// The beginning of the first line.
    pub fn headline(&self) -> &'static str {
        match &self.reads {
            Reads::NotServed(_) => "the cluster does not serve reads and writes",
            Reads::Served if !self.unwritten.is_empty() => "the cluster serves reads and no writes",
            Reads::Served if self.refused.is_empty() => "the cluster serves reads and writes",
            Reads::Served => "the cluster serves reads and refuses writes that add data",
            Reads::Unchecked(_) if !self.unwritten.is_empty() => "the cluster serves no writes",
            Reads::Unchecked(_) if !self.refused.is_empty() => "the cluster refuses writes that add data",
            Reads::Unchecked(_) => "whether the cluster serves reads and writes is not known",
        }
    }

    /// How the command ends. Whoever may not read is told of what the nodes say themselves: that they refuse writes,
    /// are too few for them, or that nobody leads.
    pub fn result(&self) -> Result<(), Failure> {
        let failed = |why: &str| Err(Failure::failed(format!("{}: {why}", self.headline())));
        match &self.reads {
            Reads::NotServed(why) => failed(why),
            _ if !self.unwritten.is_empty() => failed(&self.unwritten.join("; ")),
            _ if !self.refused.is_empty() => failed(&self.refused.join("; ")),
            Reads::Unchecked(_) if !self.unled.is_empty() => failed(&self.unled.join("; ")),
            Reads::Served | Reads::Unchecked(_) => Ok(()),
        }
    }
}

/// Whether linearizable reads of these keys are answered at one of these endpoints at least: no majority, no answer.
/// Asks all at once, as one that is cut off says so only after a while. The reason is that of one of them.
fn reads(target: &Target, endpoints: &[&String], keys: &[&str]) -> Reads {
    let read = |endpoint: &String| {
        let mut client = target.connect(endpoint, TIMEOUT)?;
        // Whatever the node's own default is.
        client.read(&["CLIENT", "READMODE", "linearizable"])?;
        keys.iter().try_for_each(|key| client.get(key).map(drop))
    };
    let answers: Vec<Result<(), Error>> = thread::scope(|scope| {
        let asked: Vec<_> = endpoints.iter().map(|endpoint| scope.spawn(move || read(endpoint))).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    });
    if answers.iter().any(Result::is_ok) {
        return Reads::Served;
    }
    let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    match errors.iter().find(|error| is_refusal(error)) {
        Some(refusal) => Reads::Unchecked(refusal.to_string()),
        None => {
            let first = errors.first();
            Reads::NotServed(first.map_or_else(|| "no node answered".to_owned(), ToString::to_string))
        }
    }
}

/// What has no leader that these nodes know of, where the protocol needs one.
fn unled(nodes: &[&NodeStatus]) -> Vec<String> {
    let groups = nodes.iter().flat_map(|node| &node.groups);
    let mut led: BTreeMap<u64, (&str, bool)> = BTreeMap::new();
    for group in groups {
        let (_, is_led) = led.entry(group.group).or_insert((&group.protocol, false));
        *is_led |= group.leader.is_some();
    }
    if led.is_empty() && !nodes.is_empty() {
        let protocol = nodes.iter().find_map(|node| node.fact("protocol")).unwrap_or_default();
        led.insert(0, (protocol, nodes.iter().any(|node| node.leader.is_some())));
    }
    let unled = led.into_iter().filter(|(_, (protocol, is_led))| !is_led && !LEADERLESS.contains(protocol));
    let named = |group: u64| match group {
        0 => "nobody leads, as far as these nodes know".to_owned(),
        group => format!("nobody leads group {group}, as far as these nodes know"),
    };
    unled.map(|(group, _)| named(group)).collect()
}

/// Nobody leads these.
const LEADERLESS: [&str; 2] = ["epaxos", "unreplicated"];

/// Of these it is not the leader of which a status tells that refuses writes, but each node what it is asked, or the
/// head of the chain.
const REFUSE_ELSEWHERE: [&str; 5] = ["chain", "craq", "epaxos", "hermes", "unreplicated"];

/// The protocol of each group, and the nodes that lead it as they say themselves; group 0 is all of a cluster that has
/// no groups.
type Leaders<'a> = BTreeMap<u64, (&'a str, Vec<&'a NodeStatus>)>;

fn leaders<'a>(nodes: &[&'a NodeStatus]) -> Leaders<'a> {
    let mut groups = Leaders::new();
    for node in nodes {
        let mut add = |group: u64, protocol, leader: Option<u64>| {
            let leads = leader.is_some_and(|leader| leader.to_string() == node.node);
            let (_, leaders) = groups.entry(group).or_insert((protocol, Vec::new()));
            leaders.extend(leads.then_some(*node));
        };
        match node.groups.is_empty() {
            true => add(0, node.fact("protocol").unwrap_or_default(), node.leader),
            false => node.groups.iter().for_each(|group| add(group.group, &group.protocol, group.leader)),
        }
    }
    groups
}

/// A reason, with the group that it is about.
fn of_group(group: u64, why: String) -> String {
    if group == 0 { why } else { format!("group {group}: {why}") }
}

/// Why no write is answered: in protocols where that takes more than a majority, whoever leads reaches too few.
fn unwritten(nodes: &[&NodeStatus]) -> Vec<String> {
    let short = |(group, (protocol, leaders)): (u64, (&str, Vec<&NodeStatus>))| {
        let quorum = registry::find(protocol).ok()?.capabilities.quorum;
        let short = |leader: &&NodeStatus| {
            let (reached, all) = leader.reach();
            let needed = quorum(all);
            (needed > all / 2 + 1 && reached < needed).then(|| {
                let leader = &leader.node;
                let reach = format!("node {leader}, which leads, reaches {reached} of {all} members");
                format!("{reach}, and {protocol} writes to {needed}")
            })
        };
        let reasons: Option<Vec<_>> = leaders.iter().map(short).collect();
        Some(of_group(group, reasons?.into_iter().next()?))
    };
    leaders(nodes).into_iter().filter_map(short).collect()
}

/// Why writes that add data are refused, as far as these nodes tell.
fn refused_writes(nodes: &[&NodeStatus]) -> Vec<String> {
    // Proxies and nodes that are not in the group yet have nothing to do with it.
    let nodes: Vec<_> = nodes.iter().copied().filter(|node| node.takes_part()).collect();
    let is_full = |node: &&NodeStatus| node.fact(WARNING_DISK).is_some();
    let disk = |(group, (protocol, leaders)): (u64, (&str, Vec<&NodeStatus>))| {
        let why = match protocol {
            protocol if REFUSE_ELSEWHERE.contains(&protocol) => {
                let all = "the disks of all nodes that answer are nearly full";
                nodes.iter().all(is_full).then(|| all.to_owned())
            }
            _ => leaders
                .iter()
                .copied()
                .find(is_full)
                .map(|leader| format!("the disk of node {}, which leads, is nearly full", leader.node)),
        }?;
        Some(of_group(group, why))
    };
    let mut reasons: Vec<_> = leaders(&nodes).into_iter().filter_map(disk).collect();
    // The others may not have executed the command that has set the limit, or what has filled the data.
    let newest = nodes.iter().max_by_key(|node| node.applied);
    reasons.extend(newest.and_then(|node| {
        let (bytes, limit) = (node.count("store_bytes")?, node.count("store_limit_bytes")?);
        (limit > 0 && bytes >= limit).then(|| format!("the data take {bytes} bytes, and max-data is {limit}"))
    }));
    reasons
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What a node says of itself whose disk is nearly full, or not.
    fn node(node: u64, leader: Option<u64>, protocol: &str, full: bool, groups: Value) -> NodeStatus {
        let mut facts = json!({ "node_id": node.to_string(), "protocol": protocol });
        if full {
            facts["warning_disk"] = "the disk is nearly full".into();
        }
        let status = json!({
            "node": node.to_string(), "role": "follower", "leader": leader, "ballot": "", "committed": 1,
            "applied": node, "lease": false, "facts": facts, "groups": groups,
            "samples": { "store_bytes": 70, "store_limit_bytes": 0 },
        });
        serde_json::from_value(status).unwrap()
    }

    fn reasons(nodes: &[NodeStatus]) -> Vec<String> {
        refused_writes(&nodes.iter().collect::<Vec<_>>())
    }

    #[test]
    fn writes_are_refused_where_a_leader_has_a_disk_that_is_nearly_full() {
        let three = |protocol: &str, leader, full: [bool; 3]| {
            let each = (1..).zip(full).map(|(id, full)| node(id, leader, protocol, full, json!([])));
            reasons(&each.collect::<Vec<_>>())
        };
        assert_eq!(three("raft", Some(2), [true, false, true]), [""; 0], "others may have full disks");
        let refused = ["the disk of node 2, which leads, is nearly full"];
        assert_eq!(three("raft", Some(2), [false, true, false]), refused);
        assert_eq!(three("raft", None, [true, true, true]), [""; 0], "nobody leads");
        for protocol in REFUSE_ELSEWHERE {
            assert_eq!(three(protocol, Some(1), [true, true, false]), [""; 0]);
            let refused = ["the disks of all nodes that answer are nearly full"];
            assert_eq!(three(protocol, Some(1), [true, true, true]), refused);
        }
    }

    #[test]
    fn the_group_that_refuses_writes_is_named() {
        let group = |group: u64, leader: u64, protocol: &str| {
            json!({
                "group": group, "from": "", "to": null, "protocol": protocol, "role": "follower",
                "leader": leader, "ballot": "", "committed": 1, "applied": 1, "lease": false, "reads": "",
            })
        };
        let groups = json!([group(1, 1, "raft"), group(2, 2, "raft"), group(3, 2, "epaxos")]);
        let nodes = [1, 2].map(|id| node(id, Some(1), "raft,raft,epaxos", id == 2, groups.clone()));
        assert_eq!(reasons(&nodes), ["group 2: the disk of node 2, which leads, is nearly full"]);
    }

    #[test]
    fn writes_are_refused_where_the_data_have_reached_their_limit() {
        let with = |limit: u64| {
            let mut node = node(1, Some(1), "raft", false, json!([]));
            node.samples.insert("store_limit_bytes".to_owned(), limit.into());
            reasons(&[node])
        };
        assert_eq!([with(0), with(71)], [[""; 0], [""; 0]]);
        assert_eq!(with(70), ["the data take 70 bytes, and max-data is 70"]);
    }

    #[test]
    fn the_first_line_and_the_exit_code_tell_refused_writes_from_no_service_and_from_what_is_not_known() {
        let of = |reads: Reads, refused: &[&str], unled: &[&str]| {
            let [refused, unled] =
                [refused, unled].map(|why| why.iter().map(|why| (*why).to_owned()).collect());
            let service = Service { reads, refused, unwritten: Vec::new(), unled };
            (service.headline(), service.result().map_err(|failure| (failure.code, failure.message)))
        };
        let served = "the cluster serves reads and writes";
        assert_eq!(of(Reads::Served, &[], &["nobody leads"]), (served, Ok(())), "it can be seen to serve");
        let refuses = "the cluster serves reads and refuses writes that add data";
        let why = Err((1, format!("{refuses}: full; group 2: full")));
        assert_eq!(of(Reads::Served, &["full", "group 2: full"], &[]), (refuses, why));
        let nothing = "the cluster does not serve reads and writes";
        let why = Err((1, format!("{nothing}: dead")));
        assert_eq!(of(Reads::NotServed("dead".to_owned()), &["full"], &[]), (nothing, why));
        let unchecked = || Reads::Unchecked("NOPERM".to_owned());
        let unknown = "whether the cluster serves reads and writes is not known";
        assert_eq!(of(unchecked(), &[], &[]), (unknown, Ok(())));
        let why = Err((1, format!("{unknown}: nobody leads")));
        assert_eq!(of(unchecked(), &[], &["nobody leads"]), (unknown, why));
        let refuses = "the cluster refuses writes that add data";
        assert_eq!(of(unchecked(), &["full"], &[]), (refuses, Err((1, format!("{refuses}: full")))));
    }

    #[test]
    fn no_write_is_served_where_who_leads_reaches_too_few_for_one() {
        let five = |protocol: &str, reached: usize, groups: Value| {
            let mut leader = serde_json::to_value(node(2, Some(2), protocol, false, groups)).unwrap();
            let contact = |(id, is_up): (u64, bool)| {
                let silent = (!is_up).then(|| json!({ "ms": 9000, "why": "refused" }));
                json!({ "node": id, "site": "", "round_trip_ms": null, "unreachable": silent })
            };
            let others = [1, 3, 4, 5].into_iter().zip((1..).map(|nth| nth < reached));
            leader["contacts"] = others.map(contact).collect();
            let leader: NodeStatus = serde_json::from_value(leader).unwrap();
            unwritten(&[&leader, &node(4, Some(2), protocol, false, json!([]))])
        };
        assert_eq!(five("rspaxos", 4, json!([])), [""; 0]);
        let short = "node 2, which leads, reaches 3 of 5 members, and rspaxos writes to 4";
        assert_eq!(five("rspaxos", 3, json!([])), [short]);
        assert_eq!(five("raft", 2, json!([])), [""; 0], "neither are reads served then");
        let group = json!({
            "group": 2, "from": "", "to": null, "protocol": "rspaxos", "role": "leader", "leader": 2, "ballot": "",
            "committed": 1, "applied": 1, "lease": true, "reads": "",
        });
        assert_eq!(five("raft, rspaxos", 3, json!([group])), [format!("group 2: {short}")]);

        let unwritten = vec!["too few".to_owned()];
        let service =
            |reads| Service { reads, refused: Vec::new(), unwritten: unwritten.clone(), unled: Vec::new() };
        let ends = |reads| service(reads).result().map_err(|failure| (failure.code, failure.message));
        assert_eq!(
            ends(Reads::Served),
            Err((1, "the cluster serves reads and no writes: too few".to_owned()))
        );
        let unchecked = Reads::Unchecked("NOPERM".to_owned());
        assert_eq!(ends(unchecked), Err((1, "the cluster serves no writes: too few".to_owned())));
    }

    #[test]
    fn where_somebody_must_lead_and_nobody_does_the_nodes_tell() {
        let two = |protocol: &str, leaders: [Option<u64>; 2]| {
            let nodes: Vec<_> =
                (1..).zip(leaders).map(|(id, leader)| node(id, leader, protocol, false, json!([]))).collect();
            unled(&nodes.iter().collect::<Vec<_>>())
        };
        assert_eq!(two("raft", [None, Some(2)]), [""; 0]);
        assert_eq!(two("raft", [None, None]), ["nobody leads, as far as these nodes know"]);
        assert_eq!(two("epaxos", [None, None]), [""; 0]);
        assert_eq!(unled(&[]), [""; 0]);
    }
}
