//! A log read back from a replica's records, oldest first.
//!
//! A state that a replica has received counts when it is on its disk
//! ([`quorate_core::Context::persist_state`]), and so does what was recorded behind it. If it is not there at the next
//! start, the records end with the one that says it was received; what the next life records counts again, behind one
//! that says so ([`Replay::on_resumed`]).

use quorate_core::Time;

use super::{Entry, PrefixLog};

/// See the file comment.
#[derive(Debug)]
pub struct Replay {
    log: PrefixLog,
    now: Time,
    /// A state was received and is not there.
    void: bool,
}

impl Replay {
    /// Begins with the log behind the state that was saved.
    pub fn new(log: PrefixLog, now: Time) -> Replay {
        Replay { log, now, void: false }
    }

    /// Whether what is read now does not count.
    pub fn is_void(&self) -> bool {
        self.void
    }

    /// The log so far, if what is read now counts.
    pub fn log(&mut self) -> Option<&mut PrefixLog> {
        (!self.void).then_some(&mut self.log)
    }

    /// An entry; what was at this index and behind it is gone.
    pub fn on_entry(&mut self, index: u64, entry: Entry) {
        if index <= self.log.base() || self.void {
            return;
        }
        if index <= self.log.last().0 {
            self.log.truncate(index);
        }
        assert!(index == self.log.last().0 + 1, "entry {index} is recorded after a hole");
        self.log.append(entry, self.now);
    }

    /// A state up to this index was received. `keep`: entries behind it stay; else the log is `anew` if the state is
    /// there.
    pub fn on_installed(&mut self, index: u64, keep: bool, anew: impl FnOnce() -> PrefixLog) {
        self.void |= index > self.log.base();
        if !self.void && !keep {
            self.log = anew();
        }
    }

    /// Another life has begun without that state.
    pub fn on_resumed(&mut self) {
        self.void = false;
    }

    /// The log, and whether this life has to say that it begins without a state that had been received.
    pub fn finish(self) -> (PrefixLog, bool) {
        (self.log, self.void)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Configuration;
    use crate::state::Origin;

    fn behind(base: u64) -> PrefixLog {
        PrefixLog::new(base, Origin::default(), (0, Configuration::default()), Time::ZERO)
    }

    /// Reads records back: `2:1` is entry 2 of term 1, `at 5` a state up to 5 that was received, `keep 5` the same if
    /// entries behind it stay. Gives the terms of the log.
    fn replayed(base: u64, records: &str) -> (String, bool) {
        let mut replay = Replay::new(behind(base), Time::ZERO);
        for record in records.split(", ") {
            match record.split_once(' ') {
                None if record == "resumed" => replay.on_resumed(),
                None => {
                    let (index, term) = record.split_once(':').expect("index and term");
                    let value = bytes::Bytes::new().into();
                    let entry = Entry { term: term.parse().expect("a term"), stamp: None, value };
                    replay.on_entry(index.parse().expect("an index"), entry);
                }
                Some((how, index)) => {
                    let index = index.parse().expect("an index");
                    replay.on_installed(index, how == "keep", || behind(base));
                }
            }
        }
        let (log, void) = replay.finish();
        (log.iter(0).map(|(_, held)| held.entry.term.to_string()).collect(), void)
    }

    #[test]
    fn what_was_recorded_behind_a_state_that_is_not_there_does_not_count() {
        let table = [
            // the state that is there, records → terms of the log, whether a state is missing at the end
            (0, "1:1, 2:1, 3:2", "112", false),
            (0, "1:1, 2:1, 2:3", "13", false),
            (2, "1:1, 2:1, 3:2", "2", false),
            (0, "1:1, at 5, 6:2", "1", true),
            (0, "1:1, at 5, 6:2, resumed, 2:3", "13", false),
            (5, "1:1, 6:1, at 5, 6:2", "2", false),
            (5, "6:1, keep 5, 7:2", "12", false),
        ];
        for (base, records, terms, void) in table {
            assert_eq!(replayed(base, records), (terms.to_owned(), void), "{records} behind {base}");
        }
    }
}
