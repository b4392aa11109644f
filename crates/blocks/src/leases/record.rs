//! What a data directory remembers of the leases that its node has granted: how long the longest binds, and under which
//! settings.
//!
//! Problem: a restarted grantor waits for the longest lease that it may have granted ([`LeaseConfig::restart_wait`],
//! and `election.timeout` where voters stand by a leader that long), and it knows that from its settings. If these have
//! changed, the wait is too short, or there is none: of three nodes two start again with shorter leases, elect a leader
//! at once and write, and the third, which is the leader of before, answers reads from the longer lease that both have
//! granted it. Nodes with different settings do not speak to each other, so it hears of nothing. The same goes for
//! leases in a log (LeaseGuard): a new leader measures with its own settings for how long an entry holds.
//!
//! Solution: a node whose settings are others than those of its directory's last start first waits, before its replica
//! takes part in anything, for the longest lease of all settings since it last waited so. It counts from its start,
//! which is later than anything that its last life has promised.
//!
//! [`LeaseConfig::restart_wait`]: super::lease::LeaseConfig::restart_wait

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::settings::parse_duration;
use quorate_core::wire::{Decoder, Encoder};
use quorate_core::{Wire, WireError, mutation};

/// See the file comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// A digest of the settings of the last start.
    settings: u64,
    /// How long the longest lease binds that was granted under these.
    longest: Duration,
    /// The same of earlier settings, of which it is not known that it has ended.
    earlier: Duration,
}

impl Wire for LeaseRecord {
    fn encode(&self, out: &mut Encoder) {
        self.settings.encode(out);
        for lease in [self.longest, self.earlier] {
            u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX).encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let settings = Wire::decode(input)?;
        let [longest, earlier] = [u64::decode(input)?, u64::decode(input)?].map(Duration::from_nanos);
        Ok(LeaseRecord { settings, longest, earlier })
    }
}

impl LeaseRecord {
    /// What is to be durable before a process with these settings takes part. `found`: what was, if anything;
    /// `longest`: from [`longest_lease`].
    pub fn begin(found: Option<LeaseRecord>, settings: u64, longest: Duration) -> LeaseRecord {
        match found {
            None => LeaseRecord { settings, longest, earlier: Duration::ZERO },
            // Distances change leases, too, and whoever restarts waits for the longest of these (`reach.rs`).
            Some(found) if found.settings == settings => {
                LeaseRecord { longest: longest.max(found.longest), ..found }
            }
            Some(found) => LeaseRecord { settings, longest, earlier: found.longest.max(found.earlier) },
        }
    }

    /// How long after its start the process must not take part.
    pub fn wait(&self) -> Duration {
        if mutation::active("leases/other-settings-at-once") { Duration::ZERO } else { self.earlier }
    }

    /// The process has waited that long. This need not be durable: a later life would wait again.
    pub fn waited(self) -> LeaseRecord {
        LeaseRecord { earlier: Duration::ZERO, ..self }
    }
}

/// For how long at most something binds that was promised under these settings in force, whatever the protocol.
pub fn longest_lease(settings: &BTreeMap<String, String>) -> Duration {
    let read = |name| settings.get(name).and_then(|value| parse_duration(value)).unwrap_or_default();
    (read("lease.duration") + read("lease.drift")).max(read("election.timeout"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_starts_with_other_settings_waits_for_the_longest_lease_of_those_before() {
        let mut found: Option<LeaseRecord> = None;
        let mut rows = Vec::new();
        // Settings, the longest lease in milliseconds, whether it waits to the end.
        for (settings, longest, waits) in [
            (1, 780, true),
            (1, 780, true),
            // A longer reach.
            (1, 2600, true),
            (1, 780, true),
            // It dies while it waits, twice, the second time under yet other settings.
            (2, 300, false),
            (2, 300, false),
            (3, 9000, false),
            (2, 300, false),
            (2, 300, true),
            (2, 300, true),
            (1, 0, true),
        ] {
            let mut record = LeaseRecord::begin(found, settings, Duration::from_millis(longest));
            rows.push(record.wait().as_millis());
            if waits {
                record = record.waited();
            }
            found = Some(LeaseRecord::from_bytes(record.to_bytes()).unwrap());
        }
        assert_eq!(rows, [0, 0, 0, 0, 2600, 2600, 2600, 9000, 9000, 0, 300]);
    }

    #[test]
    fn the_longest_lease_is_that_of_a_grantor_or_of_a_voter() {
        let longest = |settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            longest_lease(&settings.collect()).as_millis()
        };
        assert_eq!(longest(&[]), 0);
        assert_eq!(longest(&[("election.timeout", "500ms")]), 500);
        let leased = [("election.timeout", "500ms"), ("lease.duration", "1s"), ("lease.drift", "30ms")];
        assert_eq!(longest(&leased), 1030);
    }
}
