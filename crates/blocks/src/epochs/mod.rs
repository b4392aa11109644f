//! Epochs: who of a group takes part, decided anew whenever that has to change (the paper's *master* in Chain
//! Replication, *reliable membership* in Hermes).
//!
//! Problem: in these protocols a write waits for all who take part. So one that has failed must be removed, and must
//! know that it is before anybody goes on without it.
//!
//! Solution: an **epoch** is a ballot that a majority of the *acceptors*, which are all members of the group, have
//! promised. Its **owner** states who is *live* in it, and in which order. That is Paxos, one instance for each epoch,
//! whose value is the owner's statement: nobody else can make one of this ballot, and the owner makes one in its life
//! and none after a restart, so there is nothing to vote for. An acceptor that has promised a ballot takes part in no
//! earlier epoch. What a majority of the acceptors is needed for is therefore over in every earlier epoch when one
//! begins, if those who are live are a majority.
//!
//! 1. *Poll*: whoever misses the owner asks whether a majority does (a pre-vote), before it takes a ballot. A member
//!    that is cut off disturbs nobody. An owner that misses a member that is live needs no poll.
//! 2. *Prepare*: the candidate asks all acceptors to promise its ballot. An acceptor promises it if the candidate's log
//!    has all that its own has (`P`, where the logs end: the rule of Raft's votes; `()` without logs). From then on it
//!    treats the candidate as an owner for an election timeout after each `Prepare`: it promises nobody else a ballot,
//!    and helps no poll. Two candidates that cannot reach each other would else take a third's promise from each other
//!    for ever. A candidate that polls again has lost its election, and waits longer each time ([`crate::election`]).
//! 3. *Leases*: those who read have promises of a majority that it promises no other ballot before they end
//!    ([`crate::leases`]). So an acceptor first takes back what it has granted, or waits for its end. When an epoch
//!    begins, nobody who was removed has leases of a majority.
//! 4. *Decide*: once a majority has promised, the candidate waits for those that it has seen to work as the owner of
//!    the last epoch, for two election timeouts at most, or else for the others for a heartbeat; and for as long as
//!    what was promised does not suffice ([`Evidence`]). A promise of one that is far takes two round trips, since it
//!    takes leases back, and each later epoch would begin without it as well. Those who have promised hear meanwhile
//!    that the candidate is there. A protocol makes its statement of what each has promised with (`K`), and repeats it
//!    in its heartbeats.
//!
//! Where there are no leases, whoever has read asks a majority of the acceptors whether they have promised a later
//! ballot ([`EagerReads`]).
//!
//! Whoever has lost its disk takes no part before it knows what it may have promised, and has what it may have
//! acknowledged ([`crate::rejoin`]); and never in an epoch of a ballot that its earlier life may have promised.
//!
//! [`Epochs`] never acts for the protocol: it says what there is to do ([`Event`]).

mod eager;
mod message;
mod readers;
mod rejoining;
#[cfg(test)]
mod tests;
mod voting;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use quorate_core::{Context, Machine, NodeId, NodeSet, Time, Wakeup, mutation};

use crate::ballot::Ballot;
use crate::election::{ElectionTimeouts, LeaderMonitor};
use crate::laggards::Laggards;
use crate::leases::Leases;
use crate::leases::lease::{self, LeaseConfig};
use crate::membership::Configuration;
use crate::quorum::Tally;
use crate::rejoin::Standing;

pub use eager::{EagerReads, Reads, Replies};
pub use message::Message;
pub use rejoining::RejoinRecord;

/// What epochs set timers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The owner may have been silent for too long.
    Election,
    /// No promise to a reader binds this acceptor any more: it may promise another ballot.
    Free,
    /// A candidate with a majority has waited long enough for the others.
    Decide,
    /// Promises to readers must be renewed.
    Lease,
    /// What was read lately is to be asked about.
    Ask,
}

impl Timer {
    /// What it is to an exploration.
    pub fn wakeup(self) -> Wakeup {
        match self {
            Timer::Election => Wakeup::TakesOver { times: 1 },
            Timer::Decide => Wakeup::Matters,
            Timer::Free | Timer::Lease | Timer::Ask => Wakeup::Spared,
        }
    }
}

