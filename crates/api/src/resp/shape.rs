//! What a command makes of the store's reply.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Access, Failure, FeatureLevel, Managed, NodeId, Outcome, Roster, Wire};
use quorate_node::Output;
use quorate_node::frontend::NodeView;
use quorate_store::{Command, CommandError, Expires, Key, Kind, Reply};

use serde_json::json;

use super::commands::{Fault, Parameters};
use super::gather::{Gathered, RESTARTS};
use super::reply::Writer;

/// How a reply is shown.
#[derive(Debug)]
pub(super) enum Shape {
    /// By its kind: OK or nothing, a string or nothing, a number, an array, a map, a word.
    Plain,
    /// 1 if it was done, 0 if not.
    Flag,
    /// OK, whatever number it is.
    Ok,
    /// OK, or an error if the feature level is higher already.
    Raised,
    /// OK, or an error if the user's rules need a higher feature level than there is.
    User { needed: FeatureLevel },
    /// The first of several strings.
    First,
    /// 1 if the first of several strings is there, 0 if not.
    HasFirst,
    /// The length of the first of several strings.
    FirstLength,
    /// Time to live or moment of expiry.
    Expiry { seconds: bool, relative: bool },
    /// Keys, and where to go on.
    Scan,
    /// All keys that match: those of the pieces so far, and of this one.
    AllKeys { pattern: Option<Bytes>, found: Gathered },
    /// All of a hash, or its fields or values: of the pieces so far, and of this one. They must be of one version.
    AllFields { key: Key, parts: Parts, found: Gathered, version: Option<u64>, restarts: u32 },
    /// Fields of a hash and their values, and where to go on. As Redis, options that are wrong count only if there is
    /// a hash.
    HashScan { fault: Option<Fault> },
    /// An error, whatever the store says.
    Failed(&'static str),
    /// An error, if there is a string; nothing if not.
    Refused(Cow<'static, [u8]>),
    /// OK; the versions are for the session to keep, if it still has this watch.
    Watch { keys: Vec<Key>, watch: u64 },
    /// OK: what is read next on the connection sees what was acknowledged before.
    Synchronized,
    /// A backup begins when the reply is here.
    Backup,
    /// A backup has begun with this, or could not.
    Begun(Result<String, Fault>),
    /// Nothing: the session has asked who the users are.
    Users,
    /// How an operator's request went.
    Managed,
    /// Parameters, with the settings that the group tells.
    Parameters(Parameters),
    /// The replies of a transaction. With `misses_nothing`, what it reads is asked of the group wherever the connection
    /// reads.
    Exec { parts: Vec<Part>, misses_nothing: bool },
}

/// What of a hash is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    Pairs,
    Fields,
    Values,
}

/// One reply of a transaction.
#[derive(Debug)]
pub(super) enum Part {
    /// Known already.
    Ready(Output),
    /// The store's next, in the version of the protocol that HELLO has chosen by then.
    Store { shape: Shape, resp3: bool },
}

/// What showing a reply may need.
pub(super) struct Surroundings<'a> {
    /// Tells the time since the Unix epoch.
    pub(super) clock: fn() -> Duration,
    /// How long commands wait for a majority.
    pub(super) timeout: Duration,
    pub(super) node: &'a dyn NodeView,
}

/// One JSON object: what `quorate roster show` shows.
fn show_roster(ballot: &str, roster: &Roster, auto: bool, writer: &mut Writer<'_>) {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let ranges = roster.ranges().iter().map(|range| {
        let responders: Vec<_> = range.responders.iter().map(NodeId::get).collect();
        json!({ "from": text(&range.from), "to": range.to.as_deref().map(text), "responders": responders })
    });
    let ranges = ranges.collect::<Vec<_>>();
    let leader = roster.leader().map(NodeId::get);
    let document = json!({ "ballot": ballot, "leader": leader, "auto": auto, "ranges": ranges });
    writer.bulk(document.to_string().as_bytes());
}

