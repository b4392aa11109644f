//! `quorate up`: a local cluster in one command. Its nodes are `quorate serve` processes, which end when it ends.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write, stdout};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quorate_bench::Ports;
use quorate_client::{Client, Error};
use quorate_core::{NodeId, Topology};
use quorate_node::signals::hangup_is_ignored;
use quorate_node::{cluster_id, parse_cluster};
use quorate_protocols::wide_area;
use quorate_runtime::AnyProtocol;
use quorate_tls::issue::{AUTHORITY, Authority, Issued, Owner};
use quorate_tls::{ClientCredentials, Process};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::{Bounds, GroupFlags, Up};
use crate::failure::{Failure, say};
use crate::protocols::{self, Chosen};
use crate::topology;
use crate::users;

/// The first client port, unless it is taken.
const BASE_PORT: u16 = 7101;
/// How many nodes, unless something says otherwise.
const NODES: u8 = 3;
/// Peers listen this much higher.
const PEER_OFFSET: u16 = 100;
/// A cluster that does not serve by then has failed to start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Nodes that have not stopped by then are killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How often children and signals are looked at.
const POLL: Duration = Duration::from_millis(50);

struct Node {
    id: u8,
    peer: String,
    resp: String,
    data: PathBuf,
    log: PathBuf,
    /// Where in the log this process begins: an earlier one may have left lines in it.
    log_start: u64,
    args: Vec<String>,
    child: Child,
    /// How it ended, once that is reported.
    ended: bool,
}

pub fn up(args: Up) -> Result<(), Failure> {
    let chosen = protocols::choose(&args.protocol, &args.groups)?;
    let world = World::new(&args, chosen.protocol)?;
    check(chosen.protocol, world.nodes.into())?;
    args.users.as_deref().map(users::read).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let hangup = (!hangup_is_ignored()).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    }
    let temporary = match args.data_dir {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("quorate-").tempdir()?),
    };
    let data = match (&args.data_dir, &temporary) {
        (Some(dir), _) => std::path::absolute(dir)?,
        (None, Some(dir)) => dir.path().to_owned(),
        (None, None) => unreachable!("one of them is there"),
    };
    let (ports, _claim) = ports(world.nodes.into(), args.base_port)?;
    let members: Vec<_> = (1..).zip(&ports).map(|(id, (_, peer))| format!("{id}=127.0.0.1:{peer}")).collect();
    let members = members.join(",");
    let tls = match args.tls {
        true => Some(Tls::prepare(&data.join("tls"), &members, world.nodes)?),
        false => None,
    };
    let mut nodes = start(&args, &world, (&members, &ports), &data, tls.as_ref())?;
    let result = wait_until_serving(&mut nodes, tls.as_ref(), &chosen, &stop)
        .and_then(|()| announce((&args, &chosen), &world, &nodes, tls.as_ref(), temporary.is_some()))
        .map(|()| watch(&mut nodes, &stop));
    end(nodes);
    result
}

/// The certificates of a cluster that was started with `--tls`.
struct Tls {
    ca: PathBuf,
    /// Of the nodes, in order.
    nodes: Vec<Issued>,
    client: Issued,
    credentials: ClientCredentials,
}

impl Tls {
    /// Issues them into a directory, by the authority that is there, or by a new one.
    fn prepare(directory: &Path, members: &str, nodes: u8) -> Result<Tls, Failure> {
        const DAYS: u32 = 365;
        let cluster = cluster_id(&parse_cluster(members).map_err(Failure::wrong)?);
        let authority = match directory.join(AUTHORITY).exists() {
            true => Authority::open(directory)?,
            false => Authority::create(directory, cluster)?,
        };
        if authority.cluster() != cluster {
            return Err(Failure::wrong(format!(
                "{} has the certificates of cluster {:016x}, but these nodes and ports are cluster {cluster:016x}: use \
                 the --nodes and --base-port of the first time",
                directory.display(),
                authority.cluster()
            )));
        }
        let hosts = ["127.0.0.1", "::1", "localhost"].map(str::to_owned).to_vec();
        let issue = |id| {
            let owner = Owner::Process(Process::Node(id), hosts.clone());
            authority.issue(directory, &owner, DAYS)
        };
        let nodes = (1..=nodes).map(issue).collect::<Result<_, _>>()?;
        let client = authority.issue(directory, &Owner::Client("local".to_owned()), DAYS)?;
        let ca = directory.join(AUTHORITY);
        let credentials = ClientCredentials::load(&ca, Some((&client.cert, &client.key)))?;
        Ok(Tls { ca, nodes, client, credentials })
    }

