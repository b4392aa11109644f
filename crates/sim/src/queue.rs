//! The future: events by true time. Ties go in the order in which they were scheduled, so a run is a function of its
//! seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use quorate_check::Nanos;

/// Events to come. The heap holds small keys; the events stay where they are in a slab.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    slab: Vec<Option<E>>,
    free: Vec<u32>,
    scheduled: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), slab: Vec::new(), free: Vec::new(), scheduled: 0 }
    }
}

impl<E> Queue<E> {
    /// Schedules an event.
    pub fn push(&mut self, at: Nanos, event: E) {
        let index = match self.free.pop() {
            Some(index) => {
                self.slab[index as usize] = Some(event);
                index
            }
            None => {
                self.slab.push(Some(event));
                u32::try_from(self.slab.len() - 1).expect("fewer than 2^32 events are under way")
            }
        };
        self.heap.push(Reverse((at, self.scheduled, index)));
        self.scheduled += 1;
    }

    /// Takes the next one.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        let Reverse((at, _, index)) = self.heap.pop()?;
        self.free.push(index);
        let event = self.slab[index as usize].take().expect("each key has its event");
        Some((at, event))
    }

    /// How many were scheduled so far.
    pub fn scheduled(&self) -> u64 {
        self.scheduled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_ties_in_the_order_of_scheduling() {
        let mut queue = Queue::default();
        for (at, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(at, name);
        }
        assert_eq!(queue.pop(), Some((3, 'a')));
        queue.push(5, 'e');
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(3, 'b'), (5, 'c'), (5, 'd'), (5, 'e')]);
        assert_eq!(queue.scheduled(), 5);
    }
}
