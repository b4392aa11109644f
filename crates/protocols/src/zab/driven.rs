//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::Own;
use quorate_core::{Instant, PeerStatus, Salvaged, Saved, Status};

use super::Record;
use super::replica::{Replica, Role};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let accepted = self.accepted_from.map(|from| Record::Accepted { epoch: self.accepted, from });
        let entries = self.history.iter(self.state.applied() + 1);
        let entries = entries.map(|(index, held)| Record::Entry { index, entry: held.entry.clone() });
        let records = accepted.into_iter().chain(entries).chain([Record::Current(self.current)]);
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records: records.collect() }
    }

    /// All of the log: what is committed, and what follows it.
    fn salvage(&self) -> Salvaged {
        let mut state = Replicated::load(&self.state.freeze()).expect("an image that was made loads");
        let value = |index| self.history.get(index).and_then(|held| held.entry.value.whole());
        while let Some(value) = value(state.applied() + 1) {
            state.apply(state.applied() + 1, value, |_| {}, |_| {});
        }
        let undecided = state.applied() - self.committed;
        Salvaged { state: state.freeze(), undecided, left_out: 0 }
    }

    fn set_disk_full(&mut self, full: bool) {
        self.intake.set_disk_full(full);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }

    fn status(&self, at: Instant) -> Status {
        let configuration = self.history.configuration().1;
        let (role, peers) = match &self.role {
            Role::Follower => ("follower", Vec::new()),
            Role::Candidate { .. } | Role::Discovery(_) => ("candidate", Vec::new()),
            Role::Leader(leading) => {
                let peers = leading.peers.iter().map(|(&node, peer)| PeerStatus {
                    node,
                    lag: self.committed.saturating_sub(peer.matched),
                    heard_ms: peer.heard.map(|heard| at.now.since(heard).as_millis() as u64),
                });
                ("leader", peers.collect())
            }
        };
        let mut status = Status {
            role,
            leader: self.leader.filter(|leader| *leader == self.me || self.monitor.has_leader(at.now)),
            ballot: self.accepted.to_string(),
            committed: self.committed,
            applied: self.state.applied(),
            lease: false,
            reads: "alr",
            peers,
            samples: Vec::new(),
            facts: Vec::new(),
        };
        if let Role::Leader(_) = &self.role {
            let own = Own { me: self.me, wall: at.wall, now: at.now };
            self.walls.tell(own, &|wall| configuration.reached(wall), &mut status);
        }
        status
    }
}
