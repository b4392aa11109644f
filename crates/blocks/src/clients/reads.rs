//! Reads that wait for an instance of their own, each once, however often its proxy repeats it: otherwise a replica
//! that is slow would be made slower by those who wait for it.

use std::collections::{BTreeSet, VecDeque};

use quorate_core::ProcessId;

use crate::clients::PendingRead;

/// See the file comment.
#[derive(Debug, Default)]
pub struct ReadQueue {
    waiting: VecDeque<PendingRead>,
    /// Those and what was taken, until it is answered.
    known: BTreeSet<(ProcessId, u64, u64)>,
    bytes: usize,
}

fn name(read: &PendingRead) -> (ProcessId, u64, u64) {
    (read.proxy, read.nonce, read.id)
}

impl ReadQueue {
    /// Holds about so many bytes; what is beyond is dropped, and repeated later.
    pub fn add(&mut self, reads: Vec<PendingRead>, max_bytes: usize) {
        for read in reads {
            if self.bytes + read.command.len() <= max_bytes && self.known.insert(name(&read)) {
                self.again(read);
            }
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

    /// What was taken is answered.
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
        queue.add(vec![read(1), read(2), read(1)], 100);
        assert_eq!(ids(&mut queue), [1, 2]);
        queue.add(vec![read(1)], 100);
        assert!(queue.is_empty(), "it is under way");
        queue.again(read(2));
        queue.done(&read(1));
        queue.add(vec![read(1), read(2)], 100);
        assert_eq!(ids(&mut queue), [2, 1]);
        queue.add(vec![read(3), read(4), read(5)], 10);
        assert_eq!(ids(&mut queue), [3, 4], "only so many bytes wait");
    }
}
