//! Patterns as Redis matches them: `*`, `?`, `[a-c]`, `[^x]`, and `\` before a byte that means itself.

/// Whether the whole text matches. Takes at most pattern × text steps: after a mismatch only the last `*` can take
/// more, as what an earlier one could take, the last can take as well.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        let advanced = match text.get(t) {
            None if p == pattern.len() => return true,
            None => return false,
            Some(byte) => step(&pattern[p..], *byte),
        };
        match (advanced, &mut star) {
            (Some(taken), _) => {
                p += taken;
                t += 1;
            }
            (None, Some((after, from))) => {
                *from += 1;
                (p, t) = (*after, *from);
            }
            (None, None) => return false,
        }
    }
}

/// How long the pattern's first element is, if it matches the byte.
fn step(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => {
            let (len, matched) = in_set(set, byte);
            matched.then_some(1 + len)
        }
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// How long a set is, without its opening bracket, and whether the byte is in it. A set that is not closed ends with
/// the pattern.
fn in_set(set: &[u8], byte: u8) -> (usize, bool) {
    let negated = set.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &set[at..] {
            [] => break,
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [low, b'-', high, ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (at, found != negated)
}

#[cfg(test)]
mod tests {
    use super::matches;

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

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let (pattern, text) = ("a*".repeat(200) + "b", "a".repeat(20_000));
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }
}
