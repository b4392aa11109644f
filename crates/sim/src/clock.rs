//! The clocks of one machine, as functions of true time. All of them are drawn before the run starts, so that a
//! reading can be mapped to true time and back at any instant, the future included: checkers ask when a promise
//! really ends.
//!
//! | clock | in bounds | `clocks-beyond-bound` |
//! |---|---|---|
//! | monotonic | never back, rate within 1±ρ | any rate between a half and two, jumps forward |
//! | wall | any offset, jumps both ways (fault `wall-jumps`) | the same |
//! | interval | truth inside, often at an edge, or none; 10 µs to 400 ms wide | truth outside by seconds, at times |

use quorate_check::{MILLISECOND, Nanos, SECOND};
use quorate_core::{Instant, Interval, Random, Time, Wall};

/// Where true time starts, in nanoseconds since the Unix epoch.
const EPOCH: u64 = 1_700_000_000 * SECOND;
/// Parts per billion.
const BILLION: i64 = 1_000_000_000;

/// What may be wrong with clocks.
#[derive(Clone, Copy, Debug)]
pub struct Quality {
    /// Rates stay within 1±this.
    pub drift: f64,
    /// Wall clocks may jump.
    pub wall_jumps: bool,
    /// Everything may be wrong.
    pub beyond_bound: bool,
}

/// The clocks of one machine.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Monotonic, piecewise linear; the first begins at 0.
    rates: Vec<Rate>,
    /// Wall offsets in milliseconds, each from its true time on; the first begins at 0.
    wall: Vec<(Nanos, i64)>,
    /// Interval clock errors, each from its true time on; the first begins at 0.
    errors: Vec<(Nanos, Option<IntervalError>)>,
    /// Where each incarnation's monotonic clock starts: it means nothing after a restart.
    bases: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    from: Nanos,
    reading: u64,
    /// Nanoseconds shown per true second.
    per_second: u64,
}

#[derive(Clone, Copy, Debug)]
struct IntervalError {
    /// How far the middle of the interval is from the truth.
    offset: i64,
    /// Half its width.
    bound: i64,
}

impl Clock {
    /// Draws clocks for a run that lasts until `horizon`. Nothing goes wrong with them from `healed` on, except that
    /// rates stay where they are.
    pub fn draw(quality: Quality, healed: Nanos, random: &mut Random) -> Clock {
        Clock {
            rates: rates(quality, healed, random),
            wall: walls(quality, healed, random),
            errors: errors(quality, healed, random),
            bases: Vec::new(),
        }
    }

    /// Clocks that run at the rate of true time. The interval, if there is one, is as wide as its bound says, and the
    /// truth anywhere in it.
    pub fn steady(bound: Option<Nanos>, random: &mut Random) -> Clock {
        let error = bound.map(|bound| IntervalError {
            offset: random.range(0..2 * bound + 1) as i64 - bound as i64,
            bound: bound as i64,
        });
        Clock {
            rates: vec![Rate { from: 0, reading: 0, per_second: BILLION as u64 }],
            wall: vec![(0, 0)],
            errors: vec![(0, error)],
            bases: Vec::new(),
        }
    }

    /// From some true instant on the interval clock knows no better bound than this; the truth stays inside.
    pub fn widen(&mut self, from: Nanos, bound: Nanos, random: &mut Random) {
        self.errors.retain(|(at, _)| *at < from || *at == 0);
        let offset = random.range(0..2 * bound + 1) as i64 - bound as i64;
        self.errors.push((from.max(1), Some(IntervalError { offset, bound: bound as i64 })));
    }

    /// A process starts on this machine; its monotonic clock starts anywhere.
    pub fn restart(&mut self, random: &mut Random) {
        self.bases.push(random.range(0..1000 * SECOND));
    }

    /// Everything a process may know at a true instant. `incarnation` counts from 0.
    pub fn read(&self, incarnation: u64, at: Nanos) -> Instant {
        let wall = self.wall[last(&self.wall, |(from, _)| *from <= at)].1;
        let millis = ((EPOCH + at) / MILLISECOND).saturating_add_signed(wall);
        let clock = self.errors[last(&self.errors, |(from, _)| *from <= at)].1.map(|error| {
            let middle = (EPOCH + at).saturating_add_signed(error.offset);
            Interval { earliest: middle - error.bound as u64, latest: middle + error.bound as u64 }
        });
        Instant { now: self.monotonic(incarnation, at), wall: Wall::from_millis(millis), clock }
    }

