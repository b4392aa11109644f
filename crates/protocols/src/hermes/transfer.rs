//! How a shadow gets what it has missed. It acknowledges versions as all who are live do, reads nothing and coordinates
//! nothing, and asks one who is whole for its versions, page by page; of each key the later version counts. What is
//! written meanwhile it hears of itself.
//!
//! Where nobody is whole, the owner asks all who are live, a majority: somebody among them has what was committed.
//!
//! A page may come late, as the answer to an earlier life of the shadow. It is as good as another of this epoch: its
//! sender was whole when it made it, so it has what was committed before the epoch; and what is committed in the epoch
//! the shadow has acknowledged, in whichever life, and so has. One that loses its memory takes part in later epochs
//! only.

use std::collections::BTreeSet;

use quorate_blocks::prefix_log::RETRANSMIT;
use quorate_core::{Context, Fact, NodeId, Time, mutation};
use quorate_store::Key;

use super::Message;
use super::keys::Version;
use super::replica::Replica;
use super::tombstones::Floor;

/// A source that does not answer so often is replaced by another. Each time it is waited for twice as long: where links
/// are full, copies of a page would keep all others from coming.
const TRIES: u32 = 4;

/// What a shadow is waiting for.
#[derive(Debug)]
pub struct Transfer {
    /// Who has yet to be asked; the last one is.
    sources: Vec<NodeId>,
    after: Option<Key>,
    asked: Time,
    tries: u32,
    /// What the sources know of keys that they do not have, the highest of all.
    floor: Floor,
}

impl Replica {
    /// Begins to ask for what follows a key, if it must and somebody is there who can be asked.
    pub(super) fn begin_transfer(
        &mut self,
        (after, floor): (Option<Key>, Floor),
        cx: &mut Context<'_, Self>,
    ) {
        if self.is_whole || !self.is_live() {
            return;
        }
        let gathers = self.whole.is_empty() && self.epochs.owns();
        let mut sources: Vec<_> =
            if gathers { self.epochs.live() } else { self.whole }.without(self.me).iter().collect();
        if !gathers && !sources.is_empty() {
            let chosen = *cx.random().pick(&sources);
            sources = vec![chosen];
        }
        if sources.is_empty() && !gathers {
            return;
        }
        self.transfer = Some(Transfer { sources, after, asked: cx.now(), tries: 0, floor });
        self.fetch(cx);
    }

    fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        let ballot = self.epochs.promised;
        let Some(transfer) = &mut self.transfer else { return };
        let Some(source) = transfer.sources.last() else { return self.become_whole(cx) };
        transfer.asked = cx.now();
        cx.send(*source, Message::Fetch { ballot, after: transfer.after.clone() });
    }

    /// Messages may be lost, and sources.
    pub(super) fn repeat_fetch(&mut self, cx: &mut Context<'_, Self>) {
        let Some(transfer) = &mut self.transfer else { return self.begin_transfer(Default::default(), cx) };
        if cx.now().since(transfer.asked) < RETRANSMIT * (1 << transfer.tries) {
            return;
        }
        if transfer.tries < TRIES || self.whole.is_empty() {
            transfer.tries = (transfer.tries + 1).min(TRIES);
            return self.fetch(cx);
        }
        // Another has what follows just as well.
        let known = (transfer.after.clone(), transfer.floor);
        self.begin_transfer(known, cx);
    }

    pub(super) fn on_fetch(&self, from: NodeId, after: Option<Key>, cx: &mut Context<'_, Self>) {
        let gathers = self.whole.is_empty() && self.epochs.promised.node() == Some(from);
        if !self.serves() && !gathers {
            return;
        }
        let (versions, last) = self.keys.page(after.as_ref(), self.config.page);
        let (ballot, floor) = (self.epochs.promised, self.keys.floor());
        cx.send(from, Message::Page { ballot, after, versions, last, floor });
    }

    pub(super) fn on_page(
        &mut self,
        from: NodeId,
        after: Option<&Key>,
        (versions, floor): (Vec<Version>, Floor),
        last: bool,
        cx: &mut Context<'_, Self>,
    ) {
        let Some(transfer) = &self.transfer else { return };
        let is_next = transfer.sources.last() == Some(&from) && transfer.after.as_ref() == after;
        if !is_next && !mutation::active("hermes/any-page") {
            return;
        }
        let last = last || versions.is_empty();
        let upto = versions.last().map(|version| version.key.clone()).filter(|_| !last);
        self.delete_what_lacks(after, upto.as_ref(), (&versions, floor), cx);
        for version in versions {
            self.take_over(&version, cx);
        }
        let Some(transfer) = &mut self.transfer else { return };
        transfer.floor = transfer.floor.max(floor);
        (transfer.after, transfer.tries) = (upto, 0);
        if last {
            transfer.sources.pop();
            let floor = transfer.floor;
            if !mutation::active("hermes/floor-is-not-transferred") {
                self.raise(floor, cx);
            }
        }
        self.fetch(cx);
    }

    /// What is here and not in a page of the sender's keys, those after the one and up to the other, was deleted
    /// there, unless it is later.
    fn delete_what_lacks(
        &mut self,
        after: Option<&Key>,
        upto: Option<&Key>,
        (versions, floor): (&[Version], Floor),
        cx: &mut Context<'_, Self>,
    ) {
        if floor == Floor::default() || mutation::active("hermes/page-is-not-all") {
            return;
        }
        let sent: BTreeSet<&Key> = versions.iter().map(|version| &version.key).collect();
        let lacks = self.keys.between(after, upto).filter(|key| !sent.contains(key));
        for key in lacks.cloned().collect::<Vec<_>>() {
            self.take_over(&floor.version(key), cx);
        }
    }

    fn become_whole(&mut self, cx: &mut Context<'_, Self>) {
        (self.transfer, self.is_whole) = (None, true);
        self.make_up(cx);
        let number = self.epochs.promised.number();
        self.persist_entered(cx);
        cx.note(|| Fact::Installed { slot: number });
        cx.note(|| Fact::Live { number, whole: true });
        self.whole.insert(self.me);
        let now = cx.now();
        self.coordinator.invalid.values_mut().for_each(|due| *due = now);
    }
}