impl Shape {
    /// Shows how a request ended.
    pub(super) fn outcome(
        self,
        outcome: Outcome,
        access: Access,
        writer: &mut Writer<'_>,
        around: &mut Surroundings<'_>,
    ) {
        match outcome {
            Outcome::Done(bytes) if access == Access::Manage => match Managed::from_bytes(bytes) {
                Ok(Managed::Done) => writer.ok(),
                Ok(Managed::Refused(why)) => writer.error([b"ERR ", &why[..]].concat()),
                Ok(Managed::UnderWay(how_far)) => {
                    let how_far = String::from_utf8_lossy(&how_far);
                    writer.error(format!(
                        "TRYAGAIN the change is under way ({how_far}): ask again to go on waiting"
                    ));
                }
                Ok(Managed::Roster { ballot, roster, auto }) => show_roster(&ballot, &roster, auto, writer),
                Err(error) => writer.error(format!("ERR the cluster's reply cannot be read: {error}")),
            },
            Outcome::Done(bytes) => match Reply::from_bytes(bytes) {
                Ok(reply) => self.reply(reply, writer, around),
                Err(error) => writer.error(format!("ERR the cluster's reply cannot be read: {error}")),
            },
            Outcome::Failed(Failure::Overloaded) => {
                writer.error("BUSY too many requests are waiting; try again");
            }
            Outcome::Failed(Failure::SessionEnded) => writer.error(
                "CLUSTERDOWN this node's session with the group ended while the write was under way, as when wall \
                 clocks are set forward; the outcome is unknown: the write has taken effect before that or never will",
            ),
            Outcome::Failed(Failure::TimedOut) => {
                let unknown = match access {
                    Access::Read | Access::Within(_) => "",
                    Access::Manage => "; what was asked may be done yet: ask again, it is done once",
                    Access::Write => {
                        "; the outcome is unknown: the write may take effect now, later or never"
                    }
                };
                let waits = around.node.waits();
                let waits = waits.map(|why| format!("; this node does not take part yet: it {why}"));
                let lost = around.node.status().lost_memory().map(|lost| format!("; {lost}"));
                writer.error(format!(
                    "CLUSTERDOWN no majority answered within {} ms{unknown}{}{}",
                    around.timeout.as_millis(),
                    waits.unwrap_or_default(),
                    lost.unwrap_or_default()
                ));
            }
        }
    }

    /// What is to be asked next, before the reply can be shown.
    pub(super) fn next(&mut self, outcome: &Outcome) -> Option<Command> {
        if !matches!(self, Shape::AllKeys { .. } | Shape::AllFields { .. }) {
            return None;
        }
        let Outcome::Done(bytes) = outcome else { return None };
        let reply = Reply::from_bytes(bytes.clone()).ok()?;
        self.gather(&reply).unwrap_or_else(|text| {
            *self = Shape::Failed(text);
            None
        })
    }

