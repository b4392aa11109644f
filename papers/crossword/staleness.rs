//! Figure 13: how far a follower's state is behind the leader's, by how often is written and how long gossip waits.

use quorate_core::{Fact, NodeId};
use quorate_sim::experiment::{Load, Measured};

use super::world::{self, Candidate, Cluster, READY, SECOND, node};
use super::{FIG13, GAP_0, GAP_40, GAP_400, MULTIPAXOS};
use crate::instrument::Result;
use crate::instrument::closed_loops::stream;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::{Bench, pairs};

/// Writes a second of one object.
const RATES: [u64; 5] = [10, 100, 300, 1000, 3000];

static SYSTEMS: [Candidate; 4] = [
    Candidate::new(MULTIPAXOS, "multipaxos", &[]),
    Candidate::new(GAP_0, "crossword", &["crossword.shards=1", "gossip.gap=0"]),
    Candidate::new(GAP_40, "crossword", &["crossword.shards=1", "gossip.gap=40KiB"]),
    Candidate::new(GAP_400, "crossword", &["crossword.shards=1", "gossip.gap=400KiB"]),
];

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let length = if bench.quick { 5 * SECOND } else { 15 * SECOND };
    bench.rows(&FIG13, &pairs(&SYSTEMS.each_ref(), &RATES), |&(system, writes)| {
        let cluster = Cluster::regional(system, 5);
        let from = READY + SECOND;
        let (begin, end) = (from + 5 * SECOND, from + 5 * SECOND + length);
        let asks = stream(from..end, SECOND / writes, |number| world::command(0, number, Some(8)));
        let asked = asks.len() as f64;
        let measured = system.measure(&cluster.setup(end)?, Load { asks, ..Load::default() })?;
        let followers = (2..=5).map(|follower| behind(&measured, node(follower), (begin, end)));
        let requests = measured.sent.get("Reconstruct").copied().unwrap_or(0) as f64;
        Ok(Row::of(&[&system.name, &writes], [followers.sum::<f64>() / 4.0, requests / asked]))
    })
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
