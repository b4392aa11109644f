//! Figure 8: throughput and latency by the site of the clients, at three shares of writes.

use quorate_bench::chart::{Chart, Scale};
use quorate_bench::{Choice, Keys};
use quorate_core::Random;
use quorate_sim::experiment::{Ask, Capacity, Clients, Load};

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{ALL, Candidate, LEADER_LEASES};
use super::world::{self, GEO, MS, NEAR, READY, WAN, World};

const CLIENTS_PER_SITE: usize = 10;
const KEYS: u64 = 1000;
const VALUE: usize = 128;
const WRITES: [f64; 3] = [0.0, 0.01, 0.1];
/// Clients are at work for so long before anything counts.
const WARM_UP: u64 = 2_000 * MS;
/// What a message and an input cost a node, and what its interface sends: 1 Gbit/s, as in the paper.
const CAPACITY: Capacity = Capacity { per_input: 5_000, per_message: 5_000, bandwidth: 125_000_000 };

/// What the clients of a site saw; latencies in ms, none where there was no such operation.
#[derive(Clone, Copy, Debug)]
struct Seen {
    rate: f64,
    read: Option<(f64, f64)>,
    write: Option<(f64, f64)>,
}

/// One cluster at one share of writes: by protocol, then by site.
struct Panel<'a> {
    world: &'a World,
    writes: f64,
    seen: Vec<Vec<Seen>>,
}

impl Panel<'_> {
    fn of(&self, name: &str) -> Option<&[Seen]> {
        let index = ALL.iter().position(|candidate| candidate.name == name)?;
        self.seen.get(index).map(Vec::as_slice)
    }
}

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let length = if bench.quick { 2_000 * MS } else { 10_000 * MS };
    let mut section = Section::new("fig8", "Figure 8: throughput and latency by site");
    for world in [GEO, WAN] {
        section.told(format!("{}.", world.told()));
    }
    section.told(format!(
        "Load: {CLIENTS_PER_SITE} clients at each of the five sites, in closed loops without thinking; {KEYS} keys, \
         uniform; values of {VALUE} B; {} s are counted after {} s. A node takes 5 µs for each input and each message \
         that it sends, and its interface sends 1 Gbit/s; disks take no time (the paper does not say whether it \
         syncs).",
        length / 1000 / MS,
        WARM_UP / 1000 / MS
    ));
    section.told("Every history is checked: it is linearizable.");
    let (geo, wan) = (GEO, WAN);
    let mut panels = Vec::new();
    for world in [&geo, &wan] {
        for writes in WRITES {
            let mut panel = Panel { world, writes, seen: Vec::new() };
            for candidate in ALL {
                panel.seen.push(measure(candidate, world, writes, length)?);
                bench.say(&format!(
                    "fig8: {}, {:.0}% writes, {}",
                    world.title,
                    100.0 * writes,
                    candidate.name
                ))?;
            }
            panels.push(panel);
        }
    }
    let table = table(&panels);
    bench.csv(&mut section, "fig8.csv", &table)?;
    for world in [&geo, &wan] {
        draw(bench, &mut section, world, &panels)?;
    }
    section.tables.push((
        format!("Operations a second, ÷ {LEADER_LEASES} at the same site; mean and p99 in ms."),
        table,
    ));
    judge(&mut section, &panels);
    Ok(section)
}

fn measure(candidate: &Candidate, world: &World, writes: f64, length: u64) -> Result<Vec<Seen>> {
    let (from, sites) = (READY + WARM_UP, world.topology().sites().len());
    let (keys, mut random, mut count) = (Keys::new(Choice::Uniform, KEYS), Random::new(8), 0);
    let draw = |_| {
        let key = format!("k{:07}", keys.draw(&mut random));
        count += 1;
        match random.chance(writes) {
            true => world::put(&key, count, VALUE),
            false => world::get(&key),
        }
    };
    let clients = Clients {
        at: (0..CLIENTS_PER_SITE * sites).map(|client| client % sites).collect(),
        from: READY + 1_000 * MS,
        until: from + length,
        think: 0,
        patience: 10_000 * MS,
        draw: Box::new(draw),
    };
    let setup = world.setup(candidate, CAPACITY, from + length + 2_000 * MS)?;
    // The first write of a proxy opens its session, which takes as long again.
    let open = |proxy| Ask {
        at: READY,
        proxy,
        command: world::put("first", proxy as u64, VALUE),
        patience: 10_000 * MS,
    };
    let load = Load { asks: (0..sites).map(open).collect(), clients: Some(clients), acts: Vec::new() };
    let measured = world::run(candidate, &setup, load)?;
    world::check(candidate, &measured)?;
    let seen = |site| {
        let of = |writes| measured.latencies(site, writes, (from, from + length));
        let (reads, writes) = (of(false), of(true));
        let millis = |latency: f64| latency / MS as f64;
        let times = |it: &quorate_sim::experiment::measured::Latencies| {
            Some((millis(it.mean()?), millis(it.quantile(0.99)? as f64)))
        };
        Seen { rate: reads.rate() + writes.rate(), read: times(&reads), write: times(&writes) }
    };
    Ok((0..sites).map(seen).collect())
}

