//! One panel of Figures 7 and 9: what clients saw around the crash of a leader. Times are ms on the figure's axis.

use crate::instrument::grid::{Row, digits};
use crate::instrument::series::{self, Op, kind};

/// An operation that takes no longer was served at once.
pub const FAST: f64 = 50.0;
/// Width of a bucket.
const BUCKET: f64 = 10.0;

/// What clients saw.
#[derive(Clone, Debug)]
pub struct Outage {
    pub name: &'static str,
    pub crash: f64,
    /// When the next leader was elected, where that is known.
    pub elected: Option<f64>,
    /// Its first commit, where that is known.
    pub committed: Option<f64>,
    /// Entries in its limbo region, where that is known.
    pub limbo: Option<u64>,
    pub linearizable: Option<bool>,
    /// Reads per ms before the crash.
    steady_reads: f64,
    steady_writes: f64,
    end: f64,
    reads: Vec<Op>,
    writes: Vec<Op>,
}

impl Outage {
    /// Of operations up to the end of the axis.
    pub fn new(name: &'static str, ops: Vec<Op>, crash: f64, end: f64) -> Outage {
        let (reads, writes) = (kind(&ops, false), kind(&ops, true));
        let rate = |ops: &[Op]| {
            let began = ops.iter().filter(|op| op.end.is_some() && (0.0..crash - FAST).contains(&op.start));
            began.count() as f64 / (crash - FAST)
        };
        Outage {
            name,
            crash,
            elected: None,
            committed: None,
            limbo: None,
            linearizable: None,
            steady_reads: rate(&reads),
            steady_writes: rate(&writes),
            end,
            reads,
            writes,
        }
    }

    fn of(&self, writes: bool) -> &[Op] {
        if writes { &self.writes } else { &self.reads }
    }

    /// Successes per ms.
    pub fn rate(&self, writes: bool) -> Vec<(f64, f64)> {
        series::throughput(self.of(writes), BUCKET, self.end)
    }

    /// The first read that began after the crash and succeeded: when it ended; the end of the axis if there is none.
    pub fn first_read(&self) -> f64 {
        series::first_success(&self.reads, self.crash).unwrap_or(self.end)
    }

    /// The same of writes.
    pub fn first_write(&self) -> f64 {
        series::first_success(&self.writes, self.crash).unwrap_or(self.end)
    }

    fn election(&self) -> f64 {
        self.elected.unwrap_or(self.crash)
    }

    /// How many operations that began after the crash ended before the election.
    pub fn answered_in_outage(&self) -> usize {
        let all = self.reads.iter().chain(&self.writes);
        all.filter(|op| op.start > self.crash && op.end.is_some_and(|end| end < self.election())).count()
    }

    /// The highest bucket after the crash, as a multiple of the rate before it.
    pub fn spike(&self, writes: bool) -> f64 {
        let steady = if writes { self.steady_writes } else { self.steady_reads };
        let after = self.rate(writes).into_iter().filter(|(at, _)| *at > self.crash + BUCKET);
        after.map(|(_, rate)| rate).fold(0.0, f64::max) / steady
    }

    /// Writes that end within 20 ms of the first.
    pub fn answered_at_once(&self) -> usize {
        let first = self.first_write();
        self.writes.iter().filter(|op| op.end.is_some_and(|end| end >= first && end < first + 20.0)).count()
    }

    /// Operations that never succeeded.
    pub fn failed(&self, writes: bool) -> usize {
        let asked = self.of(writes).iter().filter(|op| (0.0..self.end).contains(&op.start));
        asked.filter(|op| op.end.is_none()).count()
    }

    /// Operations that succeeded late.
    pub fn late(&self, writes: bool) -> usize {
        let late = |op: &&Op| op.latency().is_some_and(|latency| latency > FAST);
        self.of(writes).iter().filter(|op| (0.0..self.end).contains(&op.start)).filter(late).count()
    }

    /// The lowest and the highest bucket of reads in the 100 ms after a moment, as multiples of the rate before.
    pub fn reads_around(&self, at: f64) -> (f64, f64) {
        let near = self.rate(false).into_iter().filter(|(when, _)| *when > at && *when < at + 100.0);
        let rates = near.map(|(_, rate)| rate / self.steady_reads);
        rates.fold((f64::MAX, 0.0), |(low, high), rate| (low.min(rate), high.max(rate)))
    }

    /// From when on everything is served at once.
    pub fn steady_from(&self) -> f64 {
        let of = |ops: &[Op]| series::steady_from(ops, self.crash, FAST).unwrap_or(self.end);
        of(&self.reads).max(of(&self.writes))
    }

