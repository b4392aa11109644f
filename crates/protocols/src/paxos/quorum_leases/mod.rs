//! **Quorum leases**: any replicas (the **grantees**, by ranges of keys) answer reads from their own state, while a
//! majority grants them leases. A write has to reach all of them that anybody who votes for it has granted a lease.
//!
//! Moraru, Andersen, Kaminsky, *Paxos Quorum Leases: Fast Reads Without Sacrificing Writes* (2014).
//! On the machine of [`crate::paxos::engine`], whose `mod.rs` tells elections, votes and what is durable; this folder
//! is its policy.
//!
//! | rule | code |
//! |---|---|
//! | leases under the ballot's number to leader and grantees; all end before another ballot is promised | `policy.rs` `grantees`, `paxos/engine/ballots.rs` `adopt` |
//! | a vote tells who of the grantees of what the slot writes has a lease of the voter; after a restart all may | `acks.rs` |
//! | a write is chosen by a majority of votes with all whom these name | `paxos/engine/slots/proposer.rs` `CommitTracker` |
//! | **read rule**: a majority's promises, everything up to the m-th smallest threshold executed, and no write to the key that is accepted and not executed; else the leader is asked | `reads.rs`, `paxos/engine/leasing.rs` `is_stable` |
//! | active: a write revokes its keys' grants at whoever accepts it, until it is executed there | `acks.rs` `is_revoked`, `regrants.rs` |
//! | the grantees are set through the log | `policy.rs` `propose`, `blocks/state.rs` |
//! | a roster and a change of the group count as writes to every key | `policy.rs` `written` |
//!
//! # Why reads are linearizable
//!
//! Let H read k at time t, under ballot b, and let W, which writes k in slot w, be shown before t: acknowledged, or
//! read anywhere, thus executed there. H must have executed w, or have accepted it and refuse. M are the grantors of
//! H whose promises it believes and whose thresholds it has executed, itself among them: a majority. Some q is in M
//! and among the voters that had W chosen.
//!
//! 1. *W was chosen in an earlier ballot*: q voted before it promised b, and sampled its threshold after; so H has
//!    executed w. *In a later one*: q would have left b, and with that, ended its promise.
//! 2. *In b, before q's promise to H began*: the threshold covers w. *After that*: q's vote named H, so H has voted
//!    for W.
//!
//! **Rosters.** That q's vote named H supposes that both had the same roster in mind.
//!
//! 3. *A roster counts as a write to every key, and its voters name whomever they have granted anything.* By 1 and
//!    2, H has executed every roster that was chosen before t, or refuses.
//! 4. *Where q does not know that it has executed every roster below w, it names whomever it has granted anything*
//!    (`knows_roster`). Otherwise, let r be the last roster chosen before t, which H has executed. If w < r, H has
//!    executed w. If r < w, q had executed r, since it knew all slots below w and that none above what it had
//!    executed was a roster.
//!
//! **Active.** A voter does not name H for a write to k while it has accepted another to k in a slot below and has
//! not executed that. H reads k only while each of a majority has *regranted* k: it has told what it had executed
//! (`upto`), and which keys were written by what it had accepted behind (`but`). H counts that of q if k is not
//! among these keys, and `upto` lies between the last write to k that H has executed and the last slot that H has
//! executed at all. Let τ be the moment in which q said so, and W the lowest write to k that is chosen, executed
//! somewhere before t, and neither executed nor accepted by H.
//!
//! 5. *q accepted W before τ*: then q had executed it, and w ≤ `upto`, so H has executed it too; or k is in `but`.
//! 6. *After τ*: if q named H, H has voted for W. If not, q had accepted some W′ to k below w that it had not
//!    executed. If before τ, k is in `but`. If after, w′ > `upto`. W′ is chosen, and executed where W is. H has not
//!    executed it, or the last write to k that it has executed would be behind `upto`; nor accepted it; and so W is
//!    not the lowest.
//!
//! A regrant may be lost (it is repeated with each heartbeat), late or repeated: what it says of τ stays true. It
//! counts for one granting only, since a restarted grantor accepts slots anew that it had executed: until the
//! promises of its earlier incarnation have ended it names everybody, without exceptions; afterwards grantings are
//! new. A restarted grantee knows of no regrant. After a snapshot, H takes every key for written in the last slot
//! that it covers.
//!
//! **Configurations.** H counts promises of the voters of the configuration c that it has executed, and W may have
//! been decided by voters of a later one, who share nobody with M.
//!
//! 7. *A configuration counts as a write to every key.* Let x be the first slot behind what H has executed that
//!    holds a configuration, or w if there is none below w. Slot x was decided by voters of c, or of the
//!    configuration before it (`paxos/engine/changes.rs`), whose majorities meet M. So all that is said of W holds
//!    for the write in x: H has executed it, which x excludes, or has voted for it and refuses.
//! 8. *A voter that does not remember its grants names everybody, and the leader takes that for everybody to whom a
//!    lease can have been granted in its ballot*: itself, and those whom it has ever named in `Live`. The members that
//!    the voter knows would not do: a grantee may have left, or have joined behind what the voter has executed.
//!
//! # Decisions
//!
//! - *Regrants are told by watermark and exceptions*, not slot by slot: batches write many keys, of which some may
//!   be open again, and a lost message about one slot would leave its keys unreadable for good.
//! - *A vote makes exceptions for lower slots only.* Were a write to k skipped because of one in a higher slot, it
//!   could be acknowledged before that one has reached H.
//! - *The leader says whom to grant leases* (`Live`): a grantee that cannot vote holds up every write to its keys
//!   until its leases end, and only the leader notices that: it hears nothing from it for `election.timeout`, or has
//!   missed its votes for as long where a majority has voted (`blocks/laggards.rs`).
//! - *Refused reads go to the leader*; none is held. *So do those of keys with a time to live*: any later slot may
//!   carry the time at which they expire, also one that does not write them.
//! - *Only voters are granted leases*, as soon as a change of the group begins: those that leave hold up no write when
//!   they have left. A node that joins is a grantee when a roster says so.

