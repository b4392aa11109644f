//! What is counted while a run goes on.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::trace::{End, Trace};
use crate::work::Op;

/// Nanoseconds, from 0.1 µs to an hour, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 3_600_000_000_000, 3).expect("the bounds are in order")
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Stats {
    /// Latencies of operations that succeeded, and of those that an open loop left unfinished.
    pub ops: [Histogram<u64>; 5],
    /// How many succeeded.
    pub done: [u64; 5],
    /// How much later than intended an open loop sent.
    pub late: Histogram<u64>,
    /// Reads that found nothing.
    pub misses: u64,
    /// Operations that were not answered, or not even sent, when the run ended: an open loop only.
    pub unfinished: u64,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// Successes in each second that counts.
    pub seconds: Vec<u64>,
    /// Since the last line of progress.
    pub tick: Histogram<u64>,
    /// Errors since the last line of progress.
    pub tick_errors: u64,
    /// Whether `tick` is kept.
    pub ticking: bool,
    /// Every operation, if wanted.
    pub trace: Option<Trace>,
}

impl Stats {
    /// Nothing yet.
    pub fn new(ticking: bool, tracing: bool) -> Stats {
        Stats {
            ops: std::array::from_fn(|_| histogram()),
            done: [0; 5],
            late: histogram(),
            misses: 0,
            unfinished: 0,
            errors: BTreeMap::new(),
            seconds: Vec::new(),
            tick: histogram(),
            tick_errors: 0,
            ticking,
            trace: tracing.then(Trace::default),
        }
    }

    /// An operation succeeded, in this second of the time that counts, or after it.
    pub fn success(&mut self, op: Op, nanos: u64, second: Option<usize>) {
        self.ops[op as usize].saturating_record(nanos);
        let Some(second) = second else { return };
        self.done[op as usize] += 1;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += 1;
    }

    /// What became of an operation, whether it counts or not.
    pub fn trace(&mut self, op: Op, start: u64, end: u64, how: End) {
        if let Some(trace) = &mut self.trace {
            trace.push(op, start, end, how);
        }
    }

    /// One more latency for the line of progress.
    pub fn tick(&mut self, nanos: u64) {
        if self.ticking {
            self.tick.saturating_record(nanos);
        }
    }

    /// Some operations failed in the same way.
    pub fn error(&mut self, kind: &str, count: u64) {
        match self.errors.get_mut(kind) {
            Some(sum) => *sum += count,
            None => drop(self.errors.insert(kind.to_owned(), count)),
        }
    }

    /// All operations together.
    pub fn total(&self) -> Histogram<u64> {
        let mut total = histogram();
        for part in &self.ops {
            total.add(part).expect("the bounds are the same");
        }
        total
    }
}
