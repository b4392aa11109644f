//! The time that an own batch says, bounded by the clocks of a majority ([`quorate_blocks::walls`]).

use quorate_blocks::quorum::majority_reached;
use quorate_blocks::walls::{ClockRequest, Own};
use quorate_core::{Context, Instant, NodeId, Status, Time, Wall, mutation};

use super::Learner;
use super::message::{Host, Message};

impl Learner {
    /// The time to propose, when the own clocks show this. `None`: the clocks of a majority are not known yet, right
    /// after a start. Then nothing is proposed. Once known they stay so.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Option<Wall> {
        let own = Own { me: self.me, wall, now };
        let time = self.walls.time(own, &|wall| self.majority(wall));
        if mutation::active("learner/own-clock-at-first") { time.or(Some(wall)) } else { time }
    }

    /// Asks those whose clocks are not known, or have not been read for some time.
    pub(super) fn ask_clocks<M: Host>(&self, cx: &mut Context<'_, M>) {
        let own = Own::read(self.me, cx);
        let due = self.walls.due(self.config.members.without(self.me), own);
        let request = ClockRequest { life: self.life, sent: cx.now() };
        cx.send_all(due, Message::ClockRequest(request).into());
    }

    pub(super) fn on_clock_reply<M: Host>(
        &mut self,
        from: NodeId,
        request: ClockRequest,
        wall: Wall,
        cx: &Context<'_, M>,
    ) {
        if request.life == self.life || mutation::active("walls/any-life") {
            let own = Own::read(self.me, cx);
            let members = self.config.members;
            self.walls
                .hear(from, (request.sent, wall), own, &|wall| majority_reached(members.iter().map(wall)));
            self.clocks.insert(from);
        }
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
