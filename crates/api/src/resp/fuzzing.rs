//! The parser of requests, for fuzz targets.

use bytes::BytesMut;

use super::Limits;
use super::request::{Args, Parser, Taken};

/// Everything that comes off an input.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The words of each request; `None` for one that was thrown away.
    pub requests: Vec<Option<Vec<Vec<u8>>>>,
    /// What ended it, as the client is told.
    pub error: Option<String>,
}

/// Parses input that comes in pieces, with a limit on values.
pub fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, value: usize) -> Parsed {
    let limits = Limits { value, request: 10 * value, ..Limits::default() };
    let (mut parser, mut input, mut parsed) =
        (Parser::default(), BytesMut::new(), Parsed { requests: Vec::new(), error: None });
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match parser.next(&mut input, &limits) {
                Ok(None) => break,
                Ok(Some(Taken::Request(frame))) => {
                    let words = Args::new(&frame, &parser.words).from(0).map(<[u8]>::to_vec).collect();
                    parsed.requests.push(Some(words));
                }
                Ok(Some(Taken::Refused(_))) => parsed.requests.push(None),
                Err(malformed) => {
                    parsed.error = Some(String::from_utf8_lossy(&malformed.text()).into_owned());
                    return parsed;
                }
            }
            parser.rest();
        }
    }
    parsed
}
