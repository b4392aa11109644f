//! What a link between two processes is like: its delay and its rate. The transport emulates it, the simulator's
//! experiments have it.
//!
//! A message first leaves its sender's **interface**, which all links of that process share, and then the link; each
//! sends one message after another, at its rate. The link may begin as soon as the interface has, so that the slower of
//! the two is what counts. Then the message is under way for the delay.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::time::Time;

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

/// Sends bytes one after another: an interface, or a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transmitter {
    free_at: Time,
}

impl Transmitter {
    /// When a message that is ready now has left a link, and the interface that it leaves by.
    pub fn send(
        &mut self,
        rate: Option<Rate>,
        interface: (&mut Transmitter, Option<Rate>),
        now: Time,
        bytes: usize,
    ) -> Time {
        let (interface, interface_rate) = interface;
        let begins = now.max(interface.free_at);
        let left = interface.transmit(interface_rate, now, bytes);
        self.transmit(rate, begins, bytes).max(left)
    }

    /// When so many bytes that are ready now have been sent.
    pub fn transmit(&mut self, rate: Option<Rate>, now: Time, bytes: usize) -> Time {
        let takes = rate.map_or(Duration::ZERO, |rate| rate.transmission(bytes));
        self.free_at = now.max(self.free_at) + takes;
        self.free_at
    }
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

    /// At 8 Mbit/s, 1000 bytes take a millisecond.
    #[test]
    fn links_share_their_interface_and_the_slower_of_both_counts() {
        let (fast, slow) = (Some(Rate::mbit(8)), Some(Rate::mbit(4)));
        let (mut first, mut second, mut interface) = Default::default();
        let mut send =
            |link: &mut Transmitter, rate, now, bytes| link.send(rate, (&mut interface, fast), now, bytes);
        assert_eq!(send(&mut first, fast, at(0), 10_000), at(10));
        // Waits for the interface, not for the other link.
        assert_eq!(send(&mut second, slow, at(0), 1000), at(12));
        assert_eq!(send(&mut first, None, at(0), 1000), at(12));
        // Waits for its own link, as the interface is free.
        assert_eq!(send(&mut second, slow, at(12), 1000), at(14));
        assert_eq!(send(&mut second, slow, at(13), 1000), at(16));
        assert_eq!(send(&mut first, fast, at(20), 0), at(20));
        assert_eq!(Transmitter::default().transmit(None, at(3), 1 << 40), at(3));
    }
}
