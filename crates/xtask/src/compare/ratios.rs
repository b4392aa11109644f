//! `cargo xtask compare --ratios`: settings of Quorate against each other. Two clusters of `quorate up` are under the
//! same load, one after the other in each round, the other one first in every second round; what counts is the ratio
//! in a round, so that the machine's drift does not.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quorate_bench::grid::{Grid, Row, Schema, table};

use super::Options;
use super::page::caveats;
use super::processes::{Process, Result, cpu_seconds, words};
use super::session::{Measured, Rows, Session, Times};
use super::up::Up;

/// Each side of each pair.
pub const RATIOS: Schema = Schema {
    id: "comparison-ratios",
    dims: &["pair", "side"],
    numbers: &[
        ("operations", "/s"),
        ("p99", "us"),
        ("members_cpu", "us"),
        ("leader_cpu", "us"),
        ("log", "B"),
    ],
};
const SIDES: [&str; 2] = ["first", "second"];
/// What counts begins so long after the generator: a chooser has learned, and a connection's handshake is over.
pub const TIMES: Times =
    Times { warm_up: Duration::from_secs(2), time: Duration::from_secs(3), rest: Duration::ZERO };

/// Whom the load generator asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Leader,
    /// One that does not lead.
    Follower,
    /// Everybody, each with as many connections.
    All,
}

/// What a ratio is to be.
#[derive(Clone, Copy, Debug)]
enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// The ratio is shown, and nothing was asked of it.
    None,
}

/// Two clusters under one load.
struct Pair {
    name: &'static str,
    /// Flags of `quorate up`, of both.
    both: &'static [&'static str],
    /// Of each, with its name.
    sides: [(&'static str, &'static [&'static str]); 2],
    /// Whom the generator asks of each.
    at: [At; 2],
    /// Flags of `quorate bench`.
    load: &'static [&'static str],
    /// Backups are taken of the first, one after the other, while it is under load.
    backup: bool,
    /// Which columns of [`RATIOS`] are compared, and with what.
    rules: &'static [(&'static str, Bar)],
}

const CODED: [(&str, &[&str]); 2] =
    [("`crossword`", &["--protocol", "crossword"]), ("`multipaxos`", &["--protocol", "multipaxos"])];
