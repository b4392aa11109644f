//! **CRaft**: Raft whose entries are sent to the followers in shards, one each, so that a leader sends and a disk keeps
//! a fraction of their bytes. While fewer are there than shards need, entries are sent whole, as in Raft.
//!
//! Wang, Li, Wang, Shao, Bai, Cai, Xu, Wang, *CRaft: An Erasure-coding-supported Version of Raft for Reducing Storage
//! Cost and Network Cost* (FAST 2020); Crossword §2.3. On the machine of [`crate::raft`], whose `mod.rs` tells
//! elections, reads and what is durable. Its code is `raft/coded.rs`.
//!
//! | rule | code |
//! |---|---|
//! | an entry in shards is committed with n − m + d voters (F + k), one that is whole with a majority of m (F + 1) | `coded.rs` `is_safe` |
//! | each voter gets the shard of its number, the leader's own log too | `coded.rs` `split`, `entries_for` |
//! | entries are whole while fewer take part, and those that wait become so | `coded.rs` `code`, `fall_back` |
//! | what a voter has whole is what it says itself | `coded.rs` `append_reply`, `leading.rs` `on_append_reply` |
//! | a new leader gathers what it has in shards before it acts; what a majority has told too little of was not committed, and goes with what is behind it | `coded.rs` `on_elected`, `go_on_gathering` |
//! | followers know what is committed and execute it when the values come | `coded.rs` `review_lacking` |
//! | configurations and no-ops are whole; a configuration is committed over whole entries only | `coded.rs` `code`, `is_safe`, `keep_state` |
//!
//! # Why nothing that was committed is lost
//!
//! With n voters, a majority m, and d shards that restore an entry: who is elected has every committed entry in its log
//! by index and term, as in Raft, whole or in a shard. It hears m voters in its own term, and each that has answered
//! accepts nothing of an earlier leader any more. Of those who had a committed entry, n − m are not among the m. If it
//! was committed in shards, n − m + d had it, each in another shard or whole: d are left. If it was committed whole, m
//! had it: one is left. So what m answers do not restore was not committed.
//!
//! # Decisions
//!
//! - *d is at most what lets one voter be missing* (`coding=auto`): ⌊n/2⌋. With d = m all n voters
//!   must answer. Three voters send whole entries, unless `coding=2` is set.
//! - *An entry counts as whole where a voter says so*, by index. The fallback is no switch of the whole leader: an
//!   entry that was sent in shards stays under their rule until a majority has said that it has all of it. An answer
//!   that was delayed says less than what is true, never more.
//! - *An inherited entry of which nobody knows d* (the leader has it whole, others may not) is committed when a
//!   majority has it whole.
//! - *A configuration waits until a majority has everything before it whole on its disk.* Shards of an older entry were
//!   counted in another group; a majority of the new one may have too few.
//! - *Reads at the leader only*: others cannot execute. LeaseGuard judges an entry by the keys that it writes; a new
//!   leader knows them only when it has gathered, and then it can as well ask a majority.

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::coding::MAX_SHARDS;
use quorate_blocks::election::ElectionTimeouts;
use quorate_blocks::settings;
use quorate_core::{Capabilities, Group, Protocol, Settings, SettingsError};

use super::coded::Coding;
use super::{Config, Message, Reads, Replica};

/// See the module's comment.
#[derive(Debug)]
pub struct CRaft;

impl Protocol for CRaft {
    const NAME: &'static str = "craft";
    const PAPER: &'static str = "Wang et al., CRaft: An Erasure-coding-supported Version of Raft (2020)";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        reads: "at the leader: ReadIndex, or Ongaro's lease",
        max_nodes: MAX_SHARDS,
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        let conflict = |text: String| Err(SettingsError::Conflict(text));
        let timeouts = ElectionTimeouts::from_settings(settings)?;
        let reads = settings.take(
            "reads",
            "quorum",
            "one of quorum, ongaro-lease. Followers have shards and answer nothing, and LeaseGuard needs to know what \
             entries write",
            "How the leader answers reads: by ReadIndex, or under Ongaro's lease",
            |text| match text {
                "quorum" => Some(Reads::Quorum),
                "ongaro-lease" => Some(Reads::OngaroLease),
                _ => None,
            },
        )?;
        let drift = settings::drift(settings)?;
        if timeouts.election < 2 * drift {
            return conflict("election.timeout must be at least twice lease.drift".to_owned());
        }
        let most = MAX_SHARDS / 2 + 1;
        let data = settings.take(
            "coding",
            "auto",
            &format!("`auto`, or a whole number from 2 to {most}"),
            "How many shards restore an entry. `auto`: as many as let one voter be missing before entries are whole, \
             which they always are with three voters",
            |text| match text {
                "auto" => Some(None),
                text => text.parse().ok().filter(|data| (2..=most).contains(data)).map(Some),
            },
        )?;
        let (voters, majority) = (group.members.len(), group.members.majority());
        if let Some(data) = data.filter(|data| !group.joining && *data > majority) {
            return conflict(format!(
                "coding={data} is more than a majority of {voters} voters, and no majority could restore an entry: \
                 at most coding={majority}, or coding=auto"
            ));
        }
        let meaning =
            "A follower fetches the values of which it has shards only when it has had one for so long";
        let age = settings.duration("lacking.age", "2s", meaning)?;
        let meaning = "A follower that has shards of so many bytes of values fetches them";
        let bytes = settings.bytes("lacking.bytes", "64MiB", 0..=16 << 30, meaning)? as usize;
        let config = Config {
            group: group.clone(),
            timeouts,
            reads,
            lease: timeouts.election,
            drift,
            lone_rounds: false,
            follower_reads: false,
            intake: settings::intake(settings)?,
            pipeline: settings::pipeline(settings)?,
            append_bytes: settings::append_bytes(settings)?,
            retain: settings::retain(settings)?,
            coding: Some(Coding { data, age, bytes }),
        };
        Ok((config, settings::proxy(group, settings)?))
    }
}
