//! What `quorate status` shows of answers that nodes might give.

use serde_json::json;

use super::*;
use crate::service::Reads;

#[test]
fn the_feature_level_is_shown_with_what_may_be_done_about_it() {
    let node = |protocols: &str, id: u64, level: u64, knows: Option<u64>| -> NodeStatus {
        let mut facts = json!({ "node_id": id.to_string(), "protocol": protocols });
        let groups = (1..).zip(protocols.split(',')).filter(|_| protocols.contains(','));
        let group = |(group, protocol): (u64, &str)| {
            json!({
                "group": group, "from": "", "to": null, "protocol": protocol, "role": "follower",
                "leader": 2, "ballot": "", "committed": 1, "applied": 1, "lease": false, "reads": "",
            })
        };
        let groups: Vec<_> = groups.map(group).collect();
        if level > 0 {
            facts["feature_level"] = level.to_string().into();
        }
        if let Some(knows) = knows {
            facts["knows_feature_level"] = knows.to_string().into();
        }
        let status = json!({
            "node": id.to_string(), "role": "follower", "leader": 2, "ballot": "", "committed": 1,
            "applied": 1, "lease": false, "facts": facts, "groups": groups,
        });
        serde_json::from_value(status).unwrap()
    };
    let table = [
        ("raft", (2, Some(2)), (2, Some(2))),
        ("raft", (1, Some(2)), (2, Some(2))),
        ("raft", (1, Some(2)), (1, Some(2))),
        ("raft", (1, Some(2)), (1, Some(3))),
        ("raft", (1, Some(2)), (0, None)),
        ("raft", (0, None), (0, None)),
        ("of-a-later-build", (1, Some(2)), (1, Some(2))),
        ("epaxos", (1, Some(2)), (1, Some(2))),
        ("hermes", (1, Some(2)), (1, Some(2))),
        ("hermes", (0, None), (0, None)),
        ("raft,hermes", (1, Some(2)), (1, Some(2))),
        ("hermes,raft", (1, Some(2)), (1, Some(2))),
    ];
    let mut text = String::new();
    for (protocols, first, second) in table {
        let nodes = [node(protocols, 1, first.0, first.1), node(protocols, 2, second.0, second.1)];
        let line = level_line(&nodes.iter().collect::<Vec<_>>());
        let shown = |(level, knows): (u64, Option<u64>)| format!("{level}/{}", knows.unwrap_or(0));
        let (first, second) = (shown(first), shown(second));
        text.push_str(&format!("{protocols} {first} {second}: {}\n", line.as_deref().unwrap_or("-")));
    }
    let raise = "these nodes know 2: once all members do, `quorate config set feature-level 2`";
    let expected = format!(
        "\
raft 2/2 2/2: feature level 2
raft 1/2 2/2: feature level 2
raft 1/2 1/2: feature level 1; {raise}
raft 1/2 1/3: feature level 1; these nodes know: 2 at 1; 3 at 2
raft 1/2 0/0: feature level 1; these nodes know: 2 at 1
raft 0/0 0/0: -
of-a-later-build 1/2 1/2: feature level 1; {raise}
epaxos 1/2 1/2: feature level 1; {raise}
hermes 1/2 1/2: feature level 1
hermes 0/0 0/0: -
raft,hermes 1/2 1/2: feature level 1; {raise}
hermes,raft 1/2 1/2: feature level 1
"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_member_that_does_not_answer_others_is_named_once() {
    let node = |node: u64, contacts: serde_json::Value| -> NodeStatus {
        let status = json!({
            "node": node.to_string(), "role": "follower", "leader": 2, "ballot": "", "committed": 1,
            "applied": 1, "lease": false, "contacts": contacts,
        });
        serde_json::from_value(status).unwrap()
    };
    let contact = |node: u64, ms: Option<u64>| {
        let unreachable = ms.map(|ms| json!({ "ms": ms, "why": format!("refused after {ms} ms") }));
        json!({ "node": node, "site": "", "round_trip_ms": null, "unreachable": unreachable })
    };
    let nodes = [
        node(2, json!([contact(1, Some(12_345)), contact(3, None)])),
        node(3, json!([contact(1, Some(12_999)), contact(2, Some(1000))])),
        node(4, json!([])),
    ];
    let lines = unreachable(&nodes.iter().collect::<Vec<_>>());
    let expected = [
        "warning: node 1 has been unreachable for 12 s from 2,3: refused after 12999 ms",
        "warning: node 2 has been unreachable for 1 s from 3: refused after 1000 ms",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_wall_clock_that_is_off_is_told_once() {
    let node = |node: u64, said: Option<&str>| -> NodeStatus {
        let facts = said.map_or_else(|| json!({}), |said| json!({ "wall_clock": said }));
        let status = json!({
            "node": node.to_string(), "role": "follower", "leader": 2, "ballot": "", "committed": 1,
            "applied": 1, "lease": false, "facts": facts,
        });
        serde_json::from_value(status).unwrap()
    };
    let off = "node 1's is 3600 s ahead, by the clocks of a majority";
    let nodes = [node(1, None), node(2, Some(off)), node(3, Some(off))];
    let line = clocks(&nodes.iter().collect::<Vec<_>>());
    assert_eq!(line, Some(format!("warning: a wall clock is off, node 2 says: {off}")));
    assert_eq!(clocks(&[&nodes[0]]), None);
}

#[test]
fn nodes_that_do_not_tell_this_user_their_status_are_told_from_silent_ones() {
    let none = [
        ("a:1".to_owned(), NoStatus::Refused("a:1 answered: NOAUTH Authentication required.".to_owned())),
        ("b:1".to_owned(), NoStatus::Silent("b:1: refused".to_owned())),
    ];
    let answers: Vec<_> = none.iter().map(|(endpoint, none)| (endpoint, Err(none.clone()))).collect();
    let reads = Reads::Unchecked("NOAUTH".to_owned());
    let lines = verdict(
        &answers,
        &[],
        &Service { reads, refused: Vec::new(), unwritten: Vec::new(), unled: Vec::new() },
    );
    let expected = [
        "whether the cluster serves reads and writes is not known: 1 of 2 nodes answer, and 1 of them do not tell \
         this user their status",
        "this user may not check whether it serves: NOAUTH",
        "warning: no status of a:1: a:1 answered: NOAUTH Authentication required.",
        "warning: no answer of b:1: b:1: refused",
    ];
    assert_eq!(lines, expected);
    let roles = none.map(|(endpoint, none)| row(&endpoint, Err(&none))[2].clone());
    assert_eq!(roles, ["not told", "unreachable"]);
}

#[test]
fn nodes_of_different_versions_are_named_before_what_is_wrong() {
    let node = |node: u64, version: &str| -> NodeStatus {
        let facts = json!({ "node_id": node.to_string(), "version": version, "warning_disk": "full" });
        let status = json!({
            "node": node.to_string(), "role": "follower", "leader": 2, "ballot": "", "committed": 1,
            "applied": 1, "lease": false, "facts": facts,
        });
        serde_json::from_value(status).unwrap()
    };
    let nodes = [node(1, "0.1.0"), node(2, "0.2.0"), node(3, "0.1.0")];
    let endpoints = ["a:1", "b:1", "c:1"].map(str::to_owned);
    let lines = |nodes: [&NodeStatus; 2]| {
        let answers =
            endpoints.iter().map(|endpoint| (endpoint, Err(NoStatus::Silent("it hangs".to_owned()))));
        let service =
            Service { reads: Reads::Served, refused: Vec::new(), unwritten: Vec::new(), unled: Vec::new() };
        verdict(&answers.collect::<Vec<_>>(), &nodes, &service)
    };
    let mixed = lines([&nodes[0], &nodes[1]]);
    assert_eq!(mixed[1], "nodes run different versions: 0.1.0 at 1; 0.2.0 at 2");
    assert!(mixed[2].starts_with("warning:"), "{mixed:?}");
    assert!(lines([&nodes[0], &nodes[2]])[1].starts_with("warning:"));
}

#[test]
fn groups_with_different_members_are_shown_once_for_all_who_say_the_same() {
    let node = |node: u64, differ: Option<&str>| -> NodeStatus {
        let mut facts = json!({ "node_id": node.to_string(), "version": "0.2.0" });
        if let Some(differ) = differ {
            facts["members_differ"] = differ.into();
        }
        let status = json!({
            "node": node.to_string(), "role": "follower", "leader": 2, "ballot": "", "committed": 1,
            "applied": 1, "lease": false, "facts": facts,
        });
        serde_json::from_value(status).unwrap()
    };
    let differ = Some("group 1 has 1,2,4; group 2 has 1,2,3");
    let nodes = [node(1, differ), node(2, None), node(4, differ)];
    let service =
        Service { reads: Reads::Served, refused: Vec::new(), unwritten: Vec::new(), unled: Vec::new() };
    let lines = verdict(&[], &nodes.each_ref(), &service);
    let said =
        "warning: groups have different members, says node 1,4: group 1 has 1,2,4; group 2 has 1,2,3: ";
    assert!(lines.len() == 2 && lines[1].starts_with(said), "{lines:?}");
}
