//! Clients ask, are answered, or give up.

use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::reach::Reach;
use quorate_check::{Checker, MILLISECOND, SECOND};
use quorate_core::{Access, Answered, Failure, Managed, Outcome, Request, RequestId, Wire, digest};
use quorate_runtime::Input;
use quorate_store::{Command, Condition, Reply};

use super::operator::is_operators;
use super::{Cluster, Event};
use crate::workload::{Ask, Pending};

impl Cluster {
    pub(super) fn ask(&mut self, lane: usize) {
        if self.work.lanes[lane].pending.is_some() {
            return;
        }
        let host = self.work.lanes[lane].host;
        let is_cut_off = self.healed && !self.serves_clients(host);
        if is_cut_off || self.hosts[host].life.as_ref().is_none_or(|life| life.draining) {
            // Nobody listens: somewhere else, or later.
            self.work.reconnect(lane, self.hosts.len());
            let pause = self.work.pause(lane) + MILLISECOND;
            self.queue.push(self.now + pause, Event::Ask(lane));
            return;
        }
        let (configs, groups) = (self.at_reach(Reach::SHORTEST).configs.clone(), self.panels.len());
        let multi_key = self.can.multi_key;
        let fits = |command: &Command| {
            (groups == 1 || configs.group_of(&command.to_bytes()).is_some())
                && (multi_key || command.only_key().is_ok())
        };
        let Some(Ask { command, within }) = self.work.next(lane, &fits) else { return };
        let id = self.work.next_id(lane);
        let patience = match self.healed {
            true => crate::run::HEALING,
            false => self.work.patience(lane),
        };
        let at = &self.hosts[host];
        let deadline = at.instant(self.now).now + Duration::from_nanos(patience);
        let bytes = command.to_bytes();
        let access = within.map_or(command.access(), Access::Within);
        let configs = &self.at_reach(Reach::SHORTEST).configs;
        let group = configs.group_of(&bytes).expect("clients ask what one group can execute");
        let write = (access == Access::Write).then(|| digest(&bytes));
        let probe = probe(&command);
        let give_up = at.clock.true_time(at.incarnation, deadline);
        let invocation = self.work.recorder.invoke(lane as u64, command, self.now);
        if let Some(within) = within {
            self.work.recorder.allow(invocation, within);
        }
        let stream = self.work.lanes[lane].stream;
        self.work.lanes[lane].pending = Some(Pending {
            id,
            invocation,
            group,
            write,
            probe,
            asked: self.now,
            epoch: at.epoch,
            deadline: give_up,
        });
        self.queue.push(give_up + SECOND, Event::GiveUp { lane, id });
        let after = self.work.lanes[lane].seen;
        let request = Request { stream, command: bytes, access, deadline, after };
        let life = self.hosts[host].life.as_mut().expect("somebody listens");
        life.inbox.push_back(Input::Request(id, request));
        self.wake(host);
    }

    /// Hands a proxy's replies to its clients.
    pub(super) fn answer(&mut self, host: usize) {
        let Some(life) = &mut self.hosts[host].life else { return };
        let mut replies = std::mem::take(&mut life.process.effects().replies);
        let mut awaited = None;
        for Answered { request: id, outcome, slot } in replies.drain(..) {
            self.trace.mix(id.0);
            self.trace.line(self.now, self.hosts[host].proxy_name(), || {
                let outcome = match &outcome {
                    Outcome::Done(bytes) if is_operators(id) => {
                        format!("{:?}", Managed::from_bytes(bytes.clone()))
                    }
                    Outcome::Done(bytes) => format!("{:?}", Reply::from_bytes(bytes.clone())),
                    Outcome::Failed(failure) => format!("{failure:?}"),
                };
                format!("reply {:x} {outcome}", id.0)
            });
            if self.managed(id, &outcome) {
                continue;
            }
            // Whoever gave up does not hear the answer.
            let Some(lane) = self.work.lane_of(id) else { continue };
            let seen = &mut self.work.lanes[lane].seen;
            *seen = slot.max(*seen);
            self.conclude(lane, outcome);
            // Some clients want to see at their node what they were told.
            if id.0.is_multiple_of(8) {
                awaited = awaited.max(Some(slot));
            }
        }
        let at = self.hosts[host].instant(self.now);
        if let Some(life) = &mut self.hosts[host].life {
            life.process.effects().replies = replies;
            if let Some(slot) = awaited {
                life.process.take(Input::Awaited(slot)).expect("it is no frame");
                life.process.step(at);
            }
        }
    }

