//! Messages between processes, over TCP.
//!
//! Each node dials every member and sends on the connection it dialed; a pair of nodes has two connections, one for
//! each direction, so neither has to decide whose survives. Standalone proxies dial too, and are answered on their
//! own connection.
//!
//! Where the group can change, whoever belongs to the cluster is let in, member or not, and a **guest** (a node that is
//! no member here) is dialed back at the address that it gives for as long as it is connected. A member that has missed
//! a change must hear the leader that it does not know, a node that joins knows the others only from their connections,
//! and one that was removed goes on to serve its clients through the others. Whose votes count, the protocol knows.
//!
//! | file | what |
//! |---|---|
//! | [`frame`] | a message on the wire, in one frame or several |
//! | [`handshake`] | who is there, and whether the two may speak |
//! | [`echo`] | how far away a member is |
//! | [`delay`] | emulated links between nodes |
//! | `emulation` | the interface that emulated links share, and what wakes the loop for them |
//! | [`queue`] | bytes on their way to a socket |
//! | `admission` | who is let in, and what of a second process of the same id |
//! | `candidates` | nodes that are to join |
//! | `contact` | which members answer |
//! | `link` | the connection this node dials to a member |
//! | `inbound` | a connection that was dialed to this node |
//! | `resolve` | host names |
//! | `socket` | socket options, reads |
//! | `way` | how a message gets to a process |

mod admission;
mod candidates;
pub(crate) mod contact;
pub mod delay;
pub mod echo;
mod emulation;
pub mod frame;
pub mod handshake;
mod inbound;
mod link;
pub mod queue;
mod resolve;
mod route;
pub(crate) mod socket;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use mio::net::TcpListener;
use mio::{Interest, Registry, Token, Waker};
use quorate_core::{Interface, Members, NodeId, NodeSet, ProcessId, Random, Time};
use quorate_runtime::OutgoingFrame;
use quorate_tls::Credentials;
use slab::Slab;
use tracing::{error, info, warn};

use crate::acceptor::Acceptor;
use crate::clock;
use crate::guard::Guard;
use crate::limits::{ACCEPTS_PER_TURN, Limits};
use crate::log_rate::LogRateLimiter;
use crate::metrics::Metrics;
use candidates::Candidate;
use delay::{Alarm, Delays};
use frame::{Encoded, Frame};
use handshake::{Hello, Identity, name, node_of};
use inbound::{Inbound, Read, Stage};
use link::{Dialed, Link, LinkContext};
use resolve::Resolver;
use route::Route;

/// All connections between this node and other processes.
pub(crate) struct Transport {
    me: ProcessId,
    identity: Identity,
    /// Where the protocol relies on disks.
    guard: Option<Guard>,
    /// Whether this node measures how far the others are.
    measures: bool,
    limits: Limits,
    metrics: Rc<Metrics>,
    registry: Registry,
    tokens: Tokens,
    random: Random,
    log_rate: LogRateLimiter,
    resolver: Resolver,
    /// To members and guests.
    links: BTreeMap<NodeId, Link>,
    /// Whom to connect to: who is in the group, and whom this node's proxy takes for that yet.
    members: BTreeMap<NodeId, String>,
    /// Who is in the group beside this node, as its log says.
    others: NodeSet,
    candidates: BTreeMap<NodeId, Candidate>,
    /// Whether the protocol can change its members (`Capabilities::membership`).
    membership: bool,
    delays: Delays,
    /// With them, nobody is spoken to without.
    tls: Option<Credentials>,
    /// Emulated: what all links share.
    interface: Interface,
    /// Where there is a delay.
    alarm: Option<Alarm>,
    /// None in a process that runs a proxy alone.
    acceptor: Option<Acceptor>,
    inbound: Slab<Inbound>,
    /// Which incoming connection a process has: one each.
    known: BTreeMap<ProcessId, usize>,
    strangers: usize,
    /// Incoming connections that wait for the end of another of the same process; they count as strangers.
    claimants: BTreeMap<usize, Hello>,
    /// Incoming connections of processes whose introduction is not durable yet, and of proxies while this node's
    /// directory is not accepted by others; they count as strangers.
    learning: BTreeMap<usize, (Hello, u64)>,
    proxies: usize,
    to_read: Vec<usize>,
    to_write: Vec<usize>,
    dialed: Vec<Dialed>,
}

