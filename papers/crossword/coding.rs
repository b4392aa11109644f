//! Table 1: the time and memory that the code of a value takes, on one core of this machine.

use std::hint::black_box;

use bytes::Bytes;
use quorate_blocks::coding::Code;
use quorate_core::Random;

use super::TABLE1;
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::{Bench, median_time};

const KB: usize = 1 << 10;
const SIZES: [usize; 8] = [8, 4 * KB, 16 * KB, 64 * KB, 128 * KB, 256 * KB, 1024 * KB, 4096 * KB];
/// The paper's microseconds for them.
const PAPER: [Option<f64>; 8] =
    [None, Some(1.0), Some(4.0), Some(16.0), None, Some(77.0), Some(1000.0), Some(6000.0)];

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let code = Code::new(5, 3).map_err(|wrong| wrong.to_string())?;
    let mut rows = Vec::new();
    for run in 1..=if bench.quick { 1 } else { 5 } {
        for (size, paper) in SIZES.into_iter().zip(PAPER) {
            bench.say(&format!("{size} B, run {run}"))?;
            let mut random = Random::new(size as u64);
            let value: Bytes = (0..size).map(|_| random.u64() as u8).collect::<Vec<_>>().into();
            let micros = 1e6 * median_time(|| drop(black_box(code.encode(black_box(&value)))));
            // Shards that are slices of the value take none.
            let inside = value.as_ptr_range();
            let shards = code.encode(&value);
            let new = shards.iter().filter(|shard| !inside.contains(&shard.as_ptr())).map(Bytes::len);
            let memory = new.sum::<usize>() as f64 / size as f64;
            let speed = size as f64 / micros / 1000.0;
            let numbers = [Some(micros), paper, paper.map(|paper| micros / paper), Some(memory), Some(speed)];
            rows.push(Row { run, ..Row::of(&[&size], numbers) });
        }
    }
    Ok(vec![Rows(&TABLE1, rows)])
}
