//! Figure 3, by bursts; Figures 5 to 13, 15 and 16, by closed loops of clients.

use quorate_bench::Choice;
use quorate_sim::experiment::{Capacity, Turns};

use super::costs::Costs;
use super::world::{
    self, Candidate, Cluster, FILLED, MS, OF_CRAQ, OF_HERMES, OF_RAFT, OF_ZAB, Pattern, USUAL,
};
use super::{FIG3, FIG5, FIG6, FIG7, FIG8, FIG9, FIG10, FIG11, FIG12, FIG13, FIG15, FIG16, TURNS};
use crate::instrument::Result;
use crate::instrument::grid::{Figure, Row, Rows};
use crate::instrument::measure::{Bench, pairs};

const WRITES: [u64; 7] = [1, 2, 5, 10, 20, 25, 50];
/// Clients at each node: twice as many bring an eighth more at most, where a tenth of what they do writes at most.
const CLIENTS: usize = 1024;
const CLIENT_COUNTS: [usize; 8] = [1, 4, 16, 64, 128, 256, 512, 1024];

/// How long operations are counted, in nanoseconds.
fn length(bench: &Bench) -> u64 {
    if bench.quick { MS } else { 10 * MS }
}

/// What bursts of reads add to a group at rest, and to a write.
pub fn fig3(bench: &Bench) -> Result<Vec<Rows>> {
    let candidates: Vec<_> = OF_RAFT.iter().chain(&OF_ZAB).chain(&OF_CRAQ).collect();
    let points = pairs(&candidates, &pairs(&[1, 16, 64, 128], &[("none", 0), ("timely", 1)]));
    let costs = Costs::known()?;
    bench.rows(&FIG3, &points, |&(candidate, (reads, (write, writes)))| {
        let cluster = Cluster { candidate, nodes: 5, costs, turns: Capacity::UNLIMITED.turns };
        let reader = cluster.follower()?;
        // Messages between nodes, their bytes, and those that others than the reader take.
        let cost = |reads: u64| {
            let at = FILLED + 100 * MS;
            let gets = (0..reads).map(|key| cluster.ask(at, reader, world::get(key)));
            let puts = (0..writes).map(|key| cluster.ask(at, reader, world::put(key, u64::MAX)));
            let measured = cluster.run(at + 20 * MS, gets.chain(puts).collect(), None)?;
            if measured.operations.iter().any(|op| !op.succeeded) {
                return Err(format!("{}: a read of a burst was not answered", candidate.name));
            }
            let others = measured.bytes.iter().filter(|((_, to), _)| usize::from(to.get()) != reader + 1);
            Ok([
                measured.sent.values().sum::<u64>() as f64,
                measured.bytes.values().sum::<u64>() as f64,
                others.map(|(_, bytes)| bytes).sum::<u64>() as f64,
            ])
        };
        let (with, without) = (cost(reads)?, cost(0)?);
        let numbers = [0, 1, 2].map(|at| with[at] - without[at]);
        Ok(Row::of(&[&candidate.name, &reads, &write], numbers))
    })
}

/// A point of a figure.
#[derive(Clone, Copy)]
struct Point {
    writes: u64,
    /// In closed loops at each node.
    clients: usize,
    nodes: usize,
    pattern: Pattern,
    /// Others than the usual ones of the protocol.
    turns: Option<Turns>,
}

const fn point(writes: u64) -> Point {
    Point { writes, clients: CLIENTS, nodes: 5, pattern: USUAL, turns: None }
}

/// Closed loops of both candidates; `keys` are those of the figure.
fn loops(
    bench: &Bench,
    figure: &'static Figure,
    candidates: &'static [Candidate; 2],
    points: &[Point],
    keys: impl Fn(Point) -> Vec<String> + Sync,
) -> Result<Vec<Rows>> {
    let points = pairs(&candidates.each_ref(), points);
    let costs = Costs::known()?;
    bench.rows(figure, &points, |&(candidate, point)| {
        let Point { writes, clients, nodes, pattern, turns } = point;
        let turns = turns.unwrap_or_else(|| world::turns(candidates));
        let cluster = Cluster { candidate, nodes, costs, turns };
        let seen = cluster.loaded((clients, writes), pattern, length(bench))?;
        let mut numbers: Vec<_> = world::totals(&seen)?.map(Some).to_vec();
        if figure.numbers.len() > numbers.len() {
            numbers.push(Some(world::reads_per_write(&seen)));
        }
        let keys = [vec![candidate.name.to_owned()], keys(point)].concat();
        Ok(Row { keys, numbers, run: 1 })
    })
}

