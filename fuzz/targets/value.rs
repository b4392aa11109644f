//! See `quorate_fuzzing::TARGETS`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quorate_fuzzing::meter::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| quorate_fuzzing::run("value", data));
