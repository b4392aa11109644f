//! What client protocols may know of their node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use quorate_core::{
    Capabilities, Consistency, FeatureLevel, GroupId, Members, NodeId, REJOINING, Settings, Snapshot, Status,
};
use quorate_runtime::AnyProtocol;
use tracing::warn;

use crate::clock;
use crate::directory::{self, Standing};
use crate::frontend::{Contact, NodeView};
use crate::guard::Guard;
use crate::log_rate::LogRateLimiter;
use crate::machines::Machines;
use crate::metrics::Metrics;
use crate::monitor::MEMBERS_DIFFER;
use crate::resources;
use crate::slow::{Slow, SlowRequest};
use crate::transport::Transport;

/// What does not change while a node runs, in words.
#[derive(Debug)]
pub(crate) struct Constants {
    pub(crate) can: Capabilities,
    pub(crate) consistency: Consistency,
    /// See [`NodeView::has_ordered_users`].
    pub(crate) orders_users: bool,
    /// Of each group, whether operators can say who leads it.
    pub(crate) transfers: Vec<bool>,
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) started: quorate_core::Time,
    pub(crate) metrics: Rc<Metrics>,
    pub(crate) slow: Rc<Slow>,
    /// Of requests that were denied.
    pub(crate) denials: RefCell<LogRateLimiter>,
}

impl Constants {
    pub(crate) fn new(
        (protocol, settings): (&dyn AnyProtocol, &Settings),
        facts: Vec<(&'static str, String)>,
        started: quorate_core::Time,
        metrics: Rc<Metrics>,
        slow: Rc<Slow>,
    ) -> Constants {
        let can = protocol.capabilities();
        let groups: Vec<_> = protocol.groups().into_iter().map(|group| group.capabilities()).collect();
        Constants {
            can,
            consistency: (can.consistency)(settings),
            orders_users: groups.first().is_some_and(|can| can.total_order),
            transfers: groups.iter().map(|can| can.transfer).collect(),
            facts,
            started,
            metrics,
            slow,
            denials: RefCell::default(),
        }
    }
}

/// The node at this moment.
pub(crate) struct View<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) constants: &'a Constants,
    pub(crate) transport: &'a Transport,
}

