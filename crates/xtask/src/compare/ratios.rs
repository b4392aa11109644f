//! `cargo xtask compare --ratios`: settings of Quorate against each other. Two clusters of `quorate up` are under the
//! same load, one after the other in each round, the other one first in every second round; what counts is the ratio
//! in a round, so that the machine's drift does not.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quorate_bench::grid::{Grid, MANY, Row, Schema, median_interval, table};

use super::Options;
use super::page::{caveats, of_interval};
use super::processes::{Process, Result, cpu_seconds, words};
use super::session::{Measured, Rows, Session, Times, all_served};
use super::up::{Member, Up};

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
        ("leader_changed", ""),
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
    /// It is no ratio that is judged: what the column says must be so at neither side.
    Never,
}

/// What goes on beside the load of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Backups are taken, one after the other.
    Backups,
    /// A value of so many bytes is written and read over one connection to a node that does not lead.
    Values(&'static str),
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
    /// What goes on beside the load of each.
    beside: [Beside; 2],
    /// How many times as long as [`Session::times`] says the load counts.
    times: u32,
    /// How often both are loaded in a round: where what chance does is as large as what is asked for, so often that
    /// the five rounds of a page are [`MANY`] ratios.
    turns: u32,
    /// Which columns of [`RATIOS`] are compared, and with what.
    rules: &'static [(&'static str, Bar)],
}

/// What most pairs have in common.
const PAIR: Pair = Pair {
    name: "",
    both: &[],
    sides: [("", &[]), ("", &[])],
    at: [At::Leader; 2],
    load: &[],
    beside: [Beside::Nothing; 2],
    times: 1,
    turns: 1,
    rules: &[],
};
const CODED: [(&str, &[&str]); 2] =
    [("`crossword`", &["--protocol", "crossword"]), ("`multipaxos`", &["--protocol", "multipaxos"])];
