//! A leader's **hand-over** (Ongaro's thesis §3.10): it proposes nothing more until another has all of its log, and
//! lets that one lead. Operators ask for it, and so does a leader that is about to stop.

use std::time::Duration;

use quorate_core::{Managed, NodeId, Time, mutation};

use crate::clients::{Intake, PendingRead};
use crate::membership::{Configuration, refused};

/// The one that is under way, if one is.
#[derive(Debug, Default)]
pub struct HandOver(Option<UnderWay>);

#[derive(Debug)]
struct UnderWay {
    to: NodeId,
    since: Time,
    /// The operator who is to be told.
    waiting: Option<PendingRead>,
}

impl HandOver {
    /// Who is to lead, while one is under way.
    pub fn target(&self) -> Option<NodeId> {
        self.0.as_ref().map(|one| one.to)
    }

    /// Begins, for an operator's request or without one: to the voter that is asked for, or to whoever has most of the
    /// log. `near` are those that were heard lately, and how much each has.
    pub fn begin(
        &mut self,
        members: &Configuration,
        near: impl IntoIterator<Item = (NodeId, u64)>,
        (to, waiting): (Option<NodeId>, Option<PendingRead>),
        now: Time,
        intake: &mut Intake,
    ) {
        let target = match self.0 {
            Some(_) => Err(refused("the leader is handing over already")),
            None => members.transfer_target(to, near),
        };
        match (target, waiting) {
            (Ok(to), waiting) => self.0 = Some(UnderWay { to, since: now, waiting }),
            (Err(how), Some(request)) => intake.on_managed(request, how),
            (Err(_), None) => {}
        }
    }

    /// Whether it has ended just now: the target has everything (`complete`), or cannot be waited for any longer.
    pub fn end_if_due(&mut self, complete: bool, limit: Duration, now: Time, intake: &mut Intake) -> bool {
        let late = |since| now.since(since) >= limit && !mutation::active("handover/wait-for-ever");
        let Some(UnderWay { to, waiting, .. }) = self.0.take_if(|one| complete || late(one.since)) else {
            return false;
        };
        if let Some(request) = waiting {
            let refusal = || refused(format!("node {to} did not take over in time"));
            intake.on_managed(request, if complete { Managed::Done } else { refusal() });
        }
        true
    }
}
