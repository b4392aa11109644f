//! What reads, writes and messages take of one core of this machine, and that file read back.

use std::hint::black_box;

use bytes::Bytes;
use quorate_blocks::batch::{Batch, Builder, Entry, Limits};
use quorate_blocks::clients::{Ask, Message};
use quorate_core::{Wall, Wire};
use quorate_store::{Command, Store};

use super::COSTS;
use super::world::{get, put};
use crate::instrument::Result;
use crate::instrument::grid::{Data, Grid, Row, Rows};
use crate::instrument::measure::{Bench, median_time};

/// Keys of the paper's store.
const KEYS: u64 = 1_000_000;
/// Reads or writes in a message.
const MANY: u64 = 128;

/// What a simulated processor takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// To decode a read, execute it, and encode its reply.
    pub read: f64,
    /// For each byte of messages, so that a read that came in one, and its reply, take as much as a read does here,
    /// and their share of both messages.
    pub byte: f64,
}

impl Costs {
    /// What was measured; an error says how to measure it.
    pub fn known() -> Result<Costs> {
        let path = crate::root().join("docs/figures/law/costs.csv");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}; `figures law --only costs` makes it", path.display()))?;
        let data = Data([(COSTS.id, Grid::parse(COSTS.schema(), &text)?)].into());
        let of = |what: &str, number: &str| {
            data.number(&COSTS, &[("what", what)], number).ok_or_else(|| format!("no {number} of {what}"))
        };
        let read = of("read", "time")?;
        let carried = (of("asked", "time")? + of("answered", "time")?) / 2.0;
        Ok(Costs { read, byte: (read + carried) / (of("asked", "bytes")? + of("answered", "bytes")?) })
    }
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let mut store = Store::new();
    for key in 0..KEYS {
        store.apply(&put(key, key), key + 1, Wall::ZERO);
    }
    // Far apart in memory, in no order that a cache could guess.
    let key = |at: u64| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS;
    let (mut rows, mut revision) = (Vec::new(), KEYS);
    for run in 1..=if bench.quick { 1 } else { 5 } {
        bench.say(&format!("run {run}"))?;
        let gets: Vec<_> = (0..MANY).map(|at| (at, get(key(at + MANY * run as u64)).to_bytes())).collect();
        let puts: Vec<_> = (0..MANY).map(|at| put(key(at * run as u64), at).to_bytes()).collect();
        let decoded = |bytes: &Bytes| Command::from_bytes(bytes.clone()).expect("it was encoded here");
        let reads = 1e9
            * median_time(|| {
                gets.iter().for_each(|(_, bytes)| drop(black_box(store.read_encoded(&decoded(bytes)))));
            });
        let replies: Vec<_> =
            gets.iter().map(|(id, bytes)| (*id, store.read_encoded(&decoded(bytes)))).collect();
        let writes = 1e9
            * median_time(|| {
                for bytes in &puts {
                    revision += 1;
                    black_box(store.apply(&decoded(bytes), revision, Wall::ZERO).to_bytes());
                }
            });
        let ask = Message::Ask(Ask {
            nonce: 1,
            session: 1,
            open: false,
            low: 1,
            writes: Vec::new(),
            reads: gets.clone(),
            bounds: Vec::new(),
            manage: Vec::new(),
            version: 1,
        });
        let (asked, ask_bytes) = carried(&ask);
        let answer = Message::Answer {
            nonce: 1,
            session: 1,
            applied: 1,
            writes: Vec::new(),
            slots: Vec::new(),
            reads: replies,
        };
        let (answered, answer_bytes) = carried(&answer);
        let batch = || {
            let mut builder = Builder::new();
            for (seq, command) in (1..).zip(&puts) {
                builder.push(Entry::Write { session: 1, seq, low: 1, command: command.clone() });
            }
            builder.take(Limits { entries: MANY as usize, bytes: 1 << 20 }, Wall::ZERO)
        };
        let batched = 1e9 * median_time(|| drop(black_box(Batch::decode(&batch()))));
        let size = |bytes: usize| Some(bytes as f64 / MANY as f64);
        let all = [
            ("read", reads, None),
            ("write", writes, None),
            ("asked", asked, size(ask_bytes)),
            ("answered", answered, size(answer_bytes)),
            ("batched", batched, size(batch().len())),
        ];
        let row = |(what, nanos, bytes)| Row { run, ..Row::of(&[&what], [Some(nanos / MANY as f64), bytes]) };
        rows.extend(all.map(row));
    }
    Ok(vec![Rows(&COSTS, rows)])
}

/// To encode and decode a message, and its length.
fn carried(message: &Message) -> (f64, usize) {
    let there_and_back = || drop(black_box(Message::from_bytes(black_box(message).to_bytes())));
    (1e9 * median_time(there_and_back), message.to_bytes().len())
}
