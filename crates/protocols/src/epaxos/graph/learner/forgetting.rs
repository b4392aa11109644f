//! Forgetting what executed instances touch, although a member is away.
//!
//! # Problem
//!
//! A recovery of an instance I with the owner's dependencies D asks which executed instances interfere with I and are
//! not in D. Traces ([`Conflicts`](crate::epaxos::graph::Conflicts)) answer that. While a member is away its floor does
//! not rise ([`gc_watermarks`](super::gc_watermarks)), so traces stay; with each new key there are more, and they have
//! a bound. If a replica forgets some, and I turns up later, nobody may be left who can judge whether I was committed
//! on the fast path. Its recovery, and all that depends on it, would wait for ever.
//!
//! # Solution
//!
//! A majority sees to it that what cannot be judged was not committed on the fast path.
//!
//! 1. *Barriers.* Each replica r has a barrier Bᵣ, a frontier within what it has executed, that only grows. r
//!    pre-accepts an instance only with all of Bᵣ among the dependencies that it replies. Its own new instances depend
//!    on Bᵣ, too. A replica raises its barrier when it has too many traces, and the others follow as far as they have
//!    executed the same. So it costs the fast path only until the owners have followed.
//! 2. *Statements.* With each heartbeat r says Bᵣ, and a frontier Hᵣ that holds every instance that it has pre-accepted
//!    so far, its own included. It is true for ever that r pre-accepts I as its owner proposed it only if I is in Hᵣ or
//!    Bᵣ is within D.
//! 3. *Forgetting.* A replica takes what is in the barriers of a majority, P, and the union H of what those had heard
//!    of. Itself is one of them, with the barrier that it has said. When it has executed all of H, it may forget traces
//!    of instances within P.
//! 4. *Judging.* With an answer to a validation it says which instances F it has forgotten. If F is not within D, the
//!    recovery takes a no-op.
//!
//! # Why that is safe
//!
//! Whoever validates I has not executed it, so I is not in the H of step 3: no member of that majority had pre-accepted
//! it when it stated its barrier. F is within P, so P is not within D, and none does so as proposed later. A fast
//! quorum has a member in every majority: I is not committed on the fast path. If votes had committed it on the slow
//! path, the recovery had found one of them.
//!
//! F may have come with a snapshot instead ([`image`](super::image)). Then the sender had executed H, and with its
//! state the receiver has. The receiver's own barrier need not hold F: it is not counted.
//!
//! - *A crash*: a replica says its barrier when all that is in it is executed durably, and begins its next life with a
//!   barrier that holds all that it has executed. So the barrier itself needs no record. It counts itself no sooner
//!   than the others do: what is forgotten leaves with images at once. What is forgotten becomes durable with a
//!   snapshot of this replica; until then a restart brings the traces back.
//! - *A lost disk*: what was in the former barrier was decided, so another member has heard of it. A member that
//!   rejoins takes part when it has executed all that the others have heard of, and then begins like one that restarts.
//!   Until then it says that nothing is behind its barrier, since it does not know what its former life had
//!   pre-accepted: its H would lack that ([`rejoin`](super::rejoin)).
//!
//! # Why it ends
//!
//! H is fixed when P is taken, and every instance in it gets decided, since no recovery waits for somebody who
//! remembers. Until then traces grow with what is executed meanwhile. Where floors of those who are there do rise, only
//! what they have all left behind is put behind the barrier; beyond twice the bound, all that is executed is.

use quorate_blocks::instance::Frontier;
use quorate_core::{Context, mutation};

use super::Learner;
use super::message::{Host, Progress};

/// See the file comment.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// This replica's barrier; every instance that it proposes or pre-accepts depends on it.
    barrier: Frontier,
    /// What was behind the barriers of a majority, and what that majority had heard of.
    agreed: Option<(Frontier, Frontier)>,
    /// Traces within this may go.
    free: Frontier,
}

impl Learner {
    /// Keeps the memory of who touched what within its limit.
    pub(super) fn forget<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        let limit = self.config.keys;
        let executed = self.state.executed().prefix();
        // What this replica's own and later pre-acceptances may interfere with: more dependencies are no harm.
        if self.seen.len() > limit {
            self.seen.forget(&self.safe);
        }
        if self.seen.len() > 2 * limit {
            self.seen.forget(&executed);
        }
        if self.settled.len() > 2 * limit {
            let many = self.settled.len() > 4 * limit;
            let left = self.watermarks.safe_for_present(self.floor(), cx.now());
            self.raise_barrier(if many { executed } else { left });
            self.agree();
            self.settled.forget(&self.forgetting.free);
        }
    }

    /// Raises the barrier to what is executed of this.
    pub(super) fn raise_barrier(&mut self, to: Frontier) {
        let to = to.intersection(&self.state.executed().prefix());
        let Learner { forgetting: Forgetting { barrier, .. }, base, seen, .. } = self;
        *barrier = barrier.union(&to);
        *base = base.union(&to);
        // Every instance that is proposed or pre-accepted here from now on depends on it.
        if !mutation::active("learner/barrier-binds-nobody") {
            seen.miss(&to);
        }
    }

    /// This replica takes part from now on, after a start or a lost disk. What it has said of itself in an earlier life
    /// (its floor, its barrier) it had executed, and so it has now.
    pub(super) fn begin_barrier(&mut self) {
        let executed = self.state.executed().prefix();
        match mutation::active("learner/barrier-lost-in-a-restart") {
            true => self.base = self.base.union(&executed),
            false => self.raise_barrier(executed),
        }
    }

    /// The barrier as others may rely on it: one that rejoins does not know what it has pre-accepted.
    pub(super) fn stated_barrier(&self) -> Frontier {
        let counts = self.is_whole() || mutation::active("learner/barrier-of-a-rejoining-member");
        if counts { self.forgetting.barrier } else { Frontier::default() }
    }

    /// Step 3 of the file comment.
    fn agree(&mut self) {
        // A barrier that it has said is executed durably.
        let own = Progress { barrier: self.watermarks.said().barrier, ..self.progress() };
        let (behind, mut heard) = self.watermarks.behind_barriers(&own);
        // Later ones of its own depend on its barrier.
        heard.set(self.me, heard.of(self.me).min(self.next - 1));
        let Forgetting { agreed, free, .. } = &mut self.forgetting;
        if agreed.is_none() && !behind.within(free) {
            *agreed = Some((behind, heard));
        }
        if mutation::active("learner/forgets-alone") {
            *agreed = Some((own.barrier, Frontier::default()));
        }
        if mutation::active("learner/forgets-what-was-heard") {
            *agreed = Some((behind, Frontier::default()));
        }
        let Some((behind, heard)) = *agreed else { return };
        if heard.within(&own.executed) {
            *free = free.union(&behind);
            *agreed = None;
        }
        self.expect_near(&heard);
    }

    /// Of some of these it is not known here any more what they touch.
    pub fn forgotten(&self) -> Frontier {
        self.settled.forgotten()
    }
}
