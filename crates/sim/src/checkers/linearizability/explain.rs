//! What is wrong with a history: the shortest prefix of it that no store could have produced.
//!
//! A prefix keeps the calls and returns up to some return; operations that return later have an unknown outcome in it.
//! Prefixes of linearizable histories are linearizable, so the shortest one that fails is found by halving. Its last
//! return is the reply that cannot be.

use std::collections::BTreeMap;
use std::fmt;

use quorate_store::{Command, Reply};

use super::problem::{Event, EventId, Problem, Strings, is_read};
use super::search::{Outcome, Search};
use super::{Partition, Unsupported, key_names};
use crate::history::Operation;

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
        list("it could have been", self.possible.iter().map(crate::history::reply_text).collect())?;
        list("open at that time, or unknown", texts(&self.open))?;
        list("returned last before", texts(&self.recent))
    }
}

/// Explains why a partition is not linearizable. No configuration passed `stuck`, so the prefix before it is fine.
pub fn explain(partition: &Partition<'_>, stuck: EventId, effort: u64) -> Result<Explanation, Unsupported> {
    let problem = Problem::new(partition, Strings::Blurred)?;
    let returns: Vec<EventId> = (0..)
        .zip(&problem.events)
        .filter(|(event, what)| matches!(what, Event::Return(_)) && *event >= stuck)
        .map(|(event, _)| event)
        .collect();
    // Somewhere among `returns` the prefixes begin to fail, mostly near the start: probe at growing distance, then halve.
    let fails = |at: usize| -> Result<bool, Unsupported> {
        let prefix = cut(partition, &problem, returns[at]);
        let mut left = effort;
        let mut problem = Problem::new(&borrow(&prefix), Strings::Blurred)?;
        Ok(matches!(Search::new(&mut problem, &mut left).run(), Outcome::Stuck(_)))
    };
    let (mut good, mut probe) = (0, 0);
    while probe + 1 < returns.len() && !fails(probe)? {
        good = probe + 1;
        probe = 2 * probe + 1;
    }
    let mut bad = probe.min(returns.len() - 1);
    while good < bad {
        let middle = good + (bad - good) / 2;
        if fails(middle)? {
            bad = middle;
        } else {
            good = middle + 1;
        }
    }
    let event = returns[bad];
    let Event::Return(culprit) = problem.events[event as usize] else { unreachable!("of the returns") };
    let origin = problem.op(culprit).origin;
    let operation = |origin: usize| {
        let found = partition.iter().find(|(index, _)| *index == origin);
        found.map(|(_, operation)| (*operation).clone()).unwrap_or_else(|| unreachable!("of this partition"))
    };
    let returned: Vec<_> = problem.events[..event as usize]
        .iter()
        .filter_map(|event| match event {
            Event::Return(id) => Some(problem.op(*id).origin),
            Event::Call(_) => None,
        })
        .collect();
    let open = problem.open(event).iter().chain(problem.unknown_before(event));
    Ok(Explanation {
        keys: key_names(problem.model.keys()),
        culprit: operation(origin),
        position: origin,
        before: returned.len(),
        recent: returned[returned.len().saturating_sub(SHOWN)..].iter().map(|id| operation(*id)).collect(),
        open: open
            .filter(|id| **id != culprit)
            .take(SHOWN)
            .map(|id| operation(problem.op(*id).origin))
            .collect(),
        possible: possible(cut(partition, &problem, event), origin, effort)?,
    })
}

/// The operations of a partition as they were known at an event of it.
fn cut(partition: &Partition<'_>, problem: &Problem, event: EventId) -> Vec<(usize, Operation)> {
    let mut kept: Vec<(usize, Operation)> = Vec::new();
    let by_origin: BTreeMap<usize, &Operation> = partition.iter().copied().collect();
    for op in problem.ops.iter().filter(|op| op.call < event) {
        let mut operation = by_origin[&op.origin].clone();
        if op.ret > event {
            operation.returned = None;
        }
        if operation.returned.is_some() || !is_read(&operation.command) {
            kept.push((op.origin, operation));
        }
    }
    kept.sort_by_key(|(origin, _)| *origin);
    kept
}

fn borrow(operations: &[(usize, Operation)]) -> Partition<'_> {
    operations.iter().map(|(origin, operation)| (*origin, operation)).collect()
}

/// What the last return of a failing prefix could have replied. The search gets stuck there, with all states that are
/// possible, if it is given a reply that no state explains.
fn possible(
    mut prefix: Vec<(usize, Operation)>,
    culprit: usize,
    effort: u64,
) -> Result<Vec<Reply>, Unsupported> {
    for (origin, operation) in &mut prefix {
        if let (true, Some((_, reply))) = (*origin == culprit, &mut operation.returned) {
            *reply = match operation.command {
                Command::KindOf { .. } => Reply::Integer(0),
                _ => Reply::Kind(None),
            };
        }
    }
    let mut problem = Problem::new(&borrow(&prefix), Strings::Shown)?;
    let mut left = effort;
    let mut search = Search::new(&mut problem, &mut left);
    search.run();
    Ok(search.possible_replies(SHOWN))
}
