//! The services that are measured, as real processes, a member at each site: Quorate, etcd, ZooKeeper, Redis, and the
//! bare replicator. Sites are addresses of this machine, or network namespaces that `bench/wan` joins.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quorate_protocols::registry;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::machine;
use super::processes::{Process, Result, Stop, cpu_seconds, memory_mb, words};

/// A service that does not serve, led from where it is to be, by then has failed to start.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// The jar of Debian's `zookeeper`.
const ZOOKEEPER: &str = "/usr/share/java/zookeeper.jar";
/// What ZooKeeper is started with.
const JAVA: [&str; 5] = [
    "-Xmx512m",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
    "-cp",
    ZOOKEEPER,
];

/// Roles of Quorate's nodes that wait for a leader, or for others.
const WAITING: [&str; 4] = ["follower", "candidate", "polling", "rejoining"];
/// Where the bare replicator listens: the leader for its clients, the followers for the leader.
const REPLICATOR: [&str; 3] = ["26100", "26101", "26102"];

/// Where a member runs.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// The IP address at which the member listens.
    pub address: String,
    /// The network namespace of its processes; none: this machine's own.
    pub namespace: Option<String>,
}

impl Site {
    /// So many sites of this machine, each with a loopback address of its own.
    pub fn local(count: usize) -> Vec<Site> {
        let site = |number: usize| Site {
            name: number.to_string(),
            address: format!("127.88.0.{number}"),
            namespace: None,
        };
        (1..=count).map(site).collect()
    }

    /// Runs a program there.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match &self.namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={namespace}")).arg(program);
                command
            }
        }
    }
}

/// Where a service is started.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// One for each member.
    pub sites: &'a [Site],
    /// The site that is to lead, counted from 0.
    pub leader: usize,
    /// An empty directory for data and logs.
    pub dir: &'a Path,
    /// What ends the waiting.
    pub stop: &'a Stop,
}

/// A service that serves. It ends when this is dropped.
#[derive(Debug)]
pub struct Service {
    /// Of each member, where its clients connect.
    pub endpoints: Vec<String>,
    /// Of each member.
    pub pids: Vec<u32>,
    /// How the member was started that is to lead.
    pub command: String,
    /// Where members listen for each other.
    peers: Vec<String>,
    _processes: Vec<Process>,
}

impl Service {
    /// CPU seconds of all members so far.
    pub fn cpu(&self) -> f64 {
        cpu_seconds(&self.pids)
    }

    /// Resident memory of all members, in MB.
    pub fn memory_mb(&self) -> f64 {
        self.pids.iter().map(|pid| memory_mb(*pid)).sum()
    }

