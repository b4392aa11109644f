//! Measures experiments: points on all cores where time is virtual, alone where it is real; writes the CSVs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use xtask::compare::machine;
use xtask::compare::processes::Stop;

use super::grid::{Figure, Grid, Row, Rows, Time};
use super::rule::Kind;
use super::{Paper, Result, source};

/// What an experiment is measured with.
#[derive(Debug)]
pub struct Bench {
    /// Smaller, to see that it works.
    pub quick: bool,
    pub stop: Stop,
    quorate: OnceLock<PathBuf>,
}

impl Bench {
    /// The binary that real processes run, built when it is first needed.
    pub fn quorate(&self) -> Result<PathBuf> {
        if let Some(built) = self.quorate.get() {
            return Ok(built.clone());
        }
        let built = xtask::compare::quorate()?;
        Ok(self.quorate.get_or_init(|| built).clone())
    }

    /// Tells how far it is; an error if it is to stop.
    pub fn say(&self, text: &str) -> Result<()> {
        eprintln!("  {text}");
        self.stop.check()
    }

    /// The rows of one figure, a row for each item.
    pub fn rows<T: Sync>(
        &self,
        figure: &'static Figure,
        items: &[T],
        measure: impl Fn(&T) -> Result<Row> + Sync,
    ) -> Result<Vec<Rows>> {
        Ok(vec![Rows(figure, self.each(items, measure)?)])
    }

    /// The results of a function of each item, in the order of the items, on all cores: for virtual time.
    pub fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        measure: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(items.iter().map(|_| None).collect::<Vec<_>>());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores.min(items.len()) {
                scope.spawn(|| {
                    while let Some((at, item)) = Some(next.fetch_add(1, Ordering::Relaxed))
                        .and_then(|at| Some((at, items.get(at)?)))
                        .filter(|_| self.stop.check().is_ok())
                    {
                        let result = measure(item);
                        results.lock().expect("no measurement panics")[at] = Some(result);
                    }
                });
            }
        });
        let results = results.into_inner().expect("no measurement panics");
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err("stopped by a signal".to_owned())))
            .collect()
    }
}

/// Every combination of two lists.
pub fn pairs<A: Copy, B: Copy>(of: &[A], with: &[B]) -> Vec<(A, B)> {
    of.iter().flat_map(|one| with.iter().map(move |other| (*one, *other))).collect()
}

/// Seconds that a function takes: the median of as many calls as take half a second.
pub fn median_time(mut of: impl FnMut()) -> f64 {
    let (mut all, begin) = (Vec::new(), Instant::now());
    while begin.elapsed() < Duration::from_millis(500) {
        let start = Instant::now();
        of();
        all.push(start.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Measures some experiments of a paper, or all, and writes their CSVs into a folder.
pub fn measure(paper: &Paper, only: Option<&[String]>, quick: bool, out: &Path) -> Result<()> {
    let experiments: Vec<_> = paper.experiments.iter().collect();
    for id in only.into_iter().flatten() {
        if experiments.iter().all(|experiment| experiment.id != id) {
            let ids: Vec<_> = experiments.iter().map(|experiment| experiment.id).collect();
            return Err(format!("no experiment `{id}`; there are: {}", ids.join(", ")));
        }
    }
    let rules = format!("papers/{}/rules*", paper.name);
    if !quick && !machine::git(&["status", "--porcelain", "--", &rules])?.is_empty() {
        return Err(format!("commit {rules} first: rules stand before the run that they judge"));
    }
    let bench = Bench { quick, stop: Stop::listen()?, quorate: OnceLock::new() };
    let digests = source::digests(paper.rules_text);
    let all = (paper.measured)();
    for experiment in experiments {
        if only.is_some_and(|only| only.iter().all(|id| id != experiment.id)) {
            continue;
        }
        eprintln!("{}: begins", experiment.id);
        let real = experiment.figures.iter().any(|figure| figure.time == Time::Real);
        let load = || if real { machine::load(Duration::from_secs(2)) } else { 0.0 };
        let (before, start) = (load(), Instant::now());
        let measured = (experiment.measure)(&bench)?;
        let (took, after) = (start.elapsed().as_secs_f64(), load());
        for Rows(figure, rows) in measured {
            let judging = all.iter().filter(|rule| match &rule.kind {
                Kind::Measured(check, _) => check.figures.iter().any(|other| other.id == figure.id),
                _ => false,
            });
            let word = |claim: &str| {
                let digest = digests.get(claim).map_or("", String::as_str);
                format!("{claim}={digest}")
            };
            let mut head = machine::head()?;
            let mut say = |name: &str, value: String| drop(head.insert(name.to_owned(), value));
            say("rules", judging.map(|rule| word(rule.claim)).collect::<Vec<_>>().join(" "));
            say("rules commit", machine::git(&["log", "-1", "--format=%h", "--", &rules])?);
            say("time", if real { "real" } else { "virtual" }.to_owned());
            say("took", format!("{took:.1} s"));
            if real {
                say("load", format!("{before} before, {after} after"));
                say("quiet", if machine::is_quiet(&[before, after]) { "yes" } else { "no" }.to_owned());
            }
            if quick {
                say("note", "**quick: the numbers are worth little**".to_owned());
            }
            let path = out.join(format!("{}.csv", figure.id));
            std::fs::write(&path, Grid::of(figure.schema(), head, rows).csv())
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        eprintln!("{}: done in {took:.0} s", experiment.id);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_and_an_error_is_handed_on() {
        let bench = Bench { quick: true, stop: Stop::listen().unwrap(), quorate: OnceLock::new() };
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(bench.each(&items, |item| Ok(item * 2)).unwrap()[99], 198);
        let odd = |item: &u32| if *item == 50 { Err("fifty".to_owned()) } else { Ok(*item) };
        assert_eq!(bench.each(&items, odd).unwrap_err(), "fifty");
    }
}
