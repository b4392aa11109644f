//! The rounds of a comparison, and the page that they end in.

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::Options;
use super::machine;
use super::processes::{Process, Result, Stop, cpu_seconds, memory_mb, words};
use super::report::{Cell, Idle, Op, Results, Sample};
use super::systems::{self, Programs, Running, System};

const VALUE_BYTES: &str = "128";

/// What a load generator may take beyond its time.
const PATIENCE: Duration = Duration::from_secs(90);

/// Connections and pipeline.
const LOADS: [(u32, u32); 3] = [(64, 1), (256, 1), (64, 16)];

/// A comparison under way.
#[derive(Debug)]
pub struct Session {
    pub options: Options,
    programs: Programs,
    stop: Stop,
    scratch: TempDir,
    results: Results,
    /// Every command of the first round.
    commands: Vec<String>,
}

impl Session {
    /// Nothing measured yet.
    pub fn new(options: Options, programs: Programs, stop: Stop, scratch: TempDir) -> Session {
        Session { options, programs, stop, scratch, results: Results::default(), commands: Vec::new() }
    }

    /// Starts a system, loads the keys, looks at it at rest, measures every cell, and ends it.
    pub fn round(&mut self, system: System, round: u32) -> Result<()> {
        let dir = tempfile::Builder::new().prefix(system.name()).tempdir_in(self.scratch.path());
        let dir = dir.map_err(|error| error.to_string())?;
        let running = systems::start(system, &self.programs, dir.path(), &self.stop)?;
        if round == 1 {
            self.commands.extend(running.commands.iter().cloned());
        }
        let load = self.loader(system, &running.endpoints[0]);
        if round == 1 {
            self.commands.push(words(&load));
        }
        self.drive(load, Duration::ZERO, &running.pids)?;
        self.rest(system, &running)?;
        for cell in cells(system) {
            self.cell(system, cell, &running, 0, round)?;
        }
        let follower = System::Quorate == system && self.options.systems.contains(&System::Follower);
        if follower || system == System::Follower {
            for cell in cells(System::Follower) {
                self.cell(System::Follower, cell, &running, 1, round)?;
            }
        }
        Ok(())
    }

    /// How much the loaded system uses with nobody there.
    fn rest(&mut self, system: System, running: &Running) -> Result<()> {
        let time = Duration::from_secs(if self.options.quick { 2 } else { 10 });
        self.stop.sleep(Duration::from_secs(1))?;
        let cpu = || running.pids.iter().map(|pid| cpu_seconds(&[*pid])).collect::<Vec<_>>();
        let (before, start) = (cpu(), Instant::now());
        self.stop.sleep(time)?;
        let seconds = start.elapsed().as_secs_f64();
        let shares = cpu().iter().zip(before).map(|(after, before)| (after - before) / seconds).collect();
        let memory_mb = running.pids.iter().map(|pid| memory_mb(*pid)).collect();
        self.results.idle.entry(system).or_default().push(Idle { cpu: shares, memory_mb });
        Ok(())
    }

    fn cell(&mut self, system: System, cell: Cell, running: &Running, at: usize, round: u32) -> Result<()> {
        let endpoint = running.endpoints.get(at).ok_or("there is no such endpoint")?;
        let command = self.generator(system, cell, endpoint);
        if round == 1 {
            self.commands.push(words(&command));
        }
        let warm_up = Duration::from_secs_f64(self.options.warm_up);
        let (report, cpu) = self.drive(command, warm_up, &running.pids)?;
        let run = &report["runs"][0];
        let total = &run["total"];
        let number = |name: &str| total[name].as_f64().unwrap_or(0.0);
        let errors = run["errors"].as_object().map(|kinds| kinds.values().filter_map(Value::as_u64).sum());
        let sample = Sample {
            rate: number("per_second"),
            p50: number("p50_us"),
            p99: number("p99_us"),
            cpu,
            memory_mb: running.pids.iter().map(|pid| memory_mb(*pid)).sum(),
            errors: errors.unwrap_or(0),
        };
        eprintln!(
            "  {:<10} {} {:>3}x{:<2} {:>9.0}/s  p50 {:>7.0} us  p99 {:>7.0} us",
            system.name(),
            cell.op.name(),
            cell.connections,
            cell.pipeline,
            sample.rate,
            sample.p50,
            sample.p99
        );
        self.results.samples.entry((cell, system)).or_default().push(sample);
        Ok(())
    }