const SLOW_LINKS: &[&str] = &["--nodes", "5", "--set", "net.rate=100Mbit/s"];
/// The first keys of five groups that have as many of the load generator's 10,000 keys each.
const FIFTHS: &str = "key-000000002000,key-000000004000,key-000000006000,key-000000008000";
const OPERATIONS: &str = "operations_per_s";
/// What TLS costs under a load, at the leader of three nodes.
const fn encrypted(name: &'static str, load: &'static [&'static str]) -> Pair {
    Pair {
        name,
        both: &[],
        sides: [("TLS 1.3", &["--tls"]), ("without", &[])],
        at: [At::Leader; 2],
        load,
        backup: false,
        rules: &[(OPERATIONS, Bar::AtLeast(0.65))],
    }
}

const PAIRS: &[Pair] = &[
    Pair {
        name: "writes of 64 KiB, five nodes, links of 100 Mbit/s, 32 connections",
        both: SLOW_LINKS,
        sides: CODED,
        at: [At::Leader; 2],
        load: &["--workload", "set", "--keys", "1000", "--value-size", "65536", "--connections", "32"],
        backup: false,
        rules: &[(OPERATIONS, Bar::AtLeast(1.8)), ("log_B", Bar::AtMost(0.62))],
    },
    Pair {
        name: "writes of 128 B, five nodes, links of 100 Mbit/s, 64 connections",
        both: SLOW_LINKS,
        sides: CODED,
        at: [At::Leader; 2],
        load: &["--workload", "set", "--keys", "10000", "--connections", "64"],
        backup: false,
        rules: &[(OPERATIONS, Bar::AtLeast(0.95))],
    },
    Pair {
        name: "reads at a follower, 64 connections with 16 under way on each",
        both: &["--protocol", "raft", "--clock", "bound=50us"],
        sides: [
            ("`raft reads=alr`", &["--set", "reads=alr"]),
            ("`raft reads.at=nearest`", &["--set", "reads.at=nearest"]),
        ],
        at: [At::Follower; 2],
        load: &["--workload", "get", "--keys", "10000", "--connections", "64", "--pipeline", "16"],
        backup: false,
        rules: &[(OPERATIONS, Bar::AtLeast(0.8)), ("leader_cpu_us", Bar::AtMost(0.5))],
    },
    Pair {
        name: "reads at a node that does not decide epochs, at the leader, 64 connections",
        both: &[],
        sides: [("`hermes`", &["--protocol", "hermes"]), ("`multipaxos`", &["--protocol", "multipaxos"])],
        at: [At::Follower, At::Leader],
        load: &["--workload", "get", "--keys", "10000", "--connections", "64"],
        backup: false,
        rules: &[(OPERATIONS, Bar::AtLeast(0.95))],
    },
    encrypted("writes, 64 connections", &["--workload", "set", "--keys", "10000", "--connections", "64"]),
    encrypted("reads, 64 connections", &["--workload", "get", "--keys", "10000", "--connections", "64"]),
    encrypted("writes, 256 connections", &["--workload", "set", "--keys", "10000", "--connections", "256"]),
    encrypted("reads, 256 connections", &["--workload", "get", "--keys", "10000", "--connections", "256"]),
    Pair {
        name: "half writes, half reads, 50,000 keys with values of 1 KiB",
        both: &[],
        sides: [("while backups are taken", &[]), ("without", &[])],
        at: [At::Leader; 2],
        load: &["--writes", "0.5", "--keys", "50000", "--value-size", "1024", "--connections", "64"],
        backup: true,
        rules: &[("p99_us", Bar::AtMost(2.0))],
    },
    Pair {
        name: "writes at all of five nodes, 64 connections with 16 under way on each",
        both: &["--nodes", "5"],
        sides: [("`--groups 5`", &["--groups", "5", "--group-keys", FIFTHS]), ("one group", &[])],
        at: [At::All; 2],
        load: &["--workload", "set", "--keys", "10000", "--connections", "64", "--pipeline", "16"],
        backup: false,
        rules: &[(OPERATIONS, Bar::None), ("members_cpu_us", Bar::None)],
    },
];

/// Measures the pairs that are wanted, in each round; an error if none is.
pub fn measure(options: &Options, session: &Session, quorate: &Path) -> Result<Measured> {
    let is_wanted = |pair: &&Pair| {
        let said = [pair.name, pair.sides[0].0, pair.sides[1].0];
        options
            .only
            .as_ref()
            .is_none_or(|only| only.iter().any(|word| said.iter().any(|name| name.contains(word))))
    };
    let pairs: Vec<_> = PAIRS.iter().filter(is_wanted).map(|pair| (pair.title(), pair)).collect();
    if pairs.is_empty() {
        return Err(format!(
            "no pair is called so; there are: {}",
            PAIRS.iter().map(Pair::title).collect::<Vec<_>>().join("; ")
        ));
    }
    let done =
        session.rounds(&pairs, |(title, _)| title, |(_, pair), round| pair.round(session, quorate, round))?;
    let head = done.head.into_iter().chain(done.commands).collect();
    Ok(Measured { grids: vec![(RATIOS, Grid::of(RATIOS, head, done.rows.loads))], quiet: done.quiet })
}

impl Pair {
    fn title(&self) -> String {
        let [(first, _), (second, _)] = self.sides;
        format!("{first} ÷ {second}: {}", self.name)
    }

    /// Both sides, one after the other.
    fn round(&self, session: &Session, quorate: &Path, round: u32) -> Result<Rows> {
        let mut rows = Rows::default();
        let mut order = [0, 1];
        order.rotate_left(round as usize % 2);
        for side in order {
            let (numbers, command) = self.side(side, session, quorate)?;
            eprintln!("  {:<28} {:>9.0}/s  p99 {:>7.0} us", self.sides[side].0, numbers[0], numbers[1]);
            let keys = vec![self.title(), SIDES[side].to_owned()];
            rows.loads.push(Row { keys, run: round, numbers: numbers.map(Some).to_vec() });
            rows.commands.push(command);
        }
        Ok(rows)
    }

    /// The numbers of [`RATIOS`], and how the cluster was loaded.
    fn side(&self, side: usize, session: &Session, quorate: &Path) -> Result<([f64; 5], String)> {
        let dir = session.folder()?;
        let flags: Vec<_> =
            self.both.iter().chain(self.sides[side].1).map(|flag| (*flag).to_owned()).collect();
        let up = Up::start(quorate, &flags, dir.path(), &session.stop)?;
        let pids: Vec<_> = up.members.iter().map(|member| member.pid).collect();
        let leader = match self.at[side] {
            At::All => None,
            At::Leader | At::Follower => Some(up.leader(&session.stop)?),
        };
        let endpoints = match (self.at[side], &leader) {
            (At::Leader, Some(leader)) => leader.resp.clone(),
            (At::Follower, Some(leader)) => {
                let other = up.members.iter().find(|member| member.id != leader.id);
                other.ok_or("a cluster of one has no follower")?.resp.clone()
            }
            (..) => up.endpoints().join(","),
        };
        let Times { warm_up, time, .. } = session.times;
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let bench = |flags: &[&str], [warm_up, duration]: [&str; 2]| {
            let mut command = Command::new(quorate);
            command.args(["bench", "--json", "--endpoints", &endpoints]).args(self.load).args(flags);
            command.args(["--warm-up", warm_up, "--duration", duration]).args(up.credentials());
            command
        };
        session.report(bench(&["--load"], ["0s", "1s"]))?;
        let mut command = bench(&[], [&millis(warm_up), &millis(time)]);
        let _backups = match self.backup && side == 0 {
            true => Some(backups(quorate, dir.path(), &endpoints)?),
            false => None,
        };
        let leads: Vec<_> = leader.iter().map(|leader| leader.pid).collect();
        let used = || Ok([cpu_seconds(&pids), cpu_seconds(&leads), up.log_bytes()?]);
        let ([rate, p99], [all, leads, log]) = session.under_load(&mut command, used)?;
        let started = format!("quorate up {}", flags.join(" ")).trim_end().to_owned();
        let shown =
            format!("{started} · {}", words(&command)).replace(&dir.path().display().to_string(), "$DATA");
        Ok(([rate, p99, 1e6 * all, 1e6 * leads, log], shown))
    }
}

/// One backup after the other, until this is dropped.
fn backups(quorate: &Path, dir: &Path, endpoints: &str) -> Result<Process> {
    let mut command = Command::new("sh");
    command.args(["-c", "while \"$0\" backup --force --out \"$1\" --endpoints \"$2\"; do :; done"]);
    command.arg(quorate).arg(dir.join("all.backup")).arg(endpoints);
    Process::start(&mut command, &dir.join("backups.log"))
}

/// The ratio of a column in each round that has both sides.
fn ratios(grid: &Grid, title: &str, column: &str) -> Vec<f64> {
    let at = grid.number_at(column);
    let of = |run: u32, side: &str| {
        let row = grid.rows.iter().find(|row| row.run == run && row.keys == [title, side])?;
        row.numbers[at?]
    };
    let mut found: Vec<_> =
        grid.runs().into_iter().filter_map(|run| Some(of(run, SIDES[0])? / of(run, SIDES[1])?)).collect();
    found.sort_by(f64::total_cmp);
    found
}

/// What the ratios of all rounds say of a bar.
fn verdict(bar: Bar, ratios: &[f64]) -> [String; 2] {
    let (wanted, meets): (String, Box<dyn Fn(f64) -> bool>) = match bar {
        Bar::AtLeast(least) => (format!("at least {least}"), Box::new(move |ratio| ratio >= least)),
        Bar::AtMost(most) => (format!("at most {most}"), Box::new(move |ratio| ratio <= most)),
        Bar::None => return ["-".to_owned(), "-".to_owned()],
    };
    let met = ratios.iter().filter(|ratio| meets(**ratio)).count();
    let said = match met {
        _ if ratios.is_empty() => "not measured".to_owned(),
        0 => "**missed**".to_owned(),
        met if met == ratios.len() => "met".to_owned(),
        met => format!("cannot be judged: met in {met} of {} rounds", ratios.len()),
    };
    [wanted, said]
}

/// The section of the page that says which bars the ratios meet.
pub fn section(text: &mut String, grid: &Grid, head: &str) {
    let says = |name: &str| grid.says(name);
    let _ = writeln!(
        text,
        "\n## Settings against each other\n\n- {head}\n- {} rounds; in each, both clusters are started anew with \
         `quorate up`, alone, with empty data directories and three nodes unless another number is said, one after the \
         other, the other one first in every second round; runs of {}\n- a ratio is of two numbers of one round; \
         shown are the median, and the lowest and the highest of the rounds. A bar is met if every round meets it, and \
         missed if none does; bars were there before the run\n- log bytes are those of all records that all \
         nodes hand to their logs, for each operation; CPU is that of the nodes, for each operation\n- \
         `cargo xtask compare --ratios` measures it again ([comparison-ratios.csv](comparison-ratios.csv))",
        grid.runs().len(),
        says("runs"),
    );
    caveats(text, grid);
    text.push('\n');
    let name = |column: &str| match column {
        OPERATIONS => "operations/s",
        "p99_us" => "p99",
        "members_cpu_us" => "CPU of all nodes",
        "leader_cpu_us" => "CPU of the leader",
        _ => "log bytes",
    };
    let rows = PAIRS.iter().flat_map(|pair| pair.rules.iter().map(move |rule| (pair, rule)));
    let rows = rows.map(|(pair, (column, bar))| {
        let found = ratios(grid, &pair.title(), column);
        let shown = match (found.first(), found.get(found.len() / 2), found.last()) {
            (Some(low), Some(middle), Some(high)) => format!("{middle:.2} ({low:.2} to {high:.2})"),
            (..) => "-".to_owned(),
        };
        let [wanted, said] = verdict(*bar, &found);
        vec![pair.title(), name(column).to_owned(), shown, wanted, said]
    });
    table(text, &["first ÷ second", "of", "ratio", "wanted", ""], rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_one_round_and_a_bar_is_met_by_every_round() {
        let pair = &PAIRS[0];
        let title = pair.title();
        let quoted = format!("\"{title}\"");
        let rows =
            [("first", 1, 200), ("second", 1, 100), ("second", 2, 50), ("first", 2, 75), ("first", 3, 9)];
        let rows: String =
            rows.iter().map(|(side, run, rate)| format!("{quoted},{side},{run},{rate},1,1,1,10\n")).collect();
        let grid = Grid::parse(RATIOS, &format!("{}\n{rows}", RATIOS.columns().join(","))).unwrap();
        assert_eq!(ratios(&grid, &title, OPERATIONS), [1.5, 2.0]);
        let said = |bar| verdict(bar, &ratios(&grid, &title, OPERATIONS))[1].clone();
        assert_eq!(said(Bar::AtLeast(1.5)), "met");
        assert_eq!(said(Bar::AtMost(1.4)), "**missed**");
        assert_eq!(said(Bar::AtLeast(1.8)), "cannot be judged: met in 1 of 2 rounds");
        let mut text = String::new();
        section(&mut text, &grid, "head");
        assert!(text.contains("| operations/s | 2.00 (1.50 to 2.00) | at least 1.8 |"), "{text}");
    }

    #[test]
    fn every_rule_is_about_a_column_and_no_title_comes_twice() {
        let columns = RATIOS.columns();
        for pair in PAIRS {
            assert!(pair.rules.iter().all(|(column, _)| columns.iter().any(|name| name == column)));
            assert_eq!(PAIRS.iter().filter(|other| other.title() == pair.title()).count(), 1);
        }
    }
}
