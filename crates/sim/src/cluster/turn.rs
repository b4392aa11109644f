//! Turns of a process's loop, and the messages they send.

use quorate_core::{
    Fact, Instant, Message, Outgoing, ProcessId, Protocol, Recipients, Wire, digest, mutation,
};

use quorate_parts::admission::DiskId;

use super::{Cluster, Event, WIRE_SAMPLE};
use crate::checkers::{Checker, Process, Violation};
use crate::faults::Kind;
use crate::host::{Host, HostClocks, Input};
use crate::queue::{MILLISECOND, Nanos};

/// What every protocol calls a piece of a snapshot that it sends (`quorate_parts::catchup`).
const PIECE: &str = "Piece";

impl<P: Protocol> Cluster<P> {
    /// Schedules a turn, if none is.
    pub(super) fn wake(&mut self, host: usize) {
        let wake = self.random.range(500..self.knobs.wake);
        let Host { life, epoch, .. } = &mut self.hosts[host];
        if let Some(life) = life
            && !life.turning
        {
            life.turning = true;
            self.queue.push((self.now + wake).max(life.busy_until), Event::Turn { host, epoch: *epoch });
        }
    }

    pub(super) fn turn(&mut self, host: usize) {
        let at = &mut self.hosts[host];
        if self.now < at.paused_until {
            self.queue.push(at.paused_until, Event::Turn { host, epoch: at.epoch });
            return;
        }
        let Some(life) = at.life.as_mut().filter(|life| life.turning) else { return };
        if life.held.is_none() && !life.ending {
            life.budget = self.knobs.batch;
            life.sampled = None;
        }
        let mut inputs = 0;
        while let Some((input, sampled)) = self.take_input(host) {
            let present = self.hosts[host].instant(self.now);
            // A clock that is read before a pause is wrong after it.
            let at = if mutation::active("driver/stale-now") { sampled } else { present };
            self.describe(host, &input);
            let life = self.hosts[host].life.as_mut().expect("it is turning");
            life.sampled = Some(sampled);
            life.step(input, at);
            self.hear(host);
            inputs += 1;
            if self.violation.is_some() {
                return;
            }
            if self.stalls(host) {
                return;
            }
        }
        let present = self.hosts[host].instant(self.now);
        let life = self.hosts[host].life.as_mut().expect("it is turning");
        if life.held.is_some() {
            return;
        }
        let at = if mutation::active("driver/stale-now") { life.sampled.unwrap_or(present) } else { present };
        life.ending = false;
        life.end_batch(at);
        life.busy_until = self.now + 1000 + 500 * inputs;
        life.turning = false;
        self.hear(host);
        self.flush(host);
        self.on_turn(host);
        if let Some(life) = &self.hosts[host].life {
            if !life.inbox.is_empty() {
                self.wake(host);
            }
            self.set_wake(host);
        }
    }

    /// The next input of a turn with the clocks at its taking, unless the process stalls there.
    pub(super) fn take_input(&mut self, host: usize) -> Option<(Input<P>, Instant)> {
        let present = self.hosts[host].instant(self.now);
        let life = self.hosts[host].life.as_mut().expect("it is turning");
        if let Some(held) = life.held.take() {
            return Some(held);
        }
        if life.ending {
            return None;
        }
        let input = life.next_input(present)?;
        if let Some(length) = self.draw_stall(host) {
            let at = &mut self.hosts[host];
            let life = at.life.as_mut().expect("it is turning");
            life.held = Some((input, present));
            self.freeze(host, length);
            return None;
        }
        Some((input, present))
    }

    /// Whether the process stalls before it ends its batch.
    pub(super) fn stalls(&mut self, host: usize) -> bool {
        let Some(length) = self.draw_stall(host) else { return false };
        self.hosts[host].life.as_mut().expect("it is turning").ending = true;
        self.freeze(host, length);
        true
    }

    pub(super) fn draw_stall(&mut self, host: usize) -> Option<Nanos> {
        if self.plan.stall == 0.0 || self.healed || !self.random.chance(self.plan.stall) {
            return None;
        }
        let scale = *self.random.pick(&[2, 20, 200, 1000, 2500]) * MILLISECOND;
        let length = self.random.range(scale / 2..scale * 2);
        self.counts.add(Kind::Stalls);
        self.trace.line(self.now, &self.hosts[host], || format!("stalls for {} ms", length / MILLISECOND));
        Some(length)
    }

    pub(super) fn freeze(&mut self, host: usize, length: Nanos) {
        let at = &mut self.hosts[host];
        at.frozen_until = at.frozen_until.max(self.now + length);
        self.queue.push(self.now + length, Event::Turn { host, epoch: at.epoch });
    }

