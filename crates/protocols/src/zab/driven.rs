//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Instant, REJOINING, Salvaged, Saved, Shortage, Status};

use super::Record;
use super::replica::{Replica, Role};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let accepted = self.accepted_from.map(|from| Record::Accepted { epoch: self.accepted, from });
        let rejoined = self.standing.is_recorded().then_some(Record::Rejoined);
        let votes = accepted.into_iter().chain(rejoined);
        let records = votes.chain(self.log.records()).chain([Record::Current(self.current)]);
        Saved { restarted: true, snapshot: Some(self.log.state.freeze()), records: records.collect() }
    }

    fn salvage(&self) -> Salvaged {
        self.log.salvage()
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.draining = true;
        self.hand_over(None, None, cx.now());
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.intake.set_shortage(shortage);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.log.state.read_now(command)
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.log.state.fingerprint()
    }

    fn status(&self, at: Instant) -> Status {
        let configuration = self.log.entries.configuration().1;
        let (role, peers) = match &self.role {
            _ if !self.is_whole() => (REJOINING, Vec::new()),
            Role::Follower => ("follower", Vec::new()),
            Role::Candidate { .. } | Role::Discovery(_) => ("candidate", Vec::new()),
            Role::Leader(leading) => ("leader", leading.replication.statuses(self.log.committed, at.now)),
        };
        let mut status = Status {
            role,
            leader: self.leader.filter(|leader| *leader == self.me || self.monitor.has_leader(at.now)),
            ballot: self.accepted.to_string(),
            committed: self.log.committed,
            applied: self.log.state.applied(),
            lease: false,
            reads: if self.config.local { "local" } else { "alr" },
            peers,
            samples: self.log.state.samples().into(),
            facts: self.standing.status().into_iter().collect(),
        };
        if let Role::Leader(_) = &self.role {
            let own = Own { me: self.me, wall: at.wall, now: at.now };
            self.walls.tell(own, &|wall| configuration.reached(wall), &mut status);
        }
        status
    }
}
