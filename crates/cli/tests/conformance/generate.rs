//! Random requests, over few keys so that they meet. A seed gives the same requests everywhere.
//!
//! Most are well formed; some have a word too many, too few, or out of place. Nothing in them depends on how fast
//! the servers are: what expires does so long ago or long after the test.

use quorate_core::Random;

use crate::differences;
use crate::wire::{FORGOTTEN, Request};

/// The connections of a server: they speak RESP2, RESP3 and RESP2. The last one interferes with the others.
pub const CONNECTIONS: usize = 3;
pub const RESP3: usize = 1;
const INTERFERER: usize = 2;

/// Requests that are sent to one connection without waiting for replies in between.
#[derive(Debug)]
pub struct Turn {
    pub connection: usize,
    pub requests: Vec<Request>,
}

pub struct Generator {
    random: Random,
    /// Expiries so far: each is another one, so that no two are close.
    expiries: u64,
}

const STRINGS: [&[u8]; 5] = [b"s1", b"s2", b"s3", b"", b"a\r\nb\0\xffc"];
const NUMBERS: [&[u8]; 3] = [b"n1", b"n2", b"n*[3]"];
const HASHES: [&[u8]; 4] = [b"h1", b"h2", b"h\\3", b"H1"];
const FIELDS: [&[u8]; 7] = [b"f", b"g", b"n", b"m", b"", b"\0\r\n", b"F"];

#[rustfmt::skip]
const INTEGERS: &[&str] = &[
    "0", "1", "-1", "2", "7", "10", "-10", "100", "12345678901", "9223372036854775807", "-9223372036854775808",
    "9223372036854775806", "-9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "99999999999999999999999", "007", "+5", " 1", "1 ", "-0", "-", "", "1.0", "1e3", "0x10", "abc", "\u{661}",
];

#[rustfmt::skip]
const FLOATS: &[&str] = &[
    "1.5", "-2.5e3", "3", "0.1", "0.2", "-0.1", ".5", "5.", "1e17", "1e-17", "0.00000000000000001",
    "123456789.123456789", "1e400", "1e4932", "-1e4932", "1e5000", "1e-5000", "9223372036854775807", "-0", "+1",
    "0x1A", "0x1p-3", "0X1.8P+1", "0x", "0x1p", "nan", "NaN", "-nan", "nan(1)", "inf", "-inf", "+Inf",
    "infinity", "INFINITY", "1e", "1e+", "e1", ".", " 1", "1 ", "1,5", "", "abc", "1.2.3", "1f", "00.50",
];

#[rustfmt::skip]
const PATTERNS: &[&str] = &[
    "*", "*", "?", "??", "s*", "[sn]?", "[^h]*", "[^a-m]*", "h\\*", "h\\\\3", "*1", "**1**", "n\\*\\[3\\]",
    "[a-", "[", "[]", "[]*", "[^]*", "[z-a]*", "[s-][12]", "\\", "*\\", "", "H*", "*b*c", "a\r*", "[\\h]1",
    "[1-", "[h-n-s]1",
];

/// What a word may be replaced with.
#[rustfmt::skip]
const ODD: &[&str] = &[
    "", "0", "-1", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "nan", "inf", "1.5",
    "0x10", "abc", " ", "NX", "xx", "GET", "KEEPTTL", "ex", "PX", "EXAT", "pxat", "PERSIST", "GT", "LT",
    "MATCH", "COUNT", "TYPE", "ASYNC", "s1", "h1", "n1", "f", "a b", "'", "\"", "\r\n", "é",
];

