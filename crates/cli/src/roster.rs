//! `quorate roster`: who serves reads of which keys.

use std::collections::BTreeMap;
use std::io::{Write, stdout};

use serde::Deserialize;

use crate::args::{MemberList, Roster, RosterAuto, RosterSet};
use crate::client::{CHANGE_TIMEOUT, TIMEOUT, Target, connect_for};
use crate::failure::Failure;
use crate::protocols;

pub fn roster(command: Roster) -> Result<(), Failure> {
    let (words, target) = match command {
        Roster::Show(args) => return show(args),
        Roster::Set(RosterSet { ranges, leader, endpoints }) => {
            let target = Target::new(endpoints)?;
            let mut sites = Sites { target: &target, known: None };
            (set(&ranges, leader.as_deref(), &mut sites)?, target)
        }
        Roster::Auto(RosterAuto { state, endpoints }) => {
            (vec![b"AUTO".to_vec(), state.into_bytes()], Target::new(endpoints)?)
        }
    };
    target.any(CHANGE_TIMEOUT)?.change_roster(&words)?;
    Ok(writeln!(stdout(), "OK")?)
}

/// Which node is where, as the nodes say; they are asked once, when the first name comes up.
struct Sites<'a> {
    target: &'a Target,
    known: Option<BTreeMap<String, String>>,
}

impl Sites<'_> {
    /// The id of a node that is named by it or by its site.
    fn node(&mut self, word: &str) -> Result<String, Failure> {
        let word = word.trim();
        if word.parse::<u8>().is_ok() {
            return Ok(word.to_owned());
        }
        let target = self.target;
        let known = self.known.get_or_insert_with(|| {
            let status = |endpoint: &String| {
                let status = target.ask(endpoint).ok()?;
                Some((status.fact("site").filter(|site| !site.is_empty())?.to_owned(), status.node.clone()))
            };
            target.endpoints.iter().filter_map(status).collect()
        });
        known.get(word).cloned().ok_or_else(|| {
            let all =
                known.iter().map(|(site, node)| format!("{site} ({node})")).collect::<Vec<_>>().join(", ");
            let known =
                if all.is_empty() { "the nodes at these endpoints have none".to_owned() } else { all };
            Failure::wrong(format!("{word:?} is no node's id, and no site: {known}"))
        })
    }
}

/// In the words of `QUORATE ROSTER`.
fn set(ranges: &[String], leader: Option<&str>, sites: &mut Sites<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let mut words = vec![b"SET".to_vec()];
    if let Some(leader) = leader {
        words.extend([b"LEADER".to_vec(), sites.node(leader)?.into_bytes()]);
    }
    for range in ranges.iter().filter(|range| *range != "none") {
        let (keys, ids) = range.rsplit_once('=').unwrap_or(("..", range));
        let (from, to) = match (keys.split_once(".."), keys.strip_suffix('*')) {
            (Some((from, to)), _) => (from.as_bytes().to_vec(), to.as_bytes().to_vec()),
            (None, Some(prefix)) => (prefix.as_bytes().to_vec(), behind(prefix.as_bytes())),
            (None, None) => (keys.as_bytes().to_vec(), [keys.as_bytes(), b"\0"].concat()),
        };
        if ids.split(',').any(|id| id.trim().is_empty()) {
            let text = format!("{range} does not say which nodes: write KEYS=ID,ID or ID,ID");
            return Err(Failure::wrong(text));
        }
        let ids = ids.split(',').map(|id| sites.node(id)).collect::<Result<Vec<_>, _>>()?;
        words.extend([b"RANGE".to_vec(), from, to, ids.join(",").into_bytes()]);
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
    let text = connect_for(args.endpoints, TIMEOUT)?.roster()?;
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
        let known = BTreeMap::from([("EU".to_owned(), "1".to_owned())]);
        let target = Target { endpoints: Vec::new(), tls: None, login: None };
        let sites = || Sites { target: &target, known: Some(known.clone()) };
        let words = |range: &str| {
            let words = set(&[range.to_owned()], None, &mut sites()).unwrap();
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("1,2"), "SET RANGE   1,2");
        assert_eq!(words("a..m=3"), "SET RANGE a m 3");
        assert_eq!(words("user:*=1"), "SET RANGE user: user; 1");
        assert_eq!(words("k=1"), "SET RANGE k k\0 1");
        assert_eq!(words("none"), "SET");
        // Of ranges that lie within others the node knows which counts.
        let both = ["1,2".to_owned(), "user:*=EU".to_owned()];
        let both = set(&both, None, &mut sites()).unwrap().concat();
        assert_eq!(both, b"SETRANGE1,2RANGEuser:user;1");
        assert_eq!(words("k=EU,2"), "SET RANGE k k\0 1,2");
        for (range, message) in
            [("k=x", "no site: EU (1)"), ("k=", "does not say which"), ("k", "\"k\" is no node")]
        {
            let error = set(&[range.to_owned()], None, &mut sites()).unwrap_err();
            assert!(error.message.contains(message), "{}", error.message);
        }
    }
}
