//! The text form of a history: words and quoted strings, separated by blanks; lists stand in parentheses.

use std::fmt::{self, Display, Write as _};

use bytes::Bytes;
use quorate_core::{FeatureLevel, Wire};
use quorate_store::{
    Command, CommandError, Condition, Expires, Expiry, ExpiryCondition, Kind, Reply, Single, User, UserRule,
};
use thiserror::Error;

use super::{History, Operation};

/// Why a text is no history.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line that is wrong, counted from 1.
    pub line: usize,
    /// What was found, and what was expected.
    pub what: String,
}

impl Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Writer::default();
        self.client.write(&mut out);
        self.invoked.write(&mut out);
        match &self.returned {
            Some((at, _)) => at.write(&mut out),
            None => out.word("?"),
        }
        self.command.write(&mut out);
        if let Some((_, reply)) = &self.returned {
            out.word("=");
            reply.write(&mut out);
        }
        f.write_str(&out.text)
    }
}

/// A reply alone, as in a history.
pub fn reply_text(reply: &Reply) -> String {
    let mut out = Writer::default();
    reply.write(&mut out);
    out.text
}

pub(super) fn parse(text: &str) -> Result<History, ParseError> {
    let mut operations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let operation = parse_operation(line).map_err(|what| ParseError { line: index + 1, what })?;
        operations.push(operation);
    }
    Ok(History(operations))
}

fn parse_operation(line: &str) -> Result<Operation, String> {
    let mut input = Reader { rest: line, lists: 0 };
    let client = u64::read(&mut input)?;
    let invoked = u64::read(&mut input)?;
    let returned = match input.word()? {
        "?" => None,
        at => Some(at.parse::<u64>().map_err(|_| format!("{at:?} is neither a time nor ?"))?),
    };
    let command = Command::read(&mut input)?;
    let returned = match returned {
        None => None,
        Some(at) => {
            input.expect("=")?;
            if at < invoked {
                return Err(format!("returned at {at}, before it was invoked at {invoked}"));
            }
            Some((at, Reply::read(&mut input)?))
        }
    };
    match input.rest.trim_start() {
        "" => Ok(Operation { client, command, invoked, returned }),
        rest => Err(format!("{rest:?} follows the end")),
    }
}

#[derive(Default)]
struct Writer {
    text: String,
}

impl Writer {
    fn word(&mut self, word: impl Display) {
        if !self.text.is_empty() && !self.text.ends_with('(') && !self.text.ends_with(' ') {
            self.text.push(' ');
        }
        let _ = write!(self.text, "{word}");
    }

    fn close(&mut self) {
        self.text.push(')');
    }
}

struct Reader<'a> {
    rest: &'a str,
    /// How many lists are open.
    lists: usize,
}

/// Lists of lists of pairs are the deepest that commands and replies need; text must not choose the depth of our
/// stack.
const MAX_LISTS: usize = 4;

impl<'a> Reader<'a> {
    fn word(&mut self) -> Result<&'a str, String> {
        let rest = self.rest.trim_start();
        let end = match rest.as_bytes().first() {
            None => return Err("the line ends too early".into()),
            Some(b'(' | b')') => 1,
            Some(b'"') => quoted_len(rest)?,
            Some(_) => rest.find(|c: char| c.is_whitespace() || "()\"".contains(c)).unwrap_or(rest.len()),
        };
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        Ok(word)
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        match self.word()? {
            word if word == wanted => Ok(()),
            word => Err(format!("{word:?} where {wanted:?} should be")),
        }
    }

    fn closes(&mut self) -> bool {
        let rest = self.rest.trim_start();
        let closes = rest.starts_with(')');
        if closes {
            self.rest = &rest[1..];
        }
        closes
    }
}

fn quoted_len(text: &str) -> Result<usize, String> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok(at + 1),
            _ => {}
        }
    }
    Err("a quoted string does not end".into())
}