/// Each as often as it stands here.
#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    "SET", "SET", "SET", "SET", "SET", "SET", "GET", "GET", "GET", "SETNX", "SETEX", "PSETEX", "GETSET",
    "GETDEL", "GETEX", "GETEX", "GETEX", "MGET", "MSET", "MSETNX", "DEL", "UNLINK", "EXISTS", "INCR", "DECR",
    "INCRBY", "INCRBY", "DECRBY", "INCRBYFLOAT", "INCRBYFLOAT", "APPEND", "STRLEN", "GETRANGE", "SUBSTR",
    "SETRANGE", "SETRANGE", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "EXPIRE", "EXPIRE", "PEXPIRE",
    "PEXPIRE", "EXPIREAT", "EXPIREAT", "PEXPIREAT", "PEXPIREAT", "PERSIST", "TYPE", "TOUCH", "HSET", "HSET",
    "HSET", "HSETNX", "HMSET", "HGET", "HMGET", "HGETALL", "HDEL", "HLEN", "HEXISTS", "HKEYS", "HVALS",
    "HSTRLEN", "HINCRBY", "HINCRBY", "HINCRBYFLOAT", "HINCRBYFLOAT", "SCAN", "SCAN", "KEYS", "HSCAN", "HSCAN",
    "DBSIZE", "RANDOMKEY", "ECHO", "PING", "SELECT", "TIME", "HELLO", "CLIENT", "COMMAND", "CONFIG", "INFO",
    "AUTH", "EXEC", "DISCARD", "UNWATCH", "NOSUCH",
];

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { random: Random::new(seed), expiries: 0 }
    }

    /// What follows, turn by turn: an ordinary turn, or a transaction on watched keys that another connection may
    /// change before it is executed.
    pub fn turns(&mut self) -> Vec<Turn> {
        let connection = self.random.range(0..INTERFERER as u64) as usize;
        if !self.random.chance(0.3) {
            let requests = self.ordinary();
            return vec![Turn { connection, requests }];
        }
        let count = self.random.range(1..4);
        let mut watch = words(&["WATCH"]);
        watch.extend((0..count).map(|_| self.any_key()));
        let mut first = vec![words(&["DISCARD"]), words(&["UNWATCH"]), watch.clone()];
        if self.random.chance(0.1) {
            first.push(self.odd(watch.clone()));
        }
        let mut turns = vec![Turn { connection, requests: first }];
        if self.random.chance(0.7) {
            // One command: with two, a key could come and go.
            let mut interference = Vec::new();
            loop {
                interference.clear();
                self.request(&mut interference);
                let hits = interference[0].get(1).is_some_and(|key| watch[1..].contains(key));
                if interference.len() == 1 && (hits || self.random.chance(0.02)) {
                    break;
                }
            }
            turns.push(Turn { connection: INTERFERER, requests: interference });
        }
        let mut last = Vec::new();
        self.transaction(&mut last);
        turns.push(Turn { connection, requests: last });
        turns
    }

    fn ordinary(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        let count = self.random.range(1..100) as usize;
        let mut bytes = 0;
        // No more than sockets hold: both servers are written to before they are read from.
        while requests.len() < count && bytes < 300_000 {
            let before = requests.len();
            match self.random.range(0..400) {
                0 => requests.push(words(&["FLUSHALL"])),
                1 => requests.push(words(&["FLUSHDB", "ASYNC"])),
                2 => requests.push(words(&["MULTI"])),
                3..15 => self.transaction(&mut requests),
                _ => self.request(&mut requests),
            }
            bytes += requests[before..].iter().flatten().map(Vec::len).sum::<usize>();
        }
        requests
    }

    fn transaction(&mut self, out: &mut Vec<Request>) {
        out.push(words(&["MULTI"]));
        // Here only: after an EXEC it would last, and its key could come and go.
        if self.random.chance(0.1) {
            out.push(words(&["WATCH", "s1"]));
        }
        for _ in 0..self.random.range(0..8) {
            match self.random.range(0..40) {
                0 => out.push(words(&["MULTI"])),
                1 => out.push(words(&["FLUSHALL"])),
                _ => self.request(out),
            }
        }
        let end = *self.random.pick(&["EXEC", "EXEC", "EXEC", "EXEC", "EXEC", "DISCARD", "EXEC now"]);
        match end {
            "EXEC now" => out.push(words(&["EXEC", "now"])),
            end => out.push(words(&[end])),
        }
    }

    /// A request that may be sent, and what has to follow on it.
    fn request(&mut self, out: &mut Vec<Request>) {
        loop {
            let mut request = self.well_formed();
            if self.random.chance(0.12) {
                request = self.odd(request);
            }
            if self.random.chance(0.2) {
                let random = &mut self.random;
                request[0].iter_mut().for_each(|byte| {
                    if random.chance(0.5) {
                        byte.make_ascii_lowercase();
                    }
                });
            }
            if differences::not_sent(&request) {
                continue;
            }
            let name = request[0].to_ascii_uppercase();
            // Redis counts a key that has expired until somebody looks at it.
            let look = name == b"SET" && request.len() > 4;
            let key = request.get(1).cloned();
            out.push(request);
            if let (true, Some(key)) = (look, key) {
                out.push(vec![b"EXISTS".to_vec(), key]);
            }
            return;
        }
    }

    /// The request with some word changed, gone or added.
    fn odd(&mut self, mut request: Request) -> Request {
        let odd = self.one(ODD);
        let index = self.random.range(1..request.len() as u64 + 1) as usize;
        match self.random.range(0..4) {
            0 => request.insert(index, odd),
            1 if request.len() > 1 => {
                request.pop();
            }
            2 => request.push(odd),
            _ if index < request.len() => request[index] = odd,
            _ => request.push(odd),
        }
        request
    }

    fn well_formed(&mut self) -> Request {
        let name = *self.random.pick::<&str>(COMMANDS);
        let mut out = words(&[name]);
        match name {
            "GET" | "GETDEL" | "STRLEN" => out.push(self.string()),
            "SET" => {
                out.extend([self.string_or_number(), self.value()]);
                self.set_options(&mut out);
            }
            "SETNX" | "GETSET" | "APPEND" => out.extend([self.string(), self.value()]),
            "SETEX" => out.extend([self.string(), self.seconds(), self.value()]),
            "PSETEX" => out.extend([self.string(), self.milliseconds(), self.value()]),
            "GETEX" => {
                out.push(self.string());
                self.expiry_options(&mut out, "PERSIST");
            }
            "MGET" | "DEL" | "UNLINK" | "EXISTS" | "TOUCH" => {
                let few = if name.starts_with(['D', 'U']) { 2 } else { 5 };
                for _ in 0..self.random.range(1..few) {
                    out.push(self.any_key());
                }
            }
            "MSET" | "MSETNX" => {
                for _ in 0..self.random.range(1..4) {
                    out.extend([self.any_key(), self.value()]);
                }
            }
            "INCR" | "DECR" => out.push(self.number()),
            "INCRBY" | "DECRBY" => out.extend([self.number(), self.integer()]),
            "INCRBYFLOAT" => out.extend([self.number(), self.float()]),
            "GETRANGE" | "SUBSTR" => out.extend([self.string(), self.position(), self.position()]),
            "SETRANGE" => {
                let offset = match self.random.range(0..8) {
                    0 => self.integer(),
                    1 => self.random.range(0..5000).to_string().into_bytes(),
                    _ => self.random.range(0..20).to_string().into_bytes(),
                };
                out.extend([self.string(), offset, self.value()]);
            }
            "TTL" | "PTTL" | "EXPIRETIME" | "PEXPIRETIME" | "PERSIST" | "TYPE" => out.push(self.any_key()),
            "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => {
                let time = match name {
                    "EXPIRE" => self.seconds(),
                    "PEXPIRE" => self.milliseconds(),
                    name => self.moment(name == "EXPIREAT"),
                };
                out.extend([self.any_key(), time]);
                let options = if self.random.chance(0.5) { 0 } else { self.random.range(1..4) };
                for _ in 0..options {
                    out.push(self.one(&["NX", "XX", "GT", "LT", "gt", "lt", "Nx"]));
                }
            }
            "HSET" | "HMSET" => {
                out.push(self.hash());
                for _ in 0..self.random.range(1..4) {
                    out.extend([self.field(), self.value()]);
                }
            }
            "HSETNX" => out.extend([self.hash(), self.field(), self.value()]),
            "HGET" | "HEXISTS" | "HSTRLEN" => out.extend([self.hash(), self.field()]),
            "HMGET" | "HDEL" => {
                out.push(self.hash());
                for _ in 0..self.random.range(1..4) {
                    out.push(self.field());
                }
            }
            "HGETALL" | "HLEN" | "HKEYS" | "HVALS" => out.push(self.hash()),
            "HINCRBY" => out.extend([self.hash(), self.field(), self.integer()]),
            "HINCRBYFLOAT" => out.extend([self.hash(), self.field(), self.float()]),
            "SCAN" | "HSCAN" => {
                if name == "HSCAN" {
                    out.push(self.hash());
                }
                out.push(b"0".to_vec());
                self.scan_options(&mut out);
            }
            "KEYS" => out.push(self.one(PATTERNS)),
            "ECHO" => out.push(self.value()),
            _ => self.server(name, &mut out),
        }
        out
    }

    fn server(&mut self, name: &str, out: &mut Request) {
        let arguments: &[&str] = match name {
            "PING" => &["", "", "hello", "a b"],
            "SELECT" => &["0", "0", "-1", "99999", "x", "2147483648", "9223372036854775808"],
            "HELLO" => &[
                "",
                "2",
                "3",
                "4",
                "x",
                "2 SETNAME",
                "2 SETNAME me",
                "3 AUTH default x SETNAME you",
                "3 NOPE",
            ],
            "CLIENT" => &[
                "GETNAME",
                "SETNAME me",
                "SETNAME",
                "setname a\u{7f}b",
                "NOPE",
                "",
                "ID",
                "NO-EVICT on",
                "NO-EVICT maybe",
                "LIST nope",
                "LIST ID x",
                "LIST ID -1",
                "LIST TYPE x",
                "LIST TYPE pubsub",
                "SETNAME ",
                "INFO x",
            ],
            "COMMAND" => &["nope", "INFO nope", "COUNT nope", "DOCS nope"],
            "CONFIG" => {
                &["GET nope", "GET", "NOPE", "", "GET maxmemory", "GET save timeout", "GET MAXMEMORY-*icy"]
            }
            "INFO" => &["nope", "NOPE nope"],
            "AUTH" => &["x", "default x", "somebody x", "a b c", ""],
            "NOSUCH" => {
                out[0] = match self.random.range(0..4) {
                    0 => self.one(&["NOSUCH", "GE", "GETT", "nosuch\r\nline", "", "no\0such", "get "]),
                    1 => vec![b'x'; self.random.range(1..300) as usize],
                    _ => self.one(&FORGOTTEN),
                };
                for _ in 0..self.random.range(0..5) {
                    out.push(self.value());
                }
                return;
            }
            _ => return,
        };
        let chosen = *self.random.pick::<&str>(arguments);
        if !chosen.is_empty() {
            out.extend(chosen.split(' ').map(word));
        }
    }

    fn set_options(&mut self, out: &mut Request) {
        for _ in 0..self.random.range(0..3) {
            match self.random.range(0..6) {
                0..2 => self.expiry_options(out, "KEEPTTL"),
                2 => out.push(word("NX")),
                3 => out.push(word("xx")),
                _ => out.push(word("GET")),
            }
        }
    }

    fn expiry_options(&mut self, out: &mut Request, alone: &str) {
        match self.random.range(0..7) {
            0 => out.push(word(alone)),
            1 => out.extend([word("EX"), self.seconds()]),
            2 => out.extend([word("px"), self.milliseconds()]),
            3 => out.extend([word("ExAt"), self.moment(true)]),
            4 => out.extend([word("PXAT"), self.moment(false)]),
            _ => {}
        }
    }

    fn scan_options(&mut self, out: &mut Request) {
        for _ in 0..self.random.range(0..3) {
            match self.random.range(0..6) {
                0 => out.extend([word("COUNT"), self.one(&["0", "-1", "x", "", "1.5"])]),
                1 => out.extend([
                    word("TYPE"),
                    self.one(&["string", "hash", "HASH", "list", "nope", "zset", ""]),
                ]),
                2..4 => out.extend([word("match"), self.one(PATTERNS)]),
                _ => out.extend([word("Count"), word("100000")]),
            }
        }
        // The whole of it, as far as nothing before was wrong.
        out.extend([word("COUNT"), word("100000")]);
    }

    fn one(&mut self, texts: &[&str]) -> Vec<u8> {
        word(self.random.pick::<&str>(texts))
    }

    fn string(&mut self) -> Vec<u8> {
        self.mostly(&STRINGS)
    }

    fn number(&mut self) -> Vec<u8> {
        self.mostly(&NUMBERS)
    }

    fn hash(&mut self) -> Vec<u8> {
        self.mostly(&HASHES)
    }

    fn string_or_number(&mut self) -> Vec<u8> {
        if self.random.chance(0.3) { self.number() } else { self.string() }
    }

    fn mostly(&mut self, keys: &[&[u8]]) -> Vec<u8> {
        if self.random.chance(0.06) { self.any_key() } else { self.random.pick(keys).to_vec() }
    }

    fn any_key(&mut self) -> Vec<u8> {
        match self.random.range(0..60) {
            0 => vec![b'k'; 60_000],
            1..25 => self.random.pick(&STRINGS).to_vec(),
            25..40 => self.random.pick(&NUMBERS).to_vec(),
            _ => self.random.pick(&HASHES).to_vec(),
        }
    }

    fn field(&mut self) -> Vec<u8> {
        self.random.pick(&FIELDS).to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.range(0..200) {
            0 => vec![b'v'; self.random.range(60_000..110_000) as usize],
            1 => (0..self.random.range(0..2000)).map(|_| self.random.u64() as u8).collect(),
            2..30 => self.float(),
            30..80 => self.integer(),
            80..120 => self.one(&["0", "1", "5", "-3", "1.5", "41"]),
            _ => self.one(&["v", "hello", "", "a\r\nb", "\0", "a longer value of some forty bytes, say"]),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        if self.random.chance(0.6) {
            return (self.random.range(0..200) as i64 - 100).to_string().into_bytes();
        }
        self.one(INTEGERS)
    }

    fn float(&mut self) -> Vec<u8> {
        if self.random.chance(0.5) {
            let (whole, part) = (self.random.range(0..2000) as i64 - 1000, self.random.range(0..1000));
            return format!("{whole}.{part}").into_bytes();
        }
        self.one(FLOATS)
    }

    fn position(&mut self) -> Vec<u8> {
        if self.random.chance(0.1) {
            return self.integer();
        }
        (self.random.range(0..24) as i64 - 12).to_string().into_bytes()
    }

    /// Time to live: over and done with, out of range, or unlike any other by 1000 seconds and more.
    fn seconds(&mut self) -> Vec<u8> {
        if self.random.chance(0.25) {
            let odd = [
                "0",
                "-1",
                "-100",
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854776",
                "x",
                "1.5",
            ];
            return self.one(&odd);
        }
        self.far().to_string().into_bytes()
    }

    fn milliseconds(&mut self) -> Vec<u8> {
        if self.random.chance(0.25) {
            let odd = ["0", "-1", "-100", "9223372036854775807", "-9223372036854775808", "", "x", "1.5"];
            return self.one(&odd);
        }
        (self.far() * 1000).to_string().into_bytes()
    }

    fn moment(&mut self, seconds: bool) -> Vec<u8> {
        match self.random.range(0..8) {
            0 => self.one(&["0", "1", "-1", "1000", "-9223372036854775808", "x"]),
            1 => self.one(&["9223372036854775", "9223372036854776", "9223372036854774000"]),
            // Few, so that equal ones meet.
            n => {
                let moment = 4_102_444_800 + n;
                (if seconds { moment } else { 1000 * moment }).to_string().into_bytes()
            }
        }
    }

    fn far(&mut self) -> u64 {
        self.expiries += 1;
        differences::SOON as u64 + (self.expiries * 7919 % 100_003) * 1000
    }
}

fn word(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn words(texts: &[&str]) -> Request {
    texts.iter().map(|text| word(text)).collect()
}
