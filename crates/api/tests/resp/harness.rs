//! The frontend over a real store: what a node does, without sockets or replication.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use quorate_api::resp::{Limits, Resp, Session};
use quorate_core::{
    Access, Consistency, Failure, FeatureLevel, GroupId, Member, Members, NodeId, Outcome, PeerStatus,
    Request, Sample, Status, Time, Wall, Wire,
};
use quorate_node::Output;
use quorate_node::frontend::{Described, Frontend, NodeView, SessionContext, SlowRequest, Ticket};
use quorate_store::{Command, Reply, Store};

/// The present, on every clock.
pub const NOW: Duration = Duration::from_millis(1_700_000_000_123);

/// How many requests of a connection may be under way.
pub const UNDER_WAY: usize = 32;

/// A node with one store.
pub struct Node {
    pub resp: Resp,
    pub store: Store,
    revision: u64,
    /// Executes as if the replication protocol orders only what interferes: with numbers that fall.
    unordered: bool,
    connections: u64,
    /// Whether its own state tells who the users are.
    pub knows_users: bool,
    /// Whether that state may be far behind.
    pub catches_up: bool,
    /// The last slot that its own state shows, if it has one.
    pub applied: Option<u64>,
    pub role: &'static str,
    /// The time that sessions are told, in nanoseconds.
    pub now: u64,
    /// How many requests were denied.
    pub denials: Cell<usize>,
    /// What the builds of connected members know, where the feature level is looked at.
    pub known_levels: Option<BTreeMap<NodeId, FeatureLevel>>,
    /// What holds of its reads.
    pub consistency: Consistency,
    /// Whether it is a member of the group.
    pub is_member: bool,
    /// A group that it is no member of, where there are several.
    pub outside: Option<GroupId>,
}

/// A connection to it.
pub struct Connection {
    session: Session,
    input: BytesMut,
    output: Output,
    pub closed: bool,
    /// Requests that are not answered yet.
    pub asked: VecDeque<(Ticket, Request)>,
    /// How many requests were asked whose outcome waits until this node shows it.
    pub shown: usize,
    /// Requests that wait for a later turn.
    resumed: VecDeque<Ticket>,
    /// How many turns they have had.
    pub turns: usize,
    backlog: bool,
    /// The last slot that it was told of.
    pub seen: u64,
}

struct View<'a> {
    store: &'a Store,
    knows_users: bool,
    catches_up: bool,
    applied: Option<u64>,
    role: &'static str,
    denials: &'a Cell<usize>,
    known_levels: &'a Option<BTreeMap<NodeId, FeatureLevel>>,
    consistency: Consistency,
    is_member: bool,
    outside: Option<GroupId>,
}

/// Where clients connect from.
const CLIENT: &str = "10.0.0.9:40000";

