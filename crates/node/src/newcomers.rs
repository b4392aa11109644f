//! Operators' requests that add nodes to the group. Each waits until the nodes that it adds have greeted this one, or
//! has its refusal: a change that was proposed for a node that is not there would hold up every other.
//!
//! Requests of the same client that come behind such a request do not wait for it.

use std::collections::BTreeMap;

use quorate_core::{
    Access, Answered, GroupRequest, Manage, Managed, Members, NodeId, Outcome, Request, RequestId, Time, Wire,
};

use crate::clock;
use crate::machines::Machines;
use crate::transport::Transport;

/// Requests that may wait.
const MOST: usize = 64;

/// See the file comment.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: RequestId,
    request: Request,
    /// The nodes that it adds, and where they are to be.
    nodes: BTreeMap<NodeId, String>,
}

impl Newcomers {
    /// Takes the requests out of `ready` that add nodes to the group, and has the nodes dialed.
    pub(crate) fn hold(
        &mut self,
        ready: &mut Vec<(RequestId, Request)>,
        machines: &Machines,
        transport: &mut Transport,
    ) {
        if ready.iter().all(|(_, request)| request.access != Access::Manage) {
            return;
        }
        let now = clock::now();
        for (id, request) in std::mem::take(ready) {
            let nodes = added(&request, &machines.directory.group(), machines.node());
            if nodes.is_empty() || self.waiting.len() >= MOST {
                ready.push((id, request));
                continue;
            }
            for (node, address) in &nodes {
                transport.dial_candidate(*node, address, now);
            }
            self.waiting.push(Waiting { id, request, nodes });
        }
    }

    /// Hands over the requests whose nodes have all answered, and refuses those with a node that has not in its time.
    pub(crate) fn settle(&mut self, machines: &mut Machines, transport: &Transport, now: Time) {
        for waiting in std::mem::take(&mut self.waiting) {
            let Waiting { id, request, nodes } = waiting;
            let answers: Vec<_> =
                nodes.iter().map(|(node, at)| transport.is_candidate_there(*node, at, now)).collect();
            if let Some(why) = answers.iter().flatten().find_map(|answer| answer.as_ref().err()) {
                let refused = Managed::Refused(why.clone().into_bytes().into());
                let outcome = Outcome::Done(refused.to_bytes());
                machines.effects().replies.push(Answered { request: id, outcome, slot: 0 });
            } else if answers.iter().all(Option::is_some) {
                machines.on_requests(std::iter::once((id, request)));
            } else {
                self.waiting.push(Waiting { id, request, nodes });
            }
        }
    }
}

/// The nodes that a request adds to the group.
fn added(request: &Request, group: &Members, me: Option<NodeId>) -> BTreeMap<NodeId, String> {
    let change = match request.access {
        Access::Manage => match GroupRequest::from_bytes(request.command.clone()) {
            Ok(GroupRequest { asked, .. }) => Ok(asked),
            Err(_) => Manage::from_bytes(request.command.clone()),
        },
        Access::Read | Access::Within(_) | Access::Write => return BTreeMap::new(),
    };
    let Ok(Manage::Change { voters, learners, .. }) = change else { return BTreeMap::new() };
    let mut nodes: BTreeMap<_, _> = voters.into_iter().chain(learners).collect();
    nodes.retain(|node, address| !address.is_empty() && !group.nodes.contains_key(node) && Some(*node) != me);
    nodes
}
