//! `quorate roster`: who serves reads of which keys.

use std::io::{Write, stdout};
use std::time::Duration;

use serde::Deserialize;

use crate::args::{MemberList, Roster, RosterAuto, RosterSet};
use crate::client::connect_for;
use crate::failure::Failure;
use crate::protocols;

/// Longer than a node takes to say that a change is not done yet.
const TIMEOUT: Duration = Duration::from_secs(65);

pub fn roster(command: Roster) -> Result<(), Failure> {
    let (words, endpoints) = match command {
        Roster::Show(args) => return show(args),
        Roster::Set(RosterSet { ranges, leader, endpoints }) => (set(&ranges, leader)?, endpoints),
        Roster::Auto(RosterAuto { state, endpoints }) => {
            (vec![b"AUTO".to_vec(), state.into_bytes()], endpoints)
        }
    };
    connect_for(endpoints, TIMEOUT)?.change_roster(&words).map_err(Failure::failed)?;
    Ok(writeln!(stdout(), "OK")?)
}

/// In the words of `QUORATE ROSTER`.
fn set(ranges: &[String], leader: Option<u8>) -> Result<Vec<Vec<u8>>, Failure> {
    let mut words = vec![b"SET".to_vec()];
    if let Some(leader) = leader {
        words.extend([b"LEADER".to_vec(), leader.to_string().into_bytes()]);
    }
    for range in ranges.iter().filter(|range| *range != "none") {
        let (keys, ids) = range.rsplit_once('=').unwrap_or(("..", range));
        let (from, to) = match (keys.split_once(".."), keys.strip_suffix('*')) {
            (Some((from, to)), _) => (from.as_bytes().to_vec(), to.as_bytes().to_vec()),
            (None, Some(prefix)) => (prefix.as_bytes().to_vec(), behind(prefix.as_bytes())),
            (None, None) => (keys.as_bytes().to_vec(), [keys.as_bytes(), b"\0"].concat()),
        };
        if ids.split(',').any(|id| id.trim().parse::<u8>().is_err()) {
            let text = format!("{range} does not say which nodes: write KEYS=ID,ID or ID,ID");
            return Err(Failure::wrong(text));
        }
        words.extend([b"RANGE".to_vec(), from, to, ids.as_bytes().to_vec()]);
    }
    Ok(words)
}

/// The first key behind all with a prefix; empty if there is none.
fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// What `QUORATE ROSTER SHOW` says.
#[derive(Debug, Deserialize)]
struct Shown {
    ballot: String,
    leader: Option<u8>,
    auto: bool,
    ranges: Vec<Line>,
}

#[derive(Debug, Deserialize)]
struct Line {
    from: String,
    to: Option<String>,
    responders: Vec<u8>,
}

fn show(args: MemberList) -> Result<(), Failure> {
    let text = connect_for(args.endpoints, TIMEOUT)?.roster().map_err(Failure::failed)?;
    if args.json {
        return Ok(writeln!(stdout(), "{text}")?);
    }
    let shown: Shown = serde_json::from_str(&text).map_err(|error| {
        Failure::failed(format!("the node answered something else than a roster: {error}"))
    })?;
    let leader = shown.leader.map_or("nobody".to_owned(), |leader| format!("node {leader}"));
    let auto = if shown.auto { "changes by itself" } else { "as it was set" };
    writeln!(stdout(), "led by {leader} in ballot {}, {auto}", shown.ballot)?;
    let mut rows = vec![["from", "to", "responders"].map(str::to_owned)];
    rows.extend(shown.ranges.into_iter().map(|Line { from, to, responders }| {
        let responders = responders.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
        let from = if from.is_empty() { "the first key".to_owned() } else { from.escape_debug().to_string() };
        let to = to.map_or("the last key".to_owned(), |to| to.escape_debug().to_string());
        [from, to, responders]
    }));
    protocols::print(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_in_the_words_of_the_node() {
        let words = |range: &str| {
            let words = set(&[range.to_owned()], None).unwrap();
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("1,2"), "SET RANGE   1,2");
        assert_eq!(words("a..m=3"), "SET RANGE a m 3");
        assert_eq!(words("user:*=1"), "SET RANGE user: user; 1");
        assert_eq!(words("k=1"), "SET RANGE k k\0 1");
        assert_eq!(words("none"), "SET");
        assert!(set(&["k=x".to_owned()], None).is_err());
    }
}
