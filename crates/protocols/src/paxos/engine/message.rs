//! What replicas and proxies say, and what must be durable before they say it.

use quorate_blocks::ballot::Ballot;
use quorate_blocks::coding::Value;
use quorate_blocks::leases::lease;
use quorate_blocks::{catchup, clients};
use quorate_core::{Arrival, Class, NodeSet, Release, Time, Wall, Wire, wire_enum};

use crate::paxos::engine::slots::{Voted, Votes};
use crate::paxos::engine::{freshness, gossip};

/// A message; `M` are those of the protocol's own, `C` what comes with a ballot. Numbers are slots unless they say
/// otherwise.
#[derive(Clone, Debug)]
pub enum Message<M, C> {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// What only this protocol says.
    Own(M),
    /// Between one that grants a lease and one that holds it.
    Lease(lease::Message),
    /// Between a replica that is behind and one that is not.
    Catchup(catchup::Message),
    /// Between a follower that wants to know how old its state may be and the leader.
    Freshness(freshness::Message),
    /// Between a replica that has shards only and others.
    Gossip(gossip::Message),
    /// Would you support me in this ballot? Binds nobody.
    Poll {
        /// That I would take.
        ballot: Ballot,
    },
    /// Answer to `Poll`.
    PollReply {
        /// The ballot that the poll named.
        ballot: Ballot,
        /// Yes: I have not heard a leader lately.
        granted: bool,
        /// The highest I have seen.
        highest: Ballot,
        /// All slots up to here are chosen; I can tell their values.
        committed: u64,
    },
    /// Phase 1a.
    Prepare {
        /// The ballot that is to be promised.
        ballot: Ballot,
        /// That comes with it.
        ballot_config: C,
        /// Votes below this slot are of no interest, or have been told.
        from: u64,
    },
    /// Phase 1b: I vote in no lower ballot any more.
    PrepareReply {
        /// The ballot that is promised.
        ballot: Ballot,
        /// My votes, or those of the first slots; I can tell the values of those that I know to be chosen.
        reply: Votes,
        /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
        wall: Wall,
    },
    /// Phase 2a.
    Accept {
        /// The ballot of the leader.
        ballot: Ballot,
        /// The slot that it concerns.
        slot: u64,
        /// What: the value, or the receiver's shard of it.
        value: Value,
        /// All slots up to here are chosen.
        committed: u64,
    },
    /// Phase 2b: my votes in these ranges of slots.
    AcceptReply {
        /// In which they were cast.
        ballot: Ballot,
        /// Who else has to vote before mine counts: I have promised them so.
        grants: NodeSet,
        /// The slots that the sender has voted in, in ascending order.
        slots: Vec<Voted>,
    },
    /// I have taken this ballot, and will ask to promise it; leave the one before.
    Announce {
        /// That one.
        ballot: Ballot,
        /// That comes with it.
        ballot_config: C,
    },
    /// What comes with your ballot?
    Which {
        /// That one.
        ballot: Ballot,
    },
    /// I have promised a higher ballot.
    Reject {
        /// The ballot that the sender has promised.
        promised: Ballot,
    },
    /// All slots up to here are chosen, soon after it became so.
    Commit {
        /// The ballot of the leader.
        ballot: Ballot,
        /// The last slot that is chosen, as are all before it.
        committed: u64,
    },
    /// I still lead; and as `Commit`.
    Heartbeat {
        /// The ballot of the leader.
        ballot: Ballot,
        /// The last slot that is chosen, as are all before it.
        committed: u64,
        /// When it was sent, by the leader's monotonic clock; to be repeated in the answer.
        sent: Time,
    },
    /// Answer to `Heartbeat`.
    HeartbeatReply {
        /// The ballot of the leader.
        ballot: Ballot,
        /// I have executed everything up to here; after a crash, at least every configuration in it.
        committed: u64,
        /// I have restarted, and may promise no other ballot for a while.
        bound: bool,
        /// The `sent` of the heartbeat that this answers.
        sent: Time,
        /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
        wall: Wall,
    },
    /// Propose something and tell me where: I execute reads that I have now when it is executed.
    Sync {
        /// The sender's own number for it.
        id: u64,
    },
    /// Answer to `Sync`: here.
    SyncReply {
        /// That one.
        id: u64,
        /// The ballot of the leader.
        ballot: Ballot,
        /// Where it has proposed something.
        slot: u64,
    },
    /// The leader stops; you are the furthest: take over.
    StepUp {
        /// The ballot of the leader.
        ballot: Ballot,
    },
    /// I am about to stop, and hold no lease any more.
    Leave,
}

