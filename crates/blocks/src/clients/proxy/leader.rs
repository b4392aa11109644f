//! How a proxy finds the leader.

use quorate_core::{Context, Members, NodeId, NodeSet, Time, mutation};

use super::SessionClient;
use crate::clients::message::{Embeds, Message};

impl<M: Embeds> SessionClient<M> {
    pub(super) fn retarget(&mut self, target: NodeId, now: Time) {
        self.target = target;
        self.heard = now;
        self.searching = false;
        self.patience = self.config.patience;
        match self.asked == Some(target) && !self.is_late(now) {
            // What it was sent is still on its way.
            true => self.unsent = true,
            false => self.unsend(),
        }
    }

    /// Who may know who leads: the members as they are known here, and the replica beside this proxy, which may have
    /// joined later and knows more.
    pub(super) fn candidates(&self) -> NodeSet {
        // Those of the first day too: all that it knows to be in the group may have been removed since.
        let mut candidates = self.config.members.union(self.initial);
        if let Some(near) = self.near {
            candidates.insert(near);
        }
        candidates
    }

    pub(super) fn probe(&mut self, target: NodeId, cx: &mut Context<'_, Self>) {
        self.target = target;
        let ask = self.ask(false);
        cx.send(target, M::from(Message::Ask(ask)));
    }

    pub(super) fn on_members(&mut self, members: Members, cx: &mut Context<'_, Self>) {
        if members.version > self.version && !members.voters().is_empty() {
            self.version = members.version;
            self.config.members = members.voters();
            self.learners =
                members.all().iter().filter(|node| !self.config.members.contains(*node)).collect();
            cx.members(members);
        }
    }

    pub(super) fn on_leader(&mut self, from: NodeId, leader: Option<NodeId>, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.redirects += 1;
        // One that has been removed leads on until another can take over; a learner may, where links are slow.
        let follows = |leader: NodeId| {
            let learner = self.learners.contains(leader) && !mutation::active("proxy/learners-never-lead");
            leader == from || learner || self.config.members.contains(leader)
        };
        let known = leader.filter(|leader| follows(*leader));
        if leader != Some(from) && !mutation::active("proxy/refused-is-on-its-way") {
            // It has dropped what it was sent, whoever leads next.
            self.asked.take_if(|asked| *asked == from);
        }
        match known {
            Some(leader) if leader == from => self.retarget(leader, now),
            Some(_) if self.redirects > self.config.members.len() => self.searching = true,
            Some(leader) if self.searching => self.probe(leader, cx),
            Some(leader) => self.retarget(leader, now),
            None => self.searching = true,
        }
        if self.searching {
            self.wake_by(now + self.config.patience / 4, cx);
        }
    }
}

pub(super) fn next_after(members: NodeSet, node: NodeId) -> NodeId {
    members.iter().find(|next| *next > node).or(members.iter().next()).expect("a group has members")
}
