//! How a client protocol plugs into a node's event loop. `api` implements it; the loop knows no protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use quorate_core::{
    Consistency, FeatureLevel, GroupId, Members, NodeId, Outcome, Request, Sample, Snapshot, Status, Time,
};

use crate::output::Output;
pub use crate::slow::{Described, SlowRequest};
pub use crate::transport::contact::{Contact, Unreachable};

/// A client protocol: makes one session for each connection, and serves it.
pub trait Frontend {
    /// What is remembered of one connection.
    type Session;

    /// A client has connected from an address; `connection` numbers it, uniquely in this process.
    fn open(
        &mut self,
        connection: u64,
        from: Option<SocketAddr>,
        context: &mut SessionContext<'_>,
    ) -> Self::Session;

    /// Bytes have come in. `input` holds everything not consumed yet: take whole requests off its front, leave the
    /// rest. While some input is left, called again without new bytes after each outcome and whenever output has been
    /// written: a session may stop for want of room of any kind.
    fn on_input(
        &mut self,
        session: &mut Self::Session,
        input: &mut BytesMut,
        context: &mut SessionContext<'_>,
    );

    /// A request of this session has ended. Replies go out in the order in which requests came in: keep those that
    /// arrive early.
    fn on_outcome(
        &mut self,
        session: &mut Self::Session,
        ticket: Ticket,
        outcome: Outcome,
        context: &mut SessionContext<'_>,
    );

    /// A later turn of the loop, for a request that asked for one ([`SessionContext::resume_later`]).
    fn on_resume(&mut self, _session: &mut Self::Session, _ticket: Ticket, _desk: &mut SessionContext<'_>) {}

    /// Bytes that the session keeps beside its buffers: replies that wait for earlier ones, requests that wait.
    fn held(&self, _session: &Self::Session) -> usize {
        0
    }

    /// Commands that read next to nothing, to find out whether reads are served: one for each group of replicas, in
    /// their order.
    fn probes(&self) -> Vec<Bytes>;

    /// A request under way, for people; asked only if it was slow.
    fn describe(&self, _session: &Self::Session, _ticket: Ticket) -> Described {
        Described::default()
    }

    /// What is wrong with the input of the session that was called last, if it is no request of this protocol: a line
    /// for the log.
    fn complaint(&mut self) -> Option<String> {
        None
    }

    /// Before anybody asks: users had been changed so often before the process started, at least. A state in which they
    /// were changed less often tells nothing about them.
    fn remember_users(&mut self, _changes: u64) {}

    /// What it counts, for operators.
    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    /// Connections that an operator has ended, by their numbers; asked in each turn of the loop.
    fn take_ended(&mut self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    /// What one client too many is told before its connection is closed.
    fn refusal(&self) -> &'static [u8] {
        b""
    }

    /// What a client is told that does not speak TLS where it must, before its connection is closed.
    fn asks_for_tls(&self) -> &'static [u8] {
        b""
    }

    /// The connection is gone; outcomes of its requests will not be delivered.
    fn close(&mut self, _session: Self::Session) {}
}

/// A request of a session: the session's count of asks so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request on its way to the proxy.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Which.
    pub ticket: Ticket,
    /// What.
    pub request: Request,
    /// Whether its outcome waits until this node's own state shows it.
    pub shown: bool,
}

/// What the loop offers to a session during a call.
pub struct SessionContext<'a> {
    /// The present.
    pub now: Time,
    /// Bytes for this client; the loop writes them once per turn.
    pub output: &'a mut Output,
    /// Set to close the connection after the output is written.
    pub close: &'a mut bool,
    /// Requests to hand to the proxy, in order, with their tickets.
    pub asked: &'a mut Vec<Asked>,
    /// Requests that go on in a later turn of the loop.
    pub resumed: &'a mut Vec<Ticket>,
    /// How many requests of this session are under way, `asked` included.
    pub under_way: usize,
    /// How many may be.
    pub limit: usize,
    /// The last slot that this client was told of.
    pub seen: u64,
    /// For what commands show or change of the process.
    pub node: &'a dyn NodeView,
}

impl SessionContext<'_> {
    /// Whether the session must stop taking requests off its input until some have ended.
    pub fn is_full(&self) -> bool {
        self.under_way >= self.limit
    }

    /// Hands a request to the proxy.
    pub fn ask(&mut self, ticket: Ticket, request: Request) {
        self.under_way += 1;
        self.asked.push(Asked { ticket, request, shown: false });
    }

    /// The same; the outcome comes no earlier than this node's own state shows it.
    pub fn ask_shown(&mut self, ticket: Ticket, request: Request) {
        self.under_way += 1;
        self.asked.push(Asked { ticket, request, shown: true });
    }

    /// Goes on with a request in a later turn of the loop: long work is done in pieces, and a turn has time for a few
    /// of all clients' pieces. The request counts as under way until then.
    pub fn resume_later(&mut self, ticket: Ticket) {
        self.under_way += 1;
        self.resumed.push(ticket);
    }
}

