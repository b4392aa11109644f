//! The wall clocks of a cluster as functions of true time, with all jumps that they make in a run.

use crate::Nanos;

/// What the wall clocks of several machines show, in nanoseconds since the epoch of true time.
#[derive(Clone, Debug)]
pub struct WallClocks {
    /// Of each clock: from when on it is off by how much.
    clocks: Vec<Vec<(Nanos, i64)>>,
}

/// How long time takes at least to go on by so much while it is slewed: at half the rate of a monotonic clock, which
/// gains little on true time.
fn slewed(by: Nanos) -> Nanos {
    by.saturating_mul(19) / 10
}

impl WallClocks {
    /// Each of them by how much it is off in nanoseconds, from true time 0 on and again from each of its jumps on.
    pub fn new<C: IntoIterator<Item = (Nanos, i64)>>(clocks: impl IntoIterator<Item = C>) -> WallClocks {
        WallClocks { clocks: clocks.into_iter().map(|clock| clock.into_iter().collect()).collect() }
    }

    /// The least that any of them shows at any instant from `from` to `to`.
    pub fn least(&self, from: Nanos, to: Nanos) -> i64 {
        self.least_known(from, to, 0)
    }

    /// The least that anybody takes any of them to show then who has read it up to `age` nanoseconds before: who does
    /// not know of a jump.
    pub fn least_known(&self, from: Nanos, to: Nanos, age: Nanos) -> i64 {
        let shown =
            self.stretches().filter(|(start, end, _)| *start <= to && *end > from.saturating_sub(age));
        shown.map(|(start, _, offset)| start.max(from) as i64 + offset).min().expect("there are clocks")
    }

    /// The most that any of them has shown until `to`.
    pub fn most(&self, to: Nanos) -> i64 {
        let shown = self.stretches().filter(|(start, ..)| *start <= to);
        shown.map(|(_, end, offset)| (end - 1).min(to) as i64 + offset).max().expect("there are clocks")
    }

    /// The first instant at which any of them shows `time` or later; or a leader does that slews, from what one of
    /// them showed before it was set back.
    pub fn first(&self, time: i64) -> Nanos {
        let reached = self.stretches().map(|(start, end, offset)| {
            let at = start.max(u64::try_from(time.saturating_sub(offset)).unwrap_or(0));
            if at < end { at } else { end.saturating_add(slewed(at - end)) }
        });
        reached.min().expect("there are clocks")
    }

    /// From when on, until when, and how much a clock is off.
    fn stretches(&self) -> impl Iterator<Item = (Nanos, Nanos, i64)> {
        self.clocks.iter().flat_map(|clock| {
            let ends = clock.iter().skip(1).map(|(from, _)| *from).chain([Nanos::MAX]);
            clock.iter().zip(ends).map(|((from, offset), end)| (*from, end, *offset))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One is 5 behind and is set right at 100; the other is 20 ahead and is set back by 30 at 50.
    #[test]
    fn clocks_show_what_they_do_between_their_jumps() {
        let clocks = WallClocks::new([[(0, -5), (100, 0)], [(0, 20), (50, -10)]]);
        for (until, most) in
            [(10, 30), (49, 69), (50, 69), (60, 69), (74, 69), (75, 70), (99, 94), (100, 100)]
        {
            assert_eq!(clocks.most(until), most, "until {until}");
        }
        for (from, to, age, least) in [
            (10, 20, 0, 5),
            (48, 50, 0, 40),
            (49, 49, 0, 44),
            (99, 200, 0, 89),
            (120, 130, 0, 110),
            (50, 50, 1, 40),
            (100, 100, 1, 90),
            (101, 101, 1, 91),
        ] {
            assert_eq!(clocks.least_known(from, to, age), least, "from {from} to {to}, {age} old");
        }
        for (time, first) in [(10, 0), (30, 10), (69, 49), (70, 50), (90, 88), (94, 95)] {
            assert_eq!(clocks.first(time), first, "{time}");
        }
    }
}
