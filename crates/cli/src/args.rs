//! The command line, a contract that tools rely on.

// tidy: long because it is all that can be said to the binary, in one place.

mod endpoints;
mod environment;
mod tls;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use quorate_api::resp::ReadMode;
use quorate_core::{NodeId, NodeSet, Staleness};
use quorate_node::{ClockSource, Durability};
use quorate_sim::Faults;

use crate::failure::say;
pub use endpoints::{ClientLogin, ClientTls, Endpoints};
pub use environment::with_environment;
use tls::CERT_EXAMPLES;
pub use tls::{Cert, CertClient, CertDir, CertInit, CertNode, CertProxy, ServerTls};

/// A strongly consistent, replicated key-value store in which the replication protocol is a choice.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a local cluster in one command
    #[command(after_help = UP_EXAMPLES)]
    Up(Up),
    /// Run one node
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Run the client side alone: what an application host needs instead of a replica
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(Proxy),
    /// Print the value of a key; exit 1 if there is none, 3 if no node could tell
    Get(Get),
    /// Set a key to a value
    Put(Put),
    /// Remove keys, and print how many there were
    Del(Del),
    /// Show every node: leader, ballot, positions, lease, lag
    Status(Status),
    /// Show or change who is in the group, while it runs
    #[command(subcommand)]
    Member(Member),
    /// Let another node lead: the one that is named, or whichever is furthest
    Transfer(Transfer),
    /// Show or say who serves reads of which keys, in protocols with local reads
    #[command(subcommand)]
    Roster(Roster),
    /// Show or change settings that all nodes share, while they run
    #[command(subcommand)]
    Config(Config),
    #[command(flatten)]
    Data(crate::backup::DataCommand),
    /// Issue the certificates with which a cluster and its clients know each other
    #[command(subcommand, after_help = CERT_EXAMPLES)]
    Cert(Cert),
    /// List the protocols, or show what one gives and needs, and its settings
    Protocols {
        /// The protocol to show
        name: Option<String>,
    },
    /// Write a manual page for each command into a directory
    Man {
        /// Where; it is made if it is not there
        dir: PathBuf,
    },
    /// Print what a shell completes commands by
    Completions {
        /// The shell that is to complete commands
        shell: clap_complete::Shell,
    },
    /// Simulate clusters under faults; exit 1 and a replay line on a violation
    #[command(after_help = SIM_EXAMPLES)]
    Sim(Sim),
    /// Show one simulated run, one line per event
    Replay(Replay),
    /// Measure throughput and latency, of Quorate or of Redis
    #[command(after_help = crate::bench::EXAMPLES)]
    Bench(crate::bench::Bench),
    /// Measure protocols side by side on emulated sites: latency of reads and writes at each
    #[command(after_help = crate::compare::EXAMPLES)]
    Compare(crate::compare::Compare),
}

const EXIT_CODES: &str = "Exit codes:
  0  fine
  1  what was asked about failed, or is not so: no such key, a refused change, a violation
  2  the command line or the configuration is wrong
  3  no answer: no node could be reached, or no majority of the nodes answers";

const UP_EXAMPLES: &str = "Examples:
  quorate up                                       three nodes, MultiPaxos, a temporary directory
  quorate up --nodes 5 --data-dir ./quorate-data   five nodes whose data stays
  quorate up --set reads=log                       every read through the log
  quorate up --nodes 5 --groups 5                  the keys divided among five groups, each with a leader of its own
  quorate up --topology geo                        a node each in EU, VA, OR, CA, JP, as far apart as those are
  quorate up --tls                                 everything encrypted, with certificates made for it

