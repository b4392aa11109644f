//! The clients of a node: accepts them, feeds their input to the [`Frontend`], and brings them the outcomes.
//!
//! | file | what |
//! |---|---|
//! | `accepting` | who is let in, and TLS handshakes that are not over |
//! | `connection` | one client's socket and buffers |
//! | `draining` | lets clients go when the node stops |
//! | `requests` | which client waits for which request |

mod accepting;
mod connection;
mod draining;
mod requests;

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use mio::Registry;
use quorate_core::{Answered, Failure, GroupId, Mark, Outcome, Request, RequestId, Sample, Time};
use quorate_tls::Credentials;
use slab::Slab;
use tracing::{info, warn};

use crate::acceptor::Acceptor;
use crate::clock;
use crate::frontend::{Asked, Frontend, NodeView, SessionContext, Ticket};
use crate::limits::{
    DRAIN_LINGER, HANDSHAKES_PER_TURN, Limits, RESUMES_PER_TURN, SERVED_PER_TURN, WRITTEN_PER_TURN,
};
use crate::log_rate::LogRateLimiter;
use crate::metrics::Metrics;
use crate::slow::{Described, Slow, Times};
pub(crate) use accepting::Door;
use accepting::Handshakes;
use connection::{Connection, Read};
use requests::{Requests, Waiting, reply_bytes};

/// How long an outcome waits until this node's own state shows it.
const UNSHOWN: Duration = Duration::from_secs(5);

/// Bytes of the replies that wait for that; one that is longer waits alone.
const UNSHOWN_BYTES: usize = 64 << 20;

/// Why a client is given up that has more waiting for it than it may.
const SLOW: &str = "does not take its replies";

/// Why a client is given up when more is kept for all clients together than may be.
const LARGEST: &str = "has the largest buffers of all clients, which together are too large";

/// All client connections of a node.
pub(crate) struct Clients<F: Frontend> {
    frontend: F,
    limits: Limits,
    metrics: Rc<Metrics>,
    registry: Registry,
    /// Plus an index: the token of a connection.
    token: usize,
    /// None while the node stops.
    acceptor: Option<Acceptor>,
    /// With them, clients must speak TLS.
    tls: Option<Credentials>,
    handshakes: Handshakes,
    connections: Slab<Connection<F::Session>>,
    /// Bytes that are kept for clients, as last counted.
    kept: usize,
    opened: u64,
    requests: Requests,
    to_serve: Vec<usize>,
    to_write: Vec<usize>,
    log_rate: LogRateLimiter,
    asked: Vec<Asked>,
    resumed: Vec<Ticket>,
    /// Long requests that go on in a later turn, in order: the client's place, its number, and which of its requests.
    to_resume: VecDeque<(usize, u64, Ticket)>,
    /// Outcomes that this node's own state does not show yet, and when they are given up.
    unshown: Vec<(Time, Answered)>,
    /// Bytes of the replies in them.
    unshown_bytes: usize,
    /// The last slot that was added there since it was asked.
    awaited: Option<u64>,
    slow: Rc<Slow>,
    /// When the present turn began.
    now: Time,
    /// While the node stops: when those who ask nothing are let go, and when to look again.
    draining: Option<(Time, Time)>,
}

impl<F: Frontend> Clients<F> {
    /// Registers the listener.
    pub(crate) fn new(
        frontend: F,
        door: Door,
        token: usize,
        registry: Registry,
        limits: Limits,
        metrics: Rc<Metrics>,
    ) -> io::Result<Self> {
        let Door { listener, token: listener_token, tls } = door;
        let acceptor = Acceptor::new(listener, listener_token, &registry, "a client")?;
        let requests = Requests::new(limits.requests);
        metrics.clients_limit.set(limits.clients as u64);
        metrics.tls_handshakes_limit.set(limits.handshakes as u64);
        metrics.clients_buffered_limit.set(limits.client_memory as u64);
        metrics.requests_limit.set(requests.limit() as u64);
        Ok(Clients {
            frontend,
            limits,
            metrics,
            registry,
            token,
            acceptor: Some(acceptor),
            tls,
            handshakes: Handshakes::default(),
            connections: Slab::new(),
            kept: 0,
            opened: 0,
            requests,
            to_serve: Vec::new(),
            to_write: Vec::new(),
            log_rate: LogRateLimiter::default(),
            slow: Rc::new(Slow::new(None, Rc::default())),
            asked: Vec::new(),
            resumed: Vec::new(),
            to_resume: VecDeque::new(),
            unshown: Vec::new(),
            unshown_bytes: 0,
            awaited: None,
            now: Time::ZERO,
            draining: None,
        })
    }

