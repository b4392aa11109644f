//! Line charts as SVG: one, or several panels in a grid. Shared by `quorate bench` and `cargo xtask figures`.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const COLORS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    BLACK,
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
];
const GREY: RGBColor = RGBColor(120, 120, 120);

/// The vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From 0 to a top, or to a little more than the highest point. What is higher leaves the chart.
    Linear(Option<f64>),
    /// Logarithmic, around all points; those at 0 are drawn at the bottom.
    Log,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// As the legend spells it.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether each point has a dot.
    pub dots: bool,
}

/// One panel.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// What is to the right.
    pub x_name: String,
    /// What is up.
    pub y_name: String,
    /// The horizontal axis; `None`: from 0 to a little more than the rightmost point.
    pub x: Option<(f64, f64)>,
    /// The vertical axis.
    pub scale: Scale,
    /// In the order of their colours.
    pub lines: Vec<Line>,
    /// Vertical lines with a word.
    pub marks: Vec<(f64, String)>,
    /// Whether the legend is at the right instead of the left.
    pub legend_right: bool,
    /// How values of the horizontal axis are written.
    pub x_ticks: fn(&f64) -> String,
}

impl Chart {
    /// A panel without lines.
    pub fn new(title: &str, x_name: &str, y_name: &str, scale: Scale) -> Chart {
        let x_ticks = |x: &f64| number(*x);
        let [title, x_name, y_name] = [title, x_name, y_name].map(str::to_owned);
        Chart {
            title,
            x_name,
            y_name,
            x: None,
            scale,
            lines: Vec::new(),
            marks: Vec::new(),
            legend_right: false,
            x_ticks,
        }
    }

    /// One more line.
    pub fn line(mut self, name: &str, points: Vec<(f64, f64)>, dots: bool) -> Chart {
        self.lines.push(Line { name: name.to_owned(), points, dots });
        self
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 10.0 => format!("{value:.0}"),
        _ => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// Draws panels of one size, in rows; the error is the plot library's.
pub fn svg(charts: &[Chart], columns: usize, size: (u32, u32)) -> Result<String, String> {
    let columns = columns.clamp(1, charts.len().max(1));
    let rows = charts.len().div_ceil(columns);
    let mut text = String::new();
    let whole = (size.0 * columns as u32, size.1 * rows as u32);
    let mut paint = || -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(&mut text, whole).into_drawing_area();
        root.fill(&WHITE)?;
        for (area, chart) in root.split_evenly((rows, columns)).iter().zip(charts) {
            panel(area, chart)?;
        }
        root.present()?;
        Ok(())
    };
    paint().map_err(|error| error.to_string())?;
    Ok(text)
}

type Area<'a, 'b> = DrawingArea<SVGBackend<'a>, Shift>;
type Painted = Result<(), Box<dyn std::error::Error>>;

fn panel(area: &Area<'_, '_>, chart: &Chart) -> Painted {
    let right = chart.points().map(|(x, _)| x).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let (left, right) = chart.x.unwrap_or((0.0, right));
    let highest = chart.points().map(|(_, y)| y).fold(f64::MIN_POSITIVE, f64::max);
    let mut builder = ChartBuilder::on(area);
    builder.caption(&chart.title, ("sans-serif", 16)).margin(12).x_label_area_size(42).y_label_area_size(66);
    match chart.scale {
        Scale::Linear(top) => {
            let top = top.unwrap_or(highest * 1.1);
            finish(&mut builder.build_cartesian_2d(left..right, 0.0..top)?, chart, (left, right), (0.0, top))
        }
        Scale::Log => {
            let top = highest.max(10.0) * 4.0;
            let lowest = chart.points().map(|(_, y)| y).filter(|y| *y > 0.0).fold(top, f64::min);
            let bottom = lowest.max(1e-3) / 1.5;
            let mut context = builder.build_cartesian_2d(left..right, (bottom..top).log_scale())?;
            finish(&mut context, chart, (left, right), (bottom, top))
        }
    }
}

fn finish<'a, Y>(
    context: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>,
    chart: &Chart,
    (left, right): (f64, f64),
    (bottom, top): (f64, f64),
) -> Painted
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    context
        .configure_mesh()
        .light_line_style(RGBColor(244, 244, 244))
        .x_desc(chart.x_name.as_str())
        .y_desc(chart.y_name.as_str())
        .x_label_formatter(&chart.x_ticks)
        .y_label_formatter(&|y| number(*y))
        .draw()?;
    for (index, (x, word)) in chart.marks.iter().enumerate() {
        context.draw_series([PathElement::new([(*x, bottom), (*x, top)], GREY.stroke_width(1))])?;
        // One below the other, so that they do not cover each other.
        let height = context.plotting_area().dim_in_pixel().1 as i32;
        let offset = EmptyElement::at((*x, top));
        let text = Text::new(
            word.clone(),
            (4, 4 + 14 * index as i32 % height.max(1)),
            ("sans-serif", 12).into_font(),
        );
        context.draw_series([offset + text])?;
    }
    for (line, color) in chart.lines.iter().zip(COLORS.iter().cycle()) {
        let inside = line.points.iter().filter(|(x, _)| (left..=right).contains(x));
        let points = inside.map(|(x, y)| (*x, y.clamp(bottom, top)));
        let size = if line.dots { 3 } else { 0 };
        let series = LineSeries::new(points, color.stroke_width(2)).point_size(size);
        context
            .draw_series(series)?
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    if chart.lines.len() > 1 {
        context
            .configure_series_labels()
            .position(match chart.legend_right {
                true => SeriesLabelPosition::UpperRight,
                false => SeriesLabelPosition::UpperLeft,
            })
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(180, 180, 180))
            .draw()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_line_and_mark_is_drawn_and_nothing_outside() {
        let mut first = Chart::new("first", "x", "y", Scale::Linear(Some(5.0)))
            .line("one", vec![(0.0, 1.0), (1.0, 100.0)], true)
            .line("two", vec![(0.0, 2.0), (1.0, 3.0)], false);
        first.marks.push((0.5, "half".to_owned()));
        let second =
            Chart::new("second", "x", "y", Scale::Log).line("zero", vec![(1.0, 0.0), (2.0, 7.0)], true);
        let text = svg(&[first, second], 2, (400, 300)).unwrap();
        for word in ["first", "second", "one", "two", "half"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(text.contains("width=\"800\" height=\"300\""));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
