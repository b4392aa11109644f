//! Program order inside one client connection (a *stream*).
//!
//! A client that pipelines expects its commands to take effect in the order in which it sent them. Writes of one
//! proxy are executed in the order of their session numbers anyway, and reads commute with reads; so a stream may
//! have any number of writes under way, or any number of reads, but changes from one to the other only when
//! everything before has been answered.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::Access;

/// The streams that have something under way or waiting.
#[derive(Debug, Default)]
pub struct Streams {
    streams: BTreeMap<u64, Stream>,
}

#[derive(Debug)]
struct Stream {
    access: Access,
    under_way: usize,
    /// The last slot that any answer was from.
    shown: u64,
    waiting: VecDeque<(u64, Access)>,
}

impl Streams {
    /// A request has come in, with a number of its own. True: it may go at once. False: [`ended`](Streams::ended) will
    /// say when.
    pub fn begin(&mut self, stream: u64, id: u64, access: Access) -> bool {
        let first = Stream { access, under_way: 0, shown: 0, waiting: VecDeque::new() };
        let entry = self.streams.entry(stream).or_insert(first);
        if entry.waiting.is_empty() && entry.access == access {
            entry.under_way += 1;
            return true;
        }
        entry.waiting.push_back((id, access));
        false
    }

    /// One that was under way has been answered, by a replica that had executed everything up to `shown`; tells which
    /// may go now, and the last such slot of those before them.
    pub fn ended(&mut self, stream: u64, shown: u64) -> (Vec<u64>, u64) {
        let entry = self.streams.get_mut(&stream).expect("it was under way");
        entry.under_way -= 1;
        entry.shown = shown.max(entry.shown);
        let shown = entry.shown;
        if entry.under_way > 0 {
            return (Vec::new(), shown);
        }
        let mut ready = Vec::new();
        if let Some(&(_, access)) = entry.waiting.front() {
            entry.access = access;
            while let Some((id, _)) = entry.waiting.pop_front_if(|(_, next)| *next == access) {
                ready.push(id);
            }
            entry.under_way = ready.len();
        } else {
            self.streams.remove(&stream);
        }
        (ready, shown)
    }

    /// One that was waiting has been given up.
    pub fn abandon(&mut self, stream: u64, id: u64) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.waiting.retain(|(waiting, _)| *waiting != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use Access::{Read, Write};

    use super::*;

    #[test]
    fn runs_of_one_kind_go_together_and_runs_follow_each_other() {
        let mut streams = Streams::default();
        let begun: Vec<_> = [(1, Write), (2, Write), (3, Read), (4, Read), (5, Write), (6, Read)]
            .into_iter()
            .map(|(number, access)| streams.begin(9, number, access))
            .collect();
        assert_eq!(begun, [true, true, false, false, false, false]);
        assert!(streams.begin(8, 7, Read), "another stream is not concerned");
        assert_eq!(streams.ended(9, 7), (vec![], 7));
        assert_eq!(streams.ended(9, 5), (vec![3, 4], 7), "the answers may come in any order");
        assert_eq!(streams.ended(9, 6), (vec![], 7));
        streams.abandon(9, 6);
        assert_eq!(streams.ended(9, 8), (vec![5], 8));
        assert_eq!(streams.ended(9, 9), (vec![], 9));
        assert!(streams.begin(9, 8, Read), "nothing is left behind");
    }
}
