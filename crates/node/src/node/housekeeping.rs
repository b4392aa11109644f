//! What the loop looks after a few times a second: gauges, changes of role, the certificate.

use std::time::Duration;

use quorate_core::{
    Access, GroupId, GroupRequest, Manage, Request, RequestId, Shortage, Status, Time, WALL_CLOCK, Wire,
};
use quorate_tls::Credentials;
use tracing::{info, warn};

use super::Loop;
use crate::clock;
use crate::frontend::Frontend;
use crate::journal::{self, Room};
use crate::logging;
use crate::metrics::Metrics;
use crate::resources::{self, Found, GROWN_PART};

/// How often slow things are looked after: status changes, gauges.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// A certificate that expires within this is worth a warning.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);

/// How often that is said.
const WARN_AGAIN: Duration = Duration::from_secs(6 * 3600);

/// How long that may take.
const HAND_OVER: Duration = Duration::from_secs(5);

/// Clients' requests and the monitor's have other ids and streams; nobody waits for the outcome.
pub(super) const OWN: u64 = 1 << 62;

/// Lets another node lead: this group, if there are several.
fn hand_over(group: Option<GroupId>, now: Time) -> (RequestId, Request) {
    let manage = Manage::Transfer { to: None };
    let command = match group {
        Some(group) => GroupRequest { group, asked: manage }.to_bytes(),
        None => manage.to_bytes(),
    };
    let request =
        Request { stream: OWN, command, access: Access::Manage, deadline: now + HAND_OVER, after: 0 };
    (RequestId(OWN), request)
}

/// When a node that is short of room hands over, if it leads. An attempt may come to nothing, so the next one
/// follows soon; but others may have no room either, so there are ever fewer.
#[derive(Debug)]
pub(super) struct HandOvers {
    next: Time,
    pause: Duration,
}

impl Default for HandOvers {
    fn default() -> Self {
        HandOvers { next: Time::ZERO, pause: Duration::from_secs(20) }
    }
}

impl HandOvers {
    const LONGEST_PAUSE: Duration = Duration::from_secs(300);

    /// Whether it is time for one, which begins then.
    fn begin(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        true
    }
}

impl<F: Frontend> Loop<F> {
    pub(super) fn keep_house(&mut self, now: Time) {
        self.housekeeping = now + HOUSEKEEPING;
        self.metrics.messages_held.set(self.machines.held() as u64);
        let dropped = logging::dropped();
        self.metrics.stderr_lines_dropped_total.set(dropped);
        self.missing.tell(dropped, now);
        if !self.takes_input()
            && let Some(unsaid) = self.log_rate.ask("disk", now)
        {
            let bytes = self.journal.unsynced();
            warn!(bytes, unsaid, "the disk is slower than what comes in: reading waits for it");
        }
        self.constants.slow.flush(now);
        self.constants.slow.count_spans();
        self.look_at_resources(now);
        self.look_at_certificate(now);
        // A snapshot stands for the records before it: none of them may come behind it.
        assert!(self.machines.effects().records.is_empty(), "a turn hands all records to the log");
        let room = (self.metrics.disk_size_bytes.get() > 0).then(|| Room {
            free: self.metrics.disk_free_bytes.get(),
            data: self.data_bytes(),
            scarce: self.metrics.disk_nearly_full.get(),
        });
        self.journal.snapshot_if_due(self.limits.snapshot_after, room, || self.machines.save());
        self.show_status(now);
        self.ask_for_first_level(now);
        self.keep_up_with_groups(now);
    }

    /// Looks at the disk and at memory before their time if the log has grown by much, or has no room to grow; or if
    /// much has come in.
    pub(super) fn look_at_growth(&mut self, now: Time) {
        let Metrics { log_bytes_total, disk_reserve_bytes, memory_limit_bytes, .. } = &*self.metrics;
        let taken_in = self.metrics.client_bytes_in_total.get() + self.metrics.peer_bytes_in_total.get();
        let grown = [
            (log_bytes_total.get(), disk_reserve_bytes.get()),
            (taken_in, resources::memory_reserve(memory_limit_bytes.get())),
        ];
        for (looked_at, (bytes, reserve)) in self.looked_at.iter_mut().zip(grown) {
            let part = reserve / GROWN_PART;
            if part > 0 && bytes - *looked_at >= part {
                *looked_at = bytes;
                self.resources.look();
            }
        }
        let short = self.journal.is_short();
        if self.resources.take_fresh() || std::mem::replace(&mut self.short, short) != short {
            self.look_at_resources(now);
        }
    }

    /// What the data take in memory, as last told.
    fn data_bytes(&self) -> u64 {
        self.shown.as_ref().map_or(0, |status| status.count("store_bytes"))
    }

