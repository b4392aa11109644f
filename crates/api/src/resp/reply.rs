//! Replies in RESP2 and RESP3, written straight to a buffer.

use bytes::Bytes;
use quorate_node::Output;

/// Writes replies for a client that speaks one of the two versions.
pub(super) struct Writer<'a> {
    /// Where they go.
    pub(super) out: &'a mut Output,
    /// Whether the client has asked for RESP3.
    pub(super) resp3: bool,
}

impl Writer<'_> {
    /// `+TEXT`.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `+OK`.
    pub(super) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `-TEXT`; line ends at its end are dropped and those in it become spaces, as in Redis.
    pub(super) fn error(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let ends_line = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let len = text.iter().rposition(|byte| !ends_line(byte)).map_or(0, |last| last + 1);
        let text = text[..len].iter().map(|byte| if ends_line(byte) { b' ' } else { *byte });
        self.line(b'-', &text.collect::<Vec<_>>());
    }

    /// A number.
    pub(super) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// A string of bytes.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The same, which is not copied if it is large.
    pub(super) fn value(&mut self, bytes: &Bytes) {
        if bytes.len() < Output::SHARED {
            return self.bulk(bytes);
        }
        self.number(b'$', bytes.len() as i64);
        self.out.share(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A value, or its absence.
    pub(super) fn optional(&mut self, bytes: Option<Bytes>) {
        match bytes {
            Some(bytes) => self.value(&bytes),
            None => self.null(),
        }
    }

    /// Text for people.
    pub(super) fn verbatim(&mut self, text: &str) {
        if !self.resp3 {
            return self.bulk(text.as_bytes());
        }
        self.number(b'=', text.len() as i64 + 4);
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// Nothing where a string could be.
    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Nothing where an array could be.
    pub(super) fn null_array(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// The head of an array of this many replies.
    pub(super) fn array(&mut self, len: usize) {
        self.number(b'*', len as i64);
    }

    /// The head of a map of this many pairs; in RESP2 it is a flat array.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.resp3 {
            true => self.number(b'%', pairs as i64),
            false => self.number(b'*', 2 * pairs as i64),
        }
    }

    /// The head of a set; in RESP2 it is an array.
    pub(super) fn set(&mut self, len: usize) {
        self.number(if self.resp3 { b'~' } else { b'*' }, len as i64);
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.extend_from_slice(&[mark]);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Put together before it is appended: nearly every reply has one.
    fn number(&mut self, mark: u8, value: i64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).as_bytes();
        // A mark, up to 20 characters, a line end.
        let mut line = [0; 23];
        let end = 1 + digits.len();
        line[0] = mark;
        line[1..end].copy_from_slice(digits);
        line[end..end + 2].copy_from_slice(b"\r\n");
        self.out.extend_from_slice(&line[..end + 2]);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;

    use super::*;

    type Write = fn(&mut Writer);

    #[test]
    fn each_reply_has_its_form_in_each_version() {
        let table: [(Write, &str, &str); 11] = [
            (|w| w.simple("PONG"), "+PONG\r\n", "+PONG\r\n"),
            (|w| w.error("ERR a\r\nb\r\n"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|w| w.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|w| w.bulk(b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"),
            (|w| w.optional(None), "$-1\r\n", "_\r\n"),
            (|w| w.null_array(), "*-1\r\n", "_\r\n"),
            (|w| w.array(2), "*2\r\n", "*2\r\n"),
            (|w| w.map(2), "*4\r\n", "%2\r\n"),
            (|w| w.set(2), "*2\r\n", "~2\r\n"),
            (|w| w.verbatim("ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"),
            (|w| w.ok(), "+OK\r\n", "+OK\r\n"),
        ];
        for (write, resp2, resp3) in table {
            for (version, expected) in [(false, resp2), (true, resp3)] {
                let mut out = Output::default();
                write(&mut Writer { out: &mut out, resp3: version });
                assert_eq!(out.chunk(), expected.as_bytes());
            }
        }
    }
}
