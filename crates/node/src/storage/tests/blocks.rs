//! Whole blocks, whatever is written.

use super::*;
use crate::storage::blocks::{BLOCK, Blocks, ROOM};

#[test]
fn a_file_has_what_was_appended_and_zeros_up_to_the_end_of_a_block() {
    let dir = Dir::new(Path::new("/data"), Arc::new(Memory::new(1)));
    dir.create("file").unwrap();
    // It refuses what is not a whole block, aligned.
    let file = dir.open_direct("file").unwrap();
    let mut random = Random::new(1);
    let (mut blocks, mut expected) = (Blocks::new(), Vec::new());
    for _ in 0..60 {
        let longest = if random.chance(0.1) { 3 * ROOM as u64 } else { 3 * BLOCK as u64 };
        let bytes: Vec<u8> = (0..random.range(0..longest)).map(|_| random.u64() as u8).collect();
        blocks.push(&file, &bytes).unwrap();
        expected.extend(bytes);
        if random.chance(0.5) {
            blocks.flush(&file).unwrap();
            let mut padded = expected.clone();
            padded.resize(expected.len().next_multiple_of(BLOCK), 0);
            assert!(file.read_all().unwrap() == padded, "{} bytes", expected.len());
            if random.chance(0.2) {
                blocks = Blocks::new();
                blocks.resume(&file, expected.len() as u64).unwrap();
            }
        }
    }
    assert!(expected.len() > 2 * ROOM);
}
