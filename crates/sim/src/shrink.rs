//! A smaller run that fails alike: fewer kinds of faults, a shorter fault phase, fewer clients, fewer scheduled faults.
//!
//! Greedy: a change stays if the same checker still fails. Because each part of a run draws from a generator of its
//! own, most changes leave the rest of the run as it was.

use std::time::Duration;

use quorate_runtime::AnyProtocol;

use crate::faults::Faults;
use crate::options::Options;
use crate::run::{Run, run};
use crate::trace::Trace;

/// Runs that shrinking may take.
const BUDGET: usize = 200;

/// Options under which `seed` still fails at the checker that `failed` failed at, and how that run went. `failed` is
/// what `options` gave.
pub fn shrink(protocol: &dyn AnyProtocol, options: &Options, failed: &Run) -> (Options, Run) {
    let mut search = Search { best: options.clone(), run: failed.clone(), left: BUDGET, protocol };
    search.attempt(|options| options.faults = Faults::Only(failed.plan.kinds));
    search.shorten();
    search.drop_kinds();
    search.drop_clients();
    search.drop_strikes();
    search.drop_kinds();
    search.shorten();
    (search.best, search.run)
}

struct Search<'a> {
    best: Options,
    run: Run,
    left: usize,
    protocol: &'a dyn AnyProtocol,
}

impl Search<'_> {
    /// Tries a change; keeps it if the same checker fails.
    fn attempt(&mut self, change: impl FnOnce(&mut Options)) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let mut options = self.best.clone();
        change(&mut options);
        let run = run(self.protocol, &options, self.run.seed, Trace::silent());
        let Ok(run) = run else { return false };
        let checker = |run: &Run| run.violation.as_ref().map(|violation| violation.checker);
        if checker(&run) != checker(&self.run) {
            return false;
        }
        (self.best, self.run) = (options, run);
        true
    }

    fn shorten(&mut self) {
        let at = self.run.violation.as_ref().map_or(0, |violation| violation.at);
        let noticed = Duration::from_millis(at / 1_000_000 + 1);
        let end = self.best.until.unwrap_or(self.best.duration);
        if noticed < end {
            self.attempt(|options| options.until = Some(noticed));
        }
        // Eighths of what is left, the shortest first.
        for _ in 0..3 {
            let end = self.best.until.unwrap_or(self.best.duration);
            let shorter = (1..8).any(|eighths| {
                let millis = end.as_millis() as u64 * eighths / 8;
                self.attempt(|options| options.until = Some(Duration::from_millis(millis)))
            });
            if !shorter {
                return;
            }
        }
    }

    fn drop_kinds(&mut self) {
        let Faults::Only(kinds) = self.best.faults else { return };
        for kind in kinds.iter() {
            self.attempt(|options| {
                if let Faults::Only(kinds) = options.faults {
                    options.faults = Faults::Only(kinds.without(kind));
                    // Strikes are numbered over all kinds.
                    options.skip.clear();
                }
            });
        }
    }

    fn drop_clients(&mut self) {
        for clients in [1, 2, 3, 4, 6] {
            if clients < self.best.clients && self.attempt(|options| options.clients = clients) {
                return;
            }
        }
    }

    /// Halves first, then quarters, down to single faults.
    fn drop_strikes(&mut self) {
        let end = self.best.end();
        let faults = self.run.plan.schedule.iter().filter(|fault| fault.at < end).count();
        let mut chunk = faults.div_ceil(2);
        while chunk > 0 {
            for first in (0..faults).step_by(chunk) {
                let chunk: Vec<_> =
                    (first..(first + chunk).min(faults)).filter(|i| !self.best.skip.contains(i)).collect();
                if !chunk.is_empty() {
                    self.attempt(|options| {
                        options.skip.extend(chunk);
                        options.skip.sort_unstable();
                    });
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
    }
}
