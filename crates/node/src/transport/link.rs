//! The way to one member: a connection that this node dials, greets on, sends on, and dials again when it is lost.
//! Nothing but the answer to the greeting comes back on it, and the question whether this node is still there; the
//! member sends on a connection of its own.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use quorate_blocks::admission::Verdict;
use quorate_core::{Class, FeatureLevel, Interface, NodeId, ProcessId, Random, Time};
use quorate_tls::{Credentials, Heard, Socket};
use tracing::{info, warn};

use super::delay::{Delays, EmulatedLink};
use super::echo::{Echo, EchoTimer};
use super::frame::{ALIVE, Encoded, PROBE};
use super::handshake::{self, Answer, Hello, Identity, name, node_of};
use super::queue::{Output, SendQueue, Wrote};
use super::socket::tune;
use crate::clock;
use crate::guard::{Guard, other_reach};
use crate::limits::Limits;
use crate::log_rate::LogRateLimiter;
use crate::metrics::Metrics;

/// A connection that lasted this long starts over with the first wait.
const STABLE: Duration = Duration::from_secs(5);

/// See the file comment.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: NodeId,
    address: String,
    token: Token,
    state: State,
    /// Failures in a row: chooses the wait, and which of several addresses is next.
    failures: u32,
    /// Why there is no connection, as far as it was tried.
    trouble: Option<String>,
    /// When the latest connection ended, or was first wanted.
    lost: Time,
    /// The site that the member named when it answered last.
    site: Bytes,
    /// The last feature level that the build knows which answered last.
    knows: FeatureLevel,
    /// When the member is asked how far away it is.
    echo: EchoTimer,
    log_rate: LogRateLimiter,
}

#[derive(Debug)]
enum State {
    Waiting {
        until: Time,
    },
    Resolving,
    Greeting {
        stream: Socket,
        hello: SendQueue,
        input: BytesMut,
        until: Time,
    },
    /// The member has answered; what it said waits to be durable here.
    Learning {
        stream: Socket,
        input: BytesMut,
        place: Place,
        incarnation: u64,
        after: u64,
        until: Time,
    },
    Up {
        stream: Socket,
        /// Of the process that answered.
        incarnation: u64,
        place: Place,
        /// Not at the socket yet, if there is a delay or a rate.
        emulated: Box<EmulatedLink>,
        output: Output,
        writable: bool,
        since: Time,
    },
    /// A standalone proxy's: the connection is used in both directions, and lies with the incoming ones.
    Lent {
        since: Time,
    },
}

/// Where a member is.
#[derive(Debug)]
struct Place {
    /// The site that the peer names in its greeting.
    site: Bytes,
    /// What the emulated link to it is like.
    link: quorate_core::Link,
}

/// A connection that a standalone proxy has made.
pub(super) struct Dialed {
    pub(super) node: NodeId,
    pub(super) stream: Socket,
    pub(super) incarnation: u64,
    pub(super) knows: FeatureLevel,
    pub(super) input: BytesMut,
}

/// What a link needs from around it.
pub(super) struct LinkContext<'a> {
    pub(super) registry: &'a Registry,
    pub(super) identity: &'a Identity,
    pub(super) guard: &'a mut Option<Guard>,
    pub(super) limits: &'a Limits,
    pub(super) metrics: &'a Metrics,
    pub(super) delays: &'a Delays,
    pub(super) tls: Option<&'a Credentials>,
    pub(super) random: &'a mut Random,
    /// For connections that are used in both directions.
    pub(super) dialed: &'a mut Vec<Dialed>,
    pub(super) now: Time,
}

impl Link {
    pub(super) fn new(node: NodeId, address: String, token: Token) -> Link {
        let (state, echo) = (State::Waiting { until: Time::ZERO }, EchoTimer::default());
        let (log_rate, knows) = (LogRateLimiter::default(), FeatureLevel::FIRST);
        let (failures, trouble, lost, site) = (0, None, clock::now(), Bytes::new());
        Link { node, address, token, state, failures, trouble, lost, site, knows, echo, log_rate }
    }

    /// The last feature level that the member's build knows, if it is connected.
    pub(super) fn knows(&self) -> Option<FeatureLevel> {
        self.is_up().then_some(self.knows)
    }

