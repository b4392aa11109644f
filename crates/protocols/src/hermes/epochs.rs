//! Membership: the owner of an epoch ([`quorate_blocks::epochs`]) states who is live in it, those whose
//! acknowledgements a write needs: those who have promised the epoch's ballot, a majority of all members at least.
//!
//! **Who is whole.** Each promise tells in which epoch its sender was live last, and whether it was whole there. A
//! write that was committed in an epoch is on the disks of all who were live in it, and some of these, which are a
//! majority, are among those who promise. So of those who promise, whoever was live in the latest of these epochs and
//! whole there has everything that was ever committed, and starts whole; the others start as shadows (`transfer.rs`).
//! If all who were whole are missing, the owner gathers what all have who have promised: a majority, so every committed
//! version is among theirs. Where members may lose what they had in memory alone, that takes more (`memory.rs`).

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::epochs::{self, Event};
use quorate_core::{Context, Fact, NodeId, NodeSet, mutation};

use super::message::Known;
use super::replica::Replica;
use super::slow_members::SlowMembers;
use super::{Message, Record};

/// An epoch lasts for so many election timeouts at least before one is begun to take somebody in.
const SETTLED: u32 = 4;
/// And for so many as long as there are shadows, which would have to begin anew.
const SHADOWED: u32 = 64;

impl Replica {
    pub(super) fn on_epoch(
        &mut self,
        from: NodeId,
        message: epochs::Message<(), Known>,
        cx: &mut Context<'_, Self>,
    ) {
        let event = self.epochs.on_message(from, message, ((), self.known()), cx);
        self.on_event(event, cx);
    }

    pub(super) fn on_epoch_timer(&mut self, timer: epochs::Timer, cx: &mut Context<'_, Self>) {
        let event = self.epochs.on_timer(timer, (), cx);
        self.on_event(event, cx);
    }

    /// Wants an epoch of its own.
    fn stand(&mut self, cx: &mut Context<'_, Self>) {
        let event = self.epochs.stand((), cx);
        self.on_event(event, cx);
    }

    pub(super) fn on_event(&mut self, event: Event<Known>, cx: &mut Context<'_, Self>) {
        match event {
            Event::Nothing => {}
            Event::Free => {
                let known = self.known();
                let persist = |ballot, cx: &mut Context<'_, Self>| cx.persist(Record::Promised(ballot));
                let reads = self.epochs.enter(((), known), persist, cx);
                self.reads.extend(reads);
                (self.whole, self.transfer) = (NodeSet::EMPTY, None);
                self.slow = SlowMembers::default();
            }
            Event::Decided(promises) => self.decide(&promises, cx),
            Event::Read(replies) => self.answer_reads(replies),
        }
    }

    /// States who is live.
    fn decide(&mut self, promises: &BTreeMap<NodeId, Known>, cx: &mut Context<'_, Self>) {
        // It does not leave itself out of its own epoch.
        let slow = self.epochs.laggards.all().without(self.me);
        let (live, whole) = live_and_whole(promises, slow, self.epochs.members.voters.majority());
        self.adopt(live, whole, cx);
        self.speak(cx);
    }

    /// The owner shows that it is there.
    pub(super) fn speak(&mut self, cx: &mut Context<'_, Self>) {
        if self.epochs.owns() {
            let (ballot, live, whole) = (self.epochs.promised, self.epochs.live(), self.whole);
            let voters = self.epochs.members.voters;
            cx.send_all(voters, Message::Heartbeat { ballot, live, whole, sent: cx.now() });
            self.review(cx);
        }
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (live, whole): (NodeSet, NodeSet),
        cx: &mut Context<'_, Self>,
    ) {
        if whole.intersection(live) != whole || !self.epochs.is_statement(from, ballot, live) {
            return;
        }
        let event = self.epochs.hear_of(from, ballot, (), cx);
        self.on_event(event, cx);
        if !self.epochs.follow(from, ballot, cx.now()) {
            return;
        }
        if from != self.me {
            if self.epochs.live().is_empty() {
                self.adopt(live, whole, cx);
            }
            self.whole = self.whole.union(whole);
            self.epochs.tend_leases(cx);
        }
        if !self.epochs.is_bound_outside(cx.now()) {
            self.reply_to_heartbeat(from, cx);
        }
    }

