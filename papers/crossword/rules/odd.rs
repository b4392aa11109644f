//! Conditions on Crossword's figures that no operator says.

use crate::crossword::*;
use crate::instrument::grid::{Data, Figure, digits};

type Judged = Option<(bool, String)>;

/// Crossword's throughput ÷ another's at every point of a figure where both were measured, with the point.
fn gains(data: &Data, figure: &Figure, other: &str) -> Vec<(f64, String)> {
    let (points, column) = (data.points(figure), figure.column("operations"));
    let of = |name: &str, rest: &[String]| {
        let point = points.iter().find(|point| point.keys[0] == name && point.keys[1..] == *rest)?;
        Some(point.cells[column]?.value)
    };
    let mine = points.iter().filter(|point| point.keys[0] == CROSSWORD);
    let gain = |rest: &[String]| Some((of(CROSSWORD, rest)? / of(other, rest)?, rest.join(", ")));
    mine.filter_map(|point| gain(&point.keys[1..])).collect()
}

fn highest_of(all: Vec<(f64, String)>) -> Option<(f64, String)> {
    all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

pub fn best_everywhere(data: &Data) -> Judged {
    let figures = [&FIG7, &FIG8_SIZES, &FIG8_CLUSTERS, &FIG8_PUTS];
    let others = NAMES.iter().filter(|name| **name != CROSSWORD);
    let all = others.flat_map(|other| {
        let of = |figure| gains(data, figure, other).into_iter();
        figures.into_iter().flat_map(of).map(move |(gain, at)| (gain, format!("÷ {other}, {at}")))
    });
    let (least, at) = all.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((least >= 0.9, format!("least: {} ({at})", digits(least))))
}

/// The most that Crossword gains on another, over all points of Figures 7, 8 and 10.
pub fn highest(other: &'static str, bar: f64) -> impl Fn(&Data) -> Judged {
    move |data| {
        let figures = [&FIG7, &FIG8_SIZES, &FIG8_CLUSTERS, &FIG8_PUTS, &FIG10];
        let all = figures.into_iter().flat_map(|figure| gains(data, figure, other));
        let (most, at) = highest_of(all.collect())?;
        Some((most >= bar, format!("÷ {other} at most {} ({at})", digits(most))))
    }
}

pub fn most_of(data: &Data, figure: &Figure, other: &str, bar: f64) -> Judged {
    let (most, at) = highest_of(gains(data, figure, other))?;
    Some((most >= bar, format!("÷ {other} at most {} ({at})", digits(most))))
}

/// In one of the environments, Crossword gains so much on all of these.
pub fn least_gain(data: &Data, values: &str, others: [&'static str; 2], bar: f64) -> Judged {
    let (mut holds, mut told) = (false, Vec::new());
    for environment in ["regional", "wide-area"] {
        let keys = |name| [("protocol", name), ("environment", environment), ("values", values)];
        let rate = |name| data.number(&FIG7, &keys(name), "operations");
        let all = others.map(|other| Some(rate(CROSSWORD)? / rate(other)?));
        let [one, two] = [all[0]?, all[1]?];
        holds |= one.min(two) >= bar;
        told.push(format!("{environment}: {} and {}", digits(one), digits(two)));
    }
    Some((holds, told.join("; ")))
}

pub fn best_where_mixed(data: &Data) -> Judged {
    let (mut least, mut most) = (f64::MAX, 0.0f64);
    for other in NAMES.iter().filter(|name| **name != CROSSWORD) {
        for (gain, at) in gains(data, &FIG7, other) {
            if at.ends_with("mixed") {
                (least, most) = (least.min(gain), most.max(gain));
            }
        }
    }
    let told = format!("{} to {}", digits(least), digits(most));
    (most > 0.0).then_some((least > 1.0 && most >= 1.68, told))
}

pub fn is_bound(data: &Data) -> Judged {
    let [least, bound] = ["least_cover", "bound"].map(|number| data.values(&FIG4, &[], number));
    let differ = least.iter().zip(&bound).filter(|(least, bound)| least != bound).count();
    (!least.is_empty()).then(|| (differ == 0, format!("{} cases, {differ} differ", least.len())))
}

/// A protocol's throughput by size.
fn by_size(data: &Data, name: &str) -> Vec<(f64, f64)> {
    data.line(&FIG8_SIZES, &[("protocol", name)], "value_bytes", "operations")
}

pub fn is_between(data: &Data) -> Judged {
    let [ours, paxos, shards] = [CROSSWORD, MULTIPAXOS, RSPAXOS].map(|name| by_size(data, name));
    let all = ours.iter().zip(&paxos).zip(&shards).filter(|((ours, _), _)| (1e3..=64e3).contains(&ours.0));
    let gains: Vec<_> = all.map(|((ours, paxos), shards)| (ours.1 / paxos.1.max(shards.1), ours.0)).collect();
    let told = gains.iter().map(|(gain, size)| format!("{} at {size}", digits(*gain))).collect::<Vec<_>>();
    (!gains.is_empty()).then(|| {
        (gains.iter().any(|(gain, _)| *gain > 1.0), format!("÷ the better of both: {}", told.join(", ")))
    })
}

pub fn threshold(data: &Data) -> Judged {
    let [paxos, shards] = [MULTIPAXOS, RSPAXOS].map(|name| by_size(data, name));
    let widths = data.line(&FIG8_SIZES, &[("protocol", CROSSWORD)], "value_bytes", "shards");
    // At the smallest sizes, the two differ by chance.
    let overtakes = paxos.iter().zip(&shards).find(|(paxos, shards)| shards.1 >= 1.02 * paxos.1);
    let leaves = widths.iter().find(|(_, shards)| *shards < 2.5);
    let at = [overtakes.map(|(paxos, _)| paxos.0), leaves.map(|(size, _)| *size)];
    let first = at.into_iter().flatten().reduce(f64::min)?;
    let told = |at: Option<f64>| at.map_or("nowhere".to_owned(), |at| format!("at {at} B"));
    let ours = format!("RSPaxos is 2% above {}, Crossword's c falls below 2.5 {}", told(at[0]), told(at[1]));
    Some(((2e3..=8e3).contains(&first), ours))
}

pub fn longer_quorum(data: &Data) -> Judged {
    let of = |name, number| data.number(&FIG9, &[("protocol", name)], number);
    let longer = of(CROSSWORD, "quorum")? - of(MULTIPAXOS, "quorum")?;
    let share = longer / of(CROSSWORD, "instance")?;
    let ours = format!("{} ms longer, {} of the instance", digits(longer), digits(share));
    Some(((0.0..=0.25).contains(&share), ours))
}

/// The time that the code of so many bytes takes, as a share of a time in virtual milliseconds.
pub fn share_of_encoding(
    data: &Data,
    bytes: &str,
    figure: &Figure,
    keys: &[(&str, &str)],
    number: &str,
) -> Judged {
    let micros = data.number(&TABLE1, &[("value_bytes", bytes)], "time")?;
    let share = micros / 1000.0 / data.number(figure, keys, number)?;
    Some((share < 0.01, format!("{} of it", digits(share))))
}

pub fn of_puts(data: &Data) -> Judged {
    let (mut holds, mut told) = (true, Vec::new());
    for (bytes, values) in [("8", "8 B"), ("131072", "128 KB")] {
        for environment in ["regional", "wide-area"] {
            let keys = [("protocol", CROSSWORD), ("environment", environment), ("values", values)];
            let (below, share) = share_of_encoding(data, bytes, &FIG7, &keys, "put")?;
            holds &= below;
            told.push(format!("{environment}, {values}: {share}"));
        }
    }
    Some((holds, told.join("; ")))
}

pub fn memory(data: &Data) -> Judged {
    let points = data.points(&TABLE1).into_iter();
    let of = |number| TABLE1.column(number);
    let all = points.filter_map(|point| point.cells[of("paper")].and(point.cells[of("memory")]));
    let all: Vec<_> = all.map(|cell| cell.value).collect();
    let told = all.iter().map(|value| digits(*value)).collect::<Vec<_>>().join(", ");
    (!all.is_empty()).then(|| (all.iter().all(|share| (0.32..=0.48).contains(share)), told))
}

/// A protocol's operations a second and mean latency, by the number of clients.
fn curve(data: &Data, name: &str) -> Vec<(f64, f64)> {
    let of = |number| data.line(&FIG15, &[("protocol", name)], "clients", number).into_iter();
    of("operations").zip(of("mean")).map(|((_, rate), (_, mean))| (rate, mean)).collect()
}

fn most_operations(data: &Data, name: &str) -> Option<f64> {
    curve(data, name).into_iter().map(|(rate, _)| rate).reduce(f64::max)
}

/// Whether the first has more operations a second at most than the second.
pub fn most(data: &Data, one: &str, other: &str) -> Judged {
    let (ours, theirs) = (most_operations(data, one)?, most_operations(data, other)?);
    Some((ours > theirs, format!("{one} {}/s, {other} {}/s", digits(ours), digits(theirs))))
}

pub fn reaches_a_limit(data: &Data, name: &str) -> Judged {
    let curve = curve(data, name);
    let [.., (before, _), (last, _)] = curve[..] else { return None };
    Some((last < 1.1 * before, format!("{name}: × {}", digits(last / before))))
}

/// The mean latencies of all protocols with the clients that give Crossword at most 30% of its most operations, by the
/// number of clients.
fn below_saturation(data: &Data) -> Option<Vec<Vec<(&'static str, f64)>>> {
    let limit = 0.3 * most_operations(data, CROSSWORD)?;
    let names = || NAMES.into_iter().chain([CHAIN]);
    let points = curve(data, CROSSWORD).into_iter().take_while(|(rate, _)| *rate <= limit).count();
    let at = |index: usize| names().map(|name| Some((name, curve(data, name).get(index)?.1))).collect();
    (points > 0).then(|| (0..points).map(at).collect::<Option<Vec<_>>>())?
}

fn told(points: &[Vec<(&'static str, f64)>]) -> String {
    let point = |all: &Vec<(&str, f64)>| {
        all.iter().map(|(name, mean)| format!("{name} {}", digits(*mean))).collect::<Vec<_>>().join(", ")
    };
    format!("{} ms", points.iter().map(point).collect::<Vec<_>>().join("; "))
}

pub fn slowest_below_saturation(data: &Data) -> Judged {
    let points = below_saturation(data)?;
    let chain_is = |all: &Vec<(&str, f64)>| {
        all.iter().max_by(|a, b| a.1.total_cmp(&b.1)).is_some_and(|(name, _)| *name == CHAIN)
    };
    Some((points.iter().all(chain_is), told(&points)))
}

pub fn fastest_below_saturation(data: &Data) -> Judged {
    let points = below_saturation(data)?;
    let is_best = |all: &Vec<(&str, f64)>| {
        let ours = all.iter().find(|(name, _)| *name == CROSSWORD).map_or(f64::MAX, |(_, mean)| *mean);
        all.iter().all(|(_, mean)| ours <= 1.05 * mean)
    };
    Some((points.iter().all(is_best), told(&points)))
}

/// How much faster than Raft's Crossword's transactions are: New-Order, Payment, Delivery, reads.
fn speedups(data: &Data) -> Option<[f64; 4]> {
    let of = |name, number| data.number(&FIG16, &[("system", name)], number);
    let all = ["new_order", "payment", "delivery", "reads"]
        .map(|kind| Some(of(RAFT, kind)? / of(CROSSWORD, kind)?));
    Some([all[0]?, all[1]?, all[2]?, all[3]?])
}

fn list(all: [f64; 4]) -> String {
    let [new_order, payment, delivery, reads] = all.map(digits);
    format!("New-Order {new_order}, Payment {payment}, Delivery {delivery}, reads {reads}")
}

pub fn fastest_writes(data: &Data) -> Judged {
    let all = speedups(data)?;
    Some((all[..3].iter().any(|gain| *gain >= 1.35), list(all)))
}

pub fn reads_gain_less(data: &Data) -> Judged {
    let all = speedups(data)?;
    Some((all[..3].iter().any(|gain| *gain > all[3]), list(all)))
}

pub fn follows_latency(data: &Data) -> Judged {
    let rate = |name| data.number(&FIG16, &[("system", name)], "operations");
    let gain = rate(CROSSWORD)? / rate(RAFT)?;
    let all = speedups(data)?;
    // By the shares of the mix; a mean of latencies.
    let of = |name| {
        let kinds = [("new_order", 0.45), ("payment", 0.43), ("delivery", 0.04), ("reads", 0.08)];
        let part = |(kind, share)| Some(share * data.number(&FIG16, &[("system", name)], kind)?);
        kinds.into_iter().map(part).sum::<Option<f64>>()
    };
    let latency = of(RAFT)? / of(CROSSWORD)?;
    let ours = format!("operations {}, mean latency {}; {}", digits(gain), digits(latency), list(all));
    Some(((gain / latency - 1.0).abs() <= 0.1, ours))
}

pub fn near_best(data: &Data) -> Judged {
    let all = data.values(&CHOOSER, &[], "over_best");
    let near = all.iter().filter(|over| **over <= 1.05).count();
    let worst = all.iter().copied().reduce(f64::max)?;
    let ours = format!("{near} of {}; {} × the best at most", all.len(), digits(worst));
    Some((near as f64 >= 0.95 * all.len() as f64, ours))
}
