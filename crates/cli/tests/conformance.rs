//! The same requests to Quorate and to Redis 7.0 (Debian's `redis-server`), as real processes: the same replies,
//! byte for byte, but for the intended differences, which are in `conformance/differences.rs` and nowhere else.

#[path = "conformance/differences.rs"]
mod differences;
#[path = "conformance/generate.rs"]
mod generate;
mod support;
#[path = "conformance/wire.rs"]
mod wire;

use std::collections::{BTreeSet, VecDeque};

use generate::{CONNECTIONS, Generator, RESP3, Turn};
use support::{Cluster, wait_for};
use wire::{Connection, Redis, Request, Tree, encode, show, show_request};

/// How many requests are compared at least, over how many seeds.
const REQUESTS: usize = 250_000;
const SEEDS: u64 = 50;

/// Both servers.
struct Pair {
    redis: Redis,
    cluster: Cluster,
}

impl Pair {
    fn start() -> Pair {
        let redis = Redis::start();
        Pair { redis, cluster: Cluster::start_with(1, "multipaxos", &["--durability", "os"]) }
    }

    /// A connection to each: theirs, ours.
    fn connect(&self) -> [Connection; 2] {
        let open = |address: &str| Connection::open(address).expect("the server listens");
        [open(&self.redis.address), open(&self.cluster.nodes[0].resp)]
    }
}

/// A connection to each server, and what is known of its transaction.
struct Line {
    servers: [Connection; 2],
    queued: Option<Vec<Request>>,
    seen: Seen,
}

/// How often both servers gave some kinds of replies: a comparison of errors only would show little.
#[derive(Debug, Default)]
struct Seen {
    errors: usize,
    executed: usize,
    aborted: usize,
}

impl Line {
    /// Sends requests to both servers; `Err` tells of the first reply that differs.
    fn say(&mut self, requests: &[Request], said: &mut VecDeque<Request>) -> Result<(), String> {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        self.servers.iter_mut().for_each(|server| server.send(&bytes));
        for (index, request) in requests.iter().enumerate() {
            said.push_back(request.clone());
            if said.len() > 12 {
                said.pop_front();
            }
            let [theirs, ours] = self.servers.each_mut().map(Connection::receive);
            let (Some(theirs), Some(ours)) = (theirs, ours) else {
                return Err(format!("a server closed the connection after {}", show_request(request)));
            };
            if !self.agree(request, theirs.clone(), ours.clone()) {
                // What was sent along is still to be answered.
                for server in &mut self.servers {
                    requests[index + 1..].iter().for_each(|_| drop(server.receive()));
                }
                let last: String = said.iter().map(|r| format!("\n  {}", show_request(r))).collect();
                return Err(format!("Redis: {}\nours:  {}\nafter{last}", show(&theirs), show(&ours)));
            }
        }
        Ok(())
    }

    fn agree(&mut self, request: &Request, theirs: Tree, ours: Tree) -> bool {
        let queued = self.queued.take();
        let name = differences::name(request);
        self.seen.errors += usize::from(theirs.text().starts_with('-'));
        self.seen.executed += usize::from(name == "EXEC" && matches!(theirs, Tree::Node(..)));
        self.seen.aborted += usize::from(name == "EXEC" && (theirs.is("*-1") || theirs.is("_")));
        if theirs.is("+QUEUED") {
            let mut queued = queued.unwrap_or_default();
            queued.push(request.clone());
            self.queued = Some(queued);
            return theirs == ours;
        }
        match (&name[..], theirs, ours) {
            ("EXEC", Tree::Node(mark, theirs), Tree::Node(our_mark, ours)) => {
                let requests = queued.unwrap_or_default();
                mark == our_mark
                    && theirs.len() == ours.len()
                    && theirs.len() == requests.len()
                    && theirs
                        .into_iter()
                        .zip(ours)
                        .zip(requests)
                        .all(|((a, b), request)| same(&request, a, b))
            }
            (name, theirs, ours) => {
                let ended = matches!(name, "EXEC" | "DISCARD" | "RESET" | "MULTI") && !theirs.is(NESTED);
                self.queued = if ended { None } else { queued };
                same(request, theirs, ours)
            }
        }
    }
}

const NESTED: &str = "-ERR MULTI calls can not be nested";

fn same(request: &Request, theirs: Tree, ours: Tree) -> bool {
    let [theirs, ours] = [theirs, ours].map(|reply| differences::compared(request, reply));
    differences::same(request, &theirs, &ours)
}

