//! The head: it orders writes, shows that it is there, and sees to it that its chain gets on.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::clients::HandOver;
use quorate_blocks::laggards::{MUCH_UNDER_WAY, OwnDisk, SojournTime};
use quorate_blocks::prefix_log::Entry;
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, Wall, mutation};

use super::replica::{Replica, Timer};
use super::review::Review;
use super::{Message, PIPELINE_BYTES};

/// An epoch lasts for so many election timeouts at least before one is begun to take somebody in, and so many times as
/// long as it took to commit something: the next one will take as long, and writes wait meanwhile.
const SETTLED: u32 = 4;

/// A reader is without leases for so many election timeouts before another becomes the head.
const LEASELESS: u32 = 10;

/// The patience with a chain that commits nothing doubles so often at most.
const MOST_DOUBLED: u32 = 3;

/// What only a head has.
#[derive(Debug)]
pub struct Head {
    since: Time,
    /// How long it took until the chain committed something.
    first_commit: Option<Duration>,
    /// Up to where each other member's log is durable.
    durable: BTreeMap<NodeId, u64>,
    /// When each reader last believed leases of a majority.
    leased: BTreeMap<NodeId, Time>,
    /// Whether what is durable at one member of the chain becomes so at the next.
    links: BTreeMap<NodeId, OwnDisk>,
    /// How long each takes for what the one before has, since the chain has committed something.
    sojourn_times: BTreeMap<NodeId, SojournTime>,
    /// How soon a heartbeat was answered, at best, since the chain was reviewed.
    fastest_reply: Option<Duration>,
    /// Whether an entry must be appended even if no client writes: a key's time is up.
    needs_empty_batch: bool,
    /// Who is to be left out, because it is about to stop.
    pub(super) leaving: NodeSet,
    pub(super) handing: HandOver,
}

impl Head {
    pub(super) fn new(since: Time) -> Head {
        Head {
            since,
            first_commit: None,
            durable: BTreeMap::new(),
            leased: BTreeMap::new(),
            links: BTreeMap::new(),
            sojourn_times: BTreeMap::new(),
            fastest_reply: None,
            needs_empty_batch: false,
            leaving: NodeSet::EMPTY,
            handing: HandOver::default(),
        }
    }

    /// Up to where another's log is durable, as far as it has said.
    pub(super) fn durable(&self, node: NodeId) -> u64 {
        self.durable.get(&node).copied().unwrap_or(0)
    }
}

impl Replica {
    /// Appends an entry of this epoch.
    pub(super) fn append(&mut self, value: Bytes, cx: &mut Context<'_, Self>) {
        let entry = Entry { term: self.epochs.promised.number(), stamp: None, value: value.into() };
        self.log.verified = self.log.propose(entry, cx);
    }

    /// Everything that has gathered, as entries.
    pub(super) fn propose(&mut self, cx: &mut Context<'_, Self>) {
        loop {
            let time = self.time(cx.now(), cx.wall());
            let full = self.log.is_full(self.config.pipeline as u64, PIPELINE_BYTES);
            let Some(head) = &mut self.leading else { return };
            if full
                || head.handing.target().is_some()
                || !(self.intake.has_writes() || head.needs_empty_batch)
            {
                return;
            }
            head.needs_empty_batch = false;
            let value = self.intake.take_batch(self.config.intake.batch, time);
            self.append(value, cx);
        }
    }

