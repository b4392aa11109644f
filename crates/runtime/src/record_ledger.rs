//! Which records of a replica the log has, which a saved state holds, and which count as durable; without the log.
//!
//! A **barrier** is a record of [`Context::persist_state`](quorate_core::Context::persist_state): what it speaks of is
//! in no record, but in the state alone. It goes to the log, so that the log may end with it, but nothing after it does
//! before a state is durable that was saved when it was there; until then neither it nor what came later counts as
//! durable. Records that this state holds never go to the log at all: after a restart the replica would be told of them
//! a second time.
//!
//! Records are counted from 1 since the replica started, as in
//! [`Outbox::persisted`](quorate_core::Outbox::persisted).

use std::collections::VecDeque;

use quorate_core::Payload;

/// See the file comment.
#[derive(Debug, Default)]
pub struct RecordLedger {
    /// The last record that the log, or a durable saved state, has.
    handed: u64,
    /// How many of these went to no log, because a saved state has them.
    skipped: u64,
    /// Barriers that no durable saved state holds, in order.
    barriers: VecDeque<u64>,
    /// Records after the first of them.
    withheld: VecDeque<Payload>,
    withheld_bytes: usize,
    /// The last record that the state holds that is being saved, if one is.
    saving: Option<u64>,
}

impl RecordLedger {
    /// Takes records, and the numbers of the barriers among them. Gives those that go to the log now, in order.
    pub fn append(&mut self, records: Vec<Payload>, barriers: impl IntoIterator<Item = u64>) -> Vec<Payload> {
        self.barriers.extend(barriers);
        if self.barriers.is_empty() {
            self.handed += records.len() as u64;
            return records;
        }
        self.withheld_bytes += records.iter().map(Payload::len).sum::<usize>();
        self.withheld.extend(records);
        self.hand_over()
    }

    /// A state is being saved, which holds every record so far. Panics if one is already.
    pub fn begin_state(&mut self) {
        assert!(self.saving.is_none(), "one state is saved at a time");
        self.saving = Some(self.persisted());
    }

    /// Whether a state is being saved.
    pub fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// The state that was being saved is durable, or it was given up: then what waits for a state waits for another.
    /// Gives the records that go to the log now, in order.
    pub fn end_state(&mut self, durable: bool) -> Vec<Payload> {
        let Some(saved) = self.saving.take().filter(|_| durable) else { return Vec::new() };
        while self.barriers.front().is_some_and(|barrier| *barrier <= saved) {
            self.barriers.pop_front();
        }
        if let Some(held) = saved.checked_sub(self.handed) {
            let held = usize::try_from(held).expect("no more than are withheld");
            self.withheld_bytes -= self.withheld.drain(..held).map(|record| record.len()).sum::<usize>();
            self.skipped += held as u64;
            self.handed = saved;
        }
        self.hand_over()
    }

    /// Whether a barrier waits for a state that is saved after it.
    pub fn needs_state(&self) -> bool {
        !self.barriers.is_empty()
    }

    /// How many barriers wait.
    pub fn barriers(&self) -> usize {
        self.barriers.len()
    }

    /// The last record that counts as durable, when the log has made so many of this start durable.
    pub fn durable(&self, in_log: u64) -> u64 {
        let durable = in_log + self.skipped;
        self.barriers.front().map_or(durable, |barrier| durable.min(barrier - 1))
    }

    /// How many records of this start the log was given.
    pub fn in_log(&self) -> u64 {
        self.handed - self.skipped
    }

    /// Records of this start.
    pub fn persisted(&self) -> u64 {
        self.handed + self.withheld.len() as u64
    }

    /// Bytes of the records that are kept back.
    pub fn withheld_bytes(&self) -> usize {
        self.withheld_bytes
    }

    /// Everything up to the first barrier goes to the log.
    fn hand_over(&mut self) -> Vec<Payload> {
        let room = self.barriers.front().map_or(u64::MAX, |barrier| barrier - self.handed);
        let count = self.withheld.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let records: Vec<_> = self.withheld.drain(..count).collect();
        self.withheld_bytes -= records.iter().map(Payload::len).sum::<usize>();
        self.handed += count as u64;
        records
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// One step of a table: `append` with records, of which barriers end in `!`; `save` begins a state, `saved` ends it
    /// and `give-up` does not. The log makes durable at once what it is given.
    fn step(ledger: &mut RecordLedger, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        let to_log = match words[0] {
            "append" => {
                let numbers = ledger.persisted() + 1..;
                let barriers = words[1..].iter().zip(numbers).filter(|(word, _)| word.ends_with('!'));
                let barriers: Vec<_> = barriers.map(|(_, number)| number).collect();
                let record = |word: &&str| Payload::Whole(Bytes::copy_from_slice(word.as_bytes()));
                ledger.append(words[1..].iter().map(record).collect(), barriers)
            }
            "save" => {
                ledger.begin_state();
                Vec::new()
            }
            end => ledger.end_state(end == "saved"),
        };
        let text = |record: Payload| String::from_utf8(record.into_bytes().to_vec()).unwrap();
        let to_log: Vec<_> = to_log.into_iter().map(text).collect();
        let (durable, bytes) = (ledger.durable(ledger.in_log()), ledger.withheld_bytes());
        let to_log = to_log.join(" ");
        format!("log {to_log:<7} | durable {durable} of {} | withheld {bytes} bytes", ledger.persisted())
    }

    #[test]
    fn a_barrier_and_what_follows_it_wait_for_a_state_that_was_saved_after_it() {
        let table = "
            append a       : log a       | durable 1 of 1 | withheld 0 bytes
            save           : log         | durable 1 of 1 | withheld 0 bytes
            append b B! c  : log b B!    | durable 2 of 4 | withheld 1 bytes
            saved          : log         | durable 2 of 4 | withheld 1 bytes
            save           : log         | durable 2 of 4 | withheld 1 bytes
            give-up        : log         | durable 2 of 4 | withheld 1 bytes
            save           : log         | durable 2 of 4 | withheld 1 bytes
            append d D! e  : log         | durable 2 of 7 | withheld 5 bytes
            saved          : log d D!    | durable 5 of 7 | withheld 1 bytes
            save           : log         | durable 5 of 7 | withheld 1 bytes
            saved          : log         | durable 7 of 7 | withheld 0 bytes
            append f       : log f       | durable 8 of 8 | withheld 0 bytes
            save           : log         | durable 8 of 8 | withheld 0 bytes
            append g       : log g       | durable 9 of 9 | withheld 0 bytes
            give-up        : log         | durable 9 of 9 | withheld 0 bytes
            save           : log         | durable 9 of 9 | withheld 0 bytes
            append H!      : log H!      | durable 9 of 10 | withheld 0 bytes
            saved          : log         | durable 9 of 10 | withheld 0 bytes
            save           : log         | durable 9 of 10 | withheld 0 bytes
            saved          : log         | durable 10 of 10 | withheld 0 bytes";
        let mut ledger = RecordLedger::default();
        for line in table.lines().skip(1) {
            let (words, expected) = line.split_once(':').unwrap();
            assert_eq!(step(&mut ledger, words), expected.trim(), "{line}");
        }
        assert!(!ledger.needs_state() && !ledger.is_saving());
    }

    #[test]
    #[should_panic(expected = "one state is saved at a time")]
    fn a_second_state_at_a_time_is_found_out() {
        let mut ledger = RecordLedger::default();
        ledger.begin_state();
        ledger.begin_state();
    }
}
