//! Which client waits for which request.

use quorate_core::{Answered, GroupId, Mark, Outcome, RequestId, Time};
use slab::Slab;

use crate::frontend::Ticket;
use crate::slow::{self, Times};

/// Low bits of a request's id: its place here. The bits above count requests, so ids grow and do not recur.
const PLACE_BITS: u32 = 20;

/// The requests under way, at most so many.
#[derive(Debug)]
pub(super) struct Requests {
    waiting: Slab<Waiting>,
    /// Bytes of their commands.
    bytes: usize,
    count: u64,
    limit: usize,
}

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    id: RequestId,
    /// The client's place, and its number, which tells it from a later one at that place.
    pub(super) index: usize,
    pub(super) connection: u64,
    pub(super) ticket: Ticket,
    /// Bytes of its encoded command, for the bound on commands under way.
    bytes: usize,
    /// Whether the outcome waits until this node's own state shows it.
    pub(super) shown: bool,
    pub(super) times: Times,
}

impl Requests {
    pub(super) fn new(limit: usize) -> Requests {
        Requests { waiting: Slab::new(), bytes: 0, count: 0, limit: limit.min(1 << PLACE_BITS) }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of the commands under way.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// A new request, whose command has so many bytes; `None` if too many are under way.
    pub(super) fn insert(
        &mut self,
        index: usize,
        connection: u64,
        ticket: Ticket,
        bytes: usize,
        (shown, times): (bool, Times),
    ) -> Option<RequestId> {
        if self.waiting.len() >= self.limit {
            return None;
        }
        self.count += 1;
        let id = RequestId((self.count << PLACE_BITS) | self.waiting.vacant_key() as u64);
        self.bytes += bytes;
        self.waiting.insert(Waiting { id, index, connection, ticket, bytes, shown, times });
        Some(id)
    }

    /// Who waits for a request; `None` if it has ended.
    pub(super) fn get(&self, id: RequestId) -> Option<&Waiting> {
        self.waiting.get(place(id)).filter(|waiting| waiting.id == id)
    }

    /// Notes what the proxy of a group says of a request, if it is under way.
    pub(super) fn mark(&mut self, group: GroupId, mark: Mark, at: Time) {
        if let Some(id) = slow::request(mark)
            && let Some(waiting) = self.waiting.get_mut(place(id)).filter(|waiting| waiting.id == id)
        {
            waiting.times.mark(group, mark, at);
        }
    }

    /// The request has ended; `None` if it had before.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Waiting> {
        self.bytes -= self.get(id)?.bytes;
        Some(self.waiting.remove(place(id)))
    }
}

/// Bytes of the reply in an outcome.
pub(super) fn reply_bytes(answered: &Answered) -> usize {
    match &answered.outcome {
        Outcome::Done(reply) => reply.len(),
        Outcome::Failed(_) => 0,
    }
}

fn place(id: RequestId) -> usize {
    (id.0 & ((1 << PLACE_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use quorate_core::Access;

    use super::*;

    #[test]
    fn an_id_names_one_request_and_never_another() {
        let mut requests = Requests::new(3);
        let times = (false, Times::new(Time::ZERO, Access::Read));
        let mut ids: Vec<_> = (0..3).map(|t| requests.insert(7, 1, Ticket(t), 10, times).unwrap()).collect();
        assert_eq!(requests.insert(7, 1, Ticket(3), 10, times), None, "the bound holds");
        assert_eq!(requests.remove(ids[1]).map(|waiting| waiting.ticket), Some(Ticket(1)));
        assert_eq!(requests.remove(ids[1]), None, "ended once");
        ids.push(requests.insert(8, 2, Ticket(9), 5, times).unwrap());
        assert_eq!(requests.remove(ids[1]), None, "its place has another one now");
        assert!(ids.is_sorted(), "ids grow");
        assert_eq!(requests.remove(ids[3]).map(|waiting| (waiting.index, waiting.connection)), Some((8, 2)));
        assert_eq!((requests.len(), requests.bytes()), (2, 20));
        assert_eq!(requests.remove(RequestId(u64::MAX)), None);
    }
}