fn words(texts: &[&str]) -> Request {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn random_requests_get_the_replies_of_redis() {
    let pair = Pair::start();
    let mut lines =
        [(); CONNECTIONS].map(|()| Line { servers: pair.connect(), queued: None, seen: Seen::default() });
    let (mut compared, mut mismatches) = (0, Vec::new());
    for seed in 0..SEEDS {
        let mut said = VecDeque::new();
        for (index, line) in lines.iter_mut().enumerate() {
            let version = if index == RESP3 { "3" } else { "2" };
            let start = [words(&["RESET"]), words(&["HELLO", version]), words(&["FLUSHALL"])];
            line.queued = None;
            line.say(&start, &mut said).expect("both start anew");
        }
        let mut generator = Generator::new(seed);
        let mut sent = 0;
        while sent < REQUESTS / SEEDS as usize {
            let result = generator.turns().iter().try_for_each(|Turn { connection, requests }| {
                sent += requests.len();
                lines[*connection].say(requests, &mut said)
            });
            if let Err(mismatch) = result {
                mismatches.push(format!("seed {seed}: {mismatch}"));
                break;
            }
        }
        compared += sent;
    }
    let seen = lines.map(|line| line.seen);
    let sum = |count: fn(&Seen) -> usize| seen.iter().map(count).sum::<usize>();
    let (errors, executed, aborted) = (sum(|s| s.errors), sum(|s| s.executed), sum(|s| s.aborted));
    println!(
        "{compared} requests, {errors} errors, {executed} transactions executed, {aborted} aborted by a watch"
    );
    assert!(
        mismatches.is_empty(),
        "{}\n{} of {SEEDS} seeds differ, and not by what is intended:{}",
        mismatches.join("\n\n"),
        mismatches.len(),
        differences::reasons()
    );
    assert!(compared >= REQUESTS && errors < compared / 2, "{errors} errors in {compared} replies");
    assert!(executed > 1000 && aborted > 100, "{executed} transactions executed, {aborted} aborted");
}

#[test]
fn scans_return_the_keys_that_redis_returns() {
    let pair = Pair::start();
    let [mut theirs, mut ours] = pair.connect();
    for server in [&mut theirs, &mut ours] {
        for n in 0..300 {
            let (key, field) = (format!("key:{n}"), format!("field:{n}"));
            server.ask(&[b"SET", key.as_bytes(), b"v"]);
            server.ask(&[b"HSET", b"hash", field.as_bytes(), b"v"]);
            server.ask(&[b"HSET", format!("hash:{}", n % 7).as_bytes(), field.as_bytes(), b"v"]);
        }
    }
    for options in [
        &[][..],
        &["COUNT", "1"],
        &["COUNT", "37", "MATCH", "*[1-3]"],
        &["MATCH", "*:1?", "count", "1000"],
        &["TYPE", "hash"],
        &["TYPE", "STRING", "COUNT", "7", "MATCH", "*9*"],
        &["TYPE", "list"],
    ] {
        let found = [&mut theirs, &mut ours].map(|server| scan(server, &["SCAN"], options));
        assert!(found[0] == found[1], "SCAN {options:?}");
        if !options.contains(&"TYPE") {
            let found = [&mut theirs, &mut ours].map(|server| scan(server, &["HSCAN", "hash"], options));
            assert!(found[0] == found[1] && !found[0].is_empty(), "HSCAN {options:?}");
        }
    }
}

/// Everything that a scan returns from its start to its end.
fn scan(server: &mut Connection, command: &[&str], options: &[&str]) -> BTreeSet<Tree> {
    let mut found = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let request = words(&[command, &[&cursor], options].concat());
        let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let Tree::Node(_, parts) = server.ask(&request) else { panic!("{command:?} has a reply") };
        let [next, Tree::Node(_, items)] = &parts[..] else { panic!("a cursor and what was found") };
        found.extend(items.iter().cloned());
        cursor = next.text().lines().nth(1).unwrap_or_default().to_owned();
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn keys_expire_as_they_do_in_redis() {
    let pair = Pair::start();
    let mut servers = pair.connect();
    let requests: [&[&str]; 6] = [
        &["SET", "a", "v", "PX", "30"],
        &["PSETEX", "b", "30", "v"],
        &["HSET", "c", "f", "v"],
        &["PEXPIRE", "c", "30"],
        &["SET", "d", "v"],
        &["GETEX", "d", "PX", "30"],
    ];
    for request in requests {
        let request = words(request);
        let bytes: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let [theirs, ours] = servers.each_mut().map(|server| server.ask(&bytes));
        assert_eq!(theirs, ours, "{}", show_request(&request));
    }
    for server in &mut servers {
        wait_for("keys to expire", || {
            let left = server.ask(&[b"EXISTS", b"a", b"b", b"c", b"d"]);
            left.is(":0").then_some(())
        });
        assert!(server.ask(&[b"TTL", b"a"]).is(":-2") && server.ask(&[b"DBSIZE"]).is(":0"));
    }
}

#[test]
fn what_is_no_request_ends_a_connection_as_in_redis() {
    let pair = Pair::start();
    let long = "x".repeat(70_000);
    for input in [
        "QUIT\r\n",
        "quit now\r\nPING\r\n",
        "PING\r\n\r\n  \r\nECHO \"a\\x41\\n\" \r\nECHO 'it\\'s'\r\nQUIT\r\n",
        "*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*x\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$x\r\n",
        "*1\r\n$536870913\r\n",
        "*2147483648\r\n",
        "*1\r\n:1\r\n",
        "*1\r\nPING\r\n",
        "SET k \"a\r\n",
        "SET k \"a\"b\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        "Host: x\r\n",
        &long,
        &format!("*{long}"),
        &format!("*1\r\n${long}"),
        "MULTI\r\nSET k v\r\nQUIT\r\nEXEC\r\n",
    ] {
        let [theirs, ours] = pair.connect().map(|mut server| {
            server.send(input.as_bytes());
            std::iter::from_fn(|| server.receive()).map(|reply| reply.text()).collect::<Vec<_>>()
        });
        assert_eq!(theirs, ours, "{:.80}", input.escape_debug().to_string());
    }
}
