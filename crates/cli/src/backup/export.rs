//! `quorate export` and `import`: keys and values as lines of JSON, for programs that do not know Quorate's formats.
//!
//! ```text
//! {"key":"greeting","type":"string","value":"hello","expires_ms":1790000000000}
//! {"key":"user:7","type":"hash","value":[["name","Ada"],["picture",{"hex":"89504e47"}]]}
//! ```
//!
//! Bytes that are not UTF-8 are written as `{"hex": …}`, and any bytes may be. `expires_ms` is milliseconds since 1970;
//! a key without a time to live has none. Users, bounds and sessions are not exported.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, BufWriter, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use quorate_blocks::state::{LoadError, Loading, Replicated};
use quorate_client::Client;
use quorate_node::backup::Reader;
use quorate_store::{KeyValue, StoredValue};
use serde::{Deserialize, Serialize};

use super::output::{OutputFile, cannot_write};
use super::scan::{GroupsExport, has_groups};
use super::{BUFFER, begin, next_piece, spinner};
use crate::args::Endpoints;
use crate::client::{TIMEOUT, Target};
use crate::failure::Failure;

pub const EXPORT_EXAMPLES: &str = "Examples:
  quorate export > monday.jsonl                         from a running cluster, as it is at one position
  quorate export --backup monday.backup > monday.jsonl  from a backup
Where the keys are divided among groups (--groups), each key is as it is when it is read, not all as at one position.
A line is a key: {\"key\":\"k\",\"type\":\"string\",\"value\":\"v\"}; the value of \"type\":\"hash\" is a list of pairs,
\"expires_ms\" is there with a time to live, and bytes that are not UTF-8 are {\"hex\":\"00ff\"}.";

pub const IMPORT_EXAMPLES: &str = "Examples:
  quorate import monday.jsonl --endpoints 10.0.1.1:7101
  quorate export | quorate import - --endpoints 10.0.1.1:7101
Keys of the file replace those that are there, others stay. Importing a file twice is the same as importing it once.";

#[derive(Debug, clap::Args)]
pub struct Export {
    /// The file to write [default: the standard output]; it gets its name when it is complete and on disk
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Export this backup, not a running cluster
    #[arg(long, value_name = "FILE", conflicts_with = "local")]
    pub backup: Option<PathBuf>,
    /// Export what one node has, however far behind it is: also without a majority
    #[arg(long)]
    pub local: bool,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

#[derive(Debug, clap::Args)]
pub struct Import {
    /// Lines as `export` writes them; `-` reads the standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub endpoints: Endpoints,
}

/// A line of the file: a key with its value.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Text,
    #[serde(rename = "type")]
    kind: Kind,
    value: Content,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    String,
    Hash,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is text, {\"hex\": …}, or a list of pairs of these")]
enum Content {
    String(Text),
    Hash(Vec<(Text, Text)>),
}

/// Bytes, as text where they are UTF-8.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "expected text, or {\"hex\": …}")]
enum Text {
    Utf8(String),
    Hex { hex: String },
}

impl Text {
    fn of(bytes: &[u8]) -> Text {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text::Utf8(text.to_owned()),
            Err(_) => {
                let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                let digit = |digit: u8| char::from_digit(digit.into(), 16).expect("half a byte");
                Text::Hex { hex: digits.map(digit).collect() }
            }
        }
    }

    fn bytes(self) -> Result<Vec<u8>, String> {
        let hex = match self {
            Text::Utf8(text) => return Ok(text.into_bytes()),
            Text::Hex { hex } => hex,
        };
        let digits = hex.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<_>>>();
        let (pairs, rest) = digits.as_deref().unwrap_or(&[0]).as_chunks::<2>();
        match rest {
            [] => Ok(pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect()),
            _ => Err(format!("\"{hex:.20}\" is not two hexadecimal digits for each byte")),
        }
    }
}

impl Line {
    fn of(entry: &KeyValue<'_>) -> Line {
        let (kind, value) = match &entry.value {
            StoredValue::String(value) => (Kind::String, Content::String(Text::of(value))),
            StoredValue::Hash(fields) => {
                let fields = fields.iter().map(|(field, value)| (Text::of(field), Text::of(value)));
                (Kind::Hash, Content::Hash(fields.collect()))
            }
        };
        Line { key: Text::of(entry.key), kind, value, expires_ms: entry.expires.map(|wall| wall.millis()) }
    }

