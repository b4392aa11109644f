//! What the clients of a run saw, judged when it is over, by what the protocol says of its reads.

use quorate_check::history::History;
use quorate_check::wall_clocks::WallClocks;
use quorate_check::{expiry, linearizability, panics, sequential, staleness};
use quorate_core::Consistency;

use crate::cluster::Cluster;
use crate::faults::Kind;
use crate::founded;

/// What deciding a history may take: some seconds. One in a thousand is left undecided, and is counted.
const EFFORT: u64 = 4_000_000;

/// The history as linearizability takes it, and whether its checker gave up. `founded`: the group did not begin with
/// nothing.
pub(crate) fn judge(cluster: &mut Cluster, founded: bool) -> (History, bool) {
    let (history, bounds) = std::mem::take(&mut cluster.work.recorder).finish_with_bounds();
    let walls = WallClocks::new(cluster.hosts[..cluster.nodes].iter().map(|host| host.clock.wall_offsets()));
    // A proposer's time grows with its monotonic clock between reports of others: where that lies, no time is early.
    let walls = Some(walls).filter(|_| !cluster.plan.kinds.contains(Kind::ClocksBeyondBound));
    let mut undecided = false;
    let linearizable = cluster.consistency == Consistency::Linearizable;
    if cluster.violation.is_none() && !linearizable {
        let order = cluster.order.commands();
        let revision = if founded { founded::WRITES } else { 0 };
        match panics::catch(|| sequential::check(&history, &order, revision)) {
            Ok(Ok(())) => {}
            Ok(Err(found)) => cluster.fail("sequential", found.to_string()),
            Err(panic) => cluster.fail("sequential", panic),
        }
    }
    if cluster.violation.is_none()
        && linearizable
        && let Some(walls) = &walls
        && let Err(what) = expiry::check_ends(&history, &bounds, walls)
    {
        cluster.fail("expiry", what);
    }
    let history = expiry::timed(&history, walls.as_ref());
    // Reads that say nothing of what they may miss have been judged.
    let stated = (!linearizable).then(|| staleness::stated(&history, &bounds));
    let (judged, limits) = stated.as_ref().map_or((&history, &bounds), |(history, bounds)| (history, bounds));
    if cluster.violation.is_none() {
        let mut check = |name, history: &History| match panics::catch(|| {
            linearizability::check_within(history, EFFORT)
        }) {
            Ok(Ok(())) => {}
            Ok(Err(linearizability::Failure::Undecided { .. })) => undecided = true,
            Ok(Err(found)) => cluster.fail(name, found.to_string()),
            Err(panic) => cluster.fail(name, panic),
        };
        check("linearizability", &staleness::strict(judged, limits));
        if !bounds.is_empty() {
            check("staleness", &staleness::widened(judged, limits));
        }
    }
    (staleness::widened(&history, &bounds), undecided)
}
