//! *The LAW Theorem* (Katsarakis et al.): where messages may take any time, no protocol that gets on without a replica
//! has linearizable reads which that replica answers alone. Figure 2 of the paper, as a schedule.

use quorate_check::history::History;
use quorate_check::linearizability;
use quorate_protocols::registry::named;
use quorate_sim::scenario::play;

/// What others send to r3 is late. A write completes without it, and then its client reads.
const SCHEDULE: &str = "
fire r1 Election
settle
put p1 k old
settle
fire r1 Heartbeat
settle
cut r1 r3
cut r2 r3
put p1 k new
settle
{PAUSE}get p3 k
settle
";

/// Where writes wait for all who are live, until an epoch has begun without r3.
const UNTIL_IT_IS_MISSED: &str = "repeat 60 tick 50ms, settle\n";

/// What clients were told, as a history: each request begins when the one before has been answered, or was given up.
pub fn history(protocol: &str, settings: &str) -> History {
    let pause = if ["chain", "craq", "hermes"].contains(&protocol) { UNTIL_IT_IS_MISSED } else { "" };
    let script = format!("nodes 3 {settings}{}", SCHEDULE.replace("{PAUSE}", pause));
    let text = play(named(protocol), &script).expect("the schedule fits");
    let (before, after) = text.split_once("get p3 k").expect("it is read");
    assert_eq!(before.matches(" = Done").count(), 2, "both writes complete, one without r3: {text}");
    let read = match after.split_once("p3 #3 = Value(Some(b\"") {
        Some((_, value)) => {
            format!("60 get \"k\" = value some \"{}\"", value.split('"').next().expect("a value"))
        }
        None => "? get \"k\"".to_owned(),
    };
    let writes = ["1 10 20 put \"k\" \"old\"", "1 30 40 put \"k\" \"new\""];
    let writes = writes.map(|write| format!("{write} always never no = done\n"));
    History::parse(&format!("{}2 50 {read}", writes.concat())).expect("a history")
}

#[test]
fn a_read_that_one_replica_answers_alone_is_not_linearizable() {
    let table =
        [("zab", " reads=local"), ("raft", " reads=inconsistent allow_stale_reads=true reads.at=nearest")];
    for (protocol, settings) in table {
        let history = history(protocol, settings);
        assert!(linearizability::check(&history).is_err(), "{protocol}{settings}: {history}");
    }
}

#[test]
fn an_almost_local_read_waits() {
    let table = [
        ("zab", ""),
        ("raft", " reads=alr"),
        ("multipaxos", " reads=alr"),
        ("chain", " reads=eager-alr"),
        ("craq", " reads=eager-alr"),
        ("hermes", " reads=eager-alr"),
    ];
    for (protocol, settings) in table {
        let history = history(protocol, settings);
        assert!(history.0[2].returned.is_none(), "{protocol}{settings}: {history}");
    }
}

/// Nobody writes without r3 before its leases have ended, and then it reads no more: this takes clocks.
#[test]
fn a_read_without_a_lease_waits() {
    for protocol in ["chain", "craq", "hermes"] {
        let history = history(protocol, " reads=lease");
        assert!(history.0[2].returned.is_none(), "{protocol}: {history}");
    }
}
