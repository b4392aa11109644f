//! Reads: at the leader by the mechanism that was chosen, at followers by the leader's index.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::clients::{Ask, PendingRead};
use quorate_core::{Context, Instant, NodeId, ProcessId, Random, Until, mutation};

use super::leaseguard::Gate;
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

/// A follower's reads.
#[derive(Debug, Default)]
pub struct FollowerReads {
    /// Not asked the leader about yet.
    fresh: Vec<PendingRead>,
    /// Asked about, by number.
    asked: BTreeMap<u64, Vec<PendingRead>>,
    /// To be answered when this index is executed.
    ready: BTreeMap<u64, Vec<PendingRead>>,
    /// The last number. The first is drawn: a late answer to an earlier incarnation's question must not be taken for
    /// one of this incarnation's.
    last: u64,
}

impl FollowerReads {
    /// Nothing asked yet.
    pub(super) fn new(random: &mut Random) -> FollowerReads {
        FollowerReads { last: random.u64() >> 1, ..FollowerReads::default() }
    }
}

/// Questions to the leader that may be out: more than that are lost, and their clients ask again.
const MAX_ASKED: usize = 1024;

/// Whether a read may pass the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadDecision {
    /// It may.
    Open,
    /// It may not yet: the limbo region may change its answer.
    Limbo,
    /// None may.
    Shut,
}

/// What is to be done with a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The state that is here answers it.
    Serve,
    /// When a round that begins now is confirmed.
    Round,
    /// After the next commit of the own term.
    Hold,
    /// When an entry is committed that is appended from now on. If another had been elected before, a majority would
    /// not have accepted it: so the state up to it has all that was answered before the read came. It needs no lease,
    /// so it is for commits that take longer than a lease lasts.
    Log,
}

impl Replica {
    /// Whether this replica would answer a read alone at this instant, and how it would do it.
    pub(super) fn reads_now(&self, at: Instant) -> (bool, &'static str) {
        let Role::Leader(_) = &self.role else { return (false, "at the leader") };
        match self.config.reads {
            Reads::Inconsistent => (true, "unchecked"),
            Reads::Quorum => (false, "quorum"),
            Reads::OngaroLease => match self.ongaro_gate() {
                Some(Gate { until: Until::Clock(end), .. }) if at.now < end => (true, "ongaro-lease"),
                _ => (false, "quorum"),
            },
            Reads::LeaseGuard(guard) => match self.read_gate(at).filter(|gate| gate.is_open(&guard, at)) {
                None => (false, "leaseguard-waiting"),
                Some(gate) if !self.has_own_commit() => (gate.index == gate.limbo, "leaseguard-inherited"),
                Some(Gate { until: Until::Clock(_), .. }) => (true, "leaseguard-timers"),
                Some(Gate { until: Until::Latest(_), .. }) => (true, "leaseguard"),
            },
        }
    }

    /// Whether an entry of the own term is committed: until then, the commit index may lag behind an earlier leader's.
    pub(super) fn has_own_commit(&self) -> bool {
        self.chain.term(self.committed) == Some(self.term)
    }

    /// Ongaro's lease: voters that answered a round refuse votes for the election timeout from then on, so nobody else
    /// is elected for as long since it began.
    pub(super) fn ongaro_gate(&self) -> Option<Gate> {
        let (Reads::OngaroLease, Role::Leader(leading)) = (self.config.reads, &self.role) else {
            return None;
        };
        let since = leading.rounds.confirmed_at().filter(|_| self.has_own_commit())?;
        let until = Until::Clock((since + self.config.lease).saturating_sub(self.config.drift));
        Some(Gate { index: self.committed, limbo: self.committed, until })
    }

