//! Conditions on Bodega's figures that no operator says.

use super::FALLING;
use crate::bodega::{
    BODEGA, EARLIER, FIG8, FIG8_ALL, FIG11, FIG12, FIG15, FIG16, HEADLINE, MULTIPAXOS, PQR, PQR_LEASES,
    QUORUM_LEASES,
};
use crate::instrument::grid::{Data, digits};

fn list(values: &[f64]) -> String {
    values.iter().map(|value| digits(*value)).collect::<Vec<_>>().join(", ")
}

pub fn both_ends(data: &Data) -> Option<(bool, String)> {
    let (mut holds, mut told) = (true, Vec::new());
    for setup in ["1000 keys, 50 clients", "1 key, 5 clients"] {
        for average in ["local", "all_alike", "all_weighted"] {
            for writes in ["1", "10"] {
                let ratio = |name: &&str| {
                    let keys =
                        [("protocol", *name), ("setup", setup), ("c_ms", "1"), ("writes_percent", writes)];
                    data.number(&HEADLINE, &keys, average)
                };
                let all = EARLIER.iter().map(ratio).collect::<Option<Vec<_>>>()?;
                let (least, most) =
                    all.iter().fold((f64::MAX, 0.0f64), |(low, high), it| (low.min(*it), high.max(*it)));
                if setup.starts_with("1000") && average == "local" {
                    holds &= least >= 0.8 * 5.6 && most >= 0.8 * 13.1;
                }
                let average = average.replace('_', " ");
                told.push(format!(
                    "{setup}, {average}, {writes}% writes: {} to {}",
                    digits(least),
                    digits(most)
                ));
            }
        }
    }
    Some((holds, told.join("; ")))
}

/// Mean throughput at a place.
fn rate(data: &Data, cluster: &str, place: &str, percent: &str, name: &str) -> Option<f64> {
    let keys = [("protocol", name), ("cluster", cluster), ("place", place), ("writes_percent", percent)];
    let all = data.values(&FIG8, &keys, "operations");
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

pub fn turned(data: &Data) -> Option<(bool, String)> {
    let names: Vec<_> = [&FALLING[..], &[PQR_LEASES]].concat();
    let (mut pairs, mut turned) = (0, 0);
    for percent in ["0", "1", "10"] {
        for place in ["leader", "responder", "other"] {
            for (at, one) in names.iter().enumerate() {
                for other in &names[at + 1..] {
                    let ratio = |cluster| {
                        Some(
                            rate(data, cluster, place, percent, one)?
                                / rate(data, cluster, place, percent, other)?,
                        )
                    };
                    let (geo, wan) = (ratio("GEO")?, ratio("WAN")?);
                    let apart = |ratio: f64| !(0.9..=1.1).contains(&ratio);
                    pairs += 1;
                    turned += u32::from(apart(geo) && apart(wan) && (geo > 1.0) != (wan > 1.0));
                }
            }
        }
    }
    Some((turned * 20 <= pairs, format!("{turned} of {pairs} orders are turned round")))
}

pub fn pqr_elsewhere(data: &Data) -> Option<(bool, String)> {
    let column = FIG8.column("normalized");
    let points = data.points(&FIG8).into_iter();
    let mine =
        points.filter(|point| [PQR, PQR_LEASES].contains(&point.keys[0].as_str()) && point.keys[4] != "JP");
    let all: Vec<_> = mine.filter_map(|point| Some((point.cells[column]?.value, point.keys))).collect();
    let (most, at) = all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((most <= 1.05, format!("at most {}: {}", digits(most), at.join(", "))))
}

pub fn ranked(data: &Data) -> Option<(bool, String)> {
    let keys = [("protocol", MULTIPAXOS), ("cluster", "WAN"), ("writes_percent", "10")];
    let of = |number| data.values(&FIG8, &keys, number);
    let (far, medians) = (of("l"), of("read_p50"));
    let pairs = || (0..far.len()).flat_map(|a| (0..far.len()).map(move |b| (a, b)));
    let holds = pairs().filter(|(a, b)| far[*a] < far[*b]).all(|(a, b)| medians[a] < medians[b]);
    (!far.is_empty()).then(|| (holds, format!("l {} ms, medians {} ms", list(&far), list(&medians))))
}

/// Places in the order of values, from 0; means of equal ones.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
    let equal = |value: f64| values.iter().filter(|other| **other == value).count() as f64;
    values.iter().map(|value| below(*value) + (equal(*value) - 1.0) / 2.0).collect()
}

fn spearman(points: &[(f64, f64)]) -> f64 {
    let (x, y): (Vec<_>, Vec<_>) = points.iter().copied().unzip();
    let (x, y, middle) = (ranks(&x), ranks(&y), (points.len() as f64 - 1.0) / 2.0);
    let product =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum::<f64>();
    // What does not vary goes with nothing.
    product(&x, &y) / (product(&x, &x) * product(&y, &y)).sqrt().max(f64::MIN_POSITIVE)
}

