//! Figures of real processes: a cluster of three, and the load generator.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Result;
use super::measure::Bench;
use super::series::Op;
use xtask::compare::processes::{Process, cpu_seconds, words};
use xtask::compare::scratch;
use xtask::compare::up::{Member, Up};

/// Keys there are, and the length of each value.
pub const KEYS: &str = "1000";
pub const VALUE: &str = "1024";

/// A cluster that serves.
pub struct Cluster<'a> {
    up: Up,
    quorate: PathBuf,
    scratch: tempfile::TempDir,
    bench: &'a Bench,
    /// Whoever led when it had started.
    pub leader: Member,
}

/// What is asked of it.
#[derive(Clone, Debug)]
pub struct Load {
    /// Operations a second, evenly spaced, whatever is answered.
    pub rate: u64,
    /// The share of writes.
    pub writes: f64,
    /// The exponent of Zipf; 0 is uniform.
    pub zipf: f64,
    /// Each with one request under way.
    pub connections: usize,
    /// Before anything counts.
    pub warm_up: Duration,
    /// What counts.
    pub duration: Duration,
}

impl Load {
    /// A third of the operations write, keys are uniform.
    pub fn mixed(rate: u64, connections: usize, duration: Duration) -> Load {
        Load {
            rate,
            writes: 1.0 / 3.0,
            zipf: 0.0,
            connections,
            warm_up: Duration::from_millis(500),
            duration,
        }
    }
}

/// What came of a load.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    /// In ms.
    pub read_p50: f64,
    pub read_p90: f64,
    pub write_p50: f64,
    pub write_p90: f64,
    /// Of all operations.
    pub p50: f64,
    pub p99: f64,
    /// Processor time for each operation, in µs: of all nodes, warm-up included, and of the load generator.
    pub nodes_cpu: f64,
    pub generator_cpu: f64,
}

/// What came of the death of a leader.
#[derive(Clone, Debug)]
pub struct Survived {
    pub ops: Vec<Op>,
    /// Entries in the limbo region of the leader that is there at the end, when it was elected.
    pub limbo_entries: Option<u64>,
}

