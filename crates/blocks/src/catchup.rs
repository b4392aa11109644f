//! How a replica that has missed decisions gets them: chosen values while a peer still has them, else the peer's
//! snapshot, piece by piece. The one that is behind asks; the other answers and remembers little.
//!
//! All pieces must be of one state. A sender that restarts may come to as many executed commands as before by another
//! way (where there are no slots), so an image is named by what it contains ([`ImageId`]) and not by a count. The
//! receiver asks for pieces of that image only, and compares the name with what it has put together.
//!
//! **A source that stops answering is replaced.** A snapshot is continued with the peer with which it was begun,
//! because another peer's snapshot is another one. A source that dies between two pieces must be noticed, and a slow
//! link must not make the receiver begin again and again. How long an answer took before is no guide: it may have
//! been slow for a reason that is over. So other sources are the measure. If the source has not answered for
//! [`PATIENCE`], another one is asked for its first piece as well, and what has come in is kept. Whoever answers first
//! goes on: a piece of the first source ends the comparison, and after [`RIVAL_ANSWERS`] answers of others without one
//! of the first source, the snapshot is begun with the other. Each replacement doubles that number, up to
//! [`MOST_RIVAL_ANSWERS`], until a snapshot is complete: two sources that stall in turn must not undo all progress.
//!
//! **A question is not repeated while its answer may be on its way** (`catchup/backoff.rs`), and a source
//! sends what will be asked for next ahead, within a window (`catchup/send_window.rs`).

mod backoff;
mod send_window;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Class, NodeId, NodeSet, Snapshot, Time, mutation, wire_enum, wire_struct};

use self::backoff::Backoff;
use self::send_window::SendWindow;
use crate::state::{LoadError, Loading, PIECE, Replicated};

/// Without an answer for this long, ask again, the first time.
pub const RETRY: Duration = Duration::from_millis(200);
/// After this long without an answer, another source is asked, if there is one.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// A source that is silent while others answer this often is replaced. More than one: it was asked before they were.
const RIVAL_ANSWERS: u32 = 2;
/// That number grows up to this.
const MOST_RIVAL_ANSWERS: u32 = 8;
/// Bytes of the values in an answer, about.
const VALUES: usize = 1 << 20;
/// Bytes of the log that a transfer may hold back at least.
const HELD_BYTES: usize = 4 << 20;
/// An image that nobody asks for is dropped after this long.
const OFFER_IDLE: Duration = Duration::from_secs(10);

/// The name of an image: equal names mean equal images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageId {
    /// The last slot that is in it; where there are no slots, how many instances are.
    pub slot: u64,
    /// Of everything that tells states of this slot apart, and of what goes with the state.
    pub digest: u64,
}
wire_struct!(ImageId { slot, digest });

/// Puts the pieces of an image together, in their order.
pub trait Assembler: Default + Debug {
    /// What the whole is.
    type State;

    /// The piece at a cursor.
    fn push(&mut self, cursor: &Bytes, piece: Bytes) -> Result<(), LoadError>;

    /// After the last piece: the state, with the name that an image of it has.
    fn finish(self) -> Result<(ImageId, Self::State), LoadError>;
}

impl Assembler for Loading {
    type State = Replicated;

    fn push(&mut self, _: &Bytes, piece: Bytes) -> Result<(), LoadError> {
        Loading::push(self, piece)
    }

    fn finish(self) -> Result<(ImageId, Replicated), LoadError> {
        let state = Loading::finish(self)?;
        Ok((state.image_id(), state))
    }
}