    /// The monotonic clock at a true instant.
    pub fn monotonic(&self, incarnation: u64, at: Nanos) -> Time {
        let rate = &self.rates[last(&self.rates, |rate| rate.from <= at)];
        let shown = u128::from(at - rate.from) * u128::from(rate.per_second) / BILLION as u128;
        Time::from_nanos(self.bases[incarnation as usize] + rate.reading + shown as u64)
    }

    /// The first true instant at which the monotonic clock shows `time` or later.
    pub fn true_time(&self, incarnation: u64, time: Time) -> Nanos {
        let Some(reading) = time.nanos().checked_sub(self.bases[incarnation as usize]) else { return 0 };
        let index = last(&self.rates, |rate| rate.reading <= reading);
        let rate = &self.rates[index];
        let missing = u128::from(reading - rate.reading) * BILLION as u128;
        let passed = missing.div_ceil(u128::from(rate.per_second));
        let at = rate.from.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        // A jump skips readings: they show up when it happens.
        self.rates.get(index + 1).map_or(at, |next| at.min(next.from))
    }

    /// From which true instant on the interval clock never ends at `latest` or before.
    pub fn when_past(&self, latest: u64) -> Nanos {
        let mut end = Nanos::MAX;
        for (from, error) in self.errors.iter().rev() {
            if let Some(IntervalError { offset, bound }) = error {
                // The first instant of this stretch that is past it.
                let past =
                    (i128::from(latest) - i128::from(EPOCH) - i128::from(*offset) - i128::from(*bound)) + 1;
                let past = Nanos::try_from(past.max(0)).unwrap_or(Nanos::MAX).min(end);
                if past > *from {
                    return past;
                }
            }
            end = *from;
        }
        0
    }

    /// By how much the wall clock is off, in nanoseconds, each from its true time on.
    pub fn wall_offsets(&self) -> impl Iterator<Item = (Nanos, i64)> {
        self.wall.iter().map(|(from, millis)| (*from, millis * MILLISECOND as i64))
    }

    /// How often the wall clock jumps in the run, and at most when: for counting.
    pub fn wall_jumps(&self) -> impl Iterator<Item = Nanos> {
        self.wall.iter().skip(1).map(|(at, _)| *at)
    }

    /// Whether the monotonic clock ever differs in rate from true time.
    pub fn drifts(&self) -> bool {
        self.rates.iter().any(|rate| rate.per_second != BILLION as u64)
    }
}

/// The last item for which `holds`, which is true of the first and of a prefix.
fn last<T>(items: &[T], holds: impl Fn(&T) -> bool) -> usize {
    items.partition_point(holds).saturating_sub(1)
}

/// Ascending instants before `end`, up to `most`.
fn instants(most: u64, end: Nanos, random: &mut Random) -> Vec<Nanos> {
    let mut instants: Vec<_> = (0..random.range(0..most + 1)).map(|_| random.range(1..end.max(2))).collect();
    instants.sort_unstable();
    instants.dedup();
    instants
}

fn rates(quality: Quality, healed: Nanos, random: &mut Random) -> Vec<Rate> {
    let draw = |random: &mut Random| {
        let error = if quality.beyond_bound && random.chance(0.5) {
            *random.pick(&[-0.5, -0.2, 0.25, 1.0])
        } else {
            // The extremes are where margins are too small; the middle shows nothing.
            quality.drift * *random.pick(&[-1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0])
        };
        (BILLION + (error * BILLION as f64) as i64) as u64
    };
    let mut rates = vec![Rate { from: 0, reading: 0, per_second: draw(random) }];
    if quality.drift == 0.0 && !quality.beyond_bound {
        return rates;
    }
    for from in instants(4, healed, random) {
        let before = rates.last().expect("the first is there");
        let shown = u128::from(from - before.from) * u128::from(before.per_second) / BILLION as u128;
        let jump = if quality.beyond_bound { random.range(0..3 * SECOND) } else { 0 };
        let reading = before.reading + shown as u64 + jump;
        rates.push(Rate { from, reading, per_second: draw(random) });
    }
    rates
}

