//! The Redis protocol, versions 2 and 3, as a [`Frontend`] of a node.
//!
//! | file | what |
//! |---|---|
//! | `request` | parses requests |
//! | `reply` | writes replies |
//! | `session` | one connection: replies in order, its transaction |
//! | `stats` | counts of commands and their times |
//! | `watch` | what WATCH has found |
//! | `shape` | what a command makes of the store's reply |
//! | `acl` | users, and what they may do |
//! | `commands` | the table of commands, and one file for each family |
//! | `gather` | long replies, in pieces |
//! | `key_scope` | which keys one command may have |
//! | `all_groups` | commands about all keys, where groups have them |
//!
//! Intended differences from Redis 7.0. `docs/REDIS.md` has them with their reasons, and
//! `crates/cli/tests/conformance.rs` compares everything else:
//!
//! - one database; no lists, sets, sorted sets, streams, scripts or subscriptions
//! - keys and values have limits; what exceeds them is refused, and the connection stays usable
//! - what is long is done in pieces, between which others are served: KEYS of more than 10,000 keys is no image of one
//!   moment; HGETALL, HKEYS and HVALS are, and start again if the hash changes meanwhile
//! - inside MULTI, where there are no pieces, all scans together look at 10,000 keys and fields
//! - a pattern has at most 1,024 bytes, a command 20,480 words, a transaction 65,536
//! - WATCH compares versions: a key that did not exist, came and went again counts as unchanged
//! - DBSIZE does not count what has expired
//! - INFO, COMMAND, CONFIG and CLIENT describe this program; CLIENT has SETINFO and NO-TOUCH of Redis 7.2
//! - with several groups of keys, what is about all keys goes from group to group (`all_groups`)
//! - users are part of the replicated state: no ACL SAVE and LOAD; no selectors; a user who is switched off is off for
//!   connections that there are, too
//! - a command that no majority answers in time fails with `-CLUSTERDOWN`, one too many with `-BUSY`

mod acl;
mod all_groups;
mod commands;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod key_scope;
mod reply;
mod request;
mod session;
mod shape;
mod stats;
mod watch;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use quorate_core::{Encoder, Outcome, Piece, Sample, Snapshot, Staleness, Time, Wire};
use quorate_node::frontend::{Described, Frontend, NodeView, SessionContext, Ticket};
use quorate_node::{Exit, Node, NodeError};
use quorate_store::{Command, DEFAULT_USER};
use serde_json::json;

use acl::Acl;
pub use acl::{FirstUsers, file::parse as parse_users};
use all_groups::ScatterGather;
use commands::{Fault, no_state};
pub use key_scope::{KeyGroups, KeyScope};
pub use session::Session;
use stats::CommandStats;

/// Small commands are encoded into shared buffers of so many bytes: one that is long under way keeps no more than this
/// alive, and most need no allocation of their own.
const COMMANDS: usize = 4096;

/// Where the reads of a connection are served, and so what they may miss. Writes are the same in all modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// They see every write that was acknowledged anywhere before they were asked.
    #[default]
    Linearizable,
    /// From this node's own state, in the order of the connection: a read sees the connection's own writes, and never
    /// less than a read before it. Waits for no other node; writes are acknowledged when this node shows them.
    Sequential,
    /// From this node's own state as it is.
    Local,
    /// They may miss so much of what was acknowledged before they were asked; from this node's own state where that is
    /// known to miss no more.
    Bounded(Staleness),
}

impl ReadMode {
    const PLAIN: [ReadMode; 3] = [ReadMode::Linearizable, ReadMode::Sequential, ReadMode::Local];
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadMode::Linearizable => f.write_str("linearizable"),
            ReadMode::Sequential => f.write_str("sequential"),
            ReadMode::Local => f.write_str("local"),
            ReadMode::Bounded(staleness) => write!(f, "bounded={staleness}"),
        }
    }
}

impl FromStr for ReadMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((name, bound)) = text.split_once('=')
            && name.eq_ignore_ascii_case("bounded")
        {
            return bound.parse().map(ReadMode::Bounded).map_err(|right| format!("bounded={bound}: {right}"));
        }
        let found = ReadMode::PLAIN.into_iter().find(|mode| text.eq_ignore_ascii_case(&mode.to_string()));
        found.ok_or_else(|| {
            "read modes are linearizable, sequential, local, and bounded=500ms or bounded=3 (versions)"
                .to_owned()
        })
    }
}

