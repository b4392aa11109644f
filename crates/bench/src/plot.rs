//! The SVG: latency over throughput if there are several runs, latency by percentile if there is one.

use plotters::prelude::*;

use crate::Report;

const SIZE: (u32, u32) = (960, 560);
const COLORS: [RGBColor; 5] =
    [RGBColor(31, 119, 180), RGBColor(214, 39, 40), RGBColor(44, 160, 44), RGBColor(148, 103, 189), BLACK];

type Line = (String, Vec<(f64, f64)>);

/// Draws runs; the error is the plot library's.
pub fn svg(title: &str, reports: &[Report]) -> Result<String, String> {
    let mut text = String::new();
    let result = match reports {
        [one] => {
            let lines: Vec<Line> =
                one.ops.iter().map(|op| (op.name.to_owned(), by_percentile(&op.quantiles))).collect();
            let ticks = |nines: &f64| match nines.round() {
                whole if (whole - nines).abs() > 1e-6 => String::new(),
                whole if whole < 3.0 => format!("{:.0}%", 100.0 * (1.0 - 0.1f64.powf(whole))),
                whole => format!("{:.*}%", whole as usize - 2, 100.0 * (1.0 - 0.1f64.powf(whole))),
            };
            draw(&mut text, title, "percentile", &lines, &ticks)
        }
        runs => {
            let line = |name: &str, of: fn(&Report) -> f64| -> Line {
                (name.to_owned(), runs.iter().map(|run| (run.total.per_second, of(run))).collect())
            };
            let lines = [
                line("p50", |run| run.total.p50_us),
                line("p99", |run| run.total.p99_us),
                line("p99.9", |run| run.total.p999_us),
            ];
            draw(&mut text, title, "operations per second", &lines, &|x: &f64| format!("{x:.0}"))
        }
    };
    result.map(|()| text).map_err(|error| error.to_string())
}

/// One unit to the right is one nine more.
fn by_percentile(quantiles: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let points = quantiles.iter().filter(|(quantile, _)| *quantile < 1.0);
    points.map(|(quantile, micros)| (-(1.0 - quantile).log10(), *micros)).collect()
}

fn draw(
    text: &mut String,
    title: &str,
    x_name: &str,
    lines: &[Line],
    ticks: &dyn Fn(&f64) -> String,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let right = points().map(|(x, _)| x).fold(1.0, f64::max) * 1.05;
    let top = points().map(|(_, y)| y).fold(10.0, f64::max) * 4.0;
    let bottom = points().map(|(_, y)| y).fold(top, f64::min).max(0.1) / 1.5;
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(0.0..right, (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(240, 240, 240))
        .x_desc(x_name)
        .y_desc("latency, us")
        .x_label_formatter(ticks)
        .y_label_formatter(&|y| if *y < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") })
        .draw()?;
    for ((name, points), color) in lines.iter().zip(COLORS.iter().cycle()) {
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(3))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(RGBColor(180, 180, 180))
        .draw()?;
    root.present()?;
    Ok(())
}
