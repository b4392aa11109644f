//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::clients::Gate;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Instant, PeerStatus, Salvaged, Sample, Saved, Status};

use super::Record;
use super::replica::{Replica, Role};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let mut records = vec![Record::Term { term: self.term, voted: self.voted }];
        let entries = self.chain.iter(self.state.applied() + 1);
        records.extend(entries.map(|(index, held)| Record::Entry { index, entry: held.entry.clone() }));
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records }
    }

    /// All entries whose values are here whole: what is committed, and what follows it.
    fn salvage(&self) -> Salvaged {
        let mut state = Replicated::load(&self.state.freeze()).expect("an image that was made loads");
        let value = |index| self.chain.get(index).and_then(|held| held.entry.value.whole());
        while let Some(value) = value(state.applied() + 1) {
            state.apply(state.applied() + 1, value, |_| {}, |_| {});
        }
        let undecided = state.applied().saturating_sub(self.committed);
        let left_out = self.chain.last().0.saturating_sub(state.applied());
        Salvaged { state: state.freeze(), undecided, left_out }
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.draining = true;
        if matches!(self.role, Role::Leader(_)) {
            self.hand_over(None, Vec::new(), cx);
        }
    }

    fn set_disk_full(&mut self, full: bool) {
        self.intake.set_disk_full(full);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        let gate = self.gate(Some(command), false, at);
        gate == Gate::Serve && self.state.read(command, self.time(at.now, at.wall)).is_some()
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }

    fn status(&self, at: Instant) -> Status {
        let configuration = self.chain.configuration().1;
        let (role, peers) = match &self.role {
            Role::PreCandidate { .. } | Role::Candidate { .. } | Role::Gathering(_) => {
                ("candidate", Vec::new())
            }
            Role::Leader(leading) => {
                let peers = leading.peers.iter().map(|(&node, peer)| PeerStatus {
                    node,
                    lag: self.committed.saturating_sub(peer.matched),
                    heard_ms: peer.heard.map(|heard| at.now.since(heard).as_millis() as u64),
                });
                ("leader", peers.collect())
            }
            Role::Follower => (configuration.standing(self.me), Vec::new()),
        };
        let (lease, reads) = self.reads_now(at);
        let mut status = Status {
            role,
            leader: self.leader.filter(|leader| *leader == self.me || self.monitor.has_leader(at.now)),
            ballot: self.term.to_string(),
            committed: self.committed,
            applied: self.state.applied(),
            lease,
            reads,
            peers,
            samples: self.state.samples().into(),
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
