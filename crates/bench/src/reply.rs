//! Finds where RESP replies end, and which are errors or nil. Nothing is copied or allocated: a reply is looked at
//! where it lies in the read buffer, and may be split anywhere.

/// What a reply was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Anything with a value.
    Value,
    /// No value: the key is not there.
    Nil,
    /// An error; [`Scanner::error`] has its kind.
    Error,
}

/// The peer does not speak RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// How much of an error's first word is kept.
const KIND: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the type byte of an element.
    Type,
    /// In the line of an element of this type; a number so far.
    Line { kind: u8, number: u64, negative: bool, cr: bool },
    /// In a body with its line end: this many bytes are missing.
    Body(u64),
}

/// Where in a reply the bytes end so far.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// Elements of the reply that have not begun, the present one included.
    left: u64,
    reply: Reply,
    /// No element of the reply has ended yet.
    top: bool,
    text: [u8; KIND],
    len: usize,
    word_ended: bool,
}

impl Scanner {
    /// Before the first reply.
    pub fn new() -> Scanner {
        Scanner {
            state: State::Type,
            left: 1,
            reply: Reply::Value,
            top: true,
            text: [0; KIND],
            len: 0,
            word_ended: false,
        }
    }

    /// The first word of the last error.
    pub fn error(&self) -> &str {
        std::str::from_utf8(&self.text[..self.len]).unwrap_or("?")
    }

    /// Takes bytes from `input` up to the end of one reply; none if it does not end in them.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Reply>, Malformed> {
        const DONE: &[u8] = b"+OK\r\n";
        loop {
            if self.state == State::Type && self.top && input.starts_with(DONE) {
                *input = &input[DONE.len()..];
                return Ok(Some(Reply::Value));
            }
            let ended = match self.state {
                State::Body(missing) => {
                    let taken = missing.min(input.len() as u64);
                    *input = &input[taken as usize..];
                    self.state = if taken == missing { State::Type } else { State::Body(missing - taken) };
                    if taken < missing {
                        return Ok(None);
                    }
                    true
                }
                State::Type | State::Line { .. } => {
                    let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    self.byte(byte)?
                }
            };
            if ended {
                self.top = false;
                self.left -= 1;
                if self.left == 0 {
                    (self.left, self.top) = (1, true);
                    return Ok(Some(std::mem::replace(&mut self.reply, Reply::Value)));
                }
            }
        }
    }

    /// Takes one byte outside a body; true if an element ends with it.
    fn byte(&mut self, byte: u8) -> Result<bool, Malformed> {
        match &mut self.state {
            State::Type => {
                if !b"+-:$*_#,(!=%~>".contains(&byte) {
                    return Err(Malformed);
                }
                if self.top && byte == b'-' {
                    self.reply = Reply::Error;
                    (self.len, self.word_ended) = (0, false);
                }
                self.state = State::Line { kind: byte, number: 0, negative: false, cr: false };
                Ok(false)
            }
            State::Line { kind, number, negative, cr } => {
                if *cr {
                    let (kind, number, negative) = (*kind, *number, *negative);
                    self.state = State::Type;
                    return if byte == b'\n' {
                        self.line_end(kind, number, negative)
                    } else {
                        Err(Malformed)
                    };
                }
                match (*kind, byte) {
                    (_, b'\r') => *cr = true,
                    (b'$' | b'*' | b'!' | b'=' | b'%' | b'~' | b'>', b'-') => *negative = true,
                    (b'$' | b'*' | b'!' | b'=' | b'%' | b'~' | b'>', _) => {
                        let digit = byte.wrapping_sub(b'0');
                        *number = number.checked_mul(10).ok_or(Malformed)?;
                        *number = number.checked_add(u64::from(digit)).ok_or(Malformed)?;
                        if digit > 9 || *number > 1 << 40 {
                            return Err(Malformed);
                        }
                    }
                    (b'-', _) if self.top && !self.word_ended => {
                        if byte == b' ' || self.len == KIND {
                            self.word_ended = true;
                        } else {
                            self.text[self.len] = byte;
                            self.len += 1;
                        }
                    }
                    _ => {}
                }
                Ok(false)
            }
            State::Body(_) => Ok(false),
        }
    }

    /// The line of an element has ended; true if the element has, too.
    fn line_end(&mut self, kind: u8, number: u64, negative: bool) -> Result<bool, Malformed> {
        if self.top && (negative || kind == b'_') && self.reply != Reply::Error {
            self.reply = Reply::Nil;
        }
        match kind {
            b'$' | b'!' | b'=' if !negative => {
                if self.top && kind == b'!' {
                    self.reply = Reply::Error;
                    self.len = 0;
                }
                self.state = State::Body(number + 2);
                Ok(false)
            }
            b'*' | b'~' | b'>' | b'%' if !negative => {
                self.left += if kind == b'%' { number * 2 } else { number };
                Ok(true)
            }
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[(&[u8], &str)] = &[
        (b"+OK\r\n", "Value"),
        (b"$-1\r\n", "Nil"),
        (b"$5\r\na\r\nb\r\r\n", "Value"),
        (b"$0\r\n\r\n", "Value"),
        (b":-12\r\n", "Value"),
        (b"-MOVED 1 127.0.0.1:1\r\n", "Error MOVED"),
        (b"-NOQUORUM\r\n", "Error NOQUORUM"),
        (b"*-1\r\n", "Nil"),
        (b"*0\r\n", "Value"),
        (b"*3\r\n$1\r\na\r\n$-1\r\n*2\r\n:1\r\n-ERR in it\r\n", "Value"),
        (b"-ERR a text that is long\r\n", "Error ERR"),
        (b"%1\r\n+a\r\n_\r\n", "Value"),
        (b"_\r\n", "Nil"),
        (b"+PONG\r\n", "Value"),
    ];

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut scanner = Scanner::new();
        let mut found = Vec::new();
        for chunk in chunks {
            let mut input = *chunk;
            while let Some(reply) = scanner.next(&mut input).unwrap() {
                found.push(match reply {
                    Reply::Error => format!("Error {}", scanner.error()),
                    other => format!("{other:?}"),
                });
            }
            assert!(input.is_empty());
        }
        found
    }

    #[test]
    fn replies_are_found_however_they_are_split() {
        let bytes: Vec<u8> = REPLIES.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
        let expected: Vec<_> = REPLIES.iter().map(|(_, reply)| *reply).collect();
        assert_eq!(read(&[&bytes]), expected);
        for at in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..at], &bytes[at..]]), expected, "split at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), expected);
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        for bytes in [&b"HTTP/1.1"[..], b"$x\r\n", b"+OK\rx", b"*99999999999999999999\r\n", b"\r\n"] {
            let mut input = bytes;
            assert_eq!(Scanner::new().next(&mut input), Err(Malformed), "{bytes:?}");
        }
    }
}
