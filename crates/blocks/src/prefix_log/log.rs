//! One replica's log. Indexes start from 1.

use std::collections::VecDeque;

use quorate_core::{Interval, Time, digest, mutation, wire_struct};

use crate::batch::{Batch, Kind};
use crate::coding::Value;
use crate::membership::Configuration;
use crate::state::Origin;

/// What a leader puts into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of the leader that made it.
    pub term: u64,
    /// True time when it was made, if its leader knew it: the age of a lease is told by it.
    pub stamp: Option<Interval>,
    /// What to execute: an encoded [`Batch`], or shards of one.
    pub value: Value,
}
wire_struct!(Entry { term, stamp, value });

/// An entry that is kept, with what follows from it and from those before it.
#[derive(Clone, Debug)]
pub struct KeptEntry {
    /// The entry, as it was proposed.
    pub entry: Entry,
    /// What is in it, so that nobody decodes it to find out.
    pub kind: Kind,
    /// How many shards restore its value, if this replica's disk has fewer; also when it is whole here in memory.
    pub data: Option<u8>,
    /// When it came to be in this replica's log, this time.
    pub at: Time,
    /// The latest end of any stamp up to it.
    latest: u64,
    /// When the last entry without a stamp came, if there is any up to this one.
    unstamped: Option<Time>,
    /// Bytes of whole values from the start of the log's life up to this one.
    bytes: u64,
}

/// What an [`PrefixLog::accept`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// The log is the sender's up to this index. Entries from `fresh` of those offered on were not there before; with
    /// `cut`, the log's own from that index on have gone.
    Matches {
        /// The last index that is the same.
        upto: u64,
        /// How many of the offered entries were there already.
        fresh: usize,
        /// The first own entry that was removed, if any was.
        cut: Option<u64>,
    },
    /// The entry before the offered ones is not there. The sender may go on after `index`: either the log ends
    /// there, or the entries behind it are of a term that differs.
    Differs {
        /// The last index that may be the same.
        index: u64,
        /// The term of the entry that is there in this log.
        term: u64,
    },
}

/// A log that begins after a snapshot.
#[derive(Clone, Debug)]
pub struct PrefixLog {
    base: u64,
    origin: Origin,
    /// When the base came to be here.
    since: Time,
    entries: VecDeque<KeptEntry>,
    /// Bytes of values up to the base, counted as in [`KeptEntry::bytes`].
    dropped: u64,
    /// The configurations that are written in the log, and before them the one that is in force at the base.
    configurations: Vec<(u64, Configuration)>,
}

/// What an entry takes besides its value, about.
const OVERHEAD: u64 = 64;

impl PrefixLog {
    /// After a snapshot of everything up to `base`, at which this configuration was in force (written at its index).
    pub fn new(base: u64, origin: Origin, configuration: (u64, Configuration), now: Time) -> PrefixLog {
        PrefixLog {
            base,
            origin,
            since: now,
            entries: VecDeque::new(),
            dropped: 0,
            configurations: vec![configuration],
        }
    }

    /// The last index that is not kept.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The last index, and its term.
    pub fn last(&self) -> (u64, u64) {
        let term = self.entries.back().map_or(self.origin.term, |held| held.entry.term);
        (self.base + self.entries.len() as u64, term)
    }