/// What the two sides say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// I need the slots from this one on.
    Fetch {
        /// The first that is missing.
        from: u64,
        /// The time of the one that asks; to be repeated in the answer.
        asked: Time,
    },
    /// Here are chosen values.
    Values {
        /// The slot of the first.
        from: u64,
        /// In order, without holes.
        values: Vec<Bytes>,
        /// Repeated from the question that this answers.
        asked: Time,
    },
    /// I no longer have those; here is a piece of a snapshot.
    Piece(Piece),
    /// Go on with that snapshot.
    More {
        /// The image that is meant, as its sender has named it.
        image: ImageId,
        /// Where the piece begins, as the one before it said.
        cursor: Bytes,
        /// The time of the one that asks; to be repeated in the answer.
        asked: Time,
    },
    /// I no longer have that snapshot: start again.
    Gone {
        /// The image that is meant, as its sender has named it.
        image: ImageId,
    },
}
wire_enum!(Message {
    1 => Fetch { from, asked },
    2 => Values { from, values, asked },
    3 => Piece(piece),
    4 => More { image, cursor, asked },
    5 => Gone { image },
});

/// A piece of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The image that is meant, as its sender has named it.
    pub image: ImageId,
    /// Which piece this is; empty for the first.
    pub cursor: Bytes,
    /// A part of the image, up to [`PIECE`] bytes and what is left of the last key.
    pub bytes: Bytes,
    /// The cursor of the piece that comes after it.
    pub next: Option<Bytes>,
    /// The time of the question, by the clock of the one that has asked.
    pub asked: Time,
}
wire_struct!(Piece { image, cursor, bytes, next, asked });

impl Message {
    /// Whether it may wait for what is urgent: what is asked for is large, and nobody else waits for it.
    pub fn class(&self) -> Class {
        match self {
            Message::Values { .. } | Message::Piece(_) => Class::Bulk,
            Message::Fetch { .. } | Message::More { .. } | Message::Gone { .. } => Class::Urgent,
        }
    }

    /// Whether it is a piece of a snapshot, and not the last.
    pub fn has_more(&self) -> bool {
        matches!(self, Message::Piece(piece) if piece.next.is_some())
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }
}

/// The side that has what others miss.
#[derive(Debug, Default)]
pub struct Source {
    offer: Option<Offer>,
    /// Values that each peer was sent ahead, by the first slot of an answer.
    values: BTreeMap<NodeId, SendWindow<u64>>,
    /// The same of pieces, by image and cursor.
    pieces: BTreeMap<NodeId, SendWindow<(ImageId, Bytes)>>,
}

#[derive(Debug)]
struct Offer {
    id: ImageId,
    image: Snapshot,
    used: Time,
}

impl Source {
    /// Answers [`Message::Fetch`] of what is kept. `values`: those from a slot on, up to so many bytes, and at least
    /// one; none where there is none.
    pub fn on_fetch(
        &mut self,
        peer: NodeId,
        (from, asked): (u64, Time),
        mut values: impl FnMut(u64, usize) -> Vec<Bytes>,
        now: Time,
    ) -> Vec<Message> {
        let mut answers = Vec::new();
        let unit = |from: &u64| {
            let (from, values) = (*from, values(*from, VALUES));
            let (bytes, next) = (values.iter().map(Bytes::len).sum(), from + values.len() as u64);
            (next > from).then(|| {
                answers.push(Message::Values { from, values, asked });
                (bytes, Some(next))
            })
        };
        let is_in = |begin: &u64, end: Option<&u64>| *begin <= from && end.is_some_and(|end| from < *end);
        self.values.entry(peer).or_default().on_question(from, VALUES, is_in, unit, now);
        answers
    }

    /// Answers [`Message::Fetch`] of what is no longer kept; `start` is the first slot that is. `freeze` makes an
    /// image of the present, if the one that was offered last does not reach that far.
    pub fn on_far_fetch(
        &mut self,
        peer: NodeId,
        (from, asked): (u64, Time),
        start: u64,
        freeze: impl FnOnce() -> (ImageId, Snapshot),
        now: Time,
    ) -> Vec<Message> {
        let offer = match &mut self.offer {
            Some(offer) if offer.id.slot >= from && offer.id.slot + 1 >= start => offer,
            stale => {
                let (id, image) = freeze();
                stale.insert(Offer { id, image, used: now })
            }
        };
        let id = offer.id;
        self.pieces.remove(&peer);
        self.on_more(peer, id, Bytes::new(), asked, now)
    }

