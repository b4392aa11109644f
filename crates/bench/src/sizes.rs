//! How long values are: `128`, `16-1024` (uniform), or `128:0.9,4096:0.1` (each with its share).

use std::str::FromStr;

use quorate_core::Random;

/// Longer values are refused by the server anyway.
const MAX: u64 = 64 << 20;

/// A distribution of value sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
struct Part {
    low: u64,
    high: u64,
    /// Of this part and all before it, of one.
    until: f64,
}

impl Sizes {
    /// The size of one value.
    pub fn draw(&self, random: &mut Random) -> usize {
        let part = match self.0.as_slice() {
            [only] => Some(only),
            parts => {
                let at = random.unit();
                parts.iter().find(|part| at < part.until).or(parts.last())
            }
        };
        part.map_or(0, |part| match part.low == part.high {
            true => part.low,
            false => random.range(part.low..part.high + 1),
        }) as usize
    }

    /// The longest value.
    pub fn max(&self) -> usize {
        self.0.iter().map(|part| part.high).max().unwrap_or(0) as usize
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        let wrong = || {
            format!(
                "`{text}`: write a size (128), a range (16-1024), or sizes with shares (128:0.9,4096:0.1)"
            )
        };
        let mut parts = Vec::new();
        let mut sum = 0.0;
        for word in text.split(',') {
            let (range, share) = match word.trim().split_once(':') {
                Some((range, share)) => (range, share.parse::<f64>().map_err(|_| wrong())?),
                None => (word.trim(), 1.0),
            };
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high) =
                (low.parse::<u64>().map_err(|_| wrong())?, high.parse::<u64>().map_err(|_| wrong())?);
            if low > high || !(share > 0.0 && share.is_finite()) {
                return Err(wrong());
            }
            if high > MAX {
                return Err(format!("`{text}`: values of at most {MAX} bytes"));
            }
            sum += share;
            parts.push(Part { low, high, until: sum });
        }
        parts.iter_mut().for_each(|part| part.until /= sum);
        Ok(Sizes(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_as_they_are_written() {
        let mut text = String::new();
        for words in ["128", "0", "10-13", "8:3,32:1", "1-2:0.5,100:0.5"] {
            let sizes: Sizes = words.parse().unwrap();
            let mut random = Random::new(4);
            let mut counts = std::collections::BTreeMap::<usize, u32>::new();
            (0..200_000).for_each(|_| *counts.entry(sizes.draw(&mut random)).or_default() += 1);
            let shares: Vec<_> = counts
                .iter()
                .map(|(size, count)| format!("{size}: {:.0}%", f64::from(*count) / 2000.0))
                .collect();
            text.push_str(&format!("{words} (at most {}) -> {}\n", sizes.max(), shares.join(", ")));
        }
        let expected = "\
128 (at most 128) -> 128: 100%
0 (at most 0) -> 0: 100%
10-13 (at most 13) -> 10: 25%, 11: 25%, 12: 25%, 13: 25%
8:3,32:1 (at most 32) -> 8: 75%, 32: 25%
1-2:0.5,100:0.5 (at most 100) -> 1: 25%, 2: 25%, 100: 50%
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "x", "9-3", "1:0", "1:-1", "1:nan", "1,", "-5", "99999999999"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
