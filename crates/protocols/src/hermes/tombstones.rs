//! A deleted key leaves a *tombstone*: its version, without a value, and the record of its writes. A late version must
//! not bring the key back, and a late copy of a write must not be executed again. After a while (the setting
//! `hermes.tombstones`) a member *forgets* it. What it knows of all keys that it does not have is one timestamp and one
//! time then, its [`Floor`].
//!
//! - *Versions.* A key that is not here counts as deleted, validly, at the floor: its next version is above that, and
//!   an earlier one is answered with it. That is as if this member had adopted such a version of every key that it does
//!   not have, and it needs nobody's consent for that while it is live and whole. Whatever was committed before, it has
//!   had; so the key is deleted, or was never written. Whatever is to be committed in this epoch it has to acknowledge,
//!   and does so above the floor only. And in a later epoch everything is later, since the floor is of this one at
//!   most.
//! - *Writes.* A copy of a write comes with the time at which its session was opened, as the write did. So none is
//!   executed on a key that is not here if its session is as old as one of a forgotten record. Its proxy opens another
//!   session, and its client is told that nobody knows. To spare clients that, proxies open their sessions anew long
//!   before ([`ProxyConfig::renew`](quorate_blocks::clients::ProxyConfig::renew)).
//!
//! **Restarts.** The last version of a forgotten key is in the log until a snapshot is written. A member that starts
//! forgets again what is deleted and below its floor in both respects: what it had forgotten, or held for deleted when
//! it was whole last.
//!
//! **Transfers.** A page comes with the floor of its sender. What a shadow has, and the page should have and has not,
//! was deleted there, if it is not later than the floor. What neither has is as the sender says, when all pages have
//! come: the shadow's floor is the higher one. Until then it is what was true when the shadow was whole last. So
//! whoever gathers what shadows have takes the latest for each key, with each floor for a version of all keys that its
//! member does not have.

use quorate_core::{Context, Fact, digest, mutation, wire_struct};
use quorate_store::Key;

use super::keys::{Held, Timestamp, Version};
use super::replica::Replica;
use super::{Record, record};

/// Keys that are forgotten in one heartbeat.
const AT_ONCE: usize = 4096;

/// What counts as the version of each key that is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The key was deleted at this version or before, or was never written.
    pub at: Timestamp,
    /// Sessions that were opened at this time or before may have writes in it.
    pub forgotten: u64,
}
wire_struct!(Floor { at, forgotten });

impl Floor {
    /// The higher of each.
    #[must_use]
    pub fn max(self, other: Floor) -> Floor {
        Floor { at: self.at.max(other.at), forgotten: self.forgotten.max(other.forgotten) }
    }

    /// As the history of a key that is not here.
    pub fn held(self) -> Held {
        Held { at: self.at, record: record::Record::forgetting(self.forgotten) }
    }

    /// As a version of a key that is not here, which is committed.
    pub fn version(self, key: Key) -> Version {
        let Held { at, record } = self.held();
        Version { key, at, valid: true, value: None, record }
    }
}

impl Timestamp {
    /// Whether nobody wrote this version: it stands for what somebody has forgotten.
    fn is_floor(self) -> bool {
        self.writer == 0 && self.epoch > 0
    }
}

impl Replica {
    /// Forgets keys that were deleted long ago.
    pub(super) fn drop_tombstones(&mut self, cx: &mut Context<'_, Self>) {
        let may = self.serves() || (self.is_live() && mutation::active("hermes/shadow-forgets"));
        let Some(time) = self.time(cx.now(), cx.wall()).filter(|_| may) else { return };
        let remember = self.config.tombstones.as_millis() as u64;
        let old = self.keys.tombstones_before(time.millis().saturating_sub(remember));
        let keys: Vec<Key> = old.filter(|key| !self.coordinator.has(key)).take(AT_ONCE).cloned().collect();
        if keys.is_empty() {
            return;
        }
        let mut floor = self.keys.floor();
        for key in &keys {
            let held = self.keys.last(key);
            if held.at > floor.at && !mutation::active("hermes/forgets-versions") {
                let epoch = self.epochs.promised.number();
                let version = floor.at.version.max(held.at.version + 1);
                floor.at = Timestamp { epoch, version, writer: 0 };
            }
            if !mutation::active("hermes/forgets-writes") {
                floor.forgotten = floor.forgotten.max(held.record.newest());
            }
        }
        self.raise(floor, cx);
        for key in keys {
            self.keys.forget(&key);
            self.coordinator.invalid.remove(&key);
            cx.note(|| Fact::Invalid { key: digest(&key) });
        }
    }

    /// What is known of all keys that are not here is this, at least.
    pub(super) fn raise(&mut self, floor: Floor, cx: &mut Context<'_, Self>) {
        if self.keys.raise(floor) && !mutation::active("hermes/floor-in-memory") {
            self.persist_key(Record::Floor(self.keys.floor()), cx);
        }
    }

    /// A key as it is here, for somebody who has an earlier version. What was forgotten is a version again.
    pub(super) fn recall(&mut self, key: &Key, cx: &mut Context<'_, Self>) -> Option<Version> {
        if self.keys.get(key).is_none() {
            let version = self.keys.floor().version(key.clone());
            self.keys.put(&version).ok()?;
            self.persist_key(Record::Version(version), cx);
        }
        self.keys.version(key)
    }

    /// Another has forgotten more: new keys that are written here would all be below its floor.
    pub(super) fn on_floor_of_another(&mut self, version: &Version, cx: &mut Context<'_, Self>) {
        if version.at.is_floor()
            && self.serves()
            && !mutation::active("hermes/floor-of-another-is-not-taken-over")
        {
            self.raise(Floor { at: version.at, forgotten: version.record.forgotten() }, cx);
        }
    }

    /// Tells checkers that the version that is here is committed; of what somebody has forgotten there are many.
    pub(super) fn note_valid(&self, key: &Key, cx: &mut Context<'_, Self>) {
        if !self.keys.at(key).is_floor() {
            cx.note(|| self.keys.fact(key, self.epochs.promised.number()));
        }
    }
}