    /// Notes how much room there is on the disk and in memory, and says when that is too little.
    fn look_at_resources(&mut self, now: Time) {
        let Found { disk, memory } = self.resources.found();
        let metrics = self.metrics.clone();
        let snapshot = journal::snapshot_bytes(self.data_bytes());
        if let Some(disk) = disk {
            metrics.disk_free_bytes.set(disk.free);
            metrics.disk_size_bytes.set(disk.size);
            metrics.disk_reserve_bytes.set(self.watermarks.disk.reserve(disk.size, snapshot));
        }
        let short = self.journal.is_short();
        if short {
            self.journal.look_for_room();
        }
        let was_low = metrics.disk_nearly_full.get();
        let is_low = self.watermarks.disk.look(disk, snapshot, short);
        metrics.disk_nearly_full.set(is_low);
        if was_low != is_low {
            self.journal.set_disk_full(is_low);
        }
        if was_low && !is_low {
            info!("the disk has room again");
        }
        let disk = is_low.then_some(Shortage::Disk);
        let (was_low, is_low) = (metrics.memory_nearly_used_up.get(), self.watermarks.memory.look(memory));
        let memory = memory.unwrap_or_default();
        metrics.memory_used_bytes.set(memory.used);
        metrics.memory_limit_bytes.set(memory.limit);
        metrics.memory_nearly_used_up.set(is_low);
        if is_low {
            resources::purge_freed_memory();
        }
        if was_low && !is_low {
            info!(used = memory.used, limit = memory.limit, "there is memory again");
        }
        // Elsewhere an operator bounds the data.
        let bounds = is_low && !self.constants.can.total_order;
        self.act_on_shortage(disk.or(bounds.then_some(Shortage::Memory)), now);
        for (name, words) in resources::warnings(&metrics) {
            if let Some(unsaid) = self.log_rate.ask(name, now) {
                warn!(unsaid, "{words}");
            }
        }
    }

    /// Refuses what grows the data while this node is short of something, and hands over what it leads.
    fn act_on_shortage(&mut self, shortage: Option<Shortage>, now: Time) {
        self.machines.set_shortage(shortage);
        let what = match shortage {
            None => return self.hand_overs = HandOvers::default(),
            Some(Shortage::Disk) => "the disk is nearly full",
            Some(Shortage::Memory) => "memory is nearly used up",
        };
        let can_hand_over = self.machines.leads() && self.metrics.peers_up.get() > 0;
        if can_hand_over && self.hand_overs.begin(now) {
            info!("{what}: handing over to another leader");
            self.ready.extend(self.machines.led().into_iter().map(|group| hand_over(group, now)));
        }
    }

    /// Says in time that this node's certificate will expire, or that it has.
    fn look_at_certificate(&mut self, now: Time) {
        let Some(expiry) = self.tls.as_ref().and_then(Credentials::not_after) else { return };
        self.metrics.tls_certificate_expiry_timestamp_seconds.set(Duration::from_secs(expiry));
        let hours = clock::hours_until(expiry);
        if hours < EXPIRES_SOON.as_secs() / 3600 && self.certificate_warning <= now {
            self.certificate_warning = now + WARN_AGAIN;
            warn!(
                hours,
                "this node's certificate expires soon, or has: issue another one, put it in its place, and send SIGHUP"
            );
        }
    }

    /// Logs changes of role, leader and ballot, and when memory is lost or whole again; and now and then, that the wall
    /// clock is off.
    fn show_status(&mut self, now: Time) {
        let status = self.machines.status();
        if let Some((_, off)) = status.facts.iter().find(|(name, _)| *name == WALL_CLOCK)
            && let Some(unsaid) = self.log_rate.ask(WALL_CLOCK, now)
        {
            warn!(
                unsaid,
                "a wall clock is off: {off}. Set it right: keys and sessions expire by those of a majority, and TTL \
                 tells what is left by the node's own"
            );
        }
        match (self.shown.as_ref().and_then(Status::lost_memory), status.lost_memory()) {
            (before, Some(lost)) if before.as_ref() != Some(&lost) => warn!("{lost}"),
            (Some(_), None) => info!("this node has all data in memory again"),
            _ => {}
        }
        let key = |status: &Status| (status.role, status.leader, status.ballot.clone());
        if self.shown.as_ref().map(key) != Some(key(&status)) {
            let under = status.leader.map_or(", no leader".into(), |leader| format!(" under node {leader}"));
            info!(
                role = status.role,
                leader = status.leader.map(|node| node.get()),
                ballot = status.ballot,
                committed = status.committed,
                applied = status.applied,
                "{}{under}",
                status.role
            );
        }
        self.shown = Some(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_whose_disk_stays_nearly_full_hands_over_again_and_ever_less_often() {
        let mut hand_overs = HandOvers::default();
        let begins = (0..=900).filter(|second| hand_overs.begin(Time::ZERO + Duration::from_secs(*second)));
        assert_eq!(begins.collect::<Vec<_>>(), [0, 20, 60, 140, 300, 600, 900]);
    }
}
