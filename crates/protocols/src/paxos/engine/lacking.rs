//! A follower that has shards only of what is chosen.
//!
//! It votes, and counts; it cannot execute. Where the policy has gossip, it gathers shards from other followers
//! ([`gossip`](super::gossip)). Otherwise, and where that does not help, the whole values come from another replica
//! that has executed them, as all missed decisions do (`blocks/catchup.rs`): slot by slot as long as that one keeps
//! them, else with its state. When, is the policy's decision ([`LackingConfig`]), since fetching costs what sending
//! shards has saved. Where a client of the node waits until it shows a slot, what is missing up to there is gathered or
//! fetched without waiting. In two cases values are fetched at once:
//!
//! - *a leader* must execute what was chosen before its ballot, if another has it whole; it gathers shards as well;
//! - *a configuration that is chosen* must be executed: a change is over when a majority has.
//!
//! What is restored need not be persisted: the shards are, and after a restart it is had again. A configuration is the
//! exception. Who has executed it says so, and others may leave the group by that; so the state goes to the disk with
//! it ([`Record::Installed`]).

use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::batch::{Batch, Kind};
use quorate_core::{Context, Settings, SettingsError, Time, mutation};

use super::policy::Policy;
use super::replica::{Replica, Role};
use super::{MAX_GAP, Record};

/// When a follower gets the values of which it has shards only.
#[derive(Clone, Copy, Debug)]
pub struct LackingConfig {
    /// When it has had one for so long, and could execute nothing meanwhile. With gossip, whole values are fetched
    /// after twice this time.
    pub age: Duration,
    /// When it has so many bytes of shards, it fetches whole values.
    pub bytes: usize,
    /// It gathers shards from other followers, but for so many bytes of values at the log's end; `None`: from a leader
    /// only, whole.
    pub gossip_gap: Option<usize>,
}

impl LackingConfig {
    /// They are fetched at once.
    pub const AT_ONCE: LackingConfig = LackingConfig { age: Duration::ZERO, bytes: 0, gossip_gap: None };
}

/// `lacking.bytes`.
pub fn lacking_bytes(settings: &mut Settings) -> Result<usize, SettingsError> {
    let meaning = "A follower that has so many bytes of shards fetches the values whole";
    Ok(settings.bytes("lacking.bytes", "64MiB", 0..=16 << 30, meaning)? as usize)
}

/// See the file comment.
#[derive(Debug, Default)]
pub struct Lacking {
    /// The first slot lacks shards since then, or is being fetched since then; and the slot before it.
    since: Option<(Time, u64)>,
    /// Values up to this slot are to be fetched.
    pub(super) fetch: u64,
    /// Shards up to this slot are to be gathered, however near the log's end.
    pub(super) gather: u64,
    /// A client waits until this slot is executed here.
    pub(super) awaited: u64,
    /// The last slot for which a configuration was proposed.
    configuration: u64,
    /// Whether values were executed since the last installed state that are on this disk in shards.
    pub(super) restored: bool,
}

impl Lacking {
    /// What a slot is to carry is known whole.
    pub(super) fn on_value(&mut self, slot: u64, value: &Bytes) {
        if Batch::kind(value) == Kind::Configuration {
            self.configuration = self.configuration.max(slot);
        }
    }
}

impl<P: Policy> Replica<P> {
    /// Decides whether values of which there are shards only are to be gathered or fetched. Called when something was
    /// chosen.
    pub(super) fn review_lacking(&mut self, cx: &mut Context<'_, Self>) {
        let (now, complete, committed) = (cx.now(), self.log.complete(), self.log.committed());
        if complete == committed {
            self.lacking.since = None;
            return;
        }
        let (since, _) = *match &mut self.lacking.since {
            Some(since) if since.1 == complete => since,
            since => since.insert((now, complete)),
        };
        let (waited, config) = (now.since(since), P::lacking(self));
        let gathers = config.gossip_gap.is_some();
        let is_awaited = complete < self.lacking.awaited;
        if gathers && (waited >= config.age || is_awaited) {
            self.lacking.gather = committed;
        }
        let patience = if gathers { 2 * config.age } else { config.age };
        let configuration = self.lacking.configuration;
        let changes = (complete + 1..=committed).contains(&configuration)
            && !mutation::active("lacking/configuration-waits");
        let many = committed - complete > MAX_GAP / 4 || self.log.coded_bytes() > config.bytes;
        let is_due = waited >= patience || is_awaited && !gathers;
        if complete >= self.lacking.fetch && (changes || many || is_due) {
            (self.lacking.fetch, self.lacking.since) = (committed, Some((now, complete)));
        }
        self.gather_soon(cx);
    }

    /// The first slot that is to be fetched, if another replica can tell it.
    pub(super) fn missing_from(&self) -> Option<u64> {
        let fetches = self.log.complete() < self.lacking.fetch || matches!(self.role, Role::Leader(_));
        let known = if fetches { self.log.complete() } else { self.log.committed() };
        self.informants.know_more(known).then_some(known + 1)
    }

    /// A configuration is executed: it will be after any crash.
    pub(super) fn keep_configuration(&mut self, slot: u64, cx: &mut Context<'_, Self>) {
        if std::mem::take(&mut self.lacking.restored) && !mutation::active("lacking/configuration-not-kept") {
            self.persisted = true;
            cx.persist_state(Record::Installed(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_blocks::batch::Entry;
    use quorate_core::Wall;

    use super::*;

    #[test]
    fn a_configuration_that_is_heard_of_late_does_not_take_the_place_of_a_later_one() {
        let configuration = Batch::alone(Wall::ZERO, &Entry::Configuration(Default::default()));
        let mut lacking = Lacking::default();
        for (slot, value, expected) in
            [(5, &configuration, 5), (3, &configuration, 5), (6, &Batch::noop(), 5), (7, &configuration, 7)]
        {
            lacking.on_value(slot, value);
            assert_eq!(lacking.configuration, expected, "{slot}");
        }
    }
}