/// What a client protocol may know of its node, for INFO, status and the like.
pub trait NodeView {
    /// The encoded reply to a read of this node's own state, however far behind it is. `None` if it has none, because
    /// it runs a proxy alone.
    fn read(&self, command: &Bytes) -> Option<Bytes>;
    /// That state as it is now, frozen, to be read in pieces. `None` as for [`read`](Self::read).
    fn image(&self) -> Option<Snapshot> {
        None
    }
    /// Whether that has every write that was acknowledged before, as far as the replica can tell alone: where no read
    /// is about all keys.
    fn has_everything(&self) -> bool {
        false
    }
    /// Whether it has such a state.
    fn has_state(&self) -> bool;
    /// Whether it is a member of the group, so that this state comes to show what the group executes. A node that was
    /// removed keeps what it had then, for ever.
    fn is_member(&self) -> bool {
        self.has_state()
    }
    /// The same of one of several groups (`--groups`): while they change their members, a node may be in some of them
    /// only.
    fn is_member_of(&self, group: GroupId) -> bool {
        let _ = group;
        self.is_member()
    }
    /// Whether all writes are executed in one order, so that a slot tells what this node's state shows.
    fn has_total_order(&self) -> bool;
    /// What holds of replies to reads that do not say themselves what they may miss.
    fn consistency(&self) -> Consistency {
        Consistency::Linearizable
    }
    /// Why its replica does not run yet, if that is so: for whom it waits.
    fn waits(&self) -> Option<String> {
        None
    }
    /// Whether all changes of users are executed in one order, also where not all writes are: several groups
    /// (`--groups`) have users in the first.
    fn has_ordered_users(&self) -> bool {
        self.has_total_order()
    }
    /// The last slot that this node's own state shows; where there are several groups, the first one's.
    fn applied(&self) -> u64;
    /// The replica's state.
    fn status(&self) -> Status;
    /// The state of each group's replica, where there are several (`--groups`).
    fn group_statuses(&self) -> Vec<Status> {
        vec![self.status()]
    }
    /// Facts in words, in order: name, value. For instance `("protocol", "multipaxos")`, `("clients", "3")`.
    fn facts(&self) -> Vec<(&'static str, String)>;
    /// Who is in the group, as far as this node knows, with all addresses that it knows.
    fn group(&self) -> Members {
        Members::default()
    }
    /// Who is in each group, where there are several (`--groups`).
    fn members_of_groups(&self) -> Vec<Members> {
        vec![self.group()]
    }
    /// The last feature level that the build of each node knows that is connected here, and that of this node.
    fn known_levels(&self) -> BTreeMap<NodeId, FeatureLevel> {
        BTreeMap::new()
    }
    /// The other members, and which of them do not answer.
    fn contacts(&self) -> Vec<Contact> {
        Vec::new()
    }
    /// Whether the protocol lets operators change that ([`quorate_core::Manage`]).
    fn can_regroup(&self) -> bool {
        false
    }
    /// Whether operators can say who leads this group; [`GroupId::FIRST`] where there is one.
    fn can_transfer(&self, _group: GroupId) -> bool {
        false
    }
    /// Whether operators can say who serves reads of what.
    fn has_roster(&self) -> bool {
        false
    }
    /// The latest slow requests, at most so many, the latest first.
    fn slow_requests(&self, _count: usize) -> Vec<SlowRequest> {
        Vec::new()
    }
    /// How many slow requests are remembered.
    fn slow_count(&self) -> usize {
        0
    }
    /// Forgets the slow requests.
    fn forget_slow(&self) {}
    /// Counts the turns of the loop: what was read of the node's state need not be read again in the same one.
    fn turn(&self) -> Option<u64> {
        None
    }
    /// Whether the node's own state tells who the users are: not that of a proxy alone, nor of a node that was not in
    /// the group and has got nothing of its state yet, nor of one that has lost its disk and rejoins.
    fn knows_users(&self) -> bool {
        true
    }
    /// Whether that state may be far behind since the process started, as that of a node that joins: it tells nothing
    /// about users before the group has.
    fn catches_up(&self) -> bool {
        false
    }
    /// A request was denied, for this reason, to this user. Counted, and logged now and then.
    fn note_denial(&self, _reason: &'static str, _user: &str, _command: &'static str) {}
}
