//! `quorate backup`, `restore` and `recover`: a cluster's data in a file, and clusters that begin with such data.
//! [`export`] has `quorate export` and `import`.

mod export;
mod output;
mod scan;

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Write, stderr, stdin, stdout};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quorate_api::resp::FirstUsers;
use quorate_blocks::state::Replicated;
use quorate_client::{Client, Value};
use quorate_core::{NodeId, Wire, digest};
use quorate_node::backup::{BackupError, Header, Reader, Writer};
use quorate_node::founding::{self, Founding, Survivor};
use quorate_node::{Durability, parse_cluster};
use quorate_runtime::AnyProtocol;
use quorate_store::{Command, DEFAULT_USER, User};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::args::Endpoints;
use crate::client::{TIMEOUT, connect_for};
use crate::failure::Failure;
use crate::protocols;
use crate::{serve, users};
use output::{OutputFile, cannot_write};
use scan::has_groups;

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Write the data of a running cluster to a file, as they are at one position
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(Backup),
    /// Make the data directory of a node from a backup, for a new cluster of any size, addresses and protocol
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Restore),
    /// Write keys and values as lines of JSON
    #[command(after_help = export::EXPORT_EXAMPLES)]
    Export(export::Export),
    /// Write the keys and values of such lines to a running cluster
    #[command(after_help = export::IMPORT_EXAMPLES)]
    Import(export::Import),
    /// Make a new cluster of one from the directory of a node whose group has lost its majority for good
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover(Recover),
}

const BACKUP_EXAMPLES: &str = "Examples:
  quorate backup --out monday.backup
  quorate backup --out monday.backup --endpoints 10.0.0.2:7101    from this node, such as one that does not lead
The file holds every write that was acknowledged before the command began, none in part. Only its owner may read it.";

const RESTORE_EXAMPLES: &str = "Example, once for each node of the new cluster:
  quorate restore monday.backup --data-dir /var/lib/quorate --node-id 1 --protocol raft \\
      --initial-cluster 1=10.0.1.1:7201,2=10.0.1.2:7201,3=10.0.1.3:7201
Then each is started with `quorate serve` and the same flags. The new cluster has an id of its own, which is printed: a
proxy, or a node with --join or --replace-disk, needs it (--cluster-id).";

const RECOVER_EXAMPLES: &str = "Example, while the node is stopped:
  quorate recover --data-dir /var/lib/quorate --new-data-dir /var/lib/quorate-new --initial-cluster 1=10.0.0.1:7201
As long as a majority may come back, bring it back instead: nothing is lost then.";

