//! The node: what it is, what it can, how it is.

use std::fmt::Write as _;

use bytes::Bytes;
use quorate_core::{FeatureLevel, NodeId, Status, Wire};
use quorate_store::Reply;
use quorate_store::glob::Pattern;
use quorate_store::settings::{FEATURE_LEVEL, MAX_DATA};

use super::super::acl::categories_of;
use super::super::shape::{PATTERN_TOO_LONG, UNORDERED};
use super::super::stats::CommandStats;
use super::connection::REDIS_VERSION;
use super::*;
use crate::process::ProcessStats;

pub(super) const SPECS: &[Spec] = &[
    Spec {
        name: "command",
        arity: -1,
        flags: &["loading", "stale"],
        keys: NO_KEY,
        summary: "Tells which commands there are.",
        run: list_all,
        subcommands: &[
            command(
                "command|count",
                2,
                &["loading", "stale"],
                NO_KEY,
                "Returns how many commands there are.",
                count,
            ),
            command("command|docs", -2, &["loading", "stale"], NO_KEY, "Returns what commands do.", docs),
            command(
                "command|info",
                -2,
                &["loading", "stale"],
                NO_KEY,
                "Returns the shapes of commands.",
                info,
            ),
            command(
                "command|list",
                -2,
                &["loading", "stale"],
                NO_KEY,
                "Returns the names of commands, with subcommands: all, or those of a category or pattern.",
                names,
            ),
        ],
    },
    Spec {
        name: "config",
        arity: -2,
        flags: ADMIN,
        keys: NO_KEY,
        summary: "Tells the configuration as far as clients ask for it.",
        run: needs_subcommand,
        subcommands: &[
            command("config|get", -3, ADMIN, NO_KEY, "Returns parameters.", config_get),
            command("config|set", 4, ADMIN, NO_KEY, "Changes a parameter of the whole cluster.", config_set),
        ],
    },
    command(
        "info",
        -1,
        &["loading", "stale"],
        NO_KEY,
        "Tells how the node is, for people and tools.",
        node_info,
    ),
    command("time", 1, STATELESS, NO_KEY, "Returns the node's wall clock.", time),
];

fn list_all(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.reply.array(all().len());
    for spec in all() {
        describe(spec, call.reply);
    }
    Ok(Step::Answered)
}

fn count(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.reply.integer(all().len() as i64);
    Ok(Step::Answered)
}

fn names(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let mut specs: Vec<&Spec> = every().collect();
    if args.len() > 2 {
        if args.len() != 5 || !is(args.get(2), "FILTERBY") {
            return Err(SYNTAX.into());
        }
        let (filter, wanted) = (args.get(3), args.get(4));
        if is(filter, "ACLCAT") {
            let is_wanted = |category: &&str| wanted.eq_ignore_ascii_case(category.as_bytes());
            specs.retain(|spec| categories_of(spec).iter().any(is_wanted));
        } else if is(filter, "PATTERN") {
            let pattern = Pattern::new(&wanted.to_ascii_lowercase()).map_err(|_| PATTERN_TOO_LONG)?;
            specs.retain(|spec| pattern.matches(spec.name.as_bytes()));
        } else if is(filter, "MODULE") {
            // There are none.
            specs.clear();
        } else {
            return Err(SYNTAX.into());
        }
    }
    call.reply.array(specs.len());
    specs.iter().for_each(|spec| call.reply.bulk(spec.name.as_bytes()));
    Ok(Step::Answered)
}

/// How many names COMMAND INFO and COMMAND DOCS may be asked about: there are fewer commands, and what is said of each
/// is long.
const NAMES: usize = 256;

fn check_names(args: &Args<'_>) -> Result<(), Fault> {
    match args.len() - 2 {
        names if names > NAMES => Err(format!("ERR {names} names are more than the limit of {NAMES}").into()),
        _ => Ok(()),
    }
}

fn info(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if args.len() == 2 {
        return list_all(args, call);
    }
    check_names(&args)?;
    call.reply.array(args.len() - 2);
    for name in args.from(2) {
        match lookup(name) {
            Some(spec) => describe(spec, call.reply),
            None => call.reply.null(),
        }
    }
    Ok(Step::Answered)
}