impl NodeView for View<'_> {
    fn read(&self, command: &Bytes) -> Option<Bytes> {
        self.machines.read(command)
    }

    fn image(&self) -> Option<Snapshot> {
        self.machines.image()
    }

    fn has_everything(&self) -> bool {
        self.machines.has_everything()
    }

    fn has_state(&self) -> bool {
        self.machines.has_replica()
    }

    fn is_member(&self) -> bool {
        self.is_member_of(GroupId::FIRST)
    }

    fn is_member_of(&self, group: GroupId) -> bool {
        let standing = self.machines.directory.standing_in(group);
        self.has_state() && matches!(standing, Standing::Voter | Standing::Learner)
    }

    fn has_total_order(&self) -> bool {
        self.constants.can.total_order
    }

    fn has_ordered_users(&self) -> bool {
        self.constants.orders_users
    }

    fn consistency(&self) -> Consistency {
        self.constants.consistency
    }

    fn waits(&self) -> Option<String> {
        self.machines.waits().map(str::to_owned)
    }

    fn applied(&self) -> u64 {
        self.machines.applied()
    }

    fn status(&self) -> Status {
        self.machines.status()
    }

    fn group_statuses(&self) -> Vec<Status> {
        self.machines.group_statuses()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.constants.facts.clone();
        let directory = &self.machines.directory;
        let group = directory.group();
        facts.push(("members", directory::line(&group)));
        facts.push(("members_version", group.version.to_string()));
        facts.extend(directory.difference().map(|words| (MEMBERS_DIFFER, words)));
        facts.extend(self.machines.level().map(|level| ("feature_level", level.to_string())));
        facts.push(("knows_feature_level", FeatureLevel::NEWEST.to_string()));
        let (source, error) = match self.machines.clock.bound() {
            Some((source, error)) => (source, error.as_secs_f64().to_string()),
            None => ("none", "-".to_owned()),
        };
        facts.push(("clock_source", source.to_owned()));
        facts.push(("clock_bound_seconds", error));
        if let Some(why) = self.machines.waits() {
            facts.push(("waiting", why.to_owned()));
        }
        facts.push(("membership", directory.standing().word().to_owned()));
        let uptime = clock::now().since(self.constants.started).as_secs();
        facts.push(("uptime_seconds", uptime.to_string()));
        facts.extend(resources::warnings(&self.constants.metrics));
        facts.extend(self.machines.status().facts);
        facts.extend(self.constants.metrics.facts());
        facts
    }

    fn group(&self) -> Members {
        self.machines.directory.group()
    }

    fn members_of_groups(&self) -> Vec<Members> {
        self.machines.directory.groups()
    }

    fn known_levels(&self) -> BTreeMap<NodeId, FeatureLevel> {
        let own = self.machines.node().map(|node| (node, FeatureLevel::NEWEST));
        self.transport.known_levels().into_iter().chain(own).collect()
    }

    fn contacts(&self) -> Vec<Contact> {
        self.transport.contacts()
    }

    fn can_regroup(&self) -> bool {
        self.constants.can.membership
    }

    fn can_transfer(&self, group: GroupId) -> bool {
        self.constants.transfers.get(group.index()).is_some_and(|can| *can)
    }

    fn has_roster(&self) -> bool {
        self.constants.can.rosters
    }

    fn slow_requests(&self, count: usize) -> Vec<SlowRequest> {
        self.constants.slow.latest(count)
    }

    fn slow_count(&self) -> usize {
        self.constants.slow.len()
    }

    fn forget_slow(&self) {
        self.constants.slow.reset();
    }

    fn turn(&self) -> Option<u64> {
        Some(self.constants.metrics.turns_total.get())
    }

    fn knows_users(&self) -> bool {
        // The status takes a while: it is looked at where it matters.
        let replaces = self.transport.guard().is_some_and(Guard::replaces);
        let now = || (self.machines.status().role, self.machines.applied());
        self.machines.has_replica()
            && tell_users(self.machines.directory.standing_in(GroupId::FIRST), replaces, now)
    }

    fn catches_up(&self) -> bool {
        self.machines.directory.standing_in(GroupId::FIRST) != Standing::Voter
    }

    fn note_denial(&self, reason: &'static str, user: &str, command: &'static str) {
        self.constants.metrics.requests_denied_total.one();
        if let Some(unsaid) = self.constants.denials.borrow_mut().ask(reason, clock::now()) {
            warn!(user, command, unsaid, "denied a client's request: {reason}");
        }
    }
}

/// Whether the state of a replica tells who the users are. One that was not in the group, or whose disk was lost,
/// begins with nothing, and in that everybody may do everything; one that has left hears of no change any more. `now`:
/// its role, and what it has executed.
fn tell_users(standing: Standing, replaces: bool, now: impl Fn() -> (&'static str, u64)) -> bool {
    match standing {
        Standing::Voter => !replaces || now().0 != REJOINING,
        Standing::Learner => now().1 > 0,
        Standing::Joining | Standing::Left | Standing::Client => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_began_with_nothing_does_not_tell_who_the_users_are() {
        let told = |standing, replaces, role, applied| tell_users(standing, replaces, || (role, applied));
        assert!(told(Standing::Voter, false, "follower", 0), "a new group, or one that was down");
        assert!(!told(Standing::Voter, true, REJOINING, 0));
        assert!(!told(Standing::Voter, true, REJOINING, 7), "as far as it has come");
        assert!(told(Standing::Voter, true, "replica", 9));
        assert!(
            !told(Standing::Learner, false, "learner", 0) && told(Standing::Learner, false, "learner", 1)
        );
        assert!(!told(Standing::Left, false, "follower", 9) && !told(Standing::Joining, false, "learner", 9));
    }
}
