//! Letting clients go when the node stops.

use quorate_core::Time;

use super::Clients;
use crate::frontend::{Frontend, NodeView};
use crate::limits::{DRAIN_IDLE, DRAIN_LINGER, DRAIN_SWEEP};

/// Turns' worth of clients who wait at the door of a node that stops.
const DRAIN_ACCEPTS: usize = 8;

impl<F: Frontend> Clients<F> {
    /// Lets nobody in any more but those who wait at the door. Whoever is served goes on to be until all that it has
    /// asked is answered, and is let go with that answer: a client that waits for its replies never asks into a
    /// connection that is being closed. Those who ask nothing are let go after a while.
    pub(crate) fn drain(&mut self, now: Time, node: &dyn NodeView) {
        for _ in 0..DRAIN_ACCEPTS {
            self.acceptor.as_mut().into_iter().for_each(|acceptor| acceptor.postpone(now));
            self.accept(now, node);
            if self.acceptor.as_ref().is_none_or(|acceptor| acceptor.deadline().is_none()) {
                break;
            }
        }
        self.acceptor = None;
        self.draining = Some((now + DRAIN_IDLE, now + DRAIN_SWEEP));
    }

    /// Lets go of those who ask nothing, and closes those who have not noticed.
    pub(super) fn sweep(&mut self) {
        let Some((idle, sweep)) = &mut self.draining else { return };
        let (now, idle) = (self.now, *idle <= self.now);
        *sweep = now + DRAIN_SWEEP;
        let mut gone = Vec::new();
        for (index, connection) in &mut self.connections {
            let over = match connection.leaving {
                Some(until) => until <= now,
                None => {
                    let leaves = idle && connection.is_done();
                    leaves && !connection.leave(now + DRAIN_LINGER, &self.metrics)
                }
            };
            if over {
                gone.push(index);
            }
        }
        for index in gone {
            self.close(index);
        }
    }
}