wire_enum!(Message<M, C> {
    1 => Client(message),
    2 => Lease(message),
    3 => Catchup(message),
    4 => Poll { ballot },
    5 => PollReply { ballot, granted, highest, committed },
    6 => Prepare { ballot, ballot_config, from },
    7 => PrepareReply { ballot, reply, wall },
    8 => Accept { ballot, slot, value, committed },
    9 => AcceptReply { ballot, grants, slots },
    10 => Reject { promised },
    11 => Commit { ballot, committed },
    12 => Heartbeat { ballot, committed, sent },
    13 => HeartbeatReply { ballot, committed, bound, sent, wall },
    14 => StepUp { ballot },
    15 => Own(message),
    16 => Announce { ballot, ballot_config },
    17 => Which { ballot },
    18 => Freshness(message),
    19 => Sync { id },
    20 => SyncReply { id, ballot, slot },
    21 => Gossip(message),
    22 => Leave,
});

impl<M: quorate_core::Message, C: BallotConfig> quorate_core::Message for Message<M, C> {
    fn release(&self) -> Release {
        match self {
            // The candidate's own promise: a restarted leader must take a fresh ballot.
            Message::Prepare { .. } => Release::AfterSync,
            // The promise, and every vote it reports.
            Message::PrepareReply { .. } => Release::AfterSync,
            // The votes.
            Message::AcceptReply { .. } => Release::AfterSync,
            // Who counts next, and who may go, is decided by what is durable where.
            Message::HeartbeatReply { .. } => Release::AfterSync,
            Message::Own(message) => message.release(),
            // A restarted owner must take another ballot: this one's configuration is known.
            Message::Announce { .. } => Release::AfterSync,
            // Shows only what a majority has on disk; and votes, so that nobody takes that for the last word.
            Message::Client(_) => Release::Now,
            // The promise of the ballot: a grantor that came back to the ballot before would vote there, and a
            // responder of this one would miss what it votes for. Later renewals follow an answer to the first.
            Message::Lease(lease::Message::Renew { seq: 1, .. }) => Release::AfterSync,
            // A restarted grantor waits out every promise it can have made; a grantee believes nothing any more.
            Message::Lease(_) => Release::Now,
            // Only what is chosen; durable at a majority.
            Message::Catchup(_) | Message::Commit { .. } | Message::Heartbeat { .. } => Release::Now,
            // Who asks knows the value to be chosen: enough shards of it are durable without these.
            Message::Gossip(_) => Release::Now,
            // Of what was proposed, durable or not.
            Message::Freshness(_) => Release::Now,
            // The proposal's ballot is durable at its owner since `Prepare`.
            Message::Accept { .. } => Release::Now,
            // Bind nobody.
            Message::Poll { .. }
            | Message::PollReply { .. }
            | Message::Which { .. }
            | Message::Sync { .. }
            | Message::StepUp { .. }
            | Message::Leave => Release::Now,
            // The proposal counts when it is chosen, and no other can be of the same slot and ballot.
            Message::SyncReply { .. } => Release::Now,
            // It ends a leader. A candidate whose disk hangs stands again and again, and would depose every other.
            Message::Reject { .. } => Release::AfterSync,
        }
    }

    fn binds(&self) -> Option<u64> {
        match self {
            Message::Prepare { ballot, .. }
            | Message::PrepareReply { ballot, .. }
            | Message::AcceptReply { ballot, .. } => Some(ballot.number()),
            _ => None,
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            Message::Catchup(message) => message.class(),
            Message::Gossip(message) => message.class(),
            Message::Own(message) => message.class(),
            Message::Accept { .. } => Class::Write,
            // In order, as they are of use in order only.
            Message::PrepareReply { reply, .. } if !reply.votes.is_empty() => Class::Write,
            _ => Class::Urgent,
        }
    }

