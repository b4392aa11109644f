//! The words of scenarios, read.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Interval, Manage, NodeId, NodeSet, Range, Roster, Settings};
use quorate_store::{Command, Condition, Expiry};

/// A key or a value; `b*200000` is that many of them.
pub(super) fn text(word: &str) -> Bytes {
    let times = word.split_once('*').and_then(|(one, times)| Some((one, times.parse().ok()?)));
    let (one, times) = times.unwrap_or((word, 1));
    one.repeat(times).into()
}

/// Writes a key, which may have a time to live.
pub(super) fn put(key: &str, value: &str, expiry: Expiry) -> Command {
    Command::Put { key: text(key), value: text(value), condition: Condition::Always, expiry, old: false }
}

/// `r1`.
pub(super) fn node(word: &str) -> Result<NodeId, String> {
    let id = word.strip_prefix('r').and_then(|id| NodeId::new(id.parse().ok()?));
    id.ok_or_else(|| format!("`{word}` is no node: write r1"))
}

/// `p1`.
pub(super) fn proxy(word: &str) -> Result<NodeId, String> {
    let id = word.strip_prefix('p').and_then(|id| NodeId::new(id.parse().ok()?));
    id.ok_or_else(|| format!("`{word}` is no proxy: write p1"))
}

/// `3`, or `3+2`: the members of a group, and with them those that may join it.
pub(super) fn nodes(word: &str) -> Result<(NodeSet, NodeSet), String> {
    let (members, spares) = word.split_once('+').unwrap_or((word, "0"));
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("`{word}` is no number of nodes"));
    let (members, spares) = (number(members)?, number(spares)?);
    let upto = |count: u64| (1..=count).map(NodeId::new).collect::<Option<NodeSet>>();
    let sets = upto(members).zip(members.checked_add(spares).and_then(upto));
    sets.filter(|(members, _)| !members.is_empty()).ok_or_else(|| "nodes: from 1 to 63".to_owned())
}

/// `100ms`.
pub(super) fn duration(word: &str) -> Result<Duration, String> {
    let mut settings = Settings::parse([format!("value={word}")]).map_err(|error| error.to_string())?;
    settings.duration("value", "0ms", "A time in a script").map_err(|error| error.to_string())
}

/// `100`: a time to live.
pub(super) fn millis(word: &str) -> Result<i64, String> {
    let millis = word.parse().ok().filter(|millis| *millis > 0);
    millis.ok_or_else(|| format!("`{word}`: write the time to live in milliseconds, as 100"))
}

/// `150`, `-20`: how far a wall clock is ahead.
pub(super) fn offset(word: &str) -> Result<i64, String> {
    word.parse().map_err(|_| format!("`{word}`: write milliseconds ahead of the other clocks, as 150 or -20"))
}

/// `-m:r2,r3 m-:r2`: ranges of keys, and who serves them.
fn roster(words: &[&str]) -> Result<Roster, String> {
    let range = |word: &&str| {
        let parts = word.split_once(':').and_then(|(keys, nodes)| Some((keys.split_once('-')?, nodes)));
        let ((from, to), nodes) = parts.ok_or_else(|| format!("`{word}`: write FROM-TO:r2,r3"))?;
        let responders = nodes.split(',').map(node).collect::<Result<NodeSet, _>>()?;
        Ok(Range { from: text(from), to: Some(to).filter(|to| !to.is_empty()).map(text), responders })
    };
    let ranges = words.iter().map(range).collect::<Result<_, String>>()?;
    Roster::new(None, ranges).map_err(|error| error.to_string())
}