pub fn correlated(data: &Data) -> Option<(bool, String)> {
    let of = |name: &&str| {
        let points = data.line(&FIG11, &[("protocol", name)], "writes_percent", "operations");
        (points.len() > 2).then(|| spearman(&points))
    };
    let all = FALLING.iter().map(of).collect::<Option<Vec<_>>>()?;
    let told = FALLING.iter().zip(&all).map(|(name, value)| format!("{name} {}", digits(*value)));
    Some((all.iter().all(|value| *value <= -0.9), told.collect::<Vec<_>>().join(", ")))
}

pub fn as_figure_8(data: &Data) -> Option<(bool, String)> {
    let mut furthest = 0.0f64;
    for name in FALLING.iter().chain([&PQR_LEASES]) {
        for percent in ["1", "10"] {
            let keys = [("protocol", *name), ("writes_percent", percent)];
            let here = data.number(&FIG11, &keys, "operations")?;
            let there = data.number(&FIG8_ALL, &[&keys[..], &[("cluster", "WAN")]].concat(), "operations")?;
            furthest = furthest.max((here / there - 1.0).abs());
        }
    }
    Some((furthest <= 0.05, format!("at most {} apart", digits(furthest))))
}

/// Below the size at which an interface is full, throughput stays; above, it falls.
pub fn knee(data: &Data, below: bool) -> Option<(bool, String)> {
    let shares = data.points(&FIG12).into_iter().filter_map(|point| {
        Some((point.keys[1].parse::<f64>().ok()?, point.cells[FIG12.column("share_of_an_interface")]?.value))
    });
    // A share of the whole at a size: so large a size would fill it.
    let full = shares.map(|(size, share)| size / share).reduce(f64::min)?;
    let (mut holds, mut told) = (true, Vec::new());
    for name in FALLING.iter().chain([&PQR_LEASES]) {
        let all = data.line(&FIG12, &[("protocol", name)], "value_bytes", "operations");
        let smallest = all.first()?.1;
        let inside = |size: f64| if below { size <= full / 2.0 } else { size >= full };
        let chosen: Vec<_> =
            all.iter().filter(|(size, _)| inside(*size)).map(|(_, rate)| rate / smallest).collect();
        holds &= match below {
            true => chosen.iter().all(|ratio| (0.9..=1.1).contains(ratio)),
            false => chosen.len() > 1 && chosen.windows(2).all(|pair| pair[1] < pair[0]),
        };
        let told_at = if below { chosen.iter().copied().reduce(f64::min) } else { chosen.last().copied() };
        told.push(format!("{name} {}", digits(told_at?)));
    }
    let what = if below { "least ÷ smallest size's" } else { "largest ÷ smallest size's" };
    Some((holds, format!("full at {} KiB; {what}: {}", digits(full / 1024.0), told.join(", "))))
}

/// Never lower by more than chance, and higher in the end.
pub fn climbs(points: Vec<(f64, f64)>) -> Option<(bool, String)> {
    let values: Vec<_> = points.into_iter().map(|(_, value)| value).collect();
    let (first, last) = (*values.first()?, *values.last()?);
    let holds = values.windows(2).all(|pair| pair[1] >= 0.99 * pair[0]) && last >= 1.02 * first;
    Some((holds, format!("{} ms", list(&values))))
}

pub fn mixed(data: &Data, number: &str) -> Option<(bool, String)> {
    let keys = [("roster", "set as a range"), ("cluster", "WAN")];
    let all = data.line(&FIG15, &keys, "covered_percent", number);
    let (first, last) = (all.first()?.1, all.last()?.1);
    let apart =
        all.iter().map(|(x, y)| (y / (first + x / 100.0 * (last - first)) - 1.0).abs()).fold(0.0, f64::max);
    let values: Vec<_> = all.iter().map(|(_, y)| *y).collect();
    Some((apart <= 0.1, format!("{} ms, at most {} apart from the mix", list(&values), digits(apart))))
}

pub fn sustained(data: &Data) -> Option<(bool, String)> {
    let ratio = |mix: &str| {
        let of = |name| {
            let keys = [("protocol", name), ("scenario", "Uniform"), ("workload", mix), ("cluster", "WAN")];
            data.number(&FIG16, &keys, "operations")
        };
        Some(of(BODEGA)? / of(QUORUM_LEASES)?)
    };
    let all = ["C", "B", "F", "A"].map(ratio).into_iter().collect::<Option<Vec<_>>>()?;
    let holds = all.windows(2).take(2).all(|pair| pair[1] >= 0.99 * pair[0]);
    Some((holds, format!("C, B, F, A: {}", list(&all))))
}
