//! How long a peer takes to answer so many bytes, and when an answer is late.
//!
//! [`Pace`] is a model of one peer, t(v) = d + v/b: ordinary least squares over the bytes and response times of the
//! last two seconds (*Crossword* §4.1). It is computed with integers, so that equal runs stay equal. The paper discards
//! the slowest 5% of the samples. Where few messages are large these *are* the large ones, and the model would lose its
//! slope. So of the 5% that lie furthest above a first fit those are discarded that took more than twice its time, and
//! the rest is fitted again. For the same reason samples of a size (a power of two) replace each other only: many
//! messages of one size leave the few of no size in the window.
//!
//! [`InFlight`] is the account of what one peer was sent and has not answered. Links deliver in order, so a message
//! waits for what is to leave before it: the size of a sample is these bytes and its own. What is answered within a
//! round-trip time of a message's sending had left before it; it is under way, and not waited for. Where traffic is
//! steady, bytes under way hardly vary, and would give the model no slope. The round-trip time is d, but at most an
//! eighth above the shortest response time of late ([`RECENT`]): on an overloaded link a higher d would count messages
//! that waited as empty ones, and so grow further. For heartbeats it is the shortest response time. They are urgent and
//! pass what was to leave before them, but for a frame that is leaving, of which half is left on average: they are
//! samples of half a frame, or of half of what was to leave if that is less.
//!
//! A message is late when twice the expected time of all bytes under way is over, at least `floor` after it was sent.
//! Until a size has been seen, a slow link is assumed ([`ASSUMED`]): a needless copy of a large message makes a slow
//! link slower, and a lost one is rare. A copy that was sent again is measured from its first sending, or a link that
//! has become slower would never be recognized; and it is given at least as long again as it has waited. An
//! answer does not say which copy it answers (TCP's *retransmission ambiguity*). It is taken for one to the first, and
//! what was sent after that stays under way: else needless copies would hide what waits for the link, and bring more.
//!
//! What is small is late after `floor`, whatever the model says: to send it again costs little, and a slow answer to it
//! says that a process or a disk is slow, not a link. No message is waited for longer than [`LONGEST`], and a message
//! that others have overtaken was lost.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use quorate_core::link::FRAME;
use quorate_core::{Rate, Time, mutation};

/// Samples older than this are forgotten.
const WINDOW: Duration = Duration::from_secs(2);
/// The model is computed again after this long.
const REFIT: Duration = Duration::from_millis(200);
/// The shortest response time is looked for among samples that are not older.
const RECENT: Duration = Duration::from_millis(700);
/// The most samples of a size.
const SAMPLES_PER_SIZE: usize = 20;
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
    /// In the order of the answers.
    samples: VecDeque<Sample>,
    model: Option<Model>,
    fitted: Time,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// When the answer came.
    at: Time,
    /// Bytes of the message, and of those that had not left before it.
    bytes: u64,
    /// Bytes that were under way with it.
    under_way: u64,
    nanos: u64,
    is_heartbeat: bool,
}

impl Sample {
    fn new(at: Time, took: Duration, bytes: u64, under_way: u64) -> Sample {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        Sample { at, bytes, under_way, nanos, is_heartbeat: false }
    }

    /// Those of one size differ by less than a factor of two; heartbeats are for themselves.
    fn size(&self) -> (bool, u32) {
        (self.is_heartbeat, u64::BITS - self.bytes.leading_zeros())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Model {
    line: Line,
    /// The shortest response time of late, in nanoseconds.
    least: u64,
    /// The most bytes that were under way.
    largest: u64,
}

/// The line that fits the samples best: response time over bytes (least squares).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// Nanoseconds that any message takes.
    delay: u64,
    /// Nanoseconds that each MiB adds.
    per_mib: u64,
}

impl Pace {
    fn on_response(&mut self, sample: Sample) {
        let (now, start) = (sample.at, sample.at.saturating_sub(WINDOW));
        // What was measured of messages stays until some are measured again, or silence would make a link look fast.
        self.samples.retain(|old| old.at >= start || (!old.is_heartbeat && sample.is_heartbeat));
        let alike = |old: &Sample| old.size() == sample.size();
        if self.samples.iter().filter(|old| alike(old)).count() >= SAMPLES_PER_SIZE
            && let Some(oldest) = self.samples.iter().position(alike)
        {
            self.samples.remove(oldest);
        }
        self.samples.push_back(sample);
        let is_known = |model: Model| now.since(self.fitted) < REFIT && sample.under_way <= model.largest;
        if !self.model.is_some_and(is_known) {
            self.fitted = now;
            self.model = Some(Model::of(self.samples.make_contiguous()));
        }
    }