fn table(panels: &[Panel<'_>]) -> Table {
    let mut table = Table::new([
        "cluster",
        "writes_percent",
        "protocol",
        "site",
        "ops_per_s",
        "normalized",
        "read_mean_ms",
        "read_p99_ms",
        "write_mean_ms",
        "write_p99_ms",
    ]);
    for panel in panels {
        let topology = panel.world.topology();
        let reference = panel.of(LEADER_LEASES).unwrap_or_default();
        for (candidate, seen) in ALL.iter().zip(&panel.seen) {
            for (site, (seen, reference)) in seen.iter().zip(reference).enumerate() {
                let words = |it: Option<(f64, f64)>| match it {
                    Some((mean, p99)) => [format!("{mean:.2}"), format!("{p99:.2}")],
                    None => [String::new(), String::new()],
                };
                let ([read, read_p99], [write, write_p99]) = (words(seen.read), words(seen.write));
                table.row([
                    panel.world.title.to_owned(),
                    format!("{:.0}", 100.0 * panel.writes),
                    candidate.name.to_owned(),
                    topology.sites()[site].clone(),
                    format!("{:.0}", seen.rate),
                    format!("{:.2}", seen.rate / reference.rate),
                    read,
                    read_p99,
                    write,
                    write_p99,
                ]);
            }
        }
    }
    table
}

fn draw(bench: &Bench, section: &mut Section, world: &World, panels: &[Panel<'_>]) -> Result<()> {
    type Of = fn(&Seen) -> Option<f64>;
    let rows: [(&str, Of); 3] = [
        ("operations/s", |seen| Some(seen.rate)),
        ("mean read latency, ms", |seen| seen.read.map(|(mean, _)| mean)),
        ("mean write latency, ms", |seen| seen.write.map(|(mean, _)| mean)),
    ];
    let mut charts = Vec::new();
    for (what, of) in rows {
        for panel in panels.iter().filter(|panel| panel.world.name == world.name) {
            let title = format!("{}, {:.0}% writes", world.title, 100.0 * panel.writes);
            let mut chart = Chart::new(&title, "site of the clients", what, Scale::Log);
            (chart.x, chart.x_ticks) = (Some((0.5, 5.5)), world.ticks);
            for (candidate, seen) in ALL.iter().zip(&panel.seen) {
                let points =
                    seen.iter().enumerate().filter_map(|(site, seen)| Some((site as f64 + 1.0, of(seen)?)));
                chart = chart.line(candidate.name, points.collect(), true);
            }
            // No writes, nothing to draw.
            if chart.lines.iter().any(|line| !line.points.is_empty()) {
                charts.push(chart);
            }
        }
    }
    let caption = format!("{}: throughput, reads and writes by site", world.title);
    bench.plot(section, &format!("fig8-{}.svg", world.name), &caption, &charts, 3)
}

fn judge(section: &mut Section, panels: &[Panel<'_>]) {
    // At the leader's site, and at the others, over all panels.
    let (mut near, mut paxos, mut error) = (0.0f64, f64::INFINITY, 0.0f64);
    for panel in panels {
        let (topology, leader) = (panel.world.topology(), panel.world.leader());
        let mean =
            |name: &str, site: usize| panel.of(name).and_then(|seen| seen[site].read).map(|(mean, _)| mean);
        for site in 0..topology.sites().len() {
            let (Some(leases), Some(without)) = (mean(LEADER_LEASES, site), mean("MultiPaxos", site)) else {
                continue;
            };
            if site == leader {
                (near, paxos) = (near.max(leases), paxos.min(without));
            } else {
                let trip = panel.world.model(&topology, site).l();
                error = error.max((leases / trip - 1.0).abs());
            }
        }
    }
    section.judge(
        "B-8.6",
        Verdict::when(near <= 2.0 && paxos > 10.0 * near),
        format!("at most {near:.2} ms (c is {NEAR:.0} ms); MultiPaxos at least {paxos:.1} ms"),
        "rule: at most 2 ms in every panel, and less than a tenth of MultiPaxos",
    );
    section.judge(
        "B-8.7",
        Verdict::when(error <= 0.1),
        format!("read latency at the other sites is within {:.1}% of l", 100.0 * error),
        "rule: within 10% of the round trip from the client to the leader, in every panel",
    );
}
