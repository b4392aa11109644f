//! How many nodes may be lost before writes stop, for protocols that send values in shards: RSPaxos pays for them with
//! availability (Crossword §2.3: f = ⌊p/2⌋, quorum m + ⌈p/2⌉), Crossword and CRaft do not.

use quorate_protocols::registry::named;
use quorate_sim::scenario::play;

/// Whether a group writes on and tells what was written before, when so many of its nodes are lost: the last ones, and
/// the leader with them or not.
fn goes_on(protocol: &str, settings: &str, nodes: usize, lost: usize, leader: bool) -> bool {
    let mut script =
        format!("nodes {nodes} {settings}\nfire r1 Election\nsettle\nput p2 color blue\nsettle\n");
    script += &"tick 50ms\nsettle\n".repeat(4);
    let others = lost - usize::from(leader);
    (nodes - others + 1..=nodes).for_each(|node| script += &format!("crash r{node}\n"));
    if leader {
        script += "crash r1\n";
    }
    script += "put p2 size 1\nrepeat 160 tick 50ms, settle\nget p2 color\nrepeat 60 tick 50ms, settle\n";
    let text = play(named(protocol), &script).expect("the script is right");
    let (written, read) = (text.contains("p2 #2 = Done"), text.contains("p2 #3 = Value(Some(b\"blue\"))"));
    assert!(text.contains("p2 #1 = Done"), "{protocol} {settings}:\n{text}");
    assert_eq!(written, read, "{protocol} {settings}, {lost} of {nodes} lost, leader {leader}:\n{text}");
    written
}

#[test]
fn rspaxos_stops_where_fewer_than_its_quorum_are_left_and_crossword_and_craft_while_no_majority_is() {
    let table = "8,5/1:5,2:5,3:5,4:3,5:1";
    let table = format!("crossword.shards={table}");
    // protocol, settings | nodes | may be lost
    let cases = [
        ("rspaxos", "", 3, 1),
        ("rspaxos", "", 5, 1),
        ("rspaxos", "", 7, 1),
        ("rspaxos", "", 9, 2),
        ("craft", "", 5, 2),
        ("craft", "coding=3", 5, 2),
        ("craft", "", 7, 3),
        ("crossword", "crossword.shards=1", 3, 1),
        ("crossword", "crossword.shards=1", 5, 2),
        ("crossword", "crossword.shards=2", 5, 2),
        ("crossword", "", 5, 2),
        ("crossword", &table, 5, 2),
        ("crossword", "crossword.shards=1", 7, 3),
    ];
    for (protocol, settings, nodes, may) in cases {
        for lost in 1..=(nodes - 1) / 2 {
            for leader in [false, true] {
                let goes_on = goes_on(protocol, settings, nodes, lost, leader);
                assert_eq!(goes_on, lost <= may, "{protocol} {settings}: {lost} of {nodes}, leader {leader}");
            }
        }
    }
}
