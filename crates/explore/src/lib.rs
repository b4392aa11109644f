//! Every behaviour of a small cluster: the real replicas of a protocol, in all orders of whatever can happen, within
//! [`Bounds`].
//!
//! A *state* is the state of each replica (with its disk, its timers and its clock), the messages under way, and
//! what the past obliges the cluster to (`ledger`). A search in depth visits every state that can be reached, each
//! once, told apart by a digest. What can happen in a state:
//!
//! - *A message arrives.* On a link, messages are lost but do not overtake each other, as on the node's connections,
//!   which break and are made again; with [`Bounds::reorder`] they overtake. Loss needs no step of its own: a cluster
//!   that has lost a message is one to which it has not come yet.
//! - *A client asks* a replica. An operation begins when a replica first takes notice, and ends when a replica sends
//!   the answer: an earlier beginning or a later end could only excuse more. An ask may reach any replica, as if its
//!   proxy took that one for the leader, and with [`Bounds::asks`] again another.
//! - *A replica takes over*: time passes for all ([`Bounds::pace`]: longer than anybody's patience), and the timer
//!   goes off with which it stands for election, or recovers what another has left. Where it matters whom it has heard
//!   lately, it may have heard the others. Other timers, which send heartbeats and tend leases, go off as often as
//!   [`Bounds::wakes`] says. Which timer is which a protocol declares
//!   ([`Machine::wakeup`](quorate_core::Machine::wakeup)).
//! - *Time passes* without an election (`TICK`; [`Bounds::ticks`]).
//! - *An operator asks* for another roster ([`Bounds::rosters`]). It is in force from the next ballot on.
//! - *A disk stands still*, and later its replica crashes, loses some of what was written since, and starts again;
//!   or a replica crashes and loses nothing. Otherwise what a step records is durable at its end: until a crash, a
//!   disk that is late differs from messages that are late in nothing.
//!
//! What is left out, so that the rest can be exhausted: a replica handles one input in a batch; its messages to
//! itself come before anything else; messages that bind nobody, and the exchange that starts or renews a lease, are
//! delivered as soon as they are sent; those that only tell of a higher ballot are lost unless [`Bounds::hints`] is
//! set. Which these are a protocol declares, too ([`Message::arrival`](quorate_core::Message::arrival)). No message
//! arrives twice; clocks run alike; snapshots do not travel. Operations of one kind differ in nothing but their values,
//! and begin in order. Where one leads, replicas differ in nothing but their names: the first replica stands first.
//! Where all commands are not ordered, whose they are matters; and there is nothing to take over before anybody has
//! asked.
//!
//! **Why not the crate `stateright`.** Its actors are values that are cloned and hashed in each state. Our machines
//! are neither, on purpose (they own logs and stores), and a state of the cluster here is a few words: the states
//! of single replicas, and the steps between them, are found by running the real machine once and then looked up
//! (`locals`). That a replica's state is what its digest says
//! ([`GroupProcess::digests`](quorate_runtime::GroupProcess::digests)) is sound because `Debug`, of which it is taken,
//! is derived all the way down, the fingerprint covers the store, and nothing else, neither a generator nor a wall
//! clock, is carried from step to step.
//!
//! | file | what |
//! |---|---|
//! | `opening` | where it begins: clients have sessions, nobody leads |
//! | `process` | one replica with its disk, timers and clock |
//! | `locals` | states and steps of single replicas, as numbers |
//! | `ledger` | what the past obliges to; the checkers |
//! | `register` | what clients have seen |
//! | `search` | states of the cluster, and the search |
//! | `delays` | explorations of few delays |
//! | `stale` | messages that make no difference any more |
//! | `tale` | counterexamples, for people |
//! | `table` | maps and sets of digests |

mod delays;
mod ledger;
mod locals;
mod opening;
mod process;
mod register;
mod search;
mod stale;
mod table;
mod tale;

use std::fmt;
use std::time::Duration;

use quorate_check::Violation;
use quorate_core::{Group, NodeId, NodeSet, Settings, SettingsError};
use quorate_runtime::AnyProtocol;
use search::Search;
use thiserror::Error;

/// Without an election: not as long as a leader waits that hears nobody, so that it notices who is silent first.
const TICK: Duration = Duration::from_millis(600);
/// The largest group that is explored.
const MAX_NODES: usize = 5;
/// The most operations of clients in an exploration.
pub const MAX_OPERATIONS: usize = 8;

