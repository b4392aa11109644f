//! Figure 16: YCSB's mixes for the protocols of this program.

use quorate_bench::chart::{Chart, Scale};
use quorate_bench::{Choice, Keys};
use quorate_core::Range;

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, BODEGA, Candidate, EPAXOS, LEADER_LEASES, PQR_LEASES, QUORUM_LEASES};
use super::closed::{self, Closed, Pick, Seen};
use super::world::{self, GEO, MS, WAN, World};

/// Mixes and their shares of writes, in the paper's order.
const MIXES: [(&str, f64); 5] = [("A", 0.5), ("B", 0.05), ("C", 0.0), ("D", 0.05), ("F", 0.25)];
const KEYS: u64 = 10_000;
/// Each site begins elsewhere in the order of popularity, so that its top fifth is its own.
const SHIFT: u64 = KEYS / 5;

/// One scenario's results: by mix, then by protocol.
struct Scenario {
    title: &'static str,
    mixes: Vec<Vec<(&'static str, Seen)>>,
}

impl Scenario {
    fn of(&self, mix: &str, name: &str) -> Option<&Seen> {
        let index = MIXES.iter().position(|(known, _)| *known == mix)?;
        self.mixes[index].iter().find(|(known, _)| *known == name).map(|(_, seen)| seen)
    }

    fn rate(&self, mix: &str, name: &str) -> f64 {
        self.of(mix, name).map_or(0.0, Seen::total)
    }

    fn mean(&self, mix: &str, name: &str, writes: bool) -> Option<f64> {
        let seen = self.of(mix, name)?;
        Seen::overall(if writes { &seen.writes } else { &seen.reads }).map(|(mean, _)| mean)
    }
}

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let length = if bench.quick { 500 * MS } else { 3_000 * MS };
    let mut section = Section::new("fig16", "Figure 16: YCSB");
    section.told(format!("{}.", WAN.told()));
    section.told(format!(
        "{}. {KEYS} keys; values of 128 B (the paper does not say). The paper's approximate shares of writes: \
         A 50%, B 5%, C 0%, D 5%, F 25%; insertions are updates, and a read-modify-write of F is a write.",
        closed::told(length)
    ));
    section.told(
        "Uniform: all sites choose alike, and all are responders for all keys. Zipfian (0.99): the i-th site's \
         most popular key is number 2000 i, and popularity falls from there; each site is a responder for the \
         2000 keys that it asks for most, five ranges in all.",
    );
    section.told(
        "etcd and ZooKeeper are compared as processes in another figure, later: what is said of them \
                  is not judged here.",
    );
    let uniform = scenario(bench, "Uniform", length)?;
    let zipfian = scenario(bench, "Zipfian", length)?;
    show(bench, &mut section, &[&uniform, &zipfian])?;
    judge_services(&mut section);
    judge_mixes(&mut section, &uniform, &zipfian);
    bench.say("fig16: GEO, A, Bodega")?;
    let far = [false, true].map(|zipfian| one(&GEO, zipfian, 0.5, candidates::known(BODEGA), length));
    judge_rosters(&mut section, &uniform, &zipfian, far)?;
    Ok(section)
}

fn scenario(bench: &Bench, title: &'static str, length: u64) -> Result<Scenario> {
    let mut scenario = Scenario { title, mixes: Vec::new() };
    for (mix, writes) in MIXES {
        let mut seen = Vec::new();
        for candidate in candidates::ALL {
            bench.say(&format!("fig16: {title} {mix}, {}", candidate.name))?;
            seen.push((candidate.name, one(&WAN, title == "Zipfian", writes, candidate, length)?));
        }
        scenario.mixes.push(seen);
    }
    Ok(scenario)
}

fn one(world: &World, zipfian: bool, writes: f64, candidate: &Candidate, length: u64) -> Result<Seen> {
    let all: Vec<_> = (0..world.sites()).filter(|site| *site != world.leader()).collect();
    let responders: &[usize] = if zipfian { &[] } else { &all };
    let pick = if zipfian { skewed() } else { closed::uniform(KEYS) };
    let ranges = zipfian.then(top);
    Closed { writes, pick, ranges, ..Closed::new(world, candidate, responders, length) }.run()
}

fn skewed() -> Pick<'static> {
    // The newest key is the most popular: its age is its rank.
    let keys = Keys::new(Choice::Latest(Choice::THETA), KEYS);
    Box::new(move |site, random| (site as u64 * SHIFT + KEYS - 1 - keys.draw(random)) % KEYS)
}

