//! Exactly once, key by key: which writes of clients are in a key's history, with the replies to those that may be
//! asked for again. It is a part of every version of the key and goes wherever that goes, so whoever has the last
//! committed version knows whether a write that comes (again) is in it.
//!
//! A write is named by its session (the number that an incarnation of a proxy has drawn) and its number there. Numbers
//! say nothing of order: the writes of a session go to many keys. A session's `low` is below all that its proxy still
//! waits for: what is below was answered. A key remembers [`MOST`] writes; beyond, it forgets the oldest sessions, and
//! takes no more writes from any that is as old: their proxies begin new ones. The same goes for all keys that were
//! deleted long ago (`tombstones.rs`). A proxy opens its session anew before that, when all its writes are answered:
//! with a later time and under the same nonce, in which numbers go on.

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{mutation, wire_struct};
use quorate_store::Reply;

/// Writes that a key remembers, about.
const MOST: usize = 4096;
/// Writes of one session that a key remembers; those beyond wait until their proxy says that it has earlier answers.
pub const WINDOW: usize = 1024;
/// The longest reply that is kept for a repetition, in bytes.
const REPLY_BYTES: usize = 1024;

/// See the file comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Sessions that were opened at this time or before, and are not here, are forgotten. In milliseconds of the clock
    /// of whoever opened them; the order is all that counts.
    forgotten: u64,
    /// Shared by the copies of a version: in a message, in a record, and here.
    sessions: Arc<Vec<Session>>,
}
wire_struct!(Record { forgotten, sessions });

#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    nonce: u64,
    opened: u64,
    low: u64,
    done: Vec<(u64, Bytes)>,
}
wire_struct!(Session { nonce, opened, low, done });

/// Names a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// That the proxy has drawn for its session.
    pub nonce: u64,
    /// In the session.
    pub seq: u64,
}

/// What the record says of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has not taken effect.
    New,
    /// It has, and this was the reply.
    Done(Bytes),
    /// It has, and its proxy knows the reply.
    Answered,
    /// This cannot be told any more.
    Unknown,
    /// It has not; others of its session must be answered first.
    Wait,
}

impl Record {
    /// That of a key of which no writes are known, and all of sessions opened at this time or before may be in it.
    pub fn forgetting(forgotten: u64) -> Record {
        Record { forgotten, ..Record::default() }
    }

    /// When the last of the sessions was opened of which writes are in it, or may be.
    pub fn newest(&self) -> u64 {
        self.sessions.iter().fold(self.forgotten, |newest, session| newest.max(session.opened))
    }

    /// What is known of a write of a session that was opened then.
    pub fn verdict(&self, name: Name, opened: u64, low: u64) -> Verdict {
        let Some(session) = self.sessions.iter().find(|session| session.nonce == name.nonce) else {
            return if opened > self.forgotten { Verdict::New } else { Verdict::Unknown };
        };
        if let Some((_, reply)) = session.done.iter().find(|(seq, _)| *seq == name.seq) {
            return match mutation::active("hermes/no-record") {
                true => Verdict::New,
                false => Verdict::Done(reply.clone()),
            };
        }
        match session.done.iter().filter(|(seq, _)| *seq >= low).count() < WINDOW {
            _ if name.seq < session.low => Verdict::Answered,
            true => Verdict::New,
            false => Verdict::Wait,
        }
    }

    /// A write takes effect.
    pub fn add(&mut self, name: Name, (opened, low): (u64, u64), reply: &Bytes) {
        let reply = if reply.len() > REPLY_BYTES { Reply::NotRetained.encoded() } else { reply.clone() };
        let sessions = Arc::make_mut(&mut self.sessions);
        let known = sessions.iter().position(|session| session.nonce == name.nonce);
        let place = known.unwrap_or_else(|| {
            sessions.push(Session { nonce: name.nonce, opened, low, done: Vec::new() });
            sessions.len() - 1
        });
        let session = &mut sessions[place];
        (session.low, session.opened) = (session.low.max(low), session.opened.max(opened));
        session.done.retain(|(seq, _)| *seq >= session.low);
        session.done.push((name.seq, reply));
        while sessions.iter().map(|session| 1 + session.done.len()).sum::<usize>() > MOST {
            let others = sessions.iter().enumerate().filter(|(_, other)| other.nonce != name.nonce);
            let Some((oldest, _)) = others.min_by_key(|(_, other)| other.opened) else { break };
            self.forgotten = self.forgotten.max(sessions.remove(oldest).opened);
        }
    }

