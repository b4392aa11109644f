//! Reads: at the leader by the mechanism that was chosen, at followers by the leader's index.

use bytes::Bytes;
use quorate_blocks::clients::{Ask, Gate, LocalReads, PendingRead, Place, ReadBatches, WaitingReads};
use quorate_blocks::state::AHEAD;
use quorate_core::{Context, Fact, Instant, NodeId, ProcessId, Random, Time, Until, Wall, mutation};

use super::leaseguard::ReadGate;
use super::replica::{Replica, Role};
use super::{MAX_WAITING, Message, Reads};

/// Who wants to know something at a leader.
#[derive(Debug)]
pub enum Reader {
    /// A client: the reply.
    Client(PendingRead),
    /// A follower: up to where its state must be executed to answer what it has been asked.
    Follower {
        /// Which.
        node: NodeId,
        /// Its number for it.
        id: u64,
    },
}

impl Reader {
    /// What it reads; a follower does not say.
    fn command(&self) -> Option<&Bytes> {
        match self {
            Reader::Client(read) => Some(&read.command),
            Reader::Follower { .. } => None,
        }
    }
}

/// A follower's reads.
#[derive(Debug)]
pub struct FollowerReads {
    /// Until it is known what they wait for.
    pub(super) batches: ReadBatches,
    /// To be answered when the leader's index is executed.
    ready: WaitingReads<PendingRead>,
    /// Unchecked ones, also a leader's.
    unchecked: LocalReads,
}

impl FollowerReads {
    /// Nothing asked yet.
    pub(super) fn new(random: &mut Random) -> FollowerReads {
        let batches = ReadBatches::new(random.u64());
        FollowerReads { batches, ready: WaitingReads::default(), unchecked: LocalReads::default() }
    }
}

impl Replica {
    /// Whether this replica would answer a read alone at this instant, and how it would do it.
    pub(super) fn reads_now(&self, at: Instant) -> (bool, &'static str) {
        let Role::Leader(_) = &self.role else { return (false, "at the leader") };
        match self.config.reads {
            Reads::Inconsistent => (true, "unchecked"),
            Reads::Alr { .. } => (false, "alr"),
            Reads::Quorum => (false, "quorum"),
            Reads::OngaroLease => match self.open_gate(at) {
                Some(_) => (true, "ongaro-lease"),
                None => (false, "quorum"),
            },
            Reads::LeaseGuard(_) => match self.open_gate(at) {
                None => (false, "leaseguard-waiting"),
                Some(gate) if !self.has_own_commit() => (gate.index == gate.limbo, "leaseguard-inherited"),
                Some(ReadGate { until: Until::Clock(_), .. }) => (true, "leaseguard-timers"),
                Some(ReadGate { until: Until::Latest(_), .. }) => (true, "leaseguard"),
            },
        }
    }

    /// Whether an entry of the own term is committed: until then, the commit index may lag behind an earlier leader's.
    pub(super) fn has_own_commit(&self) -> bool {
        self.log.entries.term(self.log.committed) == Some(self.term)
    }

    /// Ongaro's lease: voters that answered a round refuse votes for the election timeout from then on, so nobody else
    /// is elected for as long since it began.
    pub(super) fn ongaro_gate(&self) -> Option<ReadGate> {
        let (Reads::OngaroLease, Role::Leader(leading)) = (self.config.reads, &self.role) else {
            return None;
        };
        let since = leading.rounds.confirmed_at().filter(|_| self.has_own_commit())?;
        let until = Until::Clock((since + self.config.lease).saturating_sub(self.config.drift));
        Some(ReadGate { index: self.log.committed, limbo: self.log.committed, until })
    }

