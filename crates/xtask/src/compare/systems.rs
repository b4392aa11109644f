//! What is compared, and the loads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use quorate_protocols::registry;
use serde_json::Value;

use super::processes::Result;
use super::services::{self, Kind};
use super::{built, built_in, quorate, quorate_in};

/// In bytes.
pub const VALUE: &str = "128";
/// How many there are.
pub const KEYS: &str = "10000";
/// Connections of a load.
pub const CONNECTIONS: &str = "64";
/// Of a load of many requests, how many are under way on each connection.
pub const PIPELINE: &str = "16";
/// Clients that write while the leader is killed.
pub const WITNESSES: &str = "8";
/// What a witness waits for an answer before it asks again, on a new connection.
pub const WITNESS_TIMEOUT: &str = "200ms";
/// What follows a protocol of ours, in names.
pub const OURS: &str = "Quorate ";

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// In the CSV.
    pub name: &'static str,
    writes: bool,
    pipelined: bool,
    /// Asked of the second member; else of the leader.
    follower: bool,
    /// Reads of the member's own state, as old as that may be.
    stale: bool,
}

/// What is asked of the leader.
pub const SET: Load = Load { name: "set", writes: true, pipelined: false, follower: false, stale: false };
/// The same, many at a time.
pub const SET_PIPELINED: Load = Load { name: "set pipelined", pipelined: true, ..SET };
/// Reads at the leader.
pub const GET: Load = Load { name: "get", writes: false, ..SET };
/// Reads at another member.
pub const GET_FOLLOWER: Load = Load { name: "get at a follower", follower: true, ..GET };
/// The same, possibly stale.
pub const GET_STALE: Load = Load { name: "stale get at a follower", stale: true, ..GET_FOLLOWER };

/// What drives a system.
#[derive(Clone, Debug)]
enum Generator {
    /// `quorate bench`, for what speaks RESP.
    Bench(PathBuf),
    /// `bench/etcd-load`.
    EtcdLoad(PathBuf),
    /// `bench/ycsb`.
    Ycsb,
}

/// A system under comparison.
#[derive(Clone, Debug)]
pub struct System {
    /// In the CSV.
    pub name: String,
    /// What is started.
    pub kind: Kind,
    /// How many members it has.
    pub members: usize,
    /// What it is loaded with.
    pub loads: Vec<Load>,
    /// Others take over when the leader dies.
    pub survives: bool,
    generator: Generator,
    ycsb: PathBuf,
}

impl System {
    /// All of them, in the order of the tables; programs are those of a target folder, built or not.
    pub fn all(target: &Path) -> Vec<System> {
        let ycsb = built_in(target, "ycsb", "ycsb");
        let bench = || Generator::Bench(quorate_in(target));
        let system = |name: String, kind, members, survives, generator, loads: &[Load]| System {
            name,
            kind,
            members,
            survives,
            generator,
            loads: loads.to_vec(),
            ycsb: ycsb.clone(),
        };
        let ours = registry::all().into_iter().map(|entry| {
            let able = entry.capabilities;
            let members = able.min_nodes.max(3).min(able.max_nodes);
            let kind =
                Kind::Quorate { program: quorate_in(target), protocol: entry.name, settings: Vec::new() };
            let survives = able.failover && (able.quorum)(members) < members;
            let loads = [SET, SET_PIPELINED, GET, GET_FOLLOWER];
            let loads = if members == 1 { &loads[..3] } else { &loads[..] };
            system(format!("{OURS}{}", entry.name), kind, members, survives, bench(), loads)
        });
        let etcd_load = Generator::EtcdLoad(built_in(target, "etcd-load", "etcd-load"));
        let replicator = Kind::Replicator(built_in(target, "limit", "replicator"));
        let others = [
            system("etcd".into(), Kind::Etcd(&[]), 3, true, etcd_load, &[SET, GET, GET_FOLLOWER]),
            system(
                "ZooKeeper".into(),
                Kind::ZooKeeper,
                3,
                true,
                Generator::Ycsb,
                &[SET, GET, GET_FOLLOWER, GET_STALE],
            ),
            system("Redis".into(), Kind::Redis, 1, false, bench(), &[SET, SET_PIPELINED, GET]),
            system("bare replicator".into(), replicator, 3, false, bench(), &[SET, SET_PIPELINED]),
        ];
        ours.chain(others).collect()
    }