/// Bounds on what a client may ask. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A key.
    pub key: usize,
    /// A value, or any other word of a request.
    pub value: usize,
    /// All words of a request, or of a transaction.
    pub request: usize,
    /// How many words a request may have: more are no request.
    pub words: usize,
    /// How many words a command may have. The loop stands still while a command is executed.
    pub command_words: usize,
    /// How many words the commands of a transaction may have together.
    pub transaction_words: usize,
    /// Replies that wait to be taken by one client, from which on nothing more of its input is looked at.
    pub replies: usize,
    /// Replies that wait for earlier ones, beyond which the connection is closed.
    pub early_replies: usize,
    /// How long a command may wait for a majority.
    pub timeout: Duration,
    /// How long a change of members may take, or of the roster: a new member has to catch up first.
    pub change_timeout: Duration,
    /// Where the reads of a new connection are served.
    pub read_mode: ReadMode,
    /// The users that a new cluster begins with. While this node's state has none, it serves nobody.
    pub first_users: Option<FirstUsers>,
    /// Which keys one command may have.
    pub key_scope: KeyScope,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            key: 64 << 10,
            value: 64 << 20,
            request: 72 << 20,
            words: 1 << 20,
            command_words: 20 << 10,
            transaction_words: 64 << 10,
            replies: 1 << 20,
            early_replies: 128 << 20,
            timeout: Duration::from_secs(5),
            change_timeout: Duration::from_secs(60),
            read_mode: ReadMode::default(),
            first_users: None,
            key_scope: KeyScope::default(),
        }
    }
}

/// The frontend: what all connections of a node share.
#[derive(Debug)]
pub struct Resp {
    limits: Limits,
    clock: fn() -> Duration,
    clients: BTreeMap<u64, Client>,
    /// Connections that CLIENT KILL has named and that are open still.
    ended: BTreeSet<u64>,
    /// Bytes of long replies that are not complete.
    gathered: gather::Total,
    /// What was wrong with a client's input, until the node has logged it.
    complaint: Option<String>,
    /// Counts draws, so that each RANDOMKEY has its own.
    draws: u64,
    encoder: Encoder,
    stats: CommandStats,
    /// Who may ask for what.
    acl: Acl,
    /// The backup under way: a frozen state costs memory as the data change, so there is one. A later one takes its
    /// place, in case whoever has begun it is stuck.
    backup: Option<Backup>,
}

/// A state that is given to a connection, piece by piece.
#[derive(Debug)]
struct Backup {
    connection: u64,
    image: Snapshot,
    /// Where the next piece begins; `None` after the last.
    next: Option<Bytes>,
}

/// What CLIENT tells of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    /// Where it has connected from.
    from: Option<SocketAddr>,
    name: Vec<u8>,
    library: Vec<u8>,
    library_version: Vec<u8>,
    /// Whom it has been authenticated as; empty if as nobody.
    user: Vec<u8>,
    resp3: bool,
    opened: Duration,
    activity: Rc<Activity>,
}

/// A connection's last request. Its session notes each, without a look at what is known of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Activity {
    /// When it was read.
    at: Cell<Time>,
    /// What it is called; empty before the first.
    command: Cell<&'static str>,
}

impl Client {
    fn user(&self) -> &[u8] {
        if self.user.is_empty() { DEFAULT_USER } else { &self.user }
    }
}

impl Resp {
    /// Begins to ask each group, if a command is for each.
    fn scatter(&self, command: &Command) -> Option<Box<ScatterGather>> {
        let groups = self.limits.key_scope.groups()?;
        ScatterGather::of(command, groups.count()).map(Box::new)
    }

