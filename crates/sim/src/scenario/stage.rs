//! The cluster that a scenario drives.
// tidy: long because each verb of a scenario is a few lines on the same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Configs, Group, Instant, Machine, Managed, Message, NodeId, NodeSet, Outcome, Outgoing,
    ProcessId, Protocol, Proxy, ProxyId, Recipients, Replica, Request, RequestId, Saved, Settings, Time,
    Wall, Wire,
};
use quorate_store::{Command, Expiry, Reply, Single};

use super::words::{self, Knowledge, node, put, text};
use crate::host::Running;

/// Where the clocks of a scenario start.
const START: Duration = Duration::from_secs(1);
/// How long clients of a scenario wait.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Rounds after which `settle` gives up.
const ROUNDS: usize = 1000;

/// One node: its processes while they live, and its disk.
struct Node<P: Protocol> {
    replica: Option<Running<P::Replica>>,
    proxy: Option<Running<P::Proxy>>,
    /// What a crash leaves, apart from `records`.
    saved: Saved<Record<P>>,
    /// Records since, and how many of them are durable.
    records: Vec<Record<P>>,
    durable: usize,
    /// How many records of this life are not in `records` any more.
    cut: u64,
    manual: bool,
    /// The first record of this life, counted from 1, that stands for a state which is not saved.
    held: Option<u64>,
    /// What it knows of true time.
    clock: Option<Knowledge>,
    /// How far its wall clock is ahead of the others, in milliseconds.
    wall: i64,
    /// Messages that wait for the disk.
    waiting: Vec<Outgoing<P::Message>>,
    lives: u64,
    /// Its disk was lost: it rejoins. How many lives it had before.
    replaced: Option<u64>,
}

type Record<P> = <<P as Protocol>::Replica as Machine>::Record;

struct Flight<M> {
    from: ProcessId,
    to: ProcessId,
    message: M,
}

pub(super) struct Stage<P: Protocol> {
    configs: Configs<P>,
    /// Of nodes that are not in the group as it is set up.
    joining: Configs<P>,
    /// Of members whose disk was lost, where the protocol lets them come back.
    rejoining: Option<Configs<P>>,
    members: NodeSet,
    nodes: BTreeMap<NodeId, Node<P>>,
    flights: Vec<Flight<P::Message>>,
    cuts: Vec<(NodeId, NodeId)>,
    now: Time,
    asked: u64,
    /// Operators' requests.
    orders: BTreeSet<RequestId>,
    /// Whether facts are shown.
    facts: bool,
    lines: Vec<String>,
}

type Played = Result<Vec<String>, String>;