    /// Commands that read next to nothing, one for each group of replicas.
    pub(crate) fn probes(&self) -> Vec<Bytes> {
        self.frontend.probes()
    }

    /// Nobody is to be judged by users that have been changed less often.
    pub(crate) fn remember_users(&mut self, changes: u64) {
        self.frontend.remember_users(changes);
    }

    /// What the client protocol counts.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.frontend.samples()
    }

    /// Tells this log of requests that end.
    pub(crate) fn watch(&mut self, slow: Rc<Slow>) {
        self.slow = slow;
    }

    /// Notes what the proxy has said of requests.
    pub(crate) fn on_marks(&mut self, marks: &mut Vec<(GroupId, Mark, Time)>) {
        for (group, mark, at) in marks.drain(..) {
            self.requests.mark(group, mark, at);
        }
    }

    /// Somebody waits to be accepted.
    pub(crate) fn on_listener(&mut self) {
        self.acceptor.as_mut().into_iter().for_each(Acceptor::on_ready);
    }

    /// A connection is ready for something.
    pub(crate) fn on_ready(&mut self, index: usize, readable: bool, writable: bool, closed: bool) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.on_ready(readable, writable, closed);
        if connection.leaving.is_some() && closed {
            // It has noticed.
            return self.close(index);
        }
        self.list(index);
        if writable {
            self.mark_dirty(index);
        }
    }

    /// When [`accept`](Self::accept) is needed if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let sweep = self.draining.map(|(_, sweep)| sweep);
        let unshown = self.unshown.first().map(|(until, _)| *until);
        let handshake = self.handshakes.deadline(self.limits.handshake);
        let accept = self.acceptor.as_ref().and_then(Acceptor::deadline);
        let output = (!self.to_write.is_empty()).then_some(Time::ZERO);
        [accept, unshown, sweep, handshake, output].into_iter().flatten().min()
    }

    /// Whether clients wait to be served that no event will announce.
    pub(crate) fn has_input(&self) -> bool {
        !self.to_resume.is_empty() || !self.to_serve.is_empty() && self.has_room()
    }

    /// Whether requests may be read: those under way have not reached their bound in bytes. Clients wait meanwhile.
    fn has_room(&self) -> bool {
        self.requests.bytes() < self.limits.request_bytes
    }

    /// How many requests have not been answered yet.
    pub(crate) fn under_way(&self) -> usize {
        self.requests.len()
    }

    /// Reads from every client that has sent something and hands its requests to `step`, which passes them on.
    pub(crate) fn serve(
        &mut self,
        scratch: &mut [u8],
        node: &dyn NodeView,
        ready: &mut Vec<(RequestId, Request)>,
    ) {
        self.resume(node, ready);
        let mut to_serve = std::mem::take(&mut self.to_serve);
        let mut rest = to_serve.drain(..);
        let (mut handshakes, mut work) = (0, 0);
        while self.has_room()
            && work < SERVED_PER_TURN
            && let Some(index) = rest.next()
        {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if connection.is_handshaking() {
                if handshakes == HANDSHAKES_PER_TURN {
                    self.to_serve.push(index);
                    continue;
                }
                handshakes += 1;
            }
            connection.listed = false;
            let crowded = self.kept > self.limits.client_memory / 2;
            let before = (connection.input.len(), connection.counted);
            let heard = connection.read(scratch, (&self.limits, crowded), &self.metrics);
            match &heard {
                Read::Some | Read::Nothing => {}
                Read::Broken => {
                    self.close(index);
                    continue;
                }
                Read::Refused(why) => {
                    self.turn_away(index, why);
                    continue;
                }
            }
            let backlog = std::mem::take(&mut connection.backlog);
            let at_hand = connection.input.len();
            if heard == Read::Some || backlog {
                self.with_session(index, node, ready, |frontend, session, input, context| {
                    frontend.on_input(session, input, context);
                });
                if let Some(why) = self.frontend.complaint() {
                    self.complain(index, &why);
                }
            }
            work += self.connections.get(index).map_or(0, |connection| connection.work(before, at_hand));
            self.relieve();
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if connection.input.len() > self.limits.client_input {
                self.evict(index, "sent a request that is too long");
                continue;
            }
            connection.release_buffers();
            self.list(index);
            self.mark_dirty(index);
        }
        // Those that are left or listed again wait for another turn; the list keeps its memory.
        let left: Vec<_> = rest.collect();
        to_serve.extend(left);
        to_serve.append(&mut self.to_serve);
        self.to_serve = to_serve;
    }

    /// Goes on with some of the long requests.
    fn resume(&mut self, node: &dyn NodeView, ready: &mut Vec<(RequestId, Request)>) {
        // What goes on once more waits for the next turn.
        for _ in 0..RESUMES_PER_TURN.min(self.to_resume.len()) {
            let Some((index, number, ticket)) = self.to_resume.pop_front() else { return };
            let Some(connection) = self.connections.get_mut(index) else { continue };
            if connection.number != number {
                continue;
            }
            connection.under_way -= 1;
            connection.backlog = !connection.input.is_empty();
            self.with_session(index, node, ready, |frontend, session, _, context| {
                frontend.on_resume(session, ticket, context);
            });
            if self.overflows(index) {
                self.evict(index, SLOW);
                continue;
            }
            self.list(index);
            self.mark_dirty(index);
        }
    }

    /// A slot that somebody waits for since this was asked last.
    pub(crate) fn take_awaited(&mut self) -> Option<u64> {
        self.awaited.take()
    }

    /// Brings outcomes to those who wait for them.
    pub(crate) fn deliver(
        &mut self,
        outcomes: &mut Vec<Answered>,
        node: &dyn NodeView,
        ready: &mut Vec<(RequestId, Request)>,
    ) {
        if !self.unshown.is_empty() {
            // Those that waited came first.
            let (shown, now) = (node.applied(), self.now);
            let over = |(until, answered): &mut (Time, Answered)| answered.slot <= shown || *until <= now;
            let due: Vec<_> = self.unshown.extract_if(.., over).collect();
            self.unshown_bytes -= due.iter().map(|(_, answered)| reply_bytes(answered)).sum::<usize>();
            outcomes.splice(
                0..0,
                due.into_iter().map(|(_, mut answered)| {
                    if answered.slot > shown {
                        // It happened, but whoever asked is to see it here, and would not.
                        answered.outcome = Outcome::Failed(Failure::TimedOut);
                    }
                    // It does not wait again.
                    Answered { slot: answered.slot.min(shown), ..answered }
                }),
            );
        }
        if !outcomes.is_empty() {
            self.now = clock::now();
        }
        let now = self.now;
        let mut shown = None;
        for mut answered in outcomes.drain(..) {
            let id = answered.request;
            if answered.slot > 0
                && self.requests.get(id).is_some_and(|waiting| waiting.shown)
                && answered.slot > *shown.get_or_insert_with(|| node.applied())
            {
                let bytes = reply_bytes(&answered);
                if self.unshown.is_empty() || self.unshown_bytes + bytes <= UNSHOWN_BYTES {
                    self.unshown_bytes += bytes;
                    self.awaited = self.awaited.max(Some(answered.slot));
                    self.unshown.push((self.now + UNSHOWN, answered));
                    continue;
                }
                // It happened, but there is no room to keep its reply until this node shows it.
                answered.outcome = Outcome::Failed(Failure::TimedOut);
            }
            let Answered { outcome, slot, .. } = answered;
            let Some(waiting) = self.requests.remove(id) else { continue };
            self.slow.on_outcome(&waiting.times, &outcome, (now, clock::wall), || self.describe(&waiting));
            match outcome {
                Outcome::Done(_) => self.metrics.replies_total.one(),
                Outcome::Failed(_) => self.metrics.failures_total.one(),
            }
            let Some(connection) = self.connections.get_mut(waiting.index) else { continue };
            if connection.number != waiting.connection {
                continue;
            }
            connection.under_way -= 1;
            connection.seen = slot.max(connection.seen);
            connection.backlog = !connection.input.is_empty();
            self.with_session(waiting.index, node, ready, |frontend, session, _, context| {
                frontend.on_outcome(session, waiting.ticket, outcome, context);
            });
            if self.overflows(waiting.index) {
                self.evict(waiting.index, SLOW);
                continue;
            }
            self.relieve();
            if !self.connections.contains(waiting.index) {
                continue;
            }
            self.list(waiting.index);
            self.mark_dirty(waiting.index);
        }
        self.metrics.requests_under_way.set(self.requests.len() as u64);
    }

    /// A request and where its client is, for people.
    fn describe(&self, waiting: &Waiting) -> (Described, String) {
        let connection = self.connections.get(waiting.index);
        match connection.filter(|connection| connection.number == waiting.connection) {
            Some(connection) => {
                let address =
                    connection.address().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                (self.frontend.describe(&connection.session, waiting.ticket), address)
            }
            None => (Described { command: "?", ..Described::default() }, "gone".to_owned()),
        }
    }

    /// Writes to every client that has something coming, and closes those that are done.
    pub(crate) fn flush(&mut self) {
        self.close_ended();
        let mut to_write = std::mem::take(&mut self.to_write);
        for index in to_write.drain(..) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.dirty = false;
            let last = self.draining.is_some() && connection.is_done() && !connection.output.is_empty();
            let going = if last {
                connection.leave(self.now + DRAIN_LINGER, &self.metrics)
            } else {
                connection.write(WRITTEN_PER_TURN, &self.metrics)
            };
            self.weigh(index);
            let connection = &mut self.connections[index];
            if !going {
                self.close(index);
            } else if connection.output.len() > self.limits.client_output {
                self.evict(index, SLOW);
            } else if connection.is_over() {
                self.close(index);
            } else {
                connection.release_buffers();
                if connection.takes_output() {
                    self.mark_dirty(index);
                }
                // Room in its output may let it go on.
                self.list(index);
            }
        }
        // Those that are listed again wait for another turn; the list keeps its memory.
        to_write.append(&mut self.to_write);
        self.to_write = to_write;
        self.metrics.clients_buffered_bytes.set(self.kept as u64);
        if self.draining.is_some_and(|(_, sweep)| sweep <= self.now) {
            self.sweep();
        }
    }

    /// Whether nobody is connected any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Calls the session, then takes over what it asked.
    fn with_session(
        &mut self,
        index: usize,
        node: &dyn NodeView,
        ready: &mut Vec<(RequestId, Request)>,
        call: impl FnOnce(&mut F, &mut F::Session, &mut bytes::BytesMut, &mut SessionContext<'_>),
    ) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let mut context = SessionContext {
            now: self.now,
            output: &mut connection.output,
            close: &mut connection.close,
            asked: &mut self.asked,
            resumed: &mut self.resumed,
            under_way: connection.under_way,
            limit: self.limits.client_requests,
            seen: connection.seen,
            node,
        };
        call(&mut self.frontend, &mut connection.session, &mut connection.input, &mut context);
        if !self.resumed.is_empty() {
            connection.under_way += self.resumed.len();
            self.to_resume.extend(self.resumed.drain(..).map(|ticket| (index, connection.number, ticket)));
        }
        let mut refused = Vec::new();
        for Asked { ticket, mut request, shown } in self.asked.drain(..) {
            request.after = connection.seen;
            let times = Times::new(self.now, request.access);
            let bytes = request.command.len();
            match self.requests.insert(index, connection.number, ticket, bytes, (shown, times)) {
                Some(id) => {
                    connection.under_way += 1;
                    ready.push((id, request));
                }
                None => refused.push(ticket),
            }
        }
        for ticket in refused {
            self.metrics.overloads_total.one();
            // What a session asks for in reply to this one fails again; it gives up or its connection ends here.
            let mut context = SessionContext {
                now: self.now,
                output: &mut connection.output,
                close: &mut connection.close,
                asked: &mut self.asked,
                resumed: &mut self.resumed,
                under_way: connection.under_way,
                limit: self.limits.client_requests,
                seen: connection.seen,
                node,
            };
            let outcome = Outcome::Failed(Failure::Overloaded);
            self.frontend.on_outcome(&mut connection.session, ticket, outcome, &mut context);
            if !self.asked.is_empty() || !self.resumed.is_empty() {
                self.asked.clear();
                self.resumed.clear();
                connection.close = true;
            }
            connection.backlog = !connection.input.is_empty();
        }
        self.weigh(index);
    }

    /// Counts again what is kept for a client.
    fn weigh(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let kept = connection.input.len() + connection.output.len() + self.frontend.held(&connection.session);
        self.kept = self.kept - connection.counted + kept;
        connection.counted = kept;
    }

    /// Keeps the buffers of all clients within their bound: gives up those with the largest, if writing to them now
    /// does not help. Asked with every reply, like [`overflows`](Self::overflows), and with all input.
    fn relieve(&mut self) {
        while self.kept > self.limits.client_memory {
            let largest = self.connections.iter_mut().max_by_key(|(_, connection)| connection.counted);
            let (index, connection) = largest.expect("what is kept is some client's");
            connection.write(usize::MAX, &self.metrics);
            self.weigh(index);
            // Whatever came of it is seen when it is written to next.
            self.mark_dirty(index);
            if self.kept > self.limits.client_memory {
                self.evict(index, LARGEST);
            }
        }
    }

    /// Whether a client leaves more untaken than it may. Asked with every reply: many that come in one turn are
    /// written in between, and are not gathered first.
    fn overflows(&mut self, index: usize) -> bool {
        let limit = self.limits.client_output;
        let Some(connection) = self.connections.get_mut(index) else { return false };
        if connection.output.len() <= limit {
            return false;
        }
        let overflows = !connection.write(usize::MAX, &self.metrics) || connection.output.len() > limit;
        self.weigh(index);
        overflows
    }

    fn list(&mut self, index: usize) {
        let crowded = self.kept > self.limits.client_memory / 2;
        let connection = &mut self.connections[index];
        if !connection.listed && connection.is_ready(&self.limits, crowded) {
            connection.listed = true;
            self.to_serve.push(index);
        }
    }

    fn mark_dirty(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.dirty {
            connection.dirty = true;
            self.to_write.push(index);
        }
    }

    /// Closes what an operator has ended.
    fn close_ended(&mut self) {
        let ended = self.frontend.take_ended();
        if ended.is_empty() {
            return;
        }
        let is_ended =
            |(_, connection): &(usize, &Connection<F::Session>)| ended.contains(&connection.number);
        let found: Vec<_> = self.connections.iter().filter(is_ended).map(|(index, _)| index).collect();
        info!(connections = found.len(), "closed connections of clients, as CLIENT KILL has asked");
        found.into_iter().for_each(|index| self.close(index));
    }

    /// Logs that a client's input makes no sense, without letting it write what it likes or as often.
    fn complain(&mut self, index: usize, why: &str) {
        let Some(unsaid) = self.log_rate.ask("complaint", clock::now()) else { return };
        let address = self.connections.get(index).map(|connection| connection.address());
        let address =
            address.and_then(Result::ok).map_or_else(|| "?".to_owned(), |address| address.to_string());
        warn!(address, unsaid, "closed a client's connection: {}", why.escape_default());
    }

    fn evict(&mut self, index: usize, why: &str) {
        self.metrics.clients_evicted_total.one();
        let connection = &self.connections[index];
        if let Some(unsaid) = self.log_rate.ask(why, clock::now()) {
            let address = connection.address().map_or_else(|_| "?".to_owned(), |address| address.to_string());
            warn!(address, unsaid, "closed a client's connection: it {why}");
        }
        self.close(index);
    }

    fn close(&mut self, index: usize) {
        let mut connection = self.connections.remove(index);
        connection.say_goodbye();
        self.kept -= connection.counted;
        self.frontend.close(connection.session);
        self.metrics.clients.set(self.connections.len() as u64);
    }
}
