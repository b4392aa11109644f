//! The parser of replies, for fuzz targets.

use std::io::{self, BufRead};

use crate::value::{self, Value};

/// Reads one reply.
pub fn read(input: &mut impl BufRead) -> io::Result<Value> {
    value::read(input)
}

/// A request, as bytes.
pub fn request(words: &[Vec<u8>]) -> Vec<u8> {
    value::request(words)
}
