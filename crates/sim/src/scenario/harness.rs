//! For tests: plays the scenarios of a folder and compares, or rewrites them when `UPDATE_TRACES=1` is set.
#![allow(clippy::disallowed_methods, reason = "a test harness reads its switch from the environment")]

use std::path::Path;

use quorate_runtime::AnyProtocol;

use super::play;

/// Plays every `*.txt` of a folder. Panics at the first difference, or when there is none to play.
pub fn run_traces(protocol: &'static dyn AnyProtocol, folder: impl AsRef<Path>) {
    let folder = folder.as_ref();
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "{} holds no scenario (*.txt)", folder.display());
    let rewrite = std::env::var("UPDATE_TRACES").is_ok_and(|value| value == "1");
    for file in files {
        let name = file.display();
        let before = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let after = play(protocol, &before).unwrap_or_else(|error| panic!("{name}, {error}"));
        if before == after {
            continue;
        }
        if rewrite {
            std::fs::write(&file, after).unwrap_or_else(|error| panic!("{name}: {error}"));
            continue;
        }
        let number = before.lines().zip(after.lines()).position(|(old, new)| old != new);
        let number = number.unwrap_or(before.lines().count().min(after.lines().count()));
        let line = |text: &str| text.lines().nth(number).unwrap_or("(the end)").to_owned();
        panic!(
            "{name}, line {}:\n  expected {}\n  got      {}\nIf that is right: UPDATE_TRACES=1 rewrites the file.",
            number + 1,
            line(&before),
            line(&after),
        );
    }
}
