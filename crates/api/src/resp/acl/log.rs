//! What was denied lately at this node: ACL LOG.

use std::collections::VecDeque;
use std::time::Duration;

/// So many entries are kept, as in Redis.
const ENTRIES: usize = 128;
/// Bytes of a key or a name that are kept.
const SHOWN: usize = 256;
/// What happens again within this time is counted with the entry that there is.
const SAME: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// What was denied, the latest first.
    entries: VecDeque<Entry>,
}

/// Why something was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Auth,
    Command,
    Key,
}

impl Reason {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    /// Whether it was in a transaction.
    pub(crate) in_multi: bool,
    /// The command or the key.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// When it happened last.
    pub(crate) at: Duration,
    /// As CLIENT INFO shows the connection.
    pub(crate) client: String,
}

impl Log {
    /// Takes in what was denied; no value is ever a part of it.
    pub(crate) fn add(&mut self, mut entry: Entry) {
        for word in [&mut entry.object, &mut entry.user] {
            word.truncate(SHOWN);
            // What a client sends as a key or a name may have the size of the largest value.
            word.shrink_to_fit();
        }
        let is_same = |known: &Entry| {
            known.reason == entry.reason
                && known.in_multi == entry.in_multi
                && known.object == entry.object
                && known.user == entry.user
                && entry.at.saturating_sub(known.at) <= SAME
        };
        let known = self.entries.iter().position(is_same).and_then(|index| self.entries.remove(index));
        entry.count += known.map_or(0, |known| known.count);
        self.entries.push_front(entry);
        self.entries.truncate(ENTRIES);
    }

    pub(crate) fn latest(&self, count: usize) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().take(count)
    }

    pub(crate) fn reset(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_denied_takes_little_memory_however_long_its_words_were() {
        let mut log = Log::default();
        for number in 0..2 * ENTRIES {
            let word = |first: &str| [first.as_bytes(), &number.to_le_bytes(), &[b'x'; 1 << 16]].concat();
            let (object, user) = (word("key"), word("user"));
            let (reason, at, client) = (Reason::Auth, Duration::ZERO, String::new());
            log.add(Entry { count: 1, reason, in_multi: false, object, user, at, client });
        }
        let kept: usize =
            log.latest(usize::MAX).map(|entry| entry.object.capacity() + entry.user.capacity()).sum();
        assert_eq!(log.latest(usize::MAX).len(), ENTRIES);
        assert!(kept <= 2 * ENTRIES * SHOWN, "{kept} bytes");
    }
}
