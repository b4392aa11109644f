//! The stream of operations, and their bytes.

use std::io::Write;

use quorate_core::Random;

use crate::keys::Keys;
use crate::{Options, Sizes};

/// What an operation is, for the one who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// GET of a key.
    Read,
    /// SET of a key that is there.
    Update,
    /// SET of a new key.
    Insert,
    /// MGET of consecutive keys.
    Scan,
    /// GET, then SET of the same key.
    Modify,
}

impl Op {
    /// All, in the order of reports.
    pub const ALL: [Op; 5] = [Op::Read, Op::Update, Op::Insert, Op::Scan, Op::Modify];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Update => "update",
            Op::Insert => "insert",
            Op::Scan => "scan",
            Op::Modify => "read-modify-write",
        }
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What to do.
    pub op: Op,
    /// With which key; a scan begins there.
    pub key: u64,
}

#[derive(Debug)]
enum Source {
    /// Draws from a mix; `until` are the running sums of its shares, in the order of [`Op::ALL`].
    Mix { until: [f64; 5], keys: Keys, next: u64 },
    /// Every key once; those that failed again.
    Load { next: u64, keys: u64, again: Vec<u64> },
}

/// Makes the operations of a run.
#[derive(Debug)]
pub struct Work {
    source: Source,
    random: Random,
    sizes: Sizes,
    scan_max: u64,
    /// A key as a bulk string, whose digits are still to be written.
    key: Vec<u8>,
    /// Any stretch of it is a value.
    values: Vec<u8>,
    /// The length line of values of this size.
    length: (usize, Vec<u8>),
}

/// Values begin somewhere in this many bytes, so that they differ.
const SPREAD: usize = 4096;

/// Digits of a key's number: always as many, so that sizes do not depend on numbers.
const DIGITS: usize = 12;

impl Work {
    /// The operations of a measured run.
    pub fn mix(options: &Options, random: Random) -> Work {
        let mix = options.mix;
        let mut until = [mix.read, mix.update, mix.insert, mix.scan, mix.modify];
        for index in 1..until.len() {
            until[index] += until[index - 1];
        }
        let keys = Keys::new(options.choice, options.keys);
        Work::new(Source::Mix { until, keys, next: options.keys }, options, random)
    }

    /// Every key once.
    pub fn load(options: &Options, random: Random) -> Work {
        Work::new(Source::Load { next: 0, keys: options.keys, again: Vec::new() }, options, random)
    }

    fn new(source: Source, options: &Options, mut random: Random) -> Work {
        let size = options.sizes.max() + SPREAD;
        let values = (0..size).map(|_| b'a' + random.range(0..26) as u8).collect();
        let length = (usize::MAX, Vec::new());
        let prefix = &options.key_prefix;
        let key = format!("${}\r\n{prefix}{}\r\n", prefix.len() + DIGITS, "0".repeat(DIGITS)).into_bytes();
        Work {
            source,
            random,
            sizes: options.sizes.clone(),
            scan_max: options.scan_max.max(1),
            key,
            values,
            length,
        }
    }

    /// The next operation; none if all is done or under way.
    pub fn draw(&mut self) -> Option<Task> {
        match &mut self.source {
            Source::Mix { until, keys, next } => {
                let at = self.random.unit();
                let index = until.iter().position(|until| at < *until).unwrap_or(0);
                let op = Op::ALL[index];
                let key = if op == Op::Insert {
                    *next += 1;
                    *next - 1
                } else {
                    keys.draw(&mut self.random)
                };
                Some(Task { op, key })
            }
            Source::Load { next, keys, again } => {
                let key = again.pop().or_else(|| {
                    let key = (*next < *keys).then_some(*next)?;
                    *next += 1;
                    Some(key)
                })?;
                Some(Task { op: Op::Insert, key })
            }
        }
    }

    /// An operation was acknowledged.
    pub fn done(&mut self, op: Op) {
        if let (Op::Insert, Source::Mix { keys, .. }) = (op, &mut self.source) {
            keys.grow();
        }
    }

    /// An operation failed.
    pub fn failed(&mut self, task: Task) {
        if let Source::Load { again, .. } = &mut self.source {
            again.push(task.key);
        }
    }

