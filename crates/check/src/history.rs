//! What clients asked and were told, when: the input of the linearizability checker.
//!
//! The simulator and the end-to-end tests both record one. Its text form has one line an operation, so that a
//! failing history can be printed, kept, cut down by hand and checked again:
//!
//! ```text
//! 3 1200 1890 get "k" = value some "v"      client, invoked, returned (ns), command = reply
//! 4 1250 ? put "k" "w" always never no      the outcome is unknown
//! ```

mod text;

pub use text::ParseError;
pub use text::reply_text;

use std::collections::BTreeSet;

use quorate_core::Staleness;
use quorate_store::{Command, Reply};

use crate::staleness::Bounds;

/// One command of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked. A client may have several operations under way.
    pub client: u64,
    /// The command that the client asked for.
    pub command: Command,
    /// When, in nanoseconds of true time.
    pub invoked: u64,
    /// When the reply came, and the reply. `None` if the outcome is unknown: the command may take effect at any time
    /// after `invoked`, or never. A command that certainly was not executed does not belong into a history.
    pub returned: Option<(u64, Reply)>,
}

/// The operations of all clients on one store, which was empty before them. The order does not matter, except
/// between operations of one client that touch at the same nanosecond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(pub Vec<Operation>);

impl History {
    /// Reads the text form. Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<History, ParseError> {
        text::parse(text)
    }
}

/// Records a history. Each event is given a time of its own: where the clock stands still between two of them, the
/// later one is moved on by a nanosecond, so that the order in which the recorder saw them is not lost.
#[derive(Debug, Default)]
pub struct Recorder {
    operations: Vec<Operation>,
    bounds: Bounds,
    /// Those that were certainly not executed.
    refused: BTreeSet<usize>,
    last: Option<u64>,
}

/// An operation under way in a [`Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Invocation(usize);

impl Recorder {
    /// A client asks, now.
    pub fn invoke(&mut self, client: u64, command: Command, now: u64) -> Invocation {
        let invoked = self.tick(now);
        self.operations.push(Operation { client, command, invoked, returned: None });
        Invocation(self.operations.len() - 1)
    }

    /// It is a read that may miss something.
    pub fn allow(&mut self, invocation: Invocation, bound: Staleness) {
        self.bounds.insert(invocation.0, bound);
    }

    /// The reply has come, now. An operation that never gets here has an unknown outcome.
    pub fn returned(&mut self, invocation: Invocation, reply: Reply, now: u64) {
        let now = self.tick(now);
        let operation = &mut self.operations[invocation.0];
        assert!(operation.returned.is_none(), "an operation returns once");
        operation.returned = Some((now, reply));
    }

    /// The reply has come, and says that the command was not executed: it is no part of the history.
    pub fn refused(&mut self, invocation: Invocation) {
        assert!(self.operations[invocation.0].returned.is_none(), "an operation returns once");
        self.refused.insert(invocation.0);
    }

    /// How many operations were invoked.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether no operation was recorded.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The history of all operations, those without an end among them.
    pub fn finish(self) -> History {
        self.finish_with_bounds().0
    }

    /// What was recorded, and what reads may miss.
    pub fn finish_with_bounds(self) -> (History, Bounds) {
        let Recorder { operations, bounds, refused, .. } = self;
        let kept = operations.into_iter().enumerate().filter(|(index, _)| !refused.contains(index));
        let (indices, operations): (Vec<_>, Vec<_>) = kept.unzip();
        let bound = |(index, old)| Some((index, *bounds.get(old)?));
        let bounds = indices.iter().enumerate().filter_map(bound).collect();
        (History(operations), bounds)
    }

    fn tick(&mut self, now: u64) -> u64 {
        let time = self.last.map_or(now, |last| now.max(last + 1));
        self.last = Some(time);
        time
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn get(key: &'static str) -> Command {
        Command::Get { key: Bytes::from_static(key.as_bytes()) }
    }

    #[test]
    fn events_of_one_instant_keep_the_order_in_which_they_were_recorded() {
        let mut recorder = Recorder::default();
        let first = recorder.invoke(1, get("a"), 10);
        recorder.returned(first, Reply::Value(None), 10);
        recorder.invoke(1, get("b"), 10);
        recorder.invoke(2, get("c"), 5);
        recorder.invoke(2, get("d"), 100);
        let times: Vec<_> = recorder.finish().0.iter().map(|op| op.invoked).collect();
        assert_eq!(times, [10, 12, 13, 100]);
    }

    #[test]
    fn what_was_refused_is_no_part_of_the_history_and_bounds_stay_with_their_reads() {
        let mut recorder = Recorder::default();
        let [first, second, third] = ["a", "b", "c"].map(|key| recorder.invoke(1, get(key), 1));
        recorder.refused(first);
        recorder.allow(second, Staleness::Versions(3));
        recorder.returned(third, Reply::Value(None), 2);
        let (History(operations), bounds) = recorder.finish_with_bounds();
        let commands: Vec<_> = operations.into_iter().map(|operation| operation.command).collect();
        assert_eq!(commands, [get("b"), get("c")]);
        assert_eq!(bounds.into_iter().collect::<Vec<_>>(), [(0, Staleness::Versions(3))]);
    }
}
