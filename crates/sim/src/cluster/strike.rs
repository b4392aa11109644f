//! Faults strike, and end.

use quorate_core::{Protocol, Replica};

use super::{Cluster, Event};
use crate::faults::{Action, Shape, Target};
use crate::host::{Host, Input};
use crate::queue::{MILLISECOND, Nanos};

impl<P: Protocol> Cluster<P> {
    pub(super) fn leader(&self) -> Option<usize> {
        (0..self.nodes).find(|host| {
            let at = &self.hosts[*host];
            at.replica().is_some_and(|replica| replica.status(at.instant(self.now).now).role == "leader")
        })
    }

    pub(super) fn resolve(&self, target: Target) -> usize {
        match target {
            Target::Host(host) => host,
            Target::Leader(otherwise) => self.leader().unwrap_or(otherwise),
        }
    }

    pub(super) fn strike(&mut self, index: usize) {
        if self.healed {
            return;
        }
        let (_, kind, action) = self.plan.schedule[index];
        self.trace.line(self.now, "fault", || format!("#{index} {} {action:?}", kind.name()));
        match action {
            Action::Cut { shape, length, holds } => {
                self.counts.add(kind);
                self.cut(shape, self.now + length, holds);
            }
            Action::SlowLinks { target, slowness, length } => {
                self.counts.add(kind);
                let host = self.resolve(target);
                for other in 0..self.hosts.len() {
                    self.network.slow(host, other, self.now + length, slowness);
                    self.network.slow(other, host, self.now + length, slowness);
                }
            }
            Action::Bandwidth { target, rate, length } => {
                self.counts.add(kind);
                let host = self.resolve(target);
                for other in 0..self.hosts.len() {
                    self.network.limit(host, other, self.now + length, rate);
                }
            }
            Action::Crash { target, down } => {
                let host = self.resolve(target);
                if self.hosts[host].life.is_some() {
                    self.counts.add(kind);
                    self.crash(host);
                    self.queue.push(self.now + down, Event::Start { host });
                }
            }
            Action::CrashAll { down } => {
                self.counts.add(kind);
                for host in 0..self.nodes {
                    if self.hosts[host].life.is_some() {
                        self.crash(host);
                        let down = self.random.range(down..2 * down);
                        self.queue.push(self.now + down, Event::Start { host });
                    }
                }
            }
            Action::Pause { target, length } => {
                let host = self.resolve(target);
                let host = &mut self.hosts[host];
                if host.life.is_some() {
                    self.counts.add(kind);
                    host.paused_until = host.paused_until.max(self.now + length);
                    host.frozen_until = host.frozen_until.max(host.paused_until);
                }
            }
            Action::SlowDisk { target, slowness, length } => {
                self.counts.add(kind);
                let host = self.resolve(target);
                self.hosts[host].disk.slow(self.now + length, slowness);
            }
            Action::FullDisk { target, length } => {
                // Counted when a node runs into it.
                let host = self.resolve(target);
                self.hosts[host].disk.fill(self.now + length);
            }
            Action::Drain { target, grace, down } => {
                let host = self.resolve(target);
                let Host { life: Some(life), epoch, .. } = &mut self.hosts[host] else { return };
                if !life.draining {
                    life.draining = true;
                    self.counts.add(kind);
                    life.inbox.push_back(Input::Drain);
                    self.queue.push(self.now + grace, Event::Stop { host, epoch: *epoch, down });
                    self.wake(host);
                }
            }
        }
    }

    pub(super) fn cut(&mut self, shape: Shape, until: Nanos, holds: bool) {
        let (from_inside, inside): (bool, Box<dyn Fn(usize) -> bool>) = match shape {
            Shape::Split(mask) => (true, Box::new(move |host| mask >> host & 1 == 1)),
            Shape::Isolate(target) => {
                let one = self.resolve(target);
                (true, Box::new(move |host| host == one))
            }
            Shape::Mute(target) => {
                let one = self.resolve(target);
                (false, Box::new(move |host| host == one))
            }
            Shape::Deaf(target) => {
                let one = self.resolve(target);
                (false, Box::new(move |host| host != one))
            }
            Shape::Pair(a, b) => {
                self.network.block(a, b, until, holds);
                self.network.block(b, a, until, holds);
                return;
            }
            Shape::OneWay(a, b) => {
                self.network.block(a, b, until, holds);
                return;
            }
        };
        for from in 0..self.hosts.len() {
            for to in 0..self.hosts.len() {
                if inside(from) && !inside(to) || from_inside && !inside(from) && inside(to) {
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
    }
}