/// What has a text form.
trait Text: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Result<Self, String>;
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Text for $type {
            fn write(&self, out: &mut Writer) {
                out.word(self);
            }
            fn read(input: &mut Reader<'_>) -> Result<Self, String> {
                let word = input.word()?;
                word.parse().map_err(|_| format!("{word:?} is not a {}", stringify!($type)))
            }
        }
    )*};
}
numbers!(u32, u64, i64);

impl Text for bool {
    fn write(&self, out: &mut Writer) {
        out.word(if *self { "yes" } else { "no" });
    }
    fn read(input: &mut Reader<'_>) -> Result<Self, String> {
        match input.word()? {
            "yes" => Ok(true),
            "no" => Ok(false),
            word => Err(format!("{word:?} is neither yes nor no")),
        }
    }
}

impl Text for Bytes {
    fn write(&self, out: &mut Writer) {
        out.word('"');
        let _ = write!(out.text, "{}\"", self.escape_ascii());
    }
    fn read(input: &mut Reader<'_>) -> Result<Self, String> {
        let word = input.word()?;
        let inner = word
            .strip_prefix('"')
            .and_then(|word| word.strip_suffix('"'))
            .ok_or_else(|| format!("{word:?} is not a quoted string"))?;
        unescape(inner.as_bytes()).map(Bytes::from)
    }
}

/// The inverse of `escape_ascii`.
fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(same @ (b'\\' | b'"' | b'\'')) => same,
                Some(b'x') => {
                    let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
                    match (digit(rest.next()), digit(rest.next())) {
                        (Some(high), Some(low)) => (high * 16 + low) as u8,
                        _ => return Err("\\x needs two hexadecimal digits".into()),
                    }
                }
                other => return Err(format!("unknown escape \\{:?}", other.map(char::from))),
            },
            byte => byte,
        });
    }
    Ok(bytes)
}

impl<T: Text> Text for Vec<T> {
    fn write(&self, out: &mut Writer) {
        out.word('(');
        self.iter().for_each(|item| item.write(out));
        out.close();
    }
    fn read(input: &mut Reader<'_>) -> Result<Self, String> {
        input.expect("(")?;
        input.lists += 1;
        if input.lists > MAX_LISTS {
            return Err("lists are nested too deeply".into());
        }
        let mut items = Vec::new();
        while !input.closes() {
            items.push(T::read(input)?);
        }
        input.lists -= 1;
        Ok(items)
    }
}

impl<T: Text> Text for Option<T> {
    fn write(&self, out: &mut Writer) {
        match self {
            None => out.word("none"),
            Some(value) => {
                out.word("some");
                value.write(out);
            }
        }
    }
    fn read(input: &mut Reader<'_>) -> Result<Self, String> {
        match input.word()? {
            "none" => Ok(None),
            "some" => T::read(input).map(Some),
            word => Err(format!("{word:?} is neither none nor some")),
        }
    }
}

impl<A: Text, B: Text> Text for (A, B) {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
        self.1.write(out);
    }
    fn read(input: &mut Reader<'_>) -> Result<Self, String> {
        Ok((A::read(input)?, B::read(input)?))
    }
}

macro_rules! text_enum {
    ($type:ident { $($word:literal => $variant:ident $({ $($field:ident),* })? $(( $item:ident ))?),* $(,)? }) => {
        impl Text for $type {
            fn write(&self, out: &mut Writer) {
                match self {
                    $($type::$variant $({ $($field),* })? $(( $item ))? => {
                        out.word($word);
                        $($($field.write(out);)*)?
                        $($item.write(out);)?
                    })*
                }
            }
            fn read(input: &mut Reader<'_>) -> Result<Self, String> {
                match input.word()? {
                    $($word => {
                        $($(let $field = Text::read(input)?;)*)?
                        $(let $item = Text::read(input)?;)?
                        Ok($type::$variant $({ $($field),* })? $(( $item ))?)
                    })*
                    word => Err(format!("{word:?} is no {}", stringify!($type))),
                }
            }
        }
    };
}

