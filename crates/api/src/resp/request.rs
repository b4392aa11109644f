//! Requests as they come off the wire: arrays of bulk strings, or inline lines. Errors read as Redis 7 words them.
//!
//! The parser remembers where it is in a request that has not come in whole, so the work is proportional to the
//! bytes that arrive, however they are cut. It reserves what a length announces once a small part of it is there: a
//! buffer that grew with the bytes would be copied when it is nearly full of them, all 64 MiB at once. It waits for the
//! bytes, or, if they are too many, throws them away as they come and says so once the request is over.

use bytes::{Buf, Bytes, BytesMut};

use super::Limits;

/// Header lines and inline requests longer than this end the connection, as in Redis.
const LINE: usize = 64 << 10;

/// A bulk string announced larger than this ends the connection, as in Redis (`proto-max-bulk-len`).
const BULK: i64 = 512 << 20;

/// A word has room for all of it once this part of it has come in.
const RESERVED: usize = 64;

/// One word of a request: where it lies in the request's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    start: u32,
    len: u32,
}

/// A request: its words, which share one buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args<'a> {
    frame: &'a Bytes,
    words: &'a [Word],
}

impl<'a> Args<'a> {
    pub(super) fn new(frame: &'a Bytes, words: &'a [Word]) -> Self {
        Args { frame, words }
    }

    /// How many words, the command's name included.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// A word.
    pub(super) fn get(&self, index: usize) -> &'a [u8] {
        let Word { start, len } = self.words[index];
        &self.frame[start as usize..][..len as usize]
    }

    /// A word that shares the request's buffer.
    pub(super) fn bytes(&self, index: usize) -> Bytes {
        let Word { start, len } = self.words[index];
        self.frame.slice(start as usize..start as usize + len as usize)
    }

    /// The words from an index on.
    pub(super) fn from(&self, index: usize) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a> {
        let frame = self.frame;
        self.words.iter().skip(index).map(move |word| &frame[word.start as usize..][..word.len as usize])
    }

    /// The request that begins with the word at an index.
    pub(super) fn after(&self, index: usize) -> Args<'a> {
        Args { frame: self.frame, words: &self.words[index..] }
    }

    /// The size of the buffer that the words share.
    pub(super) fn size(&self) -> usize {
        self.frame.len()
    }

    /// That buffer as one of its own, for keeping.
    pub(super) fn copy(&self) -> Bytes {
        Bytes::copy_from_slice(self.frame)
    }
}

/// What the parser took off the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A request: its frame; its words are the parser's.
    Request(Bytes),
    /// A request that was thrown away, and why.
    Refused(Refusal),
}

/// Why a request was thrown away while it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// One word is larger than a value may be.
    Word,
    /// All of it is larger than a request may be.
    Request,
}

/// After these there is no telling where the next request begins: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    MultibulkLength,
    BulkLength,
    ExpectedBulk(u8),
    MultibulkLine,
    BulkLine,
    InlineLine,
    Quotes,
}

impl Malformed {
    /// The reply, without its error mark.
    pub(super) fn text(&self) -> Vec<u8> {
        let what: &[u8] = match self {
            Malformed::MultibulkLength => b"invalid multibulk length",
            Malformed::BulkLength => b"invalid bulk length",
            Malformed::ExpectedBulk(found) => {
                return [b"ERR Protocol error: expected '$', got '", &[*found][..], b"'"].concat();
            }
            Malformed::MultibulkLine => b"too big mbulk count string",
            Malformed::BulkLine => b"too big bulk count string",
            Malformed::InlineLine => b"too big inline request",
            Malformed::Quotes => b"unbalanced quotes in request",
        };
        [b"ERR Protocol error: ", what].concat()
    }
}