    /// On the command line: protocols of ours by their own names.
    pub fn short_name(&self) -> &str {
        self.name.strip_prefix(OURS).unwrap_or(&self.name)
    }

    /// Whether a word of the command line means it.
    pub fn is_called(&self, word: &str) -> bool {
        self.short_name().eq_ignore_ascii_case(word)
    }

    /// What the driver of all services calls it.
    fn dialect(&self, load: Option<Load>) -> &'static str {
        match (&self.kind, load) {
            (Kind::Etcd(_), _) => "etcd",
            (Kind::ZooKeeper, Some(Load { stale: true, .. })) => "zookeeper",
            (Kind::ZooKeeper, _) => "zookeeper-sync",
            _ => "resp",
        }
    }

    fn ycsb(&self, endpoint: &str, load: Option<Load>) -> Command {
        let mut command = Command::new(&self.ycsb);
        command.args(["--system", self.dialect(load), "--endpoint", endpoint]);
        command.args(["--keys", KEYS, "--value-size", VALUE]);
        command
    }

    fn bench(program: &Path, endpoint: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["bench", "--json", "--endpoints", endpoint, "--value-size", VALUE, "--keys", KEYS]);
        command
    }

    /// What writes every key once.
    pub fn loader(&self, endpoints: &[String]) -> Command {
        let endpoint = &endpoints[0];
        match &self.generator {
            Generator::Bench(program) => {
                let mut command = System::bench(program, endpoint);
                command.args(["--load", "--workload", "set", "--warm-up", "0s", "--duration", "100ms"]);
                command
            }
            Generator::EtcdLoad(program) => {
                let mut command = Command::new(program);
                command.args([endpoint, "load", "512", KEYS, VALUE, "0", "0"]);
                command
            }
            Generator::Ycsb => {
                let mut command = self.ycsb(endpoint, None);
                command.args(["--load", "--clients", "256"]);
                command
            }
        }
    }

    /// What loads a member for so long.
    pub fn generator(&self, load: Load, endpoints: &[String], warm_up: Duration, time: Duration) -> Command {
        let endpoint = &endpoints[usize::from(load.follower)];
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let name = if load.writes { "set" } else { "get" };
        match &self.generator {
            Generator::Bench(program) => {
                let mut command = System::bench(program, endpoint);
                let pipeline = if load.pipelined { PIPELINE } else { "1" };
                command.args(["--workload", name, "--connections", CONNECTIONS, "--pipeline", pipeline]);
                command.args(["--warm-up", &millis(warm_up), "--duration", &millis(time)]);
                command
            }
            Generator::EtcdLoad(program) => {
                let mut command = Command::new(program);
                command.args([endpoint, name, CONNECTIONS, KEYS, VALUE]);
                command.args([warm_up, time].map(|time| time.as_secs_f64().to_string()));
                command
            }
            Generator::Ycsb => {
                let mut command = self.ycsb(endpoint, Some(load));
                let writes = if load.writes { "1" } else { "0" };
                command.args(["--clients", CONNECTIONS, "--writes", writes]);
                command.args(["--warm-up", &millis(warm_up), "--duration", &millis(time)]);
                command
            }
        }
    }

    /// Whether its generator has connected, as far as it tells; `log` is what it says of errors.
    pub fn is_connected(&self, log: &Path) -> bool {
        let tells = matches!(self.generator, Generator::Ycsb);
        !tells || std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
    }

    /// What kills a process, and writes at the members beside the first meanwhile.
    pub fn witness(&self, endpoints: &[String], pid: u32, limit: Duration) -> Command {
        let mut command = self.ycsb(&endpoints[1..].join(","), None);
        command.args(["--clients", WITNESSES, "--writes", "1", "--timeout", WITNESS_TIMEOUT]);
        command.args(["--warm-up", "500ms", "--duration", &format!("{}ms", limit.as_millis())]);
        command.args(["--kill", &pid.to_string()]);
        command
    }

    /// Of what a generator says: operations a second, p50 and p99 in µs, failures.
    pub fn outcome(&self, load: Load, report: &Value) -> Option<[f64; 4]> {
        if let Generator::Ycsb = self.generator {
            let kind = &report[if load.writes { "writes" } else { "reads" }];
            let [rate, p50, p99] = numbers(kind, ["per_second", "p50_ms", "p99_ms"])?;
            return Some([rate, p50 * 1e3, p99 * 1e3, report["errors"].as_f64()?]);
        }
        outcome_of_bench(report)
    }
}

