//! A member whose disk was lost, until it takes part again ([`crate::rejoin`]).

use quorate_core::{Context, Group, NodeId, NodeSet, mutation};

use super::{Embeds, Epochs, Evidence, Message, Position};
use crate::ballot::Ballot;
use crate::rejoin::{Standing, Step};

/// What one that rejoins has to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinRecord {
    /// It takes part in no epoch before that of this ballot.
    Promised(Ballot),
    /// It takes part again, but in no epoch up to that of this ballot.
    Rejoined(Ballot),
}

impl<P: Position, K: Evidence> Epochs<P, K> {
    /// At a start, of a member whose disk was lost: it rejoins, unless it was recorded that it has, and up to which
    /// ballot it takes part in nothing.
    pub fn start_rejoining<M: Embeds<P, K>>(
        &mut self,
        group: &Group,
        recorded: Option<Ballot>,
        cx: &mut Context<'_, M>,
    ) {
        match recorded {
            Some(lost) => (self.lost, self.standing) = (lost, Standing::Rejoined),
            None if group.rejoining => {
                let others = self.members.voters.without(self.me);
                self.standing = Standing::asking(cx.random().u64(), others);
            }
            None => {}
        }
    }

    /// Whether it promises ballots, and says what it has promised.
    pub fn is_whole(&self) -> bool {
        self.standing.is_whole()
    }

    /// Whether it takes part in no epoch at all yet, and listens to nothing that is said in one.
    pub fn is_asking(&self) -> bool {
        self.standing.asks()
    }

    /// Whether this member may take part in an epoch as a statement says: not if it is live there, and its earlier life
    /// may have promised that. The owner will miss it, and begin another.
    pub fn may_follow(&self, ballot: Ballot, live: NodeSet) -> bool {
        let is_lost = live.contains(self.me) && ballot <= self.lost;
        !is_lost || mutation::active("epochs/live-where-it-was-lost")
    }

    /// What it records when it is through: up to this ballot it takes part in nothing.
    pub fn rejoined(&self) -> Option<Ballot> {
        self.standing.is_recorded().then_some(self.lost)
    }

    /// From time to time: asks the others again, and finds out whether it is through. `own`: how far the own log is
    /// executed.
    pub fn go_on_rejoining<M: Embeds<P, K>>(
        &mut self,
        own: P,
        mut record: impl FnMut(RejoinRecord, &mut Context<'_, M>),
        cx: &mut Context<'_, M>,
    ) {
        let leased = cx.now() < self.leases.bound_until();
        loop {
            match self.standing.go_on(own, leased && !mutation::active("epochs/rejoins-while-leased")) {
                Step::Wait => return,
                Step::Ask { nodes, nonce } => return cx.send_all(nodes, Message::Rejoin { nonce }.into()),
                Step::Bound(ballot) => {
                    (self.lost, self.seen) = (ballot, self.seen.max(ballot));
                    if ballot > self.promised {
                        self.promised = ballot;
                        self.leases.begin(ballot.number());
                        record(RejoinRecord::Promised(ballot), cx);
                    }
                }
                Step::Record { nonce } => {
                    record(RejoinRecord::Rejoined(self.lost), cx);
                    return self.tell(self.me, nonce, own, cx);
                }
            }
        }
    }

    /// Another member's disk was lost.
    pub(super) fn on_rejoin<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        own: P,
        cx: &mut Context<'_, M>,
    ) {
        if self.standing.on_rejoin(from, || cx.random().u64()) {
            self.tell(from, nonce, own, cx);
        }
    }

    fn tell<M: Embeds<P, K>>(&self, to: NodeId, nonce: u64, position: P, cx: &mut Context<'_, M>) {
        cx.send(to, Message::RejoinReply { nonce, ballot: self.seen, position }.into());
    }

    /// For operators: what it waits for, if it rejoins.
    pub fn rejoin_status(&self) -> Option<(&'static str, String)> {
        self.standing.status()
    }
}
