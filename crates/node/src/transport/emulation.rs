//! The interface that this node's emulated links share, and what wakes the loop for them. A node without delays and
//! rates has no alarm, and does nothing here.

use quorate_core::{NodeId, Time};
use tracing::warn;

use super::Transport;
use super::delay::EmulatedLink;
use super::link::Link;
use crate::clock;

impl Transport {
    /// The emulated interface sends the frames that it has had time for, one link after another.
    pub(super) fn send_frames(&mut self) {
        if self.alarm.is_none() {
            return;
        }
        let now = clock::now();
        while let Some((begins, node)) = self.next_frame()
            && begins <= now
            && let Some(link) = self.links.get_mut(&node)
        {
            link.send_frame(&mut self.interface);
        }
    }

    /// When the emulated interface sends its next frame, and to whom.
    pub(super) fn next_frame(&self) -> Option<(Time, NodeId)> {
        self.alarm.as_ref()?;
        let lines = self.links.values().filter_map(|link| Some((link.node, link.emulated()?.line())));
        self.interface.next(lines)
    }

    /// Has the loop woken when the next frame leaves, or a message arrives.
    pub(super) fn set_alarm(&mut self, now: Time) {
        let frame = self.next_frame().map(|(at, _)| at);
        let Some(alarm) = &mut self.alarm else { return };
        let emulated = self.links.values().filter_map(Link::emulated);
        let due = emulated.filter_map(EmulatedLink::arrives).chain(frame).min();
        if let Err(error) = alarm.set(due)
            && let Some(unsaid) = self.log_rate.ask("alarm", now)
        {
            warn!(unsaid, "the system's timer cannot be set: delays are a millisecond longer: {error}");
        }
    }
}
