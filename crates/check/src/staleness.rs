//! Bounded staleness: a read that may miss what is younger than an age, or so many versions, misses no more.
//!
//! Such a read is one of an earlier moment: with an age, linearizability of the same history, in which it was invoked
//! that much earlier, is the very definition. With `x` versions, let `n` writes of a key have returned before it was
//! invoked. It sees `n - x` of them at least, so its place in the order is behind the invocation of the (n - x)-th to
//! be invoked; and if those have all returned before any other was invoked, behind the last of them, and so it may as
//! well have been invoked when that returned. That is exact but for writes of one key that overlap, and for reads of
//! several keys.

use std::collections::BTreeMap;

use quorate_core::Staleness;
use quorate_store::footprint::Extent;

use crate::history::{History, Operation};

/// What some operations of a history may miss, by their positions in it.
pub type Bounds = BTreeMap<usize, Staleness>;

/// Such operations belong to nobody else: what one client does otherwise is in no order with them.
const APART: u64 = 1 << 48;

/// The history without reads that may miss something.
pub fn strict(history: &History, bounds: &Bounds) -> History {
    let kept = history.0.iter().enumerate().filter(|(index, _)| !bounds.contains_key(index));
    History(kept.map(|(_, operation)| operation.clone()).collect())
}

/// Writes, and the reads that say what they may miss; with what they may.
pub fn stated(history: &History, bounds: &Bounds) -> (History, Bounds) {
    let (mut kept, mut stated) = (Vec::new(), Bounds::new());
    for (index, operation) in history.0.iter().enumerate() {
        let bound = bounds.get(&index);
        if bound.is_some() || !operation.command.is_read_only() {
            stated.extend(bound.map(|bound| (kept.len(), *bound)));
            kept.push(operation.clone());
        }
    }
    (History(kept), stated)
}

/// The history that is linearizable if no read misses more than it may.
pub fn widened(history: &History, bounds: &Bounds) -> History {
    let mut wide = history.clone();
    for (&index, bound) in bounds {
        let read = &history.0[index];
        let invoked = match bound {
            Staleness::Age(age) => {
                read.invoked.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
            }
            Staleness::Versions(most) => newest(history, read, *most),
        };
        let client = APART + index as u64;
        wide.0[index] = Operation { client, invoked: invoked.min(read.invoked), ..read.clone() };
    }
    wide
}

/// Since when a read that may miss so many versions of each of its keys can have been made.
fn newest(history: &History, read: &Operation, most: u64) -> u64 {
    let footprint = read.command.footprint();
    let Extent::Keys(keys) = footprint.reads() else { return read.invoked };
    let alone = keys.as_slice().len() == 1;
    let since = keys.as_slice().iter().map(|key| {
        let writes = |operation: &&Operation| match operation.command.footprint().writes() {
            Extent::Everything => true,
            Extent::Keys(written) => written.as_slice().contains(key),
        };
        let end = |write: &Operation| write.returned.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let writes = history.0.iter().filter(writes).map(|write| (write.invoked, end(write)));
        let (mut before, others): (Vec<_>, Vec<_>) = writes.partition(|(_, end)| *end < read.invoked);
        before.sort_unstable();
        let seen = (before.len() as u64).saturating_sub(most) as usize;
        let (seen, missed) = before.split_at(seen);
        let Some(&(last, _)) = seen.last() else { return 0 };
        let returned = seen.iter().map(|(_, end)| *end).max().unwrap_or(0);
        let apart = missed.iter().chain(&others).all(|(invoked, _)| *invoked > returned);
        if alone && apart { returned + 1 } else { last }
    });
    since.max().unwrap_or(read.invoked)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::linearizability;

    /// Three writes of one client, one after the other, and a read of what the first has left.
    const HISTORY: &str = "
        1 10 20 put \"k\" \"a\" always never no = done
        1 30 40 put \"k\" \"b\" always never no = done
        1 50 60 put \"k\" \"c\" always never no = done
        2 70 80 get \"k\" = value some \"a\"
    ";

    fn holds(bound: Staleness) -> bool {
        let history = History::parse(HISTORY).unwrap();
        let bounds = Bounds::from([(3, bound)]);
        assert!(linearizability::check(&strict(&history, &bounds)).is_ok());
        linearizability::check(&widened(&history, &bounds)).is_ok()
    }

    #[test]
    fn a_read_may_miss_what_its_bound_allows_and_no_more() {
        assert!(linearizability::check(&History::parse(HISTORY).unwrap()).is_err());
        for (nanos, fine) in [(0, false), (20, false), (29, false), (35, true), (60, true), (1000, true)] {
            assert_eq!(holds(Staleness::Age(Duration::from_nanos(nanos))), fine, "{nanos} ns");
        }
        for (versions, fine) in [(0, false), (1, false), (2, true), (3, true)] {
            assert_eq!(holds(Staleness::Versions(versions)), fine, "{versions} versions");
        }
    }

    /// One key is as old as its only write, and of the other a write is missing.
    #[test]
    fn a_read_of_several_keys_may_miss_so_many_versions_of_each() {
        let text = "
            1 10 20 put \"j\" \"a\" always never no = done
            1 30 40 put \"k\" \"b\" always never no = done
            1 50 60 put \"k\" \"c\" always never no = done
            1 70 80 put \"k\" \"d\" always never no = done
            2 90 100 get-many (\"j\" \"k\") = values (some \"a\" some \"b\")
        ";
        let history = History::parse(text).unwrap();
        for (versions, fine) in [(0, false), (2, true)] {
            let bounds = Bounds::from([(4, Staleness::Versions(versions))]);
            let wide = widened(&history, &bounds);
            assert_eq!(linearizability::check(&wide).is_ok(), fine, "{versions} versions");
        }
    }

    /// Also if they are told in another order; what removes all keys is a version of each.
    #[test]
    fn versions_are_counted_in_the_order_in_which_they_were_invoked() {
        let text = "
            1 30 40 clear = done
            1 10 20 put \"k\" \"a\" always never no = done
            2 50 60 get \"k\" = value some \"a\"
        ";
        let history = History::parse(text).unwrap();
        for (versions, fine) in [(0, false), (1, true)] {
            let wide = widened(&history, &Bounds::from([(2, Staleness::Versions(versions))]));
            assert_eq!(linearizability::check(&wide).is_ok(), fine, "{versions} versions");
        }
    }
}
