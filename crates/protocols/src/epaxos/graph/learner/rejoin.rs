//! Rejoining: a member whose disk was lost comes back under its own id, with an empty disk.
//!
//! It must not take part as it is: it has forgotten votes that others counted. So it first *rejoins*: it does not vote,
//! propose, recover or answer clients. It asks every other member which instances that one has heard of, and until all
//! of these are executed here it only learns. Then it is *whole*, and takes part like any other member.
//!
//! What that rests on, and what holds where several rejoin at once, is in [`quorate_blocks::rejoin`].
//!
//! # Why that is safe
//!
//! Call the replica x. To the others it looks as if x had crashed, until it is whole. The protocol tolerates that, with
//! any other crashes up to f together. What remains to be shown: nothing that x does once it is whole contradicts what
//! its previous life said about an instance.
//!
//! - *Each such instance is in the union of the answers.* What the previous life said was delivered to another member
//!   p before p answered, since it can be delivered no later. If p acted on it, then p knew the instance: p is its
//!   owner, or recovers it, or votes in it, and has recorded that before it sent or counted anything. A member knows
//!   its records after a crash, and all members answer.
//! - *It is decided, and x knows how, before x votes again in any instance.* All of the union is executed here, one by
//!   one or by a snapshot, and the record that says so comes after them in the log. So x gives these as dependencies,
//!   and answers validations with them, as a replica does that was never away: a snapshot brings what its instances
//!   touch. A vote of x that somebody has counted and that is not decided yet is no danger: it was given, and x says
//!   nothing else in that instance before it is decided.
//! - *Ballots*: x joins ballots of instances outside of the union only, where it has joined none before.
//! - *Own instances*: x proposes above the highest own index that anybody has heard of, so an index has one batch among
//!   all who know of it. A batch that nobody has heard of is gone. (Its index may be a dependency that a member has
//!   merely read in a message; at worst it is given to another batch, and the dependency costs waiting.)
//! - *Barriers* ([`forgetting`](super::forgetting)): all that the previous life's held was executed, so decided, and
//!   another member has heard of it: it is in the union, and x begins with a barrier that holds the union.
//! - *Floors* ([`gc_watermarks`](super::gc_watermarks)): the previous life said what all of its instances depend on,
//!   those to come included. All of that was decided, so another member has heard of it, it is in the union, and new
//!   instances depend on the union. Until a majority has executed its old instances, x says that they depend on
//!   nothing.
//!
//! # Crashes in between
//!
//! Another member restarts: it has its records, and nothing that it had counted. A group that tolerates no crash cannot
//! decide without x, and is refused at the start ([`LearnerConfig::new`](super::LearnerConfig::new)).
//!
//! # Several at once
//!
//! Another member y lost its disk, too, and does not answer.
//!
//! - *Each instance about which x has said anything that counts is in the union.* Whoever acted on what the previous
//!   life of x said is a member that answers, as above, or it is such a y. What y did with it, it told others, who have
//!   recorded it before they answered; or it told nobody, and has forgotten it.
//! - *What was decided is not lost*: each quorum has more than f members, so one of them does not rejoin, and answers.
//!
//! # Why it ends
//!
//! The union is fixed when all have answered. x repeats it to the others: what they have not heard of themselves (only
//! as a dependency, or from another who is gone since) they look after from then on, and recover it, as a no-op if
//! nobody knows its batch.

use quorate_blocks::instance::Frontier;
use quorate_blocks::rejoin::{LOST, Rejoin};
use quorate_core::{Context, NodeId, NodeSet, REJOINING, Time, mutation};

use super::Learner;
use super::message::{Host, Message, Record};
use crate::epaxos::graph::InstanceState;

/// Whether a replica takes part.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has the disk with which it began.
    Original,
    /// Its disk was lost; it does not take part yet.
    Rejoining(Rejoin<Frontier>),
    /// Its disk was lost, and it is whole again once that is durable.
    Rejoined {
        /// Own instances up to this index are those of an earlier disk.
        last: u64,
        /// Whether that is durable.
        durable: bool,
    },
}