    /// A frontend with these limits.
    pub fn new(limits: Limits) -> Resp {
        Resp::with_clock(limits, || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// The same with another clock: time since the Unix epoch, for TIME, TTL and ages.
    pub fn with_clock(limits: Limits, clock: fn() -> Duration) -> Resp {
        let acl = Acl::new(limits.first_users.clone());
        Resp {
            limits,
            clock,
            clients: BTreeMap::new(),
            ended: BTreeSet::new(),
            gathered: gather::Total::default(),
            complaint: None,
            draws: 0,
            encoder: Encoder::with_capacity(COMMANDS),
            stats: CommandStats::default(),
            acl,
            backup: None,
        }
    }

    /// Freezes the node's state for a connection. Gives what it is, as one JSON object.
    fn begin_backup(&mut self, connection: u64, node: &dyn NodeView) -> Result<String, Fault> {
        let image = node.image().ok_or_else(|| no_state(node))?;
        self.backup = Some(Backup { connection, image, next: Some(Bytes::new()) });
        let facts = node.facts();
        let fact = |wanted| facts.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str());
        let about = json!({
            "version": fact("version"),
            "protocol": fact("protocol"),
            "cluster_id": fact("cluster_id"),
            "node": fact("node_id").and_then(|id| id.parse::<u8>().ok()),
            "position": node.applied(),
        });
        Ok(about.to_string())
    }

    /// The next piece of the state that was frozen for a connection; `None` after the last.
    fn next_piece(&mut self, connection: u64) -> Result<Option<Bytes>, Fault> {
        let backup = match &mut self.backup {
            Some(backup) if backup.connection == connection => backup,
            Some(_) => return Err("ERR another backup has begun at this node since; begin again".into()),
            None => return Err("ERR no backup has begun on this connection: BEGIN comes first".into()),
        };
        let Some(cursor) = backup.next.take() else {
            self.backup = None;
            return Ok(None);
        };
        let Piece { bytes, next } = backup.image.piece(&cursor, PIECE);
        backup.next = next;
        Ok(Some(bytes))
    }
}

/// Bytes in a piece of a backup, about: the loop makes one in some hundred microseconds.
const PIECE: usize = 256 << 10;

/// Runs the node with this frontend until it is stopped or fails. The node's loop is generic: it is compiled here,
/// once, so that a changed line in a protocol does not compile it again in the binary.
///
/// # Errors
///
/// As [`Node::run_until_signalled`].
pub fn run_until_signalled(node: Node, limits: Limits) -> Result<Exit, NodeError> {
    node.run_until_signalled(Resp::new(limits))
}

impl Frontend for Resp {
    type Session = Session;

    fn open(
        &mut self,
        connection: u64,
        from: Option<SocketAddr>,
        context: &mut SessionContext<'_>,
    ) -> Session {
        let activity = Rc::new(Activity { at: Cell::new(context.now), command: Cell::default() });
        let (opened, known) = ((self.clock)(), Rc::clone(&activity));
        self.clients.insert(connection, Client { from, opened, activity: known, ..Client::default() });
        Session::new(connection, self.limits.read_mode, activity)
    }

    fn on_input(&mut self, session: &mut Session, input: &mut BytesMut, context: &mut SessionContext<'_>) {
        session.on_input(input, self, context);
    }

    fn on_outcome(
        &mut self,
        session: &mut Session,
        ticket: Ticket,
        outcome: Outcome,
        context: &mut SessionContext<'_>,
    ) {
        session.on_outcome(ticket, outcome, self, context);
    }

    fn held(&self, session: &Session) -> usize {
        session.held()
    }

    fn on_resume(&mut self, session: &mut Session, ticket: Ticket, context: &mut SessionContext<'_>) {
        session.on_resume(ticket, self, context);
    }

    fn probes(&self) -> Vec<Bytes> {
        let keys = self.limits.key_scope.groups().map_or_else(|| vec![Bytes::new()], KeyGroups::first_keys);
        keys.into_iter().map(|key| Command::Get { key }.to_bytes()).collect()
    }

    fn describe(&self, session: &Session, ticket: Ticket) -> Described {
        let client = self.clients.get(&session.connection()).map(|client| client.name.as_slice());
        let client = String::from_utf8_lossy(client.unwrap_or_default()).into_owned();
        Described { command: session.command(ticket), client }
    }

    fn remember_users(&mut self, changes: u64) {
        self.acl.remember(changes);
    }

    fn samples(&self) -> Vec<Sample> {
        self.stats.samples()
    }

    fn take_ended(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.ended)
    }

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn asks_for_tls(&self) -> &'static [u8] {
        b"-ERR this port speaks TLS: connect with TLS (redis-cli --tls --cacert ca.crt --cert FILE --key FILE)\r\n"
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn close(&mut self, session: Session) {
        self.clients.remove(&session.connection());
        self.backup.take_if(|backup| backup.connection == session.connection());
    }
}
