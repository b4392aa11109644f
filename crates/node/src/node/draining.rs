//! How the loop comes to its end: it is asked to stop, or starts again with longer timeouts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use quorate_core::Time;
use tracing::{info, warn};

use super::Loop;
use crate::clock;
use crate::drain::Drain;
use crate::error::Exit;
use crate::frontend::Frontend;
use crate::service_manager::{self, NotifyState};
use crate::view::View;

impl<F: Frontend> Loop<F> {
    pub(super) fn begin_drain_if_asked(&mut self) {
        if self.drain.is_none() && self.is_asked_to_stop() {
            service_manager::tell(NotifyState::Stopping);
            info!(under_way = self.clients.under_way(), "asked to stop: finishing what is under way");
            self.begin_drain(clock::now(), self.limits.drain);
        }
    }

    fn is_asked_to_stop(&self) -> bool {
        self.stopper.asked.load(Ordering::Relaxed) > 0
    }

    pub(super) fn begin_drain(&mut self, now: Time, limit: Duration) {
        let reads_under_leases = self.machines.group_statuses().iter().any(|status| status.lease);
        let is_waited_for = self.machines.leads() || reads_under_leases;
        self.drain = Some(Drain::begin(now, limit, is_waited_for && self.metrics.peers_up.get() > 0));
        let view = View { machines: &self.machines, constants: &self.constants, transport: &self.transport };
        self.clients.drain(now, &view);
        self.machines.drain();
    }

    /// Whether to stop, and how.
    pub(super) fn exit(&mut self, at_rest: bool) -> Option<Exit> {
        let now = clock::now();
        let drain = self.drain.as_mut()?;
        let (me, until) = (self.machines.node(), drain.until);
        let may_go = drain.may_go(now, me, self.machines.status().leader);
        let unfinished = self.clients.under_way();
        if self.stopper.asked.load(Ordering::Relaxed) > 1 {
            warn!(unfinished, "asked to stop twice: stopping at once");
            return Some(Exit::Hurried);
        }
        let finished = at_rest && may_go && self.clients.is_empty();
        if finished && self.journal.is_synced() && self.transport.is_flushed() {
            info!("stopped: everything under way is finished");
        } else if now >= until {
            warn!(unfinished, "stopped: some requests or replies could not be finished in time");
        } else {
            return None;
        }
        Some(if self.is_asked_to_stop() { Exit::Drained { unfinished } } else { Exit::StartAgain })
    }
}
