//! What many figures are drawn as.

use quorate_bench::chart::{Chart, Scale};

use super::grid::{Data, Figure};

/// A chart whose legend is beside it.
pub fn right(title: &str, x: &str, y: &str, scale: Scale) -> Chart {
    let mut chart = Chart::new(title, x, y, scale);
    chart.legend_right = true;
    chart
}

/// A line for each of what is compared, at the points with these keys, over a dimension of numbers; over its logarithm
/// to base 2, if `log`.
pub fn lines(
    data: &Data,
    figure: &Figure,
    names: &[&str],
    (at, dim, log): (&[(&str, &str)], &str, bool),
    number: &str,
    chart: Chart,
) -> Chart {
    names.iter().fold(chart, |chart, name| {
        let keys = [&[(figure.dims[0], *name)], at].concat();
        let points = data.line(figure, &keys, dim, number).into_iter();
        chart.line(name, points.map(|(x, y)| (if log { x.log2() } else { x }, y)).collect(), true)
    })
}

/// A line for each of what is compared, of one number against another, along a dimension of numbers.
pub fn against(
    data: &Data,
    figure: &Figure,
    names: &[&str],
    (at, dim): (&[(&str, &str)], &str),
    numbers: [&str; 2],
    chart: Chart,
) -> Chart {
    names.iter().fold(chart, |chart, name| {
        let keys = [&[(figure.dims[0], *name)], at].concat();
        let [x, y] = numbers.map(|number| data.line(figure, &keys, dim, number));
        chart.line(name, x.iter().zip(&y).map(|((_, x), (_, y))| (*x, *y)).collect(), true)
    })
}

/// Bars: groups of a dimension, one bar each for some of what is compared.
pub fn bars(
    data: &Data,
    figure: &Figure,
    names: &[&str],
    (at, dim, groups): (&[(&str, &str)], &str, &[&str]),
    number: &str,
    chart: Chart,
) -> Chart {
    names.iter().fold(chart.groups(groups), |chart, name| {
        let value = |(at_group, group): (usize, &&str)| {
            let keys = [&[(figure.dims[0], *name), (dim, *group)], at].concat();
            Some((at_group as f64, data.number(figure, &keys, number)?))
        };
        chart.line(name, groups.iter().enumerate().filter_map(value).collect(), false)
    })
}