impl<P: Protocol> Stage<P> {
    /// `N [key=value …]`, or `N+M [key=value …]`.
    pub fn open(words: &[&str]) -> Result<(Self, Vec<String>), String> {
        let (count, settings) = words.split_first().ok_or("nodes: how many?")?;
        let (members, all) = words::nodes(count)?;
        let group = Group::of(members);
        let configure = |group: &Group| {
            let mut settings = Settings::parse(settings)?;
            let configs = P::configure(group, &mut settings)?;
            settings.finish().map(|()| configs)
        };
        let configs = configure(&group).map_err(|error| error.to_string())?;
        let joining = Group { joining: true, ..group.clone() };
        let joining = configure(&joining).map_err(|error| error.to_string())?;
        let rejoining = configure(&Group { rejoining: true, ..group }).ok();
        let node = |id: NodeId| {
            let node = Node {
                replica: None,
                proxy: None,
                saved: Saved::nothing(),
                records: Vec::new(),
                durable: 0,
                cut: 0,
                manual: false,
                held: None,
                clock: Some(Knowledge::EXACT),
                wall: 0,
                waiting: Vec::new(),
                lives: 0,
                replaced: None,
            };
            (id, node)
        };
        let mut stage = Stage {
            configs,
            joining,
            rejoining: rejoining.filter(|_| P::CAPABILITIES.rejoin),
            members,
            nodes: all.iter().map(node).collect(),
            flights: Vec::new(),
            cuts: Vec::new(),
            now: Time::ZERO + START,
            asked: 0,
            orders: BTreeSet::new(),
            facts: false,
            lines: Vec::new(),
        };
        for id in all.iter() {
            stage.start(id);
        }
        let lines = std::mem::take(&mut stage.lines);
        Ok((stage, lines))
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
            ["del", proxy, key] => self.ask(proxy, Command::Delete { keys: vec![text(key)] })?,
            ["mget", proxy, keys @ ..] => {
                let keys = keys.iter().map(|key| text(key)).collect();
                self.ask(proxy, Command::GetMany { keys })?;
            }
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
            ["incr", proxy, key] => self.ask(proxy, Command::Increment { key: text(key), by: 1 })?,
            ["deliver", filter @ ..] => {
                for flight in self.take(filter)? {
                    self.arrive(flight);
                }
            }
            ["drop", filter @ ..] => {
                for Flight { from, to, message } in self.take(filter)? {
                    self.lines.push(format!("{from} -x {to} {}", message.kind()));
                }
            }
            ["duplicate", filter @ ..] => {
                for Flight { from, to, message } in self.take(filter)? {
                    self.flights.push(Flight { from, to, message: message.clone() });
                    self.flights.push(Flight { from, to, message });
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
            ["sync", name] => {
                let id = node(name)?;
                let all = self.node(id)?.records.len();
                self.node(id)?.durable = all;
                self.release(id);
            }
            ["checkpoint", name] => self.checkpoint(node(name)?)?,
            ["crash", name] => self.crash(node(name)?)?,
            ["restart", name] => {
                let id = node(name)?;
                if self.node(id)?.replica.is_some() {
                    return Err(format!("{name} is alive"));
                }
                self.start(id);
            }
            ["replace", name] => self.replace(node(name)?)?,
            ["status"] => self.status(),
            _ => return Err(format!("`{}` is no command, or lacks something", words.join(" "))),
        }
        Ok(std::mem::take(&mut self.lines))
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

    fn node(&mut self, id: NodeId) -> Result<&mut Node<P>, String> {
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
        let (replica_config, proxy_config) = configs.clone();
        node.lives += 1;
        node.cut = 0;
        node.held = None;
        let seed = u64::from(id.get()) << 32 | node.lives;
        let saved = Saved {
            restarted: node.lives > 1 + node.replaced.unwrap_or(0),
            snapshot: node.saved.snapshot.clone(),
            records: [&node.saved.records[..], &node.records[..]].concat(),
        };
        node.saved.records = saved.records.clone();
        node.records.clear();
        node.durable = 0;
        node.replica = Some(Running::start(id.into(), replica_config, saved, at, seed));
        let proxy = ProxyId::of(id).into();
        node.proxy = Some(Running::start(proxy, proxy_config, Saved::nothing(), at, !seed));
        self.finish(id);
    }

    fn crash(&mut self, id: NodeId) -> Result<(), String> {
        let node = self.node(id)?;
        if node.replica.take().is_none() {
            return Err(format!("r{id} is down"));
        }
        node.proxy = None;
        node.waiting.clear();
        node.records.truncate(node.durable);
        Ok(())
    }

    /// The disk of a node is lost, and it starts with an empty one. The others have seen to it that nothing which its
    /// previous life has sent arrives.
    fn replace(&mut self, id: NodeId) -> Result<(), String> {
        if self.rejoining.is_none() {
            return Err(format!("a member of {} that lost its disk cannot rejoin this group", P::NAME));
        }
        if self.node(id)?.replica.is_some() {
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
        let replica = node.replica.as_ref().ok_or_else(|| format!("r{id} is down"))?;
        let saved = replica.machine.save();
        node.cut += node.records.len() as u64;
        node.saved = saved;
        node.records.clear();
        node.durable = 0;
        node.held = None;
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
        let request = Request { stream: 1, access, command, deadline: at.now + PATIENCE };
        let proxy = self.node(id)?.proxy.as_mut().ok_or_else(|| format!("p{id} is down"))?;
        proxy.step(at, |machine, cx| machine.on_request(number, request, cx));
        self.finish(id);
        Ok(())
    }

    /// Takes what is in flight and matches `[FROM>TO] [KIND]`.
    fn take(&mut self, filter: &[&str]) -> Result<Vec<Flight<P::Message>>, String> {
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
                && kind.is_none_or(|kind| kind == flight.message.kind())
        });
        self.flights = left;
        let taken: Vec<_> = taken;
        match taken.is_empty() && !filter.is_empty() {
            true => Err(format!("nothing in flight matches `{}`", filter.join(" "))),
            false => Ok(taken),
        }
    }

    fn arrive(&mut self, Flight { from, to, message }: Flight<P::Message>) {
        let (from_node, to_node) = (home(from), home(to));
        let cut = self.cuts.iter().any(|&(a, b)| {
            (Some(a), Some(b)) == (from_node, to_node) || (Some(b), Some(a)) == (from_node, to_node)
        });
        let target = to_node.filter(|_| !cut).map(|id| (id, self.instant(id)));
        let target = target.and_then(|(id, at)| Some((id, at, self.nodes.get_mut(&id)?)));
        let Some((id, at, Node { replica: Some(replica), proxy: Some(proxy), .. })) = target else {
            self.lines.push(format!("{from} -x {to} {}", message.kind()));
            return;
        };
        // What a machine hears is what its decoder makes of the sender's encoding.
        let bytes = message.to_bytes();
        let message = P::Message::from_bytes(bytes).expect("a message that was sent can be read");
        self.lines.push(format!("{to} <- {from} {message:?}"));
        match to {
            ProcessId::Replica(_) => replica.step(at, |machine, cx| machine.on_message(from, message, cx)),
            ProcessId::Proxy(_) => proxy.step(at, |machine, cx| machine.on_message(from, message, cx)),
        }
        self.finish(id);
    }

    fn fire(&mut self, process: &str, timer: &str) -> Result<(), String> {
        let (id, is_proxy) = match process.strip_prefix('p') {
            Some(id) => (node(&format!("r{id}"))?, true),
            None => (node(process)?, false),
        };
        let mut now = self.now;
        let Node { replica: Some(replica), proxy: Some(proxy), .. } = self.node(id)? else {
            return Err(format!("r{id} is down"));
        };
        let mut fired = None;
        let mut fired_proxy = None;
        match is_proxy {
            false => fired = pull(replica, timer, &mut now)?,
            true => fired_proxy = pull(proxy, timer, &mut now)?,
        }
        self.now = now;
        let at = self.instant(id);
        let Node { replica: Some(replica), proxy: Some(proxy), .. } = self.node(id)? else {
            unreachable!("it was up");
        };
        if let Some(timer) = fired {
            replica.step(at, |machine, cx| machine.on_timer(timer, cx));
        }
        if let Some(timer) = fired_proxy {
            proxy.step(at, |machine, cx| machine.on_timer(timer, cx));
        }
        self.finish(id);
        Ok(())
    }

    fn tick(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let due = self.nodes.iter().filter_map(|(id, node)| {
                let replica = node.replica.as_ref().and_then(|replica| replica.timers.next());
                let proxy = node.proxy.as_ref().and_then(|proxy| proxy.timers.next());
                Some(([replica, proxy].into_iter().flatten().min()?, *id))
            });
            let Some((at, id)) = due.min().filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            let at = self.instant(id);
            let node = self.nodes.get_mut(&id).expect("it is due");
            let (mut names, me) = (Vec::new(), ProcessId::from(id));
            if let Some(replica) = &mut node.replica
                && let Some(timer) = replica.timers.pop_due(at.now)
            {
                names.push(format!("{me} timer {timer:?}"));
                replica.step(at, |machine, cx| machine.on_timer(timer, cx));
            } else if let Some(proxy) = &mut node.proxy
                && let Some(timer) = proxy.timers.pop_due(at.now)
            {
                names.push(format!("{} timer {timer:?}", proxy.me));
                proxy.step(at, |machine, cx| machine.on_timer(timer, cx));
            }
            self.lines.append(&mut names);
            self.finish(id);
        }
        self.now = end;
    }