    pub(super) fn reply_to_heartbeat(&self, to: NodeId, cx: &mut Context<'_, Self>) {
        let (whole, lost) = (self.is_whole && self.is_live(), !self.takes_part());
        let (ballot, slow) = (self.epochs.promised, self.slow.seen_here);
        cx.send(to, Message::HeartbeatReply { ballot, whole, lost, slow });
    }

    /// It is known who is live in this epoch.
    fn adopt(&mut self, live: NodeSet, whole: NodeSet, cx: &mut Context<'_, Self>) {
        (self.whole, self.amnesia) = (whole, None);
        let readers = if self.takes_part() { live } else { live.without(self.me) };
        self.epochs.adopt(live, readers);
        if !self.is_live() {
            return self.stop_serving(cx);
        }
        let is_back = self.entered == self.epochs.promised;
        self.is_whole = whole.contains(self.me) || (is_back && self.is_whole);
        if !is_back || whole.contains(self.me) {
            self.entered = self.epochs.promised;
            self.persist_entered(cx);
        }
        let (number, is_whole) = (self.epochs.promised.number(), self.is_whole);
        cx.note(|| Fact::Live { number, whole: is_whole });
        self.take_up(cx);
        self.begin_transfer(Default::default(), cx);
        self.epochs.ask_for_leases(cx);
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        (whole, lost): (bool, bool),
        slow: NodeSet,
        cx: &mut Context<'_, Self>,
    ) {
        if from == self.me {
            self.on_own_reply(whole);
        }
        self.epochs.hear(from, cx.now());
        if !self.epochs.owns() || !self.epochs.live().contains(from) {
            return;
        }
        self.slow.seen_by.insert(from, slow);
        if lost {
            // Nothing is committed any more in an epoch that it was live in.
            self.stand(cx);
        } else if whole {
            self.whole.insert(from);
        }
    }

    /// Begins another epoch if a live member is silent, or slow, and the others are enough; or if one that was outside
    /// is back.
    fn review(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let alive = self.epochs.alive(now);
        let whole = self.epochs.live() == self.whole || self.epochs.lasts(SHADOWED, now);
        let settled = self.epochs.lasts(SETTLED, now) && whole;
        let back: NodeSet = alive.iter().filter(|node| self.epochs.heard(*node).is_some()).collect();
        let overdue: NodeSet = self.epochs.live().iter().filter(|node| !alive.contains(*node)).collect();
        let slow = self.slow_members(now);
        self.epochs.leave_out(slow, now);
        let least = self.config.timeouts.election / 2;
        self.epochs.laggards.review(overdue.without(self.me), |node| back.contains(node), least, now);
        let laggards = &self.epochs.laggards;
        let joins = back.iter().any(|node| !self.epochs.live().contains(node) && !laggards.contains(node));
        if alive.len() < self.epochs.members.voters.majority() || !alive.contains(self.me) {
            // Its own disk hangs, or it reaches too few: another may do better.
            self.epochs.abdicate(cx);
        } else if (slow.contains(self.me) && !mutation::active("hermes/slow-owner-stays"))
            || self.owns_without_leases(now)
        {
            self.leave(cx);
        } else if !overdue.is_empty() || !slow.is_empty() || (joins && settled) {
            self.stand(cx);
        }
    }

    /// The others are to go on without this member, and one of them is to own the next epoch.
    pub(super) fn leave(&mut self, cx: &mut Context<'_, Self>) {
        let others = self.epochs.members.voters.without(self.me);
        cx.send_all(others, Message::Leave { ballot: self.epochs.promised });
        if self.epochs.owns() {
            self.epochs.abdicate(cx);
            self.epochs.monitor.forget();
        }
        // Nobody need wait for the end of its leases.
        self.epochs.give_leases_back(cx);
    }

