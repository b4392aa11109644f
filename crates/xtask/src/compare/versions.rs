//! `cargo xtask compare --against NAME=PROGRAM`: this build beside earlier ones. In each round every program starts a
//! cluster; these take turns at serving the same loads, another one first each time. What counts is the ratio in a
//! turn: a machine that others use is faster in one minute than in the next, by more than the few percent that are
//! asked for. So turns are short, and the median of many is judged, by its interval.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use quorate_bench::grid::{Grid, MANY, Row, Schema, median_interval, table};
use tempfile::TempDir;

use super::page::{caveats, of_interval};
use super::processes::{Result, cpu_seconds, words};
use super::session::{Measured, Rows, Session, Times};
use super::systems::{CONNECTIONS, KEYS, PIPELINE};
use super::up::Up;

/// Each version of each protocol under each load.
pub const VERSIONS: Schema = Schema {
    id: "comparison-versions",
    dims: &["protocol", "load", "version"],
    numbers: &[("operations", "/s"), ("p99", "us"), ("members_cpu", "us")],
};
pub const TIMES: Times =
    Times { warm_up: Duration::from_millis(300), time: Duration::from_millis(900), rest: Duration::ZERO };
/// How often clusters are started anew.
pub const ROUNDS: u32 = 8;
/// Turns in a round.
const TURNS: u32 = 6;

const PROTOCOLS: [&str; 2] = ["multipaxos", "raft"];
const LOADS: [(&str, &[&str]); 2] = [
    ("writes, many under way", &["--workload", "set", "--pipeline", PIPELINE]),
    ("reads", &["--workload", "get"]),
];
const THIS: &str = "this build";
/// What this build must reach of an earlier one's operations per second.
const LEAST: f64 = 0.98;

/// An earlier program, and its name on the page.
#[derive(Clone, Debug)]
pub struct Earlier {
    name: String,
    program: PathBuf,
}

impl Earlier {
    /// Of `NAME=PROGRAM`.
    pub fn parse(word: &str) -> Result<Earlier> {
        match word.split_once('=') {
            Some((name, program)) if !name.is_empty() && name != THIS => {
                Ok(Earlier { name: name.to_owned(), program: PathBuf::from(program) })
            }
            _ => Err(format!("--against {word}: NAME=PROGRAM, where NAME is not `{THIS}`")),
        }
    }
}

/// Measures all of them in each round.
pub fn measure(earlier: &[Earlier], session: &Session, quorate: &Path) -> Result<Measured> {
    let mut programs = vec![(THIS, quorate)];
    for Earlier { name, program } in earlier {
        if programs.iter().any(|(other, _)| other == name) {
            return Err(format!("--against: two programs are called {name}"));
        }
        programs.push((name, program));
    }
    let done = session.rounds(
        &PROTOCOLS,
        |protocol| protocol,
        |protocol, round| {
            let started =
                programs.iter().map(|(name, program)| Serving::start(protocol, name, program, session));
            let clusters = started.collect::<Result<Vec<_>>>()?;
            for cluster in &clusters {
                let fill = cluster.bench(quorate, &["--load", "--workload", "get"], TOUCH);
                session.report(fill)?;
            }
            let mut rows = Rows::default();
            for turn in (round - 1) * TURNS..round * TURNS {
                for load in LOADS {
                    for index in order(clusters.len(), turn as usize) {
                        clusters[index].serve(load, turn + 1, quorate, session, &mut rows)?;
                    }
                }
            }
            Ok(rows)
        },
    )?;
    let head = done.head.into_iter().chain(done.commands).collect();
    Ok(Measured { grids: vec![(VERSIONS, Grid::of(VERSIONS, head, done.rows.loads))], quiet: done.quiet })
}

/// Who is served in which order in a turn, counted from 0: another one first each time, and every other turn the other
/// way round, so that nobody always follows the same one, which may have work left over.
fn order(count: usize, turn: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    order.rotate_left(turn / 2 % count);
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}

/// The time of a run that is about writing all keys, which it does first.
const TOUCH: [Duration; 2] = [Duration::ZERO, Duration::from_millis(100)];

