//! The event loop: one thread that steps a node's machines and owns its sockets.
//!
//! A turn reads every socket that has something, steps the machines through all of it, lets messages go whose records
//! are durable, ends the batch, hands one batch of records to the log, and writes every socket once. A hop between
//! threads costs more than all of that per message; the disk is the only thing waited for elsewhere.

mod draining;
mod group;
mod housekeeping;
mod level;

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};
use quorate_blocks::admission::Stage;
use quorate_blocks::reach::{Reach, Timeouts};
use quorate_core::{Diskless, ProcessId, ProxyId, Random, Request, RequestId, Settings, Status, Time};
use quorate_runtime::Effects;
use quorate_tls::Credentials;
use tracing::{error, info};

use crate::clients::{Clients, Door};
use crate::clock::{self, Clock};
use crate::config::{NodeConfig, Place};
use crate::directory::{Directory, Standing};
use crate::drain::Drain;
use crate::error::{Exit, NodeError};
use crate::frontend::{Frontend, NodeView};
use crate::guard::{Entry, Guard};
use crate::journal::Journal;
use crate::limits::{LOCAL_ROUNDS, Limits, READ_AT_ONCE};
use crate::listen::Listeners;
use crate::log_rate::LogRateLimiter;
use crate::logging;
use crate::machines::Machines;
use crate::metrics::Metrics;
use crate::monitor::{self, Monitor, Report, trouble};
use crate::newcomers::Newcomers;
use crate::resources::{Resources, Watermarks};
use crate::service_manager::{self, NotifyState};
use crate::signals::Watch;
use crate::slow::Slow;
use crate::stall::Stalls;
use crate::transport::handshake::{self, Identity};
use crate::transport::{self, Tokens, Transport};
use crate::view::{Constants, View};
use housekeeping::HandOvers;
use level::Levels;

const WAKER: Token = Token(0);
const PEER_LISTENER: Token = Token(1);
const RESP_LISTENER: Token = Token(2);
const ALARM: Token = Token(3);
/// The kind of a socket is in the high half of its token, its place in the low half.
const LINK: usize = 1 << 32;
const INBOUND: usize = 2 << 32;
const CLIENT: usize = 3 << 32;

/// Asks a node to stop, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    asked: Arc<AtomicU32>,
    waker: Arc<Waker>,
}

impl Stopper {
    /// Once: drain, then stop. Twice: stop at once.
    pub fn stop(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Err(source) = self.waker.wake() {
            error!("the event loop cannot be woken: {source}");
        }
    }
}

/// A node that is ready to run: its sockets are bound, nothing is recovered yet.
pub struct Node {
    config: NodeConfig,
    listeners: Listeners,
    poll: Poll,
    stopper: Stopper,
    monitor: Monitor,
    monitor_server: monitor::MonitorServer,
}

impl Node {
    /// Binds the configured addresses.
    pub fn bind(config: NodeConfig) -> Result<Node, NodeError> {
        let listeners = match &config.place {
            Some(place) => Listeners::bind(&place.listen_peer, &config.listen_resp)?,
            None => Listeners::bind_clients(&config.listen_resp)?,
        };
        Node::new(config, listeners)
    }

