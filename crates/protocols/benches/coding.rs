//! How long coding takes: `cargo bench -p quorate-protocols --bench coding`. The median of many runs, on one thread.

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_blocks::coding::Code;

const RUNS: usize = 400;

fn median(mut run: impl FnMut()) -> Duration {
    let mut took: Vec<_> = (0..RUNS)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[RUNS / 2]
}

fn main() {
    println!("{:>8} {:>7} {:>12} {:>12}", "bytes", "(n,d)", "encode", "restore");
    for (shards, data) in [(5, 3), (7, 4), (9, 5)] {
        let code = Code::new(shards, data).expect("it fits");
        for len in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            let value = Bytes::from((0..len).map(|at: usize| (at * 31 / 8) as u8).collect::<Vec<_>>());
            let numbered = (0u8..).zip(code.encode(&value));
            // As many of the value's own pieces are lost as there can be.
            let given: Vec<_> = numbered.skip(shards - data).collect();
            let encode = median(|| drop(black_box(code.encode(black_box(&value)))));
            let restore = median(|| drop(black_box(code.restore(len, black_box(&given)))));
            println!("{len:>8} {:>7} {encode:>12.1?} {restore:>12.1?}", format!("({shards},{data})"));
        }
    }
}
