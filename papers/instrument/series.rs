//! What can be said of many operations, whether they were simulated or real. Times are milliseconds from the start of
//! a figure's time axis.

/// One operation of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    /// When the client meant to ask.
    pub start: f64,
    /// When it was answered; never, or with an error: `None`.
    pub end: Option<f64>,
    /// Whether it writes.
    pub writes: bool,
}

impl Op {
    /// How long it took, if it succeeded.
    pub fn latency(&self) -> Option<f64> {
        self.end.map(|end| end - self.start)
    }

    fn is_within(&self, limit: f64) -> bool {
        self.latency().is_some_and(|latency| latency <= limit)
    }
}

/// Reads, or writes.
pub fn kind(ops: &[Op], writes: bool) -> Vec<Op> {
    ops.iter().filter(|op| op.writes == writes).copied().collect()
}

/// The value at a quantile (nearest rank); 0 of nothing.
pub fn quantile(values: impl IntoIterator<Item = f64>, quantile: f64) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let rank = (quantile * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// Successes per millisecond by the time at which they ended, in buckets up to an end.
pub fn throughput(ops: &[Op], bucket: f64, end: f64) -> Vec<(f64, f64)> {
    let mut counts = vec![0.0; (end / bucket).ceil() as usize];
    for at in ops.iter().filter_map(|op| op.end).filter(|at| (0.0..end).contains(at)) {
        counts[(at / bucket) as usize] += 1.0 / bucket;
    }
    counts.into_iter().enumerate().map(|(index, count)| ((index as f64 + 0.5) * bucket, count)).collect()
}

/// The first success among those that began at an instant or later: when it ended.
pub fn first_success(ops: &[Op], from: f64) -> Option<f64> {
    ops.iter().filter(|op| op.start >= from).filter_map(|op| op.end).min_by(f64::total_cmp)
}

/// How many began in a stretch of time, and how many of them succeeded within a limit.
pub fn served(ops: &[Op], (from, to): (f64, f64), limit: f64) -> (usize, usize) {
    let asked = || ops.iter().filter(|op| op.start >= from && op.start < to);
    (asked().count(), asked().filter(|op| op.is_within(limit)).count())
}

/// From when on everything succeeds within a limit: the start of the first operation after the last that did not.
/// `None` if the last did not.
pub fn steady_from(ops: &[Op], from: f64, limit: f64) -> Option<f64> {
    let mut after: Vec<_> = ops.iter().filter(|op| op.start >= from).collect();
    after.sort_by(|a, b| a.start.total_cmp(&b.start));
    let good = after.iter().rev().take_while(|op| op.is_within(limit)).count();
    after.get(after.len() - good).map(|op| op.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(start: f64, end: Option<f64>) -> Op {
        Op { start, end, writes: false }
    }

    #[test]
    fn quantiles_are_values_that_were_there() {
        let values = || (1..=10).map(f64::from);
        assert_eq!(
            (quantile(values(), 0.9), quantile(values(), 0.5), quantile(values(), 1.0)),
            (9.0, 5.0, 10.0)
        );
        assert_eq!((quantile([3.0], 0.0), quantile([], 0.5)), (3.0, 0.0));
    }

    #[test]
    fn an_outage_is_seen_in_rate_first_success_share_and_recovery() {
        // Fine until 3, nothing until 7 but for one that waits, fine again.
        let ends = |start: f64| match start {
            6.0 => Some(7.5),
            lost if (3.0..7.0).contains(&lost) => None,
            fine => Some(fine + 0.25),
        };
        let ops: Vec<_> = (0..10).map(f64::from).map(|start| op(start, ends(start))).collect();
        let rate = throughput(&ops, 2.0, 10.0);
        assert_eq!(rate, [(1.0, 1.0), (3.0, 0.5), (5.0, 0.0), (7.0, 1.0), (9.0, 1.0)]);
        assert_eq!(first_success(&ops, 3.0), Some(7.25));
        assert_eq!(served(&ops, (5.0, 8.0), 1.0), (3, 1));
        assert_eq!((steady_from(&ops, 3.0, 1.0), steady_from(&ops, 3.0, 2.0)), (Some(7.0), Some(6.0)));
        assert_eq!(steady_from(&ops[..5], 3.0, 1.0), None);
    }
}
