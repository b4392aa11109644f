//! Rejoining: a member whose disk was lost comes back under its own id, with an empty disk.
//!
//! It must not take part as it is: it has forgotten votes that others counted. So it first *rejoins*: it does not vote,
//! propose, recover or answer clients. It asks every other member which instances that one has heard of, and until all
//! of these are executed here it only learns. Then it is *whole*, and takes part like any other member.
//!
//! The driver guarantees ([`Group::rejoining`](quorate_core::Group::rejoining)) that before it starts every other
//! member has durably bound its id to the new disk. From then on no message of its previous life is delivered anywhere.
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
//! x restarts: it has recorded that it rejoins, and asks again, with a fresh number, so that an answer which was given
//! to a life before another loss of the disk does not count. It says that it is whole, to operators too, only when the
//! record of that is durable: a loss of power does not make it one that rejoins, when another disk is replaced already.
//! Another member restarts: it has its records, and nothing that it had counted. Another member is away: x waits for
//! its answer, since only that one knows which votes of x it has counted. A group that tolerates no crash cannot decide
//! without x, and is refused at the start ([`LearnerConfig::new`](super::LearnerConfig::new)).
//!
//! # Several at once
//!
//! Another member y lost its disk, too, and has forgotten which votes of x it has counted. It cannot answer, and x does
//! without its answer if no more than f rejoin, x included. Then the others must have answered when nobody can
//! learn any more of what the previous life of y has done. So when x first hears that y rejoins, no answer counts that
//! it has had, and it asks all once more: y says so when all have retired its lost disk. (Otherwise: x and y have
//! voted for a batch of y, p has answered x and votes for it then, y decides and loses its disk. Of those that x asks
//! nobody else has heard of the batch, and x with two of them is a majority that does not know it.)
//!
//! - *Each instance about which x has said anything that counts is in the union.* Whoever acted on what the previous
//!   life of x said is a member that answers, as above, or it is such a y. What y did with it, it told others, who have
//!   recorded it before they answered; or it told nobody, and has forgotten it.
//! - *What was decided is not lost*: each quorum has more than f members, so one of them does not rejoin, and answers.
//!
//! Where more than f rejoin, each waits: something may be lost that was decided, and the operator has to bring back
//! disks.
//!
//! # Why it ends
//!
//! The union is fixed when all have answered. x repeats it to the others: what they have not heard of themselves (only
//! as a dependency, or from another who is gone since) they look after from then on, and recover it, as a no-op if
//! nobody knows its batch.

use quorate_blocks::instance::Frontier;
use quorate_core::{Context, NodeId, NodeSet, Time, mutation};

use super::Learner;
use super::message::{Host, Message, Record};
use crate::epaxos::graph::InstanceState;

/// Whether a replica takes part.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has the disk with which it began.
    Original,
    /// Its disk was lost; it does not take part yet.
    Rejoining(Rejoin),
    /// Its disk was lost, and it is whole again once that is durable.
    Rejoined {
        /// Own instances up to this index are those of an earlier disk.
        last: u64,
        /// Whether that is durable.
        durable: bool,
    },
}

/// How far a replica is that rejoins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejoin {
    /// The number of its question, fresh with each. Answers to another do not count.
    nonce: u64,
    answered: NodeSet,
    /// What any have told that they have heard of.
    union: Frontier,
    /// Others that rejoin at the same time, and have not answered since they said so.
    others_rejoining: NodeSet,
}

impl Rejoin {
    /// Nobody has answered its question yet.
    pub(super) fn new(nonce: u64) -> Rejoin {
        let (answered, others_rejoining) = (NodeSet::EMPTY, NodeSet::EMPTY);
        Rejoin { nonce, answered, union: Frontier::default(), others_rejoining }
    }

    /// Who of the others has to answer yet, where `f` disks may be lost at once.
    fn awaited(&self, others: NodeSet, f: usize) -> NodeSet {
        let are_few = self.others_rejoining.len() < f || mutation::active("learner/excuses-too-many");
        let excused = if are_few { self.others_rejoining } else { NodeSet::EMPTY };
        others.difference(self.answered).difference(excused)
    }
}

impl Learner {
    /// At a start, after everything that was recorded: rejoins if the driver says that the disk was lost, or the disk
    /// that this replica has begun to.
    pub(super) fn start_rejoining<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        if let (true, Standing::Original) = (self.config.rejoining, &self.standing) {
            cx.persist(Record::Rejoining);
            self.standing = Standing::Rejoining(Rejoin::new(self.life));
        }
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
        let rejoin @ Rejoin { nonce, union, .. } = match self.standing {
            Standing::Rejoining(rejoin) => rejoin,
            Standing::Rejoined { durable: false, .. } => return self.await_disk(cx),
            Standing::Original | Standing::Rejoined { durable: true, .. } => return,
        };
        let others = self.config.members.without(self.me);
        let has_all = rejoin.awaited(others, self.config.f()).is_empty();
        if has_all && union.within(&self.state.executed().prefix()) {
            return self.finish_rejoining(union, cx);
        }
        cx.send_all(others, Message::Rejoin { life: nonce, union }.into());
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
        let is_other = self.config.members.without(self.me).contains(from);
        if let Standing::Rejoining(rejoin) = &mut self.standing
            && is_other
            && rejoin.others_rejoining.insert(from)
            && !mutation::active("learner/keeps-answers")
        {
            (rejoin.nonce, rejoin.answered) = (cx.random().u64(), NodeSet::EMPTY);
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
            && life == rejoin.nonce
            && self.config.members.without(self.me).contains(from)
            && rejoin.answered.insert(from)
        {
            rejoin.others_rejoining.remove(from);
            rejoin.union = rejoin.union.union(&known);
            self.expect_all(&known);
        }
    }

    /// For operators: what this replica waits for, if it rejoins.
    pub(super) fn rejoin_status(&self) -> Option<(&'static str, String)> {
        let rejoin @ Rejoin { union, .. } = match &self.standing {
            Standing::Rejoining(rejoin) => rejoin,
            Standing::Rejoined { durable: false, .. } => {
                return Some(("rejoining", "its disk was lost; waits for the new one".to_owned()));
            }
            Standing::Original | Standing::Rejoined { durable: true, .. } => return None,
        };
        let awaited = rejoin.awaited(self.config.members.without(self.me), self.config.f());
        let silent: Vec<_> = awaited.iter().map(|node| node.to_string()).collect();
        let executed = self.state.executed().prefix().intersection(union).len();
        Some((
            "rejoining",
            match silent.is_empty() {
                false => format!("its disk was lost; waits for an answer of {}", silent.join(", ")),
                true => format!("its disk was lost; has executed {executed} of {} instances", union.len()),
            },
        ))
    }
}