/// A command as COMMAND shows it: ten fields, of which categories, tips and key specifications are empty.
fn describe(spec: &Spec, reply: &mut Writer<'_>) {
    let (first, last, step) = spec.keys;
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.integer(spec.arity.into());
    reply.set(spec.flags.len());
    for flag in spec.flags {
        reply.simple(flag);
    }
    reply.integer(first.into());
    reply.integer(last.into());
    reply.integer(step.into());
    reply.set(0);
    reply.array(0);
    reply.array(0);
    reply.array(spec.subcommands.len());
    for sub in spec.subcommands {
        describe(sub, reply);
    }
}

fn docs(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    check_names(&args)?;
    let specs: Vec<&Spec> = match args.len() {
        2 => all().to_vec(),
        _ => args.from(2).filter_map(lookup).collect(),
    };
    document(specs.into_iter(), call.reply);
    Ok(Step::Answered)
}

fn document<'a>(specs: impl ExactSizeIterator<Item = &'a Spec>, reply: &mut Writer<'_>) {
    reply.map(specs.len());
    for spec in specs {
        reply.bulk(spec.name.as_bytes());
        reply.map(if spec.subcommands.is_empty() { 3 } else { 4 });
        reply.bulk(b"summary");
        reply.bulk(spec.summary.as_bytes());
        reply.bulk(b"since");
        reply.bulk(b"1.0.0");
        reply.bulk(b"group");
        reply.bulk(group(spec).as_bytes());
        if !spec.subcommands.is_empty() {
            reply.bulk(b"subcommands");
            document(spec.subcommands.iter(), reply);
        }
    }
}

fn group(spec: &Spec) -> &'static str {
    match family(spec) {
        Family::Connection => "connection",
        Family::Hash => "hash",
        Family::Generic => "generic",
        Family::String => "string",
        Family::Transaction => "transactions",
        Family::Server => "server",
    }
}

/// What CONFIG GET was asked for: each parameter, in the order of [`PARAMETERS`].
#[derive(Debug)]
pub(in super::super) struct Parameters {
    asked: [bool; PARAMETERS.len()],
    /// The largest word of a request.
    word: usize,
}

const PARAMETERS: [&str; 9] = [
    "appendonly",
    "databases",
    FEATURE_LEVEL,
    MAX_DATA,
    "maxmemory",
    "maxmemory-policy",
    "proto-max-bulk-len",
    "save",
    "timeout",
];

impl Parameters {
    /// Whether some of them are settings that all nodes share.
    fn are_shared(&self) -> bool {
        let mut asked = PARAMETERS.iter().zip(self.asked).filter(|(_, asked)| *asked);
        asked.any(|(name, _)| [FEATURE_LEVEL, MAX_DATA, "maxmemory"].contains(name))
    }

