//! Faults strike, and end.

use quorate_check::{MILLISECOND, Nanos};
use quorate_core::Shortage;
use quorate_runtime::Input;

use super::{Cluster, Event};
use crate::faults::{Action, Moment, ScheduledFault, Shape, Target};
use crate::process::{Armed, SimProcess};

impl Cluster {
    pub(super) fn leader(&self) -> Option<usize> {
        let leads =
            |host: &usize| self.hosts[*host].status(self.now).is_some_and(|status| status.role == "leader");
        (0..self.nodes).find(leads)
    }

    fn resolve(&self, target: Target) -> usize {
        match target {
            Target::Host(host) => host,
            Target::Leader(otherwise) => self.leader().unwrap_or(otherwise),
        }
    }

    /// The instant of a fault has come; perhaps it waits for its moment.
    pub(super) fn inject(&mut self, index: usize) {
        if self.healed {
            return;
        }
        let fault = self.plan.schedule[index];
        let host = self.resolve(fault.target);
        match fault.moment {
            Moment::Sync | Moment::NewBallot if host < self.nodes => {
                let ballot = self.ballot(host);
                self.hosts[host].armed = Some(Armed { index, moment: fault.moment, ballot });
            }
            Moment::Piece => self.awaiting_piece = Some(index),
            Moment::Now | Moment::Sync | Moment::NewBallot => self.act(index, host),
        }
    }

    /// A node has sent a piece of a snapshot: a fault may have waited for that.
    pub(super) fn on_piece(&mut self, host: usize) {
        let Some(index) = self.awaiting_piece.take().filter(|_| !self.healed) else { return };
        // Before the next piece is asked for, as a rule.
        let reach = *self.random.pick(&[100_000, MILLISECOND, 10 * MILLISECOND]);
        let at = self.now + self.random.range(0..reach);
        self.queue.push(at, Event::Act { index, host });
    }

    fn ballot(&self, host: usize) -> Option<String> {
        Some(self.hosts[host].status(self.now)?.ballot)
    }

    /// A sync of this host has begun: a fault may have waited for it.
    pub(super) fn on_sync(&mut self, host: usize, end: Nanos) {
        if self.hosts[host].armed.as_ref().is_some_and(|armed| armed.moment == Moment::Sync) {
            let armed = self.hosts[host].armed.take().expect("it is there");
            let at = self.random.range(self.now..end + 200_000);
            self.queue.push(at, Event::Act { index: armed.index, host });
        }
    }

    /// A turn of this host is over: its ballot may have changed, and a fault may have waited for that.
    pub(super) fn on_turn(&mut self, host: usize) {
        let Some(armed) = &self.hosts[host].armed else { return };
        if armed.moment != Moment::NewBallot {
            return;
        }
        let (index, ballot) = (armed.index, self.ballot(host));
        if ballot.is_none() || ballot == self.hosts[host].armed.take().and_then(|armed| armed.ballot) {
            self.hosts[host].armed = Some(Armed { index, moment: Moment::NewBallot, ballot });
            return;
        }
        // While the change becomes durable, or while what it leads to is under way.
        let reach = *self.random.pick(&[100_000, MILLISECOND, 10 * MILLISECOND, 100 * MILLISECOND]);
        let at = self.now + self.random.range(0..reach);
        self.queue.push(at, Event::Act { index, host });
    }

    /// These faults strike, in place of those that were drawn.
    #[cfg(test)]
    pub(super) fn strike_with(&mut self, schedule: Vec<ScheduledFault>) {
        for (index, fault) in schedule.iter().enumerate() {
            self.queue.push(fault.at, Event::Fault(index));
        }
        self.plan.schedule = schedule;
    }