    /// Answers [`Message::More`].
    pub fn on_more(
        &mut self,
        peer: NodeId,
        image: ImageId,
        cursor: Bytes,
        asked: Time,
        now: Time,
    ) -> Vec<Message> {
        let Some(offer) = self.offer.as_mut().filter(|offer| offer.id == image) else {
            return vec![Message::Gone { image }];
        };
        offer.used = now;
        let mut answers = Vec::new();
        let unit = |(_, cursor): &(ImageId, Bytes)| {
            let cursor = cursor.clone();
            let piece = offer.image.piece(&cursor, PIECE);
            let sent = (piece.bytes.len(), piece.next.clone().map(|next| (image, next)));
            let (bytes, next) = (piece.bytes, piece.next);
            answers.push(Message::Piece(Piece { image, cursor, bytes, next, asked }));
            Some(sent)
        };
        let at = (image, cursor);
        let is_in = |begin: &(ImageId, Bytes), _: Option<&_>| *begin == at;
        self.pieces.entry(peer).or_default().on_question(at.clone(), PIECE, is_in, unit, now);
        answers
    }

    /// Drops an image that nobody wants any more, and says what to keep of the log up to `applied`: entries up to each
    /// slot, oldest first, may go while more than so many bytes are kept.
    pub fn retention(&mut self, applied: u64, retain: usize, now: Time) -> [(u64, usize); 2] {
        self.offer.take_if(|offer| now.since(offer.used) >= OFFER_IDLE);
        self.values.retain(|_, window| now.since(window.asked()) < OFFER_IDLE);
        self.pieces.retain(|_, window| now.since(window.asked()) < OFFER_IDLE);
        // What follows an image that is in use will be asked for next: whoever takes it may hold the log back, but not
        // without bound.
        let wanted = self.offer.as_ref().map_or(u64::MAX, |offer| offer.id.slot);
        [(applied.min(wanted), retain), (applied, retain.saturating_mul(4).max(HELD_BYTES))]
    }
}

/// What other replicas have said of their commit positions: whom to ask for what is missing here.
#[derive(Debug, Default)]
pub struct Informants {
    /// The highest slot up to which each knew all slots to be chosen.
    upto: BTreeMap<NodeId, u64>,
    /// Said so last, of those that are furthest.
    latest: Option<NodeId>,
}

impl Informants {
    /// A peer knows all slots up to `committed` to be chosen.
    pub fn hear(&mut self, peer: NodeId, committed: u64) {
        if self.upto.values().all(|upto| *upto <= committed) {
            self.latest = Some(peer);
        }
        let upto = self.upto.entry(peer).or_default();
        *upto = committed.max(*upto);
    }

    /// Who has the slot behind `committed`, in the order in which they are to be asked: the furthest first. Nobody if
    /// nothing is known to be missing.
    pub fn sources(&self, committed: u64) -> Vec<NodeId> {
        let mut sources: Vec<_> = self.upto.iter().filter(|(_, upto)| **upto > committed).collect();
        sources.sort_by_key(|(node, upto)| (Some(**node) != self.latest, std::cmp::Reverse(**upto), **node));
        sources.into_iter().map(|(node, _)| *node).collect()
    }

    /// Whether slots behind `committed` are known to be chosen.
    pub fn know_more(&self, committed: u64) -> bool {
        self.upto.values().any(|upto| *upto > committed)
    }
}

/// The side that is behind.
#[derive(Debug)]
pub struct Catchup<A = Loading> {
    /// The question that is not answered yet.
    asked: Option<Asked>,
    loading: Option<Load<A>>,
    /// Sources that have not answered in time; asked again when no other is left.
    silent: NodeSet,
    /// How often others must answer before the source of a snapshot is replaced.
    rivals_needed: u32,
    /// Answers that brought something, so far.
    received: u64,
    /// When each peer was asked, and may be again.
    backoffs: BTreeMap<NodeId, Backoff>,
}

#[derive(Debug)]
struct Asked {
    peer: NodeId,
    /// When it was asked first.
    since: Time,
    /// When it was asked last.
    at: Time,
}