    /// The term of an entry, if it is kept or is the base.
    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.base { Some(self.origin.term) } else { Some(self.get(index)?.entry.term) }
    }

    /// An entry that is kept.
    pub fn get(&self, index: u64) -> Option<&KeptEntry> {
        let index = usize::try_from(index.checked_sub(self.base + 1)?).ok()?;
        self.entries.get(index)
    }

    /// When an entry was made, if it says so and is kept or is the base.
    pub fn stamp(&self, index: u64) -> Option<Interval> {
        if index == self.base { self.origin.stamp } else { self.get(index)?.entry.stamp }
    }

    /// Whether an entry gives a lease up.
    pub fn is_end_lease(&self, index: u64) -> bool {
        match self.get(index) {
            Some(held) => held.kind == Kind::EndLease,
            None => index == self.base && self.origin.end_lease,
        }
    }

    /// When the entry came to be in this log; the start of the log's life for the base.
    pub fn at(&self, index: u64) -> Time {
        self.get(index).map_or(self.since, |held| held.at)
    }

    /// The latest end of any stamp up to an entry; and when the last entry without one came to be here, if there is
    /// any.
    pub fn lease(&self, index: u64) -> (u64, Option<Time>) {
        match self.get(index) {
            Some(held) => (held.latest, held.unstamped),
            None => (self.origin.latest, self.origin.unstamped.then_some(self.since)),
        }
    }

    /// What a snapshot up to this entry must say of it.
    pub fn origin(&self, index: u64) -> Origin {
        let Some(held) = self.get(index) else {
            assert!(index == self.base, "{index} is not kept");
            return self.origin;
        };
        let (latest, unstamped) = match mutation::active("leaseguard/no-lease-in-snapshot") {
            true => (0, false),
            false => (held.latest, held.unstamped.is_some()),
        };
        let Entry { term, stamp, .. } = held.entry;
        Origin { term, stamp, latest, unstamped, end_lease: held.kind == Kind::EndLease }
    }

    /// The last configuration in the log, and where it is written.
    pub fn configuration(&self) -> (u64, &Configuration) {
        let (index, configuration) = self.configurations.last().expect("the base has one");
        (*index, configuration)
    }

    /// The configuration that was in force at an index, and where it is written.
    pub fn configuration_at(&self, index: u64) -> (u64, &Configuration) {
        let upto = self.configurations.partition_point(|(at, _)| *at <= index).max(1);
        let (index, configuration) = &self.configurations[upto - 1];
        (*index, configuration)
    }

    /// Adds an entry; its index. A configuration in it is the last one from now on.
    pub fn append(&mut self, entry: Entry, now: Time) -> u64 {
        let (latest, unstamped) = self.lease(self.last().0);
        let bytes = self.bytes_upto(self.last().0) + entry.value.whole_len() as u64 + OVERHEAD;
        let latest = entry.stamp.map_or(latest, |stamp| latest.max(stamp.latest));
        let unstamped = if entry.stamp.is_some() { unstamped } else { Some(now) };
        // What is in shards is from clients: everything else is whole.
        let kind = entry.value.whole().map_or(Kind::Clients, Batch::kind);
        let data = entry.value.coded().map(|coded| coded.id.data);
        let index = self.last().0 + 1;
        if kind == Kind::Configuration
            && let Some(configuration) = entry.value.whole().and_then(Batch::configuration)
        {
            self.configurations.push((index, configuration));
        }
        self.entries.push_back(KeptEntry { entry, kind, data, at: now, latest, unstamped, bytes });
        index
    }

    /// More of an entry's value has come in: with the shards that are here it may be whole. What is not of the same
    /// value is ignored, and so are shards that restore another one than they say.
    pub fn add_value(&mut self, index: u64, value: &Value) {
        let Some(held) = self.get_mut(index) else { return };
        let Some(own) = held.entry.value.coded() else { return };
        if value.coded().map_or(!value.is_same(&held.entry.value), |coded| coded.id != own.id) {
            return;
        }
        let united = value.clone().over(&held.entry.value);
        held.entry.value = match united.coded().and_then(|coded| coded.decode().ok()) {
            Some(restored) if digest(&restored) == own.id.digest => Value::Whole(restored),
            Some(_) => return,
            None => united,
        };
    }

    /// This disk has so many shards of an entry's value that the second number would restore it; `None`: all of it.
    pub fn set_data(&mut self, index: u64, data: Option<u8>) {
        if let Some(held) = self.get_mut(index) {
            held.data = data;
        }
    }

    fn get_mut(&mut self, index: u64) -> Option<&mut KeptEntry> {
        let index = usize::try_from(index.checked_sub(self.base + 1)?).ok()?;
        self.entries.get_mut(index)
    }

    /// Removes the entries from this one on.
    pub fn truncate(&mut self, from: u64) {
        assert!(from > self.base, "what a snapshot covers is decided");
        self.entries.truncate((from - self.base - 1) as usize);
        while self.configurations.len() > 1 && self.configuration().0 >= from {
            self.configurations.pop();
        }
    }

    /// A leader says that its log has these entries after the one at `prev`. Only what differs is removed.
    pub fn accept(&mut self, prev: (u64, u64), offered: &[Entry], now: Time) -> Append {
        let (index, term) = prev;
        if index < self.base {
            // Covered by the snapshot: decided, and so the same.
            let skip = (self.base - index) as usize;
            return match offered.get(skip..) {
                None => {
                    Append::Matches { upto: index + offered.len() as u64, fresh: offered.len(), cut: None }
                }
                Some(rest) => self.accept_after(self.base, rest, skip, now),
            };
        }
        match self.term(index) {
            Some(own) if own == term => self.accept_after(index, offered, 0, now),
            Some(own) => {
                // The sender has none of this term there: skip it all.
                let mut before = index - 1;
                while before > self.base && self.term(before) == Some(own) {
                    before -= 1;
                }
                let term = self.term(before).unwrap_or(self.origin.term);
                Append::Differs { index: before, term }
            }
            None => {
                let (index, term) = self.last();
                Append::Differs { index, term }
            }
        }
    }

    fn accept_after(&mut self, index: u64, offered: &[Entry], skipped: usize, now: Time) -> Append {
        let same = (index + 1..).zip(offered).take_while(|(at, entry)| self.term(*at) == Some(entry.term));
        let same = same.count();
        let upto = index + offered.len() as u64;
        let mut cut = None;
        if let Some(rest) = offered.get(same..).filter(|rest| !rest.is_empty()) {
            let from = index + same as u64 + 1;
            if from <= self.last().0 {
                self.truncate(from);
                cut = Some(from);
            }
            for entry in rest {
                self.append(entry.clone(), now);
            }
        }
        Append::Matches { upto, fresh: skipped + same, cut }
    }

    /// For a leader that was told that a follower's log may be the same up to `index`, where it has `term`: the last
    /// own index that can be.
    pub fn agree(&self, index: u64, term: u64) -> u64 {
        let mut index = index.min(self.last().0);
        while index > self.base && self.term(index).is_some_and(|own| own > term) {
            index -= 1;
        }
        index
    }

    /// Entries from `from` on, as many as fit into `limit` bytes, at least one if there is one.
    pub fn slice(&self, from: u64, limit: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for index in from.. {
            let Some(held) = self.get(index) else { break };
            bytes += held.entry.value.len() + OVERHEAD as usize;
            if !entries.is_empty() && bytes > limit {
                break;
            }
            entries.push(held.entry.clone());
        }
        entries
    }

    /// Entries from this index on, with their indexes.
    pub fn iter(&self, from: u64) -> impl Iterator<Item = (u64, &KeptEntry)> {
        let skip = (from.saturating_sub(self.base + 1) as usize).min(self.entries.len());
        (self.base + 1 + skip as u64..).zip(self.entries.range(skip..))
    }

    fn bytes_upto(&self, index: u64) -> u64 {
        self.get(index).map_or(self.dropped, |held| held.bytes)
    }

    /// Bytes of the entries in `first..=last`, about.
    pub fn bytes(&self, first: u64, last: u64) -> u64 {
        self.bytes_upto(last).saturating_sub(self.bytes_upto(first.saturating_sub(1).max(self.base)))
    }

    /// Forgets entries up to `upto`, oldest first, while more than `bytes` are kept.
    pub fn retain(&mut self, upto: u64, bytes: usize) {
        let held = self.entries.back().map_or(0, |held| held.bytes - self.dropped);
        let mut excess = held.saturating_sub(bytes as u64);
        while excess > 0 && self.base < upto {
            let next = self.base + 1;
            let origin = self.origin(next);
            let since = self.at(next);
            let Some(first) = self.entries.pop_front() else { break };
            excess = excess.saturating_sub(first.bytes - self.dropped);
            self.dropped = first.bytes;
            (self.base, self.origin) = (next, origin);
            // The timer of an entry without a stamp goes on.
            self.since = since;
            while self.configurations.get(1).is_some_and(|(at, _)| *at <= next) {
                self.configurations.remove(0);
            }
        }
    }

    /// A snapshot up to `base` has taken the place of the entries up to there. Those behind it stay if they follow
    /// it; tells whether they do.
    pub fn install(
        &mut self,
        base: u64,
        origin: Origin,
        configuration: (u64, Configuration),
        now: Time,
    ) -> bool {
        if self.term(base) == Some(origin.term) {
            let bytes = self.bytes_upto(base);
            let drop = (base - self.base) as usize;
            self.entries.drain(..drop);
            self.dropped = bytes;
            (self.base, self.origin, self.since) = (base, origin, now);
            let kept =
                self.configurations.split_off(self.configurations.partition_point(|(at, _)| *at <= base));
            self.configurations = std::iter::once(configuration).chain(kept).collect();
            return true;
        }
        *self = PrefixLog::new(base, origin, configuration, now);
        false
    }

    /// Asserts what must always hold.
    pub fn check(&self) {
        let mut term = self.origin.term;
        for held in &self.entries {
            assert!(held.entry.term >= term, "terms never go back in a log");
            term = held.entry.term;
        }
        assert!(self.configurations.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(self.configuration().0 <= self.last().0);
    }
}

