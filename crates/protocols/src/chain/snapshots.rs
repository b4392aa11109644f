//! A member that needs what is not in its predecessor's log any more fetches that one's state.

use quorate_blocks::catchup;
use quorate_blocks::prefix_log::Mode;
use quorate_blocks::state::Replicated;
use quorate_core::{Context, NodeId, Time};

use super::replica::{Replica, Role, Timer};
use super::{Message, Record};

impl Replica {
    pub(super) fn on_behind(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        if self.predecessor() == Some(from) {
            self.behind = true;
            self.fetch(cx);
        }
    }

    pub(super) fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        let Some(predecessor) = self.predecessor().filter(|_| self.behind) else { return };
        if let Some((peer, message)) = self.catchup.ask(&[predecessor], self.state.applied() + 1, cx.now()) {
            cx.send(peer, Message::Catchup(message));
        }
        cx.set_timer(Timer::Fetch, catchup::RETRY);
    }

    pub(super) fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match message {
            catchup::Message::Fetch { from: index, asked } => self.on_fetch(from, (index.max(1), asked), cx),
            catchup::Message::More { image, cursor, asked } => {
                self.is_fetching(from, now);
                let answer = self.source.on_more(image, cursor, asked, now);
                cx.send(from, Message::Catchup(answer));
            }
            // Entries come by `Update` only, with their epochs.
            catchup::Message::Values { .. } => {}
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

    fn is_fetching(&mut self, from: NodeId, now: Time) {
        if let Some(peer) = self.successors.get_mut(&from).filter(|peer| peer.mode == Mode::Snapshot) {
            peer.sent = Some(now);
        }
    }

    fn on_fetch(&mut self, from: NodeId, (index, asked): (u64, Time), cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.is_fetching(from, now);
        let base = self.log.base();
        if index <= base {
            let answer = self.source.on_far_fetch((index, asked), base + 1, || self.state.offer(), now);
            cx.send(from, Message::Catchup(answer));
        } else if let Some(peer) = self.successors.get_mut(&from) {
            peer.on_known(index);
        }
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        let (index, origin) = (state.applied(), state.origin());
        // Of an epoch that it has not promised yet, it waits for the head.
        let leads = matches!(self.role, Role::Candidate(_) | Role::Head(_));
        if index <= self.state.applied() || leads || origin.term > self.promised.number() {
            return;
        }
        let keep = self.log.install(index, origin, (0, self.members.clone()), cx.now());
        self.state = state;
        self.committed = self.committed.max(index);
        self.behind = false;
        self.persist_state(Record::Installed { index, keep }, cx);
        self.note_log(cx);
        // What is committed is in the log of every head.
        self.verified = self.verified.max(index);
        self.commit(self.committed, cx);
    }
}