    /// The key, and the transactions that make it what the line says, in order: one, except for hashes that are larger
    /// than a transaction may be. The error says what is wrong with the line.
    fn transactions(self) -> Result<(Vec<u8>, Vec<Transaction>), String> {
        let key = self.key.bytes()?;
        let command = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let expires = self.expires_ms.map(|at| at.to_string().into_bytes());
        if self.expires_ms == Some(0) {
            return Err("expires_ms is a number of milliseconds since 1970, above 0".to_owned());
        }
        let transactions = match (self.kind, self.value) {
            (Kind::String, Content::String(value)) => {
                let value = value.bytes()?;
                vec![vec![match &expires {
                    Some(at) => command(&[b"SET", &key, &value, b"PXAT", at]),
                    None => command(&[b"SET", &key, &value]),
                }]]
            }
            (Kind::Hash, Content::Hash(fields)) if !fields.is_empty() => {
                let mut transactions = vec![vec![command(&[b"DEL", &key]), command(&[b"HSET", &key])]];
                let (mut count, mut bytes) = (0, 0);
                for (field, value) in fields {
                    let (field, value) = (field.bytes()?, value.bytes()?);
                    let size = field.len() + value.len();
                    if count == MOST_FIELDS || (count > 0 && bytes + size > MOST_BYTES) {
                        transactions.push(vec![command(&[b"HSET", &key])]);
                        (count, bytes) = (0, 0);
                    }
                    (count, bytes) = (count + 1, bytes + size);
                    let set = transactions.last_mut().and_then(|last| last.last_mut());
                    set.expect("each ends with HSET").extend([field, value]);
                }
                let last = transactions.last_mut().expect("there is one");
                last.extend(expires.map(|at| command(&[b"PEXPIREAT", &key, &at])));
                transactions
            }
            (Kind::Hash, Content::Hash(_)) => return Err("a hash has at least one field".to_owned()),
            (Kind::String, _) => return Err("the value of a string is text, or {\"hex\": …}".to_owned()),
            (Kind::Hash, _) => return Err("the value of a hash is a list of pairs".to_owned()),
        };
        Ok((key, transactions))
    }
}

/// Commands, each of words, that are executed together.
type Transaction = Vec<Vec<Vec<u8>>>;

/// Fields of a hash that one transaction writes: fewer than a command may have.
const MOST_FIELDS: usize = 8192;
/// Bytes of fields that one transaction writes, if they are several: fewer than it may have.
const MOST_BYTES: usize = 16 << 20;

pub fn export(args: Export) -> Result<(), Failure> {
    let Export { out, force, backup, local, endpoints } = args;
    let output = out.as_ref().map(|path| OutputFile::create(path, force)).transpose()?;
    let source = match &backup {
        Some(path) => Source::State(Box::new(state_of_backup(path)?)),
        None => source_of_cluster(endpoints, local)?,
    };
    match (output, &out) {
        (Some(mut output), Some(path)) => {
            let keys = write(source, output.file(), |error| cannot_write(path, error))?;
            output.finish()?;
            writeln!(stdout(), "{}: {keys} keys", path.display())?;
        }
        _ => _ = write(source, stdout().lock(), Failure::from)?,
    }
    Ok(())
}

/// Where the keys come from.
enum Source {
    /// A state as it was at one position.
    State(Box<Replicated>),
    /// A cluster of several groups, each key as it is when it is read.
    Groups(GroupsExport),
}

fn state_of_backup(path: &Path) -> Result<Replicated, Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::wrong(format!("cannot read {}: {error}", path.display())))?;
    let reader = Reader::open(BufReader::with_capacity(BUFFER, file));
    let loaded = reader.and_then(|reader| reader.load(|_| {}));
    Ok(loaded.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?.1)
}