const SLOW_LINKS: &[&str] = &["--nodes", "5", "--set", "net.rate=100Mbit/s"];
/// The first keys of five groups that have as many of the load generator's 10,000 keys each.
const FIFTHS: &str = "key-000000002000,key-000000004000,key-000000006000,key-000000008000";
const OPERATIONS: &str = "operations_per_s";
/// A node has another leader or ballot after the load than before.
const LEADER_CHANGED: &str = "leader_changed";
/// What goes on beside a load goes on for so much longer, so that nothing counts without it.
const AFTER: Duration = Duration::from_secs(3);
/// What TLS costs under a load, at the leader of three nodes.
const fn encrypted(name: &'static str, load: &'static [&'static str]) -> Pair {
    Pair {
        name,
        sides: [("TLS 1.3", &["--tls"]), ("without", &[])],
        load,
        rules: &[(OPERATIONS, Bar::AtLeast(0.65)), ("members_cpu_us", Bar::None)],
        ..PAIR
    }
}

const PAIRS: &[Pair] = &[
    Pair {
        name: "writes of 64 KiB, five nodes, links of 100 Mbit/s, 32 connections",
        both: SLOW_LINKS,
        sides: CODED,
        load: &["--workload", "set", "--keys", "1000", "--value-size", "65536", "--connections", "32"],
        rules: &[(OPERATIONS, Bar::AtLeast(1.8)), ("log_B", Bar::AtMost(0.62))],
        ..PAIR
    },
    Pair {
        name: "writes of 128 B, five nodes, links of 100 Mbit/s, 64 connections",
        both: SLOW_LINKS,
        sides: CODED,
        load: &["--workload", "set", "--keys", "10000", "--connections", "64"],
        rules: &[(OPERATIONS, Bar::AtLeast(0.95))],
        ..PAIR
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
        rules: &[(OPERATIONS, Bar::AtLeast(0.8)), ("leader_cpu_us", Bar::AtMost(0.5))],
        ..PAIR
    },
    Pair {
        name: "reads at a node that does not decide epochs, at the leader, 64 connections",
        sides: [("`hermes`", &["--protocol", "hermes"]), ("`multipaxos`", &["--protocol", "multipaxos"])],
        at: [At::Follower, At::Leader],
        load: &["--workload", "get", "--keys", "10000", "--connections", "64"],
        turns: 4,
        rules: &[(OPERATIONS, Bar::AtLeast(0.95))],
        ..PAIR
    },
    encrypted("writes, 64 connections", &["--workload", "set", "--keys", "10000", "--connections", "64"]),
    encrypted("reads, 64 connections", &["--workload", "get", "--keys", "10000", "--connections", "64"]),
    encrypted("writes, 256 connections", &["--workload", "set", "--keys", "10000", "--connections", "256"]),
    encrypted("reads, 256 connections", &["--workload", "get", "--keys", "10000", "--connections", "256"]),
    Pair {
        name: "half writes, half reads, 50,000 keys with values of 1 KiB",
        sides: [("while backups are taken", &[]), ("without", &[])],
        load: &["--writes", "0.5", "--keys", "50000", "--value-size", "1024", "--connections", "64"],
        beside: [Beside::Backups, Beside::Nothing],
        rules: &[("p99_us", Bar::AtMost(2.0))],
        ..PAIR
    },
    Pair {
        name: "half writes, half reads of 128 B, 600 a second, at all nodes, links of 1 Gbit/s, for 9 s",
        both: &["--set", "net.rate=1Gbit/s"],
        sides: [("beside values of 64 MiB", &[]), ("beside values of 1 MiB", &[])],
        at: [At::All; 2],
        load: &["--writes", "0.5", "--keys", "1000", "--connections", "12", "--rate", "600"],
        beside: [Beside::Values("67108864"), Beside::Values("1048576")],
        times: 3,
        rules: &[("p99_us", Bar::AtMost(3.0)), (LEADER_CHANGED, Bar::Never)],
        ..PAIR
    },
    Pair {
        name: "writes at all of five nodes, 64 connections with 16 under way on each",
        both: &["--nodes", "5"],
        sides: [("`--groups 5`", &["--groups", "5", "--group-keys", FIFTHS]), ("one group", &[])],
        at: [At::All; 2],
        load: &["--workload", "set", "--keys", "10000", "--connections", "64", "--pipeline", "16"],
        rules: &[(OPERATIONS, Bar::None), ("members_cpu_us", Bar::None)],
        ..PAIR
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

    /// In how many rounds it was measured.
    fn rounds(&self, grid: &Grid) -> usize {
        let title = self.title();
        let rows = grid.rows.iter().filter(|row| row.keys[0] == title);
        let last = rows.map(|row| row.run).max().unwrap_or_default();
        last.div_ceil(self.turns) as usize
    }

    /// Both sides, one after the other, in each turn.
    fn round(&self, session: &Session, quorate: &Path, round: u32) -> Result<Rows> {
        let mut rows = Rows::default();
        for run in (round - 1) * self.turns + 1..=round * self.turns {
            let mut order = [0, 1];
            order.rotate_left(run as usize % 2);
            for side in order {
                let (numbers, command) = self.side(side, session, quorate)?;
                let [rate, p99] = [0, 1].map(|at| numbers[at].unwrap_or_default());
                eprintln!("  {:<28} {rate:>9.0}/s  p99 {p99:>7.0} us", self.sides[side].0);
                let keys = vec![self.title(), SIDES[side].to_owned()];
                rows.loads.push(Row { keys, run, numbers });
                if rows.commands.len() < SIDES.len() {
                    rows.commands.push(command);
                }
            }
        }
        Ok(rows)
    }

    /// The numbers of [`RATIOS`], and how the cluster was loaded.
    fn side(&self, side: usize, session: &Session, quorate: &Path) -> Result<(Vec<Option<f64>>, String)> {
        let dir = session.folder()?;
        let flags: Vec<_> =
            self.both.iter().chain(self.sides[side].1).map(|flag| (*flag).to_owned()).collect();
        let up = Up::start(quorate, &flags, dir.path(), &session.stop)?;
        let pids: Vec<_> = up.members.iter().map(|member| member.pid).collect();
        let leader = match (self.at[side], self.beside[side]) {
            // Several groups have no leader in common.
            (At::All, Beside::Nothing | Beside::Backups) => None,
            (At::All, Beside::Values(_)) | (At::Leader | At::Follower, _) => Some(up.leader(&session.stop)?),
        };
        let is_leader = |member: &Member| leader.as_ref().is_some_and(|leader| leader.id == member.id);
        let follower = || {
            let other = up.members.iter().find(|member| !is_leader(member));
            other.map(|member| member.resp.clone()).ok_or("a cluster of one has no follower")
        };
        let endpoints = match (self.at[side], &leader) {
            (At::Leader, Some(leader)) => leader.resp.clone(),
            (At::Follower, Some(_)) => follower()?,
            (..) => up.endpoints().join(","),
        };
        let (warm_up, time) = (session.times.warm_up, session.times.time * self.times);
        let bench = |endpoints: &str, [warm_up, time]: [Duration; 2]| {
            let mut command = Command::new(quorate);
            command.args(["bench", "--json", "--endpoints", endpoints]).args(up.credentials());
            // Who waits for another leader waits long, and does not fail.
            command.args(["--timeout", "60s"]);
            for (flag, time) in [("--warm-up", warm_up), ("--duration", time)] {
                command.arg(flag).arg(format!("{}ms", time.as_millis()));
            }
            command
        };
        let mut loader = bench(&endpoints, [Duration::ZERO, Duration::from_secs(1)]);
        loader.args(self.load).arg("--load");
        session.report(loader)?;
        let ballots = || leader.as_ref().map(|_| up.ballots()).transpose();
        let ballots_before = ballots()?;
        let mut command = bench(&endpoints, [warm_up, time]);
        command.args(self.load);
        let mut shown =
            vec![format!("quorate up {}", flags.join(" ")).trim_end().to_owned(), words(&command)];
        let _backups = match self.beside[side] {
            Beside::Backups => Some(backups(quorate, dir.path(), &endpoints)?),
            Beside::Nothing | Beside::Values(_) => None,
        };
        let values = match self.beside[side] {
            Beside::Values(bytes) => {
                let mut command = bench(&follower()?, [Duration::ZERO, warm_up + time + AFTER]);
                command.args(["--keys", "1", "--key-prefix", "large-", "--value-size", bytes]);
                command.args(["--writes", "0.5", "--connections", "1", "--load"]);
                shown.push(words(&command));
                Some(session.spawn("beside", &mut command)?)
            }
            Beside::Nothing | Beside::Backups => None,
        };
        let leads: Vec<_> = leader.iter().map(|leader| leader.pid).collect();
        let used = || Ok([cpu_seconds(&pids), cpu_seconds(&leads), up.log_bytes()?]);
        let ([rate, p99], [all, leads, log]) = session.under_load(&mut command, time, used)?;
        if let Some((mut generator, out)) = values {
            let command = &shown[2];
            all_served(&session.finish(&mut generator, &out, command)?, command)?;
        }
        let has_changed = ballots()?.zip(ballots_before).map(|(now, before)| f64::from(now != before));
        let mut numbers = [rate, p99, 1e6 * all, 1e6 * leads, log].map(Some).to_vec();
        numbers.push(has_changed);
        Ok((numbers, shown.join(" · ").replace(&dir.path().display().to_string(), "$DATA")))
    }
}

/// One backup after the other, until this is dropped.
fn backups(quorate: &Path, dir: &Path, endpoints: &str) -> Result<Process> {
    let mut command = Command::new("sh");
    command.args(["-c", "while \"$0\" backup --force --out \"$1\" --endpoints \"$2\"; do :; done"]);
    command.arg(quorate).arg(dir.join("all.backup")).arg(endpoints);
    Process::start(&mut command, &dir.join("backups.log"))
}

/// What a rule judges of each round that has both sides, in ascending order: the ratio of a column, or, where something
/// must never be, the larger number.
fn judged(grid: &Grid, title: &str, (column, bar): &(&str, Bar)) -> Vec<f64> {
    let at = grid.number_at(column);
    let of = |run: u32, side: &str| {
        let row = grid.rows.iter().find(|row| row.run == run && row.keys == [title, side])?;
        row.numbers[at?]
    };
    let of_round = |run| {
        let (first, second) = (of(run, SIDES[0])?, of(run, SIDES[1])?);
        Some(if matches!(bar, Bar::Never) { first.max(second) } else { first / second })
    };
    let mut found: Vec<_> = grid.runs().into_iter().filter_map(of_round).collect();
    found.sort_by(f64::total_cmp);
    found
}

/// What is asked of the ratios, and what these say: all of them, or, of [`MANY`], the interval of their median.
fn verdict(bar: Bar, found: &[f64]) -> [String; 2] {
    let (wanted, meets): (String, Box<dyn Fn(f64) -> bool>) = match bar {
        Bar::AtLeast(least) => (format!("at least {least}"), Box::new(move |ratio| ratio >= least)),
        Bar::AtMost(most) => (format!("at most {most}"), Box::new(move |ratio| ratio <= most)),
        Bar::Never => ("never".to_owned(), Box::new(|number| number == 0.0)),
        Bar::None => return ["-".to_owned(), "-".to_owned()],
    };
    let met = found.iter().filter(|number| meets(**number)).count();
    let said = match met {
        _ if found.is_empty() => "not measured".to_owned(),
        _ if let Some(interval) = judged_interval(bar, found) => of_interval(interval, meets).to_owned(),
        met if met == found.len() => "met".to_owned(),
        met if met == 0 || matches!(bar, Bar::Never) => "**missed**".to_owned(),
        met => format!("cannot be judged: met in {met} of {} rounds", found.len()),
    };
    [wanted, said]
}

/// The interval of the median, where that is judged.
fn judged_interval(bar: Bar, found: &[f64]) -> Option<(f64, f64)> {
    median_interval(found).filter(|_| found.len() >= MANY && !matches!(bar, Bar::Never))
}

/// The section of the page that says which bars the ratios meet.
pub fn section(text: &mut String, grid: &Grid, head: &str) {
    let says = |name: &str| grid.says(name);
    let _ = writeln!(
        text,
        "\n## Settings against each other\n\n- {head}\n- {} rounds; in each, both clusters are started anew with \
         `quorate up`, alone, with empty data directories and three nodes unless another number is said, one after \
         the other, the other one first in every second round; runs of {}, unless another time is said\n- a ratio is \
         of two numbers of one round; shown are the median, and the lowest and the highest of the rounds. A bar is \
         met if every round meets it, and missed if none does; what is never to happen is missed if it has happened \
         once, at either side; bars were there before the run\n- the reads of `hermes` are measured four times in a \
         round: of {MANY} ratios and more, shown are the median and where it lies with 95% confidence. The bar is met \
         if all of that interval meets it, and missed if none of it does. **Rule changed after the run** at commit \
         0ff6b878, whose five rounds had 0.96 (0.95 to 1.00), met in 3 of them: each side alone differed by a tenth \
         from one round to the next\n- the leader has changed if a node has another leader or ballot after the load \
         than before\n- beside values: one connection to a node that does not lead writes and reads one value of that \
         length\n- log bytes are those of all records that all nodes hand to their logs, for each operation; CPU is \
         that of the nodes, for each operation\n- `cargo xtask compare --ratios` measures it again \
         ([comparison-ratios.csv](comparison-ratios.csv))",
        PAIRS.iter().map(|pair| pair.rounds(grid)).max().unwrap_or_default(),
        says("runs"),
    );
    caveats(text, grid);
    text.push('\n');
    let name = |column: &str| match column {
        OPERATIONS => "operations/s",
        "p99_us" => "p99",
        "members_cpu_us" => "CPU of all nodes",
        "leader_cpu_us" => "CPU of the leader",
        LEADER_CHANGED => "change of leader",
        _ => "log bytes",
    };
    let rows = PAIRS.iter().flat_map(|pair| pair.rules.iter().map(move |rule| (pair, rule)));
    let rows = rows.map(|(pair, rule @ (column, bar))| {
        let found = judged(grid, &pair.title(), rule);
        let shown = match (found.first(), found.get(found.len() / 2), found.last()) {
            (Some(_), ..) if matches!(bar, Bar::Never) => {
                let times = found.iter().filter(|number| **number > 0.0).count();
                format!("in {times} of {} rounds", found.len())
            }
            (Some(low), Some(middle), Some(high)) => {
                let (low, high) = judged_interval(*bar, &found).unwrap_or((*low, *high));
                format!("{middle:.2} ({low:.2} to {high:.2})")
            }
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

    fn grid(rows: &str) -> Grid {
        Grid::parse(RATIOS, &format!("{}\n{rows}", RATIOS.columns().join(","))).unwrap()
    }

    #[test]
    fn a_ratio_is_of_one_round_and_a_bar_is_met_by_every_round() {
        let pair = &PAIRS[0];
        let title = pair.title();
        let rows =
            [("first", 1, 200), ("second", 1, 100), ("second", 2, 50), ("first", 2, 75), ("first", 3, 9)];
        let row = |(side, run, rate): &(_, _, _)| format!("\"{title}\",{side},{run},{rate},1,1,1,10,\n");
        let grid = grid(&rows.iter().map(row).collect::<String>());
        let of = |bar| judged(&grid, &title, &(OPERATIONS, bar));
        assert_eq!(of(Bar::None), [1.5, 2.0]);
        let said = |bar| verdict(bar, &of(bar))[1].clone();
        assert_eq!(said(Bar::AtLeast(1.5)), "met");
        assert_eq!(said(Bar::AtMost(1.4)), "**missed**");
        assert_eq!(said(Bar::AtLeast(1.8)), "cannot be judged: met in 1 of 2 rounds");
        let mut text = String::new();
        section(&mut text, &grid, "head");
        assert!(text.contains("| operations/s | 2.00 (1.50 to 2.00) | at least 1.8 |"), "{text}");
    }

    #[test]
    fn of_many_ratios_the_interval_of_the_median_is_judged() {
        let pair = PAIRS.iter().find(|pair| pair.turns > 1).unwrap();
        let title = pair.title();
        let shown = |below: u32, low: u32, high: u32| {
            let row = |run: u32| {
                let first = if run <= below { low } else { high };
                format!("\"{title}\",first,{run},{first},1,1,1,10,\n\"{title}\",second,{run},100,1,1,1,10,\n")
            };
            let mut text = String::new();
            section(&mut text, &grid(&(1..=20).map(row).collect::<String>()), "head");
            assert!(text.contains("\n- 5 rounds; "), "{text}");
            let line =
                text.lines().find(|line| line.starts_with(&format!("| {title} |"))).unwrap().to_owned();
            line.split_once("operations/s | ").unwrap().1.to_owned()
        };
        assert_eq!(shown(5, 90, 99), "0.99 (0.99 to 0.99) | at least 0.95 | met |");
        assert_eq!(shown(15, 94, 99), "0.94 (0.94 to 0.94) | at least 0.95 | **missed** |");
        assert_eq!(
            shown(10, 90, 100),
            "1.00 (0.90 to 1.00) | at least 0.95 | cannot be judged: the interval holds the bar |"
        );
    }

    #[test]
    fn a_leader_that_changes_once_at_either_side_is_missed() {
        let pair = PAIRS.iter().find(|pair| pair.rules.iter().any(|rule| rule.0 == LEADER_CHANGED)).unwrap();
        let title = pair.title();
        let shown = |changed: &[(&str, u32, &str)]| {
            let row = |(side, run, yes): &(_, _, _)| format!("\"{title}\",{side},{run},9,1,1,1,10,{yes}\n");
            let mut text = String::new();
            section(&mut text, &grid(&changed.iter().map(row).collect::<String>()), "head");
            let line = text.lines().find(|line| line.contains("| change of leader |")).unwrap().to_owned();
            line.split_once(" | ").unwrap().1.to_owned()
        };
        let never = [("first", 1, "0"), ("second", 1, "0"), ("first", 2, "0"), ("second", 2, "0")];
        assert_eq!(shown(&never), "change of leader | in 0 of 2 rounds | never | met |");
        let mut once = never;
        once[3].2 = "1";
        assert_eq!(shown(&once), "change of leader | in 1 of 2 rounds | never | **missed** |");
        assert_eq!(
            shown(&never.map(|(side, run, _)| (side, run, ""))),
            "change of leader | - | never | not measured |"
        );
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
