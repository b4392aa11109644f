//! Figure 16 with real processes: Quorate's protocols, etcd and ZooKeeper over the same emulated wide area.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use xtask::compare::scratch;
use xtask::compare::services::Service;

use super::services::{Programs, Wan};
use super::world::World;
use super::{
    BODEGA, EPAXOS, ETCD, ETCD_STALE, LAB, LAB_LINKS, LAB_SITES, LEADER_LEASES, LEASEGUARD, MIXES,
    PQR_LEASES, QUORUM_LEASES, ZOOKEEPER, ZOOKEEPER_SYNC,
};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// So many keys, and clients that write them at first.
const KEYS: &str = "10000";
const LOADERS: &str = "512";
/// At each site, with one operation under way each.
const CLIENTS: &str = "2";
/// Of each run, what comes before anything counts, and what counts.
const WARM_UP: Duration = Duration::from_millis(400);
const LENGTH: Duration = Duration::from_millis(1250);
/// Of each mix, one after another in one cluster.
const RUNS: u32 = 5;
/// A load generator that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is started, and the ways in which it is read.
const STARTED: [&[&str]; 8] = [
    &[ZOOKEEPER, ZOOKEEPER_SYNC],
    &[ETCD, ETCD_STALE],
    &[BODEGA],
    &[QUORUM_LEASES],
    &[LEADER_LEASES],
    &[LEASEGUARD],
    &[PQR_LEASES],
    &[EPAXOS],
];

/// What the load generator calls a way to read.
fn system(service: &str) -> &'static str {
    match service {
        ETCD => "etcd",
        ETCD_STALE => "etcd-stale",
        ZOOKEEPER => "zookeeper",
        ZOOKEEPER_SYNC => "zookeeper-sync",
        _ => "resp",
    }
}

/// Of one run: of each site operations a second, the mean and p99 of reads, and of writes, in ms.
type Seen = Vec<[Option<f64>; 5]>;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let programs = Programs::build(bench)?;
    let (mut all, mut sites, mut links) = (Vec::new(), Vec::new(), Vec::new());
    for world in super::panels::worlds() {
        let trips = programs.fidelity(world)?.into_iter();
        links.extend(trips.map(|(from, to, trips)| Row::of(&[&world.title, &from, &to], trips)));
        for services in STARTED {
            let scratch = scratch("lab-")?;
            let lab = Lab::start(bench, &programs, world, services[0], scratch.path())?;
            for service in services {
                for (mix, writes) in MIXES {
                    for run in 1..=if bench.quick { 1 } else { RUNS } {
                        let keys = [*service, mix, world.title].map(str::to_owned).to_vec();
                        let (seen, numbers) = lab.run(service, writes, run)?;
                        let rate = numbers[0].unwrap_or(0.0);
                        bench.say(&format!("{}, run {run}: {rate:.0}/s", keys.join(", ")))?;
                        for (site, numbers) in lab.wan.sites.iter().zip(&seen) {
                            let keys = [keys.clone(), vec![site.name.clone()]].concat();
                            sites.push(Row { keys, run, numbers: numbers.to_vec() });
                        }
                        all.push(Row { keys, run, numbers });
                    }
                }
            }
        }
    }
    Ok(vec![Rows(&LAB, all), Rows(&LAB_SITES, sites), Rows(&LAB_LINKS, links)])
}

/// A service in a wide area, with its keys.
struct Lab<'a> {
    bench: &'a Bench,
    programs: &'a Programs,
    running: Service,
    wan: Wan,
}

impl Lab<'_> {
    fn start<'a>(
        bench: &'a Bench,
        programs: &'a Programs,
        world: &World,
        service: &str,
        dir: &Path,
    ) -> Result<Lab<'a>> {
        let wan = Wan::start(bench, programs, world, dir)?;
        let running = programs.start(bench, (&wan, world), service, dir)?;
        let mut load = programs.ycsb(&wan, &running, world.leader(), system(service));
        load.args(["--load", "--keys", KEYS, "--clients", LOADERS]);
        reports(bench, vec![load])?;
        Ok(Lab { bench, programs, running, wan })
    }

    /// All sites load their members at once.
    fn run(&self, service: &str, writes: f64, run: u32) -> Result<(Seen, Vec<Option<f64>>)> {
        let command = |site: usize| {
            let mut command = self.programs.ycsb(&self.wan, &self.running, site, system(service));
            command.args(["--keys", KEYS, "--clients", CLIENTS, "--writes", &writes.to_string()]);
            command.args(["--warm-up", &millis(WARM_UP), "--duration", &millis(LENGTH)]);
            command.args(["--seed", &(u64::from(run) * 100 + site as u64).to_string()]);
            command
        };
        let (used, carried) = (self.running.cpu(), self.wan.cpu());
        let reports = reports(self.bench, (0..self.wan.sites.len()).map(command).collect())?;
        let (used, carried) = (self.running.cpu() - used, self.wan.cpu() - carried);
        let seen = reports.iter().map(|report| numbers(service, report)).collect::<Result<Seen>>()?;
        let overall = overall(&seen, used, carried);
        Ok((seen, overall))
    }
}

/// What a load generator says.
fn numbers(service: &str, report: &Value) -> Result<[Option<f64>; 5]> {
    if report["errors"].as_u64() != Some(0) {
        return Err(format!("{service}: {}", report["error"]));
    }
    let of = |kind: &str, field: &str| report[kind][field].as_f64().filter(|_| report[kind]["count"] != 0);
    let per_second = of("reads", "per_second").unwrap_or(0.0) + of("writes", "per_second").unwrap_or(0.0);
    let [reads, writes] = ["reads", "writes"].map(|kind| [of(kind, "mean_ms"), of(kind, "p99_ms")]);
    Ok([Some(per_second), reads[0], reads[1], writes[0], writes[1]])
}

/// Runs load generators at once; what they print.
fn reports(bench: &Bench, commands: Vec<std::process::Command>) -> Result<Vec<Value>> {
    let mut children = Vec::new();
    for mut command in commands {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        children.push(child.map_err(|error| format!("cannot start ycsb: {error}"))?);
    }
    let start = std::time::Instant::now();
    while children.iter_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
        let stopped = bench.stop.sleep(Duration::from_millis(20));
        if stopped.is_err() || start.elapsed() > PATIENCE {
            children.iter_mut().for_each(|child| drop(child.kill()));
            stopped?;
            return Err(format!("ycsb: no end after {PATIENCE:?}"));
        }
    }
    let report = |child: std::process::Child| {
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    };
    children.into_iter().map(report).collect()
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Of all sites: operations a second, means over the sites of the means, CPU of the members for each operation, in ms,
/// and how many processors the emulator kept busy.
fn overall(seen: &Seen, used: f64, carried: f64) -> Vec<Option<f64>> {
    let mean = |column: usize| {
        let there: Vec<_> = seen.iter().filter_map(|site| site[column]).collect();
        (!there.is_empty()).then(|| there.iter().sum::<f64>() / there.len() as f64)
    };
    let operations: f64 = seen.iter().filter_map(|site| site[0]).sum();
    // The warm-up costs as much as what counts.
    let seconds = (WARM_UP + LENGTH).as_secs_f64();
    let each = (operations > 0.0).then(|| used * 1e3 / (operations * seconds));
    vec![Some(operations), mean(1), mean(3), each, Some(carried / seconds)]
}
