//! What a link between two processes is like: its delay and its rate. The transport emulates it, the simulator's
//! experiments have it.
//!
//! Messages go over a link in frames of at most [`FRAME`] bytes, one after another at the link's rate, and all links of
//! a process share its **interface**, which has a rate of its own: a frame takes as long as the slower of the two does.
//! What is urgent goes before writes and bulk, which therefore keep it waiting for a frame at most; writes and bulk go
//! in turn ([`ClassScheduler`]); within a class, messages go in their order. The interface serves its links in turn,
//! and writes and bulk of different ones as a link does its own. A message that has left whole arrives after the delay.
//!
//! When a frame begins is decided when the link and the interface are free, so that a rate that changes is that of
//! everything that waits.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::machine::Class;
use crate::mutation;
use crate::time::Time;

/// Bytes of a message that go in one frame, at most.
pub const FRAME: usize = 64 << 10;

/// The fastest link, in bits a second.
const FASTEST: u64 = 1_000_000_000_000;
/// Units of rates, the largest first.
const UNITS: [(&str, u64); 3] = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("Kbit/s", 1_000)];

/// Bits a second, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// What [`Rate::parse`] takes, in words for an error.
    pub const EXPECTED: &str = "a rate above 0 and at most 1000Gbit/s, such as 100Mbit/s or 1Gbit/s";

    /// Millions of bits a second, 1 to 1,000,000.
    pub const fn mbit(count: u64) -> Rate {
        assert!(count > 0 && count <= FASTEST / 1_000_000, "a rate is above 0 and at most 1000Gbit/s");
        match NonZeroU64::new(count * 1_000_000) {
            Some(bits) => Rate(bits),
            None => unreachable!(),
        }
    }

    /// Reads a rate such as `100Mbit/s`, `1Gbit/s` or `64Kbit/s`; none if it is 0 or more than a link can have.
    pub fn parse(text: &str) -> Option<Rate> {
        let (count, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))?;
        if !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let bits = count.parse::<u64>().ok()?.checked_mul(unit)?;
        NonZeroU64::new(bits).filter(|bits| bits.get() <= FASTEST).map(Rate)
    }

    /// In bits a second.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// How long so many bytes take, rounded down to a nanosecond.
    pub fn transmission(self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(self.0.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// As [`Rate::parse`] reads it.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        // Every rate is a whole number of the smallest unit.
        let (name, unit) = UNITS.iter().find(|(_, unit)| bits.is_multiple_of(*unit)).unwrap_or(&UNITS[2]);
        write!(f, "{}{name}", bits / unit)
    }
}

/// A link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// What each message is under way at least, after it has been sent.
    pub delay: Duration,
    /// How much longer it may be under way, evenly spread.
    pub jitter: Duration,
    /// How fast it sends; none for at once.
    pub rate: Option<Rate>,
}

impl Link {
    /// Whether what is sent is there at once.
    pub fn is_instant(self) -> bool {
        self == Link::default()
    }
}

/// Which class a link sends next: writes and bulk share it by a deficit in bytes (deficit round robin).
///
/// A message that has begun goes on until it has left whole: a receiver puts two together at a time, one of them
/// urgent. Then writes go first and gossip last, but where bulk waits meanwhile, it has half of the link: there may be
/// writes without an end, and a replica that is behind gets all that it lacks as bulk.
#[derive(Debug, Default)]
pub struct ClassScheduler {
    /// The class of a message that has been sent in part.
    begun: Option<Class>,
    /// Bytes that bulk has had to wait for, less those of bulk that went instead.
    waited: i64,
}

impl ClassScheduler {
    /// The class of the message that has begun, of which the next frame is.
    pub fn begun(&self) -> Option<Class> {
        self.begun
    }

    /// Of which class the next message is, if it waits, and otherwise.
    pub fn order(&self) -> [Class; 3] {
        match self.waited >= FRAME as i64 && !mutation::active("link/bulk-waits-for-writes") {
            true => [Class::Bulk, Class::Write, Class::Gossip],
            false => [Class::Write, Class::Bulk, Class::Gossip],
        }
    }

    /// A frame of a class has been sent, with which its message ends or not; and whether writes wait, and bulk.
    pub fn sent(&mut self, (class, ends): (Class, bool), bytes: usize, [writes, bulk]: [bool; 2]) {
        self.begun = (!ends).then_some(class);
        let bytes = bytes as i64;
        match class {
            Class::Urgent | Class::Gossip => {}
            Class::Bulk if writes => self.waited -= bytes,
            Class::Bulk => self.waited = 0,
            Class::Write if bulk => self.waited += bytes,
            // What bulk had too much of is given back even where none waits.
            Class::Write => self.waited = (self.waited + bytes).min(0),
        }
    }

