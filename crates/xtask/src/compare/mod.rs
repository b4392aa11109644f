//! `cargo xtask compare`: Quorate's protocols beside etcd, ZooKeeper, Redis and a bare replicator, under the same load,
//! on this machine, now; and the page of all comparisons, [`page`].
//!
//! | file | what |
//! |---|---|
//! | `systems` | what is compared, and the loads |
//! | `session` | the rounds: what is measured of a system, and how |
//! | `ratios` | settings of Quorate against each other |
//! | `versions` | this build against earlier ones |
//! | `page` | the page and README's table, from the CSVs |
//! | `services` | how each service is started, and where its members are |
//! | `up` | a cluster of `quorate up` |
//! | `processes` | children that end with us, their CPU and memory |
//! | `machine` | what the numbers belong to |
//!
//! One system runs at a time, all of them in each round, because the machine drifts.

pub mod machine;
mod page;
pub mod processes;
mod ratios;
pub mod services;
mod session;
mod systems;
pub mod up;
mod versions;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use tempfile::TempDir;

use processes::{Result, Stop};
use session::{Session, Times};
use systems::System;
use versions::Earlier;

const USAGE: &str = "usage: cargo xtask compare [--quick] [--only NAMES] [--rounds N] [--out DIR]
       cargo xtask compare --ratios [--quick] [--only WORDS] [--rounds N] [--out DIR]
       cargo xtask compare --against NAME=PROGRAM ... [--quick] [--rounds N] [--out DIR]
       cargo xtask compare --judge
  --quick        one round of short runs, to see that it works
  --only NAMES   of the systems, separated by commas; of the pairs, those with one of these words in their name
  --ratios       settings of Quorate against each other, instead of Quorate beside others
  --against NAME=PROGRAM
                 this build against an earlier one's binary, which is called NAME on the page, instead of Quorate
                 beside others; may be repeated
  --rounds N     rounds over all systems [default: 5; with --against 8]
  --out DIR      where CSVs and page go [default: docs; with --quick or --only, which never write into the
                 repository, a folder for temporary files]
  --judge        measures nothing: writes page and README's table from the CSVs again
environment: QUORATE_BIN, a binary to use instead of building one;
  COMPARE_DATA, where data goes [default: the target folder]";

#[derive(Debug)]
struct Options {
    only: Option<Vec<String>>,
    /// Where the words say so.
    rounds: Option<u32>,
    out: Option<PathBuf>,
    quick: bool,
    ratios: bool,
    against: Vec<Earlier>,
    judge: bool,
}

impl Options {
    fn rounds(&self) -> u32 {
        let usual = if self.against.is_empty() { 5 } else { versions::ROUNDS };
        self.rounds.unwrap_or(if self.quick { 1 } else { usual })
    }
}