text_enum!(Command {
    "get" => Get { key },
    "get-many" => GetMany { keys },
    "get-range" => GetRange { key, start, end },
    "length" => Length { key },
    "exists" => Exists { keys },
    "kind" => KindOf { key },
    "expiry" => ExpiryOf { key },
    "versions" => VersionsOf { keys },
    "put" => Put { key, value, condition, expiry, old },
    "put-many" => PutMany { pairs, if_none },
    "delete" => Delete { keys },
    "take" => Take { key },
    "increment" => Increment { key, by },
    "increment-float" => IncrementFloat { key, by },
    "append" => Append { key, value },
    "set-expiry" => SetExpiry { key, expiry, condition },
    "hash-put" => HashPut { key, fields, if_absent },
    "hash-get" => HashGet { key, fields },
    "hash-all" => HashAll { key },
    "hash-length" => HashLength { key },
    "hash-delete" => HashDelete { key, fields },
    "hash-increment" => HashIncrement { key, field, by },
    "scan" => Scan { from, limit, pattern, kind },
    "hash-scan" => HashScan { key, from, limit, pattern },
    "count" => Count,
    "random-key" => RandomKey { seed },
    "clear" => Clear,
    "batch" => Batch { watched, commands },
    "refresh" => Refresh { key, expiry },
    "put-range" => PutRange { key, offset, value },
    "hash-increment-float" => HashIncrementFloat { key, field, by },
    "limit-data" => LimitData { bytes },
    "disk-full" => DiskFull { node },
    "memory-full" => MemoryFull { node },
    "user-changes" => UserChanges,
    "users" => Users,
    "set-users" => SetUsers { users, if_none },
    "delete-users" => DeleteUsers { users },
    "level" => Level,
    "raise-level" => RaiseLevel { to, if_new },
    "settings" => Settings,
});

text_enum!(Condition {
    "always" => Always, "if-absent" => IfAbsent, "if-present" => IfPresent, "if-version" => IfVersion(version),
});

text_enum!(Expiry { "never" => Never, "keep" => Keep, "in" => In(millis), "at" => At(millis) });

text_enum!(ExpiryCondition {
    "always" => Always, "if-none" => IfNone, "if-any" => IfAny, "if-later" => IfLater, "if-earlier" => IfEarlier,
    "if-any-earlier" => IfAnyEarlier,
});

text_enum!(Kind { "string" => String, "hash" => Hash });

text_enum!(Expires { "missing" => Missing, "never" => Never, "at" => At(millis) });

text_enum!(CommandError {
    "wrong-type" => WrongType, "not-integer" => NotInteger, "field-not-integer" => FieldNotInteger,
    "not-float" => NotFloat, "overflow" => Overflow, "not-finite" => NotFinite, "too-large" => TooLarge,
    "malformed" => Malformed, "field-not-float" => FieldNotFloat, "infinite" => Infinite,
    "too-much" => TooMuch, "pattern-too-long" => PatternTooLong,
    "no-room" => NoRoom, "data-limit" => DataLimit, "below-data" => BelowData { bytes }, "unordered" => Unordered,
    "disk-full" => DiskFull { node }, "memory-full" => MemoryFull { node },
    "no-such-password" => NoSuchPassword, "all-keys-already" => AllKeysAlready, "too-many-users" => TooManyUsers,
    "several-groups" => SeveralGroups, "above-limit" => AboveLimit { bytes },
});

text_enum!(Reply {
    "done" => Done,
    "skipped" => Skipped,
    "value" => Value(value),
    "values" => Values(values),
    "integer" => Integer(number),
    "kind" => Kind(kind),
    "expires" => Expires(expires),
    "versions" => Versions(versions),
    "pairs" => Pairs(pairs),
    "fields" => Fields { pairs, next, version },
    "keys" => Keys { keys, next },
    "batch" => Batch(replies),
    "error" => Error(error),
    "not-retained" => NotRetained,
    "users" => Users { changes, users },
});