fn by_writes(bench: &Bench, figure: &'static Figure, of: &'static [Candidate; 2]) -> Result<Vec<Rows>> {
    loops(bench, figure, of, &WRITES.map(point), |point| vec![point.writes.to_string()])
}

fn by_clients(bench: &Bench, figure: &'static Figure, of: &'static [Candidate; 2]) -> Result<Vec<Rows>> {
    let points = CLIENT_COUNTS.map(|clients| Point { clients, ..point(2) });
    loops(bench, figure, of, &points, |point| vec![point.clients.to_string()])
}

fn by_nodes(bench: &Bench, figure: &'static Figure, of: &'static [Candidate; 2]) -> Result<Vec<Rows>> {
    let points = [2, 10].map(|writes| [3, 5, 7].map(|nodes| Point { nodes, ..point(writes) }));
    loops(bench, figure, of, &points.concat(), |point| {
        vec![point.writes.to_string(), point.nodes.to_string()]
    })
}

/// Figure 5: Raft by the share of writes.
pub fn fig5(bench: &Bench) -> Result<Vec<Rows>> {
    by_writes(bench, &FIG5, &OF_RAFT)
}

/// Figure 6: Raft by the clients at each node.
pub fn fig6(bench: &Bench) -> Result<Vec<Rows>> {
    by_clients(bench, &FIG6, &OF_RAFT)
}

/// Figure 7: Raft by the number of nodes.
pub fn fig7(bench: &Bench) -> Result<Vec<Rows>> {
    by_nodes(bench, &FIG7, &OF_RAFT)
}

/// Figure 8: ZAB by the share of writes.
pub fn fig8(bench: &Bench) -> Result<Vec<Rows>> {
    by_writes(bench, &FIG8, &OF_ZAB)
}

/// What decides how far ZAB with almost-local reads stays behind: when a node takes the messages that wait.
pub fn turns(bench: &Bench) -> Result<Vec<Rows>> {
    let all = [
        ("in order, 256", Turns::InOrder(256)),
        ("messages first, 40", Turns::MessagesFirst(40)),
        ("messages first, 256", Turns::MessagesFirst(256)),
        ("messages first, all", Turns::MessagesFirst(usize::MAX)),
    ];
    let of = |(_, turns)| WRITES.map(|writes| Point { turns: Some(turns), ..point(writes) });
    loops(bench, &TURNS, &OF_ZAB, &all.map(of).concat(), |point| {
        let (name, _) =
            all.iter().find(|(_, turns)| Some(*turns) == point.turns).expect("it is one of these");
        vec![(*name).to_owned(), point.writes.to_string()]
    })
}

/// Figure 9: ZAB by the clients at each node.
pub fn fig9(bench: &Bench) -> Result<Vec<Rows>> {
    by_clients(bench, &FIG9, &OF_ZAB)
}

/// Figure 10: ZAB by the number of nodes.
pub fn fig10(bench: &Bench) -> Result<Vec<Rows>> {
    by_nodes(bench, &FIG10, &OF_ZAB)
}

/// Figure 11: Hermes by the share of writes.
pub fn fig11(bench: &Bench) -> Result<Vec<Rows>> {
    by_writes(bench, &FIG11, &OF_HERMES)
}

/// Figure 12: Hermes by the clients at each node.
pub fn fig12(bench: &Bench) -> Result<Vec<Rows>> {
    by_clients(bench, &FIG12, &OF_HERMES)
}

/// Figure 13: Hermes by the number of nodes.
pub fn fig13(bench: &Bench) -> Result<Vec<Rows>> {
    by_nodes(bench, &FIG13, &OF_HERMES)
}

/// Figure 15: Hermes by the length of values.
pub fn fig15(bench: &Bench) -> Result<Vec<Rows>> {
    let of =
        |writes| [32, 256, 1024].map(|value| Point { pattern: Pattern { value, ..USUAL }, ..point(writes) });
    loops(bench, &FIG15, &OF_HERMES, &[1, 5, 10, 20].map(of).concat(), |point| {
        vec![point.writes.to_string(), point.pattern.value.to_string()]
    })
}

/// Figure 16: Hermes where all keys are asked for alike, and where some are popular.
pub fn fig16(bench: &Bench) -> Result<Vec<Rows>> {
    let skewed = Pattern { keys: Choice::Zipf(Choice::THETA), ..USUAL };
    let points = [USUAL, skewed].map(|pattern| WRITES.map(|writes| Point { pattern, ..point(writes) }));
    loops(bench, &FIG16, &OF_HERMES, &points.concat(), |point| {
        let access = if matches!(point.pattern.keys, Choice::Uniform) { "uniform" } else { "skewed" };
        vec![access.to_owned(), point.writes.to_string()]
    })
}