/// The tokens under which the transport's sockets are registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens {
    /// Of the listener.
    pub(crate) listener: Token,
    /// Of what wakes the loop for delayed messages.
    pub(crate) alarm: Token,
    /// Plus a node id: of the link to it.
    pub(crate) links: usize,
    /// Plus an index: of an incoming connection.
    pub(crate) inbound: usize,
}

/// What the transport starts from.
pub(crate) struct Start {
    pub(crate) me: ProcessId,
    pub(crate) identity: Identity,
    /// Of a node, where the protocol relies on disks.
    pub(crate) guard: Option<Guard>,
    /// Whether the node measures how far the others are; it needs a guard for that.
    pub(crate) measures: bool,
    /// The others.
    pub(crate) members: BTreeMap<NodeId, String>,
    /// Whether those change.
    pub(crate) membership: bool,
    pub(crate) delays: Delays,
    pub(crate) tls: Option<Credentials>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Rc<Metrics>,
    pub(crate) registry: Registry,
    pub(crate) tokens: Tokens,
    pub(crate) random: Random,
    pub(crate) waker: Arc<Waker>,
    pub(crate) listener: Option<TcpListener>,
}

impl Transport {
    /// Registers the listener; dialing begins at the first [`tick`](Self::tick).
    pub(crate) fn new(start: Start) -> std::io::Result<Transport> {
        let Start { me, identity, members, membership, delays, limits, metrics, registry, tokens, .. } =
            start;
        let Start { guard, measures, tls, random, waker, listener, .. } = start;
        let acceptor = listener.map(|listener| Acceptor::new(listener, tokens.listener, &registry, "a peer"));
        let acceptor = acceptor.transpose()?;
        let alarm = (!delays.are_none()).then(|| Alarm::new(&registry, tokens.alarm)).transpose()?;
        let interface = Interface::new(delays.interface());
        metrics.peer_output_limit.set(limits.peer_output as u64);
        let mut transport = Transport {
            me,
            identity,
            guard,
            measures,
            limits,
            metrics,
            registry,
            tokens,
            random,
            log_rate: LogRateLimiter::default(),
            resolver: Resolver::new(waker),
            links: BTreeMap::new(),
            others: members.keys().copied().collect(),
            members: BTreeMap::new(),
            candidates: BTreeMap::new(),
            membership,
            delays,
            tls,
            interface,
            alarm,
            acceptor,
            inbound: Slab::new(),
            known: BTreeMap::new(),
            strangers: 0,
            claimants: BTreeMap::new(),
            learning: BTreeMap::new(),
            proxies: 0,
            to_read: Vec::new(),
            to_write: Vec::new(),
            dialed: Vec::new(),
        };
        transport.set_members(members, Time::ZERO);
        Ok(transport)
    }

    /// From now on these are the others: dials those who are new, and lets go of those who have left and are gone.
    pub(crate) fn set_members(&mut self, members: BTreeMap<NodeId, String>, now: Time) {
        self.members = members;
        let strays: Vec<_> = self.links.keys().copied().filter(|node| !self.is_wanted(*node)).collect();
        for node in strays {
            self.let_go(node, now);
        }
        for (&node, address) in &self.members {
            let token = Token(self.tokens.links + usize::from(node.get()));
            let new = || Link::new(node, address.clone(), token);
            let link = self.links.entry(node).or_insert_with(new);
            link.move_to(address, now);
        }
    }

    /// Which data directory this node takes part with, where the protocol relies on that.
    pub(crate) fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// The groups, as this node's log says.
    pub(crate) fn set_groups(&mut self, groups: &[Members]) {
        let all = groups.iter().flat_map(|group| group.nodes.keys().copied());
        self.others = all.filter(|node| Some(*node) != self.me.replica()).collect();
        if let Some(guard) = &mut self.guard {
            guard.set_groups(groups);
        }
    }

    /// This node takes part from now on: remembers for what it has waited, and tells all peers.
    pub(crate) fn take_part(&mut self, now: Time) {
        if let Some(guard) = &mut self.guard {
            guard.take_part();
        }
        self.links.values_mut().for_each(|link| link.greet_again(now));
    }

    /// Whether there is to be a link to this node: it is a member, is to be one, or is a guest that is here.
    fn is_wanted(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
            || self.candidates.contains_key(&node)
            || !self.identity.is_standalone() && self.known.contains_key(&node.into())
    }