/// As on the wire: what a user may do is not looked at here.
macro_rules! text_of_wire {
    ($($type:ident),*) => {$(
        impl Text for $type {
            fn write(&self, out: &mut Writer) {
                self.to_bytes().write(out);
            }
            fn read(input: &mut Reader<'_>) -> Result<Self, String> {
                $type::from_bytes(Bytes::read(input)?).map_err(|error| error.to_string())
            }
        }
    )*};
}
text_of_wire!(User, UserRule, FeatureLevel);

impl Text for Single {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }
    fn read(input: &mut Reader<'_>) -> Result<Self, String> {
        let command = Command::read(input)?;
        match command {
            Command::Batch { .. } => Err("a batch inside a batch".into()),
            command => Ok(Single(command)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"1 0 10 get "k" = value none
1 11 20 get-many ("a" "b\x00\"\\ ()") = values (some "x" none)
2 5 ? put "k" "v" if-version 7 in -5 yes
2 5 6 put-many ("a" "1" "b" "2") no = done
3 7 8 delete () = integer 0
3 9 9 get-range "k" -3 -1 = value some ""
4 1 2 hash-all "h" = pairs ("f" "1" "g" "2")
4 3 4 scan 17 10 none none = keys ("b") some 4711
5 1 2 kind "h" = kind some hash
5 3 4 expiry "h" = expires at 12
5 5 6 versions ("h" "i") = versions (4 0)
6 1 2 batch ("w" 3) (put "a" "1" always keep no increment "n" -1) = batch some (done integer -1)
6 3 4 batch () () = batch none
7 1 2 increment "k" 1 = error not-integer
7 1 2 increment "k" 1 = not-retained
7 3 4 count = integer 3
7 5 ? clear
8 1 2 set-users ("ann" ("\x00" "\n\x01")) no = done
8 3 4 user-changes = integer 1
8 5 6 delete-users ("ann") = integer 1
9 1 2 raise-level "\x02\x00" no = done
9 3 4 level = integer 2
"#;

    #[test]
    fn what_is_written_is_read_back() {
        let history = History::parse(SAMPLE).unwrap();
        assert_eq!(history.0.len(), SAMPLE.lines().count());
        assert_eq!(history.to_string(), SAMPLE);
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        let history = History::parse("# seed 7\n\n1 0 10 get \"k\" = value none\n").unwrap();
        assert_eq!(history.0.len(), 1);
    }

    #[test]
    fn what_is_no_history_is_refused_with_its_line() {
        for (text, line, what) in [
            ("1 0 10 get \"k\"", 1, "ends too early"),
            ("\n1 0 10 gat \"k\" = done", 2, "\"gat\" is no Command"),
            ("1 x 10 get \"k\" = done", 1, "\"x\" is not a u64"),
            ("1 0 y get \"k\" = done", 1, "neither a time"),
            ("1 10 9 get \"k\" = value none", 1, "before it was invoked"),
            ("1 0 10 get k = value none", 1, "not a quoted string"),
            ("1 0 10 get \"k = value none", 1, "does not end"),
            ("1 0 10 get \"\\q\" = value none", 1, "unknown escape"),
            ("1 0 10 get \"\\x1g\" = value none", 1, "two hexadecimal"),
            ("1 0 10 get \"k\" = value none more", 1, "follows the end"),
            ("1 0 10 get \"k\" value none", 1, "\"=\" should be"),
            ("1 0 ? batch () (batch () ())", 1, "batch inside a batch"),
            ("1 0 ? delete (\"a\"", 1, "ends too early"),
        ] {
            let error = History::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.what.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn a_deeply_nested_reply_does_not_exhaust_the_stack() {
        let text = format!("1 0 1 batch () () = {}", "batch some (".repeat(1_000_000));
        assert!(History::parse(&text).is_err());
    }
}