    /// The flags of `serve` and of client commands for a certificate.
    fn flags(&self, own: &Issued) -> [String; 6] {
        let file = |path: &Path| path.display().to_string();
        ["--tls-ca", &file(&self.ca), "--tls-cert", &file(&own.cert), "--tls-key", &file(&own.key)]
            .map(str::to_owned)
    }
}

/// How many nodes, and where.
struct World {
    nodes: u8,
    topology: Option<Topology>,
    /// What the distances ask for; `--set` comes after it, and wins.
    settings: Vec<String>,
}

impl World {
    fn new(args: &Up, protocol: &dyn AnyProtocol) -> Result<World, Failure> {
        let Some(word) = &args.topology else {
            return Ok(World { nodes: args.nodes.unwrap_or(NODES), topology: None, settings: Vec::new() });
        };
        let topology = topology::load(word)?;
        let nodes = args.nodes.unwrap_or(topology.sites().len() as u8);
        topology.fits(nodes.into()).map_err(|error| Failure::wrong(format!("--topology {word}: {error}")))?;
        let settings = wide_area::settings(&topology, protocol, nodes.into());
        Ok(World { nodes, topology: Some(topology), settings })
    }

    fn site(&self, node: u8) -> &str {
        let topology = self.topology.as_ref();
        topology.and_then(|topology| topology.of(NodeId::new(node.into())?)).unwrap_or("local")
    }

    /// Those of its settings that `--set` leaves in force.
    fn in_force(&self, set: &[String]) -> Vec<&str> {
        let name = |setting: &str| setting.split('=').next().unwrap_or_default().trim().to_owned();
        let own = |setting: &&String| set.iter().all(|given| name(given) != name(setting));
        self.settings.iter().filter(own).map(String::as_str).collect()
    }
}

/// Refuses what cannot run before anything is started.
fn check(protocol: &dyn AnyProtocol, nodes: usize) -> Result<(), Failure> {
    let can = protocol.capabilities();
    let (min, max) = (can.min_nodes, can.max_nodes);
    if (min..=max).contains(&nodes) {
        return Ok(());
    }
    let right = if min == max { format!("--nodes {min}") } else { format!("--nodes {min} to {max}") };
    Err(Failure::wrong(format!("{} does not run on {nodes} nodes: use {right}", protocol.name())))
}

