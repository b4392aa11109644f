//! What is wrong with a history: the first reply that cannot be.
//!
//! Up to any return, a history can be asked whether some order explains the replies so far, where operations that are
//! still open may have taken effect, with the replies that they got later, or not yet. Once the answer is no it stays
//! no, so the first such return is found by probing further and further and then halving. Probes start from the
//! configurations at which the search got stuck, which is fast; as these may be too few, the result is confirmed
//! from the start.

use std::fmt;

use quorate_store::{Command, Reply};

use super::config::Config;
use super::events::Event;
use super::problem::{EventId, NEVER, OpId, Problem, Strings};
use super::search::{Outcome, Search};
use super::{Partition, Unsupported, key_names};
use crate::history::{Operation, reply_text};

/// Operations and replies shown, at most.
const SHOWN: usize = 12;

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The keys that are concerned.
    pub keys: String,
    /// The operation whose reply no order explains, together with everything that had returned before it.
    pub culprit: Operation,
    /// Its position in the history.
    pub position: usize,
    /// How many operations on these keys had returned before it.
    pub before: usize,
    /// The last of them, oldest first; a few.
    pub recent: Vec<Operation>,
    /// Operations that were open when it returned, or whose outcome was never known; a few.
    pub open: Vec<Operation>,
    /// What could have been replied at that moment, as far as was tried; a few.
    pub possible: Vec<Reply>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "no order explains the reply of operation {} on {}, after {} that had returned",
            self.position, self.keys, self.before
        )?;
        writeln!(f, "  {}", self.culprit)?;
        let mut list = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                writeln!(f, "{title}")?;
            }
            lines.into_iter().try_for_each(|line| writeln!(f, "  {line}"))
        };
        let texts = |operations: &[Operation]| operations.iter().map(Operation::to_string).collect();
        list("it could have been", self.possible.iter().map(reply_text).collect())?;
        list("open at that time, or unknown", texts(&self.open))?;
        list("returned last before", texts(&self.recent))
    }
}

/// Explains why a partition is not linearizable. The search got stuck at an event where these configurations stood.
pub fn explain(
    partition: &Partition<'_>,
    problem: &mut Problem,
    stuck: EventId,
    standing: Vec<Config>,
    effort: u64,
) -> Result<Explanation, Unsupported> {
    let returns: Vec<(EventId, OpId)> = (0..)
        .zip(&problem.events)
        .filter_map(|(event, what)| match what {
            Event::Return(id) if event >= stuck => Some((event, *id)),
            Event::Return(_) | Event::Call(_) => None,
        })
        .collect();
    let mut fails = |at: usize, from: Vec<Config>| {
        problem.set_horizon(returns[at].0);
        let mut left = effort;
        let mut search = Search::new(problem, &mut left);
        matches!(if from.is_empty() { search.run() } else { search.run_deep(from) }, Outcome::Stuck(_))
    };
    let mut first = first_failure(0, returns.len(), |at| fails(at, standing.clone()));
    if !fails(first, Vec::new()) {
        first = first_failure(first, returns.len(), |at| fails(at, Vec::new()));
    }
    problem.set_horizon(NEVER);

    let (event, culprit) = returns[first];
    let operation = |id: OpId| {
        let origin = problem.op(id).origin;
        let at = partition.binary_search_by_key(&origin, |(origin, _)| *origin);
        partition[at.unwrap_or_else(|_| unreachable!("operations come from their partition"))].1.clone()
    };
    let returned: Vec<OpId> = problem.events[..event as usize]
        .iter()
        .filter_map(|event| match event {
            Event::Return(id) => Some(*id),
            Event::Call(_) => None,
        })
        .collect();
    let open = problem.open(event).iter().chain(problem.unknown_before(event));
    Ok(Explanation {
        keys: key_names(problem),
        culprit: operation(culprit),
        position: problem.op(culprit).origin,
        before: returned.len(),
        recent: returned[returned.len().saturating_sub(SHOWN)..].iter().map(|id| operation(*id)).collect(),
        open: open.filter(|id| **id != culprit).take(SHOWN).map(|id| operation(*id)).collect(),
        possible: possible(partition, event, problem.op(culprit).origin, effort)?,
    })
}

/// The first number from `low` on, below `high`, for which `fails`; the last one is known to fail, and once one
/// fails all that follow do.
fn first_failure(mut low: usize, high: usize, mut fails: impl FnMut(usize) -> bool) -> usize {
    let mut step = 1;
    let mut bad = low;
    while bad + 1 < high && !fails(bad) {
        low = bad + 1;
        bad = (low + step).min(high - 1);
        step *= 2;
    }
    while low < bad {
        let middle = low + (bad - low) / 2;
        if fails(middle) {
            bad = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// What the operation that returned at an event could have replied. The search gets stuck there, with some of the
/// states that are possible, if it is given a reply that no state explains.
fn possible(
    partition: &Partition<'_>,
    event: EventId,
    culprit: usize,
    effort: u64,
) -> Result<Vec<Reply>, Unsupported> {
    let mut partition = partition.clone();
    let Some((_, operation)) = partition.iter_mut().find(|(origin, _)| *origin == culprit) else {
        return Ok(Vec::new());
    };
    let mut changed = operation.clone();
    if let Some((_, reply)) = &mut changed.returned {
        *reply = match changed.command {
            Command::KindOf { .. } => Reply::Integer(0),
            _ => Reply::Kind(None),
        };
    }
    *operation = &changed;
    let mut problem = Problem::new(&partition, Strings::Shown)?;
    problem.set_horizon(event);
    // All states would take long, and a few suffice.
    let mut left = effort.min(1_000_000 + 20 * partition.len() as u64);
    let mut search = Search::new(&mut problem, &mut left);
    search.run_deep(vec![Config::initial(search.problem)]);
    Ok(search.possible_replies(SHOWN))
}
