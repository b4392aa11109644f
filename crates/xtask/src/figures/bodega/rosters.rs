//! Figures 14 and 15: latency by the choice of responders, and by the share of keys that they respond for.

use quorate_bench::chart::{Chart, Scale};
use quorate_core::Range;

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, BODEGA, LEADER_LEASES};
use super::closed::{self, Closed, KEYS, Seen};
use super::panel;
use super::world::{self, GEO, WAN, World};

const WRITES: f64 = 0.1;
/// In this order sites become responders; the paper does not give one.
const WAN_ORDER: [&str; 4] = ["UT", "MA", "APT", "SC"];
const GEO_ORDER: [&str; 4] = ["OR", "CA", "EU", "JP"];
/// Of the keys.
const COVERED: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Means over all sites with their standard deviations, in ms.
#[derive(Clone, Copy)]
struct Point {
    read: (f64, f64),
    write: (f64, f64),
    rate: f64,
}

impl Point {
    fn of(seen: &Seen) -> Result<Point> {
        let overall = |of| Seen::overall(of).ok_or("no operation ended");
        Ok(Point { read: overall(&seen.reads)?, write: overall(&seen.writes)?, rate: seen.total() })
    }
}

fn told(section: &mut Section, bench: &Bench) {
    section.told(format!("{}.", WAN.told()));
    section.told(format!(
        "{}. The paper shows WAN alone; in our stand-in for it all majorities take the same time.",
        GEO.told()
    ));
    section.told(format!(
        "Figure 8's load with {:.0}% writes. {}. Means and standard deviations over all clients, each site \
         counting alike.",
        100.0 * WRITES,
        closed::told(panel::length(bench))
    ));
}

type Points = Vec<(String, Point)>;

fn show(bench: &Bench, section: &mut Section, what: &str, worlds: &[(&World, &Points, Ticks)]) -> Result<()> {
    let mut charts = Vec::new();
    for (world, points, ticks) in worlds {
        charts.push(one(bench, section, what, (world, points, *ticks))?);
    }
    let id = section.id.clone();
    bench.plot(section, &format!("{id}.svg"), "Mean latency and standard deviation", &charts, 2)
}

type Ticks = fn(&f64) -> String;

fn one(
    bench: &Bench,
    section: &mut Section,
    what: &str,
    (world, points, ticks): (&World, &Points, Ticks),
) -> Result<Chart> {
    let mut table = Table::new([
        what,
        "read_mean_ms",
        "read_deviation_ms",
        "write_mean_ms",
        "write_deviation_ms",
        "ops_per_s",
    ]);
    for (label, point) in points {
        let ms = |ms: f64| format!("{ms:.2}");
        table.row([
            label.clone(),
            ms(point.read.0),
            ms(point.read.1),
            ms(point.write.0),
            ms(point.write.1),
            format!("{:.0}", point.rate),
        ]);
    }
    let id = section.id.clone();
    bench.csv(section, &format!("{id}-{}.csv", world.name), &table)?;
    let line = |of: fn(&Point) -> f64| {
        points.iter().enumerate().map(|(at, (_, point))| (at as f64, of(point))).collect()
    };
    let mut chart = Chart::new(world.title, what, "ms", Scale::Linear(None));
    (chart.x, chart.x_ticks) = (Some((-0.5, 1.6 * points.len() as f64)), ticks);
    chart.legend_right = true;
    chart = chart.line("reads", line(|point| point.read.0), true).line(
        "writes",
        line(|point| point.write.0),
        true,
    );
    chart = chart.line("reads, deviation", line(|point| point.read.1), true);
    chart = chart.line("writes, deviation", line(|point| point.write.1), true);
    section.tables.push((format!("{} by {what}, 10% writes.", world.title), table));
    Ok(chart)
}

/// A name for each tick.
fn tick(names: &[String], x: f64) -> String {
    let index = (x.fract() == 0.0 && x >= 0.0).then_some(x as usize);
    index.and_then(|index| names.get(index).cloned()).unwrap_or_default()
}

fn names(leader: &str, order: &[&str]) -> Vec<String> {
    std::iter::once(leader.to_owned()).chain(order.iter().map(|name| format!("+{name}"))).collect()
}

fn percents() -> Vec<String> {
    COVERED.iter().map(|share| format!("{:.0}%", 100.0 * share)).collect()
}

