//! Clients that work without pause while things happen to the cluster, and what must hold of what they have seen: the
//! history is linearizable, and what was acknowledged is there.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_check::history::Recorder;
use quorate_check::linearizability;
use quorate_store::{Command, Condition, Expiry, Reply};

use crate::support::{Connection, Node, Resp, wait_for};

const KEYS: u64 = 8;
/// Acknowledged writes that a check looks for at least.
const TO_LOSE: usize = 50;
/// What fills values up, and ends none.
const PADDING: u8 = b'.';
/// In the history: readers, and whoever sets a key.
const READER: u64 = 100;
const SETTER: u64 = 101;

/// See the file comment.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

/// What all clients share.
struct Shared {
    start: Instant,
    stop: AtomicBool,
    recorder: Mutex<Recorder>,
    /// Successful operations so far.
    done: AtomicU64,
    /// Keys that one client wrote once, and the write was acknowledged.
    acknowledged: Mutex<Vec<String>>,
    /// Bytes of each value that is set; 0: as few as tell it from others.
    value_bytes: usize,
}

impl Shared {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// A value as it is sent; the history has it without what fills it up.
    fn pad(&self, value: &[u8]) -> Vec<u8> {
        let mut padded = value.to_vec();
        padded.resize(self.value_bytes.max(value.len()), PADDING);
        padded
    }

    fn translate(&self, reply: Resp) -> Reply {
        match reply {
            Resp::Simple(text) if text == "OK" => Reply::Done,
            Resp::Integer(number) => Reply::Integer(number),
            Resp::Bulk(mut bytes) => {
                let len = bytes.len();
                let unpadded = bytes.iter().rposition(|byte| *byte != PADDING).map_or(0, |last| last + 1);
                bytes.truncate(unpadded);
                assert!(unpadded == len || len == self.value_bytes, "a value of {len} bytes");
                Reply::Value(Some(bytes.into()))
            }
            Resp::Nil => Reply::Value(None),
            other => panic!("{other:?} is no reply to what was asked"),
        }
    }
}

impl Load {
    /// Starts a client for each list of addresses: it stays with one until that fails, then takes the next.
    pub fn start(addresses: impl IntoIterator<Item = Vec<String>>) -> Load {
        Load::start_with_values(0, addresses)
    }