impl<'a> Cluster<'a> {
    /// Starts three nodes with these settings, and writes every key.
    pub fn start(bench: &'a Bench, settings: &[&str]) -> Result<Cluster<'a>> {
        let (quorate, scratch) = (bench.quorate()?, scratch("figures-")?);
        // One machine, one clock: two readings of it differ by less.
        let mut flags = ["--protocol", "raft", "--clock", "bound=50us"].map(str::to_owned).to_vec();
        for setting in settings {
            flags.extend(["--set".to_owned(), setting.to_string()]);
        }
        let up = Up::start(&quorate, &flags, scratch.path(), &bench.stop)?;
        let leader = up.leader(&bench.stop)?;
        let cluster = Cluster { up, quorate, scratch, bench, leader };
        let mut load = cluster.generator(std::slice::from_ref(&cluster.leader.resp));
        load.args(["--load", "--workload", "set", "--warm-up", "0s", "--duration", "100ms"]);
        cluster.report(&mut load)?;
        Ok(cluster)
    }

    fn generator(&self, endpoints: &[String]) -> Command {
        let mut command = Command::new(&self.quorate);
        command.args([
            "bench",
            "--json",
            "--endpoints",
            &endpoints.join(","),
            "--keys",
            KEYS,
            "--value-size",
            VALUE,
        ]);
        command
    }

    fn loaded(&self, load: &Load, endpoints: &[String]) -> Command {
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let mut command = self.generator(endpoints);
        command.args(["--rate", &load.rate.to_string(), "--writes", &load.writes.to_string()]);
        command.args(["--connections", &load.connections.to_string(), "--pipeline", "1"]);
        command.args(["--warm-up", &millis(load.warm_up), "--duration", &millis(load.duration)]);
        if load.zipf > 0.0 {
            // By age: nothing is inserted, so it is by rank, and no two ranks share a key.
            command.args(["--keys-by", "latest", "--zipf", &load.zipf.to_string()]);
        }
        command
    }

    /// Loads the leader.
    pub fn measure(&self, load: &Load) -> Result<Outcome> {
        let mut command = self.loaded(load, std::slice::from_ref(&self.leader.resp));
        let pids: Vec<_> = self.up.members.iter().map(|member| member.pid).collect();
        let before = cpu_seconds(&pids);
        let report = self.report(&mut command)?;
        let nodes = 1e6 * (cpu_seconds(&pids) - before);
        let run = &report["runs"][0];
        let op = |name: &str| run["ops"].as_array().and_then(|ops| ops.iter().find(|op| op["name"] == name));
        let of = |op: Option<&Value>, field: &str| op.and_then(|op| op[field].as_f64()).unwrap_or(0.0);
        let (read, write, total) = (op("read"), op("update"), Some(&run["total"]));
        let asked = of(total, "per_second") * (load.warm_up + load.duration).as_secs_f64();
        Ok(Outcome {
            nodes_cpu: nodes / asked.max(1.0),
            generator_cpu: of(Some(run), "client_cpu_us_per_op"),
            reads_per_second: of(read, "per_second"),
            writes_per_second: of(write, "per_second"),
            read_p50: of(read, "p50_us") / 1e3,
            read_p90: of(read, "p90_us") / 1e3,
            write_p50: of(write, "p50_us") / 1e3,
            write_p90: of(write, "p90_us") / 1e3,
            p50: of(total, "p50_us") / 1e3,
            p99: of(total, "p99_us") / 1e3,
        })
    }

    /// Loads the followers, kills the leader when the load has run for some time, a second or more; gives the
    /// operations, in ms from `axis` before the kill, and what the next leader says.
    pub fn survive(&self, load: &Load, kill_after: Duration, axis: f64) -> Result<Survived> {
        let leader = self.up.leader(&self.bench.stop)?;
        let others = self.up.members.iter().filter(|member| member.id != leader.id);
        let endpoints: Vec<_> = others.map(|member| member.resp.clone()).collect();
        let (trace, log, out) = (self.path("trace.csv"), self.path("crash.log"), self.path("bench.out"));
        let mut command = self.loaded(load, &endpoints);
        command.arg("--progress").arg("--trace").arg(&trace);
        let file = std::fs::File::create(&out).map_err(|error| error.to_string())?;
        let mut process = Process::start_to(&mut command, file, &log)?;
        // How long thousands of connections take to open, is not known: the load tells of its first second.
        process.wait_for_output(&self.bench.stop, &log, Duration::from_secs(30))?;
        self.bench.stop.sleep(kill_after.saturating_sub(Duration::from_secs(1)))?;
        let pid = Pid::from_raw(leader.pid as i32).ok_or("a process without an id")?;
        kill_process(pid, Signal::KILL)
            .map_err(|error| format!("cannot kill node {}: {error}", leader.id))?;
        let killed = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
        if !process.wait(&self.bench.stop, load.duration + Duration::from_secs(30))? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("{}: {said}", words(&command)));
        }
        let text = std::fs::read_to_string(&trace).map_err(|error| error.to_string())?;
        let ops = parse(&text, killed.as_nanos() as u64, axis)?;
        let mut status = Command::new(&self.quorate);
        status.args(["status", "--json", "--endpoints", &endpoints.join(",")]);
        let said = status.output().map_err(|error| error.to_string())?.stdout;
        let said: Value = serde_json::from_slice(&said).unwrap_or_default();
        let leads = |node: &&Value| node["role"] == "leader";
        let leader = said["nodes"].as_array().and_then(|nodes| nodes.iter().find(leads));
        let limbo_entries = leader.and_then(|leader| leader["samples"]["limbo_entries"].as_u64());
        Ok(Survived { ops, limbo_entries })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn report(&self, command: &mut Command) -> Result<Value> {
        let (log, out) = (self.path("bench.log"), self.path("bench.out"));
        let file = std::fs::File::create(&out).map_err(|error| error.to_string())?;
        let mut process = Process::start_to(command, file, &log)?;
        // What it has measured counts, even if nothing succeeded.
        process.wait(&self.bench.stop, Duration::from_secs(120))?;
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        serde_json::from_str(&text).map_err(|_| format!("no report from: {}\n{}", words(command), said()))
    }
}

/// Reads a trace; `axis` ms before the kill is 0.
fn parse(text: &str, killed: u64, axis: f64) -> Result<Vec<Op>> {
    let mut lines = text.lines();
    let began = lines.next().and_then(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    let began = began.ok_or("a trace without a beginning")?;
    let origin = (killed as f64 - began as f64) / 1e6 - axis;
    let op = |line: &str| {
        let [op, start, end, how] = line.split(',').collect::<Vec<_>>()[..] else { return None };
        let at = |micros: &str| micros.parse::<f64>().ok().map(|micros| micros / 1e3 - origin);
        let end = at(end)?;
        Some(Op { start: at(start)?, end: (how == "ok").then_some(end), writes: op == "update" })
    };
    Ok(lines.filter(|line| !line.starts_with(['#', 'o'])).filter_map(op).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_on_the_axis_of_the_kill() {
        let text = "# began 1000000000 ns after the Unix epoch\nop,start_us,end_us,end\nread,250000,251000,ok\n\
                    update,1000000,1500000,lost\n# and 3 more\n";
        // Killed one second after the beginning; 500 ms before that is 0.
        let ops = parse(text, 2_000_000_000, 500.0).unwrap();
        assert_eq!(
            ops,
            [
                Op { start: -250.0, end: Some(-249.0), writes: false },
                Op { start: 500.0, end: None, writes: true },
            ]
        );
        assert!(parse("op,start_us", 1, 0.0).is_err());
    }
}
