//! Requests and replies as RESP2 writes them. Lengths that a reply announces are never reserved up front.

use std::io::{self, BufRead, ErrorKind, Read};

use bytes::Bytes;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Nil,
    /// A word, such as `OK`.
    Status(String),
    /// An error; its first word is a code.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string of bytes.
    Bytes(Bytes),
    /// Several replies.
    Array(Vec<Value>),
}

impl Value {
    /// What it is, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Nil => "nothing",
            Value::Status(_) => "a status",
            Value::Error(_) => "an error",
            Value::Integer(_) => "a number",
            Value::Bytes(_) => "a string",
            Value::Array(_) => "an array",
        }
    }
}

/// A request, as bytes.
pub(crate) fn request<A: AsRef<[u8]>>(words: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Lines of a reply are words and numbers.
const LINE: u64 = 64 << 10;
/// No reply to any command nests deeper.
const DEPTH: usize = 16;

/// Reads one reply.
pub(crate) fn read(input: &mut impl BufRead) -> io::Result<Value> {
    nested(input, DEPTH)
}

fn nested(input: &mut impl BufRead, depth: usize) -> io::Result<Value> {
    let mut line = Vec::new();
    input.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        let short = (line.len() as u64) < LINE;
        return Err(if short { ErrorKind::UnexpectedEof.into() } else { invalid("a line without an end") });
    };
    let (mark, rest) = line.split_first().ok_or_else(|| invalid("an empty line"))?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || -> io::Result<i64> {
        let text = std::str::from_utf8(rest).ok();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| invalid("a length that is no number"))
    };
    match mark {
        b'+' => Ok(Value::Status(text())),
        b'-' => Ok(Value::Error(text())),
        b':' => Ok(Value::Integer(number()?)),
        b'$' => match u64::try_from(number()?) {
            Err(_) => Ok(Value::Nil),
            Ok(len) => {
                let mut bytes = Vec::new();
                let whole = len.checked_add(2).ok_or_else(|| invalid("a length that is too large"))?;
                if input.by_ref().take(whole).read_to_end(&mut bytes)? as u64 != whole {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                bytes.truncate(bytes.len() - 2);
                Ok(Value::Bytes(bytes.into()))
            }
        },
        b'*' if depth == 0 => Err(invalid("arrays nested too deeply")),
        b'*' => match u64::try_from(number()?) {
            Err(_) => Ok(Value::Nil),
            Ok(len) => {
                (0..len).map(|_| nested(input, depth - 1)).collect::<io::Result<_>>().map(Value::Array)
            }
        },
        _ => Err(invalid("a kind of reply that RESP does not have")),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the reply has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_or_refused() {
        let bytes = |text: &str| Value::Bytes(Bytes::copy_from_slice(text.as_bytes()));
        for (text, expected) in [
            ("+OK\r\n", Some(Value::Status("OK".to_owned()))),
            ("-ERR no\r\n", Some(Value::Error("ERR no".to_owned()))),
            (":-7\r\n", Some(Value::Integer(-7))),
            ("$4\r\na\r\nb\r\n", Some(bytes("a\r\nb"))),
            ("$-1\r\n", Some(Value::Nil)),
            ("*-1\r\n", Some(Value::Nil)),
            ("*2\r\n$1\r\na\r\n*0\r\n", Some(Value::Array(vec![bytes("a"), Value::Array(Vec::new())]))),
            ("", None),
            ("+OK\r", None),
            ("$4\r\nab", None),
            ("$9223372036854775807\r\nab", None),
            ("*1000000000\r\n+a\r\n", None),
            (":x\r\n", None),
            ("hello\r\n", None),
            (&"*1\r\n".repeat(100_000), None),
        ] {
            assert_eq!(read(&mut text.as_bytes()).ok(), expected, "{:?}", &text[..text.len().min(40)]);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_where_it_becomes_so() {
        let line = |bytes: u64| format!("+{}\r\n", "a".repeat(bytes as usize - 3));
        assert!(read(&mut line(LINE).as_bytes()).is_ok());
        let error = read(&mut line(LINE + 1).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "the reply has a line without an end");
    }

    #[test]
    fn a_request_is_an_array_of_strings() {
        assert_eq!(request(&["GET", "k\r\n"]), b"*2\r\n$3\r\nGET\r\n$3\r\nk\r\n\r\n");
    }
}