fn source_of_cluster(endpoints: Endpoints, local: bool) -> Result<Source, Failure> {
    let target = Target::new(endpoints)?;
    let mut client = target.any(TIMEOUT)?;
    let header = match begin(&mut client, local) {
        Ok(header) => header,
        // They refuse it: there is no moment of all groups.
        Err(_) if has_groups(&mut client) => {
            return Ok(Source::Groups(GroupsExport::connect(&target, client.endpoint(), local)?));
        }
        Err(failure) => return Err(failure),
    };
    let node = format!("node {} ({})", header.node, client.endpoint());
    let refused =
        |LoadError(why): LoadError| Failure::failed(format!("the state of {node} cannot be loaded: {why}"));
    let progress = spinner(&format!("export from {node}"));
    let mut loading = Loading::default();
    while let Some(piece) = next_piece(&mut client)? {
        progress.inc(piece.len() as u64);
        loading.push(piece).map_err(refused)?;
    }
    progress.finish_and_clear();
    Ok(Source::State(Box::new(loading.finish().map_err(refused)?)))
}

/// Writes a line for each key; how many there are.
fn write(
    source: Source,
    out: impl Write,
    cannot_write: impl Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let mut keys = 0;
    let mut write = |line: Vec<u8>| {
        keys += 1;
        out.write_all(&line).map_err(&cannot_write)
    };
    match source {
        Source::State(state) => state.entries().try_for_each(|entry| write(encoded(&entry)))?,
        Source::Groups(groups) => groups.run(write)?,
    }
    out.flush().map_err(cannot_write)?;
    Ok(keys)
}

/// A key's line, with its end.
pub(super) fn encoded(entry: &KeyValue<'_>) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Line::of(entry)).expect("lines have no keys but text");
    line.push(b'\n');
    line
}

/// Connections that import. The lines of one key go over one of them, and so in order.
const CONNECTIONS: usize = 16;

/// Lines that wait for each of them; a line may be as long as the largest value.
const WAITING: usize = 4;

/// What one connection is to import: the number of a line, and its transactions.
type Job = (u64, Vec<Transaction>);

pub fn import(args: Import) -> Result<(), Failure> {
    let Import { file, endpoints } = args;
    let input: Box<dyn BufRead> = match file == Path::new("-") {
        true => Box::new(stdin().lock()),
        false => {
            let opened = File::open(&file);
            let opened =
                opened.map_err(|error| Failure::wrong(format!("cannot read {}: {error}", file.display())))?;
            Box::new(BufReader::with_capacity(BUFFER, opened))
        }
    };
    let target = Target::new(endpoints)?;
    let clients = (0..CONNECTIONS).map(|_| target.any(TIMEOUT)).collect::<Result<Vec<_>, _>>()?;
    let (imported, failure) = thread::scope(|scope| {
        let (queues, workers): (Vec<_>, Vec<_>) = clients
            .into_iter()
            .map(|client| {
                let (queue, jobs) = mpsc::sync_channel(WAITING);
                (queue, scope.spawn(|| execute_all(client, jobs)))
            })
            .unzip();
        let read = distribute(input, &queues);
        // Everything before a line that is wrong is imported first.
        drop(queues);
        let outcomes = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        let (counts, failures): (Vec<u64>, Vec<_>) = outcomes.unzip();
        let failure = failures.into_iter().flatten().next().or(read.err());
        (counts.into_iter().sum::<u64>(), failure)
    });
    match failure {
        None => Ok(writeln!(stdout(), "{imported} keys")?),
        Some(Failure { code, message }) => {
            let advice = "once that is put right, import the file again: that does no harm";
            Err(Failure {
                code,
                message: format!("{message}\n{imported} other lines are imported; {advice}"),
            })
        }
    }
}