    pub(super) fn conclude(&mut self, lane: usize, outcome: Outcome) {
        let pending = self.work.lanes[lane].pending.take().expect("a request is under way");
        match outcome {
            Outcome::Done(bytes) => {
                let reply = match Reply::from_bytes(bytes) {
                    Ok(reply) => reply,
                    Err(error) => return self.fail("reply", format!("a reply cannot be read: {error}")),
                };
                let done = !matches!(reply, Reply::Error(_));
                let is_refused = matches!(reply, Reply::Error(error) if error.is_refusal());
                self.work.succeeded(lane, &reply);
                match is_refused {
                    true => self.work.recorder.refused(pending.invocation),
                    false => self.work.recorder.returned(pending.invocation, reply, self.now),
                }
                if pending.write.is_some() {
                    self.service.on_answer(self.now);
                }
                if let Some(write) = pending.write.filter(|_| !is_refused) {
                    let result = self.panels[pending.group.index()].on_acknowledged(self.now, write);
                    self.found(result);
                    if let Some(read) = pending.probe.filter(|_| done) {
                        self.probe(write, &read);
                    }
                }
            }
            Outcome::Failed(failure) => {
                let healed_before = self.healed && pending.asked >= self.clear_at;
                // Nothing is owed by a group that came to need nodes which are lost, or their memory.
                let owes = self.is_tolerable() && !self.has_forgotten();
                let ended = (failure == Failure::SessionEnded).then_some(pending.group);
                if healed_before && owes && self.work.failed_after_healing(lane, ended) {
                    let asked = pending.asked / MILLISECOND;
                    self.fail(
                        "liveness",
                        format!(
                            "a request asked at {asked} ms, after all faults were over, failed: {failure}"
                        ),
                    );
                }
            }
        }
        let pause = self.work.pause(lane);
        self.queue.push(self.now + pause, Event::Ask(lane));
    }

    pub(super) fn give_up(&mut self, lane: usize, id: RequestId) {
        if self.work.lane_of(id) != Some(lane) {
            return;
        }
        let pending = self.work.lanes[lane].pending.take().expect("lane_of found it");
        let host = &self.hosts[self.work.lanes[lane].host];
        let ran = host.frozen_until + SECOND / 2 < self.now && host.epoch == pending.epoch;
        if ran && pending.deadline + SECOND <= self.now {
            self.fail("deadline", format!("request {:x} was not answered by its deadline", id.0));
            return;
        }
        let pause = self.work.pause(lane);
        self.queue.push(self.now + pause, Event::Ask(lane));
    }

    /// This write has just been acknowledged: whoever would answer this read at once has executed it. (*Freshness*: no
    /// read gate returns what is older than an acknowledged write.)
    fn probe(&mut self, write: u64, read: &Bytes) {
        let Some(&(group, slot)) = self.executed.as_ref().and_then(|executed| executed.get(&write)) else {
            return;
        };
        for at in &self.hosts {
            let Some(replica) = at.replica() else { continue };
            let instant = at.instant(self.now);
            let applied = replica.group_statuses(instant)[group.index()].applied;
            if applied < slot && replica.would_answer(read, instant) {
                let what = format!(
                    "{at} would answer a read from the state after slot {applied}, but a write that changes the \
                     answer was acknowledged, in slot {slot}"
                );
                return self.fail("freshness", what);
            }
        }
    }
}

/// A read that a write is sure to change the answer of, unless it fails.
fn probe(command: &Command) -> Option<Bytes> {
    let key = match command {
        Command::Put { key, condition: Condition::Always, .. }
        | Command::Increment { key, .. }
        | Command::Append { key, .. } => key.clone(),
        Command::PutMany { pairs, if_none: false } => pairs.first()?.0.clone(),
        _ => return None,
    };
    Some(Command::VersionsOf { keys: vec![key] }.to_bytes())
}
