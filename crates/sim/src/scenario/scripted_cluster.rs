//! The cluster that a scenario drives.
// tidy: long because each verb of a scenario is a few lines on the same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Diskless, FeatureLevel, Group, Instant, Managed, NodeId, NodeSet, Outcome, Payload,
    ProcessId, ProxyId, Random, Request, RequestId, Saved, Settings, Shortage, Time, Wall, Wire,
};
use quorate_runtime::{
    AnyProtocol, ConfiguredProtocol, Effects, GroupProcess, Input, OutgoingFrame, OwnMessages, RecordLedger,
    Start,
};
use quorate_store::{Command, Expiry, Permissions, Reply, Single, UserRule};

use super::transcript::Transcript;
use super::words::{self, Knowledge, node, put, text};

/// Where the clocks of a scenario start.
const START: Duration = Duration::from_secs(1);
/// How long clients of a scenario wait.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Rounds after which `settle` gives up.
const ROUNDS: usize = 1000;

/// One node: its process while it lives, and its disk.
struct Node {
    process: Option<Box<dyn GroupProcess>>,
    /// What a crash leaves, apart from `records`.
    saved: Saved<Bytes>,
    /// Records since, and how many of them are durable.
    records: Vec<Bytes>,
    durable: usize,
    /// How many records of this life the log had that are not in `records` any more.
    cut: u64,
    manual: bool,
    /// Whether what it takes is one batch, which has not ended yet.
    gathers: bool,
    ledger: RecordLedger,
    /// What it knows of true time.
    clock: Option<Knowledge>,
    /// How far its wall clock is ahead of the others, in milliseconds.
    wall: i64,
    lives: u64,
    /// The last slot that its proxy's clients were told of.
    seen: u64,
    /// Which of its proxy's clients asks.
    stream: u64,
    /// Its disk was lost: it rejoins. How many lives it had before.
    replaced: Option<u64>,
}

#[derive(Clone)]
struct Flight {
    from: ProcessId,
    to: ProcessId,
    kind: &'static str,
    payload: Bytes,
}

pub(super) struct ScriptedCluster {
    protocol: &'static dyn AnyProtocol,
    configs: Arc<dyn ConfiguredProtocol>,
    /// Of nodes that are not in the group as it is set up.
    joining: Arc<dyn ConfiguredProtocol>,
    /// Of members whose disk was lost, where the protocol lets them come back.
    rejoining: Option<Arc<dyn ConfiguredProtocol>>,
    members: NodeSet,
    nodes: BTreeMap<NodeId, Node>,
    flights: Vec<Flight>,
    cuts: Vec<(NodeId, NodeId)>,
    now: Time,
    asked: u64,
    /// How long clients wait for the answers to what they ask.
    patience: Duration,
    /// Operators' requests.
    orders: BTreeSet<RequestId>,
    /// Whether facts are shown.
    facts: bool,
    transcript: Transcript,
}

type Played = Result<Vec<String>, String>;