#[derive(Debug)]
struct Load<A> {
    peer: NodeId,
    image: ImageId,
    cursor: Bytes,
    pieces: A,
    /// Questions since the source is overdue, to it and to others in turn.
    turns: usize,
    /// Answers of other sources, since the source is overdue.
    rivals: u32,
}

impl<A> Default for Catchup<A> {
    fn default() -> Self {
        Catchup {
            asked: None,
            loading: None,
            silent: NodeSet::EMPTY,
            rivals_needed: RIVAL_ANSWERS,
            received: 0,
            backoffs: BTreeMap::new(),
        }
    }
}

impl<A: Assembler> Catchup<A> {
    /// What to ask whom, to get what is missing from slot `from` on. `sources` have it, the preferred ones first; a
    /// snapshot that is coming in is continued with its source as long as that answers; if it does not, others are
    /// asked in turn with it. `None` while an answer is still expected, or if nobody can be asked.
    pub fn ask(&mut self, sources: &[NodeId], from: u64, now: Time) -> Option<(NodeId, Message)> {
        if self.asked.as_ref().is_some_and(|asked| now.since(asked.at) < RETRY) {
            return None;
        }
        self.loading.take_if(|load| load.image.slot < from);
        if let Some(rival) = self.rival(sources, now) {
            self.asked.as_mut().expect("the source is overdue").at = now;
            return self
                .backoffs
                .entry(rival)
                .or_default()
                .ask(now)
                .then_some((rival, Message::Fetch { from, asked: now }));
        }
        self.give_up_on_silent(sources, now);
        if sources.iter().all(|node| self.silent.contains(*node)) {
            // Nobody else is left: they are asked again.
            self.silent = NodeSet::EMPTY;
        }
        let peer = match &self.loading {
            Some(load) => load.peer,
            None => *sources.iter().find(|node| !self.silent.contains(**node))?,
        };
        let since = self.asked.as_ref().filter(|asked| asked.peer == peer).map_or(now, |asked| asked.since);
        self.asked = Some(Asked { peer, since, at: now });
        let message = match &self.loading {
            Some(load) => Message::More { image: load.image, cursor: load.cursor.clone(), asked: now },
            None => Message::Fetch { from, asked: now },
        };
        self.backoffs.entry(peer).or_default().ask(now).then_some((peer, message))
    }

    /// Whether a question to this peer has not been answered for [`PATIENCE`].
    fn is_overdue(&self, peer: NodeId, now: Time) -> bool {
        let overdue = |asked: &Asked| asked.peer == peer && now.since(asked.since) >= PATIENCE;
        self.asked.as_ref().is_some_and(overdue) && !mutation::active("catchup/source-for-ever")
    }

    /// Whom to ask beside the source of a snapshot that is overdue: every second time somebody else.
    fn rival(&mut self, sources: &[NodeId], now: Time) -> Option<NodeId> {
        let peer = self.loading.as_ref()?.peer;
        if !self.is_overdue(peer, now) {
            return None;
        }
        let others: Vec<_> = sources.iter().filter(|node| **node != peer).collect();
        let load = self.loading.as_mut()?;
        let turn = load.turns;
        load.turns += 1;
        let index = (turn / 2).checked_rem(others.len()).filter(|_| turn.is_multiple_of(2))?;
        Some(*others[index])
    }

    /// A source other than that of the snapshot that is coming in has answered: if that is overdue, it may be time to
    /// begin again.
    fn on_rival(&mut self, peer: NodeId, asked: Time, now: Time) {
        let Some(source) = self.loading.as_ref().map(|load| load.peer).filter(|source| *source != peer)
        else {
            return;
        };
        if !self.is_overdue(source, now) {
            return;
        }
        self.backoffs.entry(peer).or_default().on_answer(asked, now);
        self.received += 1;
        let needed = self.rivals_needed;
        let load = self.loading.as_mut().expect("a snapshot is coming in");
        load.rivals += 1;
        if load.rivals >= needed {
            self.rivals_needed = (2 * needed).min(MOST_RIVAL_ANSWERS);
            self.loading = None;
            self.silent.insert(source);
            self.asked = Some(Asked { peer, since: now, at: now });
        }
    }

