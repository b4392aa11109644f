//! How a replica that has missed decisions gets them: chosen values while a peer still has them, else the peer's
//! snapshot, piece by piece. The one that is behind asks; the other answers and remembers little.
//!
//! All pieces must be of one state. A sender that restarts may come to as many executed commands as before by another
//! way (where there are no slots), so an image is named by what it contains ([`ImageId`]) and not by a count. The
//! receiver asks for pieces of that image only, and compares the name with what it has put together.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{NodeId, Snapshot, Time, wire_enum, wire_struct};

use crate::slots::SlotLog;
use crate::state::{LoadError, Loading, PIECE, Replicated};

/// One message carries about this many bytes of values.
const VALUES_BYTES: usize = 1 << 20;
/// Without an answer for this long, ask again.
pub const RETRY: Duration = Duration::from_millis(200);
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
    },
    /// Here are chosen values.
    Values {
        /// The slot of the first.
        from: u64,
        /// In order, without holes.
        values: Vec<Bytes>,
    },
    /// I no longer have those; here is a piece of a snapshot.
    Piece {
        /// Of which image.
        image: ImageId,
        /// Which piece this is; empty for the first.
        cursor: Bytes,
        /// The piece.
        bytes: Bytes,
        /// Which comes after it.
        next: Option<Bytes>,
    },
    /// Go on with that snapshot.
    More {
        /// Of which image.
        image: ImageId,
        /// Which piece.
        cursor: Bytes,
    },
    /// I no longer have that snapshot: start again.
    Gone {
        /// Of which image.
        image: ImageId,
    },
}
wire_enum!(Message {
    1 => Fetch { from },
    2 => Values { from, values },
    3 => Piece { image, cursor, bytes, next },
    4 => More { image, cursor },
    5 => Gone { image },
});

impl Message {
    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }
}

/// The side that has what others miss.
#[derive(Debug, Default)]
pub struct Source {
    offer: Option<Offer>,
}

#[derive(Debug)]
struct Offer {
    id: ImageId,
    image: Snapshot,
    used: Time,
}

impl Source {
    /// Answers [`Message::Fetch`]; `None` if nothing from there on is known to be chosen.
    pub fn on_fetch(&mut self, from: u64, log: &SlotLog, state: &Replicated, now: Time) -> Option<Message> {
        if from > log.committed() {
            return None;
        }
        if from < log.start() {
            return Some(self.on_far_fetch(from, log.start(), || state.offer(), now));
        }
        let mut values = Vec::new();
        let mut bytes = 0;
        for slot in from..=log.committed() {
            let value = log.chosen(slot).expect("kept and committed");
            if bytes > 0 && bytes + value.len() > VALUES_BYTES {
                break;
            }
            bytes += value.len() + 16;
            values.push(value.clone());
        }
        Some(Message::Values { from, values })
    }

    /// Answers [`Message::Fetch`] of what is no longer kept; `start` is the first slot that is. `freeze` makes an
    /// image of the present, if the one that was offered last does not reach that far.
    pub fn on_far_fetch(
        &mut self,
        from: u64,
        start: u64,
        freeze: impl FnOnce() -> (ImageId, Snapshot),
        now: Time,
    ) -> Message {
        let offer = match &mut self.offer {
            Some(offer) if offer.id.slot >= from && offer.id.slot + 1 >= start => offer,
            stale => {
                let (id, image) = freeze();
                stale.insert(Offer { id, image, used: now })
            }
        };
        let id = offer.id;
        self.on_more(id, Bytes::new(), now)
    }

    /// Answers [`Message::More`].
    pub fn on_more(&mut self, image: ImageId, cursor: Bytes, now: Time) -> Message {
        match &mut self.offer {
            Some(offer) if offer.id == image => {
                offer.used = now;
                let piece = offer.image.piece(&cursor, PIECE);
                Message::Piece { image, cursor, bytes: piece.bytes, next: piece.next }
            }
            _ => Message::Gone { image },
        }
    }