/// Where the parser is in the request at the front of the input.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The words that are whole; after [`Taken::Request`], those of the request.
    pub(super) words: Vec<Word>,
    /// Up to where the input is understood.
    at: usize,
    /// Bytes of the line that comes next that do not hold its end.
    seen: usize,
    /// Words that are still to come; 0 between requests.
    missing: usize,
    /// The length of the word that comes next, once it is announced.
    announced: Option<usize>,
    /// Bytes of all words so far, with what each costs.
    size: usize,
    /// The request is being thrown away.
    refused: Option<Refusal>,
    /// Bytes of the current word that are still to be thrown away.
    discard: usize,
}

/// What a word counts for beyond its bytes: its header on the wire, its place in memory.
const WORD: usize = 16;

impl Parser {
    /// The next request off the front of the input; `None` if it has not come in whole.
    pub(super) fn next(&mut self, input: &mut BytesMut, limits: &Limits) -> Result<Option<Taken>, Malformed> {
        loop {
            if self.missing == 0 {
                match input.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        if !self.begin(input, limits)? {
                            return Ok(None);
                        }
                    }
                    Some(_) => {
                        let Some(line) = take_line(input, &mut self.seen)? else { return Ok(None) };
                        if let Some(taken) = self.inline(&line, limits)? {
                            return Ok(Some(taken));
                        }
                    }
                }
                continue;
            }
            if !self.word(input, limits)? {
                return Ok(None);
            }
            if self.missing == 0 {
                return Ok(Some(self.end(input)));
            }
        }
    }

    /// Gives back memory that only a very large request needs.
    pub(super) fn rest(&mut self) {
        if self.missing == 0 && self.words.capacity() > 64 {
            self.words = Vec::new();
        }
    }

    /// Reads `*N`. False if it is not there yet.
    fn begin(&mut self, input: &mut BytesMut, limits: &Limits) -> Result<bool, Malformed> {
        let Some((count, used)) = header(input, &mut self.seen, Malformed::MultibulkLine)? else {
            return Ok(false);
        };
        let count = count.filter(|count| *count <= limits.words as i64).ok_or(Malformed::MultibulkLength)?;
        if count <= 0 {
            input.advance(used);
            return Ok(true);
        }
        self.words.clear();
        (self.at, self.missing, self.size) = (used, count as usize, 0);
        Ok(true)
    }

    /// Reads one `$LEN` and its bytes. False if they are not there yet.
    fn word(&mut self, input: &mut BytesMut, limits: &Limits) -> Result<bool, Malformed> {
        let len = match self.announced {
            Some(len) => len,
            None => {
                let rest = &input[self.at..];
                // As Redis: the mark is looked at once the whole line is there.
                let Some((len, used)) = header(rest, &mut self.seen, Malformed::BulkLine)? else {
                    return Ok(false);
                };
                if rest[0] != b'$' {
                    return Err(Malformed::ExpectedBulk(rest[0]));
                }
                let len = len.filter(|len| (0..=BULK).contains(len)).ok_or(Malformed::BulkLength)?;
                self.at += used;
                self.size = self.size.saturating_add(len as usize + WORD);
                if self.refused.is_none() {
                    self.refused = match len as usize {
                        len if len > limits.value => Some(Refusal::Word),
                        _ if self.size > limits.request => Some(Refusal::Request),
                        _ => None,
                    };
                }
                if self.refused.is_some() {
                    self.words = Vec::new();
                    input.advance(std::mem::take(&mut self.at));
                    self.discard = len as usize + 2;
                }
                self.announced = Some(len as usize);
                len as usize
            }
        };
        if self.refused.is_some() {
            let now = self.discard.min(input.len());
            input.advance(now);
            self.discard -= now;
            if self.discard > 0 {
                return Ok(false);
            }
        } else {
            let end = self.at + len + 2;
            if input.len() < end {
                if input.len() - self.at >= len / RESERVED {
                    input.reserve(end - input.len());
                }
                return Ok(false);
            }
            self.words.push(Word { start: self.at as u32, len: len as u32 });
            self.at += len + 2;
        }
        self.announced = None;
        self.missing -= 1;
        Ok(true)
    }

    fn end(&mut self, input: &mut BytesMut) -> Taken {
        match self.refused.take() {
            Some(refusal) => Taken::Refused(refusal),
            None => Taken::Request(input.split_to(std::mem::take(&mut self.at)).freeze()),
        }
    }

    /// Splits a line into words. `None` if there are none.
    fn inline(&mut self, line: &[u8], limits: &Limits) -> Result<Option<Taken>, Malformed> {
        self.words.clear();
        let mut frame = BytesMut::with_capacity(line.len());
        let mut rest = line;
        loop {
            while let Some((first, after)) = rest.split_first()
                && is_space(*first)
            {
                rest = after;
            }
            if rest.is_empty() {
                break;
            }
            let start = frame.len();
            rest = unquote(rest, &mut frame).ok_or(Malformed::Quotes)?;
            self.words.push(Word { start: start as u32, len: (frame.len() - start) as u32 });
        }
        let size = frame.len() + self.words.len() * WORD;
        Ok(match self.words.iter().map(|word| word.len as usize).max() {
            None => None,
            Some(longest) if longest > limits.value => Some(Taken::Refused(Refusal::Word)),
            Some(_) if size > limits.request || self.words.len() > limits.words => {
                Some(Taken::Refused(Refusal::Request))
            }
            Some(_) => Some(Taken::Request(frame.freeze())),
        })
    }
}

