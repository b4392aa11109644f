//! What a proxy sends: whatever its target, or the replica nearby, has not got.

use std::collections::BTreeMap;

use quorate_core::{Access, Context, Mark, NodeId, Time};

use super::{ASK_BYTES, Call, SessionClient};
use crate::clients::message::{Ask, Embeds, Message};

impl<M: Embeds> SessionClient<M> {
    /// Everything under way has to be sent (again).
    pub(super) fn unsend(&mut self) {
        self.opening = None;
        self.writes.iter_mut().for_each(|write| write.sent = None);
        self.unsend_reads();
    }

    /// Every read under way has to be sent (again).
    pub(super) fn unsend_reads(&mut self) {
        self.reads.iter_mut().for_each(|(_, read)| read.sent = None);
        self.unsent = true;
    }

    /// Gives numbers to queued writes and sends whatever the target has not got. While a target is looked for, only
    /// what the replica nearby may answer.
    pub(super) fn pump(&mut self, cx: &mut Context<'_, Self>) {
        if !std::mem::take(&mut self.unsent) {
            return;
        }
        let now = cx.now();
        let mut open = false;
        if self.is_stale(1, now) && self.writes.is_empty() && self.large.is_empty() && !self.queue.is_empty()
        {
            // Under its nonce, in which numbers go on: what was written before will not be asked for again.
            self.session = 0;
        }
        match (self.searching, self.session) {
            (true, _) => {}
            (false, 0) if (self.queue.is_empty() && self.large.is_empty()) || self.opening.is_some() => {}
            (false, 0) => {
                self.opening = Some(now);
                open = true;
            }
            (false, _) if self.is_stale(2, now) && self.large.is_empty() => {}
            (false, _) => self.number_writes(),
        }
        let mut ask = self.ask(open);
        let blank = self.ask(false);
        let near = self.near.filter(|near| *near != self.target || self.searching);
        let mut nearby = self.ask(false);
        let (mut bytes, mut nearby_bytes) = (0, 0);
        // Reads of a replica's own state, as new as their clients have seen: by replica.
        let mut local: BTreeMap<NodeId, (u64, Ask)> = BTreeMap::new();
        // The first write that nobody has got yet: it leaves behind the reads that are gathered here.
        let mut behind = None;
        // The last writes and reads are unsent, and none before them: what is repeated is all that is not answered.
        let unsent = match self.searching {
            true => 0,
            false => self.writes.iter().rev().take_while(|write| write.sent.is_none()).count(),
        };
        let first = self.writes.len() - unsent;
        if unsent > 0 && self.asked != Some(self.target) {
            self.asked = Some(self.target);
            self.in_flight.restart();
        }
        if unsent > 0 {
            self.confirmed = self.low;
        }
        for (index, write) in self.writes.iter_mut().enumerate().skip(first) {
            if write.answered {
                continue;
            }
            write.sent = Some(now);
            let is_new = write.sent_to.is_empty();
            write.sent_to.insert(self.target);
            if is_new {
                behind = behind.or(Some(self.low + index as u64).filter(|_| self.config.timely));
            }
            if let Some(call) = write.call.and_then(|id| self.calls.get(id)) {
                cx.mark(Mark::Forwarded { request: call.request });
            }
            let seq = self.low + index as u64;
            self.in_flight.on_sent(seq, write.command.len(), now);
            bytes += write.command.len();
            ask.writes.push((seq, write.command.clone()));
            if bytes >= ASK_BYTES {
                cx.send(self.target, M::from(Message::Ask(split(&mut ask, &blank))));
                bytes = 0;
            }
        }
        // Unless some were skipped while a target was looked for.
        let skipped = std::mem::replace(&mut self.skipped, false);
        for (id, read) in self.reads.iter_mut().rev() {
            match read.sent {
                Some(_) if skipped => continue,
                Some(_) => break,
                None => {}
            }
            let Call { request, access, after, ref command, .. } =
                *self.calls.get(read.call).expect("under way");
            let for_nearby = near.is_some() && self.config.nearest && access != Access::Manage;
            if self.searching && (read.asked_nearby || !for_nearby) {
                self.skipped = true;
                continue;
            }
            read.sent = Some(now);
            cx.mark(Mark::Forwarded { request });
            if self.config.local && access == Access::Read {
                let first = self.config.nearest && !std::mem::replace(&mut read.asked_nearby, true);
                let nearby = self.near.filter(|_| first);
                self.asked_nearby.add(usize::from(nearby.is_some()));
                let to = nearby.unwrap_or(self.target);
                read.held = to != self.target;
                let (slot, ask) = local.entry(to).or_insert_with(|| (0, blank.clone()));
                *slot = after.max(*slot);
                ask.reads.push((id, command.clone()));
                bytes += command.len();
                if bytes >= ASK_BYTES {
                    send_local(&mut local, &blank, cx);
                    bytes = 0;
                }
                continue;
            }
            let within = match access {
                Access::Within(staleness) => Some(staleness).filter(|_| self.config.bounded),
                Access::Read | Access::Write | Access::Manage => None,
            };
            let nearest = self.config.nearest && access != Access::Manage || within.is_some();
            if near.is_some() && nearest && !std::mem::replace(&mut read.asked_nearby, true) {
                self.asked_nearby.add(1);
                nearby.reads.push((id, command.clone()));
                nearby.bounds.extend(within.map(|within| (id, within)));
                read.held = true;
                nearby_bytes += command.len();
                if let Some(near) = near.filter(|_| nearby_bytes >= ASK_BYTES) {
                    cx.send(near, M::from(timely(split(&mut nearby, &blank), behind)));
                    nearby_bytes = 0;
                }
                continue;
            }
            self.fallen_back.add(usize::from(read.held));
            read.held = false;
            let asked = if access == Access::Manage { &mut ask.manage } else { &mut ask.reads };
            asked.push((id, command.clone()));
            bytes += command.len();
            if bytes >= ASK_BYTES {
                cx.send(self.target, M::from(Message::Ask(split(&mut ask, &blank))));
                bytes = 0;
            }
        }
        let again = if self.searching { Vec::new() } else { std::mem::take(&mut self.again) };
        for id in again {
            // It may have been answered since, or sent again with all others.
            if let Some(read) = self.reads.get_mut(id)
                && std::mem::take(&mut read.held)
            {
                read.sent = Some(now);
                self.fallen_back.add(1);
                let command = &self.calls.get(read.call).expect("under way").command;
                ask.reads.push((id, command.clone()));
                bytes += command.len();
                if bytes >= ASK_BYTES {
                    cx.send(self.target, M::from(Message::Ask(split(&mut ask, &blank))));
                    bytes = 0;
                }
            }
        }
        send_local(&mut local, &blank, cx);
        let (ask, nearby) = (split(&mut ask, &blank), split(&mut nearby, &blank));
        if let Some(near) = near.filter(|_| !nearby.reads.is_empty()) {
            cx.send(near, M::from(timely(nearby, behind)));
        }
        if !ask.is_probe() {
            cx.send(self.target, M::from(Message::Ask(ask)));
        }
        let unhold = self.config.unhold.filter(|_| near.is_some());
        self.wake_by(now + unhold.unwrap_or(self.patience).min(self.patience), cx);
    }

