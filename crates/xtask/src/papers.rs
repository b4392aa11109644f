//! `cargo xtask figures`: the program `papers`, which measures what papers claim, and judges it.

use std::process::{Command, ExitCode};

/// Runs it: optimized where it measures; without the simulator where it only judges.
pub fn figures(words: &[String]) -> ExitCode {
    let judges = words.iter().any(|word| word == "--judge" || word == "--check" || word == "--help");
    let how = if judges { "--no-default-features" } else { "--release" };
    let manifest = crate::root().join("papers/Cargo.toml");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", how, "--manifest-path"]).arg(manifest).arg("--").args(words);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