    /// A member wants to be left out, or followed, before it is missed.
    pub(super) fn on_leave(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        self.epochs.leave_out([from].into_iter().collect(), cx.now());
        let majority = self.epochs.members.voters.majority();
        if self.epochs.owns() && self.epochs.live().contains(from) && self.epochs.live().len() > majority {
            self.stand(cx);
        } else if self.epochs.promised.node() == Some(from) && !self.epochs.draining {
            self.epochs.monitor.forget();
            // One that is slow would soon leave as well. If each leaves it to another, since they have seen different
            // things, an election follows.
            let unfit = match mutation::active("hermes/slow-successor") {
                true => NodeSet::EMPTY,
                false => self.slow.seen_here,
            };
            let fit = |node: &NodeId| *node != from && !unfit.contains(*node);
            if self.epochs.live().iter().find(fit) == Some(self.me) {
                self.stand(cx);
            }
        }
    }
}

/// Who is to be live by these promises, and who of them begins whole. The slow ones stay outside if the others are
/// enough, and one of these has everything: what is kept in memory alone may else be known to a slow one only.
fn live_and_whole(promises: &BTreeMap<NodeId, Known>, slow: NodeSet, majority: usize) -> (NodeSet, NodeSet) {
    let promised: NodeSet = promises.keys().copied().collect();
    let latest = promises.values().map(|known| known.entered).max().unwrap_or_default();
    let is_whole = |node: &NodeId| match promises[node] {
        // Nobody was ever live: all begin with the same.
        Known { lost, .. } if latest == Ballot::ZERO => !lost,
        Known { entered, whole, .. } => {
            whole && (entered == latest || mutation::active("hermes/whole-before"))
        }
    };
    let whole: NodeSet = promised.iter().filter(is_whole).collect();
    let fit: NodeSet = promised.iter().filter(|node| !slow.contains(*node)).collect();
    let does = fit.len() >= majority && !fit.intersection(whole).is_empty();
    let live = if does { fit } else { promised };
    (live, live.intersection(whole))
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::promises;
    use super::*;

    #[test]
    fn who_is_live_and_whole_follows_from_the_promises_and_from_who_is_slow() {
        for (of, slow, live, whole) in [
            ("0s 0s 0s", "", "1 2 3", "1 2 3"),
            ("0s 0s 0s 0s", "2", "1 3 4", "1 3 4"),
            ("0s 0s 0s", "2", "1 2 3", "1 2 3"),
            ("0x 0s 0s 0s", "", "1 2 3 4", "2 3 4"),
            ("3w 3w 3s", "", "1 2 3", "1 2"),
            // Whole in an earlier epoch is not whole.
            ("3w 2w 3s", "", "1 2 3", "1"),
            ("3s 2w 2w", "", "1 2 3", ""),
            ("3w 3w 3w 3w", "1", "2 3 4", "2 3 4"),
            ("3w 3w 3w 3w 3w", "1 2", "3 4 5", "3 4 5"),
            ("3w 3w 3w 3w 3w", "1 2 3", "1 2 3 4 5", "1 2 3 4 5"),
            // Only the slow one has everything.
            ("3w 3s 3s 3s", "1", "1 2 3 4", "1"),
            ("3w 3x 3x 3x 2w", "1", "1 2 3 4 5", "1"),
            ("3w 3s 3s 3w", "1", "2 3 4", "4"),
            // Nobody has.
            ("3s 3s 3s 2w", "4", "1 2 3 4", ""),
        ] {
            let set = |ids: &str| {
                ids.split_whitespace().map(|id| NodeId::new(id.parse().unwrap()).unwrap()).collect()
            };
            assert_eq!(
                live_and_whole(&promises(of), set(slow), 3),
                (set(live), set(whole)),
                "{of}, slow: {slow}"
            );
        }
    }
}
