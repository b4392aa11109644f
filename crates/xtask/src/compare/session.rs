//! The rounds of a comparison: what is measured of a system, and how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quorate_bench::grid::{Grid, Row, Schema};
use serde_json::Value;
use tempfile::TempDir;

use super::processes::{Process, Result, Stop, cpu_seconds, cpu_seconds_of_threads, words};
use super::services::{Placement, Service, Site, wait_for};
use super::systems::{Load, System, outcome_of_bench};
use super::{Options, machine, quorate_in, scratch, target};

/// What a load generator may take beyond its time.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a report and what is said of errors are called of the one generator that counts.
const GENERATOR: &str = "generator";
/// How long others are watched before anything begins, and after each system.
const WATCHED_BEFORE: Duration = Duration::from_secs(2);
const WATCHED_AFTER: Duration = Duration::from_secs(1);
/// Before that, what was killed is let go by the kernel, whose work it is not to be blamed on others.
const SETTLES: Duration = Duration::from_millis(300);
/// A system that was disturbed is measured again, this often at most.
const TRIES: u32 = 3;
/// How often others are looked at before the next try, at most: two minutes.
const LOOKS: u32 = 120;
/// Clients that are not served so long after a kill have lost the service.
const OUTAGE_LIMIT: Duration = Duration::from_secs(10);

/// Each system under each load.
pub const LOADS: Schema = Schema {
    id: "comparison",
    dims: &["system", "load"],
    numbers: &[
        ("operations", "/s"),
        ("p50", "us"),
        ("p99", "us"),
        ("members_cpu", "us"),
        ("generator_cpu", "us"),
        ("wire", "B"),
        ("memory", "MB"),
    ],
};
/// Each system at rest, with the keys, and after its leader was killed.
pub const MEMBERS: Schema = Schema {
    id: "comparison-members",
    dims: &["system"],
    numbers: &[("rest_cpu", "%"), ("rest_wire", "B/s"), ("rest_memory", "MB"), ("killed", ""), ("gap", "ms")],
};

/// What came of it.
#[derive(Debug)]
pub struct Measured {
    /// Each in the file that its schema names.
    pub grids: Vec<(Schema, Grid)>,
    /// Whether others left the processors alone.
    pub quiet: bool,
}

impl Measured {
    /// Why these numbers must not become the page.
    pub fn is_worth_keeping(&self, options: &Options) -> Result<()> {
        match self.quiet || options.quick || options.only.is_some() {
            true => Ok(()),
            false => Err(format!("others kept processors busy: {}", self.grids[0].1.says("load"))),
        }
    }

    /// Writes the CSVs.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (schema, grid) in &self.grids {
            let path = folder.join(format!("{}.csv", schema.id));
            std::fs::write(&path, grid.csv()).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// A comparison under way.
#[derive(Debug)]
pub struct Session {
    quick: bool,
    rounds: u32,
    /// A signal ends the whole comparison.
    pub stop: Stop,
    scratch: TempDir,
    /// How long each run warms up, counts, and rests.
    pub times: Times,
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From the start of the load generator until something counts.
    pub warm_up: Duration,
    /// From then until it ends: what happens in it counts.
    pub time: Duration,
    /// Without a load; only [`Session::measure`] looks at systems at rest.
    pub rest: Duration,
}

impl Times {
    /// To see that it works.
    const QUICK: Times = Times {
        warm_up: Duration::from_millis(100),
        time: Duration::from_millis(500),
        rest: Duration::from_millis(500),
    };
    /// Of systems beside each other.
    pub const SYSTEMS: Times = Times {
        warm_up: Duration::from_millis(200),
        time: Duration::from_millis(900),
        rest: Duration::from_millis(1500),
    };
}

/// The rows of one system in one round.
#[derive(Debug, Default)]
pub struct Rows {
    /// One for each load that the system was under.
    pub loads: Vec<Row>,
    /// The members at rest, and after the kill of their leader.
    pub members: Vec<Row>,
    /// How it was started and loaded.
    pub commands: Vec<String>,
}

/// What all rounds gave.
#[derive(Debug)]
pub struct Rounds {
    /// Of all systems in all rounds.
    pub rows: Rows,
    /// What is said above a CSV of them.
    pub head: BTreeMap<String, String>,
    /// How each system was started and loaded in its first round.
    pub commands: BTreeMap<String, String>,
    /// Whether others left the processors alone.
    pub quiet: bool,
}

impl Session {
    /// Nothing measured yet. `times` are those of runs whose numbers matter.
    pub fn new(options: &Options, times: Times, stop: Stop) -> Result<Session> {
        let times = if options.quick { Times::QUICK } else { times };
        let (quick, rounds) = (options.quick, options.rounds());
        Ok(Session { quick, rounds, stop, scratch: scratch("compare-")?, times })
    }

