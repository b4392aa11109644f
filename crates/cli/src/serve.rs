//! `quorate serve`: one node. `quorate proxy`: the client side alone.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use quorate_api::http;
use quorate_api::otlp::{Endpoint, Exporter};
use quorate_api::resp::{self, ReadMode};
use quorate_core::{NodeId, Settings};
use quorate_node::logging;
use quorate_node::{
    ClockSource, Durability, Exit, Limits, Node, NodeConfig, NodeError, NodeOptions, ProxyOptions,
    parse_cluster,
};
use quorate_runtime::AnyProtocol;
use quorate_tls::{Files, TlsOptions};
use rustix::process::{Signal, getpid, kill_process};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::args::{self, Bounds, GroupFlags, Proxy, Serve, SlowLog};
use crate::bounds;
use crate::exposure::{self, Port};
use crate::failure::Failure;
use crate::protocols;
use crate::stores;
use crate::topology;
use crate::users;

/// The protocol unless one is named.
const PROTOCOL: &str = "multipaxos";

/// The configuration file: any of the flags.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    node_id: Option<u64>,
    listen_peer: Option<String>,
    listen_resp: Option<String>,
    listen_http: Option<String>,
    read_mode: Option<String>,
    initial_cluster: Option<String>,
    cluster_id: Option<String>,
    join: Option<bool>,
    replace_disk: Option<bool>,
    data_dir: Option<PathBuf>,
    protocol: Option<String>,
    groups: Option<String>,
    group_keys: Option<String>,
    durability: Option<String>,
    clock: Option<String>,
    site: Option<String>,
    topology: Option<String>,
    slow_log: Option<String>,
    disk_reserve: Option<String>,
    max_key: Option<String>,
    max_value: Option<String>,
    max_clients: Option<usize>,
    client_output: Option<String>,
    client_memory: Option<String>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_auth_clients: Option<String>,
    users: Option<PathBuf>,
    insecure: Option<bool>,
    log_json: Option<bool>,
    otlp_endpoint: Option<String>,
    otlp_sample: Option<f64>,
    #[serde(default)]
    set: BTreeMap<String, toml::Value>,
}

impl File {
    /// The file that is named, if one is, with the flags in it that were given on the command line.
    fn under(flags: &args::Process) -> Result<File, Failure> {
        let file = match &flags.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let flags = flags.clone();
        Ok(File {
            listen_resp: flags.listen_resp.or(file.listen_resp),
            listen_http: flags.listen_http.or(file.listen_http),
            initial_cluster: flags.initial_cluster.or(file.initial_cluster),
            protocol: flags.protocol.or(file.protocol),
            groups: flags.groups.groups.or(file.groups),
            group_keys: flags.groups.group_keys.or(file.group_keys),
            max_key: flags.bounds.max_key.or(file.max_key),
            max_value: flags.bounds.max_value.or(file.max_value),
            max_clients: flags.bounds.max_clients.or(file.max_clients),
            client_output: flags.bounds.client_output.or(file.client_output),
            client_memory: flags.bounds.client_memory.or(file.client_memory),
            tls_ca: flags.tls.tls_ca.or(file.tls_ca),
            tls_cert: flags.tls.tls_cert.or(file.tls_cert),
            tls_key: flags.tls.tls_key.or(file.tls_key),
            insecure: Some(flags.tls.insecure || file.insecure.unwrap_or_default()),
            log_json: Some(flags.log_json || file.log_json.unwrap_or_default()),
            otlp_endpoint: flags.otlp_endpoint.or(file.otlp_endpoint),
            otlp_sample: flags.otlp_sample.or(file.otlp_sample),
            ..file
        })
    }

