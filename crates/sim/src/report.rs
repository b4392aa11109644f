//! A campaign over many seeds, and what came of it.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use quorate_check::Violation;
use quorate_core::Capabilities;
use quorate_runtime::AnyProtocol;

use crate::faults::{Counts, Kind};
use crate::options::{Options, OptionsError};
use crate::run::{Run, run};
use crate::shrink::shrink;
use crate::trace::{Tail, Trace};

/// Lines of the shrunk trace that a failure shows.
const TAIL: usize = 60;

/// How far a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs that are over.
    pub done: u64,
    /// Runs that were asked for.
    pub runs: u64,
    /// Client requests answered so far.
    pub operations: u64,
    /// Virtual time so far.
    pub virtual_time: Duration,
    /// Whether a failing run is being shrunk, which may take seconds.
    pub shrinking: bool,
}

/// Runs the seeds `options.seed ..` up to `options.runs` of them, and stops at the first violation, shrunk. The
/// caller measures real time, and may give ranges of seeds to several threads and [`merge`](Summary::merge) the
/// summaries.
pub fn sim(
    protocol: &dyn AnyProtocol,
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, OptionsError> {
    options.check(protocol.name(), protocol.capabilities())?;
    let mut summary = Summary { protocol: protocol.name(), ..Summary::default() };
    for seed in (options.seed..).take(usize::try_from(options.runs).unwrap_or(usize::MAX)) {
        let run = run(protocol, options, seed, Trace::silent())?;
        summary.add(&run);
        let mut report = Progress {
            done: summary.runs,
            runs: options.runs,
            operations: summary.operations,
            virtual_time: summary.virtual_time,
            shrinking: !run.is_fine(),
        };
        progress(&report);
        if !run.is_fine() {
            summary.failures.push(Failure::of(protocol, options, &run));
            report.shrinking = false;
            progress(&report);
            break;
        }
    }
    Ok(summary)
}

/// Runs one seed and hands every line of its trace to `line`.
pub fn replay(
    protocol: &dyn AnyProtocol,
    options: &Options,
    line: impl FnMut(&str) + 'static,
) -> Result<Run, OptionsError> {
    run(protocol, options, options.seed, Trace::to(line))
}

/// A violation with what it takes to look into it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The flags that choose the protocol.
    pub protocol: String,
    /// The seed.
    pub seed: u64,
    /// What was violated, as the campaign found it.
    pub found: Violation,
    /// What is violated in the shrunk run.
    pub violation: Violation,
    /// The shrunk run's options.
    pub options: Options,
    /// The end of its trace.
    pub tail: Vec<String>,
}

impl Failure {
    fn of(protocol: &dyn AnyProtocol, options: &Options, failed: &Run) -> Failure {
        let found = failed.violation.clone().expect("a failed run has a violation");
        let (options, shrunk) = shrink(protocol, options, failed);
        let tail = Tail::new(TAIL);
        let again = run(protocol, &options, failed.seed, tail.trace());
        let again = again.expect("these options ran before");
        let violation = again.violation.unwrap_or_else(|| Violation {
            checker: "determinism",
            at: again.virtual_time,
            what: format!("a second run of the same seed was fine; the first: {:?}", shrunk.violation),
        });
        Failure {
            protocol: protocol.flags(),
            seed: failed.seed,
            found,
            violation,
            options,
            tail: tail.take(),
        }
    }

    /// The command that shows the shrunk run event by event.
    pub fn replay_line(&self) -> String {
        let Failure { protocol, seed, options, .. } = self;
        format!("quorate replay {protocol} --seed {seed}{}", options.flags())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violation of {} with seed {}: {}", self.found.checker, self.seed, self.found)?;
        if self.violation != self.found {
            writeln!(f, "shrunk: {}", self.violation)?;
        }
        writeln!(f, "the shrunk run ends so:")?;
        for line in &self.tail {
            writeln!(f, "  {line}")?;
        }
        write!(f, "replay: {}", self.replay_line())
    }
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The protocol.
    pub protocol: &'static str,
    /// Runs, failed ones included.
    pub runs: u64,
    /// Virtual time of all runs.
    pub virtual_time: Duration,
    /// Client requests that were answered.
    pub operations: u64,
    /// Events that happened.
    pub events: u64,
    /// Checkpoints that were begun.
    pub checkpoints: u64,
    /// Faults that happened.
    pub faults: Counts,
    /// Histories on which the linearizability checker gave up.
    pub undecided: u64,
    /// Runs that ended early since nobody owed anything any more ([`Run::group_lost`]).
    pub groups_lost: u64,
    /// The longest that somebody waited for a write and none was answered, once nothing more failed; and in which seed,
    /// the lowest if there are several.
    pub longest_wait: (Duration, Reverse<u64>),
    /// Violations.
    pub failures: Vec<Failure>,
    /// Real time, if the caller measured it.
    pub real_time: Option<Duration>,
}