impl ScriptedCluster {
    /// `N [diskless] [key=value …]`, or `N+M [diskless] [key=value …]`.
    pub fn open(protocol: &'static dyn AnyProtocol, words: &[&str]) -> Result<(Self, Vec<String>), String> {
        let (count, settings) = words.split_first().ok_or("nodes: how many?")?;
        let (members, all) = words::nodes(count)?;
        let (diskless, settings) = match settings {
            ["diskless", settings @ ..] => (true, settings),
            settings => (false, settings),
        };
        if diskless && protocol.capabilities().diskless != Diskless::Data {
            return Err(format!("{} keeps its data on disks", protocol.name()));
        }
        let group = Group { diskless, ..Group::of(members) };
        let configure = |group: &Group| {
            let mut settings = Settings::parse(settings)?;
            let configs = protocol.configure(group, &mut settings)?;
            settings.finish().map(|()| configs)
        };
        let configs = configure(&group).map_err(|error| error.to_string())?;
        let joining = Group { joining: true, ..group.clone() };
        let joining = configure(&joining).map_err(|error| error.to_string())?;
        let rejoining = configure(&Group { rejoining: true, ..group }).ok();
        let node = |id: NodeId| {
            let node = Node {
                process: None,
                saved: Saved::nothing(),
                records: Vec::new(),
                durable: 0,
                cut: 0,
                manual: false,
                gathers: false,
                ledger: RecordLedger::default(),
                clock: Some(Knowledge::EXACT),
                wall: 0,
                lives: 0,
                seen: 0,
                stream: 1,
                replaced: None,
            };
            (id, node)
        };
        let mut cluster = ScriptedCluster {
            protocol,
            configs,
            joining,
            rejoining: rejoining.filter(|_| protocol.capabilities().rejoin),
            members,
            nodes: all.iter().map(node).collect(),
            flights: Vec::new(),
            cuts: Vec::new(),
            now: Time::ZERO + START,
            asked: 0,
            patience: PATIENCE,
            orders: BTreeSet::new(),
            facts: false,
            transcript: Transcript::default(),
        };
        for id in all.iter() {
            cluster.start(id);
        }
        let lines = cluster.transcript.take();
        Ok((cluster, lines))
    }

