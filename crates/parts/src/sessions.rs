//! Client sessions inside the replicated state: each write takes effect exactly once, and a session's writes in
//! the order of their numbers (PROTOCOLS.md F).
//!
//! A session is opened through the log, so its id is never used twice: a late duplicate of an old command finds no
//! session and does nothing. Commands carry consecutive numbers; only the next one is executed, an earlier one is a
//! duplicate and gets the reply it had. The table is bounded: sessions that were idle for long in replicated time
//! are dropped at a log position that all replicas share, and beyond `MAX_SESSIONS` the longest idle goes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{ProcessId, Wall, wire_struct};

/// An idle session is dropped after this much replicated time.
pub const IDLE_LIMIT: Duration = Duration::from_secs(600);
/// A proxy that has nothing to write refreshes its session this often.
pub const REFRESH: Duration = Duration::from_secs(120);
/// How many sessions a group remembers.
pub const MAX_SESSIONS: usize = 4096;
/// How many writes of one session may be unanswered. A proxy keeps to it, and so the table is bounded.
pub const WINDOW: u64 = 16 * 1024;
/// How often idle sessions are looked for, in replicated time.
const SWEEP: Duration = Duration::from_secs(30);

/// What the table says of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next of its session: execute it.
    Next,
    /// It has been executed; this was the reply.
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
    /// Replies to the commands just below `next`, oldest first.
    replies: VecDeque<Bytes>,
    used: Wall,
}

/// The session table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    table: BTreeMap<u64, Session>,
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
        self.table
            .insert(self.opened, Session { proxy, nonce, next: 1, replies: VecDeque::new(), used: now });
        self.opened
    }

    /// What to do with a command.
    pub fn check(&self, session: u64, seq: u64) -> Verdict {
        let Some(session) = self.table.get(&session) else { return Verdict::NoSession };
        if seq == session.next {
            Verdict::Next
        } else if seq > session.next {
            Verdict::Gap
        } else {
            let back = (session.next - seq) as usize;
            match session.replies.len().checked_sub(back) {
                Some(index) => Verdict::Duplicate(session.replies[index].clone()),
                None => Verdict::Forgotten,
            }
        }
    }

    /// The number of a session's next command.
    pub fn next(&self, session: u64) -> Option<u64> {
        self.table.get(&session).map(|session| session.next)
    }

    /// Records that the next command of a session was executed, with its reply; replies below `low` are forgotten.
    pub fn record(&mut self, session: u64, low: u64, reply: Bytes, now: Wall) {
        let session =
            self.table.get_mut(&session).expect("only a command whose verdict was Next is recorded");
        session.replies.push_back(reply);
        session.next += 1;
        session.used = session.used.max(now);
        let kept = session.next.saturating_sub(low).min(WINDOW) as usize;
        let excess = session.replies.len().saturating_sub(kept);
        session.replies.drain(..excess);
    }

    /// Drops what has been idle too long. Called at every log position with its time; cheap when nothing is due.
    pub fn sweep(&mut self, now: Wall) {
        if now.millis() < self.swept.millis() + SWEEP.as_millis() as u64 {
            return;
        }
        self.swept = now;
        self.table.retain(|_, s| s.used.millis() + IDLE_LIMIT.as_millis() as u64 >= now.millis());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Everything, for a snapshot.
    pub fn image(&self) -> SessionsImage {
        let sessions = self.table.iter().map(|(&id, s)| {
            let replies = s.replies.iter().cloned().collect();
            (id, SessionImage { proxy: s.proxy, nonce: s.nonce, next: s.next, replies, used: s.used })
        });
        SessionsImage { sessions: sessions.collect(), opened: self.opened, swept: self.swept }
    }

    /// Back from a snapshot.
    pub fn from_image(image: SessionsImage) -> Sessions {
        let table = image.sessions.into_iter().map(|(id, s)| {
            let replies = s.replies.into_iter().collect();
            (id, Session { proxy: s.proxy, nonce: s.nonce, next: s.next, replies, used: s.used })
        });
        Sessions { table: table.collect(), opened: image.opened, swept: image.swept }
    }
}

