//! Emulated links between nodes: what is sent over one waits before it goes to the socket, as long as its bytes and
//! those before it take at the rates of the link and of this node's interface (`quorate_core::link`), and then for the
//! link's delay. A topology
//! says both by the sites of the two (`--topology geo --site VA`). `--set net.delay=5ms` adds to that, and
//! `--set net.rate=1Gbit/s` is the most, for every link alike. Links of clients are not emulated.
//!
//! Waiting for events has a resolution of a millisecond, which is too coarse for a delay of a few: where there is a
//! delay, a timer of the system's wakes the loop.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{
    Class, Interface, Line, Link, ProcessId, Random, Rate, Settings, SettingsError, Time, Topology,
    TopologyError, settings::parse_duration,
};

use super::frame::{Encoded, EncodedFrame};
use super::handshake::text;
use super::queue::Output;

/// Takes what all links of this node have: `net.delay`, `net.jitter` and `net.rate`. They may differ from node to node:
/// peers do not compare them.
pub(crate) fn take_common(settings: &mut Settings) -> Result<Link, SettingsError> {
    let mut duration = |key| settings.take_own(key, "a duration such as 5ms or 200us", parse_duration);
    let (delay, jitter) = (duration("net.delay")?, duration("net.jitter")?);
    let rate = settings.take_own("net.rate", Rate::EXPECTED, Rate::parse)?;
    Ok(Link { delay: delay.unwrap_or_default(), jitter: jitter.unwrap_or_default(), rate })
}

/// What all links of a node are like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays {
    /// The link of every pair that the topology does not name.
    pub(crate) common: Link,
    /// By place, and which is this node's.
    pub(crate) map: Option<(Topology, usize)>,
    /// What the topology's file says now.
    pub(crate) changed: Changed,
}

/// A topology on its way from the thread that has read it to the loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changed(Arc<Mutex<Option<Topology>>>);

impl Changed {
    /// Replaces one that was not taken yet.
    pub(crate) fn put(&self, topology: Topology) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(topology);
    }

    fn take(&self) -> Option<Topology> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Delays {
    /// Whether nothing waits.
    pub(super) fn are_none(&self) -> bool {
        self.common.is_instant() && self.map.is_none()
    }

    /// To a node that says it is there. The error says why that cannot be.
    pub(super) fn to(&self, site: &[u8]) -> Result<Link, String> {
        let Some((topology, mine)) = &self.map else { return Ok(self.common) };
        let site = text(site);
        if site.is_empty() {
            return Err("it does not say at which site it is: start it with --topology, or --site".to_owned());
        }
        let there = topology.site(&site).map_err(|error| format!("its site is unknown here: {error}"))?;
        let Link { delay, jitter, rate } = topology.link(*mine, there);
        Ok(Link {
            delay: self.common.delay + delay,
            jitter: self.common.jitter + jitter,
            rate: self.common.rate.into_iter().chain(rate).min(),
        })
    }

    /// How fast this node sends in all; none for at once.
    pub(super) fn interface(&self) -> Option<Rate> {
        self.map.as_ref().and_then(|(topology, mine)| topology.interface(*mine))
    }

    /// Takes the rates of the topology's file if it was read again: none if it was not. The error says why that is
    /// another topology.
    pub(super) fn take_rates(&mut self) -> Option<Result<(), TopologyError>> {
        let (topology, _) = self.map.as_mut()?;
        Some(topology.take_rates(self.changed.take()?))
    }
}

/// What is under way on one link.
#[derive(Debug, Default)]
pub(super) struct EmulatedLink {
    line: Line<Parcel>,
    /// What has left, in order of the times at which it arrives.
    left: VecDeque<(Time, Parcel)>,
    /// Bytes that wait, of each class.
    bytes: [usize; Class::ALL.len()],
}

/// A frame on its way. Those of a message arrive one by one: a long one that came all at once, when it has left whole,
/// would fill the buffers of the socket, and what is urgent would wait behind them.
#[derive(Debug)]
pub(super) struct Parcel {
    frame: EncodedFrame,
    delay: Duration,
}

impl EmulatedLink {
    /// Sends a message on its way.
    pub(super) fn push(
        &mut self,
        message: Encoded,
        (from, to): (ProcessId, ProcessId),
        link: Link,
        now: Time,
        random: &mut Random,
    ) {
        let delay = random.between(link.delay, link.delay + link.jitter);
        self.bytes[message.class() as usize] += message.bytes();
        for frame in message.frames(from, to) {
            let kind = (frame.class(), frame.ends());
            self.line.push_frame(kind, now, frame.bytes(), Parcel { frame, delay });
        }
    }