    /// How long so many bytes will take, up to the answer; `None` if nothing was answered yet. It is extrapolated for
    /// more than [`largest`](Self::largest).
    pub fn expected(&self, bytes: usize) -> Option<Duration> {
        self.model.map(|model| Duration::from_nanos(model.line.at(bytes as u64)))
    }

    /// The most bytes that were under way with a sample of the model; 0 if there is none.
    pub fn largest(&self) -> usize {
        self.model.map_or(0, |model| model.largest as usize)
    }

    /// How many bytes leave in the time that the answer to none takes: with fewer under way, the link is idle for a
    /// while, and more would only wait for each other. `None` where bytes take no time, or few have been sent.
    pub fn bandwidth_delay_product(&self) -> Option<usize> {
        let Model { line: Line { delay, per_mib }, .. } =
            self.model.filter(|model| model.largest >= LARGE)?;
        let bytes = (u128::from(delay) << 20).checked_div(per_mib.into())?;
        Some(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The shortest response time of late; zero if there is none.
    fn least(&self) -> Duration {
        self.model.map_or(Duration::ZERO, |model| Duration::from_nanos(model.least))
    }

    /// How long an empty message takes: by the line, if it has a slope; an eighth more than the shortest time at most.
    fn round_trip_time(&self) -> Duration {
        let delay =
            self.model.map(|model| model.line).filter(|line| line.per_mib > 0).map_or(0, |line| line.delay);
        Duration::from_nanos(delay).clamp(self.least(), self.least() * 9 / 8)
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
    /// Of at least one sample; the last one was answered last.
    fn of(samples: &[Sample]) -> Model {
        let all = Line::fit(samples.iter());
        let excess = |sample: &Sample| sample.nanos.saturating_sub(all.at(sample.bytes));
        let mut sorted: Vec<_> = samples.iter().collect();
        sorted.sort_by_key(|sample| excess(sample));
        let (rest, furthest) = sorted.split_at(samples.len() - samples.len() / OUTLIERS);
        // Where there are no outliers, none is discarded.
        let near = furthest.iter().filter(|sample| excess(sample) <= all.at(sample.bytes));
        let line = Line::fit(rest.iter().chain(near).copied());
        let since = samples.last().map_or(Time::ZERO, |last| last.at.saturating_sub(RECENT));
        let recent = samples.iter().filter(|sample| sample.at >= since);
        Model {
            line,
            least: recent.map(|sample| sample.nanos).min().unwrap_or(0),
            largest: samples.iter().map(|sample| sample.under_way).max().unwrap_or(0),
        }
    }
}

impl Line {
    /// Least squares. A slope that is not there or falls is none; a negative delay is none, and the line then goes
    /// through the origin.
    fn fit<'a>(samples: impl Iterator<Item = &'a Sample>) -> Line {
        let (mut count, mut v, mut t, mut vv, mut vt) = (0, 0, 0, 0, 0);
        for sample in samples {
            // Bounded, so that no sum overflows: 2^40 bytes and 2^44 nanoseconds are beyond everything that is sent.
            let (bytes, nanos) =
                (i128::from(sample.bytes.min(1 << 40)), i128::from(sample.nanos.min(1 << 44)));
            (count, v, t) = (count + 1, v + bytes, t + nanos);
            (vv, vt) = (vv + bytes * bytes, vt + bytes * nanos);
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
        Line { delay: nanos(delay), per_mib: nanos(per_mib) }
    }

    fn at(self, bytes: u64) -> u64 {
        let nanos = u128::from(self.delay) + ((u128::from(self.per_mib) * u128::from(bytes)) >> 20);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

/// What one peer was sent and has not answered, by ids that grow, from 1 on: slots, indices, numbers in a session.
/// The file comment says how late answers are told.
#[derive(Clone)]
pub struct InFlight {
    floor: Duration,
    pace: Pace,
    /// Bytes that were ever sent.
    sent: u64,
    /// When some were sent last.
    sent_at: Time,
    /// Of these, answered or lost.
    settled: u64,
    /// The last id that was sent.
    last: u64,
    /// Bytes that were sent up to it; what came before it may have been sent again since.
    sent_with_last: u64,
    /// The last id that was answered.
    answered: u64,
    /// Some of the messages, in the order of sending.
    probes: VecDeque<Probe>,
    /// When the last one was sent.
    probed: Time,
    /// The last heartbeat, if it is not answered.
    heartbeat: Option<Sending>,
}

/// A message whose answer is measured.
#[derive(Clone, Copy, Debug)]
struct Probe {
    id: u64,
    sending: Sending,
    /// Bytes that were sent up to its first copy, which may be the one that is answered.
    first_copy: u64,
    /// When the answer is late.
    due: Time,
}

impl Probe {
    /// Whether the model says when its answer is late.
    fn is_large(&self) -> bool {
        self.sending.under_way() >= LARGE
    }
}

/// A message among the bytes that its peer was sent.
#[derive(Clone, Copy, Debug)]
struct Sending {
    /// When, for the first time.
    at: Time,
    /// The id before it.
    previous: u64,
    /// Bytes that were sent in all before it, and with it.
    bytes: (u64, u64),
    /// Of those before it, settled when it was sent.
    settled: u64,
    /// Of those before it, known to have left when it was sent.
    left: u64,
}

impl Sending {
    fn under_way(&self) -> u64 {
        self.bytes.1 - self.settled
    }

    /// The peer has answered up to this id, and so many bytes are settled. What is answered within a round-trip time
    /// had left before.
    fn on_answered(&mut self, answered: u64, settled: u64, round_trip_time: Duration, now: Time) {
        if now.since(self.at) <= round_trip_time {
            let before = if answered >= self.previous { self.bytes.0 } else { settled };
            self.left = self.left.max(before.min(self.bytes.0));
        }
    }

    /// The same, if so many bytes before it are not under way, since they were lost.
    fn after(self, lost: u64) -> Sending {
        let lost = lost.min(self.bytes.0);
        Sending { settled: self.settled.max(lost), left: self.left.max(lost), ..self }
    }

    /// What its answer at this time says of the link.
    fn sample(&self, now: Time) -> Sample {
        Sample::new(now, now.since(self.at), self.bytes.1 - self.left, self.under_way())
    }
}

/// Only what its answers depend on, which is nothing while all is small: states that differ in no more are the same to
/// the explorer.
impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.pace.model.filter(|model| model.largest >= LARGE);
        let large: Vec<_> = self.probes.iter().filter(|probe| probe.is_large()).collect();
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
            sent_at: Time::ZERO,
            settled: 0,
            last: 0,
            sent_with_last: 0,
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
        let (before, previous, settled) = (self.sent, self.last, self.settled_at(now));
        self.sent += bytes as u64;
        self.sent_at = now;
        if id > self.last {
            (self.last, self.sent_with_last) = (id, self.sent);
        }
        let last = self.probes.back().filter(|last| last.due > now);
        let is_probe = last.map_or(now.since(self.probed) >= PROBE_GAP, |last| {
            self.sent - last.sending.bytes.1 >= PROBE_BYTES
        });
        let index = self.probes.iter().position(|probe| probe.id == id);
        // No other says when a copy is late, where there is much of it.
        let is_copy = index.is_some() || id <= self.answered;
        let is_large_copy = is_copy && self.sent - self.settled >= LARGE;
        if !is_probe && !is_large_copy && (bytes as u64) < PROBE_BYTES {
            return;
        }
        self.settled = self.settled.max(settled);
        let earlier = index.and_then(|index| self.probes.remove(index));
        let first = earlier.map_or(now, |probe| probe.sending.at);
        let first_copy = match earlier {
            Some(_) if mutation::active("pace/last-copy-is-answered") => self.sent,
            Some(probe) => probe.first_copy,
            None if self.answered < id && id <= previous => self.first_copy_before(id),
            None => self.sent,
        };
        let sending = self.sending(first, previous, before);
        let mut patience = self.floor;
        if sending.under_way() >= LARGE && !mutation::active("pace/fixed-patience") {
            let expected = self.pace.patience(sending.under_way());
            patience = patience.max(expected).max(now.since(first)).min(LONGEST);
        }
        self.probed = now;
        self.probes.push_back(Probe { id, sending, first_copy, due: now + patience });
        if self.probes.len() > MAX_PROBES
            && let Some(probe) = self.probes.pop_front()
        {
            self.answered = self.answered.max(probe.id);
        }
    }

    /// Bytes that were sent up to the first copy of the last message before this one that is measured.
    fn first_copy_before(&self, id: u64) -> u64 {
        let before = self.probes.iter().filter(|probe| probe.id < id);
        before.map(|probe| probe.first_copy).max().unwrap_or(self.settled)
    }

    /// What was sent last, first at this time, after so many bytes.
    fn sending(&self, at: Time, previous: u64, before: u64) -> Sending {
        let settled = self.settled.min(before);
        Sending { at, previous, bytes: (before, self.sent), settled, left: settled }
    }

    /// A message without bytes of its own is sent, and passes what is under way. One at a time is measured.
    pub fn on_heartbeat(&mut self, now: Time) {
        if self.heartbeat.is_none_or(|last| now.since(last.at) >= WINDOW) {
            self.heartbeat = Some(self.sending(now, self.last, self.sent));
        }
    }

    /// The one that was sent at this time is answered. So the model has small samples where everything else is large.
    pub fn on_heartbeat_answer(&mut self, sent: Time, now: Time) {
        if let Some(sending) = self.heartbeat.take_if(|sending| sending.at == sent) {
            let sample = sending.sample(now);
            let half = sample.bytes.min(FRAME as u64) / 2;
            self.pace.on_response(Sample { bytes: half, under_way: half, is_heartbeat: true, ..sample });
        }
    }

    /// The peer has answered for these ids: messages that carry no later one are no longer on their way.
    pub fn on_answer(&mut self, ids: RangeInclusive<u64>, now: Time) {
        self.answered = self.answered.max(*ids.end());
        let probe = self.probes.iter().rfind(|probe| ids.contains(&probe.id)).copied();
        let settled = match *ids.end() >= self.last {
            true => self.sent_with_last,
            false => probe.map_or(0, |probe| probe.first_copy),
        };
        self.settled = self.settled.max(settled);
        if let Some(Probe { sending, first_copy, .. }) = probe {
            self.probes.retain(|other| !ids.contains(&other.id));
            // What it has overtaken was lost, and did not leave before it.
            let overtaken =
                self.probes.iter().map(|other| other.sending.bytes.1).filter(|end| *end <= first_copy);
            self.pace.on_response(sending.after(overtaken.max().unwrap_or(0)).sample(now));
            self.probes.retain(|other| other.sending.bytes.1 > first_copy);
        }
        let (answered, settled) = (*ids.end(), self.settled);
        let (shortest, usual) = (self.pace.least(), self.pace.round_trip_time());
        for probe in &mut self.probes {
            probe.sending.on_answered(answered, settled, usual, now);
        }
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.on_answered(answered, settled, shortest, now);
        }
    }

    /// The peer was silent from then until now. Nothing that was large and on its way is late before it has had as much
    /// more time: a connection that is cut keeps it.
    pub fn on_silence(&mut self, since: Time, now: Time) {
        for probe in self.probes.iter_mut().filter(|probe| probe.is_large() && probe.due > since) {
            probe.due += now.since(since.max(probe.sending.at));
        }
    }

    /// Whether the model says of some message under way when its answer is late: there is much of it.
    pub fn is_large(&self) -> bool {
        self.probes.iter().any(Probe::is_large)
    }

    /// Bytes that were sent, and neither answered nor late.
    pub fn under_way(&self, now: Time) -> usize {
        usize::try_from(self.sent - self.settled_at(now)).unwrap_or(usize::MAX)
    }

    /// Bytes that were answered or are late by now. What is late is lost, as far as can be known. What was sent since
    /// the last message that is measured is small.
    fn settled_at(&self, now: Time) -> u64 {
        let is_late = |probe: &Probe| probe.due <= now;
        if self.probes.iter().all(is_late) && now.since(self.sent_at) >= self.floor {
            return self.sent;
        }
        let late = self.probes.iter().filter(|probe| is_late(probe)).map(|probe| probe.sending.bytes.1);
        late.chain([self.settled]).max().unwrap_or(0)
    }

    /// Whether this, sent at least `floor` ago and not answered, must be taken for lost: the bytes before it and its
    /// own have had the time that they need.
    pub fn is_late(&self, id: u64, now: Time) -> bool {
        let own = self.probes.iter().find(|probe| probe.id == id);
        // Otherwise what was sent soon after it, or before it; unless that has been answered without it.
        let next = || self.probes.iter().filter(|probe| probe.id > id).min_by_key(|probe| probe.id);
        let near = || next().or(self.probes.back()).filter(|_| id > self.answered);
        own.or_else(near).is_none_or(|probe| !probe.is_large() || probe.due <= now)
    }
}

#[cfg(test)]
mod tests;
