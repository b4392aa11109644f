//! Who is in a group, as protocols that change it tell their drivers, and what an operator may ask for.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::id::{NodeId, NodeSet};
use crate::roster::Roster;
use crate::{wire_enum, wire_struct};

/// The group, as of a point of its log. A driver connects to whom it names and lets go of whom it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Grows with each change; 0 for the group as it was set up.
    pub version: u64,
    /// Everybody who is sent the log, voter or not. An empty address is the one that the operator gave at start-up.
    pub nodes: BTreeMap<NodeId, Member>,
}
wire_struct!(Members { version, nodes });

/// A node of the group, as all know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where peers reach it, as `host:port`.
    pub address: String,
    /// Whether it counts towards majorities; a **learner** does not.
    pub voter: bool,
}
wire_struct!(Member { address, voter });

impl Members {
    /// Voters and learners.
    pub fn all(&self) -> NodeSet {
        self.nodes.keys().copied().collect()
    }

    /// The nodes of which majorities are made.
    pub fn voters(&self) -> NodeSet {
        self.nodes.iter().filter(|(_, member)| member.voter).map(|(node, _)| *node).collect()
    }
}

/// What an operator asks of a group. Asking again for what has been done is answered with success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Change who is in the group, in one step (joint consensus). New voters are caught up as learners first; the
    /// answer comes when the change is in force.
    Change {
        /// To be voters: new ones with their address, members that are to be promoted with any (or an empty one).
        voters: BTreeMap<NodeId, String>,
        /// Nodes that are sent the log and do not count, with their addresses; those of members may be empty.
        learners: BTreeMap<NodeId, String>,
        /// Nodes that are to leave the group, voters or learners.
        remove: NodeSet,
    },
    /// Let another lead: this one, or whoever is furthest.
    Transfer {
        /// The node that is to lead; `None`: whichever has the most of the log.
        to: Option<NodeId>,
    },
    /// Say who serves reads of what; the answer comes when it does.
    Roster(Roster),
    /// Let the group find out itself who should serve reads of what, or (`false`) leave it as it is.
    AutoRoster(bool),
    /// Tell who serves reads of what.
    ShowRoster,
    /// Drop the change of the group that is under way, if its new voters are learners still. Nothing under way is
    /// success.
    CancelChange,
}
wire_enum!(Manage {
    1 => Change { voters, learners, remove },
    2 => Transfer { to },
    3 => Roster(roster),
    4 => AutoRoster(on),
    5 => ShowRoster,
    6 => CancelChange,
});

/// How it went: nothing more to say, or why not, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Managed {
    /// It is in force.
    Done,
    /// It was refused; nothing changed.
    Refused(Bytes),
    /// Who serves reads of what, under which ballot, and whether the group finds that out itself.
    Roster {
        /// As the protocol writes it.
        ballot: String,
        /// The roster that is in force.
        roster: Roster,
        /// Whether it may change without an operator.
        auto: bool,
    },
    /// It is not in force yet, and gets on: how far it is, in words for the operator. Asking again goes on waiting.
    UnderWay(Bytes),
}
wire_enum!(Managed { 1 => Done, 2 => Refused(why), 3 => Roster { ballot, roster, auto }, 4 => UnderWay(how_far) });
