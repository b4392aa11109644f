//! Lives begin and end; what outlasts them is on disk.

use quorate_check::{Checker, MILLISECOND, Nanos, Process};
use quorate_core::{Diskless, NodeId, Payload, Saved, Snapshot, digest};
use quorate_runtime::AnyProcess;

use super::impairments::{host_of, node};
use super::{Cluster, Event, LAW_SAMPLE};
use crate::disk::{Progress, StoredImage};
use crate::faults::Kind;
use crate::process::{Entry, SimClocks, SimProcess};

impl Cluster {
    pub(super) fn start(&mut self, host: usize) {
        let at = &self.hosts[host];
        if at.life.is_some() || at.lost {
            return;
        }
        self.trace.mix(self.now ^ host as u64);
        let told = self.at_reach(at.reach());
        let (voters, settings, longest) = (self.members, told.settings, told.longest);
        let meets = at.asks_to_replace && !self.plan.kinds.contains(Kind::VainReplacements);
        let remembered = |other: NodeId| {
            let memory = self.hosts[host_of(other)].memory.as_ref();
            (other, memory.and_then(|memory| memory.peers.get(&node(host)).cloned()))
        };
        let met = voters.without(node(host)).iter().filter(|_| meets).map(remembered).collect();
        let entry = Some(Entry { voters, groups: self.panels.len(), settings, longest, met })
            .filter(|_| self.can.diskless != Diskless::All);
        let configs = self.configs_of(host);
        if let Err(what) = self.hosts[host].start(self.now, configs, entry) {
            self.fail("disk", what);
            return;
        }
        let at = &self.hosts[host];
        self.trace
            .line(self.now, at, || format!("starts, life {}, proxy {}", at.incarnation, at.proxy_name()));
        if let Some(until) = at.waits_until(self.now) {
            self.trace.line(self.now, at, || "waits for leases of other settings".to_owned());
            self.queue.push(until, Event::Waited { host, epoch: at.epoch });
        }
        self.hear(host);
        self.wake(host);
        self.set_wake(host);
        self.remember(host);
    }

    /// Kills a host, and schedules its next life.
    pub(super) fn crash(&mut self, kind: Kind, host: usize, down: Nanos) {
        if self.hosts[host].life.is_some() && self.may_forget(host) {
            self.counts.add(kind);
            self.kill(host, down);
        }
    }

    /// Kills all nodes, or as many as may lose their memory, and schedules their next lives at different times.
    pub(super) fn crash_all(&mut self, down: Nanos) {
        self.counts.add(Kind::ClusterCrashes);
        let nodes = self.nodes;
        let first = if self.diskless { self.random.range(0..nodes as u64) as usize } else { 0 };
        for host in (0..nodes).map(|host| (first + host) % nodes) {
            let down = self.random.range(down..2 * down);
            self.kill(host, down);
        }
    }

    pub(super) fn kill(&mut self, host: usize, down: Nanos) {
        if self.hosts[host].life.is_some() && self.may_forget(host) {
            self.trace.line(self.now, &self.hosts[host], || "crashes".to_owned());
            self.end_life(host);
            self.queue.push(self.now + down, Event::Start { host });
        }
    }

    /// The process is gone, with everything that was not durable (or a part of it).
    pub(super) fn end_life(&mut self, host: usize) {
        assert!(self.may_forget(host), "no more nodes lose their memory than the group can do without");
        if self.diskless && host < self.nodes && self.hosts[host].life.is_some() && !self.can_do_without(host)
        {
            self.counts.add(Kind::LostMemories);
        }
        let tears = self.plan.kinds.contains(Kind::TornWrites) && !self.healed;
        let at = &mut self.hosts[host];
        if at.life.take().is_none() {
            return;
        }
        at.epoch += 1;
        self.trace.mix(self.now ^ at.epoch << 32);
        at.paused_until = 0;
        if at.disk.crash(tears) {
            self.counts.add(Kind::TornWrites);
        }
        if let Some((_, memory)) = at.writing.take()
            && at.random.chance(0.5)
        {
            // It had reached the disk.
            at.memory = Some(memory);
        }
        self.keep_copy(host);
        self.disconnect(host);
        let at = &mut self.hosts[host];
        if let Some(node) = at.node {
            let who = Process { node, incarnation: at.incarnation };
            self.logs.iter_mut().for_each(|logs| logs.on_crash(who));
            let clocks = SimClocks(&self.hosts);
            let result = self.panels.iter_mut().try_for_each(|panel| panel.on_crash(self.now, who, &clocks));
            self.found(result);
        }
        self.end_requests(host);
    }

    /// The clients of a host turn away from it: what they wait for may have happened or not.
    pub(super) fn end_requests(&mut self, host: usize) {
        for lane in 0..self.work.lanes.len() {
            if self.work.lanes[lane].host == host && self.work.lanes[lane].pending.take().is_some() {
                let pause = self.work.pause(lane) + MILLISECOND;
                self.queue.push(self.now + pause, Event::Ask(lane));
            }
        }
    }

    pub(super) fn stop_drained(&mut self, host: usize, down: Nanos) {
        self.trace.line(self.now, &self.hosts[host], || "stops, drained".to_owned());
        let disk = &mut self.hosts[host].disk;
        if disk.start_sync(self.now).is_some() {
            disk.finish_sync();
        }
        self.end_life(host);
        self.queue.push(self.now + down, Event::Start { host });
    }