    /// Systems beside each other.
    pub fn measure(&self, systems: &[System]) -> Result<Measured> {
        let done = self.rounds(systems, |system| &system.name, |system, round| self.round(system, round))?;
        let members = Grid::of(MEMBERS, done.head.clone(), done.rows.members);
        let head = done.head.into_iter().chain(done.commands).collect();
        let loads = Grid::of(LOADS, head, done.rows.loads);
        Ok(Measured { grids: vec![(LOADS, loads), (MEMBERS, members)], quiet: done.quiet })
    }

    /// All rounds. Begins only on a quiet machine, unless the numbers do not matter.
    pub fn rounds<T>(
        &self,
        systems: &[T],
        name: impl Fn(&T) -> &str,
        round: impl Fn(&T, u32) -> Result<Rows>,
    ) -> Result<Rounds> {
        let (start, mut loads) = (Instant::now(), vec![machine::load(WATCHED_BEFORE)]);
        if !self.quick && !machine::is_quiet(&loads) {
            return Err(format!("others keep {} processors busy: wait until the machine is quiet", loads[0]));
        }
        let disk = machine::syncs_per_second(self.scratch.path()).map_err(|error| error.to_string())?;
        let (mut all, mut failures, mut commands) = (Rows::default(), Vec::new(), BTreeMap::new());
        let mut disturbed = Vec::new();
        for number in 1..=self.rounds {
            for system in systems {
                let name = name(system);
                eprintln!("round {number} of {}: {name}", self.rounds);
                let (rows, readings) = self.undisturbed(|| round(system, number))?;
                if let [repeated @ .., last] = &readings[..] {
                    disturbed.extend(repeated.iter().map(|_| format!("{name} in round {number}")));
                    loads.push(*last);
                }
                let Some(rows) = rows else {
                    failures.push(format!("{name} in round {number}"));
                    continue;
                };
                all.loads.extend(rows.loads);
                all.members.extend(rows.members);
                commands.entry(format!("commands of {name}")).or_insert(rows.commands.join(" · "));
            }
        }
        let mut head = machine::head()?;
        let quiet = machine::is_quiet(&loads);
        let mut say = |name: &str, value: String| drop(head.insert(name.to_owned(), value));
        say("disk", format!("{disk:.0} synced 4 KiB overwrites per second, one thread"));
        let highest = loads.iter().copied().fold(0.0, f64::max);
        let readings = loads.len();
        say(
            "load",
            format!("{highest} at most, in {readings} readings, before the first system and after each"),
        );
        say("again", if disturbed.is_empty() { "nothing".to_owned() } else { disturbed.join(", ") });
        say("quiet", if quiet { "yes" } else { "no" }.to_owned());
        say("took", format!("{:.0} s", start.elapsed().as_secs_f64()));
        say(
            "runs",
            format!("{} s each, after {} s", self.times.time.as_secs_f64(), self.times.warm_up.as_secs_f64()),
        );
        say("left out", if failures.is_empty() { "nothing".to_owned() } else { failures.join(", ") });
        say("versions", versions());
        if self.quick {
            say("note", "quick: the numbers are worth little".to_owned());
        }
        Ok(Rounds { rows: all, head, commands, quiet })
    }