    /// Serves what has come in, or finds out what it has to wait for.
    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        for read in self.intake.take_reads() {
            self.on_reader(Reader::Client(read), false, cx);
        }
    }

    pub(super) fn on_read_index(&mut self, node: NodeId, id: u64, cx: &mut Context<'_, Self>) {
        self.on_reader(Reader::Follower { node, id }, false, cx);
    }

    /// `held`: it has waited for a commit already.
    fn on_reader(&mut self, reader: Reader, held: bool, cx: &mut Context<'_, Self>) {
        let verdict = self.judge(&reader, held, cx);
        let (committed, lone) = (self.committed, self.config.lone_rounds);
        let Role::Leader(leading) = &mut self.role else { return };
        match verdict {
            Verdict::Serve => {
                self.note_read_decision(cx);
                self.serve(reader, cx);
            }
            // Beyond the bound, whoever asked has to ask again.
            Verdict::Round if leading.rounds.waiting() < MAX_WAITING => {
                leading.rounds.wait((committed, reader));
                if lone {
                    self.begin_round(cx);
                }
            }
            Verdict::Hold if leading.held.len() < MAX_WAITING => leading.held.push(reader),
            Verdict::Log if leading.logged.len() < MAX_WAITING => {
                leading.logged.push(reader);
                leading.needs_empty_batch = true;
            }
            Verdict::Round | Verdict::Hold | Verdict::Log => {}
        }
    }

    fn judge(&mut self, reader: &Reader, held: bool, cx: &mut Context<'_, Self>) -> Verdict {
        let at = self.instant(cx);
        let command = match reader {
            Reader::Client(read) => Some(&read.command),
            Reader::Follower { .. } => None,
        };
        match (self.read_decision(command, at), self.config.reads) {
            (ReadDecision::Open, _) => Verdict::Serve,
            (ReadDecision::Limbo, _) => Verdict::Hold,
            // The commit came too late for the lease: the next may do so too.
            (ReadDecision::Shut, Reads::LeaseGuard(_))
                if held && !mutation::active("leaseguard/lease-or-nothing") =>
            {
                Verdict::Log
            }
            (ReadDecision::Shut, Reads::LeaseGuard(_)) => {
                self.extend();
                Verdict::Hold
            }
            (ReadDecision::Shut, _) if self.has_own_commit() => Verdict::Round,
            (ReadDecision::Shut, _) => Verdict::Hold,
        }
    }

    /// **The read rule** of a leader that asks nobody. `None`: any command.
    pub(super) fn read_decision(&self, command: Option<&Bytes>, at: Instant) -> ReadDecision {
        let Role::Leader(leading) = &self.role else { return ReadDecision::Shut };
        match self.config.reads {
            Reads::Inconsistent => ReadDecision::Open,
            Reads::Quorum => ReadDecision::Shut,
            Reads::OngaroLease => match self.ongaro_gate() {
                Some(Gate { until: Until::Clock(end), .. }) if at.now < end => ReadDecision::Open,
                _ => ReadDecision::Shut,
            },
            Reads::LeaseGuard(guard) => match self.read_gate(at).filter(|gate| gate.is_open(&guard, at)) {
                None => ReadDecision::Shut,
                Some(gate) if gate.limbo <= gate.index => ReadDecision::Open,
                Some(_) if command.is_none_or(|command| leading.limbo.affects(command)) => {
                    ReadDecision::Limbo
                }
                Some(_) => ReadDecision::Open,
            },
        }
    }

    fn serve(&mut self, reader: Reader, cx: &mut Context<'_, Self>) {
        let time = self.time(cx.now(), cx.wall());
        let Role::Leader(leading) = &mut self.role else { return };
        match reader {
            // What has no room is asked for again.
            Reader::Client(_) if !self.intake.has_room() => {}
            Reader::Client(read) => match self.state.read(&read.command, time.max(leading.limbo.time())) {
                Some(reply) => self.intake.on_read(read, reply),
                None if leading.logged.len() < MAX_WAITING => {
                    leading.logged.push(Reader::Client(read));
                    leading.needs_empty_batch = true;
                }
                None => {}
            },
            Reader::Follower { node, id } => {
                cx.send(node, Message::ReadIndexReply { id, index: self.committed })
            }
        }
    }

    /// An entry of the own term was committed: every reason to hold a read may be gone.
    pub(super) fn retry_held(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        for reader in std::mem::take(&mut leading.held) {
            self.on_reader(reader, true, cx);
        }
    }

    /// An entry that was appended after these reads had come is executed.
    pub(super) fn serve_logged(&mut self, readers: Vec<Reader>, cx: &mut Context<'_, Self>) {
        for reader in readers {
            match reader {
                // What has no room is asked for again.
                Reader::Client(_) if !self.intake.has_room() => {}
                Reader::Client(read) => {
                    let reply = self.state.read_now(&read.command);
                    self.intake.on_read(read, reply);
                }
                Reader::Follower { node, id } => {
                    cx.send(node, Message::ReadIndexReply { id, index: self.committed });
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
        let configuration = self.chain.configuration().1;
        let confirmed = configuration.reached(|node| match node == self.me {
            true => Some(u64::MAX),
            false => leading.peers.get(&node).map(|peer| peer.round),
        });
        let Some(round) = confirmed.filter(|round| *round > 0) else { return };
        let early = u64::from(mutation::active("quorum/earlier-round"));
        for (index, reader) in leading.rounds.on_confirmed(round.saturating_add(early)) {
            assert!(self.state.applied() >= index, "what is committed is executed");
            self.serve(reader, cx);
        }
    }

    // Followers --------------------------------------------------------------------------------------------------

    /// A follower is asked; it asks its leader, once for all that has come in.
    pub(super) fn read_here(&mut self, proxy: ProcessId, ask: Ask) {
        let nonce = ask.nonce;
        let room = MAX_WAITING.saturating_sub(self.near.fresh.len());
        let reads = ask.reads.into_iter().take(room);
        self.near.fresh.extend(reads.map(|(id, command)| PendingRead { proxy, nonce, id, command }));
    }

    pub(super) fn ask_for_index(&mut self, cx: &mut Context<'_, Self>) {
        if self.near.fresh.is_empty() {
            return;
        }
        let reads = std::mem::take(&mut self.near.fresh);
        let Some(leader) = self.leader.filter(|leader| *leader != self.me) else { return };
        self.near.last += 1;
        let id = self.near.last;
        if self.near.asked.len() >= MAX_ASKED {
            self.near.asked.pop_first();
        }
        self.near.asked.insert(id, reads);
        cx.send(leader, Message::ReadIndex { id });
    }

    pub(super) fn on_read_index_reply(&mut self, id: u64, index: u64, cx: &mut Context<'_, Self>) {
        if let Some(reads) = self.near.asked.remove(&id) {
            if self.near.ready.len() < MAX_ASKED {
                self.near.ready.entry(index).or_default().extend(reads);
            }
            self.serve_follower_reads(cx);
        }
    }

    pub(super) fn serve_follower_reads(&mut self, cx: &mut Context<'_, Self>) {
        while let Some(entry) = self.near.ready.first_entry().filter(|e| *e.key() <= self.state.applied()) {
            for read in entry.remove() {
                // Unless its time is up here: then only the log can tell, and the proxy asks the leader next.
                if self.intake.has_room()
                    && let Some(reply) = self.state.read(&read.command, cx.wall())
                {
                    self.intake.on_read(read, reply);
                }
            }
        }
    }
}
