//! Patterns as Redis matches them: `*`, `?`, `[a-c]`, `[^x]`, and `\` before a byte that means itself.
//!
//! A pattern is a non-deterministic automaton, and all its states are followed at once, as the bits of words: each byte
//! of the text costs one step for each word, and nothing is ever tried twice. State `i` means that the text so far is
//! matched by the first `i` elements; a `*` behind them lets it stay. So a match takes [`Pattern::steps`] at most,
//! whatever the pattern and the text are.

use thiserror::Error;

/// The longest pattern, in bytes.
pub const PATTERN_LIMIT: usize = 1024;

/// A pattern that is ready to be matched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    /// The states that a byte may be the last of, for each byte: `words` words each.
    accepts: Box<[u64]>,
    /// The states with a `*` behind them.
    stays: Box<[u64]>,
    /// The state in which the whole pattern is matched.
    last: usize,
}

/// The pattern is longer than [`PATTERN_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the pattern has {0} bytes, and may have {PATTERN_LIMIT}")]
pub struct PatternTooLong(pub usize);

impl Pattern {
    /// Any bytes are a pattern if they are not too many.
    pub fn new(pattern: &[u8]) -> Result<Pattern, PatternTooLong> {
        if pattern.len() > PATTERN_LIMIT {
            return Err(PatternTooLong(pattern.len()));
        }
        let words = pattern.len() / 64 + 1;
        let (mut accepts, mut stays) = (vec![0; 256 * words], vec![0; words]);
        let (mut rest, mut state) = (pattern, 0);
        while let Some(first) = rest.first() {
            if *first == b'*' {
                set(&mut stays, state);
                rest = &rest[1..];
                continue;
            }
            state += 1;
            let len = element(rest, |byte| set(&mut accepts[usize::from(byte) * words..][..words], state));
            rest = &rest[len..];
        }
        Ok(Pattern { accepts: accepts.into(), stays: stays.into(), last: state })
    }

    /// How many steps a match of a text of this length takes at most: each is a few instructions.
    pub fn steps(&self, len: usize) -> usize {
        (len + 1) * self.stays.len()
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let words = self.stays.len();
        // Most patterns fit into one word.
        if words == 1 {
            let mut states = 1;
            for byte in text {
                states = states << 1 & self.accepts[usize::from(*byte)] | states & self.stays[0];
                if states == 0 {
                    return false;
                }
            }
            return states >> self.last & 1 == 1;
        }
        let mut states = vec![0; words];
        states[0] = 1;
        for byte in text {
            let accepts = &self.accepts[usize::from(*byte) * words..][..words];
            let (mut carry, mut any) = (0, 0);
            for ((state, accepts), stays) in states.iter_mut().zip(accepts).zip(&self.stays) {
                let next = (*state << 1 | carry) & accepts | *state & stays;
                carry = *state >> 63;
                *state = next;
                any |= next;
            }
            if any == 0 {
                return false;
            }
        }
        states[self.last / 64] >> (self.last % 64) & 1 == 1
    }
}

fn set(words: &mut [u64], bit: usize) {
    words[bit / 64] |= 1 << (bit % 64);
}

/// Calls `accept` with each byte that the pattern's first element matches, and tells how long that is.
fn element(pattern: &[u8], mut accept: impl FnMut(u8)) -> usize {
    match pattern {
        [] => 0,
        [b'?', ..] => {
            (0..=255).for_each(accept);
            1
        }
        [b'[', set @ ..] => 1 + in_set(set, accept),
        [b'\\', literal, ..] => {
            accept(*literal);
            2
        }
        [literal, ..] => {
            accept(*literal);
            1
        }
    }
}

