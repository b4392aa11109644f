//! Emulated delays between nodes: what is sent over a link waits before it goes to the socket, in order. A topology
//! says how long by the sites of the two (`--topology geo --site VA`), and `--set net.delay=5ms` adds to that, for
//! every link alike. Links of clients are not delayed.
//!
//! Waiting for events has a resolution of a millisecond, which is too coarse for a delay of a few: where there is a
//! delay, a timer of the system's wakes the loop.

use std::collections::VecDeque;
use std::time::Duration;

use quorate_core::{Random, Settings, SettingsError, Time, Topology, settings::parse_duration};

use super::handshake::text;
use super::queue::SendQueue;

/// How long what is sent is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// At least.
    pub fixed: Duration,
    /// At most so much more, evenly spread.
    pub jitter: Duration,
}

impl Delay {
    /// Takes `net.delay` and `net.jitter`. They may differ from node to node: peers do not compare them.
    pub(crate) fn take(settings: &mut Settings) -> Result<Delay, SettingsError> {
        let mut duration = |key| settings.take_own(key, "a duration such as 5ms or 200us", parse_duration);
        let (fixed, jitter) = (duration("net.delay")?, duration("net.jitter")?);
        Ok(Delay { fixed: fixed.unwrap_or_default(), jitter: jitter.unwrap_or_default() })
    }

    /// Whether nothing waits.
    pub(crate) fn is_none(self) -> bool {
        self == Delay::default()
    }

    /// When what is sent now arrives.
    fn due(self, now: Time, random: &mut Random) -> Time {
        now + random.between(self.fixed, self.fixed + self.jitter)
    }
}

/// The delays of all links of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays {
    /// Of each.
    pub(crate) common: Delay,
    /// By place, and which is this node's.
    pub(crate) map: Option<(Topology, usize)>,
}

impl Delays {
    /// Whether nothing waits.
    pub(super) fn are_none(&self) -> bool {
        self.common.is_none() && self.map.is_none()
    }

    /// To a node that says it is there. The error says why that cannot be.
    pub(super) fn to(&self, site: &[u8]) -> Result<Delay, String> {
        let Some((topology, mine)) = &self.map else { return Ok(self.common) };
        let site = text(site);
        if site.is_empty() {
            return Err("it does not say at which site it is: start it with --topology, or --site".to_owned());
        }
        let there = topology.site(&site).map_err(|error| format!("its site is unknown here: {error}"))?;
        Ok(Delay {
            fixed: self.common.fixed + topology.one_way(*mine, there),
            jitter: self.common.jitter + topology.jitter(),
        })
    }
}

/// What is under way on one link.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// In order of their times.
    frames: VecDeque<(Time, SendQueue)>,
    bytes: usize,
}

impl Line {
    /// Sends a frame on its way.
    pub(super) fn push(&mut self, frame: SendQueue, delay: Delay, now: Time, random: &mut Random) {
        // Whatever it draws, it does not pass those before it.
        let due = delay.due(now, random).max(self.frames.back().map_or(Time::ZERO, |(due, _)| *due));
        self.bytes += frame.len();
        self.frames.push_back((due, frame));
    }

    /// Brings what has arrived to the socket's queue.
    pub(super) fn arrive(&mut self, now: Time, queue: &mut SendQueue) {
        while self.due().is_some_and(|due| due <= now) {
            let Some((_, frame)) = self.frames.pop_front() else { return };
            self.bytes -= frame.len();
            queue.append(frame);
        }
    }

    /// When the next one arrives.
    pub(super) fn due(&self) -> Option<Time> {
        self.frames.front().map(|(due, _)| *due)
    }

    /// Bytes under way.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }
}

#[cfg(target_os = "linux")]
pub(super) use alarm::Alarm;

/// Wakes the loop more exactly than waiting with a timeout does.
#[cfg(target_os = "linux")]
mod alarm {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::Duration;

    use mio::unix::SourceFd;
    use mio::{Interest, Registry, Token};
    use quorate_core::Time;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    #[derive(Debug)]
    pub(in super::super) struct Alarm {
        timer: OwnedFd,
        set: Option<Time>,
    }

    impl Alarm {
        pub(in super::super) fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
            Ok(Alarm { timer, set: None })
        }

