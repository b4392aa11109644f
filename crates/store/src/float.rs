//! Sums of decimal numbers, digit for digit as Redis computes them on x86-64: both numbers are read into an 80-bit
//! `long double` (64 bits of mantissa), added there, and written with `%.17Lf` without trailing zeros.
//!
//! Rust has no such type, and 64-bit floats would show: 0.1 + 0.2 would be 0.30000000000000004. So this does the
//! arithmetic on integers, exactly and equally on every machine. Hexadecimal numbers are read as C's `strtold`
//! reads them.

use crate::reply::CommandError;

/// The longest number that is read, as in Redis.
const LONGEST: usize = 5 << 10;

/// (−1)^negative · mantissa · 2^exponent. The mantissa's highest bit is set, unless the number is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Float {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// `a + b`. Errors: `NotFloat` if either is no number or too large or small to be one; `NotFinite` if either is
/// infinite or the sum too large.
pub(crate) fn sum(a: &[u8], b: &[u8]) -> Result<String, CommandError> {
    let a = parse(a).ok_or(CommandError::NotFloat)?;
    let b = parse(b).ok_or(CommandError::NotFloat)?;
    match (a, b) {
        (Some(a), Some(b)) => add(a, b).map(format).ok_or(CommandError::NotFinite),
        _ => Err(CommandError::NotFinite),
    }
}

/// Whether a number can be added. Errors: `NotFloat` as [`sum`], `Infinite` if it is infinite.
pub(crate) fn finite(text: &[u8]) -> Result<(), CommandError> {
    match parse(text) {
        None => Err(CommandError::NotFloat),
        Some(None) => Err(CommandError::Infinite),
        Some(Some(_)) => Ok(()),
    }
}

/// A number from text: `Some(None)` if it is infinite, `None` if it is none.
fn parse(text: &[u8]) -> Option<Option<Float>> {
    if text.len() >= LONGEST {
        return None;
    }
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        text => (false, text),
    };
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(None);
    }
    if let [b'0', b'x' | b'X', rest @ ..] = text {
        let (digits, places, exponent) = digits(rest, b'p', u8::is_ascii_hexdigit)?;
        return from_hexadecimal(negative, &digits, exponent - 4 * places).map(Some);
    }
    let (digits, places, exponent) = digits(text, b'e', u8::is_ascii_digit)?;
    from_decimal(negative, &digits, exponent - places).map(Some)
}

/// The digits of a number without leading zeros, how many of them come after the point, and the exponent behind a
/// mark. `None` if there are no digits, or other bytes among them.
fn digits(text: &[u8], mark: u8, is_digit: fn(&u8) -> bool) -> Option<(Vec<u8>, i64, i64)> {
    let (significand, exponent) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&mark)) {
        Some(at) => (&text[..at], read_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (whole, fraction) = match significand.iter().position(|byte| *byte == b'.') {
        Some(at) => (&significand[..at], &significand[at + 1..]),
        None => (significand, &[][..]),
    };
    let mut digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.iter().all(is_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.drain(..zeros);
    Some((digits, fraction.len() as i64, exponent))
}

/// A decimal exponent; one that is far out of range is as good as any other.
fn read_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        text => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1 << 32));
    Some(sign * value)
}

/// The float nearest to digits · 10^exponent, if that is neither too large nor too small. No leading zeros.
fn from_decimal(negative: bool, digits: &[u8], exponent: i64) -> Option<Float> {
    if digits.is_empty() {
        return Some(Float { negative, mantissa: 0, exponent: 0 });
    }
    // Out of range whatever the digits are; this also bounds the work below.
    let magnitude = digits.len() as i64 + exponent;
    if !(-4960..=4940).contains(&magnitude) {
        return None;
    }
    let mut number = Big::default();
    for chunk in digits.chunks(9) {
        let value = chunk.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        number.multiply_add(10u32.pow(chunk.len() as u32), value);
    }
    let mut shift = 0;
    let mut inexact = false;
    if exponent >= 0 {
        powers_of_ten(exponent as u64, |power| number.multiply_add(power, 0));
    } else {
        // Room for all the bits that the divisions below take (log₂ 10 < 10/3), and for more than 64 to remain.
        shift = (exponent.unsigned_abs() * 10 / 3 + 96) as u32 / 32;
        number.shift_words(shift as usize);
        powers_of_ten(exponent.unsigned_abs(), |power| inexact |= number.divide(power) != 0);
    }
    let (top, below, lost) = number.top();
    let float = round(negative, top, below - 32 * shift as i32, inexact || lost);
    // The smallest long double is 2^-16445; what is less than half of it is zero, which C reports as out of range.
    float.filter(|float| float.exponent + 63 >= -16446)
}