/// Each site for the keys that it asks for most.
fn top() -> Vec<Range> {
    let key = |number| bytes::Bytes::from(world::key(number));
    let range = |site: usize| Range {
        from: key(site as u64 * SHIFT),
        to: Some(key((site as u64 + 1) * SHIFT)),
        responders: closed::nodes(&[site]),
    };
    (0..WAN.sites()).map(range).collect()
}

fn show(bench: &Bench, section: &mut Section, scenarios: &[&Scenario]) -> Result<()> {
    let heads =
        ["scenario", "workload", "protocol", "ops_per_s", "normalized", "read_mean_ms", "write_mean_ms"];
    let mut table = Table::new(heads);
    let mut charts = Vec::new();
    for scenario in scenarios {
        for (mix, _) in MIXES {
            for candidate in candidates::ALL {
                let rate = scenario.rate(mix, candidate.name);
                let word = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.2}"));
                table.row([
                    scenario.title.to_owned(),
                    mix.to_owned(),
                    candidate.name.to_owned(),
                    format!("{rate:.0}"),
                    format!("{:.2}", rate / scenario.rate(mix, PQR_LEASES)),
                    word(scenario.mean(mix, candidate.name, false)),
                    word(scenario.mean(mix, candidate.name, true)),
                ]);
            }
        }
        type Of = fn(&Scenario, &str, &str) -> Option<f64>;
        let rows: [(&str, Of); 3] = [
            ("throughput ÷ PQR (+ Ldr Ls)", |it, mix, name| {
                Some(it.rate(mix, name) / it.rate(mix, PQR_LEASES))
            }),
            ("mean read latency, ms", |it, mix, name| it.mean(mix, name, false)),
            ("mean write latency, ms", |it, mix, name| it.mean(mix, name, true)),
        ];
        for (what, of) in rows {
            let mut chart = Chart::new(scenario.title, "workload", what, Scale::Log);
            (chart.x, chart.x_ticks) = (Some((0.5, 10.5)), tick);
            chart.legend_right = true;
            for candidate in candidates::ALL {
                let point = |(at, (mix, _)): (usize, &(&str, f64))| {
                    Some((at as f64 + 1.0, of(scenario, mix, candidate.name)?))
                };
                chart =
                    chart.line(candidate.name, MIXES.iter().enumerate().filter_map(point).collect(), true);
            }
            charts.push(chart);
        }
    }
    bench.csv(section, "fig16.csv", &table)?;
    bench.plot(section, "fig16.svg", "Throughput, reads and writes by workload", &charts, 3)?;
    section.tables.push(("Means over all sites, each counting alike.".to_owned(), table));
    Ok(())
}

fn tick(x: &f64) -> String {
    let index = (x.fract() == 0.0 && *x >= 1.0).then(|| *x as usize - 1);
    index.and_then(|index| MIXES.get(index)).map_or(String::new(), |(mix, _)| (*mix).to_owned())
}

fn judge_services(section: &mut Section) {
    for claim in ["B-16.1", "B-16.2", "B-16.3", "B-16.4", "B-16.5", "B-16.10", "B-A.3"] {
        section.judge(
            claim,
            Verdict::NotJudged,
            "our protocols' side is in the table",
            "etcd and ZooKeeper are not in the simulator; the comparison with their processes comes later",
        );
    }
}

