//! What a driver asks of a replica: what is to be saved, a read without a client, its status.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::epochs::Role;
use quorate_blocks::state::{Replicated, samples_of};
use quorate_blocks::walls::Own;
use quorate_core::{Context, Instant, REJOINING, Salvaged, Sample, Saved, Shortage, Snapshot, Status, Wire};
use quorate_store::{Command, CommandError, Reply, Store};

use super::keys::Keys;
use super::replica::{Head, Replica};
use super::tombstones::Floor;
use super::{Config, Record};

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let diskless = self.config.group.diskless;
        let (promised, entered) = (self.epochs.promised, self.entered);
        // With what the group began it may begin until this member is live.
        let in_memory = diskless && entered > Ballot::ZERO;
        let keys = if in_memory { Keys::new(Store::new()) } else { self.keys.clone() };
        let (whole, committed, floor) = (self.is_whole && !diskless, self.committed, keys.floor());
        let head = Head { promised, entered, whole, committed, floor };
        let made_up = self.loss.is_none_or(|loss| loss.made_up || !loss.disk);
        let rejoined = self.epochs.rejoined().map(|ballot| Record::Rejoined { ballot, made_up });
        let records = rejoined.into_iter().collect();
        Saved { restarted: true, snapshot: Some(keys.freeze(head.to_bytes())), records }
    }

    /// All members begin with it, so all are whole.
    fn found(_: &Config, state: Snapshot) -> Saved<Record> {
        let state = Replicated::load(&state).expect("an image that was made loads").found();
        let (promised, entered) = Default::default();
        let head = Head { promised, entered, whole: false, committed: 1, floor: Floor::default() };
        let snapshot = Keys::new(state.into_store()).freeze(head.to_bytes());
        Saved { restarted: true, snapshot: Some(snapshot), records: Vec::new() }
    }

    /// What is not valid here may be committed, and its value is here.
    fn salvage(&self) -> Salvaged {
        Salvaged { state: self.image(), undecided: self.keys.invalid().len() as u64, left_out: 0 }
    }

    fn image(&self) -> Snapshot {
        Replicated::of(self.keys.store().clone()).freeze()
    }

    /// As for reads: whatever is acknowledged, this member has acknowledged itself, while it has leases.
    fn has_everything(&self, at: Instant) -> bool {
        self.readable_until(at.now).is_some()
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.epochs.draining = true;
        if !self.epochs.members.is_alone(self.me) {
            self.leave(cx);
        }
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.keys.fingerprint()
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        // Where keys are in memory alone, writes take no room on a disk.
        let counts = |shortage: &Shortage| *shortage != Shortage::Disk || !self.config.group.diskless;
        self.shortage = shortage.filter(counts);
    }

    /// A key that is not valid shows what may never be committed.
    fn read(&self, command: &Bytes) -> Bytes {
        let store = self.keys.store();
        match store.decode(command) {
            Ok(Command::Count | Command::Scan { .. } | Command::RandomKey { .. }) => {
                Reply::Error(CommandError::Unordered).encoded()
            }
            Ok(command) => store.read_encoded(&command).into_bytes(),
            Err(error) => Reply::Error(error).encoded(),
        }
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.would_show(command, at.now, at.wall)
    }

    fn status(&self, at: Instant) -> Status {
        let until = self.readable_until(at.now);
        let is_led = self.epochs.owns() || self.epochs.monitor.has_leader(at.now);
        let owner = self.epochs.promised.node().filter(|_| is_led && self.amnesia.is_none());
        let role = match self.epochs.role() {
            _ if self.rejoins() => REJOINING,
            Role::Owner(_) if self.serves() => "leader",
            Role::Polling(_) | Role::Candidate(_) => "candidate",
            _ if self.serves() => "live",
            _ if self.is_live() => "shadow",
            _ => "outside",
        };
        let live: Vec<_> = self.epochs.live().iter().map(|node| node.to_string()).collect();
        let mut status = Status {
            role,
            leader: owner,
            ballot: self.epochs.promised.to_string(),
            committed: self.committed,
            applied: self.committed,
            lease: until.is_some(),
            reads: match until {
                _ if self.epochs.eager.is_some() => "eager-alr",
                Some(_) => "lease",
                None => "elsewhere",
            },
            peers: Vec::new(),
            samples: samples_of(self.keys.store()).into(),
            facts: vec![("live", live.join(" "))],
        };
        status.facts.extend(self.losses());
        let own = Own { me: self.me, wall: at.wall, now: at.now };
        self.walls.tell(own, &|wall| self.epochs.members.reached(wall), &mut status);
        status.samples.extend(self.epochs.leases.samples(until, at.now));
        let deleted = "Deleted keys that this node remembers (hermes.tombstones).";
        status.samples.push(Sample::gauge("tombstones", self.keys.tombstones(), deleted));
        status
    }
}