fn walls(quality: Quality, healed: Nanos, random: &mut Random) -> Vec<(Nanos, i64)> {
    let mut walls = vec![(0, 0)];
    if quality.wall_jumps {
        walls[0].1 = random.range(0..2000) as i64 - 1000;
        for at in instants(5, healed, random) {
            let reach: i64 = *random.pick(&[20, 1000, 60_000, 3_600_000]);
            walls.push((at, random.range(0..2 * reach as u64) as i64 - reach));
        }
    }
    walls
}

/// Most clocks keep a good bound, some a bad one; each is better and worse at times, and now and then it is lost.
fn errors(quality: Quality, healed: Nanos, random: &mut Random) -> Vec<(Nanos, Option<IntervalError>)> {
    let usual: i64 = *random.pick(&[10_000, 50_000, 1_000_000, 5_000_000, 20_000_000, 100_000_000]);
    let draw = |random: &mut Random| {
        if random.chance(0.06) {
            return None;
        }
        let bound = usual * *random.pick(&[1, 1, 2]) / *random.pick(&[1, 1, 4]);
        let offset = match random.range(0..6) {
            // The edges are where margins are too small.
            0 | 1 => -bound,
            2 | 3 => bound,
            4 => 0,
            _ => random.range(0..2 * bound as u64 + 1) as i64 - bound,
        };
        let lie = match quality.beyond_bound && random.chance(0.5) {
            // By more than leases last.
            true => *random.pick(&[-4, -2, 2, 4]) * SECOND as i64,
            false => 0,
        };
        Some(IntervalError { offset: offset + lie, bound })
    };
    let mut errors = vec![(0, draw(random))];
    let changes = if quality.beyond_bound { 30 } else { 6 };
    errors.extend(instants(changes, healed, random).into_iter().map(|from| (from, draw(random))));
    errors
}

#[cfg(test)]
mod tests {
    use quorate_check::wall_clocks::WallClocks;

    use super::*;

    const IN_BOUNDS: Quality = Quality { drift: 0.02, wall_jumps: true, beyond_bound: false };
    const BEYOND: Quality = Quality { beyond_bound: true, ..IN_BOUNDS };

    fn clocks(quality: Quality) -> impl Iterator<Item = Clock> {
        (0..50).map(move |seed| {
            let mut random = Random::new(seed);
            let mut clock = Clock::draw(quality, 20 * SECOND, &mut random);
            clock.restart(&mut random);
            clock
        })
    }

    #[test]
    fn the_mapping_gives_the_first_instant_at_which_a_reading_is_reached() {
        for quality in [IN_BOUNDS, BEYOND] {
            for (seed, clock) in clocks(quality).enumerate() {
                for at in (0..30 * SECOND).step_by(97_000_003) {
                    let reading = clock.monotonic(0, at);
                    let first = clock.true_time(0, reading);
                    assert!(first <= at && clock.monotonic(0, first) >= reading, "{seed}");
                    assert!(first == 0 || clock.monotonic(0, first - 1) < reading, "{seed}");
                }
            }
        }
    }

    #[test]
    fn in_bounds_the_monotonic_clock_keeps_its_rate_and_the_interval_holds_the_truth() {
        let (mut extremes, mut instants, mut known, mut edges, mut wide) = (0, 0, 0, 0, 0);
        for clock in clocks(IN_BOUNDS) {
            for at in (0..30 * SECOND).step_by(97_000_003) {
                let shown = clock.monotonic(0, at + SECOND).since(clock.monotonic(0, at)).as_nanos() as u64;
                assert!((SECOND * 98 / 100 - 1..=SECOND * 102 / 100 + 1).contains(&shown), "{shown}");
                extremes += u64::from(shown.abs_diff(SECOND) > SECOND / 100);
                instants += 1;
                if let Some(Interval { earliest, latest }) = clock.read(0, at).clock {
                    assert!(earliest <= EPOCH + at && EPOCH + at <= latest);
                    known += 1;
                    edges += u64::from(earliest == EPOCH + at || latest == EPOCH + at);
                    wide += u64::from(latest - earliest > 100 * MILLISECOND);
                }
            }
        }
        assert!(extremes > 1000, "rates near the bound are common");
        assert!(known * 10 > instants * 8 && known < instants, "{known} of {instants}");
        assert!(
            edges * 2 > known && edges < known && wide * 20 > known && wide * 3 < known,
            "{edges} {wide}"
        );
    }

