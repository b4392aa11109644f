//! Clients, operators, and what happens to the cluster.

use std::time::Duration;

use quorate_check::history::Invocation;
use quorate_check::{Nanos, SECOND};
use quorate_core::{Access, Fact, Managed as Done, NodeId, Outcome, Request, RequestId, Wire};
use quorate_runtime::Input;
use quorate_store::{Command, Reply};

use super::driver::{Driver, Event};
use super::{Act, Ask, Managed, Operation};

/// What operators are asked to wait.
const OPERATOR: Nanos = 60 * SECOND;
/// Requests of operators have this bit; below it is their place among them.
const MANAGES: u64 = 1 << 62;
/// So do streams of clients in closed loops, of which each has one.
const CLOSED: u64 = 1 << 61;

/// A request that has no answer.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Of a client; an operator's is in no history.
    invocation: Option<Invocation>,
    /// Who asks again afterwards.
    client: Option<usize>,
    /// What the answer takes from the node to the client.
    pub back: Nanos,
}

impl Driver<'_> {
    pub(super) fn ask(&mut self, index: usize) {
        let Ask { proxy, command, patience, .. } = self.load.asks[index].clone();
        self.invoke(proxy, command, patience, None);
    }

    /// A client of a closed loop asks, unless it is too late.
    pub(super) fn again(&mut self, client: usize) {
        let Some(clients) = &mut self.load.clients else { return };
        if self.now < clients.until {
            let (proxy, command) = (clients.draw)(client, self.now);
            let patience = clients.patience;
            self.invoke(proxy, command, patience, Some(client));
        }
    }

    fn invoke(&mut self, proxy: usize, command: Command, patience: Nanos, client: Option<usize>) {
        let (index, access) = (self.measured.operations.len() as u64, command.access());
        let writes = access == Access::Write;
        let operation = Operation { asked: self.now, ended: None, succeeded: false, writes, proxy };
        self.measured.operations.push(operation);
        let invocation = self.recorder.invoke(index, command.clone(), self.now);
        let stream = client.map_or(index, |client| CLOSED | client as u64);
        let waiting = Waiting { invocation: Some(invocation), client, back: 0 };
        self.dispatch(proxy, RequestId(index), (stream, access, command.to_bytes()), patience, waiting);
    }

    /// Sends a request to the proxy of whoever asks.
    fn dispatch(
        &mut self,
        proxy: usize,
        id: RequestId,
        (stream, access, command): (u64, Access, bytes::Bytes),
        patience: Nanos,
        mut waiting: Waiting,
    ) {
        let direct = self.setup.proxies == 0;
        // Proxies alone live for ever.
        let host = if direct { self.nearest_alive(proxy) } else { Some(self.setup.nodes + proxy) };
        let mut trip = |host| if direct { self.wires.trip(proxy, host) } else { 0 };
        let (there, back) = host.map_or((0, 0), |host| (trip(host), trip(host)));
        waiting.back = back;
        self.waiting.insert(id.0, waiting);
        if direct {
            self.queue.push(self.now + patience, Event::GiveUp(id));
        }
        let Some(host) = host else { return };
        let deadline = self.hosts[host].instant(self.now).now + Duration::from_nanos(patience);
        let request = Request { stream, access, command, deadline, after: 0 };
        match direct {
            true => self.queue.push(self.now + there, Event::Request { host, id, request }),
            false => self.request(host, id, request),
        }
    }

    /// The node where a client of a site is served.
    fn nearest_alive(&self, site: usize) -> Option<usize> {
        let alive = (0..self.setup.nodes).filter(|host| self.hosts[*host].life.is_some());
        alive.min_by_key(|host| {
            let distance = self.setup.topology.as_ref().map(|topology| topology.one_way(site, *host));
            (distance.unwrap_or_default(), *host != site, *host)
        })
    }

    pub(super) fn request(&mut self, host: usize, id: RequestId, request: Request) {
        self.enqueue(host, Input::Request(id, request), 0);
    }

    pub(super) fn answered(&mut self, id: RequestId, outcome: Outcome) {
        // It may have given up.
        let Some(waiting) = self.waiting.remove(&id.0) else { return };
        match outcome {
            Outcome::Done(bytes) if id.0 & MANAGES != 0 => {
                let managed = &mut self.measured.managed[(id.0 & !MANAGES) as usize];
                managed.ended = Some(self.now);
                managed.succeeded = matches!(Done::from_bytes(bytes), Ok(Done::Done));
            }
            Outcome::Done(bytes) => {
                let operation = &mut self.measured.operations[id.0 as usize];
                (operation.ended, operation.succeeded) = (Some(self.now), true);
                let reply = Reply::from_bytes(bytes).expect("a replica encoded it");
                let invocation = waiting.invocation.expect("a client asked");
                self.recorder.returned(invocation, reply, self.now);
            }
            Outcome::Failed(_) => self.failed(id),
        }
        self.next_of(&waiting);
    }

    pub(super) fn give_up(&mut self, id: RequestId) {
        if let Some(waiting) = self.waiting.remove(&id.0) {
            self.failed(id);
            self.next_of(&waiting);
        }
    }

    fn failed(&mut self, id: RequestId) {
        match id.0 & MANAGES {
            0 => self.measured.operations[id.0 as usize].ended = Some(self.now),
            _ => self.measured.managed[(id.0 & !MANAGES) as usize].ended = Some(self.now),
        }
    }

    fn next_of(&mut self, waiting: &Waiting) {
        if let (Some(client), Some(clients)) = (waiting.client, &self.load.clients) {
            self.queue.push(self.now + clients.think, Event::Again(client));
        }
    }

    // What happens -----------------------------------------------------------------------------------------------

    pub(super) fn act(&mut self, index: usize) {
        let act = self.load.acts[index].1.clone();
        let node = match &act {
            Act::Manage(proxy, request) => {
                let id = RequestId(MANAGES | self.measured.managed.len() as u64);
                self.measured.managed.push(Managed { asked: self.now, ended: None, succeeded: false });
                let waiting = Waiting { invocation: None, client: None, back: 0 };
                let content = (id.0, Access::Manage, request.to_bytes());
                return self.dispatch(*proxy, id, content, OPERATOR, waiting);
            }
            Act::Link(from, ..) | Act::Lose(from, ..) => Some(*from),
            Act::Crash(node) | Act::Disk(node, _) => {
                Some(*node).filter(|node| usize::from(node.get()) <= self.setup.nodes)
            }
            Act::CrashLeader | Act::DeafenLeader | Act::IsolateLeader => self.leader(),
        };
        let Some(node) = node else { return };
        let host = usize::from(node.get()) - 1;
        match &act {
            Act::CrashLeader | Act::Crash(_) => {
                self.hosts[host].life = None;
                self.hosts[host].epoch += 1;
            }
            Act::Link(from, to, link) => self.wires.change(*from, *to, *link),
            Act::Lose(from, to, loses) => self.wires.lose((*from, *to), *loses),
            Act::Disk(_, sync) => self.hosts[host].disk.change_sync(*sync),
            Act::DeafenLeader => self.wires.deafen(host),
            Act::IsolateLeader => {
                self.wires.deafen(host);
                self.wires.mute(host);
            }
            Act::Manage(..) => unreachable!("it is asked above"),
        }
        self.measured.acts.push((self.now, act, node));
    }

    fn leader(&self) -> Option<NodeId> {
        // A deposed leader may not know yet: the one of the highest term was elected last.
        let leads = self.measured.facts.iter().rev().filter_map(|(_, node, fact)| match fact {
            Fact::Leads { .. } => Some(*node),
            _ => None,
        });
        let is_leader = |node: &NodeId| {
            let host = &self.hosts[usize::from(node.get()) - 1];
            host.status(self.now).is_some_and(|status| status.role == "leader")
        };
        { leads }.find(is_leader)
    }
}
