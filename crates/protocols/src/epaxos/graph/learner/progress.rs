//! Once a heartbeat a learner tells the others how far it is, and forgets what nobody needs from it any more.
//!
//! An instance may go without a trace when it is below everybody's floor ([`gc_watermarks`](super::gc_watermarks)).
//! Where a member is away, its floor stays where it is. So where batches are too many, those go early that a majority
//! has executed (the same file says which), and leave traces behind: what they touch. Whoever collects early makes its
//! own later instances depend on all that is collected, so the floors of those who are there rise. Traces grow with the
//! keys that are touched, not with the instances that touch them
//! ([`Conflicts`](crate::epaxos::graph::Conflicts)); where even they are too many, see
//! [`forgetting`](super::forgetting).

use quorate_blocks::instance::Frontier;
use quorate_core::{Context, mutation};

use super::Learner;
use super::message::{Host, Message, Progress, Record};
use super::rejoin::Standing;
use crate::epaxos::graph::conflicts::Trace;

/// Traces in one record.
const RECORD_TRACES: usize = 256;

impl Learner {
    /// After each heartbeat: tells how far this one is, and forgets what nobody needs from here any more.
    pub fn tick<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        self.watermarks.advance(self.me, self.state.executed().prefix());
        self.tell_progress(cx);
        self.ask_clocks(cx);
        self.source.retention(0, 0, cx.now());
        self.collect();
        self.forget(cx);
        self.go_on_rejoining(cx);
        if self.is_whole()
            && let Some(time) = self.time(cx.now(), cx.wall())
        {
            let turn = (self.config.members, 2 * self.config.heartbeat);
            self.requests.let_expire(turn, self.next, &self.state, time);
        }
    }

    /// Tells all how far this one is. To itself, too: it comes when the disk has written all before it.
    pub(super) fn tell_progress<M: Host>(&self, cx: &mut Context<'_, M>) {
        cx.send_all(self.config.members, Message::Progress(self.progress()).into());
    }

    pub(super) fn progress(&self) -> Progress {
        let executed = if self.is_counted() { self.state.executed().prefix() } else { Frontier::default() };
        let (barrier, heard) = (self.stated_barrier(), self.known);
        Progress { executed, collected: self.collected, floor: self.floor(), barrier, heard }
    }

    /// What may be collected early: see [`gc_watermarks`](super::gc_watermarks).
    pub(super) fn kept_by_a_majority(&self) -> Frontier {
        self.watermarks.kept_by_a_majority(self.state.executed().prefix(), self.is_counted())
    }

    /// Whether what this one says of itself counts. One that rejoins does not know what its earlier lives have said.
    fn is_counted(&self) -> bool {
        self.is_whole() || mutation::active("learner/counts-while-it-rejoins")
    }

    pub(super) fn floor(&self) -> Frontier {
        // One that rejoins does not know what the instances of its previous life depend on.
        match self.standing {
            Standing::Rejoining(_) => Frontier::default(),
            _ => self.watermarks.floor(self.state.executed().prefix(), self.base),
        }
    }

    fn collect(&mut self) {
        let safe = self.watermarks.safe();
        let mut upto = safe;
        if self.bytes > self.config.retain {
            let kept = self.kept_by_a_majority();
            upto = upto.union(&kept);
            self.base = self.base.union(&kept);
        }
        if safe != std::mem::replace(&mut self.safe, safe) {
            self.settled.retire(&safe);
        }
        if upto.within(&self.collected) {
            return;
        }
        let Learner { table, state, settled, bytes, .. } = self;
        table.retain(|instance, held| {
            let goes = upto.contains(*instance) && state.executed().contains(*instance);
            if goes {
                *bytes -= held.bytes().min(*bytes);
                if !safe.contains(*instance) && !held.state.noop {
                    settled.add(*instance, &held.touched);
                }
            }
            !goes
        });
        self.collected = self.collected.union(&upto.intersection(&state.executed().prefix()));
    }

    /// What collected instances touch, for a restart.
    pub(super) fn settled_records(&self) -> Vec<Record> {
        let totals = self.settled.totals();
        let traces: Vec<_> = self.settled.traces().collect();
        let record = |traces: &[Trace]| Record::Settled { totals, traces: traces.to_vec() };
        // The totals are in each of them: at least one, even if no key is left.
        match traces.is_empty() {
            true => vec![record(&[])],
            false => traces.chunks(RECORD_TRACES).map(record).collect(),
        }
    }
}
