//! Figure 10: sizes and links that change; Figure 11: leaders that die.

use quorate_core::{Link, Random, Rate};
use quorate_sim::experiment::Act;

use super::world::{
    self, Candidate, Closed, Cluster, FIVE, FIXED, READY, SECOND, Seen, WARM_UP, known, links, mean_shards,
    mix, regional,
};
use super::{CROSSWORD, FIG10, FIG10_TRACE, FIG11, FIG11_LOG, FIG11_TRACE, RSPAXOS};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::{Bench, pairs};

/// Where the figures' time begins.
const ORIGIN: u64 = READY + SECOND + WARM_UP;
/// From change to change of Figure 10.
const PHASE: u64 = 15 * SECOND;
const PHASES: [&str; 5] = ["64 KB", "4 KB", "4 KB, 100 Mbit/s", "4 KB, 1 Gbit/s", "4 KB, two lag"];
/// A change may show for so long.
const SETTLING: u64 = 3 * SECOND;

/// All links change at an instant.
fn change(at: u64, link: impl Fn(usize, usize) -> Link) -> Vec<(u64, Act)> {
    links(5, link).into_iter().map(|((from, to), link)| (at, Act::Link(from, to, link))).collect()
}

pub fn fig10(bench: &Bench) -> Result<Vec<Rows>> {
    let phase = if bench.quick { 4 * SECOND } else { PHASE };
    let begin = move |number: u64| ORIGIN + number * phase;
    let candidates: Vec<_> = FIVE.iter().chain(&FIXED).collect();
    let slow = world::link(4.0, Rate::mbit(100));
    // Nodes 4 and 5 lag.
    let lagging = |from: usize, to: usize| match from.max(to) {
        4 | 5 => world::link(40.0, Rate::mbit(100)),
        _ => regional(),
    };
    let seen = bench.each(&candidates, |&candidate| {
        let pick = Box::new(move |_: usize, random: &mut Random, now| {
            Some(world::around(if now < begin(1) { 64_000 } else { 4_000 }, random))
        });
        let acts =
            [change(begin(2), |_, _| slow), change(begin(3), |_, _| regional()), change(begin(4), lagging)];
        let closed = Closed { acts: acts.concat(), ..Closed::new(pick, 5 * phase) };
        closed.run(&Cluster::regional(candidate, 5))
    })?;
    let settled = |number: u64| (begin(number) + SETTLING.min(phase / 2), begin(number + 1));
    let mut rows = Vec::new();
    for (number, phase) in (0..).zip(PHASES) {
        let rate = |of: &Seen| of.rate(settled(number));
        let best = |of: &[Seen]| of.iter().map(rate).fold(0.0, f64::max);
        let (others, fixed) = (best(&seen[..4]), best(&seen[5..]));
        for (candidate, seen) in candidates.iter().zip(&seen) {
            let (rate, settling) = (rate(seen), settling(seen, begin(number), begin(number + 1)));
            let numbers = [rate, rate / others, rate / fixed, settling].map(Some);
            let shards = mean_shards(seen, settled(number));
            rows.push(Row::of(&[&candidate.name, &phase], numbers.into_iter().chain([shards])));
        }
    }
    let trace =
        candidates[..5].iter().zip(&seen).flat_map(|(candidate, seen)| trace(candidate.name, seen, begin(5)));
    Ok(vec![Rows(&FIG10, rows), Rows(&FIG10_TRACE, trace.collect())])
}

/// Seconds from a change until each quarter of a second has 90% of the later half's throughput at least.
fn settling(seen: &Seen, from: u64, until: u64) -> f64 {
    let step = SECOND / 4;
    let level = 0.9 * seen.rate(((from + until) / 2, until));
    let steps = (from..until - step).step_by(step as usize);
    let last =
        steps.filter(|at| *at < from + (until - from) / 2 && seen.rate((*at, at + step)) < level).last();
    last.map_or(0.0, |at| (at + step - from) as f64 / SECOND as f64)
}

/// By seconds on the figure's axis.
fn trace(name: &'static str, seen: &Seen, end: u64) -> Vec<Row> {
    let row = |at: u64| {
        let between = (at, at + SECOND);
        let numbers = [Some(seen.rate(between)), mean_shards(seen, between)];
        Row::of(&[&name, &((at - ORIGIN) / SECOND)], numbers)
    };
    (ORIGIN..end).step_by(SECOND as usize).map(row).collect()
}

/// A leader's followers miss it after so long.
const TIMEOUT: &str = "election.timeout=1500ms";
/// From the figure's origin to the first crash, to the second, and to the end.
const CRASHES: [u64; 3] = [5 * SECOND, 30 * SECOND, 45 * SECOND];
/// Before the second crash, the group has settled for so long.
const LEVEL: u64 = 5 * SECOND;

/// Clients of a leader's node lose what they have asked.
const RECONNECT: u64 = 2 * SECOND;

fn failing(candidate: &'static Candidate, seed: u64, crashes: &[u64], end: u64) -> Result<Seen> {
    let acts = crashes.iter().map(|at| (ORIGIN + at, Act::CrashLeader)).collect();
    let cluster = Cluster { settings: vec![TIMEOUT.to_owned()], seed, ..Cluster::regional(candidate, 5) };
    Closed { acts, patience: RECONNECT, ..Closed::new(mix(0.5, &[64_000]), end) }.run(&cluster)
}

/// Seconds from an instant until an operation ends that another leader has served; none if none does.
fn gap(seen: &Seen, crash: u64, until: u64) -> Option<f64> {
    // What was on its way when the leader died.
    let late = crash + 100 * world::MS;
    let first = seen.ended((late, until), None).filter_map(|op| op.ended).min()?;
    Some((first - crash) as f64 / SECOND as f64)
}

pub fn fig11(bench: &Bench) -> Result<Vec<Rows>> {
    let runs: &[u32] = if bench.quick { &[1] } else { &[1, 2, 3] };
    let [first, second, end] = CRASHES;
    let seen = bench.each(&pairs(&FIVE.each_ref(), runs), |&(candidate, run)| {
        let seen = failing(candidate, 100 * u64::from(run), &[first, second], end)?;
        let at = |offset: u64| ORIGIN + offset;
        let (calm, last) = ((at(second - LEVEL), at(second)), (at(end - LEVEL), at(end)));
        let numbers = [
            gap(&seen, at(first), at(second)),
            gap(&seen, at(second), at(end)),
            Some(seen.rate((at(first - LEVEL / 2), at(first)))),
            Some(seen.rate(calm)),
            Some(seen.rate(last)),
            mean_shards(&seen, calm),
            mean_shards(&seen, last),
        ];
        let trace = if run == 1 { trace(candidate.name, &seen, at(end)) } else { Vec::new() };
        Ok((Row { run, ..Row::of(&[&candidate.name], numbers) }, trace))
    })?;
    let (rows, traces): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    let grown = bench.each(&pairs(&[RSPAXOS, CROSSWORD], &[5, 10, 20]), |(name, load)| {
        let crash = load * SECOND / 2;
        let until = crash + 25 * SECOND;
        let seen = failing(known(name), 100, &[crash], until)?;
        Ok(Row::of(&[name, load], [gap(&seen, ORIGIN + crash, ORIGIN + until)]))
    })?;
    Ok(vec![Rows(&FIG11, rows), Rows(&FIG11_LOG, grown), Rows(&FIG11_TRACE, traces.concat())])
}
