//! What released versions write to the wire and to the log, which this one must read: `releases/VERSION/PROTOCOL` has
//! a line for each message and record, its kind and its bytes.
//!
//! `UPDATE_FIXTURES=1` writes those of this version, unless it is released (`crates/cli/tests/releases.rs`).

use std::fs;
use std::path::{Path, PathBuf};

use quorate_fuzzing::{encodings, recode};
use quorate_protocols::registry;

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two hexadecimal digits")).collect()
}

#[test]
fn what_released_versions_write_is_read_and_written_as_it_was() {
    let own = releases().join(concat!("v", env!("CARGO_PKG_VERSION")));
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let of_cli = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../cli/tests/releases")
            .join(own.file_name().unwrap());
        assert!(!of_cli.join("commit").exists(), "{} is released, and stays as it is", own.display());
        fs::create_dir_all(&own).unwrap();
        for entry in registry::all() {
            let lines =
                encodings(entry.name).into_iter().map(|(kind, bytes)| format!("{kind} {}\n", hex(&bytes)));
            fs::write(own.join(entry.name), lines.collect::<String>()).unwrap();
        }
    }
    let mut count = 0;
    for release in fs::read_dir(releases()).unwrap() {
        for file in fs::read_dir(release.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let protocol = path.file_name().unwrap().to_str().unwrap();
            for (number, line) in (1..).zip(fs::read_to_string(&path).unwrap().lines()) {
                let (kind, encoding) = line.split_once(' ').unwrap();
                let recoded = recode(protocol, kind, &bytes(encoding)).map(|bytes| hex(&bytes));
                assert_eq!(recoded.as_deref(), Ok(encoding), "{}:{number}: {kind}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count} messages and records");
    assert!(own.is_dir(), "{} is not there: UPDATE_FIXTURES=1 writes it", own.display());
}
