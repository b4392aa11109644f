//! One panel of Figures 7 and 9: what clients saw around the crash of a leader. Times are ms on the figure's axis.

use super::super::series::{self, Op, kind};
use super::super::table::Table;

/// An operation that takes no longer was served at once.
pub const FAST: f64 = 50.0;
/// Width of a bucket.
const BUCKET: f64 = 10.0;

/// A moment that is known beforehand, give or take what heartbeats and proxies' searches add.
pub struct Expected(pub f64);

impl Expected {
    /// Whether something happened then.
    pub fn holds(&self, at: f64) -> bool {
        (at - self.0).abs() <= 60.0
    }
}

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
    pub note: String,
    /// Reads per ms before the crash.
    pub steady_reads: f64,
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
            note: String::new(),
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

    /// From the election to the first read.
    pub fn read_delay(&self) -> f64 {
        self.first_read() - self.election()
    }

    /// From the election to the first write.
    pub fn write_delay(&self) -> f64 {
        self.first_write() - self.election()
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

    /// The share of them.
    pub fn inherited_share(&self) -> f64 {
        let (asked, served) = self.inherited();
        served as f64 / asked.max(1) as f64
    }

    /// The buckets, for a table of all panels.
    pub fn rows(&self, table: &mut Table) {
        for ((at, reads), (_, writes)) in self.rate(false).into_iter().zip(self.rate(true)) {
            let [reads, writes] = [reads, writes].map(|rate| format!("{rate:.2}"));
            table.row([self.name.to_owned(), format!("{at:.0}"), reads, writes]);
        }
    }

    /// All panels in numbers.
    pub fn table(outages: &[Outage]) -> Table {
        let mut table = Table::new([
            "mechanism",
            "elected",
            "first commit",
            "first read",
            "first write",
            "all at once from",
            "reads between election and commit, served at once",
            "write spike ÷ steady",
            "failed reads",
            "failed writes",
            "late reads",
            "late writes",
            "limbo entries",
            "note",
        ]);
        for it in outages {
            let (asked, served) = it.inherited();
            table.row([
                it.name.to_owned(),
                moment(it.elected),
                moment(it.committed),
                format!("{:.0}", it.first_read()),
                format!("{:.0}", it.first_write()),
                format!("{:.0}", it.steady_from()),
                if asked > 50 { format!("{served} of {asked}") } else { "-".to_owned() },
                format!("{:.1}", it.spike(true)),
                it.failed(false).to_string(),
                it.failed(true).to_string(),
                it.late(false).to_string(),
                it.late(true).to_string(),
                it.limbo.map_or("-".to_owned(), |limbo| limbo.to_string()),
                it.note.clone(),
            ]);
        }
        table
    }
}

fn moment(at: Option<f64>) -> String {
    at.map_or("-".to_owned(), |at| format!("{at:.0}"))
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
        assert_eq!((outage.read_delay(), outage.write_delay()), (1.0, 501.0));
        assert_eq!(outage.answered_in_outage(), 0);
        assert_eq!((outage.failed(false), outage.failed(true)), (500, 500));
        assert_eq!((outage.late(false), outage.late(true)), (1, 451));
        let (low, high) = outage.reads_around(1600.0);
        assert!((0.99..1.01).contains(&low) && (0.99..1.01).contains(&high));
        assert_eq!(outage.inherited(), (426, 425));
        assert_eq!(outage.answered_at_once(), 500 + 20);
        assert!((outage.spike(true) - 51.0).abs() < 0.2, "{}", outage.spike(true));
        assert_eq!((outage.steady_from(), outage.steady_latency(true)), (1451.0, 1.0));
        assert!(Expected(1500.0).holds(outage.first_write()) && !Expected(1500.0).holds(outage.first_read()));
    }
}
