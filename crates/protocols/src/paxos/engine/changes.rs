//! Changes of who is in the group and of who leads it (joint consensus is `blocks/membership.rs`).
//!
//! A configuration is the value of a slot, alone in it, and is in force from the next slot on. What makes that safe:
//!
//! 1. *Whoever executes a slot knows who decides the next.* A leader proposes a configuration when everything
//!    before is executed, and nothing behind it before it is executed itself (the **barrier**): so the
//!    configurations form a chain, in which each was made from the one before, and each slot is decided by
//!    majorities of the one in force there. Neighbours in the chain have majorities that meet (that is what joint
//!    consensus is for), so it does no harm where a slot was decided by the one before instead: a later leader may
//!    find a configuration that was not chosen, and repeat it in front of slots that another leader, who had not
//!    found it, has had chosen in between.
//! 2. *Phase 1 asks the voters of what the candidate has executed.* If the next configuration is chosen, a majority
//!    of these has voted for it: one of them replies with that vote, or with a commit index behind it. So a
//!    candidate that is behind finds it, fetches what comes before (it proposes nothing until then), proposes it
//!    where it may not be chosen yet, and nothing behind it (`slots::Preparation` cuts there), and executes it.
//! 3. *Whoever executes a configuration that it has not had chosen itself prepares again*, in a fresh ballot, under
//!    that one; so it goes up the chain link by link. Behind the configuration others may have proposed already,
//!    and votes for that lie with majorities that it has not asked.
//! 4. *A leader that has had its own configuration chosen, by votes of its ballot, goes on.* Nothing behind it was
//!    chosen in a lower ballot, since phase 1 of this one has found nothing there. And nothing will be: those who
//!    voted have promised this ballot, and every majority of the new configuration meets them.
//!
//! **Leases.** A leader counts promises of the voters of the configuration that it has executed. Suppose that
//! another ballot has something chosen which this leader does not see. The first that did so after this leader's
//! own was prepared, by 2 and 3, link by link up to this leader's configuration; at that link, or at the one before
//! or after, its majority of promises meets the majority that promised this leader to make none. So nothing has to
//! be given back when the group changes.
//!
//! **Who may go.** The next step of a change is taken, and an operator is told that it is done, when a majority of
//! the present voters have executed the present configuration and will have after any crash: they need nobody who
//! has left. A leader that is left out stays until then.
//!
//! A replica that does not count in what it has executed does not stand. Perhaps it counts and does not know: so it
//! asks around when it hears no leader (`ballots.rs`), and fetches what others know. The same question tells a member
//! that missed its own removal; it disturbs nobody, since those who have a leader support no other.

use quorate_blocks::batch::{Batch, Entry};
use quorate_blocks::clients::PendingRead;
use quorate_blocks::membership::{Configuration, NO_ROSTER, Reached, refused};
use quorate_core::{Context, Fact, Manage, Managed, NodeId, Time, mutation};

use super::Message;
use super::leading::is_near;
use super::peer::Peer;
use super::policy::Policy;
use super::replica::{Replica, Role, Timer};

impl<P: Policy> Replica<P> {
    /// Another configuration is in force: it was executed, or came with a state.
    pub(super) fn publish_configuration(&mut self, cx: &mut Context<'_, Self>) {
        self.configuration = self.state.configuration_in(&self.config.group);
        let slot = self.configuration.0;
        let configuration = &self.configuration.1;
        let &Configuration { voters, outgoing, .. } = configuration;
        cx.note(|| Fact::Configured { index: slot, voters, outgoing });
        cx.members(configuration.members(slot));
        if configuration.is_alone(self.me) {
            // There is nobody to wait for.
            cx.set_timer(Timer::Election, std::time::Duration::ZERO);
        }
        self.record_committed(cx);
        let unprepared = mutation::active("paxos/lead-unprepared");
        match &self.role {
            Role::Follower => {}
            Role::Polling(_) => self.role = Role::Follower,
            Role::Leader(leading)
                if unprepared || (leading.changing == Some(slot) && !leading.proposals.is_open(slot)) =>
            {
                self.lead_changed(cx);
            }
            Role::Candidate(_) if unprepared => {}
            Role::Candidate(_) | Role::Leader(_) => {
                self.stop_leading(cx);
                self.step_up(cx);
            }
        }
    }

    /// Leads on, with others.
    fn lead_changed(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let (tally, configuration) = (self.tally(), &self.configuration.1);
        let Role::Leader(leading) = &mut self.role else { return };
        if !mutation::active("paxos/old-tally") {
            leading.proposals.change(tally);
        }
        let others = configuration.all().without(self.me);
        for node in others.iter() {
            leading.peers.entry(node).or_insert_with(|| Peer::new(now));
        }
        // Whoever is out is told too, once.
        self.pulse(cx);
        self.acknowledge_self(cx);
        if let Role::Leader(leading) = &mut self.role {
            leading.peers.retain(|node, _| others.contains(*node));
        }
        self.note_reads(cx);
    }