/// Runs the comparison.
pub fn compare(words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let (options, out) = match parse(words).and_then(|options| Ok((folder(&options)?, options))) {
        Ok((out, options)) => (options, out),
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options, &out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Options> {
    let mut options = Options {
        only: None,
        rounds: None,
        out: None,
        quick: false,
        ratios: false,
        against: Vec::new(),
        judge: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: what?"));
        match word.as_str() {
            "--quick" => options.quick = true,
            "--ratios" => options.ratios = true,
            "--against" => options.against.push(Earlier::parse(value()?)?),
            "--judge" => options.judge = true,
            "--only" => options.only = Some(value()?.split(',').map(|name| name.trim().to_owned()).collect()),
            "--rounds" => {
                let value = value()?;
                let rounds = value.parse().ok().filter(|rounds| (1..=100).contains(rounds));
                options.rounds = Some(rounds.ok_or_else(|| format!("--rounds {value}: from 1 to 100"))?);
            }
            "--out" => options.out = Some(PathBuf::from(value()?)),
            _ => return Err(format!("{word}: not understood")),
        }
    }
    if !options.against.is_empty() && (options.ratios || options.only.is_some()) {
        return Err("--against goes with neither --ratios nor --only".to_owned());
    }
    Ok(options)
}

/// Where CSVs and page go. What is not the whole comparison stays out of the repository.
fn folder(options: &Options) -> Result<PathBuf> {
    let part = !options.judge && (options.quick || options.only.is_some());
    let out = match (&options.out, part) {
        (Some(out), _) => out.clone(),
        (None, true) => spare(),
        (None, false) => crate::root().join(page::FOLDER),
    };
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let [out, root] =
        [&out, crate::root()].map(|path| path.canonicalize().map_err(|error| error.to_string()));
    let (out, root) = (out?, root?);
    match part && out.starts_with(&root) && !out.starts_with(target()) {
        true => Err(format!("--out {}: a part is not written into the repository", out.display())),
        false => Ok(out),
    }
}

/// Where results go that do not belong into the repository.
fn spare() -> PathBuf {
    std::env::temp_dir().join("quorate-comparison")
}

fn run(options: &Options, out: &Path) -> Result<()> {
    if !options.judge {
        let measured = measure(options)?;
        if let Err(why) = measured.is_worth_keeping(options) {
            let spare = spare();
            std::fs::create_dir_all(&spare).map_err(|error| format!("{}: {error}", spare.display()))?;
            measured.write(&spare)?;
            return Err(format!(
                "nothing is written into {}: {why}. The CSVs: {}",
                out.display(),
                spare.display()
            ));
        }
        measured.write(out)?;
    }
    for path in page::write(crate::root(), out)? {
        println!("{}", path.display());
    }
    Ok(())
}

fn measure(options: &Options) -> Result<session::Measured> {
    let stop = Stop::listen()?;
    if options.ratios {
        let quorate = quorate()?;
        return ratios::measure(options, &Session::new(options, ratios::TIMES, stop)?, &quorate);
    }
    if !options.against.is_empty() {
        let quorate = quorate()?;
        return versions::measure(&options.against, &Session::new(options, versions::TIMES, stop)?, &quorate);
    }
    let mut systems = System::all(&target());
    for word in options.only.iter().flatten() {
        if !systems.iter().any(|system| system.is_called(word)) {
            let names: Vec<_> = systems.iter().map(System::short_name).collect();
            return Err(format!("no system `{word}`; there are: {}", names.join(", ")));
        }
    }
    let is_wanted = |system: &System| {
        options.only.as_ref().is_none_or(|only| only.iter().any(|word| system.is_called(word)))
    };
    systems.retain(is_wanted);
    systems::build(&systems)?;
    Session::new(options, Times::SYSTEMS, stop)?.measure(&systems)
}

/// Runs cargo in the repository.
fn cargo(words: &[&str], target: &Path) -> Result<()> {
    eprintln!("building: cargo {}", words.join(" "));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = command.args(words).current_dir(crate::root()).env("CARGO_TARGET_DIR", target).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("cargo {} failed", words.join(" "))),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// The binary that is measured, built unless the environment names one.
pub fn quorate() -> Result<PathBuf> {
    if std::env::var_os("QUORATE_BIN").is_none() {
        cargo(&["build", "--release", "-q", "-p", "quorate"], &target())?;
    }
    Ok(quorate_in(&target()))
}

fn quorate_in(target: &Path) -> PathBuf {
    std::env::var_os("QUORATE_BIN").map_or_else(|| target.join("release/quorate"), PathBuf::from)
}

/// A program of a workspace below `bench`, built, optimized.
pub fn built(workspace: &str, program: &str) -> Result<PathBuf> {
    let path = built_in(&target(), workspace, program);
    let manifest = format!("bench/{workspace}/Cargo.toml");
    cargo(&["build", "--release", "-q", "--manifest-path", &manifest], &target().join(workspace))?;
    Ok(path)
}

fn built_in(target: &Path, workspace: &str, program: &str) -> PathBuf {
    target.join(workspace).join("release").join(program)
}

/// An empty directory for the data of what is measured.
pub fn scratch(prefix: &str) -> Result<TempDir> {
    let data = std::env::var_os("COMPARE_DATA").map_or_else(target, PathBuf::from);
    let scratch = tempfile::Builder::new().prefix(prefix).tempdir_in(&data);
    scratch.map_err(|error| format!("no folder in {}: {error}", data.display()))
}
