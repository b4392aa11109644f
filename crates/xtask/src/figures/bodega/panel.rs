//! All protocols under the same load, in one cluster at one share of writes: what Figures 8 and 9 show.

use super::super::{Bench, Result};
use super::candidates::{self, Candidate};
use super::closed::{self, Closed, Seen};
use super::world::{MS, World};

/// One cluster at one share of writes.
pub struct Panel {
    pub world: &'static World,
    pub writes: f64,
    seen: Vec<(&'static Candidate, Seen)>,
}

impl Panel {
    /// Measures all protocols.
    pub fn measure(bench: &Bench, world: &'static World, writes: f64, length: u64) -> Result<Panel> {
        let mut panel = Panel { world, writes, seen: Vec::new() };
        let responders = world.responders();
        for candidate in candidates::ALL {
            bench.say(&format!("{}, {:.0}% writes, {}", world.title, 100.0 * writes, candidate.name))?;
            let run = Closed { writes, ..Closed::new(world, candidate, &responders, length) };
            panel.seen.push((candidate, run.run()?));
        }
        Ok(panel)
    }

    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Seen)> {
        self.seen.iter().map(|(candidate, seen)| (candidate.name, seen))
    }

    pub fn of(&self, name: &str) -> Option<&Seen> {
        self.all().find(|(known, _)| *known == name).map(|(_, seen)| seen)
    }

    pub fn read(&self, name: &str, site: usize) -> Option<f64> {
        closed::mean(&self.of(name)?.reads[site])
    }

    pub fn write(&self, name: &str, site: usize) -> Option<f64> {
        closed::mean(&self.of(name)?.writes[site])
    }

    pub fn rate(&self, name: &str, site: usize) -> f64 {
        self.of(name).map_or(0.0, |seen| seen.rate(site))
    }

    /// As a verdict names it.
    pub fn told(&self) -> String {
        format!("{} {:.0}%", self.world.title, 100.0 * self.writes)
    }
}

/// How long is counted.
pub fn length(bench: &Bench) -> u64 {
    if bench.quick { 1_000 * MS } else { 10_000 * MS }
}