#[derive(Debug, clap::Args)]
pub struct Backup {
    /// The file to write; it gets its name when it is complete and on disk
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Write what one node has, however far behind it is: also without a majority
    #[arg(long)]
    pub local: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

/// The flags of `restore` that are about the new cluster.
const NEW_CLUSTER_FLAGS: [&str; 7] =
    ["data_dir", "node_id", "initial_cluster", "protocol", "durability", "token", "users"];

#[derive(Debug, clap::Args)]
pub struct Restore {
    /// The backup
    pub file: PathBuf,
    /// Where the node is to keep its data: an empty directory, or a new one
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The node's id in the new cluster: 1 to 63
    #[arg(long, value_name = "ID")]
    pub node_id: Option<u64>,
    /// The members of the new cluster with their peer addresses, the same at all of them
    #[arg(long, value_name = "1=HOST:PORT,2=…")]
    pub initial_cluster: Option<String>,
    /// The protocol of the new cluster [default: that of the backup]
    #[arg(long)]
    pub protocol: Option<String>,
    /// With which durability the node is to run: fsync or os, or none (hermes)
    #[arg(long, default_value = "fsync")]
    pub durability: Durability,
    /// Tells clusters apart that are restored from one backup at the same addresses; the same at all members
    #[arg(long, value_name = "TEXT")]
    pub token: Option<String>,
    /// Its users in place of those of the backup, in a file as that of `quorate serve`; the same at all members
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Only read the backup to its end, and say what it is of
    #[arg(long, conflicts_with_all = NEW_CLUSTER_FLAGS)]
    pub verify: bool,
}

#[derive(Debug, clap::Args)]
pub struct Recover {
    /// The survivor's directory; it stays as it is
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where the new cluster's node is to keep its data: an empty directory, or a new one
    #[arg(long, value_name = "DIR")]
    pub new_data_dir: PathBuf,
    /// The new cluster's one member with its peer address
    #[arg(long, value_name = "1=HOST:PORT")]
    pub initial_cluster: String,
    /// The protocol of the new cluster [default: that of the old one]
    #[arg(long)]
    pub protocol: Option<String>,
    /// Its users in place of those of the directory, in a file as that of `quorate serve`: for whoever can no longer
    /// log in
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 20;

/// What a node says of a state that it has frozen (`QUORATE BACKUP BEGIN`).
#[derive(Deserialize)]
struct Begun {
    version: String,
    protocol: String,
    cluster_id: String,
    node: u64,
    position: u64,
}

pub fn run(command: DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Backup(args) => backup(args),
        DataCommand::Restore(args) => restore(args),
        DataCommand::Recover(args) => recover(args),
        DataCommand::Export(args) => export::export(args),
        DataCommand::Import(args) => export::import(args),
    }
}

fn backup(args: Backup) -> Result<(), Failure> {
    let Backup { out, force, local, endpoints } = args;
    let mut file = OutputFile::create(&out, force)?;
    let cannot = |error: std::io::Error| cannot_write(&out, error);

    let mut client = connect_for(endpoints, TIMEOUT)?;
    let header = begin(&mut client, local).map_err(|failure| match has_groups(&mut client) {
        true => Failure {
            message: format!("{}\n`quorate export` writes the keys of all groups", failure.message),
            ..failure
        },
        false => failure,
    })?;
    let node = format!("node {} ({})", header.node, client.endpoint());
    let progress = spinner(&format!("backup from {node}"));
    let mut writer = Writer::new(BufWriter::with_capacity(BUFFER, file.file()), &header).map_err(cannot)?;
    while let Some(piece) = next_piece(&mut client)? {
        writer.piece(&piece).map_err(cannot)?;
        progress.set_position(writer.progress().1);
    }
    let (_, raw) = writer.progress();
    writer.finish().map_err(cannot)?;
    let bytes = file.finish()?;
    progress.finish_and_clear();
    let (cluster, position) = (header.cluster, header.position);
    writeln!(
        stdout(),
        "{}: cluster {cluster:016x} ({}) at position {position}, from {node}; {bytes} bytes, {raw} before compression",
        out.display(),
        header.protocol
    )?;
    Ok(())
}

/// Has a node freeze its state.
fn begin(client: &mut Client, local: bool) -> Result<Header, Failure> {
    let words = ["QUORATE", "BACKUP", "BEGIN", "LOCAL"];
    let words = if local { &words[..] } else { &words[..3] };
    let reply = client.read(words).map_err(|error| {
        let failure = Failure::from(error);
        let advice = "\nWhat one node has, however far behind it is, can be written with --local";
        match failure.code {
            3 if !local => Failure { message: failure.message + advice, ..failure },
            _ => failure,
        }
    })?;
    let unexpected = |what: String| Failure::failed(format!("{} answered with {what}", client.endpoint()));
    let Value::Bytes(text) = reply else { return Err(unexpected(format!("{reply:?}"))) };
    let begun: Begun = serde_json::from_slice(&text).map_err(|error| unexpected(error.to_string()))?;
    let cluster =
        u64::from_str_radix(&begun.cluster_id, 16).map_err(|error| unexpected(error.to_string()))?;
    let taken_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let Begun { version, protocol, node, position, .. } = begun;
    Ok(Header { quorate: version, protocol, cluster, node, position, taken_ms })
}

fn next_piece(client: &mut Client) -> Result<Option<bytes::Bytes>, Failure> {
    match client.command(&["QUORATE", "BACKUP", "NEXT"]) {
        Ok(Value::Bytes(piece)) => Ok(Some(piece)),
        Ok(Value::Nil) => Ok(None),
        Ok(other) => Err(Failure::failed(format!("{} answered with {other:?}", client.endpoint()))),
        Err(error) => Err(broke_off(error)),
    }
}

/// Why there are no more pieces. What a client may not know of a write is no concern of a backup.
fn broke_off(error: quorate_client::Error) -> Failure {
    let why = match error {
        quorate_client::Error::Unknown { endpoint, source } => {
            format!("the connection to {endpoint} broke ({source}); begin again")
        }
        error => error.to_string(),
    };
    Failure::unreachable(format!("the backup broke off, and nothing was written: {why}"))
}

fn restore(args: Restore) -> Result<(), Failure> {
    let path = &args.file;
    let refused = |error: BackupError| Failure::failed(format!("{}: {error}", path.display()));
    let file = File::open(path)
        .map_err(|error| Failure::wrong(format!("cannot read {}: {error}", path.display())))?;
    let length = file.metadata().map_or(0, |about| about.len());
    let reader = Reader::open(BufReader::with_capacity(BUFFER, file)).map_err(refused)?;
    let member = if args.verify { None } else { Some(member(&args, reader.header())?) };
    let users = args.users.as_deref().map(users::read).transpose()?;
    let progress = bar(length, "reading");
    let (header, mut state) = reader.load(|offset| progress.set_position(offset)).map_err(refused)?;
    progress.finish_and_clear();
    let Header { ref quorate, ref protocol, cluster, node, position, taken_ms } = header;
    let about =
        format!("backup of cluster {cluster:016x} ({protocol}, Quorate {quorate}) at position {position}");
    let Some(founding) = member else {
        let keys = state.keys();
        writeln!(
            stdout(),
            "{}: sound: {about}, from node {node}, taken at {}; {keys} keys",
            path.display(),
            date_and_time(taken_ms)
        )?;
        return Ok(());
    };
    let mut token = args.token.clone().unwrap_or_default();
    if let Some(users) = &users {
        replace_users(&mut state, users)?;
        // Members with other users are members of another cluster.
        token = format!("{token} {:016x}", digest(&users.to_bytes()));
    }
    let new = header.founded_cluster(founding.initial_id(), &token);
    make(&founding, state, new)?;
    tell(&founding, new, &about)
}

/// A time in milliseconds since 1970, in UTC, as RFC 3339 writes it.
fn date_and_time(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).ok();
    let date = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let said = date.and_then(|date| date.format(&Rfc3339).ok());
    said.unwrap_or_else(|| format!("{ms} ms since 1970"))
}

