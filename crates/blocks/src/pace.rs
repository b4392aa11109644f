//! How long a peer takes to answer so many bytes, and when an answer is late.
//!
//! [`Pace`] is a model of one peer, t(v) = d + v/b: ordinary least squares over the bytes and response times of the
//! last two seconds (*Crossword* §4.1). It is computed with integers, so that equal runs stay equal. The paper discards
//! the slowest 5% of the samples. Where few messages are large these *are* the large ones, and the model would lose its
//! slope. So of the 5% that lie furthest above a first fit those are discarded that took more than twice its time, and
//! the rest is fitted again.
//!
//! [`InFlight`] is the account of what one peer was sent and has not answered. Links deliver in order, so an answer
//! takes as long as everything that was under way when its message left: that is the size of a sample. A message is
//! late when twice the expected time of these bytes is over, at least `floor` after it was sent. Until a size has been
//! seen, a slow link is assumed ([`ASSUMED`]): a needless copy of a large message makes a slow link slower, and a lost
//! one is rare. A copy that was sent again is measured from its first sending, or a link that has become slower would
//! never be recognized; and it is given at least as long again as it has waited.
//!
//! What is small is late after `floor`, whatever the model says: to send it again costs little, and a slow answer to it
//! says that a process or a disk is slow, not a link. No message is waited for longer than [`LONGEST`], and a message
//! that others have overtaken was lost.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use quorate_core::{Rate, Time, mutation};

/// Samples older than this are forgotten.
const WINDOW: Duration = Duration::from_secs(2);
/// The model is computed again after this long.
const REFIT: Duration = Duration::from_millis(200);
/// The most samples of a model.
const MAX_SAMPLES: usize = 128;
/// Of so many samples, one is discarded.
const OUTLIERS: usize = 20;
/// Where fewer bytes are under way, the model is not asked.
const LARGE: u64 = 64 << 10;
/// The rate of what is larger than anything seen.
const ASSUMED: Rate = Rate::mbit(16);
/// The longest that an answer can be waited for.
const LONGEST: Duration = Duration::from_secs(10);
/// After so many bytes, a message is measured.
const PROBE_BYTES: u64 = 32 << 10;
/// With nothing else measured, one is after this long.
const PROBE_GAP: Duration = Duration::from_millis(20);
/// The most messages that are measured at a time.
const MAX_PROBES: usize = 256;

/// Response times of one peer, as a model of them. See the file comment.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    samples: VecDeque<Sample>,
    model: Option<Model>,
    fitted: Time,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Time,
    bytes: u64,
    nanos: u64,
}

/// Time over bytes as a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Model {
    /// Nanoseconds that any message takes.
    delay: u64,
    /// Nanoseconds that each MiB adds.
    per_mib: u64,
    /// The largest sample, in bytes.
    largest: u64,
}

impl Pace {
    /// So many bytes were answered, after this time.
    pub fn on_response(&mut self, bytes: usize, took: Duration, now: Time) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.samples.push_back(Sample { at: now, bytes: bytes as u64, nanos });
        let (start, most) = (now.saturating_sub(WINDOW), MAX_SAMPLES);
        while self.samples.len() > most || self.samples.front().is_some_and(|sample| sample.at < start) {
            self.samples.pop_front();
        }
        let known = |model: Model| now.since(self.fitted) < REFIT && bytes as u64 <= model.largest;
        if !self.model.is_some_and(known) {
            self.fitted = now;
            self.model = Some(Model::of(self.samples.make_contiguous()));
        }
    }

    /// A message of no bytes was answered, with nothing else under way. What was measured of larger ones stays until
    /// another one is, or silence would make every link look fast.
    fn on_empty_response(&mut self, took: Duration, now: Time) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let start = now.saturating_sub(WINDOW);
        self.samples.retain(|sample| sample.bytes > 0 || sample.at >= start);
        self.samples.push_back(Sample { at: now, bytes: 0, nanos });
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        if self.model.is_none() || now.since(self.fitted) >= REFIT {
            self.fitted = now;
            self.model = Some(Model::of(self.samples.make_contiguous()));
        }
    }

    /// How long so many bytes will take, up to the answer; `None` if nothing was answered yet. It is extrapolated for
    /// more than [`largest`](Self::largest).
    pub fn expected(&self, bytes: usize) -> Option<Duration> {
        self.model.map(|model| Duration::from_nanos(model.at(bytes as u64)))
    }

    /// The largest size among the samples of the model, in bytes; 0 if there is none.
    pub fn largest(&self) -> usize {
        self.model.map_or(0, |model| model.largest as usize)
    }

    /// How long the answer to so many bytes is waited for.
    fn patience(&self, bytes: u64) -> Duration {
        // Twice what was seen says little of the rate, and more says nothing.
        let seen = bytes.min(2 * self.largest().min(1 << 40) as u64);
        let expected = self.expected(seen as usize).unwrap_or_default();
        2 * (expected + ASSUMED.transmission((bytes - seen) as usize))
    }
}