/// How far an exploration goes. The defaults are the size of the Bodega paper's model (its appendix B).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Replicas.
    pub nodes: usize,
    /// Elections: ballots, terms, views; or recoveries.
    pub ballots: u8,
    /// The time that passes before each, in whole milliseconds: longer than a follower waits for its leader. Where
    /// replicas look twice before they recover something, it passes twice.
    pub pace: Duration,
    /// Clients that write one key (and another), each once, each another value.
    pub writes: usize,
    /// Clients that read that key, each once.
    pub reads: usize,
    /// Whether reads may wait for something, such as a slot of their own; else only replicas are asked to read that
    /// answer at once, as in the paper's model.
    pub waiting: bool,
    /// Operators, each of which asks that these answer reads of the key that clients read, and nobody of others.
    pub rosters: Vec<NodeSet>,
    /// Whether leases are facts, as in the paper's model: whoever promises another ballot has his back in that
    /// moment.
    pub facts: bool,
    /// Replicas that a request may reach, one after the other.
    pub asks: u8,
    /// Crashes, each followed by a restart. (A replica that stops for good needs none: it is one to which nothing
    /// comes any more.)
    pub failures: u8,
    /// Times that timers other than those of elections go off.
    pub wakes: u8,
    /// Times that time passes without an election.
    pub ticks: u8,
    /// Whether messages arrive that only tell of a higher ballot.
    pub hints: bool,
    /// Whether a message may overtake others on its link, and not only outlive them.
    pub reorder: bool,
    /// How many delays there may be; without, as many as there can be. See `delays`.
    pub delays: Option<u8>,
    /// States after which to give up.
    pub states: usize,
    /// `key=value`.
    pub settings: Vec<String>,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            nodes: 3,
            ballots: 3,
            pace: Duration::from_secs(1),
            writes: 2,
            reads: 2,
            waiting: false,
            rosters: Vec::new(),
            facts: false,
            asks: 1,
            failures: 0,
            wakes: 0,
            ticks: 0,
            hints: false,
            reorder: false,
            delays: None,
            states: 200_000_000,
            settings: Vec::new(),
        }
    }
}

/// Why an exploration cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BoundsError {
    /// A setting is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The protocol cannot be explored on so many nodes.
    #[error("{protocol} is explored on {min} to {max} nodes, not on {nodes}")]
    Nodes {
        /// The protocol.
        protocol: &'static str,
        /// At least.
        min: usize,
        /// At most.
        max: usize,
        /// Asked for.
        nodes: usize,
    },
    /// More operations than an exploration can tell apart.
    #[error("{0} writes, reads and rosters: choose at most {MAX_OPERATIONS}")]
    Operations(usize),
    /// Nobody can say who answers reads.
    #[error("{protocol} has no rosters")]
    Rosters {
        /// The protocol.
        protocol: &'static str,
    },
    /// What comes before an exploration does not end.
    #[error("with these settings the group serves no write when nothing fails: there is nothing to explore")]
    Opening,
}

/// What an exploration found.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// States of the cluster.
    pub states: usize,
    /// Steps between them, those to known states included.
    pub steps: u64,
    /// The longest way from the beginning that the search went.
    pub depth: usize,
    /// States of single replicas, and steps of real machines between them.
    pub machines: (usize, usize),
    /// Different messages.
    pub messages: usize,
    /// Searches before the last one.
    pub repeated: usize,
    /// Memory that the digests of states take.
    pub bytes: usize,
    /// Whether there is nothing more to visit.
    pub exhausted: bool,
    /// The first violation, if there is one.
    pub counterexample: Option<Counterexample>,
}

/// A way to a violation.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// What happens, in the words of scenarios, with what comes of each step below it.
    pub scenario: String,
    /// What is violated in the end.
    pub violation: Violation,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { states, steps, depth, machines, messages, repeated, bytes, exhausted, counterexample } =
            self;
        if let Some(Counterexample { scenario, violation }) = counterexample {
            writeln!(f, "{scenario}violation: {violation}\n")?;
        }
        let what = match (exhausted, counterexample) {
            (true, _) => "all of them",
            (false, Some(_)) => "until the violation",
            (false, None) => "not all of them: the bound on states was reached",
        };
        writeln!(f, "{states} states ({what}), {steps} steps, at most {depth} deep")?;
        let (locals, stepped) = machines;
        writeln!(
            f,
            "{locals} states of single replicas, {stepped} steps of machines, {messages} messages, \
             {repeated} searches before, {} MiB of digests",
            bytes >> 20
        )
    }
}

/// Explores. `progress` is called now and then with what was found so far.
pub fn explore(
    protocol: &dyn AnyProtocol,
    bounds: &Bounds,
    progress: &mut dyn FnMut(&Explored),
) -> Result<Explored, BoundsError> {
    let members = (1..=bounds.nodes as u64).filter_map(NodeId::new).collect::<NodeSet>();
    let can = protocol.capabilities();
    let (min, max) = (can.min_nodes, can.max_nodes.min(MAX_NODES));
    if !(min..=max).contains(&bounds.nodes) {
        return Err(BoundsError::Nodes { protocol: protocol.name(), min, max, nodes: bounds.nodes });
    }
    let operations = bounds.writes + bounds.reads + bounds.rosters.len();
    if operations > MAX_OPERATIONS {
        return Err(BoundsError::Operations(operations));
    }
    if !bounds.rosters.is_empty() && !can.rosters {
        return Err(BoundsError::Rosters { protocol: protocol.name() });
    }
    let mut settings = Settings::parse(&bounds.settings)?;
    let configured = protocol.configure(&Group::of(members), &mut settings)?;
    settings.finish()?;
    let opening = opening::play(bounds, can, &configured)?;
    Ok(Search::new(bounds, can, opening).run(progress))
}