    /// With sockets that are bound already, whatever the configuration says.
    pub fn new(config: NodeConfig, listeners: Listeners) -> Result<Node, NodeError> {
        let poll = Poll::new().map_err(|source| NodeError::System { what: "an event queue", source })?;
        let waker = Waker::new(poll.registry(), WAKER)
            .map_err(|source| NodeError::System { what: "an event", source })?;
        let waker = Arc::new(waker);
        let (monitor, monitor_server) = monitor::new(waker.clone());
        let stopper = Stopper { asked: Arc::default(), waker };
        Ok(Node { config, listeners, poll, stopper, monitor, monitor_server })
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What it is shown and checked by, if it speaks TLS.
    pub fn credentials(&self) -> Option<Credentials> {
        self.config.credentials()
    }

    /// What asks it, from other threads.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Recovers, then serves until it is stopped or fails.
    pub fn run<F: Frontend>(self, frontend: F) -> Result<Exit, NodeError> {
        let Node { config, listeners, poll, stopper, monitor_server, .. } = self;
        let node = Loop::start(config, listeners, poll, stopper, monitor_server, frontend)?;
        service_manager::tell(NotifyState::Ready);
        node.run()
    }

    /// As [`run`](Self::run), with signals: see [`signals`](crate::signals).
    pub fn run_until_signalled<F: Frontend>(self, frontend: F) -> Result<Exit, NodeError> {
        let _watch = Watch::new(self.stopper(), self.config.reread())
            .map_err(|source| NodeError::System { what: "to watch for signals", source })?;
        self.run(frontend)
    }
}

/// The timeouts in force and where they come from, in words.
fn describe(timeouts: Timeouts, reach: Reach, settings: &Settings) -> String {
    let why = match timeouts {
        Timeouts::Auto => "measured between members",
        Timeouts::Reach(stated) if stated == reach => "stated",
        Timeouts::Reach(_) => "as other members need",
    };
    let value = |(name, _)| Some(format!("{name}={}", settings.effective().get(name)?));
    let values = Reach::LONGEST.timeouts().filter_map(value).collect::<Vec<_>>().join(" ");
    format!("for round trips up to {:?}, {why}: {values}", reach.round_trip())
}

struct Loop<F: Frontend> {
    poll: Poll,
    stopper: Stopper,
    limits: Limits,
    metrics: Rc<Metrics>,
    constants: Constants,
    machines: Machines,
    transport: Transport,
    clients: Clients<F>,
    journal: Journal,
    tls: Option<Credentials>,
    scratch: Vec<u8>,
    ready: Vec<(RequestId, Request)>,
    newcomers: Newcomers,
    monitor_server: monitor::MonitorServer,
    log_rate: LogRateLimiter,
    stalls: Stalls,
    missing: logging::Missing,
    resources: Resources,
    watermarks: Watermarks,
    levels: Levels,
    /// Bytes of the log when the disk was last looked at for its growth, and those that had come in when memory was;
    /// and whether the log had no room then.
    looked_at: [u64; 2],
    short: bool,
    hand_overs: HandOvers,
    housekeeping: Time,
    /// When to say again that the certificate expires.
    certificate_warning: Time,
    shown: Option<Status>,
    standing: Option<Standing>,
    /// The version of the group that was logged last.
    grouped: u64,
    /// Once it is asked to stop.
    drain: Option<Drain>,
}

impl<F: Frontend> Loop<F> {
    fn start(
        config: NodeConfig,
        listeners: Listeners,
        poll: Poll,
        stopper: Stopper,
        monitor_server: monitor::MonitorServer,
        frontend: F,
    ) -> Result<Self, NodeError> {
        let NodeConfig { protocol, configured, members, limits, mut cluster, place, .. } = config;
        let NodeConfig { clock, delays, tls, timeouts, spans, .. } = config;
        let (name, spoken, can) = (protocol.name(), protocol.name_for_peers(), protocol.capabilities());
        let groups = protocol.groups().len();
        let system = |what| move |source| NodeError::System { what, source };
        let seed = || getrandom::u64().map_err(|error| system("random numbers")(io::Error::other(error)));
        let incarnation = seed()?;
        let mut random = Random::new(seed()?);
        let metrics = Rc::new(Metrics::default());
        let started = clock::now();
        let addresses = listeners.peer_address().and_then(|peer| Ok((peer, listeners.resp_address()?)));
        let (peer_address, resp_address) = addresses.map_err(system("a socket's address"))?;
        let named: Vec<_> = members.iter().map(|(node, address)| format!("{node}={address}")).collect();
        let own = |place: &Place| {
            let bound = peer_address.map_or_else(String::new, |address| address.to_string());
            (place.node, members.get(&place.node).cloned().unwrap_or(bound))
        };
        let own = place.as_ref().map(own);
        let site = place.as_ref().and_then(|place| place.site.clone()).unwrap_or_default();
        let address = own.as_ref().map_or_else(String::new, |(_, address)| address.clone());
        let directory_of_data = place.as_ref().map(|place| place.data_dir.clone());
        let watermarks = Watermarks::new(limits.disk_reserve);
        let (directory, clock) = (Directory::new(own, members, groups), Clock::new(clock));
        let mut reach = timeouts.least();
        let settings_in_force = |reach: Reach| {
            let settings = configured[reach.index()].1.effective().iter();
            settings.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        };
        let mut facts = vec![
            ("protocol", name.to_owned()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("resp_address", resp_address.to_string()),
            ("incarnation", format!("{incarnation:016x}")),
            ("process_id", std::process::id().to_string()),
        ];
        let (me, journal, mut machines, levels);
        let mut guard = None;
        match place {
            Some(place) => {
                let opened = Journal::open(
                    (&place, name),
                    limits.unsynced,
                    cluster,
                    stopper.waker.clone(),
                    metrics.clone(),
                    random.fork(),
                )?;
                cluster = opened.cluster;
                let Place { node, data_dir, durability, rejoining, stage, .. } = place;
                let (recovered, restarted) = (opened.saved.records.len(), opened.saved.restarted);
                levels = Levels::new(Some(opened.mark), !restarted && stage == Stage::New);
                if can.diskless != Diskless::All {
                    let members = directory.group().all();
                    let entry = Entry { node, stage, members, groups, incarnation, can, least: reach };
                    guard = Some(Guard::open(opened.disk, entry, &configured, stopper.waker.clone())?);
                }
                reach = guard.as_ref().map_or(reach, Guard::reach);
                let replaces = guard.as_ref().is_some_and(Guard::replaces);
                let configured = rejoining.as_ref().filter(|_| replaces).unwrap_or(&configured);
                let (configured, who) = (&configured[reach.index()].0, (ProxyId::of(node), Some(node)));
                machines = Machines::new(&**configured, who, directory, clock, random.fork());
                machines.hold(opened.saved, String::new())?;
                if guard.as_ref().is_none_or(Guard::may_run) {
                    machines.begin()?;
                }
                journal = opened.journal;
                me = ProcessId::Replica(node);
                let peer_address = peer_address.map_or_else(String::new, |address| address.to_string());
                info!(
                    %node,
                    protocol = name,
                    version = env!("CARGO_PKG_VERSION"),
                    cluster = format!("{cluster:016x}"),
                    members = named.join(","),
                    peer = peer_address,
                    resp = %resp_address,
                    data_dir = %data_dir.display(),
                    %durability,
                    site,
                    settings = settings_in_force(reach),
                    restarted,
                    records = recovered,
                    recovery_ms = clock::now().since(started).as_millis() as u64,
                    "node {node} serves clients on {resp_address} and peers on {peer_address}",
                );
                facts.extend([
                    ("node_id", node.to_string()),
                    ("peer_address", peer_address),
                    ("data_dir", data_dir.display().to_string()),
                    ("durability", durability.to_string()),
                    ("site", site.clone()),
                ]);
            }
            None => {
                // Those up to the highest node's are the nodes' own.
                let id = ProxyId(incarnation | 1 << 63);
                let configured = &configured[reach.index()].0;
                machines = Machines::new(&**configured, (id, None), directory, clock, random.fork());
                journal = Journal::none(metrics.clone(), random.fork())?;
                me = id.into();
                levels = Levels::new(None, false);
                info!(
                    proxy = format!("{:x}", id.0),
                    protocol = name,
                    version = env!("CARGO_PKG_VERSION"),
                    cluster = format!("{cluster:016x}"),
                    members = named.join(","),
                    resp = %resp_address,
                    settings = settings_in_force(reach),
                    "a proxy serves clients on {resp_address}",
                );
            }
        }
        facts.insert(2, ("cluster_id", format!("{cluster:016x}")));
        let timeouts_in_force = describe(timeouts, reach, &configured[reach.index()].1);
        facts.extend([("settings", settings_in_force(reach)), ("timeouts", timeouts_in_force)]);
        // Peers compare what they were given, not what follows from distances.
        let settings = &configured[Reach::SHORTEST.index()].1;
        let slow = Slow::new(limits.slow, metrics.clone()).of_groups(groups);
        let slow = Rc::new(match spans {
            Some(spans) => slow.with_spans(spans, random.fork()),
            None => slow,
        });
        machines.watch(slow.clone());
        let registry = || poll.registry().try_clone().map_err(system("an event queue"));
        let transport = Transport::new(transport::Start {
            me,
            guard,
            measures: timeouts == Timeouts::Auto,
            identity: Identity::new(cluster, (me, &address), incarnation, &spoken, settings).at(&site),
            members: machines.directory.peers(),
            membership: can.membership,
            delays,
            tls: tls.clone(),
            limits: limits.clone(),
            metrics: metrics.clone(),
            registry: registry()?,
            tokens: Tokens { listener: PEER_LISTENER, alarm: ALARM, links: LINK, inbound: INBOUND },
            random: random.fork(),
            waker: stopper.waker.clone(),
            listener: listeners.peer.map(mio::net::TcpListener::from_std),
        })
        .map_err(system("to watch the peers' socket"))?;
        let waker = stopper.waker.clone();
        // Where waking fails, the loop looks within its housekeeping.
        let wake = move || drop(waker.wake());
        let mut clients = Clients::new(
            frontend,
            Door {
                listener: mio::net::TcpListener::from_std(listeners.resp),
                token: RESP_LISTENER,
                tls: tls.clone(),
            },
            CLIENT,
            registry()?,
            limits.clone(),
            metrics.clone(),
        )
        .map_err(system("to watch the clients' socket"))?;
        clients.watch(slow.clone());
        Ok(Loop {
            poll,
            stopper,
            limits,
            constants: Constants::new((protocol, settings), facts, started, metrics.clone(), slow),
            machines,
            transport,
            clients,
            journal,
            tls,
            scratch: vec![0; READ_AT_ONCE],
            ready: Vec::new(),
            newcomers: Newcomers::default(),
            monitor_server,
            log_rate: LogRateLimiter::default(),
            stalls: Stalls::new(metrics.clone(), clock::now()),
            missing: logging::Missing::default(),
            resources: Resources::watch(directory_of_data, wake)
                .map_err(system("a thread that watches the disk"))?,
            watermarks,
            levels,
            looked_at: [0; 2],
            short: false,
            hand_overs: HandOvers::default(),
            housekeeping: Time::ZERO,
            certificate_warning: Time::ZERO,
            shown: None,
            standing: None,
            grouped: 0,
            drain: None,
            metrics,
        })
    }

    fn run(mut self) -> Result<Exit, NodeError> {
        let end = self.serve().inspect_err(|why| error!("stopped: {why}"));
        if matches!(end, Err(NodeError::DiskHangs { .. })) {
            // The threads that write wait for the disk, and whoever joins them would, too.
            std::mem::forget(self);
        }
        end
    }

    fn serve(&mut self) -> Result<Exit, NodeError> {
        self.begin_levels(clock::now())?;
        let mut events = Events::with_capacity(1024);
        let (mut at_rest, mut ended) = (false, clock::now());
        loop {
            let timeout = self.timeout(at_rest);
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(source) if source.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(NodeError::System { what: "to wait for events", source }),
            }
            let began = Stalls::began(ended, timeout, clock::now());
            self.metrics.turns_total.one();
            for event in &events {
                self.on_event(event);
            }
            self.begin_drain_if_asked();
            at_rest = self.turn()?;
            ended = clock::now();
            self.stalls.note(began, ended);
            if let Some(exit) = self.exit(at_rest) {
                return Ok(exit);
            }
        }
    }