    /// Appends the request that begins an operation.
    pub fn encode(&mut self, task: Task, out: &mut Vec<u8>) {
        match task.op {
            Op::Read | Op::Modify => {
                out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                self.encode_key(task.key, out);
            }
            Op::Update | Op::Insert => self.encode_set(task.key, out),
            Op::Scan => {
                let count = self.random.range(1..self.scan_max + 1);
                let _ = write!(out, "*{}\r\n$4\r\nMGET\r\n", count + 1);
                (task.key..task.key + count).for_each(|number| self.encode_key(number, out));
            }
        }
    }

    /// Appends a SET of a value of a size that is drawn.
    pub fn encode_set(&mut self, number: u64, out: &mut Vec<u8>) {
        let size = self.sizes.draw(&mut self.random);
        if self.length.0 != size {
            self.length = (size, format!("${size}\r\n").into_bytes());
        }
        let from = self.random.range(0..SPREAD as u64) as usize;
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
        self.encode_key(number, out);
        out.extend_from_slice(&self.length.1);
        out.extend_from_slice(&self.values[from..from + size]);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a key as a bulk string.
    fn encode_key(&self, mut number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key);
        for digit in out.iter_mut().rev().skip(b"\r\n".len()).take(DIGITS) {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::options;

    fn shown(task: Task, work: &mut Work) -> String {
        let mut out = Vec::new();
        work.encode(task, &mut out);
        String::from_utf8(out).unwrap().replace("\r\n", " ").trim_end().to_owned()
    }

    #[test]
    fn requests_are_as_redis_wants_them() {
        let options = Options { sizes: "3".parse().unwrap(), scan_max: 1, ..options("a") };
        let mut work = Work::mix(&options, Random::new(1));
        let read = "*2 $3 GET $16 key-000000000042";
        assert_eq!(shown(Task { op: Op::Read, key: 42 }, &mut work), read);
        assert_eq!(shown(Task { op: Op::Modify, key: 42 }, &mut work), read);
        let update = shown(Task { op: Op::Update, key: 999_999_999_999 }, &mut work);
        let (head, value) = update.rsplit_once(' ').unwrap();
        assert_eq!((head, value.len()), ("*3 $3 SET $16 key-999999999999 $3", 3));
        assert_eq!(shown(Task { op: Op::Scan, key: 7 }, &mut work), "*2 $4 MGET $16 key-000000000007");
        let mut work = Work::mix(&Options { key_prefix: "other:".to_owned(), ..options }, Random::new(1));
        assert_eq!(shown(Task { op: Op::Read, key: 42 }, &mut work), "*2 $3 GET $18 other:000000000042");
    }

    #[test]
    fn shares_come_as_they_are_asked_for() {
        let mut text = String::new();
        for name in ["a", "b", "c", "d", "e", "f", "set", "get"] {
            let mut work = Work::mix(&options(name), Random::new(1));
            let mut counts = [0u32; 5];
            (0..100_000).for_each(|_| counts[work.draw().unwrap().op as usize] += 1);
            let percent = counts.map(|count| (f64::from(count) / 1000.0).round() as u32);
            text.push_str(&format!("{name}: {percent:?}\n"));
        }
        let expected = "\
a: [50, 50, 0, 0, 0]\nb: [95, 5, 0, 0, 0]\nc: [100, 0, 0, 0, 0]\nd: [95, 0, 5, 0, 0]\ne: [0, 0, 5, 95, 0]
f: [50, 0, 0, 0, 50]\nset: [0, 100, 0, 0, 0]\nget: [100, 0, 0, 0, 0]\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn equal_seeds_give_equal_bytes() {
        let bytes = |seed| {
            let mut work = Work::mix(&options("e"), Random::new(seed));
            let mut out = Vec::new();
            for _ in 0..200 {
                let task = work.draw().unwrap();
                work.encode(task, &mut out);
                work.done(task.op);
            }
            out
        };
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
    }

    #[test]
    fn loading_repeats_what_failed_and_ends() {
        let mut work = Work::load(&Options { keys: 3, ..options("a") }, Random::new(1));
        let first = work.draw().unwrap();
        work.failed(first);
        let keys: Vec<_> = std::iter::from_fn(|| work.draw()).map(|task| task.key).collect();
        assert_eq!((first.key, keys), (0, vec![0, 1, 2]));
        work.failed(Task { op: Op::Insert, key: 2 });
        assert_eq!(work.draw().map(|task| task.key), Some(2));
    }
}