/// A cluster of one version, for one protocol.
struct Serving<'a> {
    protocol: &'a str,
    name: &'a str,
    up: Up,
    leader: String,
    _dir: TempDir,
}

impl<'a> Serving<'a> {
    fn start(protocol: &'a str, name: &'a str, program: &Path, session: &Session) -> Result<Serving<'a>> {
        let dir = session.folder()?;
        let serve = || {
            let flags = ["--protocol", protocol].map(str::to_owned);
            let up = Up::start(program, &flags, dir.path(), &session.stop)?;
            let leader = up.leader(&session.stop)?.resp;
            Ok::<_, String>((up, leader))
        };
        let (up, leader) = serve().map_err(|error| format!("{name}: {error}"))?;
        Ok(Serving { protocol, name, up, leader, _dir: dir })
    }

    /// A run of this build's load generator, which drives all of them.
    fn bench(&self, generator: &Path, flags: &[&str], [warm_up, time]: [Duration; 2]) -> Command {
        let mut command = Command::new(generator);
        command.args(["bench", "--json", "--endpoints", &self.leader, "--keys", KEYS]);
        command.args(["--connections", CONNECTIONS]).args(flags);
        for (flag, time) in [("--warm-up", warm_up), ("--duration", time)] {
            command.arg(flag).arg(format!("{}ms", time.as_millis()));
        }
        command
    }

    /// One turn under one load.
    fn serve(
        &self,
        (load, flags): (&str, &[&str]),
        turn: u32,
        generator: &Path,
        session: &Session,
        rows: &mut Rows,
    ) -> Result<()> {
        let pids: Vec<_> = self.up.members.iter().map(|member| member.pid).collect();
        let mut command = self.bench(generator, flags, [session.times.warm_up, session.times.time]);
        let ([rate, p99], [cpu]) = session
            .under_load(&mut command, session.times.time, || Ok([cpu_seconds(&pids)]))
            .map_err(|error| format!("{}: {error}", self.name))?;
        eprintln!("  {:<20} {load:<24} {rate:>9.0}/s  p99 {p99:>7.0} us", self.name);
        let keys = [self.protocol, load, self.name].map(str::to_owned).to_vec();
        rows.loads.push(Row { keys, run: turn, numbers: [rate, p99, 1e6 * cpu].map(Some).to_vec() });
        if self.name == THIS && rows.commands.len() < LOADS.len() {
            rows.commands.push(words(&command));
        }
        Ok(())
    }
}

/// This build's number over the other's, in each round that has both, in ascending order.
fn ratios(grid: &Grid, [protocol, load, version]: [&str; 3], column: &str) -> Vec<f64> {
    let at = grid.number_at(column);
    let of = |run: u32, version: &str| {
        let row = grid.rows.iter().find(|row| row.run == run && row.keys == [protocol, load, version])?;
        row.numbers[at?]
    };
    let both = |run| Some(of(run, THIS)? / of(run, version)?);
    let mut found: Vec<_> = grid.runs().into_iter().filter_map(both).collect();
    found.sort_by(f64::total_cmp);
    found
}

/// The median with its interval, and what these say of the bar.
fn verdict(ratios: &[f64]) -> [String; 2] {
    let Some((low, high)) = median_interval(ratios) else {
        return ["-".to_owned(), "not measured".to_owned()];
    };
    let said = match ratios.len() {
        few if few < MANY => "cannot be judged: too few turns",
        _ => of_interval((low, high), |ratio| ratio >= LEAST),
    };
    [format!("{:.3} ({low:.3} to {high:.3})", ratios[(ratios.len() - 1) / 2]), said.to_owned()]
}

