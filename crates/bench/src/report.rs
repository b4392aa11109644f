//! What is said of a run: as values (JSON) and as a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::stats::Stats;
use crate::work::Op;
use crate::{Options, Trace};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Connections.
    pub connections: usize,
    /// Requests under way on each, at most.
    pub pipeline: usize,
    /// Operations per second that were asked for: an open loop.
    pub rate: Option<u64>,
    /// Time that counts.
    pub seconds: f64,
    /// All operations together.
    pub total: Latency,
    /// Those that happened, by name.
    pub ops: Vec<Latency>,
    /// Reads that found nothing.
    pub misses: u64,
    /// Operations of an open loop without an answer at the end; their latencies count as they were then.
    pub unfinished: u64,
    /// How much later than intended an open loop sent, in µs: of 100, the 99th.
    pub late_p99_us: Option<f64>,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// CPU time of the generator.
    pub client_cpu_seconds: f64,
    /// The same per operation.
    pub client_cpu_us_per_op: f64,
    /// Successes in each second.
    pub per_second: Vec<u64>,
    /// Every operation, if that was asked for.
    #[serde(skip)]
    pub trace: Option<Trace>,
}

/// Latencies of one kind of operation; in µs.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Latency {
    pub name: &'static str,
    pub count: u64,
    pub per_second: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Quantile and latency.
    pub quantiles: Vec<(f64, f64)>,
}

const QUANTILES: [f64; 12] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9999, 1.0];

impl Latency {
    fn new(name: &'static str, histogram: &Histogram<u64>, done: u64, seconds: f64) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            name,
            count: done,
            per_second: if seconds > 0.0 { done as f64 / seconds } else { 0.0 },
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
            quantiles: QUANTILES.map(|quantile| (quantile, at(quantile))).to_vec(),
        }
    }
}

/// Sums up.
pub fn make(options: &Options, stats: &Stats, nanos: u64, cpu: Duration) -> Report {
    let seconds = nanos as f64 / 1e9;
    let done: u64 = stats.done.iter().sum();
    let ops = Op::ALL.into_iter().map(|op| (op, &stats.ops[op as usize]));
    Report {
        connections: options.connections,
        pipeline: options.pipeline,
        rate: options.rate,
        seconds,
        total: Latency::new("all", &stats.total(), done, seconds),
        ops: ops
            .filter(|(_, histogram)| !histogram.is_empty())
            .map(|(op, histogram)| Latency::new(op.name(), histogram, stats.done[op as usize], seconds))
            .collect(),
        misses: stats.misses,
        unfinished: stats.unfinished,
        late_p99_us: options.rate.map(|_| stats.late.value_at_quantile(0.99) as f64 / 1e3),
        errors: stats.errors.clone(),
        client_cpu_seconds: cpu.as_secs_f64(),
        client_cpu_us_per_op: cpu.as_secs_f64() * 1e6 / done.max(1) as f64,
        per_second: stats.seconds.clone(),
        trace: None,
    }
}

/// A run as a table for people.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    let load = match report.rate {
        Some(rate) => format!("open loop at {rate}/s, at most {} x {}", report.connections, report.pipeline),
        None => format!("closed loop, {} connections x {}", report.connections, report.pipeline),
    };
    let _ = writeln!(text, "{load}, {:.1} s", report.seconds);
    let _ = writeln!(
        text,
        "{:<18}{:>11}{:>11}{:>10}{:>10}{:>10}{:>10}{:>10}{:>11}",
        "", "count", "per s", "mean us", "p50", "p90", "p99", "p99.9", "max"
    );
    let several = report.ops.len() > 1;
    for row in report.ops.iter().chain(several.then_some(&report.total)) {
        let _ = writeln!(
            text,
            "{:<18}{:>11}{:>11.0}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>11.1}",
            row.name,
            row.count,
            row.per_second,
            row.mean_us,
            row.p50_us,
            row.p90_us,
            row.p99_us,
            row.p999_us,
            row.max_us
        );
    }
    if report.misses > 0 {
        let _ = writeln!(text, "reads that found nothing: {} (--load writes every key first)", report.misses);
    }
    if report.unfinished > 0 {
        let _ = writeln!(text, "not answered at the end: {} (counted as they were then)", report.unfinished);
    }
    if let Some(late) = report.late_p99_us {
        let _ = writeln!(text, "sent later than meant: p99 {late:.1} us");
    }
    for (kind, count) in &report.errors {
        let _ = writeln!(text, "errors: {count} x {kind}");
    }
    let _ = writeln!(
        text,
        "generator: {:.2} s CPU, {:.2} us per operation",
        report.client_cpu_seconds, report.client_cpu_us_per_op
    );
    text
}
