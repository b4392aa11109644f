//! `quorate status --watch`: the table of nodes every second, with what they did a second meanwhile. In place on a
//! terminal; one table after the other, each under the time, where the output is read by a program.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stdout};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::client::Target;
use crate::failure::Failure;
use crate::protocols;
use crate::status::{self, NoStatus, NodeStatus};

/// From one look to the next.
const EVERY: Duration = Duration::from_secs(1);

/// What was read of a node, as far as rates are made of it.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Since the start of the watch.
    at: Duration,
    /// Tells this life of the node from its next, whose counters begin again.
    started: u64,
    committed: u64,
    requests: u64,
}

impl Reading {
    fn new(status: &NodeStatus, at: Duration) -> Reading {
        let number = |name| status.fact(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let started = status.fact("incarnation").and_then(|text| u64::from_str_radix(text, 16).ok());
        let (committed, requests) = (status.committed, number("requests_total"));
        Reading { at, started: started.unwrap_or(0), committed, requests }
    }
}

/// The latest reading of each endpoint that has answered.
type Readings = BTreeMap<String, Reading>;

/// Shows the nodes until a signal asks to stop.
pub fn watch(target: &Target) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = tell.send(());
        }
    });
    let start = Instant::now();
    let mut readings = Readings::new();
    let mut shown = 0;
    loop {
        let look = start.elapsed();
        let answers = ask_all(target, start);
        let table = render(&answers, &mut readings);
        let mut out = stdout().lock();
        let text = if out.is_terminal() {
            let text = in_place(&table, shown);
            shown = table.lines().count();
            text
        } else {
            format!("{}\n{table}\n", time_of_day(SystemTime::now()))
        };
        out.write_all(text.as_bytes())?;
        out.flush()?;
        drop(out);
        let rest = EVERY.saturating_sub(start.elapsed() - look);
        match told.recv_timeout(rest) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A table that takes the place of the last one, of so many lines, on a terminal. Rows that are wider than it are cut
/// (the terminal does not wrap meanwhile): a row that took two lines would leave one behind.
fn in_place(table: &str, shown: usize) -> String {
    let up = if shown > 0 { format!("\x1b[{shown}A\x1b[J") } else { String::new() };
    format!("{up}\x1b[?7l{table}\x1b[?7h")
}

/// An endpoint, and its node's status with the time of the answer, if there was one.
type Answer = (String, Result<(NodeStatus, Duration), NoStatus>);

/// Asks all at once: one that is silent delays the others' lines, but not their readings.
fn ask_all(target: &Target, start: Instant) -> Vec<Answer> {
    let endpoints = &target.endpoints;
    thread::scope(|scope| {
        let asked: Vec<_> = endpoints
            .iter()
            .map(|endpoint| scope.spawn(move || target.ask(endpoint).map(|status| (status, start.elapsed()))))
            .collect();
        let silent = || Err(NoStatus::Silent("it could not be asked".to_owned()));
        let answers = asked.into_iter().map(|thread| thread.join().unwrap_or_else(|_| silent()));
        endpoints.iter().cloned().zip(answers).collect()
    })
}

/// The table; takes note of what was read.
fn render(answers: &[Answer], readings: &mut Readings) -> String {
    let [endpoint, node, role, leader, ballot, committed, applied, lease, lag] = status::TITLES;
    let titles =
        [endpoint, node, role, leader, ballot, committed, applied, "commits/s", "requests/s", lease, lag];
    let mut rows = vec![titles.map(str::to_owned)];
    for (endpoint, answer) in answers {
        let reading = answer.as_ref().ok().map(|(status, at)| Reading::new(status, *at));
        let before = match reading {
            Some(reading) => readings.insert(endpoint.clone(), reading),
            None => readings.remove(endpoint),
        };
        let (commits, requests) = match (before, reading) {
            (Some(before), Some(now)) if before.started == now.started => {
                let rate = |count: fn(&Reading) -> u64| rate(count(&before), count(&now), now.at - before.at);
                (rate(|reading| reading.committed), rate(|reading| reading.requests))
            }
            _ => ("-".to_owned(), "-".to_owned()),
        };
        let status = answer.as_ref().map(|(status, _)| status);
        let [endpoint, node, role, leader, ballot, committed, applied, lease, lag] =
            status::row(endpoint, status);
        rows.push([endpoint, node, role, leader, ballot, committed, applied, commits, requests, lease, lag]);
    }
    protocols::table(&rows)
}

/// How many a second.
fn rate(before: u64, now: u64, between: Duration) -> String {
    match between.is_zero() {
        true => "-".to_owned(),
        false => format!("{:.0}", now.saturating_sub(before) as f64 / between.as_secs_f64()),
    }
}

/// In UTC.
fn time_of_day(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut text = String::new();
    let _ = write!(text, "{:02}:{:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(node: u64, role: &str, committed: u64, requests: u64, incarnation: &str) -> NodeStatus {
        let facts = json!({ "requests_total": requests.to_string(), "incarnation": incarnation });
        let peers =
            if role == "leader" { json!([{ "node": 2, "lag": 4, "heard_ms": 5 }]) } else { json!([]) };
        let status = json!({
            "node": node.to_string(), "role": role, "leader": 1, "ballot": "7.1", "committed": committed,
            "applied": committed, "lease": role == "leader", "peers": peers, "facts": facts,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn rates_are_between_two_readings_of_one_life_and_the_unreachable_are_shown() {
        let mut readings = Readings::new();
        let mut drawn = String::new();
        let at = |millis, status| Ok((status, Duration::from_millis(millis)));
        let none = || Err(NoStatus::Silent("it hangs".to_owned()));
        for (a, b) in [
            (at(1000, status(1, "leader", 100, 10, "a")), none()),
            (at(2000, status(1, "leader", 1100, 20, "a")), at(2000, status(2, "follower", 900, 0, "b"))),
            (at(4000, status(1, "leader", 1500, 21, "a")), at(4000, status(2, "follower", 1000, 0, "c"))),
            (none(), at(4500, status(2, "leader", 1050, 3, "c"))),
            (at(9000, status(1, "follower", 1600, 30, "a")), at(5500, status(2, "leader", 1050, 3, "c"))),
        ] {
            drawn += &render(&[("a:1".to_owned(), a), ("b:1".to_owned(), b)], &mut readings);
        }
        let expected = "
endpoint  node  role         leader  ballot  committed  applied  commits/s  requests/s  lease  lag of peers
a:1       1     leader       1       7.1     100        100      -          -           held   2:4
b:1       -     unreachable  -       -       -          -        -          -           -
endpoint  node  role      leader  ballot  committed  applied  commits/s  requests/s  lease  lag of peers
a:1       1     leader    1       7.1     1100       1100     1000       10          held   2:4
b:1       2     follower  1       7.1     900        900      -          -           -
endpoint  node  role      leader  ballot  committed  applied  commits/s  requests/s  lease  lag of peers
a:1       1     leader    1       7.1     1500       1500     200        0           held   2:4
b:1       2     follower  1       7.1     1000       1000     -          -           -
endpoint  node  role         leader  ballot  committed  applied  commits/s  requests/s  lease  lag of peers
a:1       -     unreachable  -       -       -          -        -          -           -
b:1       2     leader       1       7.1     1050       1050     100        6           held   2:4
endpoint  node  role      leader  ballot  committed  applied  commits/s  requests/s  lease  lag of peers
a:1       1     follower  1       7.1     1600       1600     -          -           -
b:1       2     leader    1       7.1     1050       1050     0          0           held   2:4
";
        assert_eq!(drawn, expected[1..], "{drawn}");
    }

    #[test]
    fn on_a_terminal_a_table_replaces_the_last_one_and_no_row_wraps() {
        assert_eq!(in_place("a\nb\n", 0), "\x1b[?7la\nb\n\x1b[?7h");
        assert_eq!(in_place("c\n", 2), "\x1b[2A\x1b[J\x1b[?7lc\n\x1b[?7h");
    }

    #[test]
    fn the_time_is_that_of_the_day() {
        let at = |seconds| time_of_day(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(86_399), at(86_400 * 9 + 3_661)],
            ["00:00:00 UTC", "23:59:59 UTC", "01:01:01 UTC"]
        );
    }
}