/// The encoded form of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionsImage {
    sessions: Vec<(u64, SessionImage)>,
    opened: u64,
    swept: Wall,
}
wire_struct!(SessionsImage { sessions, opened, swept });

#[derive(Clone, Debug, PartialEq, Eq)]
struct SessionImage {
    proxy: ProcessId,
    nonce: u64,
    next: u64,
    replies: Vec<Bytes>,
    used: Wall,
}
wire_struct!(SessionImage { proxy, nonce, next, replies, used });

#[cfg(test)]
mod tests {
    use quorate_core::{ProxyId, Wire};

    use super::*;

    fn proxy(id: u64) -> ProcessId {
        ProxyId(id).into()
    }

    fn at(seconds: u64) -> Wall {
        Wall::from_millis(1_000_000 + seconds * 1000)
    }

    fn reply(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn each_number_is_executed_once_and_in_order() {
        let mut sessions = Sessions::default();
        let id = sessions.open(proxy(1), 7, at(0));
        assert_eq!(sessions.check(id, 1), Verdict::Next);
        assert_eq!(sessions.check(id, 2), Verdict::Gap);
        for (seq, low) in [(1, 1), (2, 1), (3, 2)] {
            assert_eq!(sessions.check(id, seq), Verdict::Next);
            sessions.record(id, low, reply(&seq.to_string()), at(1));
        }
        assert_eq!(sessions.check(id, 1), Verdict::Forgotten, "below the low-water mark");
        assert_eq!(sessions.check(id, 2), Verdict::Duplicate(reply("2")));
        assert_eq!(sessions.check(id, 3), Verdict::Duplicate(reply("3")));
        assert_eq!(sessions.check(id, 4), Verdict::Next);
        assert_eq!(sessions.check(id, 0), Verdict::Forgotten);
        assert_eq!(sessions.check(id + 1, 1), Verdict::NoSession);
    }

    #[test]
    fn an_incarnation_has_one_session_and_the_next_has_another() {
        let mut sessions = Sessions::default();
        let first = sessions.open(proxy(1), 7, at(0));
        assert_eq!(sessions.open(proxy(1), 7, at(0)), first);
        assert_ne!(sessions.open(proxy(1), 8, at(0)), first);
        assert_ne!(sessions.open(proxy(2), 7, at(0)), first);
    }

    #[test]
    fn idle_sessions_go_and_their_numbers_never_come_back() {
        let mut sessions = Sessions::default();
        let old = sessions.open(proxy(1), 7, at(0));
        let used = sessions.open(proxy(2), 7, at(0));
        sessions.record(used, 1, reply("x"), at(500));
        sessions.sweep(at(700));
        assert_eq!(sessions.check(old, 1), Verdict::NoSession);
        assert_eq!(sessions.check(used, 2), Verdict::Next);
        assert!(sessions.open(proxy(1), 7, at(700)) > used, "a late duplicate of Open gets a new number");
    }

    #[test]
    fn the_table_is_bounded_and_drops_the_longest_idle() {
        let mut sessions = Sessions::default();
        for id in 0..MAX_SESSIONS as u64 + 10 {
            sessions.open(proxy(id), 1, at(id));
        }
        assert_eq!(sessions.len(), MAX_SESSIONS);
        assert_eq!(sessions.check(10, 1), Verdict::NoSession);
        assert_eq!(sessions.check(11, 1), Verdict::Next);
    }

    #[test]
    fn a_snapshot_keeps_everything() {
        let mut sessions = Sessions::default();
        let id = sessions.open(proxy(1), 7, at(0));
        sessions.record(id, 1, reply("a"), at(3));
        sessions.sweep(at(100));
        let image = SessionsImage::from_bytes(sessions.image().to_bytes()).unwrap();
        assert_eq!(Sessions::from_image(image), sessions);
    }
}
