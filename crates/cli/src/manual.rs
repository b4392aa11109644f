//! `quorate man` and `quorate completions`: made from the command line's definition, so that they are of this version.

use std::io::{Write, stdout};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{self, Args};
use crate::failure::Failure;

/// Writes a manual page for each command into a directory, which is made if it is not there.
pub fn man(dir: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("cannot write manual pages to {}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(args::with_environment(Args::command()), dir).map_err(failed)
}

/// Prints what a shell completes commands by.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "quorate", &mut script);
    stdout().write_all(&script)?;
    Ok(())
}