/// A number behind a one-byte mark, up to the carriage return, and how many bytes the line takes with its end. The
/// number is `None` if it is none; the whole is, if the line is not there yet.
fn header(
    input: &[u8],
    seen: &mut usize,
    too_long: Malformed,
) -> Result<Option<(Option<i64>, usize)>, Malformed> {
    match first(b'\r', input, seen) {
        Some(end) if end + 2 <= input.len() => {
            *seen = 0;
            Ok(Some((input.get(1..end).and_then(integer), end + 2)))
        }
        Some(_) => Ok(None),
        None if input.len() > LINE => Err(too_long),
        None => Ok(None),
    }
}

/// Where a line ends; `seen` is up to where it is known not to. One that is too long has no end, also where all of
/// it has come in at once: what a client is told must not depend on how the network cut its bytes.
fn first(end: u8, input: &[u8], seen: &mut usize) -> Option<usize> {
    let until = input.len().min(LINE + 1);
    let found = input[*seen..until].iter().position(|byte| *byte == end).map(|at| *seen + at);
    *seen = found.unwrap_or(until);
    found
}

fn take_line(input: &mut BytesMut, seen: &mut usize) -> Result<Option<BytesMut>, Malformed> {
    match first(b'\n', input, seen) {
        Some(end) => {
            *seen = 0;
            let mut line = input.split_to(end + 1);
            line.truncate(end);
            if line.last() == Some(&b'\r') {
                line.truncate(end - 1);
            }
            Ok(Some(line))
        }
        None if input.len() > LINE => Err(Malformed::InlineLine),
        None => Ok(None),
    }
}

/// Appends the word at the front of `rest` (which does not begin with a space) and returns what follows it; `None` if
/// its quotes do not match. The rules are those of Redis' `sdssplitargs`.
fn unquote<'a>(mut rest: &'a [u8], out: &mut BytesMut) -> Option<&'a [u8]> {
    let mut quote = None;
    loop {
        let Some((&first, after)) = rest.split_first() else {
            return quote.is_none().then_some(rest);
        };
        match (quote, first) {
            (Some(b'"'), b'\\') => {
                let (byte, used) = match after {
                    [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                        (hex(*high) << 4 | hex(*low), 3)
                    }
                    [b'n', ..] => (b'\n', 1),
                    [b'r', ..] => (b'\r', 1),
                    [b't', ..] => (b'\t', 1),
                    [b'b', ..] => (8, 1),
                    [b'a', ..] => (7, 1),
                    [other, ..] => (*other, 1),
                    [] => (b'\\', 0),
                };
                out.extend_from_slice(&[byte]);
                rest = &after[used..];
                continue;
            }
            (Some(b'\''), b'\\') if after.first() == Some(&b'\'') => {
                out.extend_from_slice(b"'");
                rest = &after[1..];
                continue;
            }
            (Some(open), byte) if open == byte => {
                return after.first().is_none_or(|next| is_space(*next)).then_some(after);
            }
            (None, b'"' | b'\'') => quote = Some(first),
            (None, b' ' | b'\t' | b'\r' | b'\n') => return Some(after),
            (_, byte) => out.extend_from_slice(&[byte]),
        }
        rest = after;
    }
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).map_or(0, |value| value as u8)
}

