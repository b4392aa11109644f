//! The same generated commands to Redis 7.0 and to us: the same replies. Needs `redis-server` and is therefore run on
//! demand: `cargo test -p quorate-api -- --ignored`.
//!
//! Intended differences are where the commands are made (none that we do not have) and in [`normal`].

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quorate_core::Random;

use crate::harness::{Node, request};

struct Redis {
    server: Child,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Redis {
    fn start() -> Redis {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server 7.0 is installed");
        Redis { server, port }
    }

    fn connect(&self) -> TcpStream {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                    return stream;
                }
                Err(error) => assert!(Instant::now() < deadline, "redis-server does not start: {error}"),
            }
        }
    }
}

/// A reply, as a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tree {
    Leaf(Vec<u8>),
    Array(u8, Vec<Tree>),
}

/// Takes a reply off the front.
fn tree(input: &mut &[u8]) -> Option<Tree> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, rest) = (&input[..end], &input[end + 2..]);
    let len = std::str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<i64>().ok());
    match line[0] {
        b'$' if len? >= 0 => {
            let whole = end + 4 + len? as usize;
            let leaf = Tree::Leaf(input.get(..whole)?.to_vec());
            *input = &input[whole..];
            Some(leaf)
        }
        mark @ (b'*' | b'%') if len? >= 0 => {
            *input = rest;
            let count = if mark == b'%' { 2 * len? } else { len? };
            let items = (0..count).map(|_| tree(input)).collect::<Option<_>>()?;
            Some(Tree::Array(mark, items))
        }
        _ => {
            *input = rest;
            Some(Tree::Leaf(line.to_vec()))
        }
    }
}

fn read(stream: &mut TcpStream) -> Tree {
    let mut bytes = Vec::new();
    let mut chunk = [0; 65536];
    loop {
        if let Some(tree) = tree(&mut &bytes[..]) {
            return tree;
        }
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "Redis closed the connection");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

/// What may differ: the order of keys and fields, and how much of a time to live is left.
fn normal(command: &str, reply: Tree) -> Tree {
    let sorted = |mut items: Vec<Tree>, width: usize| {
        let mut groups: Vec<_> = items.chunks_mut(width).map(|group| group.to_vec()).collect();
        groups.sort();
        groups.concat()
    };
    match (command, reply) {
        ("KEYS" | "HKEYS" | "HVALS", Tree::Array(mark, items)) => Tree::Array(mark, sorted(items, 1)),
        ("HGETALL", Tree::Array(mark, items)) => Tree::Array(mark, sorted(items, 2)),
        ("HSCAN", Tree::Array(mark, mut items)) => {
            if let Some(Tree::Array(mark, pairs)) = items.pop() {
                items.push(Tree::Array(mark, sorted(pairs, 2)));
            }
            Tree::Array(mark, items)
        }
        // Which keys come in which part is not said by Redis.
        ("SCAN", Tree::Array(..)) => Tree::Leaf(b"keys".to_vec()),
        // Our clock stands still at another time; what was set relative to it begins with a one.
        ("EXPIRETIME" | "PEXPIRETIME", Tree::Leaf(text)) if text.starts_with(b":1") => {
            Tree::Leaf(b"then".to_vec())
        }
        ("TTL" | "PTTL", Tree::Leaf(text)) if text.len() > 3 => Tree::Leaf(b"later".to_vec()),
        (_, reply) => reply,
    }
}

#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    "SET", "SET", "SET", "GET", "GET", "GETSET", "GETDEL", "SETNX", "SETEX", "PSETEX", "MSET", "MSETNX",
    "MGET", "DEL", "UNLINK", "EXISTS", "TOUCH", "INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "APPEND",
    "STRLEN", "GETRANGE", "SUBSTR", "TTL", "PTTL", "EXPIREAT", "PEXPIREAT", "EXPIRETIME", "PEXPIRETIME",
    "EXPIRE", "PEXPIRE", "PERSIST", "TYPE", "HSET", "HSETNX", "HMSET", "HGET", "HMGET", "HGETALL", "HDEL",
    "HLEN", "HEXISTS", "HKEYS", "HVALS", "HINCRBY", "HSTRLEN", "HSCAN", "SCAN", "KEYS", "DBSIZE",
    "FLUSHALL", "MULTI", "EXEC", "DISCARD", "WATCH", "WATCH", "WATCH", "MULTI", "EXEC", "EXEC", "UNWATCH",
    "ECHO", "PING", "SELECT", "NOSUCH", "nosuch\r\nline", "CLIENT", "COMMAND", "AUTH", "HELLO",
];

#[rustfmt::skip]
const ARGUMENTS: &[&str] = &[
    "k", "k", "k", "j", "j", "h", "h", "n", "n", "", "a\r\nb\0c", "f", "f", "g", "v", "hello", "10", "-1",
    "0", "1", "007", "+5", " 1", "1.5", "-2.5e3", "nan", "inf", "-inf", "1e400", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "9999999999", "EX", "PX", "EXAT", "PXAT", "NX", "XX",
    "GET", "KEEPTTL", "MATCH", "COUNT", "*", "[a-k]", "?", "GETNAME", "SETNAME", "nope", "ASYNC",
];