    pub(super) fn describe(&mut self, host: usize, input: &Input<P>) {
        let (word, kind) = match input {
            Input::ToReplica(_, message) => (1, message.kind()),
            Input::ToProxy(_, message) => (2, message.kind()),
            Input::Request(id, _) => (3 ^ id.0 << 8, "request"),
            Input::Drain => (4, "drain"),
            Input::ReplicaTimer(_) => (5, "timer"),
            Input::ProxyTimer(_) => (6, "timer"),
        };
        self.trace.mix(self.now);
        self.trace.mix(word ^ (host as u64) << 4);
        self.trace.mix_name(kind);
        let at = &self.hosts[host];
        match input {
            Input::ToReplica(from, message) => {
                let to = at.node.expect("a node");
                self.trace.line(self.now, ProcessId::Replica(to), || format!("<- {from} {message:?}"));
            }
            Input::ToProxy(from, message) => {
                self.trace.line(self.now, self.hosts[host].proxy_name(), || format!("<- {from} {message:?}"));
            }
            Input::Request(id, request) => {
                self.trace.line(self.now, at.proxy_name(), || {
                    format!(
                        "request {:x} {:?}",
                        id.0,
                        quorate_store::Command::from_bytes(request.command.clone())
                    )
                });
            }
            Input::Drain => self.trace.line(self.now, at, || "drain".to_owned()),
            Input::ReplicaTimer(timer) => {
                self.trace.line(self.now, at, || format!("timer {timer:?}"));
            }
            Input::ProxyTimer(timer) => {
                self.trace.line(self.now, at.proxy_name(), || format!("timer {timer:?}"));
            }
        }
    }

    /// Hands the facts of a replica to the checkers.
    pub(super) fn hear(&mut self, host: usize) {
        let Some(life) = &mut self.hosts[host].life else { return };
        life.proxy.out.facts.clear();
        // Links are there already.
        life.proxy.out.members = None;
        let Some(replica) = &mut life.replica else { return };
        if let Some(members) = replica.out.members.take() {
            self.trace.line(self.now, replica.me, || format!("members {members:?}"));
            if let Some(guard) = &mut life.guard {
                guard.admission.set_group(members.version, members.voters(), members.all());
            }
        }
        // Before it is connected, what a node finds on a damaged disk is a matter of its own: what it once had, and
        // others count on, is not there any more. Should it be let in, it counts.
        if replica.out.facts.is_empty() || self.hosts[host].damaged && !self.is_heard(host) {
            return;
        }
        let Host { node, incarnation, life: Some(life), .. } = &mut self.hosts[host] else { return };
        let Some(replica) = &mut life.replica else { return };
        let who = Process { node: node.expect("it has a replica"), incarnation: *incarnation };
        let mut facts = std::mem::take(&mut replica.out.facts);
        for fact in &facts {
            self.trace.line(self.now, ProcessId::Replica(who.node), || format!("fact {fact:?}"));
            self.logs.on_fact(who, fact);
            if let (Fact::Executed { slot, command }, Some(executed)) = (fact, &mut self.executed) {
                executed.insert(*command, *slot);
            }
            let result = self.tell(who, fact);
            self.found(result);
        }
        facts.clear();
        if let Some(replica) = self.hosts[host].life.as_mut().and_then(|life| life.replica.as_mut()) {
            replica.out.facts = facts;
        }
    }

    /// Whether it is connected to another node.
    fn is_heard(&self, host: usize) -> bool {
        (0..self.nodes).any(|to| to != host && self.may_send(host, to))
    }

    pub(super) fn tell(&mut self, who: Process, fact: &Fact) -> Result<(), Violation> {
        self.panel.on_fact(self.now, who, fact, &HostClocks(&self.hosts))
    }

    /// What a turn leads to: records, replies, messages, a sync, a checkpoint.
    pub(super) fn flush(&mut self, host: usize) {
        if self.violation.is_some() {
            return;
        }
        self.answer(host);
        // The group may have changed.
        self.remember(host);
        let Host { life: Some(life), disk, since_checkpoint, .. } = &mut self.hosts[host] else { return };
        let mut messages = std::mem::take(&mut life.proxy.out.messages);
        let me = life.proxy.me;
        let mut full = false;
        if let Some(replica) = &mut life.replica {
            for barrier in replica.barriers.drain(..) {
                disk.hold(life.born_at_record + barrier - 1);
            }
            for record in replica.out.records.drain(..) {
                let bytes = record.to_bytes();
                self.trace.mix(digest(&bytes));
                self.trace.line(self.now, replica.me, || format!("persist {record:?}"));
                full |= disk.append(bytes, self.now).is_err();
                *since_checkpoint += 1;
            }
        }
        if full {
            // The messages of this turn die with the process, which stops before it sends them.
            self.run_full(host);
            return;
        }
        for outgoing in messages.drain(..) {
            self.post(host, me, outgoing);
        }
        let Some(life) = &mut self.hosts[host].life else { return };
        life.proxy.out.messages = messages;
        if life.replica.is_some() {
            self.release(host);
            self.sync(host);
            self.consider_checkpoint(host);
        }
    }