    /// A frame has been sent, and whatever of another link waits may be next, of which nothing is known here.
    fn sent_frame(&mut self, class: Class, bytes: usize) {
        self.sent((class, true), bytes, [true; 2]);
        self.waited = self.waited.clamp(-(FRAME as i64), FRAME as i64);
    }
}

/// What waits to be sent over one link, in the order of each class.
#[derive(Debug)]
pub struct Line<T> {
    /// A queue for each class, the urgent one first.
    waiting: [VecDeque<Waiting<T>>; Class::ALL.len()],
    scheduler: ClassScheduler,
    free_at: Time,
    /// When its interface served it last, in frames of all links.
    served: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    ready: Time,
    /// That have not been sent yet.
    bytes: usize,
    /// Whether a message ends with it.
    ends: bool,
    message: T,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Line {
            waiting: Default::default(),
            scheduler: ClassScheduler::default(),
            free_at: Time::ZERO,
            served: 0,
        }
    }
}

impl<T> Line<T> {
    /// Takes a message that is ready to be sent at this time, and no earlier than those of its class before it.
    pub fn push(&mut self, class: Class, ready: Time, bytes: usize, message: T) {
        self.push_frame((class, true), ready, bytes, message);
    }

    /// Takes a part of a message, and whether it is the last one.
    pub fn push_frame(&mut self, (class, ends): (Class, bool), ready: Time, bytes: usize, message: T) {
        let is_first = class == Class::Write && mutation::active("link/writes-are-urgent");
        let class = if is_first { Class::Urgent } else { class };
        self.waiting[class as usize].push_back(Waiting { ready, bytes, ends, message });
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// When its next frame may begin, and of which class that is.
    fn next(&self, interface: &Interface) -> Option<(Time, Class)> {
        let free = self.free_at.max(interface.free_at);
        let begins = |class: Class| {
            let first = self.waiting[class as usize].front()?;
            Some((free.max(first.ready), class))
        };
        let rest = match self.scheduler.begun() {
            Some(class) => begins(class),
            // The first of those that are ready first.
            None => self.scheduler.order().into_iter().filter_map(begins).min_by_key(|(at, _)| *at),
        };
        begins(Class::Urgent).into_iter().chain(rest).min()
    }
}

/// What all links of a process share.
#[derive(Debug, Default)]
pub struct Interface {
    rate: Option<Rate>,
    free_at: Time,
    /// Frames that were sent.
    served: u64,
    scheduler: ClassScheduler,
}

impl Interface {
    /// One that sends at this rate; without one, at once.
    pub fn new(rate: Option<Rate>) -> Interface {
        Interface { rate, ..Interface::default() }
    }

    /// How fast it is, if that is limited.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// It has this rate from the next frame on.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate;
    }

    /// When so many bytes have been sent, that are ready now and wait for nothing but what is being sent.
    pub fn transmit(&mut self, now: Time, bytes: usize) -> Time {
        self.free_at = now.max(self.free_at) + transmission(self.rate, bytes);
        self.free_at
    }

