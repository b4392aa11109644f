//! What a process counts and knows of itself, as `quorate status` and `/metrics` show it: one list, whoever counts.
//! No part of any state, and without influence on behaviour.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::time::Time;

/// How the values of a sample relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, as counts below bounds.
    Histogram,
}

/// What a sample says: a number, a time, or a distribution of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of things, or 0 and 1 for no and yes.
    Count(u64),
    /// So long; its sample's name ends in `_seconds` or `_seconds_total`.
    Time(Duration),
    /// How long each took; its sample's name ends in `_seconds`.
    Times(Box<DurationHistogram>),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Count(count) => count.fmt(f),
            Amount::Time(time) => time.as_secs_f64().fmt(f),
            Amount::Times(times) => {
                write!(f, "count={},sum={}", times.count(), times.total().as_secs_f64())
            }
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
    /// What tells it from others of its name: the label's name, and its value. The kind of a message, for instance.
    pub label: Option<(&'static str, Cow<'static, str>)>,
    /// How its values relate.
    pub kind: Kind,
    /// What it is, in one sentence.
    pub help: &'static str,
    /// What was counted when the sample was taken.
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

    /// A sample of a distribution of times; its name ends in `_seconds`.
    pub fn histogram(name: &'static str, times: &DurationHistogram, help: &'static str) -> Sample {
        let value = Amount::Times(Box::new(times.clone()));
        Sample { name, label: None, kind: Kind::Histogram, help, value }
    }

    /// The one of this name that has this label.
    pub fn with(self, label: &'static str, value: impl Into<Cow<'static, str>>) -> Sample {
        Sample { label: Some((label, value.into())), ..self }
    }
}

/// Upper bounds of a histogram's buckets, in nanoseconds: from a message within a machine to a request that is given
/// up.
const BOUNDS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// How long something takes that happens often, as counts between fixed bounds. Shows nothing in `Debug`, like
/// [`Count`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    counts: [u64; BOUNDS.len()],
    count: u64,
    /// In nanoseconds.
    total: u64,
}

impl DurationHistogram {
    /// One more that took so long.
    pub fn add(&mut self, took: Duration) {
        let nanos = nanos(took);
        if let Some(count) = self.counts.get_mut(BOUNDS.partition_point(|bound| *bound < nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.total = self.total.saturating_add(nanos);
    }

    /// How many took no longer than each bound; those above the last are in [`count`](Self::count) alone.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut below = 0;
        BOUNDS.iter().zip(self.counts).map(move |(bound, count)| {
            below += count;
            (Duration::from_nanos(*bound), below)
        })
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all times.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total)
    }
}

/// 584 years at most. Histograms count each request: `Duration`'s own sums and divisions cost several times as much.
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

impl fmt::Debug for DurationHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// How often. A machine may keep it: its `Debug`, by which the explorer tells states apart, shows nothing.
#[derive(Clone, Copy, Default)]
pub struct Count(u64);

impl Count {
    /// Adds to the count; it wraps at 2⁶⁴.
    pub fn add(&mut self, count: usize) {
        self.0 = self.0.wrapping_add(count as u64);
    }

    /// The count since the process began.
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

    /// How often it has ended.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all times.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// How long it took the last time; zero if it has never ended.
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

    #[test]
    fn a_bucket_counts_what_is_within_its_bound_and_all_below() {
        let mut times = DurationHistogram::default();
        let nanos = [0, 50_000, 50_001, 1_000_000, 1_000_001, 10_000_000_000, 10_000_000_001];
        nanos.into_iter().for_each(|nanos| times.add(Duration::from_nanos(nanos)));
        let within = |micros| times.buckets().find(|(bound, _)| *bound == Duration::from_micros(micros));
        let counts = [50, 100, 500, 1_000, 2_500, 10_000_000].map(|bound| within(bound).unwrap().1);
        assert_eq!(counts, [2, 3, 3, 4, 5, 6]);
        assert_eq!((times.count(), times.total()), (7, Duration::from_nanos(nanos.into_iter().sum())));
        assert_eq!(Amount::Times(Box::new(times)).to_string(), "count=7,sum=20.002100003");
    }
}
