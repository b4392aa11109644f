//! Messages that wait until the records before them are durable
//! ([`Release::AfterSync`](quorate_core::Release::AfterSync)).
//!
//! A machine counts its records, and a message names the number it waits for. That number never falls from one waiting
//! message to the next, so they wait in one queue, and leave in the order in which they were sent. A message that waits
//! for nothing passes those that do.

use std::collections::VecDeque;

use quorate_core::Outgoing;

/// See the file comment.
#[derive(Debug)]
pub struct ReleaseGate<T> {
    waiting: VecDeque<Outgoing<T>>,
    durable: u64,
}

impl<T> Default for ReleaseGate<T> {
    fn default() -> Self {
        ReleaseGate { waiting: VecDeque::new(), durable: 0 }
    }
}

impl<T> ReleaseGate<T> {
    /// Records up to this number are durable, counted since the machine started.
    pub fn set_durable(&mut self, durable: u64) {
        self.durable = durable;
    }

    /// A new message: gives it back if it may leave at once. Those that [`next`](Self::next) gives leave before it.
    pub fn pass(&mut self, message: Outgoing<T>) -> Option<Outgoing<T>> {
        if message.after <= self.durable {
            return Some(message);
        }
        let last = self.waiting.back().map_or(0, |last| last.after);
        assert!(last <= message.after, "a machine's count of records never falls");
        self.waiting.push_back(message);
        None
    }

    /// Takes the next waiting message that may leave now.
    pub fn next(&mut self) -> Option<Outgoing<T>> {
        self.waiting.pop_front_if(|message| message.after <= self.durable)
    }

    /// Whether a message could leave if so many records were durable.
    pub fn would_release(&self, durable: u64) -> bool {
        self.waiting.front().is_some_and(|message| message.after <= durable)
    }

    /// Messages that wait, in order.
    pub fn waiting(&self) -> &VecDeque<Outgoing<T>> {
        &self.waiting
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{NodeId, Recipients};

    use super::*;

    fn message(after: u64) -> Outgoing<u64> {
        Outgoing { to: Recipients::One(NodeId::new(2).unwrap().into()), message: after, after }
    }

    #[test]
    fn it_is_known_how_many_durable_records_let_the_next_message_go() {
        let mut gate = ReleaseGate::default();
        assert!(!gate.would_release(9), "nothing waits");
        gate.set_durable(1);
        assert!(gate.pass(message(1)).is_some() && gate.pass(message(2)).is_none());
        assert_eq!([1, 2, 3].map(|durable| gate.would_release(durable)), [false, true, true]);
        gate.set_durable(2);
        assert_eq!(gate.next().map(|next| next.message), Some(2));
        assert!(gate.next().is_none() && !gate.would_release(3));
    }

    #[test]
    #[should_panic(expected = "a machine's count of records never falls")]
    fn a_count_of_records_that_falls_is_found_out() {
        let mut gate = ReleaseGate::default();
        gate.pass(message(2));
        gate.pass(message(1));
    }
}