    /// Serves what has come in, or finds out what it has to wait for.
    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        let reads = self.intake.take_reads();
        self.on_readers(reads.into_iter().map(Reader::Client).collect(), false, cx);
    }

    pub(super) fn on_read_index(&mut self, node: NodeId, id: u64, cx: &mut Context<'_, Self>) {
        self.on_readers(vec![Reader::Follower { node, id }], false, cx);
    }

    /// `held`: they have waited for a commit already.
    fn on_readers(&mut self, readers: Vec<Reader>, held: bool, cx: &mut Context<'_, Self>) {
        if readers.is_empty() {
            return;
        }
        // The clocks stand still in a step: what they show and allow is found out once for all of these.
        let (open, time) = (self.open_gate(self.instant(cx)), self.time(cx.now(), cx.wall()));
        if open.is_some() {
            self.note_gate(cx);
        }
        let mut readers = readers.into_iter();
        while !readers.as_slice().is_empty() {
            self.log.state.touch(readers.as_slice().iter().filter_map(Reader::command));
            for reader in readers.by_ref().take(AHEAD) {
                let gate = self.gate(open, reader.command(), held);
                self.on_gate(gate, reader, time, cx);
            }
        }
    }

    /// A reader finds this gate, at this time.
    fn on_gate(&mut self, gate: Gate, reader: Reader, time: Wall, cx: &mut Context<'_, Self>) {
        if let Gate::Hold(_) = gate {
            self.extend();
        }
        let (term, committed, lone) = (self.term, self.log.committed, self.config.lone_rounds);
        let Role::Leader(leading) = &mut self.role else { return };
        match gate {
            Gate::Serve => {
                cx.note(|| Fact::PassesGate { term });
                self.serve(reader, time, cx);
            }
            Gate::Round if leading.rounds.waiting() < MAX_WAITING => {
                leading.rounds.wait((committed, reader));
                if lone {
                    self.begin_round(cx);
                }
            }
            Gate::Hold(index) => leading.waiting.hold(index, reader),
            Gate::Sync => leading.waiting.sync(reader),
            // Beyond the bound, whoever asked has to ask again.
            Gate::Round | Gate::Redirect => {}
        }
    }

    /// What lets a leader answer reads alone, if it does so at this instant.
    pub(super) fn open_gate(&self, at: Instant) -> Option<ReadGate> {
        match self.config.reads {
            Reads::LeaseGuard(guard) => self.read_gate(at).filter(|gate| gate.is_open(&guard, at)),
            Reads::OngaroLease => {
                self.ongaro_gate().filter(|gate| matches!(gate.until, Until::Clock(end) if at.now < end))
            }
            Reads::Inconsistent | Reads::Quorum | Reads::Alr { .. } => None,
        }
    }

    /// **The read gate** of a command (`None`: any), with what [lets reads pass](Self::open_gate) at this instant.
    /// `held`: the read has waited for a commit already.
    pub(super) fn gate(&self, open: Option<ReadGate>, command: Option<&Bytes>, held: bool) -> Gate {
        let Role::Leader(leading) = &self.role else { return Gate::Redirect };
        let next_commit = Gate::Hold(self.log.committed + 1);
        // Of a read at a follower, only the follower knows what it reads.
        let any = !mutation::active("leaseguard/index-of-the-limbo-region");
        match (self.config.reads, open) {
            // Unchecked reads do not come here: this one is to see everything.
            (Reads::Inconsistent | Reads::Alr { .. }, _) => Gate::Sync,
            // The limbo region may change its answer.
            (_, Some(gate))
                if gate.limbo > gate.index
                    && command.map_or(any, |command| leading.limbo.affects(command)) =>
            {
                next_commit
            }
            (_, Some(_)) => Gate::Serve,
            (Reads::Quorum | Reads::OngaroLease, None) if self.has_own_commit() => Gate::Round,
            // The commit came too late for the lease: the next may do so too. If another had been elected before an
            // entry that is appended from now on is committed, a majority would not have accepted it.
            (Reads::LeaseGuard(_), None) if held && !mutation::active("leaseguard/lease-or-nothing") => {
                Gate::Sync
            }
            (Reads::Quorum | Reads::OngaroLease | Reads::LeaseGuard(_), None) => next_commit,
        }
    }

    fn serve(&mut self, reader: Reader, time: Wall, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        match reader {
            // What has no room is asked for again.
            Reader::Client(_) if !self.intake.has_room() => {}
            Reader::Client(read) => {
                match self.log.state.read(&read.command, time.max(leading.limbo.time())) {
                    Some(reply) => self.intake.on_read(read, reply),
                    None => leading.waiting.sync(Reader::Client(read)),
                }
            }
            Reader::Follower { node, id } => {
                cx.send(node, Message::ReadIndexReply { id, index: self.log.committed })
            }
        }
    }

    /// Entries of the own term were committed and executed: every reason to hold a read may be gone.
    pub(super) fn release_reads(&mut self, cx: &mut Context<'_, Self>) {
        while let Role::Leader(leading) = &mut self.role
            && let Some((_, readers)) = leading.waiting.take_executed(self.log.state.applied())
        {
            self.serve_logged(readers.logged, cx);
            self.on_readers(readers.held, true, cx);
        }
    }

    /// An entry that was appended after these reads had come is executed.
    fn serve_logged(&mut self, readers: Vec<Reader>, cx: &mut Context<'_, Self>) {
        for reader in readers {
            match reader {
                Reader::Client(read) => self.intake.on_read_now(read, &self.log.state),
                Reader::Follower { node, id } => {
                    cx.send(node, Message::ReadIndexReply { id, index: self.log.committed });
                }
            }
        }
    }

    // Rounds -----------------------------------------------------------------------------------------------------

    pub(super) fn begin_wanted_round(&mut self, cx: &mut Context<'_, Self>) {
        if matches!(&self.role, Role::Leader(leading) if leading.rounds.is_wanted()) {
            self.begin_round(cx);
        }
    }

    /// Somebody has answered a round, this replica at least.
    pub(super) fn on_round(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let configuration = self.log.entries.configuration().1;
        let confirmed = configuration.reached(|node| match node == self.me {
            true => Some(u64::MAX),
            false => leading.replication.peers.get(&node).map(|peer| peer.round),
        });
        let Some(round) = confirmed.filter(|round| *round > 0) else { return };
        let early = u64::from(mutation::active("quorum/earlier-round"));
        let confirmed = leading.rounds.on_confirmed(round.saturating_add(early));
        let time = self.time(cx.now(), cx.wall());
        for (index, reader) in confirmed {
            assert!(self.log.state.applied() >= index, "what is committed is executed");
            self.serve(reader, time, cx);
        }
    }

    // Followers --------------------------------------------------------------------------------------------------

    /// A follower is asked, by a proxy that sends the write of this number behind its reads, if it names one.
    pub(super) fn read_here(&mut self, proxy: ProcessId, mut ask: Ask, behind: Option<u64>) {
        match behind.filter(|_| matches!(self.config.reads, Reads::Alr { .. })) {
            Some(write) => self.near.batches.add_behind(proxy, &mut ask, write),
            None => self.near.batches.add(proxy, &mut ask),
        }
    }

    /// Reads of clients that have seen everything up to `slot`: by whoever takes itself for the leader, or by any
    /// replica with `reads.at=nearest`.
    pub(super) fn read_unchecked(&mut self, proxy: ProcessId, ask: Ask, slot: u64, now: Time) {
        if matches!(self.role, Role::Leader(_)) || self.config.follower_reads {
            self.near.unchecked.on_ask(proxy, ask, slot, &self.log.state, &mut self.intake);
        } else {
            self.intake.redirect(proxy, ask.nonce, self.leader.filter(|_| self.monitor.has_leader(now)));
        }
    }

    /// It asks its leader, once for all that has come in, or for a batch of it.
    pub(super) fn ask_for_batches(&mut self, cx: &mut Context<'_, Self>) {
        self.serve_follower_reads(cx);
        if !self.near.batches.has_open() {
            return;
        }
        let Some(leader) = self.leader.filter(|leader| *leader != self.me) else {
            return self.near.batches.forget_open();
        };
        let (alr, most) = match self.config.reads {
            Reads::Alr { batch } => (true, batch),
            _ => (false, usize::MAX),
        };
        while let Some(id) = self.near.batches.close(most) {
            if alr && mutation::active("alr/unasked") {
                let place = (self.log.state.applied(), 0);
                self.near.batches.on_place(id, place, place.0, Some(0));
                continue;
            }
            cx.send(leader, if alr { Message::Sync { id } } else { Message::ReadIndex { id } });
        }
    }

    pub(super) fn on_read_index_reply(&mut self, id: u64, index: u64, cx: &mut Context<'_, Self>) {
        if let Some(reads) = self.near.batches.take_asked(id) {
            reads.into_iter().for_each(|read| self.near.ready.hold(index, read));
            self.serve_follower_reads(cx);
        }
    }

    /// As a leader: with the next entry.
    pub(super) fn on_sync(&mut self, node: NodeId, id: u64) {
        if let Role::Leader(leading) = &mut self.role {
            leading.syncs.on_sync(node, id);
        }
    }

    pub(super) fn on_sync_reply(&mut self, id: u64, place: Place, cx: &mut Context<'_, Self>) {
        self.near.batches.on_place(id, place, self.log.state.applied(), self.log.entries.term(place.0));
        self.serve_follower_reads(cx);
    }

    pub(super) fn serve_follower_reads(&mut self, cx: &mut Context<'_, Self>) {
        while let Some((_, reads)) = self.near.ready.take_executed(self.log.state.applied()) {
            // Unless its time is up here: then only the log can tell, and the proxy asks the leader next.
            self.intake.on_reads(reads.held, cx.wall(), &self.log.state);
        }
        self.near.unchecked.on_executed(&self.log.state, &mut self.intake);
        let ready = self.near.batches.take_ready(|session| self.log.state.sessions().next(session));
        self.intake.on_reads(ready, Wall::ZERO, &self.log.state);
    }
}
