//! Client sessions inside the replicated state: each write takes effect exactly once, and a session's writes in
//! the order of their numbers (Ongaro's thesis, 2014, §6.3).
//!
//! A session is opened through the log, so its id is never used twice: a late duplicate of an old command finds no
//! session and does nothing. Commands carry consecutive numbers; only the next one is executed, an earlier one is a
//! duplicate and gets the reply it had. The table is bounded: sessions that were idle for long in replicated time
//! are dropped at a log position that all replicas share, and beyond `MAX_SESSIONS` the longest idle goes.
//!
//! **Retained replies are bounded in bytes.** A reply above [`REPLY_BYTES`] is not retained, and a session that retains
//! more than its share forgets its oldest replies. That a command was executed is not forgotten with its reply (`next`
//! says so), so a duplicate never executes again: it is answered with [`Reply::NotRetained`]. What is retained must be
//! the same at all replicas, also where the writes of different sessions are executed in any order. So a share depends
//! only on the number of sessions, which changes only where all replicas agree: where one is opened, or swept. The same
//! holds for what a session keeps of a command that comes in [parts](crate::parts).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, ProcessId, Wall, Wire, WireError, mutation, wire_enum, wire_struct};
use quorate_store::Reply;

use crate::parts::{Assembly, Kept, Part};

/// An idle session is dropped after this much replicated time.
pub const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// A proxy that has nothing to write refreshes its session this often.
pub const REFRESH: Duration = Duration::from_secs(120);
/// How many sessions a group remembers.
pub const MAX_SESSIONS: usize = 4096;
/// How many writes of one session may be unanswered. A proxy keeps to it, and so the table is bounded.
pub const WINDOW: u64 = 16 * 1024;
/// The longest reply that is retained for a duplicate, in bytes.
pub const REPLY_BYTES: usize = 64 << 10;
/// Retained replies of all sessions together, in bytes: each session has an equal share of them.
const RETAINED_BYTES: usize = 64 << 20;
/// Retained replies of one session, in bytes, however few sessions there are.
const SESSION_BYTES: usize = 16 << 20;
/// Memory that a retained reply takes apart from its own bytes.
const REPLY_OVERHEAD: usize = size_of::<Bytes>();
/// How often idle sessions are looked for, in replicated time.
const SWEEP: Duration = Duration::from_secs(30);

/// What the table says of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next of its session: execute it.
    Next,
    /// It has been executed; this was the reply, or [`Reply::NotRetained`].
    Duplicate(Bytes),
    /// It has been executed, and its proxy knows the reply.
    Forgotten,
    /// A command before it is missing: it must not be executed yet.
    Gap,
    /// There is no such session.
    NoSession,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    proxy: ProcessId,
    nonce: u64,
    /// The number of the next command.
    next: u64,
    /// The proxy has the replies to the commands below this number.
    low: u64,
    /// Replies to the commands just below `next`, oldest first; those between `low` and the oldest are not retained.
    replies: VecDeque<Bytes>,
    /// What they take, overhead included.
    bytes: usize,
    used: Wall,
    /// What is here of a command that comes in parts.
    assembly: Assembly,
}

impl Session {
    /// What a snapshot tells of the session behind its head: the replies, then the parts.
    fn record(&self, index: usize) -> Option<Record> {
        let part = |index: usize| self.assembly.parts().get(index).cloned();
        match self.replies.get(index) {
            Some(reply) => Some(Record::Reply(reply.clone())),
            None => part(index.checked_sub(self.replies.len())?)
                .map(|bytes| Record::Part { first: self.assembly.first(), bytes }),
        }
    }

    fn push(&mut self, reply: Bytes) {
        self.bytes += reply.len() + REPLY_OVERHEAD;
        self.replies.push_back(reply);
    }

    /// Forgets the oldest replies, down to so many of them and so many bytes.
    fn trim(&mut self, count: usize, bytes: usize) {
        while self.replies.len() > count || self.bytes > bytes {
            let oldest = self.replies.pop_front().expect("what takes bytes is there");
            self.bytes -= oldest.len() + REPLY_OVERHEAD;
        }
    }
}

/// The session table. A clone is a snapshot and costs next to nothing: it shares the sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    table: BTreeMap<u64, Arc<Session>>,
    opened: u64,
    swept: Wall,
}

impl Sessions {
    /// Opens a session (numbered from 1), or finds the one this incarnation of the proxy has.
    pub fn open(&mut self, proxy: ProcessId, nonce: u64, now: Wall) -> u64 {
        if let Some((&id, _)) = self.table.iter().find(|(_, s)| s.proxy == proxy && s.nonce == nonce) {
            return id;
        }
        if self.table.len() >= MAX_SESSIONS {
            let idle = self.table.iter().min_by_key(|(id, session)| (session.used, **id));
            let idle = *idle.expect("the table is full").0;
            self.table.remove(&idle);
        }
        self.opened += 1;
        let (next, low, replies, bytes) = (1, 1, VecDeque::new(), 0);
        let assembly = Assembly::default();
        let session = Session { proxy, nonce, next, low, replies, bytes, used: now, assembly };
        self.table.insert(self.opened, Arc::new(session));
        let share = self.share();
        for session in self.table.values_mut().filter(|session| session.bytes > share) {
            Arc::make_mut(session).trim(usize::MAX, share);
        }
        let share = Assembly::share(self.table.len());
        for session in self.table.values_mut().filter(|session| !session.assembly.parts().is_empty()) {
            Arc::make_mut(session).assembly.trim(share);
        }
        self.opened
    }