    /// A round of a system, and how many processors others kept busy when it ended. If that was too many, the machine
    /// is waited for and the system measured again; each try has its reading, and the last one's rows count. None if
    /// it could not be measured.
    fn undisturbed(&self, round: impl Fn() -> Result<Rows>) -> Result<(Option<Rows>, Vec<f64>)> {
        let mut readings = Vec::new();
        loop {
            let rows = round().or_else(|error| {
                self.stop.check()?;
                eprintln!("  once more, after: {error}");
                round()
            });
            if let Err(error) = &rows {
                self.stop.check()?;
                eprintln!("  left out: {error}");
            }
            self.stop.sleep(SETTLES)?;
            let reading = machine::load(WATCHED_AFTER);
            readings.push(reading);
            if self.quick || machine::is_quiet(&[reading]) || readings.len() as u32 >= TRIES {
                return Ok((rows.ok(), readings));
            }
            eprintln!("  again, since others keep {reading} processors busy");
            for _ in 0..LOOKS {
                self.stop.check()?;
                if machine::is_quiet(&[machine::load(WATCHED_AFTER)]) {
                    break;
                }
            }
        }
    }

    /// Starts a system, writes the keys, looks at it at rest, loads it, and kills its leader.
    fn round(&self, system: &System, round: u32) -> Result<Rows> {
        let dir = self.folder()?;
        let sites = Site::local(system.members);
        let on = Placement { sites: &sites, leader: 0, dir: dir.path(), stop: &self.stop };
        let service = system.kind.start(&on)?;
        let mut rows = Rows { commands: vec![service.command.clone()], ..Rows::default() };
        self.report(system.loader(&service.endpoints))?;
        let mut members = self.at_rest(&service)?.map(Some).to_vec();
        for load in &system.loads {
            let command = system.generator(*load, &service.endpoints, self.times.warm_up, self.times.time);
            rows.commands.push(words(&command));
            let numbers = self.load(system, &service, *load, command)?;
            let keys = vec![system.name.clone(), load.name.to_owned()];
            rows.loads.push(Row { keys, run: round, numbers: numbers.map(Some).to_vec() });
        }
        let mut gap = None;
        if system.survives {
            wait_for(&system.name, &self.stop, || Ok(system.kind.is_ready(&on)?.then_some(())))?;
            let report = self.report(system.witness(&service.endpoints, service.pids[0], OUTAGE_LIMIT))?;
            gap = report["gap_ms"].as_f64();
            let shown = gap.map_or("for ever".to_owned(), |gap| format!("for {gap:.0} ms"));
            eprintln!("  leader killed: no write {shown}");
        }
        members.extend([Some(f64::from(u8::from(system.survives))), gap]);
        rows.members.push(Row { keys: vec![system.name.clone()], run: round, numbers: members });
        let shown = dir.path().display().to_string();
        for command in &mut rows.commands {
            *command = command.replace(&shown, "$DATA");
        }
        service.kill();
        Ok(rows)
    }

    /// An empty folder for the data of a system.
    pub fn folder(&self) -> Result<TempDir> {
        let dir = tempfile::Builder::new().prefix("system-").tempdir_in(self.scratch.path());
        dir.map_err(|error| error.to_string())
    }

    /// CPU in percent of one core, bytes a second between members, and memory in MB, with nobody there.
    fn at_rest(&self, service: &Service) -> Result<[f64; 3]> {
        self.stop.sleep(Duration::from_millis(300))?;
        let used = || Ok::<_, String>((cpu_seconds_of_threads(&service.pids), service.wire_bytes()?));
        let (start, (cpu, wire)) = (Instant::now(), used()?);
        self.stop.sleep(self.times.rest)?;
        let (cpu, wire) = used().map(|now| (now.0 - cpu, now.1.saturating_sub(wire)))?;
        let seconds = start.elapsed().as_secs_f64();
        Ok([100.0 * cpu / seconds, wire as f64 / seconds, service.memory_mb()])
    }