    /// What waits for the link or the interface.
    pub(super) fn line(&self) -> &Line<Parcel> {
        &self.line
    }

    /// Sends the next frame.
    pub(super) fn send(&mut self, interface: &mut Interface, rate: Option<Rate>) {
        if let Some((left, parcel)) = interface.send(&mut self.line, rate) {
            // Whatever it drew, it does not pass those before it.
            let arrives = (left + parcel.delay).max(self.left.back().map_or(Time::ZERO, |(at, _)| *at));
            self.left.push_back((arrives, parcel));
        }
    }

    /// Brings what has arrived to the socket's queue.
    pub(super) fn arrive(&mut self, now: Time, output: &mut Output) {
        while let Some((_, parcel)) = self.left.pop_front_if(|(at, _)| *at <= now) {
            let frame = parcel.frame;
            self.bytes[frame.class() as usize] -= frame.bytes();
            output.push(frame);
        }
    }

    /// When the next message arrives, of those that have left.
    pub(super) fn arrives(&self) -> Option<Time> {
        self.left.front().map(|(at, _)| *at)
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.iter().all(|bytes| *bytes == 0)
    }

    /// Bytes of a class that are under way.
    pub(super) fn len(&self, class: Class) -> usize {
        self.bytes[class as usize]
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
    use bytes::Bytes;
    use quorate_core::NodeId;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + ms(millis)
    }

    /// A message of 64 bytes in all on the wire, all of them alike.
    fn push(link: &mut EmulatedLink, byte: u8, class: Class, like: Link, now: Time, random: &mut Random) {
        let message = Encoded::new(Bytes::from(vec![byte; 37]).into(), class);
        assert_eq!(message.bytes(), 64);
        let node = |id| NodeId::new(id).unwrap().into();
        link.push(message, (node(1), node(2)), like, now, random);
    }

    /// Which messages come to the socket until a time.
    fn taken(link: &mut EmulatedLink, interface: &mut Interface, rate: Option<Rate>, now: Time) -> Vec<u8> {
        while interface.next([((), link.line())].into_iter()).is_some_and(|(at, ())| at <= now) {
            link.send(interface, rate);
        }
        let (mut output, mut bytes) = (Output::default(), Vec::new());
        link.arrive(now, &mut output);
        output.write_to(&mut bytes).unwrap();
        bytes.chunks(64).map(|frame| frame[9]).collect()
    }

    #[test]
    fn each_message_is_under_way_as_long_and_no_longer() {
        let (mut link, mut random) = (EmulatedLink::default(), Random::new(1));
        let mut interface = Interface::default();
        let like = Link { delay: ms(5), ..Link::default() };
        push(&mut link, 1, Class::Urgent, like, at(0), &mut random);
        push(&mut link, 2, Class::Urgent, like, at(3), &mut random);
        let mut taken =
            |now| (taken(&mut link, &mut interface, None, at(now)), link.len(Class::Urgent), link.arrives());
        assert_eq!(taken(4), (vec![], 128, Some(at(5))));
        assert_eq!(taken(5), (vec![1], 64, Some(at(8))));
        assert_eq!(taken(100), (vec![2], 0, None));
        assert!(link.is_empty());
    }

    /// 64 bytes take 64 ms at 8 Kbit/s.
    #[test]
    fn messages_leave_one_after_another_at_the_rate_and_urgent_ones_first() {
        let (mut link, mut random) = (EmulatedLink::default(), Random::new(1));
        let mut interface = Interface::default();
        let rate = Rate::parse("8Kbit/s");
        let like = Link { delay: ms(5), rate, ..Link::default() };
        for (byte, class) in [(1, Class::Bulk), (2, Class::Bulk), (3, Class::Urgent)] {
            push(&mut link, byte, class, like, at(0), &mut random);
        }
        let mut taken = |rate, now| taken(&mut link, &mut interface, rate, at(now));
        assert_eq!(taken(rate, 68), []);
        assert_eq!(taken(rate, 69), [3]);
        assert_eq!(taken(rate, 132), []);
        // What has begun keeps its time, and nothing else does.
        assert_eq!(taken(None, 133), [1]);
        assert_eq!(taken(None, 197), [2]);
    }

