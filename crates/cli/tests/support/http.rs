//! What a node serves over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

/// The status and the body of an answer.
pub fn get(address: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.to_owned(), body.to_owned()))
}