    /// Takes operators' requests, and goes on with what they have begun. Returns whether new values have to wait.
    pub(super) fn manage(&mut self, cx: &mut Context<'_, Self>) -> bool {
        for (request, manage) in self.intake.take_manage() {
            if !matches!(self.role, Role::Leader(_)) {
                // It has just handed over. Operators ask again, elsewhere.
                return true;
            }
            let Some((request, manage)) = P::manage(self, request, manage, cx) else { continue };
            match manage {
                Manage::Roster(_) | Manage::AutoRoster(_) | Manage::ShowRoster => {
                    self.intake.on_managed(request, refused(NO_ROSTER));
                }
                Manage::Transfer { to } => self.on_transfer(request, to, cx),
                Manage::Change { .. } | Manage::CancelChange => {
                    let Role::Leader(leading) = &mut self.role else { return true };
                    let answer = leading.coordinator.ask(request, manage, &self.configuration.1, cx.now());
                    if let Some((request, how)) = answer {
                        self.intake.on_managed(request, how);
                    }
                }
            }
        }
        self.watch_new_voters(cx.now());
        let settled = self.is_settled();
        let applied = self.state.applied();
        let (_, current) = &self.configuration;
        let Role::Leader(leading) = &mut self.role else { return true };
        if leading.changing.is_some_and(|slot| slot > applied) {
            return true;
        }
        if settled {
            for (request, how) in leading.coordinator.on_settled(current) {
                self.intake.on_managed(request, how);
            }
        }
        if leading.coordinator.is_busy() && !P::may_change(self, cx) {
            return false;
        }
        let time = self.time(cx.now(), cx.wall());
        let (slot, current) = &self.configuration;
        let Role::Leader(leading) = &mut self.role else { return true };
        let near = |node| leading.is_near(node, *slot);
        let Some(next) = leading.coordinator.next(current, settled, near) else {
            if settled && !current.is_joint() && !current.voters.contains(self.me) {
                // Perhaps nobody is there at the moment: then it stays for now.
                if let Ok(transfer_target) = self.transfer_target(None, cx.now()) {
                    self.hand_over(transfer_target, cx);
                }
            }
            return false;
        };
        if leading.proposals.count() == 0 && leading.proposals.next() <= applied + 1 {
            leading.changing = Some(applied + 1);
            let next = Entry::Configuration(next.located(&self.config.group));
            self.propose(applied + 1, Batch::alone(time, &next), cx);
        }
        true
    }

    /// Drops a change whose new voters do not catch up, and tells operators how far one is that gets on.
    fn watch_new_voters(&mut self, now: Time) {
        let (slot, current) = &self.configuration;
        let Role::Leader(leading) = &mut self.role else { return };
        let (peers, beats) = (&leading.peers, leading.beats);
        let unknown = Peer::new(now);
        let reached = |node| {
            let peer = peers.get(&node).unwrap_or(&unknown);
            let reached = Reached { index: peer.committed, fetches: peer.fetches };
            (!is_near(beats, peer, *slot)).then_some(reached)
        };
        for (request, how) in leading.coordinator.watch(current, now, reached) {
            self.intake.on_managed(request, how);
        }
    }

    /// Whether a majority of the voters have executed the configuration in force, for good.
    fn is_settled(&self) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        let (slot, configuration) = &self.configuration;
        configuration.reached(|node| self.executed_by(leading, node)).is_some_and(|reached| reached >= *slot)
    }

    // Transfer ---------------------------------------------------------------------------------------------------

    fn on_transfer(&mut self, request: PendingRead, to: Option<NodeId>, cx: &mut Context<'_, Self>) {
        let how = match self.transfer_target(to, cx.now()) {
            _ if to == Some(self.me) => Managed::Done,
            Err(refusal) => refusal,
            Ok(transfer_target) => {
                self.intake.on_managed(request, Managed::Done);
                return self.hand_over(transfer_target, cx);
            }
        };
        self.intake.on_managed(request, how);
    }

    /// Who could lead next at once, of those that know that they count.
    pub fn transfer_target(&self, to: Option<NodeId>, now: Time) -> Result<NodeId, Managed> {
        let (slot, configuration) = &self.configuration;
        let peers = match &self.role {
            Role::Leader(leading) => Some(leading.peers.iter()),
            Role::Follower | Role::Polling(_) | Role::Candidate(_) => None,
        };
        let limit = self.config.timeouts.election;
        let near = peers.into_iter().flatten().filter(|(node, peer)| {
            let heard = peer.heard.is_some_and(|heard| now.since(heard) < limit);
            heard && !peer.bound && peer.committed >= *slot && !self.is_leaving(**node, limit, now)
        });
        configuration.transfer_target(to, near.map(|(node, peer)| (*node, peer.committed)))
    }

    /// Stops leading, and asks another to take over without delay.
    pub fn hand_over(&mut self, transfer_target: NodeId, cx: &mut Context<'_, Self>) {
        cx.send(transfer_target, Message::StepUp { ballot: self.promised });
        self.stop_leading(cx);
        self.monitor.forget();
    }
}
