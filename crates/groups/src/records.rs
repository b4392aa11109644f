//! Whose records the one log of several groups has, in order. The driver counts all records of this start; a replica,
//! and a message that waits for records, count those of their own group.

use std::collections::VecDeque;

use quorate_core::GroupId;

/// See the file comment.
#[derive(Debug)]
pub struct RecordOrder {
    /// Of each group, how many records went to the log.
    appended: Vec<u64>,
    /// The order of so many is forgotten.
    settled: u64,
    /// Of which group each record after those is.
    later: VecDeque<GroupId>,
}

impl RecordOrder {
    /// Of so many groups, without records.
    pub fn new(groups: usize) -> RecordOrder {
        RecordOrder { appended: vec![0; groups], settled: 0, later: VecDeque::new() }
    }

    /// A group's next record is the log's next.
    pub fn append(&mut self, group: GroupId) {
        self.appended[group.index()] += 1;
        self.later.push_back(group);
    }

    /// How many records a group has in the log.
    pub fn appended(&self, group: GroupId) -> u64 {
        self.appended[group.index()]
    }

    /// How many all have.
    pub fn total(&self) -> u64 {
        self.settled + self.later.len() as u64
    }

    /// How many of the log's first `upto` records are each group's; all, if there are fewer. `upto` is no smaller than
    /// it was when [`settle`](Self::settle) was called last.
    pub fn of_groups(&self, upto: u64) -> Vec<u64> {
        let more = upto.min(self.total()).checked_sub(self.settled).expect("what is durable stays so");
        let mut of_groups = self.appended.clone();
        self.later.range(more as usize..).for_each(|group| of_groups[group.index()] -= 1);
        of_groups
    }

    /// Forgets the order of the log's first `upto` records: they are durable.
    pub fn settle(&mut self, upto: u64) {
        let upto = upto.clamp(self.settled, self.total());
        self.later.drain(..(upto - self.settled) as usize);
        self.settled = upto;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_the_log_has_made_durable_each_group_counts_its_own() {
        let mut order = RecordOrder::new(3);
        for group in [0, 1, 0, 2, 1, 0] {
            order.append(GroupId::at(group));
        }
        let table = [(0, [0, 0, 0]), (1, [1, 0, 0]), (3, [2, 1, 0]), (5, [2, 2, 1]), (6, [3, 2, 1])];
        for (upto, of_groups) in table {
            assert_eq!(order.of_groups(upto), of_groups, "{upto}");
        }
        for (upto, of_groups) in table {
            order.settle(upto);
            assert_eq!(order.of_groups(upto), of_groups, "{upto}");
            assert_eq!(order.of_groups(u64::MAX), [3, 2, 1]);
            assert_eq!(order.total(), 6);
        }
        order.append(GroupId::at(2));
        assert_eq!(order.of_groups(6), [3, 2, 1]);
        assert_eq!(order.of_groups(7), [3, 2, 2]);
        assert_eq!(order.appended(GroupId::at(2)), 2);
    }
}