    /// When the next frame of these links begins, and on which of them; none if nothing waits.
    pub fn next<'a, K, T: 'a>(&self, lines: impl Iterator<Item = (K, &'a Line<T>)>) -> Option<(Time, K)> {
        let order = self.scheduler.order();
        let next = lines.filter_map(|(key, line)| {
            let (at, class) = line.next(self)?;
            let rank = order.iter().position(|other| *other == class);
            Some(((at, rank, line.served), key))
        });
        next.min_by_key(|(order, _)| *order).map(|((at, ..), key)| (at, key))
    }

    /// Sends the next frame of a link that has one, at the rate of the slower of both. If a message ends with it: that,
    /// and when it has left.
    pub fn send<T>(&mut self, line: &mut Line<T>, rate: Option<Rate>) -> Option<(Time, T)> {
        let (at, class) = line.next(self)?;
        let waiting = &mut line.waiting[class as usize];
        let first = waiting.front_mut()?;
        let bytes = first.bytes.min(FRAME);
        first.bytes -= bytes;
        let (is_left, ends) = (first.bytes > 0, first.bytes == 0 && first.ends);
        let message = waiting.pop_front_if(|_| !is_left).map(|first| first.message);
        if class != Class::Urgent {
            let waits =
                |class: Class| line.waiting[class as usize].front().is_some_and(|first| first.ready <= at);
            line.scheduler.sent((class, ends), bytes, [waits(Class::Write), waits(Class::Bulk)]);
            self.scheduler.sent_frame(class, bytes);
        }
        self.free_at = at + transmission(self.rate, bytes);
        line.free_at = at + transmission(rate, bytes);
        self.served += 1;
        line.served = self.served;
        let left = line.free_at.max(self.free_at);
        message.map(|message| (left, message))
    }
}

fn transmission(rate: Option<Rate>, bytes: usize) -> Duration {
    rate.map_or(Duration::ZERO, |rate| rate.transmission(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn rates_are_read_as_they_are_shown_and_never_are_zero() {
        for text in ["100Mbit/s", "1Gbit/s", "64Kbit/s", "1500Kbit/s", "1000Gbit/s"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Rate::parse("1000Mbit/s"), Some(Rate::mbit(1000)));
        for text in [
            "0Mbit/s",
            "1001Gbit/s",
            "5",
            "-1Mbit/s",
            "+1Mbit/s",
            "Mbit/s",
            "1MiB/s",
            "99999999999999999999Kbit/s",
        ] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_message_takes_as_long_as_its_bytes_at_the_rate() {
        assert_eq!(Rate::mbit(8).transmission(1000), Duration::from_millis(1));
        assert_eq!(Rate::mbit(1000).transmission(125), Duration::from_micros(1));
        assert!(Rate::parse("1Kbit/s").unwrap().transmission(usize::MAX) > Duration::from_secs(1 << 30));
    }

    /// What leaves until a time, and when. At 8 Mbit/s, 1000 bytes take a millisecond.
    fn left<const N: usize>(
        interface: &mut Interface,
        lines: &mut [Line<u8>; N],
        rates: [Option<Rate>; N],
        now: Time,
    ) -> Vec<(u8, Time)> {
        let mut left = Vec::new();
        while let Some((begins, index)) = interface.next(lines.iter().enumerate())
            && begins <= now
        {
            left.extend(interface.send(&mut lines[index], rates[index]).map(|(at, message)| (message, at)));
        }
        left
    }

    #[test]
    fn links_share_their_interface_and_the_slower_of_both_counts() {
        let (fast, slow) = (Some(Rate::mbit(8)), Some(Rate::mbit(4)));
        let (mut interface, mut lines) = (Interface::new(fast), [Line::default(), Line::default()]);
        lines[0].push(Class::Urgent, at(0), 10_000, 1);
        lines[0].push(Class::Urgent, at(0), 1000, 2);
        lines[1].push(Class::Urgent, at(1), 1000, 3);
        lines[1].push(Class::Urgent, at(1), 1000, 4);
        // The second link waits for the interface, and then for itself.
        let expected = [(1, at(10)), (3, at(12)), (2, at(12)), (4, at(14))];
        assert_eq!(left(&mut interface, &mut lines, [fast, slow], at(100)), expected);
        assert!(lines.iter().all(Line::is_empty));
        lines[0].push(Class::Urgent, at(20), 0, 5);
        assert_eq!(left(&mut interface, &mut lines, [None, slow], at(100)), [(5, at(20))]);
        assert_eq!(Interface::default().transmit(at(3), 1 << 40), at(3));
        assert_eq!(interface.transmit(at(30), 1000), at(31));
    }

    #[test]
    fn what_is_urgent_waits_for_one_frame_of_bulk_at_most_and_each_class_keeps_its_order() {
        let rate = Some(Rate::mbit(8));
        let frame = Rate::mbit(8).transmission(FRAME);
        let (mut interface, mut lines) = (Interface::default(), [Line::default()]);
        lines[0].push(Class::Bulk, at(0), 4 * FRAME, 1);
        lines[0].push(Class::Bulk, at(0), 1000, 2);
        lines[0].push(Class::Urgent, at(10), 1000, 3);
        lines[0].push(Class::Urgent, at(10), 1000, 4);
        let urgent = at(0) + frame + Duration::from_millis(1);
        let bulk = at(0) + 4 * frame + Duration::from_millis(2);
        assert_eq!(
            left(&mut interface, &mut lines, [rate], at(10_000)),
            [
                (3, urgent),
                (4, urgent + Duration::from_millis(1)),
                (1, bulk),
                (2, bulk + Duration::from_millis(1))
            ]
        );
    }

    #[test]
    fn writes_and_bulk_that_wait_go_in_turn_and_messages_that_have_begun_first() {
        let rate = Some(Rate::mbit(8));
        let frame = Rate::mbit(8).transmission(FRAME);
        let (mut interface, mut lines) = (Interface::default(), [Line::default()]);
        // As two messages of one frame each, and as one of two, whose frames are pushed one by one.
        lines[0].push(Class::Bulk, at(0), FRAME, 1);
        lines[0].push_frame((Class::Bulk, false), at(0), FRAME, 2);
        lines[0].push_frame((Class::Bulk, true), at(0), FRAME, 3);
        (4..=6).for_each(|bulk| lines[0].push(Class::Bulk, at(0), FRAME, bulk));
        let second = Duration::from_millis(100);
        (7..=11).for_each(|write| lines[0].push(Class::Write, at(0) + second, FRAME, write));
        lines[0].push(Class::Urgent, at(0) + second, FRAME, 12);
        // The second message has begun when the writes are ready, and the rest of it is half of the link's next frames.
        let order = [1, 2, 12, 3, 7, 8, 4, 9, 5, 10, 6, 11];
        let expected = order.iter().zip(1..).map(|(message, count)| (*message, at(0) + count * frame));
        assert_eq!(left(&mut interface, &mut lines, [rate], at(10_000)), expected.collect::<Vec<_>>());
    }

    #[test]
    fn gossip_goes_last_however_long_it_waits() {
        let rate = Some(Rate::mbit(8));
        let (mut interface, mut lines) = (Interface::default(), [Line::default()]);
        lines[0].push(Class::Gossip, at(0), FRAME, 1);
        (2..=4).for_each(|bulk| lines[0].push(Class::Bulk, at(0), FRAME, bulk));
        (5..=7).for_each(|write| lines[0].push(Class::Write, at(0), FRAME, write));
        let left = left(&mut interface, &mut lines, [rate], at(10_000));
        assert_eq!(left.iter().map(|(message, _)| *message).collect::<Vec<_>>(), [5, 2, 6, 3, 7, 4, 1]);
    }

    #[test]
    fn half_of_a_link_is_for_bulk_however_long_its_messages_are() {
        let (rate, frame) = (Some(Rate::mbit(8)), Rate::mbit(8).transmission(FRAME));
        let (mut interface, mut lines) = (Interface::default(), [Line::default()]);
        (0..100).for_each(|_| lines[0].push(Class::Write, at(0), FRAME, 1));
        (0..10).for_each(|_| lines[0].push(Class::Bulk, at(0), 8 * FRAME, 8));
        let left = left(&mut interface, &mut lines, [rate], at(0) + 99 * frame);
        let frames = |kind| left.iter().filter(|(message, _)| *message == kind).count() * usize::from(kind);
        assert_eq!((frames(1), frames(8)), (49, 48), "and three of a message that goes on");
    }

    #[test]
    fn an_interface_serves_its_links_in_turn_and_no_backlog_keeps_another_link_waiting() {
        let (mut interface, mut lines) =
            (Interface::new(Some(Rate::mbit(8))), [Line::default(), Line::default()]);
        lines[0].push(Class::Urgent, at(0), 100 * FRAME, 1);
        lines[1].push(Class::Urgent, at(1), 2 * FRAME, 2);
        lines[1].push(Class::Bulk, at(1), FRAME, 3);
        let frames = |count| at(0) + count * Rate::mbit(8).transmission(FRAME);
        // Bulk of one waits for what is urgent of the other.
        let expected = [(2, frames(4)), (1, frames(102)), (3, frames(103))];
        assert_eq!(left(&mut interface, &mut lines, [None, None], at(1_000_000)), expected);
    }

    #[test]
    fn writes_of_a_link_and_bulk_of_another_go_in_turn() {
        let (mut interface, mut lines) =
            (Interface::new(Some(Rate::mbit(8))), [Line::default(), Line::default(), Line::default()]);
        (1..=4).for_each(|bulk| lines[0].push(Class::Bulk, at(0), FRAME, bulk));
        (5..=6).for_each(|write| lines[1].push(Class::Write, at(1), FRAME, write));
        (7..=8).for_each(|write| lines[2].push(Class::Write, at(1), FRAME, write));
        let left = left(&mut interface, &mut lines, [None; 3], at(1_000_000));
        // Bulk has been sent when the writes come.
        assert_eq!(left.iter().map(|(message, _)| *message).collect::<Vec<_>>(), [1, 5, 7, 2, 6, 3, 8, 4]);
    }

    #[test]
    fn a_rate_that_changes_is_that_of_everything_that_waits() {
        let (mut interface, mut lines) = (Interface::default(), [Line::default()]);
        lines[0].push(Class::Bulk, at(0), 10 * FRAME, 1);
        let (slow, fast) = (Rate::mbit(1), Rate::mbit(1000));
        assert_eq!(left(&mut interface, &mut lines, [Some(slow)], at(0)), []);
        let expected = at(0) + slow.transmission(FRAME) + 9 * fast.transmission(FRAME);
        assert_eq!(left(&mut interface, &mut lines, [Some(fast)], at(10_000)), [(1, expected)]);
    }
}