/// Reads all lines, and gives each to the connection of its key; a connection that has failed ends it.
fn distribute(input: Box<dyn BufRead>, queues: &[mpsc::SyncSender<Job>]) -> Result<(), Failure> {
    for (number, line) in (1..).zip(input.lines()) {
        let wrong = |why: String| Failure::wrong(format!("line {number}: {why}"));
        let line = line.map_err(|error| wrong(format!("it cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(&line)
            .map_err(|error| wrong(format!("it is not a key as `quorate export` writes it: {error}")))?;
        let (key, transactions) = line.transactions().map_err(wrong)?;
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let queue = &queues[(hasher.finish() % queues.len() as u64) as usize];
        if queue.send((number, transactions)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Imports lines until there are no more, or one fails: how many it were, and the failure.
fn execute_all(mut client: Client, jobs: mpsc::Receiver<Job>) -> (u64, Option<Failure>) {
    let mut count = 0;
    for (number, transactions) in jobs {
        let executed = transactions.iter().try_for_each(|commands| match &commands[..] {
            [command] => client.command(command).map(drop),
            commands => client.transaction(commands).map(drop),
        });
        if let Err(error) = executed {
            let failure = Failure::from(error);
            let message = format!("line {number}: {}", failure.message);
            return (count, Some(Failure { message, ..failure }));
        }
        count += 1;
    }
    (count, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transactions of a line, each as a text.
    fn commands(line: &str) -> Result<Vec<String>, String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let (_, transactions) = line.transactions()?;
        let shown = |words: &Vec<Vec<u8>>| {
            let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            words.join(" ")
        };
        let joined = |commands: &Transaction| commands.iter().map(shown).collect::<Vec<_>>().join("; ");
        Ok(transactions.iter().map(joined).collect())
    }

    #[test]
    fn a_line_says_what_a_key_is() {
        for (line, expected) in [
            (r#"{"key":"k","type":"string","value":{"hex":"00fF"}}"#, "SET k \\x00\\xff"),
            (r#"{"key":"","type":"string","value":"é\u0000","expires_ms":5}"#, "SET  \\xc3\\xa9\\x00 PXAT 5"),
            (
                r#"{"key":{"hex":"6b"},"type":"hash","value":[["f","v"],["g",{"hex":""}]]}"#,
                "DEL k; HSET k f v g ",
            ),
            (
                r#"{"expires_ms":7,"value":[["f","v"]],"type":"hash","key":"k"}"#,
                "DEL k; HSET k f v; PEXPIREAT k 7",
            ),
        ] {
            assert_eq!(commands(line).unwrap(), [expected], "{line}");
        }
    }

    #[test]
    fn a_hash_that_is_larger_than_a_transaction_is_written_by_several() {
        let fields: Vec<_> = (0..=2 * MOST_FIELDS).map(|field| format!(r#"["{field}",""]"#)).collect();
        let line = format!(r#"{{"key":"k","type":"hash","value":[{}],"expires_ms":7}}"#, fields.join(","));
        let found = commands(&line).unwrap();
        let starts: Vec<_> =
            found.iter().map(|commands| commands.split(' ').take(4).collect::<Vec<_>>()).collect();
        let last = 2 * MOST_FIELDS;
        assert_eq!(starts[0], ["DEL", "k;", "HSET", "k"]);
        assert_eq!(starts[1], ["HSET", "k", &MOST_FIELDS.to_string(), ""]);
        assert_eq!(found[2], format!("HSET k {last} ; PEXPIREAT k 7"));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn lines_that_say_something_else_are_refused() {
        for (line, why) in [
            (r#"{"key":"k","type":"string"}"#, "missing field `value`"),
            (r#"{"key":"k","type":"list","value":"v"}"#, "unknown variant `list`"),
            (r#"{"key":"k","type":"string","value":"v","ttl":5}"#, "unknown field `ttl`"),
            (r#"{"key":"k","type":"string","value":"v","expires_ms":-5}"#, "invalid value"),
            (r#"{"key":"k","type":"string","value":"v","expires_ms":0}"#, "above 0"),
            (r#"{"key":7,"type":"string","value":"v"}"#, "expected text, or {\"hex\": …}"),
            (r#"{"key":"k","type":"string","value":[["f","v"]]}"#, "the value of a string"),
            (r#"{"key":"k","type":"hash","value":"v"}"#, "the value of a hash"),
            (r#"{"key":"k","type":"hash","value":[]}"#, "at least one field"),
            (r#"{"key":"k","type":"hash","value":[["f"]]}"#, "a list of pairs"),
            (r#"{"key":{"hex":"0"},"type":"string","value":"v"}"#, "two hexadecimal digits"),
            (r#"{"key":{"hex":"+1"},"type":"string","value":"v"}"#, "two hexadecimal digits"),
            (r#"{"key":"k","type":"string","value":"v"} {"#, "trailing characters"),
            ("SET k v", "expected value"),
        ] {
            let error = commands(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