    /// Stops waiting for a source that has sent nothing yet, if there is another. A late answer is still taken.
    fn give_up_on_silent(&mut self, sources: &[NodeId], now: Time) {
        let Some(peer) = self.asked.as_ref().map(|asked| asked.peer) else { return };
        let alone = sources.iter().all(|node| *node == peer);
        if self.loading.is_some() || alone || !self.is_overdue(peer, now) {
            return;
        }
        self.silent.insert(peer);
        self.asked = None;
    }

    /// Answers that brought something, so far: if this does not grow, catching up does not get on.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether a snapshot is coming in.
    pub fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    fn on_answer(&mut self, peer: NodeId, asked: Time, now: Time) {
        let backoff = self.backoffs.entry(peer).or_default();
        match backoff.is_open_after(asked) {
            true => backoff.on_ahead(asked, now),
            false => backoff.on_answer(asked, now),
        }
        self.received += 1;
        self.silent.remove(peer);
        self.asked.take_if(|asked| asked.peer == peer);
    }

    /// [`Message::Values`] has come in from a peer, and goes on where values ended here, or not. Another question may
    /// be asked at once, if this answers the last, or was sent ahead of it.
    pub fn on_values(&mut self, peer: NodeId, asked: Time, goes_on: bool, now: Time) {
        self.on_rival(peer, asked, now);
        let Some(open) = self.asked.as_mut().filter(|open| open.peer == peer) else { return };
        // It has answered, and goes on.
        open.since = now;
        let is_ahead = self.backoffs.get(&peer).is_some_and(|backoff| backoff.is_open_after(asked));
        if goes_on || !is_ahead {
            self.on_answer(peer, asked, now);
        }
    }

    /// [`Message::Piece`] has come in from a peer; `applied` is the last slot executed here. Asks for the next with
    /// `ask`, or returns the whole state, up to its `applied`; neither, if it was none that was waited for.
    pub fn on_piece(
        &mut self,
        peer: NodeId,
        Piece { image, cursor, bytes, next, asked }: Piece,
        applied: u64,
        now: Time,
        ask: impl FnOnce(Message),
    ) -> Option<A::State> {
        if image.slot <= applied {
            return None;
        }
        if cursor.is_empty() {
            self.on_rival(peer, asked, now);
        }
        // The first piece may come late, from a source that was replaced: it is alive after all.
        if cursor.is_empty() && self.loading.is_none() && self.asked.is_some() {
            let (cursor, pieces) = (Bytes::new(), A::default());
            self.loading = Some(Load { peer, image, cursor, pieces, turns: 0, rivals: 0 });
        }
        let expected = |load: &mut Load<A>| (load.peer, load.image) == (peer, image) && load.cursor == cursor;
        let mut load = self.loading.take_if(expected)?;
        self.on_answer(peer, asked, now);
        (self.asked, load.turns, load.rivals) = (None, 0, 0);
        if load.pieces.push(&cursor, bytes).is_err() {
            self.silent.insert(peer);
            return None;
        }
        let Some(next) = next else {
            let whole = load.pieces.finish().ok().filter(|(id, _)| *id == image);
            match whole {
                Some(_) => self.rivals_needed = RIVAL_ANSWERS,
                None => drop(self.silent.insert(peer)),
            }
            return whole.map(|(_, state)| state);
        };
        load.cursor = next.clone();
        self.loading = Some(load);
        self.asked = Some(Asked { peer, since: now, at: now });
        self.backoffs.entry(peer).or_default().ask(now);
        ask(Message::More { image, cursor: next, asked: now });
        None
    }

    /// [`Message::Gone`] has come in: start again.
    pub fn on_gone(&mut self, peer: NodeId, image: ImageId) {
        self.backoffs.remove(&peer);
        if self.loading.take_if(|load| (load.peer, load.image) == (peer, image)).is_some() {
            self.asked = None;
        }
    }
}

#[cfg(test)]
mod tests;