    /// Bytes of replies that a session may retain.
    fn share(&self) -> usize {
        (RETAINED_BYTES / self.table.len().max(1)).min(SESSION_BYTES)
    }

    /// What to do with a command.
    pub fn check(&self, session: u64, seq: u64) -> Verdict {
        let Some(session) = self.table.get(&session) else { return Verdict::NoSession };
        if seq == session.next {
            return Verdict::Next;
        }
        if seq > session.next {
            return Verdict::Gap;
        }
        if seq < session.low {
            return Verdict::Forgotten;
        }
        let back = (session.next - seq) as usize;
        let retained = session.replies.len().checked_sub(back).map(|index| &session.replies[index]);
        let not_retained = Reply::NotRetained.encoded();
        if mutation::active("sessions/not-retained-executes-again")
            && retained.is_none_or(|reply| *reply == not_retained)
        {
            return Verdict::Next;
        }
        Verdict::Duplicate(retained.cloned().unwrap_or(not_retained))
    }

    /// The number of a session's next command.
    pub fn next(&self, session: u64) -> Option<u64> {
        self.table.get(&session).map(|session| session.next)
    }

    /// Records that the next command of a session was executed, with its reply; replies below `low` are forgotten.
    pub fn record(&mut self, session: u64, low: u64, reply: Bytes, now: Wall) {
        let share = self.share();
        let session = self.table.get_mut(&session).map(Arc::make_mut);
        let session = session.expect("only a command whose verdict was Next is recorded");
        session.push(if reply.len() > reply_bytes() { Reply::NotRetained.encoded() } else { reply });
        session.next += 1;
        session.low = session.low.max(low).max(session.next.saturating_sub(WINDOW));
        session.used = session.used.max(now);
        session.trim(session.next.saturating_sub(session.low) as usize, share);
    }

    /// Takes the part of a command that is the next number of a session.
    pub fn keep(&mut self, session: u64, part: Part) -> Kept {
        let share = Assembly::share(self.table.len());
        let session = self.table.get_mut(&session).map(Arc::make_mut);
        session.expect("only a part whose verdict was Next is kept").assembly.take(part, share)
    }

    /// Drops what has been idle too long. Called at every log position with its time; cheap when nothing is due.
    pub fn sweep(&mut self, now: Wall) {
        if now.millis() < self.swept.millis().saturating_add(SWEEP.as_millis() as u64) {
            return;
        }
        self.swept = now;
        self.table
            .retain(|_, s| s.used.millis().saturating_add(IDLE_LIMIT.as_millis() as u64) >= now.millis());
    }

    /// Ends all sessions. Their numbers do not come back: a late duplicate finds none.
    pub fn end_all(&mut self) {
        self.table.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes that retained replies take, overhead included.
    pub fn retained_bytes(&self) -> usize {
        self.table.values().map(|session| session.bytes).sum()
    }

    // Snapshots ------------------------------------------------------------------------------------------------------

    /// What precedes the pieces in a snapshot.
    pub fn summary(&self) -> Summary {
        Summary { sessions: self.table.len() as u64, opened: self.opened, swept: self.swept }
    }

    /// The piece at a cursor: records up to `limit` bytes, or one that is longer, and where the next piece begins.
    pub fn piece(&self, from: Cursor, limit: usize) -> (Bytes, Option<Cursor>) {
        let mut out = Encoder::new();
        let Cursor { session: first, seq: mut from } = from;
        for (&id, session) in self.table.range(first..) {
            let oldest = session.next - session.replies.len() as u64;
            if from == 0 {
                if !out.is_empty() && out.len() + RECORD_BYTES > limit {
                    return (out.into_bytes(), Some(Cursor { session: id, seq: 0 }));
                }
                let Session { proxy, nonce, next, low, used, .. } = **session;
                let replies = session.replies.len() as u64;
                let parts = match mutation::active("snapshot/no-parts") {
                    true => 0,
                    false => session.assembly.parts().len() as u64,
                };
                Record::Session { id, proxy, nonce, next, low, used, replies, parts }.encode(&mut out);
                from = oldest;
            }
            while let Some(record) = session.record(from.wrapping_sub(oldest) as usize) {
                let (Record::Reply(bytes) | Record::Part { bytes, .. }) = &record else { break };
                if mutation::active("snapshot/no-parts") && matches!(record, Record::Part { .. }) {
                    break;
                }
                if !out.is_empty() && out.len() + RECORD_BYTES + bytes.len() > limit {
                    return (out.into_bytes(), Some(Cursor { session: id, seq: from }));
                }
                record.encode(&mut out);
                from += 1;
            }
            from = 0;
        }
        (out.into_bytes(), None)
    }
}

/// The longest reply that is retained, in bytes.
fn reply_bytes() -> usize {
    let few = mutation::active("sessions/not-retained-executes-again")
        || mutation::active("sessions/retain-little");
    if few { 3 } else { REPLY_BYTES }
}

/// What a snapshot says of the table before its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    sessions: u64,
    opened: u64,
    swept: Wall,
}
wire_struct!(Summary { sessions, opened, swept });

