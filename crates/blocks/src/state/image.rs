//! Images of the replicated state: frozen in constant time, read piece by piece, and put together again.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{Image, Piece, Roster, Snapshot, Wall, Wire, WireError, digest, mutation, wire_struct};
use quorate_store::Loader;

use super::{Origin, Replicated};
use crate::catchup::ImageId;
use crate::instance::{Executed, ExecutedImage};
use crate::membership::Configuration;
use crate::sessions::{self, Sessions};

impl Replicated {
    /// A frozen image of the present; cheap.
    pub fn freeze(&self) -> Snapshot {
        let sessions = match mutation::active("snapshot/no-sessions") {
            true => Sessions::default(),
            false => self.sessions.clone(),
        };
        let head = self.head(sessions.summary());
        Arc::new(StateImage { head: head.to_bytes(), sessions, store: self.store.freeze() })
    }

    fn head(&self, sessions: sessions::Summary) -> Head {
        Head {
            applied: self.applied,
            executed: self.executed.image(),
            revision: self.revision,
            time: self.time,
            sessions,
            origin: self.origin,
            configuration: self.configuration.clone(),
            roster: self.roster.clone(),
        }
    }

    /// An image of the present for a replica that is behind, with its name.
    pub fn offer(&self) -> (ImageId, Snapshot) {
        (self.image_id(), self.freeze())
    }

    /// Names the present state. Slots say all; where there are none, two sets of instances may have the same size.
    pub fn image_id(&self) -> ImageId {
        let executed = digest(&self.executed.image().to_bytes());
        let words =
            [self.applied, executed, self.revision, self.time.millis(), digest(&self.origin.to_bytes())];
        let by_count = mutation::active("catchup/image-by-count");
        let digest = if by_count { 0 } else { digest(&words.map(u64::to_le_bytes).concat()) };
        ImageId { slot: self.applied, digest }
    }

    /// Back from an image that this program wrote.
    pub fn load(image: &Snapshot) -> Result<Replicated, LoadError> {
        let mut loading = Loading::default();
        let mut cursor = Bytes::new();
        loop {
            let piece = image.piece(&cursor, PIECE);
            loading.push(piece.bytes)?;
            match piece.next {
                Some(next) => cursor = next,
                None => return loading.finish(),
            }
        }
    }
}

/// Bytes in a piece, about, where the reader chooses.
pub const PIECE: usize = 256 << 10;

/// Why an image was refused.
#[derive(Debug)]
pub struct LoadError(pub String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

impl From<WireError> for LoadError {
    fn from(error: WireError) -> Self {
        LoadError(format!("the image's head cannot be read: {error}"))
    }
}

/// A frozen state. Its pieces are: the head, which is small, then those of the sessions, if there are any, then those
/// of the store. A cursor is one byte that says which, then the cursor of that part.
#[derive(Debug)]
struct StateImage {
    head: Bytes,
    sessions: Sessions,
    store: quorate_store::Frozen,
}

const SESSIONS: u8 = b'c';
const STORE: u8 = b's';

/// The cursor of a part of the state.
fn cursor(part: u8, rest: &[u8]) -> Bytes {
    [&[part], rest].concat().into()
}

impl Image for StateImage {
    /// A cursor that no piece gave leads to an empty last piece, which makes the image incomplete.
    fn piece(&self, at: &Bytes, limit: usize) -> Piece {
        match at.first() {
            None if self.sessions.is_empty() => {
                Piece { bytes: self.head.clone(), next: Some(cursor(STORE, b"")) }
            }
            None => {
                let first = sessions::Cursor::default().to_bytes();
                Piece { bytes: self.head.clone(), next: Some(cursor(SESSIONS, &first)) }
            }
            Some(&SESSIONS) => match sessions::Cursor::from_bytes(at.slice(1..)) {
                Ok(from) => {
                    let (bytes, next) = self.sessions.piece(from, limit);
                    let next = next.map(|next| cursor(SESSIONS, &next.to_bytes()));
                    Piece { bytes, next: Some(next.unwrap_or_else(|| cursor(STORE, b""))) }
                }
                Err(_) => Piece { bytes: Bytes::new(), next: None },
            },
            Some(&STORE) => {
                let piece = self.store.piece(&at.slice(1..), limit);
                Piece { bytes: piece.bytes, next: piece.next.map(|next| cursor(STORE, &next)) }
            }
            Some(_) => Piece { bytes: Bytes::new(), next: None },
        }
    }

    fn verify(&self, pieces: &mut dyn Iterator<Item = Bytes>) -> Result<(), String> {
        let mut loading = Loading::dry();
        for piece in pieces {
            loading.push(piece).map_err(|error| error.to_string())?;
        }
        let read = loading.finish().map_err(|error| error.to_string())?;
        if read.head(read.sessions.summary()).to_bytes() != self.head {
            return Err("it does not begin with the head of the state that was saved".to_owned());
        }
        Ok(())
    }
}

/// The head of an image: everything but the sessions and the store. Its size is bounded: instances executed out of
/// order are at most as many as a replica takes note of beyond what it has executed.
#[derive(Debug)]
struct Head {
    applied: u64,
    executed: ExecutedImage,
    revision: u64,
    time: Wall,
    sessions: sessions::Summary,
    origin: Origin,
    configuration: Option<(u64, Configuration)>,
    roster: Option<(u64, Roster)>,
}
wire_struct!(Head { applied, executed, revision, time, sessions, origin, configuration, roster });

/// An image that is coming in piece by piece.
#[derive(Debug, Default)]
pub struct Loading {
    /// The head, once it is here, and the sessions behind it.
    begun: Option<(Head, sessions::Loader)>,
    store: Loader,
}

impl Loading {
    /// Checks an image without keeping what its store holds.
    fn dry() -> Loading {
        Loading { begun: None, store: Loader::dry() }
    }

    /// Takes the next piece, in order. An error says what of it cannot be read.
    pub fn push(&mut self, piece: Bytes) -> Result<(), LoadError> {
        match &mut self.begun {
            None => {
                let head = Head::from_bytes(piece)?;
                let sessions = sessions::Loader::new(head.sessions);
                self.begun = Some((head, sessions));
                Ok(())
            }
            Some((_, sessions)) if !sessions.is_complete() => sessions
                .push(piece)
                .map_err(|error| LoadError(format!("the sessions cannot be read: {error}"))),
            Some(_) => self.store.push(piece).map_err(|error| LoadError(error.to_string())),
        }
    }

    /// After the last piece.
    pub fn finish(self) -> Result<Replicated, LoadError> {
        let (head, sessions) = self.begun.ok_or_else(|| LoadError("the image is empty".to_owned()))?;
        let Head { applied, executed, revision, time, origin, configuration, roster, .. } = head;
        let sessions = sessions.finish().ok_or_else(|| LoadError("sessions are missing".to_owned()))?;
        let store = self.store.finish().map_err(|error| LoadError(error.to_string()))?;
        let executed = Executed::from_image(executed);
        Ok(Replicated { store, sessions, applied, executed, revision, time, origin, configuration, roster })
    }
}