    /// Sessions that were opened at this time or before, and are not here, are forgotten.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The same, with replies in a buffer of their own: those of a version that was sent share its message.
    pub fn detached(&self) -> Record {
        let replies = self.sessions.iter().flat_map(|session| &session.done);
        let mut all = Bytes::from(replies.map(|(_, reply)| &reply[..]).collect::<Vec<_>>().concat());
        let mut sessions = self.sessions.to_vec();
        for (_, reply) in sessions.iter_mut().flat_map(|session| &mut session.done) {
            *reply = all.split_to(reply.len());
        }
        Record { forgotten: self.forgotten, sessions: Arc::new(sessions) }
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let replies =
            |session: &Session| session.done.iter().map(|(_, reply)| 16 + reply.len()).sum::<usize>();
        self.sessions.iter().map(|session| 32 + replies(session)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(nonce: u64, seq: u64) -> Name {
        Name { nonce, seq }
    }

    fn reply(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_write_is_new_once_and_answered_as_it_was() {
        let mut record = Record::default();
        assert_eq!(record.verdict(name(7, 3), 1, 1), Verdict::New);
        record.add(name(7, 3), (1, 1), &reply("a"));
        assert_eq!(record.verdict(name(7, 3), 1, 1), Verdict::Done(reply("a")));
        assert_eq!(record.verdict(name(7, 2), 1, 1), Verdict::New, "numbers are no order");
        record.add(name(7, 9), (1, 5), &reply("b"));
        assert_eq!(record.verdict(name(7, 3), 1, 1), Verdict::Answered, "its proxy had the reply before");
        assert_eq!(record.verdict(name(8, 3), 2, 1), Verdict::New, "of another session");
        record.add(name(8, 3), (2, 1), &Bytes::from(vec![0; 2000]));
        assert_eq!(record.verdict(name(8, 3), 2, 1), Verdict::Done(Reply::NotRetained.encoded()));
    }

    #[test]
    fn sessions_that_are_forgotten_write_no_more_and_newer_ones_do() {
        let mut record = Record::default();
        for session in 0..5 {
            (1..=1000).for_each(|seq| record.add(name(session, seq), (10 + session, 1), &reply("")));
        }
        assert_eq!(record.verdict(name(0, 1), 10, 1), Verdict::Unknown);
        assert_eq!(record.verdict(name(1, 1), 11, 1), Verdict::Done(reply("")));
        assert_eq!(record.verdict(name(99, 1), 10, 1), Verdict::Unknown, "as old as one that is forgotten");
        assert_eq!(record.verdict(name(99, 1), 11, 1), Verdict::New);
        assert!(record.bytes() < 100_000);
    }

    /// The session was opened anew between its writes. With the record, all that has written it is forgotten.
    #[test]
    fn what_is_forgotten_of_a_record_is_as_old_as_the_last_session_that_has_written_it() {
        let mut record = Record::default();
        assert_eq!(record.newest(), 0);
        for (seq, opened, newest) in [(1, 10, 10), (2, 20, 20), (3, 15, 20)] {
            record.add(name(7, seq), (opened, seq), &reply("a"));
            assert_eq!(record.newest(), newest);
        }
        record.add(name(8, 1), (12, 1), &reply("a"));
        let forgetting = Record::forgetting(record.newest());
        assert_eq!((forgetting.newest(), forgetting.forgotten()), (20, 20));
        for (opened, verdict) in [(12, Verdict::Unknown), (20, Verdict::Unknown), (21, Verdict::New)] {
            assert_eq!(forgetting.verdict(name(9, 1), opened, 1), verdict, "{opened}");
        }
    }

    #[test]
    fn a_session_waits_for_its_answers() {
        let mut record = Record::default();
        (1..=WINDOW as u64).for_each(|seq| record.add(name(1, seq), (1, 1), &reply("")));
        assert_eq!(record.verdict(name(1, 5000), 1, 1), Verdict::Wait);
        assert_eq!(record.verdict(name(1, 5000), 1, 500), Verdict::New);
    }
}