    /// Drops an image that nobody wants any more, and says what to keep of the log up to `applied`: entries up to each
    /// slot, oldest first, may go while more than so many bytes are kept.
    pub fn retention(&mut self, applied: u64, retain: usize, now: Time) -> [(u64, usize); 2] {
        self.offer.take_if(|offer| now.since(offer.used) >= OFFER_IDLE);
        // What follows an image that is in use will be asked for next: whoever takes it may hold the log back, but not
        // without bound.
        let wanted = self.offer.as_ref().map_or(u64::MAX, |offer| offer.id.slot);
        [(applied.min(wanted), retain), (applied, retain.saturating_mul(4).max(HELD_BYTES))]
    }
}

/// The side that is behind.
#[derive(Debug)]
pub struct Catchup<A = Loading> {
    asked: Option<Asked>,
    loading: Option<Load<A>>,
}

impl<A> Default for Catchup<A> {
    fn default() -> Self {
        Catchup { asked: None, loading: None }
    }
}

#[derive(Debug)]
struct Asked {
    peer: NodeId,
    at: Time,
}

#[derive(Debug)]
struct Load<A> {
    peer: NodeId,
    image: ImageId,
    cursor: Bytes,
    pieces: A,
}

impl<A: Assembler> Catchup<A> {
    /// What to ask a peer who has what is missing from slot `from` on; `None` while an answer is still expected.
    pub fn ask(&mut self, peer: NodeId, from: u64, now: Time) -> Option<(NodeId, Message)> {
        if self.asked.as_ref().is_some_and(|asked| now.since(asked.at) < RETRY) {
            return None;
        }
        if self.loading.as_ref().is_some_and(|load| load.image.slot < from) {
            self.loading = None;
        }
        // A snapshot is continued with whom it was begun, unless that one has fallen silent before the first answer.
        if let Some(load) = &self.loading
            && load.peer == peer
        {
            self.asked = Some(Asked { peer, at: now });
            return Some((peer, Message::More { image: load.image, cursor: load.cursor.clone() }));
        }
        self.loading = None;
        self.asked = Some(Asked { peer, at: now });
        Some((peer, Message::Fetch { from }))
    }

    /// Whether a snapshot is coming in.
    pub fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// [`Message::Values`] has come in from a peer: another question may be asked at once.
    pub fn on_values(&mut self, peer: NodeId) {
        self.asked.take_if(|asked| asked.peer == peer);
    }

    /// [`Message::Piece`] has come in from a peer; `applied` is the last slot executed here. Asks for the next with
    /// `ask`, or returns the whole state, up to its `applied`; neither, if it was none that was waited for.
    pub fn on_piece(
        &mut self,
        peer: NodeId,
        (image, cursor, bytes, next): (ImageId, Bytes, Bytes, Option<Bytes>),
        applied: u64,
        now: Time,
        ask: impl FnOnce(Message),
    ) -> Option<A::State> {
        if image.slot <= applied {
            return None;
        }
        if cursor.is_empty() && self.loading.is_none() && self.asked.as_ref().is_some_and(|a| a.peer == peer)
        {
            self.loading = Some(Load { peer, image, cursor: Bytes::new(), pieces: A::default() });
        }
        let expected = |load: &mut Load<A>| (load.peer, load.image) == (peer, image) && load.cursor == cursor;
        let mut load = self.loading.take_if(expected)?;
        self.asked = None;
        load.pieces.push(&cursor, bytes).ok()?;
        let Some(next) = next else {
            let (id, state) = load.pieces.finish().ok()?;
            return (id == image).then_some(state);
        };
        load.cursor = next.clone();
        self.loading = Some(load);
        self.asked = Some(Asked { peer, at: now });
        ask(Message::More { image, cursor: next });
        None
    }

    /// [`Message::Gone`] has come in: start again.
    pub fn on_gone(&mut self, peer: NodeId, image: ImageId) {
        if self.loading.take_if(|load| (load.peer, load.image) == (peer, image)).is_some() {
            self.asked = None;
        }
    }
}
