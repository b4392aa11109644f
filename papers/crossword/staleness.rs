//! Figure 13: how far a follower's state is behind the leader's, by how often is written and how long gossip waits.

use quorate_core::{Fact, NodeId};
use quorate_sim::experiment::{Ask, Load, Measured};

use super::world::{self, Candidate, Cluster, READY, SECOND, node};
use super::{FIG13, GAP_0, GAP_40, GAP_400, MULTIPAXOS};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// Writes a second of one object.
const RATES: [u64; 5] = [10, 100, 300, 1000, 3000];

static SYSTEMS: [Candidate; 4] = [
    Candidate { name: MULTIPAXOS, protocol: "multipaxos", settings: &[] },
    Candidate { name: GAP_0, protocol: "crossword", settings: &["crossword.shards=1", "gossip.gap=0"] },
    Candidate { name: GAP_40, protocol: "crossword", settings: &["crossword.shards=1", "gossip.gap=40KiB"] },
    Candidate {
        name: GAP_400,
        protocol: "crossword",
        settings: &["crossword.shards=1", "gossip.gap=400KiB"],
    },
];

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let points: Vec<_> = SYSTEMS.iter().flat_map(|system| RATES.map(|writes| (system, writes))).collect();
    let length = if bench.quick { 5 * SECOND } else { 15 * SECOND };
    let rows = bench.each(&points, |&(system, writes)| {
        let cluster = Cluster::regional(system, 5);
        let from = READY + SECOND;
        let (begin, end) = (from + 5 * SECOND, from + 5 * SECOND + length);
        let asks = (from..end).step_by((SECOND / writes) as usize).enumerate().map(|(number, at)| {
            let command = world::command(0, number as u64, world::Op::Put(8));
            Ask { at, proxy: 0, command, patience: 30 * SECOND }
        });
        let asks: Vec<_> = asks.collect();
        let asked = asks.len() as f64;
        let measured = cluster.run(&cluster.setup(end)?, Load { asks, ..Load::default() })?;
        let followers = (2..=5).map(|follower| behind(&measured, node(follower), (begin, end)));
        let requests = measured.sent.get("Reconstruct").copied().unwrap_or(0) as f64;
        Ok(Row::of(&[&system.name, &writes], [followers.sum::<f64>() / 4.0, requests / asked]))
    })?;
    Ok(vec![Rows(&FIG13, rows)])
}

/// Writes that node 1 has executed and a follower has not, on average over a stretch of time.
fn behind(measured: &Measured, follower: NodeId, (begin, end): (u64, u64)) -> f64 {
    let (mut missing, mut since, mut sum) = (0i64, begin, 0.0);
    for (at, who, fact) in &measured.values {
        let step = match fact {
            Fact::Executed { .. } if *who == node(1) => 1,
            Fact::Executed { .. } if *who == follower => -1,
            _ => continue,
        };
        let at = (*at).clamp(begin, end);
        sum += missing as f64 * (at - since) as f64;
        (missing, since) = (missing + step, at);
    }
    (sum + missing as f64 * (end - since) as f64) / (end - begin) as f64
}