/// The same of what `quorate bench --json` and `bench/etcd-load` print.
pub fn outcome_of_bench(report: &Value) -> Option<[f64; 4]> {
    let run = &report["runs"][0];
    let [rate, p50, p99] = numbers(&run["total"], ["per_second", "p50_us", "p99_us"])?;
    let errors = run["errors"].as_object()?.values().filter_map(Value::as_f64).sum();
    Some([rate, p50, p99, errors])
}

fn numbers(value: &Value, names: [&str; 3]) -> Option<[f64; 3]> {
    let [rate, p50, p99] = names.map(|name| value[name].as_f64());
    Some([rate?, p50?, p99?])
}

/// Builds what these systems need; an error if something else is missing.
pub fn build(systems: &[System]) -> Result<()> {
    let has = |is: fn(&Kind) -> bool| systems.iter().any(|system| is(&system.kind));
    let mut programs = vec![("ss", "iproute2"), ("protoc", "protobuf-compiler libprotobuf-dev")];
    if has(|kind| matches!(kind, Kind::Etcd(_))) {
        programs.extend(services::ETCD_PROGRAMS);
    }
    if has(|kind| matches!(kind, Kind::ZooKeeper)) {
        programs.extend(services::ZOOKEEPER_PROGRAMS);
    }
    if has(|kind| matches!(kind, Kind::Redis)) {
        programs.push(("redis-server", "redis-server"));
    }
    services::missing(&programs)?;
    quorate()?;
    built("ycsb", "ycsb")?;
    if has(|kind| matches!(kind, Kind::Etcd(_))) {
        built("etcd-load", "etcd-load")?;
    }
    if has(|kind| matches!(kind, Kind::Replicator(_))) {
        built("limit", "replicator")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_protocol_is_compared_and_no_name_comes_twice() {
        let all = System::all(Path::new("target"));
        for entry in registry::all() {
            let name = format!("{OURS}{}", entry.name);
            assert_eq!(all.iter().filter(|system| system.name == name).count(), 1, "{name}");
        }
        let alone = all.iter().find(|system| system.members == 1).unwrap();
        assert!(!alone.survives && !alone.loads.contains(&GET_FOLLOWER));
    }

    #[test]
    fn generators_report_in_microseconds() {
        let all = System::all(Path::new("target"));
        let of = |name: &str| all.iter().find(|system| system.name == name).unwrap();
        let total = json!({ "runs": [{
            "total": { "per_second": 9.0, "p50_us": 1.0, "p99_us": 2.0 }, "errors": { "a": 1, "b": 2 },
        }] });
        assert_eq!(of("Redis").outcome(SET, &total), Some([9.0, 1.0, 2.0, 3.0]));
        let kinds = json!({
            "reads": { "per_second": 9.0, "p50_ms": 1.0, "p99_ms": 2.0 }, "writes": {}, "errors": 0,
        });
        assert_eq!(of("ZooKeeper").outcome(GET, &kinds), Some([9.0, 1000.0, 2000.0, 0.0]));
        assert_eq!(of("ZooKeeper").outcome(SET, &kinds), None);
    }
}
