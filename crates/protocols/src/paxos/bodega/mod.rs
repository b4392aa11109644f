//! **Bodega**: linearizable reads answered locally by any replica that a *roster* names (its **responders**), with
//! *roster leases*, which everybody grants to all of them, off the critical path.
//!
//! Hu, Arpaci-Dusseau, Arpaci-Dusseau, *Bodega: Serving Linearizable Reads Locally from Anywhere at Anytime via Roster
//! Leases*. On the machine of [`crate::paxos::engine`], whose `mod.rs` tells elections, votes and what
//! is durable; this folder is its policy.
//!
//! | rule | code |
//! |---|---|
//! | a ballot is one roster: they are promised together, and never change (§3.1) | `ballot_config.rs` |
//! | roster change: revoke all leases of the ballot before, then promise, then grant anew (§3.3.1, §3.3.2) | `paxos/engine/ballots.rs` `adopt` |
//! | safety threshold: the highest slot accepted, sampled after the promise, told with the first renewal or its `Guard` (§3.3.1) | `paxos/engine/leasing.rs` `accepted` |
//! | a write is chosen by a majority and all responders of every key in its batch (§3.2.1) | `policy.rs` `required` |
//! | **read rule**: stable (a majority's promises, everything up to the m-th smallest threshold executed), and no accepted write to the key that is not executed; else the read is *held* until that slot is executed (§3.2.2) | `reads.rs` `answerable`, `paxos/engine/leasing.rs` `is_stable` |
//! | early accept notes: a responder counts votes itself, **by the commit rule** | `notes.rs` |
//! | the leader holds reads too while notes are on, if anybody else can have shown what they wait for | `reads.rs` `waits_for` |
//! | unhold: a read that is held for long is asked of the leader too | `blocks/clients/proxy/mod.rs` |
//! | failure of a responder | `exclusion.rs`, `paxos/bodega/excluded_responders.rs` |
//! | smart coverage (§5.1) | `paxos/bodega/coverage.rs` |
//!
//! # Decisions
//!
//! - *The paper releases held reads at m notes, and lets the leader answer from what is committed* (Figure 17 line 39,
//!   §3.2.2). Both are wrong. (i) S1 has m notes of W and answers with it; the leader has not heard as many votes yet
//!   and answers with the value before. (ii) S1 answers with W; S2, a responder that has not got W, answers with the
//!   value before. Here notes count by the commit rule, and the leader holds reads as any responder does.
//! - *A ballot's owner is its leader.* The paper lets anybody propose a roster that another leads. Here a change is
//!   asked of the leader, which takes a ballot itself; another leader is asked to step up afterwards. So a roster has
//!   one author, who has promised it first.
//! - *A change is announced as soon as its ballot is durable at its owner*, before that has left the ballot before:
//!   all leave at once, give back the leases of the ballot before unasked, and ask for those of the next
//!   (`crates/blocks/src/leases/lease.rs` `Ready`): the change takes two rounds.
//! - *A responder that fails does not change the roster* (the paper proposes another, whose promises wait for the end
//!   of the dead one's leases, during which nobody reads). The leader **excludes** it: grantors let its leases end and
//!   grant it none, and when a majority has done so it can never read under this ballot, so writes need it no more.
//!   The other responders' leases are not touched, and their reads go on without a gap. See `exclusion.rs`. One fails
//!   when it is silent for `responder.timeout`, or when its votes are missing for as long where a majority has voted:
//!   its disk may hang, and its leases need no disk (`blocks/laggards.rs`).
//! - *Changes of the group* exclude all responders first, which is the paper's empty roster.
//! - *Held reads are answered from the state when their slot is executed*, later writes included: those that this
//!   responder had not accepted when the read came can have been acknowledged only after that.
//! - *Keys with a time to live are not read locally.* Any later slot may carry the time at which they expire, also one
//!   that does not write them and that this responder need not have. The leader decides.

mod ballot_config;
mod coverage;
mod excluded_responders;
mod exclusion;
mod message;
mod notes;
mod policy;
mod reads;

use std::time::Duration;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::settings;
use quorate_core::{Capabilities, Group, Protocol, Range, Roster, Settings, SettingsError};

use crate::paxos::engine::{self, Reads};

pub use ballot_config::BallotConfig;
pub use policy::Policy;

/// What its machines say to each other.
pub type Message = engine::Message<message::Message, BallotConfig>;

/// The machine with this policy.
pub type Replica = engine::Replica<Policy>;

/// See the module's comment.
#[derive(Debug)]
pub struct Bodega;

/// What the policy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The roster of the first ballot.
    roster: Roster,
    /// Whether the leader changes the roster by what is read where.
    auto: bool,
    /// Whether acceptors tell responders of their votes.
    early_notes: bool,
    /// A responder that is silent for this long is excluded.
    failure: Duration,
    coverage: coverage::Rule,
}

impl Protocol for Bodega {
    const NAME: &'static str = "bodega";
    const PAPER: &'static str =
        "Hu et al., Bodega: Serving Linearizable Reads Locally from Anywhere at Anytime";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        rosters: true,
        reads: "at every responder, under roster leases (bounded drift)",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(
        group: &Group,
        settings: &mut Settings,
    ) -> Result<(engine::Config<Config>, ProxyConfig), SettingsError> {
        let responders = settings::members(
            group,
            settings,
            "responders",
            "all",
            "The responders of all keys until a roster says otherwise",
        )?;
        let policy = Config {
            roster: Roster::new(None, vec![Range::all(responders)]).expect("one range"),
            auto: settings.flag(
                "roster.auto",
                false,
                "The leader changes the roster by what is read where",
            )?,
            early_notes: settings.flag("early_notes", true, "Acceptors tell responders of their votes")?,
            failure: settings.duration(
                "responder.timeout",
                "1s",
                "A responder that is silent, or whose votes are overdue, for this long is excluded",
            )?,
            coverage: coverage::Rule::from_settings(settings)?,
        };
        let config = engine::Config::new(group, settings, Reads::Lease, policy)?;
        let unhold = Some(settings.duration(
            "unhold",
            "300ms",
            "A read that is held for longer is asked of the leader too",
        )?);
        Ok((
            config,
            ProxyConfig { nearest: true, bounded: true, unhold, ..settings::proxy(group, settings)? },
        ))
    }
}