/// The float nearest to hexadecimal digits · 2^exponent, if that is neither too large nor too small. No leading
/// zeros.
fn from_hexadecimal(negative: bool, digits: &[u8], exponent: i64) -> Option<Float> {
    // As many as fit; of the others it only matters whether they are all zeros.
    let (first, rest) = digits.split_at(digits.len().min(32));
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map_or(0, u128::from);
    let value = first.iter().fold(0u128, |value, byte| value << 4 | digit(byte));
    let exponent = exponent + 4 * rest.len() as i64;
    if value == 0 {
        return Some(Float { negative, mantissa: 0, exponent: 0 });
    }
    // Out of range whatever the digits are.
    let exponent = i32::try_from(exponent).ok().filter(|exponent| exponent.unsigned_abs() < 1 << 20)?;
    let float = round(negative, value, exponent, rest.iter().any(|byte| *byte != b'0'));
    float.filter(|float| float.exponent + 63 >= -16446)
}

/// Calls with factors, each below 2³², whose product is 10^exponent.
fn powers_of_ten(exponent: u64, mut each: impl FnMut(u32)) {
    (0..exponent / 9).for_each(|_| each(1_000_000_000));
    each(10u32.pow((exponent % 9) as u32));
}

/// The float nearest to value · 2^exponent, to the even one between two; `more` says that the value is really a little
/// larger. `None` if it is too large for a long double.
fn round(negative: bool, value: u128, exponent: i32, more: bool) -> Option<Float> {
    if value == 0 {
        return Some(Float { negative, mantissa: 0, exponent: 0 });
    }
    let lead = value.leading_zeros();
    let value = value << lead;
    let (mut mantissa, rest) = ((value >> 64) as u64, value as u64);
    let mut exponent = exponent + 64 - lead as i32;
    let half = 1 << 63;
    if rest > half || (rest == half && (more || mantissa & 1 == 1)) {
        mantissa = mantissa.checked_add(1).unwrap_or_else(|| {
            exponent += 1;
            1 << 63
        });
    }
    (exponent + 63 <= 16383).then_some(Float { negative, mantissa, exponent })
}

/// `None` if the sum is too large for a long double.
fn add(a: Float, b: Float) -> Option<Float> {
    if a.mantissa == 0 || b.mantissa == 0 {
        return Some(if a.mantissa == 0 { b } else { a });
    }
    let (a, b) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let (large, small) = (u128::from(a.mantissa) << 62, u128::from(b.mantissa) << 62);
    let distance = (a.exponent - b.exponent) as u32;
    // Bits that fall off at the low end stay visible as one, far below where the sum is rounded.
    let small = match small.checked_shr(distance) {
        Some(shifted) => shifted | u128::from(shifted << distance != small),
        None => 1,
    };
    let (negative, value) = if a.negative == b.negative {
        (a.negative, large + small)
    } else if large >= small {
        (a.negative, large - small)
    } else {
        (b.negative, small - large)
    };
    round(negative, value, a.exponent - 62, false)
}

