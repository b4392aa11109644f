//! Changes of who leads and of who is in the group.

use std::time::Duration;

use quorate_blocks::batch::{Batch, Entry};
use quorate_blocks::clients::{Ask, PendingRead};
use quorate_blocks::membership::{NO_ROSTER, Reached, refused};
use quorate_blocks::prefix_log::{Mode, Progress};
use quorate_core::{Context, Manage, Managed, NodeId, ProcessId, Time, mutation};

use super::replica::{Replica, Role, Timer};
use super::{MAX_WAITING, Message, Reads};

/// A learner with no more than this missing is near enough to vote.
const NEAR_BYTES: u64 = 1 << 20;
/// The longest that an attempt to hand over is given, in election timeouts.
const MAX_TRANSFER_TIMEOUTS: u32 = 16;

/// A hand-over under way.
#[derive(Debug)]
pub struct Handing {
    to: NodeId,
    /// LeaseGuard: where the lease is given up.
    end_lease: Option<u64>,
    /// Who is to be told.
    waiting: Vec<PendingRead>,
}

/// Attempts to hand over. Each that came to nothing doubles what the next one is given, so that there is one that
/// links of any round trip are fast enough for. One that nobody has asked for is not made before as much time has
/// passed as it will be given: clients are served in between.
#[derive(Debug)]
pub(super) struct TransferBackoff {
    /// How long the next attempt may take.
    limit: Duration,
    max: Duration,
    /// The leader makes none of its own accord before.
    paused_until: Time,
}

impl TransferBackoff {
    /// Of a leader whose followers suspect it after `election_timeout`.
    pub(super) fn new(election_timeout: Duration) -> TransferBackoff {
        let max = MAX_TRANSFER_TIMEOUTS * election_timeout;
        TransferBackoff { limit: election_timeout, max, paused_until: Time::ZERO }
    }

    fn on_failure(&mut self, now: Time) {
        if !mutation::active("raft/hand-over-at-every-heartbeat") {
            self.limit = (2 * self.limit).min(self.max);
            self.paused_until = now + self.limit;
        }
    }
}

/// What is asked while it is not known who leads. Proxies ask again meanwhile, with everything that is not answered.
#[derive(Debug, Default)]
pub(super) struct HeldAsks {
    asks: Vec<(ProcessId, Ask)>,
    /// Of the commands in them.
    bytes: usize,
}

impl HeldAsks {
    /// Holds about so many bytes; what is beyond is dropped, and proxies repeat it later.
    pub(super) fn hold(&mut self, proxy: ProcessId, ask: Ask, max_bytes: usize) {
        let commands = ask.writes.iter().chain(&ask.reads).chain(&ask.manage);
        let bytes: usize = commands.map(|(_, command)| command.len()).sum();
        if self.asks.len() < MAX_WAITING && self.bytes + bytes <= max_bytes {
            self.bytes += bytes;
            self.asks.push((proxy, ask));
        }
    }

    pub(super) fn take(&mut self) -> Vec<(ProcessId, Ask)> {
        std::mem::take(self).asks
    }
}

impl Handing {
    /// Whether nothing may be answered from the state any more.
    pub(super) fn ends_lease(&self) -> bool {
        self.end_lease.is_some()
    }
}

impl Replica {
    /// Takes operators' requests, and goes on with what they have begun.
    pub(super) fn manage(&mut self, cx: &mut Context<'_, Self>) {
        for (request, manage) in self.intake.take_manage() {
            match manage {
                Manage::Transfer { to } => self.on_transfer(request, to, cx),
                Manage::Roster(_) | Manage::AutoRoster(_) | Manage::ShowRoster => {
                    self.intake.on_managed(request, refused(NO_ROSTER));
                }
                Manage::Change { .. } | Manage::CancelChange => {
                    let current = self.log.entries.configuration().1.clone();
                    let Role::Leader(leading) = &mut self.role else { return };
                    if let Some((request, how)) = leading.coordinator.ask(request, manage, &current, cx.now())
                    {
                        self.intake.on_managed(request, how);
                    }
                }
            }
        }
        let (index, current) = self.log.entries.configuration();
        let settled = index <= self.log.committed && self.has_own_commit();
        let last = self.log.entries.last().0;
        let Role::Leader(leading) = &mut self.role else { return };
        if leading.handing.is_some() {
            return;
        }
        let peers = &leading.replication.peers;
        let unknown = Progress::new(last);
        let near = |node: NodeId| {
            peers.get(&node).is_some_and(|peer| {
                peer.mode == Mode::Replicate && self.log.entries.bytes(peer.matched + 1, last) <= NEAR_BYTES
            })
        };
        let reached = |node: NodeId| {
            let peer = peers.get(&node).unwrap_or(&unknown);
            (!near(node)).then_some(Reached { index: peer.matched, fetches: peer.fetches })
        };
        let mut answers = leading.coordinator.watch(current, cx.now(), reached);
        if settled {
            answers.extend(leading.coordinator.on_settled(current));
        }
        for (request, how) in answers {
            self.intake.on_managed(request, how);
        }
        if let Some(next) = leading.coordinator.next(current, settled, near) {
            let next = next.located(&self.config.group);
            let time = self.time(cx.now(), cx.wall());
            self.append(Batch::alone(time, &Entry::Configuration(next)), cx);
        }
    }

