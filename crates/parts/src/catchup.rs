//! How a replica that has missed decisions gets them: chosen values while a peer still has them, else the peer's
//! snapshot, piece by piece. The one that is behind asks; the other answers and remembers little.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::{NodeId, Snapshot, Time, wire_enum};

use crate::slots::SlotLog;
use crate::state::{Loading, PIECE, Replicated};

/// One message carries about this many bytes of values.
const VALUES_BYTES: usize = 1 << 20;
/// Without an answer for this long, ask again.
pub const RETRY: Duration = Duration::from_millis(200);
/// Bytes of the log that a transfer may hold back at least.
const HELD_BYTES: usize = 4 << 20;
/// An image that nobody asks for is dropped after this long.
const OFFER_IDLE: Duration = Duration::from_secs(10);

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
        /// The last slot in the snapshot.
        slot: u64,
        /// Which piece this is; empty for the first.
        cursor: Bytes,
        /// The piece.
        bytes: Bytes,
        /// Which comes after it.
        next: Option<Bytes>,
    },
    /// Go on with that snapshot.
    More {
        /// The last slot in the snapshot.
        slot: u64,
        /// Which piece.
        cursor: Bytes,
    },
    /// I no longer have that snapshot: start again.
    Gone {
        /// The last slot in the snapshot.
        slot: u64,
    },
}
wire_enum!(Message {
    1 => Fetch { from },
    2 => Values { from, values },
    3 => Piece { slot, cursor, bytes, next },
    4 => More { slot, cursor },
    5 => Gone { slot },
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
    slot: u64,
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
            return Some(self.on_far_fetch(from, log.start(), state, now));
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

    /// Answers [`Message::Fetch`] of what is no longer kept; `start` is the first slot that is.
    pub fn on_far_fetch(&mut self, from: u64, start: u64, state: &Replicated, now: Time) -> Message {
        let offer = match &mut self.offer {
            Some(offer) if offer.slot >= from && offer.slot + 1 >= start => offer,
            stale => stale.insert(Offer { slot: state.applied(), image: state.freeze(), used: now }),
        };
        let slot = offer.slot;
        self.on_more(slot, Bytes::new(), now)
    }

    /// Answers [`Message::More`].
    pub fn on_more(&mut self, slot: u64, cursor: Bytes, now: Time) -> Message {
        match &mut self.offer {
            Some(offer) if offer.slot == slot => {
                offer.used = now;
                let piece = offer.image.piece(&cursor, PIECE);
                Message::Piece { slot, cursor, bytes: piece.bytes, next: piece.next }
            }
            _ => Message::Gone { slot },
        }
    }

    /// Drops an image that nobody wants any more, and says what to keep of the log up to `applied`: entries up to each
    /// slot, oldest first, may go while more than so many bytes are kept.
    pub fn retention(&mut self, applied: u64, retain: usize, now: Time) -> [(u64, usize); 2] {
        self.offer.take_if(|offer| now.since(offer.used) >= OFFER_IDLE);
        // What follows an image that is in use will be asked for next: whoever takes it may hold the log back, but not
        // without bound.
        let wanted = self.offer.as_ref().map_or(u64::MAX, |offer| offer.slot);
        [(applied.min(wanted), retain), (applied, retain.saturating_mul(4).max(HELD_BYTES))]
    }
}

/// The side that is behind.
#[derive(Debug, Default)]
pub struct Catchup {
    asked: Option<Asked>,
    loading: Option<Load>,
}

#[derive(Debug)]
struct Asked {
    peer: NodeId,
    at: Time,
}

#[derive(Debug)]
struct Load {
    peer: NodeId,
    slot: u64,
    cursor: Bytes,
    image: Loading,
}

impl Catchup {
    /// What to ask a peer who has what is missing from slot `from` on; `None` while an answer is still expected.
    pub fn ask(&mut self, peer: NodeId, from: u64, now: Time) -> Option<(NodeId, Message)> {
        if self.asked.as_ref().is_some_and(|asked| now.since(asked.at) < RETRY) {
            return None;
        }
        if self.loading.as_ref().is_some_and(|load| load.slot < from) {
            self.loading = None;
        }
        // A snapshot is continued with whom it was begun, unless that one has fallen silent before the first answer.
        if let Some(load) = &self.loading
            && load.peer == peer
        {
            self.asked = Some(Asked { peer, at: now });
            return Some((peer, Message::More { slot: load.slot, cursor: load.cursor.clone() }));
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
        (slot, cursor, bytes, next): (u64, Bytes, Bytes, Option<Bytes>),
        applied: u64,
        now: Time,
        ask: impl FnOnce(Message),
    ) -> Option<Replicated> {
        if slot <= applied {
            return None;
        }
        if cursor.is_empty() && self.loading.is_none() && self.asked.as_ref().is_some_and(|a| a.peer == peer)
        {
            self.loading = Some(Load { peer, slot, cursor: Bytes::new(), image: Loading::default() });
        }
        let expected = |load: &mut Load| (load.peer, load.slot) == (peer, slot) && load.cursor == cursor;
        let mut load = self.loading.take_if(expected)?;
        self.asked = None;
        load.image.push(bytes).ok()?;
        let Some(next) = next else {
            return load.image.finish().ok().filter(|state| state.applied() == slot);
        };
        load.cursor = next.clone();
        self.loading = Some(load);
        self.asked = Some(Asked { peer, at: now });
        ask(Message::More { slot, cursor: next });
        None
    }

    /// [`Message::Gone`] has come in: start again.
    pub fn on_gone(&mut self, peer: NodeId, slot: u64) {
        if self.loading.take_if(|load| (load.peer, load.slot) == (peer, slot)).is_some() {
            self.asked = None;
        }
    }
}
