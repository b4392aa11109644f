//! Chores of the repository: `cargo xtask ci`, `cargo xtask tidy`, `cargo xtask compare`,
//! `cargo xtask figures`, `cargo xtask new-protocol`. A library for the sake of [`compare`]: what starts systems and
//! tells what a machine is, which `papers` measures with, too.

mod ci;
pub mod compare;
mod new_protocol;
mod papers;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

/// Runs the chore that the words name.
pub fn main(arguments: &[String]) -> ExitCode {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => ci::ci(),
        ["ci", "compile"] => ci::compile(),
        ["compare", ..] => compare::compare(&arguments[1..]),
        ["figures", ..] => papers::figures(&arguments[1..]),
        ["new-protocol", name] => new_protocol::new_protocol(root(), name),
        ["tidy"] => show(tidy::check(root())),
        _ => {
            eprintln!("usage: cargo xtask ci       everything the gate runs");
            eprintln!("       cargo xtask ci compile  its steps before the tests");
            eprintln!("       cargo xtask tidy     the style that no compiler checks");
            eprintln!(
                "       cargo xtask compare  Quorate beside etcd, ZooKeeper, Redis and a bare replicator"
            );
            eprintln!("       cargo xtask figures  a paper's evaluation, made again and judged");
            eprintln!("       cargo xtask new-protocol NAME  a new protocol that works, to be changed");
            ExitCode::from(2)
        }
    }
}

/// The root folder of the repository: of the one for which cargo runs this, since clones may share a target folder, and
/// cargo then takes one clone's program for another's.
fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let package =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let mut folders = Path::new(&package).ancestors();
        let root = folders.find(|folder| folder.join("crates/xtask").is_dir());
        root.expect("a package of the repository").to_owned()
    });
    &ROOT
}

fn show(findings: std::io::Result<Vec<tidy::Finding>>) -> ExitCode {
    match findings {
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            match findings.len() {
                0 => println!("tidy: {} rules hold", tidy::RULES.len()),
                count => println!("tidy: {count} findings"),
            }
            ExitCode::from(u8::from(!findings.is_empty()))
        }
        Err(error) => {
            eprintln!("cannot read the repository: {error}");
            ExitCode::FAILURE
        }
    }
}