/// Where a piece begins: at the reply to the command of this number in a session, or (0) at the session itself. The
/// parts that it keeps follow the replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    session: u64,
    seq: u64,
}
wire_struct!(Cursor { session, seq });

/// A record's bytes apart from a reply, at most.
const RECORD_BYTES: usize = 80;

/// What pieces consist of: a session, then the replies that it retains and the parts that it keeps, then the next
/// session.
enum Record {
    Session {
        id: u64,
        proxy: ProcessId,
        nonce: u64,
        next: u64,
        low: u64,
        used: Wall,
        replies: u64,
        parts: u64,
    },
    Reply(Bytes),
    Part {
        first: u64,
        bytes: Bytes,
    },
}
wire_enum!(Record {
    1 => Session { id, proxy, nonce, next, low, used, replies, parts },
    2 => Reply(reply),
    3 => Part { first, bytes },
});

/// A table that is coming in piece by piece.
#[derive(Debug)]
pub struct Loader {
    sessions: Sessions,
    /// Sessions that have not come in.
    missing: u64,
    /// The session whose replies and parts are coming in, and how many of each are missing.
    open: Option<(u64, Session, (u64, u64))>,
}

impl Loader {
    /// Nothing but the summary has come in.
    pub fn new(summary: Summary) -> Loader {
        let Summary { sessions, opened, swept } = summary;
        Loader { sessions: Sessions { table: BTreeMap::new(), opened, swept }, missing: sessions, open: None }
    }

    /// Whether all sessions have come in.
    pub fn is_complete(&self) -> bool {
        self.missing == 0 && self.open.is_none()
    }

    /// The next piece, in order.
    pub fn push(&mut self, piece: Bytes) -> Result<(), WireError> {
        let mut input = Decoder::new(piece);
        while input.remaining() > 0 {
            match (Record::decode(&mut input)?, self.open.take()) {
                (Record::Session { id, proxy, nonce, next, low, used, replies, parts }, None) => {
                    let last = self.sessions.table.last_key_value().map_or(0, |(last, _)| *last);
                    if self.missing == 0 || id <= last || id > self.sessions.opened {
                        return Err(WireError::Value { what: "place of a session", found: id });
                    }
                    if replies >= next {
                        return Err(WireError::Value { what: "number of retained replies", found: replies });
                    }
                    self.missing -= 1;
                    let (kept, bytes, assembly) = (VecDeque::new(), 0, Assembly::default());
                    let session = Session { proxy, nonce, next, low, replies: kept, bytes, used, assembly };
                    self.open = Some((id, session, (replies, parts)));
                }
                (Record::Reply(reply), Some((id, mut session, (replies, parts)))) if replies > 0 => {
                    if reply.len() > REPLY_BYTES {
                        let found = reply.len() as u64;
                        return Err(WireError::Value { what: "length of a retained reply", found });
                    }
                    // A copy: the piece is much larger.
                    session.push(Bytes::copy_from_slice(&reply));
                    self.open = Some((id, session, (replies - 1, parts)));
                }
                (Record::Part { first, bytes }, Some((id, mut session, (0, parts)))) if parts > 0 => {
                    session.assembly.restore(first, bytes);
                    if session.assembly.trim(Assembly::share(1)) {
                        return Err(WireError::Value { what: "number of kept parts", found: parts });
                    }
                    self.open = Some((id, session, (0, parts - 1)));
                }
                (Record::Session { id, .. }, Some(_)) => {
                    return Err(WireError::Value { what: "place of a session", found: id });
                }
                (Record::Reply(bytes) | Record::Part { bytes, .. }, _) => {
                    let found = bytes.len() as u64;
                    return Err(WireError::Value { what: "place of a retained reply or part", found });
                }
            }
            if let Some((id, session, _)) = self.open.take_if(|(_, _, missing)| *missing == (0, 0)) {
                self.sessions.table.insert(id, Arc::new(session));
            }
        }
        Ok(())
    }

    /// The table; `None` if something is missing.
    pub fn finish(self) -> Option<Sessions> {
        self.is_complete().then_some(self.sessions)
    }
}

#[cfg(test)]
mod tests;