/// A machine that embeds epochs ([`embed_epochs!`](crate::embed_epochs)).
pub trait Embeds<P, K>:
    Machine<Message: From<Message<P, K>> + From<lease::Message>, Timer: From<Timer>>
{
}
impl<P, K, M> Embeds<P, K> for M where
    M: Machine<Message: From<Message<P, K>> + From<lease::Message>, Timer: From<Timer>>
{
}

/// Where a log ends, in the order in which elections compare logs.
pub trait Position: Copy + Ord + Debug + Default {}
impl<P: Copy + Ord + Debug + Default> Position for P {}

/// What a promise tells the candidate of its sender.
pub trait Evidence: Debug + Sized {
    /// Whether an epoch can begin with these promises, of a majority of the acceptors. Otherwise the candidate waits
    /// for more ([`Epochs::stalled`]).
    fn suffices(_acceptors: NodeSet, _promises: &BTreeMap<NodeId, Self>) -> bool {
        true
    }
}

/// What the protocol has to do.
#[must_use]
#[derive(Debug)]
pub enum Event<K> {
    /// The protocol goes on as before.
    Nothing,
    /// Promise the ballot that is wanted, now: [`Epochs::enter`].
    Free,
    /// State who is live, as the owner from now on: [`Epochs::adopt`]. Who has promised, and with what.
    Decided(BTreeMap<NodeId, K>),
    /// Answer these: a majority has promised no later ballot.
    Read(Replies),
}

/// A ballot that is to be promised.
#[derive(Clone, Copy, Debug)]
struct Wanted<P> {
    /// The own one's number is chosen when it can be promised.
    ballot: Ballot,
    /// Where its owner's log ends; `None`: a majority has promised it already.
    position: Option<P>,
}

/// What a member is to the epoch of the ballot that it has promised.
#[derive(Debug)]
pub enum Role<K> {
    /// Follows an owner, or waits for one.
    Member,
    /// Asks whether a majority misses the owner, too.
    Polling(Polling),
    /// Wants to own it.
    Candidate(Candidate<K>),
    /// States who is live in it.
    Owner(Owner),
}

/// Who misses the owner.
#[derive(Clone, Copy, Debug)]
pub struct Polling {
    tally: Tally,
    sent: Time,
}

/// What only a candidate has.
#[derive(Debug)]
pub struct Candidate<K> {
    tally: Tally,
    promises: BTreeMap<NodeId, K>,
    /// As an owner until now: those that work, whose promises are waited for.
    awaited: NodeSet,
    since: Time,
    /// Since when a majority has promised, itself among them.
    enough: Option<Time>,
    /// It has waited for others long enough, and what was promised does not suffice.
    stalled: bool,
}

/// What only an owner has.
#[derive(Debug)]
pub struct Owner {
    since: Time,
    /// When each member was last heard.
    heard: BTreeMap<NodeId, Time>,
}

/// One member's part in the epochs. `P`: where a log ends. `K`: what a promise tells of its sender.
#[derive(Debug)]
pub struct Epochs<P, K> {
    me: NodeId,
    /// All members of the group: the acceptors.
    pub members: Configuration,
    timeouts: ElectionTimeouts,
    lease: LeaseConfig,
    /// The latest ballot that this member has promised. Durable before anybody hears of it.
    pub promised: Ballot,
    /// The latest ballot that it has heard of.
    seen: Ballot,
    role: Role<K>,
    wanted: Option<Wanted<P>>,
    /// When the owner was heard last, and for how long it is waited for.
    pub monitor: LeaderMonitor,
    /// Members that hold others up, or have just done so: a statement does without them if it can.
    pub laggards: Laggards,
    /// About to stop: takes no new duties.
    pub draining: bool,
    /// Who is live in this epoch; empty until that is known.
    live: NodeSet,
    /// Those of them who read.
    readers: NodeSet,
    /// Those that it grants and holds.
    pub leases: Leases,
    /// In place of leases, if that is set.
    pub eager: Option<EagerReads>,
    /// Until when checkers were told that reads are answered from the own state.
    reads_until: Option<Time>,
    /// Whether it promises ballots.
    standing: Standing<Ballot, P>,
    /// Its disk was lost: in epochs up to this ballot it is not live.
    lost: Ballot,
}

