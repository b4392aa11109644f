//! How long a message is on its way.

use quorate_check::Nanos;
use quorate_core::Random;

/// A distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Always the same.
    Fixed(Nanos),
    /// Evenly between two bounds, the upper one excluded.
    Uniform {
        /// At least.
        low: Nanos,
        /// Less than.
        high: Nanos,
    },
    /// Log-normal, of this mean and standard deviation.
    LogNormal {
        /// In nanoseconds.
        mean: f64,
        /// In nanoseconds.
        deviation: f64,
    },
}

impl Delay {
    /// A draw.
    pub fn draw(self, random: &mut Random) -> Nanos {
        match self {
            Delay::Fixed(delay) => delay,
            Delay::Uniform { low, high } => random.range(low..high),
            Delay::LogNormal { mean, deviation } => {
                let sigma2 = (1.0 + (deviation / mean).powi(2)).ln();
                let mu = mean.ln() - sigma2 / 2.0;
                (mu + sigma2.sqrt() * normal(random)).exp() as Nanos
            }
        }
    }
}

/// A draw from the standard normal distribution (Box and Muller).
pub fn normal(random: &mut Random) -> f64 {
    let (u, v) = (1.0 - random.unit(), random.unit());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_normal_delay_has_the_mean_and_the_deviation_that_it_states() {
        for (mean, deviation) in [(1e6, 1e6), (10e6, 3.16e6), (191e3, 19.8e3)] {
            let (delay, mut random) = (Delay::LogNormal { mean, deviation }, Random::new(1));
            let draws: Vec<f64> = (0..200_000).map(|_| delay.draw(&mut random) as f64).collect();
            let seen = draws.iter().sum::<f64>() / draws.len() as f64;
            let spread = draws.iter().map(|draw| (draw - seen).powi(2)).sum::<f64>() / draws.len() as f64;
            assert!((seen / mean - 1.0).abs() < 0.02, "mean {seen} of {mean}");
            assert!(
                (spread.sqrt() / deviation - 1.0).abs() < 0.05,
                "deviation {} of {deviation}",
                spread.sqrt()
            );
        }
        assert_eq!(Delay::Fixed(7).draw(&mut Random::new(1)), 7);
    }
}