/// As `%.17Lf`, without trailing zeros and without a sign before zero.
fn format(float: Float) -> String {
    const ONE: u128 = 100_000_000_000_000_000;
    let (whole, fraction) = if float.exponent >= 0 {
        (Big::shifted(float.mantissa, float.exponent as u32).decimal(), 0)
    } else {
        let scaled = u128::from(float.mantissa) * ONE;
        let down = float.exponent.unsigned_abs();
        // A mantissa times 10^17 has at most 121 bits.
        let rounded = if down > 121 {
            0
        } else {
            let (floor, rest, half) = (scaled >> down, scaled & ((1 << down) - 1), 1 << (down - 1));
            floor + u128::from(rest > half || (rest == half && floor & 1 == 1))
        };
        ((rounded / ONE).to_string(), rounded % ONE)
    };
    let fraction = format!("{fraction:017}");
    let fraction = fraction.trim_end_matches('0');
    let sign = if float.negative && (whole != "0" || !fraction.is_empty()) { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

/// A natural number of any size: words of 32 bits, lowest first, the highest not zero.
#[derive(Default)]
struct Big(Vec<u32>);

impl Big {
    fn shifted(value: u64, by: u32) -> Big {
        let mut big = Big(vec![0; by as usize / 32]);
        let wide = u128::from(value) << (by % 32);
        big.0.extend([wide as u32, (wide >> 32) as u32, (wide >> 64) as u32]);
        big.trim();
        big
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides, rounding down; gives the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for word in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*word);
            *word = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        self.trim();
        rest as u32
    }

    fn shift_words(&mut self, words: usize) {
        self.0.splice(..0, std::iter::repeat_n(0, words));
    }

    /// The highest four words, how many bits are below them, and whether any of those is set.
    fn top(&self) -> (u128, i32, bool) {
        let below = self.0.len().saturating_sub(4);
        let top = self.0[below..].iter().rev().fold(0, |top, word| top << 32 | u128::from(*word));
        (top, 32 * below as i32, self.0[..below].iter().any(|word| *word != 0))
    }

    fn decimal(mut self) -> String {
        let mut chunks = Vec::new();
        while !self.0.is_empty() {
            chunks.push(self.divide(1_000_000_000));
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        chunks.iter().rev().for_each(|chunk| text += &format!("{chunk:09}"));
        text
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sum;
    use crate::reply::CommandError;

    #[test]
    fn sums_are_those_of_long_double() {
        let table = include_str!("../tests/tables/float.txt");
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let [a, b, expected] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let found = match sum(a.as_bytes(), b.as_bytes()) {
                Err(CommandError::NotFinite) => "inf".to_owned(),
                other => other.unwrap_or_else(|error| panic!("{line}: {error}")),
            };
            assert_eq!(found, expected, "{a} + {b}");
        }
    }

    #[test]
    fn large_sums_have_all_their_digits() {
        let text = sum(b"1e4900", b"1e4900").unwrap();
        assert_eq!(text.len(), 4901);
        assert!(text.starts_with("20000000000000000000541662446138069966644810500815766869300586"));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let long = "1".repeat(super::LONGEST);
        for text in [
            "",
            "-",
            "+",
            ".",
            "e5",
            ".e5",
            "1e",
            "1e+",
            "1.2.3",
            " 1",
            "1 ",
            "1a",
            "--1",
            "nan",
            "NaN",
            "1e5000",
            "0x",
            "0x1p",
            "0x.p1",
            "0x1g",
            "0x1p99999",
            "1e-5000",
            "1e99999999999999999999",
            "1\0",
            &long,
        ] {
            assert_eq!(sum(text.as_bytes(), b"0"), Err(CommandError::NotFloat), "{text:?}");
        }
        assert_eq!(sum(b"0e99999999999999999999", b"0"), Ok("0".to_owned()));
    }

    #[test]
    fn hexadecimal_numbers_are_read() {
        for (text, expected) in [
            ("0x10", "16"),
            ("-0XaB.8", "-171.5"),
            ("0x1p-3", "0.125"),
            ("0x.8P+1", "1"),
            ("0x0p99999", "0"),
            ("0x1.00000000000000018p63", "9223372036854775809"),
            ("0x80000000000000008", "147573952589676412928"),
            ("0x80000000000000008000000000000000000001p-80", "2361183241434822607104"),
        ] {
            assert_eq!(sum(text.as_bytes(), b"0").as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn infinity_is_a_number_but_no_result() {
        for text in ["inf", "-Infinity", "+INF"] {
            assert_eq!(sum(text.as_bytes(), b"1"), Err(CommandError::NotFinite), "{text}");
        }
    }
}