    #[test]
    fn an_interval_is_past_an_end_when_no_later_one_ends_there() {
        for quality in [IN_BOUNDS, BEYOND] {
            for clock in clocks(quality) {
                for latest in (0..25 * SECOND).step_by(1_370_000_003).map(|at| EPOCH + at) {
                    let end = clock.when_past(latest);
                    let within =
                        |at| clock.read(0, at).clock.is_some_and(|interval| interval.latest <= latest);
                    assert!(end == 0 || within(end - 1));
                    assert!((end..30 * SECOND).step_by(97_000_003).all(|at| !within(at)));
                }
            }
        }
    }

    #[test]
    fn beyond_the_bound_clocks_run_wild_and_intervals_lie() {
        let (mut wild, mut lies) = (0, 0);
        for clock in clocks(BEYOND) {
            for at in (0..20 * SECOND).step_by(97_000_003) {
                let shown = clock.monotonic(0, at + SECOND).since(clock.monotonic(0, at)).as_nanos() as u64;
                wild += u64::from(!(SECOND * 9 / 10..SECOND * 11 / 10).contains(&shown));
                let interval = clock.read(0, at).clock;
                lies += u64::from(interval.is_some_and(|i| i.latest < EPOCH + at || i.earliest > EPOCH + at));
            }
        }
        assert!(wild > 1000 && lies > 100, "{wild} {lies}");
    }

    #[test]
    fn a_clock_that_is_widened_has_that_bound_from_then_on_and_the_truth_inside() {
        for mut clock in clocks(IN_BOUNDS) {
            clock.widen(5 * SECOND, 10 * SECOND, &mut Random::new(4));
            for at in (5 * SECOND..30 * SECOND).step_by(97_000_003) {
                let Interval { earliest, latest } = clock.read(0, at).clock.expect("there is a bound");
                assert!(earliest <= EPOCH + at && EPOCH + at <= latest && latest - earliest == 20 * SECOND);
            }
        }
    }

    #[test]
    fn the_bounds_of_several_wall_clocks_are_those_of_each_of_them() {
        let clocks: Vec<_> = clocks(IN_BOUNDS).take(3).collect();
        let walls = WallClocks::new(clocks.iter().map(Clock::wall_offsets));
        let shows = |clock: &Clock, at| clock.read(0, at).wall.millis() as i64 - (EPOCH / MILLISECOND) as i64;
        let step = 10 * MILLISECOND as usize;
        for from in (0..22 * SECOND).step_by(170 * step) {
            let to = from + 2 * SECOND;
            let within = |at| clocks.iter().map(move |clock| shows(clock, at));
            let least = (from..=to).step_by(step).flat_map(within).min().unwrap();
            let most = (0..=to).step_by(step).flat_map(within).max().unwrap();
            let millis = |nanos: i64| nanos.div_euclid(MILLISECOND as i64);
            assert!((least - 11..=least).contains(&millis(walls.least(from, to))), "{least}");
            assert!((most..most + 11).contains(&millis(walls.most(to))), "{most}");
            let first = walls.first((most + 20) * MILLISECOND as i64);
            let before: Vec<_> = (0..first).step_by(step).collect();
            assert!(before.iter().all(|at| within(*at).all(|shown| shown < most + 20)));
            let slewed = |at: u64| within(at).max().unwrap() + ((first - at) / MILLISECOND / 2) as i64;
            let comes_near = |at: u64| slewed(at) >= most + 20 - 2 * 11;
            assert!(comes_near(first) || before.iter().any(|at| comes_near(*at)), "{first}");
        }
    }

    #[test]
    fn a_perfect_clock_is_true_time_from_its_base() {
        let mut random = Random::new(1);
        let quality = Quality { drift: 0.0, wall_jumps: false, beyond_bound: false };
        let mut clock = Clock::draw(quality, SECOND, &mut random);
        clock.restart(&mut random);
        clock.restart(&mut random);
        assert_eq!(clock.monotonic(1, 5 * SECOND).since(clock.monotonic(1, 2 * SECOND)).as_secs(), 3);
        assert_ne!(clock.monotonic(0, 0), clock.monotonic(1, 0), "an incarnation's clock is its own");
    }
}
