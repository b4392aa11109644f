//! `quorate member` and `quorate transfer`: who is in the group, and who leads it.

use std::fmt;
use std::io::{Write, stderr, stdout};
use std::time::{Duration, Instant};

use quorate_client::Error;
use serde::Deserialize;

use crate::args::{Member, MemberAdd, MemberCancel, MemberIds, MemberList, Transfer};
use crate::client::{CHANGE_TIMEOUT, TIMEOUT, connect_for};
use crate::failure::Failure;
use crate::protocols;
use crate::status::{NodeStatus, STOPPED};

/// Whoever is asked to lead and does not within this time has not been able to, or has lost against another.
const TAKE_OVER: Duration = Duration::from_secs(3);
/// How a node says every few seconds that a change is not in force yet, and how far it is.
const UNDER_WAY: &str = "TRYAGAIN ";
/// Between two looks at who leads.
const POLL: Duration = Duration::from_millis(20);

pub fn member(command: Member) -> Result<(), Failure> {
    let (words, endpoints) = match command {
        Member::List(args) => return list(args),
        Member::Add(MemberAdd { nodes, learner, remove, endpoints }) => {
            let mut words = vec![if learner { "LEARNER" } else { "ADD" }.to_owned()];
            words.extend(nodes);
            if !remove.is_empty() {
                words.push("REMOVE".to_owned());
                words.extend(remove.iter().map(u8::to_string));
            }
            (words, endpoints)
        }
        Member::Remove(MemberIds { nodes, endpoints }) => (clause("REMOVE", &nodes), endpoints),
        Member::Promote(MemberIds { nodes, endpoints }) => (clause("PROMOTE", &nodes), endpoints),
        Member::Cancel(MemberCancel { endpoints }) => (vec!["CANCEL".to_owned()], endpoints),
    };
    let mut client = connect_for(endpoints, CHANGE_TIMEOUT)?;
    loop {
        match client.change_members(&words) {
            Ok(()) => return Ok(writeln!(stdout(), "OK")?),
            // It gets on: shown, and waited for.
            Err(Error::Refused { message, .. }) if message.starts_with(UNDER_WAY) => {
                let how_far =
                    message.trim_start_matches(UNDER_WAY).trim_end_matches(": ask again to go on waiting");
                writeln!(stderr(), "{how_far}")?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn clause(name: &str, nodes: &[u8]) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(nodes.iter().map(u8::to_string)).collect()
}

pub fn transfer(args: Transfer) -> Result<(), Failure> {
    let mut client = connect_for(args.endpoints, TIMEOUT)?;
    client.transfer(args.to, args.group)?;
    // The leader has let go. That the other leads is another matter: it may have just been restarted, for instance.
    let start = Instant::now();
    while let Some(to) = args.to {
        let leader = match args.group {
            None => listed(&client.members()?)?.leader,
            Some(group) => leader_of_group(&client.status()?, group)?,
        };
        if leader == Some(to) {
            break;
        }
        if start.elapsed() > TAKE_OVER {
            let who = leader.map_or("nobody leads".to_owned(), |node| format!("node {node} leads"));
            return Err(Failure::failed(format!("node {to} was asked to take over and has not: {who}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(writeln!(stdout(), "OK")?)
}

/// Who leads one of several groups, by what `QUORATE STATUS` says.
fn leader_of_group(status: &str, group: u8) -> Result<Option<u8>, Failure> {
    let status: NodeStatus = serde_json::from_str(status).map_err(|error| {
        Failure::failed(format!("the node answered something else than a status: {error}"))
    })?;
    let leader = status.groups.iter().find(|one| one.group == u64::from(group)).and_then(|one| one.leader);
    Ok(leader.and_then(|leader| u8::try_from(leader).ok()))
}

/// What `QUORATE MEMBER LIST` says.
#[derive(Debug, Deserialize)]
struct Listed {
    members: Vec<Line>,
    leader: Option<u8>,
    node: Option<u8>,
    /// What the asked node is to the group, in a word.
    membership: Option<String>,
    /// Where the keys are divided among groups (`--groups`).
    groups: Option<Vec<GroupLine>>,
}

#[derive(Debug, Deserialize)]
struct GroupLine {
    group: u8,
    voters: Vec<u8>,
    learners: Vec<u8>,
}

impl fmt::Display for GroupLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group {}: voters {}", self.group, ids(&self.voters))?;
        if !self.learners.is_empty() {
            write!(f, "; learners {}", ids(&self.learners))?;
        }
        Ok(())
    }
}

fn ids(nodes: &[u8]) -> String {
    nodes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Deserialize)]
struct Line {
    id: u8,
    address: String,
    voter: bool,
}

fn listed(text: &str) -> Result<Listed, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::failed(format!("the node answered something else than a list: {error}")))
}

fn list(args: MemberList) -> Result<(), Failure> {
    let text = connect_for(args.endpoints, TIMEOUT)?.members()?;
    if args.json {
        return Ok(writeln!(stdout(), "{text}")?);
    }
    let listed = listed(&text)?;
    let mut rows = vec![["node", "address", "counts", "leads", ""].map(str::to_owned)];
    rows.extend(listed.members.iter().map(|Line { id, address, voter }| {
        [
            id.to_string(),
            address.clone(),
            if *voter { "voter" } else { "learner" }.to_owned(),
            if listed.leader == Some(*id) { "leader" } else { "-" }.to_owned(),
            if listed.node == Some(*id) { "(asked)" } else { "" }.to_owned(),
        ]
    }));
    protocols::print(&rows)?;
    let groups = listed.groups.unwrap_or_default();
    if groups
        .windows(2)
        .any(|pair| (&pair[0].voters, &pair[0].learners) != (&pair[1].voters, &pair[1].learners))
    {
        writeln!(stdout(), "Groups have different members: {STOPPED}.")?;
        groups.iter().try_for_each(|group| writeln!(stdout(), "{group}"))?;
    }
    if let (Some(node), Some("left")) = (listed.node, listed.membership.as_deref()) {
        writeln!(
            stdout(),
            "Node {node}, which was asked, has left the group: what it knows of the members may be old. Ask one of \
             them (--endpoints)."
        )?;
    }
    Ok(())
}