    /// Sends what waits for nothing (any more).
    pub(super) fn release(&mut self, host: usize) {
        let Host { life: Some(life), disk, .. } = &mut self.hosts[host] else { return };
        let me = life.replica.as_ref().expect("a node").me;
        let ready = life.take_released(disk);
        for outgoing in ready {
            self.post(host, me, outgoing);
        }
    }

    pub(super) fn sync(&mut self, host: usize) {
        let at = &mut self.hosts[host];
        let Some(end) = at.disk.start_sync(self.now) else { return };
        self.queue.push(end, Event::Synced { host, epoch: at.epoch });
        self.on_sync(host, end);
    }

    pub(super) fn set_wake(&mut self, host: usize) {
        let Some(next) = self.hosts[host].next_timer() else { return };
        let next = next.max(self.now + 1);
        let Host { life: Some(life), epoch, .. } = &mut self.hosts[host] else { return };
        if life.wake_at.is_none_or(|at| next < at) {
            life.wake_at = Some(next);
            self.queue.push(next, Event::Wake { host, epoch: *epoch });
        }
    }

    pub(super) fn post(&mut self, host: usize, from: ProcessId, outgoing: Outgoing<P::Message>) {
        let Outgoing { to, message, .. } = outgoing;
        // What a node with a damaged disk says to itself binds nobody.
        let heard = !self.hosts[host].damaged
            || to.iter().any(|to| self.locate(to).is_some_and(|to| to != host && self.may_send(host, to)));
        if let (Some(node), Some(number), true) = (from.replica(), message.binds(), heard) {
            let who = Process { node, incarnation: self.hosts[host].incarnation };
            let result = self.panel.on_bound(self.now, who, number);
            self.found(result);
        }
        match to {
            Recipients::One(to) => self.send(host, from, to, message),
            Recipients::Replicas(_) => {
                for to in to.iter() {
                    self.send(host, from, to, message.clone());
                }
            }
        }
    }

    pub(super) fn send(&mut self, host: usize, from: ProcessId, to: ProcessId, mut message: P::Message) {
        let Some(target) = self.locate(to) else { return };
        self.posts += 1;
        if self.posts.is_multiple_of(WIRE_SAMPLE) {
            let bytes = message.to_bytes();
            match P::Message::from_bytes(bytes.clone()) {
                Ok(decoded) if decoded.to_bytes() == bytes => message = decoded,
                Ok(decoded) => {
                    self.fail("wire", format!("{message:?} is read back as {decoded:?}"));
                    return;
                }
                Err(error) => {
                    self.fail("wire", format!("{message:?} cannot be read back: {error}"));
                    return;
                }
            }
        }
        if target == host {
            // Inside the process: as it is, at once.
            self.enqueue(host, from, to, message);
            self.wake(host);
            return;
        }
        if !self.may_send(host, target) {
            self.trace.line(self.now, from, || format!("-x {to} {message:?}: not connected"));
            return;
        }
        self.check_connection(host, target);
        if message.kind() == PIECE {
            self.on_piece(host);
        }
        let size = || message.to_bytes().len() + 32;
        let [first, second] = self.network.send(host, target, self.now, size, &mut self.counts);
        if first.is_none() {
            self.trace.line(self.now, from, || format!("-x {to} {message:?}"));
            return;
        }
        let disk = self.hosts[host].memory.as_ref().map(|memory| memory.own.disk);
        if let Some(at) = second {
            self.queue.push(at, Event::Deliver { from, to, message: message.clone(), disk });
        }
        if let Some(at) = first {
            self.queue.push(at, Event::Deliver { from, to, message, disk });
        }
    }

    pub(super) fn locate(&self, process: ProcessId) -> Option<usize> {
        match process {
            ProcessId::Replica(node) => {
                let host = usize::from(node.get()) - 1;
                (host < self.nodes).then_some(host)
            }
            ProcessId::Proxy(proxy) => match proxy.host() {
                Some(node) => self.locate(node.into()),
                None => self.hosts.iter().position(|host| host.proxy == proxy),
            },
        }
    }

    pub(super) fn deliver(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        message: P::Message,
        disk: Option<DiskId>,
    ) {
        let Some(host) = self.locate(to) else { return };
        if self.listens_to(host, from, disk) {
            self.enqueue(host, from, to, message);
            self.wake(host);
        }
    }

    pub(super) fn enqueue(&mut self, host: usize, from: ProcessId, to: ProcessId, message: P::Message) {
        let Some(life) = &mut self.hosts[host].life else { return };
        life.inbox.push_back(match to {
            ProcessId::Replica(_) => Input::ToReplica(from, message),
            ProcessId::Proxy(_) => Input::ToProxy(from, message),
        });
    }
}
