//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::clients::Gate;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Instant, Salvaged, Sample, Saved, Shortage, Status};

use super::Record;
use super::replica::{Replica, Role};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let term = Record::Term { term: self.term, voted: self.voted };
        let records = [term].into_iter().chain(self.log.records());
        Saved { restarted: true, snapshot: Some(self.log.state.freeze()), records: records.collect() }
    }

    fn salvage(&self) -> Salvaged {
        self.log.salvage()
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.draining = true;
        if matches!(self.role, Role::Leader(_)) {
            self.hand_over(None, Vec::new(), cx);
        }
    }

    fn on_awaited(&mut self, slot: u64, _: &mut Context<'_, Self>) {
        self.on_value_awaited(slot);
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.intake.set_shortage(shortage);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.log.state.read_now(command)
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        let gate = self.gate(self.open_gate(at), Some(command), false);
        gate == Gate::Serve && self.log.state.read(command, self.time(at.now, at.wall)).is_some()
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.log.state.fingerprint()
    }

    fn status(&self, at: Instant) -> Status {
        let configuration = self.log.entries.configuration().1;
        let (role, peers) = match &self.role {
            Role::PreCandidate { .. } | Role::Candidate { .. } | Role::Gathering(_) => {
                ("candidate", Vec::new())
            }
            Role::Leader(leading) => ("leader", leading.replication.statuses(self.log.committed, at.now)),
            Role::Follower => (configuration.standing(self.me), Vec::new()),
        };
        let (lease, reads) = self.reads_now(at);
        let mut status = Status {
            role,
            leader: self.leader.filter(|leader| *leader == self.me || self.monitor.has_leader(at.now)),
            ballot: self.term.to_string(),
            committed: self.log.committed,
            applied: self.log.state.applied(),
            lease,
            reads,
            peers,
            samples: self.log.state.samples().into(),
            facts: Vec::new(),
        };
        if let Role::Leader(leading) = &self.role {
            let help = "Entries that an earlier leader may have committed when this node was elected.";
            status.samples.push(Sample::gauge("limbo_entries", leading.limbo_entries, help));
            let own = Own { me: self.me, wall: at.wall, now: at.now };
            self.walls.tell(own, &|wall| configuration.reached(wall), &mut status);
        }
        status
    }
}