/// The member that a restore is for, checked as far as that goes without the data.
fn member(args: &Restore, header: &Header) -> Result<Founding, Failure> {
    let missing =
        |flag: &str| Failure::wrong(format!("--{flag} is missing (or --verify, to check the backup alone)"));
    let id = args.node_id.ok_or_else(|| missing("node-id"))?;
    let members = args.initial_cluster.as_ref().ok_or_else(|| missing("initial-cluster"))?;
    let founding = Founding {
        directory: args.data_dir.clone().ok_or_else(|| missing("data-dir"))?,
        node: NodeId::new(id)
            .ok_or_else(|| Failure::wrong(format!("--node-id {id}: ids are whole numbers from 1 to 63")))?,
        members: parse_cluster(members).map_err(Failure::wrong)?,
        protocol: protocol(args.protocol.as_deref(), &header.protocol)?,
        durability: args.durability,
    };
    founding.check().map_err(Failure::wrong)?;
    Ok(founding)
}

/// The protocol that is named, or that of the data.
fn protocol(named: Option<&str>, data: &str) -> Result<&'static dyn AnyProtocol, Failure> {
    match named {
        Some(name) => protocols::find(name),
        None => protocols::find(data).map_err(|error| Failure {
            message: format!("{}; name one with --protocol", error.message),
            ..error
        }),
    }
}

/// Gives the data other users.
fn replace_users(state: &mut Replicated, users: &FirstUsers) -> Result<(), Failure> {
    let needed = Command::SetUsers { users: users.clone(), if_none: false }.level();
    let level = state.level();
    if needed > level {
        return Err(Failure::wrong(format!(
            "--users: a rule needs feature level {needed}, and the data have {level}: leave it out, and give it with \
             ACL SETUSER when the level was raised"
        )));
    }
    state.replace_users(users).map_err(|error| Failure::wrong(format!("--users: {error}")))
}

fn make(founding: &Founding, state: Replicated, cluster: u64) -> Result<(), Failure> {
    refuse_to_lose_users(founding.protocol, &state)?;
    founding
        .found(state, cluster)
        .map_err(|error| Failure { code: serve::code(&error), message: error.to_string() })
}