    /// How long nothing needs to be done.
    fn timeout(&self, at_rest: bool) -> Option<Duration> {
        let input = self.takes_input() && (self.clients.has_input() || self.transport.has_input());
        if !at_rest || input {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.machines.deadline(),
            self.transport.deadline(),
            self.clients.deadline(),
            Some(self.housekeeping),
            self.drain.as_ref().map(|drain| drain.deadline(clock::now())),
            self.transport.guard().and_then(Guard::bound_until),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.since(clock::now()))
    }

    fn on_event(&mut self, event: &mio::event::Event) {
        let place = event.token().0 & (LINK - 1);
        let closed = event.is_read_closed() || event.is_error();
        let (readable, writable) = (event.is_readable() || closed, event.is_writable() || event.is_error());
        match event.token() {
            WAKER | ALARM => {}
            PEER_LISTENER => self.transport.on_listener(),
            RESP_LISTENER => self.clients.on_listener(),
            Token(token) => match token - place {
                LINK => {
                    let node = u8::try_from(place).expect("links are numbered by node id");
                    self.transport.on_link(node, writable, &mut self.scratch, clock::now());
                }
                INBOUND => self.transport.on_inbound(place, readable, writable, closed),
                CLIENT => self.clients.on_ready(place, readable, writable, closed),
                kind => unreachable!("no socket is registered as {kind:#x}"),
            },
        }
    }

