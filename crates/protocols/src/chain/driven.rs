//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Instant, PeerStatus, Salvaged, Saved, Status};

use super::replica::{Replica, Role};
use super::{Readers, Reads, Record};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let records = std::iter::once(Record::Promised(self.promised)).chain(self.log.records());
        Saved { restarted: true, snapshot: Some(self.log.state.freeze()), records: records.collect() }
    }

    fn salvage(&self) -> Salvaged {
        self.log.salvage()
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.leave(cx);
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.log.state.fingerprint()
    }

    fn set_disk_full(&mut self, full: bool) {
        self.intake.set_disk_full(full);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.log.state.read_now(command)
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.may_read(at.now) && !self.is_dirty(command)
    }

    fn status(&self, at: Instant) -> Status {
        let follows = self.head().filter(|_| self.is_head() || self.monitor.has_leader(at.now));
        let (role, peers) = match &self.role {
            Role::Head(head) => {
                let peer = |node| {
                    let heard = head.heard(node);
                    let lag = self.log.committed.saturating_sub(heard.map_or(0, |(_, durable)| durable));
                    let heard_ms = heard.map(|(heard, _)| at.now.since(heard).as_millis() as u64);
                    PeerStatus { node, lag, heard_ms }
                };
                ("leader", self.members.voters.without(self.me).iter().map(peer).collect())
            }
            Role::Polling(_) | Role::Candidate(_) => ("candidate", Vec::new()),
            Role::Member if self.is_tail() => ("tail", Vec::new()),
            Role::Member if self.chain.contains(&self.me) => ("middle", Vec::new()),
            Role::Member => ("outside", Vec::new()),
        };
        let now = at.now;
        let until = self.leases.held(&self.members, now);
        let chain: Vec<_> = self.chain.iter().map(ToString::to_string).collect();
        let mut status = Status {
            role,
            leader: follows,
            ballot: self.promised.to_string(),
            committed: self.log.committed,
            applied: self.log.state.applied(),
            lease: self.may_read(now),
            reads: match (self.config.reads, self.config.readers) {
                (Reads::EagerAlr, _) => "eager-alr",
                (Reads::Lease, _) if self.may_read(now) => "lease",
                (Reads::Lease, Readers::Tail) => "at the tail",
                (Reads::Lease, Readers::All) => "in the chain",
            },
            peers,
            samples: self.log.state.samples().into(),
            facts: vec![("chain", chain.join(" "))],
        };
        if let Role::Head(_) = self.role {
            let own = Own { me: self.me, wall: at.wall, now };
            self.walls.tell(own, &|wall| self.members.reached(wall), &mut status);
        }
        let until = until.filter(|_| self.is_reader());
        let samples = self.leases.samples(until, now);
        status.samples.extend(samples);
        status
    }
}