/// Calls `accept` with each byte that is in a set, and tells how long the set is without its opening bracket. A set
/// that is not closed ends with the pattern.
fn in_set(set: &[u8], accept: impl FnMut(u8)) -> usize {
    let negated = set.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = [false; 256];
    loop {
        match &set[at..] {
            [] => break,
            [b'\\', literal, ..] => {
                found[usize::from(*literal)] = true;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [low, b'-', high, ..] => {
                (*low.min(high)..=*low.max(high)).for_each(|byte| found[usize::from(byte)] = true);
                at += 3;
            }
            [literal, ..] => {
                found[usize::from(*literal)] = true;
                at += 1;
            }
        }
    }
    (0..=255).filter(|byte| found[usize::from(*byte)] != negated).for_each(accept);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Pattern::new(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, yes, no) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "abc"], &[]),
            ("a*c", &["ac", "abc", "abcbc"], &["a", "acb", "bac"]),
            ("*a*b*", &["ab", "xaxbx", "aab"], &["ba", "a", "b"]),
            ("**a", &["a", "ba"], &["", "ab"]),
            ("h?llo", &["hello", "h?llo"], &["hllo", "heello"]),
            ("h[ae]llo", &["hello", "hallo"], &["hillo", "hllo"]),
            ("h[^e]llo", &["hallo", "h^llo"], &["hello", "hllo"]),
            ("[a-c]", &["a", "b", "c"], &["d", "-", ""]),
            ("[c-a]", &["a", "b", "c"], &["d"]),
            ("[a-c", &["b"], &["d", "[a-c"]),
            ("[]a]", &[], &["a", "]", "]a]"]),
            ("[^]a", &["xa"], &["a"]),
            ("[", &[], &["[", ""]),
            ("[\\]]", &["]"], &["\\"]),
            ("[a-]", &["a", "]", "_"], &["-", "b"]),
            ("\\*", &["*"], &["a", "\\*"]),
            ("\\", &["\\"], &["a"]),
            ("a\\", &["a\\"], &["a"]),
        ] {
            for text in yes {
                assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
            for text in no {
                assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
        }
    }

    /// The definition, element by element.
    fn plain(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', rest @ ..], text) => (0..=text.len()).any(|taken| plain(rest, &text[taken..])),
            (_, []) => false,
            (pattern, [first, text @ ..]) => {
                let mut accepted = false;
                let len = element(pattern, |byte| accepted |= byte == *first);
                accepted && plain(&pattern[len..], text)
            }
        }
    }

    #[test]
    fn all_states_at_once_match_what_one_after_the_other_do() {
        let mut random = quorate_core::Random::new(1);
        let (mut yes, mut no) = (0, 0);
        for _ in 0..20_000 {
            let some = |random: &mut quorate_core::Random, from: &[u8], most: u64| -> Vec<u8> {
                (0..random.range(0..most)).map(|_| *random.pick(from)).collect()
            };
            let pattern = some(&mut random, b"aab*?[]^-\\", 9);
            let text = some(&mut random, b"aaab]^", 9);
            // Once as it is, and once far behind the first word of states.
            let far = [&[b'a'; 150][..], &pattern].concat();
            let expected = plain(&pattern, &text);
            assert_eq!(
                matches(&pattern, &text),
                expected,
                "{} {}",
                pattern.escape_ascii(),
                text.escape_ascii()
            );
            assert_eq!(matches(&far, &[&[b'a'; 150][..], &text].concat()), expected);
            *if expected { &mut yes } else { &mut no } += 1;
        }
        assert!(yes > 500 && no > 500, "{yes} {no}");
    }

    #[test]
    fn no_pattern_takes_more_than_its_steps() {
        let text = "a".repeat(64 << 10);
        for pattern in ["a*".repeat(500) + "b", "*".to_owned() + &"a".repeat(1000) + "b", "[^b]".repeat(250)]
        {
            let pattern = Pattern::new(pattern.as_bytes()).unwrap();
            assert!(!pattern.matches(text.as_bytes()));
            assert!(pattern.steps(text.len()) <= 17 * ((64 << 10) + 1));
        }
        assert_eq!(Pattern::new(&[b'a'; PATTERN_LIMIT + 1]).unwrap_err(), PatternTooLong(PATTERN_LIMIT + 1));
    }
}