fn judge_mixes(section: &mut Section, uniform: &Scenario, zipfian: &Scenario) {
    let reads: Vec<_> =
        [QUORUM_LEASES, BODEGA].iter().filter_map(|name| uniform.mean("C", name, false)).collect();
    let slowest = reads.iter().copied().fold(0.0, f64::max);
    section.judge(
        "B-16.6",
        if slowest < 0.8 * 1.2 { Verdict::NotJudged } else { Verdict::when(slowest <= 1.2 * 1.2) },
        format!("{slowest:.2} ms in Uniform"),
        "rule: 1.2 ms within a fifth. Our servers wait for no batching interval; what is left is c, which is 1 \
         ms by our own choice",
    );
    let gain = |scenario: &Scenario, mix, name| scenario.rate(mix, name) / scenario.rate(mix, LEADER_LEASES);
    let quiet = [QUORUM_LEASES, BODEGA].map(|name| gain(uniform, "C", name));
    section.judge(
        "B-16.8",
        Verdict::when(slowest <= 2.0 && quiet.iter().all(|gain| *gain >= 3.0)),
        format!(
            "reads at most {slowest:.2} ms in Uniform; throughput {:.1} and {:.1} times Leader Leases'",
            quiet[0], quiet[1]
        ),
        "rule: at most 2 ms on average, at least three times Leader Leases' throughput",
    );
    let mut told = Vec::new();
    let mut ratios = Vec::new();
    for mix in ["C", "B", "F", "A"] {
        if let (Some(quorum), Some(bodega)) =
            (uniform.mean(mix, QUORUM_LEASES, false), uniform.mean(mix, BODEGA, false))
        {
            told.push(format!("{mix} {:.2}", quorum / bodega));
            ratios.push(quorum / bodega);
        }
    }
    let rate = |mix| uniform.rate(mix, BODEGA) / uniform.rate(mix, QUORUM_LEASES);
    section.judge(
        "B-16.9",
        Verdict::when(ratios.windows(2).take(2).all(|pair| pair[1] >= 0.99 * pair[0])),
        format!(
            "mean reads of Quorum Leases ÷ Bodega's in Uniform: {}; throughput Bodega ÷ Quorum Leases: B \
             {:.2}, F {:.2}, A {:.2}",
            told.join(", "),
            rate("B"),
            rate("F"),
            rate("A")
        ),
        "rule: the ratio of reads does not fall from C to B to F. With half of the operations writes, \
         throughput is that of writes, which are the same",
    );
    let order = |scenario: &Scenario, mix| {
        let [bodega, quorum, epaxos, pqr] =
            [BODEGA, QUORUM_LEASES, EPAXOS, PQR_LEASES].map(|name| scenario.rate(mix, name));
        bodega >= 0.95 * quorum && quorum > epaxos && epaxos >= 0.95 * pqr
    };
    let wrong: Vec<_> = ["B", "C", "D", "F"]
        .into_iter()
        .flat_map(|mix| [uniform, zipfian].map(|scenario| (scenario, mix)))
        .filter(|(scenario, mix)| !order(scenario, mix))
        .map(|(scenario, mix)| format!("{} {mix}", scenario.title))
        .collect();
    section.judge(
        "B-16.7",
        Verdict::when(wrong.is_empty()),
        format!("not in that order: {}", if wrong.is_empty() { "none".to_owned() } else { wrong.join(", ") }),
        "rule: by throughput Bodega at least Quorum Leases (0.95), these above EPaxos, and it not below PQR (+ Ldr \
         Ls) (0.95), in B, C, D and F of both scenarios",
    );
}

fn judge_rosters(
    section: &mut Section,
    uniform: &Scenario,
    zipfian: &Scenario,
    far: [Result<Seen>; 2],
) -> Result<()> {
    let topology = WAN.topology();
    let all: Vec<_> = (0..WAN.sites()).collect();
    let formula = |site| WAN.model(&topology, &all, site).bodega().write;
    let expected = all.iter().map(|site| formula(*site)).sum::<f64>() / all.len() as f64;
    let mean = |scenario: &Scenario, name| scenario.mean("A", name, true).unwrap_or_default();
    let (here, there) = (mean(uniform, BODEGA), mean(zipfian, BODEGA));
    let [far_here, far_there] =
        far.map(|seen| seen.map(|seen| Seen::overall(&seen.writes).map_or(0.0, |(mean, _)| mean)));
    let (far_here, far_there) = (far_here?, far_there?);
    section.judge(
        "B-16.11",
        Verdict::when(far_here > 1.02 * far_there && (here / expected - 1.0).abs() <= 0.1),
        format!(
            "mean writes of A in Uniform and Zipfian: GEO {far_here:.1} and {far_there:.1} ms; WAN {here:.1} \
             and {there:.1} ms, where l and all nodes take {expected:.1} ms"
        ),
        "rule: in GEO higher in Uniform by more than 2%; in WAN all nodes' time within 10%. In the stand-in \
         for WAN all nodes take what a majority takes (B-14.2). ZooKeeper's side is not judged",
    );
    let ratio = there / mean(zipfian, LEADER_LEASES);
    section.judge(
        "B-16.12",
        Verdict::when((0.9..=1.1).contains(&ratio)),
        format!("{ratio:.3} times Leader Leases' mean in A"),
        "rule: within 10%",
    );
    Ok(())
}