A topology's file, with the round trip of each pair, and up to how much more one way may take. Rates may be left out:
of every link, of a link in one direction, of all that a node sends. At SIGHUP a node reads the rates again:
  sites = [\"home\", \"office\", \"cloud\"]
  jitter = \"1ms\"
  rate = \"1Gbit/s\"
  [round-trips]
  home = { office = \"12ms\", cloud = \"20ms\" }
  office = { cloud = \"8ms\" }
  [rates]
  home = { cloud = \"100Mbit/s\" }
  [interfaces]
  cloud = \"10Gbit/s\"";

const SERVE_EXAMPLES: &str = "Example, the first of three machines:
  quorate serve --node-id 1 --listen-peer 10.0.0.1:7201 --listen-resp 10.0.0.1:7101 \\
      --initial-cluster 1=10.0.0.1:7201,2=10.0.0.2:7201,3=10.0.0.3:7201 --data-dir /var/lib/quorate \\
      --tls-ca ca.crt --tls-cert node-1.crt --tls-key node-1.key

Each flag has an environment variable, which the command line takes precedence over. The configuration file comes last;
it is TOML, and its keys are the flags:
  node-id = 1
  listen-peer = \"10.0.0.1:7201\"
  initial-cluster = \"1=10.0.0.1:7201,2=10.0.0.2:7201,3=10.0.0.3:7201\"
  [set]
  reads = \"lease\"";

const PROXY_EXAMPLES: &str = "Example, on the application's host; applications then use 127.0.0.1:7101:
  quorate proxy --listen-resp 127.0.0.1:7101 \\
      --initial-cluster 1=10.0.0.1:7201,2=10.0.0.2:7201,3=10.0.0.3:7201
Protocol and settings must be those of the nodes.";

const SIM_EXAMPLES: &str = "Examples:
  quorate sim --protocol multipaxos --runs 10000
  quorate sim --protocol multipaxos --faults crashes,partitions --nodes 5
  quorate sim --groups a-m=crossword,n-z=raft           groups with protocols of their own
  quorate sim --protocol multipaxos --explore --ballots 2   every behaviour
  quorate sim --protocol bodega --explore --ballots 1 --writes 1 --reads 1 --roster 3 --set responders=none
  quorate sim --protocol bodega --explore --facts --failures 1 --delays 0   three ballots, and so on: a larger size
Clocks that err by more than they say, and leases that are long: must find a violation
  quorate sim --protocol bodega --faults partitions,one-way-partitions,drift,clocks-beyond-bound \\
      --set lease.duration=1500ms --set lease.guard=1500ms";

#[derive(Debug, clap::Args)]
pub struct Up {
    /// How many nodes [default: 3; with --topology one for each site]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=63))]
    pub nodes: Option<u8>,
    /// Delay messages between nodes as between these sites, one node at each: geo (five of Google Cloud), wan (five
    /// of CloudLab) or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub topology: Option<String>,
    /// Replication protocol
    #[arg(long, default_value = "multipaxos")]
    pub protocol: String,
    #[command(flatten)]
    pub groups: GroupFlags,
    /// A setting of the protocol; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print one line of JSON first: {"nodes":[{"id":1,"peer":"…","resp":"…","site":"…"}, …]}
    #[arg(long)]
    pub json: bool,
    /// Keep data here; otherwise in a temporary directory that is removed at the end
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// When a write counts as durable: fsync, os, or none: data are in memory alone (hermes)
    #[arg(long, default_value = "fsync")]
    pub durability: Durability,
    /// Who knows how wrong the clock may be: auto, kernel, clock-bound, bound=DURATION or none
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    pub clock: ClockSource,
    #[command(flatten)]
    pub bounds: Bounds,
    /// Encrypt everything, between nodes too, with certificates that are issued into the data directory
    #[arg(long)]
    pub tls: bool,
    /// The users of the cluster, if it is new: lines `user NAME RULE …`, as in Redis's aclfile
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// The first client port; the peers' are 100 higher. By default 7101, or others if those are taken
    #[arg(long, value_name = "PORT")]
    pub base_port: Option<u16>,
}

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// This node's id: 1 to 63
    #[arg(long, value_name = "ID")]
    pub node_id: Option<u64>,
    /// Where other nodes reach this one
    #[arg(long, value_name = "HOST:PORT")]
    pub listen_peer: Option<String>,
    /// This node is not in --initial-cluster: it waits until `quorate member add` takes it into their group. Keep the
    /// flag afterwards
    #[arg(long)]
    pub join: bool,
    /// The disk of this node is lost: let the empty --data-dir take its place, as soon as all other members run and
    /// connect. Until then the lost one may come back. For protocols that do not change their group; with others, add a
    /// node and remove this one
    #[arg(long)]
    pub replace_disk: bool,
    /// Where this node keeps its log and snapshots
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// When a write counts as durable: fsync, os, or none: data are in memory alone (hermes) [default: fsync]
    #[arg(long)]
    pub durability: Option<Durability>,
    /// Who knows how wrong this machine's clock may be: kernel (its NTP discipline), clock-bound (that daemon),
    /// bound=DURATION (you), auto (the daemon, else the kernel) or none [default: auto]
    #[arg(long, value_name = "SOURCE")]
    pub clock: Option<ClockSource>,
    #[command(flatten)]
    pub process: Process,
    /// Where reads are served unless a client says otherwise: linearizable, sequential, local, or bounded=500ms or
    /// bounded=3 for what may be so old, or behind by so many versions [default: linearizable]
    #[arg(long, value_name = "MODE")]
    pub read_mode: Option<ReadMode>,
    /// The site this node is in [default: with --topology the site of its number]
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// Delay messages to other nodes as between their sites and this one's: geo, wan or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub topology: Option<String>,
    /// How much is to stay free on the disk: with less, a node that leads hands over, and refuses writes that grow the
    /// data [default: a twentieth of the disk, 1GiB at most]
    #[arg(long, value_name = "SIZE")]
    pub disk_reserve: Option<String>,
    /// The users of a new cluster: lines `user NAME RULE …`, as in Redis's aclfile. Give it to every node: one whose
    /// data has no users yet serves nobody then. Once there are users, ACL SETUSER changes them, and the file counts no
    /// more
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Log requests that take as long, with their stages, such as 50ms; `off` logs none [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = slow_log)]
    pub slow_log: Option<SlowLog>,
}

#[derive(Debug, clap::Args)]
pub struct Proxy {
    #[command(flatten)]
    pub process: Process,
}

/// What every process that clients talk to is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Process {
    /// Where clients reach this process
    #[arg(long, value_name = "HOST:PORT")]
    pub listen_resp: Option<String>,
    /// Where a page for people, /metrics and /health are served over HTTP; nowhere by default
    #[arg(long, value_name = "HOST:PORT")]
    pub listen_http: Option<String>,
    /// The members at the beginning with their peer addresses; the same everywhere and always
    #[arg(long, value_name = "1=HOST:PORT,2=…")]
    pub initial_cluster: Option<String>,
    /// Which cluster, as `quorate status --json` shows it: for a node with --join or a proxy whose --initial-cluster
    /// names the members of today, or any proxy of a restored cluster [default: made from --initial-cluster]
    #[arg(long, value_name = "HEX", value_parser = cluster_id)]
    pub cluster_id: Option<u64>,
    /// Replication protocol; the same everywhere [default: multipaxos]
    #[arg(long)]
    pub protocol: Option<String>,
    #[command(flatten)]
    pub groups: GroupFlags,
    /// A TOML file with any of these flags, or a node's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A setting of the protocol, the same everywhere; may be repeated. And `timeouts=221ms`, the longest round trip
    /// between members, where this process is not to measure it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub bounds: Bounds,
    #[command(flatten)]
    pub tls: ServerTls,
    /// Logs as one JSON object a line
    #[arg(long)]
    pub log_json: bool,
    /// The OpenTelemetry collector that gets spans of slow requests (OTLP, JSON over HTTP), such as
    /// http://127.0.0.1:4318; none by default
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// The part of all requests, from 0 to 1, that it gets besides; slow ones alone by default
    #[arg(long, value_name = "PART")]
    pub otlp_sample: Option<f64>,
    /// Stop when the standard input closes: so that it ends with whoever started it
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
    /// Variables that say something else than flags do, which win, or that no flag knows: lines for the log.
    #[arg(skip)]
    pub unheeded: Vec<String>,
}

/// Whether the keys are divided among groups.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GroupFlags {
    /// Divide the keys among groups of replicas, each with a leader of its own: so many (1 to 64), or ranges of keys
    /// that may have protocols of their own, such as a-m=crossword,n-z=raft; the same everywhere and always
    #[arg(long, value_name = "COUNT|RANGES")]
    pub groups: Option<String>,
    /// Where that many groups are split: the first key of each but the first, such as c,f,m,t [default: evenly by the
    /// first byte of printable keys]
    #[arg(long, value_name = "KEY,…")]
    pub group_keys: Option<String>,
}