#[cfg(test)]
mod tests {
    use crate::ballot::Ballot;
    use crate::coding::ValueId;

    use super::*;

    fn entry(term: u64) -> Entry {
        Entry { term, stamp: None, value: bytes::Bytes::new().into() }
    }

    /// A log whose entries have these terms.
    fn chain(terms: &str) -> PrefixLog {
        let mut chain = PrefixLog::new(0, Origin::default(), (0, Configuration::default()), Time::ZERO);
        terms.chars().filter_map(|c| c.to_digit(10)).for_each(|term| {
            chain.append(entry(term.into()), Time::ZERO);
        });
        chain
    }

    fn terms(chain: &PrefixLog) -> String {
        chain.iter(0).map(|(_, held)| held.entry.term.to_string()).collect()
    }

    /// own terms | previous index and term, terms offered | result | own terms after
    const TABLE: &str = "
        -      | 0:0 123  | upto 3 fresh 0      | 123
        123    | 0:0 123  | upto 3 fresh 3      | 123
        123    | 2:2 34   | upto 4 fresh 1      | 1234
        1233   | 2:2 3    | upto 3 fresh 1      | 1233
        1244   | 2:2 35   | upto 4 fresh 0 cut 3 | 1235
        11     | 4:2 3    | differs 2:1         | 11
        1222   | 4:3 3    | differs 1:1         | 1222
        222    | 3:3 3    | differs 0:0         | 222
    ";