    /// Something was committed: perhaps a configuration.
    pub(super) fn on_configuration_committed(&mut self, cx: &mut Context<'_, Self>) {
        let (index, current) = self.log.entries.configuration();
        if index > self.log.committed {
            return;
        }
        let Role::Leader(leading) = &mut self.role else { return };
        for (request, how) in leading.coordinator.on_settled(current) {
            self.intake.on_managed(request, how);
        }
        self.dismiss_former_members(cx);
        self.hand_over_to_voter(cx);
    }

    /// A node asks for votes. If it is not in the group any more it has missed that, because this leader has restarted
    /// since or was not the one that removed it: it is sent what it lacks until it knows.
    pub(super) fn on_former_member(&mut self, from: NodeId, now: Time) {
        let (last, all) = (self.log.entries.last().0, self.log.entries.configuration().1.all());
        let Role::Leader(leading) = &mut self.role else { return };
        if !all.contains(from) && !mutation::active("raft/former-members-are-strangers") {
            let peer = leading.replication.peers.entry(from).or_insert_with(|| Progress::new(last));
            peer.heard = Some(now);
        }
    }

    /// Nodes that the committed configuration leaves out get the log until they have the entry that says so; then they
    /// are told that it is committed, and get no more. One that is silent for long gets no more either: if it comes
    /// back it asks for votes.
    pub(super) fn dismiss_former_members(&mut self, cx: &mut Context<'_, Self>) {
        let (term, committed, now) = (self.term, self.log.committed, cx.now());
        let (index, current) = self.log.entries.configuration();
        let limit = 2 * self.config.timeouts.election;
        let Role::Leader(leading) = &mut self.role else { return };
        if index > committed {
            return;
        }
        let all = current.all();
        leading.replication.peers.retain(|&node, peer| {
            let knows = peer.matched >= index;
            if knows && !all.contains(node) {
                cx.send(node, Message::Committed { term, committed });
            }
            let gone = peer.heard.is_none_or(|heard| now.since(heard) >= limit);
            all.contains(node) || !(knows || (gone && !mutation::active("raft/former-members-stay")))
        });
    }

    /// A leader whose vote does not count in the committed configuration, because it was removed or a learner was
    /// elected, leads on only until a voter can take over.
    pub(super) fn hand_over_to_voter(&mut self, cx: &mut Context<'_, Self>) {
        let (index, current) = self.log.entries.configuration();
        let Role::Leader(leading) = &self.role else { return };
        let settled = index <= self.log.committed && self.has_own_commit() && !current.is_joint();
        let idle = leading.handing.is_none() && cx.now() >= leading.transfers.paused_until;
        if settled && !current.voters.contains(self.me) && idle {
            self.hand_over(None, Vec::new(), cx);
        }
    }

    // Transfer ---------------------------------------------------------------------------------------------------

    fn on_transfer(&mut self, request: PendingRead, to: Option<NodeId>, cx: &mut Context<'_, Self>) {
        let how = match self.transfer_target(to, cx.now()) {
            _ if to == Some(self.me) => Managed::Done,
            Err(refusal) => refusal,
            Ok(_) if matches!(&self.role, Role::Leader(leading) if leading.handing.is_some()) => {
                refused("the leader is handing over already")
            }
            Ok(_) => return self.hand_over(to, vec![request], cx),
        };
        self.intake.on_managed(request, how);
    }