fn start(
    args: &Up,
    world: &World,
    (members, ports): (&str, &[(u16, u16)]),
    data: &Path,
    tls: Option<&Tls>,
) -> Result<Vec<Node>, Failure> {
    let exe = std::env::current_exe()?;
    let mut nodes: Vec<Node> = Vec::new();
    for (id, (resp, peer)) in (1..).zip(ports) {
        let (resp, peer) = (format!("127.0.0.1:{resp}"), format!("127.0.0.1:{peer}"));
        let data = data.join(format!("node-{id}"));
        std::fs::create_dir_all(&data)
            .map_err(|error| Failure::wrong(format!("cannot create {}: {error}", data.display())))?;
        let log = data.with_extension("log");
        let mut words: Vec<String> = [
            ("--node-id", id.to_string()),
            ("--listen-peer", peer.clone()),
            ("--listen-resp", resp.clone()),
            ("--initial-cluster", members.to_owned()),
            ("--data-dir", data.display().to_string()),
            ("--protocol", args.protocol.clone()),
            ("--durability", args.durability.to_string()),
            ("--clock", args.clock.to_string()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
        let GroupFlags { groups, group_keys } = &args.groups;
        for (flag, value) in [("--groups", groups), ("--group-keys", group_keys)] {
            words.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
        }
        if let Some(word) = &args.topology {
            // The command to start a node again must work anywhere.
            let word = match Topology::named(word) {
                Some(_) => word.clone(),
                None => std::path::absolute(word)?.display().to_string(),
            };
            words.extend(["--topology".to_owned(), word, "--site".to_owned(), world.site(id).to_owned()]);
        }
        for setting in world.settings.iter().chain(&args.set) {
            words.extend(["--set".to_owned(), setting.clone()]);
        }
        if let Some(users) = &args.users {
            words.extend(["--users".to_owned(), std::path::absolute(users)?.display().to_string()]);
        }
        words.extend(bounds(&args.bounds));
        if let Some(tls) = tls {
            words.extend(tls.flags(&tls.nodes[usize::from(id) - 1]));
        }
        let out = File::options().create(true).append(true).open(&log)?;
        let log_start = out.metadata()?.len();
        let child = Command::new(&exe)
            .arg("serve")
            .args(&words)
            .arg("--exit-with-stdin")
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .map_err(|error| Failure::failed(format!("cannot start {}: {error}", exe.display())))?;
        nodes.push(Node { id, peer, resp, data, log, log_start, args: words, child, ended: false });
    }
    Ok(nodes)
}

/// The flags of `serve` that bound what clients may ask.
fn bounds(bounds: &Bounds) -> impl Iterator<Item = String> {
    let Bounds { max_key, max_value, max_clients, client_output, client_memory } = bounds.clone();
    let flags = [
        ("--max-key", max_key),
        ("--max-value", max_value),
        ("--max-clients", max_clients.map(|count| count.to_string())),
        ("--client-output", client_output),
        ("--client-memory", client_memory),
    ];
    let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    given.flatten()
}

/// A client port and a peer port for each node.
type Pairs = Vec<(u16, u16)>;

/// Ports that are free. Where none were asked for, another `quorate up` keeps off them as long as the file, their lock,
/// is open: nobody listens there yet.
fn ports(count: u16, base: Option<u16>) -> Result<(Pairs, Option<File>), Failure> {
    let block = |base: u16| -> Option<Pairs> {
        (0..count)
            .map(|index| Some((base.checked_add(index)?, base.checked_add(index)?.checked_add(PEER_OFFSET)?)))
            .collect()
    };
    let listen = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).map(drop);
    let is_free =
        |ports: &Pairs| ports.iter().all(|(resp, peer)| listen(resp).is_ok() && listen(peer).is_ok());
    let free_block = |base: u16| block(base).filter(is_free);
    match base {
        Some(0) => Err(Failure::wrong(
            "--base-port 0: the nodes and their clients must know the ports, so the system cannot choose them; leave \
             the flag out for ports that are free",
        )),
        Some(base) => {
            let wrong = |why: String| Failure::wrong(format!("--base-port {base}: {why}"));
            let ports = block(base).ok_or_else(|| {
                let most = u16::MAX - PEER_OFFSET - (count - 1);
                wrong(format!(
                    "{count} nodes take ports up to {} above it, and ports end at {}: choose {most} or a lower one",
                    PEER_OFFSET + count - 1,
                    u16::MAX
                ))
            })?;
            for port in ports.iter().flat_map(|(resp, peer)| [resp, peer]) {
                listen(port).map_err(|error| {
                    let why = match error.kind() {
                        io::ErrorKind::AddrInUse => "it is taken".to_owned(),
                        _ => error.to_string(),
                    };
                    wrong(format!("a node would listen at port {port}, and cannot: {why}; choose another"))
                })?;
            }
            Ok((ports, None))
        }
        None => (0..20)
            .map(|step| BASE_PORT + step * 1000)
            .find_map(|base| match Ports::lock(base) {
                Ok(None) => None,
                // Without a lock if its file is another user's.
                claim => Some((free_block(base)?, claim.ok().flatten())),
            })
            .ok_or_else(|| Failure::failed("no free block of ports found; choose one with --base-port")),
    }
}

fn wait_until_serving(
    nodes: &mut [Node],
    tls: Option<&Tls>,
    chosen: &Chosen,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut keys = chosen.key_of_each_group();
    keys.push("quorate:ready".to_owned());
    let tls = tls.map(|tls| &tls.credentials);
    let start = Instant::now();
    let mut waiting: Vec<usize> = (0..nodes.len()).collect();
    while let Some(&index) = waiting.first() {
        for node in nodes.iter_mut() {
            if let Some(status) = node.child.try_wait()? {
                let (id, log) = (node.id, last_lines(&node.log, node.log_start));
                // What is wrong with a node's command line is wrong with ours.
                let code = if status.code() == Some(2) { 2 } else { 1 };
                let message = format!("node {id} did not start ({}):\n{log}", describe(status));
                return Err(Failure { code, message });
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::failed("stopped before the cluster was ready"));
        }
        if start.elapsed() > START_LIMIT {
            let node = &nodes[index];
            let (id, log) = (node.id, last_lines(&node.log, node.log_start));
            return Err(Failure::failed(format!("node {id} does not serve after {START_LIMIT:?}:\n{log}")));
        }
        let serves = Client::connect_with([nodes[index].resp.as_str()], Duration::from_secs(6), tls.cloned())
            .and_then(|mut client| keys.iter().try_for_each(|key| client.get(key).map(drop)));
        let is_served = match serves {
            Ok(()) => true,
            // It knows who the users are, and that this is none of them.
            Err(Error::Refused { message, .. }) => {
                message.starts_with("NOAUTH") || message.starts_with("NOPERM")
            }
            Err(_) => false,
        };
        if is_served {
            waiting.remove(0);
        } else {
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

fn announce(
    (args, chosen): (&Up, &Chosen),
    world: &World,
    nodes: &[Node],
    tls: Option<&Tls>,
    temporary: bool,
) -> Result<(), Failure> {
    let mut out = stdout().lock();
    if args.json {
        let nodes: Vec<_> = nodes
            .iter()
            .map(|node| {
                json!({
                    "id": node.id, "peer": node.peer, "resp": node.resp, "site": world.site(node.id),
                    "pid": node.child.id(), "data_dir": node.data, "log": node.log,
                })
            })
            .collect();
        let mut shown = json!({ "nodes": nodes });
        if let Some(Tls { ca, client, .. }) = tls {
            shown["tls"] = json!({ "ca": ca, "cert": client.cert, "key": client.key });
        }
        writeln!(out, "{shown}")?;
        out.flush()?;
        return Ok(());
    }
    writeln!(out, "{} on {} nodes, durability {}:\n", chosen.protocol.name(), nodes.len(), args.durability)?;
    let name = |node: u8| match world.topology {
        Some(_) => format!("{node} {}", world.site(node)),
        None => node.to_string(),
    };
    let width = nodes.iter().map(|node| name(node.id).len()).max().unwrap_or(0).max(4);
    writeln!(out, "  {:<width$}  clients            peers              pid      log", "node")?;
    for Node { id, resp, peer, child, log, .. } in nodes {
        let (id, pid, log) = (name(*id), child.id(), log.display());
        writeln!(out, "  {id:<width$}  {resp:<17}  {peer:<17}  {pid:<7}  {log}")?;
    }
    if let Some(topology) = &world.topology {
        writeln!(out, "\nMessages between nodes are under way half of these round trips (ms):\n")?;
        topology.to_string().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
        if !topology.jitter().is_zero() {
            writeln!(out, "\n  and up to {:?} longer", topology.jitter())?;
        }
        let in_force = world.in_force(&args.set);
        if !in_force.is_empty() {
            writeln!(out, "\nTimeouts for these distances (--set others): {}", in_force.join(" "))?;
        }
    }
    let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
    let port = |node: &Node| node.resp.rsplit(':').next().unwrap_or_default().to_owned();
    let endpoints: Vec<_> = nodes.iter().map(|node| node.resp.clone()).collect();
    let endpoints = match first.resp == format!("127.0.0.1:{BASE_PORT}") && nodes.len() == 3 {
        true => String::new(),
        false => format!(" --endpoints {}", endpoints.join(",")),
    };
    writeln!(out, "\nTry, in another terminal:\n")?;
    let mut redis = String::new();
    if let Some(tls) = tls {
        let quote = |path: &Path| quoted(&path.display().to_string());
        let (ca, cert, key) = (quote(&tls.ca), quote(&tls.client.cert), quote(&tls.client.key));
        writeln!(out, "  export QUORATE_TLS_CA={ca} QUORATE_TLS_CERT={cert} QUORATE_TLS_KEY={key}")?;
        redis.push_str(
            r#" --tls --cacert "$QUORATE_TLS_CA" --cert "$QUORATE_TLS_CERT" --key "$QUORATE_TLS_KEY""#,
        );
    }
    writeln!(out, "  redis-cli -p {}{redis} set greeting hello", port(first))?;
    writeln!(out, "  redis-cli -p {}{redis} get greeting", port(last))?;
    writeln!(out, "  quorate status{endpoints}")?;
    writeln!(out, "  kill -9 {}       # any node, at any moment", first.child.id())?;
    match temporary {
        true => writeln!(
            out,
            "\nData is in a temporary directory and goes when this ends; --data-dir DIR keeps it."
        )?,
        false => writeln!(out, "\nData stays in the data directory.")?,
    }
    writeln!(out, "Ctrl-C stops the cluster.")?;
    out.flush()?;
    Ok(())
}

/// Reports nodes that end, until it is time to stop or none is left.
fn watch(nodes: &mut [Node], stop: &AtomicBool) {
    let exe = std::env::current_exe().unwrap_or_else(|_| "quorate".into());
    while !stop.load(Ordering::Relaxed) {
        for node in nodes.iter_mut().filter(|node| !node.ended) {
            if let Ok(Some(status)) = node.child.try_wait() {
                node.ended = true;
                say(&format!("node {} has ended ({}). To start it again:", node.id, describe(status)));
                let words: Vec<_> = node.args.iter().map(|word| quoted(word)).collect();
                say(&format!("  {} serve {}", quoted(&exe.display().to_string()), words.join(" ")));
            }
        }
        std::thread::sleep(POLL);
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn end(mut nodes: Vec<Node>) {
    for node in &nodes {
        if let Some(pid) = Pid::from_raw(node.child.id() as i32).filter(|_| !node.ended) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
    let start = Instant::now();
    for node in &mut nodes {
        while matches!(node.child.try_wait(), Ok(None)) {
            if start.elapsed() > STOP_LIMIT {
                let _ = node.child.kill();
                let _ = node.child.wait();
                break;
            }
            std::thread::sleep(POLL);
        }
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown end".to_owned(),
    }
}

/// The last lines of a log, from a position on.
fn last_lines(log: &Path, start: u64) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut log| {
        log.seek(SeekFrom::Start(start))?;
        log.read_to_end(&mut text)
    });
    let text = read.map_or_else(|error| error.to_string(), |_| String::from_utf8_lossy(&text).into_owned());
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_that_start_at_once_have_different_ports() {
        let (one, _claim) = ports(3, None).unwrap();
        let (other, _other_claim) = ports(3, None).unwrap();
        assert!(one.iter().all(|pair| !other.contains(pair)), "{one:?}, {other:?}");
    }

    #[test]
    fn ports_that_cannot_be_are_refused() {
        let refused = |base| {
            let failure = ports(3, Some(base)).map(|_| ()).unwrap_err();
            assert_eq!(failure.code, 2, "{base}");
            failure.message
        };
        assert!(refused(0).starts_with("--base-port 0: "), "{}", refused(0));
        let too_high =
            "--base-port 65434: 3 nodes take ports up to 102 above it, and ports end at 65535: choose 65433";
        assert!(refused(65434).starts_with(too_high), "{}", refused(65434));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap().port();
        let words =
            format!("--base-port {taken}: a node would listen at port {taken}, and cannot: it is taken");
        assert!(refused(taken).starts_with(&words), "{}", refused(taken));
    }

    #[test]
    fn of_a_log_only_the_lines_of_this_run_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let earlier = "an earlier failure\n";
        std::fs::write(&log, format!("{earlier}ours\n")).unwrap();
        assert_eq!(last_lines(&log, earlier.len() as u64), "ours");
        let many: String = (0..12).map(|line| format!("{line}\n")).collect();
        std::fs::write(&log, many).unwrap();
        assert_eq!(last_lines(&log, 0), "2\n3\n4\n5\n6\n7\n8\n9\n10\n11");
    }
}