impl NodeView for View<'_> {
    fn read(&self, command: &Bytes) -> Option<Bytes> {
        let command = Command::from_bytes(command.clone()).expect("a session encodes its commands");
        Some(self.store.read_encoded(&command).into_bytes())
    }
    fn has_state(&self) -> bool {
        self.applied.is_some()
    }
    fn has_total_order(&self) -> bool {
        true
    }
    fn is_member(&self) -> bool {
        self.is_member
    }
    fn is_member_of(&self, group: GroupId) -> bool {
        self.is_member && self.outside != Some(group)
    }
    fn consistency(&self) -> Consistency {
        self.consistency
    }
    fn applied(&self) -> u64 {
        self.applied.unwrap_or(9)
    }
    fn status(&self) -> Status {
        let peer = PeerStatus { node: NodeId::new(2).unwrap(), lag: 3, heard_ms: Some(4) };
        Status {
            role: self.role,
            leader: NodeId::new(1),
            ballot: "7.1".to_owned(),
            committed: 10,
            applied: 9,
            lease: true,
            reads: "lease",
            peers: vec![peer],
            samples: vec![Sample::counter("reads_local_total", 7_u64, "Reads answered alone.")],
            facts: Vec::new(),
        }
    }
    fn facts(&self) -> Vec<(&'static str, String)> {
        let facts = [("protocol", "none"), ("node_id", "1"), ("membership", "voter")];
        facts.map(|(name, value)| (name, value.to_owned())).into()
    }
    fn group(&self) -> Members {
        let member = |node, voter| {
            (NodeId::new(node).unwrap(), Member { address: format!("10.0.0.{node}:7201"), voter })
        };
        Members { version: 5, nodes: [member(1, true), member(2, false)].into() }
    }
    fn known_levels(&self) -> BTreeMap<NodeId, FeatureLevel> {
        self.known_levels.clone().unwrap_or_default()
    }
    fn can_regroup(&self) -> bool {
        true
    }
    fn can_transfer(&self, _: GroupId) -> bool {
        true
    }
    fn has_roster(&self) -> bool {
        true
    }
    fn slow_requests(&self, count: usize) -> Vec<SlowRequest> {
        let slow = |number, command, client: &str, slot| SlowRequest {
            number,
            ended: Wall::from_millis(NOW.as_millis() as u64),
            took: Duration::from_millis(71),
            asked: Described { command, client: client.to_owned() },
            address: "127.0.0.1:9".to_owned(),
            group: None,
            slot,
            stages: vec![("queued", Duration::from_millis(1)), ("replied", Duration::from_millis(70))],
        };
        [slow(8, "set", "bob", Some(7)), slow(7, "get", "", None)].into_iter().take(count).collect()
    }
    fn slow_count(&self) -> usize {
        2
    }
    fn knows_users(&self) -> bool {
        self.knows_users
    }
    fn catches_up(&self) -> bool {
        self.catches_up
    }
    fn note_denial(&self, _: &'static str, _: &str, _: &'static str) {
        self.denials.set(self.denials.get() + 1);
    }
}

