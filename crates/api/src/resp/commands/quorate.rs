//! QUORATE: what Redis has no command for. The node's state, and what operators do to the group.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::{
    Consistency, GroupId, GroupRequest, Manage, Members, NodeId, NodeSet, REJOINING, Range, Roster, Wire,
};
use quorate_node::config::check_address;
use serde_json::{Value, json};

use super::*;
use crate::status;

pub(super) const SPECS: &[Spec] = &[Spec {
    name: "quorate",
    arity: -2,
    flags: ADMIN,
    keys: NO_KEY,
    summary: "What Redis has no command for.",
    run: needs_subcommand,
    subcommands: &[
        command(
            "quorate|backup",
            -3,
            ADMIN,
            NO_KEY,
            "Freezes the node's state, and gives its pieces.",
            backup,
        ),
        command("quorate|member", -3, ADMIN, NO_KEY, "Shows or changes who is in the group.", member),
        command("quorate|roster", -3, ADMIN, NO_KEY, "Shows or says who serves reads of what.", roster),
        command("quorate|status", 2, ADMIN, NO_KEY, "Returns the node's state as JSON.", status),
        command("quorate|sync", 2, READ_FAST, NO_KEY, "Makes the next read miss nothing.", sync),
        command("quorate|transfer", -2, ADMIN, NO_KEY, "Lets another node lead.", transfer),
    ],
}];

const BACKUP: &str = "ERR write BEGIN, BEGIN LOCAL or NEXT";

/// `BEGIN` freezes this node's state once it shows every write that was acknowledged before; `BEGIN LOCAL` as it is.
/// Then each `NEXT` on the connection gives a piece of it, and nothing after the last.
fn backup(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    // It is the state of one group.
    if let Some(groups) = call.limits().key_scope.groups() {
        return Err(groups.refuse_all_keys(call.spec.name).into());
    }
    let words: Vec<&[u8]> = args.from(2).collect();
    match words[..] {
        [word] if is(word, "begin") => {
            if !call.node.has_state() {
                return Err(no_state(call.node).into());
            }
            // Another replica would answer for it.
            if call.node.status().role == REJOINING {
                return Err("ERR this node has lost its disk and does not have everything again: ask another one, or \
                            for BEGIN LOCAL"
                    .into());
            }
            if !call.node.is_member() {
                return Err("ERR this node is no member of the group, and does not have everything: ask a member, or \
                            for BEGIN LOCAL"
                    .into());
            }
            // A count has to do with all keys: where there is no common order, it is executed behind all writes.
            if call.limits().key_scope.refusal(call.spec.name, &Command::Count).is_none() {
                return Ok(Step::Ask(Command::Count, Shape::Backup));
            }
            // Where no command has to do with all keys, the node must know by itself that it has every write.
            if call.node.has_everything() {
                return begin(call);
            }
            Err("CLUSTERDOWN this node has no lease now, so it cannot tell whether it has every acknowledged write \
                 (with reads=eager-alr no node ever has one): ask another one, or for BEGIN LOCAL"
                .into())
        }
        [word, local] if is(word, "begin") && is(local, "local") => begin(call),
        [word] if is(word, "next") => {
            match call.shared.next_piece(call.state.connection)? {
                Some(piece) => call.reply.bulk(&piece),
                None => call.reply.null(),
            }
            Ok(Step::Answered)
        }
        _ => Err(BACKUP.into()),
    }
}

/// Freezes the state as it is, and says what it is of.
fn begin(call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let text = call.shared.begin_backup(call.state.connection, call.node)?;
    call.reply.bulk(text.as_bytes());
    Ok(Step::Answered)
}

/// Where reads may be stale: what was acknowledged before shows in what is read next on this connection (ZooKeeper's
/// `sync`).
fn sync(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    match call.node.consistency() {
        Consistency::Sequential => Ok(Step::Ask(Command::UserChanges, Shape::Synchronized)),
        Consistency::Linearizable => Err(
            "ERR reads are linearizable here and need no sync; for a connection that reads otherwise, choose CLIENT \
             READMODE linearizable"
                .into(),
        ),
    }
}

const CLAUSES: &str = "ERR write LIST, CANCEL, or what is to change: ADD ID=HOST:PORT …, LEARNER ID[=HOST:PORT] …, \
                       PROMOTE ID … and REMOVE ID …, in one request if at once";

