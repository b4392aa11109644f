//! The time that an own batch says, bounded by the clocks of a majority.

use quorate_blocks::quorum::majority_reached;
use quorate_blocks::walls::Own;
use quorate_core::{Instant, NodeId, Status, Time, Wall, mutation};

use super::Learner;

impl Learner {
    /// The time to propose, when the own clocks show this. `None`: the clocks of a majority are not known yet, right
    /// after a start. Then nothing is proposed. Once known they stay so.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Option<Wall> {
        let own = Own { me: self.me, wall, now };
        let time = self.walls.time(own, &|wall| self.majority(wall));
        if mutation::active("learner/own-clock-at-first") { time.or(Some(wall)) } else { time }
    }

    /// Adds to the status how far this wall clock is from those of a majority.
    pub(super) fn tell_clock(&self, at: Instant, status: &mut Status) {
        let own = Own { me: self.me, wall: at.wall, now: at.now };
        self.walls.tell(own, &|wall| self.majority(wall), status);
    }

    fn majority(&self, wall: &dyn Fn(NodeId) -> Option<Wall>) -> Option<Wall> {
        majority_reached(self.config.members.iter().map(wall))
    }
}
