//! Program order inside one client connection (a *stream*).
//!
//! A client that pipelines expects its commands to take effect in the order in which it sent them. Writes of one
//! proxy are executed in the order of their session numbers anyway, and reads commute with reads; so a stream may
//! have any number of writes under way, or any number of reads, but changes from one to the other only when
//! everything before has been answered.
//!
//! A stream comes and goes with each request of a client that waits for its replies, so most are kept in a table: each
//! has one place there, which its number gives. A map has those whose place another one takes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use quorate_core::Access;

/// Places of the table. Connections are numbered one after the other, so this many of them do not meet.
const PLACES: usize = 256;

/// The streams that have something under way or waiting.
#[derive(Default)]
pub struct Streams {
    /// Each stream at its number modulo the number of places; empty before the first.
    table: Vec<Option<(u64, Stream)>>,
    others: BTreeMap<u64, Stream>,
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
        if self.table.is_empty() {
            self.table.resize_with(PLACES, || None);
        }
        let place = &mut self.table[place(stream)];
        let entry = match place {
            Some((number, entry)) if *number == stream => entry,
            None if !self.others.contains_key(&stream) => &mut place.insert((stream, first)).1,
            Some(_) | None => self.others.entry(stream).or_insert(first),
        };
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
        let entry = self.get_mut(stream).expect("it was under way");
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
        } else if self.table[place(stream)].take_if(|(number, _)| *number == stream).is_none() {
            self.others.remove(&stream);
        }
        (ready, shown)
    }

    /// One that was waiting has been given up.
    pub fn abandon(&mut self, stream: u64, id: u64) {
        if let Some(entry) = self.get_mut(stream) {
            entry.waiting.retain(|(waiting, _)| *waiting != id);
        }
    }

    fn get_mut(&mut self, stream: u64) -> Option<&mut Stream> {
        match self.table.get_mut(place(stream)) {
            Some(Some((number, entry))) if *number == stream => Some(entry),
            _ => self.others.get_mut(&stream),
        }
    }
}

impl fmt::Debug for Streams {
    /// As a map of all, in the order of their numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.iter().flatten().map(|(number, entry)| (number, entry));
        f.debug_map().entries(table.chain(&self.others).collect::<BTreeMap<_, _>>()).finish()
    }
}

fn place(stream: u64) -> usize {
    (stream % PLACES as u64) as usize
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

    #[test]
    fn streams_that_share_a_place_do_not_share_anything_else() {
        let (a, b, c) = (5, 5 + PLACES as u64, 5 + 2 * PLACES as u64);
        let mut streams = Streams::default();
        assert_eq!([a, b, c].map(|stream| streams.begin(stream, 1, Read)), [true; 3]);
        assert_eq!([a, b, c].map(|stream| streams.begin(stream, 2, Write)), [false; 3]);
        let keys = format!("{streams:?}").split_once(':').map(|(first, _)| first.to_owned());
        assert_eq!(keys.as_deref(), Some("{5"), "in their order");
        assert_eq!(streams.ended(a, 3), (vec![2], 3));
        assert_eq!(streams.ended(a, 4), (vec![], 4));
        assert!(streams.table[place(a)].is_none());
        assert!(!streams.begin(b, 3, Read), "it is found although its place is free now");
        streams.abandon(b, 3);
        assert_eq!((streams.ended(b, 1), streams.ended(c, 9)), ((vec![2], 1), (vec![2], 9)));
        assert_eq!((streams.ended(b, 0), streams.ended(c, 0)), ((vec![], 1), (vec![], 9)));
        assert_eq!(format!("{streams:?}"), "{}");
    }
}
