//! A follower that has shards only of what is chosen.
//!
//! It votes, and counts; it cannot execute. The whole values come from another replica that has executed them, as all
//! missed decisions do (`blocks/catchup.rs`): slot by slot as long as that one keeps them, else with its state. When
//! to fetch is the policy's decision ([`Policy::fetches_lacking`]), since fetching costs what sending shards has saved.
//! In three cases values are fetched at once:
//!
//! - *a leader* must execute what was chosen before its ballot;
//! - *a replica whose vote does not count* gets no shards;
//! - *a configuration that is chosen* must be executed: a change is over when a majority has.
//!
//! What is restored need not be persisted: the shards are, and after a restart it is fetched again. A configuration is
//! the exception. Who has executed it says so, and others may leave the group by that; so the state goes to the disk
//! with it ([`Record::Installed`]).

use bytes::Bytes;
use quorate_blocks::batch::{Batch, Kind};
use quorate_core::{Context, Time, mutation};

use super::policy::Policy;
use super::replica::{Replica, Role};
use super::{MAX_GAP, Record};

/// See the file comment.
#[derive(Debug, Default)]
pub struct Lacking {
    /// Since when there are such slots, or since they were fetched last.
    since: Option<Time>,
    /// Values up to this slot are to be fetched.
    fetch: u64,
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
    /// Decides whether values of which there are shards only are to be fetched. Called when something was chosen.
    pub(super) fn review_lacking(&mut self, now: Time) {
        let (complete, committed) = (self.log.complete(), self.log.committed());
        if complete == committed {
            self.lacking.since = None;
            return;
        }
        let since = *self.lacking.since.get_or_insert(now);
        let configuration = self.lacking.configuration;
        let changes = (complete + 1..=committed).contains(&configuration)
            && !mutation::active("lacking/configuration-waits");
        let many = committed - complete > MAX_GAP / 4;
        if complete >= self.lacking.fetch && (changes || many || P::fetches_lacking(self, now.since(since))) {
            (self.lacking.fetch, self.lacking.since) = (committed, Some(now));
        }
    }

    /// The first slot that is to be fetched, if another replica can tell it.
    pub(super) fn missing_from(&self) -> Option<u64> {
        let fetches = self.log.complete() < self.lacking.fetch
            || self.catchup.is_loading()
            || matches!(self.role, Role::Leader(_))
            || !self.configuration.1.votes(self.me);
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
