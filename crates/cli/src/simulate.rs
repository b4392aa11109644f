//! `quorate sim` and `quorate replay`.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quorate_explore::Bounds;
use quorate_protocols::wide_area;
use quorate_runtime::AnyProtocol;
use quorate_sim::{Options, OptionsError, Summary};

use crate::args::{Replay, Responders, Sim, Simulated};
use crate::failure::{Failure, say};
use crate::protocols;
use crate::signals;
use crate::topology;

fn options(protocol: &dyn AnyProtocol, args: Simulated, runs: u64) -> Result<Options, Failure> {
    let default = Options::default();
    let can = protocol.capabilities();
    let named = |name: String| topology::load(&name).map(|topology| (name, topology));
    let topology = args.topology.map(named).transpose()?;
    let several = topology.as_ref().map_or(default.nodes, |(_, topology)| topology.sites().len());
    let nodes = args.nodes.unwrap_or(several.clamp(can.min_nodes, can.max_nodes));
    // With `timeouts`, the nodes find out by themselves.
    let stated = args
        .set
        .iter()
        .any(|setting| setting.split('=').next().is_some_and(|name| name.trim() == "timeouts"));
    let suiting = topology.as_ref().filter(|_| !stated);
    let suiting = suiting.map(|(_, topology)| wide_area::settings(topology, protocol, nodes));
    Ok(Options {
        nodes,
        proxies: args.proxies.unwrap_or(default.proxies),
        settings: suiting.unwrap_or_default().into_iter().chain(args.set).collect(),
        topology,
        faults: args.faults,
        seed: args.seed,
        runs,
        clients: args.clients.unwrap_or(default.clients),
        readers: args.readers.unwrap_or(default.readers),
        writers: args.writers.unwrap_or(default.writers),
        values: args.values.unwrap_or(default.values),
        duration: args.duration.unwrap_or(default.duration),
        until: args.until,
        skip: args.skip,
        founded: args.founded,
        diskless: args.diskless,
    })
}

pub fn sim(args: Sim) -> Result<(), Failure> {
    if args.explore {
        return explore(args);
    }
    let protocol = protocols::choose(&args.run.protocol, &args.run.groups)?.protocol;
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let options = options(protocol, args.run, args.runs)?;
    let asked = signals::interrupt_flag()?;
    let summary = campaign(protocol, &options, jobs.unwrap_or(1).max(1), &asked).map_err(Failure::wrong)?;
    write!(stdout(), "{summary}")?;
    if !summary.is_fine() {
        Err(Failure::failed(""))
    } else if summary.runs < options.runs {
        let (done, runs) = (summary.runs, options.runs);
        Err(Failure::failed(format!("interrupted after {done} of {runs} runs, which were fine")))
    } else {
        Ok(())
    }
}