    /// A fault strikes a host.
    pub(super) fn act(&mut self, index: usize, host: usize) {
        if self.healed {
            return;
        }
        let ScheduledFault { kind, length, action, .. } = self.plan.schedule[index];
        let until = self.now + length;
        self.trace.line(self.now, "fault", || {
            let (name, length) = (kind.name(), length / MILLISECOND);
            format!("#{index} {name} {action:?} at {} for {length} ms", self.hosts[host])
        });
        match action {
            Action::Cut(shape, holds) => {
                self.counts.add(kind);
                self.cut(shape, host, until, holds);
            }
            Action::SlowLinks(slowness) => {
                self.counts.add(kind);
                for other in 0..self.hosts.len() {
                    self.network.slow(host, other, until, slowness);
                    self.network.slow(other, host, until, slowness);
                }
            }
            Action::Bandwidth(rate) => {
                self.counts.add(kind);
                for other in 0..self.hosts.len() {
                    self.network.limit(host, other, until, rate);
                }
            }
            Action::Crash => self.crash(kind, host, length),
            Action::CrashAll => self.crash_all(length),
            Action::CrashOthers => {
                self.counts.add(kind);
                self.cut(Shape::Isolate, host, until, false);
                for other in (0..self.nodes).filter(|other| *other != host) {
                    let down = self.random.range(MILLISECOND..200 * MILLISECOND);
                    self.kill(other, down);
                }
            }
            Action::Reconfigure if self.others.is_some() => {
                self.counts.add(kind);
                self.changed = !self.changed;
                let limits = self.at_reach(self.hosts[host].reach()).limits;
                self.service.widen(limits);
                for other in 0..self.nodes {
                    // Those that are down have the new settings when they come back.
                    let at = if other == host { until.min(self.heal_at) } else { self.now };
                    let epoch = self.hosts[other].epoch;
                    self.queue.push(at, Event::Reconfigure { host: other, epoch });
                }
            }
            Action::Reconfigure => {}
            // Counted where a disk is damaged.
            Action::Damage { all } => self.damage(kind, host, length, all),
            Action::ReplaceInVain => self.replace_in_vain(host, length),
            Action::Pause => {
                let host = &mut self.hosts[host];
                if host.life.is_some() {
                    self.counts.add(kind);
                    host.paused_until = host.paused_until.max(until);
                    host.frozen_until = host.frozen_until.max(host.paused_until);
                }
            }
            Action::SlowDisk(slowness) => {
                self.counts.add(kind);
                self.hosts[host].disk.slow(until, slowness);
            }
            // Counted when a node runs into it.
            Action::FullDisk if self.may_forget(host) => self.hosts[host].disk.fill(until),
            Action::FullDisk => {}
            Action::NearlyFullDisk => {
                self.counts.add(kind);
                self.hosts[host].disk.nearly_fill(until);
                self.look_at_room(host);
            }
            Action::Drain(grace) => {
                if !self.may_forget(host) {
                    return;
                }
                let SimProcess { life: Some(life), epoch, .. } = &mut self.hosts[host] else { return };
                if !life.draining {
                    life.draining = true;
                    self.counts.add(kind);
                    life.inbox.push_back(Input::Drain);
                    self.queue.push(self.now + grace, Event::Stop { host, epoch: *epoch, down: length });
                    self.wake(host);
                }
            }
            // Counted where that is news.
            Action::NeedReach => self.need_reach(kind, host),
            // Counted when somebody is asked.
            Action::Manage(seed) => self.manage(kind, host, seed),
        }
    }

    /// A node looks how much room there is on its disk, until there is enough.
    pub(super) fn look_at_room(&mut self, host: usize) {
        let at = &mut self.hosts[host];
        let is_full = at.disk.is_nearly_full(self.now);
        if let Some(life) = &mut at.life {
            life.process.set_shortage(is_full.then_some(Shortage::Disk));
        }
        if is_full {
            self.queue.push(self.now + 50 * MILLISECOND, Event::LookAtRoom { host });
        }
    }

    fn cut(&mut self, shape: Shape, host: usize, until: Nanos, holds: bool) {
        let cuts = |from: usize, to: usize| match shape {
            Shape::Split(mask) => (mask >> from ^ mask >> to) & 1 == 1,
            Shape::Isolate => (from == host) != (to == host),
            Shape::Pair(other) => (from, to) == (host, other) || (to, from) == (host, other),
            Shape::Mute => from == host,
            Shape::Deaf => to == host,
            Shape::OneWay(other) => (from, to) == (host, other),
        };
        for from in 0..self.hosts.len() {
            for to in 0..self.hosts.len() {
                if cuts(from, to) {
                    self.network.block(from, to, until, holds);
                }
            }
        }
    }

    /// Everything works from now on.
    pub(super) fn heal(&mut self) {
        self.trace.line(self.now, "fault", || "all are over".to_owned());
        self.healed = true;
        self.network.heal();
        self.work.heal();
        for host in 0..self.hosts.len() {
            let at = &mut self.hosts[host];
            at.disk.heal();
            at.armed = None;
            at.paused_until = 0;
            at.frozen_until = at.frozen_until.min(self.now);
            match &at.life {
                None => {
                    let wait = self.random.range(0..200 * MILLISECOND);
                    self.queue.push(self.now + wait, Event::Start { host });
                }
                Some(life) if life.draining => {
                    let epoch = at.epoch;
                    self.queue.push(self.now, Event::Stop { host, epoch, down: 10 * MILLISECOND });
                }
                // Whatever it stood still for is over too.
                Some(_) => self.queue.push(self.now, Event::Turn { host, epoch: at.epoch }),
            }
        }
        for lane in 0..self.work.lanes.len() {
            self.queue.push(self.now, Event::Ask(lane));
        }
        self.clear_at = self.when_clear();
        self.settle_service();
    }
}