    /// The median latency before the crash.
    pub fn steady_latency(&self, writes: bool) -> f64 {
        let before = self.of(writes).iter().filter(|op| op.start < self.crash - FAST);
        series::quantile(before.filter_map(Op::latency), 0.5)
    }

    /// Reads that the new leader was asked before it could commit, and those of them that it served at once. What
    /// began within 20 ms of its election is left out, because clients find it with some delay; and what could have
    /// waited for the commit.
    pub fn inherited(&self) -> (usize, usize) {
        let from = self.elected.unwrap_or_else(|| self.first_read()).max(self.crash);
        let until = self.first_write();
        series::served(&self.reads, (from + 20.0, until - FAST - 5.0), FAST)
    }

    /// The numbers of [`FIG7`](super::FIG7).
    pub fn numbers(&self) -> Vec<Option<f64>> {
        let (asked, served) = self.inherited();
        let count = |count: usize| Some(count as f64);
        let (low, high) = self.reads_around(self.first_write());
        vec![
            self.elected,
            self.committed,
            Some(self.first_read()),
            Some(self.first_write()),
            self.elected.map(|elected| self.first_read() - elected),
            self.elected.map(|elected| self.first_write() - elected),
            Some(self.first_write() - self.first_read()),
            Some(self.steady_from()),
            Some(self.steady_from() - self.first_write()),
            count(self.answered_in_outage()),
            Some(self.spike(false)),
            Some(self.spike(true)),
            Some(low),
            Some(high),
            count(self.answered_at_once()),
            count(self.failed(false)),
            count(self.failed(true)),
            count(self.failed(false) + self.failed(true)),
            count(self.late(false)),
            count(self.late(true)),
            count(asked),
            // Of a few reads a share says nothing.
            (asked >= 100).then(|| served as f64 / asked as f64),
            self.limbo.map(|limbo| limbo as f64),
            self.linearizable.map(|yes| f64::from(u8::from(yes))),
            Some(self.steady_latency(false)),
        ]
    }

    /// Its point in a figure, and its buckets in the figure that traces it.
    pub fn rows(&self, run: u32) -> (Row, Vec<Row>) {
        let name = self.name.to_owned();
        let point = Row { keys: vec![name.clone()], run, numbers: self.numbers() };
        let both = self.rate(false).into_iter().zip(self.rate(true));
        let bucket = |((at, reads), (_, writes)): ((f64, f64), (f64, f64))| Row {
            keys: vec![name.clone(), digits(at)],
            run,
            numbers: vec![Some(reads), Some(writes)],
        };
        (point, both.map(bucket).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader dies at 500, the next one reads from 1000 and writes from 1500 on.
    fn outage() -> Outage {
        let read = |start: f64| match start {
            lost if (500.0..1000.0).contains(&lost) => None,
            1200.0 => Some(1500.0),
            fine => Some(fine + 1.0),
        };
        let write = |start: f64| match start {
            lost if (500.0..1000.0).contains(&lost) => None,
            held if (1000.0..1500.0).contains(&held) => Some(1501.0),
            fine => Some(fine + 1.0),
        };
        let times = || (0..2000).map(f64::from);
        let reads = times().map(|start| Op { start, end: read(start), writes: false });
        let ops = reads.chain(times().map(|start| Op { start, end: write(start), writes: true }));
        let mut outage = Outage::new("x", ops.collect(), 500.0, 2000.0);
        outage.elected = Some(1000.0);
        outage
    }

    #[test]
    fn the_numbers_of_an_outage_are_those_that_it_was_made_of() {
        let outage = outage();
        assert_eq!((outage.first_read(), outage.first_write()), (1001.0, 1501.0));
        let numbers = outage.numbers();
        assert_eq!(
            (numbers.len(), numbers[4], numbers[5]),
            (super::super::FIG7.numbers.len(), Some(1.0), Some(501.0))
        );
        assert_eq!(outage.answered_in_outage(), 0);
        assert_eq!((outage.failed(false), outage.failed(true)), (500, 500));
        assert_eq!((outage.late(false), outage.late(true)), (1, 451));
        let (low, high) = outage.reads_around(1600.0);
        assert!((0.99..1.01).contains(&low) && (0.99..1.01).contains(&high));
        assert_eq!(outage.inherited(), (426, 425));
        assert_eq!(outage.answered_at_once(), 500 + 20);
        assert!((outage.spike(true) - 51.0).abs() < 0.2, "{}", outage.spike(true));
        assert_eq!((outage.steady_from(), outage.steady_latency(true)), (1451.0, 1.0));
    }
}
