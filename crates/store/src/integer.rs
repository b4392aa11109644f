//! Integers as Redis reads them from strings.

/// A 64-bit integer in its one canonical form: no sign but `-`, no spaces, no leading zeros, no `-0`.
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        b"0" => return (text == digits).then_some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_the_canonical_form_is_an_integer() {
        for value in [0, 1, -1, 10, -907, i64::MAX, i64::MIN] {
            assert_eq!(parse(value.to_string().as_bytes()), Some(value));
        }
        for text in [
            "", "-", "+1", " 1", "1 ", "01", "-0", "-01", "00", "1.0", "1e3", "0x1", "1_0", "--1", "\u{0663}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        for text in ["9223372036854775808", "-9223372036854775809", "99999999999999999999999"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"1\xff"), None);
    }
}
