//! `bench/compare`: Quorate beside a bare replicator, Redis and etcd, under the same load, on this machine, now.
//!
//! | file | what |
//! |---|---|
//! | `systems` | how each is started, and where its load goes |
//! | `processes` | children that end with us, their CPU and memory |
//! | `session` | the rounds, and the page of results |
//! | `machine` | what the numbers belong to |
//! | `report` | medians, tables, ratios |
//!
//! One system runs at a time, all of them in each round, because the machine drifts.

pub mod machine;
pub mod processes;
mod report;
mod session;
pub mod systems;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use processes::{Result, Stop};
use session::Session;
use systems::{Programs, System};

const USAGE: &str = "usage: bench/compare [--quick] [--only NAMES] [--seconds S] [--rounds N] [--out FILE]
  --quick        one round of 1 s per cell, 10,000 keys
  --only NAMES   of replicator, redis, etcd, quorate, follower; separated by commas
  --seconds S    measured in each cell [default: 5]
  --rounds N     rounds over all systems; medians are shown [default: 3]
  --out FILE     where the tables go [default: bench/RESULTS.md]
environment: QUORATE_BIN, a binary to use instead of building one;
  COMPARE_DATA, where data goes [default: the target folder]";

#[derive(Debug)]
struct Options {
    systems: Vec<System>,
    seconds: f64,
    warm_up: f64,
    rounds: u32,
    keys: u64,
    out: PathBuf,
    quick: bool,
}

/// Runs the comparison.
pub fn compare(words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Options> {
    let out = crate::root().join("bench/RESULTS.md");
    let mut options = Options {
        systems: System::ALL.to_vec(),
        seconds: 5.0,
        warm_up: 1.0,
        rounds: 3,
        keys: 100_000,
        out,
        quick: false,
    };
    if words.iter().any(|word| word == "--quick") {
        options = Options { seconds: 1.0, warm_up: 0.3, rounds: 1, keys: 10_000, quick: true, ..options };
    }
    let mut words = words.iter().filter(|word| *word != "--quick");
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: what?"))?;
        let wrong = || format!("{word} {value}: not understood");
        match word.as_str() {
            "--only" => {
                let system = |name: &str| System::ALL.into_iter().find(|system| system.name() == name);
                options.systems = value
                    .split(',')
                    .map(|name| system(name.trim()).ok_or_else(wrong))
                    .collect::<Result<_>>()?;
            }
            "--seconds" => {
                let seconds = value.parse().ok().filter(|seconds| (0.5..=600.0).contains(seconds));
                options.seconds = seconds.ok_or_else(wrong)?;
            }
            "--rounds" => {
                options.rounds = value.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(wrong)?;
            }
            "--out" => options.out = PathBuf::from(value),
            _ => return Err(wrong()),
        }
    }
    Ok(options)
}

fn run(options: Options) -> Result<()> {
    let stop = Stop::listen()?;
    let target = target();
    let mut options = options;
    let programs = build(&mut options, &target)?;
    let data = std::env::var_os("COMPARE_DATA").map_or(target, PathBuf::from);
    let scratch = tempfile::Builder::new().prefix("compare-").tempdir_in(&data);
    let scratch = scratch.map_err(|error| format!("no folder in {}: {error}", data.display()))?;
    let load = machine::load();
    if load > 0.2 {
        eprintln!(
            "WARNING: others keep {load} processors busy: this machine is not quiet, and the numbers are worth little"
        );
    }
    let syncs = machine::syncs_per_second(scratch.path()).map_err(|error| error.to_string())?;
    let mut session = Session::new(options, programs, stop, scratch);
    let began = Instant::now();
    for round in 1..=session.options.rounds {
        for system in session.options.systems.clone() {
            // The follower is a column of the cluster that is running anyway, unless that is left out.
            if system == System::Follower && session.options.systems.contains(&System::Quorate) {
                continue;
            }
            eprintln!("round {round} of {}: {}", session.options.rounds, system.name());
            session.round(system, round)?;
        }
    }
    let text = session.page(load, syncs, began.elapsed())?;
    println!("{text}");
    std::fs::write(&session.options.out, text)
        .map_err(|error| format!("cannot write {}: {error}", session.options.out.display()))?;
    eprintln!("written to {}", session.options.out.display());
    Ok(())
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
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

/// The binary that is measured.
pub fn quorate(target: &Path) -> Result<PathBuf> {
    match std::env::var_os("QUORATE_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => {
            cargo(&["build", "--release", "-q", "-p", "quorate"], target)?;
            Ok(target.join("release/quorate"))
        }
    }
}

/// Builds what is missing, and leaves out, with a word, what cannot be.
fn build(options: &mut Options, target: &Path) -> Result<Programs> {
    let quorate = quorate(target)?;
    let mut programs = Programs { quorate, replicator: None, etcd_load: None };
    let mut wanted = std::mem::take(&mut options.systems);
    wanted.retain(|system| {
        let result = match system {
            System::Replicator => {
                let target = target.join("limit");
                programs.replicator = Some(target.join("release/replicator"));
                workspace("bench/limit", &target)
            }
            System::Redis if !machine::has("redis-server") => {
                Err("redis-server is not installed (apt-get install redis-server)".to_owned())
            }
            System::Etcd if !machine::has("etcd") => {
                Err("etcd is not installed (apt-get install etcd-server)".to_owned())
            }
            System::Etcd => {
                let target = target.join("etcd-load");
                programs.etcd_load = Some(target.join("release/etcd-load"));
                workspace("bench/etcd-load", &target)
            }
            System::Redis | System::Quorate | System::Follower => Ok(()),
        };
        if let Err(error) = &result {
            eprintln!("skipping {}: {error}", system.name());
        }
        result.is_ok()
    });
    options.systems = wanted;
    Ok(programs)
}

/// Builds a workspace of its own, optimized.
pub fn workspace(folder: &str, target: &Path) -> Result<()> {
    cargo(&["build", "--release", "-q", "--manifest-path", &format!("{folder}/Cargo.toml")], target)
}