impl Model {
    fn of(samples: &[Sample]) -> Model {
        let all = Model::fit(samples.iter());
        let excess = |sample: &Sample| sample.nanos.saturating_sub(all.at(sample.bytes));
        let mut sorted: Vec<_> = samples.iter().collect();
        sorted.sort_by_key(|sample| excess(sample));
        let (rest, furthest) = sorted.split_at(samples.len() - samples.len() / OUTLIERS);
        // Where there are no outliers, none is discarded.
        let near = furthest.iter().filter(|sample| excess(sample) <= all.at(sample.bytes));
        Model::fit(rest.iter().chain(near).copied())
    }

    /// Least squares. A slope that is not there or falls is none; a negative delay is none, and the line then goes
    /// through the origin.
    fn fit<'a>(samples: impl Iterator<Item = &'a Sample>) -> Model {
        let (mut count, mut v, mut t, mut vv, mut vt, mut largest) = (0, 0, 0, 0, 0, 0);
        for sample in samples {
            // Bounded, so that no sum overflows: 2^40 bytes and 2^44 nanoseconds are beyond everything that is sent.
            let (bytes, nanos) =
                (i128::from(sample.bytes.min(1 << 40)), i128::from(sample.nanos.min(1 << 44)));
            (count, v, t) = (count + 1, v + bytes, t + nanos);
            (vv, vt) = (vv + bytes * bytes, vt + bytes * nanos);
            largest = largest.max(sample.bytes);
        }
        let (rise, run) = (count * vt - v * t, count * vv - v * v);
        let mean = t / count.max(1);
        let (delay, per_mib) = match (rise << 20).checked_div(run) {
            Some(per_mib) if per_mib > 0 && (t << 20) >= per_mib * v => {
                ((t - ((per_mib * v) >> 20)) / count, per_mib)
            }
            Some(per_mib) if per_mib > 0 => (0, (vt << 20) / vv),
            _ => (mean, 0),
        };
        let nanos = |value: i128| u64::try_from(value).unwrap_or(u64::MAX);
        Model { delay: nanos(delay), per_mib: nanos(per_mib), largest }
    }

    fn at(self, bytes: u64) -> u64 {
        let nanos = u128::from(self.delay) + ((u128::from(self.per_mib) * u128::from(bytes)) >> 20);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// What one peer was sent and has not answered, by ids that grow: slots, indices, numbers in a session. See the file
/// comment.
#[derive(Clone)]
pub struct InFlight {
    floor: Duration,
    pace: Pace,
    /// Bytes that were ever sent.
    sent: u64,
    /// Of these, answered or lost.
    settled: u64,
    /// The last id that was sent.
    last: u64,
    /// The last id that was answered.
    answered: u64,
    /// Some of the messages, in the order of sending.
    probes: VecDeque<Probe>,
    /// When the last one was sent.
    probed: Time,
    /// When the last heartbeat was sent, if it is not answered, and bytes that were under way then.
    heartbeat: Option<(Time, u64)>,
}

/// A message whose answer is measured.
#[derive(Clone, Copy, Debug)]
struct Probe {
    id: u64,
    /// For the first time.
    sent: Time,
    /// Bytes that were sent in all, up to it.
    end: u64,
    /// Bytes that were under way with it.
    bytes: u64,
    /// When the answer is late.
    due: Time,
}

/// Only what its answers depend on, which is nothing while all is small: states that differ in no more are the same to
/// the explorer.
impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.pace.model.filter(|model| model.largest >= LARGE);
        let large: Vec<_> = self.probes.iter().filter(|probe| probe.bytes >= LARGE).collect();
        f.debug_struct("InFlight").field("model", &model).field("large", &large).finish()
    }
}

