//! `quorate compare`: protocols side by side on emulated sites, each as `quorate up` starts it, with clients at every
//! site at once.

use std::io::{BufRead, BufReader, IsTerminal, Write, stderr, stdout};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorate_bench::{Arrivals, Choice, Mix, Options, Report, Sizes};
use quorate_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;

use crate::args::{duration, share};
use crate::failure::{Failure, say};
use crate::{protocols, signals, topology};

pub const EXAMPLES: &str = "Examples:
  quorate compare                                        bodega, multipaxos and raft, 1% writes, five sites
  quorate compare --protocols bodega,epaxos --writes 0.1 --topology wan
  quorate compare --protocols bodega --set responders=1,2";

#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Which, one after the other
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "bodega,multipaxos,raft")]
    pub protocols: Vec<String>,
    /// Where the nodes and their clients are: geo, wan or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "geo")]
    pub topology: String,
    /// The site that leads, where there is a leader [default: that of the Bodega paper; else whichever comes to]
    #[arg(long, value_name = "SITE")]
    pub leader: Option<String>,
    /// The share of writes, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value = "0.01", value_parser = share)]
    pub writes: f64,
    /// Clients at each site, each with one request under way
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub clients: u16,
    /// How many keys there are
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=999_999_999))]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "SIZES", default_value = "128")]
    pub value_size: Sizes,
    /// Time before anything counts
    #[arg(long, default_value = "3s", value_parser = duration)]
    pub warm_up: Duration,
    /// Time that counts
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Duration,
    /// A setting of the protocols; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// How long a cluster may take to have a leader where it is wanted.
const LEADER_LIMIT: Duration = Duration::from_secs(30);

/// What one protocol has come to.
struct Measured {
    protocol: String,
    /// Site, whether it led at the end, and what its clients saw.
    sites: Vec<(String, bool, Report)>,
}

pub fn compare(args: Compare) -> Result<(), Failure> {
    let sites = topology::load(&args.topology)?;
    let leader = match (args.leader.as_deref(), args.topology.as_str()) {
        (None, "geo") => Some("VA"),
        (None, "wan") => Some("WI"),
        (given, _) => given,
    };
    let leader =
        leader.map(|site| sites.site(site).map_err(|error| Failure::wrong(format!("--leader: {error}"))));
    let leader = leader.transpose()?;
    let stop = signals::interrupt_flag()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let mut all = Vec::new();
    for protocol in &args.protocols {
        if stderr().is_terminal() {
            let seconds = (args.warm_up + args.duration).as_secs();
            say(&format!("{protocol}: starting, then {seconds} s of load at {} sites", sites.sites().len()));
        }
        let measured = measure(&args, protocol, leader, &stop);
        if stopped() {
            break;
        }
        all.push(measured?);
    }
    match args.json {
        true => print_json(&args, &all)?,
        false => print(&all)?,
    }
    match args.protocols.get(all.len()) {
        Some(protocol) if stopped() => {
            Err(Failure::failed(format!("interrupted: {protocol} and what follows it were not measured")))
        }
        _ => Ok(()),
    }
}

/// Ends with its nodes.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// What `quorate up --json` prints.
#[derive(Debug, Deserialize)]
struct Told {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: u8,
    resp: SocketAddr,
    site: String,
}

/// A cluster that serves.
fn up(args: &Compare, protocol: &str) -> Result<(Up, Vec<Node>), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["up", "--json", "--topology", &args.topology, "--protocol", protocol]);
    args.set.iter().for_each(|setting| _ = command.args(["--set", setting]));
    let mut up = Up(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    BufReader::new(up.0.stdout.take().expect("it is a pipe")).read_line(&mut line)?;
    if line.is_empty() {
        // It has said why.
        let code = up.0.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        return Err(Failure { code, message: format!("{protocol} did not start") });
    }
    let told: Told = serde_json::from_str(&line).map_err(|error| {
        Failure::failed(format!("`quorate up` said something else than its nodes: {error}"))
    })?;
    Ok((up, told.nodes))
}