    /// The same, with values of so many bytes; nothing is appended to those.
    pub fn start_with_values(value_bytes: usize, addresses: impl IntoIterator<Item = Vec<String>>) -> Load {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            recorder: Mutex::new(Recorder::default()),
            done: AtomicU64::new(0),
            acknowledged: Mutex::new(Vec::new()),
            value_bytes,
        });
        let client = |(id, addresses): (u64, Vec<String>)| {
            let shared = shared.clone();
            thread::spawn(move || client(id, &addresses, &shared))
        };
        let clients = (0..).zip(addresses).map(client).collect();
        Load { shared, clients }
    }

    /// Has a key set at one node, once.
    pub fn set(&self, address: &str, key: &str, value: &str) {
        let (key, value) = (Bytes::from(key.to_owned()), Bytes::from(value.to_owned()));
        let invoke = |now| self.shared.recorder.lock().unwrap().invoke(SETTER, put(&key, &value), now);
        let invocation = invoke(self.shared.now());
        let reply = Connection::open(address).unwrap().call(&[b"SET", &key, &value]).unwrap();
        self.shared.recorder.lock().unwrap().returned(
            invocation,
            self.shared.translate(reply),
            self.shared.now(),
        );
    }

    /// One more client, which does nothing but read a key of one node, and looks at its watch.
    pub fn read(&self, address: &str, key: &str) -> Reader {
        let pauses = Arc::new(Mutex::new(Pauses { last: Instant::now(), longest: Duration::ZERO }));
        let (shared, address, key) = (self.shared.clone(), address.to_owned(), Bytes::from(key.to_owned()));
        let reader = Reader { pauses: pauses.clone() };
        // Nobody waits for it: it ends when the load is checked, or with its node.
        thread::spawn(move || read(&address, &key, &shared, &pauses));
        reader
    }

    /// Lets clients work undisturbed until this many more operations have succeeded.
    pub fn progress(&self, operations: u64) {
        let done = || self.shared.done.load(Ordering::Relaxed);
        let target = done() + operations;
        wait_for("operations", || (done() >= target).then_some(()));
    }

    /// Stops the clients when there is something to lose, and checks what they have seen: against what each of these
    /// nodes shows, too.
    pub fn check<'a>(self, nodes: impl IntoIterator<Item = &'a Node>) {
        let Load { shared, clients } = self;
        wait_for("writes that could be lost", || {
            let enough = shared.acknowledged.lock().unwrap().len() > TO_LOSE;
            // A client that has failed says why below.
            (enough || clients.iter().any(JoinHandle::is_finished)).then_some(())
        });
        shared.stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        let acknowledged = std::mem::take(&mut *shared.acknowledged.lock().unwrap());
        assert!(acknowledged.len() > TO_LOSE, "the test must have something to lose");
        for node in nodes {
            let mut connection = Connection::open(&node.resp).unwrap();
            for key in &acknowledged {
                let found = connection.call(&[b"STRLEN", key.as_bytes()]).unwrap();
                let is_there =
                    matches!(found, Resp::Integer(len) if len as usize >= shared.value_bytes.max(1));
                assert!(is_there, "{key} was acknowledged, and its length is {found:?}");
            }
            for key in (0..KEYS).map(|key| Bytes::from(format!("k{key}"))).chain([Bytes::from("counter")]) {
                let command = Command::Get { key: key.clone() };
                let invocation = shared.recorder.lock().unwrap().invoke(99, command, shared.now());
                let reply = shared.translate(connection.call(&[b"GET", &key]).unwrap());
                shared.recorder.lock().unwrap().returned(invocation, reply, shared.now());
            }
        }
        let history = std::mem::take(&mut *shared.recorder.lock().unwrap()).finish();
        println!("{} operations, {} acknowledged once-only writes", history.0.len(), acknowledged.len());
        linearizability::check(&history).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// A client that only reads.
pub struct Reader {
    pauses: Arc<Mutex<Pauses>>,
}

struct Pauses {
    /// When it was last answered.
    last: Instant,
    longest: Duration,
}

impl Reader {
    /// The longest time without an answer since this was last asked, and begins anew.
    pub fn longest_pause(&self) -> Duration {
        let mut pauses = self.pauses.lock().unwrap();
        let longest = pauses.longest.max(pauses.last.elapsed());
        *pauses = Pauses { last: Instant::now(), longest: Duration::ZERO };
        longest
    }
}

fn read(address: &str, key: &Bytes, shared: &Shared, pauses: &Mutex<Pauses>) {
    let Ok(mut connection) = Connection::open(address) else { return };
    while !shared.stop.load(Ordering::Relaxed) {
        let command = Command::Get { key: key.clone() };
        let invocation = shared.recorder.lock().unwrap().invoke(READER, command, shared.now());
        let Ok(reply) = connection.call(&[b"GET", key]) else { return };
        if !matches!(reply, Resp::Error(_)) {
            shared.recorder.lock().unwrap().returned(invocation, shared.translate(reply), shared.now());
            let mut pauses = pauses.lock().unwrap();
            pauses.longest = pauses.longest.max(pauses.last.elapsed());
            pauses.last = Instant::now();
        }
        // A history of so many reads would take long to check.
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// One client: one command after the other, until told to stop.
fn client(id: u64, addresses: &[String], shared: &Shared) {
    let mut random = quorate_core::Random::new(id);
    let mut addresses = addresses.iter().cycle();
    let mut connection = None;
    let mut count = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(open) = connection.as_mut() else {
            connection = addresses.next().and_then(|address| Connection::open(address).ok());
            if connection.is_none() {
                thread::park_timeout(Duration::from_millis(20));
            }
            continue;
        };
        count += 1;
        let key = Bytes::from(format!("k{}", random.range(0..KEYS)));
        let unique = Bytes::from(format!("{id}.{count};"));
        let padded = shared.pad(&unique);
        let once = format!("once-{id}-{count}");
        let (words, command): (Vec<&[u8]>, Command) = match random.range(0..10) {
            0..=4 => (vec![b"GET", &key], Command::Get { key: key.clone() }),
            5..=6 => (vec![b"SET", &key, &padded], put(&key, &unique)),
            7 if padded.len() == unique.len() => {
                (vec![b"APPEND", &key, &unique], Command::Append { key: key.clone(), value: unique.clone() })
            }
            8 => {
                (vec![b"INCR", b"counter"], Command::Increment { key: Bytes::from_static(b"counter"), by: 1 })
            }
            _ => (vec![b"SET", once.as_bytes(), &padded], put(&Bytes::from(once.clone()), &unique)),
        };
        let invocation = shared.recorder.lock().unwrap().invoke(id, command.clone(), shared.now());
        let reply = match open.call(&words) {
            Ok(Resp::Error(text)) if text.starts_with("READONLY ") || text.starts_with("OOM ") => {
                shared.recorder.lock().unwrap().refused(invocation);
                // There may be nothing else for a while.
                thread::park_timeout(Duration::from_millis(2));
                continue;
            }
            Ok(Resp::Error(text)) => {
                // Not executed, or unknown: either way the history may leave it open.
                assert!(text.starts_with("CLUSTERDOWN") || text.starts_with("BUSY"), "{text}");
                continue;
            }
            Ok(reply) => reply,
            Err(_) => {
                connection = None;
                continue;
            }
        };
        let now = shared.now();
        shared.recorder.lock().unwrap().returned(invocation, shared.translate(reply), now);
        shared.done.fetch_add(1, Ordering::Relaxed);
        if words[1] == once.as_bytes() {
            shared.acknowledged.lock().unwrap().push(once);
        }
        // What is tested has the processors for itself most of the time.
        thread::park_timeout(Duration::from_millis(1));
    }
}

fn put(key: &Bytes, value: &Bytes) -> Command {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Put { key: key.clone(), value: value.clone(), condition, expiry, old: false }
}