    fn arrival(&self) -> Arrival {
        match self {
            Message::Poll { .. } | Message::PollReply { .. } | Message::HeartbeatReply { .. } => {
                Arrival::AtOnce
            }
            Message::Lease(message) => message.arrival(),
            Message::Own(message) => message.arrival(),
            Message::Announce { .. } => Arrival::Leaves,
            Message::Reject { .. } => Arrival::Hint,
            Message::Client(_)
            | Message::Prepare { .. }
            | Message::PrepareReply { .. }
            | Message::Accept { .. }
            | Message::AcceptReply { .. }
            | Message::Commit { .. }
            | Message::Heartbeat { .. }
            | Message::Catchup(_)
            | Message::Freshness(_)
            | Message::Gossip(_)
            | Message::Which { .. }
            | Message::Sync { .. }
            | Message::SyncReply { .. }
            | Message::StepUp { .. }
            | Message::Leave => Arrival::Any,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            Message::Own(message) => message.kind(),
            Message::Lease(message) => message.kind(),
            Message::Catchup(message) => message.kind(),
            Message::Freshness(message) => message.kind(),
            Message::Gossip(message) => message.kind(),
            other => other.variant(),
        }
    }
}

impl<M, C> From<clients::Message> for Message<M, C> {
    fn from(message: clients::Message) -> Self {
        Message::Client(message)
    }
}

impl<M, C> From<lease::Message> for Message<M, C> {
    fn from(message: lease::Message) -> Self {
        Message::Lease(message)
    }
}

impl<M: quorate_core::Message, C: BallotConfig> clients::Embeds for Message<M, C> {
    fn into_client(self) -> Option<clients::Message> {
        if let Message::Client(message) = self { Some(message) } else { None }
    }
}

/// What comes with a ballot and never changes in it.
pub trait BallotConfig: Wire + Clone + std::fmt::Debug + Default + PartialEq + Send + Sync + 'static {
    /// Whether there is nothing to say, so that a ballot can be promised without being told.
    const EMPTY: bool;
}

impl BallotConfig for () {
    const EMPTY: bool = true;
}