    /// Ends all members at once: nothing of theirs is needed any more.
    pub fn kill(self) {
        for pid in &self.pids {
            if let Some(pid) = Pid::from_raw(*pid as i32) {
                // One of them may have been killed before; it is a child still, so its id is nobody else's.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Bytes that members have sent each other over the connections that there are now.
    pub fn wire_bytes(&self) -> Result<u64> {
        let output = Command::new("ss").args(["-tinHO"]).output();
        let output = output.map_err(|error| format!("cannot run ss: {error}"))?;
        Ok(sent_between(&self.peers, &String::from_utf8_lossy(&output.stdout)))
    }
}

/// Payload bytes of all connections to these addresses, in both directions, by the kernel's counters as `ss -tinHO`
/// prints them: a line for each end that is on this machine.
fn sent_between(addresses: &[String], text: &str) -> u64 {
    let plain = |word: &str| word.replace("[::ffff:", "").replace(']', "");
    let sent = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let ends = words.get(3..5)?.iter().map(|word| plain(word));
        let between = ends.into_iter().any(|end| addresses.contains(&end));
        let bytes = words.iter().find_map(|word| word.strip_prefix("bytes_sent:")?.parse::<u64>().ok());
        bytes.filter(|_| between)
    };
    text.lines().filter_map(sent).sum()
}

/// What is not installed of the programs that are needed, with Debian's packages.
pub fn missing(programs: &[(&str, &str)]) -> Result<()> {
    let is_there = |program: &str| match program.starts_with('/') {
        true => Path::new(program).exists(),
        false => machine::has(program),
    };
    let missing: Vec<_> = programs.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let [programs, packages] = [0, 1].map(|at| {
        let word = |(program, package): &&(&str, &str)| [*program, *package][at].to_owned();
        missing.iter().map(word).collect::<Vec<_>>()
    });
    Err(format!("not installed: {}; apt-get install {}", programs.join(", "), packages.join(" ")))
}

/// What etcd needs: programs, and Debian's packages.
pub const ETCD_PROGRAMS: [(&str, &str); 2] = [("etcd", "etcd-server"), ("etcdctl", "etcd-client")];
/// The same of ZooKeeper.
pub const ZOOKEEPER_PROGRAMS: [(&str, &str); 2] =
    [("java", "default-jre-headless"), (ZOOKEEPER, "zookeeper")];

/// Asks until there is an answer.
pub fn wait_for<T>(what: &str, stop: &Stop, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if start.elapsed() > START_LIMIT {
            return Err(format!("{what}: nothing after {START_LIMIT:?}"));
        }
        stop.sleep(POLL)?;
    }
}

/// What a command prints.
fn output(mut command: Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a command prints, as JSON; nothing if it is none.
fn json(command: Command) -> Result<Value> {
    Ok(serde_json::from_str(&output(command)?).unwrap_or_default())
}

impl Placement<'_> {
    fn folder(&self, site: usize) -> Result<PathBuf> {
        let folder = self.dir.join(format!("{}", site + 1));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// Of each site, what a port there is called.
    fn at(&self, port: u16) -> Vec<String> {
        self.sites.iter().map(|site| format!("{}:{port}", site.address)).collect()
    }
}

/// Members and their ids, as a service's flags name them.
fn cluster(ids: &str, members: &[String]) -> String {
    let members = (1..).zip(members).map(|(id, member)| format!("{ids}{id}={member}"));
    members.collect::<Vec<_>>().join(",")
}

/// What is started.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Quorate with a protocol and its settings; it has a leader where the protocol has one.
    Quorate {
        /// The binary.
        program: PathBuf,
        /// As the registry calls it.
        protocol: &'static str,
        /// As `--set` takes them.
        settings: Vec<String>,
    },
    /// etcd with these flags.
    Etcd(&'static [&'static str]),
    /// ZooKeeper.
    ZooKeeper,
    /// One Redis, at one site, that syncs every write.
    Redis,
    /// The bare replicator, a binary: a leader and two followers, at 127.0.0.1 alone.
    Replicator(PathBuf),
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Quorate { protocol, .. } => protocol,
            Kind::Etcd(_) => "etcd",
            Kind::ZooKeeper => "ZooKeeper",
            Kind::Redis => "Redis",
            Kind::Replicator(_) => "the bare replicator",
        }
    }

    /// Of each member, where its clients connect, and where the others do.
    fn addresses(&self, on: &Placement<'_>) -> [Vec<String>; 2] {
        match self {
            Kind::Quorate { .. } => [on.at(7101), on.at(7201)],
            Kind::Etcd(_) => [on.at(2379), on.at(2380)],
            Kind::ZooKeeper => [on.at(2181), on.at(2888)],
            Kind::Redis => [on.at(6379), Vec::new()],
            Kind::Replicator(_) => {
                let at = |port: &str| format!("127.0.0.1:{port}");
                [vec![at(REPLICATOR[0])], REPLICATOR[1..].iter().map(|port| at(port)).collect()]
            }
        }
    }

    /// Starts it in an empty directory, and waits until it serves.
    pub fn start(&self, on: &Placement<'_>) -> Result<Service> {
        let sites = 0..on.sites.len();
        let (first, last): (Vec<_>, Vec<_>) = match self {
            // Followers take one connection, the leader's, so nobody else can see whether they are there.
            Kind::Replicator(_) => sites.partition(|site| *site != on.leader),
            // The first that is there is elected.
            _ => sites.partition(|site| *site == on.leader),
        };
        let mut processes: Vec<(usize, Process)> = Vec::new();
        let mut started = String::new();
        let log = |site: usize| on.dir.join(format!("{}.log", site + 1));
        for site in first.into_iter().chain(last) {
            if matches!(self, Kind::Replicator(_)) && site == on.leader {
                on.stop.sleep(Duration::from_millis(700))?;
            }
            let mut command = self.command(on, site)?;
            if site == on.leader {
                started = words(&command);
            }
            processes.push((site, Process::start(&mut command, &log(site))?));
        }
        processes.sort_by_key(|(site, _)| *site);
        wait_for(self.name(), on.stop, || {
            for (site, process) in &mut processes {
                process.expect_alive(&log(*site))?;
            }
            Ok(self.is_ready(on)?.then_some(()))
        })?;
        let [endpoints, peers] = self.addresses(on);
        let processes: Vec<_> = processes.into_iter().map(|(_, process)| process).collect();
        let pids = processes.iter().map(Process::id).collect();
        Ok(Service { endpoints, pids, command: started, peers, _processes: processes })
    }

    /// The member at a site.
    fn command(&self, on: &Placement<'_>, site: usize) -> Result<Command> {
        let at = |program: &dyn AsRef<OsStr>| on.sites[site].command(program.as_ref());
        let [clients, peers] = self.addresses(on);
        Ok(match self {
            Kind::Quorate { program, protocol, settings } => {
                let mut command = at(program);
                command.args(["serve", "--node-id", &(site + 1).to_string(), "--protocol", protocol]);
                command.args(["--listen-peer", &peers[site], "--listen-resp", &clients[site]]);
                // Nobody else is in the network namespaces.
                command.arg("--insecure");
                // One machine, one clock: two readings of it differ by less.
                command.args(["--initial-cluster", &cluster("", &peers), "--clock", "bound=50us"]);
                command.arg("--data-dir").arg(on.folder(site)?);
                for setting in settings {
                    command.args(["--set", setting]);
                }
                command
            }
            Kind::Etcd(flags) => {
                let urls = |all: &[String]| all.iter().map(|at| format!("http://{at}")).collect::<Vec<_>>();
                let (clients, peers) = (urls(&clients), urls(&peers));
                let (client, peer) = (&clients[site], &peers[site]);
                let mut command = at(&"etcd");
                command.args(["--name", &format!("m{}", site + 1), "--data-dir"]).arg(on.folder(site)?);
                command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
                command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
                command.args(["--initial-cluster", &cluster("m", &peers), "--initial-cluster-state", "new"]);
                command.args(["--logger", "zap", "--log-level", "error"]).args(*flags);
                command
            }
            Kind::ZooKeeper => {
                let mut command = at(&"java");
                command.args(JAVA).arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
                command.arg(zookeeper(on, site)?);
                command
            }
            Kind::Redis => {
                let mut command = at(&"redis-server");
                command.args(["--port", "6379", "--bind", &on.sites[site].address, "--save", "", "--dir"]);
                command.arg(on.folder(site)?).args(["--appendonly", "yes", "--appendfsync", "always"]);
                command
            }
            Kind::Replicator(program) => {
                let mut command = Command::new(program);
                let role = if site == on.leader { "leader" } else { "follower" };
                command.args([role, REPLICATOR[site]]).arg(on.dir);
                if site == on.leader {
                    command.args(&REPLICATOR[1..]);
                }
                command
            }
        })
    }

    /// Whether every member serves, led from where it is to be; hands leadership there if it is elsewhere.
    pub fn is_ready(&self, on: &Placement<'_>) -> Result<bool> {
        let [endpoints, _] = self.addresses(on);
        let all = endpoints.join(",");
        match self {
            Kind::Quorate { program, protocol, .. } => {
                let ask = |words: &[&str]| {
                    let mut command = on.sites[on.leader].command(program);
                    command.args(words).args(["--endpoints", &all]);
                    command
                };
                let status = json(ask(&["status", "--json"]))?;
                let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
                if nodes.len() < on.sites.len() || status["serves"] != true {
                    return Ok(false);
                }
                // Where there is no leader, nobody is about to follow or to become one either.
                let waits = |node: &Value| node["role"].as_str().is_none_or(|role| WAITING.contains(&role));
                let leaderless = |node: &Value| node["leader"].is_null() && !waits(node);
                let wanted = on.leader as u64 + 1;
                let leader = &nodes[0]["leader"];
                let agreed = nodes.iter().all(|node| node["leader"] == *leader);
                // Where the leader cannot be chosen, whoever leads will do.
                let chosen = registry::find(protocol).is_ok_and(|entry| entry.capabilities.transfer);
                let will_do = *leader == wanted || (!chosen && !leader.is_null());
                if nodes.iter().all(leaderless) || (agreed && will_do) {
                    return Ok(true);
                }
                if chosen {
                    output(ask(&["transfer", &wanted.to_string()]))?;
                }
                Ok(false)
            }
            Kind::Etcd(_) => {
                let ask = |words: &[&str]| {
                    let mut command = on.sites[on.leader].command("etcdctl");
                    command.env("ETCDCTL_API", "3").args(["--endpoints", &all]).args(words);
                    command
                };
                let status = json(ask(&["endpoint", "status", "-w", "json"]))?;
                let members = status.as_array().cloned().unwrap_or_default();
                let is_wanted = |member: &&Value| member["Endpoint"] == endpoints[on.leader].as_str();
                let wanted = members.iter().find(is_wanted).filter(|_| members.len() == endpoints.len());
                let Some(wanted) = wanted else { return Ok(false) };
                let wanted =
                    wanted["Status"]["header"]["member_id"].as_u64().ok_or("etcd names no member")?;
                if members.iter().all(|member| member["Status"]["leader"] == wanted) {
                    return Ok(true);
                }
                output(ask(&["move-leader", &format!("{wanted:x}")])).map(|_| false)
            }
            Kind::ZooKeeper => {
                let mode = |site: &Site| {
                    let mut ask = site.command("timeout");
                    let srvr = format!("exec 3<>/dev/tcp/{}/2181 && echo srvr >&3 && cat <&3", site.address);
                    ask.args(["5", "bash", "-c", &srvr]);
                    Ok(output(ask)?.lines().find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned)))
                };
                let modes = on.sites.iter().map(mode).collect::<Result<Vec<_>>>()?;
                match modes.iter().position(|mode| mode.as_deref() == Some("leader")) {
                    Some(site) if site != on.leader => {
                        Err(format!("ZooKeeper elected {}: try again", on.sites[site].name))
                    }
                    Some(_) => Ok(modes.iter().all(Option::is_some)),
                    None => Ok(false),
                }
            }
            // They load nothing, and serve when they listen.
            Kind::Redis | Kind::Replicator(_) => Ok(TcpStream::connect(&endpoints[0]).is_ok()),
        }
    }
}

