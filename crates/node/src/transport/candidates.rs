//! Nodes that are to join the group. They are dialed before anything is proposed, so that an operator who has mistyped
//! an address, or has not started the node, is told so, and the group does not wait for a node that is not there.

use std::time::Duration;

use mio::Token;
use quorate_core::{NodeId, Time};

use super::Transport;
use super::link::Link;
use crate::clock;

/// How long a candidate may take to answer.
const WITHIN: Duration = Duration::from_secs(10);
/// The connection to a candidate is kept for so long after that: it is a member by then, or was refused.
const KEPT: Duration = Duration::from_secs(10);

/// What is wrong with a candidate, and what to do about it, as far as that is known: it may run, and be refused.
fn advise(node: NodeId, trouble: Option<&str>) -> String {
    match trouble {
        Some(trouble) if trouble.contains(NOBODY_LISTENS) => {
            format!("{trouble}: nothing listens there; start node {node} with --join, or correct the address")
        }
        Some(trouble) => trouble.to_owned(),
        None => "it has not answered; does it run, and can this node reach it?".to_owned(),
    }
}

/// How the system says that a machine is there, and no process at that port.
const NOBODY_LISTENS: &str = "Connection refused";

/// A node that is to join.
#[derive(Debug)]
pub(super) struct Candidate {
    address: String,
    until: Time,
}

impl Transport {
    /// Dials a node that is to join at this address, unless it is connected there already.
    pub(crate) fn dial_candidate(&mut self, node: NodeId, address: &str, now: Time) {
        self.candidates.insert(node, Candidate { address: address.to_owned(), until: now + WITHIN });
        let standalone = self.identity.is_standalone();
        let there = |link: &Link| link.is_up() && (link.address() == address || standalone);
        if !self.links.get(&node).is_some_and(there) {
            // A guest may say that it is elsewhere: what counts is whether it is here.
            let token = Token(self.tokens.links + usize::from(node.get()));
            self.links.insert(node, Link::new(node, address.to_owned(), token));
        }
    }

    /// Whether a candidate has answered at this address; `None` while it may still.
    pub(crate) fn is_candidate_there(
        &self,
        node: NodeId,
        address: &str,
        now: Time,
    ) -> Option<Result<(), String>> {
        let Some(candidate) = self.candidates.get(&node).filter(|candidate| candidate.address == address)
        else {
            return Some(Err(format!("another request gives node {node} another address than {address}")));
        };
        let link = self.links.get(&node);
        if link.is_some_and(Link::is_up) {
            return Some(Ok(()));
        }
        let why = || {
            format!(
                "node {node} cannot be reached at {address} (tried for {} s): {}",
                WITHIN.as_secs(),
                advise(node, link.and_then(Link::trouble))
            )
        };
        (candidate.until <= now).then(|| Err(why()))
    }

    /// Forgets candidates that were asked about long ago.
    pub(super) fn forget_candidates(&mut self, now: Time) {
        let over = |candidate: &Candidate| now >= candidate.until + KEPT;
        let gone: Vec<_> =
            self.candidates.iter().filter(|(_, candidate)| over(candidate)).map(|(node, _)| *node).collect();
        for node in gone {
            self.candidates.remove(&node);
            if !self.is_wanted(node) {
                self.links.remove(&node);
            }
        }
    }

    /// When the next candidate has had its time.
    pub(super) fn candidates_deadline(&self) -> Option<Time> {
        let now = clock::now();
        self.candidates.values().map(|candidate| candidate.until).filter(|until| *until > now).min()
    }
}
