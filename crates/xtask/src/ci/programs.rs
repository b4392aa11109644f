//! The programs of tests that cargo has built, run as `cargo test` runs them, but three at a time: one that simulates,
//! and two of the others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use super::Counts;

/// Crates whose tests wait for nothing: they are run beside the others, at the lowest priority.
const SIMULATIONS: &[&str] = &["check", "explore", "sim"];

/// How many of the others are run at a time: their tests mostly wait, for each other and for the last one.
const OTHERS: usize = 2;

/// One of them.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// The folder of its package.
    package: PathBuf,
    executable: String,
}

impl Program {
    /// Reads a line that cargo writes with `--message-format=json`, if it is about a program of tests.
    fn read(line: &str) -> Option<Program> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let executable = message["executable"].as_str().filter(|_| is_test)?;
        Some(Program { package: manifest.parent()?.to_owned(), executable: executable.to_owned() })
    }

    fn simulates(&self) -> bool {
        SIMULATIONS.iter().any(|name| self.package.ends_with(Path::new("crates").join(name)))
    }

    /// Runs it, and then prints what it has printed.
    fn run(&self, counts: &Mutex<&mut Counts>) -> bool {
        println!("     Running {}", self.executable);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let priority = if self.simulates() { "19" } else { "0" };
        let (fine, said) = super::said(
            Command::new("nice")
                .args(["-n", priority, &self.executable])
                .current_dir(&self.package)
                .env("CARGO_MANIFEST_DIR", &self.package)
                .env("RUST_TEST_THREADS", threads.to_string()),
        );
        let mut counts = counts.lock().expect("nobody panics with it");
        said.lines().for_each(|line| counts.read(line));
        println!("     Said by {}\n{said}", self.executable);
        if !fine {
            println!("error: {} failed\n", self.executable);
        }
        fine
    }
}

/// Runs all that these words of cargo name, whatever fails.
pub(super) fn run(words: &[&str], counts: &mut Counts) -> bool {
    let output = Command::new(words[0]).args(&words[1..]).stderr(Stdio::inherit()).output();
    let output = match output {
        Ok(output) if output.status.success() => output.stdout,
        Ok(_) => return false,
        Err(error) => {
            println!("cannot run {}: {error}", words[0]);
            return false;
        }
    };
    let programs = String::from_utf8_lossy(&output).lines().filter_map(Program::read).collect::<Vec<_>>();
    let (simulations, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::simulates);
    if simulations.is_empty() || others.is_empty() {
        println!("cargo names no programs of tests");
        return false;
    }
    let counts = Mutex::new(counts);
    let [simulations, others] = [&simulations, &others].map(|programs| Mutex::new(programs.iter()));
    let run_all = |programs: &Mutex<std::slice::Iter<Program>>| {
        let next = || programs.lock().expect("nobody panics with it").next();
        std::iter::from_fn(next).filter(|program| !program.run(&counts)).count() == 0
    };
    thread::scope(|scope| {
        let lanes = (0..OTHERS).map(|_| scope.spawn(|| run_all(&others)));
        let lanes: Vec<_> = lanes.chain([scope.spawn(|| run_all(&simulations))]).collect();
        let mut ended = lanes.into_iter().map(|lane| lane.join());
        ended.all(|fine| fine.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_programs_of_tests() {
        let artifact = |folder: &str, test: bool, executable: &str| {
            let start = format!(r#"{{"manifest_path":"{folder}/Cargo.toml","profile":{{"test":{test}}},"#);
            start + &format!(r#""executable":{executable}}}"#)
        };
        let program =
            Program::read(&artifact("/q/crates/sim", true, r#""/t/runs-1""#)).expect("one of tests");
        assert_eq!(program, Program { package: "/q/crates/sim".into(), executable: "/t/runs-1".to_owned() });
        assert!(program.simulates());
        let program =
            Program::read(&artifact("/q/crates/cli", true, r#""/t/cluster-1""#)).expect("one of tests");
        assert!(!program.simulates());
        assert_eq!(Program::read(&artifact("/q/crates/cli", false, r#""/t/quorate""#)), None, "no tests");
        assert_eq!(Program::read(&artifact("/q/crates/sim", true, "null")), None, "a library");
        assert_eq!(Program::read(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(Program::read("no JSON"), None);
    }
}