    /// Carries out a command.
    pub fn play(&mut self, words: &[&str]) -> Played {
        match words {
            ["put", proxy, key, value] => self.ask(proxy, put(key, value, Expiry::Never))?,
            ["putex", proxy, key, value, millis] => {
                let millis = words::millis(millis)?;
                self.ask(proxy, put(key, value, Expiry::In(millis)))?;
            }
            ["get", proxy, key] => self.ask(proxy, Command::Get { key: text(key) })?,
            ["get", proxy, key, "within", most] => {
                let most = most.parse().map_err(|error: String| format!("{most}: {error}"))?;
                self.request(proxy, Access::Within(most), Command::Get { key: text(key) }.to_bytes())?;
            }
            ["stream", proxy, number] => {
                let number =
                    number.parse().map_err(|_| format!("`{number}`: write the number of a client"))?;
                self.node(words::proxy(proxy)?)?.stream = number;
            }
            ["patience", duration] => self.patience = words::duration(duration)?,
            ["del", proxy, key] => self.ask(proxy, Command::Delete { keys: vec![text(key)] })?,
            ["limit", proxy, bytes] => {
                let bytes = bytes.parse().map_err(|_| format!("`{bytes}`: write a number of bytes"))?;
                self.ask(proxy, Command::LimitData { bytes: Some(bytes) })?;
            }
            ["mget", proxy, keys @ ..] => {
                let keys = keys.iter().map(|key| text(key)).collect();
                self.ask(proxy, Command::GetMany { keys })?;
            }
            ["user", proxy, name] => {
                self.ask(proxy, Command::SetUsers { users: vec![(text(name), Vec::new())], if_none: false })?;
            }
            ["selector", proxy, name] => {
                let rules = vec![UserRule::AddSelector(Permissions::default())];
                self.ask(proxy, Command::SetUsers { users: vec![(text(name), rules)], if_none: false })?;
            }
            ["raise", proxy, level] => {
                let to = level.parse().ok().and_then(FeatureLevel::new);
                let to = to.ok_or_else(|| format!("`{level}`: write a number from 1 on"))?;
                self.ask(proxy, Command::RaiseLevel { to, if_new: false })?;
            }
            ["users", proxy] => self.ask(proxy, Command::UserChanges)?,
            ["multi", proxy, read, key, value] => {
                let commands =
                    [Command::Get { key: text(read) }, put(key, value, Expiry::Never)].map(Single).into();
                self.ask(proxy, Command::Batch { watched: Vec::new(), commands })?;
            }
            ["mput", proxy, pairs @ ..] if pairs.len().is_multiple_of(2) => {
                let pairs = pairs.chunks(2).map(|pair| (text(pair[0]), text(pair[1]))).collect();
                self.ask(proxy, Command::PutMany { pairs, if_none: false })?;
            }
            ["manage", proxy, words @ ..] => {
                let manage = words::manage(words)?;
                self.request(proxy, Access::Manage, manage.to_bytes())?;
                self.orders.insert(RequestId(self.asked));
            }
            ["clock", name, "none"] => self.node(node(name)?)?.clock = None,
            ["clock", name, words @ ..] => {
                let known = Knowledge::parse(words)?;
                self.node(node(name)?)?.clock = Some(known);
            }
            ["wall", name, offset] => self.node(node(name)?)?.wall = words::offset(offset)?,
            ["facts", how @ ("on" | "off")] => self.facts = *how == "on",
            ["fields", how @ ("on" | "off")] => self.transcript.fields = *how == "on",
            ["incr", proxy, key] => self.ask(proxy, Command::Increment { key: text(key), by: 1 })?,
            ["deliver", filter @ ..] => {
                for flight in self.take(filter)? {
                    self.arrive(flight);
                }
            }
            ["drop", filter @ ..] => {
                for Flight { from, to, kind, .. } in self.take(filter)? {
                    self.transcript.line(format!("{from} -x {to} {kind}"));
                }
            }
            ["duplicate", filter @ ..] => {
                for flight in self.take(filter)? {
                    self.flights.extend([flight.clone(), flight]);
                }
            }
            ["settle"] => {
                for _ in 0..ROUNDS {
                    for flight in std::mem::take(&mut self.flights) {
                        self.arrive(flight);
                    }
                    if self.flights.is_empty() {
                        break;
                    }
                }
                if !self.flights.is_empty() {
                    return Err(format!("messages are still in flight after {ROUNDS} rounds"));
                }
            }
            ["cut", one, other] => self.cuts.push((node(one)?, node(other)?)),
            ["mend"] => self.cuts.clear(),
            ["fire", process, timer] => self.fire(process, timer)?,
            ["tick", duration] => {
                let duration = words::duration(duration)?;
                self.tick(duration);
            }
            ["disk", name, how @ ("manual" | "auto")] => {
                let id = node(name)?;
                self.node(id)?.manual = *how == "manual";
                self.sync_if_auto(id);
            }
            [what @ ("disk" | "memory"), name, how @ ("full" | "free")] => {
                let shortage = if *what == "disk" { Shortage::Disk } else { Shortage::Memory };
                if let Some(process) = &mut self.node(node(name)?)?.process {
                    process.set_shortage((*how == "full").then_some(shortage));
                }
            }
            ["batch", name, "begin"] => self.node(node(name)?)?.gathers = true,
            ["batch", name, "end"] => {
                let id = node(name)?;
                self.node(id)?.gathers = false;
                self.finish(id);
            }
            ["sync", name] => {
                let id = node(name)?;
                let all = self.node(id)?.records.len();
                self.node(id)?.durable = all;
                self.release(id);
            }
            ["checkpoint", name] => self.checkpoint(node(name)?)?,
            ["crash", name] => self.crash(node(name)?)?,
            ["drain", name] => self.happen(node(name)?, Input::Drain)?,
            ["await", name, slot] => {
                let slot = slot.parse().map_err(|_| format!("`{slot}`: write a number of a slot"))?;
                self.happen(node(name)?, Input::Awaited(slot))?;
            }
            ["restart", name] => {
                let id = node(name)?;
                if self.node(id)?.process.is_some() {
                    return Err(format!("{name} is alive"));
                }
                self.start(id);
            }
            ["replace", name] => self.replace(node(name)?)?,
            ["status"] => self.status(),
            _ => return Err(format!("`{}` is no command, or lacks something", words.join(" "))),
        }
        Ok(self.transcript.take())
    }

    /// `40 tick 50ms, settle`.
    pub fn repeat(&mut self, words: &[&str]) -> Played {
        let (count, commands) = words.split_first().ok_or("repeat: how often, and what?")?;
        let count: u32 =
            count.parse().map_err(|_| format!("`{count}`: write repeat 40 tick 50ms, settle"))?;
        let commands = commands.join(" ");
        let commands: Vec<Vec<_>> = commands.split(',').map(|one| one.split_whitespace().collect()).collect();
        let mut answers = Vec::new();
        for words in (0..count).flat_map(|_| &commands) {
            let lines = self.play(words)?;
            answers.extend(lines.into_iter().filter(|line| line.starts_with('p') && line.contains(" #")));
        }
        Ok(answers)
    }

