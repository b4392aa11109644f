//! Turns of a process's loop, and the messages they send.

use std::fmt::Display;

use bytes::Bytes;
use quorate_blocks::admission::DiskId;
use quorate_check::{Checker, MILLISECOND, Nanos, Process, Violation};
use quorate_core::{Class, Consistency, Fact, GroupId, Instant, ProcessId, Wire, digest, mutation};
use quorate_runtime::{Effects, Input, OutgoingFrame, Taken};

use super::impairments::host_of;
use super::{Cluster, Event, WIRE_SAMPLE};
use crate::faults::Kind;
use crate::process::{Life, SimClocks, SimProcess};

/// What every protocol calls a piece of a snapshot that it sends (`quorate_blocks::catchup`).
const PIECE: &str = "Piece";

impl Cluster {
    /// Schedules a turn, if none is.
    pub(super) fn wake(&mut self, host: usize) {
        let wake = self.random.range(500..self.knobs.wake);
        let SimProcess { life, epoch, .. } = &mut self.hosts[host];
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
        while let Some((taken, sampled)) = self.take_input(host) {
            let present = self.hosts[host].instant(self.now);
            // A clock that is read before a pause is wrong after it.
            let at = if mutation::active("driver/stale-now") { sampled } else { present };
            self.describe(host, taken);
            let life = self.hosts[host].life.as_mut().expect("it is turning");
            life.sampled = Some(sampled);
            life.process.step(at);
            self.hear(host);
            inputs += 1;
            if self.violation.is_some() {
                return;
            }
            if self.stalls(host) {
                return;
            }
        }
        if self.violation.is_some() {
            return;
        }
        let present = self.hosts[host].instant(self.now);
        let life = self.hosts[host].life.as_mut().expect("it is turning");
        if life.held.is_some() {
            return;
        }
        let at = if mutation::active("driver/stale-now") { life.sampled.unwrap_or(present) } else { present };
        life.ending = false;
        life.process.end_batch(at);
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
    pub(super) fn take_input(&mut self, host: usize) -> Option<(Taken, Instant)> {
        let present = self.hosts[host].instant(self.now);
        let life = self.hosts[host].life.as_mut().expect("it is turning");
        if let Some(held) = life.held.take() {
            return Some(held);
        }
        if life.ending {
            return None;
        }
        let taken = match life.take_input(present)? {
            Ok(taken) => taken,
            Err(error) => {
                self.fail("wire", format!("a message cannot be read back: {error}"));
                return None;
            }
        };
        if let Some(length) = self.draw_stall(host) {
            let at = &mut self.hosts[host];
            let life = at.life.as_mut().expect("it is turning");
            life.held = Some((taken, present));
            self.freeze(host, length);
            return None;
        }
        Some((taken, present))
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

    pub(super) fn describe(&mut self, host: usize, taken: Taken) {
        let at = &self.hosts[host];
        let process = &at.life.as_ref().expect("it is turning").process;
        let request = process.taken_request();
        let word = match (taken, request) {
            (_, Some((id, _))) => 3 ^ id.0 << 8,
            (Taken { to: ProcessId::Replica(_), from: Some(_), .. }, _) => 1,
            (Taken { to: ProcessId::Proxy(_), from: Some(_), .. }, _) => 2,
            (Taken { kind: "drain", .. }, _) => 4,
            (Taken { to: ProcessId::Replica(_), .. }, _) => 5,
            (Taken { to: ProcessId::Proxy(_), .. }, _) => 6,
        };
        self.trace.mix(self.now);
        self.trace.mix(word ^ (host as u64) << 4);
        self.trace.mix_name(taken.kind);
        let who: &dyn Display = match (taken.from, taken.to) {
            (None, ProcessId::Replica(_)) => at,
            _ => &taken.to,
        };
        self.trace.line(self.now, who, || match (taken.from, request) {
            (Some(from), _) => format!("<- {from} {}", process.describe_taken()),
            (None, Some((id, request))) => {
                let command = quorate_store::Command::from_bytes(request.command.clone());
                format!("request {:x} {command:?}", id.0)
            }
            (None, None) if taken.kind == "drain" => taken.kind.to_owned(),
            (None, None) => format!("{} {}", taken.kind, process.describe_taken()),
        });
    }

    /// Hands the facts of a replica to the checkers.
    pub(super) fn hear(&mut self, host: usize) {
        let SimProcess { life: Some(life), node, .. } = &mut self.hosts[host] else { return };
        let Life { process, guard, .. } = life;
        // Links are there already.
        let (members, _) = std::mem::take(&mut process.effects().members);
        for (group, members) in members {
            let node = node.expect("it has a replica");
            self.trace.line(self.now, ProcessId::Replica(node), || match self.panels.len() {
                1 => format!("members {members:?}"),
                _ => format!("members {group}:{members:?}"),
            });
            if let Some(guard) = guard {
                guard.admission.set_group(group, (&members).into());
            }
        }
        let mut facts = std::mem::take(&mut process.effects().facts);
        // Before it is connected, what a node finds on a damaged disk is a matter of its own: what it once had, and
        // others count on, is not there any more. Should it be let in, it counts.
        if facts.is_empty() {
            return;
        }
        if self.hosts[host].damaged && !self.is_heard(host) {
            // It will count, should the node be let in.
            self.hosts[host].life.as_mut().expect("it lives").process.effects().facts = facts;
            return;
        }
        let SimProcess { node, incarnation, .. } = self.hosts[host];
        let who = Process { node: node.expect("it has a replica"), incarnation };
        for (group, fact) in &facts {
            let group = *group;
            self.trace.fact(self.now, ProcessId::Replica(who.node), || match self.panels.len() {
                1 => format!("fact {fact:?}"),
                _ => format!("fact {group}:{fact:?}"),
            });
            self.logs[group.index()].on_fact(who, fact);
            if let (Fact::Executed { slot, command }, Some(executed)) = (fact, &mut self.executed) {
                executed.insert(*command, (group, *slot));
            }
            if let (Fact::Executed { slot, command }, Consistency::Sequential) = (fact, self.consistency) {
                self.order.on_executed(who, *slot, *command);
            }
            let result = self.tell(group, who, fact);
            self.found(result);
        }
        facts.clear();
        if let Some(life) = &mut self.hosts[host].life {
            life.process.effects().facts = facts;
        }
        self.count_records(host);
    }

    /// Tells the checkers how many records there are by now, and how many of them are durable. What was stated before
    /// rests on these alone: records of the same turn that follow may be durable much later.
    fn count_records(&mut self, host: usize) {
        let SimProcess { life: Some(life), disk, node: Some(node), incarnation, .. } = &mut self.hosts[host]
        else {
            return;
        };
        let who = Process { node: *node, incarnation: *incarnation };
        let written = life.ledger.persisted() + life.process.effects().records.len() as u64;
        let durable = life.durable(disk);
        let result = self.panels.iter_mut().enumerate().try_for_each(|(index, panel)| {
            let own = |upto| life.process.records_of(GroupId::at(index), upto);
            panel.on_records(self.now, who, own(written), own(durable))
        });
        self.found(result);
    }

    /// Whether it is connected to another node that is sound.
    fn is_heard(&self, host: usize) -> bool {
        (0..self.nodes).any(|to| self.counts_on(to, host))
    }

    /// Whether a process counts on what a node with a damaged disk says to it. The node itself does not, nor does
    /// another whose disk is damaged: each may have forgotten the other's later life, and let it in. They are a
    /// minority, and alone they decide nothing.
    fn counts_on(&self, to: usize, host: usize) -> bool {
        to != host && !self.hosts[to].damaged && self.may_send(host, to)
    }

    pub(super) fn tell(&mut self, group: GroupId, who: Process, fact: &Fact) -> Result<(), Violation> {
        self.panels[group.index()].on_fact(self.now, who, fact, &SimClocks(&self.hosts))
    }

    /// What a turn leads to: records, replies, messages, a sync, a checkpoint.
    pub(super) fn flush(&mut self, host: usize) {
        if self.violation.is_some() {
            return;
        }
        self.answer(host);
        // The group may have changed.
        self.remember(host);
        let SimProcess { life: Some(life), disk, since_checkpoint, node, .. } = &mut self.hosts[host] else {
            return;
        };
        let Effects { records, barriers, .. } = life.process.effects();
        let (records, barriers) = (std::mem::take(records), std::mem::take(barriers));
        *since_checkpoint += records.len();
        for record in &records {
            self.trace.mix(digest(&record.clone().into_bytes()));
            let me = ProcessId::Replica(node.expect("only replicas persist"));
            self.trace.line(self.now, me, || format!("persist {}", life.process.describe_record(record)));
        }
        if disk.append(life.ledger.append(records, barriers), self.now).is_err() {
            // The messages of this turn die with the process, which stops before it sends them.
            self.run_full(host);
            return;
        }
        self.count_records(host);
        if self.violation.is_some() {
            return;
        }
        let SimProcess { life: Some(life), disk, .. } = &mut self.hosts[host] else { return };
        let mut frames = life.release(disk);
        for frame in frames.drain(..) {
            self.post(host, frame);
        }
        let Some(life) = &mut self.hosts[host].life else { return };
        life.process.effects().frames = frames;
        if life.process.has_replica() {
            self.sync(host);
            self.consider_checkpoint(host);
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
        let SimProcess { life: Some(life), epoch, .. } = &mut self.hosts[host] else { return };
        if life.wake_at.is_none_or(|at| next < at) {
            life.wake_at = Some(next);
            self.queue.push(next, Event::Wake { host, epoch: *epoch });
        }
    }

    pub(super) fn post(&mut self, host: usize, frame: OutgoingFrame) {
        let OutgoingFrame { from, group, to, own, kind, binds, class, payload, .. } = frame;
        let heard = !self.hosts[host].damaged
            || to.iter().any(|to| self.locate(to).is_some_and(|to| self.counts_on(to, host)));
        if let (Some(node), Some(number), true) = (from.replica(), binds, heard) {
            let who = Process { node, incarnation: self.hosts[host].incarnation };
            let result = self.panels[group.index()].on_bound(self.now, who, number);
            self.found(result);
        }
        if own {
            // Inside the process: as it is, at once.
            self.enqueue(host, Input::Own);
            self.wake(host);
        }
        let payload = payload.into_bytes();
        for to in to.iter() {
            self.send(host, (from, to), (kind, class), &payload);
        }
    }

    fn send(
        &mut self,
        host: usize,
        (from, to): (ProcessId, ProcessId),
        (kind, class): (&str, Class),
        payload: &Bytes,
    ) {
        let Some(target) = self.locate(to) else { return };
        let process = &self.hosts[host].life.as_ref().expect("it sends").process;
        self.posts += 1;
        if self.posts.is_multiple_of(WIRE_SAMPLE) && process.recode_message(payload).as_ref() != Ok(payload) {
            let what = format!("{} is not what was encoded", process.describe_message(payload));
            return self.fail("wire", what);
        }
        if !self.may_send(host, target) {
            self.trace.line(self.now, from, || {
                format!("-x {to} {}: not connected", process.describe_message(payload))
            });
            return;
        }
        self.check_connection(host, target);
        if kind == PIECE {
            self.on_piece(host);
        }
        let size = || payload.len() + 32;
        let [first, second] = self.network.send((host, target), class, self.now, size, &mut self.counts);
        if first.is_none() {
            let process = &self.hosts[host].life.as_ref().expect("it sends").process;
            self.trace.line(self.now, from, || format!("-x {to} {}", process.describe_message(payload)));
            return;
        }
        let disk = self.hosts[host].memory.as_ref().map(|memory| memory.own.disk);
        for at in [second, first].into_iter().flatten() {
            self.queue.push(at, Event::Deliver { from, to, payload: payload.clone(), disk });
        }
    }

    pub(super) fn locate(&self, process: ProcessId) -> Option<usize> {
        match process {
            ProcessId::Replica(node) => {
                let host = host_of(node);
                (host < self.nodes).then_some(host)
            }
            ProcessId::Proxy(proxy) => match proxy.host() {
                Some(node) => self.locate(node.into()),
                None => self.hosts.iter().position(|host| host.proxy == proxy),
            },
        }
    }

    pub(super) fn deliver(&mut self, from: ProcessId, to: ProcessId, payload: Bytes, disk: Option<DiskId>) {
        let Some(host) = self.locate(to) else { return };
        if self.listens_to(host, from, disk) {
            self.enqueue(host, Input::Frame { from, to, payload });
            self.wake(host);
        }
    }

    pub(super) fn enqueue(&mut self, host: usize, input: Input) {
        if let Some(life) = &mut self.hosts[host].life {
            life.inbox.push_back(input);
        }
    }
}
