//! The SVG: latency over throughput if there are several runs, latency by percentile if there is one.

use crate::Report;
use crate::chart::{self, Chart, Scale};

const SIZE: (u32, u32) = (960, 560);

/// Draws runs; the error is the plot library's.
pub fn svg(title: &str, reports: &[Report]) -> Result<String, String> {
    let new = |x_name| Chart::new(title, x_name, "latency, us", Scale::Log);
    let chart = match reports {
        [one] => {
            let mut chart = new("percentile");
            chart.x_ticks = percentile;
            one.ops.iter().fold(chart, |chart, op| chart.line(op.name, by_percentile(&op.quantiles), true))
        }
        runs => {
            let line =
                |of: fn(&Report) -> f64| runs.iter().map(|run| (run.total.per_second, of(run))).collect();
            let mut chart = new("operations per second");
            chart.x_ticks = |x| format!("{x:.0}");
            chart
                .line("p50", line(|run| run.total.p50_us), true)
                .line("p99", line(|run| run.total.p99_us), true)
                .line("p99.9", line(|run| run.total.p999_us), true)
        }
    };
    chart::svg(&[chart], 1, SIZE)
}

fn percentile(nines: &f64) -> String {
    match nines.round() {
        whole if (whole - nines).abs() > 1e-6 => String::new(),
        whole if whole < 3.0 => format!("{:.0}%", 100.0 * (1.0 - 0.1f64.powf(whole))),
        whole => format!("{:.*}%", whole as usize - 2, 100.0 * (1.0 - 0.1f64.powf(whole))),
    }
}

/// One unit to the right is one nine more.
fn by_percentile(quantiles: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let points = quantiles.iter().filter(|(quantile, _)| *quantile < 1.0);
    points.map(|(quantile, micros)| (-(1.0 - quantile).log10(), *micros)).collect()
}