/// What an acceptor must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<C> {
    /// No vote below this ballot any more; and what comes with it.
    Promise {
        /// That one.
        ballot: Ballot,
        /// That comes with it.
        ballot_config: C,
    },
    /// This ballot was taken, and told to others.
    Taken(Ballot),
    /// A vote.
    Vote {
        /// The slot that it concerns.
        slot: u64,
        /// The ballot of the vote.
        ballot: Ballot,
        /// What the vote is for: all of it, or the shards that were sent.
        value: Value,
    },
    /// A decision that differs from the own vote, or there was none.
    Learned {
        /// The slot that it concerns.
        slot: u64,
        /// The ballot promised at the time.
        ballot: Ballot,
        /// The chosen value: all of it, or shards.
        value: Value,
    },
    /// All slots up to here are chosen, as recorded before. Saves work after a restart; safety does not need it.
    Committed(u64),
    /// A snapshot up to this slot came from a peer, and it is durable with the next that is saved here
    /// ([`Context::persist_state`](quorate_core::Context::persist_state)). Until then nothing is recorded behind this,
    /// so a life that starts without that state goes on from what it recorded before.
    Installed(u64),
}
wire_enum!(Record<C> {
    1 => Promise { ballot, ballot_config },
    2 => Vote { slot, ballot, value },
    3 => Learned { slot, ballot, value },
    4 => Committed(slot),
    5 => Installed(slot),
    6 => Taken(ballot),
});

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_blocks::coding::ValueId;
    use quorate_core::{Decoder, Message as _, NodeId, Random, Staleness, Wire, digest};

    use super::*;
    use crate::paxos::engine::slots::Vote;
    use quorate_blocks::coding::spread::ShardSet;

    type Message = super::Message<quorate_core::Never, ()>;
    type Record = super::Record<()>;

    fn samples() -> Vec<Message> {
        let ballot = Ballot::ZERO.next(NodeId::new(2).unwrap());
        let value = Bytes::from_static(b"value");
        let id = ValueId { slot: 8, ballot, digest: digest(&value), len: 5, shards: 5, data: 3 };
        let shard = id.split(&value, 1).nth(3).expect("five shards");
        let vote = Vote { ballot, value: value.clone().into(), chosen: true };
        let reads = vec![(9, value.clone())];
        let reply = Votes { from: 5, committed: 6, votes: vec![(7, vote)], next: Some(8) };
        let seen = clients::ReadObservation { applied: 5, accepted: 6, reply: Some(value.clone()) };
        let voters = NodeSet::from_iter(ballot.node());
        let query = clients::Message::Query { nonce: 1, reads: reads.clone() };
        let ask = clients::Ask {
            nonce: 1,
            session: 2,
            open: true,
            low: 3,
            writes: vec![],
            reads,
            bounds: vec![(9, Staleness::Versions(2))],
            manage: vec![],
            version: 0,
        };
        vec![
            Message::Client(clients::Message::Ask(ask)),
            Message::Client(query),
            Message::Client(clients::Message::Seen {
                nonce: 1,
                voters,
                outgoing: NodeSet::EMPTY,
                reads: vec![(9, seen)],
            }),
            Message::Lease(lease::Message::Renew {
                number: 1,
                guard: 2,
                nonce: 3,
                seq: 4,
                safety_threshold: 5,
            }),
            Message::Catchup(catchup::Message::Values {
                from: 1,
                values: vec![value.clone(), Bytes::new()],
                asked: Time::ZERO,
            }),
            Message::Poll { ballot },
            Message::PollReply { ballot, granted: true, highest: ballot, committed: 6 },
            Message::Prepare { ballot, ballot_config: (), from: 7 },
            Message::PrepareReply { ballot, reply, wall: Wall::ZERO },
            Message::Accept { ballot, slot: 8, value: value.into(), committed: 6 },
            Message::Accept { ballot, slot: 8, value: shard.clone(), committed: 6 },
            Message::AcceptReply {
                ballot,
                grants: NodeSet::EMPTY,
                slots: vec![
                    Voted { first: 8, last: 9, held: None },
                    Voted { first: 11, last: 11, held: Some(ShardSet::arc(4, 2, 5)) },
                ],
            },
            Message::Announce { ballot, ballot_config: () },
            Message::Which { ballot },
            Message::Reject { promised: ballot },
            Message::Commit { ballot, committed: 8 },
            Message::Heartbeat { ballot, committed: 8, sent: Time::ZERO },
            Message::HeartbeatReply { ballot, committed: 8, bound: true, sent: Time::ZERO, wall: Wall::ZERO },
            Message::Sync { id: 7 },
            Message::SyncReply { id: 7, ballot, slot: 8 },
            Message::StepUp { ballot },
            Message::Leave,
            Message::Freshness(freshness::Message::Then { token: 1, slot: 2 }),
            Message::Gossip(gossip::Message::Reconstruct {
                id: 1,
                wanted: vec![gossip::Wanted { slot: 8, value: id, shards: ShardSet::arc(4, 2, 5), most: 1 }],
            }),
            Message::Gossip(gossip::Message::Shards { id: 1, values: vec![(8, shard.clone())] }),
        ]
    }

    #[test]
    fn every_message_survives_the_wire_and_no_cut_of_it_does() {
        for message in samples() {
            let bytes = message.to_bytes();
            let back = Message::from_bytes(bytes.clone()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{message:?}"));
            for cut in 0..bytes.len() {
                assert!(Message::from_bytes(bytes.slice(..cut)).is_err(), "{} cut at {cut}", message.kind());
            }
        }
    }

    #[test]
    fn a_heartbeat_is_a_ballot_a_slot_and_a_time() {
        let heartbeats = samples().into_iter().filter(|message| message.kind() == "Heartbeat");
        let lengths: Vec<_> = heartbeats.map(|message| message.to_bytes().len()).collect();
        // And what says that it is one.
        assert_eq!(lengths, [1 + 3 * size_of::<u64>()]);
    }

    #[test]
    fn arbitrary_and_damaged_bytes_give_errors_not_panics() {
        let mut random = Random::new(3);
        for round in 0..20_000 {
            let samples = samples();
            let mut bytes = samples[round % samples.len()].to_bytes().to_vec();
            for _ in 0..random.range(1..4) {
                let at = random.range(0..bytes.len() as u64) as usize;
                bytes[at] = random.u64() as u8;
            }
            let _ = Message::from_bytes(bytes.clone().into());
            let _ = Record::decode(&mut Decoder::new(bytes.into()));
        }
    }
}
