//! The timers of one machine, for drivers: set, forget, next due. The same code in the simulator and in a node.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Time;

/// At most one deadline per timer.
#[derive(Debug, Clone)]
pub struct Timers<T> {
    deadlines: BTreeMap<T, Time>,
    order: BTreeSet<(Time, T)>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { deadlines: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> Timers<T> {
    /// Applies what a machine asked for ([`Outbox::timers`](crate::context::Outbox)): a deadline, or none.
    pub fn apply(&mut self, timer: T, deadline: Option<Time>) {
        let earlier = match deadline {
            Some(at) => self.deadlines.insert(timer, at),
            None => self.deadlines.remove(&timer),
        };
        if let Some(earlier) = earlier {
            self.order.remove(&(earlier, timer));
        }
        if let Some(at) = deadline {
            self.order.insert((at, timer));
        }
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Time> {
        self.order.first().map(|&(at, _)| at)
    }

    /// Every timer that is set and its deadline, in the order of their type.
    pub fn iter(&self) -> impl Iterator<Item = (T, Time)> {
        self.deadlines.iter().map(|(timer, at)| (*timer, *at))
    }

    /// Takes the earliest that is due by `now`; equal deadlines come in the order of their type.
    pub fn pop_due(&mut self, now: Time) -> Option<T> {
        let &(at, timer) = self.order.first()?;
        if at > now {
            return None;
        }
        self.apply(timer, None);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_replaces_cancelling_forgets_and_due_ones_come_in_order() {
        let at = Time::from_nanos;
        let mut timers = Timers::default();
        for (timer, deadline) in
            [('a', Some(30)), ('b', Some(10)), ('c', Some(10)), ('a', Some(5)), ('b', None)]
        {
            timers.apply(timer, deadline.map(at));
        }
        assert_eq!(timers.next(), Some(at(5)));
        assert_eq!(timers.pop_due(at(4)), None);
        let mut due = timers.clone();
        assert_eq!(due.pop_due(at(5)), Some('a'), "due at its deadline");
        assert_eq!(timers.pop_due(at(20)), Some('a'));
        assert_eq!(timers.pop_due(at(20)), Some('c'));
        assert_eq!(timers.pop_due(at(20)), None);
        assert_eq!(timers.next(), None);
    }
}