    /// One turn after events were noted. True if nothing is left that no event or deadline will bring up.
    fn turn(&mut self) -> Result<bool, NodeError> {
        let now = clock::now();
        self.transport.tick(now);
        self.look_at_guard(now)?;
        let view = View { machines: &self.machines, constants: &self.constants, transport: &self.transport };
        self.clients.accept(now, &view);
        if self.takes_input() {
            self.read(now);
            self.look_at_guard(now)?;
        }
        self.machines.fire();
        self.look_around(now);
        self.newcomers.settle(&mut self.machines, &self.transport, now);
        let at_rest = self.settle()?;
        self.look_at_growth(now);
        self.follow_group(now);
        self.transport.flush(now);
        self.clients.flush();
        if self.housekeeping <= now {
            self.keep_house(now);
        }
        Ok(at_rest)
    }

    /// Lets the machines do all they can without the disk, and hands what they persist to the log, in one batch as a
    /// rule. False if they have more to do.
    fn settle(&mut self) -> Result<bool, NodeError> {
        for _ in 0..LOCAL_ROUNDS {
            self.machines.release(self.journal.durable()?);
            let at_rest = self.step();
            self.follow_level(clock::now())?;
            let persisted = self.machines.persisted();
            let Effects { records, barriers, .. } = self.machines.effects();
            self.journal.append(records, barriers, persisted);
            self.journal.pass_barriers(|| self.machines.save());
            if !at_rest {
                return Ok(false);
            }
            // With no disk to wait for, what was persisted just now is durable.
            if !self.machines.has_released(self.journal.durable()?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Steps the machines through everything that has been read.
    fn read(&mut self, now: Time) {
        let (machines, metrics) = (&mut self.machines, &self.metrics);
        self.transport.read(&mut self.scratch, now, |frame| {
            match machines.on_message(frame.from, frame.to, frame.payload) {
                Ok(kind) => {
                    metrics.messages_in_total.add(kind, 1);
                    Ok(())
                }
                Err(error) => {
                    Err(format!("a message of {} cannot be read: {error}", handshake::name(frame.from)))
                }
            }
        });
        let view = View { machines: &self.machines, constants: &self.constants, transport: &self.transport };
        self.clients.serve(&mut self.scratch, &view, &mut self.ready);
    }

    /// Brings requests to the proxy, lets the machines come to rest, brings replies to clients and messages to the
    /// transport, and again for what comes of that. False if the machines have more to say to each other.
    fn step(&mut self) -> bool {
        let mut at_rest = false;
        // Outcomes wait for the replica to execute more, which it may just have done.
        while !at_rest || !self.ready.is_empty() || !self.machines.effects().replies.is_empty() {
            if !self.ready.is_empty() {
                self.metrics.requests_total.add(self.ready.len() as u64);
                self.newcomers.hold(&mut self.ready, &self.machines, &mut self.transport);
                self.ask_for_first_level(clock::now());
                self.machines.on_requests(self.ready.drain(..));
            }
            let settled = self.machines.settle();
            let Effects { frames, request_marks, replies, .. } = self.machines.effects();
            frames.drain(..).for_each(|frame| self.transport.send(frame));
            self.clients.on_marks(request_marks);
            let mut replies = std::mem::take(replies);
            self.take_first_level(&mut replies);
            if self.monitor_server.is_reading() && !replies.is_empty() {
                let (machines, transport, full) = (&self.machines, &self.transport, !self.takes_input());
                let why = |group| trouble(machines, transport.reached(), full, group);
                self.monitor_server.sift(&mut replies, why);
            }
            let view =
                View { machines: &self.machines, constants: &self.constants, transport: &self.transport };
            self.clients.deliver(&mut replies, &view, &mut self.ready);
            self.machines.effects().replies = replies;
            if !settled {
                return false;
            }
            let awaited = self.clients.take_awaited();
            awaited.into_iter().for_each(|slot| self.machines.on_awaited(slot));
            at_rest = awaited.is_none();
        }
        true
    }

    /// Answers those who watch.
    fn look_around(&mut self, now: Time) {
        if self.drain.is_some() {
            return self.monitor_server.refuse();
        }
        let view = View { machines: &self.machines, constants: &self.constants, transport: &self.transport };
        let report = || {
            let mut samples = self.metrics.samples();
            samples.extend(self.clients.samples());
            Report {
                samples,
                status: view.status(),
                facts: view.facts(),
                groups: view.group_statuses(),
                members: view.group(),
                contacts: view.contacts(),
                slow: view.slow_requests(monitor::SLOW_REPORTED),
            }
        };
        let access = self.constants.consistency.access_that_misses_nothing();
        self.ready.extend(self.monitor_server.take(report, || self.clients.probes(), access, now));
    }

    /// Whether there is room for what input may cause.
    fn takes_input(&self) -> bool {
        !self.journal.is_full()
    }
}
