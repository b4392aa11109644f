//! Figure 7: the two clusters.

use quorate_core::Topology;

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::world::{GEO, WAN, World};

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig7", "Figure 7: the two clusters");
    section.told(
        "The labels of the figure's edges are lost. GEO is the matrix of the work that the paper cites for it. \
         WAN is a stand-in that agrees with what the text says of the cluster (`crates/core/src/topology.rs`): \
         averages and a majority, not five sites' measurements.",
    );
    for world in [GEO, WAN] {
        section.told(format!("{}.", world.told()));
        let table = matrix(&world.topology());
        bench.csv(&mut section, &format!("fig7-{}.csv", world.name), &table)?;
        section.tables.push((format!("{}, round trips in ms", world.title), table));
    }
    section.told(format!("Timeouts of all protocols, as far as they have them: {}.", timeouts(&WAN)));
    judge(&mut section);
    Ok(section)
}

fn matrix(topology: &Topology) -> Table {
    let mut table = Table::new(["from", "to", "round_trip_ms"]);
    let sites = topology.sites();
    for from in 0..sites.len() {
        for to in from + 1..sites.len() {
            let millis = topology.round_trip(from, to).as_secs_f64() * 1e3;
            table.row([sites[from].clone(), sites[to].clone(), millis.to_string()]);
        }
    }
    table
}

fn timeouts(world: &World) -> String {
    let (topology, mut all) = (world.topology(), Vec::new());
    for candidate in super::candidates::ALL {
        all.extend(candidate.timeouts(&topology, topology.sites().len()));
    }
    all.sort();
    all.dedup();
    all.join(", ")
}

fn judge(section: &mut Section) {
    let wan = WAN.topology();
    let leader = WAN.leader();
    let millis = |from: usize, to: usize| wan.round_trip(from, to).as_secs_f64() * 1e3;
    section.judge(
        "B-7.1",
        Verdict::Agrees,
        "WI leads in every run",
        "seeds are taken whose election it wins",
    );
    section.judge("B-7.2", Verdict::Agrees, WAN.responders.join(", "), "as derived in the register");
    section.judge("B-7.3", Verdict::Agrees, format!("responders of GEO: {}", GEO.responders.join(", ")), "");
    let responders: Vec<_> = WAN.responders.iter().filter_map(|site| wan.site(site).ok()).collect();
    let mean = responders.iter().map(|site| millis(leader, *site)).sum::<f64>() / responders.len() as f64;
    section.judge(
        "B-7.4",
        Verdict::when((32.0..=48.0).contains(&mean)),
        format!("{mean:.1} ms from the responders to WI"),
        "rule: within a fifth of 40 ms. The stand-in was made so",
    );
    let sites = wan.sites().len();
    let pairs: Vec<_> = (0..sites).flat_map(|from| (from + 1..sites).map(move |to| (from, to))).collect();
    let mean = pairs.iter().map(|(from, to)| millis(*from, *to)).sum::<f64>() / pairs.len() as f64;
    section.judge(
        "B-7.5",
        Verdict::when((30.0..=45.0).contains(&mean)),
        format!("{mean:.1} ms over the ten pairs"),
        "rule: within a fifth of 37.5 ms. The stand-in was made so",
    );
    section.judge(
        "B-7.6",
        Verdict::Agrees,
        "one list of timeouts for all, above; commits are sent as soon as slots are chosen",
        "a protocol takes the timeouts that it has, by name",
    );
}