    /// Ends the link to a node that is no member any more.
    fn let_go(&mut self, node: NodeId, now: Time) {
        self.links.remove(&node);
        // A standalone proxy uses it in both directions.
        if let Some(&index) = self.known.get(&node.into()) {
            self.over(index, Some("it is no member any more".to_owned()), now);
        }
        info!(peer = %node, "node {node} is no member any more: no connection to it is kept");
    }

    /// Somebody waits to be accepted.
    pub(crate) fn on_listener(&mut self) {
        self.acceptor.as_mut().into_iter().for_each(Acceptor::on_ready);
    }

    /// The link to a member is ready for something.
    pub(crate) fn on_link(&mut self, node: u8, writable: bool, scratch: &mut [u8], now: Time) {
        if let Some(node) = NodeId::new(node.into()) {
            self.with_link(node, now, |link, context| link.on_ready(writable, scratch, context));
            for dialed in std::mem::take(&mut self.dialed) {
                self.take_in(dialed, now);
            }
        }
    }

    /// An incoming connection is ready for something.
    pub(crate) fn on_inbound(&mut self, index: usize, readable: bool, writable: bool, closed: bool) {
        let Some(inbound) = self.inbound.get_mut(index) else { return };
        inbound.on_ready(readable, writable, closed);
        if inbound.readable && !inbound.listed {
            inbound.listed = true;
            self.to_read.push(index);
        }
        if writable && inbound.has_output() && !inbound.dirty {
            inbound.dirty = true;
            self.to_write.push(index);
        }
    }

    /// Whether there is input left that no event will announce.
    pub(crate) fn has_input(&self) -> bool {
        !self.to_read.is_empty()
    }

    /// Reads every connection that has something, and hands over whole frames. The sink's error says why it refuses a
    /// payload; that closes the connection.
    pub(crate) fn read(
        &mut self,
        scratch: &mut [u8],
        now: Time,
        mut sink: impl FnMut(Frame) -> Result<(), String>,
    ) {
        for index in std::mem::take(&mut self.to_read) {
            let Some(inbound) = self.inbound.get_mut(index) else { continue };
            inbound.listed = false;
            loop {
                let inbound = &mut self.inbound[index];
                match inbound.read(self.me, self.limits.frame, scratch, &self.metrics, &mut sink) {
                    Read::Dry => break,
                    Read::More => {
                        inbound.listed = true;
                        self.to_read.push(index);
                        break;
                    }
                    Read::Hello(hello) => self.on_hello(index, *hello, now),
                    Read::Over(why) => {
                        self.over(index, why, now);
                        break;
                    }
                }
            }
            self.on_echoes(index);
        }
        self.judge_claimants(now);
    }

    /// Queues a message for others; what cannot be queued is dropped and counted. This node's own processes are not
    /// reached this way.
    pub(crate) fn send(&mut self, frame: OutgoingFrame) {
        let OutgoingFrame { from, to, kind, class, payload, .. } = frame;
        self.send_frames();
        let (mut payload, mut encoded) = (Some(payload), None);
        for process in to.iter() {
            let way = match node_of(process) {
                Some(node) if ProcessId::Replica(node) == self.me => continue,
                Some(node) if !self.identity.is_standalone() => {
                    self.links.get_mut(&node).filter(|link| link.takes_messages()).map(Route::Link)
                }
                _ => self.known.get(&process).map(|&index| {
                    let inbound = &mut self.inbound[index];
                    if !inbound.dirty {
                        inbound.dirty = true;
                        self.to_write.push(index);
                    }
                    Route::Back(&mut inbound.output)
                }),
            };
            let Some(way) = way else {
                self.metrics.messages_dropped_total.add(kind, 1);
                continue;
            };
            let encoded = encoded
                .get_or_insert_with(|| Encoded::new(payload.take().expect("it is encoded once"), class));
            if encoded.length() > self.limits.frame {
                // No receiver would take it, now or later: whoever made it is at fault.
                self.metrics.messages_too_long_total.add(kind, 1);
                if let Some(unsaid) = self.log_rate.ask("too long", clock::now()) {
                    let (bytes, limit) = (encoded.length(), self.limits.frame);
                    error!(
                        kind,
                        bytes,
                        limit,
                        unsaid,
                        "dropped a message of {bytes} bytes, more than the {limit} that one may have; this is a bug"
                    );
                }
                return;
            }
            if !way.has_room(encoded, &self.limits) {
                self.metrics.messages_dropped_total.add(kind, 1);
                continue;
            }
            match way {
                Route::Link(link) => link.put(encoded, (from, process), &self.interface, &mut self.random),
                Route::Back(output) => encoded.queue(from, process, output),
            }
            self.metrics.messages_out_total.add(kind, 1);
        }
    }