    /// The group has raised its feature level: a member that does not know it is not spoken with any more.
    pub(super) fn on_level(&mut self, context: &mut LinkContext<'_>) {
        if let State::Learning { .. } | State::Up { .. } | State::Lent { .. } = self.state
            && let Some(why) = context.identity.lacks(self.node.into(), self.knows)
        {
            self.refuse(&why, context);
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. } | State::Lent { .. })
    }

    /// Why the last attempt, or the last connection, came to nothing.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub(super) fn site(&self) -> &[u8] {
        &self.site
    }

    /// Since when there is no connection; `None` while there is one.
    pub(super) fn disconnected(&self) -> Option<Time> {
        (!self.is_up()).then_some(self.lost)
    }

    /// Since when the member, which is connected, has not answered although it was asked.
    pub(super) fn unanswered(&self) -> Option<Time> {
        if self.takes_messages() { self.echo.unanswered() } else { None }
    }

    /// The latest round trip to the member that was measured on this connection.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        if self.takes_messages() { self.echo.took() } else { None }
    }

    /// Why nothing is heard of the member, for people.
    pub(super) fn why_silent(&self) -> String {
        let why = if self.is_up() { "it is connected and does not answer" } else { "it has not answered" };
        self.trouble().filter(|_| !self.is_up()).unwrap_or(why).to_owned()
    }

    /// The connection that was lent has ended.
    pub(super) fn on_end(&mut self, why: &str, context: &mut LinkContext<'_>) {
        if let State::Lent { .. } = self.state {
            self.fail(why, context);
        }
    }

    /// The process at its end is not the one that is known by now: dials again.
    pub(super) fn end(&mut self, why: &str, context: &mut LinkContext<'_>) {
        if self.is_up() {
            self.fail(why, context);
        }
    }

    /// Whether there is a connection that takes messages.
    pub(super) fn takes_messages(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Sends a message on its way. An instant link is none that has to be emulated.
    pub(super) fn put(
        &mut self,
        message: &Encoded,
        (from, to): (ProcessId, ProcessId),
        interface: &Interface,
        random: &mut Random,
    ) {
        let State::Up { place, emulated, output, .. } = &mut self.state else { return };
        // A rate that has just been taken away does not let this message pass those before it.
        if place.link.is_instant() && interface.rate().is_none() && emulated.is_empty() {
            return message.queue(from, to, output);
        }
        emulated.push(message.clone(), (from, to), place.link, clock::now(), random);
    }

    /// What to ask the member, if it is time to measure the round trip to it.
    pub(super) fn ask_for_echo(&mut self, now: Time) -> Option<Echo> {
        if self.takes_messages() { self.echo.ask(now) } else { None }
    }

    /// The member has answered the question of this time: how long that took, if it is the last one.
    pub(super) fn on_echo(&mut self, asked: Time, now: Time) -> Option<Duration> {
        self.echo.on_answer(asked, now)
    }

    /// The rates have changed; the sites have not.
    pub(super) fn on_rates(&mut self, delays: &Delays) {
        if let State::Learning { place, .. } | State::Up { place, .. } = &mut self.state {
            place.link = delays.to(&place.site).expect("the sites are those that they were");
        }
    }

    /// The emulated link, if there is a connection.
    pub(super) fn emulated(&self) -> Option<&EmulatedLink> {
        match &self.state {
            State::Up { emulated, .. } => Some(emulated),
            _ => None,
        }
    }

    /// Sends its next frame over this node's emulated interface.
    pub(super) fn send_frame(&mut self, interface: &mut Interface) {
        if let State::Up { place, emulated, .. } = &mut self.state {
            emulated.send(interface, place.link.rate);
        }
    }

    /// Bytes of a class that wait.
    pub(super) fn waiting(&self, class: Class) -> usize {
        match &self.state {
            State::Up { output, emulated, .. } => output.len(class) + emulated.len(class),
            _ => 0,
        }
    }

    /// Bytes of all classes that wait.
    pub(super) fn total(&self) -> usize {
        Class::ALL.into_iter().map(|class| self.waiting(class)).sum()
    }

    /// When something is due if nothing happens.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Waiting { until } | State::Greeting { until, .. } | State::Learning { until, .. } => {
                Some(until)
            }
            // There is more to be written than one turn may.
            State::Up { ref output, writable: true, .. } if !output.is_empty() => Some(Time::ZERO),
            State::Up { ref emulated, .. } => emulated.arrives(),
            State::Resolving | State::Lent { .. } => None,
        }
    }

    /// Whether it is time to dial; the answer is yes once.
    pub(super) fn wants_dial(&mut self, context: &mut LinkContext<'_>) -> bool {
        match self.state {
            State::Waiting { until } if until <= context.now => {
                self.state = State::Resolving;
                true
            }
            State::Learning { after, .. }
                if context.guard.as_ref().is_none_or(|guard| guard.is_durable(after)) =>
            {
                self.open(context);
                false
            }
            State::Greeting { until, .. } | State::Learning { until, .. } if until <= context.now => {
                let within = context.limits.handshake;
                self.fail(&format!("no answer within {within:?}"), context);
                false
            }
            _ => false,
        }
    }

    /// The member has just introduced itself as a process of this incarnation: a connection to an earlier one is over.
    pub(super) fn expect(&mut self, expected: u64, context: &mut LinkContext<'_>) {
        if let State::Up { incarnation, .. } | State::Learning { incarnation, .. } = self.state
            && incarnation != expected
        {
            self.fail("it has restarted", context);
        }
    }

    /// This node has something new to say of itself: greets again.
    pub(super) fn greet_again(&mut self, now: Time) {
        if let State::Up { .. } = self.state {
            self.lost = now;
            self.state = State::Waiting { until: now };
        }
    }

    /// The member has just been heard of: do not wait any longer.
    pub(super) fn hurry(&mut self, now: Time) {
        if let State::Waiting { until } = &mut self.state {
            *until = now;
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The member has moved, perhaps: the next attempt goes there.
    pub(super) fn move_to(&mut self, address: &str, now: Time) {
        if self.address != address {
            address.clone_into(&mut self.address);
            self.hurry(now);
        }
    }

    /// Connects to one of the addresses, another one after each failure.
    pub(super) fn dial(&mut self, found: io::Result<Vec<SocketAddr>>, context: &mut LinkContext<'_>) {
        if !matches!(self.state, State::Resolving) {
            // It was looked up for an earlier link to that node.
            return;
        }
        let addresses = match found {
            Ok(addresses) if !addresses.is_empty() => addresses,
            Ok(_) => return self.fail("its name has no address", context),
            Err(error) => return self.fail(&format!("its name is not known: {error}"), context),
        };
        let address = addresses[self.failures as usize % addresses.len()];
        let connected = TcpStream::connect(address).and_then(|mut stream| {
            tune(&stream, context.limits.silence)?;
            context.registry.register(&mut stream, self.token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => {
                let stream = match context.tls {
                    Some(tls) => tls.dial(stream, self.node.get()),
                    None => stream.into(),
                };
                let mut bytes = Vec::new();
                let said = context.identity.hello_with(self.node.into(), context.guard.as_ref());
                handshake::put(&said, &mut bytes);
                let mut hello = SendQueue::default();
                hello.push(&Bytes::from(bytes));
                let until = context.now + context.limits.handshake;
                self.state = State::Greeting { stream, hello, input: BytesMut::new(), until };
            }
            Err(error) => self.fail(&error.to_string(), context),
        }
    }

    /// The socket is ready for something.
    pub(super) fn on_ready(&mut self, writable_now: bool, scratch: &mut [u8], context: &mut LinkContext<'_>) {
        match &mut self.state {
            State::Waiting { .. } | State::Resolving | State::Lent { .. } => {}
            State::Greeting { .. } => self.greet(scratch, context),
            State::Learning { stream, input, .. } => match stream.hear(scratch, true) {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Bytes(count) | Heard::Last(count)) if input.len() + count <= handshake::LIMIT => {
                    input.extend_from_slice(&scratch[..count]);
                }
                Ok(Heard::End) => self.fail("it closed the connection", context),
                Ok(_) => self.fail("it spoke on a connection that is ours to speak on", context),
                Err(error) => self.fail(&error.to_string(), context),
            },
            State::Up { stream, writable, output, .. } => {
                *writable |= writable_now;
                if writable_now {
                    // What cannot be sent is noticed when it is read.
                    let _ = stream.flush();
                }
                match stream.hear(scratch, true) {
                    Ok(Heard::Nothing) => {}
                    Ok(Heard::Bytes(count) | Heard::Last(count))
                        if scratch[..count].iter().all(|&byte| byte == PROBE) =>
                    {
                        // What waits there already is an answer, too.
                        if output.is_empty() {
                            output.urgent().copy(&ALIVE);
                        }
                    }
                    Ok(Heard::End) => self.fail("it closed the connection", context),
                    Ok(_) => self.fail("it spoke on a connection that is ours to speak on", context),
                    Err(error) => self.fail(&error.to_string(), context),
                }
            }
        }
    }

    fn greet(&mut self, scratch: &mut [u8], context: &mut LinkContext<'_>) {
        let State::Greeting { stream, hello, input, .. } = &mut self.state else { return };
        match stream.tcp().take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return self.fail(&error.to_string(), context),
        }
        match hello.write_to(stream) {
            Ok(_) => {}
            // Still connecting.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
            Err(error) => return self.fail(&error.to_string(), context),
        }
        loop {
            let shaking = stream.is_handshaking();
            let count = match stream.hear(scratch, true) {
                Ok(Heard::Bytes(count) | Heard::Last(count)) => count,
                // The TLS handshake has ended just now: nothing else will remind of the greeting.
                Ok(Heard::Nothing) if shaking && !stream.is_handshaking() => match hello.write_to(stream) {
                    Ok(_) => continue,
                    Err(error) => return self.fail(&error.to_string(), context),
                },
                Ok(Heard::Nothing) => return,
                Ok(Heard::End) => {
                    return self.fail("it closed the connection unanswered", context);
                }
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
                Err(error) => return self.fail(&error.to_string(), context),
            };
            input.extend_from_slice(&scratch[..count]);
            match handshake::take::<Answer>(input) {
                Ok(None) => {}
                Ok(Some(answer)) => return self.on_answer(answer, context),
                Err(reason) => return self.refuse(&reason, context),
            }
        }
    }

    fn on_answer(&mut self, answer: Answer, context: &mut LinkContext<'_>) {
        let other = match answer {
            Answer::Refused(reason) => {
                return self.refuse(&format!("it refused this node: {}", handshake::text(&reason)), context);
            }
            Answer::Welcome(other) => other,
            Answer::Disowned(other) => return self.on_disowned(&other, context),
        };
        if node_of(other.me) != Some(self.node) {
            return self.refuse(&format!("the address is that of {}", name(other.me)), context);
        }
        if let Some(difference) = context.identity.difference(&other) {
            return self.refuse(&difference, context);
        }
        self.knows = other.knows;
        self.site.clone_from(&other.site);
        let place = match context.delays.to(&other.site) {
            Ok(link) => Place { site: other.site.clone(), link },
            Err(reason) => return self.refuse(&reason, context),
        };
        let after = match (context.guard.as_mut(), &other.disk) {
            (Some(guard), Some(disk)) if ProcessId::from(self.node) == other.me => {
                match guard.hear(self.node, disk) {
                    Verdict::Accept { after } => after,
                    // It refuses this node, too, or does as soon as this node tells what it remembers.
                    Verdict::Refuse(reason) | Verdict::NotYet(reason) => {
                        return self.refuse(&reason.to_string(), context);
                    }
                    // The loop sees to it.
                    Verdict::Stop(reason) => return self.refuse(&reason.to_string(), context),
                    Verdict::OtherReach { mine, theirs } => {
                        return self.fail(&other_reach(mine, theirs), context);
                    }
                }
            }
            (Some(_), _) => return self.refuse("it does not say which data directory it has", context),
            (None, _) => 0,
        };
        let State::Greeting { mut stream, input, .. } =
            std::mem::replace(&mut self.state, State::Waiting { until: context.now })
        else {
            unreachable!("an answer is read only while greeting");
        };
        if context.identity.is_standalone() {
            self.count(context);
            if let Err(error) = context.registry.deregister(stream.tcp_mut()) {
                return self.fail(&error.to_string(), context);
            }
            self.state = State::Lent { since: context.now };
            let Hello { incarnation, knows, .. } = other;
            context.dialed.push(Dialed { node: self.node, stream, incarnation, knows, input });
            return;
        }
        let (incarnation, until) = (other.incarnation, context.now + context.limits.handshake);
        self.state = State::Learning { stream, input, place, incarnation, after, until };
        if context.guard.as_ref().is_none_or(|guard| guard.is_durable(after)) {
            self.open(context);
        }
    }

    /// The two may speak from now on.
    fn open(&mut self, context: &mut LinkContext<'_>) {
        let State::Learning { stream, input, place, incarnation, .. } =
            std::mem::replace(&mut self.state, State::Waiting { until: context.now })
        else {
            unreachable!("it was about to be opened");
        };
        self.count(context);
        let (emulated, mut output, since) = (Box::default(), Output::default(), context.now);
        // Asked before the connection was open.
        if input.contains(&PROBE) {
            output.urgent().copy(&ALIVE);
        }
        self.state = State::Up { stream, incarnation, place, emulated, output, writable: true, since };
        self.echo = EchoTimer::default();
        if let Some(guard) = context.guard {
            guard.on_bound(self.node);
        }
    }

    fn count(&self, context: &LinkContext<'_>) {
        info!(peer = %self.node, address = %self.address, "connected to node {}", self.node);
        context.metrics.peer_connects_total.one();
    }

    /// The member remembers something of this node's data directory that forbids it to take part.
    fn on_disowned(&mut self, other: &Hello, context: &mut LinkContext<'_>) {
        let verdict = match (context.guard.as_mut(), &other.disk) {
            (Some(guard), Some(disk)) if ProcessId::from(self.node) == other.me => {
                guard.hear(self.node, disk)
            }
            _ => return self.refuse("it refused this node's data directory", context),
        };
        let why = match verdict {
            Verdict::OtherReach { mine, theirs } => return self.fail(&other_reach(mine, theirs), context),
            Verdict::Stop(reason) | Verdict::Refuse(reason) | Verdict::NotYet(reason) => reason.to_string(),
            Verdict::Accept { .. } => {
                "it refused this node's data directory, for what it may not know yet".to_owned()
            }
        };
        self.refuse(&why, context);
    }

    /// Writes what waits, as far as the socket takes it.
    pub(super) fn flush(&mut self, context: &mut LinkContext<'_>) {
        let State::Up { stream, emulated, output, writable, .. } = &mut self.state else { return };
        emulated.arrive(context.now, output);
        if !*writable || output.is_empty() {
            return;
        }
        match output.write_to(stream) {
            Ok((wrote, bytes)) => {
                *writable = wrote != Wrote::Some;
                context.metrics.peer_bytes_out_total.add(bytes as u64);
            }
            Err(error) => self.fail(&error.to_string(), context),
        }
    }

    fn refuse(&mut self, reason: &str, context: &mut LinkContext<'_>) {
        self.wait(reason, context.limits.redial_refused, context);
    }

    /// The connection is lost or was none: wait longer each time, then try again.
    fn fail(&mut self, why: &str, context: &mut LinkContext<'_>) {
        if let State::Up { since, .. } | State::Lent { since } = self.state
            && context.now.since(since) >= STABLE
        {
            self.failures = 0;
        }
        let Range { start, end } = context.limits.redial;
        self.wait(why, start.saturating_mul(1 << self.failures.min(10)).min(end), context);
    }

    fn wait(&mut self, why: &str, wait: Duration, context: &mut LinkContext<'_>) {
        if self.is_up() {
            self.lost = context.now;
            context.metrics.peer_disconnects_total.one();
            warn!(peer = %self.node, address = %self.address, "lost the connection to node {}: {why}", self.node);
        } else if let Some(unsaid) = self.log_rate.ask(why, context.now) {
            warn!(
                peer = %self.node, address = %self.address, unsaid,
                "no connection to node {}: {why}; trying again", self.node
            );
        }
        self.trouble = Some(why.to_owned());
        self.failures = self.failures.saturating_add(1);
        // Spread, so that nodes that failed together do not return together.
        self.state = State::Waiting { until: context.now + context.random.between(wait / 2, wait) };
    }
}
