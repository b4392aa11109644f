//! What the loop does about the group: whom it connects to, and whether its replica may run.

use std::time::Duration;

use quorate_core::Time;
use tracing::{info, warn};

use super::Loop;
use crate::directory::{self, Standing};
use crate::error::NodeError;
use crate::frontend::Frontend;

/// How long a node that starts again lets its clients finish what they have begun. The others start again, too, so most
/// of it will not be finished.
const START_AGAIN: Duration = Duration::from_millis(200);

impl<F: Frontend> Loop<F> {
    /// Stops if this node must not take part with its data directory, or must start again with longer timeouts; starts
    /// the replica when it may run.
    pub(super) fn look_at_guard(&mut self, now: Time) -> Result<(), NodeError> {
        let Some(guard) = self.transport.guard() else { return Ok(()) };
        if let Some(why) = guard.stop() {
            return Err(why);
        }
        if let Some(reach) = guard.longer_reach().filter(|_| self.drain.is_none()) {
            let furthest =
                guard.furthest().map_or_else(|| "-".to_owned(), |furthest| format!("{furthest:.1?}"));
            warn!(
                furthest,
                "starts again, with timeouts for round trips up to {:?}, as this node or another needs",
                reach.round_trip()
            );
            self.begin_drain(now, START_AGAIN);
            return Ok(());
        }
        if self.machines.waits().is_none() {
            return Ok(());
        }
        match guard.waiting() {
            Some(why) => {
                let node = self.machines.node().expect("it has a replica that waits");
                if let Some(unsaid) = self.log_rate.ask(&why, now) {
                    warn!(unsaid, "node {node} does not take part yet: it {why}");
                }
                self.machines.still_waits(why);
            }
            None => {
                info!(
                    "the replica starts: a majority of the others knows no other data directory of this node, and no \
                     lease of other settings binds it"
                );
                self.machines.begin()?;
                self.transport.take_part(now);
            }
        }
        Ok(())
    }

    /// Connects to who is in the group now, and says so.
    pub(super) fn follow_group(&mut self, now: Time) {
        if !std::mem::take(&mut self.machines.regrouped) {
            return;
        }
        let directory = &self.machines.directory;
        self.transport.set_members(directory.peers(), now);
        let (group, standing) = (directory.group(), directory.standing());
        let groups = directory.groups();
        self.transport.set_groups(&groups);
        // Each group tells its own proxy of its members, and only one that asks. A process that is asked for keys of
        // one group alone would know nobody any more of another, once all of that one's members were replaced.
        if groups.len() > 1 {
            self.monitor_server.probe_groups();
        }
        if std::mem::replace(&mut self.grouped, group.version) != group.version {
            let members = directory::line(&group);
            info!(version = group.version, members, "the group is {members}");
        }
        if self.standing.replace(standing) == Some(standing) {
            return;
        }
        match standing {
            Standing::Voter | Standing::Learner => info!("this node is a {} of the group", standing.word()),
            Standing::Joining => {
                info!("this node is not in the group yet: it waits for `quorate member add`");
            }
            Standing::Left => warn!(
                "this node is no member of the group any more: it holds nothing that counts, its clients are served by \
                 the members, and it can be stopped"
            ),
            Standing::Client => {}
        }
    }

    /// Has the groups tell who their members are now and then, where no replica of this process hears it. Without
    /// clients it would ask nobody, and reach nobody any more once all whom it knows were replaced.
    pub(super) fn keep_up_with_groups(&mut self, now: Time) {
        if !self.machines.directory.is_in_all() {
            self.monitor_server.probe_groups_again(now);
        }
    }
}