impl Learner {
    /// At a start, after everything that was recorded: rejoins if the driver says that the disk was lost, or the disk
    /// that this replica has begun to.
    pub(super) fn start_rejoining<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        if let (true, Standing::Original) = (self.config.rejoining, &self.standing) {
            cx.persist(Record::Rejoining);
            self.standing = Standing::Rejoining(self.rejoin());
        }
    }

    /// A question to the others, which nobody has answered yet.
    pub(super) fn rejoin(&self) -> Rejoin<Frontier> {
        Rejoin::new(self.life, self.config.members.without(self.me))
    }

    /// Whether this replica takes part: votes, proposes, recovers and answers clients.
    pub fn is_whole(&self) -> bool {
        let whole = matches!(self.standing, Standing::Original | Standing::Rejoined { durable: true, .. });
        whole || mutation::active("learner/rejoins-at-once")
    }

    /// What it must record of this for a restart.
    pub(super) fn standing_record(&self) -> Option<Record> {
        match self.standing {
            Standing::Original => None,
            Standing::Rejoining(_) => Some(Record::Rejoining),
            Standing::Rejoined { last, .. } => Some(Record::Rejoined { last }),
        }
    }

    /// It was recorded that this replica became whole.
    pub(super) fn replay_rejoined(&mut self, last: u64) {
        self.standing = Standing::Rejoined { last, durable: true };
        self.next = self.next.max(last + 1);
        self.watermarks.begin(last, Frontier::default());
    }

    /// Asks again those who have not answered, and finds out whether this replica is whole.
    pub(super) fn go_on_rejoining<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        let rejoin = match self.standing {
            Standing::Rejoining(rejoin) => rejoin,
            Standing::Rejoined { durable: false, .. } => return self.await_disk(cx),
            Standing::Original | Standing::Rejoined { durable: true, .. } => return,
        };
        let (union, life) = (*rejoin.heard(), rejoin.nonce());
        if rejoin.awaited().is_empty() && union.within(&self.state.executed().prefix()) {
            return self.finish_rejoining(union, cx);
        }
        cx.send_all(self.config.members.without(self.me), Message::Rejoin { life, union }.into());
        self.ask(cx);
    }

    fn finish_rejoining<M: Host>(&mut self, union: Frontier, cx: &mut Context<'_, M>) {
        let last = self.known.union(&union).of(self.me);
        // All of the union is executed, and with it what the previous life's barrier held.
        self.begin_barrier();
        cx.persist(Record::Rejoined { last });
        self.replay_rejoined(last);
        self.standing = Standing::Rejoined { last, durable: false };
        self.await_disk(cx);
    }

    /// Says to itself, when all before it is durable, that this replica is whole.
    fn await_disk<M: Host>(&self, cx: &mut Context<'_, M>) {
        cx.send(self.me, Message::RejoinReply { life: self.life, known: Frontier::default() }.into());
    }

    /// Another member rejoins, and has heard of these. One that rejoins itself cannot help, and asks all others anew.
    pub(super) fn on_rejoin<M: Host>(
        &mut self,
        from: NodeId,
        life: u64,
        union: Frontier,
        cx: &mut Context<'_, M>,
    ) {
        self.watermarks.on_rejoin(from, cx.now());
        if self.is_whole() {
            self.expect_all(&union);
            cx.send(from, Message::RejoinReply { life, known: self.heard_of() }.into());
        }
        if let Standing::Rejoining(rejoin) = &mut self.standing {
            rejoin.on_other(from, || cx.random().u64());
        }
    }

    /// Members that do not take part yet: they look at nothing but decisions.
    pub fn rejoining(&self, now: Time) -> NodeSet {
        match mutation::active("epaxos/asks-who-rejoins") {
            true => NodeSet::EMPTY,
            false => self.watermarks.rejoining(now),
        }
    }

    /// The smallest frontier with everything that anybody has said to this replica to exist.
    fn heard_of(&self) -> Frontier {
        let named = |held: &InstanceState| held.state.deps.union(&held.state.init.unwrap_or_default());
        self.table.values().fold(self.known, |heard, held| heard.union(&named(held)))
    }

    /// A member answers. Only its first answer counts: its later ones would never end. This replica answers itself when
    /// it is durable that it is whole.
    pub(super) fn on_rejoin_reply(&mut self, from: NodeId, life: u64, known: Frontier) {
        if let Standing::Rejoined { durable, .. } = &mut self.standing
            && (from, life) == (self.me, self.life)
        {
            *durable = true;
        }
        if let Standing::Rejoining(rejoin) = &mut self.standing
            && rejoin.on_reply(from, life, |union| *union = union.union(&known))
        {
            self.expect_all(&known);
        }
    }

    /// For operators: what this replica waits for, if it rejoins.
    pub(super) fn rejoin_status(&self) -> Option<(&'static str, String)> {
        let rejoin = match &self.standing {
            Standing::Rejoining(rejoin) => rejoin,
            Standing::Rejoined { durable: false, .. } => {
                return Some((REJOINING, format!("{LOST}; waits for the new one")));
            }
            Standing::Original | Standing::Rejoined { durable: true, .. } => return None,
        };
        let status = rejoin.status().unwrap_or_else(|| {
            let union = rejoin.heard();
            let executed = self.state.executed().prefix().intersection(union).len();
            format!("{LOST}; has executed {executed} of {} instances", union.len())
        });
        Some((REJOINING, status))
    }
}