    fn node(&mut self, id: NodeId) -> Result<&mut Node, String> {
        self.nodes.get_mut(&id).ok_or_else(|| format!("there is no r{id}"))
    }

    fn instant(&self, id: NodeId) -> Instant {
        let nanos = self.now.nanos();
        let node = self.nodes.get(&id);
        let known = node.and_then(|node| node.clock);
        let ahead = node.map_or(0, |node| node.wall);
        Instant {
            now: self.now,
            wall: Wall::from_millis((nanos / 1_000_000).saturating_add_signed(ahead)),
            clock: known.map(|known| known.interval(nanos)),
        }
    }

    fn start(&mut self, id: NodeId) {
        let at = self.instant(id);
        let node = self.nodes.get_mut(&id).expect("a known node");
        let configs = match &self.rejoining {
            Some(rejoining) if node.replaced.is_some() => rejoining,
            _ if self.members.contains(id) => &self.configs,
            _ => &self.joining,
        };
        node.lives += 1;
        node.cut = 0;
        node.ledger = RecordLedger::default();
        let seed = u64::from(id.get()) << 32 | node.lives;
        let saved = Saved {
            restarted: node.lives > 1 + node.replaced.unwrap_or(0),
            snapshot: node.saved.snapshot.clone(),
            records: [&node.saved.records[..], &node.records[..]].concat(),
        };
        node.saved.records = saved.records.clone();
        node.records.clear();
        node.durable = 0;
        let (proxy, random) = (ProxyId::of(id), Random::new(!seed));
        let own = OwnMessages::AsFrames;
        let process = configs.start(Start { proxy, node: Some(id), at, random, observed: true, own });
        let mut process = process.into_one_group().expect("scripts are of one group");
        process.load(saved).expect("a record that was written can be read");
        process.start_replica(at, Random::new(seed));
        node.process = Some(process);
        self.finish(id);
    }

    fn crash(&mut self, id: NodeId) -> Result<(), String> {
        let node = self.node(id)?;
        if node.process.take().is_none() {
            return Err(format!("r{id} is down"));
        }
        node.gathers = false;
        node.records.truncate(node.durable);
        Ok(())
    }

    fn happen(&mut self, id: NodeId, input: Input) -> Result<(), String> {
        let at = self.instant(id);
        let process = self.node(id)?.process.as_mut().ok_or_else(|| format!("r{id} is down"))?;
        process.take(input).expect("it is no frame");
        process.step(at);
        self.finish(id);
        Ok(())
    }

    /// The disk of a node is lost, and it starts with an empty one. The others have seen to it that nothing which its
    /// previous life has sent arrives.
    fn replace(&mut self, id: NodeId) -> Result<(), String> {
        if self.rejoining.is_none() {
            return Err(format!(
                "a member of {} that lost its disk cannot rejoin this group",
                self.protocol.name()
            ));
        }
        if self.node(id)?.process.is_some() {
            self.crash(id)?;
        }
        let node = self.node(id)?;
        (node.saved, node.records, node.durable) = (Saved::nothing(), Vec::new(), 0);
        node.replaced = Some(node.lives);
        self.flights.retain(|flight| home(flight.from) != Some(id));
        self.start(id);
        Ok(())
    }

    fn checkpoint(&mut self, id: NodeId) -> Result<(), String> {
        let node = self.node(id)?;
        let process = node.process.as_ref().ok_or_else(|| format!("r{id} is down"))?;
        let Saved { restarted, snapshot, records } = process.save().expect("a node");
        let records = records.into_iter().map(Payload::into_bytes).collect();
        node.cut += node.records.len() as u64;
        node.saved = Saved { restarted, snapshot, records };
        node.ledger.begin_state();
        node.records = node.ledger.end_state(true).into_iter().map(Payload::into_bytes).collect();
        node.durable = 0;
        self.release(id);
        Ok(())
    }