impl Node {
    pub fn new() -> Node {
        Node::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Node {
        let (resp, store) = (Resp::with_clock(limits, || NOW), Store::new());
        let denials = Cell::new(0);
        Node {
            resp,
            store,
            revision: 0,
            unordered: false,
            connections: 0,
            knows_users: true,
            catches_up: false,
            applied: None,
            role: "leader",
            now: 1,
            denials,
            known_levels: None,
            consistency: Consistency::Linearizable,
            is_member: true,
            outside: None,
        }
    }

    pub fn unordered() -> Node {
        Node { unordered: true, ..Node::new() }
    }

    pub fn connect(&mut self) -> Connection {
        self.connections += 1;
        let (mut output, mut close, mut asked, mut resumed) =
            (Output::default(), false, Vec::new(), Vec::new());
        let mut context = SessionContext {
            now: Time::from_nanos(self.now),
            output: &mut output,
            close: &mut close,
            asked: &mut asked,
            resumed: &mut resumed,
            under_way: 0,
            limit: UNDER_WAY,
            seen: 0,
            node: &View {
                store: &self.store,
                knows_users: self.knows_users,
                catches_up: self.catches_up,
                applied: self.applied,
                role: self.role,
                denials: &self.denials,
                known_levels: &self.known_levels,
                consistency: self.consistency,
                is_member: self.is_member,
                outside: self.outside,
            },
        };
        let session = self.resp.open(self.connections, Some(CLIENT.parse().unwrap()), &mut context);
        let input = BytesMut::new();
        Connection {
            session,
            input,
            output,
            closed: close,
            asked: VecDeque::new(),
            shown: 0,
            resumed: VecDeque::new(),
            turns: 0,
            backlog: false,
            seen: 0,
        }
    }

    /// Brings bytes to the session.
    pub fn send(&mut self, connection: &mut Connection, bytes: &[u8]) {
        connection.input.extend_from_slice(bytes);
        self.call(connection, |resp, session, input, context| resp.on_input(session, input, context));
    }

    /// Ends a request.
    pub fn end(&mut self, connection: &mut Connection, ticket: Ticket, outcome: Outcome) {
        self.call(connection, |resp, session, _, context| resp.on_outcome(session, ticket, outcome, context));
    }

    /// Executes a request.
    pub fn execute(&mut self, request: &Request) -> Outcome {
        let command = Command::from_bytes(request.command.clone()).expect("a session encodes its commands");
        assert_eq!(command.is_read_only(), request.access == Access::Read);
        if let (Some(_), Err(error)) = (&self.known_levels, self.store.decode(&request.command)) {
            return Outcome::Done(Reply::Error(error).to_bytes());
        }
        self.revision += 1;
        let now = Wall::from_millis(NOW.as_millis() as u64);
        let reply = match self.unordered {
            false => self.store.apply(&command, self.revision, now),
            true => self.store.apply_unordered(&command, (1 << 60) - (self.revision << 17), now),
        };
        Outcome::Done(reply.to_bytes())
    }

    /// Goes on with a request that waits for a turn. Whether there was one.
    pub fn resume(&mut self, connection: &mut Connection) -> bool {
        let Some(ticket) = connection.resumed.pop_front() else { return false };
        connection.turns += 1;
        self.call(connection, |resp, session, _, context| resp.on_resume(session, ticket, context));
        true
    }

    /// The same, and executes what comes of it.
    pub fn turn(&mut self, connection: &mut Connection) -> bool {
        let resumed = self.resume(connection);
        if resumed {
            self.execute_all(connection);
        }
        resumed
    }

    /// Executes and answers what has been asked, and nothing that waits for a turn.
    pub fn execute_all(&mut self, connection: &mut Connection) {
        while let Some((ticket, request)) = connection.asked.pop_front() {
            let outcome = self.execute(&request);
            self.end(connection, ticket, outcome);
        }
    }

    /// Executes and answers what is under way until nothing moves, and returns what was written.
    pub fn settle(&mut self, connection: &mut Connection) -> Vec<u8> {
        let mut written = Vec::new();
        loop {
            self.execute_all(connection);
            written.extend_from_slice(&connection.take_output());
            if self.turn(connection) {
                continue;
            }
            if !std::mem::take(&mut connection.backlog) || connection.closed {
                return written;
            }
            self.send(connection, b"");
        }
    }

    /// Sends and settles.
    pub fn ask(&mut self, connection: &mut Connection, bytes: &[u8]) -> String {
        self.send(connection, bytes);
        String::from_utf8_lossy(&self.settle(connection)).into_owned()
    }

    /// As a node's loop does it: requests are taken over, and a session that is full is called again.
    fn call(
        &mut self,
        connection: &mut Connection,
        call: impl FnOnce(&mut Resp, &mut Session, &mut BytesMut, &mut SessionContext<'_>),
    ) {
        let (mut asked, mut resumed) = (Vec::new(), Vec::new());
        let mut context = SessionContext {
            now: Time::from_nanos(self.now),
            output: &mut connection.output,
            close: &mut connection.closed,
            asked: &mut asked,
            resumed: &mut resumed,
            under_way: connection.asked.len() + connection.resumed.len(),
            limit: UNDER_WAY,
            seen: connection.seen,
            node: &View {
                store: &self.store,
                knows_users: self.knows_users,
                catches_up: self.catches_up,
                applied: self.applied,
                role: self.role,
                denials: &self.denials,
                known_levels: &self.known_levels,
                consistency: self.consistency,
                is_member: self.is_member,
                outside: self.outside,
            },
        };
        call(&mut self.resp, &mut connection.session, &mut connection.input, &mut context);
        if context.is_full() && !connection.input.is_empty() {
            connection.backlog = true;
        }
        connection.resumed.extend(resumed);
        connection.shown += asked.iter().filter(|asked| asked.shown).count();
        connection.asked.extend(asked.into_iter().map(|asked| (asked.ticket, asked.request)));
    }
}

impl Connection {
    /// What was written since the last time.
    pub fn written(&mut self) -> String {
        String::from_utf8_lossy(&self.take_output()).into_owned()
    }

    fn take_output(&mut self) -> Bytes {
        let bytes = self.output.len();
        self.output.copy_to_bytes(bytes)
    }

    /// The session itself.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the buffer of the input could hold.
    pub fn capacity(&self) -> usize {
        self.input.capacity()
    }

    /// Bytes of input that wait to be looked at.
    pub fn unread(&self) -> usize {
        self.input.len()
    }
}

/// A request in its long form.
pub fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

pub fn timed_out() -> Outcome {
    Outcome::Failed(Failure::TimedOut)
}
