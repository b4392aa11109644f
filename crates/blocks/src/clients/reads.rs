//! Reads that wait for an instance of their own, each once, however often its proxy repeats it: otherwise a replica
//! that is slow would be made slower by those who wait for it. What is not repeated any more has been given up: it must
//! not hold up what somebody waits for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_core::{ProcessId, Time, mutation};

use crate::clients::PendingRead;
use crate::clients::proxy::MAX_PATIENCE;

/// A read that its proxy has not repeated for so long counts as given up. If repetitions were lost, the next one is
/// taken as a read that is new.
const GIVEN_UP: Duration = MAX_PATIENCE.saturating_mul(3);

/// See the file comment.
#[derive(Debug, Default)]
pub struct ReadQueue {
    waiting: VecDeque<PendingRead>,
    /// When those and what was taken were last asked for, until they are answered.
    known: BTreeMap<(ProcessId, u64, u64), Time>,
    bytes: usize,
}

fn name(read: &PendingRead) -> (ProcessId, u64, u64) {
    (read.proxy, read.nonce, read.id)
}

impl ReadQueue {
    /// Holds about so many bytes; what is beyond is dropped, and repeated later.
    pub fn add(&mut self, reads: Vec<PendingRead>, max_bytes: usize, now: Time) {
        for read in reads {
            if let Some(asked) = self.known.get_mut(&name(&read)) {
                *asked = now;
            } else if self.bytes + read.command.len() <= max_bytes {
                self.known.insert(name(&read), now);
                self.again(read);
            }
        }
    }

    /// Forgets those that have waited longest and were given up.
    pub fn forget_given_up(&mut self, now: Time) {
        let is_given_up = |queue: &ReadQueue| {
            let asked = queue.waiting.front().and_then(|read| queue.known.get(&name(read)));
            asked.is_some_and(|asked| now.since(*asked) >= GIVEN_UP)
        };
        while is_given_up(self)
            && !mutation::active("reads/given-up-waits")
            && let Some(read) = self.take()
        {
            self.done(&read);
        }
    }

    /// What was taken could not be answered.
    pub fn again(&mut self, read: PendingRead) {
        self.bytes += read.command.len();
        self.waiting.push_back(read);
    }

    /// Bytes of the one that has waited longest.
    pub fn next_bytes(&self) -> Option<usize> {
        self.waiting.front().map(|read| read.command.len())
    }

    /// The one that has waited longest.
    pub fn take(&mut self) -> Option<PendingRead> {
        let read = self.waiting.pop_front()?;
        self.bytes -= read.command.len();
        Some(read)
    }

    /// What was taken is answered, or will not be.
    pub fn done(&mut self, read: &PendingRead) {
        self.known.remove(&name(read));
    }

    /// Whether no read waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_core::ProxyId;

    use super::*;

    #[test]
    fn a_read_that_is_repeated_waits_once_and_again_only_when_it_was_answered() {
        let read = |id| PendingRead {
            proxy: ProxyId(1).into(),
            nonce: 1,
            id,
            command: Bytes::from_static(b"12345"),
        };
        let mut queue = ReadQueue::default();
        let ids = |queue: &mut ReadQueue| {
            std::iter::from_fn(|| queue.take()).map(|read| read.id).collect::<Vec<_>>()
        };
        let now = Time::ZERO;
        queue.add(vec![read(1), read(2), read(1)], 100, now);
        assert_eq!(ids(&mut queue), [1, 2]);
        queue.add(vec![read(1)], 100, now);
        assert!(queue.is_empty(), "it is under way");
        queue.again(read(2));
        queue.done(&read(1));
        queue.add(vec![read(1), read(2)], 100, now);
        assert_eq!(ids(&mut queue), [2, 1]);
        queue.add(vec![read(3), read(4), read(5)], 10, now);
        assert_eq!(ids(&mut queue), [3, 4], "only so many bytes wait");
    }

    #[test]
    fn a_read_that_is_not_repeated_is_forgotten_and_taken_again_if_it_is() {
        let read = |id| PendingRead { proxy: ProxyId(1).into(), nonce: 1, id, command: Bytes::new() };
        let (mut queue, second) = (ReadQueue::default(), Duration::from_secs(1));
        queue.add(vec![read(1), read(2)], 100, Time::ZERO);
        queue.add(vec![read(2)], 100, Time::ZERO + 5 * second);
        queue.forget_given_up(Time::ZERO + 5 * second);
        assert_eq!(queue.waiting.len(), 2);
        queue.forget_given_up(Time::ZERO + 6 * second);
        queue.add(vec![read(1)], 100, Time::ZERO + 6 * second);
        let ids: Vec<_> = std::iter::from_fn(|| queue.take()).map(|read| read.id).collect();
        assert_eq!((ids, queue.bytes), (vec![2, 1], 0));
    }
}
