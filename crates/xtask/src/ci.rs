//! `cargo xtask ci`: everything that must hold, in the order in which it fails fastest. Prints the counts of all test
//! runs in one closing line. Real processes mostly wait for each other, so the rest runs beside them, at the lowest
//! priority: tests of the simulator and the explorer ([`programs`]), the compiler on the benchmarks that are no members
//! of the workspace, and the simulator's budget.

mod programs;

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorate_protocols::registry;

/// One step: its name, the program and its words.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
}

/// After this step there is a binary for the simulator's budget.
const BUILD: &str = "tests compile";
const BUDGET: &str = "simulator budget";
/// Names the programs of tests, which are then run.
const TESTS: &str =
    "tests: the style test, real processes, weakened rules and the papers' verdicts among them";

/// The switches that weaken rules are compiled into all that is tested: without them everything below would have to be
/// compiled once more for the tests that use them.
const MUTATIONS: &str = "quorate-sim/mutations,quorate-explore/mutations";

const STEPS: &[Step] = &[
    Step { name: "formatting", words: &["cargo", "fmt", "--all", "--check"] },
    Step {
        name: "lints",
        words: &[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            MUTATIONS,
            "--quiet",
            "--",
            "--deny",
            "warnings",
        ],
    },
    Step {
        name: BUILD,
        words: &["cargo", "test", "--workspace", "--tests", "--features", MUTATIONS, "--quiet", "--no-run"],
    },
    Step {
        name: TESTS,
        words: &[
            "cargo",
            "test",
            "--workspace",
            "--tests",
            "--features",
            MUTATIONS,
            "--quiet",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ],
    },
];

/// Packages that are no members of the workspace. They are checked in a folder of their own: cargo lets nobody else
/// into one at the same time, and tests run it, too.
const BENCHMARKS: &[&str] = &["bench/wan", "bench/ycsb"];

/// Counts from the closing lines of test runs.
#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let words: Vec<_> = rest.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// Runs the steps before the tests, so that what the tests need can be installed meanwhile.
pub fn compile() -> ExitCode {
    let steps = STEPS.split_inclusive(|step| step.name == BUILD).next().expect("there are steps");
    let fine = steps.iter().all(|step| take(step, &mut Counts::default()));
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a step, and says how it ended.
fn take(step: &Step, counts: &mut Counts) -> bool {
    println!("== {}: {}", step.name, step.words.join(" "));
    let began = Instant::now();
    let fine = if step.name == TESTS { programs::run(step.words, counts) } else { run(step.words, counts) };
    close(step.name, fine, began.elapsed());
    fine
}

/// Runs every step; stops at the first that fails. The budgets run the binary that the tests of the workspace have
/// built: a build of its package alone would have other features, and build everything again.
pub fn ci() -> ExitCode {
    let start = Instant::now();
    let mut counts = Counts::default();
    let stop = AtomicBool::new(false);
    let fine = thread::scope(|scope| {
        let mut beside = None;
        for step in STEPS {
            if !take(step, &mut counts) {
                stop.store(true, Ordering::Relaxed);
                return false;
            }
            if step.name == BUILD {
                beside = Some(scope.spawn(|| run_beside(&stop)));
            }
        }
        let beside = beside.expect("one step builds the binary").join();
        beside.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).into_iter().all(|ended| {
            println!("== {}: {}\n{}", ended.name, ended.words.join(" "), ended.said);
            close(&ended.name, ended.fine, ended.took);
            ended.fine
        })
    });
    if fine {
        println!("everything holds, after {:.0?}", start.elapsed());
    }
    let failed = counts.failed.max(u64::from(!fine));
    println!("{} passed, {failed} failed, {} skipped", counts.passed, counts.ignored);
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn close(name: &str, fine: bool, took: Duration) {
    println!("== {name}: {} after {took:.0?}\n", if fine { "ok" } else { "FAILED" });
}

/// What came of a program that ran beside the tests.
struct Ended {
    name: String,
    words: Vec<String>,
    fine: bool,
    said: String,
    took: Duration,
}

/// Whether the benchmarks compile; and the seeds that every change must survive: the nightly amount is a flag away
/// (`quorate sim --runs 10000`). Ends with the first that fails, or before the next one after `stop`.
fn run_beside(stop: &AtomicBool) -> Vec<Ended> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let (binary, folder) = (format!("{target}/debug/quorate"), format!("{target}/benchmarks"));
    let benchmarks = BENCHMARKS.iter().map(|package| {
        let words =
            ["cargo", "check", "--quiet", "--all-targets", "--target-dir", &folder, "--manifest-path"];
        let words = words.map(str::to_owned).into_iter().chain([format!("{package}/Cargo.toml")]);
        (format!("{package} compiles"), words.collect())
    });
    let of_protocols = registry::all().into_iter().flat_map(|entry| {
        entry.gate.iter().map(move |budget| (vec!["--protocol", entry.name], budget.flags()))
    });
    let of_groups = registry::GROUPS.iter().map(|(flags, budget)| (flags.to_vec(), budget.flags()));
    let budgets = of_protocols.chain(of_groups).map(|(whose, flags)| {
        let words = [&*binary, "sim"].into_iter().chain(whose).map(str::to_owned);
        (BUDGET.to_owned(), words.chain(flags).collect::<Vec<_>>())
    });
    let mut done = Vec::new();
    for (name, words) in benchmarks.chain(budgets) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        let (fine, said) = said(Command::new("nice").args(["-n", "19"]).args(&words));
        done.push(Ended { name, words, fine, said, took: began.elapsed() });
        if !fine {
            break;
        }
    }
    done
}

/// Whether a program ends well, and what it has printed by then.
fn said(command: &mut Command) -> (bool, String) {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&said).into_owned())
        }
        Err(error) => (false, format!("cannot run {}: {error}", command.get_program().display())),
    }
}

fn run(words: &[&str], counts: &mut Counts) -> bool {
    let child = Command::new(words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("cannot run {}: {error}", words[0]);
            return false;
        }
    };
    let output = child.stdout.take().expect("it is piped");
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        counts.read(&line);
        println!("{line}");
    }
    child.wait().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_test_runs_add_up() {
        let mut counts = Counts::default();
        counts.read(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; finished in 0.01s",
        );
        counts.read("test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.read("something else: 7 passed");
        assert_eq!((counts.passed, counts.failed, counts.ignored), (5, 5, 1));
    }
}