    pub(super) fn consider_checkpoint(&mut self, host: usize) {
        let SimProcess { life: Some(life), disk, since_checkpoint, epoch, .. } = &mut self.hosts[host] else {
            return;
        };
        let due = *since_checkpoint >= self.knobs.checkpoint || life.ledger.needs_state();
        if !due || disk.is_checkpointing() || disk.is_full(self.now) {
            return;
        }
        *since_checkpoint = 0;
        let Saved { snapshot, records, .. } = life.process.save().expect("a node");
        let records: Vec<_> = records.into_iter().map(Payload::into_bytes).collect();
        for record in &records {
            self.trace.mix(digest(record));
        }
        life.ledger.begin_state();
        disk.start_checkpoint(snapshot, records, self.knobs.piece);
        self.queue.push(self.now + 1000, Event::Checkpoint { host, epoch: *epoch });
        self.trace.line(self.now, &self.hosts[host], || "saves a checkpoint".to_owned());
        self.checkpoints += 1;
        // What is in memory alone is in no checkpoint.
        if self.checkpoints.is_multiple_of(LAW_SAMPLE) && !self.diskless {
            self.check_law(host);
        }
    }

    pub(super) fn write_checkpoint(&mut self, host: usize) {
        let at = &mut self.hosts[host];
        if self.now < at.paused_until {
            self.queue.push(at.paused_until, Event::Checkpoint { host, epoch: at.epoch });
            return;
        }
        let written = at.disk.write_checkpoint(self.now);
        if let Ok(Progress::At(next)) = written {
            return self.queue.push(next, Event::Checkpoint { host, epoch: at.epoch });
        }
        let left = at.disk.log_len() as u64;
        let life = at.life.as_mut().expect("a process that lives saves states");
        if at.disk.append(life.ledger.end_state(written.is_ok()), self.now).is_err() {
            return self.run_full(host);
        }
        self.trace.mix(left);
        if written.is_err() {
            at.since_checkpoint = self.knobs.checkpoint;
            self.queue.push(at.disk.full_until(), Event::Turn { host, epoch: at.epoch });
            self.counts.add(Kind::FullDisks);
            let line = || "gives up a checkpoint: its disk is full".to_owned();
            return self.trace.line(self.now, &self.hosts[host], line);
        }
        self.trace
            .line(self.now, &self.hosts[host], || format!("checkpoint is durable, {left} records follow it"));
        // What waited for it may go, and another may be due.
        self.wake(host);
    }

    /// `recover(save(r))` is `r`, through the encoding of its image and records. It may have executed more: what was
    /// recorded and not durable is durable then.
    pub(super) fn check_law(&mut self, host: usize) {
        let at = &self.hosts[host];
        let Some(replica) = at.replica() else { return };
        let Some(Saved { snapshot, records, .. }) = replica.save() else { return };
        let snapshot = snapshot.map(|image| copy(&image, self.knobs.piece));
        let records = records.into_iter().map(Payload::into_bytes).collect();
        let recovered = at.recover_copy(self.now, Saved { restarted: true, snapshot, records });
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(error) => return self.fail("recover-save", format!("a saved {error}")),
        };
        let (before, after) = (fingerprints(replica), fingerprints(&*recovered));
        let applied = |process: &dyn AnyProcess| -> Vec<_> {
            let statuses = process.group_statuses(at.instant(self.now)).into_iter();
            statuses.map(|status| status.applied).collect()
        };
        let is_behind = applied(replica).iter().zip(applied(&*recovered)).any(|(had, has)| has < *had);
        let differs = before.iter().zip(&after).any(|(had, has)| has.0 == had.0 && has != had);
        if is_behind || differs || before.len() != after.len() {
            let what = format!("{at} had state {before:x?}, recovered {after:x?}");
            self.fail("recover-save", what);
        }
    }

    /// A node that finds its disk full stops.
    pub(super) fn run_full(&mut self, host: usize) {
        self.counts.add(Kind::FullDisks);
        let until = self.hosts[host].disk.full_until();
        self.trace.line(self.now, &self.hosts[host], || "stops: its disk is full".to_owned());
        self.end_life(host);
        let wait = self.random.range(0..500 * MILLISECOND);
        self.queue.push(until.max(self.now) + wait, Event::Start { host });
    }

    /// Compares the states of a host's replicas with what others had at the same slots.
    pub fn compare_states(&mut self, host: usize) -> Option<Vec<(u64, u64)>> {
        let states = fingerprints(self.hosts[host].replica()?);
        for (group, (slot, state)) in states.iter().enumerate() {
            let known = *self.states.entry((group, *slot)).or_insert(*state);
            if known != *state {
                let at = &self.hosts[host];
                let what = format!("{at} has state {state:x} after slot {slot}, another had {known:x}");
                self.fail("convergence", what);
            }
        }
        Some(states)
    }
}

/// Of each group's replica, how much it has executed, and a digest of its state.
fn fingerprints(process: &dyn AnyProcess) -> Vec<(u64, u64)> {
    process.groups().into_iter().filter_map(|group| group.fingerprint()).collect()
}

/// An image, read out.
fn copy(image: &Snapshot, limit: usize) -> Snapshot {
    std::sync::Arc::new(StoredImage(image.pieces(limit)))
}