    /// Whether the session was opened so many times [`renew`](super::ProxyConfig::renew) ago, at least.
    fn is_stale(&self, times: u32, now: Time) -> bool {
        self.config.renew.is_some_and(|renew| self.session != 0 && now.since(self.opened) >= renew * times)
    }

    /// Tells the target which answers have come, if it should know and has not heard it with a write.
    pub(super) fn confirm(&mut self, cx: &mut Context<'_, Self>) {
        let is_due = self.config.confirm.is_some_and(|after| self.low - self.confirmed >= after);
        if is_due && !self.writes.is_empty() && !self.searching {
            self.confirmed = self.low;
            self.probe(self.target, cx);
        }
    }

    pub(super) fn ask(&self, open: bool) -> Ask {
        Ask {
            nonce: self.nonce,
            session: self.session,
            open,
            low: self.low,
            writes: Vec::new(),
            reads: Vec::new(),
            bounds: Vec::new(),
            manage: Vec::new(),
            version: self.version,
        }
    }
}

/// Sends reads of replicas' own states.
fn send_local<M: Embeds>(
    local: &mut BTreeMap<NodeId, (u64, Ask)>,
    blank: &Ask,
    cx: &mut Context<'_, SessionClient<M>>,
) {
    while let Some((to, (slot, mut ask))) = local.pop_first() {
        cx.send(to, M::from(Message::AskAfter { ask: split(&mut ask, blank), slot }));
    }
}

/// Reads for the replica nearby, and the write that is sent behind them, if any is.
fn timely(ask: Ask, behind: Option<u64>) -> Message {
    match behind {
        Some(write) => Message::AskBehind { ask, write },
        None => Message::Ask(ask),
    }
}

/// Takes what has gathered in an ask, its reads in order: they were gathered from the last to the first.
fn split(ask: &mut Ask, blank: &Ask) -> Ask {
    let mut whole = std::mem::replace(ask, blank.clone());
    whole.reads.reverse();
    whole.bounds.reverse();
    whole
}
