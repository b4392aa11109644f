//! Which key an operation is about.

use quorate_core::Random;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Every key alike.
    Uniform,
    /// Zipf with this exponent, the popular keys spread over the key space (YCSB's scrambled Zipfian).
    Zipf(f64),
    /// Zipf with this exponent by age: the newest key is the most popular.
    Latest(f64),
}

impl Choice {
    /// The exponent that YCSB uses.
    pub const THETA: f64 = 0.99;
}

/// Draws keys.
#[derive(Debug)]
pub struct Keys {
    choice: Choice,
    /// Keys at the start.
    first: u64,
    /// Keys there are for certain: inserts that were acknowledged add to them.
    count: u64,
    zipf: Option<Zipf>,
}

impl Keys {
    /// Draws from `count` keys, at least one.
    pub fn new(choice: Choice, count: u64) -> Keys {
        let count = count.max(1);
        let zipf = match choice {
            Choice::Uniform => None,
            Choice::Zipf(theta) | Choice::Latest(theta) => Some(Zipf::new(count, theta)),
        };
        Keys { choice, first: count, count, zipf }
    }

    /// An insert was acknowledged.
    pub fn grow(&mut self) {
        self.count += 1;
    }

    /// A key, counted from 0.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match (self.choice, &self.zipf) {
            (Choice::Zipf(_), Some(zipf)) => scramble(zipf.rank(random) - 1) % self.first,
            (Choice::Latest(_), Some(zipf)) => self.count - zipf.rank(random),
            _ => random.range(0..self.count),
        }
    }
}

/// Spreads neighbouring ranks (the finalizer of MurmurHash3).
fn scramble(rank: u64) -> u64 {
    let mut x = rank.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Ranks 1 to n with probability proportional to rank^-theta, by rejection-inversion (Hörmann and Derflinger
/// 1996): exact, for any exponent above zero, without a table.
#[derive(Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    low: f64,
    high: f64,
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let count = count as f64;
        let mut zipf = Zipf { count, theta, low: 0.0, high: 0.0, squeeze: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(count + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.squeeze || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// An integral of the density.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_over((1.0 - self.theta) * log) * log
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.theta)).max(-1.0);
        (log_over(t) * y).exp()
    }
}

/// (e^x - 1) / x, also near zero.
fn exp_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, also near zero.
fn log_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// How often ranks come, in thousandths, is what the law says; the table is the law.
    #[test]
    fn zipf_frequencies_follow_the_law() {
        let mut text = String::new();
        for theta in [0.5, 0.99, 1.0, 1.4] {
            let (zipf, mut random) = (Zipf::new(1000, theta), Random::new(1));
            let mut counts = [0u64; 1001];
            for _ in 0..DRAWS {
                counts[zipf.rank(&mut random) as usize] += 1;
            }
            let norm: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            for (from, to) in [(1, 1), (2, 2), (3, 10), (11, 100), (101, 1000)] {
                let seen = counts[from..=to].iter().sum::<u64>() as f64 / DRAWS as f64 * 1000.0;
                let law = (from..=to).map(|rank| (rank as f64).powf(-theta)).sum::<f64>() / norm * 1000.0;
                assert!((seen - law).abs() < 4.0, "theta {theta} ranks {from}-{to}: {seen} for {law}");
                text.push_str(&format!("{theta} {from}-{to}: {law:.0}\n"));
            }
        }
        let expected = "\
0.5 1-1: 16\n0.5 2-2: 11\n0.5 3-10: 54\n0.5 11-100: 220\n0.5 101-1000: 699
0.99 1-1: 129\n0.99 2-2: 65\n0.99 3-10: 188\n0.99 11-100: 303\n0.99 101-1000: 315
1 1-1: 134\n1 2-2: 67\n1 3-10: 191\n1 11-100: 302\n1 101-1000: 307
1.4 1-1: 339\n1.4 2-2: 129\n1.4 3-10: 255\n1.4 11-100: 197\n1.4 101-1000: 81\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_latest_keys_are_the_popular_ones_also_when_there_are_more() {
        let (mut keys, mut random) = (Keys::new(Choice::Latest(0.99), 1000), Random::new(2));
        for newest in [999, 1000, 1001] {
            let mut counts = [0u64; 1002];
            for _ in 0..20_000 {
                counts[keys.draw(&mut random) as usize] += 1;
            }
            assert!(counts[newest] > 2300 && counts[newest] < 2900, "{}", counts[newest]);
            assert!(counts[newest - 1] > 1100 && counts[newest - 1] < 1500);
            assert_eq!(counts[newest + 1..].iter().sum::<u64>(), 0, "not there yet");
            keys.grow();
        }
    }

    #[test]
    fn uniform_and_zipf_reach_the_whole_key_space_and_nothing_else() {
        for choice in [Choice::Uniform, Choice::Zipf(0.99)] {
            let (keys, mut random) = (Keys::new(choice, 16), Random::new(3));
            let mut counts = [0u64; 16];
            (0..10_000).for_each(|_| counts[keys.draw(&mut random) as usize] += 1);
            let met = counts.iter().filter(|count| **count > 0).count();
            // Scrambled ranks may meet in one key, as YCSB's do.
            assert!(met >= if choice == Choice::Uniform { 16 } else { 8 }, "{counts:?}");
        }
        assert_eq!(Keys::new(Choice::Uniform, 0).draw(&mut Random::new(1)), 0);
    }

    #[test]
    fn equal_seeds_draw_equal_keys() {
        let keys = Keys::new(Choice::Zipf(0.99), 1000);
        let draws = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| keys.draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draws(5), draws(5));
        assert_ne!(draws(5), draws(6));
    }
}