/// Writes the configuration of ZooKeeper's member at a site.
fn zookeeper(on: &Placement<'_>, site: usize) -> Result<PathBuf> {
    // Of members that know the same, the one with the highest number is elected.
    let number = |site: usize| if site == on.leader { on.sites.len() + 1 } else { site + 1 };
    let (folder, address) = (on.folder(site)?, &on.sites[site].address);
    let mut text = format!(
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\ndataDir={}\nclientPort=2181\n\
         clientPortAddress={address}\n",
        folder.display(),
    );
    for (other, at) in on.sites.iter().enumerate() {
        writeln!(text, "server.{}={}:2888:3888", number(other), at.address).expect("a string has room");
    }
    let path = folder.join("zoo.cfg");
    for (path, text) in [(&path, text), (&folder.join("myid"), number(site).to_string())] {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_members_are_those_of_both_ends_and_of_no_client() {
        let text = "ESTAB 0 0 127.0.0.1:9 127.88.0.2:7201 bbr rto:204 bytes_sent:100 bytes_acked:90\n\
                    ESTAB 0 0 127.88.0.2:7201 127.0.0.1:9 bbr bytes_sent:20 bytes_received:100\n\
                    ESTAB 0 0 [::ffff:127.88.0.1]:7201 [::ffff:127.0.0.1]:8 bbr bytes_sent:3\n\
                    ESTAB 0 0 127.88.0.1:7201 127.0.0.1:7 bbr rto:204\n\
                    ESTAB 0 0 127.88.0.1:7101 127.0.0.1:6 bbr bytes_sent:1000\n";
        let peers = ["127.88.0.1:7201", "127.88.0.2:7201"].map(str::to_owned);
        assert_eq!(sent_between(&peers, text), 123);
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert_eq!(missing(&[("bash", "bash")]), Ok(()));
        let programs = [("no-such-program", "a"), ("bash", "bash"), ("/no/such.jar", "b")];
        let error = "not installed: no-such-program, /no/such.jar; apt-get install a b";
        assert_eq!(missing(&programs), Err(error.to_owned()));
    }
}
