//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::epochs::Role;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Instant, PeerStatus, REJOINING, Salvaged, Saved, Shortage, Status};

use super::replica::Replica;
use super::{Readers, Record};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let epochs =
            [Some(Record::Promised(self.epochs.promised)), self.epochs.rejoined().map(Record::Rejoined)];
        let records = epochs.into_iter().flatten().chain(self.log.records());
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

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.intake.set_shortage(shortage);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.log.state.read_now(command)
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.may_read(at.now) && !self.is_dirty(command)
    }

    fn status(&self, at: Instant) -> Status {
        let follows = self.head().filter(|_| self.is_head() || self.epochs.monitor.has_leader(at.now));
        let mut peers = Vec::new();
        if let Some(head) = &self.leading {
            let peer = |node| {
                let lag = self.log.committed.saturating_sub(head.durable(node));
                let heard = self.epochs.heard(node);
                let heard_ms = heard.map(|heard| at.now.since(heard).as_millis() as u64);
                PeerStatus { node, lag, heard_ms }
            };
            peers.extend(self.epochs.members.voters.without(self.me).iter().map(peer));
        }
        let role = match self.epochs.role() {
            _ if !self.epochs.is_whole() => REJOINING,
            Role::Owner(_) => "leader",
            Role::Polling(_) | Role::Candidate(_) => "candidate",
            Role::Member if self.is_tail() => "tail",
            Role::Member if self.chain.contains(&self.me) => "middle",
            Role::Member => "outside",
        };
        let now = at.now;
        let chain: Vec<_> = self.chain.iter().map(ToString::to_string).collect();
        let mut status = Status {
            role,
            leader: follows,
            ballot: self.epochs.promised.to_string(),
            committed: self.log.committed,
            applied: self.log.state.applied(),
            lease: self.may_read(now),
            reads: match self.config.readers {
                _ if self.epochs.eager.is_some() => "eager-alr",
                _ if self.may_read(now) => "lease",
                Readers::Tail => "at the tail",
                Readers::All => "in the chain",
            },
            peers,
            samples: self.log.state.samples().into(),
            facts: std::iter::once(("chain", chain.join(" "))).chain(self.epochs.rejoin_status()).collect(),
        };
        if self.is_head() {
            let own = Own { me: self.me, wall: at.wall, now };
            self.walls.tell(own, &|wall| self.epochs.members.reached(wall), &mut status);
        }
        let until = self.epochs.leased_until(now).filter(|_| self.is_reader());
        let samples = self.epochs.leases.samples(until, now);
        status.samples.extend(samples);
        status
    }
}