/// Where a protocol cannot keep users, a cluster that had some would let everybody do everything.
fn refuse_to_lose_users(protocol: &dyn AnyProtocol, state: &Replicated) -> Result<(), Failure> {
    if protocol.capabilities().multi_key {
        return Ok(());
    }
    let open = User::initial_default();
    if state.users().iter().all(|(name, user)| name == DEFAULT_USER && is_like(user, &open)) {
        return Ok(());
    }
    Err(Failure::wrong(format!(
        "the data have users, and {} executes commands on one key only, so it cannot keep them: everybody could do \
         everything. Choose a protocol that orders all writes, such as multipaxos, or take the keys alone: quorate \
         export --backup FILE, and quorate import",
        protocol.name()
    )))
}

/// Whether they may do the same, and are known by the same.
fn is_like(one: &User, other: &User) -> bool {
    User { created: other.created, ..one.clone() } == *other
}

/// What was made, and how to go on.
fn tell(founding: &Founding, cluster: u64, from: &str) -> Result<(), Failure> {
    let Founding { directory, node, members, protocol, durability } = founding;
    let members: Vec<_> = members.iter().map(|(node, address)| format!("{node}={address}")).collect();
    let own = &founding.members[node];
    let durability = match durability {
        Durability::Fsync => String::new(),
        other => format!(" --durability {other}"),
    };
    writeln!(
        stdout(),
        "{}: node {node} of the new cluster {cluster:016x} ({}), from the {from}\nStart it with:\n  quorate serve \
         --node-id {node} --protocol {}{durability} --data-dir {} --listen-peer {own} \\\n      \
         --listen-resp HOST:PORT --initial-cluster {}\nCertificates are for one cluster. An authority for this one is \
         made by:\n  quorate cert init --cluster-id {cluster:016x}",
        directory.display(),
        protocol.name(),
        protocol.name(),
        directory.display(),
        members.join(",")
    )?;
    Ok(())
}

fn recover(args: Recover) -> Result<(), Failure> {
    let Recover { data_dir, new_data_dir, initial_cluster, protocol: named, users, yes } = args;
    let users = users.as_deref().map(users::read).transpose()?;
    let members = parse_cluster(&initial_cluster).map_err(Failure::wrong)?;
    let [node] = *members.keys().copied().collect::<Vec<_>>() else {
        return Err(Failure::wrong(
            "--initial-cluster must name one member: the new cluster begins with one; add others once it runs \
             (`quorate member add`), or restore a backup of it as several nodes",
        ));
    };
    if !data_dir.is_dir() {
        return Err(Failure::wrong(format!("{} is no directory", data_dir.display())));
    }
    let survivor = founding::salvage(&data_dir, |name| protocols::find(name).ok())
        .map_err(|error| Failure { code: serve::code(&error), message: error.to_string() })?;
    let survivor = survivor.ok_or_else(|| {
        Failure::wrong(format!(
            "{} is no data directory with a node's log, or one of several groups (--groups), of which nothing can be \
             recovered yet",
            data_dir.display()
        ))
    })?;
    let protocol = protocol(named.as_deref(), &survivor.owner.protocol)?;
    let durability = Durability::default();
    let founding = Founding { directory: new_data_dir, node, members, protocol, durability };
    founding.check().map_err(Failure::wrong)?;
    warn(&survivor)?;
    if !yes {
        confirm()?;
    }
    let mut state = Replicated::load(&survivor.salvaged.state)
        .map_err(|error| Failure::failed(format!("what the directory gives cannot be loaded: {error}")))?;
    if let Some(users) = &users {
        replace_users(&mut state, users)?;
    }
    let cluster = getrandom::u64().map_err(|error| Failure::failed(format!("no random number: {error}")))?;
    make(&founding, state, cluster)?;
    tell(
        &founding,
        cluster,
        &format!("data of node {} at position {}", survivor.owner.node, survivor.position),
    )
}