impl<P: Position, K: Evidence> Epochs<P, K> {
    /// After a start, with the ballot that was promised last. `patient`: another is to own the first epoch. `bound`: an
    /// earlier life may have granted leases.
    pub fn new<M: Embeds<P, K>>(
        (me, members): (NodeId, Configuration),
        (timeouts, lease): (ElectionTimeouts, LeaseConfig),
        promised: Ballot,
        (patient, bound): (bool, bool),
        cx: &mut Context<'_, M>,
    ) -> Epochs<P, K> {
        let (now, first) = (cx.now(), cx.random().u64());
        let monitor = LeaderMonitor::new(timeouts, patient, now, cx.random());
        Epochs {
            leases: Leases::new(me, lease, bound, first, promised.number(), now),
            me,
            members,
            timeouts,
            lease,
            promised,
            seen: promised,
            role: Role::Member,
            wanted: None,
            monitor,
            laggards: Laggards::default(),
            draining: false,
            live: NodeSet::EMPTY,
            readers: NodeSet::EMPTY,
            eager: None,
            reads_until: None,
            standing: Standing::Original,
            lost: Ballot::ZERO,
        }
    }

    /// Begins to wait for an owner.
    pub fn start<M: Embeds<P, K>>(&self, cx: &mut Context<'_, M>) {
        let patience = self.monitor.remaining(cx.now()).expect("it has just begun");
        let alone = self.members.is_alone(self.me);
        cx.set_timer(Timer::Election.into(), if alone { Duration::ZERO } else { patience });
    }

    /// What it is to the epoch whose ballot it has promised.
    pub fn role(&self) -> &Role<K> {
        &self.role
    }

    /// Whether this member owns the epoch.
    pub fn owns(&self) -> bool {
        matches!(self.role, Role::Owner(_))
    }