/// Commands for which the usual number of arguments is not the smallest.
fn usual(command: &str) -> u64 {
    match command {
        "MULTI" | "EXEC" | "DISCARD" | "UNWATCH" | "DBSIZE" | "FLUSHALL" | "PING" => 0,
        "SET" | "SETNX" | "GETSET" | "APPEND" | "INCRBY" | "DECRBY" | "INCRBYFLOAT" | "HGET" | "HDEL"
        | "HEXISTS" | "HSTRLEN" | "EXPIREAT" | "PEXPIREAT" | "EXPIRE" | "PEXPIRE" | "MSET" | "MSETNX"
        | "MGET" | "HSCAN" => 2,
        "SETEX" | "PSETEX" | "GETRANGE" | "SUBSTR" | "HSET" | "HSETNX" | "HMSET" | "HMGET" | "HINCRBY" => 3,
        _ => 1,
    }
}

fn draw(random: &mut Random) -> Vec<&'static str> {
    let command = COMMANDS[random.range(0..COMMANDS.len() as u64) as usize];
    let count = match random.range(0..6) {
        0 => random.range(0..6),
        1 => usual(command) + random.range(0..4),
        _ => usual(command),
    };
    let mut words = vec![command];
    words.extend((0..count).map(|_| ARGUMENTS[random.range(0..ARGUMENTS.len() as u64) as usize]));
    words
}

/// What we do not have, and say so, or say on purpose otherwise.
fn intended(words: &[&str]) -> bool {
    let is =
        |index: usize, word: &str| words.get(index).is_some_and(|found| found.eq_ignore_ascii_case(word));
    // A few milliseconds pass for Redis, and do not pass for us.
    let soon = words.iter().any(|word| ["1", "10"].contains(word));
    match words[0] {
        "PSETEX" | "PEXPIRE" if soon => true,
        "SET" if soon => words.contains(&"PX"),
        // Conditions of EXPIRE.
        "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => words.len() > 3,
        // One database.
        "SELECT" => !is(1, "0") && !is(1, "nope"),
        // Cursors that were never given out; options after a key that is not there.
        "SCAN" => !is(1, "0"),
        "HSCAN" => words.len() > 3,
        // Their tables are their own; greetings carry numbers of connections.
        "COMMAND" => words.len() < 2 || !is(1, "nope"),
        "HELLO" => words.len() < 2 || is(1, "2") || is(1, "3"),
        "CLIENT" => is(1, "ID") || is(1, "INFO") || is(1, "LIST"),
        _ => false,
    }
}

#[test]
#[ignore = "needs redis-server 7.0"]
fn replies_are_those_of_redis() {
    let redis = Redis::start();
    let mut stream = redis.connect();
    let (mut compared, mut aborted, mut executed) = (0, 0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut node = Node::new();
        let mut connection = node.connect();
        for start in [&b"RESET\r\n"[..], b"FLUSHALL\r\n"] {
            stream.write_all(start).unwrap();
            read(&mut stream);
        }
        let (mut said, mut queued): (Vec<Vec<&str>>, Vec<&str>) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let words = draw(&mut random);
            if intended(&words) {
                continue;
            }
            let bytes = request(&words);
            stream.write_all(&bytes).unwrap();
            let theirs = normal(words[0], read(&mut stream));
            node.send(&mut connection, &bytes);
            let ours = node.settle(&mut connection);
            let ours = normal(words[0], tree(&mut &ours[..]).expect("a whole reply"));
            // What did not exist, came and went has not changed, we say; Redis says it has. From here on states differ.
            if words[0] == "EXEC" && theirs == Tree::Leaf(b"*-1".to_vec()) {
                if theirs != ours {
                    executed += 1;
                    break;
                }
                aborted += 1;
            }
            // The replies of a transaction may differ as those of its commands may.
            let unravel = |tree: Tree| match tree {
                Tree::Array(mark, items) if words[0] == "EXEC" && items.len() == queued.len() => Tree::Array(
                    mark,
                    queued.iter().zip(items).map(|(name, item)| normal(name, item)).collect(),
                ),
                tree => tree,
            };
            let (theirs, ours) = (unravel(theirs), unravel(ours));
            match (&ours, words[0]) {
                (Tree::Leaf(text), name) if text == b"+QUEUED" => queued.push(name),
                (Tree::Leaf(text), "MULTI") if text == b"+OK" => queued.clear(),
                _ => {}
            }
            let same = theirs == ours;
            said.push(words);
            let from = said.len().saturating_sub(12);
            assert!(
                same,
                "seed {seed}: theirs {}\nours {}\nafter {:?}",
                show(&theirs),
                show(&ours),
                &said[from..]
            );
            compared += 1;
        }
    }
    assert!(compared > 50_000, "{compared} commands compared");
    assert!(aborted > 4 * executed, "{aborted} transactions aborted by both, {executed} by Redis alone");
}

fn show(tree: &Tree) -> String {
    match tree {
        Tree::Leaf(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Tree::Array(_, items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
    }
}