    /// Takes in a piece of a long reply; what is to be asked next, if it was not the last one.
    fn gather(&mut self, reply: &Reply) -> Result<Option<Command>, &'static str> {
        let limit = u32::MAX;
        match (self, reply) {
            (Shape::AllKeys { pattern, found }, Reply::Keys { keys, next: Some(from) }) => {
                found.add(keys.iter())?;
                Ok(Some(Command::Scan { from: *from, limit, pattern: pattern.clone(), kind: None }))
            }
            (
                Shape::AllFields { key, parts, found, version: before, restarts },
                Reply::Fields { pairs, next, version },
            ) => {
                let key = key.clone();
                if before.is_some_and(|before| before != *version) {
                    found.clear();
                    *before = None;
                    *restarts += 1;
                    return match *restarts > RESTARTS {
                        true => Err(
                            "ERR the hash changes faster than it can be read whole: read it in parts with HSCAN",
                        ),
                        false => Ok(Some(Command::HashScan { key, from: 0, limit, pattern: None })),
                    };
                }
                let Some(from) = *next else { return Ok(None) };
                *before = Some(*version);
                parts.add(pairs, found)?;
                Ok(Some(Command::HashScan { key, from, limit, pattern: None }))
            }
            _ => Ok(None),
        }
    }

    /// Shows a reply of the store.
    pub(super) fn reply(self, reply: Reply, writer: &mut Writer<'_>, around: &mut Surroundings<'_>) {
        match (self, reply) {
            (Shape::Failed(text), _) => writer.error(text),
            // An older version answers, which does not know the command.
            (Shape::Parameters(parameters), Reply::Error(CommandError::Malformed)) => {
                parameters.write_own(around.node, writer);
            }
            (Shape::Parameters(parameters), Reply::Pairs(settings)) => parameters.write(&settings, writer),
            (Shape::User { needed }, Reply::Error(CommandError::Malformed)) => writer.error(format!(
                "ERR selectors need feature level {needed}, which is higher than the cluster's: once all members run a \
                 version that knows it, CONFIG SET feature-level {needed}"
            )),
            (_, Reply::Error(error)) => writer.error(&*error_text(error)),
            (_, Reply::NotRetained) => writer.error(NOT_RETAINED),
            (Shape::Plain | Shape::User { .. }, reply) => plain(reply, writer),
            (Shape::Flag, Reply::Done) => writer.integer(1),
            (Shape::Flag, Reply::Skipped) => writer.integer(0),
            (Shape::Ok, Reply::Integer(_)) | (Shape::Raised, Reply::Done) => writer.ok(),
            (Shape::Raised, Reply::Skipped) => {
                writer.error("ERR the feature level is higher already, and does not fall");
            }
            (Shape::First, Reply::Values(values)) => writer.optional(values.into_iter().next().flatten()),
            (Shape::HasFirst, Reply::Values(values)) => {
                writer.integer(values.first().is_some_and(Option::is_some).into());
            }
            (Shape::FirstLength, Reply::Values(values)) => {
                writer.integer(values.first().and_then(Option::as_ref).map_or(0, |value| value.len() as i64));
            }
            (Shape::Expiry { seconds, relative }, Reply::Expires(expires)) => {
                let now = relative.then(|| (around.clock)().as_millis() as u64);
                writer.integer(expiry(expires, seconds, now));
            }
            (Shape::AllKeys { mut found, .. }, Reply::Keys { keys, next: None }) => {
                match found.add(keys.iter()) {
                    Ok(()) => {
                        writer.array(found.len());
                        found.write(writer);
                    }
                    Err(text) => writer.error(text),
                }
            }
            (Shape::AllFields { parts, mut found, .. }, Reply::Fields { pairs, next: None, .. }) => {
                match parts.add(&pairs, &mut found) {
                    Ok(()) => {
                        match parts {
                            Parts::Pairs => writer.map(found.len() / 2),
                            Parts::Fields | Parts::Values => writer.array(found.len()),
                        }
                        found.write(writer);
                    }
                    Err(text) => writer.error(text),
                }
            }
            // In a transaction there is one piece.
            (Shape::AllKeys { .. }, Reply::Keys { .. }) | (Shape::AllFields { .. }, Reply::Fields { .. }) => {
                writer.error(&*error_text(CommandError::TooMuch));
            }
            (Shape::Scan, Reply::Keys { keys, next }) => {
                writer.array(2);
                cursor(next, writer);
                bulks(&keys, writer);
            }
            (Shape::Begun(Ok(about)), _) => writer.bulk(about.as_bytes()),
            (Shape::Begun(Err(Fault(text))), _) => writer.error(text),
            // Only a transaction shows it as it is.
            (Shape::Backup, _) => writer.error("ERR quorate backup is not allowed in a transaction"),
            (Shape::Refused(text), Reply::Value(Some(_))) => writer.error(text),
            (Shape::Refused(_), Reply::Value(None)) => writer.null(),
            (Shape::HashScan { fault: Some(Fault(text)) }, Reply::Fields { pairs, .. })
                if !pairs.is_empty() =>
            {
                writer.error(text);
            }
            (Shape::HashScan { .. }, Reply::Fields { pairs, next, .. }) => {
                writer.array(2);
                cursor(next, writer);
                writer.array(2 * pairs.len());
                for (field, value) in pairs {
                    writer.value(&field);
                    writer.value(&value);
                }
            }
            (Shape::Watch { .. }, Reply::Versions(_)) | (Shape::Synchronized, Reply::Integer(_)) => {
                writer.ok()
            }
            (Shape::Exec { .. }, Reply::Batch(None)) => writer.null_array(),
            (Shape::Exec { parts, .. }, Reply::Batch(Some(replies))) => exec(parts, replies, writer, around),
            // Replies come over the network: another version's store might answer so.
            _ => writer.error(UNEXPECTED),
        }
    }
}

impl Parts {
    fn add(self, pairs: &[(Bytes, Bytes)], to: &mut Gathered) -> Result<(), &'static str> {
        match self {
            Parts::Pairs => to.add(pairs.iter().flat_map(|(field, value)| [field, value])),
            Parts::Fields => to.add(pairs.iter().map(|(field, _)| field)),
            Parts::Values => to.add(pairs.iter().map(|(_, value)| value)),
        }
    }
}

/// Where a scan goes on; 0 at its end.
fn cursor(next: Option<u64>, writer: &mut Writer<'_>) {
    writer.bulk(itoa::Buffer::new().format(next.unwrap_or(0)).as_bytes());
}

fn plain(reply: Reply, writer: &mut Writer<'_>) {
    match reply {
        Reply::Done => writer.ok(),
        Reply::Skipped => writer.null(),
        Reply::Value(value) => writer.optional(value),
        Reply::Values(values) => {
            writer.array(values.len());
            for value in values {
                writer.optional(value);
            }
        }
        Reply::Integer(value) => writer.integer(value),
        Reply::Kind(kind) => writer.simple(match kind {
            None => "none",
            Some(Kind::String) => "string",
            Some(Kind::Hash) => "hash",
        }),
        Reply::Pairs(pairs) => {
            writer.map(pairs.len());
            for (field, value) in &pairs {
                writer.value(field);
                writer.value(value);
            }
        }
        Reply::Keys { .. }
        | Reply::Fields { .. }
        | Reply::Expires(_)
        | Reply::Versions(_)
        | Reply::Users { .. }
        | Reply::Batch(_) => {
            writer.error(UNEXPECTED);
        }
        Reply::Error(error) => writer.error(&*error_text(error)),
        Reply::NotRetained => writer.error(NOT_RETAINED),
    }
}

