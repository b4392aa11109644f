//! Quorate, etcd and ZooKeeper as real processes, a member at each site of the emulated wide area (`bench/wan`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use xtask::compare::processes::{Process, cpu_seconds};
use xtask::compare::{machine, target, workspace};

use super::candidates::Candidate;
use super::world::World;
use crate::instrument::Result;
use crate::instrument::measure::Bench;

/// A service that has no leader where it is wanted by then has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// Heartbeats of etcd, as in the paper, and its elections, in ms.
const ETCD: [&str; 4] = ["--heartbeat-interval", "120", "--election-timeout", "1200"];
/// What ZooKeeper is started with.
const JAVA: [&str; 5] = [
    "-Xmx512m",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
    "-cp",
    "/usr/share/java/zookeeper.jar",
];

/// The emulated wide area.
pub struct Wan {
    process: Process,
    pub sites: Vec<Site>,
}

/// A site of it.
pub struct Site {
    pub name: String,
    pub address: String,
    namespace: String,
}

impl Site {
    /// Runs a program there.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace)).arg(program);
        command
    }
}

/// Programs that measure, built.
pub struct Programs {
    wan: PathBuf,
    ycsb: PathBuf,
    quorate: PathBuf,
}

impl Programs {
    /// Builds them; an error if something else is missing.
    pub fn build(bench: &Bench) -> Result<Programs> {
        for (program, package) in [
            ("etcd", "etcd-server"),
            ("etcdctl", "etcd-client"),
            ("java", "zookeeper"),
            ("ip", "iproute2"),
            ("protoc", "protobuf-compiler libprotobuf-dev"),
        ] {
            if !machine::has(program) {
                return Err(format!("{program} is not installed: apt-get install {package}"));
            }
        }
        if !Path::new("/usr/share/java/zookeeper.jar").exists() {
            return Err("ZooKeeper is not installed: apt-get install zookeeper".to_owned());
        }
        let built = |name: &str| -> Result<PathBuf> {
            let target = target().join(name);
            workspace(&format!("bench/{name}"), &target)?;
            Ok(target.join("release").join(name))
        };
        Ok(Programs { wan: built("wan")?, ycsb: built("ycsb")?, quorate: bench.quorate()? })
    }

    /// What the links really do: for each pair its sites, and the round trip as it should be, in the median, and at
    /// most, in ms.
    pub fn fidelity(&self, world: &World) -> Result<Vec<(String, String, [f64; 3])>> {
        let output = Command::new(&self.wan).args(["--topology", world.name, "--check"]).output();
        let output = output.map_err(|error| format!("cannot run wan: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let row = |line: &str| {
            let words: Vec<_> = line.split(',').collect();
            let number = |at: usize| words.get(at)?.parse().ok();
            Some((
                (*words.first()?).to_owned(),
                (*words.get(1)?).to_owned(),
                [number(2)?, number(3)?, number(4)?],
            ))
        };
        Ok(text.lines().skip(1).filter_map(row).collect())
    }

    /// The load generator at a site, driving the member there.
    pub fn ycsb(&self, wan: &Wan, service: &Running, site: usize, system: &str) -> Command {
        let mut command = wan.sites[site].command(&self.ycsb);
        command.args(["--system", system, "--endpoint", &service.endpoints[site]]);
        command
    }
}

impl Wan {
    /// Joins the sites.
    pub fn start(bench: &Bench, programs: &Programs, world: &World, dir: &Path) -> Result<Wan> {
        let log = dir.join("wan.log");
        let mut process = Process::start(Command::new(&programs.wan).args(["--topology", world.name]), &log)?;
        let text = wait(bench, "wan", || {
            process.expect_alive(&log)?;
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            Ok(text.ends_with("ready\n").then_some(text))
        })?;
        let site = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["site", name, address, namespace] => {
                Some(Site { name: name.into(), address: address.into(), namespace: namespace.into() })
            }
            _ => None,
        };
        Ok(Wan { process, sites: text.lines().filter_map(site).collect() })
    }