    /// Writes every queue once.
    pub(crate) fn flush(&mut self, now: Time) {
        self.send_frames();
        let mut waiting = 0;
        let (links, mut context) = self.split(now);
        for link in links.values_mut() {
            link.flush(&mut context);
            waiting += link.total();
        }
        for index in std::mem::take(&mut self.to_write) {
            let Some(inbound) = self.inbound.get_mut(index) else { continue };
            inbound.dirty = false;
            if !inbound.flush(&self.metrics) {
                self.over(index, None, now);
            } else if inbound.has_output() {
                self.mark_dirty(index);
            }
        }
        self.metrics.peer_output_bytes.set(waiting as u64);
        self.set_alarm(now);
    }

    /// Whether everything queued for members has been written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.links.values().all(|link| link.total() == 0)
    }

    /// Does what is due: accepts, dials, gives up.
    pub(crate) fn tick(&mut self, now: Time) {
        match self.delays.take_rates() {
            None => {}
            Some(Ok(())) => {
                self.interface.set_rate(self.delays.interface());
                self.links.values_mut().for_each(|link| link.on_rates(&self.delays));
                info!("links have the rates of the topology's file as it is now");
            }
            Some(Err(error)) => error!("the topology's file is not followed: {error}"),
        }
        self.learn(now);
        self.end_outdated(now);
        self.accept(now);
        while let Some((node, found)) = self.resolver.take() {
            self.with_link(node, now, |link, context| link.dial(found, context));
        }
        let mut to_dial = Vec::new();
        let (links, mut context) = self.split(now);
        for link in links.values_mut() {
            if link.wants_dial(&mut context) {
                to_dial.push(link.node);
            }
        }
        for node in to_dial {
            self.dial(node, now);
        }
        self.measure(now);
        if self.strangers > 0 {
            self.judge_claimants(now);
            let due = |inbound: &Inbound| inbound.deadline().is_some_and(|until| until <= now);
            let late: Vec<_> = self.inbound.iter().filter(|(_, i)| due(i)).map(|(index, _)| index).collect();
            for index in late {
                let stranger = matches!(self.inbound[index].stage, Stage::Stranger { .. });
                let within = self.limits.handshake;
                self.over(
                    index,
                    stranger.then(|| format!("it did not say who it is within {within:?}")),
                    now,
                );
            }
        }
        self.forget_candidates(now);
        let up = |link: &&Link| link.is_up() && self.others.contains(link.node);
        self.metrics.peers.set(self.others.len() as u64);
        self.metrics.peers_up.set(self.links.values().filter(up).count() as u64);
    }

    /// When [`tick`](Self::tick) is needed if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let links = self.links.values().filter_map(Link::deadline);
        // Known connections have no deadline; strangers are few.
        let strangers = if self.strangers > 0 { Some(&self.inbound) } else { None };
        let strangers = strangers.into_iter().flat_map(Slab::iter).filter_map(|(_, i)| i.deadline());
        let output = (!self.to_write.is_empty()).then_some(Time::ZERO);
        let frame = self.next_frame().map(|(at, _)| at);
        let own =
            [self.acceptor.as_ref().and_then(Acceptor::deadline), self.candidates_deadline(), output, frame];
        links.chain(strangers).chain(own.into_iter().flatten()).min()
    }

    fn split(&mut self, now: Time) -> (&mut BTreeMap<NodeId, Link>, LinkContext<'_>) {
        let context = LinkContext {
            registry: &self.registry,
            identity: &self.identity,
            guard: &mut self.guard,
            limits: &self.limits,
            metrics: &self.metrics,
            delays: &self.delays,
            tls: self.tls.as_ref(),
            random: &mut self.random,
            dialed: &mut self.dialed,
            now,
        };
        (&mut self.links, context)
    }

    fn with_link(&mut self, node: NodeId, now: Time, act: impl FnOnce(&mut Link, &mut LinkContext<'_>)) {
        let (links, mut context) = self.split(now);
        if let Some(link) = links.get_mut(&node) {
            act(link, &mut context);
        }
    }

    fn dial(&mut self, node: NodeId, now: Time) {
        let address = self.links[&node].address().to_owned();
        let found = match address.parse::<SocketAddr>() {
            Ok(address) => Ok(vec![address]),
            Err(_) => match self.resolver.begin(node, address) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
        };
        self.with_link(node, now, |link, context| link.dial(found, context));
    }

    /// A standalone proxy's connection to a member: from here on as one that the member dialed.
    fn take_in(&mut self, dialed: Dialed, now: Time) {
        let Dialed { node, mut stream, incarnation, knows, input } = dialed;
        let index = self.inbound.vacant_key();
        let token = Token(self.tokens.inbound + index);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered =
            self.registry.register(stream.tcp_mut(), token, interest).and_then(|()| stream.peer_addr());
        let address = match registered {
            Ok(address) => address,
            Err(error) => {
                return self.with_link(node, now, |link, context| link.on_end(&error.to_string(), context));
            }
        };
        let peer = ProcessId::Replica(node);
        let stage = Stage::Known { peer, incarnation, knows };
        let mut inbound = Inbound::dialed(stream, address, stage, input);
        inbound.listed = true;
        self.to_read.push(index);
        self.inbound.insert(inbound);
        self.known.insert(peer, index);
    }

    fn accept(&mut self, now: Time) {
        for _ in 0..ACCEPTS_PER_TURN {
            let acceptor = self.acceptor.as_mut().filter(|acceptor| acceptor.is_due(now));
            let accepted = acceptor.and_then(|acceptor| acceptor.accept(now, &mut self.log_rate));
            let Some((mut stream, address)) = accepted else { return };
            if !self.has_room_for_stranger(address.ip(), now) {
                if let Some(unsaid) = self.log_rate.ask("strangers", now) {
                    let limit = self.limits.strangers;
                    warn!(%address, unsaid, "closed a connection: {limit} others have just come as well");
                }
                continue;
            }
            let index = self.inbound.vacant_key();
            let token = Token(self.tokens.inbound + index);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = socket::tune(&stream, self.limits.silence)
                .and_then(|()| self.registry.register(&mut stream, token, interest))
            {
                if let Some(unsaid) = self.log_rate.ask("register", now) {
                    warn!(%address, unsaid, "closed a connection: {error}");
                }
                continue;
            }
            self.strangers += 1;
            let stream = match &self.tls {
                Some(tls) => tls.accept_peer(stream),
                None => stream.into(),
            };
            self.inbound.insert(Inbound::new(stream, address, now + self.limits.handshake));
        }
    }

    fn mark_dirty(&mut self, index: usize) {
        let inbound = &mut self.inbound[index];
        if !inbound.dirty {
            inbound.dirty = true;
            self.to_write.push(index);
        }
    }

    /// Closes an incoming connection.
    fn over(&mut self, index: usize, why: Option<String>, now: Time) {
        let mut inbound = self.inbound.remove(index);
        self.claimants.remove(&index);
        self.learning.remove(&index);
        match inbound.peer() {
            Some(peer) => {
                self.known.remove(&peer);
                if node_of(peer).is_none() {
                    self.proxies -= 1;
                }
                let why = why.unwrap_or_else(|| "it closed the connection".to_owned());
                if let Some(node) = node_of(peer).filter(|_| self.identity.is_standalone()) {
                    self.with_link(node, now, |link, context| link.on_end(&why, context));
                } else if let Some(node) = node_of(peer) {
                    info!(address = %inbound.address, "{} has disconnected: {why}", name(peer));
                    if !self.is_wanted(node) {
                        self.links.remove(&node);
                    }
                }
            }
            None => {
                self.strangers -= 1;
                // A refusal of another version's greeting may wait.
                inbound.flush(&self.metrics);
                if let Some(why) = why
                    && let Some(unsaid) = self.log_rate.ask(&format!("{} {why}", inbound.address.ip()), now)
                {
                    warn!(address = %inbound.address, unsaid, "closed a connection from a peer: {why}");
                }
            }
        }
    }
}