    fn transfer_target(&self, to: Option<NodeId>, now: Time) -> Result<NodeId, Managed> {
        let Role::Leader(leading) = &self.role else { return Err(refused("another leads")) };
        let near = leading.replication.heard_within(self.config.timeouts.election, now);
        self.log.entries.configuration().1.transfer_target(to, near)
    }

    /// Lets another lead: brings it up to date, gives the lease up, and asks it to stand.
    pub(super) fn hand_over(
        &mut self,
        to: Option<NodeId>,
        waiting: Vec<PendingRead>,
        cx: &mut Context<'_, Self>,
    ) {
        let now = cx.now();
        let to = match self.transfer_target(to, now) {
            Ok(to) => to,
            Err(refusal) => {
                for request in waiting {
                    self.intake.on_managed(request, refusal.clone());
                }
                return;
            }
        };
        let last = self.log.entries.last().0;
        let end_lease = match self.config.reads {
            // Given up by an attempt before, and no lease has begun since.
            Reads::LeaseGuard(_)
                if self.log.entries.is_end_lease(last) && !mutation::active("raft/end-lease-again") =>
            {
                Some(last)
            }
            Reads::LeaseGuard(_) => {
                let time = self.time(now, cx.wall());
                Some(self.append(Batch::alone(time, &Entry::EndLease), cx))
            }
            Reads::Inconsistent | Reads::Quorum | Reads::OngaroLease | Reads::Alr { .. } => None,
        };
        let Role::Leader(leading) = &mut self.role else { return };
        leading.handing = Some(Handing { to, end_lease, waiting });
        cx.set_timer(Timer::Transfer, leading.transfers.limit);
        self.note_gate(cx);
        self.hand_over_if_due(cx);
    }

    /// The target has everything, and the end of the lease is committed: it may stand.
    pub(super) fn hand_over_if_due(&mut self, cx: &mut Context<'_, Self>) {
        let last = self.log.entries.last().0;
        let (term, committed) = (self.term, self.log.committed);
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(handing) = &leading.handing else { return };
        let to = handing.to;
        let complete = leading.replication.peers.get(&to).is_some_and(|peer| peer.matched >= last);
        if !complete || handing.end_lease.is_some_and(|index| index > committed) {
            return;
        }
        for request in leading.handing.take().map_or(Vec::new(), |handing| handing.waiting) {
            self.intake.on_managed(request, Managed::Done);
        }
        cx.send(to, Message::TimeoutNow { term, committed });
        self.stop_leading(cx);
        self.expecting = true;
    }

    /// The target is too slow.
    pub(super) fn on_transfer_timer(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(handing) = leading.handing.take() else { return };
        leading.transfers.on_failure(cx.now());
        for request in handing.waiting {
            self.intake
                .on_managed(request, refused(format!("node {} did not take over in time", handing.to)));
        }
        if self.draining {
            self.stop_leading(cx);
            self.expecting = true;
            return;
        }
        // If the lease is given up, the first read that needs one has an entry appended.
        for (proxy, ask) in self.held.take() {
            self.intake.on_ask(proxy, ask, &self.log.state);
        }
    }

    /// Nobody has taken over: whoever waited to hear who leads must look elsewhere.
    pub(super) fn give_up_waiting(&mut self) {
        self.expecting = false;
        for (proxy, ask) in self.held.take() {
            self.intake.redirect(proxy, ask.nonce, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_core::ProxyId;

    use super::*;

    #[test]
    fn what_is_held_is_bounded_in_bytes() {
        let command = |len| vec![(1, Bytes::from(vec![b'x'; len]))];
        let ask = |writes, reads| Ask {
            nonce: 1,
            session: 1,
            open: false,
            low: 1,
            writes,
            reads,
            bounds: Vec::new(),
            manage: Vec::new(),
            version: 0,
        };
        let (mut held, proxy) = (HeldAsks::default(), ProxyId(1).into());
        for (len, count) in [(60, 1), (41, 1), (40, 2), (1, 2), (0, 3)] {
            held.hold(proxy, ask(command(len / 2), command(len - len / 2)), 100);
            assert_eq!(held.asks.len(), count, "{len} bytes more");
        }
        assert_eq!((held.take().len(), held.bytes), (3, 0));
    }
}