/// `voters=r4,r5 learners=r6 remove=r1`, or `cancel`, or `transfer`, or `transfer r2`, or `roster -m:r2 m-:r3`.
pub(super) fn manage(words: &[&str]) -> Result<Manage, String> {
    match words {
        ["cancel"] => return Ok(Manage::CancelChange),
        ["transfer"] => return Ok(Manage::Transfer { to: None }),
        ["transfer", to] => return Ok(Manage::Transfer { to: Some(node(to)?) }),
        ["roster", ranges @ ..] => return Ok(Manage::Roster(roster(ranges)?)),
        _ => {}
    }
    let (mut voters, mut learners, mut remove) = (BTreeMap::new(), BTreeMap::new(), NodeSet::EMPTY);
    for word in words {
        let (role, names) = word.split_once('=').unwrap_or((word, ""));
        for name in names.split(',') {
            let node = node(name)?;
            match role {
                "voters" => drop(voters.insert(node, format!("{node:?}"))),
                "learners" => drop(learners.insert(node, format!("{node:?}"))),
                "remove" => drop(remove.insert(node)),
                _ => {
                    return Err(format!(
                        "`{word}`: write voters=r4, learners=r4, remove=r1, cancel, or transfer [r2]"
                    ));
                }
            }
        }
    }
    Ok(Manage::Change { voters, learners, remove })
}

/// What a node knows of true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Knowledge {
    /// Half the width of its interval, in nanoseconds.
    bound: u64,
    /// How far the middle is from the truth.
    offset: i64,
}

impl Knowledge {
    /// Everything.
    pub const EXACT: Knowledge = Knowledge { bound: 0, offset: 0 };

    /// `±5ms`, or `±5ms +3ms` with the middle after the truth, or `±5ms -3ms` with it before.
    pub fn parse(words: &[&str]) -> Result<Knowledge, String> {
        let nanos = |word: &str| Ok::<_, String>(duration(word)?.as_nanos() as u64);
        let (bound, offset) = match words {
            [bound] => (bound, 0),
            [bound, offset] => match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
                (Some(after), _) => (bound, nanos(after)? as i64),
                (_, Some(before)) => (bound, -(nanos(before)? as i64)),
                _ => return Err(format!("`{offset}`: write +3ms or -3ms")),
            },
            _ => return Err("clock: write ±5ms, ±5ms +3ms, or none".to_owned()),
        };
        let bound = bound.strip_prefix('±').ok_or_else(|| format!("`{bound}`: write ±5ms or none"))?;
        Ok(Knowledge { bound: nanos(bound)?, offset })
    }

    /// What its clock shows at a true time.
    pub fn interval(self, truth: u64) -> Interval {
        let middle = truth.saturating_add_signed(self.offset);
        Interval { earliest: middle.saturating_sub(self.bound), latest: middle.saturating_add(self.bound) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        let set = |ids: std::ops::Range<u64>| ids.filter_map(NodeId::new).collect::<NodeSet>();
        assert_eq!(nodes("3"), Ok((set(1..4), set(1..4))));
        assert_eq!(nodes("3+2"), Ok((set(1..4), set(1..6))));
        assert!(nodes("0").is_err() && nodes("60+9").is_err() && nodes("x").is_err());
        let Ok(Manage::Change { voters, learners, remove }) = manage(&["voters=r4,r5", "remove=r1"]) else {
            panic!("a change");
        };
        assert_eq!((voters.len(), learners.len(), remove), (2, 0, set(1..2)));
        assert_eq!(manage(&["transfer", "r2"]), Ok(Manage::Transfer { to: NodeId::new(2) }));
        let Ok(Manage::Roster(roster)) = manage(&["roster", "-m:r2,r3", "x-:r1"]) else { panic!("a roster") };
        assert_eq!((roster.responders(b"a"), roster.responders(b"n").len()), (set(2..4), 0));
        assert!(manage(&["roster", "m:r1"]).is_err());
        assert!(manage(&["voters"]).is_err() && manage(&["friends=r1"]).is_err());
        let interval = |words: &[&str]| Knowledge::parse(words).map(|known| known.interval(10_000_000));
        let ms = |earliest: u64, latest: u64| {
            Ok(Interval { earliest: earliest * 1_000_000, latest: latest * 1_000_000 })
        };
        assert_eq!((millis("100"), offset("-20")), (Ok(100), Ok(-20)));
        assert!(millis("0").is_err() && millis("-1").is_err() && offset("1s").is_err());
        assert_eq!(interval(&["±2ms"]), ms(8, 12));
        assert_eq!(interval(&["±2ms", "+1ms"]), ms(9, 13));
        assert_eq!(interval(&["±2ms", "-2ms"]), ms(6, 10));
        assert!(interval(&["2ms"]).is_err() && interval(&["±2ms", "1ms"]).is_err());
    }
}