    /// 64 KiB take 66 ms at 8 Mbit/s.
    #[test]
    fn the_frames_of_a_long_message_arrive_one_by_one() {
        let (mut link, mut random) = (EmulatedLink::default(), Random::new(1));
        let (mut interface, rate) = (Interface::default(), Some(Rate::mbit(8)));
        let like = Link { delay: ms(5), rate, ..Link::default() };
        let message = Encoded::new(Bytes::from(vec![1; 150 << 10]).into(), Class::Bulk);
        let (bytes, node) = (message.bytes(), |id| NodeId::new(id).unwrap().into());
        link.push(message, (node(1), node(2)), like, at(0), &mut random);
        let mut arrived = |now| {
            while interface
                .next([((), link.line())].into_iter())
                .is_some_and(|(begins, ())| begins <= at(now))
            {
                link.send(&mut interface, rate);
            }
            let (mut output, mut taken) = (Output::default(), Vec::new());
            link.arrive(at(now), &mut output);
            output.write_to(&mut taken).unwrap();
            (taken.len() >> 10, link.len(Class::Bulk) >> 10)
        };
        let all = bytes >> 10;
        assert_eq!(
            [70, 71, 136, 137, 158, 159].map(&mut arrived),
            [(0, all), (64, all - 64), (0, all - 64), (64, all - 128), (0, all - 128), (22, 0)]
        );
    }

    #[test]
    fn jitter_spreads_messages_and_never_lets_one_pass_another() {
        let (mut link, mut random) = (EmulatedLink::default(), Random::new(1));
        let mut interface = Interface::default();
        let like = Link { delay: ms(5), jitter: ms(20), rate: None };
        let mut last = Time::ZERO;
        for index in 0..200 {
            let sent = at(u64::from(index));
            push(&mut link, index, Class::Urgent, like, sent, &mut random);
            link.send(&mut interface, None);
            let arrives = link.left.back().unwrap().0;
            assert!(
                arrives >= last && arrives >= sent + like.delay && arrives <= sent + like.delay + like.jitter
            );
            last = arrives;
        }
        assert_eq!(taken(&mut link, &mut interface, None, last), (0..200).collect::<Vec<u8>>());
    }

    #[test]
    fn a_link_is_what_it_is_between_the_two_sites_and_what_every_link_is() {
        let (slow, fast) = (Some(Rate::mbit(10)), Some(Rate::mbit(1000)));
        let geo = Topology::named("geo").unwrap();
        let mine = geo.site("VA").unwrap();
        let common = Link { delay: ms(1), jitter: ms(2), rate: fast };
        let mut delays = Delays { common, map: Some((geo.clone(), mine)), ..Delays::default() };
        assert_eq!(delays.to(b"JP").unwrap(), Link { delay: ms(74), ..common });
        assert_eq!(delays.to(b"VA").unwrap(), common);
        assert!(delays.to(b"Mars").unwrap_err().contains("no site Mars; the sites are EU, VA"));
        assert!(delays.to(b"").unwrap_err().contains("--site"));
        assert_eq!(Delays::default().to(b"Mars"), Ok(Link::default()));

        let rated = geo.with_rates(None, [("VA", "JP", Rate::mbit(10))], [("VA", Rate::mbit(50))]).unwrap();
        assert_eq!(delays.take_rates(), None);
        delays.changed.put(rated);
        assert_eq!(delays.take_rates(), Some(Ok(())));
        assert_eq!(delays.to(b"JP").unwrap(), Link { delay: ms(74), rate: slow, ..common });
        assert_eq!(delays.to(b"EU").unwrap().rate, fast);
        assert_eq!(delays.interface(), Some(Rate::mbit(50)));
        delays.changed.put(Topology::named("wan").unwrap());
        assert_eq!(delays.take_rates(), Some(Err(TopologyError::Moved)));
        assert_eq!(delays.interface(), Some(Rate::mbit(50)));
    }

    #[test]
    fn the_settings_are_the_nodes_own_and_peers_do_not_compare_them() {
        let mut settings =
            Settings::parse(["net.delay=5ms", "net.jitter=200us", "net.rate=1Gbit/s"]).unwrap();
        let common = take_common(&mut settings).unwrap();
        let jitter = Duration::from_micros(200);
        assert_eq!(common, Link { delay: ms(5), jitter, rate: Some(Rate::mbit(1000)) });
        assert_eq!(settings.finish(), Ok(()));
        assert_eq!(settings.digest(), Settings::default().digest());
        assert!(take_common(&mut Settings::default()).unwrap().is_instant());
        for wrong in ["net.delay=5", "net.rate=0Mbit/s"] {
            assert!(take_common(&mut Settings::parse([wrong]).unwrap()).is_err(), "{wrong}");
        }
    }
}
