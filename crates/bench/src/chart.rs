//! Charts of lines and bars as SVG: one, or several panels in a grid. Shared by `quorate bench` and `cargo xtask
//! figures`.

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
    /// From 0 to a top, or to a little more than the highest point. What is higher is marked at the edge.
    Linear(Option<f64>),
    /// Logarithmic, around all points; those at 0 are drawn at the bottom.
    Log,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// As the legend spells it.
    pub name: String,
    /// From left to right; a line is broken where there is no value (NaN).
    pub points: Vec<(f64, f64)>,
    /// Whether each point has a dot.
    pub dots: bool,
    /// Lowest and highest value at some places.
    pub spread: Vec<(f64, f64, f64)>,
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
    /// The horizontal axis; `None`: the points, and 0 if it is not far from them.
    pub x: Option<(f64, f64)>,
    /// The vertical axis.
    pub scale: Scale,
    /// In the order of their colours.
    pub lines: Vec<Line>,
    /// Bars instead of lines: what each group of them is; a point's place is the number of its group, from 0.
    pub groups: Vec<String>,
    /// Values that a paper prints, beside ours.
    pub paper: Vec<(f64, f64)>,
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
            groups: Vec::new(),
            paper: Vec::new(),
            marks: Vec::new(),
            legend_right: false,
            x_ticks,
        }
    }

    /// One more line.
    pub fn line(mut self, name: &str, points: Vec<(f64, f64)>, dots: bool) -> Chart {
        self.lines.push(Line { name: name.to_owned(), points, dots, spread: Vec::new() });
        self
    }

    /// The lowest and the highest value at some places of the last line.
    pub fn spread(mut self, spread: Vec<(f64, f64, f64)>) -> Chart {
        if let Some(line) = self.lines.last_mut() {
            line.spread = spread;
        }
        self
    }

    /// Bars in groups of these names.
    pub fn groups(mut self, names: &[&str]) -> Chart {
        self.groups = names.iter().map(ToString::to_string).collect();
        self
    }

    /// Values that a paper prints.
    pub fn paper(mut self, points: Vec<(f64, f64)>) -> Chart {
        self.paper = points;
        self
    }

    /// Everything that must fit.
    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let lines = self.lines.iter().flat_map(|line| {
            line.points.iter().copied().chain(line.spread.iter().map(|(x, _, high)| (*x, *high)))
        });
        lines.chain(self.paper.iter().copied()).filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    /// The horizontal axis. A legend on the right has room of its own.
    fn span(&self) -> (f64, f64) {
        let room = if self.legend_right { 1.0 } else { 0.0 };
        if !self.groups.is_empty() {
            return (-0.5, self.groups.len() as f64 * (1.0 + room) - 0.5);
        }
        let (low, high) = self
            .points()
            .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), (x, _)| (low.min(x), high.max(x)));
        let width = (high - low).max(f64::MIN_POSITIVE);
        let (left, right) =
            if low > 0.3 * high { (low - 0.05 * width, high + 0.05 * width) } else { (0.0, high * 1.05) };
        self.x.unwrap_or((left, right + room * (right - left)))
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
    let (left, right) = chart.span();
    let highest = chart.points().map(|(_, y)| y).fold(f64::MIN_POSITIVE, f64::max);
    let mut builder = ChartBuilder::on(area);
    builder.caption(&chart.title, ("sans-serif", 16)).margin(12).x_label_area_size(42).y_label_area_size(66);
    match chart.scale {
        Scale::Linear(top) => {
            // Bars leave no corner free for the legend.
            let top = top.unwrap_or(highest * if chart.groups.is_empty() { 1.1 } else { 1.6 });
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
        .x_label_formatter(&|x| match chart.groups.get(x.round().max(0.0) as usize) {
            Some(group) => group.clone(),
            None if chart.groups.is_empty() => (chart.x_ticks)(x),
            None => String::new(),
        })
        .x_labels(if chart.groups.is_empty() { 10 } else { (right - left) as usize })
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
    let width = 0.8 / chart.lines.len().max(1) as f64;
    for (index, (line, color)) in chart.lines.iter().zip(COLORS.iter().cycle()).enumerate() {
        // Bars of a group stand side by side.
        let shift = match chart.groups.is_empty() {
            true => 0.0,
            false => (index as f64 - (chart.lines.len() as f64 - 1.0) / 2.0) * width,
        };
        let inside: Vec<_> =
            line.points.iter().filter(|(x, _)| (left..=right).contains(x)).copied().collect();
        if !chart.groups.is_empty() {
            let bars = inside.iter().filter(|(_, y)| y.is_finite()).map(|(x, y)| {
                let (x, y) = (x + shift, y.clamp(bottom, top));
                Rectangle::new([(x - width / 2.0, bottom), (x + width / 2.0, y)], color.mix(0.8).filled())
            });
            context.draw_series(bars)?;
        } else {
            // No line through what is missing.
            for piece in inside.split(|(_, y)| y.is_nan()).filter(|piece| !piece.is_empty()) {
                let points = piece.iter().map(|(x, y)| (*x, y.clamp(bottom, top)));
                let size = if line.dots { 3 } else { 0 };
                context.draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(size))?;
            }
        }
        let whisker = |(x, low, high): &(f64, f64, f64)| {
            let ends = [*low, *high].map(|y| (x + shift, y.clamp(bottom, top)));
            PathElement::new(ends, color.stroke_width(1))
        };
        context.draw_series(line.spread.iter().map(whisker))?;
        for (x, y) in clipped(&inside, top) {
            let mark = EmptyElement::at((x + shift, top))
                + TriangleMarker::new((0, 4), 5, color.filled())
                + Text::new(number(y), (6, 2), ("sans-serif", 11).into_font().color(color));
            context.draw_series([mark])?;
        }
        let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2));
        context.draw_series(LineSeries::new(None, color))?.label(line.name.as_str()).legend(key);
    }
    if !chart.paper.is_empty() {
        let square =
            |(x, y): (i32, i32)| Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], BLACK.stroke_width(2));
        let one = |(x, y): &(f64, f64)| {
            EmptyElement::at((*x, y.clamp(bottom, top)))
                + Rectangle::new([(-4, -4), (4, 4)], BLACK.stroke_width(2))
        };
        context
            .draw_series(chart.paper.iter().map(one))?
            .label("the paper")
            .legend(move |(x, y)| square((x + 9, y)));
    }
    if chart.lines.len() > 1 || !chart.paper.is_empty() {
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

/// The highest point of each stretch that leaves the chart.
fn clipped(points: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let above = points.split(|(_, y)| y.is_nan() || *y <= top);
    above.filter_map(|piece| piece.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))).collect()
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
    #[test]
    fn what_leaves_the_chart_is_marked_with_its_height_and_what_is_missing_is_not_drawn() {
        let points =
            vec![(0.0, 1.0), (1.0, 44.0), (2.0, 50.0), (3.0, 1.0), (4.0, f64::NAN), (5.0, 1.0), (6.0, 77.0)];
        assert_eq!(clipped(&points, 5.0), [(2.0, 50.0), (6.0, 77.0)]);
        let chart = Chart::new("", "x", "y", Scale::Linear(Some(5.0))).line("one", points, false);
        let text = svg(&[chart], 1, (400, 300)).unwrap();
        assert!(text.contains("\n50\n") && text.contains("\n77\n") && !text.contains("\n44\n"), "{text}");
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn a_legend_on_the_right_covers_no_bar_and_no_line() {
        let mut bars = Chart::new("bars", "x", "y", Scale::Log).groups(&["a", "b"]);
        let mut line =
            Chart::new("line", "x", "y", Scale::Log).line("one", vec![(0.0, 1.0), (10.0, 2.0)], true);
        assert_eq!((bars.span(), line.span()), ((-0.5, 1.5), (0.0, 10.5)));
        (bars.legend_right, line.legend_right) = (true, true);
        assert!(bars.span().1 >= 1.6 * 1.5 && line.span().1 >= 1.6 * 10.0);
    }

    #[test]
    fn bars_stand_in_their_groups_beside_what_the_paper_has() {
        let chart = Chart::new("", "", "y", Scale::Linear(None))
            .groups(&["few writes", "many writes"])
            .line("one", vec![(0.0, 1.0), (1.0, 2.0)], false)
            .line("two", vec![(0.0, 3.0), (1.0, f64::NAN)], false)
            .spread(vec![(0.0, 2.0, 4.0)])
            .paper(vec![(0.0, 5.0)]);
        assert_eq!(chart.span(), (-0.5, 1.5));
        let text = svg(&[chart], 1, (400, 300)).unwrap();
        for word in ["few writes", "many writes", "one", "two", "the paper"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        // Three bars, the background, and the square of the paper.
        assert!(text.matches("<rect").count() >= 5, "{text}");
    }
}