        /// Goes off then. The loop looks at its links in every turn, so there is nothing to do when it has.
        pub(in super::super) fn set(&mut self, at: Option<Time>) -> io::Result<()> {
            if self.set == at {
                return Ok(());
            }
            self.set = at;
            // The monotonic clock here is the timer's own. Zero would mean never.
            let value = at.map_or(Duration::ZERO, |at| Duration::from_nanos(at.nanos().max(1)));
            let value = Timespec::try_from(value).map_err(|_| io::ErrorKind::InvalidInput)?;
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
            Ok(())
        }
    }
}

/// Other systems wait with a timeout.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(super) fn new(_: &mio::Registry, _: mio::Token) -> std::io::Result<Alarm> {
        Ok(Alarm)
    }
    pub(super) fn set(&mut self, _: Option<Time>) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn frame(byte: u8) -> SendQueue {
        let mut frame = SendQueue::default();
        frame.copy(&[byte; 10]);
        frame
    }

    fn taken(line: &mut Line, now: Time) -> Vec<u8> {
        let (mut queue, mut bytes) = (SendQueue::default(), Vec::new());
        line.arrive(now, &mut queue);
        queue.write_to(&mut bytes).unwrap();
        bytes.chunks(10).map(|frame| frame[0]).collect()
    }

    #[test]
    fn each_frame_is_under_way_as_long_and_no_longer() {
        let (mut line, mut random) = (Line::default(), Random::new(1));
        let delay = Delay { fixed: Duration::from_millis(5), jitter: Duration::ZERO };
        line.push(frame(1), delay, at(0), &mut random);
        line.push(frame(2), delay, at(3), &mut random);
        assert_eq!((line.len(), line.due()), (20, Some(at(5))));
        assert_eq!(taken(&mut line, at(4)), []);
        assert_eq!(taken(&mut line, at(5)), [1]);
        assert_eq!((line.len(), line.due()), (10, Some(at(8))));
        assert_eq!(taken(&mut line, at(100)), [2]);
        assert_eq!((line.len(), line.due()), (0, None));
    }

    #[test]
    fn jitter_spreads_frames_and_never_lets_one_pass_another() {
        let (mut line, mut random) = (Line::default(), Random::new(1));
        let delay = Delay { fixed: Duration::from_millis(5), jitter: Duration::from_millis(20) };
        let mut last = Time::ZERO;
        for index in 0..200 {
            line.push(frame(index), delay, at(u64::from(index)), &mut random);
            let due = line.frames.back().unwrap().0;
            let sent = at(u64::from(index));
            assert!(due >= last && due >= sent + delay.fixed && due <= sent + delay.fixed + delay.jitter);
            last = due;
        }
        assert_eq!(taken(&mut line, last), (0..200).collect::<Vec<u8>>());
    }

    #[test]
    fn a_links_delay_is_that_between_the_two_sites_and_what_every_link_has() {
        let ms = Duration::from_millis;
        let geo = Topology::named("geo").unwrap();
        let mine = geo.site("VA").unwrap();
        let common = Delay { fixed: ms(1), jitter: ms(2) };
        let delays = Delays { common, map: Some((geo, mine)) };
        assert_eq!(delays.to(b"JP").unwrap(), Delay { fixed: ms(74), jitter: ms(2) });
        assert_eq!(delays.to(b"VA").unwrap(), common);
        assert!(delays.to(b"Mars").unwrap_err().contains("no site Mars; the sites are EU, VA"));
        assert!(delays.to(b"").unwrap_err().contains("--site"));
        assert_eq!(Delays::default().to(b"Mars"), Ok(Delay::default()));
    }

    #[test]
    fn the_settings_are_the_nodes_own_and_peers_do_not_compare_them() {
        let mut settings = Settings::parse(["net.delay=5ms", "net.jitter=200us"]).unwrap();
        let delay = Delay::take(&mut settings).unwrap();
        assert_eq!(delay, Delay { fixed: Duration::from_millis(5), jitter: Duration::from_micros(200) });
        assert_eq!(settings.finish(), Ok(()));
        assert_eq!(settings.digest(), Settings::default().digest());
        assert!(Delay::take(&mut Settings::default()).unwrap().is_none());
        assert!(Delay::take(&mut Settings::parse(["net.delay=5"]).unwrap()).is_err());
    }
}