fn measure(
    args: &Compare,
    protocol: &str,
    leader: Option<usize>,
    stop: &AtomicBool,
) -> Result<Measured, Failure> {
    let (_up, nodes) = up(args, protocol)?;
    if let Some(leader) = leader {
        appoint(&nodes, leader, stop)?;
    }
    let options = |node: &Node| Options {
        endpoints: vec![node.resp],
        tls: None,
        login: None,
        connections: args.clients.into(),
        pipeline: 1,
        rate: None,
        arrivals: Arrivals::Even,
        mix: Mix::writes(args.writes),
        choice: Choice::Uniform,
        keys: args.keys,
        key_prefix: Options::KEY_PREFIX.to_owned(),
        sizes: args.value_size.clone(),
        scan_max: 1,
        warm_up: args.warm_up,
        duration: args.duration,
        timeout: Duration::from_secs(10),
        seed: node.id.into(),
        progress: false,
        trace: false,
    };
    // At all of them: each node's proxy opens its session with its first write.
    let everywhere = nodes.iter().map(|node| node.resp).collect();
    let loading = Options { endpoints: everywhere, connections: 4 * nodes.len(), ..options(&nodes[0]) };
    quorate_bench::load(&loading, stop).map_err(Failure::failed)?;
    let reports: Vec<_> = thread::scope(|scope| {
        let run = |node| {
            let options = options(node);
            scope.spawn(move || quorate_bench::run(&options, stop))
        };
        let running: Vec<_> = nodes.iter().map(run).collect();
        running.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
    });
    let leads = leader_of(&nodes);
    let mut sites = Vec::new();
    for (node, report) in nodes.into_iter().zip(reports) {
        sites.push((node.site, leads == Some(node.id), report.map_err(Failure::failed)?));
    }
    Ok(Measured { protocol: protocol.to_owned(), sites })
}

/// Whom the nodes believe to lead, if they do.
fn leader_of(nodes: &[Node]) -> Option<u8> {
    let mut client = Client::connect([nodes.first()?.resp.to_string()], LEADER_LIMIT).ok()?;
    let status: serde_json::Value = serde_json::from_str(&client.status().ok()?).ok()?;
    status["leader"].as_u64().and_then(|id| u8::try_from(id).ok())
}

/// Has the node at a site lead, if the protocol has a leader at all.
fn appoint(nodes: &[Node], site: usize, stop: &AtomicBool) -> Result<(), Failure> {
    let Some(wanted) = nodes.get(site).map(|node| node.id) else { return Ok(()) };
    let begin = Instant::now();
    loop {
        match leader_of(nodes) {
            Some(leader) if leader == wanted => return Ok(()),
            None if begin.elapsed() > Duration::from_secs(3) => return Ok(()),
            _ if stop.load(Ordering::Relaxed) => return Ok(()),
            _ => {}
        }
        // It may have to be heard first, or to wait for the end of what it has promised.
        let asked = Client::connect([nodes[site].resp.to_string()], LEADER_LIMIT)
            .and_then(|mut client| client.transfer(Some(wanted), None));
        if begin.elapsed() > LEADER_LIMIT {
            let why = asked.err().map(|error| format!(": {error}")).unwrap_or_default();
            return Err(Failure::failed(format!("node {wanted} does not come to lead{why}")));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Of one kind of operation: p50 and p99 in µs, if there was any.
fn quantiles(report: &Report, reads: bool) -> Option<(f64, f64)> {
    let name = if reads { "read" } else { "update" };
    report.ops.iter().find(|op| op.name == name).map(|op| (op.p50_us, op.p99_us))
}

fn print(all: &[Measured]) -> Result<(), Failure> {
    let millis = |found: Option<(f64, f64)>| match found {
        Some((p50, p99)) => [p50, p99].map(|us| format!("{:.2}", us / 1000.0)),
        None => ["-", "-"].map(str::to_owned),
    };
    let titles = ["protocol", "site", "read p50", "p99", "write p50", "p99", "reads and writes/s", "errors"];
    let mut rows = vec![titles.map(str::to_owned)];
    for Measured { protocol, sites } in all {
        for (site, leads, report) in sites {
            let [read, slow_read] = millis(quantiles(report, true));
            let [write, slow_write] = millis(quantiles(report, false));
            let site = if *leads { format!("{site} (leader)") } else { site.clone() };
            let errors: u64 = report.errors.values().sum();
            let rate = format!("{:.0}", report.total.per_second);
            rows.push([protocol.clone(), site, read, slow_read, write, slow_write, rate, errors.to_string()]);
        }
    }
    writeln!(stdout(), "latencies in ms")?;
    protocols::print(&rows)
}

fn print_json(args: &Compare, all: &[Measured]) -> Result<(), Failure> {
    let protocols = all.iter().map(|Measured { protocol, sites }| {
        let sites =
            sites.iter().map(|(site, leads, report)| json!({ "site": site, "leads": leads, "run": report }));
        json!({ "protocol": protocol, "sites": sites.collect::<Vec<_>>() })
    });
    let (topology, writes, clients, keys) = (&args.topology, args.writes, args.clients, args.keys);
    let protocols = protocols.collect::<Vec<_>>();
    let text = json!({
        "topology": topology, "writes": writes, "clients": clients, "keys": keys, "protocols": protocols,
    });
    Ok(writeln!(stdout(), "{text}")?)
}
