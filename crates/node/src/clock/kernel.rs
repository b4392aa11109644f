//! The kernel's clock discipline, as `adjtimex` tells it: who keeps the clock right says how wrong it may be, and the
//! kernel adds half a millisecond to that every second.

use quorate_core::Time;

use super::Bound;

/// What the kernel adds to the maximum error: 500 ppm, the most that it lets a clock be slewed (`MAXFREQ`).
const DRIFT: u64 = 500_000;

/// From here on nothing is known (`NTP_PHASE_LIMIT`, 16 s).
const UNKNOWN_US: u64 = 16_000_000;

/// What the kernel says of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Discipline {
    /// A daemon keeps it right, it is not broken, and no leap second is passing.
    sound: bool,
    /// Microseconds.
    max_error: u64,
    /// Microseconds.
    estimated_error: u64,
}

impl Discipline {
    /// The bound that it gives, in nanoseconds.
    ///
    /// `systemd-timesyncd` sets both errors to zero whatever they are, and would have every clock be right. A daemon
    /// that knows its error has an estimate of it; where there is none, nobody has thought about the maximum.
    fn error(self) -> Option<u64> {
        let known = self.sound && self.max_error < UNKNOWN_US && self.estimated_error > 0;
        // The kernel adds to it once a second, so the last second's part may be missing.
        known.then(|| self.max_error * 1000 + DRIFT)
    }
}

/// The bound that the kernel has at present.
pub(super) fn bound(now: Time) -> Option<Bound> {
    let error = ask()?.error()?;
    Some(Bound { source: "kernel", at: now, error, drift: DRIFT, until: None })
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no crate that is kept well wraps this system call; it only reads")]
fn ask() -> Option<Discipline> {
    // SAFETY: all its fields are integers, and all of them may be zero; zero in `modes` means that nothing is changed.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into a structure of its own layout that is ours alone.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    let broken = libc::STA_UNSYNC | libc::STA_CLOCKERR;
    Some(Discipline {
        sound: state >= 0
            && state != libc::TIME_ERROR
            && state != libc::TIME_OOP
            && timex.status & broken == 0,
        max_error: u64::try_from(timex.maxerror).ok()?,
        estimated_error: u64::try_from(timex.esterror).ok()?,
    })
}

#[cfg(not(target_os = "linux"))]
fn ask() -> Option<Discipline> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_believed_only_if_somebody_has_thought_about_it() {
        let kept = Discipline { sound: true, max_error: 1500, estimated_error: 20 };
        for (discipline, error) in [
            (kept, Some(2_000_000)),
            (Discipline { sound: false, ..kept }, None),
            (Discipline { max_error: 16_000_000, ..kept }, None),
            (Discipline { max_error: 15_999_999, ..kept }, Some(16_000_499_000)),
            (Discipline { estimated_error: 0, ..kept }, None),
            (Discipline { max_error: 0, estimated_error: 1, ..kept }, Some(500_000)),
        ] {
            assert_eq!(discipline.error(), error, "{discipline:?}");
        }
    }
}
