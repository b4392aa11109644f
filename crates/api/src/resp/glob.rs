//! Patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, `\` before a character that stands for itself.

/// Whether the pattern matches all of the text. Takes time proportional to the product of their lengths at most.
pub(super) fn matches(pattern: &[u8], text: &[u8], fold_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if the rest does not match: behind the last star, with one more character given to it.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(_) if t < text.len() => one(&pattern[p..], text[t], fold_case),
            Some(_) => None,
            None if t == text.len() => return true,
            None => None,
        };
        match (step, &mut star) {
            (Some(used), _) => (p, t) = (p + used, t + 1),
            (None, Some((after, from))) if *from < text.len() => {
                *from += 1;
                (p, t) = (*after, *from);
            }
            (None, _) => return false,
        }
    }
}

/// How much of the pattern matches this character, if it does.
fn one(pattern: &[u8], byte: u8, fold_case: bool) -> Option<usize> {
    let fold = |byte: u8| if fold_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', ..] => {
            let negated = pattern.get(1) == Some(&b'^');
            let mut at = 1 + usize::from(negated);
            let mut found = false;
            loop {
                match &pattern[at.min(pattern.len())..] {
                    [b'\\', escaped, ..] => {
                        found |= fold(*escaped) == fold(byte);
                        at += 2;
                    }
                    [b']', ..] => {
                        at += 1;
                        break;
                    }
                    [low, b'-', high, ..] => {
                        let (low, high) = (fold(*low.min(high)), fold(*low.max(high)));
                        found |= (low..=high).contains(&fold(byte));
                        at += 3;
                    }
                    [single, ..] => {
                        found |= fold(*single) == fold(byte);
                        at += 1;
                    }
                    // Not closed: as if it were.
                    [] => break,
                }
            }
            (found != negated).then_some(at)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte)).then_some(2),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hallo", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("[\\]]", "]", true),
            ("[abc", "c", true),
            ("save", "SAVE", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), true), expected, "{pattern} {text}");
        }
        assert!(!matches(b"save", b"SAVE", false));
    }

    #[test]
    fn many_stars_do_not_explode() {
        assert!(!matches(&b"a*".repeat(30), &b"a".repeat(29), false));
    }
}