fn explore(args: Sim) -> Result<(), Failure> {
    let Sim { run, bounds, .. } = args;
    let protocol = protocols::find(&run.protocol)?;
    let can = protocol.capabilities();
    if run.topology.is_some()
        || run.proxies.is_some()
        || run.clients.is_some()
        || run.until.is_some()
        || run.readers.is_some()
        || run.writers.is_some()
        || run.values.is_some()
        || run.groups.groups.is_some()
        || run.groups.group_keys.is_some()
        || run.diskless
    {
        return Err(Failure::wrong(
            "an exploration has no sites, proxies, clients, readers, writers, values, groups or duration, and its \
             nodes have disks: see its bounds",
        ));
    }
    let bounds = Bounds {
        nodes: run.nodes.unwrap_or(3.clamp(can.min_nodes, can.max_nodes)),
        ballots: bounds.ballots,
        pace: bounds.pace,
        writes: bounds.writes.into(),
        reads: bounds.reads.into(),
        waiting: bounds.waiting,
        rosters: bounds.roster.into_iter().map(|Responders(nodes)| nodes).collect(),
        facts: bounds.facts,
        asks: bounds.asks,
        failures: bounds.failures,
        wakes: bounds.wakes,
        ticks: bounds.ticks,
        hints: bounds.hints,
        reorder: bounds.reorder,
        delays: bounds.delays,
        states: bounds.states,
        settings: run.set,
    };
    let start = Instant::now();
    let bar = match stderr().is_terminal() {
        true => ProgressBar::new_spinner(),
        false => ProgressBar::hidden(),
    };
    let asked = signals::interrupt_flag()?;
    let explored = quorate_explore::explore(protocol, &bounds, &mut |found| {
        bar.set_message(format!("{} states, {} searches before", found.states, found.repeated));
        bar.tick();
        if asked.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            // An exploration cannot be ended from outside; what it has found so far is said all the same.
            let (states, time) = (found.states, start.elapsed().as_secs_f64());
            let _ = writeln!(stdout(), "{states} states in {time:.1} s, no violation in them");
            say("quorate: interrupted: not every behaviour was seen");
            std::process::exit(1);
        }
    })
    .map_err(Failure::wrong)?;
    bar.finish_and_clear();
    writeln!(stdout(), "{explored}{:.1} s", start.elapsed().as_secs_f64())?;
    if explored.counterexample.is_none() { Ok(()) } else { Err(Failure::failed("")) }
}

/// Seeds that one thread takes at a time.
const CHUNK: u64 = 8;

/// Runs all seeds on some threads. Each takes the next few seeds until a violation is found; of several violations
/// the one with the lowest seed counts, and every lower seed has been run: the outcome does not depend on the
/// threads.
///
/// When `asked` to, it ends with the runs that are over.
fn campaign(
    protocol: &dyn AnyProtocol,
    options: &Options,
    jobs: usize,
    asked: &AtomicBool,
) -> Result<Summary, OptionsError> {
    let start = Instant::now();
    let bar = ProgressBar::with_draw_target(
        Some(options.runs),
        match stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        },
    );
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {per_sec}, {eta} left {msg}")
            .expect("a template"),
    );
    let next = AtomicU64::new(0);
    let stop = AtomicU64::new(u64::MAX);
    let chunks = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let work = || -> Result<(), OptionsError> {
            loop {
                let first = next.fetch_add(CHUNK, Ordering::Relaxed);
                let over = first >= options.runs || asked.load(Ordering::Relaxed);
                if over || first > stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let runs = CHUNK.min(options.runs - first);
                let options = Options { seed: options.seed.wrapping_add(first), runs, ..options.clone() };
                let mut done = 0;
                let summary = quorate_sim::sim(protocol, &options, &mut |progress| {
                    bar.inc(progress.done - done);
                    done = progress.done;
                    if progress.shrinking {
                        bar.set_message("(shrinking a violation)");
                    }
                })?;
                if !summary.is_fine() {
                    stop.fetch_min(first, Ordering::Relaxed);
                }
                chunks.lock().expect("no thread panics with it").push((first, summary));
            }
        };
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a run does not panic"))
    })?;
    bar.finish_and_clear();
    let mut chunks = chunks.into_inner().expect("no thread panics with it");
    chunks.sort_by_key(|(first, _)| *first);
    let mut whole = Summary::default();
    for (first, summary) in chunks {
        if first <= stop.load(Ordering::Relaxed) {
            whole.merge(summary);
        }
    }
    whole.real_time = Some(start.elapsed());
    Ok(whole)
}

pub fn replay(args: Replay) -> Result<(), Failure> {
    let protocol = protocols::choose(&args.run.protocol, &args.run.groups)?.protocol;
    let options = options(protocol, args.run, 1)?;
    let run = quorate_sim::replay(protocol, &options, |line| {
        // A reader that has seen enough, such as `head`, ends the replay.
        if writeln!(stdout(), "{line}").is_err() {
            std::process::exit(1);
        }
    })
    .map_err(Failure::wrong)?;
    match &run.violation {
        None => Ok(()),
        Some(violation) => Err(Failure::failed(format!("violation: {violation}"))),
    }
}