    /// CPU seconds of the emulator so far.
    pub fn cpu(&self) -> f64 {
        cpu_seconds(&[self.process.id()])
    }

    /// Each site's `ID=ADDRESS:PORT`, separated by commas.
    fn members(&self, id: impl Fn(usize) -> String) -> String {
        let member = |(index, site): (usize, &Site)| format!("{}{}", id(index), site.address);
        self.sites.iter().enumerate().map(member).collect::<Vec<_>>().join(",")
    }
}

/// A service that serves.
pub struct Running {
    /// Of each site's member, where its clients connect.
    endpoints: Vec<String>,
    processes: Vec<Process>,
}

impl Running {
    /// CPU seconds of all members so far.
    pub fn cpu(&self) -> f64 {
        cpu_seconds(&self.processes.iter().map(Process::id).collect::<Vec<_>>())
    }
}

/// Asks until there is an answer.
fn wait<T>(bench: &Bench, what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > LIMIT {
            return Err(format!("{what}: nothing after {LIMIT:?}"));
        }
        bench.stop.sleep(Duration::from_millis(200))?;
    }
}

/// What a command prints.
fn output(mut command: Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn folder(dir: &Path, site: usize) -> Result<PathBuf> {
    let folder = dir.join(format!("{}", site + 1));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Quorate with a protocol, all sites responders, led from the paper's site where it has a leader.
pub fn quorate(
    bench: &Bench,
    (programs, wan, world): (&Programs, &Wan, &World),
    candidate: &Candidate,
    dir: &Path,
) -> Result<Running> {
    let cluster = wan.members(|site| format!("{}=", site + 1)).replace(',', ":7201,") + ":7201";
    let responders: Vec<_> = (0..world.sites()).filter(|site| *site != world.leader()).collect();
    let settings = world.settings(candidate, &responders);
    let endpoints: Vec<_> = wan.sites.iter().map(|site| format!("{}:7101", site.address)).collect();
    let mut processes = Vec::new();
    for (index, site) in wan.sites.iter().enumerate() {
        let folder = folder(dir, index)?;
        let mut command = site.command(&programs.quorate);
        command.args(["serve", "--node-id", &(index + 1).to_string(), "--protocol", candidate.protocol]);
        command.args([
            "--listen-peer",
            &format!("{}:7201", site.address),
            "--listen-resp",
            &endpoints[index],
        ]);
        // One machine, one clock: two readings of it differ by less.
        command.args(["--initial-cluster", &cluster, "--clock", "bound=50us", "--data-dir"]).arg(&folder);
        for setting in &settings {
            command.args(["--set", setting]);
        }
        processes.push(Process::start(&mut command, &dir.join(format!("{}.log", index + 1)))?);
    }
    let (leader, all) = (world.leader() + 1, endpoints.join(","));
    let start = Instant::now();
    wait(bench, candidate.name, || {
        let site = &wan.sites[world.leader()];
        let mut status = site.command(&programs.quorate);
        status.args(["status", "--json", "--endpoints", &all]);
        let status: Value = serde_json::from_str(&output(status)?).unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let led: Vec<_> = nodes.iter().map(|node| node["leader"].as_u64()).collect();
        let all_are_there = nodes.len() == wan.sites.len();
        if all_are_there && led.iter().all(|by| *by == Some(leader as u64)) {
            return Ok(Some(()));
        }
        // A protocol without a leader never names one.
        if all_are_there && led.iter().all(Option::is_none) && start.elapsed() > Duration::from_secs(8) {
            return Ok(Some(()));
        }
        let mut transfer = site.command(&programs.quorate);
        transfer.args(["transfer", &leader.to_string(), "--endpoints", &all]);
        output(transfer).map(|_| None)
    })?;
    Ok(Running { endpoints, processes })
}

/// etcd, led from the paper's site.
pub fn etcd(bench: &Bench, (wan, world): (&Wan, &World), dir: &Path) -> Result<Running> {
    let cluster = wan.members(|site| format!("m{}=http://", site + 1)).replace(',', ":2380,") + ":2380";
    let endpoints: Vec<_> = wan.sites.iter().map(|site| format!("{}:2379", site.address)).collect();
    let mut processes = Vec::new();
    for (index, site) in wan.sites.iter().enumerate() {
        let (client, peer) =
            (format!("http://{}", endpoints[index]), format!("http://{}:2380", site.address));
        let mut command = site.command("etcd");
        command.args(["--name", &format!("m{}", index + 1), "--data-dir"]).arg(folder(dir, index)?);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &cluster, "--initial-cluster-state", "new"]);
        command.args(["--logger", "zap", "--log-level", "error"]).args(ETCD);
        processes.push(Process::start(&mut command, &dir.join(format!("{}.log", index + 1)))?);
    }
    let all = endpoints.join(",");
    let ctl = |words: &[&str]| {
        let mut command = wan.sites[world.leader()].command("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &all]).args(words);
        output(command)
    };
    wait(bench, "etcd", || {
        let status: Value =
            serde_json::from_str(&ctl(&["endpoint", "status", "-w", "json"])?).unwrap_or_default();
        let members = status.as_array().cloned().unwrap_or_default();
        if members.len() < endpoints.len() {
            return Ok(None);
        }
        let id = |member: &Value| member["Status"]["header"]["member_id"].as_u64();
        let at = |endpoint: &str| members.iter().find(|member| member["Endpoint"] == endpoint).and_then(id);
        let wanted = at(&endpoints[world.leader()]).ok_or("etcd names no member")?;
        if members.iter().all(|member| member["Status"]["leader"].as_u64() == Some(wanted)) {
            return Ok(Some(()));
        }
        ctl(&["move-leader", &format!("{wanted:x}")]).map(|_| None)
    })?;
    Ok(Running { endpoints, processes })
}

/// ZooKeeper, led from the paper's site.
pub fn zookeeper(bench: &Bench, (wan, world): (&Wan, &World), dir: &Path) -> Result<Running> {
    // Of members that know the same, the one with the highest number is elected.
    let number = |site: usize| if site == world.leader() { wan.sites.len() + 1 } else { site + 1 };
    let endpoints: Vec<_> = wan.sites.iter().map(|site| format!("{}:2181", site.address)).collect();
    let mut processes = Vec::new();
    let first = std::iter::once(world.leader());
    for index in first.chain((0..wan.sites.len()).filter(|site| *site != world.leader())) {
        let (site, folder) = (&wan.sites[index], folder(dir, index)?);
        let mut text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\ndataDir={}\nclientPort=2181\n\
             clientPortAddress={}\n",
            folder.display(),
            site.address
        );
        for (other, at) in wan.sites.iter().enumerate() {
            writeln!(text, "server.{}={}:2888:3888", number(other), at.address).expect("a string has room");
        }
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        write("zoo.cfg", &text)?;
        write("myid", &number(index).to_string())?;
        let mut command = site.command("java");
        command
            .args(JAVA)
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(folder.join("zoo.cfg"));
        processes.push(Process::start(&mut command, &dir.join(format!("{}.log", index + 1)))?);
    }
    wait(bench, "ZooKeeper", || {
        let modes = wan.sites.iter().map(|site| {
            let mut ask = site.command("bash");
            ask.args(["-c", &format!("exec 3<>/dev/tcp/{}/2181 && echo srvr >&3 && cat <&3", site.address)]);
            Ok(output(ask)?.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned)))
        });
        let modes = modes.collect::<Result<Vec<_>>>()?;
        match modes.iter().position(|mode| mode.as_deref() == Some("leader")) {
            Some(site) if site != world.leader() => {
                Err(format!("ZooKeeper elected {}: try again", wan.sites[site].name))
            }
            Some(_) => Ok(modes.iter().all(Option::is_some).then_some(())),
            None => Ok(None),
        }
    })?;
    Ok(Running { endpoints, processes })
}