    /// Writes them, with the settings that the group has told.
    pub(in super::super) fn write(&self, settings: &[(Bytes, Bytes)], reply: &mut Writer<'_>) {
        let setting = |wanted: &str| {
            let found = settings.iter().find(|(name, _)| name[..] == *wanted.as_bytes());
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        let value = |name: &str| match name {
            "appendonly" => Some("yes".to_owned()),
            "databases" => Some("1".to_owned()),
            "maxmemory" => setting(MAX_DATA),
            "maxmemory-policy" => Some("noeviction".to_owned()),
            "proto-max-bulk-len" => Some(self.word.to_string()),
            "save" => Some(String::new()),
            "timeout" => Some("0".to_owned()),
            shared => setting(shared),
        };
        let asked = PARAMETERS.iter().zip(self.asked).filter(|(_, asked)| *asked);
        let found: Vec<_> = asked.filter_map(|(name, _)| Some((name, value(name)?))).collect();
        reply.map(found.len());
        for (name, value) in found {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }

    /// The same, with the settings as this node's own state has them. Who has no state does not know the level.
    pub(in super::super) fn write_own(&self, node: &dyn NodeView, reply: &mut Writer<'_>) {
        let own = |name: &'static str, value: String| (Bytes::from_static(name.as_bytes()), value.into());
        let level = level_of(node).map(|level| own(FEATURE_LEVEL, level.to_string()));
        let limit = own(MAX_DATA, node.status().count("store_limit_bytes").to_string());
        self.write(&level.into_iter().chain([limit]).collect::<Vec<_>>(), reply);
    }
}

/// What all nodes share is asked of the group, as any read. Where one command cannot be about everything, this node
/// tells what it knows: there is no bound on the data then.
fn config_get(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let mut parameters = Parameters { asked: [false; PARAMETERS.len()], word: call.limits().value };
    for pattern in args.from(2) {
        let pattern = Pattern::new(&pattern.to_ascii_lowercase()).map_err(|_| PATTERN_TOO_LONG)?;
        for (name, asked) in PARAMETERS.iter().zip(&mut parameters.asked) {
            *asked |= pattern.matches(name.as_bytes());
        }
    }
    let scope = &call.limits().key_scope;
    let is_answered = scope.groups().is_none() && scope.refusal(call.spec.name, &Command::Settings).is_none();
    if parameters.are_shared() && is_answered {
        return Ok(Step::Ask(Command::Settings, Shape::Parameters(parameters)));
    }
    parameters.write_own(call.node, call.reply);
    Ok(Step::Answered)
}

/// No limit is of several groups.
const GROUPS: &str =
    "ERR max-data bounds one group's data, and there are several (--groups): that is not possible yet";

const BAD_SIZE: &str = "ERR max-data is a size such as 2gb, 512MiB or 1000000 (bytes), or 0 for no bound";

fn config_set(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if is(args.get(2), FEATURE_LEVEL) {
        let to = raised(args.get(3), call)?;
        return Ok(Step::Ask(Command::RaiseLevel { to, if_new: false }, Shape::Raised));
    }
    if !is(args.get(2), MAX_DATA) && !is(args.get(2), "maxmemory") {
        let name = String::from_utf8_lossy(args.get(2));
        return Err(format!(
            "ERR there is no parameter '{name}' that can be changed: there are max-data and feature-level"
        )
        .into());
    }
    if call.limits().key_scope.groups().is_some() {
        return Err(GROUPS.into());
    }
    if !call.node.has_total_order() {
        return Err(UNORDERED.into());
    }
    let bytes = size(args.get(3)).ok_or(BAD_SIZE)?;
    Ok(Step::Ask(Command::LimitData { bytes: Some(bytes).filter(|bytes| *bytes > 0) }, Shape::Plain))
}

/// The level to which the group may be raised; otherwise why not.
fn raised(word: &[u8], call: &Call<'_, '_>) -> Result<FeatureLevel, Fault> {
    let newest = FeatureLevel::NEWEST;
    let level = std::str::from_utf8(word).ok().and_then(|word| FeatureLevel::new(word.parse().ok()?));
    let Some(level) = level else {
        return Err(format!("ERR a feature level is a number from 1 to {newest}").into());
    };
    if !level.is_known() {
        let words = format!("ERR this node's version knows feature levels up to {newest}: upgrade it first");
        return Err(words.into());
    }
    if let Some(now) = level_of(call.node).filter(|now| level < *now) {
        return Err(format!("ERR the feature level is {now}, and does not fall").into());
    }
    let (members, known) = (call.node.group().nodes, call.node.known_levels());
    let lacking = members.keys().filter(|node| known.get(node).is_none_or(|knows| *knows < level));
    let lacking: Vec<_> = lacking.map(|node| lack(*node, known.get(node))).collect();
    match lacking.is_empty() {
        true => Ok(level),
        false => {
            Err(format!("ERR not all members know feature level {level}: {}", lacking.join("; ")).into())
        }
    }
}

/// The feature level of the node's own state, if it has one; that of the first group where there are several.
pub(in crate::resp) fn level_of(node: &dyn NodeView) -> Option<FeatureLevel> {
    match Reply::from_bytes(node.read(&Command::Level.to_bytes())?) {
        Ok(Reply::Integer(number)) => FeatureLevel::new(u16::try_from(number).ok()?),
        _ => None,
    }
}

fn lack(node: NodeId, knows: Option<&FeatureLevel>) -> String {
    match knows {
        Some(knows) => format!("node {node} knows levels up to {knows}, upgrade it first"),
        None => format!("node {node} is not connected, so it cannot be asked: start it, or remove it"),
    }
}

/// A size as Redis's configuration has it (`2gb`, `1k` for a thousand), or as Quorate's has (`2GiB`).
fn size(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?.to_ascii_lowercase();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit: u64 = match unit {
        "" | "b" => 1,
        "k" => 1000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn time(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let now = (call.shared.clock)();
    call.reply.array(2);
    call.reply.bulk(now.as_secs().to_string().as_bytes());
    call.reply.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(Step::Answered)
}

fn node_info(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (status, facts) = (call.node.status(), call.node.facts());
    let mut quorate = String::new();
    // Not `role`: that is a field of the section Replication, and tools look for fields without looking at
    // sections.
    let _ = writeln!(quorate, "quorate_role:{}\r", status.role);
    let _ = writeln!(quorate, "leader:{}\r", status.leader.map_or("none".to_owned(), |id| id.to_string()));
    let _ = writeln!(quorate, "ballot:{}\r", status.ballot);
    let _ = writeln!(quorate, "committed:{}\r", status.committed);
    let _ = writeln!(quorate, "applied:{}\r", status.applied);
    let _ = writeln!(quorate, "lease:{}\r", u8::from(status.lease));
    let _ = writeln!(quorate, "reads:{}\r", status.reads);
    for (name, value) in &facts {
        let _ = writeln!(quorate, "{name}:{value}\r");
    }
    for sample in status.samples.iter().filter(|sample| sample.label.is_none()) {
        let _ = writeln!(quorate, "{}:{}\r", sample.name, sample.value);
    }
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nquorate_version:{}\r\nos:{}\r\n\
                 arch_bits:{}\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::env::consts::OS,
                usize::BITS,
                std::process::id(),
                fact(&facts, "uptime_seconds"),
            ),
        ),
        (
            "Clients",
            format!(
                "connected_clients:{}\r\nmaxclients:{}\r\n",
                call.shared.clients.len(),
                fact(&facts, "clients_limit")
            ),
        ),
        ("Memory", memory(&status, &facts)),
        ("Persistence", "loading:0\r\naof_enabled:1\r\n".to_owned()),
        ("Stats", stats(&facts, &call.shared.stats)),
        // Every node takes writes: to a client each is the one there is.
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        ("CPU", cpu()),
        (COMMANDSTATS, call.shared.stats.info()),
        // Clients of Redis Cluster look here for whether this is one.
        ("Cluster", "cluster_enabled:0\r\n".to_owned()),
        ("Keyspace", keyspace(&status)),
        ("Quorate", quorate),
    ];
    let all = args.from(1).any(|word| is(word, "all") || is(word, "everything"));
    let default = args.len() == 1 || all || args.from(1).any(|word| is(word, "default"));
    let mut text = String::new();
    for (name, body) in sections {
        let wanted = if name == COMMANDSTATS { all } else { default };
        if wanted || args.from(1).any(|word| is(word, name)) {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{separator}# {name}\r\n{body}");
        }
    }
    call.reply.verbatim(&text);
    Ok(Step::Answered)
}

/// As in Redis, only shown to those who ask for it, or for all.
const COMMANDSTATS: &str = "Commandstats";

/// A fact of the node; 0 if it has none of this name.
fn fact<'a>(facts: &'a [(&'static str, String)], name: &str) -> &'a str {
    facts.iter().find(|(fact, _)| *fact == name).map_or("0", |(_, value)| value)
}

fn memory(status: &Status, facts: &[(&'static str, String)]) -> String {
    let used = ProcessStats::resident().unwrap_or(0);
    // That of the machine, or what this process may use of it, where that is less.
    let limit = fact(facts, "memory_limit_bytes").parse().ok().filter(|limit| *limit > 0);
    let total = [ProcessStats::system_memory(), limit].into_iter().flatten().min().unwrap_or(0);
    format!(
        "used_memory:{used}\r\nused_memory_human:{:.2}M\r\nused_memory_rss:{used}\r\nused_memory_dataset:{}\r\n\
         total_system_memory:{total}\r\nmaxmemory:{}\r\nmaxmemory_policy:noeviction\r\n",
        used as f64 / f64::from(1 << 20),
        status.count("store_bytes"),
        status.count("store_limit_bytes"),
    )
}

fn cpu() -> String {
    let (user, system) = ProcessStats::cpu_seconds().unwrap_or_default();
    format!("used_cpu_sys:{system:.6}\r\nused_cpu_user:{user:.6}\r\n")
}

fn stats(facts: &[(&'static str, String)], commands: &CommandStats) -> String {
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\ntotal_net_input_bytes:{}\r\n\
         total_net_output_bytes:{}\r\nrejected_connections:{}\r\ntotal_error_replies:{}\r\n",
        fact(facts, "clients_accepted_total"),
        commands.count(),
        fact(facts, "client_bytes_in_total"),
        fact(facts, "client_bytes_out_total"),
        fact(facts, "clients_refused_total"),
        commands.errors(),
    )
}

/// The one database, unless it is empty.
fn keyspace(status: &Status) -> String {
    match status.count("store_keys") {
        0 => String::new(),
        keys => format!("db0:keys={keys},expires={},avg_ttl=0\r\n", status.count("store_keys_expiring")),
    }
}
