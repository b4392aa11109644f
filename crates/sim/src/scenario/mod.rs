//! Golden conversations: a small cluster that a text file drives step by step. The file holds what was said and,
//! indented below each line, what came of it; a change of behaviour is a reviewable change of the file.
//!
//! ```text
//! # Comments and empty lines stay where they are.
//! nodes 3
//! put p1 color blue
//!   p1 -> r1 Ask
//! deliver p1>r1
//!   r1 <- p1 Ask | -> r1,r2,r3 Accept
//! deliver r1>r2 Accept
//!   r2 <- r1 Accept | persist Vote | -> r1 AcceptReply
//! ```
//!
//! Each line is an input of a process and what it did upon it. Messages and records are shown by their kinds; arrivals
//! that lead to nothing share a line. Where more matters, `fields on` shows everything, each in a line of its own.
//!
//! | command | what happens |
//! |---|---|
//! | `nodes 3 [key=value …]` | replicas `r1`… and their nodes' proxies `p1`… start, with these settings |
//! | `nodes 3+2 [key=value …]` | the same, and two more nodes that may join the group |
//! | `nodes 3 diskless [key=value …]` | replicas keep their data in memory alone, as with `--durability none` |
//! | `put p1 KEY VALUE`, `get p1 KEY`, `del p1 KEY`, `incr p1 KEY` | a client asks a proxy; requests are numbered; a value `b*200000` is so many of that text |
//! | `multi p1 READ-KEY KEY VALUE` | a transaction that reads one key and writes another |
//! | `putex p1 KEY VALUE MILLIS` | as `put`, for a key that lives for so many milliseconds |
//! | `get p1 KEY within 50ms`, `get p1 KEY within 3` | the answer may be so old, or miss so many writes |
//! | `stream p1 2` | what a proxy is asked from now on comes from its second client, which does not wait for the first |
//! | `patience 2s` | clients give up what they ask from now on after so long; in the beginning, after an hour |
//! | `limit p1 BYTES` | an operator bounds what keys and values may take |
//! | `user p1 NAME`, `users p1` | a user is made who may do nothing; how often users were changed |
//! | `selector p1 NAME` | a user gets a selector that allows nothing, which needs feature level 2 |
//! | `raise p1 LEVEL` | an operator raises the feature level |
//! | `mget p1 KEY …`, `mput p1 KEY VALUE KEY VALUE …` | the same, for several keys |
//! | `manage p1 [voters=r4,…] [learners=r5,…] [remove=r1,…]` | an operator asks for a change of the group |
//! | `manage p1 transfer [r2]` | an operator asks for another leader |
//! | `manage p1 roster FROM-TO:r2,r3 …` | an operator says who serves reads of ranges of keys; none behind the dash: no end |
//! | `deliver [FROM>TO] [KIND]` | what is in flight and matches arrives, in the order in which it was sent; `*` is anybody |
//! | `drop [FROM>TO] [KIND]`, `duplicate [FROM>TO] [KIND]` | it is lost; it will arrive twice |
//! | `settle` | everything arrives, and what is sent on that too |
//! | `repeat 40 tick 50ms, settle` | all of that so often; only what clients are answered is shown |
//! | `cut r1 r2`, `mend` | nothing passes between two nodes; everything passes again |
//! | `fire r1 TIMER` | time moves to this timer's deadline if that is later, and it goes off, alone |
//! | `tick 100ms` | time moves, and every timer that is due goes off |
//! | `disk r1 manual`, `disk r1 auto` | records become durable by `sync` only; at once (as in the beginning) |
//! | `disk r1 full`, `disk r1 free` | a node that lives finds its disk nearly full; there is room again |
//! | `memory r1 full`, `memory r1 free` | the same, of its memory |
//! | `sync r1` | what was persisted is durable |
//! | `batch r1 begin`, `batch r1 end` | all that a node takes in between is handled in one batch |
//! | `checkpoint r1` | the replica's state is saved, and its log cut; with `auto`, a state that came from elsewhere is at once |
//! | `crash r1`, `restart r1` | a node dies with its proxy and what was not durable; it comes back |
//! | `drain r1` | a node is asked to stop, and hands over what others would have to wait for |
//! | `await r1 SLOT` | a client waits until this node shows a slot |
//! | `replace r1` | a node's disk is lost; it comes back under its id with an empty one, if the protocol can do that |
//! | `clock r1 ±5ms [+3ms]`, `clock r1 none` | what a node knows of true time: within 5 ms, the middle 3 ms after it (`-3ms`: before it); nothing |
//! | `wall r1 MILLIS` | a node's wall clock is so far ahead of the others from now on (`-20`: behind) |
//! | `facts on`, `facts off` | what replicas state as facts is shown; it is not (as in the beginning) |
//! | `fields on`, `fields off` | messages and records are shown with their fields; by their kinds (as in the beginning) |
//! | `status` | how each replica sees itself |
//!
//! Monotonic clocks show the same time everywhere, and so do wall clocks unless `wall` says otherwise. True time is
//! known exactly unless `clock` says otherwise.
//! Only one input is handled in a batch, unless `batch` says otherwise.

mod harness;
mod scripted_cluster;
mod transcript;
mod words;

use std::fmt;

use quorate_runtime::AnyProtocol;

pub use harness::run_traces;

use scripted_cluster::ScriptedCluster;

/// A line that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ScenarioError {}

/// Plays a scenario; gives the same text with what really came of each command.
pub fn play(protocol: &'static dyn AnyProtocol, text: &str) -> Result<String, ScenarioError> {
    let mut cluster: Option<ScriptedCluster> = None;
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with(' ') {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        let words: Vec<_> = line.split_whitespace().collect();
        if words.is_empty() || words[0].starts_with('#') {
            continue;
        }
        let failed = |what: String| ScenarioError { line: index + 1, what };
        let lines = match (words[0], &mut cluster) {
            ("nodes", _) => {
                let (fresh, lines) = ScriptedCluster::open(protocol, &words[1..]).map_err(failed)?;
                cluster = Some(fresh);
                lines
            }
            (_, None) => return Err(failed("begin with `nodes N`".to_owned())),
            ("repeat", Some(cluster)) => cluster.repeat(&words[1..]).map_err(failed)?,
            (_, Some(cluster)) => cluster.play(&words).map_err(failed)?,
        };
        for line in lines {
            out.push_str("  ");
            out.push_str(&line);
            out.push('\n');
        }
    }
    Ok(out)
}