    /// Certificates and key: all or none.
    fn tls(&self, flags: &args::Process) -> Result<Option<TlsOptions>, Failure> {
        let clients = match (flags.tls.tls_auth_clients, &self.tls_auth_clients) {
            (Some(clients), _) => Some(clients),
            (None, Some(word)) => {
                let read = word.parse();
                Some(read.map_err(|error| Failure::wrong(format!("tls-auth-clients = {error}")))?)
            }
            (None, None) => None,
        };
        match (&self.tls_ca, &self.tls_cert, &self.tls_key) {
            (Some(ca), Some(cert), Some(key)) => {
                let files = Files { ca: ca.clone(), cert: cert.clone(), key: key.clone() };
                Ok(Some(TlsOptions { files, clients: clients.unwrap_or_default() }))
            }
            (None, None, None) if clients.is_none() => Ok(None),
            (ca, cert, key) => {
                let given = [("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)];
                let missing = missing(&given.map(|(flag, file)| (flag, file.is_none())));
                Err(Failure::wrong(format!(
                    "TLS needs --tls-ca, --tls-cert and --tls-key: {missing}; `quorate cert --help` tells how to get \
                     the files"
                )))
            }
        }
    }

    /// Where spans go, and the part of all requests that have some.
    fn spans(&self) -> Result<Option<(Endpoint, f64)>, Failure> {
        let sampled = self.otlp_sample.unwrap_or_default();
        if !(0.0..=1.0).contains(&sampled) {
            let why =
                format!("--otlp-sample {sampled}: write a part of all requests, from 0 to 1, such as 0.01");
            return Err(Failure::wrong(why));
        }
        match &self.otlp_endpoint {
            Some(url) => {
                let endpoint = url.parse();
                let endpoint =
                    endpoint.map_err(|why| Failure::wrong(format!("--otlp-endpoint {url}: {why}")))?;
                Ok(Some((endpoint, sampled)))
            }
            None if self.otlp_sample.is_some() => {
                Err(Failure::wrong("--otlp-sample: --otlp-endpoint is missing, which says where spans go"))
            }
            None => Ok(None),
        }
    }

    fn limits(&self) -> Result<(Limits, resp::Limits), Failure> {
        bounds::limits(&Bounds {
            max_key: self.max_key.clone(),
            max_value: self.max_value.clone(),
            max_clients: self.max_clients,
            client_output: self.client_output.clone(),
            client_memory: self.client_memory.clone(),
        })
    }
}

pub fn serve(args: Serve) -> Result<(), Failure> {
    let file = File::under(&args.process)?;
    let given = (
        args.node_id.or(file.node_id),
        file.initial_cluster.as_ref(),
        args.listen_peer.or(file.listen_peer.clone()),
        file.listen_resp.clone(),
        args.data_dir.or(file.data_dir.clone()),
    );
    let (Some(node_id), Some(cluster), Some(listen_peer), Some(listen_resp), Some(data_dir)) = given else {
        return Err(required(&[
            ("--node-id", given.0.is_none()),
            ("--initial-cluster", given.1.is_none()),
            ("--listen-peer", given.2.is_none()),
            ("--listen-resp", given.3.is_none()),
            ("--data-dir", given.4.is_none()),
        ]));
    };
    let node = NodeId::new(node_id)
        .ok_or_else(|| Failure::wrong(format!("--node-id {node_id}: ids are whole numbers from 1 to 63")))?;
    let durability = match (args.durability, &file.durability) {
        (Some(durability), _) => durability,
        (None, Some(word)) => word.parse().map_err(Failure::wrong)?,
        (None, None) => Durability::default(),
    };
    let clock = match (args.clock, &file.clock) {
        (Some(clock), _) => clock,
        (None, Some(word)) => word.parse().map_err(Failure::wrong)?,
        (None, None) => ClockSource::Auto,
    };
    let read_mode = match (args.read_mode, &file.read_mode) {
        (Some(mode), _) => mode,
        (None, Some(word)) => word.parse().map_err(Failure::wrong)?,
        (None, None) => ReadMode::default(),
    };
    let (mut limits, resp_limits) = file.limits()?;
    let path = args.users.as_ref().or(file.users.as_ref());
    let first_users = path.map(|path| users::read(path)).transpose()?;
    let resp_limits = resp::Limits { read_mode, first_users, ..resp_limits };
    match (args.slow_log, &file.slow_log) {
        (Some(SlowLog(threshold)), _) => limits.slow = threshold,
        (None, Some(text)) => {
            let read = args::slow_log(text);
            limits.slow = read.map_err(|error| Failure::wrong(format!("slow-log = {text:?}: {error}")))?.0;
        }
        (None, None) => {}
    }
    if let Some(text) = args.disk_reserve.as_ref().or(file.disk_reserve.as_ref()) {
        limits.disk_reserve = Some(bounds::disk_reserve(text)?);
    }
    let join = args.join || file.join.unwrap_or_default();
    let cluster_id = cluster_id(&args.process, &file)?;
    let replace_disk = args.replace_disk || file.replace_disk.unwrap_or_default();
    if cluster_id.is_some() && !join && !replace_disk {
        return Err(Failure::wrong(
            "--cluster-id is for a node with --join, or with --replace-disk in a restored cluster: another first \
             member keeps the --initial-cluster of the first day, and a restored one has the id in its data directory",
        ));
    }
    let addresses = [
        ("--listen-peer", Some(&listen_peer)),
        ("--listen-resp", Some(&listen_resp)),
        ("--listen-http", file.listen_http.as_ref()),
    ];
    differ(&addresses)?;
    let topology = args.topology.or(file.topology.clone());
    let options = NodeOptions {
        node,
        listen_peer,
        listen_resp,
        initial_cluster: parse_cluster(cluster).map_err(Failure::wrong)?,
        join,
        replace_disk,
        cluster_id,
        data_dir,
        site: args.site.or(file.site.clone()),
        topology: topology.as_deref().map(topology::load).transpose()?,
        topology_file: topology.as_deref().and_then(topology::file),
        durability,
        clock,
        tls: file.tls(&args.process)?,
        limits,
    };
    start(What::Node(Box::new(options)), resp_limits, file, &args.process)
}

/// Refuses flags of which two name the same address; port 0 is another one each time.
fn differ(addresses: &[(&str, Option<&String>)]) -> Result<(), Failure> {
    let given = || addresses.iter().filter_map(|(flag, address)| Some((*flag, (*address)?)));
    for (index, (flag, address)) in given().enumerate() {
        let same = given().take(index).find(|(_, earlier)| *earlier == address);
        if let Some((earlier, _)) = same.filter(|_| !address.ends_with(":0")) {
            return Err(Failure::wrong(format!(
                "{earlier} and {flag} are both {address}: a node listens at a port of its own for each"
            )));
        }
    }
    Ok(())
}

pub fn proxy(args: Proxy) -> Result<(), Failure> {
    let file = File::under(&args.process)?;
    let (limits, resp_limits) = file.limits()?;
    let given = (file.initial_cluster.as_ref(), file.listen_resp.clone());
    let (Some(cluster), Some(listen_resp)) = given else {
        let flags = [("--initial-cluster", given.0.is_none()), ("--listen-resp", given.1.is_none())];
        return Err(required(&flags));
    };
    differ(&[("--listen-resp", Some(&listen_resp)), ("--listen-http", file.listen_http.as_ref())])?;
    let options = ProxyOptions {
        listen_resp,
        initial_cluster: parse_cluster(cluster).map_err(Failure::wrong)?,
        cluster_id: cluster_id(&args.process, &file)?,
        tls: file.tls(&args.process)?,
        limits,
    };
    start(What::Proxy(Box::new(options)), resp_limits, file, &args.process)
}

fn start(what: What, resp_limits: resp::Limits, file: File, flags: &args::Process) -> Result<(), Failure> {
    stores::prepare()?;
    let spans = file.spans()?;
    let groups = GroupFlags { groups: file.groups, group_keys: file.group_keys };
    let chosen = protocols::choose(file.protocol.as_deref().unwrap_or(PROTOCOL), &groups)?;
    let process = Process {
        what,
        resp_limits: resp::Limits { key_scope: chosen.key_scope(), ..resp_limits },
        settings: settings(&file.set, &flags.set)?,
        listen_http: file.listen_http,
        insecure: file.insecure.unwrap_or_default(),
        log_json: file.log_json.unwrap_or_default(),
        spans,
        exit_with_stdin: flags.exit_with_stdin,
        unheeded: flags.unheeded.clone(),
    };
    process.run(chosen.protocol)
}

fn cluster_id(flags: &args::Process, file: &File) -> Result<Option<u64>, Failure> {
    let read = |text: &String| {
        args::cluster_id(text).map_err(|error| Failure::wrong(format!("cluster-id = {text:?}: {error}")))
    };
    Ok(flags.cluster_id.or(file.cluster_id.as_ref().map(read).transpose()?))
}

/// A process without these flags cannot start; all that are missing are named.
fn required(flags: &[(&str, bool)]) -> Failure {
    Failure::wrong(format!("{}, on the command line and in a --config file", missing(flags)))
}

/// Says which of these flags are missing, each with whether it is.
fn missing(flags: &[(&str, bool)]) -> String {
    let missing: Vec<_> = flags.iter().filter(|(_, missing)| *missing).map(|(flag, _)| *flag).collect();
    let verb = if missing.len() == 1 { "is" } else { "are" };
    format!("{} {verb} missing", missing.join(", "))
}

fn settings(table: &BTreeMap<String, toml::Value>, set: &[String]) -> Result<Settings, Failure> {
    let mut settings = Settings::default();
    for (key, value) in table {
        let text = match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        settings.put(key, &text);
    }
    settings.put_all(set).map_err(Failure::wrong)?;
    Ok(settings)
}

fn read(path: &Path) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::wrong(format!("cannot read --config {}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| Failure::wrong(format!("--config {}: {error}", path.display())))
}

enum What {
    Node(Box<NodeOptions>),
    Proxy(Box<ProxyOptions>),
}

struct Process {
    what: What,
    resp_limits: resp::Limits,
    settings: Settings,
    listen_http: Option<String>,
    insecure: bool,
    log_json: bool,
    spans: Option<(Endpoint, f64)>,
    exit_with_stdin: bool,
    unheeded: Vec<String>,
}

impl Process {
    /// Runs it to its end.
    fn run(self, protocol: &'static dyn AnyProtocol) -> Result<(), Failure> {
        let flush = log_to_stderr(self.log_json);
        for line in &self.unheeded {
            tracing::warn!("{line}");
        }
        if self.resp_limits.read_mode == ReadMode::Sequential && !protocol.capabilities().total_order {
            let why = format!(
                "{} does not put all writes in one order, as read mode sequential needs",
                protocol.name()
            );
            return Err(Failure::wrong(format!("{why}; choose linearizable or local")));
        }
        // Users are no keys; where there are several groups, the first has them.
        let of_users = protocol.groups()[0];
        if self.resp_limits.first_users.is_some() && !of_users.capabilities().multi_key {
            return Err(Failure::wrong(format!(
                "{} executes commands on one key only, so it cannot keep users (--users); choose a protocol that \
                 orders all writes, such as multipaxos",
                of_users.name()
            )));
        }
        self.check_exposure()?;
        let node = match &self.what {
            What::Node(options) => Some(options.node),
            What::Proxy(_) => None,
        };
        let config = match self.what {
            What::Node(mut options) => {
                bounds::take_descriptors(&mut options.limits);
                NodeConfig::new(protocol, *options, self.settings)
            }
            What::Proxy(mut options) => {
                bounds::take_descriptors(&mut options.limits);
                NodeConfig::proxy(protocol, *options, self.settings)
            }
        };
        let config = config.map_err(Failure::wrong)?;
        let (config, exporter) = match self.spans {
            Some((endpoint, sampled)) => {
                let (spans, exporter) = Exporter::start(endpoint, sampled, node, protocol.name())
                    .map_err(|why| Failure::failed(format!("cannot export spans: {why}")))?;
                (config.with_spans(spans), Some(exporter))
            }
            None => (config, None),
        };
        if self.exit_with_stdin {
            std::thread::spawn(stop_with_stdin);
        }
        let end = run(config, self.resp_limits, self.listen_http.as_deref());
        if let Some(exporter) = exporter {
            exporter.finish();
        }
        match end {
            Ok(Exit::Drained { unfinished: 0 }) => Ok(()),
            Ok(Exit::Drained { unfinished }) => {
                tracing::warn!(unfinished, "stopped with requests under way");
                Ok(())
            }
            Ok(Exit::StartAgain) => {
                drop(flush);
                Err(Failure::failed(format!("cannot start again: {}", start_again())))
            }
            Ok(Exit::Hurried) => Err(Failure::failed("stopped at the second signal, without draining")),
            Err(NodeError::Config(error)) => Err(Failure::wrong(error)),
            Err(error) => Err(Failure { code: code(&error), message: error.to_string() }),
        }
    }
}

impl Process {
    fn check_exposure(&self) -> Result<(), Failure> {
        let (peer, resp, tls) = match &self.what {
            What::Node(options) => (Some(&*options.listen_peer), &options.listen_resp, &options.tls),
            What::Proxy(options) => (None, &options.listen_resp, &options.tls),
        };
        let http = self.listen_http.as_deref();
        let addresses = [
            ("--listen-peer", peer, Port::Peers),
            ("--listen-resp", Some(resp), Port::Clients),
            ("--listen-http", http, Port::Watchers),
        ];
        let users = self.resp_limits.first_users.as_ref().is_some_and(users::must_authenticate);
        exposure::check(&addresses, tls.as_ref(), users, self.insecure)
    }
}

/// Replaces this process by one of the same program and command line; the error says why that cannot be.
fn start_again() -> io::Error {
    // The file may have been replaced by that of another version.
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
    let mut words = std::env::args_os();
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words).exec()
}

fn run(config: NodeConfig, limits: resp::Limits, listen_http: Option<&str>) -> Result<Exit, NodeError> {
    let node = Node::bind(config)?;
    if let Some(address) = listen_http {
        let listener = quorate_node::listen("HTTP", address)?;
        let scheme = if node.credentials().is_some() { "https" } else { "http" };
        let address = http::serve(listener, node.monitor(), limits.key_scope.clone(), node.credentials())
            .map_err(|source| NodeError::System { what: "to serve HTTP", source })?;
        tracing::info!(
            http = %address,
            "a page, metrics and health are at {scheme}://{address}/, /metrics and /health"
        );
    }
    resp::run_until_signalled(node, limits)
}

/// What other flags would put right is a matter of configuration, a data directory that is another's among it; the rest
/// has failed, a damaged directory too.
pub fn code(error: &NodeError) -> u8 {
    match error {
        NodeError::Config(_) | NodeError::Resolve { .. } | NodeError::Listen { .. } => 2,
        NodeError::Storage(error) if error.is_misplaced() => 2,
        _ => 1,
    }
}

/// Logs from now on; what is queued at the end is written before what is given goes.
fn log_to_stderr(json: bool) -> logging::Flush {
    let (lines, flush) = logging::stderr();
    let lines = move || lines.clone();
    let filter = EnvFilter::try_from_env("QUORATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    if json {
        subscriber.json().init();
    } else {
        subscriber.with_ansi(false).with_target(false).init();
    }
    logging::log_panics();
    flush
}

fn stop_with_stdin() {
    let mut stdin = std::io::stdin().lock();
    let mut buffer = [0; 256];
    while stdin.read(&mut buffer).is_ok_and(|read| read > 0) {}
    let _ = kill_process(getpid(), Signal::TERM);
}