/// A 64-bit integer in its one canonical form: no plus sign, no leading zeros, no spaces (Redis' `string2ll`).
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => Some(0),
        // Every request has several, and all are short: no number of 18 digits is too large.
        [b'1'..=b'9', ..] if digits.len() <= 18 => {
            let next = |value: i64, digit: &u8| {
                digit.is_ascii_digit().then(|| value * 10 + i64::from(*digit - b'0'))
            };
            let value = digits.iter().try_fold(0, next)?;
            Some(if digits.len() == text.len() { value } else { -value })
        }
        [b'1'..=b'9', ..] if digits.len() == 19 => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as a list of words.
    type Found = Result<Vec<Vec<u8>>, Refusal>;

    /// Every request that comes off the input, and how it ends.
    fn parse(chunks: &[&[u8]], limits: &Limits) -> (Vec<Found>, Option<Malformed>) {
        let (mut parser, mut input, mut found) = (Parser::default(), BytesMut::new(), Vec::new());
        for chunk in chunks {
            input.extend_from_slice(chunk);
            loop {
                match parser.next(&mut input, limits) {
                    Ok(None) => break,
                    Ok(Some(Taken::Request(frame))) => {
                        found
                            .push(Ok(Args::new(&frame, &parser.words).from(0).map(<[u8]>::to_vec).collect()));
                    }
                    Ok(Some(Taken::Refused(refusal))) => found.push(Err(refusal)),
                    Err(malformed) => return (found, Some(malformed)),
                }
            }
        }
        (found, None)
    }

    fn words(words: &[&str]) -> Found {
        Ok(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    #[test]
    fn requests_come_off_in_both_forms() {
        let limits = Limits::default();
        for (input, expected) in [
            ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", vec![words(&["GET", "k"])]),
            ("*1\r\n$0\r\n\r\n", vec![words(&[""])]),
            ("*0\r\n*-1\r\nPING\r\n", vec![words(&["PING"])]),
            ("\r\n\n  \nPING\nPING  x \r\n", vec![words(&["PING"]), words(&["PING", "x"])]),
            ("set k \"a b\\x41\\n\\\"\" 'it\\'s'\r\n", vec![words(&["set", "k", "a bA\n\"", "it's"])]),
            ("set k \"\" a\"b\"\n", vec![words(&["set", "k", "", "ab"])]),
        ] {
            assert_eq!(parse(&[input.as_bytes()], &limits), (expected, None), "{input:?}");
        }
    }

    #[test]
    fn malformed_input_is_named_as_redis_names_it() {
        let limits = Limits::default();
        let long = "x".repeat(LINE + 1);
        for (input, error) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*01\r\n", "invalid multibulk length"),
            ("*2147483648\r\n", "invalid multibulk length"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$536870913\r\n", "invalid bulk length"),
            ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
            ("*1\r\n:1\r\n", "expected '$', got ':'"),
            ("set k \"a\r\n", "unbalanced quotes in request"),
            ("set k \"a\"b\r\n", "unbalanced quotes in request"),
            (&long, "too big inline request"),
            (&format!("*{long}"), "too big mbulk count string"),
            (&format!("*1\r\n${long}"), "too big bulk count string"),
            (&format!("{long}\r\n"), "too big inline request"),
            (&format!("*{long}\r\n"), "too big mbulk count string"),
        ] {
            let error = format!("ERR Protocol error: {error}");
            let found = parse(&[input.as_bytes()], &limits).1.expect("malformed").text();
            assert_eq!(String::from_utf8_lossy(&found), error);
        }
    }

    #[test]
    fn what_is_too_large_is_thrown_away_and_the_next_request_is_read() {
        let limits = Limits { value: 10, request: 100, ..Limits::default() };
        let large = "*3\r\n$1\r\na\r\n$11\r\n01234567890\r\n$1\r\nb\r\n";
        let many = format!("*7\r\n{}", "$10\r\n0123456789\r\n".repeat(7));
        let input = format!("{large}{many}a 01234567890 b\r\n{}\r\nPING\r\n", "a ".repeat(7));
        let (word, request) = (Err(Refusal::Word), Err(Refusal::Request));
        let expected = vec![word.clone(), request.clone(), word, request, words(&["PING"])];
        assert_eq!(parse(&[input.as_bytes()], &limits), (expected.clone(), None));
        let bytes: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
        assert_eq!(parse(&bytes, &limits), (expected, None));
    }

    #[test]
    fn an_inline_request_has_so_many_words_at_most() {
        let limits = Limits { words: 3, ..Limits::default() };
        let expected = vec![words(&["a", "b", "c"]), Err(Refusal::Request), words(&["PING"])];
        assert_eq!(parse(&[b"a b c\na b c d\nPING\n"], &limits), (expected, None));
    }

    #[test]
    fn memory_that_a_request_of_many_words_needs_is_given_back_behind_it() {
        let (mut parser, limits) = (Parser::default(), Limits::default());
        let mut input = BytesMut::from(&b"*1000\r\n"[..]);
        (0..1000).for_each(|_| input.extend_from_slice(b"$1\r\nx\r\n"));
        assert!(matches!(parser.next(&mut input, &limits), Ok(Some(Taken::Request(_)))));
        assert!(parser.words.capacity() >= 1000);
        parser.rest();
        assert_eq!(parser.words.capacity(), 0);
    }

    #[test]
    fn an_announced_length_reserves_nothing() {
        let (mut parser, limits) = (Parser::default(), Limits::default());
        let mut input = BytesMut::from("*1048576\r\n$67108864\r\nx");
        let before = input.capacity();
        assert_eq!(parser.next(&mut input, &limits), Ok(None));
        assert!(input.capacity() <= before && parser.words.capacity() == 0);
    }

    #[test]
    fn a_word_has_room_for_all_of_it_when_a_part_of_it_is_there() {
        let (mut parser, limits) = (Parser::default(), Limits::default());
        let (mut input, mut copies) = (BytesMut::from("*1\r\n$67108864\r\n"), Vec::new());
        let mut from = input.as_ptr();
        for _ in 0..64 {
            input.extend_from_slice(&[b'x'; 1 << 20]);
            assert_eq!(parser.next(&mut input, &limits), Ok(None));
            if std::mem::replace(&mut from, input.as_ptr()) != input.as_ptr() {
                copies.push(input.len() >> 20);
            }
        }
        assert!(copies.iter().all(|copied| *copied <= 2), "copied with so many MiB: {copies:?}");
        input.extend_from_slice(b"\r\n");
        assert!(matches!(parser.next(&mut input, &limits), Ok(Some(Taken::Request(_)))));
    }

    #[test]
    fn only_canonical_integers_are_integers() {
        for text in [
            "0",
            "-1",
            "10",
            "999999999999999999",
            "-999999999999999999",
            "1000000000000000000",
            "9223372036854775807",
            "-9223372036854775808",
        ] {
            assert_eq!(integer(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            "1 ",
            " 1",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "1e3",
            "1\u{666}",
            "9999999999999999999",
            "10000000000000000000",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
