//! A follower that needs what is in no log any more: it fetches the leader's state.

use quorate_blocks::catchup;
use quorate_blocks::prefix_log::Fetched;
use quorate_blocks::state::Replicated;
use quorate_core::{Context, NodeId};

use super::Message;
use super::replica::{Replica, Role, Timer};

impl Replica {
    pub(super) fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        if !self.log.behind && !self.fetches_values() {
            return self.review_lacking_later(cx);
        }
        // A leader that is replaced may go on giving its snapshot, as long as it answers.
        let sources = match self.role {
            Role::Gathering(_) => self.sources_of_gathering(),
            _ => self.leader.into_iter().collect(),
        };
        self.log.fetch(&sources, cx);
        cx.set_timer(Timer::Fetch, catchup::RETRY);
    }

    pub(super) fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        self.gathering_gets_on(cx);
        if let catchup::Message::Fetch { from: index, asked } = message
            && let Some(values) = self.values_for(index.max(1))
        {
            let message = catchup::Message::Values { from: index.max(1), values, asked };
            cx.send(from, Message::Catchup(message));
        }
        let peer = match &mut self.role {
            Role::Leader(leading) => leading.replication.peers.get_mut(&from),
            _ => None,
        };
        match self.log.on_catchup(from, message, peer, cx) {
            Some(Fetched::State(state)) => self.install(*state, cx),
            // Entries come from the leader alone, with their terms. Of those that are committed the values may come
            // from anybody.
            Some(Fetched::Values { first, values }) => {
                self.on_values(first, values, cx);
                self.fetch(cx);
            }
            Some(Fetched::Gone) => self.fetch(cx),
            None => {}
        }
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        let index = state.applied();
        if index <= self.log.state.applied() || matches!(self.role, Role::Leader(_)) {
            return;
        }
        let term = state.origin().term;
        if term > self.term {
            // It came from one who knows a later leader.
            self.enter(term, None, cx);
        }
        self.log.install(state, &self.config.group, cx);
        self.acknowledge = true;
        self.configured = None;
        self.publish_configuration(cx);
        self.near.batches.on_executed(index);
        self.on_state_kept();
        self.execute(cx);
        self.go_on_gathering(cx);
    }
}
