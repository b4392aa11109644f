//! Who asks what, and what happens to the cluster meanwhile.

use std::fmt;

use quorate_check::Nanos;
use quorate_core::{Link, Manage, NodeId};
use quorate_store::Command;

/// Everything that is done to a cluster. Nothing in it needs an order.
#[derive(Default)]
pub struct Load<'a> {
    /// An open loop, or single operations.
    pub asks: Vec<Ask>,
    /// Closed loops.
    pub clients: Option<Clients<'a>>,
    /// When what happens.
    pub acts: Vec<(Nanos, Act)>,
}

/// A client asks, at a stated time.
#[derive(Clone, Debug)]
pub struct Ask {
    /// When.
    pub at: Nanos,
    /// Through which proxy, or at which node if there are no proxies; counted from 0.
    pub proxy: usize,
    /// What.
    pub command: Command,
    /// How long it waits.
    pub patience: Nanos,
}

/// Clients that ask again when they are answered. One whose node has died goes to the nearest that lives.
pub struct Clients<'a> {
    /// How many clients there are, all together.
    pub count: usize,
    /// When they begin, one a microsecond.
    pub from: Nanos,
    /// When they ask for the last time.
    pub until: Nanos,
    /// From an answer to the next request.
    pub think: Nanos,
    /// How long they wait.
    pub patience: Nanos,
    /// What one of them asks next at an instant, and through which proxy, or of which node if there are no proxies;
    /// counted from 0.
    pub draw: Box<dyn FnMut(usize, Nanos) -> (usize, Command) + 'a>,
}

impl fmt::Debug for Clients<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("count", &self.count).finish_non_exhaustive()
    }
}

/// What happens to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Whoever leads dies, and stays dead.
    CrashLeader,
    /// This node dies, and stays dead.
    Crash(NodeId),
    /// What other nodes send to whoever leads now is lost from now on.
    DeafenLeader,
    /// And what it sends to them is lost too; clients reach it as before.
    IsolateLeader,
    /// What the first node sends to the second has another link from now on.
    Link(NodeId, NodeId, Link),
    /// What the first node sends to the second is lost from now on; or no longer.
    Lose(NodeId, NodeId, bool),
    /// This node's disk takes so long to make records durable from now on.
    Disk(NodeId, Nanos),
    /// An operator asks through this proxy, or at this node; waits a minute.
    Manage(usize, Manage),
}

impl Act {
    /// All that a node and these others send each other is lost, from the first instant until the second.
    pub fn cut_off(node: NodeId, others: &[NodeId], (from, until): (Nanos, Nanos)) -> Vec<(Nanos, Act)> {
        let links = others.iter().flat_map(|other| [(*other, node), (node, *other)]);
        let lose = |(a, b)| [(from, Act::Lose(a, b, true)), (until, Act::Lose(a, b, false))];
        links.flat_map(lose).collect()
    }
}