/// What the new cluster may lack.
fn warn(survivor: &Survivor) -> Result<(), Failure> {
    let Survivor { owner, salvaged, position, keys, has_run } = survivor;
    let mut out = stderr().lock();
    writeln!(
        out,
        "This is the data directory of node {} of cluster {:016x} ({}): {keys} keys at position {position}.",
        owner.node, owner.cluster, owner.protocol
    )?;
    if !has_run {
        writeln!(out, "It is empty: this node has never taken part.")?;
    }
    writeln!(
        out,
        "A new cluster from it\n- lacks every write, acknowledged ones too, that this node had not on its disk yet; \
         how many there are, nobody here knows. If another node survives, take the one whose position is further;"
    )?;
    if salvaged.undecided > 0 {
        writeln!(
            out,
            "- has {} at the end that this node did not know to be committed: writes whose clients got no answer may \
             have taken effect;",
            positions(salvaged.undecided)
        )?;
    }
    if salvaged.left_out > 0 {
        let (them, their) =
            if salvaged.left_out == 1 { ("it", "its value") } else { ("them", "their values") };
        writeln!(
            out,
            "- lacks {} of this node's log that cannot be used, because something before {them} is missing, or only a \
             part of {their} is here;",
            positions(salvaged.left_out)
        )?;
    }
    writeln!(
        out,
        "- is another cluster: no node or proxy of the old one can join it. Never start the old nodes again for \
         clients: there would be two truths. The directory stays as it is."
    )?;
    Ok(())
}

/// So many positions, in words.
fn positions(count: u64) -> String {
    format!("{count} position{}", if count == 1 { "" } else { "s" })
}

/// Asks for the word.
fn confirm() -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::wrong(
            "nothing was done: nobody can be asked here; if this is what you want, give --yes",
        ));
    }
    write!(stderr(), "Type `recover` to go on: ")?;
    let mut answer = String::new();
    stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::failed(format!("cannot read the answer: {error}")))?;
    match answer.trim() {
        "recover" => Ok(()),
        _ => Err(Failure::failed("nothing was done")),
    }
}

/// Shows bytes and their rate, on a terminal.
fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}: {bytes} ({bytes_per_sec})");
    shown(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()), style, what)
}

/// The same for so many bytes.
fn bar(bytes: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec})");
    shown(ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr()), style, what)
}

fn shown(
    bar: ProgressBar,
    style: Result<ProgressStyle, indicatif::style::TemplateError>,
    what: &str,
) -> ProgressBar {
    bar.with_style(style.expect("a template that was tried")).with_message(what.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use bytes::Bytes;
    use quorate_blocks::state::Replicated;
    use quorate_core::Wall;
    use quorate_protocols::registry;
    use quorate_store::{Command, Store, UserRule};

    use super::{broke_off, date_and_time, refuse_to_lose_users};

    #[test]
    fn what_has_users_is_restored_only_where_they_are_kept() {
        let state = |rules: Vec<(&'static str, UserRule)>| {
            let mut store = Store::new();
            for (revision, (name, rule)) in (1..).zip(rules) {
                let users = vec![(Bytes::from_static(name.as_bytes()), vec![rule])];
                store.apply(&Command::SetUsers { users, if_none: false }, revision, Wall::ZERO);
            }
            Replicated::of(store)
        };
        let ends = |protocol: &str, rules| {
            let end = refuse_to_lose_users(registry::named(protocol), &state(rules));
            end.map_err(|failure| (failure.code, failure.message.contains(protocol)))
        };
        let closed = || vec![("default", UserRule::Disable)];
        assert_eq!(ends("hermes", Vec::new()), Ok(()));
        assert_eq!(ends("hermes", closed()), Err((2, true)));
        assert_eq!(ends("hermes", vec![("shop", UserRule::Enable)]), Err((2, true)));
        assert_eq!(ends("hermes", vec![("default", UserRule::Enable)]), Ok(()), "as it was");
        assert_eq!(ends("epaxos", closed()), Ok(()));
    }

    #[test]
    fn a_backup_that_breaks_off_tells_of_no_write() {
        let source = Error::from(ErrorKind::ConnectionReset);
        let lost = quorate_client::Error::Unknown { endpoint: "10.0.0.2:7101".to_owned(), source };
        let said = broke_off(lost);
        assert_eq!(said.code, 3);
        assert!(!said.message.contains("the write"), "{}", said.message);
        assert!(said.message.contains("10.0.0.2:7101 broke (connection reset)"), "{}", said.message);
    }

    #[test]
    fn times_are_dates_for_people() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_910_399, "2026-11-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (12_622_780_800, "2370-01-01T00:00:00Z"),
        ] {
            assert_eq!(date_and_time(seconds * 1000 + 999), date);
        }
        assert_eq!(date_and_time(u64::MAX), "18446744073709551615 ms since 1970");
    }
}