/// What clients may ask of a node.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Bounds {
    /// The largest key, such as 4KiB [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    pub max_key: Option<String>,
    /// The largest value in a request, up to 64MiB [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub max_value: Option<String>,
    /// How many clients may be connected to a node [default: 10000]
    #[arg(long, value_name = "COUNT")]
    pub max_clients: Option<usize>,
    /// Replies that a client may leave untaken before its connection is closed [default: 128MiB]
    #[arg(long, value_name = "SIZE")]
    pub client_output: Option<String>,
    /// What is kept for all clients together: unfinished requests, transactions before EXEC with what they watch,
    /// replies not taken; beyond, those with the most are disconnected. Requests under way may take as much besides,
    /// and 256MiB at most: beyond, clients wait [default: 1GiB, or as much as one client may leave untaken]
    #[arg(long, value_name = "SIZE")]
    pub client_memory: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Get {
    pub key: String,
    /// The value may be so old (500ms), or miss so many writes (3): any node may know one that is not older
    #[arg(long, value_name = "DURATION|VERSIONS")]
    pub staleness: Option<Staleness>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct Put {
    pub key: String,
    /// The value; - reads it from the standard input, as it is
    #[arg(allow_negative_numbers = true)]
    pub value: String,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct Del {
    #[arg(required = true)]
    pub keys: Vec<String>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct Status {
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Look again every second, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, Subcommand)]
pub enum Member {
    /// Show who is in the group, and who leads it
    List(MemberList),
    /// Add nodes that run with --join (`quorate serve --help`), and remove others in the same step
    #[command(after_help = ADD_EXAMPLES)]
    Add(MemberAdd),
    /// Remove nodes; stop them afterwards
    Remove(MemberIds),
    /// Let learners count
    Promote(MemberIds),
    /// Drop the change that is under way, while the nodes that it adds catch up
    Cancel(MemberCancel),
}

const ADD_EXAMPLES: &str = "Examples:
  quorate member add 4=10.0.0.4:7201 5=10.0.0.5:7201
  quorate member add 4=10.0.0.4:7201 --remove 1      replace node 1, in one step
  quorate member add 4=10.0.0.4:7201 --learner       it is sent the log, and does not count";

#[derive(Debug, clap::Args)]
pub struct MemberList {
    /// One JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct MemberAdd {
    /// Their ids, and where peers reach them
    #[arg(required = true, value_name = "ID=HOST:PORT")]
    pub nodes: Vec<String>,
    /// They do not count towards majorities
    #[arg(long)]
    pub learner: bool,
    /// Who leaves in the same step
    #[arg(long, value_name = "ID,…", value_delimiter = ',', value_parser = node_id)]
    pub remove: Vec<u8>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct MemberCancel {
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct MemberIds {
    #[arg(required = true, value_name = "ID", value_parser = node_id)]
    pub nodes: Vec<u8>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show the settings, as a node knows them
    Get(ConfigGet),
    /// Change one: max-data, what keys and values may take together (beyond it, writes that grow the data fail with
    /// OOM; reads go on, and so does what removes), or feature-level, once all members run a version that knows it
    #[command(after_help = CONFIG_EXAMPLES)]
    Set(ConfigSet),
}

const CONFIG_EXAMPLES: &str = "Examples:
  quorate config set max-data 2gb
  quorate config set max-data 0        no bound
  quorate config set feature-level 3   after an upgrade of all members: there is no way back";

#[derive(Debug, clap::Args)]
pub struct ConfigGet {
    /// This one alone
    pub name: Option<String>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct ConfigSet {
    pub name: String,
    #[arg(allow_negative_numbers = true)]
    pub value: String,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, Subcommand)]
pub enum Roster {
    /// Show who serves reads of which keys
    Show(MemberList),
    /// Say who serves reads of which keys; done when it is in force
    #[command(after_help = ROSTER_EXAMPLES)]
    Set(RosterSet),
    /// Let the leader find out who reads what where, or stop that
    Auto(RosterAuto),
}

const ROSTER_EXAMPLES: &str = "Examples:
  quorate roster set 1,2,3                     nodes 1, 2 and 3, of every key
  quorate roster set EU,VA --leader VA         by the sites of `up --topology`
  quorate roster set 'user:*=1,2' 'log:a=3'    keys with a prefix, and one key; of others the leader alone
  quorate roster set 1,2 'user:*=3'            3 for keys with a prefix, 1 and 2 for all others
  quorate roster set 'a..m=1' 'm..=2'          ranges of keys, the end not included
  quorate roster set none --leader 2           the leader alone, and that is node 2";

#[derive(Debug, clap::Args)]
pub struct RosterSet {
    /// Nodes (their ids or sites), or keys and nodes: ID,… or KEY=ID,… or PREFIX*=ID,… or FROM..TO=ID,…; none: the
    /// leader alone
    #[arg(required = true, value_name = "KEYS=ID,…")]
    pub ranges: Vec<String>,
    /// Who is to lead
    #[arg(long, value_name = "ID|SITE")]
    pub leader: Option<String>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct RosterAuto {
    /// on or off
    #[arg(value_parser = ["on", "off"])]
    pub state: String,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct Transfer {
    #[arg(value_name = "ID", value_parser = node_id)]
    pub to: Option<u8>,
    /// Of this group, where the keys are divided among several (`--groups`)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub group: Option<u8>,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

/// What a simulated run is.
#[derive(Debug, clap::Args)]
pub struct Simulated {
    /// Replication protocol
    #[arg(long, default_value = "multipaxos")]
    pub protocol: String,
    #[command(flatten)]
    pub groups: GroupFlags,
    /// The seed, or the first of them
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Which faults may happen: all (each seed draws some), none, or a comma list of kinds (an unknown one lists them);
    /// `all,lost-nodes` draws as all does, and has nodes lost for good in every run
    #[arg(long, default_value = "all")]
    pub faults: Faults,
    /// Replicas [default: 3, or one for each site, or what the protocol needs]
    #[arg(long)]
    pub nodes: Option<usize>,
    /// Links as long, and as fast, as between these sites, one node at each: geo, wan or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub topology: Option<String>,
    /// Processes that run a proxy alone
    #[arg(long)]
    pub proxies: Option<usize>,
    /// Clients, all together
    #[arg(long)]
    pub clients: Option<usize>,
    /// Clients beside them that do nothing but read, and hardly pause [default: none]
    #[arg(long)]
    pub readers: Option<usize>,
    /// Clients beside them that do nothing but write, as many bytes as --values says at most, and hardly pause
    /// [default: none]
    #[arg(long)]
    pub writers: Option<usize>,
    /// The most bytes of the strings that clients write, such as 1MiB; most are far shorter [default: a few bytes]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub values: Option<usize>,
    /// How long the fault phase is, such as 8s or 500ms
    #[arg(long, value_parser = duration)]
    pub duration: Option<Duration>,
    /// End the fault phase earlier, with everything before as it would have been
    #[arg(long, value_parser = duration)]
    pub until: Option<Duration>,
    /// Leave these faults of the schedule out (numbers from a replay)
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<usize>,
    /// Begin with the state of another cluster, as after `quorate restore`
    #[arg(long)]
    pub founded: bool,
    /// Nodes keep their data in memory alone, as with --durability none
    #[arg(long)]
    pub diskless: bool,
    /// A setting of the protocol; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct Sim {
    #[command(flatten)]
    pub run: Simulated,
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    pub runs: u64,
    /// Threads; the outcome does not depend on them [default: all cores]
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Instead: every behaviour of a small cluster, in all orders of messages, requests, elections and crashes, as
    /// far as the bounds below go
    #[arg(long, conflicts_with_all = ["runs", "jobs"])]
    pub explore: bool,
    #[command(flatten)]
    pub bounds: ExploreBounds,
}

/// Nodes, or none.
#[derive(Clone, Copy, Debug)]
pub struct Responders(pub NodeSet);

impl FromStr for Responders {
    type Err = String;

    fn from_str(text: &str) -> Result<Responders, String> {
        let words = text.split(',').filter(|_| text != "none");
        let node = |word: &str| word.parse().ok().and_then(NodeId::new).ok_or(format!("{word:?} is no node"));
        words.map(node).collect::<Result<NodeSet, String>>().map(Responders)
    }
}

/// How far an exploration goes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Bounds of --explore")]
pub struct ExploreBounds {
    /// Elections, or recoveries
    #[arg(long, requires = "explore", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub ballots: u8,
    /// Time that passes before each: longer than anybody waits before it takes over
    #[arg(long, requires = "explore", default_value = "1s", value_parser = duration)]
    pub pace: Duration,
    /// Clients that write one key, each once
    #[arg(long, requires = "explore", default_value_t = 2)]
    pub writes: u8,
    /// Clients that read it, each once
    #[arg(long, requires = "explore", default_value_t = 2)]
    pub reads: u8,
    /// Crashes, each followed by a restart that may lose what was not durable; nodes that stop for good need none
    #[arg(long, requires = "explore", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub failures: u8,
    /// Replicas that a request may reach, one after the other
    #[arg(long, requires = "explore", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub asks: u8,
    /// Times that heartbeats are sent and leases tended; without, nobody gets a lease
    #[arg(long, requires = "explore", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub wakes: u8,
    /// Times that 600 ms pass without an election
    #[arg(long, requires = "explore", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub ticks: u8,
    /// Reads may wait for something, such as a slot of their own; else only replicas are asked that answer at once
    #[arg(long, requires = "explore")]
    pub waiting: bool,
    /// An operator asks once that these nodes answer reads of the key (none: the leader alone); may be repeated
    #[arg(long, requires = "explore", value_name = "ID,…")]
    pub roster: Vec<Responders>,
    /// Leases are facts: given back as soon as a ballot is left
    #[arg(long, requires = "explore")]
    pub facts: bool,
    /// Only behaviours in which a link begins to stand still, or something else happens while messages are under way,
    /// so often at most; without, as often as can be
    #[arg(long, requires = "explore")]
    pub delays: Option<u8>,
    /// Messages may overtake each other on a link, and not only be lost
    #[arg(long, requires = "explore")]
    pub reorder: bool,
    /// Messages that only tell of a higher ballot arrive too
    #[arg(long, requires = "explore")]
    pub hints: bool,
    /// Give up after so many states; each takes some 15 bytes
    #[arg(long, requires = "explore", default_value_t = 200_000_000)]
    pub states: usize,
}

#[derive(Debug, clap::Args)]
pub struct Replay {
    #[command(flatten)]
    pub run: Simulated,
}

/// From which duration on a request counts as slow; none with `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLog(pub Option<Duration>);

/// Reads it, from the command line or a file.
pub fn slow_log(text: &str) -> Result<SlowLog, String> {
    match text {
        "off" => Ok(SlowLog(None)),
        text => duration(text).map(|threshold| SlowLog(Some(threshold))).map_err(|error| error + ", or off"),
    }
}

/// A node, as operators name it.
fn node_id(text: &str) -> Result<u8, String> {
    let id = text.parse().ok().filter(|id| (1..=63).contains(id));
    id.ok_or_else(|| "write a node's id, from 1 to 63 (`quorate member list` shows them)".to_owned())
}

/// The command line; where it is wrong, the error says what would be right.
pub fn parse() -> Args {
    let mut command = with_environment(Args::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let args = matches.and_then(|matches| {
        let mut args = Args::from_arg_matches(&matches)?;
        let lines = environment::unheeded(&command, &matches);
        match &mut args.command {
            Command::Serve(Serve { process, .. }) | Command::Proxy(Proxy { process }) => {
                process.unheeded = lines;
            }
            _ => lines.iter().for_each(|line| say(line)),
        }
        Ok(args)
    });
    args.unwrap_or_else(|mut error| {
        let source = std::error::Error::source(&error);
        let is_number = source.is_some_and(|source| source.is::<std::num::ParseIntError>());
        if is_number {
            let tip = vec!["write a whole number, such as 3".into()];
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
        }
        // The flag for a password is there to be refused.
        let refused = ContextValue::String("--password".to_owned());
        if error.get(ContextKind::SuggestedArg) == Some(&refused) {
            let right = "--password-file <FILE>".to_owned();
            error.insert(ContextKind::SuggestedArg, ContextValue::String(right));
        }
        error.exit()
    })
}

pub fn cluster_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16)
        .map_err(|_| "write it as the status shows it: 16 digits from 0 to f".to_owned())
}

pub fn duration(text: &str) -> Result<Duration, String> {
    quorate_core::settings::parse_duration(text)
        .ok_or_else(|| "write a duration such as 8s, 500ms or 100us".to_owned())
}

pub fn bytes(text: &str) -> Result<usize, String> {
    let bytes = quorate_core::settings::parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "write a size such as 64KiB, 1MiB or 4096".to_owned())
}

pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to 1, such as 0.05".to_owned())
}

pub fn endpoint(text: &str) -> Result<String, String> {
    let text = text.trim();
    let fits =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if fits { Ok(text.to_owned()) } else { Err("write HOST:PORT, such as 127.0.0.1:7101".to_owned()) }
}