mod acks;
mod message;
mod policy;
mod reads;
mod regrants;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::settings;
use quorate_core::{Capabilities, Group, Protocol, Range, Roster, Settings, SettingsError};

use crate::paxos::engine::{self, Reads};

pub use policy::Policy;

/// What its machines say to each other.
pub type Message = engine::Message<message::Message, ()>;

/// The machine with this policy.
pub type Replica = engine::Replica<Policy>;

/// See the module's comment.
#[derive(Debug)]
pub struct QuorumLeases;

/// What the policy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The grantees until the log says otherwise.
    initial: Roster,
    /// Whether writes leave grants as they are.
    passive: bool,
}

impl Protocol for QuorumLeases {
    const NAME: &'static str = "quorum-leases";
    const PAPER: &'static str = "Moraru et al., Paxos Quorum Leases (2014)";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        rosters: true,
        reads: "at every grantee, under quorum leases (bounded drift)",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(
        group: &Group,
        settings: &mut Settings,
    ) -> Result<(engine::Config<Config>, ProxyConfig), SettingsError> {
        let grantees = settings::members(
            group,
            settings,
            "grantees",
            "all",
            "The grantees until the log says otherwise",
        )?;
        let policy = Config {
            initial: Roster::new(None, vec![Range::all(grantees)]).expect("one range"),
            passive: settings.flag(
                "passive",
                false,
                "The passive variant: grants stay, and every write waits for the grantees",
            )?,
        };
        let config = engine::Config::new(group, settings, Reads::Lease, policy)?;
        Ok((config, ProxyConfig { nearest: true, bounded: true, ..settings::proxy(group, settings)? }))
    }
}

/// The grantees in what this replica has executed.
fn roster(replica: &Replica) -> &Roster {
    replica.state().roster().map_or(&replica.config().policy.initial, |(_, roster)| roster)
}
