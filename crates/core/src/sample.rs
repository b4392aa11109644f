//! What a process counts and knows of itself, as `quorate status` and `/metrics` show it: one list, whoever counts.
//! No part of any state, and without influence on behaviour.

use std::fmt;
use std::time::Duration;

use crate::time::Time;

/// How the values of a sample relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(u64),
    /// So long; its sample's name ends in `_seconds` or `_seconds_total`.
    Time(Duration),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Count(count) => count.fmt(f),
            Amount::Time(time) => time.as_secs_f64().fmt(f),
        }
    }
}

impl From<u64> for Amount {
    fn from(count: u64) -> Amount {
        Amount::Count(count)
    }
}

impl From<usize> for Amount {
    fn from(count: usize) -> Amount {
        Amount::Count(count as u64)
    }
}

impl From<bool> for Amount {
    fn from(yes: bool) -> Amount {
        Amount::Count(yes.into())
    }
}

impl From<Duration> for Amount {
    fn from(time: Duration) -> Amount {
        Amount::Time(time)
    }
}

/// One value under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its name, in the style of Prometheus without a prefix.
    pub name: &'static str,
    /// The kind of message, where it counts those.
    pub label: Option<&'static str>,
    /// How its values relate.
    pub kind: Kind,
    /// In one sentence.
    pub help: &'static str,
    /// Now.
    pub value: Amount,
}

impl Sample {
    /// Of something that only grows.
    pub fn counter(name: &'static str, value: impl Into<Amount>, help: &'static str) -> Sample {
        Sample { name, label: None, kind: Kind::Counter, help, value: value.into() }
    }

    /// Of something that goes up and down.
    pub fn gauge(name: &'static str, value: impl Into<Amount>, help: &'static str) -> Sample {
        Sample { kind: Kind::Gauge, ..Sample::counter(name, value, help) }
    }
}

/// How often. A machine may keep it: its `Debug`, by which the explorer tells states apart, shows nothing.
#[derive(Clone, Copy, Default)]
pub struct Count(u64);

impl Count {
    /// Counts some more.
    pub fn add(&mut self, count: usize) {
        self.0 = self.0.wrapping_add(count as u64);
    }

    /// So far.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// Something that happens now and then and takes a while: how often, how long together, and the last time. Shows
/// nothing in `Debug`, like [`Count`].
#[derive(Clone, Copy, Default)]
pub struct DurationStat {
    since: Option<Time>,
    count: u64,
    total: Duration,
    last: Duration,
}

impl DurationStat {
    /// It begins, unless it has begun already.
    pub fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// It ends, if it has begun.
    pub fn end(&mut self, now: Time) {
        if let Some(since) = self.since.take() {
            self.add(now.since(since));
        }
    }

    /// What has begun was none.
    pub fn cancel(&mut self) {
        self.since = None;
    }

    /// One more that took so long.
    pub fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total = self.total.saturating_add(took);
        self.last = took;
    }

    /// How often.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All together.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The last.
    pub fn last(&self) -> Duration {
        self.last
    }
}

impl fmt::Debug for DurationStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_are_counted_when_they_end_and_states_do_not_differ_by_them() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let mut stat = DurationStat::default();
        stat.end(at(1));
        stat.begin(at(10));
        stat.begin(at(20));
        assert_eq!(stat.count(), 0);
        stat.end(at(35));
        stat.add(Duration::from_millis(5));
        let (total, last) = (Amount::from(stat.total()), Amount::from(stat.last()));
        assert_eq!(
            (stat.count(), total.to_string().as_str(), last.to_string().as_str()),
            (2, "0.03", "0.005")
        );
        assert_eq!(format!("{stat:?}"), format!("{:?}", DurationStat::default()));
    }
}
