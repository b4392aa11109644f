//! The tables of a comparison.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::systems::System;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Set,
    Get,
}

impl Op {
    /// Its name for generators and tables.
    pub fn name(self) -> &'static str {
        match self {
            Op::Set => "set",
            Op::Get => "get",
        }
    }
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// What is asked for.
    pub op: Op,
    /// Requests under way on each connection.
    pub pipeline: u32,
    /// Connections.
    pub connections: u32,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Operations per second.
    pub rate: f64,
    /// Latency in µs.
    pub p50: f64,
    /// Latency in µs.
    pub p99: f64,
    /// CPU seconds of all servers per second.
    pub cpu: f64,
    /// Memory of all servers.
    pub memory_mb: f64,
    /// Failures.
    pub errors: u64,
}

/// A server at rest, after it was loaded.
#[derive(Clone, Debug)]
pub struct Idle {
    /// CPU seconds per second, of each process.
    pub cpu: Vec<f64>,
    /// Memory of each process.
    pub memory_mb: Vec<f64>,
}

/// Everything measured.
#[derive(Debug, Default)]
pub struct Results {
    /// By system and kind of load, one per round.
    pub samples: BTreeMap<(Cell, System), Vec<Sample>>,
    /// One per round.
    pub idle: BTreeMap<System, Vec<Idle>>,
}

/// Median, least and greatest.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.first(), values.last()) {
        (Some(&least), Some(&greatest)) => {
            let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
            ((low + high) / 2.0, least, greatest)
        }
        _ => (0.0, 0.0, 0.0),
    }
}

/// A number for people: 123456 is 123.5k.
fn short(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.1}k", value / 1000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

impl Results {
    fn median(&self, cell: Cell, system: System, of: fn(&Sample) -> f64) -> Option<f64> {
        let samples = self.samples.get(&(cell, system))?;
        Some(spread(samples.iter().map(of)).0)
    }

    /// All tables, as Markdown.
    pub fn tables(&self) -> String {
        let mut text = String::from(
            "| load | system | ops/s (min to max) | p50 µs | p99 µs | server CPU | CPU µs/op | memory MB | errors |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for ((cell, system), samples) in &self.samples {
            let of = |of: fn(&Sample) -> f64| spread(samples.iter().map(of)).0;
            let (rate, least, greatest) = spread(samples.iter().map(|sample| sample.rate));
            let _ = writeln!(
                text,
                "| {} {}x{} | {} | {} ({} to {}) | {} | {} | {:.0}% | {:.1} | {:.0} | {} |",
                cell.op.name(),
                cell.connections,
                cell.pipeline,
                system.name(),
                short(rate),
                short(least),
                short(greatest),
                short(of(|sample| sample.p50)),
                short(of(|sample| sample.p99)),
                of(|sample| sample.cpu) * 100.0,
                of(|sample| sample.cpu * 1e6 / sample.rate.max(1.0)),
                of(|sample| sample.memory_mb),
                samples.iter().map(|sample| sample.errors).sum::<u64>(),
            );
        }
        text.push_str(&self.ratios());
        text.push_str(&self.at_rest());
        text
    }

    /// Quorate's operations per second over those of the others, of medians.
    fn ratios(&self) -> String {
        let mut text = String::from(
            "\nQuorate (at the leader) ÷ the others, operations per second:\n\n\
             | load | ÷ replicator | ÷ redis | ÷ etcd | follower ÷ leader |\n|---|---|---|---|---|\n",
        );
        let mut cells: Vec<Cell> = self.samples.keys().map(|(cell, _)| *cell).collect();
        cells.dedup();
        for cell in cells {
            let rate = |system| self.median(cell, system, |sample| sample.rate).filter(|rate| *rate > 0.0);
            let ratio = |over: Option<f64>, under: Option<f64>| match (over, under) {
                (Some(over), Some(under)) => format!("{:.2}", over / under),
                _ => "-".to_owned(),
            };
            let quorate = rate(System::Quorate);
            let _ = writeln!(
                text,
                "| {} {}x{} | {} | {} | {} | {} |",
                cell.op.name(),
                cell.connections,
                cell.pipeline,
                ratio(quorate, rate(System::Replicator)),
                ratio(quorate, rate(System::Redis)),
                ratio(quorate, rate(System::Etcd)),
                ratio(rate(System::Follower), quorate),
            );
        }
        text
    }

    fn at_rest(&self) -> String {
        let mut text = String::from(
            "\nAt rest, after the keys were loaded:\n\n\
             | system | CPU of one core, each process | memory MB, each process |\n|---|---|---|\n",
        );
        for (system, rounds) in &self.idle {
            let processes = rounds.iter().map(|idle| idle.cpu.len()).max().unwrap_or(0);
            let each = |of: &dyn Fn(&Idle) -> Vec<f64>, digits: usize, unit: &str| {
                let medians = (0..processes)
                    .map(|index| spread(rounds.iter().filter_map(|idle| of(idle).get(index).copied())).0);
                medians.map(|median| format!("{median:.digits$}{unit}")).collect::<Vec<_>>().join(", ")
            };
            let cpu = each(&|idle| idle.cpu.iter().map(|share| share * 100.0).collect(), 1, "%");
            let memory = each(&|idle| idle.memory_mb.clone(), 0, "");
            let _ = writeln!(text, "| {} | {cpu} | {memory} |", system.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_show_medians_spreads_and_ratios() {
        let cell = Cell { op: Op::Set, pipeline: 1, connections: 64 };
        let sample = |rate| Sample { rate, p50: 900.4, p99: 12_345.0, cpu: 1.5, memory_mb: 30.0, errors: 1 };
        let mut results = Results::default();
        results.samples.insert((cell, System::Quorate), [60e3, 20e3, 50e3].map(sample).to_vec());
        results.samples.insert((cell, System::Redis), vec![sample(100e3)]);
        let idle = |cpu: [f64; 2]| Idle { cpu: cpu.to_vec(), memory_mb: vec![10.0, 11.0] };
        results.idle.insert(System::Quorate, vec![idle([0.01, 0.02]), idle([0.03, 0.02])]);
        let text = results.tables();
        for line in [
            "| set 64x1 | redis | 100.0k (100.0k to 100.0k) | 900 | 12.3k | 150% | 15.0 | 30 | 1 |",
            "| set 64x1 | quorate | 50.0k (20.0k to 60.0k) | 900 | 12.3k | 150% | 30.0 | 30 | 3 |",
            "| set 64x1 | - | 0.50 | - | - |",
            "| quorate | 2.0%, 2.0% | 10, 11 |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }
}