impl Summary {
    fn add(&mut self, run: &Run) {
        self.runs += 1;
        self.virtual_time += Duration::from_nanos(run.virtual_time);
        self.operations += run.operations;
        self.events += run.events;
        self.checkpoints += run.checkpoints;
        self.faults.merge(&run.faults);
        self.undecided += u64::from(run.undecided);
        self.groups_lost += u64::from(run.group_lost);
        self.longest_wait =
            self.longest_wait.max((Duration::from_nanos(run.longest_wait), Reverse(run.seed)));
    }

    /// Adds the summary of other seeds. Real time is left alone: threads overlap.
    pub fn merge(&mut self, other: Summary) {
        if self.protocol.is_empty() {
            self.protocol = other.protocol;
        }
        self.runs += other.runs;
        self.virtual_time += other.virtual_time;
        self.operations += other.operations;
        self.events += other.events;
        self.checkpoints += other.checkpoints;
        self.faults.merge(&other.faults);
        self.undecided += other.undecided;
        self.groups_lost += other.groups_lost;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.seed);
    }

    /// Whether nothing was violated.
    pub fn is_fine(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: String| writeln!(f, "{name:<22}{value:>14}");
        row("protocol", self.protocol.to_owned())?;
        row("runs", self.runs.to_string())?;
        row("virtual time", format!("{:.0} s", self.virtual_time.as_secs_f64()))?;
        if let Some(real) = self.real_time {
            row("real time", format!("{:.1} s", real.as_secs_f64()))?;
            let speed = self.virtual_time.as_secs_f64() / real.as_secs_f64().max(1e-9);
            row("speed-up", format!("{speed:.0} x"))?;
        }
        row("events", self.events.to_string())?;
        row("operations", self.operations.to_string())?;
        row("checkpoints", self.checkpoints.to_string())?;
        row("faults", String::new())?;
        for &kind in Kind::ALL {
            let times = self.faults.of(kind);
            if times > 0 || (!kind.on_demand() && kind.possible(&Capabilities::LOGGED)) {
                row(&format!("  {}", kind.name()), times.to_string())?;
            }
        }
        let (longest, Reverse(seed)) = self.longest_wait;
        row("longest without write", format!("{:.1} s", longest.as_secs_f64()))?;
        row("  in seed", seed.to_string())?;
        if self.undecided > 0 {
            row("undecided histories", self.undecided.to_string())?;
        }
        if self.groups_lost > 0 {
            row("groups lost", self.groups_lost.to_string())?;
        }
        row("violations", self.failures.len().to_string())?;
        for failure in &self.failures {
            writeln!(f, "\n{failure}")?;
        }
        Ok(())
    }
}

/// Whether a weakened rule is noticed: the first of up to `most` seeds that fails with the mutation on and not without,
/// and how. Nothing is shrunk.
#[cfg(feature = "mutations")]
pub fn caught(
    protocol: &dyn AnyProtocol,
    mutation: &str,
    options: &Options,
    most: u64,
) -> Result<Option<(u64, Violation)>, OptionsError> {
    let run = |seed| run(protocol, options, seed, Trace::silent());
    let violation = |seed| Ok::<_, OptionsError>(run(seed)?.violation);
    for seed in options.seed..options.seed + most {
        if let Some(found) = quorate_core::mutation::with(mutation, || violation(seed))?
            && violation(seed)?.is_none()
        {
            return Ok(Some((seed, found)));
        }
    }
    Ok(None)
}
