//! Every input that fuzzing found worth keeping, and every one that once broke something, on the stable toolchain.

use std::path::Path;

use quorate_fuzzing::meter::Counting;
use quorate_fuzzing::{TARGETS, run};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test, so that what it counts is its own.
#[test]
fn every_kept_input_holds() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for target in TARGETS {
        for seed in (target.seeds)() {
            run(target.name, &seed);
        }
        let folders = ["corpus", "regressions"].map(|kind| fuzz.join(kind).join(target.name));
        let mut count = 0;
        for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten() {
            let path = entry.expect("the folder can be read").path();
            let input = std::fs::read(&path).expect("the input can be read");
            println!("{}", path.display());
            run(target.name, &input);
            count += 1;
        }
        assert!(count > 0, "{} has no corpus", target.name);
    }
}
