//! What clients and nodes say to each other.

use std::io::BufReader;

use quorate_api::resp::fuzzing::{Parsed, parse};
use quorate_client::fuzzing::read;

use crate::peers::cuts;

/// Requests come out the same however the input is split, and are no larger than it.
pub fn request(data: &[u8]) {
    let Some((&plan, input)) = data.split_first() else { return };
    for limit in [32, 64 << 20] {
        let whole = parse([input], limit);
        let bytes: usize = whole.requests.iter().flatten().flatten().map(Vec::len).sum();
        assert!(bytes <= input.len());
        let again = parse(cuts(input, plan), limit);
        assert_eq!(whole, again, "another split of the input");
        read_back(whole, limit);
    }
}

/// What was read and is written as arrays is read again.
fn read_back(parsed: Parsed, limit: usize) {
    let words: Vec<_> = parsed.requests.into_iter().flatten().collect();
    let mut text = Vec::new();
    for request in &words {
        text.extend_from_slice(&quorate_client::fuzzing::request(request));
    }
    let again = parse([&text[..]], limit);
    assert_eq!((again.error, again.requests), (None, words.into_iter().map(Some).collect()));
}

pub fn request_seeds() -> Vec<Vec<u8>> {
    let long = "x".repeat(70 << 10);
    let texts = [
        "*1\r\n$4\r\nPING\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$40\r\n0123456789012345678901234567890123456789\r\nPING\r\n",
        "PING\r\nset k \"a b\\x41\\n\" 'c\\'d'\n\r\n  get   k\r\n",
        "*0\r\n*-1\r\n*2\r\n$0\r\n\r\n$0\r\n\r\n",
        "*1048576\r\n$67108864\r\nx",
        "*2\r\n$536870912\r\n",
        "*1\r\n:1\r\n",
        "\"open\r\n",
        &format!("{long}\r\nPING\r\n"),
        &format!("*{long}\r\n"),
    ];
    [0, 1, 7].into_iter().flat_map(|plan| texts.map(|text| [&[plan], text.as_bytes()].concat())).collect()
}

/// Replies come out the same however the input is buffered.
pub fn reply(data: &[u8]) {
    let Some((&plan, input)) = data.split_first() else { return };
    let mut rest = input;
    let mut cut = BufReader::with_capacity(1 + usize::from(plan), input);
    loop {
        let (one, other) = (read(&mut rest), read(&mut cut));
        match (one, other) {
            (Ok(one), Ok(other)) => assert_eq!(one, other),
            (Err(one), Err(other)) => {
                assert_eq!(one.to_string(), other.to_string());
                return;
            }
            (one, other) => panic!("{one:?} or {other:?}"),
        }
    }
}

pub fn reply_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "+OK\r\n-ERR no\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n*-1\r\n",
        "*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n",
        "$9223372036854775807\r\nab",
        "*1000000000\r\n+a\r\n",
        &"*1\r\n".repeat(20),
    ];
    [0, 6].into_iter().flat_map(|plan| texts.map(|text| [&[plan], text.as_bytes()].concat())).collect()
}
