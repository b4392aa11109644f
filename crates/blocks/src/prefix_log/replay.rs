//! A log read back from a replica's records, oldest first.
//!
//! A state that a replica has received counts when it is on its disk
//! ([`quorate_core::Context::persist_state`]), and so does what was recorded behind it. If it is not there at the next
//! start, the records end with the one that says it was received; what the next life records counts again, behind one
//! that says so ([`LogRecord::Resumed`]).

use quorate_core::{Group, Snapshot, Time};

use super::{EmbedsLog, Entry, LogRecord, PrefixLog};
use crate::state::Replicated;

/// See the file comment.
#[derive(Debug)]
pub struct Replay {
    state: Replicated,
    /// The log behind the state, without entries.
    empty: PrefixLog,
    log: PrefixLog,
    now: Time,
    /// A state was received and is not there.
    void: bool,
    /// The last commit position.
    committed: u64,
}

impl Replay {
    /// Begins with the log behind the state that was saved, if one was. `group`: as it was founded.
    pub fn new(saved: Option<Snapshot>, group: &Group, now: Time) -> Replay {
        let load = |image| Replicated::load(&image).expect("an image that was saved loads");
        let state = saved.map_or_else(Replicated::default, load);
        let log = PrefixLog::new(state.applied(), state.origin(), state.configuration_in(group), now);
        Replay { state, empty: log.clone(), log, now, void: false, committed: 0 }
    }

    /// The log so far, if what is read now counts.
    pub fn log(&mut self) -> Option<&mut PrefixLog> {
        (!self.void).then_some(&mut self.log)
    }

    /// The next record. What a protocol records beside the log is its own.
    pub fn on_record(&mut self, record: impl EmbedsLog) {
        match record.into_log() {
            Some(LogRecord::Entry { index, entry }) => self.on_entry(index, entry),
            Some(LogRecord::Committed(index)) if !self.void => self.committed = index,
            // A state up to this index was received. Without it nothing counts. With it the log is behind it.
            Some(LogRecord::Installed { index, keep }) => {
                self.void |= index > self.log.base();
                if !self.void && !keep {
                    self.log = self.empty.clone();
                }
            }
            // Another life has begun without that state.
            Some(LogRecord::Resumed) => self.void = false,
            Some(LogRecord::Committed(_)) | None => {}
        }
    }

    /// An entry; what was at this index and behind it is gone.
    fn on_entry(&mut self, index: u64, entry: Entry) {
        if index <= self.log.base() || self.void {
            return;
        }
        if index <= self.log.last().0 {
            self.log.truncate(index);
        }
        assert!(index == self.log.last().0 + 1, "entry {index} is recorded after a hole");
        self.log.append(entry, self.now);
    }

    /// The state that was saved, the log behind it, up to where that was recorded to be committed, and whether this
    /// life has to say that it begins without a state that had been received ([`LogRecord::Resumed`]).
    pub(super) fn finish(self) -> (Replicated, PrefixLog, u64, bool) {
        (self.state, self.log, self.committed, self.void)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Configuration;
    use crate::state::Origin;

    impl EmbedsLog for LogRecord {
        fn into_log(self) -> Option<LogRecord> {
            Some(self)
        }
    }

    /// Nothing is read yet, behind a state up to `base`.
    fn behind(base: u64) -> Replay {
        let log = PrefixLog::new(base, Origin::default(), (0, Configuration::default()), Time::ZERO);
        let (empty, state) = (log.clone(), Replicated::default());
        Replay { state, empty, log, now: Time::ZERO, void: false, committed: 0 }
    }

    /// Reads records back, behind a state up to `base`: `2:1` is entry 2 of term 1, `at 5` a state up to 5 that was
    /// received, `keep 5` the same if entries behind it stay, `committed 2` a commit position. Gives the terms of the
    /// log, and the commit position.
    fn replayed(base: u64, records: &str) -> (String, u64, bool) {
        let mut replay = behind(base);
        let number = |word: &str| word.parse().expect("a number");
        for record in records.split(", ") {
            replay.on_record(match record.split_once([' ', ':']) {
                None => LogRecord::Resumed,
                Some(("at", index)) => LogRecord::Installed { index: number(index), keep: false },
                Some(("keep", index)) => LogRecord::Installed { index: number(index), keep: true },
                Some(("committed", index)) => LogRecord::Committed(number(index)),
                Some((index, term)) => {
                    let entry = Entry { term: number(term), stamp: None, value: bytes::Bytes::new().into() };
                    LogRecord::Entry { index: number(index), entry }
                }
            });
        }
        let (_, log, committed, void) = replay.finish();
        (log.iter(0).map(|(_, held)| held.entry.term.to_string()).collect(), committed, void)
    }

    #[test]
    fn what_was_recorded_behind_a_state_that_is_not_there_does_not_count() {
        let table = [
            // the state that is there, records → terms of the log, commit position, whether a state is missing
            (0, "1:1, 2:1, committed 2, 3:2", "112", 2, false),
            (0, "1:1, 2:1, 2:3", "13", 0, false),
            (2, "1:1, 2:1, 3:2", "2", 0, false),
            (0, "1:1, committed 1, at 5, 6:2, committed 6", "1", 1, true),
            (0, "1:1, at 5, 6:2, resumed, 2:3, committed 2", "13", 2, false),
            (5, "1:1, 6:1, at 5, 6:2", "2", 0, false),
            (5, "6:1, keep 5, 7:2", "12", 0, false),
        ];
        for (base, records, terms, committed, void) in table {
            let expected = (terms.to_owned(), committed, void);
            assert_eq!(replayed(base, records), expected, "{records} behind {base}");
        }
    }

    /// What a protocol records of an entry would be taken for a word on another of the same index.
    #[test]
    fn what_is_recorded_beside_the_log_counts_when_the_log_does() {
        let mut replay = behind(0);
        let installed = LogRecord::Installed { index: 5, keep: false };
        for (record, counts) in [
            (LogRecord::Committed(0), true),
            (installed, false),
            (LogRecord::Committed(6), false),
            (LogRecord::Resumed, true),
        ] {
            replay.on_record(record);
            assert_eq!(replay.log().is_some(), counts);
        }
    }
}