    #[test]
    fn a_log_becomes_the_leaders_and_keeps_what_is_the_same() {
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let mut own = chain(columns[0]);
            let (prev, offered) = columns[1].split_once(' ').unwrap();
            let (index, term) = prev.split_once(':').unwrap();
            let offered: Vec<_> = offered.chars().map(|c| entry(c.to_digit(10).unwrap().into())).collect();
            let found =
                match own.accept((index.parse().unwrap(), term.parse().unwrap()), &offered, Time::ZERO) {
                    Append::Matches { upto, fresh, cut: None } => format!("upto {upto} fresh {fresh}"),
                    Append::Matches { upto, fresh, cut: Some(cut) } => {
                        format!("upto {upto} fresh {fresh} cut {cut}")
                    }
                    Append::Differs { index, term } => format!("differs {index}:{term}"),
                };
            assert_eq!((&found[..], &terms(&own)[..]), (columns[2], columns[3]), "{line}");
            own.check();
        }
    }

    #[test]
    fn shards_that_restore_another_value_than_they_say_are_ignored() {
        let [value, other] = [1, 2].map(|byte| bytes::Bytes::from(vec![byte; 1000]));
        let (ballot, digest, len) = (Ballot::ZERO, digest(&value), value.len() as u32);
        let id = ValueId { slot: 1, ballot, digest, len, shards: 3, data: 2 };
        let [shards, lies] = [&value, &other].map(|value| id.split(value, 1).collect::<Vec<_>>());
        let mut own = chain("");
        own.append(Entry { value: shards[0].clone(), ..entry(1) }, Time::ZERO);
        let another = ValueId { digest: super::digest(&other), ..id };
        let of_another = another.split(&other, 1).nth(1).expect("there are three");
        for ignored in [&lies[1], &of_another] {
            own.add_value(1, ignored);
            assert_eq!(own.get(1).unwrap().entry.value, shards[0]);
        }
        own.add_value(1, &shards[2]);
        assert_eq!(own.get(1).unwrap().entry.value, Value::Whole(value));
    }

    /// Whoever begins with it may not read by it either.
    #[test]
    fn that_a_lease_was_given_up_outlasts_the_entry_that_says_so() {
        let end = Batch::alone(quorate_core::Wall::ZERO, &crate::batch::Entry::EndLease);
        let mut own = chain("11");
        own.append(Entry { value: end.into(), ..entry(1) }, Time::ZERO);
        for base in [0, 2, 3] {
            own.retain(base, 0);
            let ends: Vec<_> = (0..6).filter(|index| own.is_end_lease(*index)).collect();
            assert_eq!((own.base(), ends), (base, vec![3]));
        }
        assert!(own.origin(3).end_lease, "a snapshot says so, too");
    }

    #[test]
    fn what_a_snapshot_covers_is_taken_for_the_same() {
        let mut own = chain("1122");
        own.retain(3, 0);
        assert_eq!((own.base(), own.last(), own.term(3)), (3, (4, 2), Some(2)));
        let offered = [entry(1), entry(2), entry(2), entry(3)];
        let found = own.accept((1, 1), &offered, Time::ZERO);
        assert_eq!(found, Append::Matches { upto: 5, fresh: 3, cut: None });
        assert_eq!(
            own.accept((0, 0), &offered[..1], Time::ZERO),
            Append::Matches { upto: 1, fresh: 1, cut: None }
        );
    }

    #[test]
    fn a_leader_goes_back_by_terms() {
        let leader = chain("1114455");
        // follower's last index and term -> where to go on
        for ((index, term), expected) in [((3, 1), 3), ((9, 5), 7), ((7, 4), 5), ((6, 2), 3), ((2, 0), 0)] {
            assert_eq!(leader.agree(index, term), expected, "{index}:{term}");
        }
    }

    #[test]
    fn leases_outlive_the_entries_that_gave_them() {
        let mut log = chain("");
        let stamped =
            |term, latest| Entry { stamp: Some(Interval { earliest: latest - 10, latest }), ..entry(term) };
        let at = |nanos| Time::from_nanos(nanos);
        log.append(stamped(1, 100), at(1));
        log.append(entry(1), at(2));
        log.append(stamped(1, 90), at(3));
        assert_eq!(log.lease(3), (100, Some(at(2))));
        log.retain(3, 0);
        assert_eq!(log.lease(3), (100, Some(at(3))), "later than it was is safe");
        let again = PrefixLog::new(3, log.origin(3), (0, Configuration::default()), at(50));
        assert_eq!((again.lease(3), again.stamp(3)), ((100, Some(at(50))), log.stamp(3)));
    }

    fn voters(id: u64) -> quorate_core::NodeSet {
        quorate_core::NodeId::new(id).into_iter().collect()
    }

    /// Two entries, and then a configuration for each of these, of this voter alone.
    fn configured(ids: &[u64]) -> PrefixLog {
        let mut log = chain("11");
        for id in ids {
            let configuration = Configuration { voters: voters(*id), ..Configuration::default() };
            let value =
                Batch::alone(quorate_core::Wall::ZERO, &crate::batch::Entry::Configuration(configuration));
            log.append(Entry { value: value.into(), ..entry(1) }, Time::ZERO);
        }
        log
    }

    #[test]
    fn the_configuration_in_force_is_known_behind_what_is_forgotten_and_what_is_removed() {
        let mut log = configured(&[3, 4]);
        log.retain(3, 0);
        log.truncate(4);
        let (index, configuration) = log.configuration();
        assert_eq!((log.base(), index, configuration.voters), (3, 3, voters(3)));
    }

    #[test]
    fn a_snapshot_brings_a_configuration_in_place_of_those_before_it_and_of_no_other() {
        let mut log = configured(&[3, 4, 5]);
        let own = Configuration { voters: voters(9), ..Configuration::default() };
        assert!(log.install(4, Origin { term: 1, ..Origin::default() }, (4, own), Time::ZERO));
        let found = [4, 5].map(|index| log.configuration_at(index));
        assert_eq!(
            found.map(|(at, configuration)| (at, configuration.voters)),
            [(4, voters(9)), (5, voters(5))]
        );
        assert_eq!(log.configuration().0, 5);
    }

    #[test]
    fn a_snapshot_keeps_what_follows_it() {
        let origin = |term| Origin { term, ..Origin::default() };
        // own terms, snapshot's index and term -> what stays
        for (own, (base, term), kept) in [("1122", (2, 1), "22"), ("1122", (2, 2), ""), ("11", (5, 3), "")] {
            let mut log = chain(own);
            let stays = log.install(base, origin(term), (0, Configuration::default()), Time::ZERO);
            assert_eq!((terms(&log), stays), (kept.to_owned(), !kept.is_empty()), "{own}");
        }
    }
}
