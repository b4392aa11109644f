//! Arbitrary and damaged input.

use bytes::BytesMut;
use quorate_core::Random;

use crate::harness::{Node, request};

/// Not INFO: it tells how much memory there is, and what was counted so far.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "SET", "GET", "MGET", "MSET", "DEL", "INCR", "INCRBY", "APPEND", "HSET", "HGET", "HGETALL", "HINCRBY",
    "HSCAN", "SCAN", "KEYS", "EXPIRE", "TTL", "PERSIST", "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH",
    "RESET", "HELLO", "CLIENT", "COMMAND", "CONFIG", "QUORATE", "GETRANGE", "SETNX", "FLUSHALL",
    "TYPE", "ECHO", "PING", "STATUS", "SETNAME", "DOCS", "LIST", "ID", "COUNT", "MATCH", "NX", "XX", "EX",
    "PX", "KEEPTTL", "0", "1", "2", "3", "-1", "9223372036854775807", "0.5", "nan", "*", "[a", "k", "j", "",
    "a\r\nb",
];

/// A stream of requests, most of which make sense.
fn requests(random: &mut Random, count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..count {
        let len = random.range(1..7) as usize;
        let words: Vec<&str> =
            (0..len).map(|_| WORDS[random.range(0..WORDS.len() as u64) as usize]).collect();
        match random.range(0..10) {
            0 => out.extend_from_slice(format!("{}\r\n", words.join(" ").replace("\r\n", "")).as_bytes()),
            _ => out.extend_from_slice(&request(&words)),
        }
    }
    out
}

/// A few bytes changed, removed or doubled.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.range(1..6) {
        if bytes.is_empty() {
            return;
        }
        let at = random.range(0..bytes.len() as u64) as usize;
        match random.range(0..4) {
            0 => bytes[at] = random.u64() as u8,
            1 => {
                bytes.remove(at);
            }
            2 => bytes.insert(at, b"0123456789*$\r\n"[random.range(0..14) as usize]),
            _ => {
                let end = (at + random.range(1..30) as usize).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
}

#[test]
fn any_split_of_the_input_gives_the_same_output() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut input = requests(&mut random, 30);
        if seed % 2 == 0 {
            damage(&mut random, &mut input);
        }
        let mut node = Node::new();
        let mut connection = node.connect();
        let whole = node.ask(&mut connection, &input);
        let mut node = Node::new();
        let mut connection = node.connect();
        let mut parts = String::new();
        let mut rest = &input[..];
        while !rest.is_empty() {
            let cut = match seed % 3 {
                0 => 1,
                _ => random.range(1..20).min(rest.len() as u64) as usize,
            };
            parts += &node.ask(&mut connection, &rest[..cut]);
            rest = &rest[cut..];
        }
        assert_eq!(whole, parts, "seed {seed}");
    }
}

#[test]
fn arbitrary_and_damaged_bytes_never_panic_nor_grow_memory() {
    let mut random = Random::new(7);
    for round in 0..3000 {
        let input = match round % 3 {
            0 => (0..random.range(1..200)).map(|_| random.u64() as u8).collect(),
            1 => (0..random.range(1..200))
                .map(|_| b"*$\r\n0123456789-\"'\\x"[random.range(0..19) as usize])
                .collect(),
            _ => {
                let mut input = requests(&mut random, 10);
                damage(&mut random, &mut input);
                input
            }
        };
        let mut node = Node::new();
        let mut connection = node.connect();
        node.ask(&mut connection, &input);
        assert!(connection.unread() <= input.len());
    }
}

#[test]
fn announced_sizes_are_not_allocated() {
    let mut node = Node::new();
    // A fresh buffer holds exactly what was sent: a session that reserved what is announced would show here.
    for announced in [&b"*1048576\r\n$67108864\r\n"[..], b"*2\r\n$3\r\nGET\r\n$67108864\r\nx"] {
        let mut connection = node.connect();
        node.send(&mut connection, announced);
        assert_eq!(connection.unread(), announced.len());
        assert!(
            connection.capacity() <= BytesMut::from(announced).capacity().max(64),
            "{}",
            connection.capacity()
        );
    }
}