fn bulks(items: &[Bytes], writer: &mut Writer<'_>) {
    writer.array(items.len());
    for item in items {
        writer.value(item);
    }
}

fn exec(parts: Vec<Part>, replies: Vec<Reply>, writer: &mut Writer<'_>, around: &mut Surroundings<'_>) {
    let mut replies = replies.into_iter();
    writer.array(parts.len());
    for part in parts {
        match part {
            Part::Ready(bytes) => writer.out.append(bytes),
            Part::Store { shape, resp3 } => match replies.next() {
                Some(reply) => shape.reply(reply, &mut Writer { out: writer.out, resp3 }, around),
                None => writer.error(UNEXPECTED),
            },
        }
    }
}

fn expiry(expires: Expires, seconds: bool, now: Option<u64>) -> i64 {
    let millis = match (expires, now) {
        (Expires::Missing, _) => return -2,
        (Expires::Never, _) => return -1,
        // Past its time, and not yet removed by the log: it has nothing left.
        (Expires::At(at), Some(now)) => at.saturating_sub(now),
        (Expires::At(at), None) => at,
    };
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    if seconds { millis.saturating_add(500) / 1000 } else { millis }
}

/// The first reply was lost on its way: a leader crashed, or too much was waiting.
const NOT_RETAINED: &str =
    "EXECUTED the command took effect, once; its reply was lost and is too large to be repeated";

const UNEXPECTED: &str = "ERR the cluster's reply is none that this command has";

/// The store's limit, in words.
pub(super) const PATTERN_TOO_LONG: &str = "ERR the pattern is longer than the limit of 1024 bytes";

/// Where there is no order of all writes.
pub(super) const UNORDERED: &str = "ERR this protocol does not order all writes, so its nodes cannot agree on when the \
                                    data reach a limit: choose a protocol that orders all writes, such as \
                                    multipaxos";

/// Where the nodes divide the keys among groups and this process does not know it: it is told when it starts.
const SEVERAL_GROUPS: &str = "CROSSSLOT the keys of the request are in different groups (--groups)";

/// As Redis words it.
fn error_text(error: CommandError) -> Cow<'static, str> {
    Cow::Borrowed(match error {
        CommandError::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
        CommandError::NotInteger => "ERR value is not an integer or out of range",
        CommandError::FieldNotInteger => "ERR hash value is not an integer",
        CommandError::FieldNotFloat => "ERR hash value is not a float",
        CommandError::Infinite => "ERR value is NaN or Infinity",
        CommandError::NotFloat => "ERR value is not a valid float",
        CommandError::Overflow => "ERR increment or decrement would overflow",
        CommandError::NotFinite => "ERR increment would produce NaN or Infinity",
        CommandError::TooLarge => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        CommandError::TooMuch => {
            "ERR the command would look at more than 10000 keys or fields at once, or match a pattern with a text that \
             is too long; outside of MULTI, KEYS, HGETALL, SCAN and HSCAN read more in parts"
        }
        CommandError::PatternTooLong => PATTERN_TOO_LONG,
        CommandError::NoRoom => {
            "ERR no room to put this large request together: many nodes have restarted or many proxies write; \
             try again later, or write smaller values"
        }
        CommandError::NoSuchPassword => {
            "ERR The password you are trying to remove from the user does not exist"
        }
        CommandError::AllKeysAlready => "ERR the user may use all keys already: begin with resetkeys",
        CommandError::TooManyUsers => {
            "ERR the users would take more than the limit of 1048576 bytes together"
        }
        CommandError::Malformed => {
            "ERR this needs a later feature level than the cluster has, or a newer version of its nodes: see CONFIG \
             GET feature-level"
        }
        CommandError::DataLimit => {
            "OOM the data take as much as they may: delete some, or allow more with CONFIG SET max-data"
        }
        CommandError::BelowData { bytes } => {
            return format!(
                "ERR the data take {bytes} bytes already: allow more than that, or delete some first"
            )
            .into();
        }
        CommandError::Unordered => UNORDERED,
        CommandError::SeveralGroups => SEVERAL_GROUPS,
        CommandError::AboveLimit { bytes } => {
            return format!(
                "ERR the value would take more than {bytes} bytes, the most that this protocol replicates, since it \
                 sends a key whole with each write: write less, or choose a protocol with a log, such as multipaxos"
            )
            .into();
        }
        CommandError::MemoryFull { node } => {
            return format!("OOM memory nearly used up on node {node}: delete some data, or give it more")
                .into();
        }
        CommandError::DiskFull { node } => return format!("READONLY disk nearly full on node {node}").into(),
    })
}