    fn ask(&mut self, proxy: &str, command: Command) -> Result<(), String> {
        self.request(proxy, command.access(), command.to_bytes())
    }

    fn request(&mut self, proxy: &str, access: Access, command: Bytes) -> Result<(), String> {
        let id = words::proxy(proxy)?;
        self.asked += 1;
        let (at, number) = (self.instant(id), RequestId(self.asked));
        let deadline = at.now + self.patience;
        let node = self.node(id)?;
        let (stream, after) = (node.stream, node.seen);
        let request = Request { stream, access, command, deadline, after };
        let process = node.process.as_mut().ok_or_else(|| format!("p{id} is down"))?;
        process.take(Input::Request(number, request)).expect("a request is no frame");
        process.step(at);
        self.finish(id);
        Ok(())
    }

    /// Takes what is in flight and matches `[FROM>TO] [KIND]`.
    fn take(&mut self, filter: &[&str]) -> Result<Vec<Flight>, String> {
        let (mut route, mut kind) = (None, None);
        for word in filter {
            match word.split_once('>') {
                Some((from, to)) if route.is_none() => route = Some((from, to)),
                None if kind.is_none() => kind = Some(*word),
                _ => return Err(format!("`{word}`: write [FROM>TO] [KIND]")),
            }
        }
        let is = |pattern: &str, process: ProcessId| pattern == "*" || pattern == process.to_string();
        let (taken, left) = std::mem::take(&mut self.flights).into_iter().partition(|flight| {
            route.is_none_or(|(from, to)| is(from, flight.from) && is(to, flight.to))
                && kind.is_none_or(|kind| kind == flight.kind)
        });
        self.flights = left;
        let taken: Vec<_> = taken;
        match taken.is_empty() && !filter.is_empty() {
            true => Err(format!("nothing in flight matches `{}`", filter.join(" "))),
            false => Ok(taken),
        }
    }

    fn arrive(&mut self, Flight { from, to, kind, payload }: Flight) {
        let (from_node, to_node) = (home(from), home(to));
        let cut = self.cuts.iter().any(|&(a, b)| {
            (Some(a), Some(b)) == (from_node, to_node) || (Some(b), Some(a)) == (from_node, to_node)
        });
        let target = to_node.filter(|_| !cut).map(|id| (id, self.instant(id)));
        let target = target.and_then(|(id, at)| Some((id, at, self.nodes.get_mut(&id)?)));
        let Some((id, at, Node { process: Some(process), .. })) = target else {
            self.transcript.line(format!("{from} -x {to} {kind}"));
            return;
        };
        process.take(Input::Frame { from, to, payload }).expect("a message that was sent can be read");
        let taken = if self.transcript.fields { process.describe_taken() } else { kind.to_owned() };
        self.transcript.arrival(to, from, taken);
        process.step(at);
        self.finish(id);
    }

