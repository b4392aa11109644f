//! Figure 1: who is on the critical path of a read.

use quorate_core::Random;
use quorate_sim::experiment::{Ask, Capacity, Load, Measured};

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, BODEGA, LEADER_LEASES, MULTIPAXOS, QUORUM_LEASES};
use super::world::{self, MS, NEAR, READY, WAN};

/// The paper's S4.
const SITE: &str = "APT";
/// Writes per hundred operations.
const WRITES: [u64; 3] = [1, 5, 10];
/// One client, one operation each so often.
const EVERY: u64 = 10 * MS;
const OPERATIONS: u64 = 4_000;

/// Shares of the client's reads.
struct Shares {
    /// Those that another node is asked.
    asked: f64,
    /// Those that take longer than c and half a millisecond.
    slow: f64,
    /// Votes of other nodes for each read, on average: those of reads that are commands.
    votes: f64,
}

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig1", "Figure 1: servers on the critical path of a read");
    section.told(format!("{}. Nothing takes time but distances.", WAN.told()));
    section.told(format!(
        "The paper's client near S4 is one at {SITE}, a responder: an operation each 10 ms, {OPERATIONS} in \
         all, of one key (how many and how often it does not say). Its share of writes is written by another \
         client, at the leader's site, so that what leaves {SITE} is for reads alone. Only 1% is in the paper."
    ));
    let mut table = Table::new([
        "protocol",
        "writes_percent",
        "asked_of_another_percent",
        "slower_than_c_percent",
        "votes_per_read",
    ]);
    let mut shares = Vec::new();
    for name in [MULTIPAXOS, LEADER_LEASES, QUORUM_LEASES, BODEGA] {
        bench.say(&format!("fig1: {name}"))?;
        for writes in WRITES {
            let share = measure(name, writes)?;
            table.row([
                name.to_owned(),
                writes.to_string(),
                format!("{:.2}", 100.0 * share.asked),
                format!("{:.2}", 100.0 * share.slow),
                format!("{:.2}", share.votes),
            ]);
            shares.push(share);
        }
    }
    bench.csv(&mut section, "fig1.csv", &table)?;
    section.tables.push((format!("Reads of the client at {SITE}."), table));
    judge(&mut section, &shares);
    Ok(section)
}

fn measure(name: &str, writes: u64) -> Result<Shares> {
    let candidate = candidates::known(name);
    let (site, leader, patience) = (WAN.site(SITE), WAN.leader(), 5_000 * MS);
    // The first write opens the session; reads begin when everybody knows the leader.
    let mut asks = vec![Ask { at: READY, proxy: leader, command: world::put("first", 0, 8), patience }];
    let warm = Ask { at: READY + 500 * MS, proxy: site, command: world::get("first"), patience };
    asks.push(warm);
    let from = READY + 1_000 * MS;
    let mut random = Random::new(1);
    for index in 0..OPERATIONS {
        let at = from + index * EVERY;
        asks.push(match random.chance(writes as f64 / 100.0) {
            true => Ask { at, proxy: leader, command: world::put("k", index, 8), patience },
            false => Ask { at, proxy: site, command: world::get("k"), patience },
        });
    }
    let setup =
        WAN.setup(candidate, &WAN.responders(), Capacity::default(), from + OPERATIONS * EVERY + patience)?;
    let run = |asks: Vec<Ask>| world::run(candidate, &setup, Load { asks, clients: None, acts: Vec::new() });
    // What goes on without the reads does not count.
    let is_read = |ask: &Ask| ask.proxy == site && ask.at >= from;
    let without = run(asks.iter().filter(|ask| !is_read(ask)).cloned().collect())?;
    let measured = run(asks)?;
    world::check(candidate, &measured)?;
    let reads: Vec<_> =
        measured.operations.iter().filter(|op| op.proxy == site && op.asked >= from).collect();
    let slow =
        reads.iter().filter(|op| op.latency().is_none_or(|it| it as f64 > (NEAR + 0.5) * MS as f64)).count();
    let more = |kind: &str| {
        let of = |measured: &Measured| measured.sent.get(kind).copied().unwrap_or(0) as f64;
        (of(&measured) - of(&without)).max(0.0) / reads.len() as f64
    };
    Ok(Shares { asked: more("Ask"), slow: slow as f64 / reads.len() as f64, votes: more("AcceptReply") })
}

fn judge(section: &mut Section, shares: &[Shares]) {
    let [paxos, leases, quorum, bodega] =
        [0, 1, 2, 3].map(|protocol| &shares[protocol * WRITES.len()..][..WRITES.len()]);
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    section.judge(
        "B-1.1",
        Verdict::when(paxos[0].asked >= 0.99 && paxos[0].votes >= 2.0),
        format!(
            "{} of the reads are asked of the leader, which has {:.1} other nodes vote for each",
            percent(paxos[0].asked),
            paxos[0].votes
        ),
        "rule: all of them, and at least two votes beside the leader's own",
    );
    section.judge(
        "B-1.2",
        Verdict::when(leases[0].asked >= 0.99 && leases[0].votes < 0.05),
        format!(
            "{} are asked of the leader, with {:.2} votes each",
            percent(leases[0].asked),
            leases[0].votes
        ),
        "rule: all of them, and no votes",
    );
    let list: Vec<_> = quorum.iter().map(|share| percent(share.asked)).collect();
    section.judge(
        "B-1.3",
        Verdict::when(quorum[0].asked > 0.0 && quorum.windows(2).all(|pair| pair[1].asked > pair[0].asked)),
        format!("{} at 1%, 5% and 10% writes", list.join(", ")),
        "rule: some at 1%, more with more writes. How many depends on how often reads meet writes, which the \
         paper leaves open",
    );
    let most = bodega.iter().map(|share| share.asked).fold(0.0, f64::max);
    section.judge(
        "B-1.4",
        Verdict::when(most == 0.0),
        format!(
            "{} are asked of another node, at any share of writes; {} at 1% are held",
            percent(most),
            percent(bodega[0].slow)
        ),
        "rule: none",
    );
}