    /// Runs a generator; gives its report, and the servers' CPU seconds per second in the middle of it.
    fn drive(&self, mut command: Command, warm_up: Duration, pids: &[u32]) -> Result<(Value, f64)> {
        let (out, log) = (self.scratch.path().join("report.json"), self.scratch.path().join("generator.log"));
        let _ = std::fs::remove_file(&log);
        let file = std::fs::File::create(&out).map_err(|error| error.to_string())?;
        let mut child = Process::start_to(&mut command, file, &log)?;
        // The generator takes a moment to connect; the edges of its time are left out.
        self.stop.sleep(warm_up + Duration::from_millis(150))?;
        let (before, start) = (cpu_seconds(pids), Instant::now());
        let mut share = 0.0;
        if !warm_up.is_zero() {
            self.stop.sleep(Duration::from_secs_f64(self.options.seconds - 0.3))?;
            share = (cpu_seconds(pids) - before) / start.elapsed().as_secs_f64();
        }
        let fine = child.wait(&self.stop, PATIENCE)?;
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if !fine {
            eprintln!("  failed: {}\n  {}", words(&command), said.trim_end());
        }
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let report = serde_json::from_str(&text)
            .map_err(|_| format!("no report from: {}\n{}", words(&command), said.trim_end()))?;
        Ok((report, share))
    }

    fn generator(&self, system: System, cell: Cell, endpoint: &str) -> Command {
        let Options { seconds, warm_up, keys, .. } = &self.options;
        if let (System::Etcd, Some(program)) = (system, &self.programs.etcd_load) {
            let mut command = Command::new(program);
            command.args([
                endpoint,
                cell.op.name(),
                &cell.connections.to_string(),
                &keys.to_string(),
                VALUE_BYTES,
            ]);
            command.args([warm_up.to_string(), seconds.to_string()]);
            return command;
        }
        let millis = |seconds: &f64| format!("{:.0}ms", seconds * 1e3);
        let mut command = self.bench(endpoint);
        command.args(["--workload", cell.op.name(), "--connections", &cell.connections.to_string()]);
        command.args(["--pipeline", &cell.pipeline.to_string(), "--warm-up", &millis(warm_up)]);
        command.args(["--duration", &millis(seconds)]);
        command
    }

    fn loader(&self, system: System, endpoint: &str) -> Command {
        if let (System::Etcd, Some(program)) = (system, &self.programs.etcd_load) {
            let mut command = Command::new(program);
            command.args([endpoint, "load", "512", &self.options.keys.to_string(), VALUE_BYTES, "0", "0"]);
            return command;
        }
        let mut command = self.bench(endpoint);
        command.args(["--load", "--workload", "set", "--warm-up", "0s", "--duration", "200ms"]);
        command
    }

    fn bench(&self, endpoint: &str) -> Command {
        let mut command = Command::new(&self.programs.quorate);
        command.args(["bench", "--json", "--endpoints", endpoint, "--value-size", VALUE_BYTES]);
        command.args(["--keys", &self.options.keys.to_string()]);
        command
    }

    /// The results with everything that they depend on.
    pub fn page(&self, load: f64, syncs: f64, took: Duration) -> Result<String> {
        let Options { seconds, warm_up, rounds, keys, .. } = &self.options;
        let quorate = &self.programs.quorate;
        let mut text = String::from("# Results\n\nMade by `bench/compare`.");
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        line(format!(
            " One system runs at a time, each once a round; numbers are medians of {rounds} rounds of {seconds} s \
             per cell\nafter {warm_up} s of warm-up; {keys} keys, uniform, {VALUE_BYTES} B values. A load of CxP \
             is C connections with P requests\nunder way on each. CPU and memory are of all servers of a system; the \
             load generator shares the machine.\n"
        ));
        line(format!("- date: {} ({:.0?})", machine::first_line("date", &["-u", "+%F %H:%M UTC"]), took));
        line(format!("- machine: {}", machine::describe()));
        line(format!("- disk: {syncs:.0} synced 4 KiB overwrites per second, one thread"));
        line(format!("- processors that others kept busy at the start: {load}"));
        if load > 0.5 {
            line("- **WARNING: this machine was not quiet; the numbers are worth little.**".to_owned());
        }
        let commit = machine::first_line("git", &["-C", &root(), "rev-parse", "--short", "HEAD"]);
        line(format!("- {} (commit {commit})", machine::first_line(quorate, &["--version"])));
        line(format!("- {}", machine::first_line("redis-server", &["--version"])));
        line(format!("- {}\n", machine::first_line("etcd", &["--version"])));
        text.push_str(&self.results.tables());
        text.push_str("\n## Commands\n\nOf the first round.\n\n```text\n");
        let scratch = self.scratch.path().to_string_lossy();
        for command in &self.commands {
            let command = command.replace(scratch.as_ref(), "$DATA").replace(&root(), ".");
            let _ = writeln!(text, "{command}");
        }
        text.push_str("```\n");
        Ok(text)
    }
}

fn root() -> String {
    crate::root().canonicalize().map_or_else(|_| ".".to_owned(), |root| root.display().to_string())
}

/// What a system is measured with: the replicator only writes, and etcd's clients do not pipeline.
fn cells(system: System) -> Vec<Cell> {
    let ops = [Op::Set, Op::Get].into_iter().filter(|op| system != System::Replicator || *op == Op::Set);
    let cells = ops.flat_map(|op| LOADS.map(|(connections, pipeline)| Cell { op, pipeline, connections }));
    cells.filter(|cell| system != System::Etcd || cell.pipeline == 1).collect()
}