    fn fire(&mut self, process: &str, timer: &str) -> Result<(), String> {
        let (id, is_proxy) = match process.strip_prefix('p') {
            Some(id) => (node(&format!("r{id}"))?, true),
            None => (node(process)?, false),
        };
        let who = if is_proxy { ProxyId::of(id).into() } else { ProcessId::from(id) };
        let process = self.node(id)?.process.as_mut().ok_or_else(|| format!("r{id} is down"))?;
        let set = process.timers(who);
        let named = set.iter().enumerate().filter(|(_, set)| set.name.starts_with(timer));
        let Some((due, place)) = named.map(|(place, set)| (set.at, place)).min() else {
            let set: Vec<_> = set.into_iter().map(|set| set.name).collect();
            return Err(format!("{who} has no timer {timer}; set are: {}", set.join(", ")));
        };
        process.take_timer(who, place);
        self.now = self.now.max(due);
        let at = self.instant(id);
        let process = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()).expect("it was up");
        process.step(at);
        self.finish(id);
        Ok(())
    }

    fn tick(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let due = self.nodes.iter();
            let due = due.filter_map(|(id, node)| Some((node.process.as_ref()?.deadline()?, *id)));
            let Some((at, id)) = due.min().filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            let at = self.instant(id);
            let node = self.nodes.get_mut(&id).expect("it is due");
            if let Some(process) = &mut node.process
                && let Some(taken) = process.take_due_timer(at.now)
            {
                self.transcript.input(taken.to, format!("{} timer {}", taken.to, process.describe_taken()));
                process.step(at);
            }
            self.finish(id);
        }
        self.now = end;
    }

    fn status(&mut self) {
        for (id, node) in &self.nodes {
            let at = self.instant(*id);
            self.transcript.line(match node.process.as_ref().and_then(|process| process.status(at)) {
                None => format!("r{id} down"),
                Some(status) => {
                    let leader = status.leader.map_or("-".to_owned(), |leader| format!("r{leader}"));
                    format!(
                        "r{id} {} leader {leader} ballot {} committed {} applied {}{}",
                        status.role,
                        status.ballot,
                        status.committed,
                        status.applied,
                        if status.lease { " lease" } else { "" }
                    )
                }
            });
        }
    }

    /// Ends the batch of a node, and lets out what came of it; while it gathers more, neither.
    fn finish(&mut self, id: NodeId) {
        let at = self.instant(id);
        let node = self.nodes.get_mut(&id).expect("a known node");
        let Some(process) = node.process.as_mut().filter(|_| !node.gathers) else { return };
        process.end_batch(at);
        let Effects { facts, members, barriers, replies, records, .. } = std::mem::take(process.effects());
        let (me, proxy) = (ProcessId::from(id), ProcessId::from(ProxyId::of(id)));
        for (_, fact) in facts.into_iter().filter(|_| self.facts) {
            self.transcript.line(format!("{me} fact {fact:?}"));
        }
        // Everybody reaches everybody.
        drop(members);
        for Answered { request: number, outcome, slot } in replies {
            node.seen = slot.max(node.seen);
            let reply = match outcome {
                Outcome::Done(bytes) if self.orders.remove(&number) => shown(Managed::from_bytes(bytes)),
                Outcome::Done(bytes) => shown(Reply::from_bytes(bytes)),
                Outcome::Failed(failure) => format!("{failure:?}"),
            };
            self.transcript.line(format!("{proxy} #{} = {reply}", number.0));
        }
        for record in &records {
            let described = process.describe_record(record);
            let kind = described.split([' ', '(']).next().unwrap_or_default();
            self.transcript.effect(me, "persist", kind, || described.clone());
        }
        let records = node.ledger.append(records, barriers);
        node.records.extend(records.into_iter().map(Payload::into_bytes));
        if node.ledger.needs_state() && !node.manual {
            self.checkpoint(id).expect("it is up");
        }
        self.sync_if_auto(id);
        self.release(id);
    }

    fn sync_if_auto(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a known node");
        if !node.manual {
            node.durable = node.records.len();
        }
        self.release(id);
    }

    /// Lets out the messages that wait for nothing (any more).
    fn release(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).expect("a known node");
        let durable = node.ledger.durable(node.cut + node.durable as u64);
        let Some(process) = &mut node.process else { return };
        process.release(durable);
        for OutgoingFrame { from, to, kind, payload, .. } in std::mem::take(&mut process.effects().frames) {
            let payload = payload.into_bytes();
            let names: Vec<_> = to.iter().map(|process| process.to_string()).collect();
            let verb = format!("-> {}", names.join(","));
            self.transcript.effect(from, &verb, kind, || process.describe_message(&payload));
            self.flights.extend(to.iter().map(|to| Flight { from, to, kind, payload: payload.clone() }));
        }
    }
}

/// The node in which a process lives.
fn home(process: ProcessId) -> Option<NodeId> {
    match process {
        ProcessId::Replica(node) => Some(node),
        ProcessId::Proxy(proxy) => proxy.host(),
    }
}

fn shown<T: Debug, E: ToString>(reply: Result<T, E>) -> String {
    match reply {
        Ok(reply) => format!("{reply:?}"),
        Err(error) => error.to_string(),
    }
}
