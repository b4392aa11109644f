//! When an open loop means to send. Latency counts from these times, whenever the request could really leave: a
//! server that stalls is charged for every request that it kept from being sent (no coordinated omission).

use std::str::FromStr;

use quorate_core::Random;

/// How the operations of an open loop are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances.
    Even,
    /// As independent clients would: exponential distances.
    Poisson,
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Arrivals, String> {
        match text {
            "even" => Ok(Arrivals::Even),
            "poisson" => Ok(Arrivals::Poisson),
            _ => Err("write even or poisson".to_owned()),
        }
    }
}

/// The intended times, in nanoseconds from the start, in order.
#[derive(Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    rate: u64,
    index: u64,
    next: f64,
    random: Random,
}

impl Schedule {
    /// `rate` operations a second, at least one.
    pub fn new(arrivals: Arrivals, rate: u64, random: Random) -> Schedule {
        let mut schedule = Schedule { arrivals, rate: rate.max(1), index: 0, next: 0.0, random };
        if arrivals == Arrivals::Poisson {
            schedule.next = schedule.gap();
        }
        schedule
    }

    /// The next intended time.
    pub fn peek(&self) -> u64 {
        match self.arrivals {
            Arrivals::Even => u64::try_from(u128::from(self.index) * 1_000_000_000 / u128::from(self.rate))
                .unwrap_or(u64::MAX),
            Arrivals::Poisson => self.next as u64,
        }
    }

    /// Goes on to the one after.
    pub fn pop(&mut self) -> u64 {
        let time = self.peek();
        self.index += 1;
        if self.arrivals == Arrivals::Poisson {
            self.next += self.gap();
        }
        time
    }

    fn gap(&mut self) -> f64 {
        -(1.0 - self.random.unit()).ln() * 1e9 / self.rate as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_neither_drift_nor_bunch() {
        let mut text = String::new();
        for rate in [1, 3, 1000, 30_000] {
            let mut schedule = Schedule::new(Arrivals::Even, rate, Random::new(1));
            let first: Vec<_> = (0..4).map(|_| schedule.pop()).collect();
            for _ in 4..rate * 10 {
                schedule.pop();
            }
            text.push_str(&format!("{rate}/s: {first:?} … {}\n", schedule.peek()));
        }
        let expected = "\
1/s: [0, 1000000000, 2000000000, 3000000000] … 10000000000
3/s: [0, 333333333, 666666666, 1000000000] … 10000000000
1000/s: [0, 1000000, 2000000, 3000000] … 10000000000
30000/s: [0, 33333, 66666, 100000] … 10000000000
";
        assert_eq!(text, expected);
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_the_spread() {
        let mut schedule = Schedule::new(Arrivals::Poisson, 10_000, Random::new(1));
        let times: Vec<_> = (0..100_000).map(|_| schedule.pop()).collect();
        let seconds = times[99_999] as f64 / 1e9;
        assert!((9.9..10.1).contains(&seconds), "{seconds}");
        let long = times.windows(2).filter(|pair| pair[1] - pair[0] > 100_000).count();
        assert!((36_000..37_600).contains(&long), "e^-1 of them are longer than the mean: {long}");
        assert!(times.is_sorted());
    }
}
