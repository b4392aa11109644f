//! Once a heartbeat a learner tells the others how far it is, and forgets what nobody needs from it any more.
//!
//! Problem: an instance may go without a trace when it is below everybody's floor ([`horizon`](super::horizon)). The
//! floor of a member that is gone stays where it is, so nothing goes any more. Traces have a bound; and where two
//! replicas of a majority of three have dropped what an instance may interfere with, its recovery can never be judged,
//! and whatever depends on it waits for ever. Solution:
//!
//! - Traces grow with the keys that are touched, not with the instances that touch them
//!   ([`Conflicts`](crate::graph::Conflicts)).
//! - Whoever collects early makes its own later instances depend on all that a majority has executed. So the floors of
//!   those who are there rise.
//! - Where traces are too many, those go first that are below the floors of those who are there, and that all that is
//!   undecided, as far as is known here, depends on. Only an instance whose owner is gone and that none of those who
//!   are there has heard of may still ask for them.
//! - Only if that is not enough the oldest go, a quarter of the way at a time.
//! - Keys and sessions that an undecided instance touches whose batch is recorded here stay in any case. They are no
//!   more than what is under way. So a replica can always judge such an instance as it could when it recorded the
//!   batch; and who pre-accepts an instance as its owner proposed it can judge it then, since what it has forgotten is
//!   among the dependencies.
//!
//! Safety depends on none of this: whoever judges an instance says what it had forgotten when it recorded the batch
//! ([`Held`](crate::graph::Held)), and nothing is concluded from that unless another knows it ([`View`](super::View)).

use quorate_core::{Context, Time, mutation};

use super::Learner;
use super::message::{Host, Message, Progress, Record};
use super::rejoin::Standing;
use crate::graph::conflicts::Trace;
use crate::graph::{Frontier, Interference};

/// Traces in one record.
const RECORD_TRACES: usize = 256;

impl Learner {
    /// After each heartbeat: tells how far this one is, and forgets what nobody needs from here any more.
    pub fn tick<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        self.horizon.advance(self.me, self.state.executed().prefix());
        let progress = self.progress();
        let message = Message::Progress { progress, wall: cx.wall() };
        // To itself, too: it comes when the disk has written all before it.
        cx.send_all(self.config.members, message.into());
        self.source.retention(0, 0, cx.now());
        self.collect(&progress, cx.now());
        self.go_on_rejoining(cx);
        if self.is_whole() {
            let turn = (self.config.members, 2 * self.config.heartbeat);
            let time = self.time(cx.now(), cx.wall());
            self.requests.let_expire(turn, self.next, &self.state, time);
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let (executed, collected) = (self.state.executed().prefix(), self.collected);
        Progress { executed, collected, floor: self.floor() }
    }

    pub(super) fn floor(&self) -> Frontier {
        // One that rejoins does not know what the instances of its previous life depend on.
        match self.standing {
            Standing::Rejoining(_) => Frontier::default(),
            _ => self.horizon.floor(self.state.executed().prefix(), self.base),
        }
    }

    fn collect(&mut self, progress: &Progress, now: Time) {
        let own = progress.executed;
        let safe = self.horizon.safe(progress.floor);
        let mut upto = safe;
        if self.bytes > self.config.retain {
            let kept = self.horizon.kept_by_a_majority(own);
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
        self.collected = self.collected.union(&upto.intersection(&own));
        self.bound(now);
    }

    /// Keeps the memory of who touched what within its limit.
    fn bound(&mut self, now: Time) {
        let limit = self.config.keys;
        let executed = self.state.executed().prefix();
        if self.seen.len() > limit {
            self.seen.forget(&self.safe, &Interference::default());
        }
        if self.seen.len() > 2 * limit {
            self.seen.forget(&executed, &Interference::default());
        }
        if self.settled.len() > 2 * limit {
            let asked = self.asked_about();
            self.settled.forget(&self.unasked(now), &asked);
            for quarters in 1..=4 {
                if self.settled.len() > 4 * limit {
                    self.settled.forget(&self.safe.towards(&executed, quarters), &asked);
                }
            }
        }
        self.base = self.base.union(&self.settled.forgotten().intersection(&executed));
    }

    /// What undecided instances touch whose batch is recorded here.
    fn asked_about(&self) -> Interference {
        let mut asked = Interference::default();
        if !mutation::active("learner/forgets-what-is-asked") {
            let undecided = self.table.values().filter(|held| held.is_asked_about());
            undecided.for_each(|held| asked.merge(&held.touched));
        }
        asked
    }

    /// What no recovery will ask for, if those do not come back who are away: what all who are there have as their
    /// floors, and what is heard of and not decided depends on.
    fn unasked(&self, now: Time) -> Frontier {
        if mutation::active("learner/forgets-what-is-asked") {
            return self.state.executed().hull();
        }
        let undecided = self.table.values().filter(|held| !held.is_committed());
        let floor = self.horizon.safe_for_present(self.floor(), now);
        undecided.filter_map(|held| held.state.init).fold(floor, |all, init| all.intersection(&init))
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