/// More and more responders; and the clients whose writes are furthest from their formula.
fn responders(bench: &Bench, world: &World, leader: &str, order: &[&str]) -> Result<(Points, (f64, String))> {
    let (bodega, topology) = (candidates::known(BODEGA), world.topology());
    let sites: Vec<_> = order.iter().map(|name| world.site(name)).collect();
    let (mut points, mut error) = (Vec::new(), (0.0f64, String::new()));
    for (count, name) in names(leader, order).into_iter().enumerate() {
        bench.say(&format!("fig14: {} {name}", world.title))?;
        let responders = &sites[..count];
        let seen = Closed { writes: WRITES, ..Closed::new(world, bodega, responders, panel::length(bench)) }
            .run()?;
        for site in 0..world.sites() {
            let formula = (bodega.formula)(&world.model(&topology, responders, site)).write;
            let apart = closed::mean(&seen.writes[site]).map_or(1.0, |ours| (ours / formula - 1.0).abs());
            if apart >= error.0 {
                error = (apart, format!("{} {name}, clients at {}", world.title, topology.sites()[site]));
            }
        }
        points.push((name, Point::of(&seen)?));
    }
    Ok((points, error))
}

fn means(points: &Points, of: fn(&Point) -> f64) -> Vec<f64> {
    points.iter().map(|(_, point)| of(point)).collect()
}

/// Never lower, and higher in the end.
fn rises(writes: &[f64]) -> bool {
    writes.windows(2).all(|pair| pair[1] >= 0.99 * pair[0]) && writes[writes.len() - 1] > 1.02 * writes[0]
}

/// Figure 14.
pub fn fig14(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig14", "Figure 14: latency against the set of responders");
    told(&mut section, bench);
    let (points, error) = responders(bench, &WAN, "WI", &WAN_ORDER)?;
    let (far, far_error) = responders(bench, &GEO, "VA", &GEO_ORDER)?;
    let error = if far_error.0 > error.0 { far_error } else { error };
    show(
        bench,
        &mut section,
        "responders",
        &[
            (&WAN, &points, |x| tick(&names("WI", &WAN_ORDER), *x)),
            (&GEO, &far, |x| tick(&names("VA", &GEO_ORDER), *x)),
        ],
    )?;
    let (reads, writes) = (means(&points, |point| point.read.0), means(&points, |point| point.write.0));
    let (far_reads, far_writes) = (means(&far, |point| point.read.0), means(&far, |point| point.write.0));
    let falls = |reads: &[f64]| reads.windows(2).all(|pair| pair[1] < pair[0]);
    let last = reads[reads.len() - 1] / reads[0];
    section.judge(
        "B-14.1",
        Verdict::when(falls(&reads) && falls(&far_reads) && last <= 0.2),
        format!(
            "WAN {} ms, all five {:.0}% of the leader alone; GEO {} ms",
            list(&reads),
            100.0 * last,
            list(&far_reads)
        ),
        "rule: lower with each responder, in both; in WAN at most 20% with all five",
    );
    section.judge(
        "B-14.2",
        Verdict::when(rises(&far_writes)),
        format!("GEO {} ms; WAN {} ms", list(&far_writes), list(&writes)),
        "rule: in GEO never lower, and higher in the end. The stand-in for WAN (Figure 7) cannot show it: \
         there the leader's third node is as far away as its furthest, so a majority that has all responders \
         takes what any takes, 40 ms",
    );
    section.judge(
        "B-T1.12",
        Verdict::when(error.0 <= 0.1),
        format!(
            "mean writes are l plus the time of a majority that has the responders, within {:.1}%",
            100.0 * error.0
        ),
        format!("rule: within 10% for each set and each site of both clusters; furthest: {}", error.1),
    );
    judge_empty(bench, &mut section, points[0].1)?;
    Ok(section)
}

/// Without responders Bodega is what leader leases are: B-A.6.
fn judge_empty(bench: &Bench, section: &mut Section, bodega: Point) -> Result<()> {
    let leases = candidates::known(LEADER_LEASES);
    bench.say("fig14: Leader Leases")?;
    let seen = Closed { writes: WRITES, ..Closed::new(&WAN, leases, &[], panel::length(bench)) }.run()?;
    let leases = Point::of(&seen)?;
    let ratios = [bodega.read.0 / leases.read.0, bodega.write.0 / leases.write.0, bodega.rate / leases.rate];
    section.judge(
        "B-A.6",
        Verdict::when(ratios.iter().all(|ratio| (0.9..=1.1).contains(ratio))),
        format!(
            "without responders, ÷ Leader Leases: reads {:.3}, writes {:.3}, throughput {:.3}",
            ratios[0], ratios[1], ratios[2]
        ),
        "rule: all within 10%",
    );
    Ok(())
}

