//! The Redis protocol, versions 2 and 3, as a [`Frontend`] of a node.
//!
//! | file | what |
//! |---|---|
//! | `request` | parses requests |
//! | `reply` | writes replies |
//! | `session` | one connection: replies in order, its transaction |
//! | `shape` | what a command makes of the store's reply |
//! | `commands` | the table of commands, and one file for each family |
//! | `cursors` | what SCAN's numbers stand for |
//!
//! Intended differences from Redis 7.0 (each has its reason beside the code):
//!
//! - one database; no passwords; no lists, sets, sorted sets, streams, scripts or subscriptions
//! - keys and values have limits; what exceeds them is refused, and the connection stays usable
//! - SCAN goes through keys in order; its cursors belong to the node that gave them, which remembers the last few
//!   thousand; HSCAN answers all of a hash at once
//! - WATCH compares versions: a key that did not exist, came and went again counts as unchanged
//! - a command that no majority answers in time fails with `-CLUSTERDOWN`

mod commands;
mod cursors;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod reply;
mod request;
mod session;
mod shape;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use quorate_core::Outcome;
use quorate_node::frontend::{Desk, Frontend, Ticket};

use cursors::Cursors;
pub use session::Session;

/// Bounds on what a client may ask. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A key.
    pub key: usize,
    /// A value, or any other word of a request.
    pub value: usize,
    /// All words of a request, or of a transaction.
    pub request: usize,
    /// How many words a request may have.
    pub words: usize,
    /// Replies that wait to be taken by one client, from which on nothing more of its input is looked at.
    pub replies: usize,
    /// Replies that wait for earlier ones, beyond which the connection is closed.
    pub early_replies: usize,
    /// How long a command may wait for a majority.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            key: 64 << 10,
            value: 64 << 20,
            request: 72 << 20,
            words: 1 << 20,
            replies: 1 << 20,
            early_replies: 128 << 20,
            timeout: Duration::from_secs(5),
        }
    }
}

/// The frontend: what all connections of a node share.
#[derive(Debug)]
pub struct Resp {
    limits: Limits,
    clock: fn() -> Duration,
    clients: BTreeMap<u64, Client>,
    cursors: Cursors,
    /// What was wrong with a client's input, until the node has logged it.
    complaint: Option<String>,
    /// Counts draws, so that each RANDOMKEY has its own.
    draws: u64,
}

/// What CLIENT tells of a connection.
#[derive(Debug, Default)]
struct Client {
    name: Vec<u8>,
    library: Vec<u8>,
    library_version: Vec<u8>,
    resp3: bool,
    opened: Duration,
}

impl Resp {
    /// A frontend with these limits.
    pub fn new(limits: Limits) -> Resp {
        Resp::with_clock(limits, || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// The same with another clock: time since the Unix epoch, for TIME, TTL and ages.
    pub fn with_clock(limits: Limits, clock: fn() -> Duration) -> Resp {
        Resp {
            limits,
            clock,
            clients: BTreeMap::new(),
            cursors: Cursors::default(),
            complaint: None,
            draws: 0,
        }
    }
}

impl Frontend for Resp {
    type Session = Session;

    fn open(&mut self, connection: u64, _desk: &mut Desk<'_>) -> Session {
        self.clients.insert(connection, Client { opened: (self.clock)(), ..Client::default() });
        Session::new(connection)
    }

    fn on_input(&mut self, session: &mut Session, input: &mut BytesMut, desk: &mut Desk<'_>) {
        session.on_input(input, self, desk);
    }

    fn on_outcome(&mut self, session: &mut Session, ticket: Ticket, outcome: Outcome, desk: &mut Desk<'_>) {
        session.on_outcome(ticket, outcome, self, desk);
    }

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn close(&mut self, session: Session) {
        self.clients.remove(&session.connection());
    }
}