    /// The numbers of [`LOADS`].
    fn load(&self, system: &System, service: &Service, load: Load, mut command: Command) -> Result<[f64; 7]> {
        let shown = words(&command);
        let (mut child, out) = self.spawn(GENERATOR, &mut command)?;
        wait_for(&shown, &self.stop, || Ok(system.is_connected(&out[1]).then_some(())))?;
        // Others take a moment to connect; the edges of its time are left out.
        self.stop.sleep(self.times.warm_up + Duration::from_millis(150))?;
        let generator = [child.id()];
        let used = || Ok::<_, String>([service.cpu(), cpu_seconds(&generator), service.wire_bytes()? as f64]);
        let (start, before) = (Instant::now(), used()?);
        self.stop.sleep(self.times.time.saturating_sub(Duration::from_millis(300)))?;
        let (seconds, after) = (start.elapsed().as_secs_f64(), used()?);
        let memory = service.memory_mb();
        let report = self.finish(&mut child, &out, &shown)?;
        let outcome = system.outcome(load, &report).filter(|[rate, ..]| *rate > 0.0);
        let [rate, p50, p99, errors] = outcome.ok_or_else(|| format!("nothing was served: {shown}"))?;
        if errors > 0.0 {
            return Err(format!("{errors} failures: {shown}"));
        }
        let of = |at: usize| (after[at] - before[at]) / (rate * seconds);
        eprintln!("  {:<24} {rate:>9.0}/s  p50 {p50:>7.0} us  p99 {p99:>7.0} us", load.name);
        Ok([rate, p50, p99, 1e6 * of(0), 1e6 * of(1), of(2), memory])
    }

    /// Runs a generator; what it prints.
    pub fn report(&self, mut command: Command) -> Result<Value> {
        let (mut child, out) = self.spawn(GENERATOR, &mut command)?;
        self.finish(&mut child, &out, &words(&command))
    }

    /// Runs a generator of ours, whose operations count for `time`; operations per second, the 99th percentile in µs,
    /// and what of `used` went up by for each operation while it counted.
    pub fn under_load<const N: usize>(
        &self,
        command: &mut Command,
        time: Duration,
        used: impl Fn() -> Result<[f64; N]>,
    ) -> Result<([f64; 2], [f64; N])> {
        let (mut child, out) = self.spawn(GENERATOR, command)?;
        self.stop.sleep(self.times.warm_up + Duration::from_millis(150))?;
        let (start, before) = (Instant::now(), used()?);
        self.stop.sleep(time.saturating_sub(Duration::from_millis(300)))?;
        let (seconds, after) = (start.elapsed().as_secs_f64(), used()?);
        let shown = words(command);
        let report = self.finish(&mut child, &out, &shown)?;
        let [rate, p99] = all_served(&report, &shown)?;
        let each = std::array::from_fn(|at| (after[at] - before[at]) / (rate * seconds));
        Ok(([rate, p99], each))
    }

    /// Starts a generator; where its report and what it says of errors go, in files of this name.
    pub fn spawn(&self, name: &str, command: &mut Command) -> Result<(Process, [PathBuf; 2])> {
        let paths = ["json", "log"].map(|ending| self.scratch.path().join(format!("{name}.{ending}")));
        let _ = std::fs::remove_file(&paths[1]);
        let file = std::fs::File::create(&paths[0]).map_err(|error| error.to_string())?;
        Ok((Process::start_to(command, file, &paths[1])?, paths))
    }

    /// Waits for a generator's end; what it printed.
    pub fn finish(&self, child: &mut Process, paths: &[PathBuf; 2], command: &str) -> Result<Value> {
        let fine = child.wait(&self.stop, PATIENCE).map_err(|error| format!("{command}: {error}"))?;
        let [text, said] = [0, 1].map(|at| std::fs::read_to_string(&paths[at]).unwrap_or_default());
        if !fine {
            return Err(format!("failed: {command}\n{}", said.trim_end()));
        }
        serde_json::from_str(&text).map_err(|_| format!("no report from: {command}\n{}", said.trim_end()))
    }
}

/// Operations per second and the 99th percentile in µs, of a generator of ours; an error if one operation failed, or
/// none was answered.
pub fn all_served(report: &Value, command: &str) -> Result<[f64; 2]> {
    let outcome = outcome_of_bench(report).filter(|[rate, _, _, errors]| *rate > 0.0 && *errors == 0.0);
    let [rate, _, p99, _] = outcome.ok_or_else(|| format!("not all was served: {command}"))?;
    Ok([rate, p99])
}

/// Of what is measured.
fn versions() -> String {
    let quorate = quorate_in(&target());
    let said = [
        machine::first_line(quorate, &["--version"]),
        machine::first_line("redis-server", &["--version"]),
        machine::first_line("etcd", &["--version"]),
        machine::first_line("dpkg-query", &["-W", "-f", "zookeeper ${Version}", "zookeeper"]),
    ];
    said.join("; ")
}