/// The section of the page about this build and earlier ones.
pub fn section(text: &mut String, grid: &Grid, head: &str) {
    let _ = writeln!(
        text,
        "\n## This build and earlier ones\n\n- {head}\n- {} turns, {TURNS} in a round; in each round, three nodes of \
         each program are started anew with `quorate up`, and these clusters take turns, one at a time, another one \
         first in each turn; {KEYS} keys, {CONNECTIONS} connections to the leader, {PIPELINE} writes or one read under \
         way on each; runs of {}; this build's load generator drives all\n- a ratio is of this build's operations per \
         second to the other's, in one turn; shown are the median, and where it lies with 95% confidence. The bar \
         is met if that interval is at {LEAST} or above, and missed if it is below; the rule was there before the \
         run\n- `cargo xtask compare --against NAME=PROGRAM` measures it again \
         ([comparison-versions.csv](comparison-versions.csv))",
        grid.runs().len(),
        grid.says("runs"),
    );
    caveats(text, grid);
    text.push('\n');
    let mut named: Vec<&str> = Vec::new();
    for row in &grid.rows {
        if row.keys[2] != THIS && !named.contains(&row.keys[2].as_str()) {
            named.push(&row.keys[2]);
        }
    }
    named.sort_unstable();
    let mut rows = Vec::new();
    for version in named {
        for protocol in PROTOCOLS {
            for (load, _) in LOADS {
                let at = [protocol, load, version];
                let [ratio, said] = verdict(&ratios(grid, at, "operations_per_s"));
                let [cpu, _] = verdict(&ratios(grid, at, "members_cpu_us"));
                let system = format!("`{protocol}`: {load}");
                rows.push(vec![version.to_owned(), system, ratio, format!("at least {LEAST}"), said, cpu]);
            }
        }
    }
    table(
        text,
        &["this build ÷", "of", "operations/s", "wanted", "", "CPU of the nodes for each operation"],
        rows.into_iter(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(ratios: &[f64]) -> Grid {
        let line = |(run, ratio): (usize, &f64)| {
            let of = |version: &str, rate: f64| format!("raft,reads,{version},{run},{rate},1,1\n");
            of(THIS, 1000.0 * ratio) + &of("old", 1000.0)
        };
        let rows: String = (1..).zip(ratios).map(line).collect();
        Grid::parse(VERSIONS, &format!("{}\n{rows}", VERSIONS.columns().join(","))).unwrap()
    }

    #[test]
    fn everybody_is_first_and_last_equally_often() {
        for count in 2..6 {
            let turns: Vec<_> = (0..2 * count).map(|turn| order(count, turn)).collect();
            for at in [0, count - 1] {
                let times = |one| turns.iter().filter(|order| order[at] == one).count();
                assert!((0..count).all(|one| times(one) == 2), "{turns:?}");
            }
        }
    }

    #[test]
    fn the_interval_of_the_median_judges() {
        let many = |below: usize, low: f64, high: f64| {
            let all: Vec<_> = (0..MANY).map(|at| if at < below { low } else { high }).collect();
            let found = ratios(&grid(&all), ["raft", "reads", "old"], "operations_per_s");
            verdict(&found)
        };
        assert_eq!(many(5, 0.9, 0.99), ["0.990 (0.990 to 0.990)", "met"]);
        assert_eq!(many(10, 0.9, 1.0)[1], "cannot be judged: the interval holds the bar");
        assert_eq!(many(15, 0.97, 1.2), ["0.970 (0.970 to 0.970)", "**missed**"]);
        assert_eq!(verdict(&[1.0; 6])[1], "cannot be judged: too few turns");
        let mut text = String::new();
        section(&mut text, &grid(&[1.0; MANY]), "head");
        assert!(
            text.contains("| old | `raft`: reads | 1.000 (1.000 to 1.000) | at least 0.98 | met |"),
            "{text}"
        );
        assert!(
            text.contains("| old | `raft`: writes, many under way | - | at least 0.98 | not measured |"),
            "{text}"
        );
    }

    #[test]
    fn an_earlier_program_has_a_name_of_its_own() {
        let name = |word| Earlier::parse(word).map(|earlier| earlier.name);
        assert_eq!(name("before TLS=/bin/old=1"), Ok("before TLS".to_owned()));
        for word in ["/bin/old", "=/bin/old", "this build=/bin/old"] {
            assert!(name(word).is_err(), "{word}");
        }
    }
}