    fn status(&mut self) {
        for (id, node) in &self.nodes {
            let at = self.instant(*id);
            self.lines.push(match &node.replica {
                None => format!("r{id} down"),
                Some(replica) => {
                    let status = replica.machine.status(at);
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

    /// Ends the batch of a node, and lets out what came of it.
    fn finish(&mut self, id: NodeId) {
        let at = self.instant(id);
        let node = self.nodes.get_mut(&id).expect("a known node");
        let (Some(replica), Some(proxy)) = (&mut node.replica, &mut node.proxy) else { return };
        proxy.end_batch(at);
        replica.end_batch(at);
        for fact in replica.out.facts.drain(..).filter(|_| self.facts) {
            self.lines.push(format!("{} fact {fact:?}", replica.me));
        }
        proxy.out.facts.clear();
        // Everybody reaches everybody.
        (replica.out.members, proxy.out.members) = (None, None);
        if let Some(barrier) = replica.barriers.drain(..).next() {
            node.held = node.held.or(Some(barrier));
        }
        for Answered { request: number, outcome, .. } in proxy.out.replies.drain(..) {
            let reply = match outcome {
                Outcome::Done(bytes) if self.orders.remove(&number) => shown(Managed::from_bytes(bytes)),
                Outcome::Done(bytes) => shown(Reply::from_bytes(bytes)),
                Outcome::Failed(failure) => format!("{failure:?}"),
            };
            self.lines.push(format!("{} #{} = {reply}", proxy.me, number.0));
        }
        for record in replica.out.records.drain(..) {
            self.lines.push(format!("{} persist {record:?}", replica.me));
            let bytes = record.to_bytes();
            node.records.push(Wire::from_bytes(bytes).expect("a record that was written can be read"));
        }
        let from = proxy.me;
        let messages: Vec<_> = proxy.out.messages.drain(..).collect();
        for outgoing in messages {
            self.send(from, outgoing);
        }
        let node = self.nodes.get_mut(&id).expect("a known node");
        if let Some(replica) = &mut node.replica {
            node.waiting.append(&mut replica.out.messages);
        }
        if node.held.is_some() && !node.manual {
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
        let durable = node.cut + node.durable as u64;
        let durable = node.held.map_or(durable, |held| durable.min(held - 1));
        let (ready, waiting): (Vec<_>, _) =
            std::mem::take(&mut node.waiting).into_iter().partition(|outgoing| outgoing.after <= durable);
        node.waiting = waiting;
        for outgoing in ready {
            self.send(id.into(), outgoing);
        }
    }

    fn send(&mut self, from: ProcessId, Outgoing { to, message, .. }: Outgoing<P::Message>) {
        let names: Vec<_> = to.iter().map(|process| process.to_string()).collect();
        self.lines.push(format!("{from} -> {} {message:?}", names.join(",")));
        match to {
            Recipients::One(to) => self.flights.push(Flight { from, to, message }),
            Recipients::Replicas(_) => {
                let copies = to.iter().map(|to| Flight { from, to, message: message.clone() });
                self.flights.extend(copies);
            }
        }
    }
}

/// Takes the timer of this name off a machine, and moves `now` to its deadline if that is later.
fn pull<M: Machine>(
    running: &mut Running<M>,
    name: &str,
    now: &mut Time,
) -> Result<Option<M::Timer>, String> {
    let named = |timer: &M::Timer| format!("{timer:?}").starts_with(name);
    let mut others = Vec::new();
    let mut found = None;
    while let Some(at) = running.timers.next() {
        let timer = running.timers.pop_due(at).expect("it is the next");
        if named(&timer) {
            *now = (*now).max(at);
            found = Some(timer);
            break;
        }
        others.push((timer, at));
    }
    let set: Vec<_> = others.iter().map(|(timer, _)| show(timer)).collect();
    for (timer, at) in others {
        running.timers.apply(timer, Some(at));
    }
    match found {
        Some(_) => Ok(found),
        None => Err(format!("{} has no timer {name}; set are: {}", running.me, set.join(", "))),
    }
}

fn show(value: &impl Debug) -> String {
    format!("{value:?}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scribe::{self, Scribe};

    #[test]
    fn a_process_ends_its_proxys_batch_before_its_replicas() {
        Stage::<Scribe>::open(&["1"]).unwrap();
        assert_eq!(scribe::ended(), ["proxy", "replica"]);
    }
}