    /// Somebody speaks. `own`: where the own log ends, and what a promise of this member tells.
    pub fn on_message<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        message: Message<P, K>,
        (own, known): (P, K),
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        match message {
            // It does not know what it has promised.
            Message::Sync { .. } if !self.is_whole() && !mutation::active("eager-alr/knows-no-promise") => {}
            Message::Poll { .. } | Message::Prepare { .. } if !self.is_whole() => {}
            Message::Poll { sent, position } => self.on_poll(from, sent, (position, own), cx),
            Message::PollReply { sent, ballot } => return self.on_poll_reply(from, (sent, ballot), own, cx),
            Message::Prepare { ballot, position } => {
                return self.on_prepare(from, (ballot, position), (own, known), cx);
            }
            Message::Promise { known, .. } => return self.on_promise(from, known, cx),
            Message::Refused { ballot } => return self.on_refused(ballot, own, cx),
            Message::Sync { ballot, id } => self.on_sync(from, (ballot, id), cx),
            Message::SyncReply { id, promised, .. } => return self.on_sync_reply(from, id, promised),
            Message::Rejoin { nonce } => self.on_rejoin(from, nonce, own, cx),
            Message::RejoinReply { nonce, ballot, position } => {
                self.standing.on_reply(from, from == self.me, nonce, (ballot, position));
            }
        }
        Event::Nothing
    }

    /// A timer has gone off. `own`: where the own log ends.
    pub fn on_timer<M: Embeds<P, K>>(&mut self, timer: Timer, own: P, cx: &mut Context<'_, M>) -> Event<K> {
        match timer {
            Timer::Election => return self.on_election_timer(own, cx),
            Timer::Free => return self.leave_when_free(own, cx),
            Timer::Decide => return self.decide(true, cx),
            Timer::Lease => self.tend_leases(cx),
            // Every step ends with questions about what was read.
            Timer::Ask => {}
        }
        Event::Nothing
    }

    // An epoch ---------------------------------------------------------------------------------------------------

    /// Whether it can be a statement of the owner of this ballot: a majority of the members is live.
    pub fn is_statement(&self, from: NodeId, ballot: Ballot, live: NodeSet) -> bool {
        let known = live.intersection(self.members.voters) == live;
        known && live.len() >= self.members.voters.majority() && ballot.node() == Some(from)
    }

    /// An owner has made its statement. One of a later epoch than this member's was decided without it, which follows
    /// as soon as it may.
    pub fn hear_of<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        own: P,
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        self.seen = self.seen.max(ballot);
        if ballot < self.promised {
            cx.send(from, Message::Refused { ballot: self.promised }.into());
        } else if ballot > self.promised {
            return self.want(Wanted { ballot, position: None }, own, cx);
        }
        Event::Nothing
    }

    /// Whether the statement is one of this member's epoch: it follows the owner.
    pub fn follow(&mut self, from: NodeId, ballot: Ballot, now: Time) -> bool {
        if ballot == self.promised && from != self.me {
            self.monitor.heard(now);
            self.role = Role::Member;
            // Whoever else has asked is not followed while the owner is there.
            self.wanted = self.wanted.filter(|wanted| wanted.ballot.node() == Some(from));
        }
        ballot == self.promised
    }

    /// The statement of this epoch is known: these are live, and those of them who read are granted leases.
    pub fn adopt(&mut self, live: NodeSet, readers: NodeSet) {
        (self.live, self.readers) = (live, readers);
    }

    /// Whether it should not be heard by the owner: it takes no part in this epoch, and promises no later one before
    /// what an earlier life may have granted has ended. An epoch that is begun to take it in would wait for that.
    pub fn is_bound_outside(&self, now: Time) -> bool {
        !self.live.contains(self.me) && now < self.leases.bound_until()
    }

    /// Asks for leases, as one of those who read.
    pub fn ask_for_leases<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) {
        if self.readers.contains(self.me) && self.eager.is_none() {
            self.leases.ready(self.members.voters, cx);
        }
    }

    /// Who is live in this epoch; empty until that is known.
    pub fn live(&self) -> NodeSet {
        self.live
    }

    /// As the owner: another may do better. Until it does, writes of this epoch still need all who are live, but nobody
    /// is granted leases by this member or takes them from others.
    pub fn abdicate<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) {
        (self.role, self.readers) = (Role::Member, NodeSet::EMPTY);
        self.restart_patience(cx);
    }

    /// The next statement does without these, if the others are enough.
    pub fn leave_out(&mut self, nodes: NodeSet, now: Time) {
        self.laggards.review(nodes.without(self.me), |_| false, self.silence(), now);
    }

    // What an owner sees -----------------------------------------------------------------------------------------

    /// How long an owner waits for a member: one that was silent for so long has failed.
    pub fn silence(&self) -> Duration {
        2 * self.timeouts.election
    }

    /// As the owner: a member speaks.
    pub fn hear(&mut self, node: NodeId, now: Time) {
        if let Role::Owner(owner) = &mut self.role {
            owner.heard.insert(node, now);
        }
    }

    /// When the owner has heard a member in this epoch.
    pub fn heard(&self, node: NodeId) -> Option<Time> {
        if let Role::Owner(owner) = &self.role { owner.heard.get(&node).copied() } else { None }
    }

    /// Whom the owner has heard lately, or may not have heard yet; nobody else knows.
    pub fn alive(&self, now: Time) -> NodeSet {
        let Role::Owner(owner) = &self.role else { return NodeSet::EMPTY };
        let heard = |node: &NodeId| owner.heard.get(node).copied().unwrap_or(owner.since);
        self.members.voters.iter().filter(|node| now.since(heard(node)) < self.silence()).collect()
    }

    /// Whether the own epoch has lasted for so many election timeouts.
    pub fn lasts(&self, times: u32, now: Time) -> bool {
        matches!(&self.role, Role::Owner(owner) if now.since(owner.since) >= times * self.timeouts.election)
    }

    /// Asserts what must always hold.
    pub fn check(&self) {
        let own = self.promised.node() == Some(self.me);
        match self.role {
            Role::Member | Role::Polling(_) => {}
            Role::Candidate(_) => assert!(own && self.live.is_empty(), "prepares its own ballot"),
            Role::Owner(_) => assert!(own, "owns its own epoch"),
        }
        assert!(self.promised <= self.seen, "a ballot that is promised was heard of");
        let majority = self.members.voters.majority();
        assert!(self.live.is_empty() || self.live.len() >= majority, "a majority of the members is live");
        assert!(self.readers.intersection(self.live) == self.readers, "who reads is live");
        self.eager.iter().for_each(EagerReads::check);
    }
}