/// `LIST`, `CANCEL`, or clauses that are one change together.
fn member(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if is(args.get(2), "list") {
        return if args.len() == 3 { list(call) } else { Err(call.wrong_arity()) };
    }
    let cancels = is(args.get(2), "cancel");
    if cancels && args.len() != 3 {
        return Err(call.wrong_arity());
    }
    let change = if cancels { Manage::CancelChange } else { change(args.from(2))? };
    if !call.node.can_regroup() {
        return Err(fixed(
            call,
            "ERR this protocol does not change its group while it runs; raft does",
            "ERR one of the groups (--groups) has a protocol that does not change its members while it runs",
        ));
    }
    // Who is in the group only its leader knows: this node may lag, or have left.
    if call.limits().key_scope.groups().is_none() {
        return Ok(Step::Manage(change.to_bytes(), call.limits().change_timeout));
    }
    Ok(Step::ChangeMembers(change))
}

/// Why nothing can be changed: what is said of a protocol alone, or of several groups.
fn fixed(call: &Call<'_, '_>, alone: &'static str, groups: &'static str) -> Fault {
    if call.limits().key_scope.groups().is_some() { groups.into() } else { alone.into() }
}

/// `[ID] [GROUP NUMBER]`; the group where there are several.
fn transfer(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let words: Vec<&[u8]> = args.from(2).collect();
    let (to, number) = match words[..] {
        [] => (None, None),
        [word, number] if is(word, "group") => (None, Some(number)),
        [id] => (Some(node(id)?), None),
        [id, word, number] if is(word, "group") => (Some(node(id)?), Some(number)),
        _ => return Err(call.wrong_arity()),
    };
    let manage = Manage::Transfer { to };
    let (group, request) = match (call.limits().key_scope.groups(), number) {
        (None, None) => (GroupId::FIRST, manage.to_bytes()),
        (None, Some(_)) => return Err("ERR the keys are not divided among groups here (--groups)".into()),
        (Some(groups), number) => {
            let number = number.and_then(integer).and_then(|number| u8::try_from(number).ok());
            let group = number.and_then(GroupId::new).filter(|group| group.index() < groups.count());
            let Some(group) = group else {
                let last = groups.count();
                return Err(format!(
                    "ERR say which group another is to lead: TRANSFER [ID] GROUP 1 to {last}"
                )
                .into());
            };
            (group, GroupRequest { group, asked: manage }.to_bytes())
        }
    };
    match call.node.can_transfer(group) {
        true => Ok(Step::Manage(request, call.limits().timeout)),
        false => Err("ERR this protocol does not let its leader be chosen".into()),
    }
}

const ROSTER: &str = "ERR write SHOW, AUTO ON, AUTO OFF, or SET with LEADER ID and any number of RANGE FROM TO \
                      ID,ID,…; an empty TO is no end; of two ranges that share keys one must lie within the other, and \
                      counts for its keys";

/// `SHOW`, `AUTO ON|OFF`, or `SET` with clauses that are one roster together.
fn roster(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if !call.node.has_roster() {
        return Err(fixed(
            call,
            "ERR in this protocol nobody chooses who serves reads; there is no roster",
            "ERR the rosters of several groups (--groups) cannot be changed yet",
        ));
    }
    let words: Vec<&[u8]> = args.from(2).collect();
    let manage = match words[..] {
        [word] if is(word, "show") => Manage::ShowRoster,
        [word, on] if is(word, "auto") && is(on, "on") => Manage::AutoRoster(true),
        [word, off] if is(word, "auto") && is(off, "off") => Manage::AutoRoster(false),
        [word, ref clauses @ ..] if is(word, "set") => Manage::Roster(clauses_of_roster(clauses)?),
        _ => return Err(ROSTER.into()),
    };
    let limits = call.limits();
    let timeout = if manage == Manage::ShowRoster { limits.timeout } else { limits.change_timeout };
    Ok(Step::Manage(manage.to_bytes(), timeout))
}

fn clauses_of_roster(mut words: &[&[u8]]) -> Result<Roster, Fault> {
    let (mut leader, mut ranges) = (None, Vec::new());
    while !words.is_empty() {
        words = match *words {
            [word, id, ref rest @ ..] if is(word, "leader") => {
                leader = Some(node(id)?);
                rest
            }
            [word, from, to, ids, ref rest @ ..] if is(word, "range") => {
                let responders =
                    ids.split(|byte| *byte == b',').map(node).collect::<Result<NodeSet, Fault>>()?;
                let to = Some(Bytes::copy_from_slice(to)).filter(|to| !to.is_empty());
                ranges.push(Range { from: Bytes::copy_from_slice(from), to, responders });
                rest
            }
            _ => return Err(ROSTER.into()),
        };
    }
    Roster::layered(leader, ranges).map_err(|error| format!("ERR {error}").into())
}