impl InFlight {
    /// Nothing was sent. No message is late before `floor` is over.
    pub fn new(floor: Duration) -> InFlight {
        InFlight {
            floor,
            pace: Pace::default(),
            sent: 0,
            settled: 0,
            last: 0,
            answered: 0,
            probes: VecDeque::new(),
            probed: Time::ZERO,
            heartbeat: None,
        }
    }

    /// The model of this peer.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Ids begin anew; what was under way will not be answered.
    pub fn restart(&mut self) {
        (self.settled, self.last, self.answered, self.heartbeat) = (self.sent, 0, 0, None);
        self.probes.clear();
    }

    /// This was sent, for the first time or again.
    pub fn on_sent(&mut self, id: u64, bytes: usize, now: Time) {
        self.sent += bytes as u64;
        self.last = self.last.max(id);
        let last = self.probes.back();
        let is_probe =
            last.map_or(now.since(self.probed) >= PROBE_GAP, |last| self.sent - last.end >= PROBE_BYTES);
        if !is_probe && (bytes as u64) < PROBE_BYTES {
            return;
        }
        // What is late is lost, as far as can be known, and not under way any more.
        let late = self.probes.iter().filter(|probe| probe.due <= now).map(|probe| probe.end).max();
        self.settled = self.settled.max(late.unwrap_or(0));
        let index = self.probes.iter().position(|probe| probe.id == id);
        let first = index.and_then(|index| self.probes.remove(index)).map_or(now, |probe| probe.sent);
        let under_way = self.sent - self.settled;
        let mut patience = self.floor;
        if under_way >= LARGE && !mutation::active("pace/fixed-patience") {
            patience = patience.max(self.pace.patience(under_way)).max(now.since(first)).min(LONGEST);
        }
        self.probed = now;
        self.probes.push_back(Probe {
            id,
            sent: first,
            end: self.sent,
            bytes: under_way,
            due: now + patience,
        });
        if self.probes.len() > MAX_PROBES
            && let Some(probe) = self.probes.pop_front()
        {
            self.answered = self.answered.max(probe.id);
        }
    }

    /// A message without bytes of its own is sent, behind all that is under way. So the model has small samples too
    /// where everything else is large.
    pub fn on_heartbeat(&mut self, now: Time) {
        self.heartbeat = Some((now, self.sent - self.settled));
    }

    /// The one that was sent at this time is answered.
    pub fn on_heartbeat_answer(&mut self, sent: Time, now: Time) {
        match self.heartbeat.take_if(|(at, _)| *at == sent) {
            Some((_, 0)) => self.pace.on_empty_response(now.since(sent), now),
            Some((_, bytes)) => self.pace.on_response(bytes as usize, now.since(sent), now),
            None => {}
        }
    }

    /// The peer has answered for these ids: messages that carry no later one are no longer on their way.
    pub fn on_answer(&mut self, ids: RangeInclusive<u64>, now: Time) {
        self.answered = self.answered.max(*ids.end());
        if *ids.end() >= self.last {
            self.settled = self.sent;
        }
        let Some(&last) = self.probes.iter().rfind(|probe| ids.contains(&probe.id)) else { return };
        self.settled = self.settled.max(last.end);
        self.probes.retain(|probe| probe.end > last.end);
        self.pace.on_response(last.bytes as usize, now.since(last.sent), now);
    }

    /// Whether this, sent at least `floor` ago and not answered, must be taken for lost: the bytes before it and its
    /// own have had the time that they need.
    pub fn is_late(&self, id: u64, now: Time) -> bool {
        let own = self.probes.iter().find(|probe| probe.id == id);
        // Otherwise what was sent soon after it, or before it; unless that has been answered without it.
        let next = || self.probes.iter().filter(|probe| probe.id > id).min_by_key(|probe| probe.id);
        let near = || next().or(self.probes.back()).filter(|_| id > self.answered);
        own.or_else(near).is_none_or(|probe| probe.bytes < LARGE || probe.due <= now)
    }
}

#[cfg(test)]
mod tests;