    pub(super) fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.walls.on_replicated_time(now, self.log.state.time());
        let due = self.log.state.wants_slot(self.time(now, cx.wall()));
        let Some(head) = &mut self.leading else { return };
        head.needs_empty_batch |= due;
        let others = self.epochs.members.voters.without(self.me);
        let (ballot, chain, committed) = (self.epochs.promised, self.chain.clone(), self.log.committed);
        cx.send_all(others, Message::Heartbeat { ballot, chain, committed, sent: now });
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
        self.epochs.tend_leases(cx);
        self.review_chain(cx);
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        (sent, wall): (Time, Wall),
        (durable, committed): (u64, u64),
        leased: bool,
        cx: &mut Context<'_, Self>,
    ) {
        let now = cx.now();
        let Some(head) = &mut self.leading else { return };
        let known = head.durable.entry(from).or_default();
        *known = durable.max(*known);
        let took = now.since(sent);
        head.fastest_reply = Some(head.fastest_reply.map_or(took, |fastest| fastest.min(took)));
        if leased {
            head.leased.insert(from, now);
        }
        self.epochs.hear(from, now);
        self.hear_wall(from, (sent, wall), cx);
        // What the whole chain has; the acknowledgement that said so may have been lost.
        if self.chain.contains(&from) {
            self.commit(committed.min(self.links.durable), cx);
        }
    }

    /// Looks who keeps up, and begins another epoch if that is better ([`Review`]).
    pub(super) fn review_chain(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let limit = self.epochs.silence();
        let (last, own) = (self.log.entries.last().0, self.links.durable);
        let (alive, unleased) = (self.alive(now), self.readers_without_leases(limit, now));
        let Some(head) = &mut self.leading else { return };
        let leaves = |node: &NodeId| {
            head.leaving.contains(*node) || unleased.contains(*node) || !alive.contains(*node)
        };
        let mut overdue: NodeSet = self.chain[1..].iter().copied().filter(leaves).collect();
        let hangs = head.links.entry(self.me).or_default().hangs(own, last, limit, now);
        // A chain in which a member catches up behind a slow one is given more time when the last one had too little.
        let patience = limit * (1 << self.in_vain.min(MOST_DOUBLED));
        // What the member before has, or the head.
        let mut before = own;
        for &node in &self.chain[1..] {
            let has = head.durable(node);
            if head.links.entry(node).or_default().hangs(has, before, patience, now) && overdue.is_empty() {
                overdue.insert(node);
            }
            before = has;
        }
        let near = |node: &NodeId| head.durable(*node) + self.config.pipeline as u64 >= self.log.committed;
        let near = self.epochs.members.voters.iter().filter(near).collect();
        let majority = self.epochs.members.voters.majority();
        let commits = self.began_with < Some(self.log.committed);
        let lasted = now.since(head.since);
        let first_commit = commits.then(|| *head.first_commit.get_or_insert(lasted));
        let is_long = |took: Duration| lasted >= SETTLED * took || mutation::active("chain/in-too-soon");
        let settled = first_commit.is_some_and(is_long) && self.epochs.lasts(SETTLED, now);
        let chain = self.chain.iter().copied().collect();
        let slow = first_commit.map(|took| self.slow_members(limit, took, now)).unwrap_or_default();
        let review = Review { chain, alive, overdue, slow, near, majority, settled };
        let back = review.back(self.epochs.laggards.all());
        self.epochs.laggards.review(overdue.union(slow), |node| back.contains(node), limit, now);
        let laggards = self.epochs.laggards.all();
        let others = review.fit(laggards).without(self.me).len();
        if hangs || alive.len() < majority || (unleased.contains(self.me) && others >= majority) {
            // Its own disk hangs, it reaches too few, or too slowly: another may do better.
            self.abdicate(cx);
        } else if self.has_leaseless_reader_for(LEASELESS * self.config.timeouts.election, now) {
            self.make_way_for_next(cx);
        } else if review.begins_another(laggards) {
            self.stand(cx);
        }
    }

    /// Members of the chain that get on, and take a quarter of `limit` for each entry: an epoch without them begins in
    /// the time that a few writes wait for them. What is known of the others is as old as their replies, and those are
    /// late if the own links are slow. A chain is watched for as long as it took to commit something: the next one may
    /// take as long.
    fn slow_members(&mut self, limit: Duration, first_commit: Duration, now: Time) -> NodeSet {
        let Some(head) = &mut self.leading else { return NodeSet::EMPTY };
        let Some(fastest_reply) = head.fastest_reply.take() else { return NodeSet::EMPTY };
        if self.log.is_full(u64::MAX, MUCH_UNDER_WAY) && !mutation::active("chain/slow-by-much-data") {
            head.sojourn_times.clear();
            return NodeSet::EMPTY;
        }
        let late = if mutation::active("chain/slow-by-own-links") { Duration::ZERO } else { fastest_reply };
        let known_after = self.config.timeouts.heartbeat + late;
        let window = if mutation::active("chain/slow-too-soon") { limit } else { limit.max(first_commit) };
        let mut slow = NodeSet::EMPTY;
        let mut before = self.links.durable;
        for &node in &self.chain[1..] {
            // What is committed is durable at all of them.
            let has = head.durable(node).max(self.log.committed);
            let sojourn_time = head.sojourn_times.entry(node).or_insert_with(|| SojournTime::new(has, now));
            if sojourn_time.is_slow((has, before), (limit / 4 + known_after, window), now) {
                slow.insert(node);
            }
            before = has;
        }
        if mutation::active("chain/slow-stays") { NodeSet::EMPTY } else { slow }
    }

    /// Whom a head has heard lately, and itself.
    pub(super) fn alive(&self, now: Time) -> NodeSet {
        self.epochs.alive(now).iter().chain([self.me]).collect()
    }

    /// Readers that have believed no leases of a majority for so long: reads wait for them in vain. The links of one
    /// may be so slow that leases end before they are renewed.
    fn readers_without_leases(&mut self, limit: Duration, now: Time) -> NodeSet {
        let (readers, is_leased) = (self.readers(), self.epochs.leased_until(now).is_some());
        let Some(head) = &mut self.leading else { return NodeSet::EMPTY };
        if is_leased {
            head.leased.insert(self.me, now);
        }
        if self.epochs.eager.is_some() || mutation::active("chain/readers-without-leases") {
            return NodeSet::EMPTY;
        }
        let limit = limit.max(self.config.lease.lease);
        let leased = |node| head.leased.get(&node).map_or(head.since, |leased| *leased);
        readers.iter().filter(|node| now.since(leased(*node)) >= limit).collect()
    }

    /// Whether some reader has had no leases for so long, whatever epochs this member has begun. The links of the head
    /// may be so slow that none come in time, and it may not reach the one that would do in its place: who reaches that
    /// one is to be the head.
    fn has_leaseless_reader_for(&mut self, limit: Duration, now: Time) -> bool {
        let (readers, Some(head)) = (self.readers(), &self.leading) else { return false };
        let is_leased = |at: &Time| now.since(*at) < self.epochs.silence().max(self.config.lease.lease);
        let all = readers.iter().all(|node| head.leased.get(&node).is_some_and(is_leased));
        match all || self.epochs.eager.is_some() || mutation::active("chain/leaseless-head-stays") {
            true => self.leaseless_since = None,
            false => drop(self.leaseless_since.get_or_insert(now)),
        }
        self.leaseless_since.is_some_and(|since| now.since(since) >= limit)
    }

    pub(super) fn abdicate(&mut self, cx: &mut Context<'_, Self>) {
        cx.note(|| Fact::Follows);
        (self.leading, self.leaseless_since) = (None, None);
        self.keeps_intake = false;
        self.chain.clear();
        self.links.peers.clear();
        self.intake.retire();
        self.epochs.abdicate(cx);
    }
}