#[derive(Clone, Copy)]
enum Clause {
    Add,
    Learner,
    Promote,
    Remove,
}

fn change<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Manage, Fault> {
    let (mut voters, mut learners, mut remove) = (BTreeMap::new(), BTreeMap::new(), NodeSet::EMPTY);
    let mut named = NodeSet::EMPTY;
    let mut clause = None;
    // Whether a clause has no words yet.
    let mut open = true;
    for word in words {
        let begins = [
            ("add", Clause::Add),
            ("learner", Clause::Learner),
            ("promote", Clause::Promote),
            ("remove", Clause::Remove),
        ];
        if let Some((_, begun)) = begins.into_iter().find(|(name, _)| is(word, name)) {
            if clause.is_some() && open {
                return Err(CLAUSES.into());
            }
            (clause, open) = (Some(begun), true);
            continue;
        }
        let clause = clause.ok_or(CLAUSES)?;
        open = false;
        let (id, address) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (&word[..at], Some(address(&word[at + 1..])?)),
            None => (word, None),
        };
        let node = node(id)?;
        if !named.insert(node) {
            return Err(format!("ERR node {node} is named twice").into());
        }
        match (clause, address) {
            (Clause::Add, Some(address)) => _ = voters.insert(node, address),
            (Clause::Learner, address) => _ = learners.insert(node, address.unwrap_or_default()),
            (Clause::Promote, None) => _ = voters.insert(node, String::new()),
            (Clause::Remove, None) => _ = remove.insert(node),
            (Clause::Add, None) => {
                return Err(format!("ERR where is node {node}? Write {node}=HOST:PORT").into());
            }
            (Clause::Promote | Clause::Remove, Some(_)) => {
                return Err(format!("ERR the address of node {node} is known: write {node} alone").into());
            }
        }
    }
    if open { Err(CLAUSES.into()) } else { Ok(Manage::Change { voters, learners, remove }) }
}

/// Why a node gives no state.
pub(in crate::resp) fn no_state(node: &dyn NodeView) -> String {
    match node.waits() {
        Some(why) => format!("ERR this node has no state to give: it {why}"),
        None => "ERR this process runs a proxy alone and has no state: ask a node".to_owned(),
    }
}

fn node(word: &[u8]) -> Result<NodeId, Fault> {
    let node = integer(word).and_then(|id| u64::try_from(id).ok()).and_then(NodeId::new);
    node.ok_or_else(|| "ERR node ids are whole numbers from 1 to 63".into())
}

fn address(word: &[u8]) -> Result<String, Fault> {
    let text = std::str::from_utf8(word).ok().filter(|text| check_address(text).is_ok());
    let text = text.ok_or("ERR an address is HOST:PORT, such as 10.0.0.4:7201 or db4.example.org:7201")?;
    Ok(text.to_owned())
}

/// One JSON object: what `quorate member list` shows.
fn list(call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (group, facts) = (call.node.group(), call.node.facts());
    let fact = |wanted| facts.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
    let members = group
        .nodes
        .iter()
        .map(|(node, member)| json!({ "id": node.get(), "address": member.address, "voter": member.voter }));
    let mut text = json!({
        "version": group.version,
        "members": members.collect::<Vec<_>>(),
        "leader": call.node.status().leader.map(NodeId::get),
        "node": fact("node_id").and_then(|id| id.parse::<u8>().ok()),
        "membership": fact("membership"),
    });
    if let Some(groups) = groups(call) {
        text["groups"] = groups.into();
    }
    call.reply.bulk(text.to_string().as_bytes());
    Ok(Step::Answered)
}

/// Where the keys are divided: the members of each group, which differ while one has changed and another has not yet.
fn groups(call: &Call<'_, '_>) -> Option<Vec<Value>> {
    call.limits().key_scope.groups()?;
    let group = |(number, members): (u8, Members)| {
        let ids = |nodes: NodeSet| nodes.iter().map(NodeId::get).collect::<Vec<_>>();
        let learners = members.all().difference(members.voters());
        json!({
            "group": number,
            "version": members.version,
            "voters": ids(members.voters()),
            "learners": ids(learners),
        })
    };
    Some((1..).zip(call.node.members_of_groups()).map(group).collect())
}

/// One JSON object: what `quorate status` shows.
fn status(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let statuses = call.node.group_statuses();
    let groups = call.limits().key_scope.groups().map(|groups| (groups, &statuses[..]));
    let text = status::describe(&call.node.status(), call.node.facts(), &call.node.contacts(), groups);
    call.reply.bulk(text.to_string().as_bytes());
    Ok(Step::Answered)
}
