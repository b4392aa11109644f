//! A follower that needs what is in no log any more: it fetches the leader's state.

use quorate_blocks::catchup;
use quorate_blocks::state::Replicated;
use quorate_core::{Context, NodeId, mutation};

use super::replica::{Replica, Role, Timer};
use super::{Message, Record};

impl Replica {
    pub(super) fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        if !self.behind && !self.fetches_values() {
            return self.review_lacking_later(cx);
        }
        // A leader that is replaced may go on giving its snapshot, as long as it answers.
        let sources: Vec<_> = match self.role {
            Role::Gathering(_) => self.sources_of_gathering(),
            _ => self.leader.into_iter().collect(),
        };
        if let Some((peer, message)) = self.catchup.ask(&sources, self.state.applied() + 1, cx.now()) {
            cx.send(peer, Message::Catchup(message));
        }
        cx.set_timer(Timer::Fetch, catchup::RETRY);
    }

    pub(super) fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.gathering_gets_on(cx);
        match message {
            catchup::Message::Fetch { from: index, asked } => self.on_fetch(from, (index.max(1), asked), cx),
            catchup::Message::More { image, cursor, asked } => {
                self.is_fetching(from, now);
                let answer = self.source.on_more(image, cursor, asked, now);
                cx.send(from, Message::Catchup(answer));
            }
            // Entries come from the leader alone, with their terms. Of those that are committed the values may come
            // from anybody.
            catchup::Message::Values { from: first, values, asked } => {
                self.catchup.on_values(from, asked, now);
                self.on_values(first, values, cx);
                self.fetch(cx);
            }
            catchup::Message::Piece(piece) => {
                let applied = self.state.applied();
                let ask = |message| cx.send(from, Message::Catchup(message));
                if let Some(state) = self.catchup.on_piece(from, piece, applied, now, ask) {
                    self.install(state, cx);
                }
            }
            catchup::Message::Gone { image } => {
                self.catchup.on_gone(from, image);
                self.fetch(cx);
            }
        }
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        let index = state.applied();
        if index <= self.state.applied() || matches!(self.role, Role::Leader(_)) {
            return;
        }
        let origin = state.origin();
        if origin.term > self.term {
            // It came from one who knows a later leader.
            self.enter(origin.term, None, cx);
        }
        let configuration = state.configuration_in(&self.config.group);
        let keep = self.chain.install(index, origin, configuration, cx.now());
        self.state = state;
        self.committed = self.committed.max(index);
        self.behind = false;
        self.persisted = true;
        if mutation::active("raft/snapshot-not-durable") {
            cx.persist(Record::Installed { index, keep });
        } else {
            cx.persist_state(Record::Installed { index, keep });
        }
        self.note_log(cx);
        // What is committed is in every later leader's log.
        self.verified = self.verified.max(index);
        self.acknowledge = true;
        self.configured = None;
        self.publish_configuration(cx);
        self.near.batches.on_executed(index);
        self.on_state_kept();
        self.execute(cx);
        self.go_on_gathering(cx);
    }
}