fn list(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(", ")
}

/// Figure 15.
pub fn fig15(bench: &Bench) -> Result<Section> {
    let mut section =
        Section::new("fig15", "Figure 15: latency against the share of keys that the roster covers");
    told(&mut section, bench);
    section.told(
        "Covered are the first keys in their order, one range, set with `quorate roster set`'s request before \
         the load begins; the paper does not give the shares.",
    );
    let points = coverage(bench, &WAN)?;
    let far = coverage(bench, &GEO)?;
    let ticks: Ticks = |x| tick(&percents(), *x);
    show(bench, &mut section, "keys covered", &[(&WAN, &points, ticks), (&GEO, &far, ticks)])?;
    let (reads, writes) = (means(&points, |point| point.read.0), means(&points, |point| point.write.0));
    let (far_reads, far_writes) = (means(&far, |point| point.read.0), means(&far, |point| point.write.0));
    let mix = |values: &[f64]| {
        let ends = (values[0], values[values.len() - 1]);
        let apart = |(share, value): (f64, &f64)| (value / (ends.0 + share * (ends.1 - ends.0)) - 1.0).abs();
        COVERED.into_iter().zip(values).map(apart).fold(0.0, f64::max)
    };
    section.judge(
        "B-15.1",
        Verdict::when(
            [&reads, &far_reads]
                .iter()
                .all(|reads| reads.windows(2).all(|pair| pair[1] < pair[0]) && mix(reads) <= 0.1),
        ),
        format!(
            "WAN {} ms, within {:.1}% of the mix of the ends; GEO {} ms, within {:.1}%",
            list(&reads),
            100.0 * mix(&reads),
            list(&far_reads),
            100.0 * mix(&far_reads)
        ),
        "rule: lower with each step, and within 10% of the linear mix of 0% and 100%, in both",
    );
    section.judge(
        "B-15.2",
        Verdict::when(rises(&far_writes) && mix(&far_writes) <= 0.1),
        format!(
            "GEO {} ms, within {:.1}% of the mix of the ends; WAN {} ms",
            list(&far_writes),
            100.0 * mix(&far_writes),
            list(&writes)
        ),
        "rule: in GEO never lower, higher in the end, within 10% of the linear mix; see B-14.2 for WAN",
    );
    bench.say("fig15: the ends")?;
    let (bodega, length, responders) = (candidates::known(BODEGA), panel::length(bench), WAN.responders());
    let end = |responders: &[usize]| {
        Point::of(&Closed { writes: WRITES, ..Closed::new(&WAN, bodega, responders, length) }.run()?)
    };
    let (none, all) = (end(&[])?, end(&responders)?);
    let apart = [
        points[0].1.read.0 / none.read.0,
        points[0].1.write.0 / none.write.0,
        points[points.len() - 1].1.read.0 / all.read.0,
        points[points.len() - 1].1.write.0 / all.write.0,
    ];
    let furthest = apart.iter().map(|ratio| (ratio - 1.0).abs()).fold(0.0, f64::max);
    section.judge(
        "B-15.3",
        Verdict::when(furthest <= 0.1),
        format!("both ends within {:.1}% of runs whose roster is in the settings", 100.0 * furthest),
        "rule: reads and writes within 10%",
    );
    Ok(section)
}

/// More and more keys that the responders of Figure 7 respond for.
fn coverage(bench: &Bench, world: &World) -> Result<Points> {
    let (bodega, responders) = (candidates::known(BODEGA), closed::nodes(&world.responders()));
    let mut points = Vec::new();
    for (share, label) in COVERED.into_iter().zip(percents()) {
        bench.say(&format!("fig15: {} {label}", world.title))?;
        let key = |number| bytes::Bytes::from(world::key(number));
        let range = Range { from: key(0), to: Some(key((share * KEYS as f64) as u64)), responders };
        let ranges = if share > 0.0 { vec![range] } else { Vec::new() };
        let new = Closed::new(world, bodega, &[], panel::length(bench));
        let seen = Closed { writes: WRITES, ranges: Some(ranges), ..new }.run()?;
        points.push((label, Point::of(&seen)?));
    }
    Ok(points)
}
